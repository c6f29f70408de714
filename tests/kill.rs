//! Promise: whenever the process is killed, nothing is lost, doubled or half-written, and the next sync ends in the same
//! data as an undisturbed one.
//!
//! The real binary is killed with SIGKILL at moments of real time, and (where `strace` is there) at the entry of the nth
//! system call that makes data durable: the one of `data.db` comes before the store knows of it, so that a kill there is a
//! cut between sink and store. Between a kill and the next sync the upstream often goes back to what it was, deletes or
//! brings back. A kill keeps the page cache: it is no power cut.
//!
//! Each run is short; the long one: `GLEANER_KILLS=200 cargo test --test kill -- --nocapture`, with `GLEANER_SEED=…` to
//! repeat what can be repeated.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]
#![allow(
    clippy::disallowed_methods,
    reason = "the process that is killed lives in real time"
)]

mod support;

use std::os::unix::process::ExitStatusExt as _;
use std::time::{Duration, Instant};

use support::device::{Device, Ended, Row, is_there};
use support::dice::Dice;
use support::parts::{Parts, same};

/// Kills without `GLEANER_KILLS`.
const DEFAULT_KILLS: u64 = 20;

/// Both ways to delete, and two configs to change between.
fn config(parts: &Parts, columns: bool) -> String {
    let columns = if columns {
        "columns = { name = \"/name\", rev = \"/rev\" }"
    } else {
        "columns = { rev = \"/rev\" }"
    };
    parts.source("kept", columns)
        + &parts.source("marked", &format!("deletes = \"mark\"\n{columns}"))
}

const TABLES: [&str; 2] = ["kept", "marked"];

struct Story {
    parts: Parts,
    device: Device,
    dice: Dice,
    /// Whether the column `name` is configured.
    columns: bool,
    /// How long an undisturbed sync took last.
    span: Duration,
    strace: bool,
    kills: u64,
    /// Of them, those that the next start found to be between sink and store.
    between: u64,
    vouched: u64,
    what: Vec<String>,
}

impl Story {
    fn begin() -> Self {
        let dice = Dice::announced("kill");
        let strace = is_there("strace");
        if !strace {
            println!("kill: strace is not there: no kills at chosen system calls");
        }
        let mut story = Self {
            parts: Parts::start(620, 270),
            device: Device::new(),
            dice,
            columns: true,
            span: Duration::from_millis(300),
            strace,
            kills: 0,
            between: 0,
            vouched: 0,
            what: Vec::new(),
        };
        story.configure();
        story
    }

    fn configure(&mut self) {
        self.device.configure(&config(&self.parts, self.columns));
    }

    fn tell(&mut self, what: impl Into<String>) {
        self.what.push(what.into());
    }

    /// Upstream changes, perhaps the config; a sync or a replay is killed; upstream goes on or back.
    fn disturbance(&mut self) {
        let before = self.parts.list();
        self.parts.live_on(&mut self.dice);
        if self.dice.once_in(5) {
            self.columns = !self.columns;
            self.configure();
            self.tell(format!("config: columns {}", self.columns));
        }
        let arguments: &[&str] = match self.dice.below(6) {
            0 => &["replay", "kept", "--json"],
            1 => &["replay", "marked", "--json"],
            _ => &["sync", "--json"],
        };
        let ended = self.killed(arguments);
        self.note(&ended);
        let was_killed = ended.status.signal() == Some(9);
        assert!(
            was_killed || ended.code() == Some(0),
            "{}",
            self.story(&ended.said())
        );
        self.kills += u64::from(was_killed);
        self.look();
        match self.dice.below(4) {
            0 => {
                self.tell("upstream goes back");
                self.parts.go_back(before);
            }
            1 => {
                self.tell("upstream brings one back");
                self.parts.reinsert(&mut self.dice);
            }
            2 => {
                self.tell("upstream goes on");
                self.parts.live_on(&mut self.dice);
            }
            _ => {}
        }
        if self.dice.once_in(6) {
            self.columns = !self.columns;
            self.configure();
            self.tell(format!("config: columns {}", self.columns));
        }
    }

