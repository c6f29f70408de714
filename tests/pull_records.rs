//! Records: whose they are, when they count as the same, what is kept of them, and what a bad one does.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot be set up has failed"
)]

mod support;

use gleaner::agent::Order;
use gleaner::pull::report::{Outcome, Report};
use support::agent::{Gateway, assert_failed, conditional, records};
use support::upstream::{Answer, Upstream};

/// Answers the next sync with this listing.
fn sync(upstream: &Upstream, gateway: &mut Gateway, listing: impl Into<Vec<u8>>) -> Report {
    upstream.queue(
        Answer::ok()
            .header("Content-Type", "application/json")
            .body(listing),
    );
    gateway.sync()
}

#[test]
fn keys_of_every_kind_keep_records_apart() {
    let long = "x".repeat(200);
    let table: &[(&str, &str, usize)] = &[
        (
            "key = \"/id\"",
            "[{\"id\":1},{\"id\":2},{\"id\":-3},{\"id\":0}]",
            4,
        ),
        (
            "key = \"/id\"",
            "[{\"id\":9007199254740992},{\"id\":9007199254740993},{\"id\":12345678901234567890123456789}]",
            3,
        ),
        (
            "key = \"/id\"",
            "[{\"id\":\"1\"},{\"id\":\"a b\"},{\"id\":\"ü\"},{\"id\":\"1.0\"}]",
            4,
        ),
        ("key = \"/p/q\"", "[{\"p\":{\"q\":1}},{\"p\":{\"q\":2}}]", 2),
        (
            "key = [\"/a\", \"/b\"]",
            "[{\"a\":1,\"b\":23},{\"a\":12,\"b\":3},{\"a\":\"1\",\"b\":\"2,3\"},{\"a\":\"1,2\",\"b\":3}]",
            4,
        ),
        (
            "key = [\"/a\", \"/b\"]",
            "[{\"a\":\"x\",\"b\":\"\\\",\\\"y\"},{\"a\":\"x\\\",\\\"\",\"b\":\"y\"}]",
            2,
        ),
        (
            "key = \"/id\"",
            &format!("[{{\"id\":\"{long}a\"}},{{\"id\":\"{long}b\"}}]"),
            2,
        ),
    ];
    for (config, listing, count) in table {
        let upstream = Upstream::start();
        let mut gateway = Gateway::of(&upstream).source(config).start();
        let report = sync(&upstream, &mut gateway, *listing);
        assert_eq!(
            (report.tally.added, report.tally.duplicates),
            (*count as u64, 0),
            "{listing}: {report}"
        );
        assert_eq!(gateway.keys().len(), *count);
        let report = sync(&upstream, &mut gateway, *listing);
        assert_eq!(report.outcome, Outcome::Unchanged, "{listing}: {report}");
    }
}

#[test]
fn what_cannot_be_a_key_is_a_bad_record_that_says_where() {
    for record in [
        "{}",
        "{\"id\":null}",
        "{\"id\":true}",
        "{\"id\":[1]}",
        "{\"id\":{}}",
        "{\"id\":\"\"}",
        "7",
        "null",
        "[]",
    ] {
        let upstream = Upstream::start();
        let mut gateway = Gateway::of(&upstream).start();
        let report = sync(&upstream, &mut gateway, format!("[{{\"id\":1}},{record}]"));
        assert_failed(&report, "bad-data", "record 2 at \"\"");
        assert_failed(&report, "bad-data", "/id");
        assert!(
            report.reason().contains(&upstream.url("/items")),
            "{report}"
        );
        assert!(gateway.rows().is_empty(), "{record}");
    }
}

