//! The public door: served by whoever waits, strict in what it takes, and never stalled by one of its callers.
//!
//! These tests are causal: the clock stands still until a test moves it, and what is waited for follows from what was
//! done before.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot be set up has failed"
)]

#[path = "door/listeners.rs"]
mod listeners;
#[path = "door/slow.rs"]
mod slow;
mod support;

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::mpsc;

use gleaner::door::{Listen, Place, Settings};
use support::door::{Caller, Door, Echo, NOW, NOW_AND_CLOSE, here, post, status};

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

#[test]
fn what_is_complete_in_one_turn_is_settled_together() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("door");
    let (gate, gated) = mpsc::channel();
    let mut service = Echo::new(100);
    service.gate = Some(gated);
    let place = Place::Unix {
        path: path.clone(),
        mode: 0o600,
    };
    let door = Door::at(&[Listen { place, tls: None }], Settings::default(), service);
    let connect = || Caller(UnixStream::connect(&path).unwrap());
    let mut callers: Vec<_> = (0..50).map(|_| connect()).collect();
    callers[0].send(post("/gate", b""));
    while !door.seen().contains(&"take /gate 0".to_owned()) {
        std::thread::yield_now();
    }
    // The door stands in the service; all of this lies in the sockets when it comes back.
    for caller in &mut callers[1..] {
        caller.send(post("/echo", b"x"));
    }
    gate.send(()).unwrap();
    for caller in &mut callers {
        assert_eq!(caller.status(), 200);
    }
    // Some of them may have come while the first one was still being taken: then they share its sync.
    let seen = door.seen();
    let settled: Vec<usize> = seen
        .iter()
        .filter_map(|one| one.strip_prefix("settle ")?.parse().ok())
        .collect();
    assert_eq!(settled.iter().sum::<usize>(), 50);
    assert!(settled.len() <= 2, "{settled:?}");
}

#[test]
fn a_client_that_waits_is_told_to_go_on_only_once_it_is_admitted() {
    let door = Door::open(Settings::default());
    let head = |path: &str| {
        format!(
            "POST {path} HTTP/1.1\r\nHost: gw\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n"
        )
    };
    let mut caller = door.connect();
    caller.send(head("/echo"));
    assert_eq!(caller.head(), "HTTP/1.1 100 Continue\r\n\r\n");
    assert_eq!(door.seen(), ["admit POST /echo"]);
    caller.send("hello");
    assert_eq!(caller.answer().1, b"hello");
    // Whoever does not wait is not told.
    caller.send(head("/echo") + "hello");
    assert_eq!(caller.answer().1, b"hello");
    caller.send(head("/no"));
    let answer = caller.rest();
    assert!(
        answer.starts_with("HTTP/1.1 401 ") && answer.contains("\r\nConnection: close\r\n"),
        "{answer}"
    );
    let mut large = door.connect();
    large.send(head("/echo").replace("Length: 5", "Length: 5000000"));
    assert_eq!(large.status(), 413);
}

#[test]
fn a_path_is_exactly_what_was_sent() {
    let door = Door::open(Settings::default());
    for (path, expected) in [
        ("/now", 200),
        ("/now?a=b", 200),
        ("/%6eow", 404),
        ("/now/", 404),
        ("//now", 404),
        ("/./now", 404),
        ("/x/../now", 404),
        ("/NOW", 404),
    ] {
        let mut caller = door.connect();
        caller.send(format!("GET {path} HTTP/1.1\r\nHost: gw\r\n\r\n"));
        assert_eq!(caller.status(), expected, "{path}");
    }
}

#[test]
fn connections_are_kept_and_closed_as_they_should() {
    let door = Door::open(Settings::default());
    let mut caller = door.connect();
    caller.send("HEAD /now HTTP/1.1\r\nHost: gw\r\n\r\n");
    assert!(caller.head().contains("\r\nContent-Length: 4\r\n"));
    caller.send("GET /echo HTTP/1.1\r\nHost: gw\r\n\r\n");
    let (head, _) = caller.answer();
    assert!(
        status(&head) == 405 && head.contains("\r\nAllow: POST\r\n"),
        "{head}"
    );
    caller.send("POST /echo HTTP/1.1\r\nHost: gw\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x\r\nde\r\n0\r\nA: b\r\n\r\n");
    assert_eq!(caller.answer().1, b"abcde");
    caller.send(NOW);
    caller.shut();
    assert_eq!(caller.status(), 200);
    assert!(caller.is_closed());
    for last in [
        NOW_AND_CLOSE,
        b"GET /now HTTP/1.0\r\n\r\n",
        b"GET /now HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
    ] {
        let answer = door.ask(last);
        assert!(
            answer.starts_with("HTTP/1.1 200 ") && answer.contains("\r\nConnection: close\r\n"),
            "{answer}"
        );
    }
    // An early answer leaves a body that nobody reads: nothing behind it can be a request.
    let answer = door.ask([post("/no", NOW), NOW.to_vec()].concat());
    assert_eq!(
        (status(&answer), answer.matches("HTTP/1.1").count()),
        (401, 1)
    );
}

#[test]
fn a_client_that_goes_on_writing_still_sees_why_it_was_refused() {
    let door = Door::at(&[here()], Settings::default(), Echo::new(64 * 1024));
    let body = vec![b'x'; 800 * 1024];
    let chunks: Vec<u8> = body
        .chunks(1000)
        .flat_map(|chunk| [b"3e8\r\n", chunk, b"\r\n"].concat())
        .collect();
    let chunked = b"POST /echo HTTP/1.1\r\nHost: gw\r\nTransfer-Encoding: chunked\r\n\r\n";
    for (request, expected) in [
        (post("/echo", &body), 413),
        ([chunked.as_slice(), &chunks].concat(), 413),
        (post("/no", &body), 401),
        ([b"nonsense\r\n", body.as_slice()].concat(), 400),
    ] {
        let mut caller = door.connect();
        let (begin, rest) = request.split_at(request.len() / 2);
        caller.send(begin);
        assert_eq!(caller.status(), expected);
        // A reset would make the writes fail, and could take the answer with it before it is read.
        for piece in rest.chunks(4096) {
            caller.0.write_all(piece).unwrap();
        }
        caller.shut();
        assert_eq!(caller.0.read(&mut [0]).unwrap(), 0);
    }
}
