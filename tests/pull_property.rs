//! Promise: whatever came between, the local table is what upstream shows after the next complete undisturbed pass.
//!
//! Stories of chance: records appear, change and go, some seen only hours after their update time; passes fail at any page,
//! pages move while they are read, the process ends, power is cut between sink and store. Windows see all of it as long as
//! update times are touched and nothing is later than `lateness`; full passes see the rest. `PROPTEST_CASES=…` tells more of
//! them; a story that fails becomes a test of its own below.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot be set up has failed"
)]

mod support;

use std::time::Duration;

use gleaner::agent::Order;
use proptest::prelude::*;
use support::agent::Gateway;
use support::cut::cut;
use support::upstream::{Answer, Upstream};
use support::world::{Item, Items, STYLES, Tombstone, World, put};

/// Hours of lateness in the config.
const LATENESS: u32 = 6;
/// Records that come and go; record 0 is always there.
const IDS: u32 = 14;
/// Stories without `PROPTEST_CASES`.
const CASES: u32 = 16;

/// What happens upstream.
#[derive(Debug, Clone, Copy)]
enum News {
    /// A record is written, and seen after so many minutes.
    Put(u32, u8, i64),
    /// A record goes with a tombstone, which is seen after so many minutes.
    Bury(u32, i64),
    /// A record is written without touching its update time.
    Edit(u32, u8),
    /// A record goes without a trace.
    Vanish(u32),
}

/// What happens in a story.
#[derive(Debug, Clone, Copy)]
enum Step {
    News(News),
    /// So many minutes pass.
    Wait(u64),
    Sync,
    Reconcile,
    /// A pass during which, with the request of that number, something happens upstream.
    Moving(usize, News),
    /// A pass whose request of that number fails in one of these ways.
    Failing(usize, u8),
    /// Power is cut during a pass, at the request of that number; the boolean: a full one.
    Cut(usize, bool),
    Restart,
}

fn news(silent: bool) -> impl Strategy<Value = News> {
    let id = 1..=IDS;
    let late = prop_oneof![Just(0), 0..i64::from(LATENESS) * 60];
    let touched = prop_oneof![
        6 => (id.clone(), 0u8..4, late.clone()).prop_map(|(id, v, late)| News::Put(id, v, late)),
        2 => (id.clone(), late).prop_map(|(id, late)| News::Bury(id, late)),
    ];
    let unseen = prop_oneof![
        (id.clone(), 0u8..4).prop_map(|(id, v)| News::Edit(id, v)),
        id.prop_map(News::Vanish),
    ];
    if silent {
        prop_oneof![3 => touched, 2 => unseen].boxed()
    } else {
        touched.boxed()
    }
}

fn step(silent: bool) -> impl Strategy<Value = Step> {
    let page = 0usize..8;
    prop_oneof![
        8 => news(silent).prop_map(Step::News),
        3 => prop_oneof![0u64..10, 0u64..600].prop_map(Step::Wait),
        4 => Just(Step::Sync),
        if silent { 2 } else { 0 } => Just(Step::Reconcile),
        3 => (page.clone(), news(silent)).prop_map(|(at, news)| Step::Moving(at, news)),
        2 => (page.clone(), 0u8..5).prop_map(|(at, how)| Step::Failing(at, how)),
        2 => (page, any::<bool>()).prop_map(move |(at, full)| Step::Cut(at, full && silent)),
        1 => Just(Step::Restart),
    ]
}

/// A gateway and its upstream in the middle of a story.
struct Story {
    _upstream: Upstream,
    gateway: Gateway,
    world: World,
    silent: bool,
}

impl Story {
    fn begin(style: usize, page: usize, step: bool, silent: bool) -> Self {
        let upstream = Upstream::start();
        let step = if step { ", step = \"90m\"" } else { "" };
        let source = format!(
            "pull = {{ window = {{ field = \"/updated\", since = \"since\", until = \"until\", lateness = \"{LATENESS}h\"{step} }} }}\n\
             deleted = \"/deleted\"\nreconcile = {{ every = \"never\", max_loss = \"100%\" }}\n{}",
            STYLES[style].1
        );
        let gateway = Gateway::of(&upstream).source(&source).start();
        let world = World::of(&upstream, &gateway);
        world.state().page = page;
        world.put_at(0, "always", -86_400, 0);
        for id in 1..=IDS / 2 {
            world.put_at(id, "0", -3600 * i64::from(id), 0);
        }
        let mut story = Self {
            _upstream: upstream,
            gateway,
            world,
            silent,
        };
        story.sync();
        story
    }

    fn happen(&mut self, news: News) {
        let now = self.world.now();
        happen(&mut self.world.state().items, now, news);
    }

    /// A pass without a disturbance: afterwards the two are equal, unless something happened that windows cannot see.
    fn sync(&mut self) {
        let report = self.gateway.sync();
        assert!(report.outcome.is_complete(), "{report}");
        if !self.silent {
            self.world.assert_equal(&self.gateway);
        }
    }

