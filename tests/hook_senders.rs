//! Promise: a sender is answered when its event is safe, whatever the agent is doing.
//!
//! Sixteen senders at once, with kept connections, while an upstream stalls and while one sends without a pause; the upstream
//! goes on only when every sender has its answer, so no answer can have waited for it.
//!
//! `GLEANER_SENDERS=DIR` sends 2,000 requests with GitHub's example payloads, signed by the reference libraries that are in
//! DIR (see `support/senders/`); without it there are 300, signed here. With `GLEANER_REQUIRE_SERVERS=1` the libraries must
//! be there.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot be set up has failed"
)]

mod support;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use gleaner::clock::{Clock as _, SystemClock};
use rusqlite::{Connection, OpenFlags};
use serde_json::{Value, json};
use support::device::until;
use support::gleaner::{Home, Running};
use support::hooks::{self, SECRET, Sender, WHSEC};
use support::upstream::{Answer, Gate, Upstream};

const SENDERS: usize = 16;

/// One request that is sent.
struct Delivery {
    event: String,
    path: String,
    body: Vec<u8>,
    request: Vec<u8>,
}

/// All that is sent, and how much of a body comes without a pause meanwhile.
fn deliveries() -> (Vec<Delivery>, u64) {
    let Some(dir) = std::env::var_os("GLEANER_SENDERS").map(PathBuf::from) else {
        assert!(
            std::env::var_os("GLEANER_REQUIRE_SERVERS").is_none(),
            "the reference senders are required: GLEANER_SENDERS names no directory"
        );
        return (own(150), 8 << 20);
    };
    let here = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/senders");
    let said = |program: PathBuf, script: &str, secret: &str| {
        let mut command = Command::new(program);
        command
            .arg(here.join(script))
            .arg(&dir)
            .args(["1000", secret]);
        let output = command.output().unwrap();
        assert!(
            output.status.success(),
            "{script}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).unwrap()
    };
    let lines = said("node".into(), "github.mjs", SECRET)
        + &said(dir.join("venv/bin/python"), "standard.py", WHSEC);
    let read = |line: &str| {
        let line: Value = serde_json::from_str(line).unwrap();
        let text = |name: &str| line[name].as_str().unwrap().to_owned();
        let headers: Vec<(String, String)> = line["headers"]
            .as_object()
            .unwrap()
            .iter()
            .map(|(name, value)| (name.clone(), value.as_str().unwrap().to_owned()))
            .collect();
        let body = hooks::from_base64(&text("body"));
        Delivery {
            event: text("id"),
            request: hooks::post(&text("path"), &headers, &body),
            path: text("path"),
            body,
        }
    };
    (lines.lines().map(read).collect(), 100 << 20)
}

/// As many for each hook, signed here, from 1 to 28 kB.
fn own(count: usize) -> Vec<Delivery> {
    let second = SystemClock.wall().as_second();
    let mut all = Vec::new();
    for nth in 0..count {
        let body = json!({
            "type": "example",
            "data": {"id": nth, "payload": "\u{e9}x".repeat(300 + nth * 180 % 9000)},
        });
        let body = body.to_string().into_bytes();
        let (github, standard) = (format!("gh-{nth}"), format!("msg_{nth}"));
        for (event, path, headers) in [
            (
                &github,
                "/hooks/github",
                hooks::github_headers(&github, &body),
            ),
            (
                &standard,
                "/hooks/standard",
                hooks::standard_headers(&standard, second, &body),
            ),
        ] {
            all.push(Delivery {
                event: event.clone(),
                path: path.into(),
                request: hooks::post(path, &headers, &body),
                body: body.clone(),
            });
        }
    }
    all
}

fn config(upstream: &Upstream) -> String {
    let address = hooks::address();
    format!(
        "time_sync = \"synced\"\n\
         [door]\nlisten = \"{address}\"\nlimits = {{ per_peer = 64 }}\n\
         [hook.github]\nscheme = \"github\"\nsecret = {{ file = \"secret\" }}\nevery = \"0s\"\n\
         [hook.standard]\nscheme = \"standard-webhooks\"\nsecret = {{ file = \"whsec\" }}\nevery = \"0s\"\n\
         records = {{ source = \"events\", at = \"/data\" }}\n\
         [source.events]\nkey = \"/id\"\npull = \"none\"\n\
         [source.slow]\nurl = \"{}\"\nkey = \"/id\"\nevery = \"1d\"\n",
        upstream.url("/slow")
    )
}

/// Sends all of it, each by one of the senders; how many were answered well.
fn send_all(agent: &Running, deliveries: &[Delivery]) -> u64 {
    let door = door_of(agent);
    let answered = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for first in 0..SENDERS {
            let answered = &answered;
            scope.spawn(move || {
                let mut sender = Sender::connect(door);
                for delivery in deliveries.iter().skip(first).step_by(SENDERS) {
                    let reply = sender.ask(&delivery.request);
                    assert_eq!(
                        reply.status,
                        202,
                        "{} of {} bytes: {reply:?}",
                        delivery.event,
                        delivery.body.len()
                    );
                    assert!(!reply.is_duplicate(), "{reply:?}");
                    answered.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
    });
    answered.load(Ordering::SeqCst)
}

fn door_of(agent: &Running) -> std::net::SocketAddr {
    let mut door = None;
    until("the door is open", || {
        door = hooks::door_told(&agent.log());
        door.is_some()
    });
    door.unwrap()
}

fn home(upstream: &Upstream) -> Home {
    let home = Home::new(&config(upstream));
    for (file, text) in [("secret", SECRET), ("whsec", WHSEC), ("synced", "")] {
        std::fs::write(home.path(file), text).unwrap();
    }
    home
}

/// The names of its threads, without those of the store's.
fn threads(agent: &Running) -> Vec<String> {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", agent.pid())).unwrap();
    let mut names: Vec<String> = tasks
        .filter_map(|task| std::fs::read_to_string(task.unwrap().path().join("comm")).ok())
        .map(|name| name.trim().to_owned())
        .collect();
    names.sort();
    names
}

/// Each event is in the inbox once and processed, and what the standard hook brought is in the copy.
fn all_is_there(home: &Home, deliveries: &[Delivery]) {
    let mut listed = Vec::new();
    until("every event is processed", || {
        listed = home.gleaner(&["inbox", "list", "--json"]).json();
        listed.len() == deliveries.len() && listed.iter().all(|one| one["state"] == "done")
    });
    let mut events: Vec<&str> = listed
        .iter()
        .map(|one| one["event_id"].as_str().unwrap())
        .collect();
    events.sort_unstable();
    let mut sent: Vec<&str> = deliveries.iter().map(|one| one.event.as_str()).collect();
    sent.sort_unstable();
    assert_eq!(events, sent);
    assert!(listed.iter().all(|one| one["clock_trusted"] == true));

    let db =
        Connection::open_with_flags(home.path("state/data.db"), OpenFlags::SQLITE_OPEN_READ_ONLY)
            .unwrap();
    let mut query = db.prepare("SELECT key, body FROM events").unwrap();
    let rows: BTreeMap<i64, Value> = query
        .query_map([], |row| Ok((row.get(0)?, row.get::<_, String>(1)?)))
        .unwrap()
        .map(|row| row.map(|(key, body)| (key, serde_json::from_str(&body).unwrap())))
        .collect::<Result<_, _>>()
        .unwrap();
    let expected: BTreeMap<i64, Value> = deliveries
        .iter()
        .filter(|delivery| delivery.path == "/hooks/standard")
        .map(|delivery| {
            let body: Value = serde_json::from_slice(&delivery.body).unwrap();
            (body["data"]["id"].as_i64().unwrap(), body["data"].clone())
        })
        .collect();
    assert_eq!(rows.len(), expected.len());
    assert!(rows == expected, "the copy differs from what was sent");
}

#[test]
fn all_senders_are_answered_while_an_upstream_stalls() {
    let (deliveries, _) = deliveries();
    let upstream = Upstream::start();
    let (gate, shut) = Gate::new();
    upstream.queue(Answer::ok().json("[{\"id\":1}]").gate(shut));
    upstream.answer(|_| Answer::ok().json("[{\"id\":1}]"));
    let home = home(&upstream);
    let agent = home.run();
    until("it waits for the upstream", || {
        !upstream.requests().is_empty()
    });
    let answered = send_all(&agent, &deliveries);
    assert_eq!(answered, deliveries.len() as u64);
    let threads = threads(&agent);
    assert_eq!(
        threads.iter().filter(|name| *name == "gleaner").count(),
        1,
        "{threads:?}"
    );
    println!(
        "hook_senders: {answered} answers during a stall, {} kB, {} fds, threads {threads:?}",
        agent.peak_kb(),
        agent.fds()
    );
    assert_eq!(upstream.requests().len(), 1, "it still waits");
    gate.open();
    all_is_there(&home, &deliveries);
    assert_eq!(agent.stop(), 0);
}

#[test]
fn all_senders_are_answered_during_a_body_without_a_pause() {
    let (deliveries, least) = deliveries();
    let upstream = Upstream::start();
    let all_answered = Arc::new(AtomicBool::new(false));
    let enough = Arc::clone(&all_answered);
    let (mut sent, mut number, mut over) = (0_u64, 0, false);
    upstream.queue(Answer::making(move || {
        if over {
            return None;
        }
        over = sent >= least && enough.load(Ordering::SeqCst);
        let mut chunk = if over {
            b"\n]".to_vec()
        } else {
            let comma = if number == 0 { "[" } else { "," };
            format!("{comma}{{\"id\":{number}}}").into_bytes()
        };
        number += 1;
        // Whitespace is read and thrown away: as much reading as of anything else, and nothing to keep.
        chunk.resize(64 * 1024, b' ');
        sent += chunk.len() as u64;
        Some(chunk)
    }));
    upstream.answer(|_| Answer::ok().json("[]"));
    let home = home(&upstream);
    let agent = home.run();
    until("it reads", || upstream.sent() > 1 << 20);
    let answered = send_all(&agent, &deliveries);
    assert_eq!(answered, deliveries.len() as u64);
    assert_eq!(upstream.requests().len(), 1, "it still reads");
    all_answered.store(true, Ordering::SeqCst);
    all_is_there(&home, &deliveries);
    println!(
        "hook_senders: {answered} answers during {} MB, {} kB, {} fds",
        upstream.sent() >> 20,
        agent.peak_kb(),
        agent.fds()
    );
    assert!(upstream.sent() >= least);
    assert_eq!(agent.stop(), 0);
}
