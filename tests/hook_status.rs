//! What operators are told of webhooks, against the real binary: what was refused and why, what is in the way and when that is
//! over, what became of a payload; and that nothing half done or secret is left behind.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot be set up has failed"
)]

mod support;

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use rusqlite::{Connection, OpenFlags};
use rustix::process::Signal;
use serde_json::{Value, json};
use support::device::until;
use support::gleaner::{Home, Running};
use support::hooks::{self, Reply, SECRET, Sender, delivery, erp, send};
use support::mount::Mount;
use support::upstream::{Answer, Upstream};

const CARRIED: &str = "records = { source = \"orders\", at = \"/orders\" }\n\
    [source.orders]\nkey = \"/id\"\npull = \"none\"\n";

fn home(config: &str) -> Home {
    let home = Home::new(config);
    std::fs::write(home.path("secret"), SECRET).unwrap();
    home
}

fn door_of(agent: &Running) -> SocketAddr {
    let mut door = None;
    until("the door is open", || {
        door = hooks::door_told(&agent.log());
        door.is_some()
    });
    door.unwrap()
}

fn listed(home: &Home) -> Vec<Value> {
    home.gleaner(&["inbox", "list", "--json"]).json()
}

fn until_state(home: &Home, event: &str, state: &str) -> Value {
    let mut found = Value::Null;
    until("it is processed", || {
        let all = listed(home);
        found = all
            .into_iter()
            .find(|one| one["event_id"] == event)
            .unwrap_or_default();
        found["state"] == state
    });
    found
}

fn bodies(home: &Home, table: &str) -> Vec<String> {
    let path = home.path("state/data.db");
    let db = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
    let Ok(mut query) = db.prepare(&format!("SELECT body FROM {table} ORDER BY key")) else {
        return Vec::new();
    };
    let rows = query.query_map([], |row| row.get(0)).unwrap();
    rows.collect::<Result<_, _>>().unwrap()
}

fn alarms(agent: &Running) -> String {
    agent.status()["alarms"].to_string()
}

fn refused(agent: &Running, hook: &str) -> Value {
    agent.status()["hooks"][hook]["refused"].clone()
}

fn with_header(request: Vec<u8>, line: &str) -> Vec<u8> {
    let text = String::from_utf8(request).unwrap();
    text.replacen("Host: gw\r\n", &format!("Host: gw\r\n{line}\r\n"), 1)
        .into_bytes()
}

#[test]
fn a_full_disk_is_an_alarm_while_it_lasts_and_three_lines_in_the_log() {
    let Some(mount) = Mount::of(64 << 20, "hooks on a disk that is low") else {
        return;
    };
    let config = erp(hooks::address(), CARRIED);
    let home = home(&config);
    let text = format!("[agent]\nid = \"t\"\nstate = {:?}\n{config}", mount.state());
    std::fs::write(home.path("gleaner.toml"), text).unwrap();
    let agent = Running::start(home.command(&["run"]), &mount.state().join("control.sock"));
    let door = door_of(&agent);
    assert!(!agent.log().contains("1 hooks"), "{}", agent.log());
    assert_eq!(send(door, &delivery("a", "{\"orders\":[]}")).status, 202);
    assert!(!alarms(&agent).contains("cannot be saved"));

    mount.leave(8 << 20);
    // Before anything has come.
    let alarm = alarms(&agent);
    let what = "events cannot be saved and are answered with 503: only ";
    assert!(alarm.contains(what), "{alarm}");
    assert!(
        alarm.contains(" MiB are free on the file system of "),
        "{alarm}"
    );
    assert!(
        alarm.contains("/state/inbox, and 16 MiB are to be left; make room"),
        "{alarm}"
    );
    let mut sender = Sender::connect(door);
    for nth in 0..250 {
        let reply = sender.ask(&delivery(&format!("b{nth}"), "{\"orders\":[]}"));
        assert_eq!(reply.status, 503);
    }
    assert_eq!(refused(&agent, "erp"), json!({ "disk-low": 250 }));
    let shown = home.gleaner(&["status"]).out;
    assert!(
        shown.contains("erp: 250 refused as disk-low: they could not be saved"),
        "{shown}"
    );
    assert_eq!(agent.log().matches("ERROR").count(), 1, "{}", agent.log());
    let warned = home.gleaner(&["check"]).err;
    assert!(
        warned.contains("events will not be saved: only "),
        "{warned}"
    );

    mount.make_room();
    assert!(!alarms(&agent).contains("cannot be saved"));
    let line = "events can be saved again: 250 were refused in ";
    until("it is said", || agent.log().contains(line));
    assert_eq!(sender.ask(&delivery("b0", "{\"orders\":[]}")).status, 202);
    assert_eq!(agent.log().matches("can be saved again").count(), 1);
    assert!(!home.gleaner(&["check"]).err.contains("will not be saved"));
}

