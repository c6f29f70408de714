//! `gleaner inbox` as a user types it, with and without an agent.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot be set up has failed"
)]

mod support;

use std::fs;

use gleaner::clock::Timestamp;
use gleaner::inbox::{Inbox, Limits, Received, RequestId, State};
use support::gleaner::Home;

fn now() -> Timestamp {
    "2026-05-01T12:00:00Z".parse().unwrap()
}

fn received(hook: &str, body: &[u8]) -> Received {
    let field = |name: &str, value: &str| (name.as_bytes().to_vec(), value.as_bytes().to_vec());
    Received {
        hook: hook.into(),
        at: now(),
        clock_trusted: hook == "erp",
        peer: "192.0.2.7:4711".into(),
        method: "POST".into(),
        target: b"/hooks/erp?token=geheim&n=1".to_vec(),
        headers: vec![
            field("Content-Type", "application/json"),
            field("Authorization", "Bearer geheim"),
            field("Cookie", "sid=geheim"),
            field("X-Signature", "sha256=abc"),
        ],
        body: body.to_vec(),
        event_id: Some("evt_1".into()),
        event_type: Some("part.updated".into()),
    }
}

/// An inbox with one payload that waits, one that failed, one that is dead, and one that is done.
fn filled(home: &Home) -> Vec<RequestId> {
    let dir = home.path("state/inbox");
    let limits = Limits {
        low_water: 0,
        ..Limits::default()
    };
    let (mut inbox, _) = Inbox::open(&dir, limits).unwrap();
    let sent = [
        ("erp", &b"{\"part\":1}\n"[..]),
        ("erp", b"{\"part\":2}"),
        ("github", b"\xFF\x00"),
        ("github", b"{}"),
    ];
    let ids: Vec<_> = sent
        .iter()
        .map(|(hook, body)| inbox.append(&received(hook, body)).unwrap())
        .collect();
    inbox.sync().unwrap();
    let failed = State::Failed {
        tries: 2,
        next: 1_800_000_000,
        reason: "503 from upstream".into(),
    };
    let dead = State::Dead {
        tries: 9,
        reason: "no such part".into(),
    };
    let states = [failed, dead, State::Done];
    let marks: Vec<_> = ids[1..]
        .iter()
        .zip(states)
        .map(|(id, state)| (inbox.find(*id).unwrap().position, state))
        .collect();
    inbox.mark(&marks, now()).unwrap();
    ids
}

