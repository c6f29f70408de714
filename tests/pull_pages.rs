//! Listings of several pages: every style to its end, memos that spare what has not changed, and listings that lead
//! astray or move while they are read.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot be set up has failed"
)]

mod support;

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use gleaner::pull::report::Outcome;
use support::agent::{Gateway, assert_failed, records};
use support::upstream::{Answer, Request, Upstream};

/// Page `at` of three: records 1-2, 3-4, 5-6, each with a tag of its own.
fn page(request: &Request, at: u32, version: u32, dress: impl Fn(&str) -> Answer) -> Answer {
    let tag = format!("\"{at}.{version}\"");
    if request.header("if-none-match") == Some(&tag) {
        return Answer::not_modified().etag(&tag);
    }
    dress(&records([2 * at - 1, 2 * at], version)).etag(&tag)
}

fn number(request: &Request, name: &str, without: u32) -> u32 {
    request
        .param(name)
        .map_or(without, |text| text.parse().unwrap())
}

type Dress = fn(&Request, u32, &str) -> Answer;

/// A style: the config's words, which page a request asks for, and how a page says what comes next.
struct Style {
    config: &'static str,
    which: fn(&Request) -> u32,
    dress: Dress,
    /// Pages with the empty one that ends some styles.
    pages: u64,
}

fn enveloped(items: &str, rest: &str) -> Answer {
    Answer::ok().json(format!("{{\"items\":{items}{rest}}}"))
}

fn styles() -> Vec<Style> {
    vec![
        Style {
            config: "pages = \"link\"",
            which: |request| number(request, "p", 1),
            dress: |_, at, items| {
                let answer = Answer::ok()
                    .json(items)
                    .header("Link", "</items>; rel=\"first\"");
                if at == 3 {
                    return answer;
                }
                answer.header("Link", &format!("<?p={}>; rel=\"next\"", at + 1))
            },
            pages: 3,
        },
        Style {
            config: "records = \"/items\"\npages = { next = \"/links/next\" }",
            which: |request| number(request, "p", 1),
            dress: |_, at, items| {
                let next = if at == 3 {
                    "null".into()
                } else {
                    format!("\"/items?p={}\"", at + 1)
                };
                enveloped(items, &format!(",\"links\":{{\"next\":{next}}}"))
            },
            pages: 3,
        },
        Style {
            config: "records = \"/items\"\npages = { links = \"/links\" }",
            which: |request| number(request, "p", 1),
            dress: |_, at, items| {
                let next = if at == 3 {
                    String::new()
                } else {
                    format!(",{{\"rel\":\"next\",\"href\":\"/items?p={}\"}}", at + 1)
                };
                enveloped(
                    items,
                    &format!(",\"links\":[{{\"rel\":\"self\",\"href\":\"/items\"}}{next}]"),
                )
            },
            pages: 3,
        },
        Style {
            config: "pages = { next_header = \"Next-Page\" }",
            which: |request| number(request, "p", 1),
            dress: |_, at, items| {
                let next = if at == 3 {
                    String::new()
                } else {
                    format!("/items?p={}", at + 1)
                };
                Answer::ok().json(items).header("next-page", &next)
            },
            pages: 3,
        },
        Style {
            config: "records = \"/items\"\npages = { token = \"/next\", param = \"cursor\" }\nparams = { limit = 2 }",
            which: |request| number(request, "cursor", 1),
            dress: |request, at, items| {
                assert_eq!(request.param("limit"), Some("2"));
                let next = if at == 3 {
                    String::new()
                } else {
                    format!(",\"next\":{}", at + 1)
                };
                enveloped(items, &next)
            },
            pages: 3,
        },
        Style {
            config: "pages = { token_header = \"X-Next\", param = \"cursor\" }",
            which: |request| number(request, "cursor", 1),
            dress: |_, at, items| {
                let answer = Answer::ok().json(items);
                if at == 3 {
                    answer
                } else {
                    answer.header("X-Next", &(at + 1).to_string())
                }
            },
            pages: 3,
        },
        Style {
            config: "pages = { page = \"page\", first = 0, size = { param = \"per_page\", value = 2 } }",
            which: |request| {
                assert_eq!(request.param("per_page"), Some("2"));
                number(request, "page", 9) + 1
            },
            dress: |_, _, items| Answer::ok().json(items),
            pages: 4,
        },
        Style {
            config: "pages = { offset = \"offset\", size = { param = \"limit\", value = 2 } }",
            which: |request| number(request, "offset", 9) / 2 + 1,
            dress: |_, _, items| Answer::ok().json(items),
            pages: 4,
        },
        Style {
            config: "records = \"/items\"\npages = { last_key = \"/id\", param = \"starting_after\", more = \"/has_more\" }",
            which: |request| number(request, "starting_after", 0) / 2 + 1,
            dress: |_, at, items| enveloped(items, &format!(",\"has_more\":{}", at < 3)),
            pages: 3,
        },
    ]
}

