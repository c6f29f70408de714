//! APIs as they are: what a config for each looks like, and that the copy ends equal although records move, pages repeat and
//! parameters may not be sent twice. Each config is the one of `examples/`.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot be set up has failed"
)]

mod support;

use std::time::Duration;

use gleaner::pull::report::Outcome;
use support::agent::Gateway;
use support::feed::{Entry, Feed, Query, json, slice};
use support::upstream::{Answer, Upstream};

const MINUTE: Duration = Duration::from_secs(60);

/// An upstream and a gateway with these lines for its source.
fn gateway(lines: &str) -> (Upstream, Gateway, Feed) {
    let upstream = Upstream::start();
    let gateway = Gateway::of(&upstream).source(lines).start();
    let feed = Feed::of(&gateway);
    (upstream, gateway, feed)
}

/// First everything, then nothing, then what changed, came and (where the API says so) went.
fn keeps_a_copy(gateway: &mut Gateway, feed: &Feed, tombstones: bool) {
    let report = gateway.sync();
    assert_eq!(report.pull, "full", "{report}");
    feed.assert_equal(gateway);
    gateway.clock.advance(MINUTE);
    let report = gateway.sync();
    assert_eq!(report.outcome, Outcome::Unchanged, "{report}");
    gateway.clock.advance(MINUTE);
    feed.put(2, "edited");
    feed.put(100, "new");
    if tombstones {
        feed.delete(3);
    }
    let report = gateway.sync();
    assert_eq!(
        (
            report.tally.added,
            report.tally.changed,
            report.tally.deleted
        ),
        (1, 1, tombstones.into()),
        "{report}"
    );
    feed.assert_equal(gateway);
    gateway.clock.advance(MINUTE);
    gateway.restart();
    let report = gateway.sync();
    assert_eq!(report.outcome, Outcome::Unchanged, "{report}");
}

fn etag(text: &str) -> String {
    let hash = text.bytes().fold(5381_u64, |hash, byte| {
        hash.wrapping_mul(33) ^ u64::from(byte)
    });
    format!("\"{hash:x}\"")
}

/// `since`, sorted by update in either direction, ten a page behind a `Link`; an entity tag and a poll interval.
fn github(feed: &Feed, query: &Query, tag: Option<&str>) -> Answer {
    assert_eq!(query.get("state"), Some("all"));
    let mut list = feed.since(query.instant("since"));
    if query.get("direction") != Some("asc") {
        list.reverse();
    }
    let page = query.number("page").unwrap_or(1);
    let body = json(slice(&list, (page - 1) * 10, 10), |entry| {
        format!(
            "{{\"id\":9{},\"number\":{},\"v\":\"{}\",\"updated_at\":\"{}\"}}",
            entry.id,
            entry.id,
            entry.value,
            entry.time()
        )
    });
    let answer = if tag == Some(&etag(&body)) {
        Answer::not_modified()
    } else {
        Answer::ok().json(&body)
    };
    let answer = answer.etag(&etag(&body)).header("X-Poll-Interval", "60");
    if page * 10 >= list.len() {
        return answer;
    }
    let since = query
        .get("since")
        .map_or_else(String::new, |since| format!("&since={since}"));
    let direction = query.get("direction").unwrap_or("desc");
    answer.header(
        "Link",
        &format!("</repositories/1/issues?state=all&sort=updated&direction={direction}{since}&page={}>; rel=\"next\", </x>; rel=\"last\"", page + 1),
    )
}

#[test]
fn github_issues_in_either_order_hide_nothing_that_is_edited_while_pages_are_read() {
    for direction in ["asc", "desc"] {
        let (upstream, mut gateway, feed) = gateway(&format!(
            "key = \"/number\"\nparams = {{ state = \"all\", sort = \"updated\", direction = \"{direction}\" }}\n\
             pull = {{ window = {{ field = \"/updated_at\", since = \"since\", lateness = \"1h\" }} }}\npages = \"link\""
        ));
        feed.serve(&upstream, |feed, request, query| {
            github(feed, query, request.header("if-none-match"))
        });
        feed.fill(35);
        keeps_a_copy(&mut gateway, &feed, false);

        // Many come at once, and while they are read one of the first page is edited: others move up or down by one.
        gateway.clock.advance(24 * 60 * MINUTE);
        for id in 200..235 {
            feed.put_at(id, "many", i64::from(id) - 235);
        }
        let served = upstream.requests().len();
        feed.meanwhile(move |feed, number| {
            if number == served + 2 {
                feed.put(if feed.since(None).is_empty() { 0 } else { 201 }, "edited");
            }
        });
        gateway.sync();
        gateway.clock.advance(MINUTE);
        gateway.sync();
        feed.assert_equal(&gateway);
    }
}

