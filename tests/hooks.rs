//! Webhooks from end to end, with the real binary: judged, saved before they are answered, processed later, known again.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot be set up has failed"
)]

mod support;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use hmac::{Hmac, KeyInit, Mac};
use rusqlite::{Connection, OpenFlags};
use serde_json::Value;
use sha2::Sha256;
use support::gleaner::{Home, Running};
use support::upstream::{Answer, Gate, Upstream};

const SECRET: &str = "a secret that nobody guesses";

/// An address of this test's own: every address of 127/8 is this host's.
fn address() -> SocketAddr {
    // From 1 on: no address of this process ends in 0, and none is given twice.
    static LAST: AtomicU32 = AtomicU32::new(1);
    let number = std::process::id()
        .wrapping_mul(64)
        .wrapping_add(LAST.fetch_add(1, Ordering::SeqCst));
    let [_, a, b, c] = number.to_be_bytes();
    SocketAddr::from(([127, a | 128, b, c], 7460))
}

/// A hook of GitHub's scheme, processed at once.
fn hook(lines: &str) -> String {
    let address = address();
    format!(
        "[door]\nlisten = \"{address}\"\n[hook.erp]\nscheme = \"github\"\nsecret = {{ file = \"secret\" }}\nevery = \"0s\"\n{lines}\n"
    )
}

fn home(config: &str) -> Home {
    let home = Home::new(config);
    std::fs::write(home.path("secret"), format!("{SECRET}\n")).unwrap();
    home
}

/// Where the door listens, as the log tells it.
fn door_of(agent: &Running) -> SocketAddr {
    loop {
        let log = agent.log();
        let told = log
            .lines()
            .find_map(|line| line.split_once("the door listens at "));
        if let Some((_, rest)) = told {
            return rest.split_whitespace().next().unwrap().parse().unwrap();
        }
        std::thread::yield_now();
    }
}

fn signature(body: &[u8]) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(SECRET.as_bytes()).unwrap();
    mac.update(body);
    let bytes = mac.finalize().into_bytes();
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A delivery as GitHub sends it.
fn delivery(id: &str, body: &str) -> Vec<u8> {
    format!(
        "POST /hooks/erp HTTP/1.1\r\nHost: gw\r\nContent-Type: application/json\r\nX-GitHub-Event: push\r\nX-GitHub-Delivery: {id}\r\n\
         X-Hub-Signature-256: sha256={}\r\nContent-Length: {}\r\n\r\n{body}",
        signature(body.as_bytes()),
        body.len()
    )
    .into_bytes()
}

/// Sends one request on a connection of its own; status and body of the answer.
fn send(door: SocketAddr, request: &[u8]) -> (u16, String) {
    let mut stream = TcpStream::connect(door).unwrap();
    stream.write_all(request).unwrap();
    let mut answer = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let text = String::from_utf8_lossy(&answer).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head
                .lines()
                .find_map(|line| line.strip_prefix("Content-Length: "))
                .map_or(0, |length| length.parse::<usize>().unwrap());
            if body.len() >= length {
                let status = head.split(' ').nth(1).unwrap().parse().unwrap();
                return (status, body.to_owned());
            }
        }
        let read = stream.read(&mut buffer).unwrap();
        assert!(read > 0, "closed after {text:?}");
        answer.extend_from_slice(&buffer[..read]);
    }
}

fn request_id(body: &str) -> String {
    let body: Value = serde_json::from_str(body).unwrap();
    body["request_id"].as_str().unwrap().to_owned()
}

fn rows(home: &Home, sql: &str) -> Vec<String> {
    let path = home.path("state/data.db");
    if !Path::new(&path).exists() {
        return Vec::new();
    }
    let db = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
    let Ok(mut query) = db.prepare(sql) else {
        return Vec::new();
    };
    let rows = query.query_map([], |row| row.get(0)).unwrap();
    rows.collect::<Result<_, _>>().unwrap()
}

/// Waits until the copy is like this.
fn until_rows(home: &Home, sql: &str, expected: &[&str]) {
    for _ in 0..100_000 {
        if rows(home, sql) == expected {
            return;
        }
        std::thread::yield_now();
    }
    assert_eq!(rows(home, sql), expected);
}

const CARRIED: &str = "records = { source = \"orders\", at = \"/orders\" }\n\
    [source.orders]\nkey = \"/id\"\npull = \"none\"\nupdated = \"/t\"\ndeleted = \"/gone\"\n";
