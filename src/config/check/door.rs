//! `[door]`: where it listens and what strangers may take.

use std::net::SocketAddr;
use std::time::Duration;

use super::{MILLISECOND, auth, path};
use crate::config::findings::Check;
use crate::config::raw::{DOOR, DOOR_LIMITS, DOOR_TLS};
use crate::config::reader::{Item, Table};
use crate::config::{Door, DoorLimits, DoorTls};

const LISTEN: &str =
    "an address with its port, such as \"0.0.0.0:7460\", \"[::]:7460\" or \"127.0.0.1:7460\"";

/// Checks the section, if it is there.
pub(super) fn door(check: &mut Check, top: &Table<'_>) -> Option<Door> {
    let item = top.item("door")?;
    let Some(entries) = item.get().as_table() else {
        item.wrong_type(check, "a section: [door]");
        return None;
    };
    let table = Table::open(check, &DOOR, "[door]".to_owned(), item.key.clone(), entries);
    let listen = table
        .required(check, "listen", "\"0.0.0.0:7460\"")
        .map(|item| listen(check, &item));
    let tls = table.item("tls").map(|item| tls(check, &item));
    let limits = table
        .item("limits")
        .map_or_else(DoorLimits::default, |item| limits(check, &item));
    Some(Door {
        listen: listen?,
        tls: match tls {
            Some(tls) => Some(tls?),
            None => None,
        },
        limits,
    })
}

fn listen(check: &mut Check, item: &Item<'_>) -> Vec<SocketAddr> {
    let members = item.one_or_more();
    if members.is_empty() {
        check.error(&item.span, "`listen` is an empty list", LISTEN);
    }
    let mut addresses: Vec<SocketAddr> = Vec::new();
    for member in members {
        let Some(text) = member.filled(check, LISTEN) else {
            continue;
        };
        match text.parse::<SocketAddr>() {
            Ok(address) if address.port() == 0 => {
                check.error(
                    &member.span,
                    "`listen` has the port 0, so nobody would know it",
                    LISTEN,
                );
            }
            Ok(address) if addresses.contains(&address) => {
                check.error(
                    &member.span,
                    "`listen` has the same address twice",
                    "each once",
                );
            }
            Ok(address) => addresses.push(address),
            Err(_) => {
                check.error(
                    &member.span,
                    format!("`listen`: {text:?} is no address"),
                    LISTEN,
                );
            }
        }
    }
    addresses
}

fn tls(check: &mut Check, item: &Item<'_>) -> Option<DoorTls> {
    let form = "{ cert = \"path\", key = { file = \"path\" } }";
    let table = item.table(check, &DOOR_TLS, form)?;
    let cert = table
        .required(check, "cert", "\"path\"")
        .and_then(|item| path(check, &item));
    let key = table.required(check, "key", "{ file = \"path\" }");
    let key = key.and_then(|item| auth::secret(check, &item, "tls.key"));
    Some(DoorTls {
        cert: cert?,
        key: key?,
    })
}

impl Default for DoorLimits {
    fn default() -> Self {
        Self {
            connections: 64,
            per_peer: 16,
            head: 16 << 10,
            body: 1 << 20,
            head_time: Duration::from_secs(10),
            body_time: Duration::from_secs(30),
            idle: Duration::from_secs(60),
        }
    }
}

fn limits(check: &mut Check, item: &Item<'_>) -> DoorLimits {
    let default = DoorLimits::default();
    let form = "a table such as { connections = 64, body = \"1MiB\" }";
    let Some(table) = item.table(check, &DOOR_LIMITS, form) else {
        return default;
    };
    let whole = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    let connections = whole(table.integer(check, "connections", 64, 1..=1024));
    let usual = default.per_peer.min(connections);
    let per_peer = whole(table.integer(check, "per_peer", usual as u64, 1..=1024));
    if let (true, Some(item)) = (per_peer > connections, table.item("per_peer")) {
        check.error(
            &item.span,
            "`per_peer` is more than `connections`",
            format!("at most {connections}"),
        );
    }
    DoorLimits {
        connections,
        per_peer,
        head: whole(table.size(check, "head", default.head as u64, 1 << 20)),
        body: whole(table.size(check, "body", default.body as u64, 64 << 20)),
        head_time: table.duration(check, "head_time", default.head_time, MILLISECOND),
        body_time: table.duration(check, "body_time", default.body_time, MILLISECOND),
        idle: table.duration(check, "idle", default.idle, MILLISECOND),
    }
}
