//! What is kept, where, and for whom: the file, its validators, its place among the sources.

use std::os::unix::fs::MetadataExt as _;
use std::time::Duration;

use gleaner::agent::Order;
use gleaner::desk::{Event, Wish};
use gleaner::document::checksum::Checksum;

use crate::support::agent::{assert_failed, logged};
use crate::support::files::{bytes, document, plan, serve};
use crate::support::gleaner::Home;
use crate::support::upstream::{Answer, Request, Upstream};

#[test]
fn a_file_is_as_private_as_the_rest_of_the_state_and_in_directories_of_its_own() {
    let upstream = Upstream::start();
    upstream.answer(|request| serve(request, "\"1\"", b"one"));
    let mut gateway = document(&upstream, "file = \"deep/er/fw\"");
    assert_eq!(gateway.fetched(), "changed");
    let mode = |name: &str| std::fs::metadata(gateway.file(name)).unwrap().mode() & 0o777;
    assert_eq!(mode("deep/er/fw"), 0o640);
    assert_eq!(mode("deep/er") & 0o007, 0);
    assert_eq!(mode("deep") & 0o007, 0);
}

#[test]
fn a_file_that_somebody_touched_is_made_whole_without_trusting_a_304() {
    let body = bytes(100_000, 1);
    for (name, cut) in [
        ("removed", None),
        ("shortened", Some(&body[..10])),
        ("rewritten", Some(&bytes(100_000, 2)[..])),
    ] {
        let upstream = Upstream::start();
        let served = body.clone();
        upstream.answer(move |request: &Request| serve(request, "\"1\"", &served));
        let mut gateway = document(&upstream, "");
        assert_eq!(gateway.fetched(), "changed");
        let file = gateway.file("fw.bin");
        std::fs::remove_file(&file).unwrap();
        if let Some(bytes) = cut {
            std::fs::write(&file, bytes).unwrap();
        }
        let report = gateway.fetch();
        assert_eq!(report.outcome.word(), "changed", "{name}");
        assert!(report.notes[0].contains("by somebody else"), "{report:?}");
        assert_eq!(gateway.content().unwrap(), body, "{name}");
        assert_eq!(
            upstream.requests().pop().unwrap().header("if-none-match"),
            None
        );
        assert_eq!(gateway.fetched(), "unchanged");
    }
}

#[test]
fn a_file_that_was_copied_back_is_not_fetched_again() {
    let upstream = Upstream::start();
    let body = bytes(100_000, 1);
    let served = body.clone();
    upstream.answer(move |request: &Request| serve(request, "\"1\"", &served));
    let mut gateway = document(&upstream, "");
    assert_eq!(gateway.fetched(), "changed");
    std::fs::write(gateway.file("copy"), &body).unwrap();
    std::fs::rename(gateway.file("copy"), gateway.file("fw.bin")).unwrap();
    assert_eq!(gateway.fetched(), "unchanged");
    let before = gateway.written();
    assert_eq!(gateway.fetched(), "unchanged");
    assert_eq!(gateway.written(), before);
    assert!(upstream.sent() < 101_000);
}

#[test]
fn what_must_not_be_stored_vouches_for_nothing() {
    for (field, value) in [("Cache-Control", "No-Store"), ("Vary", "*")] {
        let upstream = Upstream::start();
        upstream.answer(move |request| serve(request, "\"1\"", b"one").header(field, value));
        let mut gateway = document(&upstream, "");
        assert_eq!(gateway.fetched(), "changed");
        assert_eq!(gateway.fetched(), "unchanged");
        assert_eq!(
            upstream.requests().pop().unwrap().header("if-none-match"),
            None
        );
        assert!(!gateway.state_holds("\"1\""));
    }
    let upstream = Upstream::start();
    upstream.answer(|request| serve(request, "\"1\"", b"one").header("Cache-Control", "no-store"));
    let mut gateway = document(&upstream, "ignore_no_store = true");
    assert_eq!(gateway.fetched(), "changed");
    assert_eq!(gateway.fetched(), "unchanged");
    assert_eq!(
        upstream.requests().pop().unwrap().header("if-none-match"),
        Some("\"1\"")
    );
}

