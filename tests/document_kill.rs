//! Promise: whenever the process is killed in the middle of a download, the published file is one whole version, and what had come
//! is not fetched again beyond one buffer.
//!
//! The real binary is killed with SIGKILL: at random moments; and while it waits behind a byte that was chosen by chance, so that
//! all that the upstream sent has come; and about when a version is published. Now and then upstream has another one.
//!
//! Short by default; `GLEANER_KILLS=200 cargo test --test document_kill -- --nocapture` kills so often, in a file of 50 MB.

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

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use gleaner::document::checksum::Checksum;
use support::device::{DEADLINE, Device};
use support::dice::Dice;
use support::files::{bytes, range_start, serve};
use support::upstream::{Gate, Request, Upstream};

/// Kills without `GLEANER_KILLS`, and bytes of the file then.
const DEFAULT: (u64, usize) = (6, 6_000_000);
/// Bytes of the file with it.
const LARGE: usize = 50_000_000;
/// From its start to its end a command with little left to fetch takes about so long.
const PUBLICATION: Duration = Duration::from_millis(250);
/// What is read and written at a time, and an answer's head.
const BUFFER: u64 = 64 * 1024 + 300;

/// What upstream has, and where it stops sending.
struct Shown {
    version: u64,
    body: Arc<Vec<u8>>,
    /// Behind this byte of the file it waits for the gate.
    pause: Option<(usize, std::sync::mpsc::Receiver<()>)>,
}

struct Story {
    device: Device,
    upstream: Upstream,
    shown: Arc<Mutex<Shown>>,
    dice: Dice,
    size: usize,
    span: Duration,
    /// Bytes that had been written and were asked for again; the most of them after one kill.
    again: u64,
    resumed: u64,
    whole: u64,
    /// Over every version that there was.
    versions: Vec<Checksum>,
}

impl Story {
    fn begin(size: usize) -> Self {
        let upstream = Upstream::start();
        let first = Arc::new(version(size, 0));
        let shown = Arc::new(Mutex::new(Shown {
            version: 0,
            body: Arc::clone(&first),
            pause: None,
        }));
        let served = Arc::clone(&shown);
        upstream.answer(move |request| answer(request, &served));
        let device = Device::new();
        device.configure(&format!(
            "[document.fw]\nurl = \"{}\"\nfile = \"fw.bin\"\nproxy = \"\"\n",
            upstream.url("/fw.bin")
        ));
        Self {
            device,
            upstream,
            shown,
            dice: Dice::announced("document_kill"),
            size,
            span: Duration::from_millis(300),
            again: 0,
            resumed: 0,
            whole: 0,
            versions: vec![Checksum::of(&first)],
        }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.device.state().join("documents").join(name)
    }

    fn part(&self) -> u64 {
        fs::metadata(self.file(".part/fw")).map_or(0, |meta| meta.len())
    }

    fn sync(&self) -> Child {
        let mut command = self.device.command(&[], &["sync", "fw"]);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().unwrap()
    }

    /// Upstream has another version.
    fn change(&mut self) {
        let mut shown = self.shown.lock().unwrap();
        shown.version += 1;
        shown.body = Arc::new(version(self.size, shown.version));
        self.versions.push(Checksum::of(&shown.body));
    }

    /// There is nothing to download.
    fn is_current(&self) -> bool {
        let body = self.shown.lock().unwrap().body.clone();
        self.part() == 0 && fs::read(self.file("fw.bin")).is_ok_and(|content| content == *body)
    }

    /// The published file is one of the versions that there were, to the last byte.
    fn look(&self) {
        let Ok(content) = fs::read(self.file("fw.bin")) else {
            return;
        };
        assert!(
            self.versions.contains(&Checksum::of(&content)),
            "{} bytes that are none of {} versions",
            content.len(),
            self.versions.len()
        );
    }

    /// A sync is killed while it waits behind a byte: all that was sent has come, and at most one buffer of it is lost.
    fn killed_behind_a_byte(&mut self) {
        let from = self.part();
        let room = (self.size as u64).saturating_sub(from + 2 * BUFFER);
        if room == 0 {
            return self.killed_at_a_moment(self.span);
        }
        // Not to its end at once.
        let more = BUFFER + 1 + self.dice.below((room / 8).max(1));
        self.killed_behind(from + more);
    }

    /// It has come nearly to its end, and is killed about when it is published.
    fn killed_about_its_publication(&mut self) {
        let near = self.size as u64 - BUFFER;
        if self.part() + 2 * BUFFER < near {
            self.killed_behind(near);
        }
        self.killed_at_a_moment(PUBLICATION);
    }

