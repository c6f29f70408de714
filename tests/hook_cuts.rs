//! Promise: an event whose sender was told that it is safe is there after a power cut at any moment, once, and is processed.
//!
//! The real binary runs under `strace` while senders deliver to it; what it sent them is in the same record, so that it is
//! known for each operation which events were acknowledged before it. From that, directories are made as cuts at any
//! operation could have left them (see `power_cut.rs`), and the real binary goes on from each: what was acknowledged is known
//! as that when it is sent again, is listed once, and ends in the copy with all the rest.
//!
//! `GLEANER_CUTS=1000 cargo test --test hook_cuts -- --nocapture` tries so many images instead of 36; `GLEANER_SEED` repeats
//! those of a failure. Needs `strace`; what is left out without it is printed.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;

use rustix::process::Signal;
use serde_json::Value;
use support::cuts::{self, Record};
use support::device::{Device, Running, is_there};
use support::dice::Dice;
use support::hooks::{self, SECRET, Sender};
use support::trace;

/// Images without `GLEANER_CUTS`.
const DEFAULT_CUTS: u64 = 36;

/// Records that events bring, each by two events: a version and a later one.
const RECORDS: usize = 8;

/// An event, and what it brings.
struct Event {
    id: String,
    request: Vec<u8>,
}

/// What was done, and who was told what in it.
struct Story {
    device: Device,
    record: Record,
    events: Vec<Event>,
    /// By event: the line of the record at which its answer was sent, and the request id in it.
    told: BTreeMap<String, (usize, String)>,
    /// The copy as it has to be in the end.
    rows: Vec<(i64, String)>,
}

#[test]
fn any_cut_leaves_every_event_that_was_acknowledged_to_be_processed_once() {
    if !is_there("strace") {
        println!("hook_cuts: strace is not there: no cuts");
        return;
    }
    let most = cuts::images(DEFAULT_CUTS);
    let mut dice = Dice::announced("hook_cuts");
    let story = Story::record();
    let (mut acknowledged, mut torn) = (0, 0);
    let record = &story.record;
    let explored = record.explore(&story.device, most, &mut dice, |cut, _| {
        let went = story.goes_on(cut)?;
        acknowledged += went.acknowledged;
        torn += usize::from(went.torn);
        Ok(())
    });
    println!(
        "hook_cuts: {} operations, {} events; {most} images with {acknowledged} acknowledged events, {torn} with a torn end",
        record.len(),
        story.events.len()
    );
    if let Err(failures) = explored {
        panic!(
            "{} of {most} images:\n{}",
            failures.len(),
            failures.join("\n\n")
        );
    }
    assert!(acknowledged > 0, "no image had an acknowledged event");
    // The same with syncs that do nothing: events are lost, and this test sees it.
    record.lay_without_syncs(&story.device);
    assert!(
        story.goes_on(record.len()).is_err(),
        "nothing is ever lost in these images"
    );
}

/// What an image had.
struct Went {
    acknowledged: usize,
    torn: bool,
}

impl Story {
    fn record() -> Self {
        let device = Device::new();
        fs::write(device.beside("secret"), SECRET).unwrap();
        // Small enough for several segments, large enough to keep all.
        let lines = "quota = \"1MiB\"\nrecords = { source = \"orders\", at = \"/orders\" }\n\
            [source.orders]\nkey = \"/id\"\npull = \"none\"\nupdated = \"/t\"\n";
        device.configure(&hooks::erp(hooks::address(), lines));
        let (events, rows) = events();

        let mut record = Record::on(&device);
        let agent = record.agent(&device);
        let door = door_of(&agent.running);
        let mut ids = BTreeMap::new();
        // Alone, then several in one turn.
        let (first, rest) = events.split_at(RECORDS / 2);
        let mut sender = Sender::connect(door);
        for event in first {
            ids.insert(event.id.clone(), acknowledged(&mut sender, event));
        }
        for group in rest.chunks(4) {
            std::thread::scope(|scope| {
                let sending: Vec<_> = group
                    .iter()
                    .map(|event| {
                        let send = move || acknowledged(&mut Sender::connect(door), event);
                        (event, scope.spawn(send))
                    })
                    .collect();
                for (event, sent) in sending {
                    ids.insert(event.id.clone(), sent.join().unwrap());
                }
            });
        }
        agent
            .running
            .until("all is processed", || rows_of(&device) == rows);
        let (first, text) = record.stop(agent);
        let mut lines: BTreeMap<String, usize> = BTreeMap::new();
        for (line, rest) in trace::sent(&text, "\"request_id\":\"", first) {
            let id = rest.split('"').next().unwrap_or_default().to_owned();
            lines.entry(id).or_insert(line);
        }
        let told = ids
            .into_iter()
            .map(|(event, id)| (event, (lines[&id], id)))
            .collect();
        Self {
            device,
            record,
            events,
            told,
            rows,
        }
    }

