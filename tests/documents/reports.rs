//! What servers, caches and clients were publicly reported for, each as the whole kind of fault, to a document that is published.

use std::fmt::Write as _;
use std::os::unix::fs::MetadataExt as _;

use gleaner::pull::report::{Outcome, Report};

use crate::support::agent::{Gateway, assert_failed};
use crate::support::files::{document, serve};
use crate::support::upstream::{Answer, Request, Upstream};

const OLD: &[u8] = b"the old version";

/// A gateway that has `OLD` published, with this answer's validators.
fn published(upstream: &Upstream, first: Answer, lines: &str) -> Gateway {
    upstream.queue(first.body(OLD));
    let mut gateway = document(upstream, lines);
    assert_eq!(gateway.fetched(), "changed");
    gateway
}

/// What the last request carried.
fn sent(upstream: &Upstream, name: &str) -> Option<String> {
    upstream
        .requests()
        .last()
        .unwrap()
        .header(name)
        .map(str::to_owned)
}

#[test]
fn no_304_empties_the_validator_or_truncates_the_file() {
    let upstream = Upstream::start();
    let mut gateway = published(&upstream, Answer::ok().etag("\"1\""), "");
    let inode = std::fs::metadata(gateway.file("fw.bin")).unwrap().ino();
    let answers = [
        Answer::not_modified(),
        Answer::not_modified().etag(""),
        Answer::not_modified().etag("\"1\""),
        Answer::not_modified().etag("W/\"1\""),
        Answer::not_modified().etag("\"1-gzip\""),
        Answer::not_modified().header("Content-Length", "0"),
        Answer::not_modified().header("Content-Length", "99"),
        Answer::not_modified().header("Content-Type", "text/html"),
        Answer::not_modified().header("Content-Encoding", "gzip"),
        Answer::not_modified().header("Last-Modified", ""),
    ];
    for answer in answers {
        upstream.queue(answer);
        assert_eq!(gateway.fetched(), "unchanged");
        assert_eq!(gateway.content().unwrap(), OLD);
    }
    assert_eq!(
        std::fs::metadata(gateway.file("fw.bin")).unwrap().ino(),
        inode
    );
    gateway.restart();
    upstream.queue(Answer::not_modified());
    assert_eq!(gateway.fetched(), "unchanged");
    // Weakened by the last 304 that named it, as RFC 9111 4.3.4 has it; never emptied.
    assert!(sent(&upstream, "if-none-match").unwrap().contains("1"));
}

#[test]
fn a_304_for_another_version_than_ours_is_asked_once_more_in_full() {
    let upstream = Upstream::start();
    let mut gateway = published(&upstream, Answer::ok().etag("\"1\""), "");
    upstream.queue(Answer::not_modified().etag("\"2\""));
    upstream.queue(Answer::ok().etag("\"2\"").body(b"two"));
    assert_eq!(gateway.fetched(), "changed");
    assert_eq!(gateway.content().unwrap(), b"two");
    assert_eq!(sent(&upstream, "if-none-match"), None);
    // One that only repeats itself is an error, and no "no change".
    upstream.answer(|_| Answer::not_modified().etag("\"9\""));
    assert_failed(&gateway.fetch(), "failing", "304");
    assert_eq!(gateway.content().unwrap(), b"two");
}

#[test]
fn a_blank_or_doubled_etag_is_none() {
    for tags in [&[""][..], &["  "], &["\"a\"", "\"b\""]] {
        let upstream = Upstream::start();
        let first = tags
            .iter()
            .fold(Answer::ok(), |answer, tag| answer.etag(tag));
        let mut gateway = published(&upstream, first, "");
        upstream.queue(Answer::ok().body(OLD));
        assert_eq!(gateway.fetched(), "unchanged", "{tags:?}");
        assert_eq!(sent(&upstream, "if-none-match"), None, "{tags:?}");
    }
}

