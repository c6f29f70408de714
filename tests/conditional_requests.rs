//! What is asked conditionally, what a 304 may mean, and what is kept of an answer.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot be set up has failed"
)]

mod support;

use std::time::Duration;

use gleaner::pull::report::Outcome;
use support::agent::{Gateway, assert_failed, conditional, records};
use support::upstream::{Answer, Request, Upstream};

const DAY: Duration = Duration::from_secs(24 * 3600);

/// The last request's field.
fn last(upstream: &Upstream, field: &str) -> Option<String> {
    let requests = upstream.requests();
    requests.last().unwrap().header(field).map(str::to_owned)
}

/// Always the same listing in full, with these fields.
fn listing(fields: &[(&str, &str)]) -> impl Fn(&Request) -> Answer + Send + Sync + 'static {
    let fields: Vec<(String, String)> = fields
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    move |_| {
        fields.iter().fold(
            Answer::ok().json(records(1..=3, 1)),
            |answer, (name, value)| answer.header(name, value),
        )
    }
}

#[test]
fn validators_go_back_byte_for_byte_as_they_came() {
    let table = [
        ("\"strong\"", Some("\"strong\"")),
        ("W/\"weak\"", Some("W/\"weak\"")),
        ("unquoted", Some("unquoted")),
        ("\"\"", Some("\"\"")),
        (
            "\"with \\\" and , inside\"",
            Some("\"with \\\" and , inside\""),
        ),
        ("  \"padded\"\t", Some("\"padded\"")),
        ("\"a-gzip\"", Some("\"a-gzip\"")),
        ("", None),
        ("   ", None),
    ];
    for (tag, sent) in table {
        let upstream = Upstream::start();
        upstream.answer(listing(&[("ETag", tag)]));
        let mut gateway = Gateway::of(&upstream).start();
        gateway.sync();
        assert_eq!(gateway.word(), "unchanged");
        assert_eq!(last(&upstream, "if-none-match").as_deref(), sent, "{tag}");
    }
}

#[test]
fn a_validator_outside_of_ascii_goes_back_as_it_came() {
    let upstream = Upstream::start();
    let body = records(1..=2, 1);
    let mut raw = b"HTTP/1.1 200 OK\r\nETag: \"caf\xe9\"\r\n".to_vec();
    raw.extend(format!("Content-Length: {}\r\n\r\n{body}", body.len()).bytes());
    upstream.queue(Answer::raw(raw));
    upstream.queue(Answer::not_modified());
    let mut gateway = Gateway::of(&upstream).start();
    gateway.sync();
    assert_eq!(gateway.word(), "unchanged");
    // The scripted upstream shows what is no UTF-8 by a replacement character.
    assert_eq!(
        last(&upstream, "if-none-match").as_deref(),
        Some("\"caf\u{fffd}\"")
    );
}

#[test]
fn both_validators_are_sent_and_a_date_alone_is_enough() {
    let date = "Mon, 30 Nov 2026 12:00:00 GMT";
    let upstream = Upstream::start();
    upstream.answer(listing(&[("ETag", "\"a\""), ("Last-Modified", date)]));
    let mut gateway = Gateway::of(&upstream).start();
    gateway.sync();
    gateway.sync();
    assert_eq!(last(&upstream, "if-none-match").as_deref(), Some("\"a\""));
    assert_eq!(last(&upstream, "if-modified-since").as_deref(), Some(date));

    upstream.answer(listing(&[("Last-Modified", "yesterday, about noon")]));
    gateway.sync();
    gateway.sync();
    assert_eq!(last(&upstream, "if-none-match"), None);
    let as_it_came = last(&upstream, "if-modified-since");
    assert_eq!(as_it_came.as_deref(), Some("yesterday, about noon"));
}

#[test]
fn a_304_about_another_version_is_asked_again_in_full() {
    let upstream = Upstream::start();
    upstream.answer(|request| conditional(request, "\"a\"", &records(1..=3, 1)));
    let mut gateway = Gateway::of(&upstream).start();
    gateway.sync();
    upstream.queue(Answer::not_modified().etag("\"b\""));
    upstream.queue(Answer::ok().etag("\"b\"").json(records(1..=3, 2)));
    let report = gateway.sync();
    assert_eq!(
        (report.outcome.word(), report.tally.requests),
        ("changed", 2)
    );
    assert_eq!(last(&upstream, "if-none-match"), None);

    upstream.queue(Answer::not_modified().etag("\"c\""));
    upstream.queue(Answer::not_modified().etag("\"c\""));
    let report = gateway.sync();
    assert_failed(&report, "failing", "304");
    assert_eq!(report.tally.requests, 2, "once more, and not for ever");
}

