//! What is known of a record and why it is here or not; what is kept of a source, and having it forgotten.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot be set up has failed"
)]

mod support;

use std::time::Duration;

use gleaner::desk::{Event, Explained, RecordShown, StateShown, StateWish, Wish};
use gleaner::pull::report::Outcome;
use rusqlite::Connection;
use serde_json::{Value, json};
use support::agent::{Gateway, conditional, records};
use support::gleaner::{Home, Said};
use support::upstream::{Answer, Request, Upstream};
use support::world::{Tombstone, World};

const HOUR: Duration = Duration::from_secs(3600);

fn tell(gateway: &mut Gateway, state: StateWish) -> Event {
    let wish = Wish {
        state: Some(state),
        ..Wish::default()
    };
    let mut events = Vec::new();
    gateway
        .agent()
        .carry_out(&wish, &mut |event| events.push(event));
    assert_eq!((events.len(), events.last()), (2, Some(&Event::Done)));
    events.swap_remove(0)
}

fn explain(gateway: &mut Gateway, key: &str) -> Explained {
    let wish = StateWish::Explain {
        source: "items".into(),
        key: key.into(),
    };
    match tell(gateway, wish) {
        Event::Explained(explained) => *explained,
        other => panic!("{key}: {other:?}"),
    }
}

/// What is known under the first reading of a key.
fn first(gateway: &mut Gateway, key: &str) -> RecordShown {
    explain(gateway, key).records.swap_remove(0)
}

fn show(gateway: &mut Gateway) -> StateShown {
    let wish = StateWish::Show {
        source: "items".into(),
    };
    match tell(gateway, wish) {
        Event::State(state) => *state,
        other => panic!("{other:?}"),
    }
}

fn reset(gateway: &mut Gateway) -> u64 {
    let wish = StateWish::Reset {
        source: "items".into(),
    };
    match tell(gateway, wish) {
        Event::Reset { records, .. } => records,
        other => panic!("{other:?}"),
    }
}

/// Changes `data.db` by hand, as nobody should.
fn by_hand(gateway: &Gateway, sql: &str) {
    let db = Connection::open(gateway.state().join("data.db")).unwrap();
    db.execute_batch(sql).unwrap();
}

