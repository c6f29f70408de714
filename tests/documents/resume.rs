//! Downloads that were cut: gone on with behind the bytes that came, if those are of the same version for sure.

use gleaner::pull::report::Outcome;

use crate::support::agent::{Gateway, assert_failed};
use crate::support::files::{bytes, document, plan, range_start, serve};
use crate::support::upstream::{Answer, Gate, Request, Upstream};

type Fields<'a> = &'a [(&'a str, &'a str)];

/// A gateway that has `old` published, and the first `part` bytes of `new`, whose tag is `"2"`.
fn cut(upstream: &Upstream, new: &[u8], lines: &str) -> Gateway {
    upstream.queue(Answer::ok().etag("\"1\"").body(b"old"));
    let mut gateway = document(upstream, lines);
    assert_eq!(gateway.fetched(), "changed");
    upstream.queue(Answer::ok().etag("\"2\"").body(new).only(new.len() / 2));
    assert_failed(&gateway.fetch(), "failing", "cut before its end");
    assert_eq!(gateway.content().unwrap(), b"old");
    gateway
}

const SIZE: usize = 400_000;

#[test]
fn a_cut_download_goes_on_where_it_was_and_the_old_version_stays_until_then() {
    let (upstream, new) = (Upstream::start(), bytes(SIZE, 2));
    let mut gateway = cut(&upstream, &new, "");
    let held = gateway.part_len().unwrap();
    assert!(held > 190_000, "{held}");
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

#[test]
fn a_download_that_is_cut_again_and_again_comes_to_its_end() {
    let (upstream, new) = (Upstream::start(), bytes(SIZE, 2));
    let mut gateway = cut(&upstream, &new, "");
    let body = new.clone();
    upstream.answer(move |request| serve(request, "\"2\"", &body).only(70_000));
    let mut turns = 0;
    while gateway.fetched() == "failing" {
        turns += 1;
        assert!(turns < 10);
    }
    assert_eq!(gateway.content().unwrap(), new);
    assert!(
        upstream.sent() < 3 + SIZE as u64 + 10_000,
        "{}",
        upstream.sent()
    );
}

/// What comes of the answer to a request for the rest; then how many requests there were, and whether a range was asked for in
/// each.
fn answered(
    new: &[u8],
    answers: Vec<Answer>,
    then: &'static [u8],
) -> (Gateway, Outcome, Vec<bool>) {
    let upstream = Upstream::start();
    let mut gateway = cut(&upstream, new, "");
    let before = upstream.requests().len();
    for answer in answers {
        upstream.queue(answer);
    }
    upstream.answer(move |request| serve(request, "\"3\"", then));
    let outcome = gateway.fetch().outcome;
    let asked = upstream.requests()[before..]
        .iter()
        .map(|request| request.header("range").is_some())
        .collect();
    (gateway, outcome, asked)
}

#[test]
fn what_is_no_rest_of_ours_replaces_and_never_appends() {
    let new = bytes(SIZE, 2);
    let rest = |from: usize, total: usize| {
        Answer::status(206)
            .header(
                "Content-Range",
                &format!("bytes {from}-{}/{total}", total - 1),
            )
            .body(&new[from.min(SIZE)..total.min(SIZE)])
    };
    let upstream = Upstream::start();
    let held = usize::try_from(cut(&upstream, &new, "").part_len().unwrap()).unwrap();
    let table: Vec<(&str, Answer)> = vec![
        ("another offset", rest(held + 1, SIZE).etag("\"2\"")),
        ("the beginning", rest(0, SIZE).etag("\"2\"")),
        ("another total", rest(held, SIZE - 1).etag("\"2\"")),
        ("another version", rest(held, SIZE).etag("\"3\"")),
        (
            "a weak tag of the same version",
            rest(held, SIZE).etag("W/\"2\""),
        ),
        (
            "another length than its range",
            Answer::status(206)
                .etag("\"2\"")
                .header(
                    "Content-Range",
                    &format!("bytes {held}-{}/{SIZE}", SIZE - 1),
                )
                .body(&new[held + 5..]),
        ),
        (
            "no range",
            Answer::status(206).etag("\"2\"").body(&new[held..]),
        ),
        (
            "two ranges",
            rest(held, SIZE)
                .etag("\"2\"")
                .header("Content-Range", "bytes 0-1/2"),
        ),
        (
            "several parts",
            rest(held, SIZE)
                .etag("\"2\"")
                .header("Content-Type", "multipart/byteranges; boundary=x"),
        ),
        (
            "another coding",
            rest(held, SIZE)
                .etag("\"2\"")
                .header("Content-Encoding", "gzip"),
        ),
        (
            "a slice sent as 200",
            Answer::ok()
                .etag("\"2\"")
                .header(
                    "Content-Range",
                    &format!("bytes {held}-{}/{SIZE}", SIZE - 1),
                )
                .body(&new[held..]),
        ),
        (
            "416 of another size",
            Answer::status(416).header("Content-Range", "bytes */7"),
        ),
        ("416 without a size", Answer::status(416)),
        (
            "416 of our size and another version",
            Answer::status(416)
                .etag("\"3\"")
                .header("Content-Range", &format!("bytes */{held}")),
        ),
        ("412", Answer::status(412)),
        ("400", Answer::status(400)),
        ("304", Answer::not_modified()),
    ];
    for (name, answer) in table {
        let (gateway, outcome, asked) = answered(&new, vec![answer], b"third");
        assert_eq!(outcome, Outcome::Changed, "{name}");
        assert_eq!(gateway.content().unwrap(), b"third", "{name}");
        assert_eq!(asked, [true, false], "{name}");
        assert_eq!(gateway.part_len(), None, "{name}");
    }
    // A 200 at once: a server without ranges, or a changed file behind If-Range.
    let (gateway, outcome, asked) = answered(&new, Vec::new(), b"third");
    assert_eq!((outcome, asked), (Outcome::Changed, vec![true]));
    assert_eq!(gateway.content().unwrap(), b"third");
}

#[test]
fn an_error_in_place_of_the_rest_costs_nothing_that_came() {
    let new = bytes(SIZE, 2);
    let table: Vec<(&str, Answer)> = vec![
        ("failing", Answer::status(500)),
        ("throttled", Answer::status(503)),
        ("gone", Answer::status(404)),
        (
            "not-ours",
            Answer::ok()
                .header("Content-Type", "text/html")
                .body("<html>login"),
        ),
        ("not-ours", Answer::ok().body(" <HTML>login")),
        (
            "not-ours",
            Answer::ok().header("Content-Encoding", "br").body("x"),
        ),
        ("not-ours", Answer::ok()),
        ("not-ours", Answer::status(204)),
        (
            "failing",
            Answer::ok().etag("\"3\"").body(bytes(1000, 3)).only(300),
        ),
    ];
    for (word, answer) in table {
        let upstream = Upstream::start();
        let mut gateway = cut(&upstream, &new, "");
        let held = gateway.part_len();
        upstream.queue(answer);
        let report = gateway.fetch();
        assert_eq!(report.outcome.word(), word, "{report}");
        assert_eq!(gateway.part_len(), held, "{report}");
        assert_eq!(gateway.content().unwrap(), b"old", "{report}");
        let body = new.clone();
        upstream.answer(move |request| serve(request, "\"2\"", &body));
        assert_eq!(gateway.fetched(), "changed");
        assert_eq!(gateway.content().unwrap(), new);
    }
}

#[test]
fn a_server_may_send_less_of_the_rest_than_was_asked_for() {
    let (upstream, new) = (Upstream::start(), bytes(SIZE, 2));
    let mut gateway = cut(&upstream, &new, "");
    let body = new.clone();
    upstream.answer(move |request| {
        let from = range_start(request).unwrap();
        let to = (from + 50_000).min(SIZE);
        Answer::status(206)
            .etag("\"2\"")
            .header("Content-Range", &format!("bytes {from}-{}/{SIZE}", to - 1))
            .body(&body[from..to])
    });
    assert_eq!(gateway.fetched(), "changed");
    assert_eq!(gateway.content().unwrap(), new);
}

#[test]
fn a_416_on_a_part_that_is_whole_publishes_it_when_its_validator_says_so() {
    let new = bytes(SIZE, 2);
    // The length is not known, and the connection is cut where the last chunk should come.
    let cases = [
        ("\"2\"", true, new.clone()),
        ("\"2\"", false, new.clone()),
        ("\"3\"", true, b"third".to_vec()),
        ("\"3\"", false, b"third".to_vec()),
    ];
    for (tag, states, expected) in cases {
        let upstream = Upstream::start();
        upstream.queue(Answer::ok().etag("\"1\"").body(b"old"));
        let mut gateway = document(&upstream, "");
        gateway.fetch();
        let head_and_chunks = 83 + SIZE + SIZE / 1000 * 7;
        upstream.queue(
            Answer::ok()
                .etag("\"2\"")
                .chunked()
                .body(&new[..])
                .only(head_and_chunks),
        );
        assert_failed(&gateway.fetch(), "failing", "cut before its end");
        assert_eq!(gateway.part_len(), Some(SIZE as u64));
        let body = expected.clone();
        upstream.answer(move |request| match request.header("range") {
            Some(_) if states => {
                Answer::status(416).header("Content-Range", &format!("bytes */{SIZE}"))
            }
            Some(_) => Answer::status(416),
            None => serve(request, tag, &body),
        });
        assert_eq!(gateway.fetched(), "changed");
        assert_eq!(gateway.content().unwrap(), expected);
        let last = upstream.requests().pop().unwrap();
        assert_eq!(last.header("if-none-match"), Some("\"2\""));
    }
}

#[test]
fn only_a_strong_validator_is_sent_in_if_range() {
    let new = bytes(SIZE, 2);
    let (modified, date) = (
        "Thu, 01 Jan 2099 00:00:00 GMT",
        "Thu, 01 Jan 2099 01:00:00 GMT",
    );
    let table: &[(Fields<'_>, Option<&str>)] = &[
        (&[("ETag", "\"2\"")], Some("\"2\"")),
        (&[("ETag", "\"2-gzip\"")], Some("\"2-gzip\"")),
        (&[("ETag", "W/\"2\"")], None),
        (&[("ETag", "2")], None),
        (&[("ETag", "")], None),
        (
            &[("Last-Modified", modified), ("Date", date)],
            Some(modified),
        ),
        (&[("Last-Modified", modified), ("Date", modified)], None),
        (&[("Last-Modified", modified)], None),
        (
            &[
                ("Last-Modified", "Sun, 01 Jan 2141 00:00:00 GMT"),
                ("Date", date),
            ],
            None,
        ),
        (
            &[
                ("ETag", "W/\"2\""),
                ("Last-Modified", modified),
                ("Date", date),
            ],
            None,
        ),
        (&[], None),
        (&[("ETag", "\"2\""), ("Cache-Control", "No-Store")], None),
        (&[("ETag", "\"2\""), ("Vary", "*")], None),
    ];
    for (fields, expected) in table {
        let upstream = Upstream::start();
        let answer = |answer: Answer| {
            fields
                .iter()
                .fold(answer, |answer, (name, value)| answer.header(name, value))
        };
        let mut gateway = document(&upstream, "");
        upstream.queue(answer(Answer::ok()).body(&new[..]).only(SIZE / 2));
        assert_eq!(gateway.fetched(), "failing");
        assert_eq!(
            gateway.part_len().is_some(),
            expected.is_some(),
            "{fields:?}"
        );
        upstream.queue(answer(Answer::ok()).body(&new[..]));
        assert_eq!(gateway.fetched(), "changed", "{fields:?}");
        assert_eq!(gateway.content().unwrap(), new, "{fields:?}");
        let last = upstream.requests().pop().unwrap();
        assert_eq!(last.header("if-range"), *expected, "{fields:?}");
        assert_eq!(
            last.header("range").is_some(),
            expected.is_some(),
            "{fields:?}"
        );
    }
}

#[test]
fn a_part_of_an_older_version_or_another_url_is_never_gone_on_with() {
    let (upstream, new) = (Upstream::start(), bytes(SIZE, 2));
    let mut gateway = cut(&upstream, &new, "");
    // What a server makes of If-Range with the tag of an older version.
    let newer = bytes(SIZE, 3);
    let body = newer.clone();
    upstream.answer(move |request| serve(request, "\"3\"", &body));
    assert_eq!(gateway.fetched(), "changed");
    assert_eq!(gateway.content().unwrap(), newer);

    let mut gateway = cut(&upstream, &new, "");
    gateway.restart_with_more(&crate::support::files::section("params = { v = 2 }"));
    assert_eq!(gateway.fetched(), "changed");
    let last = upstream.requests().pop().unwrap();
    assert_eq!(
        (last.target.as_str(), last.header("range")),
        ("/fw.bin?v=2", None)
    );
    assert_eq!(last.header("if-none-match"), None);
}

#[test]
fn a_stop_in_the_middle_keeps_what_came_and_the_next_start_goes_on() {
    let (upstream, new) = (Upstream::start(), bytes(SIZE, 2));
    let (gate, opened) = Gate::new();
    let mut gateway = document(&upstream, "");
    upstream.queue(
        Answer::ok()
            .etag("\"2\"")
            .body(&new[..])
            .gate_at(SIZE / 2, opened),
    );
    let stop = gateway.stopper();
    let part = gateway.part();
    // Stops when half of it has come, as SIGTERM does.
    let watcher = std::thread::spawn(move || {
        while std::fs::metadata(&part).map_or(0, |meta| meta.len()) < SIZE as u64 / 2 - 1000 {
            std::thread::yield_now();
        }
        stop();
    });
    let report = gateway.fetch();
    assert!(report.outcome.is_stopped(), "{report}");
    watcher.join().unwrap();
    drop(gate);
    let held = gateway.part_len().unwrap();
    gateway.restart();
    let body = new.clone();
    upstream.answer(move |request: &Request| serve(request, "\"2\"", &body));
    assert_eq!(gateway.fetched(), "changed");
    assert_eq!(gateway.content().unwrap(), new);
    let last = upstream.requests().pop().unwrap();
    assert_eq!(range_start(&last), usize::try_from(held).ok());
}

#[test]
fn what_nothing_will_go_on_with_is_removed_at_the_start_and_other_files_stay() {
    let (upstream, new) = (Upstream::start(), bytes(SIZE, 2));
    let mut gateway = cut(&upstream, &new, "");
    let held = gateway.part_len();
    std::fs::write(gateway.file(".part/other"), b"x").unwrap();
    std::fs::write(gateway.file("note.txt"), b"x").unwrap();
    gateway.restart();
    assert_eq!(gateway.part_len(), held, "this one is gone on with");
    assert!(!gateway.file(".part/other").exists());
    let status = gateway.status_of_all();
    assert_eq!(status.leftovers, ["note.txt"]);
    // The document leaves the config: its part goes, its file stays and is said.
    gateway.restart_with_more("");
    assert!(!gateway.part().exists());
    assert_eq!(gateway.content().unwrap(), b"old");
    assert_eq!(gateway.status_of_all().leftovers, ["fw.bin", "note.txt"]);
    // And is taken up again when it comes back.
    gateway.restart_with_more(&crate::support::files::section(""));
    upstream.answer(|request| serve(request, "\"1\"", b"old"));
    assert_eq!(gateway.fetched(), "unchanged");
}

#[test]
fn parts_count_towards_the_quota() {
    let upstream = Upstream::start();
    let new = bytes(SIZE, 2);
    upstream.queue(Answer::ok().etag("\"1\"").body(b"old"));
    let mut gateway = plan(&upstream, "")
        .agent("documents_quota = \"300kB\"")
        .start();
    assert_eq!(gateway.fetched(), "changed");
    let served = new.clone();
    upstream.answer(move |request| serve(request, "\"2\"", &served));
    assert_failed(&gateway.fetch(), "local", "over `documents_quota` (300kB)");
    assert_eq!(gateway.content().unwrap(), b"old");
    assert_eq!(gateway.part_len(), None);
    gateway.restart_with_agent("documents_quota = \"400kB\"");
    assert_failed(
        &gateway.fetch(),
        "local",
        "documents take 3 bytes, and 400000 more",
    );
    gateway.restart_with_agent("documents_quota = \"401kB\"");
    assert_eq!(gateway.fetched(), "changed");
    assert_eq!(gateway.content().unwrap(), new);
}
