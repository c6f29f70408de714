//! What proves a document, and what becomes of one that is not proven.

use gleaner::document::checksum::Checksum;

use crate::support::agent::assert_failed;
use crate::support::files::{bytes, document, range_start, serve};
use crate::support::upstream::{Answer, Request, Upstream};

#[test]
fn only_what_has_the_checksum_of_the_config_is_published() {
    let upstream = Upstream::start();
    let sum = Checksum::of(b"right");
    upstream.answer(|_| Answer::ok().etag("\"1\"").body(b"wrong"));
    let mut gateway = document(&upstream, &format!("sha256 = \"{sum}\""));
    let report = gateway.fetch();
    assert_failed(&report, "bad-data", &format!("`sha256` says {sum}"));
    assert_eq!(gateway.content(), None);
    upstream.answer(|_| Answer::ok().etag("\"2\"").body(b"right"));
    assert_eq!(gateway.fetched(), "changed");
    assert_eq!(gateway.content().unwrap(), b"right");
    upstream.answer(|_| Answer::ok().etag("\"3\"").body(b"wrong again"));
    assert_failed(&gateway.fetch(), "bad-data", "the file is as it was");
    assert_eq!(gateway.content().unwrap(), b"right");
}

#[test]
fn a_checksum_may_be_written_beside_the_document() {
    let body = bytes(200_000, 1);
    let sum = Checksum::of(&body);
    let other = Checksum::of(b"other");
    let right = [
        format!("{sum}  fw.bin\n"),
        format!("{sum}"),
        format!("SHA256 (fw.bin) = {sum}\n"),
        format!("{other}  README\n{sum} *./fw.bin\n"),
    ];
    for text in right {
        let upstream = Upstream::start();
        let served = body.clone();
        let sums = text.clone();
        upstream.answer(move |request| match request.path() {
            "/fw.bin" => serve(request, "\"1\"", &served),
            "/sums/fw.sha256" => Answer::ok().body(sums.as_bytes()),
            other => panic!("{other}"),
        });
        let mut gateway = document(&upstream, "sha256_url = \"sums/fw.sha256\"");
        assert_eq!(gateway.fetched(), "changed", "{text}");
        assert_eq!(gateway.content().unwrap(), body);
        // Nothing new: nothing to compare.
        let before = upstream.requests().len();
        assert_eq!(gateway.fetched(), "unchanged");
        assert_eq!(upstream.requests().len() - before, 1);
    }
    let wrong = [
        (
            Answer::ok().body(format!("{other}  fw.bin")),
            "bad-data",
            "says",
        ),
        (
            Answer::ok().body(format!("{other}  a\n{sum}  b\n")),
            "bad-data",
            "no line for fw.bin",
        ),
        (
            Answer::ok().body("<html>login"),
            "bad-data",
            "no line is a SHA-256",
        ),
        (Answer::ok(), "not-ours", "without a body"),
        (Answer::status(404), "gone", "fw.sha256"),
        (Answer::status(503), "throttled", "fw.sha256"),
        (
            Answer::ok().body(format!("{sum}  fw.bin")).only(100),
            "failing",
            "fw.sha256",
        ),
    ];
    for (answer, word, reason) in wrong {
        let upstream = Upstream::start();
        upstream.queue(Answer::ok().etag("\"1\"").body(&body[..]));
        upstream.queue(answer);
        let mut gateway = document(&upstream, "sha256_url = \"fw.sha256\"");
        assert_failed(&gateway.fetch(), word, reason);
        assert_eq!(gateway.content(), None);
    }
}

#[test]
fn what_waits_for_its_checksum_is_not_fetched_again() {
    let upstream = Upstream::start();
    let body = bytes(200_000, 1);
    let served = body.clone();
    upstream.answer(move |request| match request.path() {
        "/fw.bin" => serve(request, "\"1\"", &served),
        _ => Answer::status(404),
    });
    let mut gateway = document(&upstream, "sha256_url = \"fw.sha256\"");
    assert_failed(&gateway.fetch(), "gone", "fw.sha256");
    assert_eq!(gateway.part_len(), Some(200_000));
    gateway.restart();
    assert_failed(&gateway.fetch(), "gone", "fw.sha256");
    let sum = Checksum::of(&body);
    let served = body.clone();
    upstream.answer(move |request| match request.path() {
        "/fw.bin" => serve(request, "\"1\"", &served),
        _ => Answer::ok().body(format!("{sum}  fw.bin\n")),
    });
    assert_eq!(gateway.fetched(), "changed");
    assert_eq!(gateway.content().unwrap(), body);
    assert!(upstream.sent() < 210_000, "{}", upstream.sent());
    assert_eq!(gateway.fetched(), "unchanged");
}

