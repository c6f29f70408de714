//! Against a real Kinto: entity tags as cursors, tombstones, pages behind a header, while others write and while the
//! process is killed. Without one the tests say so and pass; with `GLEANER_REQUIRE_SERVERS=1` (as CI sets it) they fail
//! instead.
//!
//! The long run: `GLEANER_KILLS=200 cargo test --test kinto -- --nocapture`, with `GLEANER_SEED=…` to repeat what can be
//! repeated.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot be set up has failed"
)]
#![allow(
    clippy::disallowed_methods,
    reason = "the processes here live in real time"
)]

mod support;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::Value;
use support::device::{Device, Ended};
use support::dice::Dice;
use support::kinto::{Kinto, PASSWORD, RECORDS, Writers, delete, put};

/// Records at the start.
const COUNT: u64 = 5000;
/// Kills without `GLEANER_KILLS`.
const DEFAULT_KILLS: u64 = 20;

/// A device whose config is the one of `examples/pull/cursor-header.toml`, for this Kinto.
fn device(kinto: &Kinto, limit: u32) -> Device {
    let device = Device::new();
    std::fs::write(device.beside("password"), PASSWORD).unwrap();
    device.configure(&format!(
        "[upstream.kinto]\nbase = \"{}\"\nproxy = \"\"\n\
         auth = {{ basic = {{ user = \"gw\", password = {{ file = \"password\" }} }} }}\n\
         [source.parts]\nupstream = \"kinto\"\npath = \"{RECORDS}\"\n\
         params = {{ _limit = {limit}, _sort = \"last_modified\" }}\n\
         records = \"/data\"\nkey = \"/id\"\ndeleted = \"/deleted\"\n\
         updated = {{ field = \"/last_modified\", format = \"epoch-ms\" }}\n\
         pull = {{ cursor = {{ header = \"ETag\", param = \"_since\" }} }}\n\
         pages = {{ next_header = \"Next-Page\" }}\n\
         ignore_no_store = true\n",
        kinto.base()
    ));
    device
}

fn report(ended: &Ended) -> Value {
    assert_eq!(ended.code(), Some(0), "{}", ended.said());
    ended.reports().remove(0)
}

fn sync(device: &Device) -> Value {
    report(&device.run(&["sync", "--json"]))
}

fn copy(device: &Device) -> BTreeMap<String, Value> {
    let db = device.reader().unwrap();
    let mut query = db.prepare("SELECT key, body FROM parts").unwrap();
    let rows = query.query_map([], |row| {
        Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?))
    });
    rows.unwrap()
        .map(|row| row.unwrap())
        .map(|(key, body)| (key, serde_json::from_str(&body).unwrap()))
        .collect()
}

/// The first few records that differ, if any do.
fn differing(device: &Device, kinto: &Kinto) -> Vec<String> {
    let (ours, theirs) = (copy(device), kinto.listing());
    let keys: std::collections::BTreeSet<&String> = ours.keys().chain(theirs.keys()).collect();
    keys.into_iter()
        .filter(|key| ours.get(*key) != theirs.get(*key))
        .map(|key| {
            format!(
                "{key}: here {:?}, there {:?}",
                ours.get(key),
                theirs.get(key)
            )
        })
        .take(5)
        .collect()
}

fn number(report: &Value, name: &str) -> u64 {
    report[name].as_u64().unwrap()
}

#[test]
fn a_cursor_brings_changes_and_tombstones_and_an_idle_poll_is_a_304() {
    let Some(kinto) = Kinto::start("", 20) else {
        return;
    };
    let mut client = kinto.client();
    let device = device(&kinto, 8);
    let first = sync(&device);
    assert_eq!(
        (number(&first, "added"), number(&first, "pages")),
        (20, 3),
        "{first}"
    );
    assert_eq!(first["pull"], "full");

    client.batch(&[put(3, 2), delete(4), put(30, 1), delete(5), put(5, 9)]);
    let second = sync(&device);
    assert_eq!(
        [
            number(&second, "added"),
            number(&second, "changed"),
            number(&second, "deleted")
        ],
        [1, 2, 1],
        "{second}"
    );
    assert_eq!(
        (second["pull"].as_str(), number(&second, "pages")),
        (Some("cursor"), 1)
    );
    assert_eq!(differing(&device, &kinto), [""; 0]);

    // The cursor moved, so its URL is new once; from then on nothing new costs a 304.
    let moved = sync(&device);
    assert_eq!(
        (moved["outcome"].as_str(), number(&moved, "pages")),
        (Some("unchanged"), 1)
    );
    let idle = sync(&device);
    assert_eq!(
        (idle["outcome"].as_str(), number(&idle, "not_modified")),
        (Some("unchanged"), 1),
        "{idle}"
    );
    println!(
        "kinto: idle poll {} B up, {} B down",
        idle["bytes_up"], idle["bytes_down"]
    );

    let full = report(&device.run(&["reconcile", "parts", "--json"]));
    assert_eq!(
        (full["outcome"].as_str(), full["pull"].as_str()),
        (Some("unchanged"), Some("cursor+full")),
        "{full}"
    );
}