    /// A full pass that is made from its start. One that was interrupted says how things were when it began, so it is brought
    /// to its end before.
    fn reconcile(&mut self) {
        self.sync();
        let report = self.gateway.order(full());
        assert!(report.outcome.is_complete(), "{report}");
        self.world.assert_equal(&self.gateway);
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::News(news) => self.happen(news),
            Step::Wait(minutes) => self.wait(minutes),
            Step::Sync => self.sync(),
            Step::Reconcile => self.reconcile(),
            Step::Moving(at, news) => self.moving(at, news),
            Step::Failing(at, how) => self.failing(at, how),
            Step::Cut(at, false) => cut(&mut self.gateway, &self.world, at, |gateway| {
                drop(gateway.sync())
            }),
            Step::Cut(at, true) => cut(&mut self.gateway, &self.world, at, |gateway| {
                drop(gateway.order(full()))
            }),
            Step::Restart => self.gateway.restart(),
        }
        // A second at least between two things: what `Date` cannot tell apart is asked for again anyway.
        self.gateway.clock.advance(Duration::from_secs(1));
    }

    fn wait(&self, minutes: u64) {
        self.gateway
            .clock
            .advance(Duration::from_secs(60 * minutes));
    }

    /// The pass may come too early for what happens during it, or may not be complete: whatever it brings, the next one brings
    /// the rest.
    fn moving(&mut self, at: usize, news: News) {
        let (mut left, now) = (Some(at), self.world.now());
        self.world.state().before = Some(Box::new(move |items, _, _| {
            if left == Some(0) {
                happen(items, now, news);
            }
            left = left.and_then(|left| left.checked_sub(1));
            None
        }));
        let report = self.gateway.sync();
        assert!(report.outcome.is_complete(), "{report}");
        self.world.state().before = None;
    }

    fn failing(&mut self, at: usize, how: u8) {
        let mut left = at;
        self.world.state().before = Some(Box::new(move |_, _, _| {
            if left > 0 {
                left -= 1;
                return None;
            }
            Some(match how {
                0 => Answer::status(500),
                1 => Answer::status(429).header("Retry-After", "120"),
                2 => Answer::ok().json("[{\"id\":").only(40).then_reset(),
                3 => Answer::ok()
                    .header("Content-Type", "text/html")
                    .body("<html>log in"),
                _ => Answer::ok().json("[{\"id\":1,\"v\":\"x\"},"),
            })
        }));
        drop(self.gateway.sync());
        self.world.state().before = None;
    }

    /// Everything is seen by now; then one more pass.
    fn end(mut self) {
        self.wait(60 * 60 * u64::from(LATENESS));
        if self.silent {
            self.reconcile();
        } else {
            self.sync();
        }
        self.world.assert_equal(&self.gateway);
    }
}

/// Each word upstream is another one, or a word that was there before.
fn happen(items: &mut Items, now: i64, news: News) {
    let item = |value: String, late: i64, gone| Item {
        value,
        updated: now,
        visible: now + 60 * late,
        gone,
        older: None,
    };
    match news {
        News::Put(id, value, late) => put(items, id, item(value.to_string(), late, None)),
        News::Bury(id, late) => {
            let there = items.get(&id).is_some_and(|item| item.gone.is_none());
            if there {
                put(
                    items,
                    id,
                    item(String::new(), late, Some(Tombstone::Listed)),
                );
            }
        }
        News::Edit(id, value) => {
            if let Some(item) = items.get_mut(&id) {
                item.value = value.to_string();
            }
        }
        News::Vanish(id) => drop(items.remove(&id)),
    }
}

fn full() -> Order {
    Order {
        full: true,
        insist: true,
        ..Order::default()
    }
}

fn tell(style: usize, page: usize, step: bool, silent: bool, steps: &[Step]) {
    let mut story = Story::begin(style, page, step, silent);
    for step in steps {
        story.step(*step);
    }
    story.end();
}

fn config() -> ProptestConfig {
    let told = std::env::var_os("PROPTEST_CASES").is_some();
    let usual = ProptestConfig::default();
    ProptestConfig {
        cases: if told { usual.cases } else { CASES },
        // A story is slow to tell: not too often when one has failed.
        max_shrink_iters: 600,
        failure_persistence: None,
        ..usual
    }
}

proptest! {
    #![proptest_config(config())]

    /// Without a full pass: update times are touched, deletions leave tombstones, nothing is later than `lateness`.
    #[test]
    fn windows_end_in_what_upstream_shows(
        style in 0..STYLES.len(),
        page in 1usize..7,
        step: bool,
        steps in proptest::collection::vec(step(false), 1..30),
    ) {
        tell(style, page, step, false, &steps);
    }

    /// With full passes: edits and deletions that nothing tells of.
    #[test]
    fn reconciles_end_in_what_upstream_shows(
        style in 0..STYLES.len(),
        page in 1usize..7,
        step: bool,
        steps in proptest::collection::vec(step(true), 1..30),
    ) {
        tell(style, page, step, true, &steps);
    }
}

// Stories that failed once.

#[test]
fn what_was_gone_before_a_full_pass_was_cut_is_found_by_the_next_one() {
    let put = |id, v, late| News::Put(id, v, late);
    let steps = [
        Step::News(put(1, 1, 0)),
        Step::News(News::Vanish(2)),
        Step::Moving(0, put(1, 0, 1)),
        Step::Cut(6, true),
        Step::Failing(4, 0),
        Step::Reconcile,
    ];
    tell(0, 2, false, true, &steps);
}

#[test]
fn a_record_that_moves_to_the_next_page_is_no_circle() {
    let put = |id| News::Put(id, 0, 0);
    let steps = [
        Step::Wait(360),
        Step::Moving(0, put(6)),
        Step::News(put(1)),
        Step::Moving(1, put(6)),
    ];
    tell(0, 1, false, false, &steps);
}