    /// Whether the next start has all that was acknowledged before the cut, and comes to the end of the story.
    fn goes_on(&self, cut: usize) -> Result<Went, String> {
        let until = self.record.until(cut);
        let agent = self.device.start(&[], &["run"]);
        let door = door_of(&agent);
        let wrong = |what: String| Err(format!("{what}\n{}", agent.log()));
        let mut sender = Sender::connect(door);
        let mut known = 0;
        for event in &self.events {
            let reply = sender.ask(&event.request);
            if reply.status != 202 {
                return wrong(format!("{}: {reply:?}", event.id));
            }
            let (line, id) = &self.told[&event.id];
            if *line >= until {
                continue;
            }
            known += 1;
            if !reply.is_duplicate() || reply.request_id() != *id {
                return wrong(format!(
                    "{} was acknowledged as {id} and is lost: {reply:?}",
                    event.id
                ));
            }
        }
        let mut listed: Vec<Value> = Vec::new();
        agent.until("all is processed", || {
            listed = self.device.run(&["inbox", "list", "--json"]).reports();
            listed.len() >= self.events.len() && listed.iter().all(|one| one["state"] == "done")
        });
        let mut times: BTreeMap<&str, usize> = BTreeMap::new();
        for one in &listed {
            *times.entry(one["event_id"].as_str().unwrap()).or_default() += 1;
        }
        if times.len() != self.events.len() || times.values().any(|count| *count != 1) {
            return wrong(format!("not each event is there once: {times:?}"));
        }
        let rows = rows_of(&self.device);
        if rows != self.rows {
            return wrong(format!("{rows:?} instead of {:?}", self.rows));
        }
        let log = agent.log();
        let torn = log.contains("they were never acknowledged, and are cut off");
        cuts::unharmed(&self.device, &log)?;
        agent.signal(Signal::TERM);
        let ended = agent.wait();
        if ended.code() == Some(0) {
            Ok(Went {
                acknowledged: known,
                torn,
            })
        } else {
            Err(ended.said())
        }
    }
}

/// Each record in two versions, from 0.3 to 60 kB, and the copy that they make.
fn events() -> (Vec<Event>, Vec<(i64, String)>) {
    let record = |id: usize, version: usize| {
        let pad = "x".repeat(id * id * 1200 / version);
        format!("{{\"id\":{id},\"t\":\"2026-01-0{version}T00:00:00Z\",\"pad\":\"{pad}\"}}")
    };
    let mut events = Vec::new();
    for version in [1, 2] {
        for id in 0..RECORDS {
            let name = format!("e{id}-{version}");
            let body = format!("{{\"orders\":[{}]}}", record(id, version));
            let request = hooks::delivery(&name, &body);
            events.push(Event { id: name, request });
        }
    }
    let rows = (0..RECORDS).map(|id| (i64::try_from(id).unwrap(), record(id, 2)));
    (events, rows.collect())
}

/// Sends an event that is new; what it is called.
fn acknowledged(sender: &mut Sender<std::net::TcpStream>, event: &Event) -> String {
    let reply = sender.ask(&event.request);
    assert_eq!(reply.status, 202, "{}: {reply:?}", event.id);
    assert!(!reply.is_duplicate(), "{}: {reply:?}", event.id);
    reply.request_id()
}

fn door_of(agent: &Running) -> SocketAddr {
    let mut door = None;
    agent.until("the door is open", || {
        door = hooks::door_told(&agent.log());
        door.is_some()
    });
    door.unwrap()
}

fn rows_of(device: &Device) -> Vec<(i64, String)> {
    let rows = device.rows("orders", &[]).unwrap_or_default();
    rows.into_iter().map(|row| (row.key, row.body)).collect()
}