#[test]
fn an_etag_on_a_redirect_is_not_the_targets() {
    for status in [301, 302, 303, 307, 308] {
        let upstream = Upstream::start();
        let target = Upstream::start();
        let to = target.url("/there");
        upstream.answer(move |_| Answer::redirect(status, &to).etag("\"redirect\""));
        target.answer(|_| Answer::ok().body(OLD));
        let mut gateway = document(&upstream, "");
        for word in ["changed", "unchanged"] {
            assert_eq!(gateway.fetched(), word, "{status}");
            assert_eq!(sent(&upstream, "if-none-match"), None, "{status}");
            assert_eq!(sent(&target, "if-none-match"), None, "{status}");
        }
        // The target's own is sent to the target alone.
        target.answer(|request| serve(request, "\"t\"", OLD));
        assert_eq!(gateway.fetched(), "unchanged");
        assert_eq!(gateway.fetched(), "unchanged");
        assert_eq!(sent(&upstream, "if-none-match"), None);
        assert_eq!(sent(&target, "if-none-match").as_deref(), Some("\"t\""));
    }
}

#[test]
fn an_unquoted_etag_is_sent_back_as_it_came_and_on_400_left_out_once() {
    let upstream = Upstream::start();
    let mut gateway = published(&upstream, Answer::ok().etag("abc:def"), "");
    upstream.queue(Answer::not_modified());
    assert_eq!(gateway.fetched(), "unchanged");
    assert_eq!(sent(&upstream, "if-none-match").as_deref(), Some("abc:def"));
    for status in [400, 412] {
        upstream.queue(Answer::status(status));
        upstream.queue(Answer::ok().etag("abc:def").body(OLD));
        assert_eq!(gateway.fetched(), "unchanged");
        assert_eq!(sent(&upstream, "if-none-match"), None);
    }
    upstream.answer(|_| Answer::status(400));
    let before = upstream.requests().len();
    assert_failed(&gateway.fetch(), "refused", "400");
    assert_eq!(upstream.requests().len() - before, 2);
    assert_eq!(gateway.content().unwrap(), OLD);
}

#[test]
fn tags_that_differ_from_node_to_node_change_nothing() {
    let upstream = Upstream::start();
    let mut gateway = published(&upstream, Answer::ok().etag("\"node-a\""), "");
    let inode = std::fs::metadata(gateway.file("fw.bin")).unwrap().ino();
    for node in ["\"node-b\"", "\"node-a\"", "\"node-b\""] {
        upstream.queue(Answer::ok().etag(node).body(OLD));
        assert_eq!(gateway.fetched(), "unchanged");
    }
    assert_eq!(
        std::fs::metadata(gateway.file("fw.bin")).unwrap().ino(),
        inode
    );
    assert_eq!(gateway.document_status().totals.unchanged, 3);
}

#[test]
fn a_short_body_with_the_right_status_is_cut() {
    let upstream = Upstream::start();
    let mut gateway = published(&upstream, Answer::ok().etag("\"1\""), "");
    for answer in [
        Answer::ok().etag("\"2\"").body([b'x'; 500]).only(300),
        Answer::ok()
            .etag("\"2\"")
            .body([b'x'; 500])
            .only(300)
            .then_reset(),
        Answer::ok()
            .etag("\"2\"")
            .body([b'x'; 5000])
            .chunked()
            .only(3000),
        Answer::ok()
            .etag("\"2\"")
            .body([b'x'; 200_000])
            .only(100_000)
            .then_reset(),
    ] {
        upstream.queue(answer);
        let report = gateway.fetch();
        assert_eq!(report.outcome.word(), "failing", "{report}");
        assert_eq!(gateway.content().unwrap(), OLD);
    }
}

