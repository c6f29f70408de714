//! A clock that lies: boots in 1970 and in 2041, steps in the middle of a pass, certificates that are really expired.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot be set up has failed"
)]

mod support;

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use gleaner::clock::{Clock, FakeClock, Sure, Timestamp, Trust, Unsure, build_floor};
use gleaner::desk::ClockStatus;
use gleaner::upstream::cause::tls_problem;
use gleaner::upstream::tls::TlsProblem;
use support::agent::{Gateway, Plan, assert_failed, conditional};
use support::client::Setup;
use support::pki::Pki;
use support::upstream::{Answer, Upstream};

const UNSURE: Trust = Trust::Unsure(Unsure::Unvouched);
const SURE: Trust = Trust::Sure(Sure::Ntp);

/// How a client with this clock fares with a certificate for the years `from` to `to`.
fn verified(
    wall: &str,
    trust: Trust,
    floor: &str,
    (from, to): (i32, i32),
) -> Result<(), TlsProblem> {
    let pki = Pki::new();
    let upstream = Upstream::start_tls(pki.server(&pki.leaf_between(&["127.0.0.1"], from, to)));
    upstream.answer(|_| Answer::ok().json("[]"));
    let client = Setup {
        clock: Arc::new(FakeClock::at(wall.parse().unwrap())),
        ca: Some(pki.ca_file()),
        trust,
        floor: Some(floor.parse().unwrap()),
        ..Setup::default()
    }
    .build();
    match client.get(&upstream.url("/")) {
        Ok((status, _)) => {
            assert_eq!(status, 200);
            Ok(())
        }
        Err(error) => {
            assert!(upstream.requests().is_empty(), "nothing was sent");
            Err(tls_problem(&error).unwrap().clone())
        }
    }
}

fn at(text: &str) -> Option<Timestamp> {
    Some(text.parse().unwrap())
}

#[test]
fn certificates_are_checked_at_an_instant_that_the_clock_cannot_spoil() {
    let (boot, floor) = ("1970-01-01T00:00:07Z", "2026-11-30T00:00:00Z");
    let now = "2027-03-01T00:00:00Z";
    let expired = |end| TlsProblem::Expired { not_after: at(end) };
    // Asleep in the past: the floor, or the certificate's own first moment.
    assert_eq!(verified(boot, UNSURE, floor, (2026, 2028)), Ok(()));
    assert_eq!(verified(boot, UNSURE, floor, (2028, 2029)), Ok(()));
    assert_eq!(verified(now, UNSURE, floor, (2028, 2029)), Ok(()));
    // Expired before the floor is expired, whatever the clock shows.
    for clock in [boot, now, "2041-01-01T00:00:00Z"] {
        let found = verified(clock, UNSURE, floor, (2024, 2026));
        assert_eq!(found, Err(expired("2026-01-01T00:00:00Z")), "{clock}");
    }
    // A clock that can be believed is believed.
    assert_eq!(
        verified(now, SURE, floor, (2028, 2029)),
        Err(TlsProblem::NotYetValid {
            not_before: at("2028-01-01T00:00:00Z")
        })
    );
    assert_eq!(
        verified("2041-01-01T00:00:00Z", SURE, floor, (2026, 2028)),
        Err(expired("2028-01-01T00:00:00Z"))
    );
    // Awake in the future: the certificate may be right.
    let doubted = verified("2041-01-01T00:00:00Z", UNSURE, floor, (2026, 2028));
    assert!(
        matches!(&doubted, Err(TlsProblem::ClockDoubted(doubt)) if doubt.not_after == at("2028-01-01T00:00:00Z")),
        "{doubted:?}"
    );
}

