//! Faults that public bug reports tell of, each as its whole kind: what other clients lost, doubled or never got to the end
//! of.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot be set up has failed"
)]

mod support;

use std::time::Duration;

use gleaner::pull::report::{Outcome, Report};
use support::agent::{Gateway, assert_failed};
use support::feed::{Feed, Query, json, slice};
use support::upstream::{Answer, Upstream};

const MINUTE: Duration = Duration::from_secs(60);
const WINDOW: &str =
    "pull = { window = { field = \"/u\", since = \"since\", lateness = \"1h\" } }\n";

fn gateway(lines: &str) -> (Upstream, Gateway) {
    let upstream = Upstream::start();
    let gateway = Gateway::of(&upstream).source(lines).start();
    (upstream, gateway)
}

/// One pass over these pages, which follow each other by `Link`.
fn read(upstream: &Upstream, gateway: &mut Gateway, pages: &[&str]) -> Report {
    let pages: Vec<String> = pages.iter().map(|&page| page.to_owned()).collect();
    upstream.answer(move |request| {
        let at = Query::of(request).number("p").unwrap_or(0);
        let answer = Answer::ok().json(&pages[at]);
        if at + 1 == pages.len() {
            return answer;
        }
        answer.header("Link", &format!("</items?p={}>; rel=\"next\"", at + 1))
    });
    gateway.sync()
}

/// A page of a feed by page number or token, with more said about it by `dress`.
fn paged(feed: &Feed, query: &Query, param: &str, size: usize) -> (String, bool, usize) {
    let list = feed.since(query.instant("since"));
    let at = query.number(param).unwrap_or(0);
    let items = json(slice(&list, at * size, size), |entry| {
        format!(
            "{{\"id\":{},\"v\":\"{}\",\"u\":\"{}\"}}",
            entry.id,
            entry.value,
            entry.time()
        )
    });
    (items, (at + 1) * size < list.len(), at)
}

#[test]
fn equal_timestamps_across_a_page_edge_and_across_passes() {
    for pages in [
        "pages = { token = \"/next\", param = \"t\" }",
        "pages = { page = \"t\", first = 0 }",
    ] {
        let (upstream, mut gateway) = gateway(&format!("{WINDOW}records = \"/items\"\n{pages}"));
        let feed = Feed::of(&gateway);
        feed.serve(&upstream, |feed, _, query| {
            let (items, more, at) = paged(feed, query, "t", 3);
            let next = if more {
                format!(",\"next\":{}", at + 1)
            } else {
                String::new()
            };
            Answer::ok().json(format!("{{\"items\":{items}{next}}}"))
        });
        for id in 1..=10 {
            feed.put_at(id, "same second", -100);
        }
        gateway.sync();
        feed.assert_equal(&gateway);
        // And more with that very time, behind the pass.
        for id in 11..=14 {
            feed.put_at(id, "same second, later seen", -100);
        }
        gateway.clock.advance(MINUTE);
        assert_eq!(gateway.sync().tally.added, 4);
        feed.assert_equal(&gateway);
    }
}

/// Keyset pages by time alone: a page full of one time leads to itself, which must not pass for the end.
#[test]
fn a_page_full_of_one_time_is_an_error_where_pages_go_by_time() {
    let (upstream, mut gateway) = gateway("pages = { last_key = \"/u\", param = \"from\" }");
    upstream.answer(|_| Answer::ok().json("[{\"id\":1,\"u\":5},{\"id\":2,\"u\":5}]"));
    assert_failed(&gateway.sync(), "bad-data", "goes in a circle");
}