const BODIES: &str = "SELECT body FROM orders ORDER BY key";

#[test]
fn records_come_by_hooks_alone_in_any_order_and_once() {
    let home = home(&hook(CARRIED));
    let agent = home.run();
    let door = door_of(&agent);
    let at = |id: u32, hour: u32, more: &str| {
        format!("{{\"orders\":[{{\"id\":{id},\"t\":\"2026-01-01T{hour:02}:00:00Z\"{more}}}]}}")
    };
    let (status, first) = send(door, &delivery("a", &at(1, 5, "")));
    assert_eq!(status, 202, "{first}");
    until_rows(
        &home,
        BODIES,
        &["{\"id\":1,\"t\":\"2026-01-01T05:00:00Z\"}"],
    );
    // Sent again: the first one's id, and nothing is done.
    let (status, again) = send(door, &delivery("a", &at(1, 5, "")));
    assert_eq!((status, request_id(&again)), (202, request_id(&first)));
    assert!(again.contains("\"duplicate\":true"));
    // An older event comes late.
    send(door, &delivery("b", &at(1, 4, ",\"old\":true")));
    send(door, &delivery("c", &at(2, 1, "")));
    until_rows(
        &home,
        BODIES,
        &[
            "{\"id\":1,\"t\":\"2026-01-01T05:00:00Z\"}",
            "{\"id\":2,\"t\":\"2026-01-01T01:00:00Z\"}",
        ],
    );
    // Deleted, and what was before that does not bring it back.
    send(door, &delivery("d", &at(1, 7, ",\"gone\":true")));
    send(door, &delivery("e", &at(1, 6, ",\"late\":true")));
    send(door, &delivery("f", &at(3, 1, "")));
    until_rows(
        &home,
        "SELECT CAST(key AS TEXT) FROM orders ORDER BY key",
        &["2", "3"],
    );
}

#[test]
fn strangers_are_refused_and_nothing_of_theirs_is_kept() {
    let home = home(&hook(CARRIED));
    let agent = home.run();
    let door = door_of(&agent);
    let body = "{\"orders\":[]}";
    let good = String::from_utf8(delivery("a", body)).unwrap();
    let table = [
        (good.replace("sha256=", "sha256=00"), 401),
        (good.replace("X-Hub-Signature-256", "X-Other"), 401),
        (good.replace("{\"orders\":[]}", "{\"orders\":{}}"), 401),
        (good.replace("/hooks/erp", "/hooks/other"), 404),
        (good.replace("/hooks/erp", "/hooks/%65rp"), 404),
        (good.replace("/hooks/erp", "/hooks/erp/"), 404),
        (good.replace("POST /hooks/erp", "GET /status"), 404),
        ("GET /hooks/erp HTTP/1.1\r\nHost: gw\r\n\r\n".into(), 405),
        ("HEAD /hooks/erp HTTP/1.1\r\nHost: gw\r\n\r\n".into(), 405),
        (
            good.replace("Host: gw", "Host: gw\r\nTransfer-Encoding: chunked"),
            400,
        ),
    ];
    for (request, expected) in table {
        let (status, body) = match expected {
            405 if request.starts_with("HEAD") => (405, String::new()),
            _ => send(door, request.as_bytes()),
        };
        assert_eq!(status, expected, "{request}: {body}");
    }
    assert_eq!(home.gleaner(&["inbox", "list", "--json"]).json().len(), 0);
    assert_eq!(send(door, good.as_bytes()).0, 202);
    let listed = home.gleaner(&["inbox", "list", "--json"]).json();
    assert_eq!(listed.len(), 1);
    assert!(!agent.log().contains(SECRET));
}

