//! Windows: what comes late is not missed, what is idle costs nothing, what windows cannot see a reconcile finds.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot be set up has failed"
)]

mod support;

use std::time::Duration;

use gleaner::agent::Order;
use gleaner::clock::Clock;
use gleaner::pull::report::Outcome;
use support::agent::{Gateway, assert_failed};
use support::upstream::{Answer, Upstream};
use support::world::{STYLES, Tombstone, World};

const HOUR: Duration = Duration::from_secs(3600);
const MINUTE: Duration = Duration::from_secs(60);

const WINDOW: &str = "pull = { window = { field = \"/updated\", since = \"since\", lateness = \"6h\" } }\ndeleted = \"/deleted\"\n";

fn reconcile() -> Order {
    Order {
        full: true,
        insist: true,
        ..Order::default()
    }
}

/// A gateway whose first pass is over, with these lines beside the window's.
fn started(lines: &str, records: u32) -> (Upstream, Gateway, World) {
    let upstream = Upstream::start();
    let mut gateway = Gateway::of(&upstream)
        .source(&format!("{WINDOW}{lines}"))
        .start();
    let world = World::of(&upstream, &gateway);
    for id in 1..=records {
        world.put_at(id, "first", -i64::from(id) * 86_400, 0);
    }
    let report = gateway.sync();
    assert_eq!(
        (report.pull.as_str(), report.tally.added),
        ("full", records.into()),
        "{report}"
    );
    assert_eq!(upstream.requests()[0].param("since"), None);
    (upstream, gateway, world)
}

#[test]
fn a_record_that_becomes_visible_late_is_picked_up() {
    let (upstream, mut gateway, world) = started("", 10);
    world.put_at(20, "late", 0, 5 * 3600);
    for _ in 0..20 {
        gateway.clock.advance(15 * MINUTE);
        let report = gateway.sync();
        assert_eq!(report.pull, "window", "{report}");
        world.assert_equal(&gateway);
    }
    assert!(gateway.keys().contains(&"20".to_owned()));
    // Windows ask for six hours and what the grid adds, not for everything.
    let since = upstream
        .requests()
        .last()
        .unwrap()
        .param("since")
        .unwrap()
        .to_owned();
    assert_eq!(since, "2098-12-31T22%3A00%3A00Z");
}

#[test]
fn idle_windows_ask_for_the_same_url_and_write_nothing() {
    let (upstream, mut gateway, _world) = started("", 3);
    // Past the step of the grid at which the story starts.
    for _ in 0..2 {
        gateway.clock.advance(MINUTE);
        gateway.sync();
    }
    let before = gateway.written();
    let asked = upstream.requests().len();
    for _ in 0..10 {
        gateway.clock.advance(MINUTE);
        let report = gateway.sync();
        assert_eq!(
            (report.outcome, report.tally.not_modified),
            (Outcome::Unchanged, 1)
        );
    }
    assert_eq!(gateway.written(), before);
    let targets: Vec<String> = upstream.requests()[asked..]
        .iter()
        .map(|request| request.target.clone())
        .collect();
    assert!(
        targets.iter().all(|target| *target == targets[0]),
        "{targets:?}"
    );
}

#[test]
fn the_watermark_survives_a_restart_and_idle_time_is_only_asked_again() {
    let (upstream, mut gateway, world) = started("", 3);
    for _ in 0..100 {
        gateway.clock.advance(15 * MINUTE);
        gateway.sync();
    }
    gateway.restart();
    world.put(9, "x");
    let report = gateway.sync();
    assert_eq!((report.pull.as_str(), report.tally.added), ("window", 1));
    let since = upstream
        .requests()
        .last()
        .unwrap()
        .param("since")
        .unwrap()
        .to_owned();
    // 25 hours later, less six, less a checkpoint at most, on the grid.
    assert!(
        ["2099-01-01T18%3A00%3A00Z", "2099-01-01T19%3A00%3A00Z"].contains(&since.as_str()),
        "{since}"
    );
}