#[test]
fn a_server_that_compares_truncated_times_hides_nothing() {
    // It keeps microseconds, shows them or not, and compares by the whole second or by the millisecond.
    for (shown, compared) in [(6, 0), (6, 3), (3, 0), (0, 6)] {
        for pull in [
            WINDOW,
            "pull = { cursor = { field = \"/u\", param = \"since\" } }\n",
        ] {
            let (upstream, mut gateway) = gateway(pull);
            let rows: &'static std::sync::Mutex<Vec<(u32, i64)>> = Box::leak(Box::default());
            let cut = |micros: i64, digits: u32| {
                let unit = 10_i64.pow(6 - digits);
                micros.div_euclid(unit) * unit
            };
            upstream.answer(move |request| {
                let since = Query::of(request).get("since").map(|text| {
                    let time: gleaner::clock::Timestamp = text.parse().unwrap();
                    cut(time.as_microsecond(), compared)
                });
                let rows = rows.lock().unwrap();
                let listed: Vec<String> = rows
                    .iter()
                    .filter(|(_, micros)| since.is_none_or(|since| cut(*micros, compared) >= since))
                    .map(|(id, micros)| {
                        let time = gleaner::clock::Timestamp::from_microsecond(cut(*micros, shown))
                            .unwrap();
                        format!("{{\"id\":{id},\"u\":\"{time}\"}}")
                    })
                    .collect();
                Answer::ok().json(format!("[{}]", listed.join(",")))
            });
            let start = 4_070_908_800_000_000; // When the story starts.
            for id in 1..=20 {
                rows.lock().unwrap().push((id, start + 400 * i64::from(id)));
                gateway.sync();
                gateway.clock.advance(Duration::from_secs(1));
            }
            assert_eq!(gateway.keys().len(), 20, "{shown} {compared} {pull}");
        }
    }
}

#[test]
fn an_empty_page_in_the_middle_ends_nothing_that_says_where_it_goes_on() {
    let styles = [
        "pages = { next = \"/next\" }",
        "pages = { token = \"/token\", param = \"p\" }",
        "pages = { token = \"/token\", param = \"p\", more = \"/more\" }",
        "pages = { next_header = \"Next-Page\" }",
        "pages = { token_header = \"X-Token\", param = \"p\" }",
        "pages = \"link\"",
        "pages = { links = \"/links\" }",
    ];
    for pages in styles {
        for pull in ["", WINDOW] {
            let (upstream, mut gateway) = gateway(&format!("{pull}records = \"/items\"\n{pages}"));
            upstream.answer(|request| {
                let at = Query::of(request).number("p").unwrap_or(0);
                let items = if at == 1 { String::new() } else { format!("{{\"id\":{at}}}") };
                if at == 3 {
                    return Answer::ok().json(format!("{{\"items\":[{items}],\"more\":false}}"));
                }
                let url = format!("/items?p={}", at + 1);
                Answer::ok()
                    .json(format!(
                        "{{\"items\":[{items}],\"next\":\"{url}\",\"token\":{},\"more\":true,\"links\":[{{\"rel\":\"next\",\"href\":\"{url}\"}}]}}",
                        at + 1
                    ))
                    .header("Next-Page", &url)
                    .header("X-Token", &(at + 1).to_string())
                    .header("Link", &format!("<{url}>; rel=\"next\""))
            });
            gateway.sync();
            assert_eq!(gateway.keys(), ["0", "2", "3"], "{pages} {pull}");
        }
    }
}

