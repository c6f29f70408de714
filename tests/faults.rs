//! Promise: whatever call on the state directory fails, and however: the agent ends with a clear error or goes on, says what
//! happened, loses nothing that it had acknowledged, and is right again with the next start.
//!
//! `strace` makes the n-th call of a kind fail with `ENOSPC` or `EIO`, for n from 1 until there is no n-th: once, or from then on
//! for good. A sync with changes, and a running agent that events come to. By default some of them; all with
//! `GLEANER_FAULTS=1000 cargo test --test faults -- --nocapture`, which prints the table of ARCHITECTURE.md. Needs `strace`;
//! what is left out without it, or without root, is printed.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};

use rustix::process::{Pid, Signal, kill_process};
use support::device::{DEADLINE, Device, Ended, Running, is_there, system};
use support::hooks::{self, SECRET};
use support::mount::Mount;
use support::parts::{Parts, same};

/// Faults of each kind without `GLEANER_FAULTS`.
const DEFAULT_FAULTS: usize = 1;

/// The calls by which the state directory changes.
const CALLS: [&str; 9] = [
    "pwrite64",
    "write",
    "fdatasync",
    "fsync",
    "ftruncate",
    "rename",
    "mkdir",
    "unlink",
    "sync_file_range",
];

const ERRORS: [&str; 2] = ["ENOSPC", "EIO"];

/// How many faults of each kind are tried.
fn most() -> usize {
    std::env::var("GLEANER_FAULTS").map_or(DEFAULT_FAULTS, |text| text.parse().unwrap())
}

/// One fault: the n-th call of a kind, and perhaps all behind it.
struct Fault {
    call: &'static str,
    error: &'static str,
    when: usize,
    lasts: bool,
    log: PathBuf,
    files: Vec<PathBuf>,
}

impl Fault {
    /// What `strace` is told.
    fn strace(&self) -> Vec<String> {
        let Self {
            call, error, when, ..
        } = self;
        let lasts = if self.lasts { "+" } else { "" };
        let mut words: Vec<String> = [
            "strace".to_owned(),
            "-f".into(),
            "-qq".into(),
            "-o".into(),
            self.log.to_string_lossy().into_owned(),
            "-e".into(),
            format!("trace={call}"),
            "-e".into(),
            format!("inject={call}:error={error}:when={when}{lasts}"),
        ]
        .into();
        for file in &self.files {
            words.extend(["-P".into(), file.to_string_lossy().into_owned()]);
        }
        words
    }

    /// Whether there was such a call.
    fn happened(&self) -> bool {
        fs::read_to_string(&self.log)
            .unwrap()
            .contains("(INJECTED)")
    }

    fn told(&self) -> String {
        let lasts = if self.lasts { " and on" } else { "" };
        format!("{} {} {}{lasts}", self.error, self.call, self.when)
    }
}

/// Every file below a directory, and what will be made there.
fn files(dir: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut dirs = vec![dir.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                dirs.push(path);
            } else {
                files.push(path);
            }
        }
    }
    let made = ["state/CURRENT.tmp", "inbox/new.seg", "inbox/new.marks"];
    files.extend(made.iter().map(|name| dir.join(name)));
    let marks = files
        .iter()
        .filter(|path| path.extension() == Some("seg".as_ref()));
    let marks: Vec<PathBuf> = marks.map(|path| path.with_extension("marks")).collect();
    files.extend(marks);
    files.sort();
    files.dedup();
    files
}

/// Tries all faults of all kinds with `act`, which says how one came out; the outcomes counted by kind.
fn enumerate(device: &Device, act: impl Fn(&Fault) -> Result<&'static str, String>) {
    let (mut table, mut failures) = (BTreeMap::<String, usize>::new(), Vec::new());
    for (call, error) in CALLS
        .iter()
        .flat_map(|call| ERRORS.map(|error| (*call, error)))
    {
        for lasts in [false, true] {
            // The more are tried the closer they lie.
            let (mut when, step) = (1, (12 / most()).max(1));
            for _ in 0..most() {
                let fault = Fault {
                    call,
                    error,
                    when,
                    lasts,
                    log: device.beside("faults"),
                    // A plain write may go to a connection or a log as well.
                    files: if call == "write" {
                        files(device.state())
                    } else {
                        Vec::new()
                    },
                };
                let outcome = act(&fault);
                if !fault.happened() {
                    break;
                }
                match outcome {
                    Ok(outcome) => {
                        *table
                            .entry(format!("{error} at {call}: {outcome}"))
                            .or_default() += 1;
                    }
                    Err(wrong) => failures.push(format!("{}: {wrong}", fault.told())),
                }
                when += step;
            }
        }
    }
    for (kind, count) in &table {
        println!("faults: {count} × {kind}");
    }
    println!("faults: {} in all", table.values().sum::<usize>());
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
    assert!(!table.is_empty(), "nothing ever failed");
}

/// The state directory is what it was.
fn restore(base: &Path, device: &Device) {
    if device.state().exists() {
        fs::remove_dir_all(device.state()).unwrap();
    }
    system("cp", &[Path::new("-a"), base, device.state()]);
}