#[test]
fn of_two_in_one_answer_the_later_update_wins() {
    let upstream = Upstream::start();
    let mut gateway = Gateway::of(&upstream).source("updated = \"/at\"").start();
    let listing = "[{\"id\":1,\"at\":\"2026-01-02T00:00:00Z\",\"v\":\"new\"},{\"id\":1,\"at\":\"2026-01-01T23:00:00Z\",\"v\":\"old\"},\
                    {\"id\":2,\"at\":\"2026-01-01T00:00:00Z\",\"v\":\"old\"},{\"id\":2,\"at\":\"2026-01-01T01:30:00+01:00\",\"v\":\"new\"}]";
    let report = sync(&upstream, &mut gateway, listing);
    assert_eq!(
        (report.tally.added, report.tally.duplicates),
        (2, 2),
        "{report}"
    );
    assert!(
        gateway.rows().iter().all(|(_, body)| body.contains("new")),
        "{:?}",
        gateway.rows()
    );
    let report = sync(&upstream, &mut gateway, listing);
    assert_eq!(report.outcome, Outcome::Unchanged, "{report}");

    // Without update times, the later in the answer.
    let mut gateway = Gateway::of(&upstream).start();
    sync(
        &upstream,
        &mut gateway,
        "[{\"id\":1,\"v\":1},{\"id\":1,\"v\":2}]",
    );
    assert_eq!(gateway.rows()[0].1, "{\"id\":1,\"v\":2}");
}

#[test]
fn what_makes_no_difference_changes_nothing() {
    let first = "[{\"id\":1,\"n\":1.50,\"s\":\"\\u00e9\",\"at\":1,\"deep\":[{\"at\":1,\"x\":1}]}]";
    for (config, second, outcome) in [
        (
            "",
            "[ {\"s\":\"é\", \"n\":15e-1,\"deep\":[{\"x\":1.0,\"at\":1}],\"id\":1,\"at\":1}\n]",
            "unchanged",
        ),
        (
            "",
            "[{\"id\":1,\"n\":1.5000000000000000001,\"s\":\"é\",\"at\":1,\"deep\":[{\"at\":1,\"x\":1}]}]",
            "changed",
        ),
        (
            "",
            "[{\"id\":1,\"n\":1.5,\"s\":\"é\",\"at\":2,\"deep\":[{\"at\":1,\"x\":1}]}]",
            "changed",
        ),
        (
            "ignore = [\"/at\"]",
            "[{\"id\":1,\"n\":1.5,\"s\":\"é\",\"at\":2,\"deep\":[{\"at\":1,\"x\":1}]}]",
            "unchanged",
        ),
        (
            "ignore = [\"/at\"]",
            "[{\"id\":1,\"n\":1.5,\"s\":\"é\",\"deep\":[{\"at\":1,\"x\":1}]}]",
            "unchanged",
        ),
        (
            "ignore = [\"/at\"]",
            "[{\"id\":1,\"n\":1.5,\"s\":\"é\",\"at\":1,\"deep\":[{\"at\":2,\"x\":1}]}]",
            "changed",
        ),
        (
            "ignore = [\"/deep/*/at\"]",
            "[{\"id\":1,\"n\":1.5,\"s\":\"é\",\"at\":1,\"deep\":[{\"at\":2,\"x\":1}]}]",
            "unchanged",
        ),
        (
            "ignore = [\"at\"]",
            "[{\"id\":1,\"n\":1.5,\"s\":\"é\",\"at\":9,\"deep\":[{\"at\":2,\"x\":1}]}]",
            "unchanged",
        ),
        (
            "ignore = [\"at\"]",
            "[{\"id\":1,\"n\":1.5,\"s\":\"é\",\"at\":9,\"deep\":[{\"at\":2,\"x\":2}]}]",
            "changed",
        ),
    ] {
        let upstream = Upstream::start();
        let mut gateway = Gateway::of(&upstream).source(config).start();
        sync(&upstream, &mut gateway, first);
        let rows = gateway.rows();
        let report = sync(&upstream, &mut gateway, second);
        assert_eq!(
            report.outcome.word(),
            outcome,
            "{config} {second}: {report}"
        );
        assert_eq!(gateway.rows() == rows, outcome == "unchanged");
    }
}

