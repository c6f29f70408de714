//! Promise: whatever a running agent is doing when the power is cut, and again while it recovers: what it had said is there,
//! no half of anything is, and it goes on to the same data.
//!
//! One agent lives through a list of acts under `strace`: its store is rewritten, it pulls changes and deletions, events come in
//! until a segment of the inbox is full, its config changes while it runs. Each act ends with a `gleaner sync`, whose last word
//! is in the record: from there on what the act brought is promised. From that, directories are made as cuts at any operation
//! could have left them (see `power_cut.rs`), and the real binary goes on from each; from every fourth it is cut in its
//! recovery as well, and in the recovery from that.
//!
//! `GLEANER_CUTS=1000 cargo test --test agent_cuts -- --nocapture` tries so many images instead of 20; `GLEANER_SEED` repeats
//! those of a failure. Needs `strace`; what is left out without it is printed.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

mod support;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use gleaner::clock::{Clock as _, SystemClock};
use gleaner::store::{Batch, Key, SourceId, Store, Tag};
use rustix::process::Signal;
use support::cuts::{self, Record, Traced};
use support::device::{Device, Row, Running, is_there};
use support::dice::Dice;
use support::hooks::{self, SECRET, Sender};
use support::parts::{Parts, same};
use support::trace;

/// Images without `GLEANER_CUTS`.
const DEFAULT_CUTS: u64 = 20;

/// How deep an image of so many is cut in its recovery.
const NESTED: (u64, u32) = (4, 2);

/// Records that events bring.
const ORDERS: usize = 6;

/// What happens. Whoever adds a kind of thing that the agent does adds an act here, and what it leaves to [`Copy`].
#[derive(Debug, Clone, Copy)]
enum Act {
    /// It has started with a store that is mostly waste.
    Rewrite,
    /// Upstream changes, and loses its last record.
    Change,
    /// Upstream has more.
    Add,
    /// Every record is another.
    ChangeAll,
    /// Every order in its next version, by events.
    Events,
    /// The config is read again.
    Reload(Sources),
}

/// What the config says of the source `kept`, and whether there is another.
#[derive(Debug, Clone, Copy)]
struct Sources {
    columns: &'static str,
    more: bool,
}

const PLAIN: Sources = Sources {
    columns: "name = \"/name\"",
    more: false,
};
const WIDER: Sources = Sources {
    columns: "name = \"/name\", rev = \"/rev\"",
    more: true,
};
const NARROW: Sources = Sources {
    columns: "rev = \"/rev\"",
    more: false,
};

const ACTS: [Act; 10] = [
    Act::Rewrite,
    Act::Change,
    Act::Events,
    Act::Reload(WIDER),
    Act::ChangeAll,
    Act::Events,
    Act::Reload(NARROW),
    Act::Add,
    Act::Events,
    Act::Change,
];

/// What local readers see: each source's rows by key.
type Copy = BTreeMap<&'static str, BTreeMap<i64, Row>>;

/// An event, and what its sender was told.
struct Event {
    request: Vec<u8>,
    /// The id that it was acknowledged as, and the line of the record.
    told: Option<(String, usize)>,
}

/// Where the story was at a time.
struct Stage {
    /// The line of the record from which on it is promised.
    line: usize,
    sources: Sources,
    copy: Copy,
}

struct Story {
    parts: Parts,
    device: Device,
    door: SocketAddr,
    record: Record,
    stages: Vec<Stage>,
    events: Vec<Event>,
    versions: usize,
}