#[test]
fn a_full_inbox_and_a_missing_secret_are_counted_by_their_names() {
    let config = |quota: &str| {
        let config = erp(hooks::address(), CARRIED);
        let config = config.replace(
            "every = \"0s\"",
            &format!("every = \"1d\"\nquota = \"{quota}\""),
        );
        format!(
            "{config}[hook.other]\nscheme = \"github\"\nsecret = {{ file = \"later\" }}\nquota = \"1KiB\"\n"
        )
    };
    let home = home(&config("255KiB"));
    let agent = home.run();
    let door = door_of(&agent);
    let event = |nth: usize| {
        let pad = "x".repeat(30_000);
        delivery(
            &format!("q{nth}"),
            &format!("{{\"orders\":[{{\"id\":{nth},\"pad\":\"{pad}\"}}]}}"),
        )
    };
    assert_eq!(send(door, &event(0)).status, 202);
    until_state(&home, "q0", "done");
    let count = (1..100)
        .find(|nth| send(door, &event(*nth)).status == 503)
        .unwrap();
    for _ in 0..9 {
        assert_eq!(send(door, &event(count)).status, 503);
    }
    assert_eq!(refused(&agent, "erp"), json!({ "inbox-full": 10 }));
    let alarm = alarms(&agent);
    assert!(
        alarm.contains("the inbox is full: 256 KiB of 256 KiB are taken"),
        "{alarm}"
    );
    assert_eq!(
        agent.log().matches("the inbox is full").count(),
        1,
        "{}",
        agent.log()
    );
    let headers = hooks::github_headers("a", b"{}");
    assert_eq!(
        send(door, &hooks::post("/hooks/other", &headers, b"{}")).status,
        503
    );
    assert_eq!(refused(&agent, "other"), json!({ "no-secret": 1 }));
    let shown = home.gleaner(&["status"]).out;
    assert!(
        shown.contains("other: 1 refused as no-secret: the hook's secret cannot be read"),
        "{shown}"
    );

    // A larger quota ends it, without another event.
    home.config(&config("2MiB"));
    agent.signal(Signal::HUP);
    until("there is room", || {
        !alarms(&agent).contains("the inbox is full")
    });
    until("it is said", || {
        agent.log().contains("events can be saved again: 10 were")
    });
}