#[test]
fn a_body_is_stored_byte_for_byte_as_it_came() {
    let record = "{ \"id\" : 1 ,\n\t\"n\": 1.50e+1, \"s\": \"\\u00e9\\/ é \\ud83d\\ude00\", \"id2\":12345678901234567890, \"a\":[ ] }";
    let upstream = Upstream::start();
    let mut gateway = Gateway::of(&upstream)
        .source("records = \"/data/items\"")
        .start();
    sync(
        &upstream,
        &mut gateway,
        format!("{{\"meta\":[1,{{}}],\"data\":{{\"items\":[ {record} ]}},\"x\":null}}"),
    );
    assert_eq!(gateway.rows()[0].1, record);
}

#[test]
fn columns_hold_every_json_type() {
    let config = "columns = { s = \"/s\", i = \"/i\", big = \"/big\", r = \"/r\", t = \"/t\", f = \"/f\", n = \"/n\", a = \"/a\", o = \"/o\", none = \"/none\" }";
    let upstream = Upstream::start();
    let mut gateway = Gateway::of(&upstream).source(config).start();
    sync(
        &upstream,
        &mut gateway,
        "[{\"id\":1,\"s\":\"a\\u00e9\",\"i\":42,\"big\":12345678901234567890,\"r\":1.5,\"t\":true,\"f\":false,\"n\":null,\"a\":[1, 2],\"o\":{\"x\":1}}]",
    );
    let row = &gateway.query("SELECT s, i, r, t, f, n, a, o, none FROM items")[0];
    assert_eq!(
        row[..],
        [
            "aé",
            "42",
            "1.5",
            "1",
            "0",
            "NULL",
            "[1, 2]",
            "{\"x\":1}",
            "NULL"
        ]
    );
    let big = &gateway.query("SELECT big FROM items")[0][0];
    assert!(
        big.starts_with("1234567890123456789") || big.starts_with("1.2345678901234567e"),
        "{big}"
    );
}

#[test]
fn a_broken_contract_keeps_the_record_that_is_there() {
    let config = "require = { \"/name\" = \"string\", \"/mass_g\" = \"number >= 0\" }";
    for (bad, said) in [
        ("\"name\":5,\"mass_g\":1", "/name"),
        ("\"mass_g\":1", "/name"),
        ("\"name\":\"a\",\"mass_g\":-1", "/mass_g"),
        ("\"name\":\"a\",\"mass_g\":null", "/mass_g"),
    ] {
        let upstream = Upstream::start();
        let mut gateway = Gateway::of(&upstream).source(config).start();
        sync(
            &upstream,
            &mut gateway,
            "[{\"id\":1,\"name\":\"a\",\"mass_g\":0.5},{\"id\":2,\"name\":\"b\",\"mass_g\":2}]",
        );
        let rows = gateway.rows();
        let listing = format!("[{{\"id\":1,\"name\":\"new\",\"mass_g\":1}},{{\"id\":2,{bad}}}]");
        let report = sync(&upstream, &mut gateway, listing);
        assert_failed(&report, "bad-data", said);
        assert_failed(&report, "bad-data", "record 2");
        assert_failed(&report, "bad-data", "key 2");
        assert_eq!(gateway.rows(), rows, "{bad}");
    }
}

/// Records that no reader should take, and what is said of them.
fn bad_records() -> Vec<(Vec<u8>, &'static str)> {
    let deep = format!("{{\"id\":2,\"v\":{}{}}}", "[".repeat(300), "]".repeat(300));
    vec![
        (b"{\"name\":1}".to_vec(), "/id"),
        (b"{\"id\":2,\"v\":NaN}".to_vec(), ""),
        (b"{\"id\":2,\"v\":Infinity}".to_vec(), ""),
        (b"{\"id\":2,\"v\":01}".to_vec(), ""),
        (b"{\"id\":2,\"v\":1.}".to_vec(), ""),
        (b"{\"id\":2,\"v\":\"\\x\"}".to_vec(), ""),
        (b"{\"id\":2,\"v\":\"a\nb\"}".to_vec(), ""),
        (b"{\"id\":2,\"v\":\"\xff\xfe\"}".to_vec(), ""),
        (b"{\"id\":2,'v':1}".to_vec(), ""),
        (b"{\"id\":2,\"v\":1,}".to_vec(), ""),
        (deep.into_bytes(), ""),
    ]
}

