//! The control socket: served by whoever waits, whatever comes in.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot be set up has failed"
)]

mod support;

use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use gleaner::clock::{Clock, FakeClock, SystemClock, Timestamp};
use gleaner::desk::{Desk, Event, Totals, WishId};
use gleaner::door::ControlDoor;
use gleaner::wait::{Wait, Woke};
use serde_json::Value;
use support::gleaner::{Home, Running};
use support::upstream::{Answer, Gate, Upstream};
use tempfile::TempDir;

const STATUS: &[u8] = b"GET /status HTTP/1.1\r\nHost: x\r\n\r\n";
const WISH: &[u8] = b"POST /wish HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n";

fn source(upstream: &Upstream) -> String {
    format!(
        "[source.parts]\nurl = \"{}\"\nkey = \"/id\"\nevery = \"1h\"\n",
        upstream.url("/parts")
    )
}

/// Asks how the source stands until it stands like this.
fn until(agent: &Running, stands: impl Fn(&Value) -> bool) -> Value {
    loop {
        let status = agent.status()["sources"]["parts"].clone();
        if stands(&status) {
            return status;
        }
    }
}

/// Wishes, and reads the answer's head.
fn wish(agent: &Running) -> BufReader<UnixStream> {
    let mut stream = agent.connect();
    stream.write_all(WISH).unwrap();
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    stream.read_line(&mut line).unwrap();
    assert_eq!(line, "HTTP/1.1 200 OK\r\n");
    stream
}

