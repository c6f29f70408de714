//! What deletes a record, and what does not.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot be set up has failed"
)]

mod support;

use gleaner::agent::Order;
use gleaner::pull::report::{Outcome, Report};
use support::agent::{Gateway, assert_failed, records};
use support::upstream::{Answer, Upstream};

/// Answers the next sync with this listing.
fn sync(upstream: &Upstream, gateway: &mut Gateway, listing: &str) -> Report {
    upstream.queue(Answer::ok().json(listing));
    gateway.sync()
}

#[test]
fn a_tombstone_deletes_and_an_undeleted_record_comes_back() {
    let deleted = "\"/deleted\"";
    let equals = "{ pointer = \"/status\", equals = \"archived\" }";
    for (config, living, dead) in [
        (deleted, "\"deleted\":false", "\"deleted\":true"),
        (
            deleted,
            "\"deleted\":null",
            "\"deleted\":\"2026-11-30T00:00:00Z\"",
        ),
        (deleted, "\"deleted\":0", "\"deleted\":1"),
        (deleted, "\"deleted\":\"\"", "\"deleted\":{}"),
        (deleted, "\"other\":1", "\"deleted\":1"),
        (equals, "\"status\":\"open\"", "\"status\":\"archived\""),
        (equals, "\"status\":null", "\"status\":\"archived\""),
    ] {
        let upstream = Upstream::start();
        let mut gateway = Gateway::of(&upstream)
            .source(&format!("deleted = {config}"))
            .start();
        let listing = |what: &str| format!("[{{\"id\":1,{living}}},{{\"id\":2,{what}}}]");
        sync(&upstream, &mut gateway, &listing(living));
        assert_eq!(gateway.keys(), ["1", "2"], "{living}");
        let report = sync(&upstream, &mut gateway, &listing(dead));
        assert_eq!(
            (report.tally.deleted, report.tally.unchanged),
            (1, 1),
            "{dead}: {report}"
        );
        assert_eq!(gateway.keys(), ["1"]);
        let report = sync(&upstream, &mut gateway, &listing(dead));
        assert_eq!(
            report.outcome,
            Outcome::Unchanged,
            "a tombstone is no news twice: {report}"
        );
        let report = sync(&upstream, &mut gateway, &listing(living));
        assert_eq!(
            (report.tally.added, report.tally.unchanged),
            (1, 1),
            "{living}: {report}"
        );
        assert_eq!(gateway.keys(), ["1", "2"]);
    }
}

#[test]
fn a_tombstone_and_a_living_record_of_one_key_in_one_answer_end_as_the_later_one() {
    let upstream = Upstream::start();
    let mut gateway = Gateway::of(&upstream).source("deleted = \"/gone\"").start();
    sync(&upstream, &mut gateway, "[{\"id\":1}]");
    sync(
        &upstream,
        &mut gateway,
        "[{\"id\":1,\"gone\":1},{\"id\":1,\"v\":2}]",
    );
    assert_eq!(gateway.rows(), [("1".into(), "{\"id\":1,\"v\":2}".into())]);
    sync(
        &upstream,
        &mut gateway,
        "[{\"id\":2},{\"id\":1,\"v\":3},{\"id\":1,\"gone\":1}]",
    );
    assert_eq!(gateway.keys(), ["2"]);
}

#[test]
fn a_tombstone_needs_no_more_than_its_key() {
    let upstream = Upstream::start();
    let config = "deleted = \"/gone\"\nrequire = { \"/name\" = \"string\" }";
    let mut gateway = Gateway::of(&upstream).source(config).start();
    sync(
        &upstream,
        &mut gateway,
        "[{\"id\":1,\"name\":\"a\"},{\"id\":2,\"name\":\"b\"}]",
    );
    let report = sync(
        &upstream,
        &mut gateway,
        "[{\"id\":1,\"name\":\"a\"},{\"id\":2,\"gone\":true}]",
    );
    assert_eq!(report.tally.deleted, 1, "{report}");
}

#[test]
fn a_complete_listing_without_a_record_deletes_just_that() {
    let upstream = Upstream::start();
    let mut gateway = Gateway::of(&upstream).start();
    sync(&upstream, &mut gateway, &records(1..=30, 1));
    let report = sync(
        &upstream,
        &mut gateway,
        &records((1..=30).filter(|id| *id != 17), 1),
    );
    assert_eq!(
        (report.tally.deleted, report.tally.unchanged),
        (1, 29),
        "{report}"
    );
    assert_eq!(gateway.keys().len(), 29);
    assert!(!gateway.keys().contains(&"17".to_owned()));
}