fn between(bad: &[u8]) -> Vec<u8> {
    [b"[{\"id\":1,\"v\":2},", bad, b",{\"id\":3,\"v\":2}]"].concat()
}

#[test]
fn a_bad_record_fails_its_pass_and_says_which_it_is() {
    let upstream = Upstream::start();
    let mut gateway = Gateway::of(&upstream).start();
    sync(&upstream, &mut gateway, records(1..=3, 1));
    let rows = gateway.rows();
    for (bad, said) in bad_records() {
        let report = sync(&upstream, &mut gateway, between(&bad));
        let story = String::from_utf8_lossy(&bad).into_owned();
        assert_failed(&report, "bad-data", said);
        assert!(
            report.reason().contains("record 2 at \"\""),
            "{story:.60}: {report}"
        );
        assert!(
            report.reason().contains(&upstream.url("/items")),
            "{report}"
        );
        assert_eq!(gateway.rows(), rows, "{story:.60}");
    }
}

#[test]
fn a_skipped_bad_record_is_counted_and_kept_aside_and_shown() {
    for (bad, _) in bad_records() {
        let story = String::from_utf8_lossy(&bad).into_owned();
        let upstream = Upstream::start();
        let mut gateway = Gateway::of(&upstream)
            .source("on_bad_record = \"skip\"")
            .start();
        sync(&upstream, &mut gateway, records(1..=3, 1));
        let report = sync(&upstream, &mut gateway, between(&bad));
        let t = report.tally;
        assert_eq!(
            (t.bad, t.changed, t.deleted),
            (1, 2, 0),
            "{story:.60}: {report}"
        );
        assert_eq!(gateway.keys(), ["1", "2", "3"]);
        let kept = gateway.query("SELECT source, page, number, length(reason) > 5, raw FROM _bad");
        assert_eq!(kept.len(), 1, "{story:.60}");
        assert_eq!(kept[0][..4], ["items", &upstream.url("/items"), "2", "1"]);
        assert!(
            story.starts_with(kept[0][4].trim_end_matches('\u{fffd}')) || !kept[0][4].is_empty()
        );
        let report = sync(&upstream, &mut gateway, records(1..=3, 2));
        assert_eq!((report.tally.bad, report.tally.changed), (0, 1), "{report}");
        assert!(
            gateway.query("SELECT * FROM _bad").is_empty(),
            "it is mended"
        );
    }
}

#[test]
fn a_record_that_is_too_long_is_an_error_that_says_which() {
    let upstream = Upstream::start();
    let mut gateway = Gateway::of(&upstream)
        .upstream("limits = { record = \"1kB\" }")
        .start();
    let long = format!("[{{\"id\":1}},{{\"id\":2,\"v\":\"{}\"}}]", "x".repeat(2000));
    let report = sync(&upstream, &mut gateway, long);
    assert_failed(&report, "bad-data", "record 2");
    assert_failed(&report, "bad-data", "1000");
}

