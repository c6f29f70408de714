//! The one wait: whoever waits for whatever, the attendant is served, and a stop ends it.
//!
//! These tests are causal: what is waited for comes only after what is to be shown has happened. None looks at a clock.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot be set up has failed"
)]

mod support;

use std::net::TcpListener;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use gleaner::clock::{Clock, FakeClock, Mono, Timestamp};
use gleaner::upstream::cause::{TransportCause, cause_of, is_stop};
use gleaner::upstream::dns::Names;
use gleaner::upstream::line::Patience;
use gleaner::wait::{self, Attendant, Interest, Interests, Readiness, Ready, Wait, Woke};
use support::attendant::{Asker, Echo};
use support::client::{Client, LONG, Setup};
use support::pki::Pki;
use support::upstream::{Answer, Gate, Upstream};

fn fake() -> Arc<FakeClock> {
    Arc::new(FakeClock::at(Timestamp::UNIX_EPOCH))
}

/// What a gateway usually allows.
const USUAL: Patience = Patience {
    connect: Duration::from_secs(30),
    stall: Duration::from_secs(60),
    total: Duration::from_secs(3600),
};

/// An upstream that holds its answer back until the attendant has answered, with the client of it.
fn answers_only_after_the_attendant(upstream: &Upstream, client: &Client) {
    let (gate, gated) = Gate::new();
    let (arrived, arrivals) = mpsc::channel();
    let gated = Mutex::new(Some(gated));
    upstream.answer(move |_| {
        arrived.send(()).unwrap();
        Answer::ok()
            .json("[1]")
            .gate_at(20, gated.lock().unwrap().take().unwrap())
    });
    let (echo, mut asker) = Echo::new(|_, _| {});
    client.wait.attend(echo);
    let asking = thread::spawn(move || {
        arrivals.recv().unwrap();
        asker.ask(1);
        asker.ask(2);
        gate.open();
    });
    assert_eq!(
        client.get(&upstream.url("/")).unwrap(),
        (200, b"[1]".to_vec())
    );
    asking.join().unwrap();
}

#[test]
fn while_an_upstream_stalls_the_attendant_is_served() {
    answers_only_after_the_attendant(&Upstream::start(), &Client::new());
    let with_a_fake_clock = Setup {
        clock: fake(),
        ..Setup::default()
    }
    .build();
    answers_only_after_the_attendant(&Upstream::start(), &with_a_fake_clock);
}

#[test]
fn while_an_upstream_stalls_under_tls_the_attendant_is_served() {
    let pki = Pki::new();
    let upstream = Upstream::start_tls(pki.server(&pki.leaf(&["127.0.0.1"])));
    let client = Setup {
        ca: Some(pki.ca_file()),
        ..Setup::default()
    }
    .build();
    answers_only_after_the_attendant(&upstream, &client);
}

#[test]
fn while_bytes_never_pause_the_attendant_is_served() {
    let upstream = Upstream::start();
    let client = Client::new();
    let (echo, mut asker) = Echo::new(|_, _| {});
    client.wait.attend(echo);
    let (asked, sent) = (Arc::new(AtomicBool::new(false)), AtomicU64::new(0));
    let done = Arc::clone(&asked);
    // At least 100 MB, and on until the attendant has answered a hundred times.
    upstream.queue(Answer::streaming_while(move || {
        sent.fetch_add(64 * 1024, Ordering::SeqCst) < 100_000_000 || !done.load(Ordering::SeqCst)
    }));
    let asking = thread::spawn(move || {
        (0..100).for_each(|byte| asker.ask(byte));
        asked.store(true, Ordering::SeqCst);
    });
    assert!(client.get_and_count(&upstream.url("/")).unwrap() >= 100_000_000);
    asking.join().unwrap();
}

#[test]
fn while_a_name_is_looked_up_the_attendant_is_served() {
    let upstream = Upstream::start().called("db.example");
    upstream.answer(|_| Answer::ok());
    let (gate, gated) = mpsc::channel::<()>();
    let (gated, here) = (Mutex::new(gated), upstream.addr());
    let names = Names::answered_by(move |_, _| {
        gated.lock().unwrap().recv().unwrap();
        Ok(vec![here])
    });
    let client = Setup {
        names,
        ..Setup::default()
    }
    .build();
    let (echo, mut asker) = Echo::new(|_, _| {});
    client.wait.attend(echo);
    let asking = thread::spawn(move || {
        asker.ask(1);
        gate.send(()).unwrap();
    });
    assert_eq!(client.get(&upstream.url("/")).unwrap().0, 200);
    asking.join().unwrap();
}

