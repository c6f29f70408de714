//! When a running agent asks, when it does not, and what it leaves on disk meanwhile. Stepped under a clock that stands
//! still unless the schedule sleeps.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot be set up has failed"
)]

mod support;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use gleaner::clock::Clock;
use gleaner::upstream::outcome::Kind;
use support::agent::{Gateway, conditional, logged, records};
use support::upstream::{Answer, Upstream};

fn seconds(span: u64) -> Duration {
    Duration::from_secs(span)
}

/// An upstream that knows conditional requests and says nothing of freshness.
fn steady() -> Upstream {
    let upstream = Upstream::start();
    upstream.answer(|request| conditional(request, "\"a\"", &records(1..=3, 1)));
    upstream
}

#[test]
fn a_source_is_asked_at_once_and_then_every_so_often_and_a_little_later() {
    let upstream = steady();
    let mut gateway = Gateway::of(&upstream)
        .source("every = \"15m\"\njitter = \"90s\"")
        .start();
    for round in 1..=8 {
        let slept = gateway.run_until_idle();
        assert_eq!(upstream.requests().len(), round);
        assert!((seconds(900)..=seconds(990)).contains(&slept), "{slept:?}");
    }
    assert_eq!(gateway.status().due_why, "every");
}

#[test]
fn what_is_fresh_is_not_asked_for_by_the_schedule_but_by_a_person() {
    for (cache, most, slept) in [
        ("max-age=3600", "1d", 3600..=3600),
        ("max-age=600", "1d", 900..=900),
        ("max-age=90000", "2h", 7200..=7200),
        ("max-age=3600, no-cache", "1d", 900..=900),
        ("max-age=99999999999999999999", "1d", 86_400..=86_400),
        ("max-age=-1", "1d", 900..=900),
    ] {
        let upstream = Upstream::start();
        upstream.answer(move |_| {
            Answer::ok()
                .header("Cache-Control", cache)
                .json(records(1..=3, 1))
        });
        let config = format!("every = \"15m\"\njitter = \"0s\"\nmax_skip = \"{most}\"");
        let mut gateway = Gateway::of(&upstream).source(&config).start();
        let span = gateway.run_until_idle();
        assert!(slept.contains(&span.as_secs()), "{cache}: {span:?}");
        let before = upstream.requests().len();
        gateway.sync();
        assert_eq!(upstream.requests().len(), before + 1, "{cache}");
    }
}

#[test]
fn what_an_upstream_asks_for_is_honoured_also_across_a_restart() {
    let upstream = steady();
    let mut gateway = Gateway::of(&upstream)
        .source("every = \"1m\"\njitter = \"0s\"")
        .start();
    gateway.run_until_idle();
    upstream.queue(Answer::status(429).header("Retry-After", "7200"));
    let slept = gateway.run_until_idle();
    assert!(
        (seconds(7200)..=seconds(7200 + 720 + 1)).contains(&slept),
        "{slept:?}"
    );
    assert_eq!(gateway.status().due_why, "asked to wait");
    gateway.run_until_idle();
    assert_eq!(
        gateway.status().outcome,
        "unchanged",
        "and forgotten once it is over"
    );

    upstream.queue(Answer::status(503).header("Retry-After", "3600"));
    let until = gateway.agent().step();
    assert_eq!(gateway.status().outcome, "throttled", "{until:?}");
    gateway.clock.advance(seconds(600));
    let asked = upstream.requests().len();
    gateway.restart();
    let slept = gateway.run_until_idle();
    assert!(
        (seconds(2990)..=seconds(3400)).contains(&slept),
        "{slept:?}"
    );
    assert_eq!(
        upstream.requests().len(),
        asked,
        "the new process waits as well"
    );
}

#[test]
fn an_http_date_is_a_retry_after_too_and_garbage_is_none() {
    for (field, least, most) in [
        ("Thu, 01 Jan 2099 01:00:00 GMT", 3600, 3961),
        ("1.5", 2, 4),
        ("999999999999", 86_400, 95_041),
        ("soon", 6, 60),
        ("-5", 6, 60),
        ("", 6, 60),
        ("0", 6, 60),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 6, 60),
    ] {
        let upstream = Upstream::start();
        upstream.answer(move |_| Answer::status(429).header("Retry-After", field));
        let mut gateway = Gateway::of(&upstream).start();
        let slept = gateway.run_until_idle();
        assert!(
            (seconds(least)..=seconds(most)).contains(&slept),
            "{field}: {slept:?}"
        );
    }
}