fn is_equal(device: &Device, parts: &Parts) -> Result<(), String> {
    let rows = device.rows("kept", &[]);
    same(&rows.map_err(|error| error.to_string())?, &parts.expected())
}

/// That the next sync makes all right, and what was put aside.
fn mended(device: &Device, parts: &Parts, error: &str) -> Result<bool, String> {
    let ended = device.run(&["sync", "--json"]);
    let wrong = |what: String| Err(format!("{what}\nthen {}", ended.said()));
    if ended.code() != Some(0) {
        return wrong(String::new());
    }
    if let Err(what) = is_equal(device, parts) {
        return wrong(what);
    }
    let (integrity, aside) = (device.integrity(), device.kept_aside());
    if integrity != "ok" || error == "ENOSPC" && !aside.is_empty() {
        return wrong(format!("{integrity}, kept aside: {aside:?}"));
    }
    Ok(!aside.is_empty())
}

fn well_ended(ended: &Ended) -> bool {
    matches!(ended.code(), Some(0 | 74)) && !ended.said().contains("panicked")
}

#[test]
fn any_call_of_a_sync_may_fail() {
    if !is_there("strace") {
        println!("left out: calls that fail (strace is not there)");
        return;
    }
    let mut parts = Parts::start(60, 30);
    let device = Device::new();
    device.configure(&parts.source("kept", "columns = { name = \"/name\" }"));
    device.sync();
    let base = device.beside("base");
    system("cp", &[Path::new("-a"), device.state(), &base]);
    parts.rewrite_some_and_lose_the_last(1);
    enumerate(&device, |fault| {
        restore(&base, &device);
        let strace = fault.strace();
        let strace: Vec<&str> = strace.iter().map(String::as_str).collect();
        let ended = support::device::ended(&mut device.command(&strace, &["sync", "--json"]));
        let rows = device
            .rows("kept", &[])
            .map_err(|error| error.to_string())?;
        if let Some(row) = parts.half_row(&rows) {
            return Err(format!("half a row: {row:?}"));
        }
        if !well_ended(&ended) {
            return Err(ended.said());
        }
        let right_at_once = ended.code() == Some(0);
        if right_at_once {
            is_equal(&device, &parts).map_err(|what| format!("{what}\n{}", ended.said()))?;
        }
        let aside = mended(&device, &parts, fault.error)
            .map_err(|what| format!("{}\n{what}", ended.said()))?;
        Ok(match (right_at_once, aside) {
            (true, false) => "went on",
            (true, true) => "store put aside and learnt again, went on",
            (false, false) => "ended with an error, right at the next start",
            (false, true) => "ended with an error, store put aside and learnt again",
        })
    });
}

/// What a sender was told: the status and the body, or nothing if the agent is gone.
fn send(door: SocketAddr, request: &[u8]) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect(door).ok()?;
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    stream.write_all(request).ok()?;
    stream.shutdown(std::net::Shutdown::Write).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let status = answer.split(' ').nth(1)?.parse().ok()?;
    Some((status, answer))
}

fn door_of(agent: &mut Running) -> Option<SocketAddr> {
    let mut over = false;
    loop {
        if let Some(door) = hooks::door_told(&agent.log()) {
            return Some(door);
        }
        if over {
            return None;
        }
        over = agent.is_over();
        std::thread::yield_now();
    }
}

/// SIGTERM to the agent, or to what `strace` runs.
fn stop(agent: Running, behind: bool) -> Ended {
    let own = agent.pid().as_raw_nonzero();
    let children = fs::read_to_string(format!("/proc/{own}/task/{own}/children"));
    let child = children.unwrap_or_default();
    let child = child
        .split_whitespace()
        .next()
        .map(|pid| pid.parse().unwrap());
    let pid = if behind { child } else { Some(own.get()) };
    if let Some(pid) = pid.and_then(Pid::from_raw) {
        // It may have ended by itself.
        let _ended = kill_process(pid, Signal::TERM);
    }
    agent.wait()
}

fn event(id: usize) -> Vec<u8> {
    hooks::delivery(
        &format!("e{id}"),
        &format!("{{\"orders\":[{{\"id\":{id}}}]}}"),
    )
}

fn hooked(device: &Device, parts: &Parts, every: &str) {
    fs::write(device.beside("secret"), SECRET).unwrap();
    let lines = "quota = \"1MiB\"\nrecords = { source = \"orders\", at = \"/orders\" }\n\
        [source.orders]\nkey = \"/id\"\npull = \"none\"\n";
    let source = parts.source("kept", &format!("every = \"{every}\"\njitter = \"0s\""));
    device.configure(&(source + &hooks::erp(hooks::address(), lines)));
}

/// A body may be refused for now, and then it says for how long.
fn is_polite(status: u16, answer: &str) -> bool {
    match status {
        202 => true,
        503 => answer.to_lowercase().contains("retry-after: "),
        _ => false,
    }
}