#[test]
fn a_stop_ends_a_stalled_read_and_every_later_wait() {
    let upstream = Upstream::start();
    let client = Client::new();
    let (_never_opened, gated) = Gate::new();
    let (gated, wait) = (Mutex::new(Some(gated)), client.wait.clone());
    upstream.answer(move |_| {
        wait.stop();
        Answer::ok().gate(gated.lock().unwrap().take().unwrap())
    });
    let error = client.get(&upstream.url("/")).unwrap_err();
    assert!(is_stop(&error), "{error:?}");
    assert!(client.wait.stopping());
    assert!(wait::is_stop(&client.wait.breathe().unwrap_err()));
    assert_eq!(
        client
            .wait
            .sleep_until(client.wait.now().after(LONG))
            .unwrap(),
        Woke::Stop
    );
    let (_held, socket) = UnixStream::pair().unwrap();
    let error = client
        .wait
        .fd_ready(socket.as_fd(), Interest::Write, None)
        .unwrap_err();
    assert!(wait::is_stop(&error));
}

#[test]
fn a_stop_ends_a_lookup_and_a_download() {
    let (_never_opened, gated) = mpsc::channel::<()>();
    let (gated, (asked, asks)) = (Mutex::new(gated), mpsc::channel());
    let names = Names::answered_by(move |_, _| {
        asked.send(()).unwrap();
        gated
            .lock()
            .unwrap()
            .recv()
            .map_err(std::io::Error::other)?;
        Ok(vec![])
    });
    let client = Setup {
        names,
        ..Setup::default()
    }
    .build();
    let wait = client.wait.clone();
    let stopping = thread::spawn(move || {
        asks.recv().unwrap();
        wait.stop();
    });
    assert!(is_stop(&client.get("http://db.example/").unwrap_err()));
    stopping.join().unwrap();

    let (upstream, client) = (Upstream::start(), Client::new());
    let wait = client.wait.clone();
    upstream.queue(Answer::streaming_while(move || {
        wait.stop();
        true
    }));
    assert!(is_stop(
        &client.get_and_count(&upstream.url("/")).unwrap_err()
    ));
}

/// One test for all signals: they reach every wait of the process that asked for them.
#[test]
fn signals_reload_and_stop() {
    let send = |signal| rustix::process::kill_process(rustix::process::getpid(), signal).unwrap();
    let (upstream, client) = (Upstream::start(), Client::new());
    client.wait.install_signals().unwrap();
    let far = client.wait.now().after(LONG);

    send(rustix::process::Signal::HUP);
    assert_eq!(client.wait.sleep_until(far).unwrap(), Woke::Reload);
    assert!(!client.wait.stopping());

    upstream.queue(Answer::ok());
    client.get(&upstream.url("/")).unwrap();
    let (_never_opened, gated) = Gate::new();
    let gated = Mutex::new(Some(gated));
    upstream.answer(move |_| {
        send(rustix::process::Signal::TERM);
        Answer::ok().gate(gated.lock().unwrap().take().unwrap())
    });
    assert!(is_stop(&client.get(&upstream.url("/")).unwrap_err()));
    assert_eq!(client.wait.sleep_until(far).unwrap(), Woke::Stop);
}

/// A client whose clock moves on by as many seconds as its attendant is told.
fn with_a_clock_to_be_moved(ca: Option<PathBuf>) -> (Client, Asker) {
    let clock = fake();
    let client = Setup {
        clock: clock.clone(),
        patience: USUAL,
        ca,
        ..Setup::default()
    }
    .build();
    let (echo, asker) =
        Echo::new(move |seconds, _| clock.advance(Duration::from_secs(seconds.into())));
    client.wait.attend(echo);
    (client, asker)
}

#[test]
fn a_stall_is_measured_by_our_clock() {
    let upstream = Upstream::start();
    let (client, mut asker) = with_a_clock_to_be_moved(None);
    let (_never_opened, gated) = Gate::new();
    let (gated, (arrived, arrivals)) = (Mutex::new(Some(gated)), mpsc::channel());
    upstream.answer(move |_| {
        arrived.send(()).unwrap();
        Answer::ok().gate(gated.lock().unwrap().take().unwrap())
    });
    let asking = thread::spawn(move || {
        arrivals.recv().unwrap();
        asker.ask(59); // not enough
        asker.ask(1);
    });
    let error = client.get(&upstream.url("/")).unwrap_err();
    assert_eq!(
        cause_of(&error),
        Some(&TransportCause::Stalled(USUAL.stall))
    );
    asking.join().unwrap();
}

#[test]
fn a_handshake_that_goes_nowhere_counts_as_connecting() {
    let mute = TcpListener::bind("127.0.0.1:0").unwrap();
    let (client, mut asker) = with_a_clock_to_be_moved(Some(Pki::new().ca_file()));
    // Served in the first wait, which is for the server's half of the handshake or for the connection before it.
    asker.tell(30);
    let error = client
        .get(&format!("https://{}/", mute.local_addr().unwrap()))
        .unwrap_err();
    assert_eq!(
        cause_of(&error),
        Some(&TransportCause::ConnectTimeout(USUAL.connect))
    );
}

