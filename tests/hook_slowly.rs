//! Promise: whoever is slow on purpose keeps no sender waiting and leaves nothing behind.
//!
//! `slowhttptest` (Debian's package of that name) opens 500 connections at a door that takes 200: it drips heads, drips bodies,
//! and reads answers byte by byte. Without that program there is nothing to show, which is said; with
//! `GLEANER_REQUIRE_SERVERS=1` it must be there.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot be set up has failed"
)]

mod support;

use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use support::device::until;
use support::gleaner::{Home, Running};
use support::hooks::{self, SECRET, delivery, erp, send};

/// What the door takes.
const CONNECTIONS: usize = 200;
/// Descriptors of the agent that are none of the door's: files of the state directory, the control socket, pipes.
const OWN: usize = 40;
/// Memory beside what the door may take for bodies, in kB; a debug build.
const MEMORY_KB: u64 = 48 * 1024;

/// The program is here, or it is said that it is not.
fn is_here() -> bool {
    let here = Command::new("slowhttptest")
        .arg("-h")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok();
    let required = std::env::var_os("GLEANER_REQUIRE_SERVERS").is_some();
    assert!(here || !required, "slowhttptest is required and not here");
    if !here {
        println!("left out: slowhttptest is not installed");
    }
    here
}

/// Slow in one way, for six seconds at most.
fn slow(door: SocketAddr, way: &[&str]) -> Child {
    Command::new("slowhttptest")
        .args(way)
        .args(["-c", "500", "-r", "250", "-l", "6", "-v", "0"])
        .args(["-u", &format!("http://{door}/hooks/erp")])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

fn agent() -> (Home, Running, SocketAddr) {
    let address = hooks::address();
    let config = erp(address, "wakes = []").replace(
        "[hook.erp]",
        &format!(
            "limits = {{ connections = {CONNECTIONS}, per_peer = {CONNECTIONS} }}\n[hook.erp]"
        ),
    );
    let home = Home::new(&config);
    std::fs::write(home.path("secret"), SECRET).unwrap();
    let agent = home.run();
    until("the door is open", || {
        hooks::door_told(&agent.log()).is_some()
    });
    (home, agent, address)
}

/// While `way` goes on senders are answered; afterwards all is as it was before.
fn others_are_answered_during(way: &[&str]) {
    if !is_here() {
        return;
    }
    let (_home, agent, door) = agent();
    assert_eq!(send(door, &delivery("before", "{}")).status, 202);
    until("the sender is gone", || agent.fds() < OWN);
    let before = agent.fds();
    let mut slow = slow(door, way);
    until("the strangers are many", || {
        agent.fds() > before + CONNECTIONS / 2
    });
    for nth in 0..20 {
        let reply = send(door, &delivery(&format!("event-{nth}"), "{}"));
        assert_eq!(reply.status, 202, "{}", reply.body);
        assert!(!reply.is_duplicate());
        let open = agent.fds();
        assert!(open <= before + CONNECTIONS + 2, "{open} descriptors");
    }
    assert!(
        slow.try_wait().unwrap().is_none(),
        "the strangers were gone before the senders were answered"
    );
    until("the strangers have ended", || {
        slow.try_wait().unwrap().is_some()
    });
    until("nothing of them is left", || agent.fds() <= before);
    assert!(agent.peak_kb() < MEMORY_KB, "{} kB", agent.peak_kb());
    assert_eq!(agent.status()["hooks"]["erp"]["saved"], 21);
    assert_eq!(agent.stop(), 0);
}

#[test]
fn heads_that_drip() {
    others_are_answered_during(&["-H", "-i", "3", "-x", "10"]);
}

#[test]
fn bodies_that_drip() {
    others_are_answered_during(&["-B", "-i", "3", "-s", "65536", "-x", "10"]);
}

#[test]
fn answers_that_nobody_reads() {
    others_are_answered_during(&["-X", "-n", "3", "-w", "1", "-y", "2", "-z", "1"]);
}