#[test]
fn a_doubtful_clock_opens_to_no_other_name_and_no_other_issuer() {
    let pki = Pki::new();
    let stranger = Pki::new();
    let table = [
        (
            pki.leaf_between(&["other.example"], 2026, 2028),
            "the certificate is for",
        ),
        (
            stranger.leaf_between(&["127.0.0.1"], 2026, 2028),
            "issuer is not trusted",
        ),
        // Not valid yet *and* wrong: time is forgiven, the rest is not.
        (
            pki.leaf_between(&["other.example"], 2028, 2029),
            "the certificate is for",
        ),
        (
            stranger.leaf_between(&["127.0.0.1"], 2028, 2029),
            "issuer is not trusted",
        ),
    ];
    for (leaf, expected) in table {
        let upstream = Upstream::start_tls(pki.server(&leaf));
        let client = Setup {
            clock: Arc::new(FakeClock::at("1970-01-01T00:00:07Z".parse().unwrap())),
            ca: Some(pki.ca_file()),
            trust: UNSURE,
            floor: Some(build_floor()),
            ..Setup::default()
        }
        .build();
        let error = client.get(&upstream.url("/")).unwrap_err();
        let problem = tls_problem(&error).unwrap().to_string();
        assert!(problem.contains(expected), "{problem}");
        assert!(upstream.requests().is_empty());
    }
}

/// A gateway of `upstream`, which shows a certificate of `pki`, with the clock at `wall`.
fn gateway(pki: &Pki, upstream: &Upstream, wall: &'static str) -> Plan {
    Gateway::of(upstream)
        .upstream(&trusting(pki))
        .source("every = \"1m\"\njitter = \"0s\"")
        .starting_at(wall)
}

fn trusting(pki: &Pki) -> String {
    let ca = pki.ca_file();
    format!("roots = \"extra-only\"\nextra_ca = {ca:?}")
}

fn clock(gateway: &mut Gateway) -> ClockStatus {
    let now = gateway.now();
    gateway.agent().desk().status(now).clock
}

fn dated(date: &'static str) -> impl Fn(&support::upstream::Request) -> Answer {
    move |_| Answer::ok().json("[{\"id\":1}]").header("Date", date)
}

#[test]
fn a_boot_in_1970_pulls_all_the_same() {
    let pki = Pki::new();
    let upstream = Upstream::start_tls(pki.server(&pki.leaf_between(&["127.0.0.1"], 2027, 2028)));
    upstream.answer(dated("Mon, 01 Mar 2027 12:00:00 GMT"));
    let mut gateway = gateway(&pki, &upstream, "1970-01-01T00:00:07Z").start();
    let found = clock(&mut gateway);
    assert_eq!(found.state, "unsure");
    assert_eq!(found.floor, build_floor().to_string());
    assert_eq!(found.reason, "it shows a time that has passed for sure");
    assert_eq!(gateway.word(), "changed");
    assert_eq!(
        clock(&mut gateway).floor,
        build_floor().to_string(),
        "one upstream alone never raises the floor"
    );
}

#[test]
fn a_boot_in_2041_says_clock_and_what_to_do() {
    let pki = Pki::new();
    let upstream = Upstream::start_tls(pki.server(&pki.leaf_between(&["127.0.0.1"], 2026, 2028)));
    upstream.answer(dated("Mon, 01 Mar 2027 12:00:00 GMT"));
    let mut gateway = gateway(&pki, &upstream, "2041-01-01T00:00:00Z").start();
    let report = gateway.sync();
    assert_failed(&report, "clock", "which shows 2041-01-01T00:00:");
    assert_failed(&report, "clock", "set the clock or let a time daemon do it");
    assert_failed(
        &report,
        "clock",
        "the certificate expired at 2028-01-01T00:00:00Z",
    );
    // Somebody sets it.
    gateway
        .clock
        .set_wall("2027-03-01T12:00:00Z".parse().unwrap());
    assert_eq!(gateway.word(), "changed");
}

#[test]
fn an_upstream_over_tls_contradicts_a_clock_in_the_future_and_one_over_http_does_not() {
    let pki = Pki::new();
    let upstream = Upstream::start_tls(pki.server(&pki.leaf(&["127.0.0.1"])));
    upstream.answer(dated("Mon, 01 Mar 2027 12:00:00 GMT"));
    let mut seen = gateway(&pki, &upstream, "2041-01-01T00:00:00Z").start();
    assert_eq!(seen.word(), "changed");
    let found = clock(&mut seen);
    assert_eq!(found.state, "unsure");
    assert!(
        found
            .reason
            .starts_with("upstreams tell another time over TLS, by 4367"),
        "{found:?}"
    );
    let plain = Upstream::start();
    plain.answer(dated("Mon, 01 Mar 2027 12:00:00 GMT"));
    let mut unseen = Gateway::of(&plain)
        .starting_at("2041-01-01T00:00:00Z")
        .start();
    assert_eq!(unseen.word(), "changed");
    assert!(clock(&mut unseen).reason.starts_with("no time daemon"));
}