#[test]
fn has_more_for_ever_is_an_error_that_moves_nothing() {
    let table = [
        // The same page for ever.
        (
            "pages = { last_key = \"/id\", param = \"after\", more = \"/has_more\" }",
            "[{\"id\":1,\"u\":\"2098-12-31T23:00:00Z\"}]",
            "circle",
        ),
        (
            "pages = { page = \"page\", more = \"/has_more\" }",
            "[{\"id\":1,\"u\":\"2098-12-31T23:00:00Z\"}]",
            "same records",
        ),
        (
            "pages = { token = \"/t\", param = \"t\", more = \"/has_more\" }",
            "[{\"id\":1,\"u\":\"2098-12-31T23:00:00Z\"}]",
            "circle",
        ),
        // No record any more, and yet more.
        (
            "pages = { last_key = \"/id\", param = \"after\", more = \"/has_more\" }",
            "[]",
            "there is more, but not where",
        ),
        (
            "pages = { page = \"page\", more = \"/has_more\" }",
            "[]",
            "there is more, but not where",
        ),
        (
            "pages = { offset = \"o\", size = { param = \"n\", value = 1 }, more = \"/has_more\" }",
            "[]",
            "there is more, but not where",
        ),
    ];
    for (pages, items, reason) in table {
        let (upstream, mut gateway) = gateway(&format!("{WINDOW}records = \"/items\"\n{pages}"));
        let listing = |id: u32, more: bool| {
            Answer::ok().json(format!(
                "{{\"items\":[{{\"id\":{id},\"u\":\"2098-12-31T23:00:00Z\"}}],\"has_more\":{more},\"t\":null}}"
            ))
        };
        upstream.queue(listing(9, false));
        assert_eq!(gateway.sync().tally.added, 1, "{pages}");
        let asked = |upstream: &Upstream| {
            Query::of(upstream.requests().last().unwrap())
                .get("since")
                .map(str::to_owned)
        };
        gateway.clock.advance(10 * 60 * MINUTE);
        let body = format!("{{\"items\":{items},\"has_more\":true,\"t\":\"x\"}}");
        upstream.answer(move |_| Answer::ok().json(&body));
        assert_failed(&gateway.sync(), "bad-data", reason);
        let stuck = asked(&upstream);
        gateway.clock.advance(10 * 60 * MINUTE);
        upstream.answer(move |_| listing(8, false));
        assert_eq!(gateway.sync().tally.added, 1, "{pages}");
        assert_eq!(asked(&upstream), stuck, "the window did not move: {pages}");
    }
}

#[test]
fn a_null_or_wrong_total_decides_nothing() {
    for total in ["null", "0", "-1", "\"3\"", "999999"] {
        for pages in [
            "pages = { page = \"t\", first = 0 }",
            "pages = { offset = \"t\", size = { param = \"n\", value = 1 } }",
        ] {
            let (upstream, mut gateway) = gateway(&format!("records = \"/items\"\n{pages}"));
            let feed = Feed::of(&gateway);
            feed.fill(4);
            let total = total.to_owned();
            feed.serve(&upstream, move |feed, _, query| {
                let (items, ..) = paged(feed, query, "t", 1);
                Answer::ok().json(format!(
                    "{{\"total\":{total},\"total_pages\":{total},\"items\":{items}}}"
                ))
            });
            gateway.sync();
            feed.assert_equal(&gateway);
        }
    }
}

/// The server takes so many rows and drops those that the client may not see: pages come out short, or even empty.
#[test]
fn a_filter_behind_the_page_size_shortens_pages_and_ends_nothing() {
    for (pages, emptied) in [
        ("pages = { page = \"t\", first = 0 }", false),
        (
            "pages = { offset = \"o\", size = { param = \"n\", value = 4 } }",
            false,
        ),
        ("pages = { token = \"/next\", param = \"t\" }", true),
    ] {
        let (upstream, mut gateway) = gateway(&format!("records = \"/items\"\n{pages}"));
        upstream.answer(move |request| {
            let query = Query::of(request);
            let from = query
                .number("o")
                .unwrap_or_else(|| 4 * query.number("t").unwrap_or(0));
            let seen: Vec<String> = (from..(from + 4).min(20))
                .filter(|id| id % 4 == 0 && !(emptied && (4..12).contains(id)))
                .map(|id| format!("{{\"id\":{id}}}"))
                .collect();
            let next = if from + 4 < 20 {
                (from / 4 + 1).to_string()
            } else {
                "null".into()
            };
            Answer::ok().json(format!(
                "{{\"items\":[{}],\"next\":{next}}}",
                seen.join(",")
            ))
        });
        let report = gateway.sync();
        let keys = gateway.keys();
        let expected: &[&str] = if emptied {
            &["0", "12", "16"]
        } else {
            &["0", "4", "8", "12", "16"]
        };
        assert_eq!(keys, expected, "{pages}: {report}");
    }
}