/// The newest first, a page behind the last id of the one before, as long as `has_more`.
fn stripe(feed: &Feed, query: &Query) -> Answer {
    let since = query.get("created[gte]").map(|text| text.parse().unwrap());
    let mut list = feed.since(since);
    list.reverse();
    let from = query.get("starting_after").map_or(0, |last| {
        1 + list
            .iter()
            .position(|entry| entry.id.to_string() == last)
            .unwrap()
    });
    let limit = query.number("limit").unwrap();
    let data = json(slice(&list, from, limit), |entry| {
        format!(
            "{{\"id\":\"{}\",\"object\":\"event\",\"created\":{},\"v\":\"{}\"}}",
            entry.id, entry.updated, entry.value
        )
    });
    let more = from + limit < list.len();
    Answer::ok().json(format!(
        "{{\"object\":\"list\",\"data\":{data},\"has_more\":{more},\"url\":\"/v1/events\"}}"
    ))
}

#[test]
fn stripe_events_are_read_back_to_where_the_last_pass_began_or_by_the_latest_one() {
    for pull in [
        "{ window = { field = \"/created\", format = \"epoch-s\", since = \"created[gte]\", lateness = \"1h\" } }",
        "{ cursor = { field = \"/created\", param = \"created[gte]\" } }",
    ] {
        let (upstream, mut gateway, feed) = gateway(&format!(
            "params = {{ limit = 5 }}\nrecords = \"/data\"\npull = {pull}\n\
             pages = {{ last_key = \"/id\", param = \"starting_after\", more = \"/has_more\" }}"
        ));
        feed.serve(&upstream, |feed, _, query| stripe(feed, query));
        feed.fill(12);
        keeps_a_copy(&mut gateway, &feed, false);

        // Two in one second, the second one visible behind the pass that read the first.
        feed.put(300, "first of this second");
        gateway.sync();
        feed.put(301, "second of this second");
        gateway.clock.advance(MINUTE);
        gateway.sync();
        feed.assert_equal(&gateway);
    }
}

#[test]
fn events_that_upstream_keeps_no_longer_stay_in_the_copy() {
    let (upstream, mut gateway, feed) = gateway(
        "params = { limit = 5 }\nrecords = \"/data\"\n\
         pull = { window = { field = \"/created\", format = \"epoch-s\", since = \"created[gte]\", lateness = \"1h\", first = \"29d\" } }\n\
         pages = { last_key = \"/id\", param = \"starting_after\", more = \"/has_more\" }",
    );
    feed.serve(&upstream, |feed, _, query| stripe(feed, query));
    feed.fill(12);
    gateway.sync();
    gateway.clock.advance(MINUTE * 60 * 24 * 35);
    feed.forget_before(-30 * 86_400);
    feed.put(50, "new");
    let report = gateway.sync();
    assert_eq!(
        (report.pull.as_str(), report.tally.deleted),
        ("window+full", 0),
        "{report}"
    );
    assert_eq!(gateway.keys().len(), 13);
}