    fn killed_behind(&mut self, stop: u64) {
        let (gate, opened) = Gate::new();
        self.shown.lock().unwrap().pause = Some((usize::try_from(stop).unwrap(), opened));
        let (before, held) = (self.upstream.requests().len(), self.part());
        let mut child = self.sync();
        let started = Instant::now();
        while self.part() + BUFFER < stop {
            assert!(
                started.elapsed() < DEADLINE,
                "{} of {stop} bytes came",
                self.part()
            );
            assert!(
                child.try_wait().unwrap().is_none(),
                "it ended at {} of {stop}",
                self.part()
            );
            std::thread::yield_now();
        }
        self.kill(&mut child);
        drop(gate);
        self.reckon(before, held);
    }

    /// A sync is killed at some moment of real time.
    fn killed_at_a_moment(&mut self, within: Duration) {
        let most = u64::try_from(within.as_micros()).unwrap();
        let moment = Duration::from_micros(self.dice.below(most));
        let (before, held) = (self.upstream.requests().len(), self.part());
        let started = Instant::now();
        let mut child = self.sync();
        while started.elapsed() < moment {
            if child.try_wait().unwrap().is_some() {
                self.whole += 1;
                return self.reckon(before, held);
            }
            std::thread::yield_now();
        }
        self.kill(&mut child);
        self.reckon(before, held);
    }

    fn kill(&mut self, child: &mut Child) {
        child.kill().unwrap();
        child.wait().unwrap();
        self.shown.lock().unwrap().pause = None;
    }

    /// What was asked for since the request of that number, and how much of it had been written already.
    fn reckon(&mut self, before: usize, held: u64) {
        for request in &self.upstream.requests()[before..] {
            let Some(start) = range_start(request).map(|start| start as u64) else {
                continue;
            };
            self.resumed += 1;
            assert!(start <= held, "asked behind {start}, and {held} were there");
            self.again = self.again.max(held - start);
        }
    }
}

/// A version of a file: chance, repeated, and its number in each repetition, so that no two versions share a stretch.
fn version(size: usize, number: u64) -> Vec<u8> {
    let block = bytes(100_000, number + 1);
    let mut all = Vec::with_capacity(size + block.len());
    while all.len() < size {
        all.extend_from_slice(&(all.len() as u64).to_le_bytes());
        all.extend_from_slice(&block);
    }
    all.truncate(size);
    all
}

fn answer(request: &Request, shown: &Mutex<Shown>) -> support::upstream::Answer {
    let mut shown = shown.lock().unwrap();
    let answer = serve(request, &format!("\"{}\"", shown.version), &shown.body);
    match shown.pause.take() {
        Some((stop, gate)) => {
            let resumes = request.header("if-range") == Some(&format!("\"{}\"", shown.version));
            let from = range_start(request).filter(|_| resumes).unwrap_or(0);
            answer.gate_at(stop.saturating_sub(from), gate)
        }
        None => answer,
    }
}

#[test]
fn whenever_it_is_killed_the_file_is_one_whole_version_and_nothing_is_fetched_twice() {
    let long = std::env::var("GLEANER_KILLS").ok();
    let kills = long
        .as_ref()
        .map_or(DEFAULT.0, |text| text.parse().unwrap());
    let size = if long.is_some() { LARGE } else { DEFAULT.1 };
    let mut story = Story::begin(size);
    let started = Instant::now();
    for nth in 0..kills {
        if story.is_current() {
            story.change();
        }
        match nth % 3 {
            0 => story.killed_behind_a_byte(),
            1 => story.killed_at_a_moment(story.span),
            _ => story.killed_about_its_publication(),
        }
        story.look();
        if story.dice.once_in(8) {
            story.change();
        }
    }
    // Undisturbed it comes to its end, with what there is left.
    let (sent, held) = (story.upstream.sent(), story.part());
    let before = story.upstream.requests().len();
    assert!(story.sync().wait().unwrap().success());
    story.reckon(before, held);
    let shown = story.shown.lock().unwrap().body.clone();
    assert!(fs::read(story.file("fw.bin")).unwrap() == *shown);
    assert_eq!(story.part(), 0);
    println!(
        "document_kill: {kills} kills of a download of {size} bytes in {:.0} s, {} came to their end; {} requests for the rest, at most {} bytes asked for that had been written; the last took {} bytes with {held} held",
        started.elapsed().as_secs_f64(),
        story.whole,
        story.resumed,
        story.again,
        story.upstream.sent() - sent
    );
    assert_eq!(story.again, 0);
}