fn states(home: &Home) -> Vec<String> {
    let said = home.gleaner(&["inbox", "list", "--json"]);
    assert_eq!(said.code, 0, "{}", said.err);
    said.json()
        .iter()
        .map(|line| line["state"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn an_inbox_is_listed_and_shown_without_its_secrets() {
    let home = Home::new("");
    let none = home.gleaner(&["inbox", "list"]);
    assert_eq!((none.code, none.out.as_str()), (0, "no payloads\n"));
    assert!(!home.path("state").exists(), "looking makes nothing");

    fs::create_dir(home.path("state")).unwrap();
    let ids = filled(&home);
    let table = home.gleaner(&["inbox", "list"]).out;
    assert_eq!(table.lines().count(), 1 + 4 + 2, "{table}");
    assert!(
        table.contains(&format!("{}: no such part", ids[2])),
        "{table}"
    );
    let lines = home
        .gleaner(&[
            "inbox", "list", "--hook", "erp", "--state", "failed", "--json",
        ])
        .json();
    assert_eq!(lines.len(), 1);
    assert_eq!(lines[0]["id"], ids[1].to_string());
    assert_eq!(lines[0]["tries"], 2);
    assert_eq!(lines[0]["reason"], "503 from upstream");
    assert_eq!(lines[0]["next"], "2027-01-15T08:00:00Z");
    assert_eq!(lines[0]["event_id"], "evt_1");
    let wrong = home.gleaner(&["inbox", "list", "--state", "lost"]);
    assert_eq!(wrong.code, 64);
    assert!(
        wrong.err.contains("possible values: pending, failed, dead"),
        "{}",
        wrong.err
    );

    let shown = home.gleaner(&["inbox", "show", &ids[1].to_string()]).out;
    for part in [
        "state     failed since 2026-05-01T12:00:00Z, 2 times, next try 2027-01-15T08:00:00Z: 503 from upstream",
        "POST /hooks/erp?token=(hidden)&n=1\n",
        "Authorization: (hidden, 13 bytes)\n",
        "X-Signature: sha256=abc\n",
        "\n\n{\"part\":2}\n",
    ] {
        assert!(shown.contains(part), "{part} is not in {shown}");
    }
    assert!(!shown.contains("geheim"), "{shown}");
    let odd = home.gleaner(&["inbox", "show", &ids[2].to_string()]).out;
    assert!(
        odd.contains("(2 bytes that are no text; --raw writes them out)"),
        "{odd}"
    );
    assert!(
        odd.contains("by a clock that was not known to be right"),
        "{odd}"
    );
    let raw = home
        .command(&["inbox", "show", "--raw", &ids[2].to_string()])
        .output()
        .unwrap();
    assert_eq!(raw.stdout, b"\xFF\x00");

    let unknown = home.gleaner(&["inbox", "show", "019ad0a2-7c1e-7b43-8f21-5d0c9e4b7a10"]);
    assert_eq!(unknown.code, 64);
    assert!(
        unknown.err.contains("there is no payload 019ad0a2"),
        "{}",
        unknown.err
    );
    let none = home.gleaner(&["inbox", "show", "7"]);
    assert_eq!(none.code, 64);
    assert!(
        none.err.contains("a request id looks like 019ad0a2-"),
        "{}",
        none.err
    );
}

/// The same words and the same effect, whoever does it.
#[test]
fn payloads_are_retried_and_dropped_with_and_without_an_agent() {
    for with_agent in [false, true] {
        let home = Home::new("");
        fs::create_dir(home.path("state")).unwrap();
        let ids = filled(&home);
        let agent = with_agent.then(|| home.run());
        let text: Vec<String> = ids.iter().map(ToString::to_string).collect();

        let refused = home.gleaner(&["inbox", "retry", &text[1], &text[3]]);
        assert_eq!(refused.code, 64, "{}", refused.err);
        assert!(
            refused
                .err
                .ends_with(&format!("gleaner: payload {} is done\n", text[3])),
            "{}",
            refused.err
        );
        assert_eq!(states(&home), ["pending", "failed", "dead", "done"]);

        let retried = home.gleaner(&["inbox", "retry", "--all-dead"]);
        assert_eq!(
            (retried.code, retried.out.as_str()),
            (0, "1 payload is tried again\n"),
            "{}",
            retried.err
        );
        let none = home.gleaner(&["inbox", "retry", "--all-dead"]);
        assert_eq!(
            (none.code, none.out.as_str()),
            (0, "0 payloads are tried again\n")
        );
        let dropped = home.gleaner(&["inbox", "drop", &text[0], &text[1]]);
        assert_eq!(
            (dropped.code, dropped.out.as_str()),
            (0, "2 payloads are given up\n"),
            "{}",
            dropped.err
        );
        assert_eq!(states(&home), ["dropped", "dropped", "pending", "done"]);
        assert_eq!(home.gleaner(&["inbox", "drop"]).code, 64);
        drop(agent);
    }
}

#[test]
fn without_an_inbox_nothing_is_retried() {
    let home = Home::new("");
    let none = home.gleaner(&["inbox", "retry", "--all-dead"]);
    assert_eq!(
        (none.code, none.out.as_str()),
        (0, "0 payloads are tried again\n"),
        "{}",
        none.err
    );
    let unknown = home.gleaner(&["inbox", "drop", "019ad0a2-7c1e-7b43-8f21-5d0c9e4b7a10"]);
    assert_eq!(unknown.code, 64, "{}", unknown.err);
    assert!(!home.path("state/inbox").exists());
}
