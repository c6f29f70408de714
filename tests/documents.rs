//! Documents: fetched conditionally, resumed after a cut, proven, published whole; the old version stays until then.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot be set up has failed"
)]

mod support;

#[path = "documents/hostile.rs"]
mod hostile;
#[path = "documents/keeping.rs"]
mod keeping;
#[path = "documents/proofs.rs"]
mod proofs;
#[path = "documents/reports.rs"]
mod reports;
#[path = "documents/resume.rs"]
mod resume;
#[path = "documents/spool.rs"]
mod spool;

use support::files::{document, serve};
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