#[test]
fn any_call_of_an_agent_that_events_come_to_may_fail() {
    if !is_there("strace") {
        println!("left out: calls of an agent that fail (strace is not there)");
        return;
    }
    let parts = Parts::start(30, 30);
    let device = Device::new();
    hooked(&device, &parts, "15m");
    // With an inbox that has something in it.
    let mut agent = device.start(&[], &["run"]);
    let door = door_of(&mut agent).unwrap();
    assert_eq!(send(door, &event(0)).unwrap().0, 202);
    agent.until("first", || {
        device.rows("orders", &[]).is_ok_and(|rows| rows.len() == 1)
    });
    assert_eq!(stop(agent, false).code(), Some(0));
    let base = device.beside("base");
    system("cp", &[Path::new("-a"), device.state(), &base]);
    enumerate(&device, |fault| {
        restore(&base, &device);
        let strace = fault.strace();
        let strace: Vec<&str> = strace.iter().map(String::as_str).collect();
        let mut agent = device.start(&strace, &["run"]);
        let door = door_of(&mut agent);
        let mut told = BTreeMap::new();
        for id in 0..4 {
            let answer = door.and_then(|door| send(door, &event(id)));
            let Some((status, answer)) = answer else {
                continue;
            };
            if !is_polite(status, &answer) {
                return Err(format!("event {id}: {answer}\n{}", agent.log()));
            }
            if status == 202 {
                let (_, rest) = answer.split_once("\"request_id\":\"").unwrap();
                told.insert(id, rest.split('"').next().unwrap().to_owned());
            }
        }
        let ended = stop(agent, true);
        if !well_ended(&ended) {
            return Err(ended.said());
        }
        goes_on(&device, &told).map_err(|what| format!("{}\n{what}", ended.said()))?;
        let aside = mended(&device, &parts, fault.error)
            .map_err(|what| format!("{}\n{what}", ended.said()))?;
        Ok(match (told.len(), aside) {
            (4, false) => "all events taken",
            (4, true) => "all events taken; store put aside and learnt again",
            (_, false) => "some answered with 503, nothing lost",
            (_, true) => "some answered with 503, nothing lost; store put aside and learnt again",
        })
    });
}

/// The next start knows what was acknowledged, and all of it ends in the copy.
fn goes_on(device: &Device, told: &BTreeMap<usize, String>) -> Result<(), String> {
    let mut agent = device.start(&[], &["run"]);
    let door = door_of(&mut agent).ok_or("it does not start")?;
    for id in 0..4 {
        let (status, answer) = send(door, &event(id)).ok_or("no answer")?;
        let known = told.get(&id);
        if status != 202 || known.is_some_and(|known| !answer.contains(known.as_str())) {
            return Err(format!(
                "event {id} was {known:?}: {answer}\n{}",
                agent.log()
            ));
        }
    }
    agent.until("all is processed", || {
        device.rows("orders", &[]).is_ok_and(|rows| rows.len() == 4)
    });
    match stop(agent, false) {
        ended if ended.code() == Some(0) => Ok(()),
        ended => Err(ended.said()),
    }
}

#[test]
fn an_agent_starts_on_a_full_disk_and_refuses_politely_until_there_is_room() {
    let Some(mount) = Mount::of(64 << 20, "hooks on a full disk") else {
        return;
    };
    let mut parts = Parts::start(300, 30);
    let device = Device::with_state(&mount.state());
    hooked(&device, &parts, "1s");
    let mut agent = device.start(&[], &["run"]);
    let door = door_of(&mut agent).unwrap();
    agent.until("first pass", || is_equal(&device, &parts).is_ok());
    assert_eq!(send(door, &event(0)).unwrap().0, 202);
    assert_eq!(stop(agent, false).code(), Some(0));
    let reserve = device.state().join("ballast");
    assert!(reserve.exists());

    mount.leave(0);
    parts.rewrite_all();
    for _ in 0..3 {
        // Started again and again, it still starts.
        let mut agent = device.start(&[], &["run"]);
        let door = door_of(&mut agent).unwrap();
        agent.until("it has noticed", || {
            device
                .run(&["status"])
                .out
                .contains("the reserve that keeps the agent able to start")
        });
        let (status, answer) = send(door, &event(1)).unwrap();
        assert_eq!(status, 503, "{answer}");
        assert!(is_polite(status, &answer), "{answer}");
        // What is known is known.
        let (status, answer) = send(door, &event(0)).unwrap();
        assert_eq!(status, 202, "{answer}");
        assert_eq!(device.rows("kept", &[]).unwrap().len(), 300);
        assert_eq!(stop(agent, false).code(), Some(0));
    }
    assert!(!reserve.exists(), "it was not given up");

    let mut agent = device.start(&[], &["run"]);
    let door = door_of(&mut agent).unwrap();
    mount.make_room();
    agent.until("it recovers", || is_equal(&device, &parts).is_ok());
    assert_eq!(send(door, &event(1)).unwrap().0, 202);
    assert!(reserve.exists());
    let status = device.run(&["status"]);
    assert!(!status.out.contains("reserve"), "{}", status.said());
    assert_eq!(device.kept_aside(), [""; 0], "{}", agent.log());
    assert_eq!(stop(agent, false).code(), Some(0));
}
