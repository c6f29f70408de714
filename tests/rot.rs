//! Promise: a byte that rots, in whatever file of the state directory, costs no data that can be had again: what is damaged is
//! kept aside with its date or named, the copy comes to what upstream has, and the inbox loses the record that was hit alone.
//!
//! A state directory with rows, and with events that wait; one byte of it is flipped; the real agent goes on from there. Some
//! places of each file; more with `GLEANER_ROT=60 cargo test --test rot -- --nocapture`, which prints the table.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use rustix::process::Signal;
use support::device::{Device, Running, system};
use support::hooks::{self, SECRET};
use support::parts::{Parts, same};

/// Places of each file without `GLEANER_ROT`.
const DEFAULT_PLACES: u64 = 4;

const EVENTS: usize = 5;

struct Story {
    device: Device,
    parts: Parts,
    base: PathBuf,
    /// What each event was acknowledged as.
    ids: Vec<String>,
    /// How many of them were not taken up yet.
    waiting: usize,
}

#[test]
fn a_byte_that_rots_costs_nothing_that_can_be_had_again() {
    let places = std::env::var("GLEANER_ROT").map_or(DEFAULT_PLACES, |text| text.parse().unwrap());
    let story = Story::start();
    let (mut table, mut failures) = (BTreeMap::<(String, String), usize>::new(), Vec::new());
    let files = files(&story.base);
    for file in &files {
        let length = fs::metadata(story.base.join(file)).unwrap().len();
        // The ends are where the heads are.
        let at = |nth: u64| match nth {
            0 => 0,
            nth => (length - 1) * nth / (places - 1).max(1),
        };
        for at in (0..places).map(at).collect::<BTreeSet<u64>>() {
            match story.trial(file, at) {
                Ok(outcome) => *table.entry((kind(file), outcome)).or_default() += 1,
                Err(wrong) => failures.push(format!("{file:?} at {at} of {length}: {wrong}")),
            }
        }
    }
    for ((file, outcome), count) in &table {
        println!("rot: {file}: {count} × {outcome}");
    }
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
    for kind in ["data.db", "db", "seg", "marks", "CURRENT", "conf"] {
        let is_there = table.keys().any(|(file, _)| file == kind);
        assert!(is_there, "{kind} is not among {files:?}");
    }
}

#[test]
fn a_row_that_rots_is_found_and_written_again() {
    let story = Story::start();
    // Straight into a body: the file is in order for SQLite.
    let text = fs::read(story.base.join("data.db")).unwrap();
    let name = b"\"part 17\"";
    let places = text.windows(name.len()).enumerate();
    let mut hits = places.filter(|(_, bytes)| bytes == name).map(|(at, _)| at);
    let at = hits.next_back().unwrap() as u64 + 2;
    let outcome = story.trial(Path::new("data.db"), at).unwrap();
    assert_eq!(outcome, "rows are named, and written again");
}

