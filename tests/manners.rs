//! How often an upstream lets itself be asked: what it says is honoured by all its sources, and across restarts.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot be set up has failed"
)]

mod support;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use gleaner::agent::Order;
use gleaner::clock::{Clock, FakeClock, Mono};
use support::agent::{Gateway, assert_failed, logged};
use support::upstream::{Answer, Request, Upstream};

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

const EVERY_MINUTE: &str = "every = \"1m\"\njitter = \"0s\"";

fn one() -> Answer {
    Answer::ok().json("[{\"id\":1}]")
}

/// What `sync` without a name does: it does not insist.
fn modest(gateway: &mut Gateway) -> gleaner::pull::report::Report {
    gateway.order(Order::default())
}

/// A second source of the same upstream.
const MORE: &str = "[source.more]\nupstream = \"up\"\npath = \"more\"\nkey = \"/id\"\nevery = \"1m\"\njitter = \"0s\"\n";

#[test]
fn a_pause_is_shared_by_all_sources_of_an_upstream_and_by_no_other() {
    let (upstream, other) = (Upstream::start(), Upstream::start());
    other.answer(|_| one());
    upstream.answer(|request| match request.path() {
        "/items" => Answer::status(503).header("Retry-After", "3600"),
        _ => one(),
    });
    let elsewhere = format!(
        "[upstream.b]\nbase = {:?}\nproxy = \"\"\n[source.elsewhere]\nupstream = \"b\"\npath = \"x\"\nkey = \"/id\"\n",
        other.url("/")
    );
    let mut gateway = Gateway::of(&upstream)
        .source(EVERY_MINUTE)
        .more(&(MORE.to_owned() + &elsewhere))
        .start();
    for _ in 0..3 {
        gateway.run_until_idle();
    }
    assert_eq!(upstream.requests().len(), 1, "`more` was not even asked");
    assert!(other.requests().len() > 1);
    let now = gateway.now();
    let more = gateway.agent().desk().status(now).sources["more"].clone();
    assert_eq!(
        (more.outcome.as_str(), more.due_why.as_str()),
        ("throttled", "asked to wait")
    );
    assert!(
        more.reason.starts_with("the upstream asked to wait, "),
        "{more:?}"
    );
}

#[test]
fn a_spent_limit_is_waited_out_and_what_is_left_slows_nothing() {
    for (spent, left) in [
        ("\"default\";r=0;t=1800", "\"default\";r=1;t=1800"),
        (
            "limit=9, remaining=0, reset=1800",
            "limit=9, remaining=1, reset=1800",
        ),
    ] {
        let upstream = Upstream::start();
        upstream.answer(move |_| one().header("RateLimit", left));
        let mut gateway = Gateway::of(&upstream).source(EVERY_MINUTE).start();
        assert_eq!(gateway.run_until_idle(), seconds(60));

        upstream.queue(one().header("RateLimit", spent));
        let slept = gateway.run_until_idle();
        assert!(
            (seconds(1800)..=seconds(1981)).contains(&slept),
            "{slept:?}"
        );
        let status = gateway.status();
        assert_eq!(
            (status.outcome.as_str(), status.due_why.as_str()),
            ("unchanged", "asked to wait")
        );
        assert_eq!(gateway.run_until_idle(), seconds(60));
    }
}

#[test]
fn a_limit_that_is_spent_between_pages_ends_the_pass_which_then_goes_on() {
    let upstream = Upstream::start();
    upstream.answer(|request| match request.target.as_str() {
        "/items" => one()
            .header("Link", "</items?p=2>; rel=\"next\"")
            .header("X-RateLimit-Remaining", "0")
            .header("X-RateLimit-Reset", "600"),
        _ => Answer::ok().json("[{\"id\":2}]"),
    });
    let mut gateway = Gateway::of(&upstream)
        .source("pages = \"link\"\nevery = \"1m\"\njitter = \"0s\"")
        .start();
    let report = modest(&mut gateway);
    assert_failed(
        &report,
        "throttled",
        "the upstream allows no further request until its limit is reset, 600 s are left",
    );
    assert_eq!(gateway.keys(), ["1"]);
    assert_failed(&modest(&mut gateway), "throttled", "600 s are left");
    assert_eq!(upstream.requests().len(), 1);

    gateway.clock.advance(seconds(601));
    upstream.answer(|request| match request.target.as_str() {
        "/items" => one().header("Link", "</items?p=2>; rel=\"next\""),
        _ => Answer::ok().json("[{\"id\":2}]"),
    });
    assert_eq!(modest(&mut gateway).outcome.word(), "changed");
    assert_eq!(gateway.keys(), ["1", "2"]);
    assert_eq!(
        upstream.requests()[1].target,
        "/items?p=2",
        "behind its last page"
    );
}