#[test]
fn every_style_is_read_to_its_end_and_then_costs_nothing() {
    for Style {
        config,
        which,
        dress,
        pages,
    } in styles()
    {
        let upstream = Upstream::start();
        let serve = move |second: u32| {
            move |request: &Request| {
                let at = which(request);
                if at > 3 {
                    return if request.header("if-none-match") == Some("\"empty\"") {
                        Answer::not_modified()
                    } else {
                        dress(request, at, "[]").etag("\"empty\"")
                    };
                }
                let version = if at == 2 { second } else { 1 };
                page(request, at, version, |items| dress(request, at, items))
            }
        };
        upstream.answer(serve(1));
        let mut gateway = Gateway::of(&upstream).source(config).start();
        let first = gateway.sync();
        assert_eq!(
            (first.tally.added, first.tally.pages),
            (6, pages),
            "{config}: {first}"
        );

        let second = gateway.sync();
        assert_eq!(second.outcome, Outcome::Unchanged, "{config}: {second}");
        assert_eq!(
            (second.tally.not_modified, second.tally.unchanged),
            (pages, 6),
            "{config}"
        );
        // These 304s say nothing of the way on, and where a header would say it, the last page's fields are asked for.
        let peeks = u64::from(config.contains("header") || config.contains("link\""));
        assert_eq!(second.tally.requests, pages + peeks, "{config}");
        assert!(second.tally.bytes_saved > 0, "{config}");

        upstream.answer(serve(2));
        let third = gateway.sync();
        assert_eq!(third.tally.not_modified, pages - 1, "{config}: {third}");
        assert_eq!(
            (third.tally.changed, third.tally.unchanged),
            (2, 4),
            "{config}: {third}"
        );
        assert_eq!(third.tally.deleted, 0, "{config}");
        assert_eq!(gateway.keys(), ["1", "2", "3", "4", "5", "6"]);
    }
}

/// A validator is of a body. A listing that grows by a page leaves the body of the page before as it was.
#[test]
fn a_listing_that_grows_by_a_page_is_followed_although_its_last_page_is_a_304() {
    // What a 304 says of the way on, and whether HEAD is known.
    for (fields_on_304, head) in [(true, true), (false, true), (false, false)] {
        for style in [
            "pages = \"link\"",
            "pages = { next_header = \"Next\" }",
            "pages = { token_header = \"Token\", param = \"p\" }",
        ] {
            let upstream = Upstream::start();
            let serve = move |last: u32| {
                move |request: &Request| {
                    if request.method == "HEAD" && !head {
                        return Answer::status(405);
                    }
                    let at = number(request, "p", 1);
                    let way_on = |answer: Answer| {
                        if at >= last {
                            return answer;
                        }
                        answer
                            .header("Link", &format!("</items?p={}>; rel=\"next\"", at + 1))
                            .header("Next", &format!("/items?p={}", at + 1))
                            .header("Token", &(at + 1).to_string())
                    };
                    let tag = format!("\"{at}\"");
                    if request.header("if-none-match") == Some(&tag) {
                        let answer = Answer::not_modified().etag(&tag);
                        return if fields_on_304 {
                            way_on(answer)
                        } else {
                            answer
                        };
                    }
                    way_on(
                        Answer::ok()
                            .json(records([2 * at - 1, 2 * at], 1))
                            .etag(&tag),
                    )
                }
            };
            upstream.answer(serve(1));
            let mut gateway = Gateway::of(&upstream).source(style).start();
            assert_eq!(gateway.word(), "changed");
            assert_eq!(gateway.word(), "unchanged");
            upstream.answer(serve(3));
            let grown = gateway.sync();
            assert_eq!(
                grown.tally.added, 4,
                "{style}, 304 with fields: {fields_on_304}, HEAD: {head}: {grown}"
            );
            assert_eq!(gateway.word(), "unchanged");
        }
    }
}