#[test]
fn a_mass_deletion_waits_for_a_person() {
    for (config, known, left, deletes) in [
        ("", 100, 90, true),
        ("", 100, 89, false),
        ("", 6, 1, true),
        ("", 7, 1, false),
        ("reconcile = { max_loss = \"50%\" }", 100, 50, true),
        ("reconcile = { max_loss = \"50%\" }", 100, 49, false),
        ("reconcile = { max_loss = 0 }", 100, 99, false),
        ("reconcile = { max_loss = 3 }", 100, 97, true),
        ("reconcile = { max_loss = \"100%\" }", 100, 1, true),
        ("reconcile = { max_loss = \"100%\" }", 100, 0, false),
        ("", 1, 0, false),
    ] {
        let story = format!("{config} {known} → {left}");
        let upstream = Upstream::start();
        let mut gateway = Gateway::of(&upstream).source(config).start();
        sync(&upstream, &mut gateway, &records(1..=known, 1));
        let report = sync(&upstream, &mut gateway, &records(1..=left, 1));
        let kept = if deletes { left } else { known };
        assert_eq!(gateway.keys().len(), kept as usize, "{story}: {report}");
        if deletes {
            assert_eq!(report.outcome, Outcome::Changed, "{story}");
            continue;
        }
        let missing = u64::from(known - left);
        let waits = Outcome::NeedsConfirmation {
            missing,
            known: known.into(),
        };
        assert_eq!(report.outcome, waits, "{story}");
        assert!(
            report
                .reason()
                .contains("gleaner reconcile items --confirm")
        );
        assert_eq!(
            gateway.query("SELECT outcome FROM _sources")[0][0],
            "needs-confirmation"
        );

        upstream.queue(Answer::ok().json(records(1..=left, 1)));
        let confirmed = Order {
            confirmed: true,
            insist: true,
            ..Order::default()
        };
        let report = gateway.order(confirmed);
        assert_eq!(report.tally.deleted, missing, "{story}: {report}");
        assert_eq!(gateway.keys().len(), left as usize, "{story}");
    }
}

#[test]
fn a_304_after_a_listing_that_waits_for_a_person_waits_too() {
    let upstream = Upstream::start();
    let mut gateway = Gateway::of(&upstream).start();
    sync(&upstream, &mut gateway, &records(1..=20, 1));
    upstream.queue(Answer::ok().etag("\"few\"").json(records(1..=2, 1)));
    assert_eq!(gateway.word(), "needs-confirmation");
    for _ in 0..2 {
        upstream.queue(Answer::not_modified());
        assert_eq!(gateway.word(), "needs-confirmation");
    }
    gateway.restart();
    upstream.queue(Answer::not_modified());
    let confirmed = Order {
        confirmed: true,
        insist: true,
        ..Order::default()
    };
    assert_eq!(gateway.order(confirmed).tally.deleted, 18);
    upstream.queue(Answer::not_modified());
    assert_eq!(gateway.word(), "unchanged");
    // The records that were deleted may come back.
    sync(&upstream, &mut gateway, &records(1..=20, 1));
    assert_eq!(gateway.keys().len(), 20);
}

#[test]
fn a_skipped_bad_record_keeps_its_old_row() {
    let upstream = Upstream::start();
    let config = "on_bad_record = \"skip\"\nrequire = { \"/v\" = \"number\" }";
    let mut gateway = Gateway::of(&upstream).source(config).start();
    sync(&upstream, &mut gateway, &records(1..=3, 1));
    let listing = "[{\"id\":1,\"v\":2},{\"id\":2,\"v\":\"two\"}]";
    let report = sync(&upstream, &mut gateway, listing);
    let t = report.tally;
    assert_eq!((t.bad, t.changed, t.deleted), (1, 1, 1), "{report}");
    let rows = [
        ("1".into(), "{\"id\":1,\"v\":2}".into()),
        ("2".into(), "{\"id\":2,\"v\":1}".into()),
    ];
    assert_eq!(gateway.rows(), rows);
}

#[test]
fn behind_a_bad_record_without_a_key_nothing_is_deleted() {
    let upstream = Upstream::start();
    let mut gateway = Gateway::of(&upstream)
        .source("on_bad_record = \"skip\"")
        .start();
    sync(&upstream, &mut gateway, &records(1..=3, 1));
    let report = sync(
        &upstream,
        &mut gateway,
        "[{\"id\":1,\"v\":1},{\"name\":\"who am I?\"}]",
    );
    assert_eq!((report.tally.bad, report.tally.deleted), (1, 0), "{report}");
    assert!(!report.notes.is_empty());
    assert_eq!(gateway.keys(), ["1", "2", "3"]);
    let report = sync(&upstream, &mut gateway, &records(1..=1, 1));
    assert_eq!(report.tally.deleted, 2, "{report}");
}

#[test]
fn a_failed_pass_deletes_nothing_and_neither_does_a_part_of_a_listing() {
    let upstream = Upstream::start();
    let mut gateway = Gateway::of(&upstream).source("pages = \"link\"").start();
    sync(&upstream, &mut gateway, &records(1..=20, 1));
    upstream.queue(
        Answer::ok()
            .header("Link", "<?p=2>; rel=next")
            .json(records(1..=2, 1)),
    );
    upstream.queue(Answer::status(500));
    assert_failed(&gateway.sync(), "failing", "500");
    assert_eq!(gateway.keys().len(), 20);
}