#[test]
fn half_an_event_is_never_taken_unless_that_is_asked_for() {
    let address = hooks::address();
    let config = |more: &str| {
        erp(
            address,
            &format!("{CARRIED}require = {{ \"/n\" = \"number\" }}\n{more}"),
        )
    };
    let home = home(&config(""));
    let agent = home.run();
    let door = door_of(&agent);
    let mixed = "{\"orders\":[{\"id\":1,\"n\":1},{\"id\":2,\"n\":\"x\"},{\"id\":3,\"n\":3}]}";
    let id = send(door, &delivery("bad", mixed)).request_id();
    send(door, &delivery("good", "{\"orders\":[{\"id\":9,\"n\":9}]}"));
    until_state(&home, "good", "done");
    let failed = until_state(&home, "bad", "failed");
    let reason = failed["reason"].as_str().unwrap();
    assert!(
        reason.starts_with("record 2 at \"/orders\": (key 2) /n: "),
        "{reason}"
    );
    assert!(reason.contains("nothing of the event is taken"), "{reason}");
    assert_eq!(bodies(&home, "orders"), ["{\"id\":9,\"n\":9}"]);
    // The log names hook and payload.
    let line = format!("hook erp: payload {id} is tried again: record 2");
    assert_eq!(agent.log().matches(&line).count(), 1, "{}", agent.log());

    home.config(&config("on_bad_record = \"skip\"\n"));
    agent.signal(Signal::HUP);
    until("it was read again", || {
        agent.log().contains("the config was read again")
    });
    let changed = home.gleaner(&["inbox", "retry", &id, "--json"]);
    assert_eq!(changed.json(), [json!({ "retried": 1 })], "{}", changed.err);
    until_state(&home, "bad", "done");
    assert_eq!(
        bodies(&home, "orders"),
        [
            "{\"id\":1,\"n\":1}",
            "{\"id\":3,\"n\":3}",
            "{\"id\":9,\"n\":9}"
        ]
    );
    let line = format!("hook erp: payload {id}: record 2 at \"/orders\": (key 2) /n: ");
    assert!(agent.log().contains(&line), "{}", agent.log());
}

#[test]
fn a_coding_that_nobody_can_read_is_not_acknowledged() {
    let home = home(&erp(hooks::address(), CARRIED));
    let agent = home.run();
    let door = door_of(&agent);
    let coded = |id: &str, coding: &str, body: &[u8]| -> Reply {
        let mut headers = hooks::github_headers(id, body);
        headers.push(("Content-Encoding".into(), coding.into()));
        send(door, &hooks::post("/hooks/erp", &headers, body))
    };
    let gzip = |content: &[u8]| {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(content).unwrap();
        encoder.finish().unwrap()
    };
    let good = gzip(b"{\"orders\":[]}");
    for (coding, body, status) in [
        ("br", &b"\x0b\x02\x80{}\x03"[..], 415),
        ("deflate", b"{}", 415),
        ("gzip, gzip", b"{}", 415),
        ("gzip", &good[..good.len() - 1], 400),
        ("gzip", b"{}", 400),
        ("gzip", &gzip(&vec![b' '; 4 << 20]), 413),
    ] {
        let reply = coded("x", coding, body);
        assert_eq!(reply.status, status, "{coding} {reply:?}");
        let allowed = (status == 415).then_some("gzip");
        assert_eq!(reply.header("Accept-Encoding"), allowed, "{reply:?}");
    }
    // Strangers do not learn what is taken.
    let unsigned = b"POST /hooks/erp HTTP/1.1\r\nHost: gw\r\nContent-Encoding: br\r\nContent-Length: 1\r\n\r\nx";
    assert_eq!(send(door, unsigned).status, 401);
    assert_eq!(listed(&home).len(), 0);
    assert_eq!(coded("x", "gzip", &good).status, 202);
    let counted =
        json!({ "bad-signature": 1, "malformed": 2, "too-large": 1, "unsupported-coding": 3 });
    assert_eq!(refused(&agent, "erp"), counted);
}

#[test]
fn a_doubled_id_or_type_makes_no_second_event() {
    let home = home(&erp(hooks::address(), CARRIED));
    let agent = home.run();
    let door = door_of(&agent);
    let event = || delivery("d1", "{\"orders\":[]}");
    assert_eq!(send(door, &event()).status, 202);
    for line in [
        "x-github-delivery: d1",
        "X-GitHub-Delivery: d2",
        "X-GitHub-Event: push",
    ] {
        assert_eq!(
            send(door, &with_header(event(), line)).status,
            400,
            "{line}"
        );
    }
    assert_eq!(listed(&home).len(), 1);
    assert_eq!(refused(&agent, "erp"), json!({ "malformed": 3 }));
}

