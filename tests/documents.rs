//! Documents: fetched conditionally, resumed after a cut, proven, published whole; the old version stays until then.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot be set up has failed"
)]

mod support;

use support::agent::assert_failed;
use support::files::{bytes, document, range_start, serve};
use support::upstream::Upstream;

#[test]
fn a_document_is_published_and_an_idle_poll_writes_nothing() {
    let upstream = Upstream::start();
    upstream.answer(|request| serve(request, "\"1\"", b"one"));
    let mut gateway = document(&upstream, "");
    assert_eq!(gateway.fetched(), "changed");
    assert_eq!(gateway.content().unwrap(), b"one");
    let before = gateway.written();
    for _ in 0..3 {
        assert_eq!(gateway.fetched(), "unchanged");
    }
    assert_eq!(gateway.written(), before);
    let requests = upstream.requests();
    assert_eq!(requests.len(), 4);
    assert_eq!(requests[0].header("if-none-match"), None);
    assert_eq!(requests[0].header("accept-encoding"), Some("identity"));
    assert_eq!(requests[3].header("if-none-match"), Some("\"1\""));
    gateway.restart();
    assert_eq!(gateway.fetched(), "unchanged");
    assert_eq!(gateway.written().len(), before.len());
}

#[test]
fn a_cut_download_goes_on_where_it_was_and_the_old_version_stays_until_then() {
    let (upstream, new) = (Upstream::start(), bytes(1_000_000, 2));
    upstream.queue(serve(&request(), "\"1\"", b"one"));
    let mut gateway = document(&upstream, "");
    assert_eq!(gateway.fetched(), "changed");
    upstream.queue(serve(&request(), "\"2\"", &new).only(600_000));
    let report = gateway.fetch();
    assert_failed(&report, "failing", "cut before its end");
    assert_eq!(gateway.content().unwrap(), b"one");
    let held = gateway.part_len().unwrap();
    assert!(held > 500_000, "{held}");
    gateway.restart();
    let body = new.clone();
    upstream.answer(move |request| serve(request, "\"2\"", &body));
    assert_eq!(gateway.fetched(), "changed");
    assert_eq!(gateway.content().unwrap(), new);
    assert_eq!(gateway.part_len(), None);
    let last = upstream.requests().pop().unwrap();
    assert_eq!(range_start(&last), usize::try_from(held).ok());
    assert_eq!(last.header("if-range"), Some("\"2\""));
    assert_eq!(last.header("if-none-match"), None);
    assert_eq!(gateway.fetched(), "unchanged");
}

/// A request without anything.
fn request() -> support::upstream::Request {
    support::upstream::Request {
        method: "GET".into(),
        target: "/fw.bin".into(),
        headers: Vec::new(),
        body: Vec::new(),
        connection: 0,
    }
}