#[test]
fn tombstones_delete_and_records_come_back() {
    let (_upstream, mut gateway, world) = started("", 3);
    gateway.clock.advance(MINUTE);
    world.delete(2, Tombstone::Listed);
    assert_eq!(gateway.sync().tally.deleted, 1);
    world.assert_equal(&gateway);
    gateway.clock.advance(MINUTE);
    world.put(2, "again");
    assert_eq!(gateway.sync().tally.added, 1);
    world.assert_equal(&gateway);
}

#[test]
fn what_windows_cannot_see_a_reconcile_finds_and_counts() {
    let (_upstream, mut gateway, world) = started("", 20);
    gateway.clock.advance(MINUTE);
    world.edit(5, "edited without a word");
    world.delete(6, Tombstone::Silent);
    world.put_at(30, "very late", -30 * 86_400, 0);
    world.put(31, "on time");
    assert_eq!(gateway.sync().tally.added, 1, "only what is in the window");
    gateway.clock.advance(MINUTE);
    world.put(32, "just now");
    let report = gateway.order(reconcile());
    assert_eq!(report.pull, "window+full");
    assert_eq!(
        (
            report.tally.added,
            report.tally.changed,
            report.tally.deleted
        ),
        (2, 1, 1)
    );
    world.assert_equal(&gateway);
    let course = gateway.status().course.unwrap();
    let drift = course.drift.last().unwrap();
    assert_eq!((drift.added, drift.changed, drift.deleted), (1, 1, 1));
    let notes = gateway.status().notes.join("\n");
    assert!(
        notes.contains("found 3 records that had been missed (1 new, 1 changed, 1 gone)"),
        "{notes}"
    );
}

#[test]
fn a_reconcile_comes_by_itself_when_it_is_due() {
    let (_upstream, mut gateway, world) = started("reconcile = { every = \"7d\" }", 20);
    world.delete(6, Tombstone::Silent);
    let mut full = 0;
    for _ in 0..15 {
        gateway.clock.advance(12 * HOUR);
        let report = gateway.sync();
        if report.pull == "window+full" {
            full += 1;
            world.assert_equal(&gateway);
        }
    }
    assert_eq!(full, 1);
}

#[test]
fn too_many_missing_wait_for_a_person_and_say_so_until_then() {
    let (_upstream, mut gateway, world) = started("", 100);
    gateway.clock.advance(MINUTE);
    for id in 1..=50 {
        world.delete(id, Tombstone::Silent);
    }
    let report = gateway.order(reconcile());
    assert_eq!(
        report.outcome,
        Outcome::NeedsConfirmation {
            missing: 50,
            known: 100
        }
    );
    gateway.clock.advance(MINUTE);
    // Windows go on, and say so each time; another process too.
    world.put(200, "new");
    gateway.restart();
    let report = gateway.sync();
    assert_eq!(
        (report.outcome.word(), report.tally.added),
        ("needs-confirmation", 1)
    );
    assert!(
        report
            .reason()
            .contains("gleaner reconcile items --confirm"),
        "{report}"
    );
    assert_eq!(gateway.status().outcome, "needs-confirmation");
    let confirmed = Order {
        confirmed: true,
        ..reconcile()
    };
    assert_eq!(gateway.order(confirmed).tally.deleted, 50);
    world.assert_equal(&gateway);
    gateway.clock.advance(MINUTE);
    assert_eq!(gateway.sync().outcome, Outcome::Unchanged);
}

#[test]
fn a_failed_window_moves_nothing() {
    let (upstream, mut gateway, world) = started("", 3);
    gateway.clock.advance(HOUR);
    world.put_at(7, "x", 0, 0);
    for _ in 0..30 {
        upstream.queue(Answer::status(500));
        assert_failed(&gateway.sync(), "failing", "500");
        gateway.clock.advance(HOUR);
    }
    assert_eq!(gateway.sync().tally.added, 1);
    world.assert_equal(&gateway);
}