#[test]
fn a_short_pause_between_pages_is_sat_out() {
    let upstream = Upstream::start();
    upstream.answer(|request| match request.target.as_str() {
        "/items" => one()
            .header("Link", "</items?p=2>; rel=\"next\"")
            .header("Backoff", "20"),
        _ => Answer::ok().json("[{\"id\":2}]"),
    });
    let mut gateway = Gateway::of(&upstream).source("pages = \"link\"").start();
    let before = gateway.now();
    assert_eq!(modest(&mut gateway).outcome.word(), "changed");
    assert_eq!(gateway.now().since(before), seconds(20));
}

#[test]
fn backoff_on_a_success_puts_off_the_whole_upstream() {
    let upstream = Upstream::start();
    upstream.answer(|_| one().header("Backoff", "7200"));
    let mut gateway = Gateway::of(&upstream)
        .source(EVERY_MINUTE)
        .more(MORE)
        .start();
    let slept = gateway.run_until_idle();
    assert!(
        (seconds(7200)..=seconds(7921)).contains(&slept),
        "{slept:?}"
    );
    assert_eq!(upstream.requests().len(), 1);
    assert_eq!(
        gateway.status().outcome,
        "changed",
        "the answer itself is taken"
    );
}

#[test]
fn a_person_who_names_the_source_is_answered_all_the_same() {
    let upstream = Upstream::start();
    upstream.queue(one().header("Backoff", "7200"));
    upstream.answer(|_| one());
    let mut gateway = Gateway::of(&upstream).source(EVERY_MINUTE).start();
    assert_eq!(modest(&mut gateway).outcome.word(), "changed");
    assert_failed(
        &modest(&mut gateway),
        "throttled",
        "(name the source to ask all the same)",
    );
    assert_eq!(gateway.word(), "unchanged");
    gateway.restart();
    assert_eq!(
        modest(&mut gateway).outcome.word(),
        "unchanged",
        "and the pause is forgotten"
    );
}

#[test]
fn a_long_pause_outlives_the_process_and_a_short_one_costs_no_write() {
    let upstream = Upstream::start();
    upstream.queue(one());
    upstream.queue(Answer::status(429).header("Retry-After", "7200"));
    let mut gateway = Gateway::of(&upstream)
        .source(EVERY_MINUTE)
        .more(MORE)
        .start();
    gateway.sync();
    assert_failed(&gateway.sync(), "throttled", "7200 s");
    gateway.clock.advance(seconds(600));
    gateway.restart();
    assert_failed(&modest(&mut gateway), "throttled", "6600 s are left");
    assert_eq!(upstream.requests().len(), 2);
    // A clock that woke in the past, or in the future, makes nobody wait for ever.
    for wall in ["1970-01-01T00:00:07Z", "2141-01-01T00:00:00Z"] {
        gateway.stop();
        gateway.clock.set_wall(wall.parse().unwrap());
        gateway.clock.reboot();
        gateway.restart();
        upstream.queue(one());
        assert_eq!(modest(&mut gateway).outcome.word(), "unchanged", "{wall}");
    }

    let upstream = Upstream::start();
    upstream.queue(one());
    upstream.answer(|_| Answer::status(429).header("Retry-After", "29"));
    let mut gateway = Gateway::of(&upstream).source(EVERY_MINUTE).start();
    gateway.sync();
    gateway.sync();
    gateway.restart();
    modest(&mut gateway);
    assert_eq!(upstream.requests().len(), 3, "it asks again");
}