/// `updated_at_min` and a `Link` with `page_info`, beside which no other filter may stand.
fn shopify(feed: &Feed, query: &Query) -> Answer {
    let (since, from) = match query.get("page_info") {
        None => (query.instant("updated_at_min"), 0),
        Some(_) if query.has("updated_at_min") || query.has("status") => {
            return Answer::status(400).json(
                "{\"errors\":{\"page_info\":\"Invalid value: other parameters may not be sent\"}}",
            );
        }
        Some(info) => {
            let (since, from) = info.split_once('.').unwrap();
            (since.parse().ok(), from.parse().unwrap())
        }
    };
    let limit = query.number("limit").unwrap();
    let list = feed.since(since);
    let orders = json(slice(&list, from, limit), |entry| {
        let offset = "-04:00";
        let local = jiff::tz::Offset::constant(-4).to_datetime(entry.time());
        format!(
            "{{\"id\":{},\"v\":\"{}\",\"updated_at\":\"{local}{offset}\"}}",
            entry.id, entry.value
        )
    });
    let answer = Answer::ok().json(format!("{{\"orders\":{orders}}}"));
    let info = |from: usize| since.map_or(format!("x.{from}"), |since| format!("{since}.{from}"));
    let link = |rel: &str, from: usize| {
        format!(
            "</admin/api/orders.json?limit={limit}&page_info={}>; rel=\"{rel}\"",
            info(from)
        )
    };
    match (from > 0, from + limit < list.len()) {
        (false, false) => answer,
        (false, true) => answer.header("Link", &link("next", from + limit)),
        (true, false) => answer.header("Link", &link("previous", from - limit)),
        (true, true) => answer.header(
            "Link",
            &format!(
                "{}, {}",
                link("previous", from - limit),
                link("next", from + limit)
            ),
        ),
    }
}

#[test]
fn shopify_s_later_pages_carry_no_filter_of_ours() {
    let (upstream, mut gateway, feed) = gateway(
        "params = { limit = 5, status = \"any\" }\nrecords = \"/orders\"\n\
         pull = { window = { field = \"/updated_at\", since = \"updated_at_min\", lateness = \"1h\" } }\npages = \"link\"",
    );
    feed.serve(&upstream, |feed, _, query| shopify(feed, query));
    feed.fill(23);
    keeps_a_copy(&mut gateway, &feed, false);
}

fn ticket(entry: &Entry) -> String {
    let status = if entry.gone { "deleted" } else { "open" };
    format!(
        "{{\"id\":{},\"v\":\"{}\",\"status\":\"{status}\"}}",
        entry.id, entry.value
    )
}

const TICKETS: &str =
    "records = \"/tickets\"\ndeleted = { pointer = \"/status\", equals = \"deleted\" }\n";

#[test]
fn zendesk_s_export_by_time_ends_where_it_says_so_and_goes_on_there() {
    let (upstream, mut gateway, feed) = gateway(&format!(
        "{TICKETS}pull = {{ cursor = {{ pointer = \"/end_time\", param = \"start_time\", first = \"0\" }} }}\n\
         pages = {{ next = \"/next_page\", end = \"/end_of_stream\" }}"
    ));
    let base = upstream.url("/items");
    feed.serve(&upstream, move |feed, _, query| {
        let start: i64 = query.get("start_time").unwrap().parse().unwrap();
        let list = feed.since(Some(start));
        let page = slice(&list, 0, 5);
        let end = page.last().map_or(start, |entry| entry.updated);
        let tickets = json(page, ticket);
        // The last page's next page is itself for ever.
        Answer::ok().json(format!(
            "{{\"tickets\":{tickets},\"count\":{},\"end_time\":{end},\"end_of_stream\":{},\"next_page\":\"{base}?start_time={end}\"}}",
            page.len(),
            list.len() <= 5
        ))
    });
    feed.fill(13);
    keeps_a_copy(&mut gateway, &feed, true);
}

