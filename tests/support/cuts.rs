//! Power cuts in runs of the real binary: a run is recorded (`trace.rs`), and the state directory is made what a cut at any of
//! its operations could have left (`replay.rs`). What the next start has to make of that is the test's to say.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::{Pid, Signal, kill_process};

use super::device::{Device, Ended, Running, ended};
use super::dice::Dice;
use super::replay::{Disk, Luck};
use super::trace::{self, Operation};

/// What the real binary did to a state directory, in one run or in several one after another.
pub struct Record {
    /// Above the state directory.
    root: PathBuf,
    /// What was there before.
    base: Disk,
    operations: Vec<Operation>,
    /// So many lines had the logs.
    lines: usize,
}

impl Record {
    /// Of what is to come; what is in the state directory now is sure.
    pub fn on(device: &Device) -> Self {
        let root = device.state().parent().unwrap().to_owned();
        Self {
            base: Disk::of(&root, Path::new("state")),
            root,
            operations: Vec::new(),
            lines: 0,
        }
    }

    /// A command from start to end, which must succeed.
    pub fn command(&mut self, device: &Device, arguments: &[&str]) -> Ended {
        let log = device.beside("log");
        let ended = ended(&mut device.command(&strace(&log), arguments));
        assert_eq!(ended.code(), Some(0), "{}", ended.said());
        self.add(&fs::read_to_string(log).unwrap());
        ended
    }

    /// An agent that stays.
    pub fn agent(&self, device: &Device) -> Traced {
        let log = device.beside(&format!("log-{}", self.lines));
        Traced {
            running: device.start(&strace(&log), &["run"]),
            log,
        }
    }

    /// Ends an agent, and takes what it did; the log, with the number of its first line here.
    pub fn stop(&mut self, agent: Traced) -> (usize, String) {
        let first = self.lines;
        agent.signal(Signal::TERM);
        let ended = agent.running.wait();
        assert_eq!(ended.code(), Some(0), "{}", ended.said());
        let text = fs::read_to_string(agent.log).unwrap();
        self.add(&text);
        (first, text)
    }

    fn add(&mut self, log: &str) {
        let more = trace::parse(log, &self.root, "state", self.lines);
        self.operations
            .extend(more.unwrap_or_else(|wrong| panic!("{wrong}")));
        self.lines += log.lines().count();
    }

    /// How many operations it has.
    pub fn len(&self) -> usize {
        self.operations.len()
    }

    pub fn operations(&self) -> &[Operation] {
        &self.operations
    }

    /// The first line of the logs that a cut after so many operations does not stand for: what was said before it was said.
    pub fn until(&self, cut: usize) -> usize {
        let next = self.operations.get(cut);
        next.map_or(usize::MAX, Operation::counts_from)
    }

    /// How many operations come before that line of the logs.
    pub fn before(&self, line: usize) -> usize {
        self.operations
            .partition_point(|operation| operation.counts_from() < line)
    }

    /// Makes the state directory what a cut after so many operations left.
    pub fn lay(&self, device: &Device, cut: usize, luck: Luck) {
        self.lay_if(device, cut, luck, |_| true);
    }

    /// The same with syncs that do nothing.
    pub fn lay_without_syncs(&self, device: &Device) {
        self.lay_if(device, self.len(), Luck::None, |operation| {
            !operation.is_sync()
        });
    }

    fn lay_if(&self, device: &Device, cut: usize, luck: Luck, counts: impl Fn(&Operation) -> bool) {
        let mut disk = self.base.clone();
        let done = self.operations[..cut].iter();
        done.filter(|operation| counts(operation))
            .for_each(|operation| disk.apply(operation));
        if device.state().exists() {
            fs::remove_dir_all(device.state()).unwrap();
        }
        disk.image(&self.root, luck);
        // SQLite's shared memory is no data: whatever a cut leaves of it, the next start makes it anew.
        if let (Luck::Seed(seed), true) = (luck, device.state().join("data.db").exists()) {
            let mut dice = Dice::from(seed);
            let junk = (0..4096).flat_map(|_| dice.next().to_be_bytes());
            fs::write(device.state().join("data.db-shm"), junk.collect::<Vec<_>>()).unwrap();
        }
    }

