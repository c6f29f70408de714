//! Promise: a state directory that an earlier release wrote is opened by this one, with all that is in it and nothing asked for
//! twice; and one that a later release wrote is refused with words that say so.
//!
//! `tests/data/state-v1.tar.xz` holds a state directory per version of what is on disk, written by the release that had it. A
//! new one is made with `GLEANER_MAKE_STATE=FILE cargo test --test versions` whenever a version goes up.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

mod support;

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use gleaner::clock::{Clock as _, SystemClock};
use gleaner::store::{Store, StoreError};
use rustix::process::Signal;
use support::device::{Device, Running, is_there, system};
use support::hooks::{self, SECRET};
use support::parts::{Parts, same};

/// What the state directories were written with; the upstream's address is none of what is kept.
fn configure(device: &Device, parts: &Parts) {
    fs::write(device.beside("secret"), SECRET).unwrap();
    let lines = "quota = \"256KiB\"\nrecords = { source = \"orders\", at = \"/orders\" }\n\
        [source.orders]\nkey = \"/id\"\npull = \"none\"\n";
    let source = parts.source("kept", "columns = { name = \"/name\" }");
    device.configure(&(source + &hooks::erp(hooks::address(), lines)));
}

fn event(id: usize) -> Vec<u8> {
    hooks::delivery(
        &format!("e{id}"),
        &format!("{{\"orders\":[{{\"id\":{id}}}]}}"),
    )
}

fn door_of(agent: &Running) -> SocketAddr {
    let mut door = None;
    agent.until("the door is open", || {
        door = hooks::door_told(&agent.log());
        door.is_some()
    });
    door.unwrap()
}

fn orders(device: &Device) -> usize {
    device.rows("orders", &[]).unwrap_or_default().len()
}

/// The state of a device with 40 parts and three events.
fn make(device: &Device, parts: &Parts) {
    configure(device, parts);
    let agent = device.start(&[], &["run"]);
    let door = door_of(&agent);
    for id in 0..3 {
        assert_eq!(hooks::send(door, &event(id)).status, 202);
    }
    agent.until("all is there", || {
        orders(device) == 3 && same(&device.rows("kept", &[]).unwrap(), &parts.expected()).is_ok()
    });
    agent.signal(Signal::TERM);
    assert_eq!(agent.wait().code(), Some(0));
}

/// The device of a version that was kept; `None`, said on standard output, where it cannot be unpacked.
fn kept(version: &str, parts: &Parts) -> Option<Device> {
    if !is_there("xz") {
        println!("left out: state directories of earlier versions (xz is not there)");
        return None;
    }
    let device = Device::new();
    configure(&device, parts);
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let file = data.join(format!("state-{version}.tar.xz"));
    let below = device.state().parent().unwrap().to_owned();
    system("tar", &[Path::new("-xJf"), &file, Path::new("-C"), &below]);
    Some(device)
}

#[test]
fn a_state_directory_of_an_earlier_version_is_opened_with_all_that_is_in_it() {
    let parts = Parts::start(40, 20);
    if let Ok(file) = std::env::var("GLEANER_MAKE_STATE") {
        let device = Device::new();
        make(&device, &parts);
        fs::remove_file(device.state().join("ballast")).unwrap();
        let below = device.state().parent().unwrap().to_owned();
        system(
            "tar",
            &[
                Path::new("-cJf"),
                Path::new(&file),
                Path::new("-C"),
                &below,
                Path::new("state"),
            ],
        );
    }
    let Some(device) = kept("v1", &parts) else {
        return;
    };
    let agent = device.start(&[], &["run"]);
    let door = door_of(&agent);
    let reports = device.sync();
    let report = reports
        .iter()
        .find(|report| report["source"] == "kept")
        .unwrap();
    // Not one record was delivered again, and its memos hold.
    assert_eq!(report["outcome"], "unchanged", "{report}\n{}", agent.log());
    assert_eq!(report["not_modified"], report["requests"], "{report}");
    assert!(same(&device.rows("kept", &[]).unwrap(), &parts.expected()).is_ok());
    for id in 0..3 {
        assert!(
            hooks::send(door, &event(id)).is_duplicate(),
            "event {id} is not known"
        );
    }
    assert_eq!(orders(&device), 3);
    assert_eq!(device.kept_aside(), [""; 0]);
    let log = agent.log();
    assert!(
        !log.contains("learnt again") && !log.contains("ERROR"),
        "{log}"
    );
    agent.signal(Signal::TERM);
    assert_eq!(agent.wait().code(), Some(0));
}