#[test]
fn a_certificate_that_is_expired_by_a_clock_that_was_set_is_simply_expired() {
    let pki = Pki::new();
    let upstream = Upstream::start_tls(pki.server(&pki.leaf_between(&["127.0.0.1"], 2026, 2027)));
    let dir = tempfile::tempdir().unwrap();
    let note = dir.path().join("synchronized");
    touch(&note, "2027-03-01T11:59:00Z");
    let mut gateway = gateway(&pki, &upstream, "2027-03-01T12:00:00Z")
        .agent(&format!("time_sync = {note:?}"))
        .start();
    assert_eq!(clock(&mut gateway).state, "sure");
    let report = gateway.sync();
    assert_failed(
        &report,
        "failing",
        "the certificate expired at 2027-01-01T00:00:00Z",
    );
}

/// What a time daemon does when it has set the clock to `time`.
fn touch(path: &Path, time: &str) {
    let time: Timestamp = time.parse().unwrap();
    let seconds = u64::try_from(time.as_second()).unwrap();
    let file = File::create(path).unwrap();
    file.set_modified(UNIX_EPOCH + Duration::from_secs(seconds))
        .unwrap();
}

/// Two upstreams at two names, and a gateway with a source at each.
fn two(pki: &Pki, date: &'static str, wall: &'static str) -> (Gateway, Upstream, Upstream) {
    let leaf = pki.leaf(&["127.0.0.1", "localhost"]);
    let one = Upstream::start_tls(pki.server(&leaf));
    let other = Upstream::start_tls(pki.server(&leaf)).called("localhost");
    one.answer(dated(date));
    other.answer(dated(date));
    let more = format!(
        "[upstream.other]\nbase = {:?}\nproxy = \"\"\n{}\n[source.more]\nupstream = \"other\"\npath = \"more\"\nkey = \"/id\"\n",
        other.url("/"),
        trusting(pki)
    );
    let gateway = gateway(pki, &one, wall).more(&more).start();
    (gateway, one, other)
}

#[test]
fn two_upstreams_that_agree_vouch_for_the_clock_and_the_floor_outlives_the_process() {
    let pki = Pki::new();
    let (mut gateway, one, other) = two(
        &pki,
        "Mon, 01 Mar 2027 12:00:00 GMT",
        "2027-03-01T12:00:20Z",
    );
    gateway.run_until_idle();
    let found = clock(&mut gateway);
    assert_eq!(found.state, "sure", "{found:?}");
    assert_eq!(found.reason, "two upstreams tell the same time over TLS");
    assert_eq!(found.floor, "2027-03-01T11:59:20Z");

    // Nothing changes upstream: nothing is written, however far the floor rises.
    gateway
        .clock
        .set_wall("2027-03-01T12:00:20Z".parse().unwrap());
    for upstream in [&one, &other] {
        upstream.answer(dated("Mon, 01 Mar 2027 12:00:00 GMT"));
    }
    // A change carries the floor with it.
    one.answer(|_| Answer::ok().json("[{\"id\":2}]"));
    gateway.sync();
    gateway.stop();
    gateway
        .clock
        .set_wall("1970-01-01T00:00:07Z".parse().unwrap());
    gateway.clock.reboot();
    gateway.restart();
    let found = clock(&mut gateway);
    assert_eq!(
        (found.state.as_str(), found.floor.as_str()),
        ("unsure", "2027-03-01T11:59:20Z")
    );
}