#[test]
fn zendesk_s_export_by_cursor_goes_on_behind_the_last_one() {
    let (upstream, mut gateway, feed) = gateway(&format!(
        "{TICKETS}params = {{ start_time = 0 }}\npull = {{ cursor = {{ pointer = \"/after_cursor\", param = \"cursor\" }} }}\n\
         pages = {{ next = \"/after_url\", end = \"/end_of_stream\" }}"
    ));
    let base = upstream.url("/items");
    feed.serve(&upstream, move |feed, _, query| {
        // A cursor is the time and the id of the last ticket, in a form of its own.
        let (time, id) = query.get("cursor").map_or((0, 0), |cursor| {
            let (time, id) = cursor.trim_end_matches('=').split_once('|').unwrap();
            (time.parse().unwrap(), id.parse().unwrap())
        });
        let list: Vec<Entry> = feed
            .since(None)
            .into_iter()
            .filter(|entry| (entry.updated, entry.id) > (time, id))
            .collect();
        let page = slice(&list, 0, 5);
        let cursor = page.last().map_or_else(
            || format!("{time}|{id}=="),
            |entry| format!("{}|{}==", entry.updated, entry.id),
        );
        Answer::ok().json(format!(
            "{{\"tickets\":{},\"after_cursor\":\"{cursor}\",\"after_url\":\"{base}?cursor={cursor}\",\"before_cursor\":null,\"end_of_stream\":{}}}",
            json(page, ticket),
            list.len() <= 5
        ))
    });
    feed.fill(13);
    keeps_a_copy(&mut gateway, &feed, true);
}

#[test]
fn salesforce_s_query_goes_on_at_a_relative_url_until_it_is_done() {
    const QUERY: &str = "SELECT Id, Name, IsDeleted, SystemModstamp FROM Part WHERE SystemModstamp >= {} ORDER BY SystemModstamp";
    let (upstream, mut gateway, feed) = gateway(&format!(
        "key = \"/Id\"\nrecords = \"/records\"\ndeleted = \"/IsDeleted\"\nignore = \"/attributes\"\n\
         pull = {{ window = {{ field = \"/SystemModstamp\", format = {{ pattern = \"%Y-%m-%dT%H:%M:%S%.f%z\" }}, \
         since = {{ param = \"q\", template = \"{QUERY}\", format = \"rfc3339\" }}, lateness = \"1h\", first = \"3650d\" }} }}\n\
         pages = {{ next = \"/nextRecordsUrl\", end = \"/done\" }}"
    ));
    feed.serve(&upstream, |feed, request, query| {
        let (since, from) = match query.get("q") {
            Some(soql) => {
                let (before, after) = QUERY.split_once("{}").unwrap();
                let since = soql.strip_prefix(before).and_then(|rest| rest.strip_suffix(after));
                let since: gleaner::clock::Timestamp = since.unwrap().parse().unwrap();
                (since.as_second(), 0)
            }
            None => {
                let locator = request.path().rsplit('/').next().unwrap();
                let (since, from) = locator.split_once('-').unwrap();
                (since.parse().unwrap(), from.parse().unwrap())
            }
        };
        let list = feed.since(Some(since));
        let records = json(slice(&list, from, 5), |entry| {
            let time = jiff::tz::Offset::UTC.to_datetime(entry.time());
            format!(
                "{{\"attributes\":{{\"type\":\"Part\"}},\"Id\":{},\"v\":\"{}\",\"IsDeleted\":{},\"SystemModstamp\":\"{time}.000+0000\"}}",
                entry.id, entry.value, entry.gone
            )
        });
        let next = if from + 5 < list.len() {
            format!("\"done\":false,\"nextRecordsUrl\":\"/services/data/v59.0/query/{since}-{}\"", from + 5)
        } else {
            "\"done\":true".to_owned()
        };
        Answer::ok().json(format!("{{\"totalSize\":{},{next},\"records\":{records}}}", list.len()))
    });
    feed.fill(13);
    keeps_a_copy(&mut gateway, &feed, true);
}

