//! The public door: served by whoever waits, strict in what it takes, and never stalled by one of its callers.
//!
//! These tests are causal: the clock stands still until a test moves it, and what is waited for follows from what was
//! done before.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot be set up has failed"
)]

mod support;

use gleaner::door::Settings;
use support::door::{Door, NOW, post, status};

#[test]
fn a_request_is_answered_only_after_its_turn_was_settled() {
    let door = Door::open(Settings::default());
    let mut caller = door.connect();
    caller.send(post("/echo", b"{\"a\":1}"));
    let (head, body) = caller.answer();
    assert_eq!(
        head,
        "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nContent-Length: 7\r\n\r\n"
    );
    assert_eq!(body, b"{\"a\":1}");
    assert_eq!(
        door.seen(),
        ["admit POST /echo", "take /echo 7", "settle 1"]
    );
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let door = Door::open(Settings::default());
    let mut caller = door.connect();
    let mut all = Vec::new();
    for number in 0..100 {
        all.extend(post("/echo", format!("body {number}").as_bytes()));
        all.extend(NOW);
    }
    caller.send(all);
    for number in 0..100 {
        assert_eq!(caller.answer().1, format!("body {number}").as_bytes());
        assert_eq!(caller.answer().1, b"now\n");
    }
}

#[test]
fn a_request_that_the_service_forgets_is_answered_503() {
    let door = Door::open(Settings::default());
    let mut caller = door.connect();
    caller.send(post("/lost", b"x"));
    assert_eq!(caller.status(), 503);
}

#[test]
fn ambiguous_framing_is_refused_and_ends_the_connection() {
    let door = Door::open(Settings::default());
    let answer = door.ask(
        "POST /echo HTTP/1.1\r\nHost: gw\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /now HTTP/1.1\r\nHost: gw\r\n\r\n",
    );
    assert_eq!(status(&answer), 400, "{answer}");
    assert_eq!(answer.matches("HTTP/1.1").count(), 1, "{answer}");
    assert_eq!(door.seen(), [""; 0]);
}