#[test]
fn a_304_when_nothing_is_held_is_asked_again_and_then_an_error() {
    let upstream = Upstream::start();
    let mut gateway = Gateway::of(&upstream).start();
    upstream.answer(|_| Answer::not_modified().etag("\"a\""));
    let report = gateway.sync();
    assert_failed(&report, "failing", "304");
    assert_eq!(report.tally.requests, 2);
    upstream.queue(Answer::not_modified());
    upstream.queue(Answer::ok().json(records(1..=3, 1)));
    assert_eq!(gateway.word(), "changed");
}

#[test]
fn a_304_that_comes_after_data_was_lost_is_not_believed() {
    let upstream = Upstream::start();
    upstream.answer(|request| conditional(request, "\"a\"", &records(1..=3, 1)));
    let mut gateway = Gateway::of(&upstream).start();
    gateway.sync();
    let data = gateway.state().join("data.db");
    gateway.stop();
    for suffix in ["", "-wal", "-shm"] {
        let _not_all_exist = std::fs::remove_file(format!("{}{suffix}", data.display()));
    }
    gateway.restart();
    assert_eq!(gateway.word(), "changed");
    assert_eq!(gateway.keys(), ["1", "2", "3"]);
}

#[test]
fn what_is_refused_conditionally_is_asked_for_once_without() {
    for status in [400, 412] {
        let upstream = Upstream::start();
        upstream.answer(move |request| match request.header("if-none-match") {
            Some(_) => Answer::status(status),
            None => Answer::ok().etag("\"a\"").json(records(1..=3, 1)),
        });
        let mut gateway = Gateway::of(&upstream).start();
        gateway.sync();
        let report = gateway.sync();
        assert_eq!(
            (report.outcome.word(), report.tally.requests),
            ("unchanged", 2)
        );
        upstream.answer(move |_| Answer::status(status));
        let report = gateway.sync();
        assert_failed(&report, "refused", &status.to_string());
        assert_eq!(report.tally.requests, 2);
    }
}

#[test]
fn rotating_etags_over_the_same_data_change_nothing_and_the_newest_is_asked_with() {
    let upstream = Upstream::start();
    let mut gateway = Gateway::of(&upstream).start();
    for round in 0..5 {
        upstream.queue(
            Answer::ok()
                .etag(&format!("\"{round}\""))
                .json(records(1..=3, 1)),
        );
        let report = gateway.sync();
        assert_eq!(report.outcome == Outcome::Unchanged, round > 0, "{report}");
        let asked = last(&upstream, "if-none-match");
        assert_eq!(asked, (round > 0).then(|| format!("\"{}\"", round - 1)));
    }
}

#[test]
fn a_304_with_a_new_weakness_is_ours_and_its_tag_is_the_one_to_ask_with() {
    let upstream = Upstream::start();
    upstream.queue(Answer::ok().etag("\"a\"").json(records(1..=3, 1)));
    upstream.queue(Answer::not_modified().etag("W/\"a\""));
    upstream.queue(Answer::not_modified());
    upstream.queue(Answer::not_modified());
    let mut gateway = Gateway::of(&upstream).start();
    gateway.sync();
    for expected in ["\"a\"", "W/\"a\"", "W/\"a\""] {
        assert_eq!(gateway.word(), "unchanged");
        assert_eq!(last(&upstream, "if-none-match").as_deref(), Some(expected));
    }
}

#[test]
fn another_variant_is_asked_for_in_full() {
    let upstream = Upstream::start();
    let fields = [
        ("ETag", "\"a\""),
        ("Vary", "accept-language, Accept-Encoding"),
    ];
    upstream.answer(listing(&fields));
    let english = "headers = { Accept-Language = \"en, de\" }";
    let mut gateway = Gateway::of(&upstream).upstream(english).start();
    gateway.sync();
    gateway.restart_with_upstream("headers = { Accept-Language = \"en,de\" }");
    gateway.sync();
    assert_eq!(
        last(&upstream, "if-none-match").as_deref(),
        Some("\"a\""),
        "only spaces differ"
    );
    gateway.restart_with_upstream("headers = { Accept-Language = \"fr\" }");
    gateway.sync();
    assert_eq!(last(&upstream, "if-none-match"), None);
    gateway.sync();
    assert_eq!(last(&upstream, "if-none-match").as_deref(), Some("\"a\""));
}