#[test]
fn a_compressed_file_is_kept_as_it_is_sent_where_one_is_meant() {
    let gzip: &[u8] = b"\x1f\x8b\x08\x00\x87\xaa\rk\x02\xff\xcbH\xcd\xc9\xc9W(\xcf/\xcaIQ\xc8\xa0#\x1b\x00,\xbc\x94\x01x\x00\x00\x00";
    let upstream = Upstream::start();
    upstream.answer(move |_| {
        Answer::ok()
            .etag("\"1\"")
            .header("Content-Encoding", "gzip")
            .body(gzip)
    });
    let mut gateway = document(&upstream, "");
    assert_failed(&gateway.fetch(), "not-ours", "let `file` end in .gz");
    let mut gateway = document(&upstream, "file = \"fw.tar.gz\"");
    assert_eq!(gateway.fetched(), "changed");
    assert_eq!(std::fs::read(gateway.file("fw.tar.gz")).unwrap(), gzip);
}

#[test]
fn a_body_that_ends_with_its_connection_is_published_and_never_vouched_for() {
    let upstream = Upstream::start();
    upstream.answer(|_| Answer::ok().etag("\"1\"").body(b"one").close_delimited());
    let mut gateway = document(&upstream, "");
    let report = gateway.fetch();
    assert_eq!(report.outcome.word(), "changed");
    assert!(
        report.notes[0].contains("neither a length nor chunks"),
        "{report:?}"
    );
    assert_eq!(gateway.fetched(), "unchanged");
    assert_eq!(
        upstream.requests().pop().unwrap().header("if-none-match"),
        None
    );
    // Where its checksum is known, that proves more than a length.
    let line = format!("sha256 = \"{}\"", Checksum::of(b"one"));
    let mut gateway = document(&upstream, &line);
    assert_eq!(gateway.fetch().notes, Vec::<String>::new());
}

#[test]
fn a_month_of_304s_is_broken_by_one_fetch_in_full() {
    let upstream = Upstream::start();
    upstream.answer(|request| serve(request, "\"1\"", b"one"));
    let mut gateway = document(&upstream, "");
    assert_eq!(gateway.fetched(), "changed");
    gateway.clock.advance(Duration::from_secs(30 * 86_400));
    assert_eq!(gateway.fetched(), "unchanged");
    assert_eq!(
        upstream.requests().pop().unwrap().header("if-none-match"),
        None
    );
    assert_eq!(gateway.fetched(), "unchanged");
    assert_eq!(
        upstream.requests().pop().unwrap().header("if-none-match"),
        Some("\"1\"")
    );
}

#[test]
fn credentials_and_validators_stay_where_they_belong() {
    let (upstream, elsewhere) = (Upstream::start(), Upstream::start());
    let to = elsewhere.url("/store/fw.bin");
    upstream.answer(move |_| Answer::redirect(302, &to));
    let body = bytes(300_000, 1);
    elsewhere.queue(Answer::ok().etag("\"1\"").body(&body[..]).only(150_000));
    let served = body.clone();
    elsewhere.answer(move |request| serve(request, "\"1\"", &served));
    let plan = plan(&upstream, "").upstream("headers = { X-Key = \"k\" }");
    let mut gateway = plan.start();
    assert_eq!(gateway.fetched(), "failing");
    assert_eq!(gateway.fetched(), "changed");
    assert_eq!(gateway.fetched(), "unchanged");
    assert_eq!(gateway.content().unwrap(), body);
    for request in upstream.requests() {
        assert_eq!(request.header("x-key"), Some("k"));
        assert_eq!(
            request.header("range"),
            None,
            "of the redirect no part is held"
        );
        assert_eq!(request.header("if-none-match"), None);
    }
    let there = elsewhere.requests();
    assert!(
        there
            .iter()
            .all(|request| request.header("x-key").is_none())
    );
    assert!(there[1].header("range").is_some());
    assert_eq!(there[2].header("if-none-match"), Some("\"1\""));
}

