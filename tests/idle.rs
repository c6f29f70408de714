//! Promise: idle costs nothing. While `run` is up, a poll that finds nothing new costs one small request, one small answer,
//! no disk write and no log line above debug. Shown at the real binary under `strace`; without it this says so and stops.
//!
//! More polls: `GLEANER_POLLS=1000 cargo test --test idle -- --nocapture`.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};
use support::device::{Device, is_there};
use support::parts::{Parts, same};

/// Polls without `GLEANER_POLLS`.
const DEFAULT_POLLS: usize = 20;

/// All calls that change a file or a directory, or make one.
const CALLS: &str = "open,openat,openat2,creat,close,dup,dup2,dup3,fcntl,write,pwrite64,writev,pwritev,pwritev2,\
    copy_file_range,sendfile,splice,ftruncate,truncate,fallocate,rename,renameat,renameat2,unlink,unlinkat,link,linkat,\
    symlink,symlinkat,mkdir,mkdirat,rmdir,fsync,fdatasync,sync_file_range,syncfs,sync,msync,utimensat,chmod,fchmod,\
    fchmodat,setxattr,fsetxattr,connect,sendto,sendmsg";

#[test]
fn an_idle_poll_writes_nothing_and_says_nothing() {
    if !is_there("strace") {
        println!("left out: an idle poll (strace is not there)");
        return;
    }
    let polls = std::env::var("GLEANER_POLLS").map_or(DEFAULT_POLLS, |text| text.parse().unwrap());
    let parts = Parts::start(100, 270);
    let device = Device::new();
    device.configure(&parts.source("kept", "every = \"1s\"\njitter = \"0s\""));
    let trace = device.beside("trace");
    let (log, calls) = (trace.to_str().unwrap(), format!("trace={CALLS}"));
    // With the path of every file descriptor, and 32 bytes of what is written.
    let strace = [
        "strace", "-f", "-y", "-qq", "-s", "32", "-o", log, "-e", &calls,
    ];
    let running = device.start(&strace, &["run"]);
    let asked = || parts.upstream.requests().len();
    running.until("first pass", || {
        device
            .rows("kept", &[])
            .is_ok_and(|rows| same(&rows, &parts.expected()).is_ok())
    });
    // The first pass, and the first conditional one.
    running.until("a second request", || asked() >= 2);
    let (first, said) = (asked(), running.log());
    running.until("the polls", || asked() >= first + polls);
    let said_later = running.log();
    let agent = child_of(running.pid());
    kill_process(agent, Signal::TERM).unwrap();
    let ended = running.wait();
    assert_eq!(ended.code(), Some(0), "{}", ended.said());

    assert_eq!(said_later, said, "polls were logged");
    let requests = parts.upstream.requests();
    assert!(
        requests[1..]
            .iter()
            .all(|request| request.header("if-none-match").is_some()),
        "each poll is one conditional request"
    );
    assert_eq!(parts.upstream.connections(), 1);
    let text = std::fs::read_to_string(&trace).unwrap();
    let window = between_polls(&text, first, polls);
    assert!(
        window.iter().any(|line| line.contains("GET /parts")),
        "the trace does not show the polls"
    );
    let writes: Vec<&&str> = window
        .iter()
        .filter(|line| changes(line, device.state()))
        .collect();
    assert!(
        writes.is_empty(),
        "{} writes in {polls} polls:\n{writes:#?}",
        writes.len()
    );
    // The same eyes do see the writes of the first pass.
    let all: Vec<&str> = text.lines().collect();
    assert!(
        all.iter().any(|line| changes(line, device.state())),
        "the trace does not show the first pass"
    );
}

/// What strace runs.
fn child_of(strace: Pid) -> Pid {
    let path = format!("/proc/{0}/task/{0}/children", strace.as_raw_nonzero());
    let children = std::fs::read_to_string(path).unwrap();
    let pid = children.split_whitespace().next().unwrap().parse().unwrap();
    Pid::from_raw(pid).unwrap()
}

/// The trace from one poll's request to that of a later one.
fn between_polls(text: &str, first: usize, polls: usize) -> Vec<&str> {
    let is_request = |line: &&str| line.contains("\"GET /parts");
    let mut seen = 0;
    text.lines()
        .filter(|line| {
            seen += usize::from(is_request(line));
            (first..first + polls).contains(&seen)
        })
        .collect()
}

/// Whether a line of the trace changes something at or below a directory.
fn changes(line: &str, dir: &Path) -> bool {
    let dir = dir.to_str().unwrap();
    let Some((call, rest)) = line.split_once('(') else {
        // The second half of a call that another thread interrupted: its first half was judged.
        return false;
    };
    let name = call.rsplit(' ').next().unwrap_or(call);
    let opens = matches!(name, "open" | "openat" | "openat2" | "creat");
    // In the trace for their file descriptors, or to find the requests.
    let harmless = [
        "close", "dup", "dup2", "dup3", "fcntl", "connect", "sendto", "sendmsg",
    ];
    if harmless.contains(&name) {
        return false;
    }
    let makes = ["O_CREAT", "O_TRUNC", "O_TMPFILE"]
        .iter()
        .any(|flag| rest.contains(flag));
    rest.contains(dir) && (!opens || makes) || matches!(name, "sync")
}