#[test]
fn an_upstream_that_does_not_know_the_page_parameter_is_noticed_on_the_third_page() {
    for style in [
        "pages = { page = \"seite\" }",
        "pages = { offset = \"ab\", size = { param = \"n\", value = 2 } }",
    ] {
        let upstream = Upstream::start();
        upstream.answer(|_| Answer::ok().json(records(1..=2, 1)));
        let mut gateway = Gateway::of(&upstream).source(style).start();
        assert_failed(
            &gateway.sync(),
            "bad-data",
            "does the upstream know this page parameter",
        );
        assert_eq!(upstream.requests().len(), 3);
    }
}

#[test]
fn a_next_link_to_another_origin_is_refused_and_no_credential_follows_it() {
    let elsewhere = Upstream::start();
    elsewhere.answer(|_| Answer::ok().json(records(3..=4, 1)));
    for next in [
        elsewhere.url("/items?p=2"),
        elsewhere
            .url("/items?p=2")
            .replace("http://", "http://user:pass@"),
        elsewhere.url("/items?p=2").replace("http:", ""),
    ] {
        let upstream = Upstream::start();
        let link = format!("<{next}>; rel=next");
        upstream.answer(move |_| {
            Answer::ok()
                .etag("\"1\"")
                .header("Link", &link)
                .json(records(1..=2, 1))
        });
        let mut gateway = Gateway::of(&upstream)
            .upstream("headers = { X-Tenant = \"seven\" }")
            .source("pages = \"link\"")
            .start();
        assert_failed(&gateway.sync(), "bad-data", "another origin");
        assert_eq!(elsewhere.requests().len(), 0);
        assert!(!gateway.sync().reason().contains("pass"));
    }
}

#[test]
fn a_listing_that_goes_in_a_circle_is_an_error() {
    let upstream = Upstream::start();
    upstream.answer(|request| {
        let at = number(request, "p", 1);
        let next = if at == 3 { 2 } else { at + 1 };
        Answer::ok()
            .header("Link", &format!("</items?p={next}>; rel=next"))
            .json(records([at], 1))
    });
    let mut gateway = Gateway::of(&upstream).source("pages = \"link\"").start();
    let report = gateway.sync();
    assert_failed(&report, "bad-data", "goes in a circle");
    assert_eq!(
        report.tally.requests, 3,
        "what comes again is not asked for again"
    );
}

#[test]
fn a_listing_that_never_ends_is_an_error_at_the_cap() {
    let upstream = Upstream::start();
    upstream.answer(|request| {
        let at = number(request, "cursor", 1);
        enveloped(
            &records([at], 1),
            &format!(",\"next\":{},\"more\":true", at + 1),
        )
    });
    let mut gateway = Gateway::of(&upstream)
        .upstream("limits = { pages = 7 }")
        .source("records = \"/items\"\npages = { token = \"/next\", param = \"cursor\", more = \"/more\" }")
        .start();
    let report = gateway.sync();
    assert_failed(&report, "bad-data", "more than 7 pages");
    assert_eq!(report.tally.requests, 7);
}

#[test]
fn more_without_a_way_on_is_an_error_and_deletes_nothing() {
    let upstream = Upstream::start();
    let config =
        "records = \"/items\"\npages = { token = \"/next\", param = \"cursor\", more = \"/more\" }";
    let mut gateway = Gateway::of(&upstream).source(config).start();
    upstream.queue(enveloped(&records(1..=3, 1), ",\"more\":false"));
    assert_eq!(gateway.word(), "changed");
    upstream.queue(enveloped(&records(1..=2, 1), ",\"more\":true"));
    assert_failed(&gateway.sync(), "bad-data", "there is more");
    upstream.queue(enveloped(&records(1..=2, 1), ",\"more\":true,\"next\":[1]"));
    assert_failed(&gateway.sync(), "bad-data", "token");
    assert_eq!(gateway.keys(), ["1", "2", "3"]);
}

#[test]
fn an_empty_page_in_the_middle_does_not_end_a_listing_with_links() {
    let upstream = Upstream::start();
    upstream.answer(|request| match number(request, "p", 1) {
        1 => Answer::ok()
            .header("Link", "<?p=2>; rel=next")
            .json(records(1..=2, 1)),
        2 => Answer::ok().header("Link", "<?p=3>; rel=next").json("[]"),
        _ => Answer::ok().json(records(3..=4, 1)),
    });
    let mut gateway = Gateway::of(&upstream).source("pages = \"link\"").start();
    assert_eq!(gateway.word(), "changed");
    assert_eq!(gateway.keys(), ["1", "2", "3", "4"]);
}