/// Notes when it is called; wants to be called every ten seconds.
struct Ticking(Arc<Mutex<Vec<Mono>>>);

impl Attendant for Ticking {
    fn interests<'a>(&'a self, _: &mut Interests<'a>) {}

    fn attend(&mut self, ready: &[Ready], now: Mono, _: &Wait) -> Option<Mono> {
        assert!(ready.is_empty());
        self.0.lock().unwrap().push(now);
        Some(now.after(Duration::from_secs(10)))
    }
}

#[test]
fn a_sleep_with_a_fake_clock_takes_no_time_and_misses_no_deadline() {
    let clock = fake();
    let wait = Wait::new(clock.clone()).unwrap();
    let calls = Arc::new(Mutex::new(Vec::new()));
    wait.attend(Box::new(Ticking(Arc::clone(&calls))));
    let start = wait.now();
    let until = start.after(Duration::from_secs(25));
    assert_eq!(wait.sleep_until(until).unwrap(), Woke::Deadline);
    assert_eq!(wait.now(), until);
    let at = |seconds| start.after(Duration::from_secs(seconds));
    assert_eq!(*calls.lock().unwrap(), [at(0), at(10), at(20)]);
    assert_eq!(wait.sleep_until(start).unwrap(), Woke::Deadline);
}

#[test]
fn a_nudge_wakes_once_and_is_not_lost() {
    let wait = Wait::new(fake()).unwrap();
    let (echo, mut asker) = Echo::new(|_, wait| wait.nudge());
    wait.attend(echo);
    let start = wait.now();
    let until = start.after(LONG);
    asker.tell(1);
    assert_eq!(wait.sleep_until(until).unwrap(), Woke::Nudge);
    assert_eq!(
        wait.now(),
        start,
        "what is ready is served before time moves"
    );
    assert_eq!(wait.sleep_until(until).unwrap(), Woke::Deadline);
    wait.nudge();
    assert_eq!(wait.sleep_until(until.after(LONG)).unwrap(), Woke::Nudge);
}

#[test]
fn another_thread_can_wake_a_real_sleep() {
    let client = Client::new();
    let wait = client.wait.clone();
    let nudging = thread::spawn(move || wait.nudge());
    assert_eq!(
        client
            .wait
            .sleep_until(client.wait.now().after(LONG))
            .unwrap(),
        Woke::Nudge
    );
    nudging.join().unwrap();
}

#[test]
fn a_breath_serves_only_when_the_last_turn_is_20_ms_ago() {
    let clock = fake();
    let wait = Wait::new(clock.clone()).unwrap();
    let served = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&served);
    let (echo, mut asker) = Echo::new(move |_, _| {
        counted.fetch_add(1, Ordering::SeqCst);
    });
    wait.attend(echo);
    wait.breathe().unwrap();
    asker.tell(1);
    clock.advance(Duration::from_millis(19));
    wait.breathe().unwrap();
    assert_eq!(served.load(Ordering::SeqCst), 0);
    clock.advance(Duration::from_millis(1));
    wait.breathe().unwrap();
    assert_eq!(served.load(Ordering::SeqCst), 1);
}

#[test]
fn an_attendant_never_runs_inside_itself() {
    let clock = fake();
    let wait = Wait::new(clock.clone()).unwrap();
    let runs = Arc::new(AtomicU64::new(0));
    let (counted, moved) = (Arc::clone(&runs), Arc::clone(&clock));
    let (echo, mut asker) = Echo::new(move |_, wait| {
        assert_eq!(
            counted.fetch_add(1, Ordering::SeqCst) % 2,
            0,
            "it runs already"
        );
        moved.advance(Duration::from_millis(50));
        wait.breathe().unwrap();
        assert_eq!(wait.sleep_until(wait.now()).unwrap(), Woke::Deadline);
        counted.fetch_add(1, Ordering::SeqCst);
    });
    wait.attend(echo);
    asker.tell(1);
    asker.tell(2);
    wait.sleep_until(wait.now().after(LONG)).unwrap();
    assert_eq!(
        runs.load(Ordering::SeqCst),
        4,
        "both asked, and in its seat again after the first"
    );
}

#[test]
fn a_ready_fd_beats_a_deadline_that_passed() {
    let clock = fake();
    let wait = Wait::new(clock.clone() as Arc<dyn Clock>).unwrap();
    let (silent, mut other) = UnixStream::pair().unwrap();
    let past = Some(wait.now());
    assert_eq!(
        wait.fd_ready(silent.as_fd(), Interest::Read, past).unwrap(),
        Readiness::DeadlinePassed
    );
    std::io::Write::write_all(&mut other, b"x").unwrap();
    assert_eq!(
        wait.fd_ready(silent.as_fd(), Interest::Read, past).unwrap(),
        Readiness::Ready
    );
}