#[test]
fn what_varies_with_everything_is_never_asked_for_conditionally() {
    for vary in ["*", "accept, *", "*, accept-encoding"] {
        let upstream = Upstream::start();
        upstream.answer(listing(&[("ETag", "\"a\""), ("Vary", vary)]));
        let mut gateway = Gateway::of(&upstream).start();
        gateway.sync();
        assert_eq!(gateway.word(), "unchanged", "by digest");
        assert_eq!(last(&upstream, "if-none-match"), None, "{vary}");
    }
}

#[test]
fn no_store_keeps_no_validators_unless_the_config_knows_better() {
    for value in [
        "no-store",
        "No-Store",
        "private, NO-STORE",
        "max-age=5,no-store",
    ] {
        let upstream = Upstream::start();
        upstream.answer(listing(&[
            ("ETag", "\"secret-tag\""),
            ("Cache-Control", value),
        ]));
        let mut gateway = Gateway::of(&upstream).start();
        assert_eq!(
            gateway.word(),
            "changed",
            "its records are delivered all the same"
        );
        gateway.sync();
        assert_eq!(last(&upstream, "if-none-match"), None, "{value}");
        assert!(!gateway.state_holds("secret-tag"));

        let mut gateway = Gateway::of(&upstream)
            .source("ignore_no_store = true")
            .start();
        gateway.sync();
        gateway.sync();
        assert_eq!(
            last(&upstream, "if-none-match").as_deref(),
            Some("\"secret-tag\""),
            "{value}"
        );
    }
}

#[test]
fn an_answer_that_turns_no_store_ends_what_was_kept() {
    let upstream = Upstream::start();
    let mut gateway = Gateway::of(&upstream).start();
    upstream.answer(listing(&[("ETag", "\"a\"")]));
    gateway.sync();
    upstream.answer(listing(&[("ETag", "\"a\""), ("Cache-Control", "no-store")]));
    gateway.sync();
    gateway.sync();
    assert_eq!(last(&upstream, "if-none-match"), None);
}

#[test]
fn a_frozen_upstream_cannot_lie_for_ever() {
    let upstream = Upstream::start();
    upstream.answer(|request| conditional(request, "\"a\"", &records(1..=3, 1)));
    let mut gateway = Gateway::of(&upstream).start();
    gateway.sync();
    gateway.clock.advance(29 * DAY);
    gateway.sync();
    assert_eq!(last(&upstream, "if-none-match").as_deref(), Some("\"a\""));
    // Its data has changed; its tag, by mistake, has not.
    upstream.answer(|request| conditional(request, "\"a\"", &records(1..=3, 2)));
    gateway.clock.advance(2 * DAY);
    let report = gateway.sync();
    assert_eq!(
        (report.outcome.word(), report.tally.changed),
        ("changed", 3),
        "{report}"
    );
    gateway.sync();
    assert_eq!(
        last(&upstream, "if-none-match").as_deref(),
        Some("\"a\""),
        "for thirty days again"
    );
}

#[test]
fn gzip_is_understood_however_it_is_spelled() {
    for spelled in ["gzip", "GZIP", "x-gzip", "X-GZip", "gzip, identity"] {
        let upstream = Upstream::start();
        let mut coder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        std::io::Write::write_all(&mut coder, records(1..=3, 1).as_bytes()).unwrap();
        let body = coder.finish().unwrap();
        upstream.queue(
            Answer::ok()
                .json("")
                .header("Content-Encoding", spelled)
                .body(body),
        );
        let mut gateway = Gateway::of(&upstream).start();
        assert_eq!(gateway.word(), "changed", "{spelled}");
        assert_eq!(gateway.keys(), ["1", "2", "3"]);
        assert_eq!(last(&upstream, "accept-encoding").as_deref(), Some("gzip"));
    }
}

#[test]
fn an_empty_answer_is_an_empty_listing_only_where_that_is_said() {
    let upstream = Upstream::start();
    let mut gateway = Gateway::of(&upstream)
        .source("allow_empty = true\nreconcile = { max_loss = 9 }")
        .start();
    upstream.queue(Answer::status(204));
    assert_eq!(gateway.word(), "unchanged");
    upstream.queue(Answer::ok().json(records(1..=3, 1)));
    assert_eq!(gateway.word(), "changed");
    upstream.queue(Answer::ok().body(""));
    assert_eq!(gateway.word(), "needs-confirmation");
    assert_eq!(gateway.keys(), ["1", "2", "3"]);
}