#[test]
fn a_changed_config_is_read_in_full_once() {
    let (_upstream, mut gateway, world) = started("", 10);
    gateway.restart_with(&format!("{WINDOW}ignore = \"/w\"\n"));
    let report = gateway.sync();
    assert_eq!(
        (report.pull.as_str(), report.outcome.clone()),
        ("full", Outcome::Changed),
        "{report}"
    );
    world.assert_equal(&gateway);
    gateway.clock.advance(MINUTE);
    assert_eq!(gateway.sync().pull, "window");
}

#[test]
fn a_lost_or_restored_copy_is_read_in_full_once() {
    let (_upstream, mut gateway, world) = started("", 10);
    let db = gateway.state().join("data.db");
    gateway.stop();
    std::fs::remove_file(&db).unwrap();
    gateway.restart();
    let report = gateway.sync();
    assert_eq!(
        (report.pull.as_str(), report.tally.added),
        ("full", 10),
        "{report}"
    );
    world.assert_equal(&gateway);
}

#[test]
fn a_first_window_reaches_as_far_back_as_the_config_says_in_steps_whatever_our_clock_says() {
    for wall in [
        "2098-12-31T00:00:00Z",
        "1970-01-02T00:00:00Z",
        "2141-01-01T00:00:00Z",
    ] {
        let upstream = Upstream::start();
        let lines = "pull = { window = { field = \"/updated\", since = \"since\", until = \"until\", first = \"10d\", step = \"2d\" } }";
        let mut gateway = Gateway::of(&upstream).source(lines).start();
        let world = World::of(&upstream, &gateway);
        for id in 0..40 {
            world.put_at(id, "x", -i64::from(id) * 43_200, 0);
        }
        let real = gateway.clock.wall();
        gateway.clock.set_wall(wall.parse().unwrap());
        world.state().off_by = real.as_second() - gateway.clock.wall().as_second();
        let mut items = std::mem::take(&mut world.state().items);
        items.values_mut().for_each(|item| item.visible = i64::MIN);
        world.state().items = items;
        let report = gateway.sync();
        assert!(report.outcome.is_complete(), "{wall}: {report}");
        assert_eq!(gateway.keys().len(), 21, "{wall}");
        let last = upstream.requests().last().unwrap().clone();
        assert_eq!(last.param("until"), None, "{wall}: {}", last.target);
    }
}

#[test]
fn pages_that_move_while_they_are_read_hide_nothing() {
    for (style, pages) in STYLES {
        let upstream = Upstream::start();
        let mut gateway = Gateway::of(&upstream)
            .source(&format!("{WINDOW}{pages}"))
            .start();
        let world = World::of(&upstream, &gateway);
        world.state().page = 5;
        for id in 1..=23 {
            world.put_at(id, "x", -40 * 86_400 + i64::from(id), 0);
        }
        // Behind the second page a record of the first vanishes: the others move up by one.
        world.state().before = Some(Box::new(|items, number, _| {
            if number == 2 {
                items.remove(&1);
            }
            None
        }));
        let report = gateway.sync();
        assert!(report.outcome.is_complete(), "{style}: {report}");
        world.state().before = None;
        gateway.clock.advance(MINUTE);
        gateway.sync();
        let keys = gateway.keys();
        assert!(
            (2..=23).all(|id: u32| keys.contains(&id.to_string())),
            "{style}: {keys:?}"
        );
    }
}