#[test]
fn any_cut_of_a_running_agent_and_of_its_recovery_keeps_what_was_said() {
    if !is_there("strace") {
        println!("agent_cuts: strace is not there: no cuts");
        return;
    }
    let most = cuts::images(DEFAULT_CUTS);
    let mut dice = Dice::announced("agent_cuts");
    let story = Story::record();
    let count = story.record.len();
    println!(
        "agent_cuts: {count} operations of {} acts, {} events",
        ACTS.len(),
        story.events.len()
    );
    let (nested, tried) = (Cell::new(0), Cell::new(0));
    let explored = story
        .record
        .explore(&story.device, most, &mut dice, |cut, dice| {
            tried.set(tried.get() + 1);
            let stage = story.stage(cut);
            let mut told = String::new();
            let recovered = tried.get() % NESTED.0 == 0;
            if recovered {
                story.device.configure(&story.config(stage.1.sources));
                let recover = |record: &mut Record| story.recover(record);
                told = cuts::within_recovery(&story.device, NESTED.1, dice, &recover)?;
                nested.set(nested.get() + NESTED.1);
            }
            let went = story.goes_on(cut, recovered);
            went.map_err(|wrong| format!("{told}{wrong}"))
        });
    println!(
        "agent_cuts: {most} images, {} more inside recoveries",
        nested.get()
    );
    if let Err(failures) = explored {
        panic!(
            "{} of {most} images:\n{}",
            failures.len(),
            failures.join("\n\n")
        );
    }
    // The same with syncs that do nothing: something is lost, and this test sees it.
    story.record.lay_without_syncs(&story.device);
    assert!(
        story.goes_on(count, false).is_err(),
        "nothing is ever lost in these images"
    );
}

impl Story {
    fn record() -> Self {
        let parts = Parts::start(60, 30);
        let device = Device::new();
        fs::write(device.beside("secret"), SECRET).unwrap();
        let mut story = Self {
            record: Record::on(&device),
            parts,
            device,
            door: hooks::address(),
            stages: Vec::new(),
            events: Vec::new(),
            versions: 0,
        };
        story.device.configure(&story.config(PLAIN));
        story.device.sync();
        waste(&story.device.state().join("state"));
        story.record = Record::on(&story.device);
        story.live();
        story
    }

    /// All acts, by one agent.
    fn live(&mut self) {
        let agent = self.record.agent(&self.device);
        let mut sources = PLAIN;
        let before = self.now(sources);
        self.stages.push(before);
        let mut ids = Vec::new();
        for act in ACTS {
            match act {
                Act::Rewrite => {
                    let rewritten = || agent.running.log().contains("the store was rewritten");
                    agent.running.until("the store is rewritten", rewritten);
                }
                Act::Change => self.parts.rewrite_some_and_lose_the_last(1),
                Act::Add => self.parts.add(10),
                Act::ChangeAll => self.parts.rewrite_all(),
                Act::Events => ids.extend(self.send(&agent)),
                Act::Reload(changed) => {
                    sources = changed;
                    let count = || agent.running.log().matches("was read again").count();
                    let before = count();
                    self.device.configure(&self.config(sources));
                    agent.signal(Signal::HUP);
                    agent.running.until("it was read", || count() > before);
                    // It answers when it has opened the state directory again: before, a sync would do that itself.
                    let status = self.device.run(&["status"]);
                    assert_eq!(status.code(), Some(0), "{}", status.said());
                }
            }
            self.device.sync();
            self.is_as_upstream().unwrap();
            let stage = self.now(sources);
            self.stages.push(stage);
        }
        let (first, log) = self.record.stop(agent);
        let done = trace::sent(&log, "\"done\"", first);
        assert_eq!(done.len(), ACTS.len(), "each act ends with a sync");
        for (stage, (line, _)) in self.stages[1..].iter_mut().zip(done) {
            stage.line = line;
        }
        for (line, rest) in trace::sent(&log, "\"request_id\":\"", first) {
            let id = rest.split('"').next().unwrap_or_default();
            let at = ids.iter().position(|sent| sent == id).unwrap();
            let told = &mut self.events[at].told;
            told.get_or_insert((id.to_owned(), line));
        }
        assert!(self.events.iter().all(|event| event.told.is_some()));
    }