#[test]
fn two_upstreams_at_one_host_are_one_witness() {
    let pki = Pki::new();
    let leaf = pki.leaf(&["127.0.0.1"]);
    let one = Upstream::start_tls(pki.server(&leaf));
    one.answer(dated("Mon, 01 Mar 2027 12:00:00 GMT"));
    let more = format!(
        "[upstream.other]\nbase = {:?}\nproxy = \"\"\n{}\n[source.more]\nupstream = \"other\"\npath = \"more\"\nkey = \"/id\"\n",
        one.url("/v2/"),
        trusting(&pki)
    );
    let mut gateway = gateway(&pki, &one, "2027-03-01T12:00:20Z")
        .more(&more)
        .start();
    gateway.run_until_idle();
    assert_eq!(one.requests().len(), 2);
    assert_eq!(clock(&mut gateway).state, "unsure");
}

#[test]
fn an_answer_out_of_a_cache_says_nothing_of_now() {
    let pki = Pki::new();
    let (mut gateway, one, other) = two(
        &pki,
        "Mon, 01 Mar 2027 12:00:00 GMT",
        "2027-03-01T12:00:20Z",
    );
    for upstream in [&one, &other] {
        upstream.answer(|_| {
            Answer::ok()
                .json("[{\"id\":1}]")
                .header("Date", "Mon, 01 Mar 2027 12:00:00 GMT")
                .header("Age", "30")
        });
    }
    gateway.run_until_idle();
    assert_eq!(clock(&mut gateway).state, "unsure");
}

#[test]
fn an_idle_poll_writes_no_floor() {
    let pki = Pki::new();
    let upstream = Upstream::start_tls(pki.server(&pki.leaf(&["127.0.0.1"])));
    let dir = tempfile::tempdir().unwrap();
    let note = dir.path().join("synchronized");
    touch(&note, "2027-03-01T12:00:00Z");
    let mut gateway = gateway(&pki, &upstream, "2027-03-01T12:00:00Z")
        .agent(&format!("time_sync = {note:?}\ncheckpoint = \"1d\""))
        .start();
    let clock_of_upstream = Arc::clone(&gateway.clock);
    upstream.answer(move |request| {
        let seconds = u64::try_from(clock_of_upstream.wall().as_second()).unwrap();
        let date = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(seconds));
        conditional(request, "\"1\"", "[{\"id\":1}]").header("Date", &date)
    });
    while clock(&mut gateway).floor.as_str() < "2027-03-01T13:00:00Z" {
        // What readers of `data.db` share in memory is no write.
        let written = |gateway: &Gateway| {
            let mut files = gateway.written();
            files.retain(|(path, ..)| !path.ends_with("data.db-shm"));
            files
        };
        let before = written(&gateway);
        let asked = upstream.requests().len();
        gateway.run_until_idle();
        assert_eq!(clock(&mut gateway).state, "sure");
        if asked > 0 {
            assert_eq!(written(&gateway), before);
        }
    }
}

#[test]
fn steps_in_the_middle_of_a_pass_put_off_nothing_and_hasten_nothing() {
    for step in ["+", "-"] {
        let upstream = Upstream::start();
        let mut gateway = Gateway::of(&upstream)
            .source("every = \"15m\"\njitter = \"0s\"\npages = \"link\"")
            .start();
        let (clock, served) = (Arc::clone(&gateway.clock), Arc::new(AtomicUsize::new(0)));
        upstream.answer(move |request| {
            served.fetch_add(1, Ordering::SeqCst);
            let hour = Duration::from_secs(3600);
            let wall = clock.wall();
            clock.set_wall(if step == "+" {
                wall + hour
            } else {
                wall - hour
            });
            match request.target.as_str() {
                "/items" => Answer::ok()
                    .json("[{\"id\":1}]")
                    .header("Link", "</items?p=2>; rel=\"next\""),
                _ => Answer::ok().json("[{\"id\":2}]"),
            }
        });
        assert_eq!(gateway.run_until_idle(), Duration::from_secs(900), "{step}");
        assert_eq!(gateway.keys(), ["1", "2"]);
        assert_eq!(gateway.run_until_idle(), Duration::from_secs(900), "{step}");
        let status = gateway.status();
        assert_eq!(status.outcome, "unchanged");
        assert!(!status.stale, "{status:?}");
        assert_eq!(status.checked_ago, Some(900), "by the monotonic clock");
        assert_eq!(upstream.requests().len(), 4);
    }
}