/// The events that a chunked answer holds.
fn events(answer: &str) -> Vec<Value> {
    answer
        .lines()
        .filter(|line| line.starts_with(['{', '"']))
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn an_upstream_that_goes_on_only_after_the_socket_has_answered() {
    let upstream = Upstream::start();
    let (gate, closed) = Gate::new();
    upstream.queue(
        Answer::ok()
            .json(r#"[{"id":1},{"id":2}]"#)
            .gate_at(90, closed),
    );
    let home = Home::new(&source(&upstream));
    let agent = home.run();
    while upstream.requests().is_empty() {
        thread::yield_now();
    }
    let during = until(&agent, |source| !source["running"].is_null());
    assert_eq!(
        (&during["outcome"], &during["records"]),
        (&"never".into(), &0.into())
    );
    gate.open();
    let after = until(&agent, |source| source["outcome"] == "changed");
    assert_eq!(after["records"], 2);
    assert!(after["running"].is_null());
    assert_eq!(agent.stop(), 0);
}

#[test]
fn a_download_that_never_pauses_does_not_make_the_socket_deaf() {
    const BYTES: u64 = 100_000_000;
    let (sent, asked) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let over = Arc::new(AtomicBool::new(false));
    let upstream = Upstream::start();
    let (counter, answers, ended) = (Arc::clone(&sent), Arc::clone(&asked), Arc::clone(&over));
    let filler = "x".repeat(8_000);
    let mut number = 0;
    upstream.queue(Answer::making(move || {
        if ended.load(Ordering::SeqCst) {
            return None;
        }
        let more = counter.load(Ordering::SeqCst) < BYTES || answers.load(Ordering::SeqCst) < 100;
        let start = if number == 0 { '[' } else { ',' };
        let chunk = if more {
            number += 1;
            format!("{start}{{\"id\":{number},\"filler\":\"{filler}\"}}")
        } else {
            ended.store(true, Ordering::SeqCst);
            "]".into()
        };
        counter.fetch_add(chunk.len() as u64, Ordering::SeqCst);
        Some(chunk.into_bytes())
    }));
    let home = Home::new(&source(&upstream));
    let agent = home.run();
    until(&agent, |source| {
        source["running"]["added"].as_u64() > Some(0)
    });
    let mut slowest = Duration::ZERO;
    for _ in 0..100 {
        let before = SystemClock.mono();
        let status = agent.status();
        slowest = slowest.max(SystemClock.mono().since(before));
        assert!(!status["sources"]["parts"]["running"].is_null());
        asked.fetch_add(1, Ordering::SeqCst);
    }
    assert!(
        !over.load(Ordering::SeqCst),
        "the stream goes on until the answers have come"
    );
    let after = until(&agent, |source| source["outcome"] == "changed");
    let sent = sent.load(Ordering::SeqCst);
    assert!(sent >= BYTES);
    assert!(after["totals"]["bytes_down"].as_u64() >= Some(sent));
    let peak = agent.peak_kb();
    println!("{sent} bytes streamed, slowest of 100 answers {slowest:?}, peak {peak} kB");
    assert!(peak < 64 * 1024, "{peak} kB");
}

#[test]
fn a_wish_during_a_pull_is_carried_out_after_it() {
    let upstream = Upstream::start();
    let (gate, closed) = Gate::new();
    upstream.queue(Answer::ok().json(r#"[{"id":1}]"#).gate(closed));
    upstream.queue(Answer::ok().json(r#"[{"id":1},{"id":2}]"#));
    let home = Home::new(&source(&upstream));
    let agent = home.run();
    while upstream.requests().is_empty() {
        thread::yield_now();
    }
    let mut answer = wish(&agent);
    // One who goes away at once, one who goes away without having read, and a third pull for both of them.
    drop(wish(&agent));
    agent.connect().write_all(WISH).unwrap();
    upstream.answer(|_| Answer::ok().json(r#"[{"id":1},{"id":2},{"id":3}]"#));
    assert_eq!(upstream.requests().len(), 1);
    gate.open();
    let mut text = String::new();
    answer.read_to_string(&mut text).unwrap();
    assert!(text.ends_with("0\r\n\r\n"), "{text}");
    let events = events(&text);
    let (last, rest) = events.split_last().unwrap();
    assert_eq!(last, "done");
    let (report, progress) = rest.split_last().unwrap();
    let report = &report["report"];
    assert_eq!(
        (&report["source"], &report["outcome"], &report["added"]),
        (&"parts".into(), &"changed".into(), &1.into())
    );
    assert!(!progress.is_empty() && progress.iter().all(|event| !event["progress"].is_null()));
    until(&agent, |source| source["records"] == 3);
    assert_eq!(agent.stop(), 0);
}

#[test]
fn no_file_descriptor_and_no_memory_is_left_behind() {
    let upstream = Upstream::start();
    upstream.answer(|_| Answer::ok().json("[{\"id\":1}]"));
    let home = Home::new(&source(&upstream));
    let agent = home.run();
    until(&agent, |source| source["outcome"] == "changed");
    let (before, peak) = (agent.fds(), agent.peak_kb());
    for round in 0..300 {
        match round % 5 {
            0 => drop(agent.status()),
            1 => drop(agent.ask(b"nonsense\r\n\r\n")),
            2 => drop(agent.connect()),
            3 => agent.connect().write_all(b"GET /sta").unwrap(),
            _ => agent.connect().write_all(STATUS).unwrap(),
        }
    }
    // The last of them are noticed in the next turns.
    let settled = (0..1000).any(|_| {
        drop(agent.status());
        agent.fds() <= before
    });
    assert!(settled, "{} open, {before} before", agent.fds());
    assert!(
        agent.peak_kb() < peak + 4096,
        "{} kB, {peak} kB before",
        agent.peak_kb()
    );
}

#[test]
fn the_socket_is_its_group_s_and_gone_at_the_end() {
    let home = Home::new("");
    let agent = home.run();
    let mode = fs::metadata(home.socket()).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o660);
    assert_eq!(agent.stop(), 0);
    assert!(!home.socket().exists());
}

#[test]
fn a_dead_agent_s_socket_is_replaced_and_anything_else_is_left_alone() {
    let home = Home::new("");
    home.run().kill();
    assert!(home.socket().exists());
    let agent = home.run();
    assert_eq!(agent.status()["agent"], "test");
    assert_eq!(agent.stop(), 0);

    fs::write(home.socket(), "a file").unwrap();
    let agent = home.run();
    assert!(
        agent
            .log()
            .contains("something that is no socket is in the way"),
        "{}",
        agent.log()
    );
    assert_eq!(agent.stop(), 0);
    assert_eq!(fs::read_to_string(home.socket()).unwrap(), "a file");
    fs::remove_file(home.socket()).unwrap();

    let living = UnixListener::bind(home.socket()).unwrap();
    let agent = home.run();
    assert!(
        agent.log().contains("another process listens there"),
        "{}",
        agent.log()
    );
    assert_eq!(agent.stop(), 0);
    drop(living);
    assert!(home.socket().exists());
}

/// The door alone, over a clock that stands still; a turn of the wait when the test says so.
struct Door {
    wait: Wait,
    clock: Arc<FakeClock>,
    desk: Desk,
    path: PathBuf,
    _dir: TempDir,
}

impl Door {
    fn open() -> Self {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("control.sock");
        let clock = Arc::new(FakeClock::at(Timestamp::UNIX_EPOCH));
        let wait = Wait::new(Arc::clone(&clock) as Arc<dyn Clock>).unwrap();
        let desk = Desk::default();
        wait.attend(Box::new(
            ControlDoor::open(&path, 0o660, desk.clone()).unwrap(),
        ));
        Self {
            wait,
            clock,
            desk,
            path,
            _dir: dir,
        }
    }

    /// Accepting, reading and writing take a turn each.
    fn turns(&self) {
        for _ in 0..4 {
            let _deadline_or_nudge = self.wait.sleep_until(self.wait.now()).unwrap();
        }
    }

    fn connect(&self) -> Caller {
        let stream = UnixStream::connect(&self.path).unwrap();
        stream.set_nonblocking(true).unwrap();
        Caller(stream)
    }

    fn ask(&self, request: &[u8]) -> String {
        let mut caller = self.connect();
        caller.send(request);
        self.turns();
        caller.heard().0
    }
}

struct Caller(UnixStream);

impl Caller {
    fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).unwrap();
    }

    /// What has come, and whether the other side has closed.
    fn heard(&mut self) -> (String, bool) {
        let (mut heard, mut buffer) = (Vec::new(), [0; 4096]);
        let closed = loop {
            match self.0.read(&mut buffer) {
                Ok(0) => break true,
                Ok(bytes) => heard.extend(&buffer[..bytes]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break false,
                // Closed before it had read all that we sent.
                Err(error) if error.kind() == ErrorKind::ConnectionReset => break true,
                Err(error) => panic!("{error}"),
            }
        };
        (String::from_utf8(heard).unwrap(), closed)
    }
}

#[test]
fn whatever_comes_gets_an_answer_and_the_next_one_is_served() {
    let door = Door::open();
    let long_head = format!(
        "GET /status HTTP/1.1\r\nHost: x\r\nX: {}",
        "a".repeat(20_000)
    );
    let many_fields = format!(
        "GET / HTTP/1.1\r\nHost: x\r\n{}\r\n",
        "a: b\r\n".repeat(100)
    );
    let post = |fields: &str, body: &str| {
        format!("POST /wish HTTP/1.1\r\nHost: x\r\n{fields}\r\n\r\n{body}").into_bytes()
    };
    let table: [(&[u8], &str); 17] = [
        (STATUS, "200"),
        (b"GET /status?x=1 HTTP/1.0\r\n\r\n", "200"),
        (b"GET /status HTTP/1.1\r\n\r\n", "400"),
        (b"GET /status HTTP/1.1\r\nHost: x\n\r\n", "400"),
        (b"\0\x01\x02\xff\xfe garbage", "400"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "400"),
        (b"GET /status HTTP/2.0\r\n\r\n", "505"),
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "404"),
        (b"DELETE /status HTTP/1.1\r\nHost: x\r\n\r\n", "405"),
        (b"GET /wish HTTP/1.1\r\nHost: x\r\n\r\n", "405"),
        (long_head.as_bytes(), "431"),
        (many_fields.as_bytes(), "431"),
        (&post("Content-Length: 100000", ""), "413"),
        (&post("Content-Length: 2\r\nContent-Length: 2", "{}"), "400"),
        (&post("Transfer-Encoding: chunked", "0\r\n\r\n"), "501"),
        (&post("Content-Length: 4", "nope"), "400"),
        (&post("Content-Length: 12", r#"{"sauce":[]}"#), "400"),
    ];
    for (request, status) in table {
        let answer = door.ask(request);
        let expected = format!("HTTP/1.1 {status} ");
        let shown = String::from_utf8_lossy(&request[..request.len().min(80)]);
        assert!(answer.starts_with(&expected), "{shown}: {answer}");
        assert!(
            answer.contains("Connection: close\r\n"),
            "{shown}: {answer}"
        );
        assert!(
            door.ask(STATUS).starts_with("HTTP/1.1 200 "),
            "after {shown}"
        );
    }
    assert!(door.desk.take().is_none(), "none of them was a wish");
}

#[test]
fn a_request_may_come_byte_by_byte_and_with_garbage_behind_it() {
    let door = Door::open();
    let mut caller = door.connect();
    for byte in STATUS {
        assert_eq!(caller.heard(), (String::new(), false));
        caller.send(&[*byte]);
        door.turns();
    }
    let (answer, closed) = caller.heard();
    assert!(answer.starts_with("HTTP/1.1 200 ") && closed, "{answer}");
    let mut twice = STATUS.to_vec();
    twice.extend(b"\0\xffGARBAGE\r\n\r\n".repeat(50));
    let answer = door.ask(&twice);
    assert_eq!(answer.matches("HTTP/1.1").count(), 1, "{answer}");
    // Behind a wish it changes nothing either.
    let mut caller = door.connect();
    caller.send(WISH);
    door.turns();
    caller.send(&[b'x'; 10_000]);
    door.turns();
    let (id, _) = door.desk.take().unwrap();
    door.desk.tell(id, &Event::Done);
    door.turns();
    let (answer, closed) = caller.heard();
    assert!(answer.contains("\"done\"") && closed, "{answer}");
}

#[test]
fn half_a_request_is_waited_for_ten_seconds_even_if_it_goes_on_dripping() {
    let door = Door::open();
    let (mut silent, mut dripping) = (door.connect(), door.connect());
    silent.send(b"GET /sta");
    dripping.send(b"GET /status HTTP/1.1\r\nX: ");
    door.turns();
    for _ in 0..9 {
        door.clock.advance(Duration::from_secs(1));
        dripping.send(b"x");
        door.turns();
    }
    assert_eq!(
        (silent.heard(), dripping.heard()),
        ((String::new(), false), (String::new(), false))
    );
    door.clock.advance(Duration::from_secs(1));
    dripping.send(b"x");
    door.turns();
    assert_eq!(
        (silent.heard(), dripping.heard()),
        ((String::new(), true), (String::new(), true))
    );
}

#[test]
fn more_connections_than_seats_wait_until_one_is_free() {
    let door = Door::open();
    let idle: Vec<Caller> = (0..16).map(|_| door.connect()).collect();
    let mut seventeenth = door.connect();
    seventeenth.send(STATUS);
    door.turns();
    assert_eq!(seventeenth.heard(), (String::new(), false));
    door.clock.advance(Duration::from_secs(10));
    door.turns();
    assert!(seventeenth.heard().0.starts_with("HTTP/1.1 200 "));
    drop(idle);
    let mut many: Vec<Caller> = (0..100).map(|_| door.connect()).collect();
    many.iter_mut().for_each(|caller| caller.send(STATUS));
    for _ in 0..10 {
        door.turns();
    }
    for caller in &mut many {
        assert!(caller.heard().0.starts_with("HTTP/1.1 200 "));
    }
}

#[test]
fn followers_leave_seats_for_others() {
    let door = Door::open();
    let mut followers: Vec<Caller> = (0..9).map(|_| door.connect()).collect();
    for follower in &mut followers {
        follower.send(WISH);
        door.turns();
    }
    let (answer, closed) = followers[8].heard();
    assert!(answer.starts_with("HTTP/1.1 503 ") && closed, "{answer}");
    assert!(followers[7].heard().0.starts_with("HTTP/1.1 200 "));
    assert!(door.ask(STATUS).starts_with("HTTP/1.1 200 "));
    // Whoever goes makes room.
    followers.truncate(7);
    door.turns();
    assert!(door.ask(WISH).starts_with("HTTP/1.1 200 "));
}

#[test]
fn a_wish_wakes_the_agent_and_a_status_does_not() {
    let door = Door::open();
    let mut caller = door.connect();
    caller.send(STATUS);
    let now = door.wait.now();
    assert!((0..4).all(|_| door.wait.sleep_until(now).unwrap() == Woke::Deadline));
    let mut caller = door.connect();
    caller.send(WISH);
    assert!((0..4).any(|_| door.wait.sleep_until(now).unwrap() == Woke::Nudge));
}

#[test]
fn a_slow_reader_costs_no_memory_and_is_dropped_when_it_takes_nothing() {
    let door = Door::open();
    let mut slow = door.connect();
    slow.send(WISH);
    door.turns();
    let (id, _) = door.desk.take().unwrap();
    // Far more than the socket's buffer holds.
    for _ in 0..20_000 {
        tell(&door.desk, id);
        door.wait.sleep_until(door.wait.now()).unwrap();
    }
    assert!(
        door.desk.fetch(id).len() <= 1,
        "a later progress replaces an earlier one"
    );
    tell(&door.desk, id);
    assert!(door.ask(STATUS).starts_with("HTTP/1.1 200 "));
    door.clock.advance(Duration::from_secs(30));
    door.turns();
    let (heard, closed) = slow.heard();
    assert!(closed && heard.len() < 1_000_000, "{} bytes", heard.len());
}

fn tell(desk: &Desk, id: WishId) {
    let event = Event::Progress {
        source: "parts".into(),
        tally: Totals::default(),
    };
    desk.tell(id, &event);
}