#[test]
fn a_token_that_dies_in_the_middle_starts_the_pass_once_more_and_no_more_than_once() {
    for pull in [
        "",
        WINDOW,
        "pull = { cursor = { pointer = \"/end\", param = \"since\" } }\n",
    ] {
        for status in [400, 404, 410] {
            let (upstream, mut gateway) = gateway(&format!(
                "{pull}records = \"/items\"\npages = {{ token = \"/next\", param = \"t\" }}"
            ));
            let page = |id: u32, next: &str| {
                Answer::ok().json(format!(
                    "{{\"items\":[{{\"id\":{id}}}],\"next\":{next},\"end\":\"2099-01-01T00:00:00Z\"}}"
                ))
            };
            upstream.queue(page(1, "\"dead\""));
            upstream.queue(Answer::status(status));
            upstream.queue(page(1, "\"alive\""));
            upstream.queue(page(2, "null"));
            let report = gateway.sync();
            assert_eq!(
                report.outcome,
                Outcome::Changed,
                "{pull} {status}: {report}"
            );
            assert_eq!(gateway.keys(), ["1", "2"]);

            let asked = upstream.requests().len();
            upstream.answer(move |request| {
                if Query::of(request).has("t") {
                    Answer::status(status)
                } else {
                    page(1, "\"dead\"")
                }
            });
            let report = gateway.sync();
            assert!(!report.outcome.is_complete(), "{pull} {status}: {report}");
            assert_eq!(upstream.requests().len() - asked, 4, "{pull} {status}");
            assert_eq!(gateway.keys(), ["1", "2"], "nothing is taken for gone");
        }
    }
}

#[test]
fn a_cursor_that_stands_at_zero_is_a_cursor() {
    for (from, answer) in [
        ("pointer = \"/end\"", "{\"items\":[{\"id\":1}],\"end\":0}"),
        (
            "pointer = \"/end\"",
            "{\"items\":[{\"id\":1}],\"end\":\"0\"}",
        ),
        ("field = \"/seq\"", "{\"items\":[{\"id\":1,\"seq\":0}]}"),
        ("header = \"X-Seq\"", "{\"items\":[{\"id\":1}]}"),
    ] {
        let (upstream, mut gateway) = gateway(&format!(
            "records = \"/items\"\npull = {{ cursor = {{ {from}, param = \"after\" }} }}"
        ));
        upstream.answer(move |_| Answer::ok().header("X-Seq", "0").json(answer));
        gateway.sync();
        gateway.restart();
        for _ in 0..3 {
            let report = gateway.sync();
            assert_eq!(
                (report.pull.as_str(), report.outcome),
                ("cursor", Outcome::Unchanged),
                "{from}"
            );
            assert_eq!(
                Query::of(upstream.requests().last().unwrap()).get("after"),
                Some("0"),
                "{from}"
            );
        }
    }
}

#[test]
fn times_in_several_zones_are_compared_as_instants() {
    // 03:00+09:00 is 18:00Z of the day before: the greater string is the earlier instant.
    let (upstream, mut gateway) =
        gateway("updated = \"/u\"\npull = { cursor = { field = \"/u\", param = \"after\" } }");
    let report = read(
        &upstream,
        &mut gateway,
        &[
            "[{\"id\":1,\"v\":\"new\",\"u\":\"2098-05-01T01:00:00Z\"},{\"id\":1,\"v\":\"old\",\"u\":\"2098-05-01T03:00:00+09:00\"}]",
        ],
    );
    assert_eq!(report.tally.duplicates, 1);
    assert!(gateway.rows()[0].1.contains("new"), "{:?}", gateway.rows());
    read(
        &upstream,
        &mut gateway,
        &["[{\"id\":2,\"u\":\"2098-05-01T10:30:00+09:00\"}]"],
    );
    let after = |upstream: &Upstream| {
        Query::of(upstream.requests().last().unwrap())
            .get("after")
            .unwrap()
            .to_owned()
    };
    assert_eq!(after(&upstream), "2098-05-01T01:00:00Z");
    read(&upstream, &mut gateway, &["[]"]);
    assert_eq!(
        after(&upstream),
        "2098-05-01T10:30:00+09:00",
        "with its plus sign"
    );
}

