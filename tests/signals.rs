//! Promise: SIGTERM ends a pull at once and nothing is lost; SIGHUP takes a good config and leaves a bad one alone.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::Mutex;

use rustix::process::Signal;
use support::answer::{Answer, Gate};
use support::device::Device;
use support::parts::{Parts, same};
use support::upstream::Upstream;

fn items(rev: u32) -> String {
    let items: Vec<String> = (1..=600)
        .map(|key| format!("{{\"id\":{key},\"rev\":{rev}}}"))
        .collect();
    items.join(",")
}

/// An upstream whose second page never comes, and of whose first page the end never comes, unless they may.
fn stalling(upstream: &Upstream, place: usize) -> Gate {
    let (gate, held) = Gate::new();
    let held = Mutex::new(Some(held));
    upstream.answer(move |request| match request.path() {
        "/items" => Answer::ok().json(format!("{{\"items\":[{}],\"next\":\"/more\"}}", items(1))),
        _ => {
            let answer = Answer::ok().json(format!("{{\"items\":[{}]}}", "{\"id\":601,\"rev\":1}"));
            match held.lock().unwrap().take() {
                Some(held) => answer.gate_at(place, held),
                None => answer,
            }
        }
    });
    gate
}

fn device(upstream: &Upstream) -> Device {
    let device = Device::new();
    device.configure(&format!(
        "[source.items]\nurl = \"{}\"\nproxy = \"\"\nrecords = \"/items\"\nkey = \"/id\"\npages = {{ next = \"/next\" }}\n",
        upstream.url("/items")
    ));
    device
}

#[test]
fn a_pull_that_is_told_to_stop_stops_at_once_and_goes_on_later() {
    // Before the answer's head, and in the middle of its body.
    for place in [0, 85] {
        for (command, signal, code) in [
            ("run", Signal::TERM, 0),
            ("run", Signal::INT, 0),
            ("sync", Signal::TERM, 75),
        ] {
            let upstream = Upstream::start();
            let _gate = stalling(&upstream, place);
            let device = device(&upstream);
            let running = device.start(&[], &[command]);
            running.until("the second page is asked for", || {
                upstream.requests().len() == 2
            });
            running.signal(signal);
            // The gate is still shut: without the signal it would wait for a minute.
            let ended = running.wait();
            assert_eq!(ended.code(), Some(code), "{command}: {}", ended.said());
            assert_eq!(
                device.rows("items", &[]).unwrap().len(),
                600,
                "what was committed stays"
            );
            let asked = upstream.requests().len();
            device.sync();
            assert_eq!(device.rows("items", &[]).unwrap().len(), 601);
            assert_eq!(
                upstream.requests()[asked].path(),
                "/more",
                "it goes on where it was"
            );
        }
    }
}

/// From the socket itself: the command would have to read the bad config first.
fn asked_at_the_socket(device: &Device) -> String {
    let mut socket = UnixStream::connect(device.control()).unwrap();
    socket
        .write_all(b"GET /status HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn a_config_is_read_again_and_a_bad_one_changes_nothing() {
    let (one, two) = (Parts::start(10, 100), Parts::start(20, 100));
    let every = "every = \"1s\"\njitter = \"0s\"";
    let device = Device::new();
    device.configure(&one.source("kept", every));
    let running = device.start(&[], &["run"]);
    let has = |table: &str, parts: &Parts| {
        device
            .rows(table, &[])
            .is_ok_and(|rows| !rows.is_empty() && same(&rows, &parts.expected()).is_ok())
    };
    running.until("first pass", || has("kept", &one));
    // A bad one: said with its line, shown by status, and the old one goes on.
    device.configure("[source.kept]\nurl = 7\n");
    running.signal(Signal::HUP);
    running.until("it says so", || running.log().contains("not taken"));
    let status = asked_at_the_socket(&device);
    assert!(status.contains("the config file has errors"), "{status}");
    let asked = one.upstream.requests().len();
    running.until("the old one goes on", || {
        one.upstream.requests().len() > asked
    });
    // A good one: a source more, and a column.
    let both = one.source("kept", &format!("{every}\ncolumns = {{ rev = \"/rev\" }}"))
        + &two.source("more", every);
    device.configure(&both);
    running.signal(Signal::HUP);
    running.until("the new source", || has("more", &two));
    running.until("the new column", || {
        device
            .rows("kept", &["rev"])
            .is_ok_and(|rows| rows.iter().all(|row| row.columns[0].is_some()))
    });
    let status = asked_at_the_socket(&device);
    assert!(!status.contains("the config file has errors"), "{status}");
    running.signal(Signal::TERM);
    assert_eq!(running.wait().code(), Some(0));
}
