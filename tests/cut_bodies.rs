//! Bodies that end too early, unpack to nonsense or are too large, to a source that holds data: an error, whatever the
//! framing and the coding, and nothing of them is kept.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot be set up has failed"
)]

mod support;

use gleaner::pull::report::{Outcome, Report};
use support::agent::{Gateway, assert_failed, conditional, records};
use support::upstream::{Answer, Upstream};

const BODY: &str = r#"[{"id":1,"v":"one"},{"id":2,"v":"two"}]"#;
/// Another version of the data.
const OTHER: &str = r#"[{"id":1,"v":"uno"},{"id":2,"v":"dos"},{"id":3,"v":"tres"}]"#;

fn ok(fields: &str, body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\n{fields}\r\n{body}")
}

/// Each answer to the same gateway, which must stay as it is.
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
        gateway.sync();
        let rows = gateway.rows();
        Self {
            upstream,
            gateway,
            rows,
        }
    }

    fn fails(&mut self, name: &str, answer: Answer) -> Report {
        self.upstream.queue(answer);
        let report = self.gateway.sync();
        assert!(
            matches!(report.outcome, Outcome::Failed(_)),
            "{name}: {report}"
        );
        assert_eq!(self.gateway.rows(), self.rows, "{name}: {report}");
        let requests = self.upstream.requests();
        assert_eq!(
            requests.last().unwrap().header("if-none-match"),
            Some("\"a\""),
            "{name}"
        );
        report
    }
}

#[test]
fn chunks_that_are_odd_but_whole_bring_all_or_nothing() {
    let hex = format!("{:x}", OTHER.len());
    for (name, chunks) in [
        ("signed size", format!("+{hex}\r\n{OTHER}\r\n0\r\n\r\n")),
        (
            "no line behind the last chunk",
            format!("{hex}\r\n{OTHER}\r\n0\r\n"),
        ),
        (
            "extension",
            format!("{hex};a=\"b\"\r\n{OTHER}\r\n0\r\n\r\n"),
        ),
        (
            "trailer",
            format!("{hex}\r\n{OTHER}\r\n0\r\nX-A: b\r\n\r\n"),
        ),
        (
            "leading zeros",
            format!("0000{hex}\r\n{OTHER}\r\n0\r\n\r\n"),
        ),
    ] {
        let mut held = Held::new();
        let raw = ok("Transfer-Encoding: chunked\r\n", &chunks);
        held.upstream.queue(Answer::raw(raw).then_close());
        let report = held.gateway.sync();
        let keys = held.gateway.keys();
        match report.outcome {
            Outcome::Changed => assert_eq!(keys, ["1", "2", "3"], "{name}"),
            Outcome::Failed(_) => assert_eq!(held.gateway.rows(), held.rows, "{name}"),
            _ => panic!("{name}: {report}"),
        }
    }
}

#[test]
fn a_body_cut_at_any_byte_is_an_error_whatever_its_framing() {
    let mut held = Held::new();
    let whole = |answer: Answer| answer.header("ETag", "\"b\"").json(OTHER);
    for cut in 0..OTHER.len() {
        let closed = Answer::ok()
            .etag("\"b\"")
            .json(&OTHER[..cut])
            .close_delimited();
        held.fails(&format!("closed after {cut}"), closed);
        let length = ok(
            &format!("Content-Length: {}\r\n", OTHER.len()),
            &OTHER[..cut],
        );
        held.fails(
            &format!("length, cut after {cut}"),
            Answer::raw(length.clone()).then_close(),
        );
        held.fails(
            &format!("length, reset after {cut}"),
            Answer::raw(length).then_reset(),
        );
        let chunked = format!("{:x}\r\n{}", OTHER.len(), &OTHER[..cut]);
        let chunked = ok("Transfer-Encoding: chunked\r\n", &chunked);
        held.fails(
            &format!("chunk, cut after {cut}"),
            Answer::raw(chunked).then_close(),
        );
    }
    held.upstream.queue(whole(Answer::ok()));
    assert_eq!(held.gateway.word(), "changed");
}

fn gzipped(text: &str) -> Vec<u8> {
    let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    std::io::Write::write_all(&mut out, text.as_bytes()).unwrap();
    out.finish().unwrap()
}

fn coded(body: &[u8]) -> Answer {
    Answer::ok()
        .header("Content-Type", "application/json")
        .header("Content-Encoding", "gzip")
        .etag("\"b\"")
        .body(body)
}