    /// Every order in its next version, some of them in one turn; what they are known as.
    fn send(&mut self, agent: &Traced) -> Vec<String> {
        self.versions += 1;
        let events: Vec<Vec<u8>> = (0..ORDERS)
            .map(|id| {
                let body = format!("{{\"orders\":[{}]}}", order(id, self.versions));
                hooks::delivery(&format!("e{id}-{}", self.versions), &body)
            })
            .collect();
        let door = door_of(&agent.running);
        let ids = std::thread::scope(|scope| {
            let send = |request: &Vec<u8>| hooks::send(door, request).request_id();
            let sending: Vec<_> = events
                .iter()
                .map(|request| scope.spawn(move || send(request)))
                .collect();
            let sent = sending.into_iter().map(|sent| sent.join().unwrap());
            sent.collect()
        });
        let events = events.into_iter().map(|request| Event {
            request,
            told: None,
        });
        self.events.extend(events);
        let processed = || self.is_as_sent().is_ok();
        agent.running.until("all is processed", processed);
        ids
    }

    fn config(&self, sources: Sources) -> String {
        let columns = format!("columns = {{ {} }}", sources.columns);
        let mut text = self.parts.source("kept", &columns);
        if sources.more {
            text += &self.parts.source("more", "");
        }
        // Small enough for several segments, large enough to keep all.
        let lines = "quota = \"1MiB\"\nrecords = { source = \"orders\", at = \"/orders\" }\n\
            [source.orders]\nkey = \"/id\"\npull = \"none\"\nupdated = \"/t\"\n";
        text + &hooks::erp(self.door, lines)
    }

    fn now(&self, sources: Sources) -> Stage {
        Stage {
            line: 0,
            sources,
            copy: copy_of(&self.device),
        }
    }

    fn is_as_upstream(&self) -> Result<(), String> {
        let rows = self.device.rows("kept", &[]);
        same(
            &rows.map_err(|error| error.to_string())?,
            &self.parts.expected(),
        )
    }

    fn is_as_sent(&self) -> Result<(), String> {
        let rows = self.device.rows("orders", &[]);
        let sent = (0..ORDERS).filter(|_| self.versions > 0);
        let sent: Vec<_> = sent
            .map(|id| (i64::try_from(id).unwrap(), order(id, self.versions)))
            .collect();
        same(&rows.map_err(|error| error.to_string())?, &sent)
    }

    /// What was promised at a cut, and what was about to be.
    fn stage(&self, cut: usize) -> (&Stage, &Stage) {
        let until = self.record.until(cut);
        let next = self.stages.partition_point(|stage| stage.line < until);
        let about = next.min(self.stages.len() - 1);
        (&self.stages[next - 1], &self.stages[about])
    }

    /// Whether every row is what it was at the last promise, or what it was to be at the next; where it was recovered
    /// meanwhile, also what it is upstream in the end.
    fn holds(&self, cut: usize, recovered: bool) -> Result<(), String> {
        let (had, about) = self.stage(cut);
        // In a copy: the agent is to be the first that opens this.
        let aside = self.device.beside("look");
        if aside.exists() {
            fs::remove_dir_all(&aside).unwrap();
        }
        fs::create_dir(&aside).unwrap();
        for name in ["data.db", "data.db-wal"] {
            let from = self.device.state().join(name);
            if from.exists() {
                fs::copy(from, aside.join(name)).unwrap();
            }
        }
        let found = copy_of(&Device::with_state(&aside));
        let last = &self.stages[self.stages.len() - 1].copy;
        let body = |row: Option<&Row>| row.map(|row| row.body.clone());
        for (table, rows) in &found {
            let keys = [rows, &had.copy[table], &about.copy[table]];
            let keys = keys.iter().flat_map(|rows| rows.keys());
            for key in keys {
                let (row, before) = (rows.get(key), had.copy[table].get(key));
                // Listed twice, the parts are the same.
                let end = last[if *table == "more" { "kept" } else { table }].get(key);
                let is_new = recovered && body(row) == body(end);
                if row != before && row != about.copy[table].get(key) && !is_new {
                    return Err(format!("{table} {key} is {row:?}, and was {before:?}"));
                }
            }
        }
        Ok(())
    }