    /// Lays so many images, spread over all operations, each with a luck of its own, and has each tried.
    ///
    /// # Errors
    /// The failures, each with where the cut was.
    pub fn explore(
        &self,
        device: &Device,
        most: u64,
        dice: &mut Dice,
        mut goes_on: impl FnMut(usize, &mut Dice) -> Result<(), String>,
    ) -> Result<(), Vec<String>> {
        let count = self.len() as u64;
        let mut failures = Vec::new();
        for nth in 0..most {
            // All operations if there are enough images.
            let at = nth * count / most + dice.below(count.div_ceil(most));
            let cut = usize::try_from(at.min(count - 1)).unwrap() + 1;
            let luck = any_luck(dice);
            self.lay(device, cut, luck);
            if let Err(wrong) = goes_on(cut, dice) {
                let last = self.operations[cut - 1].told();
                failures.push(format!("after operation {cut} ({last}), {luck:?}: {wrong}"));
            }
        }
        if failures.is_empty() {
            Ok(())
        } else {
            Err(failures)
        }
    }
}

/// An agent that stays and is recorded.
pub struct Traced {
    pub running: Running,
    log: PathBuf,
}

impl Traced {
    /// To the agent itself, not to who records it.
    pub fn signal(&self, signal: Signal) {
        let strace = self.running.pid().as_raw_nonzero();
        let children = format!("/proc/{strace}/task/{strace}/children");
        let children = fs::read_to_string(children).unwrap();
        let child: i32 = children.split_whitespace().next().unwrap().parse().unwrap();
        kill_process(Pid::from_raw(child).unwrap(), signal).unwrap();
    }
}

/// Cuts inside a recovery: what `recover` does after one cut is recorded and cut in its turn, so many deep. Leaves the image of
/// the last one.
pub fn within_recovery(
    device: &Device,
    deep: u32,
    dice: &mut Dice,
    recover: &dyn Fn(&mut Record) -> Result<(), String>,
) -> Result<String, String> {
    let mut told = String::new();
    for _ in 0..deep {
        let mut record = Record::on(device);
        recover(&mut record).map_err(|wrong| format!("{told}{wrong}"))?;
        if record.len() == 0 {
            break;
        }
        let cut = usize::try_from(dice.below(record.len() as u64)).unwrap() + 1;
        let luck = any_luck(dice);
        record.lay(device, cut, luck);
        let last = record.operations[cut - 1].told();
        told.push_str(&format!(
            "then, in the recovery, after operation {cut} of {} ({last}), {luck:?}: ",
            record.len()
        ));
    }
    Ok(told)
}

/// How many images: `GLEANER_CUTS`, or so many.
pub fn images(default: u64) -> u64 {
    std::env::var("GLEANER_CUTS").map_or(default, |text| text.parse().unwrap())
}

fn any_luck(dice: &mut Dice) -> Luck {
    match dice.below(6) {
        0 => Luck::All,
        1 | 2 => Luck::None,
        _ => Luck::Seed(dice.next()),
    }
}

fn strace(log: &Path) -> Vec<&str> {
    let mut strace = trace::STRACE.to_vec();
    strace.extend(["-o", log.to_str().unwrap()]);
    strace
}

/// That nothing was lost or damaged on the way: what is said of the state directory by who looks at it, and by the log.
///
/// # Errors
/// What is wrong.
pub fn unharmed(device: &Device, log: &str) -> Result<(), String> {
    let (integrity, aside) = (device.integrity(), device.kept_aside());
    let harm = ["damaged", "learnt again", "kept as"];
    if integrity == "ok" && aside.is_empty() && !harm.iter().any(|word| log.contains(word)) {
        Ok(())
    } else {
        Err(format!("{integrity}, kept aside: {aside:?}\n{log}"))
    }
}