#[test]
fn a_short_page_does_not_end_a_numbered_listing() {
    let upstream = Upstream::start();
    upstream.answer(|request| match number(request, "page", 0) {
        1 => Answer::ok().json(records(1..=1, 1)),
        2 => Answer::ok().json(records(2..=4, 1)),
        _ => Answer::ok().json("[]"),
    });
    let config = "pages = { page = \"page\", size = { param = \"n\", value = 3 } }";
    let mut gateway = Gateway::of(&upstream).source(config).start();
    gateway.sync();
    assert_eq!(gateway.keys(), ["1", "2", "3", "4"]);
}

/// A listing by offset whose records a writer moves while it is read.
#[test]
fn records_that_move_between_pages_are_not_deleted() {
    let upstream = Upstream::start();
    let list: &'static Mutex<Vec<u32>> = Box::leak(Box::new(Mutex::new((1..=8).collect())));
    let asked: &'static AtomicU64 = Box::leak(Box::new(AtomicU64::new(0)));
    let first_is_deleted: &'static Mutex<bool> = Box::leak(Box::new(Mutex::new(false)));
    upstream.answer(move |request| {
        let from = number(request, "offset", 0) as usize;
        let mut list = list.lock().unwrap();
        let page: Vec<u32> = list.iter().skip(from).take(2).copied().collect();
        asked.fetch_add(1, Ordering::SeqCst);
        // Once, behind the first page, the first record goes: all others move up by one, the third to a page that was
        // read already.
        if std::mem::take(&mut *first_is_deleted.lock().unwrap()) {
            list.remove(0);
        }
        Answer::ok().json(records(page, 1))
    });
    let config = "pages = { offset = \"offset\", size = { param = \"limit\", value = 2 } }";
    let mut gateway = Gateway::of(&upstream).source(config).start();
    gateway.sync();
    assert_eq!(gateway.keys().len(), 8);

    *first_is_deleted.lock().unwrap() = true;
    let before = asked.load(Ordering::SeqCst);
    let report = gateway.sync();
    // The first listing met 1 and missed 3; a second one at once met 3.
    assert_eq!(report.outcome, Outcome::Unchanged, "{report}");
    assert_eq!(asked.load(Ordering::SeqCst) - before, 10);
    assert_eq!(gateway.keys().len(), 8);
    gateway.sync();
    assert_eq!(gateway.keys(), ["2", "3", "4", "5", "6", "7", "8"]);
}

#[test]
fn memos_of_pages_whose_urls_differ_each_time_do_not_pile_up() {
    let upstream = Upstream::start();
    let round: &'static AtomicU64 = Box::leak(Box::new(AtomicU64::new(0)));
    upstream.answer(move |request| match request.param("cursor") {
        None => {
            let round = round.fetch_add(1, Ordering::SeqCst);
            enveloped(&records(1..=200, 1), &format!(",\"next\":\"tok-{round}\""))
                .etag(&format!("\"{round}\""))
        }
        Some(_) => enveloped(&records(201..=400, 1), "").etag("\"last\""),
    });
    let config = "records = \"/items\"\npages = { token = \"/next\", param = \"cursor\" }";
    let mut gateway = Gateway::of(&upstream).source(config).start();
    for _ in 0..6 {
        gateway.sync();
    }
    gateway.stop();
    let tokens = (0..6)
        .filter(|round| gateway.live_memos_name(&format!("tok-{round}")))
        .count();
    assert_eq!(tokens, 1, "only the last one's next page");
}

#[test]
fn a_record_that_left_for_another_page_is_not_vouched_for_by_the_old_one() {
    let upstream = Upstream::start();
    // Page 1 has the record 1, page 2 has 2 and 3.
    let serve = |first: String, second: Option<String>| {
        move |request: &Request| match (request.param("p"), &second) {
            (None, _) => {
                let tag = format!("\"{}\"", first.len());
                if request.header("if-none-match") == Some(&tag) {
                    return Answer::not_modified();
                }
                Answer::ok()
                    .etag(&tag)
                    .header("Link", "<?p=2>; rel=next")
                    .json(&first)
            }
            (_, None) => Answer::status(502),
            (_, Some(second)) if request.header("if-none-match") == Some("\"two\"") => {
                let _same = second;
                Answer::not_modified()
            }
            (_, Some(second)) => Answer::ok().etag("\"two\"").json(second),
        }
    };
    upstream.answer(serve(records([1], 1), Some(records([2, 3], 1))));
    let mut gateway = Gateway::of(&upstream).source("pages = \"link\"").start();
    gateway.sync();
    let rows = gateway.rows();
    // The record 3 is updated and moves to page 1; page 2 fails; then upstream is restored to what it was.
    upstream.answer(serve(records([1, 3], 2), None));
    assert_eq!(gateway.word(), "failing");
    upstream.answer(serve(records([1], 1), Some(records([2, 3], 1))));
    gateway.sync();
    gateway.sync();
    assert_eq!(gateway.rows(), rows);
}