#[test]
fn lines_without_a_proven_end_delete_nothing_and_leave_no_validators() {
    let upstream = Upstream::start();
    let mut gateway = Gateway::of(&upstream).source("format = \"ndjson\"").start();
    let lines = |ids: std::ops::RangeInclusive<u32>| -> String {
        ids.map(|id| format!("{{\"id\":{id}}}\n")).collect()
    };
    let answer = |body: &str| {
        Answer::ok()
            .header("Content-Type", "application/x-ndjson")
            .etag("\"n\"")
            .body(body)
    };
    upstream.queue(answer(&lines(1..=4)));
    assert_eq!(gateway.word(), "changed");
    upstream.queue(answer(&lines(1..=3)).close_delimited());
    let report = gateway.sync();
    assert_eq!(
        (report.outcome.word(), report.tally.deleted),
        ("unchanged", 0),
        "{report}"
    );
    upstream.queue(answer("{\"id\":1}\n{\"id\":").close_delimited());
    assert_failed(&gateway.sync(), "failing", "cut");
    assert_eq!(gateway.keys(), ["1", "2", "3", "4"]);
    upstream.queue(answer(&lines(1..=3)).chunked());
    let report = gateway.sync();
    assert_eq!(report.tally.deleted, 1, "{report}");
    let asked = upstream.requests();
    assert_eq!(asked.last().unwrap().header("if-none-match"), None);
}

#[test]
fn deleted_rows_may_stay_with_a_mark() {
    let upstream = Upstream::start();
    let config = "deletes = \"mark\"\ndeleted = \"/gone\"";
    let mut gateway = Gateway::of(&upstream).source(config).start();
    sync(&upstream, &mut gateway, &records(1..=3, 1));
    sync(
        &upstream,
        &mut gateway,
        "[{\"id\":1,\"v\":1},{\"id\":2,\"gone\":true}]",
    );
    let marks =
        |gateway: &Gateway| gateway.query("SELECT key, deleted <> 0 FROM items ORDER BY key");
    assert_eq!(marks(&gateway), [["1", "0"], ["2", "1"], ["3", "1"]]);
    assert_eq!(gateway.status().records, 1);
    let report = sync(
        &upstream,
        &mut gateway,
        "[{\"id\":1,\"v\":1},{\"id\":2,\"gone\":true}]",
    );
    assert_eq!(report.outcome, Outcome::Unchanged);
    sync(&upstream, &mut gateway, &records(1..=3, 1));
    assert_eq!(marks(&gateway), [["1", "0"], ["2", "0"], ["3", "0"]]);
}

#[test]
fn a_dry_run_says_what_would_be_and_changes_nothing() {
    let upstream = Upstream::start();
    let mut gateway = Gateway::of(&upstream).start();
    sync(&upstream, &mut gateway, &records(1..=3, 1));
    let (rows, before) = (gateway.rows(), gateway.written());
    upstream.queue(
        Answer::ok()
            .etag("\"x\"")
            .json("[{\"id\":1,\"v\":2},{\"id\":4},{\"id\":2,\"v\":1}]"),
    );
    let report = gateway.order(Order {
        dry_run: true,
        insist: true,
        ..Order::default()
    });
    let t = report.tally;
    assert_eq!(
        (t.added, t.changed, t.deleted, t.unchanged),
        (1, 1, 1, 1),
        "{report}"
    );
    assert_eq!(gateway.rows(), rows);
    let but_shared_memory = |files: Vec<(std::path::PathBuf, usize, u64)>| -> Vec<_> {
        files
            .into_iter()
            .filter(|(path, ..)| !path.ends_with("data.db-shm"))
            .collect()
    };
    assert_eq!(
        but_shared_memory(gateway.written()),
        but_shared_memory(before)
    );
}

/// What was deleted before, meanwhile and after is right whichever way `deletes` goes.
#[test]
fn rows_are_marked_or_removed_also_when_the_config_changes_its_mind() {
    let upstream = Upstream::start();
    upstream.answer(|_| Answer::ok().json(records(1..=20, 1)));
    let mut gateway = Gateway::of(&upstream)
        .source("deletes = \"remove\"")
        .start();
    assert_eq!(gateway.sync().tally.added, 20);

    upstream.answer(|_| Answer::ok().json(records(2..=20, 1)));
    gateway.restart_with("deletes = \"mark\"");
    let report = gateway.sync();
    assert_eq!(
        (report.tally.added, report.tally.deleted),
        (0, 1),
        "{report}"
    );
    let marked = gateway.query("SELECT count(*), sum(deleted), sum(deleted IS NULL) FROM items");
    assert_eq!(marked, [["20", "1", "0"]]);

    upstream.answer(|_| Answer::ok().json(records(3..=20, 1)));
    gateway.restart_with("deletes = \"remove\"");
    let report = gateway.sync();
    assert_eq!(
        (report.tally.added, report.tally.deleted),
        (0, 1),
        "{report}"
    );
    assert_eq!(
        gateway.query("SELECT count(*), min(key) FROM items"),
        [["18", "3"]]
    );
}