#[test]
fn dates_of_the_future_keep_nothing_from_being_asked() {
    // The story is in 2099.
    let (past, now) = (
        "Thu, 01 Jan 2099 00:00:00 GMT",
        "Thu, 01 Jan 2099 01:00:00 GMT",
    );
    let (future, later) = (
        "Sun, 01 Jan 2141 00:00:00 GMT",
        "Sun, 01 Jan 2141 01:00:00 GMT",
    );
    let no_condition: &[(&[(&str, &str)], &str)] = &[
        (
            &[("Last-Modified", future), ("Date", now)],
            "a file from the future",
        ),
        (
            &[("Last-Modified", now), ("Date", now)],
            "modified this second",
        ),
        (&[("Last-Modified", past)], "no Date beside it"),
    ];
    for (fields, name) in no_condition {
        let upstream = Upstream::start();
        let first = fields.iter().fold(Answer::ok(), |answer, (key, value)| {
            answer.header(key, value)
        });
        let mut gateway = published(&upstream, first, "");
        upstream.queue(Answer::ok().body(b"new"));
        assert_eq!(gateway.fetched(), "changed", "{name}");
        assert_eq!(sent(&upstream, "if-modified-since"), None, "{name}");
    }
    // Whatever its Date is, an answer that says nothing of its age is stale at once; and what says much is believed for a day.
    let table: &[(&[(&str, &str)], u64)] = &[
        (&[("Date", future)], 3600),
        (&[("Date", future), ("Last-Modified", past)], 3600),
        (&[("Date", future), ("Expires", now)], 3600),
        (&[("Date", future), ("Expires", later)], 3600),
        (&[("Date", now), ("Expires", future)], 86_400),
        (&[("Expires", "0")], 3600),
        (
            &[
                ("Cache-Control", "max-age=7200"),
                ("Cache-Control", "no-cache"),
            ],
            3600,
        ),
        (
            &[
                ("Cache-Control", "max-age=7200"),
                ("Cache-Control", "max-age=60"),
            ],
            3600,
        ),
        (
            &[
                ("Cache-Control", "max-age=7200"),
                ("Cache-Control", "no-store"),
            ],
            3600,
        ),
        (
            &[
                ("Cache-Control", "private"),
                ("Cache-Control", "max-age=7200"),
            ],
            7200,
        ),
        (&[("Cache-Control", "max-age=7200"), ("Age", "7000")], 3600),
    ];
    for (fields, seconds) in table {
        let upstream = Upstream::start();
        let first = fields
            .iter()
            .fold(Answer::ok().etag("\"1\""), |answer, (key, value)| {
                answer.header(key, value)
            });
        let mut gateway = published(&upstream, first, "every = \"1h\"\njitter = \"0s\"");
        let due = gateway.due_in();
        assert_eq!(due, *seconds, "{fields:?}");
    }
}

#[test]
fn a_second_answer_that_is_empty_replaces_nothing() {
    let upstream = Upstream::start();
    let mut gateway = published(&upstream, Answer::ok().etag("\"1\""), "");
    for answer in [
        Answer::ok(),
        Answer::ok().etag("\"2\""),
        Answer::ok().etag("\"2\"").chunked(),
        Answer::ok().close_delimited(),
        Answer::status(204),
        Answer::status(205),
    ] {
        upstream.queue(answer);
        assert_failed(&gateway.fetch(), "not-ours", "allow_empty");
        assert_eq!(gateway.content().unwrap(), OLD);
    }
    upstream.queue(Answer::not_modified());
    assert_eq!(gateway.fetched(), "unchanged");
    assert_eq!(sent(&upstream, "if-none-match").as_deref(), Some("\"1\""));

    let mut gateway = published(&upstream, Answer::ok().etag("\"1\""), "allow_empty = true");
    upstream.queue(Answer::ok().etag("\"2\""));
    assert_eq!(gateway.fetched(), "changed");
    assert_eq!(gateway.content().unwrap(), b"");
}

#[test]
fn a_captive_portal_is_no_upstream() {
    let upstream = Upstream::start();
    let portal = Upstream::start();
    portal.answer(|_| {
        Answer::ok()
            .etag("\"1\"")
            .header("Content-Type", "text/html")
            .body("<html>")
    });
    let mut gateway = published(&upstream, Answer::ok().etag("\"1\""), "");
    let login = portal.url("/login");
    let html = "<!DOCTYPE html><form action=/login>";
    let answers = [
        Answer::ok()
            .header("Content-Type", "text/html; charset=utf-8")
            .body(html),
        Answer::ok().header("Content-Type", "TEXT/HTML").body("x"),
        Answer::ok()
            .header("Content-Type", "application/octet-stream")
            .body(html),
        Answer::ok().body(format!("\r\n {html}")),
        Answer::redirect(301, &login),
        Answer::redirect(302, &login),
        Answer::redirect(303, &login),
        Answer::redirect(307, &login),
        Answer::redirect(308, &login),
        Answer::status(511).body(html),
    ];
    for answer in answers {
        upstream.queue(answer);
        assert_failed(&gateway.fetch(), "not-ours", "captive portal");
        assert_eq!(gateway.content().unwrap(), OLD);
    }
    assert!(
        portal
            .requests()
            .iter()
            .all(|request| request.header("if-none-match").is_none())
    );
    upstream.queue(Answer::not_modified());
    assert_eq!(gateway.fetched(), "unchanged");
    assert_eq!(sent(&upstream, "if-none-match").as_deref(), Some("\"1\""));
}