#[test]
fn a_recorded_event_that_the_inbox_has_is_a_duplicate_and_what_the_door_turns_away_is_not_valid() {
    let home = home(&erp(hooks::address(), CARRIED));
    let check = |record: &[u8]| {
        std::fs::write(home.path("req"), record).unwrap();
        let said = home.gleaner(&["hook", "check", "erp", "--request", "req", "--json"]);
        let json = said.json().remove(0);
        (
            said.code,
            json["verdict"].as_str().unwrap().to_owned(),
            json,
        )
    };
    let event = delivery("d1", "{\"orders\":[]}");
    let (code, word, json) = check(&event);
    assert_eq!((code, word.as_str()), (0, "valid"), "{json}");
    let note = json["notes"][0].as_str().unwrap();
    assert!(
        note.starts_with("whether the event came before was not looked at: "),
        "{note}"
    );
    assert!(!home.path("state").exists(), "looking makes nothing");

    let agent = home.run();
    let id = send(door_of(&agent), &event).request_id();
    // While the agent runs, and when it does not.
    let before = |expected: &Value| {
        let (code, word, json) = check(&event);
        assert_eq!((code, word.as_str()), (65, "duplicate"), "{json}");
        assert_eq!(
            json["reason"],
            format!("the same event was taken as request {id}")
        );
        assert_eq!(&json["notes"], expected);
    };
    before(&json!([]));
    assert_eq!(agent.stop(), 0);
    before(&json!([]));
    assert_eq!(check(&delivery("d2", "{\"orders\":[]}")).1, "valid");

    let text = String::from_utf8(delivery("d3", "{\"orders\":[]}")).unwrap();
    for (from, to, word, answer) in [
        (
            "POST /hooks/erp",
            "GET /hooks/erp",
            "malformed",
            "the door answers 405",
        ),
        (
            "POST /hooks/erp",
            "HEAD /hooks/erp",
            "malformed",
            "the door answers 405",
        ),
        (
            "POST /hooks/erp",
            "POST /",
            "malformed",
            "the door answers 404",
        ),
        (
            "POST /hooks/erp",
            "POST /hooks/erp/",
            "malformed",
            "the door answers 404",
        ),
        (
            "Content-Length: 13",
            "Content-Length: 14",
            "malformed",
            "the door waits for the rest and answers 408",
        ),
        (
            "Host: gw",
            "Content-Encoding: br",
            "unsupported-coding",
            "the door answers 415",
        ),
        (
            "Host: gw",
            "Content-Encoding: gzip",
            "malformed",
            "the door answers 400",
        ),
        (
            "POST /hooks/erp",
            "POST https://gw.example/hooks/erp?x=1",
            "valid",
            "signed by the sender",
        ),
        (
            "POST /hooks/erp HTTP/1.1\r\n",
            "",
            "valid",
            "signed by the sender",
        ),
    ] {
        assert!(text.contains(from));
        let (code, found, json) = check(text.replacen(from, to, 1).as_bytes());
        assert_eq!(found, word, "{to}: {json}");
        assert_eq!(code == 0, word == "valid", "{to}");
        let reason = json["reason"].as_str().unwrap();
        assert!(reason.ends_with(answer), "{to}: {reason}");
    }
}

#[test]
fn a_restart_forgets_no_last_event() {
    let home = home(&format!(
        "{}[hook.quiet]\nscheme = \"github\"\nsecret = {{ file = \"secret\" }}\n",
        erp(hooks::address(), CARRIED)
    ));
    let agent = home.run();
    assert_eq!(
        send(door_of(&agent), &delivery("a", "{\"orders\":[]}")).status,
        202
    );
    until_state(&home, "a", "done");
    let last = agent.status()["hooks"]["erp"]["last"].clone();
    assert!(last.is_string());
    assert_eq!(agent.stop(), 0);
    let agent = home.run();
    door_of(&agent);
    let status = agent.status();
    let seconds = |value: &Value| value.as_str().unwrap()[..19].to_owned();
    assert_eq!(seconds(&status["hooks"]["erp"]["last"]), seconds(&last));
    assert_eq!(status["hooks"]["erp"]["saved"], 0);
    assert!(status["hooks"]["quiet"]["last"].is_null());
    let shown = home.gleaner(&["status"]).out;
    assert!(shown.contains(&seconds(&last)), "{shown}");
    assert!(shown.contains("none known"), "{shown}");
    assert!(
        shown.contains("saved, known and refused count since the agent started"),
        "{shown}"
    );
}