#[test]
fn damage_on_the_way_is_fetched_once_more_and_a_wrong_version_is_not_fetched_a_third_time() {
    let upstream = Upstream::start();
    let (good, mut damaged) = (bytes(200_000, 1), bytes(200_000, 1));
    damaged[150_000] ^= 1;
    let line = format!("sha256 = \"{}\"", Checksum::of(&good));
    upstream.queue(Answer::ok().etag("\"1\"").body(&damaged[..]));
    let served = good.clone();
    upstream.answer(move |request| serve(request, "\"1\"", &served));
    let mut gateway = document(&upstream, &line);
    assert_failed(&gateway.fetch(), "bad-data", "SHA-256");
    assert_eq!(gateway.fetched(), "changed");
    assert_eq!(gateway.content().unwrap(), good);

    // Upstream has another version than the one that the config wants.
    let other = bytes(200_000, 2);
    upstream.answer(move |request| serve(request, "\"2\"", &other));
    for _ in 0..2 {
        assert_failed(&gateway.fetch(), "bad-data", "the file is as it was");
    }
    let before = upstream.sent();
    for _ in 0..5 {
        assert_failed(&gateway.fetch(), "bad-data", "the file is as it was");
        gateway.restart();
    }
    assert!(
        upstream.sent() - before < 2000,
        "{}",
        upstream.sent() - before
    );
    assert_eq!(gateway.content().unwrap(), good);
    // The right one comes back.
    let served = good.clone();
    upstream.answer(move |request| serve(request, "\"1\"", &served));
    assert_eq!(gateway.fetched(), "unchanged");
    assert_eq!(gateway.part_len(), None);
}

// Of the bytes below, by `openssl dgst -binary | base64`.
const ABC_256: &str = "sha-256=:ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0=:";
const ABC_512: &str = "sha-512=:3a81oZNherrMQXNJriBBMRLm+k6JqX6iCp7u5ktV05ohkpkqJ0/BqDa6PCOj/uu9RU1EI2Q86A4qmslPpUyknw==:";
const OTHER: &str = "sha-256=:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=:";

#[test]
fn digests_that_an_answer_states_are_checked() {
    let table = [
        ("Repr-Digest", ABC_256, true),
        ("Repr-Digest", ABC_512, true),
        ("Content-Digest", ABC_256, true),
        ("Content-Digest", ABC_512, true),
        ("Repr-Digest", OTHER, false),
        ("Content-Digest", OTHER, false),
        ("Repr-Digest", "md5=:x:", true),
        ("Repr-Digest", "garbage", true),
    ];
    for (field, value, passes) in table {
        let upstream = Upstream::start();
        upstream.answer(move |_| Answer::ok().etag("\"1\"").header(field, value).body(b"abc"));
        let mut gateway = document(&upstream, "");
        let report = gateway.fetch();
        if passes {
            assert_eq!(report.outcome.word(), "changed", "{field} {value}");
        } else {
            assert_failed(&report, "failing", field);
            assert_eq!(gateway.content(), None);
        }
    }
}

/// The field value of RFC 9530 over these bytes.
fn stated(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digest = Checksum::of(bytes).0;
    let mut text = String::new();
    for chunk in digest.chunks(3) {
        let mut group = [0; 4];
        group[1..=chunk.len()].copy_from_slice(chunk);
        let bits = u32::from_be_bytes(group);
        for place in 0..=chunk.len() {
            text.push(char::from(
                ALPHABET[(bits >> (18 - 6 * place) & 63) as usize],
            ));
        }
    }
    format!("sha-256=:{text}=:")
}

#[test]
fn digests_over_a_rest_and_over_the_whole_behind_it() {
    let body = bytes(400_000, 1);
    for (field, right) in [
        ("Repr-Digest", true),
        ("Repr-Digest", false),
        ("Content-Digest", true),
        ("Content-Digest", false),
    ] {
        let upstream = Upstream::start();
        upstream.queue(Answer::ok().etag("\"1\"").body(&body[..]).only(200_000));
        let mut gateway = document(&upstream, "");
        assert_eq!(gateway.fetched(), "failing");
        let served = body.clone();
        upstream.answer(move |request: &Request| {
            let from = range_start(request).unwrap_or(0);
            let over = match (field, right) {
                ("Repr-Digest", true) => &served[..],
                ("Content-Digest", true) => &served[from..],
                _ => &served[..100],
            };
            serve(request, "\"1\"", &served).header(field, &stated(over))
        });
        let report = gateway.fetch();
        if right {
            assert_eq!(report.outcome.word(), "changed", "{field}: {report}");
            assert_eq!(gateway.content().unwrap(), body);
        } else {
            assert_failed(&report, "failing", field);
            assert_eq!(
                (gateway.content(), gateway.part_len()),
                (None, None),
                "{field}"
            );
        }
    }
}

#[test]
fn no_document_is_larger_than_allowed() {
    let limits = [
        ("max_size = \"100kB\"", "more than 100kB"),
        ("", "more than 1MB"),
    ];
    for (line, reason) in limits {
        let upstream = Upstream::start();
        let answers = [
            Answer::ok().etag("\"1\"").body(vec![b'x'; 1_000_001]),
            Answer::ok()
                .etag("\"1\"")
                .body(vec![b'x'; 1_000_001])
                .chunked(),
            Answer::ok()
                .etag("\"1\"")
                .body(vec![b'x'; 1_000_001])
                .close_delimited(),
            Answer::streaming_while(|| true),
        ];
        let plan = crate::support::files::plan(&upstream, line);
        let mut gateway = plan.upstream("limits = { body = \"1MB\" }").start();
        for answer in answers {
            upstream.queue(answer);
            assert_failed(&gateway.fetch(), "not-ours", reason);
            assert_eq!((gateway.content(), gateway.part_len()), (None, None));
        }
    }
    let upstream = Upstream::start();
    upstream.queue(Answer::ok().body(b"12345"));
    let mut gateway = document(&upstream, "max_size = \"4B\"");
    assert_failed(&gateway.fetch(), "not-ours", "more than 4B");
}