#[test]
fn a_hook_is_answered_while_an_upstream_stalls_and_wakes_its_source_then() {
    let upstream = Upstream::start();
    let (gate, shut) = Gate::new();
    upstream.queue(Answer::ok().json("[{\"id\":1}]").gate(shut));
    upstream.answer(|_| Answer::ok().json("[{\"id\":1},{\"id\":2}]"));
    let home = home(&format!(
        "{}[source.parts]\nurl = \"{}\"\nkey = \"/id\"\nevery = \"1d\"\n",
        hook("wakes = \"parts\""),
        upstream.url("/parts")
    ));
    let agent = home.run();
    let door = door_of(&agent);
    while upstream.requests().is_empty() {
        std::thread::yield_now();
    }
    // The pull waits for its answer, and only this test can let it go on.
    let (status, body) = send(door, &delivery("a", "{}"));
    assert_eq!(status, 202);
    gate.open();
    until_rows(
        &home,
        "SELECT CAST(key AS TEXT) FROM parts ORDER BY key",
        &["1", "2"],
    );
    let id = request_id(&body);
    loop {
        let answer =
            agent.ask(format!("GET /requests/{id} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes());
        let (_, json) = answer.split_once("\r\n\r\n").unwrap();
        let json: Value = serde_json::from_str(json).unwrap();
        if json["state"] == "done" {
            break;
        }
    }
}

#[test]
fn an_event_leads_to_one_record_that_is_fetched_or_gone() {
    let upstream = Upstream::start();
    upstream.answer(|request| match request.path() {
        "/api/parts" => Answer::ok().json("[{\"id\":1,\"v\":1},{\"id\":2,\"v\":1}]"),
        "/api/parts/1" => Answer::ok().json("{\"data\":{\"id\":1,\"v\":2}}"),
        _ => Answer::status(404),
    });
    let home = home(&format!(
        "[upstream.up]\nbase = \"{}\"\nproxy = \"\"\n{}[source.parts]\nupstream = \"up\"\npath = \"parts\"\nkey = \"/id\"\nevery = \"1d\"\n",
        upstream.url("/api/"),
        hook(
            "fetch = { source = \"parts\", url = \"parts/{/part}\", at = \"/data\", key = \"/part\" }"
        )
    ));
    let agent = home.run();
    let door = door_of(&agent);
    let all = "SELECT body FROM parts ORDER BY key";
    until_rows(&home, all, &["{\"id\":1,\"v\":1}", "{\"id\":2,\"v\":1}"]);
    send(door, &delivery("a", "{\"part\":1}"));
    until_rows(&home, all, &["{\"id\":1,\"v\":2}", "{\"id\":2,\"v\":1}"]);
    send(door, &delivery("b", "{\"part\":2}"));
    until_rows(&home, all, &["{\"id\":1,\"v\":2}"]);
    let status = agent.status();
    assert_eq!(status["hooks"]["erp"]["saved"], 2, "{status}");
}

#[test]
fn what_cannot_be_processed_ends_as_a_dead_letter_with_its_reason() {
    let home = home(&hook(CARRIED));
    let agent = home.run();
    let door = door_of(&agent);
    let (status, body) = send(door, &delivery("a", "{\"other\":1}"));
    assert_eq!(status, 202);
    let id = request_id(&body);
    loop {
        let listed = home.gleaner(&["inbox", "list", "--json"]).json();
        if listed[0]["state"] == "failed" {
            break;
        }
    }
    let shown = home.gleaner(&["inbox", "show", &id]);
    assert!(
        shown.out.contains("the event has nothing at \"/orders\""),
        "{}",
        shown.out
    );
}

#[test]
fn killed_at_any_time_every_acknowledged_event_is_processed_once() {
    let home = home(&hook(CARRIED));
    let mut acknowledged = Vec::new();
    for round in 0..6 {
        let agent = home.run();
        let door = door_of(&agent);
        for number in 0..8 {
            let id = round * 8 + number;
            let body = format!("{{\"orders\":[{{\"id\":{id},\"t\":\"2026-01-01T00:00:00Z\"}}]}}");
            if send(door, &delivery(&format!("e{id}"), &body)).0 == 202 {
                acknowledged.push((id, body));
            }
        }
        agent.kill();
    }
    assert_eq!(acknowledged.len(), 48);
    let agent = home.run();
    let door = door_of(&agent);
    // Each is known, whether or not it had been processed before the kill.
    for (id, body) in &acknowledged {
        let (status, answer) = send(door, &delivery(&format!("e{id}"), body));
        assert!(
            status == 202 && answer.contains("\"duplicate\":true"),
            "{id}: {answer}"
        );
    }
    loop {
        let listed = home.gleaner(&["inbox", "list", "--json"]).json();
        assert_eq!(listed.len(), 48);
        if listed.iter().all(|one| one["state"] == "done") {
            break;
        }
    }
    let keys = rows(&home, "SELECT CAST(key AS TEXT) FROM orders ORDER BY key");
    assert_eq!(keys.len(), 48);
}