#[test]
fn a_payload_is_shown_to_programs_and_a_secret_header_is_nowhere() {
    let token = "glpat-nobody-may-read-this";
    let config = format!(
        "[door]\nlisten = \"{}\"\n[hook.lab]\nscheme = \"gitlab\"\nsecret = {{ file = \"token\" }}\n",
        hooks::address()
    );
    let home = home(&config);
    std::fs::write(home.path("token"), token).unwrap();
    let agent = home.run();
    let door = door_of(&agent);
    let headers = |id: &str| {
        vec![
            ("x-gitlab-token".to_owned(), token.to_owned()),
            ("Authorization".to_owned(), "Bearer geheim".to_owned()),
            ("Idempotency-Key".to_owned(), id.to_owned()),
        ]
    };
    let text = send(
        door,
        &hooks::post(
            "/hooks/lab?key=geheim",
            &headers("a"),
            b"{\"a\":\"\xc3\xa9\"}",
        ),
    );
    let bytes = send(
        door,
        &hooks::post("/hooks/lab", &headers("b"), b"\xff\x00\x01"),
    );
    let show = |reply: &Reply| {
        let said = home.gleaner(&["inbox", "show", &reply.request_id(), "--json"]);
        assert!(!said.out.contains("geheim"), "{}", said.out);
        said.json().remove(0)
    };
    let shown = show(&text);
    assert_eq!(shown["id"], text.request_id());
    assert_eq!(shown["event_id"], "a");
    assert_eq!(shown["method"], "POST");
    assert_eq!(shown["target"], "/hooks/lab?key=(hidden)");
    assert_eq!(shown["body"], "{\"a\":\"é\"}");
    let all = shown["headers"].as_array().unwrap();
    let not_saved = json!([
        "x-gitlab-token",
        format!("(not saved: {} bytes)", token.len())
    ]);
    assert!(all.contains(&not_saved), "{shown}");
    assert!(
        all.contains(&json!(["Authorization", "(hidden, 13 bytes)"])),
        "{shown}"
    );
    let shown = show(&bytes);
    assert_eq!(
        (&shown["body"], &shown["body_base64"]),
        (&Value::Null, &json!("/wAB"))
    );
    assert!(
        !holds(&home.path("state"), token.as_bytes()),
        "it is on disk"
    );
    assert!(
        holds(&home.path("state"), b"Bearer geheim"),
        "the search finds what is there"
    );

    let mut dropped = Value::Null;
    until("one is given up", || {
        let said = home.gleaner(&["inbox", "drop", &bytes.request_id(), "--json"]);
        // Nothing is done for this hook, so it may be done already.
        dropped = said.json().pop().unwrap_or_default();
        said.code == 64 || dropped == json!({ "dropped": 1 })
    });
}

/// Whether a file below `dir` holds these bytes.
fn holds(dir: &Path, needle: &[u8]) -> bool {
    std::fs::read_dir(dir).unwrap().any(|entry| {
        let entry = entry.unwrap();
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            return holds(&entry.path(), needle);
        }
        kind.is_file()
            && std::fs::read(entry.path())
                .unwrap()
                .windows(needle.len())
                .any(|window| window == needle)
    })
}