#[test]
fn a_publication_that_was_cut_before_it_was_written_down_is_taken_up() {
    let (upstream, new) = (Upstream::start(), bytes(200_000, 2));
    upstream.queue(Answer::ok().etag("\"1\"").body(b"old"));
    let served = new.clone();
    upstream.answer(move |request: &Request| match request.path() {
        "/fw.bin" => serve(request, "\"2\"", &served),
        _ => Answer::status(503),
    });
    let mut gateway = document(&upstream, "");
    assert_eq!(gateway.fetched(), "changed");
    // It is whole, and waits for its checksum.
    gateway.restart_with_more(&crate::support::files::section("sha256_url = \"sum\""));
    assert_eq!(gateway.fetched(), "throttled");
    assert_eq!(gateway.part_len(), Some(200_000));
    // What a rename and a cut right behind it leave.
    std::fs::rename(gateway.part(), gateway.file("fw.bin")).unwrap();
    gateway.restart_with_more(&crate::support::files::section(""));
    let _before = logged();
    assert_eq!(gateway.fetched(), "unchanged");
    let said = logged();
    assert!(
        said.iter().any(|line| line.contains("is published as")),
        "{said:?}"
    );
    assert_eq!(gateway.content().unwrap(), new);
    assert_eq!(
        upstream.requests().pop().unwrap().header("if-none-match"),
        Some("\"2\"")
    );
    let sum = Checksum::of(&new).to_string();
    assert_eq!(gateway.document_status().sha256, Some(sum));
}

#[test]
fn documents_are_asked_for_beside_sources_and_their_upstream_is_heeded() {
    let upstream = Upstream::start();
    upstream.answer(|request| match request.path() {
        "/items" => Answer::ok().json("[{\"id\":1}]"),
        _ => serve(request, "\"1\"", b"one"),
    });
    let mut gateway = plan(&upstream, "every = \"1h\"\njitter = \"0s\"")
        .source("every = \"20m\"\njitter = \"0s\"")
        .start();
    let mut asked = Vec::new();
    for _ in 0..6 {
        gateway.run_until_idle();
    }
    for request in upstream.requests() {
        asked.push(request.path().to_owned());
    }
    assert_eq!(
        asked.iter().filter(|path| *path == "/fw.bin").count(),
        2,
        "{asked:?}"
    );
    assert!(
        asked.iter().filter(|path| *path == "/items").count() >= 4,
        "{asked:?}"
    );
    let status = gateway.document_status();
    assert_eq!(
        (status.outcome.as_str(), status.stale),
        ("unchanged", false)
    );
    // Throttled: neither is asked, until a person wants it.
    upstream.queue(Answer::status(503).header("Retry-After", "3600"));
    let before = upstream.requests().len();
    assert_eq!(gateway.fetched(), "throttled");
    let refused = gateway.fetch_as(Order::default());
    assert_failed(&refused, "throttled", "name the source to ask all the same");
    assert_eq!(upstream.requests().len(), before + 1);
    gateway.restart();
    assert_failed(&gateway.fetch_as(Order::default()), "throttled", "are left");
    assert_eq!(gateway.fetched(), "unchanged");
    // Nobody answers for long: it is stale, and says since when it fails.
    upstream.answer(|_| Answer::status(500));
    gateway.clock.advance(Duration::from_secs(4 * 3600));
    for _ in 0..3 {
        assert_eq!(gateway.fetched(), "failing");
    }
    let status = gateway.document_status();
    assert!(status.stale && status.failures == 3, "{status:?}");
    assert_eq!(status.size, Some(3));
}

#[test]
fn looking_changes_nothing_and_what_makes_no_sense_for_a_document_is_refused() {
    let upstream = Upstream::start();
    upstream.answer(|request| serve(request, "\"1\"", b"one"));
    let mut gateway = document(&upstream, "");
    let before = gateway.written();
    let look = |dry_run, probe| Order {
        dry_run,
        probe,
        ..Order::default()
    };
    for order in [look(true, false), look(false, true)] {
        assert_eq!(gateway.fetch_as(order).outcome.word(), "changed");
        assert_eq!(gateway.written(), before);
    }
    assert_eq!(gateway.fetched(), "changed");
    assert_eq!(
        gateway.fetch_as(look(true, false)).outcome.word(),
        "unchanged"
    );
    for (full, replay) in [(true, false), (false, true)] {
        let wish = Wish {
            sources: vec!["fw".into()],
            full,
            replay,
            ..Wish::default()
        };
        let mut events = Vec::new();
        gateway
            .agent()
            .carry_out(&wish, &mut |event| events.push(event));
        let refused = |event: &Event| matches!(event, Event::Refused { usage: true, reason } if reason.contains("is a document"));
        assert!(events.iter().any(refused), "{events:?}");
    }
    // Without a name: everything.
    let mut names = Vec::new();
    gateway.agent().carry_out(&Wish::default(), &mut |event| {
        if let Event::Report(line) = event {
            names.push(line.source);
        }
    });
    assert_eq!(names, ["items", "fw"]);
}

