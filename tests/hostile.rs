//! Answers that are wrong, odd or meant ill, to a source that already holds data: none changes it, none is taken for
//! "no change", none is asked for again and again.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot be set up has failed"
)]

mod support;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use gleaner::pull::report::{Outcome, Report};
use serde::Deserialize;
use support::agent::{Gateway, conditional};
use support::upstream::{Answer, Upstream};

const BODY: &str = r#"[{"id":1,"v":"one"},{"id":2,"v":"two"}]"#;

/// A source that holds data and validators.
struct Held {
    upstream: Upstream,
    gateway: Gateway,
    rows: Vec<(String, String)>,
}

impl Held {
    fn new() -> Self {
        let upstream = Upstream::start();
        upstream.answer(|request| conditional(request, "\"a\"", BODY));
        let mut gateway = Gateway::of(&upstream).start();
        assert_eq!(gateway.sync().outcome, Outcome::Changed);
        let rows = gateway.rows();
        Self {
            upstream,
            gateway,
            rows,
        }
    }

    /// Answers the next poll as `hostile` says, and looks at what became of it: rows and validators as before, at most two
    /// requests, and a next poll as if nothing had been. What is not so, in words.
    fn harmed(&mut self, hostile: Answer) -> (Report, String) {
        self.upstream.queue(hostile);
        let before = self.upstream.requests().len();
        let report = self.gateway.sync();
        let asked = self.upstream.requests().len() - before;
        let mut harm = String::new();
        if !(1..=2).contains(&asked) {
            let _ = write!(harm, " {asked} requests");
        }
        if self.gateway.rows() != self.rows || report.tally.delivered() != 0 {
            let _ = write!(harm, " rows touched");
        }
        let next = self.gateway.sync();
        let requests = self.upstream.requests();
        let last = requests.last().unwrap();
        if next.outcome != Outcome::Unchanged || last.header("if-none-match") != Some("\"a\"") {
            let _ = write!(harm, " validators lost, next pass: {next}");
        }
        if !harm.is_empty() {
            *self = Self::new();
        }
        (report, harm)
    }

    fn answered(&mut self, name: &str, hostile: Answer) -> Report {
        let (report, harm) = self.harmed(hostile);
        assert!(harm.is_empty(), "{name}:{harm}; {report}");
        report
    }
}

/// A table of what came of each, printed by `cargo test -- --nocapture`.
fn told(reports: &BTreeMap<String, Report>) {
    let mut table = String::new();
    for (name, report) in reports {
        let reason = report.reason().replace("http://127.0.0.1:", "");
        let _ = writeln!(
            table,
            "{name:24} {:10} {reason:.150}",
            report.outcome.word()
        );
    }
    println!("{table}");
}

#[derive(Deserialize)]
struct Recorded {
    responses: Vec<Response>,
}

#[derive(Deserialize)]
struct Response {
    name: String,
    bytes_base64: String,
    expect: String,
}

fn decoded(base64: &str) -> Vec<u8> {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut out, mut bits, mut held) = (Vec::new(), 0u32, 0u32);
    for byte in base64.bytes().take_while(|byte| *byte != b'=') {
        let value = ALPHABET.iter().position(|known| *known == byte).unwrap();
        (bits, held) = (bits << 6 | u32::try_from(value).unwrap(), held + 6);
        if held >= 8 {
            held -= 8;
            out.push((bits >> held & 0xff) as u8);
        }
    }
    out
}

#[test]
fn no_recorded_answer_harms_what_is_held() {
    let recorded: Recorded =
        serde_json::from_str(include_str!("data/hostile-responses.json")).unwrap();
    assert!(recorded.responses.len() >= 25);
    let (mut held, mut reports) = (Held::new(), BTreeMap::new());
    for response in recorded.responses {
        let Response {
            name,
            bytes_base64,
            expect,
        } = response;
        let hostile = Answer::raw(decoded(&bytes_base64)).then_close();
        let report = held.answered(&name, hostile);
        // None of these bodies is JSON: what a document would accept, a collection refuses.
        if expect == "unchanged" {
            assert_eq!(report.outcome, Outcome::Unchanged, "{name}: {report}");
        } else {
            assert!(
                matches!(report.outcome, Outcome::Failed(_)),
                "{name}: {report}"
            );
            assert!(report.reason().len() > 20, "{name}: {report}");
        }
        reports.insert(name, report);
    }
    told(&reports);
}