#[test]
fn records_that_are_elsewhere_are_an_error_that_says_what_is_there() {
    for (config, body, said) in [
        ("records = \"/items\"", "{\"data\":[],\"total\":0}", "data"),
        ("records = \"/items\"", "[]", "/items"),
        ("records = \"/a/b\"", "{\"a\":{\"c\":1}}", "/a"),
        ("", "{\"items\":[]}", "array"),
        ("records = \"/items\"", "{\"items\":{\"1\":{}}}", "/items"),
        (
            "records = \"/items\"",
            "{\"items\":[],\"items\":[{\"id\":1}]}",
            "/items",
        ),
        ("", "[{\"id\":1}] trailing", "byte"),
        ("", "[{\"id\":1},]", ""),
        ("", "[{\"id\":1}{\"id\":2}]", ""),
        ("", "\u{feff}<html>", ""),
    ] {
        let upstream = Upstream::start();
        let mut gateway = Gateway::of(&upstream).source(config).start();
        let report = sync(&upstream, &mut gateway, body);
        assert!(
            matches!(report.outcome, Outcome::Failed(_)),
            "{body}: {report}"
        );
        assert!(report.reason().contains(said), "{body}: {report}");
        assert!(gateway.rows().is_empty(), "{body}");
    }
}

#[test]
fn a_changed_config_reads_everything_again() {
    for change in [
        "ignore = [\"/at\"]",
        "columns = { v = \"/v\" }",
        "schema_version = 2",
        "require = { \"/v\" = \"number\" }",
        "updated = { field = \"/at\", format = \"epoch-s\" }",
        "params = { all = true }",
    ] {
        let upstream = Upstream::start();
        upstream.answer(|request| conditional(request, "\"a\"", "[{\"id\":1,\"v\":1,\"at\":5}]"));
        let mut gateway = Gateway::of(&upstream).start();
        gateway.sync();
        gateway.restart();
        assert_eq!(
            gateway.sync().tally.not_modified,
            1,
            "the same config asks conditionally"
        );
        gateway.restart_with(change);
        let report = gateway.sync();
        assert_eq!(report.tally.not_modified, 0, "{change}: {report}");
        let requests = upstream.requests();
        assert_eq!(
            requests.last().unwrap().header("if-none-match"),
            None,
            "{change}"
        );
        assert_eq!(gateway.sync().tally.not_modified, 1, "{change}");
        assert_eq!(gateway.keys(), ["1"]);
    }
}

#[test]
fn columns_may_come_and_go() {
    let upstream = Upstream::start();
    upstream.answer(|request| conditional(request, "\"a\"", &records(1..=3, 7)));
    let mut gateway = Gateway::of(&upstream).start();
    gateway.sync();
    gateway.restart_with("columns = { v = \"/v\" }");
    gateway.sync();
    assert_eq!(gateway.query("SELECT v FROM items"), [["7"], ["7"], ["7"]]);
    gateway.restart_with("columns = { w = \"/v\" }");
    gateway.sync();
    assert_eq!(gateway.query("SELECT w FROM items"), [["7"], ["7"], ["7"]]);
    gateway.restart_with("");
    gateway.sync();
    assert_eq!(gateway.keys(), ["1", "2", "3"]);
}

#[test]
fn another_scope_is_another_dataset() {
    let upstream = Upstream::start();
    upstream.answer(|request| conditional(request, "\"a\"", &records(1..=30, 1)));
    let mut gateway = Gateway::of(&upstream)
        .upstream("scope = \"plant-7\"")
        .start();
    gateway.sync();
    // The same tag, another plant's data: without the scope in the key this would be "unchanged".
    upstream.answer(|request| conditional(request, "\"a\"", &records(101..=103, 1)));
    gateway.restart_with_upstream("scope = \"plant-8\"");
    let report = gateway.sync();
    assert_eq!(report.tally.added, 3, "{report}");
    assert_eq!(
        gateway.keys(),
        ["101", "102", "103"],
        "the old scope's rows go: {report}"
    );
}

#[test]
fn replay_delivers_everything_again_and_asks_nobody() {
    let upstream = Upstream::start();
    upstream.answer(|request| conditional(request, "\"a\"", &records(1..=600, 1)));
    let mut gateway = Gateway::of(&upstream).start();
    gateway.sync();
    let (rows, asked) = (gateway.rows(), upstream.requests().len());
    let generations =
        |gateway: &Gateway| gateway.query("SELECT min(generation), max(generation) FROM items");
    let before = generations(&gateway);
    let report = gateway.order(Order {
        replay: true,
        ..Order::default()
    });
    assert_eq!(report.tally.changed, 600, "{report}");
    assert_eq!(upstream.requests().len(), asked);
    assert_eq!(gateway.rows(), rows);
    assert_ne!(generations(&gateway), before);
    let report = gateway.sync();
    assert_eq!(
        (report.outcome.word(), report.tally.not_modified),
        ("unchanged", 1)
    );
}