#[test]
fn ogc_api_features_link_their_pages_in_the_body_and_take_an_interval() {
    let (upstream, mut gateway, feed) = gateway(
        "params = { limit = 5 }\nrecords = \"/features\"\n\
         pull = { window = { field = \"/properties/updated\", since = { param = \"datetime\", template = \"{}/..\" }, lateness = \"1h\" } }\n\
         pages = { links = \"/links\" }",
    );
    feed.serve(&upstream, |feed, _, query| {
        let since = query.get("datetime").map(|interval| {
            let since: gleaner::clock::Timestamp =
                interval.strip_suffix("/..").unwrap().parse().unwrap();
            since.as_second()
        });
        let list = feed.since(since);
        let from = query.number("offset").unwrap_or(0);
        let features = json(slice(&list, from, 5), |entry| {
            format!(
                "{{\"type\":\"Feature\",\"id\":{},\"v\":\"{}\",\"properties\":{{\"updated\":\"{}\"}}}}",
                entry.id,
                entry.value,
                entry.time()
            )
        });
        let datetime = query
            .get("datetime")
            .map_or_else(String::new, |interval| format!("&datetime={interval}"));
        let link = |rel: &str, media: &str, from: usize| {
            format!("{{\"rel\":\"{rel}\",\"type\":\"{media}\",\"href\":\"/items?limit=5{datetime}&offset={from}\"}}")
        };
        let mut links = vec![link("self", "application/geo+json", from)];
        if from + 5 < list.len() {
            links.push("{\"rel\":\"next\",\"type\":\"text/html\",\"href\":\"/for/people\"}".to_owned());
            links.push(link("next", "application/geo+json", from + 5));
        }
        Answer::ok().json(format!(
            "{{\"type\":\"FeatureCollection\",\"features\":{features},\"links\":[{}],\"numberMatched\":{}}}",
            links.join(","),
            list.len()
        ))
    });
    feed.fill(13);
    keeps_a_copy(&mut gateway, &feed, false);
}

#[test]
fn a_listing_by_offset_that_grows_at_its_front_while_it_is_read_loses_nothing() {
    let (upstream, mut gateway, feed) = gateway(
        "records = \"/rows\"\npull = { window = { field = \"/u\", format = \"epoch-s\", since = \"modified_since\", lateness = \"1h\" } }\n\
         pages = { offset = \"offset\", size = { param = \"limit\", value = 5 } }",
    );
    feed.serve(&upstream, |feed, _, query| {
        let mut list = feed.since(
            query
                .get("modified_since")
                .map(|text| text.parse().unwrap()),
        );
        list.reverse();
        let page = slice(&list, query.number("offset").unwrap(), 5);
        let rows = json(page, |entry| {
            format!(
                "{{\"id\":{},\"v\":\"{}\",\"u\":{}}}",
                entry.id, entry.value, entry.updated
            )
        });
        Answer::ok().json(format!("{{\"total\":{},\"rows\":{rows}}}", list.len()))
    });
    feed.fill(13);
    // One comes and one goes between each two of the first pages.
    feed.meanwhile(|feed, number| {
        let number = u32::try_from(number).unwrap();
        if (1..=4).contains(&number) {
            feed.put(50 + number, "came");
            feed.put(number, "touched");
        }
    });
    gateway.sync();
    gateway.clock.advance(MINUTE);
    gateway.sync();
    feed.assert_equal(&gateway);
}

#[test]
fn a_search_by_post_has_its_window_and_its_page_in_the_body() {
    let (upstream, mut gateway, feed) = gateway(
        "method = \"POST\"\nbody = '{\"filter\":{\"kind\":\"part\"},\"page\":1,\"size\":5}'\nrecords = \"/hits\"\n\
         deleted = \"/gone\"\n\
         pull = { window = { field = \"/updated\", since = \"/filter/since\", lateness = \"1h\" } }\n\
         pages = { page = \"/page\" }",
    );
    feed.serve(&upstream, |feed, request, query| {
        assert_eq!(request.method, "POST");
        assert!(!query.has("/page"), "{}", request.target);
        let body: serde_json::Value = serde_json::from_slice(&request.body).unwrap();
        assert_eq!(body["filter"]["kind"], "part");
        let since = body["filter"]["since"].as_str().map(|text| {
            let since: gleaner::clock::Timestamp = text.parse().unwrap();
            since.as_second()
        });
        let page = usize::try_from(body["page"].as_u64().unwrap()).unwrap();
        let list = feed.since(since);
        let hits = json(slice(&list, (page - 1) * 5, 5), |entry| {
            format!(
                "{{\"id\":{},\"v\":\"{}\",\"updated\":\"{}\",\"gone\":{}}}",
                entry.id,
                entry.value,
                entry.time(),
                entry.gone
            )
        });
        Answer::ok().json(format!("{{\"hits\":{hits}}}"))
    });
    feed.fill(13);
    keeps_a_copy(&mut gateway, &feed, true);
}