#[test]
fn a_pass_that_failed_on_its_last_page_goes_on_there() {
    let upstream = Upstream::start();
    let serve = |works: bool| {
        move |request: &Request| match number(request, "p", 1) {
            1 => Answer::ok()
                .header("Link", "<?p=2>; rel=next")
                .json(records(1..=2, 1)),
            2 if works => Answer::ok().json(records(3..=4, 1)),
            _ => Answer::status(502),
        }
    };
    upstream.answer(serve(false));
    let mut gateway = Gateway::of(&upstream).source("pages = \"link\"").start();
    assert_failed(&gateway.sync(), "failing", "502");
    assert_eq!(gateway.keys(), ["1", "2"], "whole pages are kept");
    upstream.answer(serve(true));
    let before = upstream.requests().len();
    assert_eq!(gateway.word(), "changed");
    assert_eq!(upstream.requests()[before].param("p"), Some("2"));
    assert_eq!(gateway.keys(), ["1", "2", "3", "4"]);
}

#[test]
fn where_a_resumed_page_is_gone_the_pass_starts_anew() {
    for status in [400, 404, 410] {
        let upstream = Upstream::start();
        let serve = |second: u16| {
            move |request: &Request| match request.param("p") {
                None => Answer::ok()
                    .header("Link", "<?p=2>; rel=next")
                    .json(records(1..=2, 1)),
                _ if second == 200 => Answer::ok().json(records(3..=4, 1)),
                _ => Answer::status(second),
            }
        };
        upstream.answer(serve(502));
        let mut gateway = Gateway::of(&upstream).source("pages = \"link\"").start();
        gateway.sync();
        upstream.answer(serve(200));
        upstream.queue(Answer::status(status));
        let report = gateway.sync();
        assert_eq!(report.outcome, Outcome::Changed, "{status}: {report}");
        assert_eq!(gateway.keys(), ["1", "2", "3", "4"]);
    }
}

#[test]
fn an_api_behind_a_tls_proxy_that_writes_http_for_itself_is_followed_over_tls() {
    let pki = support::pki::Pki::new();
    let upstream = Upstream::start_tls(pki.server(&pki.leaf(&["127.0.0.1"])));
    let plain = upstream.url("/items?p=2").replace("https:", "http:");
    upstream.answer(move |request| match request.param("p") {
        None => Answer::ok()
            .header("Link", &format!("<{plain}>; rel=next"))
            .json(records(1..=2, 1)),
        Some(_) => Answer::ok().json(records(3..=4, 1)),
    });
    let trust = format!("roots = \"extra-only\"\nextra_ca = {:?}", pki.ca_file());
    let mut gateway = Gateway::of(&upstream)
        .upstream(&trust)
        .source("pages = \"link\"")
        .start();
    assert_eq!(gateway.word(), "changed");
    assert_eq!(gateway.keys(), ["1", "2", "3", "4"]);
}

/// Half of the fields on a 304 must not end a listing whose body nobody has seen.
#[test]
fn a_304_that_leaves_the_way_on_out_deletes_nothing() {
    let upstream = Upstream::start();
    upstream.answer(|request| {
        let at = number(request, "p", 1);
        let tag = format!("\"{at}\"");
        if request.header("if-none-match") == Some(&tag) {
            return Answer::not_modified()
                .etag(&tag)
                .header("Link", "</items>; rel=\"first\"");
        }
        let answer = Answer::ok()
            .json(records([2 * at - 1, 2 * at], 1))
            .etag(&tag);
        if at == 2 {
            return answer;
        }
        answer.header("Link", "</items?p=2>; rel=\"next\"")
    });
    let mut gateway = Gateway::of(&upstream)
        .source("pages = \"link\"\nreconcile = { max_loss = \"100%\" }")
        .start();
    assert_eq!(gateway.sync().tally.added, 4);
    let again = gateway.sync();
    assert_eq!(
        (again.outcome.word(), again.tally.deleted),
        ("unchanged", 0),
        "{again}"
    );
    assert_eq!(gateway.keys().len(), 4);
}