#[test]
fn a_mended_contract_brings_what_it_had_kept_out() {
    let upstream = Upstream::start();
    upstream.answer(|request| {
        conditional(
            request,
            "\"a\"",
            "[{\"id\":1,\"v\":1},{\"id\":2,\"v\":\"two\"}]",
        )
    });
    let strict = "on_bad_record = \"skip\"\nrequire = { \"/v\" = \"number\" }";
    let mut gateway = Gateway::of(&upstream).source(strict).start();
    gateway.sync();
    assert_eq!(
        gateway.sync().tally.bad,
        1,
        "a 304 vouches for the bad one too"
    );
    assert_eq!(gateway.keys(), ["1"]);
    gateway.restart_with("on_bad_record = \"skip\"\nrequire = { \"/v\" = \"number | string\" }");
    gateway.sync();
    assert_eq!(gateway.keys(), ["1", "2"]);
    gateway.restart_with("require = { \"/v\" = \"number\" }");
    assert_failed(&gateway.sync(), "bad-data", "/v");
}

#[test]
fn an_empty_listing_of_another_scope_is_that_scopes_data() {
    let upstream = Upstream::start();
    let mut gateway = Gateway::of(&upstream).start();
    sync(&upstream, &mut gateway, records(1..=30, 1));
    gateway.restart_with_upstream("scope = \"b\"");
    upstream.queue(Answer::status(500));
    assert_failed(&gateway.sync(), "failing", "500");
    assert_eq!(
        gateway.keys().len(),
        30,
        "until the other scope has answered"
    );
    let report = sync(&upstream, &mut gateway, "[]");
    assert_eq!(report.tally.deleted, 30, "{report}");
    // From then on its own losses are guarded.
    sync(&upstream, &mut gateway, records(1..=30, 2));
    assert_eq!(
        sync(&upstream, &mut gateway, "[]").outcome.word(),
        "needs-confirmation"
    );
}

#[test]
fn a_key_that_is_half_a_surrogate_pair_is_the_record_s_fault() {
    let upstream = Upstream::start();
    upstream.answer(|_| Answer::ok().json("[{\"id\":\"\\ud800\"},{\"id\":\"b\"}]"));
    let mut gateway = Gateway::of(&upstream).start();
    assert_failed(&gateway.sync(), "bad-data", "record 1");
    gateway.restart_with("on_bad_record = \"skip\"");
    assert_eq!(gateway.sync().tally.bad, 1);
    assert_eq!(gateway.keys(), ["b"]);
}

#[test]
fn a_key_that_is_not_unique_is_said_and_what_it_changes_is_counted() {
    let upstream = Upstream::start();
    upstream.answer(|_| Answer::ok().json("[{\"id\":1,\"v\":1}]"));
    let mut gateway = Gateway::of(&upstream).start();
    gateway.sync();
    upstream.answer(|_| Answer::ok().json("[{\"id\":1,\"v\":1},{\"id\":1,\"v\":5}]"));
    let report = gateway.sync();
    assert_eq!(
        (report.tally.changed, report.tally.unchanged),
        (1, 0),
        "{report}"
    );
    assert!(
        report
            .notes
            .iter()
            .any(|note| note.contains("is `key` unique")),
        "{:?}",
        report.notes
    );
}