#[test]
fn why_a_record_is_here_or_not() {
    let upstream = Upstream::start();
    let mut gateway = Gateway::of(&upstream)
        .source("deleted = \"/gone\"\non_bad_record = \"skip\"\nrequire = { \"/v\" = \"number\" }")
        .start();
    let listing = |more: &str| {
        let kept: Vec<String> = (10..30)
            .map(|id| format!("{{\"id\":{id},\"v\":1}}"))
            .collect();
        Answer::ok().json(format!("[{},{more}]", kept.join(",")))
    };
    upstream.queue(listing(
        "{\"id\":1,\"v\":1},{\"id\":2,\"v\":1},{\"id\":3,\"v\":1},{\"id\":5,\"v\":1},{\"id\":7,\"v\":1}",
    ));
    assert_eq!(gateway.sync().outcome, Outcome::Changed);
    gateway.clock.advance(HOUR);
    upstream.queue(listing(
        "{\"id\":1,\"v\":2},{\"id\":2,\"gone\":1,\"v\":1},{\"id\":4,\"v\":\"x\"},{\"id\":5,\"v\":\"x\"},{\"id\":7,\"v\":1}",
    ));
    assert_eq!(gateway.sync().outcome, Outcome::Changed);
    by_hand(
        &gateway,
        "DELETE FROM items WHERE key = 7;
         INSERT INTO items (key, body, fetched, digest, generation) VALUES (8, '{}', '2099-01-01T00:00:00Z', x'00', 1);",
    );

    let present = first(&mut gateway, "1");
    assert_eq!(
        (present.state.as_str(), present.why.as_str()),
        ("present", "")
    );
    assert_eq!(present.first_seen.as_deref(), Some("2099-01-01T00:00:00Z"));
    assert_eq!(present.changed.as_deref(), Some("2099-01-01T01:00:00Z"));
    assert_eq!(present.bytes, Some(r#"{"id":1,"v":2}"#.len() as u64));
    assert_eq!(
        (present.table.as_deref(), present.generation),
        (Some("items"), Some(2))
    );
    assert!(present.digest.is_some() && !present.in_doubt && present.ordinal == Some(20));
    let met = present.met.unwrap();
    assert_eq!(
        (met.pass.as_str(), met.at.as_str()),
        ("snapshot", "2099-01-01T01:00:00Z")
    );
    let untouched = first(&mut gateway, "10");
    assert_eq!(untouched.changed.as_deref(), Some("2099-01-01T00:00:00Z"));
    assert_eq!(untouched.met.unwrap().at, "2099-01-01T01:00:00Z");

    let table = [
        // key, state, and what is said
        (
            "2",
            "gone",
            "gone 2099-01-01T01:00:00Z: upstream said that it is deleted (a tombstone)",
        ),
        (
            "3",
            "gone",
            "gone 2099-01-01T01:00:00Z: the full pass that ended then did not have it",
        ),
        (
            "4",
            "bad",
            "skipped as a bad record: /v: expected \"number\", got \"x\"",
        ),
        (
            "5",
            "present",
            "an earlier form of it is kept: the last complete pass skipped the newest as bad",
        ),
        ("6", "never-seen", "never seen, as far as is remembered"),
        ("7", "removed", "its row is not in data.db"),
        ("8", "stray", "its row is in data.db, but it is not known"),
    ];
    for (key, state, why) in table {
        let record = first(&mut gateway, key);
        assert_eq!(record.state, state, "{record:?}");
        assert!(record.why.contains(why), "{key}: {}", record.why);
        let is_bad = matches!(key, "4" | "5");
        assert_eq!(record.bad.is_some(), is_bad, "{record:?}");
        assert_eq!(
            record.gone.len(),
            usize::from(state == "gone"),
            "{record:?}"
        );
    }
    let bad = first(&mut gateway, "5").bad.unwrap();
    assert_eq!((bad.number, bad.page.ends_with("/items")), (24, true));

    // What comes back has a new beginning, and its end is remembered.
    gateway.clock.advance(HOUR);
    upstream.queue(listing(
        "{\"id\":1,\"v\":2},{\"id\":2,\"v\":1},{\"id\":5,\"v\":1},{\"id\":7,\"v\":1}",
    ));
    gateway.sync();
    let back = first(&mut gateway, "2");
    assert_eq!(back.state, "present");
    assert_eq!(back.first_seen.as_deref(), Some("2099-01-01T02:00:00Z"));
    assert_eq!(back.gone[0].why, "tombstone");
}

#[test]
fn a_marked_row_is_gone_and_keeps_its_beginning() {
    let upstream = Upstream::start();
    let mut gateway = Gateway::of(&upstream).source("deletes = \"mark\"").start();
    for listing in [records(1..3, 1), records(1..2, 1)] {
        upstream.queue(Answer::ok().json(listing));
        gateway.sync();
        gateway.clock.advance(HOUR);
    }
    let gone = first(&mut gateway, "2");
    assert_eq!(
        (gone.state.as_str(), gone.gone[0].why.as_str()),
        ("gone", "missing")
    );
    assert_eq!(gone.table.as_deref(), Some("items"));
    upstream.queue(Answer::ok().json(records(1..3, 2)));
    gateway.sync();
    let back = first(&mut gateway, "2");
    assert_eq!(back.state, "present");
    assert_eq!(back.first_seen.as_deref(), Some("2099-01-01T00:00:00Z"));
}

#[test]
fn a_number_and_a_text_are_two_keys() {
    let upstream = Upstream::start();
    let mut gateway = Gateway::of(&upstream).start();
    upstream.queue(Answer::ok().json(r#"[{"id":42},{"id":"42","v":1},{"id":7},{"id":"abc"}]"#));
    gateway.sync();
    let states = |gateway: &mut Gateway, key: &str| -> Vec<(String, String)> {
        let records = explain(gateway, key).records;
        records
            .into_iter()
            .map(|record| (record.key, record.state))
            .collect()
    };
    let pairs = |all: &[(&str, &str)]| -> Vec<(String, String)> {
        all.iter()
            .map(|(key, state)| ((*key).to_owned(), (*state).to_owned()))
            .collect()
    };
    let table: [(&str, &[(&str, &str)]); 5] = [
        ("42", &[("42", "present"), ("\"42\"", "present")]),
        (
            "\"42\"",
            &[("\"42\"", "present"), ("\"\\\"42\\\"\"", "never-seen")],
        ),
        ("7", &[("7", "present"), ("\"7\"", "never-seen")]),
        ("7.0", &[("7", "present"), ("\"7.0\"", "never-seen")]),
        ("abc", &[("\"abc\"", "present")]),
    ];
    for (key, expected) in table {
        assert_eq!(states(&mut gateway, key), pairs(expected), "{key}");
    }

    gateway.restart_with("key = [\"/a\", \"/b\"]");
    upstream.queue(Answer::ok().json(r#"[{"a":"x","b":1},{"a":"x","b":"2"}]"#));
    gateway.sync();
    assert_eq!(
        states(&mut gateway, "[\"x\", 1]"),
        pairs(&[("[\"x\",1]", "present"), ("[\"x\",\"1\"]", "never-seen")])
    );
    assert_eq!(
        states(&mut gateway, "[\"x\",2]"),
        pairs(&[("[\"x\",2]", "never-seen"), ("[\"x\",\"2\"]", "present")])
    );
    let wrong = StateWish::Explain {
        source: "items".into(),
        key: "x".into(),
    };
    let Event::Refused { usage, reason } = tell(&mut gateway, wrong) else {
        panic!("a part is missing");
    };
    assert!(usage && reason.contains("2 parts (/a, /b)"), "{reason}");
}

/// Three pages of ten, each with a validator.
fn paged(request: &Request) -> Answer {
    let page: u32 = request.param("p").map_or(1, |page| page.parse().unwrap());
    let answer = conditional(
        request,
        &format!("\"{page}\""),
        &records(page * 10..page * 10 + 10, 1),
    );
    if page < 3 {
        answer.header("Link", &format!("</items?p={}>; rel=\"next\"", page + 1))
    } else {
        answer
    }
}

#[test]
fn pages_and_an_interrupted_pass_are_told() {
    let upstream = Upstream::start();
    let mut gateway = Gateway::of(&upstream).source("pages = \"link\"").start();
    upstream.queue(
        Answer::ok()
            .etag("\"1\"")
            .header("Link", "</items?p=2>; rel=\"next\"")
            .json(records(10..20, 1)),
    );
    upstream.queue(Answer::status(500));
    gateway.sync();
    let state = show(&mut gateway);
    let pass = state.interrupted.unwrap();
    assert_eq!(
        (pass.pass.as_str(), pass.pages, pass.records),
        ("snapshot", 1, 10)
    );
    assert!(pass.next.contains("/items"), "{}", pass.next);
    let met = first(&mut gateway, "12");
    assert_eq!(met.met.unwrap().pass, "snapshot");
    let unmet = explain(&mut gateway, "22");
    assert!(
        unmet.notes.iter().any(|note| note.contains("interrupted")),
        "{unmet:?}"
    );
    assert!(
        unmet
            .notes
            .iter()
            .any(|note| note.contains("not complete (failing)")),
        "{unmet:?}"
    );

    upstream.answer(paged);
    gateway.sync();
    let state = show(&mut gateway);
    assert_eq!(state.interrupted, None);
    assert_eq!(
        (
            state.pages.count,
            state.pages.with_validators,
            state.pages.records
        ),
        (3, 3, 30)
    );
    assert!(state.pages.bytes > 100 && state.pages.wire > 500);
    assert_eq!((state.records, state.ordinals, state.in_doubt), (30, 30, 0));
    assert!(state.config_current && state.config.len() == 16);
    assert_eq!(state.generation, state.data_generation);
    for (key, page) in [("12", 1), ("25", 2), ("39", 3)] {
        let record = first(&mut gateway, key);
        assert_eq!(record.page.unwrap().number, page, "{key}");
    }
}

const WINDOW: &str = "pull = { window = { field = \"/updated\", since = \"since\", lateness = \"6h\", first = \"30d\" } }\ndeleted = \"/deleted\"\n";

#[test]
fn windows_say_what_they_ask_for_and_which_pass_met_a_record() {
    let upstream = Upstream::start();
    let mut gateway = Gateway::of(&upstream).source(WINDOW).start();
    let world = World::of(&upstream, &gateway);
    for id in 1..=5 {
        world.put_at(id, "first", -i64::from(id) * 86_400, 0);
    }
    world.put_at(9, "old", -90 * 86_400, 0);
    gateway.sync();
    assert_eq!(first(&mut gateway, "3").met.unwrap().pass, "full");
    let absent = explain(&mut gateway, "9");
    assert_eq!(absent.records[0].state, "never-seen");
    assert!(
        absent.notes[0].contains("updated before 2098-12-02")
            && absent.notes[0].contains("`first`"),
        "{:?}",
        absent.notes
    );
    gateway.clock.advance(10 * HOUR);
    world.put_at(6, "new", 0, 0);
    gateway.clock.advance(HOUR);
    assert_eq!(gateway.sync().pull, "window");
    let new = first(&mut gateway, "6");
    let met = new.met.unwrap();
    assert_eq!(met.pass, "window", "{met:?}");
    assert!(new.updated.is_some());
    let state = show(&mut gateway);
    let course = state.course.unwrap();
    assert!(course.watermark.is_some() && course.full_at.is_some() && state.full_took.is_some());
    assert_eq!(
        state.lateness.iter().map(|late| late.records).sum::<u64>(),
        1
    );
}

#[test]
fn a_reset_source_is_read_and_delivered_again() {
    let upstream = Upstream::start();
    upstream.answer(paged);
    let mut gateway = Gateway::of(&upstream).source("pages = \"link\"").start();
    gateway.sync();
    assert_eq!(gateway.sync().tally.not_modified, 3);
    let before = gateway.rows();
    by_hand(&gateway, "UPDATE items SET body = '{}' WHERE key = 12");
    assert_eq!(
        gateway.sync().outcome,
        Outcome::Unchanged,
        "a 304 vouches for it"
    );

    for restart in [false, true] {
        assert_eq!(reset(&mut gateway), 30);
        let state = show(&mut gateway);
        assert_eq!(
            (state.records, state.in_doubt, state.pages.count),
            (30, 30, 0)
        );
        let doubted = first(&mut gateway, "12");
        assert!(doubted.in_doubt && doubted.digest.is_none());
        assert_eq!(gateway.keys().len(), 30, "rows stay");
        if restart {
            gateway.restart();
        }
        let report = gateway.sync();
        assert_eq!(
            (
                report.tally.changed,
                report.tally.added,
                report.tally.not_modified
            ),
            (30, 0, 0),
            "{report}"
        );
        assert_eq!(gateway.rows(), before);
        assert_eq!(gateway.sync().tally.not_modified, 3);
        assert_eq!(show(&mut gateway).in_doubt, 0);
    }
    // A deletion by absence still works: what is known stays known.
    reset(&mut gateway);
    upstream.answer(|_| Answer::ok().json(records(11..40, 1)));
    let report = gateway.sync();
    assert_eq!(
        (report.tally.deleted, report.tally.changed),
        (1, 29),
        "{report}"
    );
    let gone = first(&mut gateway, "10");
    assert_eq!(
        (gone.state.as_str(), gone.gone[0].why.as_str()),
        ("gone", "missing")
    );
}

#[test]
fn a_store_that_is_lost_behind_a_reset_does_not_undo_it() {
    let upstream = Upstream::start();
    upstream.answer(|request| conditional(request, "\"1\"", &records(1..20, 1)));
    let mut gateway = Gateway::of(&upstream).start();
    gateway.sync();
    reset(&mut gateway);
    gateway.stop();
    std::fs::remove_dir_all(gateway.state().join("state")).unwrap();
    gateway.restart();
    assert_eq!(gateway.sync().tally.changed, 19);
    // Nothing of that is left once all is delivered: a store that is lost now learns from the rows. Those of the last
    // batch are compared in any case.
    upstream.answer(|request| conditional(request, "\"2\"", &records(1..21, 1)));
    assert_eq!(gateway.sync().tally.added, 1);
    gateway.stop();
    std::fs::remove_dir_all(gateway.state().join("state")).unwrap();
    gateway.restart();
    let report = gateway.sync();
    assert_eq!(
        (report.tally.unchanged, report.tally.changed),
        (19, 1),
        "{report}"
    );
}

#[test]
fn a_reset_window_starts_with_a_full_pass_that_finds_what_is_gone() {
    let upstream = Upstream::start();
    let mut gateway = Gateway::of(&upstream).source(WINDOW).start();
    let world = World::of(&upstream, &gateway);
    for id in 1..=20 {
        world.put_at(id, "first", -i64::from(id) * 86_400, 0);
    }
    gateway.sync();
    gateway.clock.advance(HOUR);
    assert_eq!(gateway.sync().pull, "window");
    assert_eq!(reset(&mut gateway), 20);
    let state = show(&mut gateway);
    assert_eq!(state.owed.as_deref(), Some("what was kept of it was reset"));
    let course = state.course.unwrap();
    assert_eq!((course.watermark, course.full_at), (None, None));
    world.delete(7, Tombstone::Silent);
    let report = gateway.sync();
    assert_eq!(
        (
            report.pull.as_str(),
            report.tally.changed,
            report.tally.deleted
        ),
        ("full", 19, 1),
        "{report}"
    );
    world.assert_equal(&gateway);
    let state = show(&mut gateway);
    assert_eq!(
        (state.owed, state.course.unwrap().drift),
        (None, Vec::new())
    );
}

/// A file as the version before made it, with a row.
const OLD_FILE: &str = "
    CREATE TABLE _gleaner (id TEXT NOT NULL, layout INTEGER NOT NULL, generation INTEGER NOT NULL);
    INSERT INTO _gleaner VALUES ('00112233445566778899aabbccddeeff', 1, 3);
    CREATE TABLE _removed (source TEXT NOT NULL, key TEXT NOT NULL, generation INTEGER NOT NULL);
    CREATE TABLE _written (source TEXT PRIMARY KEY NOT NULL, config BLOB NOT NULL, whole INTEGER NOT NULL);
    CREATE TABLE _bad (source TEXT NOT NULL, page TEXT NOT NULL, number INTEGER NOT NULL, key TEXT,
      reason TEXT NOT NULL, raw TEXT NOT NULL);
    CREATE TABLE _source_state (name TEXT PRIMARY KEY NOT NULL, last_check TEXT, last_complete TEXT,
      stale_at TEXT, outcome TEXT NOT NULL, reason TEXT NOT NULL, records INTEGER NOT NULL);
    CREATE VIEW _sources AS SELECT name, last_check, last_complete, stale_at,
      (stale_at IS NULL OR strftime('%Y-%m-%dT%H:%M:%SZ', 'now') >= stale_at) AS stale,
      outcome, reason, records FROM _source_state;
    CREATE TABLE items (key PRIMARY KEY NOT NULL, body TEXT NOT NULL, updated TEXT, fetched TEXT NOT NULL,
      digest BLOB NOT NULL, generation INTEGER NOT NULL, \"v\");
    CREATE INDEX _items_generation ON items (generation);
    INSERT INTO items VALUES (1, '{\"id\":1,\"v\":1}', NULL, '2098-01-01T00:00:00Z', x'00112233445566778899aabbccddeeff', 2, 1);";

#[test]
fn a_file_of_the_version_before_is_taken_over() {
    let upstream = Upstream::start();
    let mut gateway = Gateway::of(&upstream)
        .source("columns = { v = \"/v\" }")
        .start();
    gateway.stop();
    std::fs::remove_dir_all(gateway.state()).unwrap();
    std::fs::create_dir_all(gateway.state()).unwrap();
    by_hand(&gateway, OLD_FILE);
    gateway.restart();
    let old = first(&mut gateway, "1");
    assert_eq!((old.state.as_str(), old.first_seen), ("present", None));
    assert_eq!(old.changed.as_deref(), Some("2098-01-01T00:00:00Z"));
    upstream.queue(Answer::ok().json(records(1..3, 1)));
    gateway.sync();
    assert_eq!(
        gateway.query("SELECT key, v, layout FROM items, _gleaner"),
        [["1", "1", "1"], ["2", "1", "1"]]
    );
    assert_eq!(first(&mut gateway, "1").first_seen, None, "nobody knows");
    assert_eq!(
        first(&mut gateway, "2").first_seen.as_deref(),
        Some("2099-01-01T00:00:00Z")
    );
    upstream.queue(Answer::ok().json(records(2..3, 1)));
    gateway.sync();
    assert_eq!(first(&mut gateway, "1").state, "gone");

    // The version before again in between: it takes the column away, and knows no `_gone`.
    gateway.stop();
    by_hand(
        &gateway,
        "ALTER TABLE items DROP COLUMN _first_seen; DROP TABLE _gone;",
    );
    gateway.restart();
    upstream.queue(Answer::ok().json(records(2..4, 1)));
    gateway.sync();
    assert_eq!(first(&mut gateway, "3").state, "present");
    let forgotten = first(&mut gateway, "1");
    assert_eq!(forgotten.why, "never seen, as far as is remembered");
}

#[test]
fn a_source_that_is_not_there_is_refused_with_those_that_are() {
    let upstream = Upstream::start();
    let mut gateway = Gateway::of(&upstream).start();
    for wish in [
        StateWish::Explain {
            source: "itmes".into(),
            key: "1".into(),
        },
        StateWish::Show {
            source: "itmes".into(),
        },
        StateWish::Reset {
            source: "itmes".into(),
        },
    ] {
        let Event::Refused { usage, reason } = tell(&mut gateway, wish) else {
            panic!("there is none");
        };
        assert!(
            usage && reason.contains("\"itmes\", only: items"),
            "{reason}"
        );
    }
}

#[test]
fn what_only_hooks_bring_is_not_reset() {
    let upstream = Upstream::start();
    let mut gateway = Gateway::of(&upstream).source("pull = \"none\"").start();
    let absent = explain(&mut gateway, "1");
    assert!(absent.notes[0].contains("come by hooks"), "{absent:?}");
    let wish = StateWish::Reset {
        source: "items".into(),
    };
    let Event::Refused { usage, reason } = tell(&mut gateway, wish) else {
        panic!("no pass would read it again");
    };
    assert!(usage && reason.contains("gleaner replay items"), "{reason}");
}

fn home(upstream: &Upstream) -> Home {
    let url = upstream.url("/parts");
    Home::new(&format!(
        "[source.parts]\nurl = \"{url}\"\nkey = \"/id\"\nevery = \"1h\"\n"
    ))
}

/// Names of an object's fields.
fn fields(object: &Value) -> Vec<&str> {
    let mut names: Vec<&str> = object
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    names.sort_unstable();
    names
}

fn assert_said(said: &Said, code: i32, part: &str) {
    let text = format!("{}{}", said.out, said.err);
    assert!(
        said.code == code && text.contains(part),
        "{part:?}: {said:?}"
    );
}

#[test]
fn the_commands_with_and_without_a_running_agent() {
    let upstream = Upstream::start();
    upstream
        .answer(|request| conditional(request, "\"1\"", r#"[{"id":42,"v":1},{"id":"abc","v":2}]"#));
    let home = home(&upstream);
    let nothing = home.gleaner(&["explain", "parts", "42"]);
    assert_said(
        &nothing,
        74,
        "there is nothing yet; `gleaner sync` makes it",
    );
    assert!(!home.path("state").exists(), "looking made it");
    assert_eq!(home.gleaner(&["sync"]).code, 0);

    let alone = home.gleaner(&["explain", "parts", "42"]);
    let alone_json = home.gleaner(&["explain", "parts", "42", "--json"]);
    let agent = home.run();
    loop {
        // Its first pass, a 304, has to be over: it moves the last check.
        let status = agent.status()["sources"]["parts"].clone();
        if status["outcome"] == "unchanged" && status["running"].is_null() {
            break;
        }
    }
    let live = home.gleaner(&["explain", "parts", "42"]);
    let live_json = home.gleaner(&["explain", "parts", "42", "--json"]);
    for said in [&alone, &live] {
        assert_said(said, 0, "parts 42 (a number): present\n  first seen  20");
        assert_said(said, 0, "by a snapshot pass\n  on page     1 of http");
        assert_said(
            said,
            0,
            "data.db, table parts: generation 1, a body of 15 B",
        );
        assert_said(said, 0, "\"42\" would be another key (a text): never seen");
    }
    for said in [&alone_json, &live_json] {
        let object = said.json().swap_remove(0);
        assert_eq!(
            fields(&object),
            [
                "asked",
                "last_check",
                "notes",
                "outcome",
                "pull",
                "records",
                "source"
            ]
        );
        let record = &object["records"][0];
        assert_eq!(
            fields(record),
            [
                "bad",
                "bytes",
                "changed",
                "digest",
                "first_seen",
                "generation",
                "gone",
                "in_doubt",
                "key",
                "met",
                "ordinal",
                "page",
                "state",
                "table",
                "updated",
                "why"
            ]
        );
        assert_eq!(fields(&record["met"]), ["at", "pass"]);
        assert_eq!(fields(&record["page"]), ["number", "read", "url"]);
        assert_eq!(
            (
                &record["key"],
                &record["state"],
                &record["table"],
                &record["bytes"]
            ),
            (&json!("42"), &json!("present"), &json!("parts"), &json!(15))
        );
        assert_eq!(object["records"][1]["state"], "never-seen");
    }
    let (alone, live) = (
        alone_json.json().swap_remove(0),
        live_json.json().swap_remove(0),
    );
    for field in [
        "first_seen",
        "changed",
        "digest",
        "ordinal",
        "generation",
        "page",
    ] {
        assert_eq!(
            alone["records"][0][field], live["records"][0][field],
            "{field}"
        );
    }

    let shown = home.gleaner(&["state", "show", "parts"]);
    assert_said(&shown, 0, "  records      2\n");
    assert_said(
        &shown,
        0,
        "1 remembered, 1 with validators, 2 records on them",
    );
    let object = home
        .gleaner(&["state", "show", "parts", "--json"])
        .json()
        .swap_remove(0);
    assert_eq!(
        fields(&object),
        [
            "config",
            "config_current",
            "course",
            "data_generation",
            "full_took",
            "generation",
            "gone",
            "gone_since",
            "in_doubt",
            "interrupted",
            "last_check",
            "lateness",
            "ordinals",
            "outcome",
            "owed",
            "pages",
            "pull",
            "records",
            "source"
        ]
    );

    // Nobody is there to be asked.
    let refused = home.gleaner(&["state", "reset", "parts"]);
    assert_said(
        &refused,
        64,
        "stdin is no terminal; if all that vouches for parts is to be forgotten: gleaner state reset parts --yes",
    );
    assert_eq!(
        home.gleaner(&["state", "show", "parts", "--json"]).json()[0]["in_doubt"],
        0
    );
    let done = home.gleaner(&["state", "reset", "parts", "--yes"]);
    assert_said(
        &done,
        0,
        "parts is reset: the next pass reads everything and delivers 2 records again",
    );
    assert_eq!(
        home.gleaner(&["state", "show", "parts", "--json"]).json()[0]["in_doubt"],
        2
    );
    let synced = home
        .gleaner(&["sync", "parts", "--json"])
        .json()
        .swap_remove(0);
    assert_eq!(
        (&synced["outcome"], &synced["changed"]),
        (&json!("changed"), &json!(2))
    );
    assert_eq!(agent.stop(), 0);

    assert_said(
        &home.gleaner(&["state", "reset", "parts", "--yes"]),
        0,
        "2 records again",
    );
    assert_said(
        &home.gleaner(&["explain", "parts", "abc"]),
        0,
        "in doubt: the next pass",
    );
    assert_eq!(
        home.gleaner(&["sync", "parts", "--json"]).json()[0]["changed"],
        2
    );
}

#[test]
fn wrong_names_and_keys_end_as_usage() {
    let upstream = Upstream::start();
    let home = home(&upstream);
    upstream.answer(|_| Answer::ok().json(r#"[{"id":-5}]"#));
    assert_eq!(home.gleaner(&["sync"]).code, 0);
    let no_source = "there is no source \"part\"; the config has: parts";
    for arguments in [
        &["explain", "part", "1"][..],
        &["state", "show", "part"],
        &["state", "reset", "part", "--yes"],
    ] {
        assert_said(&home.gleaner(arguments), 64, no_source);
    }
    assert_said(
        &home.gleaner(&["explain", "parts", ""]),
        64,
        "an empty text is no key",
    );
    assert_said(&home.gleaner(&["explain", "parts"]), 64, "<KEY>");
    assert_said(
        &home.gleaner(&["explain", "parts", "-5"]),
        0,
        "parts -5 (a number): present",
    );
    assert_said(
        &home.gleaner(&["explain", "parts", "--json", "6"]),
        0,
        "\"state\":\"never-seen\"",
    );
    for command in [
        &["explain", "--help"][..],
        &["state", "--help"],
        &["state", "reset", "--help"],
    ] {
        assert_said(&home.gleaner(command), 0, "Examples:\n  gleaner ");
    }
}