#[test]
fn numbers_in_strings_are_greater_as_numbers() {
    let (upstream, mut gateway) =
        gateway("pull = { cursor = { field = \"/seq\", param = \"after\" } }");
    read(
        &upstream,
        &mut gateway,
        &[
            "[{\"id\":1,\"seq\":\"9\"},{\"id\":2,\"seq\":\"10\"}]",
            "[{\"id\":3,\"seq\":\"8\"}]",
        ],
    );
    read(&upstream, &mut gateway, &["[]"]);
    assert_eq!(
        Query::of(upstream.requests().last().unwrap()).get("after"),
        Some("10")
    );
}

#[test]
fn keys_that_are_numbers_here_and_strings_there_are_different_and_that_is_said() {
    let (upstream, mut gateway) = gateway("pages = \"link\"");
    let report = read(
        &upstream,
        &mut gateway,
        &["[{\"id\":7},{\"id\":8}]", "[{\"id\":\"7\"}]"],
    );
    assert_eq!(report.tally.added, 3, "{report}");
    assert!(
        report
            .notes
            .iter()
            .any(|note| note.contains("numbers in some records and strings in others")),
        "{:?}",
        report.notes
    );
    for page in ["[{\"id\":7},{\"id\":8}]", "[{\"id\":\"a\"},{\"id\":\"7\"}]"] {
        let (upstream, mut gateway) = self::gateway("pages = \"link\"");
        let report = read(&upstream, &mut gateway, &[page]);
        assert_eq!(report.notes, [""; 0], "{page}");
    }
}

#[test]
fn a_record_from_the_future_takes_no_cursor_along() {
    let (upstream, mut gateway) =
        gateway("pull = { cursor = { field = \"/u\", param = \"since\" } }\ndeleted = \"/gone\"");
    let feed = Feed::of(&gateway);
    feed.serve(&upstream, |feed, _, query| {
        let (items, ..) = paged(feed, query, "t", 1000);
        Answer::ok().json(items)
    });
    feed.put_at(1, "now", -60);
    feed.put_at(2, "from the future", 365 * 86_400);
    gateway.sync();
    for id in 3..6 {
        gateway.clock.advance(10 * MINUTE);
        feed.put(id, "news");
        assert_eq!(gateway.sync().tally.added, 1, "{id}");
    }
    feed.assert_equal(&gateway);
}

#[test]
fn of_two_forms_of_a_record_in_one_pass_the_later_update_wins_whichever_page_it_is_on() {
    let new = "[{\"id\":1,\"v\":\"new\",\"u\":\"2098-01-02T00:00:00Z\"}]";
    let old = "[{\"id\":1,\"v\":\"old\",\"u\":\"2098-01-01T00:00:00Z\"}]";
    for pages in [[new, old], [old, new]] {
        let (upstream, mut gateway) = gateway("updated = \"/u\"\npages = \"link\"");
        for _ in 0..2 {
            read(&upstream, &mut gateway, &pages);
            assert!(gateway.rows()[0].1.contains("new"), "{pages:?}");
        }
        // The next pass finds the older form alone: that is what upstream has now.
        read(&upstream, &mut gateway, &[old]);
        assert!(gateway.rows()[0].1.contains("old"), "{pages:?}");
    }
}

#[test]
fn a_listing_whose_order_changes_between_its_pages_deletes_nothing() {
    for pull in ["", WINDOW] {
        let (upstream, mut gateway) = gateway(&format!(
            "{pull}pages = {{ page = \"page\" }}\nrecords = \"/items\""
        ));
        let feed = Feed::of(&gateway);
        feed.serve(&upstream, |feed, _, query| {
            let mut list = feed.since(query.instant("since"));
            let page = query.number("page").unwrap() - 1;
            // Once, the second page is of the other order.
            if page == 1 && feed.flips() {
                list.reverse();
            }
            let items = json(slice(&list, page * 4, 4), |entry| {
                format!(
                    "{{\"id\":{},\"v\":\"{}\",\"u\":\"{}\"}}",
                    entry.id,
                    entry.value,
                    entry.time()
                )
            });
            Answer::ok().json(format!("{{\"items\":{items}}}"))
        });
        for id in 1..=11 {
            feed.put_at(id, "x", -60 - i64::from(id));
        }
        gateway.sync();
        feed.assert_equal(&gateway);
        gateway.clock.advance(MINUTE);
        feed.put(12, "y");
        feed.flip_once();
        let report = gateway.sync();
        assert_eq!(report.tally.deleted, 0, "{report}");
        gateway.clock.advance(MINUTE);
        gateway.sync();
        feed.assert_equal(&gateway);
    }
}