#[test]
fn a_poll_interval_is_kept_on_a_304_too_and_is_no_pause() {
    let upstream = Upstream::start();
    upstream.answer(|request| {
        support::agent::conditional(request, "\"1\"", "[{\"id\":1}]")
            .header("X-Poll-Interval", "300")
    });
    let mut gateway = Gateway::of(&upstream).source(EVERY_MINUTE).start();
    for _ in 0..2 {
        let slept = gateway.run_until_idle();
        assert!((seconds(300)..=seconds(331)).contains(&slept), "{slept:?}");
        assert_eq!(gateway.status().due_why, "the upstream's poll interval");
    }
    assert_eq!(
        modest(&mut gateway).outcome.word(),
        "unchanged",
        "a wish is no poll"
    );
    // Less than what the config says changes nothing.
    upstream.answer(|_| one().header("X-Poll-Interval", "30"));
    gateway.run_until_idle();
    assert_eq!(gateway.run_until_idle(), seconds(60));
}

#[test]
fn an_alert_is_shown_in_status_and_logged_once() {
    let upstream = Upstream::start();
    let alert =
        r#"{"code": "soft-eol", "message": "this service ends in May", "url": "http://a.example"}"#;
    upstream.answer(move |_| one().header("Alert", alert));
    let mut gateway = Gateway::of(&upstream).start();
    let said = "the upstream warns: soft-eol: this service ends in May (http://a.example)";
    for times in [1, 0] {
        logged();
        gateway.sync();
        assert_eq!(gateway.status().notes, [said]);
        let lines = logged();
        assert_eq!(
            lines.iter().filter(|line| line.contains(said)).count(),
            times
        );
    }
    upstream.answer(|_| one());
    gateway.sync();
    assert!(gateway.status().notes.is_empty());
}

/// An upstream that notes when it was asked, by the gateway's clock.
fn noting(
    upstream: &Upstream,
    clock: &Arc<FakeClock>,
    answer: fn(&Request) -> Answer,
) -> Arc<Mutex<Vec<Mono>>> {
    let (clock, asked) = (Arc::clone(clock), Arc::new(Mutex::new(Vec::new())));
    let noted = Arc::clone(&asked);
    upstream.answer(move |request| {
        noted.lock().unwrap().push(clock.mono());
        answer(request)
    });
    asked
}

#[test]
fn requests_keep_their_distance_between_pages_and_between_sources() {
    let upstream = Upstream::start();
    let mut gateway = Gateway::of(&upstream)
        .upstream("min_interval = \"7s\"")
        .source("pages = \"link\"\nevery = \"1m\"\njitter = \"0s\"")
        .more(MORE)
        .start();
    let asked = noting(&upstream, &gateway.clock, |request| {
        match request.target.as_str() {
            "/items" => one().header("Link", "</items?p=2>; rel=\"next\""),
            "/items?p=2" => Answer::ok().json("[{\"id\":2}]"),
            _ => one(),
        }
    });
    gateway.run_until_idle();
    let asked = asked.lock().unwrap();
    assert_eq!(asked.len(), 3);
    for pair in asked.windows(2) {
        assert_eq!(pair[1].since(pair[0]), seconds(7));
    }
}

#[test]
fn a_redirect_that_asks_to_wait_is_followed_later() {
    let upstream = Upstream::start();
    upstream.answer(|request| match request.path() {
        "/items" => Answer::redirect(307, "/there").header("Retry-After", "15"),
        _ => one(),
    });
    let mut gateway = Gateway::of(&upstream).start();
    let before = gateway.now();
    assert_eq!(gateway.word(), "changed");
    assert_eq!(gateway.now().since(before), seconds(15));

    upstream.answer(|_| Answer::redirect(307, "/there").header("Retry-After", "1500"));
    assert_failed(&gateway.sync(), "throttled", "1500 s are left");
    // On an answer that is none of these it means nothing.
    upstream.answer(|_| one().header("Retry-After", "1500"));
    assert_eq!(gateway.word(), "unchanged");
    assert_eq!(modest(&mut gateway).outcome.word(), "unchanged");
}

#[test]
fn where_a_redirect_leads_is_not_whom_the_pause_is_for() {
    let (upstream, elsewhere) = (Upstream::start(), Upstream::start());
    let there = elsewhere.url("/there");
    upstream.answer(move |_| Answer::redirect(307, &there));
    elsewhere.answer(|_| one().header("Backoff", "7200"));
    let mut gateway = Gateway::of(&upstream).start();
    assert_eq!(modest(&mut gateway).outcome.word(), "changed");
    assert_eq!(modest(&mut gateway).outcome.word(), "unchanged");
}