/// Another version's number in the place of ours, in all copies.
fn bump(path: &Path, ours: &[u8], newer: &[u8]) {
    let bytes = fs::read(path).unwrap();
    let file = fs::OpenOptions::new().write(true).open(path).unwrap();
    let places = bytes.windows(ours.len()).enumerate();
    let mut count = 0;
    for (at, _) in places.filter(|(_, bytes)| *bytes == ours) {
        file.write_all_at(newer, at as u64).unwrap();
        count += 1;
    }
    assert!(count > 0, "nothing to bump in {path:?}");
}

#[test]
fn what_a_newer_version_wrote_is_refused_and_left_alone() {
    let parts = Parts::start(40, 20);
    let device = Device::new();
    make(&device, &parts);
    let newer = |said: String, words: &str| {
        assert!(said.contains(words), "{words:?} is not in:\n{said}");
        assert!(said.contains("newer"), "{said}");
    };
    // data.db.
    let sql = |sql: &str| {
        let db = rusqlite::Connection::open(device.state().join("data.db")).unwrap();
        db.execute_batch(sql).unwrap();
    };
    sql("UPDATE _gleaner SET layout = layout + 1");
    let ended = device.run(&["sync"]);
    assert_eq!(ended.code(), Some(74), "{}", ended.said());
    newer(
        ended.said(),
        "written by a newer version (layout 2, this one knows 1); update gleaner",
    );
    sql("UPDATE _gleaner SET layout = layout - 1");
    assert_eq!(device.run(&["sync"]).code(), Some(0));
    // A segment of the inbox: the agent pulls all the same, and says why it saves nothing.
    let segment = device.state().join("inbox/0000000001.seg");
    let done = device.state().join("inbox/0000000001.done");
    let whole = fs::read(&segment).unwrap();
    let mut head = whole[..31].to_vec();
    head[14] += 1;
    let sum = crc32c(&head[..27]);
    head[27..].copy_from_slice(&sum.to_be_bytes());
    bump(&segment, &whole[..31], &head);
    let agent = device.start(&[], &["run"]);
    let reply = hooks::send(door_of(&agent), &event(9));
    assert_eq!(reply.status, 503, "{reply:?}");
    assert!(reply.header("Retry-After").is_some(), "{reply:?}");
    newer(device.run(&["status"]).out, "webhooks cannot be saved");
    agent.signal(Signal::TERM);
    assert_eq!(agent.wait().code(), Some(0));
    fs::write(&segment, whole).unwrap();
    assert!(!done.exists());
    assert_eq!(device.kept_aside(), [""; 0]);
}

/// CRC-32C, bit by bit.
fn crc32c(bytes: &[u8]) -> u32 {
    let mut sum = u32::MAX;
    for byte in bytes {
        sum ^= u32::from(*byte);
        for _ in 0..8 {
            sum = if sum & 1 == 1 {
                sum >> 1 ^ 0x82f6_3b78
            } else {
                sum >> 1
            };
        }
    }
    !sum
}

#[test]
fn a_store_that_was_kept_opens_and_is_sound() {
    let parts = Parts::start(40, 20);
    let Some(device) = kept("v1", &parts) else {
        return;
    };
    let opened = Store::open(&device.state().join("state"), SystemClock.wall());
    let (mut store, _) = match opened {
        Err(StoreError::Newer { what, found, known }) => panic!("{what} {found} {known}"),
        other => other.unwrap(),
    };
    let id = store.source("kept").unwrap();
    assert_eq!(store.count(id), 40);
}