#[test]
fn a_fetched_record_under_another_key_is_not_taken() {
    let upstream = Upstream::start();
    upstream.answer(|request| match request.path() {
        "/api/parts" => Answer::ok().json("[{\"id\":1,\"v\":1}]"),
        "/api/parts/alias" => Answer::ok().json("{\"id\":1,\"v\":2}"),
        "/api/parts/2" => Answer::ok().json("{\"id\":2,\"v\":2}"),
        _ => Answer::status(404),
    });
    let fetch = "fetch = { source = \"parts\", url = \"parts/{/part}\", key = \"/part\" }";
    let home = home(&format!(
        "[upstream.up]\nbase = \"{}\"\nproxy = \"\"\n{}[source.parts]\nupstream = \"up\"\npath = \"parts\"\nkey = \"/id\"\nevery = \"1d\"\n",
        upstream.url("/api/"),
        erp(hooks::address(), fetch)
    ));
    let agent = home.run();
    let door = door_of(&agent);
    until("it has pulled", || bodies(&home, "parts").len() == 1);
    let id = send(door, &delivery("alias", "{\"part\":\"alias\"}")).request_id();
    send(door, &delivery("good", "{\"part\":2}"));
    until_state(&home, "good", "done");
    let failed = until_state(&home, "alias", "failed");
    let reason = failed["reason"].as_str().unwrap();
    assert!(
        reason.contains("the event's key is \"alias\" and the fetched record's is 1"),
        "{reason}"
    );
    assert!(
        agent
            .log()
            .contains(&format!("payload {id} is tried again: ")),
        "{}",
        agent.log()
    );
    assert_eq!(
        bodies(&home, "parts"),
        ["{\"id\":1,\"v\":1}", "{\"id\":2,\"v\":2}"]
    );
}

#[test]
fn a_failed_setup_and_an_unknown_time_have_their_own_words_and_advice() {
    let config = format!(
        "time_sync = \"never\"\n[door]\nlisten = \"{}\"\n\
         [hook.meta]\nscheme = \"meta\"\nsecret = {{ file = \"secret\" }}\nchallenge = {{ meta = {{ verify_token = {{ file = \"token\" }} }} }}\n\
         [hook.graph]\nscheme = \"github\"\nsecret = {{ file = \"secret\" }}\nchallenge = \"graph\"\n\
         [source.s]\nkey = \"/id\"\npull = \"none\"\n",
        hooks::address()
    );
    let home = home(&config);
    std::fs::write(home.path("token"), "t0ken").unwrap();
    let agent = home.run();
    let door = door_of(&agent);
    let get = |query: &str| {
        send(
            door,
            format!("GET /hooks/meta?{query} HTTP/1.1\r\nHost: gw\r\n\r\n").as_bytes(),
        )
    };
    let wrong = get("hub.mode=subscribe&hub.verify_token=wrong&hub.challenge=1");
    assert_eq!(
        (wrong.status, wrong.body.as_str()),
        (403, "bad-challenge\n")
    );
    assert_eq!(get("").status, 400);
    let right = get("hub.mode=subscribe&hub.verify_token=t0ken&hub.challenge=1");
    assert_eq!((right.status, right.body.as_str()), (200, "1"));
    let graph = "POST /hooks/graph?validationToken=%3Cb%3E HTTP/1.1\r\nHost: gw\r\nContent-Length: 0\r\n\r\n";
    assert_eq!(send(door, graph.as_bytes()).status, 400);
    assert_eq!(refused(&agent, "meta"), json!({ "bad-challenge": 2 }));
    assert_eq!(refused(&agent, "graph"), json!({ "bad-challenge": 1 }));
    let shown = home.gleaner(&["status"]).out;
    let line = "meta: 2 refused as bad-challenge: a setup challenge failed; is `verify_token` what was entered at the sender?";
    assert!(shown.contains(line), "{shown}");
    // The same offline.
    let record = "GET /hooks/meta?hub.mode=subscribe&hub.verify_token=wrong&hub.challenge=1 HTTP/1.1\r\nHost: gw\r\n\r\n";
    for (record, code, word) in [
        (
            record.to_owned(),
            65,
            "bad-challenge: hub.verify_token is not the configured",
        ),
        (
            record.replace("wrong", "t0ken"),
            0,
            "challenge: a setup challenge, answered with 1",
        ),
    ] {
        std::fs::write(home.path("req"), record).unwrap();
        let said = home.gleaner(&["hook", "check", "meta", "--request", "req"]);
        assert_eq!(said.code, code, "{}", said.out);
        assert!(said.out.starts_with(word), "{}", said.out);
    }
}
