//! Promises: what is remembered of events has a bound, with or without a clock; what an event leads to is marked as it is done.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot be set up has failed"
)]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use gleaner::clock::Clock;
use gleaner::inbox::{self, Filter, State};
use gleaner::store::{Batch, EventKey, Store};
use support::agent::{Gateway, Plan};
use support::hooks::{self, SECRET, delivery, erp, send};
use support::upstream::{Answer, Upstream};

/// The most event ids that are known, and how many more until the oldest are forgotten.
const MOST: usize = 100_000;
const EXCESS: usize = MOST / 16;

/// A gateway with the hook `erp`, whose secret is in `secret`.
fn gateway(upstream: &Upstream, secret: &tempfile::NamedTempFile, lines: &str) -> Plan {
    std::fs::write(secret.path(), SECRET).unwrap();
    let hook = erp(hooks::address(), lines);
    let named = format!("{:?}", secret.path());
    Gateway::of(upstream)
        .source("allow_empty = true\nevery = \"1d\"")
        .more(&hook.replace("\"secret\"", &named))
}

/// So many events that no clock dated, as if they had come before.
fn remember(gateway: &Gateway, count: usize) {
    let (mut store, _) = Store::open(&gateway.state().join("state"), gateway.clock.wall()).unwrap();
    for first in (0..count).step_by(1000) {
        let mut batch = Batch::new();
        for nth in first..count.min(first + 1000) {
            let request = (nth as u128).to_be_bytes();
            batch.see(EventKey::new("erp", &format!("old-{nth}")), request, None);
        }
        store.commit(batch).unwrap();
    }
}

fn known(gateway: &Gateway) -> usize {
    let (store, _) = Store::open(&gateway.state().join("state"), gateway.clock.wall()).unwrap();
    store.seen_count().unwrap()
}

#[test]
fn event_ids_have_a_bound_without_a_clock_and_the_newest_stay_known() {
    let upstream = Upstream::start();
    upstream.answer(|_| Answer::ok().json("[]"));
    let secret = tempfile::NamedTempFile::new().unwrap();
    let mut gateway = gateway(&upstream, &secret, "wakes = []").start();
    gateway.run_until_idle();
    gateway.stop();
    remember(&gateway, MOST + EXCESS);
    gateway.restart();
    let door = gateway.listen();
    let now = gateway.now();
    let clock = gateway.agent().desk().status(now).clock;
    assert_ne!(
        clock.state, "sure",
        "there is nothing that the clock rests on"
    );
    let sending = std::thread::spawn(move || {
        (
            send(door, &delivery("old-0", "{}")),
            send(door, &delivery(&format!("old-{}", MOST + EXCESS - 1), "{}")),
            send(door, &delivery("new", "{}")),
        )
    });
    let (first, last, new) = gateway.serve(sending);
    assert!(first.is_duplicate(), "not one too many yet: {first:?}");
    assert!(last.is_duplicate(), "{last:?}");
    assert_eq!((new.status, new.is_duplicate()), (202, false));
    // It is processed, and with it there is one id too many: they go at once, not when there is time some day.
    gateway.agent().step();
    let sending = std::thread::spawn(move || {
        (
            send(door, &delivery("old-0", "{}")),
            send(door, &delivery(&format!("old-{}", MOST + EXCESS - 1), "{}")),
            send(door, &delivery("new", "{}")),
        )
    });
    let (first, last, new) = gateway.serve(sending);
    assert!(!first.is_duplicate(), "the oldest is forgotten: {first:?}");
    assert!(last.is_duplicate(), "{last:?}");
    assert!(new.is_duplicate(), "{new:?}");
    gateway.stop();
    let known = known(&gateway);
    assert!((MOST - 100..=MOST + 2).contains(&known), "{known}");
}

#[test]
fn slow_fetches_are_marked_as_they_go_and_sources_have_their_turn() {
    const EVENTS: usize = 12;
    let upstream = Upstream::start();
    let secret = tempfile::NamedTempFile::new().unwrap();
    let mut gateway = gateway(
        &upstream,
        &secret,
        "fetch = { source = \"items\", url = \"items/{/part}\" }",
    )
    .start();
    let (clock, state) = (Arc::clone(&gateway.clock), gateway.state());
    let most_unmarked = Arc::new(AtomicUsize::new(0));
    let (fetched, unmarked) = (AtomicUsize::new(0), Arc::clone(&most_unmarked));
    upstream.answer(move |request| {
        let Some(part) = request.path().strip_prefix("/items/") else {
            return Answer::ok().json("[]");
        };
        clock.advance(Duration::from_secs(4));
        let mut done = 0;
        inbox::Reader::new(&state.join(inbox::NAME))
            .list(&Filter::default(), |listed| {
                done += usize::from(listed.state == State::Done);
            })
            .unwrap();
        let asked = fetched.fetch_add(1, Ordering::SeqCst);
        unmarked.fetch_max(asked - done, Ordering::SeqCst);
        Answer::ok().json(format!("{{\"id\":{part}}}"))
    });
    let door = gateway.listen();
    gateway.run_until_idle();
    let sending = std::thread::spawn(move || {
        for nth in 0..EVENTS {
            let body = format!("{{\"part\":{nth}}}");
            assert_eq!(send(door, &delivery(&format!("e{nth}"), &body)).status, 202);
        }
    });
    gateway.serve(sending);
    while gateway.keys().len() < EVENTS {
        gateway.run_until_idle();
    }
    // Ten seconds a batch, four a fetch.
    assert_eq!(most_unmarked.load(Ordering::SeqCst), 2);
}