    /// The next start, recorded, as far as it comes by itself.
    fn recover(&self, record: &mut Record) -> Result<(), String> {
        let agent = record.agent(&self.device);
        door_of(&agent.running);
        let ended = self.device.run(&["sync", "--json"]);
        record.stop(agent);
        match ended.code() {
            Some(0) => Ok(()),
            _ => Err(ended.said()),
        }
    }

    /// Whether the next start has all that was promised, and comes to the end of the story.
    fn goes_on(&self, cut: usize, recovered: bool) -> Result<(), String> {
        let until = self.record.until(cut);
        let (_, about) = self.stage(cut);
        self.device.configure(&self.config(about.sources));
        self.holds(cut, recovered)?;
        let agent = self.device.start(&[], &["run"]);
        let wrong = |what: String| Err(format!("{what}\n{}", agent.log()));
        let mut sender = Sender::connect(door_of(&agent));
        for event in &self.events {
            let reply = sender.ask(&event.request);
            let (id, line) = event.told.as_ref().unwrap();
            let known = reply.is_duplicate() && reply.request_id() == *id;
            if reply.status != 202 || *line < until && !known {
                return wrong(format!("acknowledged as {id}: {reply:?}"));
            }
        }
        let ended = self.device.run(&["sync", "--json"]);
        if ended.code() != Some(0) {
            return wrong(ended.said());
        }
        agent.until("all is processed", || {
            let listed = self.device.run(&["inbox", "list", "--json"]).reports();
            listed.len() == self.events.len() && listed.iter().all(|one| one["state"] == "done")
        });
        for is_so in [self.is_as_upstream(), self.is_as_sent()] {
            if let Err(what) = is_so {
                return wrong(what);
            }
        }
        cuts::unharmed(&self.device, &agent.log())?;
        agent.signal(Signal::TERM);
        let ended = agent.wait();
        match ended.code() {
            Some(0) => Ok(()),
            _ => Err(ended.said()),
        }
    }
}

fn order(id: usize, version: usize) -> String {
    let pad = "x".repeat(id * id * 2000 / version);
    format!("{{\"id\":{id},\"t\":\"2026-01-0{version}T00:00:00Z\",\"pad\":\"{pad}\"}}")
}

fn copy_of(device: &Device) -> Copy {
    let tables = [
        ("kept", &["name", "rev"][..]),
        ("more", &[]),
        ("orders", &[]),
    ];
    let rows = |(table, columns): (&'static str, &[&str])| {
        let rows = device.rows(table, columns).unwrap();
        (table, rows.into_iter().map(|row| (row.key, row)).collect())
    };
    tables.into_iter().map(rows).collect()
}

fn door_of(agent: &Running) -> SocketAddr {
    let mut door = None;
    agent.until("the door is open", || {
        door = hooks::door_told(&agent.log());
        door.is_some()
    });
    door.unwrap()
}

/// Fills a store and empties it again: most of its file is waste then.
fn waste(home: &Path) {
    let (mut store, _) = Store::open(home, SystemClock.wall()).unwrap();
    for n in 0..180_u8 {
        let mut batch = Batch::new();
        for m in 0..10 {
            let key = Key::new(Tag::Bitmap, SourceId::NONE, &[n, m]);
            batch.put(key, &[n; 2900]);
        }
        store.commit(batch).unwrap();
    }
    let mut batch = Batch::new();
    batch.remove_prefix(Key::new(Tag::Bitmap, SourceId::NONE, &[]));
    store.commit(batch).unwrap();
    assert!(store.wants_compaction().unwrap());
}