/// Another version of the data, that no hostile answer may bring in.
const OTHER: &str = r#"[{"id":1,"v":"uno"},{"id":2,"v":"dos"},{"id":3,"v":"tres"}]"#;

/// Runs a table of raw answers: name, head and body as on the wire, whether the connection is closed behind them, and
/// how the pass must end: outcome and a part of the reason.
fn table(rows: &[(&str, String, bool, &str, &str)]) {
    let (mut held, mut reports) = (Held::new(), BTreeMap::new());
    let mut wrong = String::new();
    for (name, raw, close, word, reason) in rows {
        let answer = Answer::raw(raw.as_bytes());
        let (report, harm) = held.harmed(if *close { answer.then_close() } else { answer });
        let as_expected = report.outcome.word() == *word && report.reason().contains(reason);
        if !as_expected || !harm.is_empty() {
            let _ = writeln!(
                wrong,
                "{name}: expected {word}, {reason:?}; got {report};{harm}"
            );
        }
        reports.insert((*name).to_owned(), report);
    }
    told(&reports);
    assert!(wrong.is_empty(), "{wrong}");
}

fn ok(fields: &str, body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\n{fields}\r\n{body}")
}

#[test]
#[rustfmt::skip] // a table, one case a line
fn no_framing_error_lets_a_body_pass() {
    let length = OTHER.len();
    let chunk = |size: &str| ok("Transfer-Encoding: chunked\r\n", &format!("{size}\r\n{OTHER}\r\n0\r\n\r\n"));
    let hex = format!("{length:x}");
    table(&[
        ("length too long", ok(&format!("Content-Length: {}\r\n", length + 1), OTHER), true, "failing", "cut before its end"),
        ("length too short", ok(&format!("Content-Length: {}\r\n", length - 1), OTHER), false, "failing", "cut off after"),
        ("two lengths", ok(&format!("Content-Length: {length}\r\nContent-Length: {}\r\n", length - 1), OTHER), true, "not-ours", ""),
        ("two lengths in one", ok(&format!("Content-Length: {length}, {}\r\n", length - 1), OTHER), true, "not-ours", ""),
        ("signed length", ok(&format!("Content-Length: +{length}\r\n"), OTHER), true, "not-ours", ""),
        ("negative length", ok("Content-Length: -1\r\n", OTHER), true, "not-ours", ""),
        ("hexadecimal length", ok(&format!("Content-Length: 0x{hex}\r\n"), OTHER), true, "not-ours", ""),
        ("length beyond all numbers", ok("Content-Length: 99999999999999999999999\r\n", OTHER), true, "not-ours", ""),
        ("blank length", ok("Content-Length: \r\n", OTHER), true, "not-ours", ""),
        ("coding beside chunked", ok("Transfer-Encoding: gzip, chunked\r\n", &format!("{hex}\r\n{OTHER}\r\n0\r\n\r\n")), true, "not-ours", "Transfer-Encoding"),
        ("chunked twice", ok("Transfer-Encoding: chunked, chunked\r\n", &format!("{hex}\r\n{OTHER}\r\n0\r\n\r\n")), true, "not-ours", "Transfer-Encoding"),
        ("unknown transfer coding", ok("Transfer-Encoding: xchunked\r\n", OTHER), true, "not-ours", "Transfer-Encoding"),
        ("chunk size with 0x", chunk(&format!("0x{hex}")), true, "not-ours", ""),
        ("negative chunk size", chunk("-1"), true, "not-ours", ""),
        ("chunk size beyond all numbers", chunk("fffffffffffffffffffff"), true, "not-ours", ""),
        ("no chunk size", chunk(""), true, "not-ours", ""),
        ("chunk longer than its size", ok("Transfer-Encoding: chunked\r\n", &format!("{:x}\r\n{OTHER}\r\n0\r\n\r\n", length - 1)), true, "not-ours", ""),
        ("chunk shorter than its size", ok("Transfer-Encoding: chunked\r\n", &format!("{:x}\r\n{OTHER}\r\n0\r\n\r\n", length + 1)), true, "not-ours", ""),
        ("no last chunk", ok("Transfer-Encoding: chunked\r\n", &format!("{hex}\r\n{OTHER}\r\n")), true, "failing", "cut before its end"),
        ("endless chunk size", ok("Transfer-Encoding: chunked\r\n", &"0".repeat(200_000)), true, "not-ours", ""),
        ("endless chunk extension", ok("Transfer-Encoding: chunked\r\n", &format!("{hex};{}", "x".repeat(200_000))), true, "not-ours", ""),
        ("something behind a 304", format!("HTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\n\r\n{OTHER}"), false, "unchanged", ""),
        ("304 with the body's length", format!("HTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\nContent-Length: {length}\r\n\r\n"), false, "unchanged", ""),
        ("304 with chunks", format!("HTTP/1.1 304 Not Modified\r\nTransfer-Encoding: chunked\r\n\r\n{hex}\r\n{OTHER}\r\n0\r\n\r\n"), false, "unchanged", ""),
    ]);
}