#[test]
fn a_gzip_body_is_checked_to_its_last_byte() {
    let mut held = Held::new();
    let whole = gzipped(OTHER);
    for cut in 1..whole.len() {
        held.fails(&format!("length, cut after {cut}"), coded(&whole[..cut]));
        held.fails(
            &format!("closed after {cut}"),
            coded(&whole[..cut]).close_delimited(),
        );
        held.fails(
            &format!("chunked, cut after {cut}"),
            coded(&whole[..cut]).chunked(),
        );
    }
    for place in 0..whole.len() {
        // Time and system in the header and the bits behind the last block do not matter to what is inside.
        let matters = !(4..10).contains(&place) && place != whole.len() - 9;
        if matters {
            let mut flipped = whole.clone();
            flipped[place] ^= 0x40;
            held.fails(&format!("bit flipped in {place}"), coded(&flipped));
        }
    }
    held.fails("junk behind", coded(&[&whole[..], b"junk"].concat()));
    held.fails("zeros behind", coded(&[&whole[..], &[0; 512]].concat()));
    held.fails(
        "coded twice",
        coded(&gzipped(&String::from_utf8_lossy(&whole))),
    );
    held.fails(
        "half of a second member",
        coded(&[&whole[..], &gzipped("  ")[..15]].concat()),
    );
    held.fails(
        "coded and not said so",
        Answer::ok().json("").body(whole.clone()),
    );
    held.fails("said and not coded", coded(OTHER.as_bytes()));
    // Two members are one body (RFC 1952 2.2).
    let (first, second) = OTHER.split_at(20);
    held.upstream
        .queue(coded(&[gzipped(first), gzipped(second)].concat()));
    assert_eq!(held.gateway.word(), "changed");
}

#[test]
fn a_body_that_unpacks_to_more_than_allowed_is_refused() {
    let upstream = Upstream::start();
    upstream.answer(|request| conditional(request, "\"a\"", BODY));
    let mut gateway = Gateway::of(&upstream)
        .upstream("limits = { body = \"100kB\", record = \"10kB\" }")
        .start();
    gateway.sync();
    let rows = gateway.rows();
    let bomb = format!("[{}{{\"id\":9}}]", "{\"id\":1},".repeat(20_000));
    upstream.queue(coded(&gzipped(&bomb)));
    assert_failed(&gateway.sync(), "not-ours", "limits.body");
    let blanks = format!("[{}]", " ".repeat(200_000));
    upstream.queue(coded(&gzipped(&blanks)));
    assert_failed(&gateway.sync(), "not-ours", "limits.body");
    let long = format!("[{{\"id\":1,\"v\":\"{}\"}}]", "x".repeat(20_000));
    upstream.queue(coded(&gzipped(&long)));
    assert_failed(&gateway.sync(), "bad-data", "record 1");
    assert_eq!(gateway.rows(), rows);
    assert_eq!(gateway.word(), "unchanged");
}

#[test]
fn a_body_cut_under_tls_is_an_error_even_without_a_length() {
    let pki = support::pki::Pki::new();
    let leaf = pki.leaf(&["127.0.0.1"]);
    let upstream = Upstream::start_tls(pki.server(&leaf));
    upstream.answer(|request| conditional(request, "\"a\"", BODY));
    let trust = format!("roots = \"extra-only\"\nextra_ca = {:?}", pki.ca_file());
    let mut gateway = Gateway::of(&upstream).upstream(&trust).start();
    assert_eq!(gateway.word(), "changed");
    let rows = gateway.rows();
    let version = || Answer::ok().etag("\"b\"").json(OTHER);
    upstream.queue(version().close_delimited().then_cut());
    assert_failed(&gateway.sync(), "failing", "close_notify");
    upstream.queue(version().close_delimited().then_reset());
    assert_failed(&gateway.sync(), "failing", "");
    upstream.queue(version().chunked().only(160).then_cut());
    assert_failed(&gateway.sync(), "failing", "");
    assert_eq!(gateway.rows(), rows);
    upstream.queue(version().close_delimited());
    assert_eq!(gateway.word(), "changed");
}

#[test]
fn a_truncated_body_deletes_nothing_and_its_whole_records_may_have_come() {
    let upstream = Upstream::start();
    upstream.answer(|request| conditional(request, "\"a\"", &records(1..=1000, 1)));
    let mut gateway = Gateway::of(&upstream).start();
    gateway.sync();
    let second = records(1..=900, 2);
    upstream.queue(
        Answer::ok()
            .etag("\"b\"")
            .json(&second)
            .only(second.len() / 2),
    );
    let report = gateway.sync();
    assert_failed(&report, "failing", "cut before its end");
    assert_eq!(report.tally.deleted, 0);
    let versions = gateway.query("SELECT count(*), sum(body LIKE '%\"v\":2%') FROM items");
    assert_eq!(versions[0][0], "1000");
    assert_eq!(
        versions[0][1],
        report.tally.changed.to_string(),
        "what is counted was delivered"
    );
    assert!((1..500).contains(&report.tally.changed), "{report}");
}

#[test]
fn when_a_cut_body_had_brought_something_its_forerunner_s_304_vouches_for_nothing() {
    let upstream = Upstream::start();
    let first = records(1..=1000, 1);
    let answers = first.clone();
    upstream.answer(move |request| conditional(request, "\"a\"", &answers));
    let mut gateway = Gateway::of(&upstream).start();
    gateway.sync();
    let rows = gateway.rows();
    let second = records(1..=1000, 2);
    upstream.queue(
        Answer::ok()
            .etag("\"b\"")
            .json(&second)
            .only(second.len() / 2),
    );
    assert!(gateway.sync().tally.changed > 0);
    // Upstream goes back to what it was, ETag and all.
    let report = gateway.sync();
    assert_eq!(report.outcome, Outcome::Changed, "{report}");
    assert_eq!(gateway.rows(), rows);
    assert_eq!(gateway.word(), "unchanged");
    let last = upstream.requests().pop().unwrap();
    assert_eq!(last.header("if-none-match"), Some("\"a\""));
}
