//! Promise: idle costs nothing, and what is written costs a card little: bytes and syncs per idle poll, per changed record, per
//! webhook and per page of 500, counted at the real binary by `strace`, printed, and bounded here.
//!
//! `cargo test --test amplification -- --nocapture` prints the table of ARCHITECTURE.md.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

mod support;

use std::fs;
use std::net::SocketAddr;

use support::cuts::Record;
use support::device::{Device, Running, is_there};
use support::hooks::{self, SECRET};
use support::parts::{Parts, same};
use support::trace;

/// What is done between two syncs by hand, and how often.
const ACTS: [(&str, usize); 6] = [
    ("start and first page of 500", 1),
    ("idle poll", 5),
    ("page of 500 changed records", 1),
    ("changed record, alone in its pass", 10),
    ("webhook that carries a record, saved and processed", 20),
    ("idle poll", 5),
];

#[test]
fn what_is_written_for_what() {
    if !is_there("strace") {
        println!("left out: what is written for what (strace is not there)");
        return;
    }
    let mut parts = Parts::start(500, 500);
    let device = Device::new();
    fs::write(device.beside("secret"), SECRET).unwrap();
    let lines = "records = { source = \"orders\", at = \"/orders\" }\n\
        [source.orders]\nkey = \"/id\"\npull = \"none\"\n";
    let source = parts.source("kept", "columns = { name = \"/name\" }");
    device.configure(&(source + &hooks::erp(hooks::address(), lines)));
    let mut record = Record::on(&device);
    let agent = record.agent(&device);
    let door = door_of(&agent.running);
    let mut events = 0;
    let mut event = |count: usize| {
        for _ in 0..count {
            events += 1;
            let body = format!("{{\"orders\":[{{\"id\":{events}}}]}}");
            let sent = hooks::send(door, &hooks::delivery(&format!("e{events}"), &body));
            assert_eq!(sent.status, 202);
            let have = || device.rows("orders", &[]).unwrap_or_default().len();
            agent.running.until("it is processed", || have() == events);
        }
    };
    // The first one has the inbox made.
    event(1);
    for (what, times) in ACTS {
        match what {
            "page of 500 changed records" => parts.rewrite_all(),
            "webhook that carries a record, saved and processed" => event(times),
            _ => {}
        }
        let is_single = what.starts_with("changed record");
        for _ in 0..if is_single || what == "idle poll" {
            times
        } else {
            1
        } {
            if is_single {
                parts.rewrite_of(1);
            }
            device.sync();
        }
    }
    assert!(same(&device.rows("kept", &[]).unwrap(), &parts.expected()).is_ok());
    let (first, log) = record.stop(agent);
    let done = trace::sent(&log, "\"done\"", first);
    let mut from = 0;
    let mut syncs_by_hand = done.iter();
    for (what, times) in ACTS {
        let syncs = if what == "idle poll" || what.starts_with("changed record") {
            times
        } else {
            1
        };
        let (end, _) = syncs_by_hand.nth(syncs - 1).unwrap();
        let until = record.before(*end);
        let operations = &record.operations()[from..until];
        from = until;
        let bytes: usize = operations.iter().map(trace::Operation::bytes).sum();
        let syncs = operations
            .iter()
            .filter(|operation| operation.is_sync())
            .count();
        let per = |sum: usize| sum.div_ceil(times);
        println!(
            "amplification: {what}: {} B, {}.{} syncs",
            per(bytes),
            syncs / times,
            syncs * 10 / times % 10
        );
        let (most_bytes, most_syncs) = match what {
            "idle poll" => (0, 0),
            "start and first page of 500" => (2_000_000 + (4 << 20), 80),
            "page of 500 changed records" => (400_000, 10),
            "changed record, alone in its pass" => (40_000, 6),
            _ => (40_000, 8),
        };
        assert!(
            per(bytes) <= most_bytes && per(syncs) <= most_syncs,
            "{what}: {operations:#?}"
        );
    }
}

fn door_of(agent: &Running) -> SocketAddr {
    let mut door = None;
    agent.until("the door is open", || {
        door = hooks::door_told(&agent.log());
        door.is_some()
    });
    door.unwrap()
}
