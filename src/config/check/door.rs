//! `[door]`: where it listens and what strangers may take.

use std::net::SocketAddr;
use std::time::Duration;

use super::{MILLISECOND, auth, path};
use crate::config::findings::Check;
use crate::config::raw::{DOOR, DOOR_LIMITS, DOOR_TLS};
use crate::config::reader::{Item, Table};
use crate::config::{Door, DoorLimits, DoorTls, Listen};

/// The smallest `memory`: one block of the door's.
const LEAST_MEMORY: usize = 16 << 10;

const LISTEN: &str = "an address with its port, such as \"0.0.0.0:7460\", \"[::]:7460\" or \"127.0.0.1:7460\", or \"systemd:NAME\"";

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

fn listen(check: &mut Check, item: &Item<'_>) -> Vec<Listen> {
    let members = item.one_or_more();
    if members.is_empty() {
        check.error(&item.span, "`listen` is an empty list", LISTEN);
    }
    let mut places: Vec<Listen> = Vec::new();
    for member in members {
        let place = place(check, &member);
        if place.as_ref().is_some_and(|place| places.contains(place)) {
            check.error(
                &member.span,
                "`listen` has the same place twice",
                "each once",
            );
        }
        places.extend(place);
    }
    places
}

fn place(check: &mut Check, item: &Item<'_>) -> Option<Listen> {
    let text = item.filled(check, LISTEN)?;
    if let Some(name) = text.strip_prefix(Listen::SYSTEMD) {
        // As systemd.socket(5) takes it; the colon parts the names that are passed.
        let is_name = (1..=255).contains(&name.len())
            && name
                .bytes()
                .all(|byte| byte.is_ascii_graphic() && byte != b':');
        if !is_name {
            let what = format!("`listen`: {text:?} has no name of a socket");
            check.error(
                &item.span,
                what,
                "`FileDescriptorName=` of the socket unit behind the colon",
            );
            return None;
        }
        return Some(Listen::Systemd(name.to_owned()));
    }
    match text.parse::<SocketAddr>() {
        Ok(address) if address.port() == 0 => {
            check.error(
                &item.span,
                "`listen` has the port 0, so nobody would know it",
                LISTEN,
            );
            None
        }
        Ok(address) => Some(Listen::Address(address)),
        Err(_) => {
            check.error(
                &item.span,
                format!("`listen`: {text:?} is no address"),
                LISTEN,
            );
            None
        }
    }
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
            connections: 256,
            per_peer: 64,
            head: 16 << 10,
            body: 1 << 20,
            memory: 16 << 20,
            head_time: Duration::from_secs(10),
            body_time: Duration::from_secs(120),
            idle: Duration::from_secs(30),
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
    let connections =
        whole(table.integer(check, "connections", default.connections as u64, 1..=1024));
    let usual = default.per_peer.min(connections);
    let per_peer = whole(table.integer(check, "per_peer", usual as u64, 1..=1024));
    if let (true, Some(item)) = (per_peer > connections, table.item("per_peer")) {
        check.error(
            &item.span,
            "`per_peer` is more than `connections`",
            format!("at most {connections}"),
        );
    }
    let memory = whole(table.size(check, "memory", default.memory as u64, 1 << 30));
    if let (true, Some(item)) = (memory < LEAST_MEMORY, table.item("memory")) {
        check.error(&item.span, "`memory` is too small", "at least \"16KiB\"");
    }
    DoorLimits {
        connections,
        per_peer,
        head: whole(table.size(check, "head", default.head as u64, 1 << 20)),
        body: whole(table.size(check, "body", default.body as u64, 64 << 20)),
        memory,
        head_time: table.duration(check, "head_time", default.head_time, MILLISECOND),
        body_time: table.duration(check, "body_time", default.body_time, MILLISECOND),
        idle: table.duration(check, "idle", default.idle, MILLISECOND),
    }
}