#[test]
fn a_tombstone_and_its_record_end_as_the_later_one_in_either_order_on_one_page_or_two() {
    let living = "{\"id\":1,\"v\":\"x\",\"u\":\"2098-01-01T00:00:00Z\"}";
    let tombstone = "{\"id\":1,\"gone\":true,\"u\":\"2098-01-02T00:00:00Z\"}";
    let undeleted = "{\"id\":1,\"v\":\"back\",\"u\":\"2098-01-03T00:00:00Z\"}";
    let orders = [
        [living, tombstone],
        [tombstone, living],
        [tombstone, undeleted],
        [undeleted, tombstone],
    ];
    for [a, b] in orders {
        let lives = a == undeleted || b == undeleted;
        for known in [false, true] {
            for apart in [false, true] {
                let (upstream, mut gateway) =
                    gateway("deleted = \"/gone\"\nupdated = \"/u\"\npages = \"link\"");
                let other = "[{\"id\":2}]".to_owned();
                if known {
                    read(&upstream, &mut gateway, &[&other, &format!("[{living}]")]);
                }
                let pages = if apart {
                    vec![format!("[{{\"id\":2}},{a}]"), format!("[{b}]")]
                } else {
                    vec![format!("[{{\"id\":2}},{a},{b}]")]
                };
                let pages: Vec<&str> = pages.iter().map(String::as_str).collect();
                read(&upstream, &mut gateway, &pages);
                let expected: &[&str] = if lives { &["1", "2"] } else { &["2"] };
                assert_eq!(
                    gateway.keys(),
                    expected,
                    "{a} {b}, known {known}, on two pages {apart}"
                );
            }
        }
    }
}

#[test]
fn an_undeleted_record_comes_back_by_window_and_by_cursor() {
    for pull in [
        WINDOW,
        "pull = { cursor = { field = \"/u\", param = \"since\" } }\n",
    ] {
        let (upstream, mut gateway) = gateway(&format!("{pull}deleted = \"/gone\""));
        let feed = Feed::of(&gateway);
        feed.serve(&upstream, |feed, _, query| {
            let list = feed.since(query.instant("since"));
            Answer::ok().json(json(&list, |entry| {
                format!(
                    "{{\"id\":{},\"v\":\"{}\",\"u\":\"{}\",\"gone\":{}}}",
                    entry.id,
                    entry.value,
                    entry.time(),
                    entry.gone
                )
            }))
        });
        feed.fill(3);
        gateway.sync();
        for _ in 0..2 {
            gateway.clock.advance(MINUTE);
            feed.delete(2);
            assert_eq!(gateway.sync().tally.deleted, 1, "{pull}");
            gateway.clock.advance(MINUTE);
            feed.put(2, "first");
            assert_eq!(gateway.sync().tally.added, 1, "{pull}");
            feed.assert_equal(&gateway);
        }
    }
}

#[test]
fn a_null_body_is_a_tombstone_where_the_config_says_so() {
    let (upstream, mut gateway) = gateway(
        "deleted = { pointer = \"/data\", null = true }\nrequire = { \"/data/name\" = \"string\" }",
    );
    read(
        &upstream,
        &mut gateway,
        &["[{\"id\":1,\"data\":{\"name\":\"a\"}},{\"id\":2,\"data\":{\"name\":\"b\"}}]"],
    );
    let report = read(
        &upstream,
        &mut gateway,
        &["[{\"id\":1,\"data\":null},{\"id\":2,\"data\":{\"name\":\"b\"}}]"],
    );
    assert_eq!(
        (report.tally.deleted, report.tally.unchanged),
        (1, 1),
        "{report}"
    );
    // Nothing at all there is no tombstone: here it breaks the contract.
    let report = read(&upstream, &mut gateway, &["[{\"id\":2}]"]);
    assert_failed(&report, "bad-data", "/data/name");
    assert_eq!(gateway.keys(), ["2"]);
}