#[test]
fn a_backoff_is_kept_across_processes() {
    let Some(kinto) = Kinto::start("kinto.backoff = 3600", 0) else {
        return;
    };
    let mut client = kinto.client();
    client.batch(&[put(1, 1)]);
    let device = device(&kinto, 100);
    assert_eq!(number(&sync(&device), "added"), 1);
    client.batch(&[put(2, 1)]);
    let ended = device.run(&["sync", "--json"]);
    assert!(
        ended.reports().is_empty() || number(&ended.reports()[0], "requests") == 0,
        "{}",
        ended.said()
    );
    // A person who names it is answered all the same.
    assert_eq!(
        number(&report(&device.run(&["sync", "parts", "--json"])), "added"),
        1
    );
}

#[test]
fn with_writers_at_work_and_killed_at_any_moment_one_more_sync_ends_in_what_upstream_has() {
    let Some(kinto) = Kinto::start("", COUNT) else {
        return;
    };
    let mut story = Story {
        device: device(&kinto, 500),
        kinto: &kinto,
        dice: Dice::announced("kinto"),
        span: Duration::ZERO,
        kills: 0,
        resumed: 0,
        compared: 0,
    };
    let start = Instant::now();
    story.undisturbed();
    let wanted = std::env::var("GLEANER_KILLS").map_or(DEFAULT_KILLS, |text| text.parse().unwrap());
    let seed = story.dice.next();
    let writers = Writers::start(&kinto, 1, COUNT + 500, seed);
    while story.kills < wanted {
        for _ in 0..3 + story.dice.below(8) {
            story.disturbance();
        }
        writers.while_still(|| story.settle());
    }
    println!(
        "kinto: {COUNT} records, {} kills, {} passes resumed, {} changes meanwhile, equal {} times, {:.0?}",
        story.kills,
        story.resumed,
        writers.end(),
        story.compared,
        start.elapsed()
    );
}

struct Story<'a> {
    device: Device,
    kinto: &'a Kinto,
    dice: Dice,
    /// How long a sync takes that has little to do.
    span: Duration,
    kills: u64,
    resumed: u64,
    compared: u64,
}

impl Story<'_> {
    /// Writers at work, and nobody kills.
    fn undisturbed(&mut self) {
        let writers = Writers::start(self.kinto, 2, COUNT + 500, self.dice.next());
        for round in 0..4 {
            writers.let_write(24);
            report(&self.device.run(command(round == 2)));
        }
        let written = writers.end();
        let began = Instant::now();
        let last = sync(&self.device);
        self.span = began.elapsed();
        self.assert_equal(&format!("after {written} changes: {last}"));
    }

    /// A sync or a full pass, killed somewhere.
    fn disturbance(&mut self) {
        let is_full = self.dice.once_in(3);
        let within = self.span * if is_full { 8 } else { 1 };
        let share = f64::from(u32::try_from(self.dice.below(1000)).unwrap()) / 1000.0;
        let running = self.device.start(&[], command(is_full));
        // A random moment is what this is about; nothing is waited for.
        std::thread::sleep(within.mul_f64(share));
        let _over_already =
            rustix::process::kill_process(running.pid(), rustix::process::Signal::KILL);
        let ended = running.wait();
        let was_killed = ended.code().is_none();
        assert!(was_killed || ended.code() == Some(0), "{}", ended.said());
        self.kills += u64::from(was_killed);
        self.note(&ended);
        assert_eq!(self.device.integrity(), "ok");
    }

    /// Nobody writes: what was interrupted is ended, and what came meanwhile is brought by one sync more.
    fn settle(&mut self) {
        let first = self.device.run(command(false));
        self.note(&first);
        report(&first);
        let last = sync(&self.device);
        self.assert_equal(&format!(
            "after {} kills: {}{last}",
            self.kills,
            first.said()
        ));
    }

    fn note(&mut self, ended: &Ended) {
        self.resumed += u64::from(ended.err.contains("of an interrupted pass"));
    }

    fn assert_equal(&mut self, what: &str) {
        assert_eq!(differing(&self.device, self.kinto), [""; 0], "{what}");
        self.compared += 1;
    }
}

fn command(is_full: bool) -> &'static [&'static str] {
    if is_full {
        &["reconcile", "parts", "--json"]
    } else {
        &["sync", "--json"]
    }
}
