//! Promise: an agent that runs for years stays as it is: memory flat, disk bounded, descriptors constant, counters right.
//!
//! In the test's time, with one whole agent over a scripted upstream: polls that find nothing, and now and then a change. By
//! default 1,000 polls with 100 changes; `GLEANER_POLLS=1000000 cargo test --test endurance -- --nocapture` is the long run,
//! with 100,000 changes.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

mod support;

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use gleaner::desk::Totals;
use gleaner::pull::report::Tally;
use support::agent::{Gateway, logged};
use support::upstream::Upstream;
use support::world::World;

/// Polls without `GLEANER_POLLS`.
const DEFAULT_POLLS: u64 = 1_000;

/// One poll in so many finds a change.
const CHANGE: u64 = 10;

/// What may come on top between the first tenth and the end.
const MEMORY: u64 = 2 * 1024 * 1024;
const DISK: u64 = 12 * 1024 * 1024;

fn resident() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS"))
        .unwrap();
    line.split_whitespace()
        .nth(1)
        .unwrap()
        .parse::<u64>()
        .unwrap()
        * 1024
}

fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

fn on_disk(dir: &Path) -> u64 {
    let entries = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let size = |path: std::path::PathBuf| match fs::metadata(&path) {
        Ok(meta) if meta.is_dir() => on_disk(&path),
        // sled removes its old snapshots whenever it likes.
        other => other.map_or(0, |meta| meta.blocks() * 512),
    };
    entries.map(size).sum()
}

#[test]
fn years_of_polls_leave_the_agent_as_it_was() {
    let polls = std::env::var("GLEANER_POLLS").map_or(DEFAULT_POLLS, |text| text.parse().unwrap());
    let upstream = Upstream::start();
    let mut gateway = Gateway::of(&upstream)
        .source("every = \"1m\"\njitter = \"0s\"\nrecheck = \"3650d\"\n")
        .start();
    let world = World::of(&upstream, &gateway);
    for id in 0..100 {
        world.put(id, "first");
    }
    gateway.run_until_idle();
    let mut before = None;
    let (mut changes, mut most_disk) = (0_u64, 0);
    for poll in 0..polls {
        if poll % CHANGE == 0 {
            changes += 1;
            world.edit(u32::try_from(changes % 100).unwrap(), &format!("{changes}"));
        }
        gateway.run_until_idle();
        if poll % 20 == 0 {
            upstream.forget();
            drop(logged());
        }
        if poll % 500 == 0 {
            most_disk = most_disk.max(on_disk(&gateway.state()));
        }
        if poll == polls / 10 {
            before = Some((resident(), descriptors()));
        }
    }
    let (memory, open) = before.unwrap();
    let (memory_now, open_now) = (resident(), descriptors());
    let totals = gateway.status().totals;
    println!(
        "endurance: {polls} polls, {changes} changes: resident {} kB after a tenth, {} kB in the end; {most_disk} B on disk at most; {open} and {open_now} descriptors; {totals:?}",
        memory / 1024,
        memory_now / 1024
    );
    world.assert_equal(&gateway);
    assert!(memory_now <= memory + MEMORY, "memory grows");
    assert!(most_disk <= DISK, "the disk fills");
    assert_eq!(open_now, open, "descriptors leak");
    assert_eq!(totals.changed, changes);
    assert!(totals.requests >= polls);
}

#[test]
fn totals_stay_at_their_end_and_do_not_start_again() {
    let most = Tally {
        changed: u64::MAX,
        bytes_down: u64::MAX - 1,
        ..Tally::default()
    };
    let mut totals = Totals::default();
    for _ in 0..3 {
        totals.add(&most);
    }
    assert_eq!((totals.changed, totals.bytes_down), (u64::MAX, u64::MAX));
    assert_eq!(totals.passes, 3);
}