#[test]
#[rustfmt::skip] // a table, one case a line
fn no_broken_head_is_guessed_at() {
    let length = format!("Content-Length: {}\r\n", OTHER.len());
    let status = |line: &str| format!("{line}\r\n{length}\r\n{OTHER}");
    let early = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n";
    table(&[
        ("NUL in a value", ok(&format!("X-A: a\0b\r\n{length}"), OTHER), true, "not-ours", "no HTTP"),
        ("space in a name", ok(&format!("X A: b\r\n{length}"), OTHER), true, "not-ours", "no HTTP"),
        ("space before the colon", ok(&format!("X-A : b\r\n{length}"), OTHER), true, "not-ours", "no HTTP"),
        ("folded line", ok(&format!("X-A: b\r\n  c\r\n{length}"), OTHER), true, "not-ours", "no HTTP"),
        ("no head at all", OTHER.into(), true, "not-ours", "no HTTP"),
        ("head cut", format!("HTTP/1.1 200 OK\r\n{length}"), true, "failing", "answer's head"),
        ("status line cut", "HTTP/1.1 200".into(), true, "failing", "answer's head"),
        ("another protocol", status("SSH-2.0-OpenSSH_9.2"), true, "not-ours", "no HTTP"),
        ("another version", status("HTTP/2.0 200 OK"), true, "not-ours", "no HTTP"),
        ("shoutcast", status("ICY 200 OK"), true, "not-ours", "no HTTP"),
        ("status 999", status("HTTP/1.1 999 Odd"), true, "not-ours", "999 is no final status"),
        ("status 600", status("HTTP/1.1 600 Odd"), true, "not-ours", "600 is no final status"),
        ("status 000", status("HTTP/1.1 000 Odd"), true, "not-ours", ""),
        ("status of two digits", status("HTTP/1.1 20 OK"), true, "not-ours", "no HTTP"),
        ("status of four digits", status("HTTP/1.1 2000 OK"), true, "not-ours", "no HTTP"),
        ("status in words", status("HTTP/1.1 OK"), true, "not-ours", "no HTTP"),
        ("switching protocols", "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n".into(), true, "not-ours", ""),
        ("early hints for ever", early.repeat(20_000), true, "not-ours", ""),
        ("nothing but a continue", "HTTP/1.1 100 Continue\r\n\r\n".into(), true, "failing", ""),
        ("header for ever", format!("HTTP/1.1 200 OK\r\n{}", "X-A: b\r\n".repeat(40_000)), true, "not-ours", "too many headers"),
        ("more headers than anybody counts", format!("HTTP/1.1 200 OK\r\n{}{length}\r\n{OTHER}", "X-A: b\r\n".repeat(2_000)), true, "not-ours", ""),
    ]);
}