#[test]
fn an_idle_poll_is_one_small_request_on_a_kept_connection() {
    let upstream = Upstream::start();
    upstream.answer(|request| conditional(request, "\"a\"", &records(1..=3, 1)));
    let mut gateway = Gateway::of(&upstream).start();
    gateway.sync();
    for _ in 0..20 {
        let report = gateway.sync();
        assert_eq!((report.tally.requests, report.tally.not_modified), (1, 1));
        assert!(
            report.tally.bytes_up + report.tally.bytes_down < 300,
            "{report}"
        );
    }
    assert_eq!(upstream.connections(), 1);
}

#[test]
fn a_kept_connection_that_died_is_replaced_once() {
    let upstream = Upstream::start();
    upstream.answer(|request| conditional(request, "\"a\"", &records(1..=3, 1)));
    let mut gateway = Gateway::of(&upstream).start();
    gateway.sync();
    // It dies while the request is on its way: closed, then reset, unanswered.
    for dying in [Answer::raw("").then_close(), Answer::raw("").then_reset()] {
        upstream.queue(dying);
        let report = gateway.sync();
        assert_eq!(
            (report.outcome.word(), report.tally.requests),
            ("unchanged", 2),
            "{report}"
        );
    }
    upstream.queue(Answer::raw("").then_close());
    upstream.queue(Answer::raw("").then_close());
    let report = gateway.sync();
    assert_failed(&report, "failing", "closed before an answer");
    assert_eq!(report.tally.requests, 2);
    assert_eq!(gateway.word(), "unchanged");
}

#[test]
fn a_kept_connection_that_dies_in_an_answer_is_an_error() {
    let upstream = Upstream::start();
    upstream.answer(|request| conditional(request, "\"a\"", &records(1..=3, 1)));
    let mut gateway = Gateway::of(&upstream).start();
    gateway.sync();
    upstream.queue(Answer::raw("HTTP/1.1 3").then_close());
    let report = gateway.sync();
    assert_failed(&report, "failing", "answer's head");
    assert_eq!(report.tally.requests, 1);
    assert_eq!(gateway.word(), "unchanged");
}

#[test]
fn an_unwanted_body_costs_no_connection() {
    let upstream = Upstream::start();
    upstream.answer(|request| conditional(request, "\"a\"", &records(1..=3, 1)));
    let mut gateway = Gateway::of(&upstream).start();
    gateway.sync();
    for status in [404, 500, 503] {
        upstream.queue(Answer::status(status).body("x".repeat(5000)));
        gateway.sync();
        upstream.queue(Answer::status(status).body("x".repeat(5000)).chunked());
        gateway.sync();
    }
    assert_eq!(gateway.word(), "unchanged");
    assert!(upstream.connections() <= 4, "{}", upstream.connections());
}

#[test]
fn an_upstream_that_never_answers_304_wears_no_card() {
    let upstream = Upstream::start();
    upstream.answer(listing(&[("ETag", "\"a\"")]));
    let mut gateway = Gateway::of(&upstream).start();
    // SQLite notes once in its shared memory that somebody reads what was written last.
    for _ in 0..3 {
        gateway.sync();
    }
    let before = gateway.written();
    for _ in 0..5 {
        assert_eq!(gateway.word(), "unchanged");
    }
    assert_eq!(gateway.written(), before);
}

/// Whole seconds cannot tell two versions of one second apart (RFC 9110 8.8.2.2).
#[test]
fn a_last_modified_of_this_very_second_is_not_asked_with() {
    let date = "Mon, 30 Nov 2026 12:00:00 GMT";
    for (modified, kept) in [
        (date, false),
        ("Mon, 30 Nov 2026 11:59:59 GMT", false),
        ("Mon, 30 Nov 2026 11:59:50 GMT", true),
    ] {
        let upstream = Upstream::start();
        let modified_at = modified.to_owned();
        upstream.answer(move |_| {
            Answer::ok()
                .header("Date", date)
                .header("Last-Modified", &modified_at)
                .json(records(1..=2, 1))
        });
        let mut gateway = Gateway::of(&upstream).start();
        gateway.sync();
        gateway.sync();
        let asked = upstream.requests()[1]
            .header("if-modified-since")
            .map(str::to_owned);
        assert_eq!(asked.as_deref(), kept.then_some(modified));
    }
}