#[test]
fn records_told_by_another_key_are_another_dataset() {
    let upstream = Upstream::start();
    let all: Vec<String> = (1..=30)
        .map(|n| format!("{{\"id\":{n},\"code\":\"c{n}\"}}"))
        .collect();
    let body = format!("[{}]", all.join(","));
    upstream.answer(move |_| Answer::ok().json(&body));
    let mut gateway = Gateway::of(&upstream).start();
    gateway.sync();
    gateway.restart_with("key = \"/code\"");
    let report = gateway.sync();
    assert_eq!(report.outcome.word(), "changed", "{report}");
    assert_eq!(
        gateway.keys().len(),
        30,
        "the rows under the old key are gone"
    );
}

#[test]
fn a_reader_s_index_on_a_column_is_no_obstacle() {
    let upstream = Upstream::start();
    upstream.answer(|_| Answer::ok().json(records(1..=3, 1)));
    let mut gateway = Gateway::of(&upstream)
        .source("columns = { v = \"/v\" }")
        .start();
    gateway.sync();
    let db = rusqlite::Connection::open(gateway.state().join("data.db")).unwrap();
    db.execute_batch("CREATE INDEX by_v ON items (v)").unwrap();
    drop(db);
    gateway.restart_with("");
    assert!(gateway.sync().outcome.is_complete());
    assert_eq!(
        gateway.query("SELECT count(*), count(v) FROM items"),
        [["3", "0"]]
    );
    // It stays that way: a restart finds nothing to do again.
    let generation = gateway.query("SELECT generation FROM _gleaner");
    gateway.restart();
    assert_eq!(gateway.sync().tally.changed, 0);
    assert_eq!(gateway.query("SELECT generation FROM _gleaner"), generation);
    // And the column is filled again when it comes back, also if nothing was pulled in between.
    gateway.restart_with("columns = { v = \"/v\" }");
    gateway.sync();
    gateway.restart_with("");
    gateway.restart_with("columns = { v = \"/v\" }");
    gateway.sync();
    assert_eq!(
        gateway.query("SELECT count(*), count(v) FROM items"),
        [["3", "3"]]
    );
}

#[test]
fn rows_of_another_key_go_however_that_was_written() {
    let listing = "[{\"id\":1,\"v\":\"a\"},{\"id\":2,\"v\":\"b\"}]";
    let keys = [
        "key = \"/id\"",
        "key = [\"/id\", \"/v\"]",
        "key = \"/v\"",
        "key = [\"/v\", \"/id\"]",
        "key = [\"/id\"]",
    ];
    for deletes in ["", "deletes = \"mark\""] {
        for (from, to) in keys
            .iter()
            .flat_map(|from| keys.iter().map(move |to| (from, to)))
        {
            let upstream = Upstream::start();
            let mut gateway = Gateway::of(&upstream)
                .source(&format!("{from}\n{deletes}"))
                .start();
            sync(&upstream, &mut gateway, listing);
            gateway.restart_with(&format!("{to}\n{deletes}"));
            sync(&upstream, &mut gateway, listing);
            let living = if deletes.is_empty() {
                ""
            } else {
                "WHERE deleted = 0"
            };
            let rows = gateway.query(&format!("SELECT count(*) FROM items {living}"));
            assert_eq!(rows, [["2"]], "{from} to {to} {deletes}");
            gateway.restart();
            let report = sync(&upstream, &mut gateway, listing);
            assert_eq!(
                report.outcome,
                Outcome::Unchanged,
                "{from} to {to}: {report}"
            );
        }
    }
}

#[test]
fn a_data_db_that_is_taken_away_while_it_is_open_is_made_again() {
    let upstream = Upstream::start();
    let mut gateway = Gateway::of(&upstream).start();
    sync(&upstream, &mut gateway, "[{\"id\":1},{\"id\":2}]");
    for name in ["data.db", "data.db-wal", "data.db-shm"] {
        std::fs::remove_file(gateway.state().join(name)).unwrap();
    }
    let report = sync(&upstream, &mut gateway, "[{\"id\":1},{\"id\":2}]");
    assert!(report.outcome.is_complete(), "{report}");
    assert_eq!(gateway.keys(), ["1", "2"]);
}