#[test]
fn the_commands_know_documents() {
    let upstream = Upstream::start();
    upstream.answer(|request| serve(request, "\"1\"", b"one"));
    let home = Home::new(&format!(
        "[document.fw]\nurl = \"{}\"\nfile = \"firmware/fw.bin\"\nproxy = \"\"\n",
        upstream.url("/fw.bin")
    ));
    let check = home.gleaner(&["check"]);
    assert_eq!(check.code, 0, "{check:?}");
    assert!(
        check.out.contains("[document.fw]\n") && check.out.contains("file = \"firmware/fw.bin\""),
        "{check:?}"
    );
    let live = home.gleaner(&["check", "--live"]);
    assert_eq!(live.code, 0, "{live:?}");
    assert!(live.out.contains("as configured"), "{live:?}");
    let never = home.gleaner(&["status"]);
    assert!(never.out.contains("never"), "{never:?}");
    for word in ["changed", "unchanged"] {
        let sync = home.gleaner(&["sync", "--json", "fw"]);
        assert_eq!(sync.code, 0, "{sync:?}");
        let line = &sync.json()[0];
        assert_eq!(
            (
                line["source"].as_str(),
                line["pull"].as_str(),
                line["outcome"].as_str()
            ),
            (Some("fw"), Some("document"), Some(word))
        );
    }
    let sync = home.gleaner(&["sync"]);
    assert!(sync.out.contains("unchanged"), "{sync:?}");
    assert_eq!(
        std::fs::read(home.path("state/documents/firmware/fw.bin")).unwrap(),
        b"one"
    );
    let sum = Checksum::of(b"one").to_string();
    let status = home.gleaner(&["status"]);
    assert!(
        status.out.contains(&sum) && status.out.contains("fresh"),
        "{status:?}"
    );
    let status = &home.gleaner(&["status", "--json"]).json()[0]["documents"]["fw"];
    assert_eq!(
        (status["sha256"].as_str(), status["size"].as_u64()),
        (Some(sum.as_str()), Some(3))
    );
    assert!(
        status["last_check"].is_string() && status["last_change"].is_string(),
        "{status}"
    );
    let unknown = home.gleaner(&["sync", "fv"]);
    assert_eq!(unknown.code, 64, "{unknown:?}");
    assert!(unknown.err.contains("the config has: fw"), "{unknown:?}");
    let reconcile = home.gleaner(&["reconcile", "fw"]);
    assert!(reconcile.err.contains("is a document"), "{reconcile:?}");
    // The agent that stays does it by itself.
    let running = home.run();
    while running.status()["documents"]["fw"]["totals"]["passes"] == 0 {
        std::thread::yield_now();
    }
    assert_eq!(running.status()["documents"]["fw"]["outcome"], "unchanged");
    let told = home.gleaner(&["sync", "fw"]);
    assert!(told.out.contains("unchanged"), "{told:?}");
    // While a body does not come on, others are answered, and see how far it is.
    let (gate, opened) = crate::support::upstream::Gate::new();
    let big = bytes(300_000, 1);
    upstream.queue(
        Answer::ok()
            .etag("\"2\"")
            .body(&big[..])
            .gate_at(200_000, opened),
    );
    let waiting = home.command(&["sync", "fw"]).spawn().unwrap();
    while running.status()["documents"]["fw"]["running"]["bytes_down"].as_u64() < Some(190_000) {
        std::thread::yield_now();
    }
    gate.open();
    assert!(waiting.wait_with_output().unwrap().status.success());
    assert_eq!(
        std::fs::read(home.path("state/documents/firmware/fw.bin")).unwrap(),
        big
    );
    assert_eq!(running.stop(), 0);
}

#[test]
fn a_download_that_comes_further_each_time_is_not_waited_for_longer_and_longer() {
    let upstream = Upstream::start();
    let body = bytes(2_000_000, 1);
    upstream.answer(move |request: &Request| serve(request, "\"1\"", &body).only(150_000));
    let mut gateway = document(&upstream, "");
    let before = gateway.now();
    while gateway.content().is_none() {
        gateway.run_until_idle();
    }
    let took = gateway.now().since(before);
    assert!(took < Duration::from_secs(14 * 11), "{took:?}");
}