#[test]
#[rustfmt::skip] // a table, one case a line
fn no_portal_and_no_strange_status_is_taken_for_data() {
    let with = |status: &str, fields: &str, body: &str| {
        format!("HTTP/1.1 {status}\r\n{fields}Content-Length: {}\r\n\r\n{body}", body.len())
    };
    let html = "<!doctype html><form action=/login>";
    table(&[
        ("portal", with("200 OK", "Content-Type: text/html\r\n", html), false, "not-ours", "text/html"),
        ("portal that says JSON", with("200 OK", "Content-Type: application/json\r\n", html), false, "not-ours", "as HTML does"),
        ("portal without a type", with("200 OK", "", html), false, "not-ours", "as HTML does"),
        ("portal with our data", with("200 OK", "Content-Type: text/html\r\n", OTHER), false, "not-ours", "text/html"),
        ("portal that speaks JSON", with("200 OK", "Content-Type: application/json\r\n", "{\"login\":\"required\"}"), false, "bad-data", "expected an array"),
        ("511", with("511 Network Authentication Required", "Content-Type: text/html\r\n", html), false, "not-ours", "captive portal"),
        ("nothing but blanks", with("200 OK", "Content-Type: application/json\r\n", "  \r\n "), false, "not-ours", "empty"),
        ("null", with("200 OK", "Content-Type: application/json\r\n", "null"), false, "bad-data", "expected an array"),
        ("an image", with("200 OK", "Content-Type: image/png\r\n", OTHER), false, "not-ours", "image/png"),
        ("a part sold as the whole", with("200 OK", "Content-Range: bytes 0-9/10\r\n", OTHER), false, "not-ours", "Content-Range"),
        ("204", with("204 No Content", "", ""), false, "not-ours", "allow_empty"),
        ("205", with("205 Reset Content", "", ""), false, "not-ours", "allow_empty"),
        ("206", with("206 Partial Content", "Content-Range: bytes 0-9/10\r\n", OTHER), false, "not-ours", "206"),
        ("300", with("300 Multiple Choices", "Location: /b\r\n", OTHER), false, "not-ours", "300"),
        ("305", with("305 Use Proxy", "Location: /b\r\n", OTHER), false, "not-ours", "305"),
        ("redirect nowhere", with("302 Found", "Location: \r\n", ""), false, "failing", "without a Location"),
        ("redirect to a script", with("302 Found", "Location: javascript:alert(1)\r\n", ""), false, "failing", "cannot be followed"),
        ("redirect to a file", with("302 Found", "Location: file:///etc/passwd\r\n", ""), false, "failing", "cannot be followed"),
        ("redirect to garbage", with("302 Found", "Location: http://[::1\r\n", ""), false, "failing", "is no URL"),
        ("403", with("403 Forbidden", "", OTHER), false, "denied", "403"),
        ("404", with("404 Not Found", "", OTHER), false, "gone", "404"),
        ("410", with("410 Gone", "", OTHER), false, "gone", "410"),
        ("429", with("429 Too Many Requests", "Retry-After: 7\r\n", OTHER), false, "throttled", "7 s"),
        ("500", with("500 Internal Server Error", "", OTHER), false, "failing", "500"),
        ("502", with("502 Bad Gateway", "Content-Type: text/html\r\n", html), false, "failing", "502"),
        ("503", with("503 Service Unavailable", "", OTHER), false, "throttled", "503"),
    ]);
}

#[test]
fn a_captive_portal_behind_a_redirect_is_no_upstream() {
    let portal = Upstream::start();
    portal.answer(|_| {
        Answer::ok()
            .header("Content-Type", "text/html")
            .etag("\"a\"")
            .body("<html>")
    });
    let mut held = Held::new();
    for status in [301, 302, 303, 307, 308] {
        let redirect = Answer::redirect(status, &portal.url("/login?from=items"));
        let report = held.answered(&status.to_string(), redirect);
        support::agent::assert_failed(&report, "not-ours", "text/html");
        let seen = portal.requests();
        assert_eq!(
            seen.last().unwrap().header("if-none-match"),
            None,
            "{status}"
        );
    }
}
