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

use std::fs;
use std::path::Path;

use support::device::{Device, ended, is_there};
use support::dice::Dice;
use support::parts::{Parts, same};
use support::replay::{Disk, Luck};
use support::trace::{self, Operation};

/// Images without `GLEANER_CUTS`.
const DEFAULT_CUTS: u64 = 200;

/// What was done, and what it was for.
struct Story {
    parts: Parts,
    device: Device,
    operations: Vec<Operation>,
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
    let most = std::env::var("GLEANER_CUTS").map_or(DEFAULT_CUTS, |text| text.parse().unwrap());
    let mut dice = Dice::announced("power_cut");
    let story = Story::record();
    let count = story.operations.len() as u64;
    println!(
        "power_cut: {count} operations, {} of the first pull",
        story.first
    );
    let mut failures = Vec::new();
    for nth in 0..most {
        // All of them if there are enough images, with each luck.
        let cut =
            usize::try_from((nth * count / most + dice.below(count.div_ceil(most))).min(count - 1))
                .unwrap()
                + 1;
        let luck = match dice.below(6) {
            0 => Luck::All,
            1 | 2 => Luck::None,
            _ => Luck::Seed(dice.next()),
        };
        story.lay(cut, luck, |_| true);
        if let Err(wrong) = story.goes_on(cut) {
            let last = story.operations[cut - 1].told();
            failures.push(format!("after operation {cut} ({last}), {luck:?}: {wrong}"));
        }
    }
    println!("power_cut: {most} images, {} failures", failures.len());
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
    // The same with syncs that do nothing: rows are lost, and this test sees it.
    story.lay(story.operations.len(), Luck::None, |operation| {
        !operation.is_sync()
    });
    assert!(
        story.holds(story.operations.len()).is_err(),
        "nothing is ever lost in these images"
    );
}

impl Story {
    fn record() -> Self {
        let mut parts = Parts::start(60, 30);
        let device = Device::new();
        device.configure(&parts.source("kept", "columns = { name = \"/name\" }"));
        let mut operations = traced(&device, 0);
        let first = operations.len();
        let committed = parts.expected();
        assert!(same(&device.rows("kept", &[]).unwrap(), &committed).is_ok());
        parts.rewrite_some_and_lose_the_last(1);
        operations.extend(traced(&device, 1_000_000));
        Self {
            parts,
            device,
            operations,
            first,
            committed,
        }
    }

    /// Makes the state directory what a cut after so many operations left.
    fn lay(&self, cut: usize, luck: Luck, counts: impl Fn(&Operation) -> bool) {
        let mut disk = Disk::new();
        let done = self.operations[..cut].iter();
        done.filter(|operation| counts(operation))
            .for_each(|operation| disk.apply(operation));
        if self.device.state().exists() {
            fs::remove_dir_all(self.device.state()).unwrap();
        }
        disk.image(self.device.state().parent().unwrap(), luck);
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
        if cut == self.operations.len() {
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
        remove(&self.device.state().join("data.db-shm"));
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
        let (integrity, aside) = (self.device.integrity(), self.device.kept_aside());
        if integrity == "ok"
            && aside.is_empty()
            && !ended.err.contains("damaged")
            && !ended.err.contains("learnt again")
        {
            Ok(())
        } else {
            Err(format!(
                "{integrity}, kept aside: {aside:?}\n{}",
                ended.said()
            ))
        }
    }
}

fn remove(file: &Path) {
    if file.exists() {
        fs::remove_file(file).unwrap();
    }
}

/// A sync from start to end, and what it did to the state directory.
fn traced(device: &Device, line: usize) -> Vec<Operation> {
    let log = device.beside("log");
    let mut strace = trace::STRACE.to_vec();
    strace.extend(["-o", log.to_str().unwrap()]);
    let ended = ended(&mut device.command(&strace, &["sync", "--json"]));
    assert_eq!(ended.code(), Some(0), "{}", ended.said());
    let root = device.state().parent().unwrap();
    let text = fs::read_to_string(log).unwrap();
    trace::parse(&text, root, "state", line).unwrap_or_else(|wrong| panic!("{wrong}"))
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
    let write = format!("7 write(3<{file}>, \"\\x61\", 1) = 1");
    assert!(parsed(write.clone()).is_err(), "where to is not known");
    let open = format!("7 openat(AT_FDCWD<{other}>, \"{file}\", O_RDWR|O_CREAT, 0640) = 3<{file}>");
    assert_eq!(parsed(format!("{open}\n{write}")).unwrap().len(), 2);
    let cut_short = format!("7 pwrite64(3<{file}>, \"\\x61\"..., 2, 0) = 2");
    assert!(parsed(cut_short).is_err());
}