impl Story {
    fn start() -> Self {
        let parts = Parts::start(60, 30);
        let device = Device::new();
        fs::write(device.beside("secret"), SECRET).unwrap();
        let base = device.beside("base");
        let mut story = Self {
            device,
            parts,
            base,
            ids: Vec::new(),
            waiting: 0,
        };
        // Events wait until somebody else takes them up.
        story.configure("1h");
        let agent = story.device.start(&[], &["run"]);
        let door = door_of(&agent);
        story.ids = (0..EVENTS)
            .map(|id| hooks::send(door, &event(id)).request_id())
            .collect();
        agent.until("first pass", || story.is_equal().is_ok());
        agent.signal(Signal::TERM);
        assert_eq!(agent.wait().code(), Some(0));
        let db = rusqlite::Connection::open(story.device.state().join("data.db")).unwrap();
        db.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))
            .unwrap();
        drop(db);
        story.configure("0s");
        story.waiting = EVENTS - story.orders();
        system("cp", &[Path::new("-a"), story.device.state(), &story.base]);
        story
    }

    fn configure(&self, every: &str) {
        let lines = "quota = \"256KiB\"\nrecords = { source = \"orders\", at = \"/orders\" }\n\
            [source.orders]\nkey = \"/id\"\npull = \"none\"\n";
        let hooks = hooks::erp(hooks::address(), lines);
        let hooks = hooks.replace("every = \"0s\"", &format!("every = \"{every}\""));
        let columns = "columns = { name = \"/name\" }";
        self.device
            .configure(&(self.parts.source("kept", columns) + &hooks));
    }

    fn is_equal(&self) -> Result<(), String> {
        let rows = self.device.rows("kept", &[]);
        same(
            &rows.map_err(|error| error.to_string())?,
            &self.parts.expected(),
        )
    }

    /// Rows that events brought. What was taken up before is in `data.db` alone.
    fn orders(&self) -> usize {
        let rows = self.device.rows("orders", &[]).unwrap_or_default();
        rows.iter().filter(|row| row.key != 99).count()
    }

    /// Flips a byte, has the agent go on, and says in words what became of it.
    fn trial(&self, file: &Path, at: u64) -> Result<String, String> {
        if self.device.state().exists() {
            fs::remove_dir_all(self.device.state()).unwrap();
        }
        system("cp", &[Path::new("-a"), &self.base, self.device.state()]);
        flip(&self.device.state().join(file), at);
        let agent = self.device.start(&[], &["run"]);
        let door = door_of(&agent);
        let synced = self.device.run(&["sync", "--json"]);
        if synced.code() != Some(0) {
            return Err(format!("{}\n{}", synced.said(), agent.log()));
        }
        let mut lost = 0;
        for (id, known) in self.ids.iter().enumerate() {
            let reply = hooks::send(door, &event(id));
            if reply.status != 202 {
                return Err(format!("event {id}: {reply:?}\n{}", agent.log()));
            }
            lost += usize::from(reply.request_id() != *known);
        }
        agent.until("all is as upstream has it", || {
            self.orders() >= self.waiting && self.is_equal().is_ok()
        });
        let status = self.device.run(&["status"]);
        agent.signal(Signal::TERM);
        let ended = agent.wait();
        if ended.code() != Some(0) || ended.said().contains("panicked") {
            return Err(ended.said());
        }
        self.outcome(&ended.err, &status.out, lost)
    }

    /// What the log and `status` say has to fit what was lost and put aside.
    fn outcome(&self, log: &str, status: &str, lost: usize) -> Result<String, String> {
        let aside = self.device.kept_aside();
        // The file is named, and not its logs.
        let logs = ["-wal", "-shm"];
        for name in aside
            .iter()
            .filter(|name| !logs.iter().any(|log| name.ends_with(log)))
        {
            if !status.contains(name.as_str()) {
                return Err(format!(
                    "status does not say that {name} is kept:\n{status}\n{log}"
                ));
            }
        }
        let segment = log.contains("a segment of the inbox cannot be read at all");
        let named = log.matches("a payload is lost").count();
        if lost > named && !segment {
            return Err(format!(
                "{lost} events are lost, and {named} places named:\n{log}"
            ));
        }
        if lost > 1 && !segment {
            return Err(format!("one byte cost {lost} events:\n{log}"));
        }
        let mut words = Vec::new();
        let mut say = |is_so: bool, what: &str| {
            if is_so {
                words.push(what.to_owned());
            }
        };
        let has = |prefix: &str| aside.iter().any(|name| name.starts_with(prefix));
        say(has("damaged-"), "the store is kept aside, and learnt again");
        say(
            has("data.db.damaged-"),
            "data.db is kept aside, and filled again",
        );
        say(
            log.contains("were not what was written there"),
            "rows are named, and written again",
        );
        say(
            log.contains("trying a copy without its snapshot"),
            "the store is opened without its snapshot",
        );
        say(
            log.contains("learnt again from data.db"),
            "the store is learnt again from data.db",
        );
        say(segment, "the segment is kept aside");
        say(
            named > 0 && !segment,
            "the record is named; the others are whole",
        );
        say(
            log.contains("they are processed again"),
            "what became of some is not known: processed again",
        );
        say(
            log.contains("are cut off"),
            "taken for the end of a write, and cut off",
        );
        // A page that no row is on, or not yet come to: the rows themselves are right.
        let is_whole = self.device.integrity() == "ok";
        say(!is_whole, "not noticed, where no row is read from");
        if words.is_empty() {
            words.push("nothing to be noticed".into());
        }
        Ok(words.join("; "))
    }
}

/// The files below a directory, without SQLite's shared memory, which no start reads.
fn files(base: &Path) -> Vec<PathBuf> {
    let (mut files, mut dirs) = (Vec::new(), vec![base.to_owned()]);
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                dirs.push(path);
            } else if fs::metadata(&path).unwrap().len() > 0 && !path.ends_with("data.db-shm") {
                files.push(path.strip_prefix(base).unwrap().to_owned());
            }
        }
    }
    files.sort();
    files
}

/// What a file is called in the table.
fn kind(file: &Path) -> String {
    let name = file.file_name().unwrap().to_string_lossy();
    if name.starts_with("snap.") {
        return "snap".into();
    }
    match name.split_once('.') {
        Some((number, kind)) if number.parse::<u32>().is_ok() => kind.into(),
        _ => name.into_owned(),
    }
}

fn flip(path: &Path, at: u64) {
    let file = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    // A letter stays one: worse than what no reader could take for text.
    file.write_all_at(&[byte[0] ^ 1], at).unwrap();
}

fn event(id: usize) -> Vec<u8> {
    let pad = "x".repeat(6000);
    let body = format!("{{\"orders\":[{{\"id\":{id},\"pad\":\"{pad}\"}}]}}");
    hooks::delivery(&format!("e{id}"), &body)
}

fn door_of(agent: &Running) -> SocketAddr {
    let mut door = None;
    agent.until("the door is open", || {
        door = hooks::door_told(&agent.log());
        door.is_some()
    });
    door.unwrap()
}
