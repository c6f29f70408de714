//! Cursors: what follows the last one, in every place where an API may put it; dead ones, ones that went back.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot be set up has failed"
)]

mod support;

use std::time::Duration;

use gleaner::pull::report::Outcome;
use support::agent::{Gateway, assert_failed};
use support::upstream::{Answer, Upstream};

fn gateway(upstream: &Upstream, lines: &str) -> Gateway {
    Gateway::of(upstream).source(lines).start()
}

fn cursors(upstream: &Upstream, param: &str) -> Vec<Option<String>> {
    let requests = upstream.requests();
    requests
        .iter()
        .map(|request| request.param(param).map(str::to_owned))
        .collect()
}

#[test]
fn a_cursor_comes_from_a_header_a_body_or_the_records() {
    let table = [
        ("header = \"X-Cursor\"", "records = \"/items\""),
        ("pointer = \"/end\"", "records = \"/items\""),
        ("field = \"/seq\"", "records = \"/items\""),
    ];
    for (from, more) in table {
        let upstream = Upstream::start();
        let mut gateway = gateway(
            &upstream,
            &format!("pull = {{ cursor = {{ {from}, param = \"after\" }} }}\n{more}"),
        );
        for (cursor, id) in [("7", 1), ("0", 2), ("", 3)] {
            if from.contains("field") && cursor.is_empty() {
                continue;
            }
            // A field's cursor only grows in this story.
            let cursor = if from.contains("field") && cursor == "0" {
                "10"
            } else {
                cursor
            };
            let seq = if cursor.is_empty() { "0" } else { cursor };
            upstream.queue(Answer::ok().header("X-Cursor", cursor).json(format!(
                "{{\"items\":[{{\"id\":{id},\"seq\":{seq}}}],\"end\":\"{cursor}\"}}"
            )));
            if cursor == "0" {
                // It went back: everything is compared at once.
                upstream.queue(Answer::ok().header("X-Cursor", cursor).json(format!(
                    "{{\"items\":[{{\"id\":1}},{{\"id\":{id},\"seq\":{seq}}}],\"end\":\"{cursor}\"}}"
                )));
            }
            let report = gateway.sync();
            assert_eq!(report.tally.added, 1, "{from} {cursor}: {report}");
        }
        let sent = cursors(&upstream, "after");
        assert_eq!(sent[..2], [None, Some("7".to_owned())], "{from}");
        if !from.contains("field") {
            assert_eq!(sent[2..], [None, Some("0".to_owned())], "{from}");
            gateway.restart();
            upstream.queue(Answer::ok().json("{\"items\":[]}"));
            gateway.sync();
            assert_eq!(
                cursors(&upstream, "after")[4],
                Some(String::new()),
                "an empty cursor is one"
            );
        }
    }
}

#[test]
fn a_dead_cursor_leads_to_a_full_pass_and_a_new_one() {
    for status in [400, 404, 410] {
        let upstream = Upstream::start();
        let mut gateway = gateway(
            &upstream,
            "pull = { cursor = { header = \"ETag\", param = \"_since\" } }\nreconcile = { max_loss = 5 }",
        );
        let listing = |tag: &str, body: &str| Answer::ok().etag(tag).json(body);
        upstream.queue(listing("\"1\"", "[{\"id\":1},{\"id\":2}]"));
        gateway.sync();
        upstream.queue(Answer::status(status));
        upstream.queue(listing("\"9\"", "[{\"id\":2},{\"id\":3}]"));
        let report = gateway.sync();
        assert_eq!(
            (
                report.pull.as_str(),
                report.tally.added,
                report.tally.deleted
            ),
            ("full", 1, 1),
            "{status}: {report}"
        );
        upstream.queue(listing("\"9\"", "[]"));
        assert_eq!(gateway.sync().outcome, Outcome::Unchanged);
        let sent = cursors(&upstream, "_since");
        assert_eq!(
            sent[1..],
            [Some("%221%22".to_owned()), None, Some("%229%22".to_owned())],
            "{status}"
        );
    }
}

#[test]
fn an_api_that_refuses_everything_does_not_lose_its_cursor() {
    let upstream = Upstream::start();
    let mut gateway = gateway(
        &upstream,
        "pull = { cursor = { header = \"ETag\", param = \"_since\" } }",
    );
    upstream.queue(Answer::ok().etag("\"1\"").json("[{\"id\":1}]"));
    gateway.sync();
    upstream.answer(|_| Answer::status(400));
    assert_failed(&gateway.sync(), "refused", "400");
    upstream.answer(|request| match request.param("_since") {
        Some("%221%22") => Answer::ok().etag("\"2\"").json("[{\"id\":2}]"),
        other => panic!("asked for everything: {other:?}"),
    });
    assert_eq!(gateway.sync().tally.added, 1);
    assert_eq!(gateway.keys(), ["1", "2"]);
}

#[test]
fn the_first_page_s_header_counts_since_later_ones_may_hide_what_changed_meanwhile() {
    let upstream = Upstream::start();
    let mut gateway = gateway(
        &upstream,
        "pull = { cursor = { header = \"ETag\", param = \"_since\" } }\npages = { next_header = \"Next-Page\" }",
    );
    upstream.queue(
        Answer::ok()
            .etag("\"5\"")
            .header("Next-Page", "/items?token=b")
            .json("[{\"id\":1}]"),
    );
    upstream.queue(Answer::ok().etag("\"8\"").json("[{\"id\":2}]"));
    gateway.sync();
    upstream.queue(Answer::ok().etag("\"8\"").json("[{\"id\":3}]"));
    gateway.sync();
    assert_eq!(cursors(&upstream, "_since")[2].as_deref(), Some("%225%22"));
}

/// Zendesk's incremental exports: a time in the body, and a last page that repeats for ever unless `end_of_stream` is
/// believed.
#[test]
fn an_export_ends_where_it_says_so_and_goes_on_there() {
    let upstream = Upstream::start();
    let mut gateway = gateway(
        &upstream,
        "pull = { cursor = { pointer = \"/end_time\", param = \"start_time\", first = \"0\" } }\n\
         records = \"/tickets\"\npages = { next = \"/next_page\", end = \"/end_of_stream\" }",
    );
    let url = |time: u32| upstream.url(&format!("/items?start_time={time}"));
    let page = |id: u32, time: u32, next: &str, end: bool| {
        Answer::ok().json(format!(
            "{{\"tickets\":[{{\"id\":{id}}}],\"end_time\":{time},\"next_page\":\"{next}\",\"end_of_stream\":{end}}}"
        ))
    };
    upstream.queue(page(1, 100, &url(100), false));
    upstream.queue(page(2, 200, &url(200), true));
    assert_eq!(gateway.sync().tally.added, 2);
    upstream.queue(page(2, 200, &url(200), true));
    gateway.clock.advance(Duration::from_secs(60));
    assert_eq!(gateway.sync().outcome, Outcome::Unchanged);
    let sent: Vec<_> = cursors(&upstream, "start_time")
        .into_iter()
        .flatten()
        .collect();
    assert_eq!(sent, ["0", "100", "200"]);
}