#[test]
fn an_interrupted_window_goes_on_at_its_page_with_the_same_window_however_often() {
    let (upstream, mut gateway, world) = started(
        "pages = { offset = \"offset\", size = { param = \"limit\", value = 5 } }",
        3,
    );
    world.state().page = 5;
    gateway.clock.advance(HOUR);
    for id in 100..130 {
        world.put(id, "x");
    }
    let asked = upstream.requests().len();
    for round in 0..3 {
        // Two pages, then the line is cut, then the process ends, and time passes.
        let mut left = 2;
        world.state().before = Some(Box::new(move |_, _, _| {
            left -= 1;
            (left < 0).then(|| Answer::ok().json("[{\"id\":").only(3).then_reset())
        }));
        let report = gateway.sync();
        assert_failed(&report, "failing", "");
        gateway.restart();
        gateway.clock.advance(30 * HOUR * (round + 1));
    }
    world.state().before = None;
    let report = gateway.sync();
    assert!(report.outcome.is_complete(), "{report}");
    world.assert_equal(&gateway);
    let requests = upstream.requests();
    let since: Vec<&str> = requests[asked..]
        .iter()
        .filter_map(|request| request.param("since"))
        .collect();
    let resumed: Vec<&str> = requests[asked..]
        .iter()
        .filter_map(|request| request.param("offset"))
        .collect();
    assert_eq!(since[..9], [since[0]; 9], "one window: {since:?}");
    assert_eq!(
        resumed[..9],
        ["0", "5", "10", "10", "15", "20", "20", "25", "30"],
        "{resumed:?}"
    );
}

#[test]
fn an_upstream_whose_clock_was_far_ahead_once_is_compared_in_full() {
    let (_upstream, mut gateway, world) = started("", 3);
    world.state().off_by = 30 * 86_400;
    gateway.clock.advance(MINUTE);
    gateway.sync();
    world.state().off_by = 0;
    gateway.clock.advance(12 * HOUR);
    world.put_at(50, "x", -7200, 0);
    let report = gateway.sync();
    assert_eq!(report.pull, "window+full", "{report}");
    world.assert_equal(&gateway);
    gateway.clock.advance(MINUTE);
    assert_eq!(gateway.sync().pull, "window");
}

#[test]
fn a_record_from_the_future_does_not_move_the_watermark() {
    let (_upstream, mut gateway, world) = started("", 3);
    gateway.clock.advance(MINUTE);
    world.put_at(60, "from the future", 10 * 365 * 86_400, 0);
    assert_eq!(gateway.sync().tally.added, 1);
    gateway.clock.advance(MINUTE);
    world.put(61, "from now");
    assert_eq!(gateway.sync().tally.added, 1);
    world.assert_equal(&gateway);
}

#[test]
fn a_copy_that_is_older_than_what_upstream_keeps_is_compared_in_full() {
    let (_upstream, mut gateway, world) = started("keep_upstream = \"60d\"", 30);
    gateway.clock.advance(30 * 24 * HOUR);
    assert_eq!(
        gateway.sync().pull,
        "window+full",
        "30 days are over as well"
    );
    gateway.clock.advance(20 * 24 * HOUR);
    assert_eq!(gateway.sync().pull, "window");
    world.delete(3, Tombstone::Listed);
    gateway.clock.advance(61 * 24 * HOUR);
    // The tombstone is no longer kept.
    world.delete(3, Tombstone::Silent);
    let report = gateway.sync();
    assert_eq!(report.pull, "full");
    world.assert_equal(&gateway);
}

#[test]
fn a_reconcile_that_is_asked_for_is_not_served_by_an_older_one() {
    let (_upstream, mut gateway, world) = started(
        "pages = { offset = \"offset\", size = { param = \"limit\", value = 5 } }",
        3,
    );
    world.state().page = 5;
    for id in 100..120 {
        world.put_at(id, "x", -40 * 86_400, 0);
    }
    gateway.clock.advance(MINUTE);
    let mut left = 4;
    world.state().before = Some(Box::new(move |_, _, _| {
        left -= 1;
        (left < 0).then(|| Answer::ok().json("[{\"id\":").only(3).then_reset())
    }));
    assert_failed(&gateway.order(reconcile()), "failing", "");
    world.state().before = None;
    gateway.restart();
    // Changed silently behind the page where the cut was.
    world.edit(100, "edited");
    world.delete(101, Tombstone::Silent);
    let report = gateway.order(reconcile());
    assert!(report.outcome.is_complete(), "{report}");
    world.assert_equal(&gateway);
}
