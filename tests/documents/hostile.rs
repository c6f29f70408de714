//! The recorded hostile answers, to a document whose previous body is held. What each must come to stands in the record; where it
//! leaves a choice, ours is in the table below, with its reason.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::support::files::document;
use crate::support::upstream::{Answer, Upstream};

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

/// Our choice where the record leaves one.
const CHOSEN: [(&str, &str, &str); 6] = [
    (
        "GZIP",
        "reject",
        "no coding was asked for, in no letter case",
    ),
    (
        "dup-cl-same",
        "accept",
        "twice the same length says one thing (RFC 9112 6.3)",
    ),
    ("cl-te", "accept", "chunks overrule a length (RFC 9112 6.3)"),
    (
        "no-reason",
        "accept",
        "nothing depends on the reason phrase",
    ),
    (
        "bad-header",
        "reject",
        "a head that cannot be read is not guessed at",
    ),
    ("latin1", "reject", "empty, and that is no file"),
];

/// What an accepted answer leaves in the file.
const BODIES: [(&str, &[u8]); 1] = [("cl-te", b"abc")];

#[test]
fn recorded_answers_do_to_a_document_what_they_must() {
    let recorded: Recorded =
        serde_json::from_str(include_str!("../data/hostile-responses.json")).unwrap();
    assert!(recorded.responses.len() >= 25);
    let chosen: BTreeMap<&str, &str> = CHOSEN
        .iter()
        .map(|(name, word, _)| (*name, *word))
        .collect();
    let bodies: BTreeMap<&str, &[u8]> = BODIES.into_iter().collect();
    let mut wrong = Vec::new();
    for Response {
        name,
        bytes_base64,
        expect,
    } in recorded.responses
    {
        let upstream = Upstream::start();
        upstream.queue(Answer::ok().etag("\"a\"").body(b"previous"));
        let mut gateway = document(&upstream, "");
        assert_eq!(gateway.fetched(), "changed");
        let hostile = decoded(&bytes_base64);
        upstream.queue(Answer::raw(hostile).then_close());
        let before = upstream.requests().len();
        let report = gateway.fetch();
        let asked = upstream.requests().len() - before;
        let got = match report.outcome.word() {
            "changed" => "accept",
            "unchanged" => "unchanged",
            _ => "reject",
        };
        let expected = match expect.as_str() {
            "accept" | "reject" | "unchanged" => expect.as_str(),
            "reject-empty" => "reject",
            _ => chosen
                .get(name.as_str())
                .unwrap_or_else(|| panic!("{name}: {expect}, and nothing is chosen")),
        };
        let content = gateway.content().unwrap();
        let left: &[u8] = match got {
            "accept" => bodies.get(name.as_str()).copied().unwrap_or(b"hello"),
            _ => b"previous",
        };
        println!("{name:16} {expect:18} {got:10} {:.140}", report.reason());
        if got != expected || content != left || !(1..=2).contains(&asked) {
            wrong.push(format!(
                "{name}: {expected}, got {report}, {asked} requests, {:?}",
                String::from_utf8_lossy(&content)
            ));
        }
        if got == "reject" && report.reason().len() <= 20 {
            wrong.push(format!("{name}: no reason: {report}"));
        }
        if got == "accept" {
            continue;
        }
        // As if nothing had been.
        upstream.queue(Answer::not_modified().etag("\"a\""));
        let next = gateway.fetch();
        let tag = upstream
            .requests()
            .pop()
            .unwrap()
            .header("if-none-match")
            .map(str::to_owned);
        if next.outcome.word() != "unchanged" || tag.as_deref() != Some("\"a\"") {
            wrong.push(format!("{name}: harmed, {tag:?}, {next}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