#[test]
fn failures_are_asked_for_less_and_less_and_said_once() {
    let upstream = steady();
    let mut gateway = Gateway::of(&upstream)
        .source("every = \"1m\"\njitter = \"0s\"")
        .start();
    gateway.run_until_idle();
    logged();
    upstream.answer(|_| Answer::status(500));
    let mut longest = Duration::ZERO;
    for round in 1..=20u32 {
        let slept = gateway.run_until_idle();
        let ceiling = seconds(10) * (1 << (round - 1).min(9));
        assert!(slept <= ceiling.min(seconds(3600)), "{round}: {slept:?}");
        assert!(slept >= seconds(1), "never at once");
        longest = longest.max(slept);
    }
    assert!(longest > seconds(60), "{longest:?}");
    assert_eq!(gateway.status().failures, 20);
    let loud = |lines: &[String]| {
        lines
            .iter()
            .filter(|line| {
                line.starts_with("WARN") || line.starts_with("ERROR") || line.starts_with("INFO")
            })
            .count()
    };
    assert_eq!(loud(&logged()), 1, "one line for twenty failures");
    upstream.answer(|request| conditional(request, "\"a\"", &records(1..=3, 1)));
    gateway.run_until_idle();
    assert_eq!(
        (gateway.status().failures, gateway.status().outcome.as_str()),
        (0, "unchanged")
    );
    logged();
    for _ in 0..5 {
        gateway.run_until_idle();
    }
    assert_eq!(loud(&logged()), 0, "an idle poll says nothing");
}

#[test]
fn what_only_a_person_can_change_is_asked_for_seldom() {
    for (status, kind) in [(401, Kind::Denied), (404, Kind::Gone), (405, Kind::Refused)] {
        let upstream = Upstream::start();
        upstream.answer(move |_| Answer::status(status));
        let mut gateway = Gateway::of(&upstream).source("every = \"1m\"").start();
        let mut slept = Duration::ZERO;
        for _ in 0..12 {
            slept += gateway.run_until_idle();
        }
        assert_eq!(gateway.status().outcome, kind.word());
        assert!(
            slept > seconds(6 * 3600),
            "{status}: twelve requests in {slept:?}"
        );
    }
}

#[test]
fn old_data_is_called_stale_on_the_socket_and_for_local_readers() {
    let upstream = steady();
    let source = "every = \"1m\"\nstale_after = \"5m\"\njitter = \"0s\"";
    let mut gateway = Gateway::of(&upstream).source(source).start();
    assert!(gateway.status().stale, "nothing is known yet");
    gateway.run_until_idle();
    assert!(!gateway.status().stale);
    let stale = |gateway: &Gateway| gateway.query("SELECT stale FROM _sources")[0][0].clone();
    assert_eq!(stale(&gateway), "0");
    upstream.answer(|_| Answer::status(502));
    let mut slept = Duration::ZERO;
    while slept < seconds(400) {
        slept += gateway.run_until_idle();
    }
    assert!(gateway.status().stale);
    assert_eq!(gateway.keys(), ["1", "2", "3"], "and kept");
    // For local readers the time is in the file: when it counts as stale, a checkpoint's age included.
    let at = gateway.query("SELECT stale_at FROM _sources")[0][0].clone();
    assert_eq!(at, "2099-01-01T00:20:00Z");

    let upstream = steady();
    let mut old = Gateway::of(&upstream)
        .starting_at("2020-01-01T00:00:00Z")
        .start();
    old.run_until_idle();
    assert_eq!(stale(&old), "1", "checked in 2020");
}

#[test]
fn idle_polls_write_nothing_and_the_last_check_is_a_checkpoint_old_at_most() {
    let upstream = steady();
    let agent = "checkpoint = \"30m\"";
    let mut gateway = Gateway::of(&upstream)
        .agent(agent)
        .source("every = \"1m\"\njitter = \"0s\"")
        .start();
    for _ in 0..3 {
        gateway.run_until_idle();
    }
    let before = gateway.written();
    for _ in 0..20 {
        gateway.run_until_idle();
    }
    assert_eq!(upstream.requests().len(), 23);
    assert_eq!(gateway.written(), before);
    assert_eq!(upstream.connections(), 1);
    for _ in 0..100 {
        gateway.run_until_idle();
        let noted = gateway.query("SELECT last_check FROM _sources")[0][0].clone();
        let noted: gleaner::clock::Timestamp = noted.parse().unwrap();
        let age = gateway.clock.wall().duration_since(noted).unsigned_abs();
        assert!(age <= seconds(31 * 60), "{age:?}");
    }
    let live = gateway.status().last_check.unwrap();
    let live: gleaner::clock::Timestamp = live.parse().unwrap();
    assert!(gateway.clock.wall().duration_since(live).unsigned_abs() <= seconds(60));
}