#[test]
fn a_target_that_cannot_be_written_is_said_before_anything_is_fetched_and_the_old_file_stays() {
    type Block = fn(&std::path::Path);
    let blocks: [(&str, Block, &str); 3] = [
        (
            "a directory is there",
            |dir| std::fs::create_dir_all(dir.join("a/b")).unwrap(),
            "a directory is in the way",
        ),
        (
            "a file is where the directory should be",
            |dir| {
                std::fs::create_dir_all(dir).unwrap();
                std::fs::write(dir.join("a"), b"x").unwrap();
            },
            "a file is in the way",
        ),
        (
            "a link that leads nowhere is where the directory should be",
            |dir| {
                std::fs::create_dir_all(dir).unwrap();
                std::os::unix::fs::symlink("nowhere", dir.join("a")).unwrap();
            },
            "a file is in the way",
        ),
    ];
    for (name, block, reason) in blocks {
        let upstream = Upstream::start();
        upstream.answer(|request: &Request| serve(request, "\"1\"", &[b'x'; 300_000]));
        let mut gateway = document(&upstream, "file = \"a/b\"");
        let dir = gateway.state().join("documents");
        block(&dir);
        assert_failed(&gateway.fetch(), "local", reason);
        assert!(
            upstream.sent() < 250_000 || !gateway.part().exists(),
            "{name}"
        );
        // Once it is out of the way all is well.
        std::fs::rename(dir.join("a"), dir.join("aside")).unwrap();
        assert_eq!(gateway.fetched(), "changed", "{name}");
        assert_eq!(std::fs::read(dir.join("a/b")).unwrap().len(), 300_000);
    }
}

/// Answers that are no answer: what becomes of each, with the old version, its validators and what is asked next as before.
#[test]
#[rustfmt::skip] // a table, one case a line
fn no_strange_answer_harms_what_is_published() {
    let upstream = Upstream::start();
    let mut gateway = published(&upstream, Answer::ok().etag("\"1\""), "");
    let mut wrong = String::new();
    let table: Vec<(Answer, &str, &str)> = vec![
        (Answer::ok().header("Content-Range", "bytes 0-9/10").body("0123456789"), "not-ours", "sold as the whole"),
        (Answer::status(206).header("Content-Range", "bytes 0-9/10").body("0123456789"), "not-ours", "206"),
        (Answer::status(416), "refused", "416"),
        (Answer::ok().header("Content-Encoding", "gzip").body("x"), "not-ours", "was not asked for"),
        (Answer::ok().header("Content-Encoding", "deflate").body("x"), "not-ours", "was not asked for"),
        (Answer::ok().header("Content-Length", "+5").body("hello"), "not-ours", "content-length"),
        (Answer::ok().header("Content-Length", "4").body("hello"), "not-ours", "content-length"),
        (Answer::ok().header("Content-Length", "2000000000").body("hello"), "not-ours", ""),
        (Answer::status(300).body("x"), "not-ours", "300"),
        (Answer::redirect(302, ""), "failing", "without a Location"),
        (Answer::redirect(302, "ftp://a.example/"), "failing", "cannot be followed"),
        (Answer::status(401), "denied", "401"),
        (Answer::status(403), "denied", "403"),
        (Answer::status(404), "gone", "404"),
        (Answer::status(410), "gone", "410"),
        (Answer::status(429).header("Retry-After", "7"), "throttled", "7 s"),
        (Answer::status(500), "failing", "500"),
        (Answer::status(502).header("Content-Type", "text/html").body("<html>"), "failing", "502"),
        (Answer::status(999), "not-ours", "999"),
    ];
    for (answer, word, reason) in table {
        upstream.queue(answer);
        let report: Report = gateway.fetch();
        if report.outcome.word() != word || !report.reason().contains(reason) {
            let _ = writeln!(wrong, "expected {word}, {reason:?}; got {report}");
        }
        upstream.queue(Answer::not_modified());
        let next = gateway.fetch();
        let tag = sent(&upstream, "if-none-match");
        if next.outcome != Outcome::Unchanged || tag.as_deref() != Some("\"1\"") || gateway.content().as_deref() != Some(OLD) {
            let _ = writeln!(wrong, "{word} {reason}: harmed, {tag:?}, {next}");
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}
