//! Promise: a power cut at any moment leaves a state directory that the next start opens, with all that was committed.
//!
//! The real binary pulls twice while `strace` records what it does to its state directory. From that, directories are made
//! as cuts at any operation could have left them (`support/replay.rs` has the model, `support/trace.rs` the log), and the real binary goes on from each.
//!
//! `GLEANER_CUTS=3000 cargo test --test power_cut -- --nocapture` tries so many images instead of 200; `GLEANER_SEED`
//! repeats those of a failure, as far as the store's threads take the same turns. Needs `strace`; what is left out without it is printed.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

mod support;

use std::path::Path;

use support::cuts::{self, Record};
use support::device::{Device, is_there};
use support::dice::Dice;
use support::parts::{Parts, same};
use support::trace;

/// Images without `GLEANER_CUTS`.
const DEFAULT_CUTS: u64 = 200;

/// What was done, and what it was for.
struct Story {
    parts: Parts,
    device: Device,
    record: Record,
    /// So many of them are before the first command's end.
    first: usize,
    /// What was committed by then.
    committed: Vec<(i64, String)>,
}

#[test]
fn any_cut_leaves_what_was_committed_and_a_directory_to_go_on_from() {
    if !is_there("strace") {
        println!("power_cut: strace is not there: no cuts");
        return;
    }
    let most = cuts::images(DEFAULT_CUTS);
    let mut dice = Dice::announced("power_cut");
    let story = Story::record();
    let (count, first) = (story.record.len(), story.first);
    println!("power_cut: {count} operations, {first} of the first pull, {most} images");
    let explored = story
        .record
        .explore(&story.device, most, &mut dice, |cut, _| story.goes_on(cut));
    if let Err(failures) = explored {
        panic!(
            "{} of {most} images:\n{}",
            failures.len(),
            failures.join("\n\n")
        );
    }
    // The same with syncs that do nothing: rows are lost, and this test sees it.
    story.record.lay_without_syncs(&story.device);
    assert!(
        story.holds(count).is_err(),
        "nothing is ever lost in these images"
    );
}

impl Story {
    fn record() -> Self {
        let mut parts = Parts::start(60, 30);
        let device = Device::new();
        device.configure(&parts.source("kept", "columns = { name = \"/name\" }"));
        let mut record = Record::on(&device);
        record.command(&device, &["sync", "--json"]);
        let first = record.len();
        let committed = parts.expected();
        assert!(same(&device.rows("kept", &[]).unwrap(), &committed).is_ok());
        parts.rewrite_some_and_lose_the_last(1);
        record.command(&device, &["sync", "--json"]);
        Self {
            parts,
            device,
            record,
            first,
            committed,
        }
    }

    /// Whether what was committed before the cut is there.
    fn holds(&self, cut: usize) -> Result<(), String> {
        if cut < self.first {
            return Ok(());
        }
        let rows = self
            .device
            .rows("kept", &[])
            .map_err(|error| error.to_string())?;
        if let Some(row) = self.parts.half_row(&rows) {
            return Err(format!("half a row: {row:?}"));
        }
        let after = self.parts.expected();
        if cut == self.record.len() {
            return same(&rows, &after);
        }
        let lost = self.committed.iter().find(|(key, _)| {
            let deleted = !after.iter().any(|(other, _)| other == key);
            !deleted && !rows.iter().any(|row| row.key == *key)
        });
        lost.map_or(Ok(()), |(key, _)| {
            Err(format!(
                "{key} was committed and is lost, of {} rows",
                rows.len()
            ))
        })
    }

    /// Whether the next start finds all, and comes to what upstream has.
    fn goes_on(&self, cut: usize) -> Result<(), String> {
        self.holds(cut)?;
        // Made by the look into it; a start after a cut finds none.
        let shm = self.device.state().join("data.db-shm");
        if shm.exists() {
            std::fs::remove_file(shm).unwrap();
        }
        let ended = self.device.run(&["sync", "--json"]);
        if ended.code() != Some(0) {
            return Err(ended.said());
        }
        let rows = self
            .device
            .rows("kept", &[])
            .map_err(|error| error.to_string())?;
        same(&rows, &self.parts.expected())
            .map_err(|wrong| format!("{wrong}\n{}", ended.said()))?;
        // Nor is the store ever more behind the table than the last batch, or damaged.
        cuts::unharmed(&self.device, &ended.said())
    }
}

#[test]
fn what_may_change_the_directory_and_is_not_understood_is_an_error() {
    let hex =
        |text: &str| -> String { text.bytes().map(|byte| format!("\\x{byte:02x}")).collect() };
    let (file, other, shm) = (
        hex("/home/state/a"),
        hex("/home/b"),
        hex("/home/state/data.db-shm"),
    );
    let parsed = |line: String| trace::parse(&line, Path::new("/home"), "state", 0);
    let mapped = |path: &str, how: &str| {
        parsed(format!(
            "7 mmap(NULL, 8, PROT_READ|PROT_WRITE, {how}, 3<{path}>, 0) = 0x7f00"
        ))
    };
    assert!(mapped(&file, "MAP_SHARED").is_err());
    assert!(mapped(&file, "MAP_PRIVATE").is_ok());
    assert!(mapped(&shm, "MAP_SHARED").is_ok());
    let copied = |to: &str| {
        parsed(format!(
            "7 copy_file_range(3<{other}>, NULL, 4<{to}>, NULL, 8, 0) = 8"
        ))
    };
    assert!(copied(&file).is_err());
    assert!(copied(&other).is_ok());
    for call in [
        format!("linkat(AT_FDCWD<{other}>, \"{file}\", AT_FDCWD<{other}>, \"{other}\", 0) = 0"),
        format!("symlinkat(\"{other}\", AT_FDCWD<{other}>, \"{file}\") = 0"),
        format!("truncate(\"{file}\", 8) = 0"),
        format!("sendfile(3<{file}>, 4<{other}>, NULL, 8) = 8"),
        format!("splice(4<{other}>, NULL, 3<{file}>, NULL, 8, 0) = 8"),
        format!("fallocate(3<{file}>, FALLOC_FL_KEEP_SIZE|FALLOC_FL_PUNCH_HOLE, 0, 8) = 0"),
        format!("renameat2(AT_FDCWD<{other}>, \"{file}\", AT_FDCWD<{other}>, \"{other}\", 0) = 0"),
        format!("fsetxattr(3<{file}>, \"{other}\", \"{other}\", 1, 0) = 0"),
        "io_uring_setup(8, 0x7f00) = 5<anon_inode:[io_uring]>".into(),
    ] {
        assert!(parsed(format!("7 {call}")).is_err(), "{call}");
    }
    let write = format!("7 write(3<{file}>, \"\\x61\", 1) = 1");
    assert!(parsed(write.clone()).is_err(), "where to is not known");
    let open = format!("7 openat(AT_FDCWD<{other}>, \"{file}\", O_RDWR|O_CREAT, 0640) = 3<{file}>");
    assert_eq!(parsed(format!("{open}\n{write}")).unwrap().len(), 2);
    let cut_short = format!("7 pwrite64(3<{file}>, \"\\x61\"..., 2, 0) = 2");
    assert!(parsed(cut_short).is_err());
}