#[test]
fn sources_of_one_agent_do_not_wait_for_each_others_troubles() {
    let upstream = Upstream::start();
    let works: &'static AtomicBool = Box::leak(Box::new(AtomicBool::new(false)));
    upstream.answer(|request| match request.path() {
        "/items" if !works.load(Ordering::SeqCst) => Answer::status(500),
        _ => conditional(request, "\"a\"", &records(1..=3, 1)),
    });
    let other = "[source.others]\nupstream = \"up\"\npath = \"others\"\nkey = \"/id\"\nevery = \"1m\"\njitter = \"0s\"";
    let mut gateway = Gateway::of(&upstream)
        .source("every = \"1m\"")
        .more(other)
        .start();
    for _ in 0..30 {
        gateway.run_until_idle();
    }
    let asked = |path: &str| {
        upstream
            .requests()
            .iter()
            .filter(|request| request.path() == path)
            .count()
    };
    assert!(asked("/others") >= 10, "{}", asked("/others"));
    assert!(asked("/items") < 30);
    assert_eq!(gateway.query("SELECT count(*) FROM others")[0][0], "3");
    works.store(true, Ordering::SeqCst);
    assert_eq!(gateway.word(), "changed");
}

#[test]
fn a_process_that_is_told_to_stop_leaves_a_pass_that_goes_on_later() {
    let upstream = Upstream::start();
    let mut gateway = Gateway::of(&upstream).source("pages = \"link\"").start();
    let stop = gateway.stopper();
    upstream.answer(move |request| {
        if request.param("p").is_none() {
            return Answer::ok()
                .header("Link", "<?p=2>; rel=next")
                .json(records(1..=2, 1));
        }
        stop();
        Answer::ok().json(records(3..=4, 1)).only(80)
    });
    let report = gateway.sync();
    assert_eq!(report.outcome.word(), "stopped", "{report}");
    assert_eq!(gateway.keys(), ["1", "2"]);
    gateway.restart();
    upstream.answer(|request| match request.param("p") {
        None => Answer::ok()
            .header("Link", "<?p=2>; rel=next")
            .json(records(1..=2, 1)),
        Some(_) => Answer::ok().json(records(3..=4, 1)),
    });
    let before = upstream.requests().len();
    assert_eq!(gateway.word(), "changed");
    assert_eq!(upstream.requests()[before].param("p"), Some("2"));
    assert_eq!(gateway.keys(), ["1", "2", "3", "4"]);
}

/// The monotonic clock starts anew with each boot, and data gets older all the same.
#[test]
fn after_days_without_power_old_data_is_stale_until_upstream_is_seen_again() {
    let upstream = Upstream::start();
    upstream.answer(|request| conditional(request, "\"1\"", &records(1..=2, 1)));
    let mut gateway = Gateway::of(&upstream).source("every = \"1h\"").start();
    assert_eq!(gateway.word(), "changed");

    gateway.stop();
    gateway.clock.advance(Duration::from_secs(3 * 24 * 3600));
    gateway.clock.reboot();
    gateway.restart();
    let status = gateway.status();
    assert!(status.stale, "{status:?}");
    assert!(status.checked_ago >= Some(3 * 24 * 3600), "{status:?}");

    assert_eq!(gateway.word(), "unchanged");
    assert!(!gateway.status().stale);
    let today = gateway.query("SELECT count(*) FROM _sources WHERE last_check > last_complete");
    assert_eq!(today, [["1"]], "local readers are told at once too");

    // A clock that woke in the past knows no age: that is stale as well.
    gateway.stop();
    gateway
        .clock
        .set_wall("1970-01-01T00:00:10Z".parse().unwrap());
    gateway.clock.reboot();
    gateway.restart();
    assert!(gateway.status().stale);
}

#[test]
fn what_an_operator_should_know_is_said_once_and_not_with_every_poll() {
    let upstream = Upstream::start();
    upstream.answer(|_| {
        Answer::ok()
            .json("{\"id\":1}\n{\"id\":2}\n")
            .close_delimited()
    });
    let mut gateway = Gateway::of(&upstream).source("format = \"ndjson\"").start();
    let warned = |gateway: &mut Gateway| {
        logged();
        let report = gateway.sync();
        assert!(
            report.outcome.is_complete() && !report.notes.is_empty(),
            "{report}"
        );
        logged()
            .iter()
            .filter(|line| line.starts_with("WARN"))
            .count()
    };
    assert_eq!(warned(&mut gateway), 1);
    assert_eq!(warned(&mut gateway), 0);
}
