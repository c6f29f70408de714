//! Collections that are downloaded first: a large listing goes on behind a cut, and is read from disk by the same reader.

use crate::support::agent::{Gateway, assert_failed, records};
use crate::support::files::{range_start, serve};
use crate::support::upstream::{Answer, Upstream};

const SPOOL: &str = "spool = true";

fn part(gateway: &Gateway) -> Option<u64> {
    let path = gateway.file(".part/items");
    std::fs::metadata(path).ok().map(|meta| meta.len())
}

#[test]
fn a_listing_that_is_cut_goes_on_and_is_read_when_it_is_whole() {
    let upstream = Upstream::start();
    let listing = records(1..20_000, 1);
    upstream.queue(
        Answer::ok()
            .etag("\"1\"")
            .json(&listing)
            .only(listing.len() / 2),
    );
    let mut gateway = Gateway::of(&upstream).source(SPOOL).start();
    assert_failed(&gateway.sync(), "failing", "cut before its end");
    assert!(
        gateway.rows().is_empty(),
        "nothing is read before all has come"
    );
    let held = part(&gateway).unwrap();
    gateway.restart();
    assert_eq!(part(&gateway), Some(held));
    let body = listing.clone();
    // The rest repeats nothing that it need not.
    upstream.answer(move |request| match range_start(request) {
        Some(from) => Answer::status(206)
            .header(
                "Content-Range",
                &format!("bytes {from}-{}/{}", body.len() - 1, body.len()),
            )
            .body(&body.as_bytes()[from..]),
        None => serve(request, "\"1\"", body.as_bytes()),
    });
    let report = gateway.sync();
    assert_eq!(
        (report.outcome.word(), report.tally.added),
        ("changed", 19_999)
    );
    assert_eq!(gateway.rows().len(), 19_999);
    assert_eq!(part(&gateway), None);
    let asked = upstream.requests();
    assert_eq!(range_start(&asked[1]), usize::try_from(held).ok());
    assert_eq!(asked[1].header("if-range"), Some("\"1\""));
    assert_eq!(asked[1].header("accept"), Some("application/json"));
    assert!(upstream.sent() < listing.len() as u64 + 2000);
    let before = gateway.written();
    assert_eq!(gateway.word(), "unchanged");
    assert_eq!(gateway.written(), before);
    assert_eq!(
        upstream.requests()[2].header("if-none-match"),
        Some("\"1\"")
    );
}

#[test]
fn a_listing_that_changed_meanwhile_is_read_as_a_whole() {
    let upstream = Upstream::start();
    let (old, new) = (records(1..20_000, 1), records(1..15_000, 2));
    upstream.queue(Answer::ok().etag("\"1\"").json(&old).only(old.len() / 2));
    let mut gateway = Gateway::of(&upstream).source(SPOOL).start();
    assert_eq!(gateway.word(), "failing");
    let body = new.clone();
    upstream.answer(move |request| serve(request, "\"2\"", body.as_bytes()));
    assert_eq!(gateway.sync().tally.added, 14_999);
    assert!(
        gateway
            .rows()
            .iter()
            .all(|(_, body)| body.contains("\"v\":2"))
    );
    assert_eq!(part(&gateway), None);
}

#[test]
fn what_is_no_listing_is_not_kept_and_asked_for_anew() {
    let upstream = Upstream::start();
    let good = records(1..20_000, 1);
    let bad = good.replace("{\"id\":10000,", "{\"id\":!0000,");
    let (html, gzip) = ("text/html", "gzip");
    for (answer, word) in [
        (Answer::ok().etag("\"1\"").json(&bad), "not-ours"),
        (
            Answer::ok().etag("\"1\"").json(&good[..good.len() - 1]),
            "failing",
        ),
        (
            Answer::ok().header("Content-Type", html).body(&good[..]),
            "not-ours",
        ),
        (
            Answer::ok().header("Content-Encoding", gzip).json(&good),
            "not-ours",
        ),
        (Answer::ok().etag("\"1\"").json(""), "not-ours"),
    ] {
        let mut gateway = Gateway::of(&upstream).source(SPOOL).start();
        upstream.queue(answer);
        let report = gateway.sync();
        assert!(!report.outcome.is_complete(), "{word}: {report}");
        let body = good.clone();
        upstream.answer(move |request| serve(request, "\"2\"", body.as_bytes()));
        let report = gateway.sync();
        assert_eq!(report.outcome.word(), "changed", "{report}");
        assert_eq!(gateway.rows().len(), 19_999);
        assert_eq!(part(&gateway), None);
    }
}

#[test]
fn pages_are_spooled_one_by_one_and_looking_spools_nothing() {
    let upstream = Upstream::start();
    upstream.answer(|request| {
        let page: u32 = request.param("page").unwrap().parse().unwrap();
        let ids = (page - 1) * 5000 + 1..=page * 5000;
        let listing = if page > 3 {
            "[]".into()
        } else {
            records(ids, 1)
        };
        serve(request, &format!("\"{page}\""), listing.as_bytes())
    });
    let lines = "spool = true\npages = { page = \"page\" }";
    let mut gateway = Gateway::of(&upstream).source(lines).start();
    let look = gleaner::agent::Order {
        dry_run: true,
        ..gleaner::agent::Order::default()
    };
    assert_eq!(gateway.order(look).tally.added, 15_000);
    assert!(!gateway.file(".part").exists());
    assert_eq!(gateway.sync().tally.added, 15_000);
    assert_eq!(gateway.word(), "unchanged");
    assert_eq!(part(&gateway), None);
}