    /// Runs a command and kills it somewhere.
    fn killed(&mut self, arguments: &[&str]) -> Ended {
        if self.strace && self.dice.once_in(2) {
            let (calls, most) = match self.dice.below(3) {
                0 => ("pwrite64", 160),
                1 => ("fdatasync", 26),
                _ => ("fdatasync", 8),
            };
            let nth = 1 + self.dice.below(most);
            self.tell(format!("{arguments:?} killed at the {nth}th {calls}"));
            let trace = format!("trace={calls}");
            let inject = format!("inject={calls}:signal=SIGKILL:when={nth}");
            let strace = [
                "strace",
                "-f",
                "-qq",
                "-o",
                "/dev/null",
                "-e",
                &trace,
                "-e",
                &inject,
            ];
            support::device::ended(&mut self.device.command(&strace, arguments))
        } else {
            let moment = self
                .span
                .mul_f64(f64::from(u32::try_from(self.dice.below(1000)).unwrap()) / 900.0);
            self.tell(format!("{arguments:?} killed after {moment:?}"));
            let running = self.device.start(&[], arguments);
            // A random moment is what this is about; nothing is waited for.
            std::thread::sleep(moment);
            let _over_already =
                rustix::process::kill_process(running.pid(), rustix::process::Signal::KILL);
            running.wait()
        }
    }

    fn note(&mut self, ended: &Ended) {
        self.between += u64::from(ended.err.contains("delivered just before a cut"));
    }

    fn rows(&self, device: &Device, table: &str) -> Vec<Row> {
        device
            .rows(table, &["name", "rev"])
            .unwrap_or_else(|error| panic!("{}", self.story(&error.to_string())))
    }

    /// What a local reader may never see.
    fn look(&self) {
        assert_eq!(self.device.integrity(), "ok", "{}", self.story(""));
        for table in TABLES {
            let rows = self.rows(&self.device, table);
            if let Some(row) = self.parts.half_row(&rows) {
                panic!(
                    "{}",
                    self.story(&format!("{table}: half a record: {row:?}"))
                );
            }
        }
    }

    /// A sync that nobody disturbs ends in what upstream has.
    fn settle(&mut self) {
        let start = Instant::now();
        let ended = self.device.run(&["sync", "--json"]);
        self.span = (self.span + start.elapsed()) / 2;
        self.note(&ended);
        self.tell("undisturbed sync");
        assert_eq!(ended.code(), Some(0), "{}", self.story(&ended.said()));
        self.vouched += ended
            .reports()
            .iter()
            .filter_map(|report| report["not_modified"].as_u64())
            .sum::<u64>();
        self.look();
        let expected = self.parts.expected();
        for table in TABLES {
            let rows = self.rows(&self.device, table);
            if let Err(wrong) = same(&rows, &expected) {
                panic!(
                    "{}",
                    self.story(&format!("{table}: {wrong}\n{}", ended.said()))
                );
            }
            for row in &rows {
                let json: serde_json::Value = serde_json::from_str(&row.body).unwrap();
                let name = self
                    .columns
                    .then(|| json["name"].as_str().unwrap().to_owned());
                let columns = vec![name, Some(json["rev"].to_string())];
                assert_eq!(row.columns, columns, "{}", self.story(table));
            }
        }
        self.what.clear();
    }

    /// Equal to a first sync of the same state into an empty directory, digests and all.
    fn compare_with_fresh(&mut self) {
        let fresh = Device::new();
        fresh.configure(&config(&self.parts, self.columns));
        fresh.sync();
        for table in TABLES {
            assert!(
                self.rows(&self.device, table) == self.rows(&fresh, table),
                "{}",
                self.story(table)
            );
        }
    }

    fn story(&self, end: &str) -> String {
        format!(
            "after {} kills:\n{}\n{end}",
            self.kills,
            self.what.join("\n")
        )
    }
}

#[test]
fn a_kill_at_any_moment_costs_nothing() {
    let wanted = std::env::var("GLEANER_KILLS").map_or(DEFAULT_KILLS, |text| text.parse().unwrap());
    let mut story = Story::begin();
    let start = Instant::now();
    // Where a kill falls is chance: on until one fell between the two commits, within reason.
    let unlucky = |story: &Story| story.strace && story.between == 0 && story.kills < 10 * wanted;
    while story.kills < wanted || unlucky(&story) {
        for _ in 0..=story.dice.below(2) {
            story.disturbance();
        }
        story.settle();
        if story.dice.once_in(8) {
            story.compare_with_fresh();
        }
    }
    story.compare_with_fresh();
    println!(
        "kill: {} kills, {} of them between sink and store, {} pages vouched for by a 304, {:.0?}",
        story.kills,
        story.between,
        story.vouched,
        start.elapsed()
    );
    assert!(story.vouched > 0, "no 304 was ever in play");
    assert!(
        !story.strace || story.between > 0,
        "no kill hit between sink and store"
    );
}
