//! Promise: whatever the network does, it is called by its name, nothing is lost or torn, and all is well when it is over.
//!
//! One table: each thing that a network does × what asks through it. The real binary asks; a [`Wire`] does the harm.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot be set up has failed"
)]

mod support;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use support::device::until;
use support::gleaner::{Home, Running, Said};
use support::hooks::{self, SECRET, delivery, send};
use support::pki::Pki;
use support::upstream::{Answer, Request, Upstream, closed};
use support::wire::{Fault, Wire};

/// How long a test's upstream may be silent; far more than this machine ever is.
const STALL: Duration = Duration::from_secs(1);
/// How long an answer may take as a whole.
const TOTAL: Duration = Duration::from_secs(4);
const RECORDS: u32 = 40;

/// What a network does.
#[derive(Clone, Copy)]
enum Harm {
    /// To bytes of plain HTTP on their way.
    Plain(Fault),
    /// To bytes of TLS.
    Tls(Fault),
    /// Nobody listens.
    NobodyListens,
    /// Connections are never accepted, and never refused.
    Unanswered,
    /// The name cannot be looked up.
    NoName,
    /// Somebody else answers, like this.
    Portal(fn() -> Answer),
    /// The server shows a certificate for another name, or of other years, or of somebody else.
    Certificate(Shown),
    /// The server speaks plainly where TLS is expected.
    NoTls,
    /// TLS ends in the middle of a body without its own end.
    TlsTruncated,
}

#[derive(Clone, Copy)]
enum Shown {
    OtherName,
    Expired,
    NotYetValid,
    OtherCa,
}

/// What is expected of who asks: the outcome's word, and something that its reason says.
#[derive(Clone, Copy)]
enum Expected {
    /// It arrives all the same.
    Arrives,
    Fails(&'static str, &'static str),
}

use Expected::{Arrives, Fails};

const MILLIS: fn(u64) -> Duration = Duration::from_millis;

fn login_page() -> Answer {
    Answer::ok()
        .header("Content-Type", "text/html")
        .body("<html><body>Please accept our terms</body></html>")
}

fn to_login() -> Answer {
    Answer::redirect(302, "/login")
}

fn says_busy() -> Answer {
    Answer::status(503).header("Retry-After", "2")
}

/// Each harm, and what it is called.
fn table() -> Vec<(&'static str, Harm, Expected)> {
    use Harm::{
        Certificate, NoName, NoTls, NobodyListens, Plain, Portal, Tls, TlsTruncated, Unanswered,
    };
    vec![
        ("nothing", Plain(Fault::None), Arrives),
        ("nothing, TLS", Tls(Fault::None), Arrives),
        ("a long way", Plain(Fault::Delay(MILLIS(150))), Arrives),
        ("2G", Plain(Fault::Throttle(250, MILLIS(50))), Arrives),
        ("2G, TLS", Tls(Fault::Throttle(250, MILLIS(50))), Arrives),
        (
            "slow loris",
            Plain(Fault::Throttle(1, MILLIS(50))),
            Fails("failing", "not done within"),
        ),
        (
            "a black hole",
            Unanswered,
            Fails("failing", "not connected within"),
        ),
        (
            "nobody listens",
            NobodyListens,
            Fails("failing", "refuses connections"),
        ),
        ("no such name", NoName, Fails("failing", "does not resolve")),
        (
            "silent from the start",
            Plain(Fault::SilentAt(0)),
            Fails("failing", "no byte for"),
        ),
        (
            "silent in the head",
            Plain(Fault::SilentAt(40)),
            Fails("failing", "no byte for"),
        ),
        (
            "silent in the body",
            Plain(Fault::SilentAt(900)),
            Fails("failing", "no byte for"),
        ),
        (
            "silent in the handshake",
            Tls(Fault::SilentAt(300)),
            Fails("failing", "not connected within"),
        ),
        (
            "closed at once",
            Plain(Fault::CloseAt(0)),
            Fails("failing", "closed before an answer"),
        ),
        (
            "closed in the head",
            Plain(Fault::CloseAt(40)),
            Fails("failing", "in the middle of the answer's head"),
        ),
        (
            "closed in the body",
            Plain(Fault::CloseAt(900)),
            Fails("failing", "the body was cut"),
        ),
        (
            "closed in the handshake",
            Tls(Fault::CloseAt(300)),
            Fails("failing", "without close_notify"),
        ),
        (
            "reset at once",
            Plain(Fault::ResetAt(0)),
            Fails("failing", "reset"),
        ),
        (
            "reset in the head",
            Plain(Fault::ResetAt(40)),
            Fails("failing", "reset"),
        ),
        (
            "reset in the body",
            Plain(Fault::ResetAt(900)),
            Fails("failing", "reset"),
        ),
        (
            "half closed in the head",
            Plain(Fault::HalfCloseAt(40)),
            Fails("failing", "in the middle of the answer's head"),
        ),
        (
            "half closed in the body",
            Plain(Fault::HalfCloseAt(900)),
            Fails("failing", "the body was cut"),
        ),
        (
            "a bit flips under TLS",
            Tls(Fault::FlipAt(2500)),
            Fails("failing", "TLS: cannot decrypt"),
        ),
        (
            "a bit flips in the handshake",
            Tls(Fault::FlipAt(300)),
            Fails("failing", "TLS"),
        ),
        (
            "TLS ends without its end",
            TlsTruncated,
            Fails("failing", "without close_notify"),
        ),
        (
            "another name's certificate",
            Certificate(Shown::OtherName),
            Fails("failing", "is for other.example, not for this host"),
        ),
        (
            "an expired certificate",
            Certificate(Shown::Expired),
            Fails("failing", "expired at 2002-01-01"),
        ),
        (
            "a certificate of the future",
            Certificate(Shown::NotYetValid),
            Fails("failing", "not valid before 2150-01-01"),
        ),
        (
            "somebody's certificate",
            Certificate(Shown::OtherCa),
            Fails("failing", "extra_ca"),
        ),
        (
            "plain HTTP where TLS is expected",
            NoTls,
            Fails("failing", "plain HTTP at this port?"),
        ),
        (
            "a portal's page",
            Portal(login_page),
            Fails("not-ours", "is this a captive portal"),
        ),
        (
            "a portal's redirect",
            Portal(to_login),
            Fails("not-ours", "is this a captive portal"),
        ),
        (
            "a busy server",
            Portal(says_busy),
            Fails("throttled", "asked to wait 2 s"),
        ),
    ]
}

/// One gateway behind one wire, and the upstream at the wire's other end.
struct Site {
    home: Home,
    door: SocketAddr,
    version: Arc<AtomicUsize>,
    healthy: String,
    harmed: String,
    wire: Option<(Wire, Fault)>,
    /// What must be there for as long as the harm is.
    _kept: Vec<Box<dyn std::any::Any>>,
}

fn listing(version: usize) -> String {
    let records: Vec<String> = (1..=RECORDS)
        .map(|id| format!("{{\"id\":{id},\"v\":{version},\"pad\":\"{:030}\"}}", id))
        .collect();
    format!("[{}]", records.join(","))
}

/// Lines that tell which version they are of.
fn manual(version: usize) -> String {
    format!("version {version}, a line of the manual\n").repeat(90)
}

fn answer(request: &Request, version: usize) -> Answer {
    match request.path() {
        "/api/items" => Answer::ok().json(listing(version)),
        "/api/manual" => Answer::ok()
            .header("Content-Type", "text/plain")
            .etag(&format!("\"{version}\""))
            .body(manual(version)),
        // As long as the rest, so that what happens at a place happens here too.
        "/api/items/7" => Answer::ok().json(format!(
            "{{\"id\":7,\"v\":{version},\"pad\":\"{:030}\"{}}}",
            7,
            " ".repeat(2500)
        )),
        _ => Answer::status(404),
    }
}

fn serving(upstream: &Upstream, version: &Arc<AtomicUsize>) {
    let version = Arc::clone(version);
    upstream.answer(move |request| answer(request, version.load(Ordering::SeqCst)));
}

/// A listener that accepts nobody, with its queue full: what wants to connect hears nothing.
fn unanswered() -> (SocketAddr, Box<dyn std::any::Any>) {
    let socket = closed();
    rustix::net::listen(&socket.1, 0).unwrap();
    let waiting = TcpStream::connect(socket.0).unwrap();
    (socket.0, Box::new((socket.1, waiting)))
}

/// A server of plain HTTP, as servers answer what they cannot read.
fn speaks_plainly() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            let _hello = stream.read(&mut [0; 4096]);
            let _gone = stream.write_all(
                b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
            );
        }
    });
    addr
}

impl Site {
    fn of(harm: Harm) -> Self {
        let version = Arc::new(AtomicUsize::new(1));
        let pki = Pki::new();
        let mut kept: Vec<Box<dyn std::any::Any>> = Vec::new();
        let uses_tls = matches!(
            harm,
            Harm::Tls(_) | Harm::Certificate(_) | Harm::NoTls | Harm::TlsTruncated
        );
        let good = pki.server(&pki.leaf(&["127.0.0.1"]));
        let upstream = if uses_tls {
            Upstream::start_tls(good.clone())
        } else {
            Upstream::start()
        };
        serving(&upstream, &version);
        let (mut wire, mut healthy, mut harmed) =
            (None, upstream.url("/api/"), upstream.url("/api/"));
        match harm {
            Harm::Plain(fault) | Harm::Tls(fault) => {
                let own = Wire::to(upstream.addr());
                let scheme = healthy.split(':').next().unwrap().to_owned();
                healthy = format!("{scheme}://{}/api/", own.addr());
                harmed.clone_from(&healthy);
                wire = Some((own, fault));
            }
            Harm::NobodyListens => {
                let (addr, held) = closed();
                harmed = format!("http://{addr}/api/");
                kept.push(Box::new(held));
            }
            Harm::Unanswered => {
                let (addr, held) = unanswered();
                harmed = format!("http://{addr}/api/");
                kept.push(held);
            }
            Harm::NoName => harmed = "http://no-such-host.invalid/api/".into(),
            Harm::Portal(says) => {
                let portal = Upstream::start();
                portal.answer(move |request| match request.path() {
                    "/login" => login_page(),
                    _ => says(),
                });
                harmed = portal.url("/api/");
                kept.push(Box::new(portal));
            }
            Harm::Certificate(shown) => {
                let other = Pki::new();
                let server = match shown {
                    Shown::OtherName => pki.server(&pki.leaf(&["other.example"])),
                    Shown::Expired => pki.server(&pki.leaf_between(&["127.0.0.1"], 2001, 2002)),
                    Shown::NotYetValid => pki.server(&pki.leaf_between(&["127.0.0.1"], 2150, 2151)),
                    Shown::OtherCa => other.server(&other.leaf(&["127.0.0.1"])),
                };
                let elsewhere = Upstream::start_tls(server);
                serving(&elsewhere, &version);
                harmed = elsewhere.url("/api/");
                kept.push(Box::new(elsewhere));
            }
            Harm::NoTls => {
                harmed = format!("https://{}/api/", speaks_plainly());
            }
            Harm::TlsTruncated => {
                let cut = Upstream::start_tls(good);
                let now = Arc::clone(&version);
                cut.answer(move |request| {
                    answer(request, now.load(Ordering::SeqCst))
                        .close_delimited()
                        .only(900)
                        .then_cut()
                });
                harmed = cut.url("/api/");
                kept.push(Box::new(cut));
            }
        }
        let home = Home::new("");
        std::fs::write(home.path("secret"), SECRET).unwrap();
        // The clock is vouched for: a doubted one would take a certificate of the future for one of today.
        std::fs::write(home.path("synced"), "").unwrap();
        if uses_tls {
            std::fs::copy(pki.ca_file(), home.path("ca.pem")).unwrap();
        }
        kept.push(Box::new(upstream));
        Self {
            home,
            door: hooks::address(),
            version,
            healthy,
            harmed,
            wire,
            _kept: kept,
        }
    }

    fn configure(&self, base: &str) {
        let ca = if base.starts_with("https") {
            "extra_ca = \"ca.pem\"\n"
        } else {
            ""
        };
        self.home.config(&format!(
            "time_sync = \"synced\"\n[upstream.up]\nbase = \"{base}\"\nproxy = \"\"\n{ca}\
             limits = {{ connect = \"{}s\", stall = \"{}s\", total = \"{}s\" }}\n\
             [document.manual]\nupstream = \"up\"\npath = \"manual\"\nfile = \"manual.txt\"\nevery = \"1d\"\n\
             [source.items]\nupstream = \"up\"\npath = \"items\"\nkey = \"/id\"\nevery = \"1d\"\n{}",
            STALL.as_secs(),
            STALL.as_secs(),
            TOTAL.as_secs(),
            hooks::erp(
                self.door,
                "fetch = { source = \"items\", url = \"items/{/part}\", key = \"/part\" }"
            )
        ));
    }

    fn harm(&self) {
        if let Some((wire, fault)) = &self.wire {
            wire.suffers(*fault);
        }
        self.configure(&self.harmed);
    }

    fn heal(&self) {
        if let Some((wire, _)) = &self.wire {
            wire.suffers(Fault::None);
        }
        self.configure(&self.healthy);
    }

    fn gleaner(&self, arguments: &[&str]) -> Said {
        let mut command = self.home.command(arguments);
        command.env("RES_OPTIONS", "timeout:1 attempts:1");
        Said::of(command.output().unwrap())
    }

    fn run(&self) -> Running {
        let mut command = self.home.command(&["run"]);
        command.env("RES_OPTIONS", "timeout:1 attempts:1");
        let agent = Running::start(command, &self.home.socket());
        until("the door is open", || {
            hooks::door_told(&agent.log()).is_some()
        });
        agent
    }

    /// The version of each record in `data.db`; all must be there, whole.
    fn versions(&self) -> Vec<usize> {
        let path = self.home.path("state/data.db");
        let db =
            rusqlite::Connection::open_with_flags(path, rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY)
                .unwrap();
        let mut query = db
            .prepare("SELECT key, body FROM items ORDER BY key")
            .unwrap();
        let rows = query
            .query_map([], |row| {
                Ok((row.get::<_, u32>(0)?, row.get::<_, String>(1)?))
            })
            .unwrap();
        let rows: Vec<(u32, String)> = rows.map(Result::unwrap).collect();
        assert!(rows.iter().map(|(key, _)| *key).eq(1..=RECORDS));
        rows.iter()
            .map(|(key, body)| {
                let body: Value = serde_json::from_str(body).unwrap();
                assert_eq!(body["id"], *key);
                assert_eq!(body["pad"], format!("{key:030}"));
                usize::try_from(body["v"].as_u64().unwrap()).unwrap()
            })
            .collect()
    }
}

/// The outcome of a command for one source or document, against what is expected.
fn judge(what: &str, said: &Said, expected: Expected) {
    let told = &said.json()[0];
    match expected {
        Arrives => {
            assert_eq!(
                (said.code, &told["outcome"]),
                (0, &"changed".into()),
                "{what}: {told}"
            );
        }
        Fails(word, reason) => {
            assert_ne!(said.code, 0, "{what}: {told}");
            assert_eq!(told["outcome"], word, "{what}: {told}");
            let said = told["reason"].as_str().unwrap();
            assert!(said.contains(reason), "{what}: {said}");
            println!("{what}: {said}");
        }
    }
}

/// A collection through what the network does, and afterwards.
fn collection(what: &str, site: &Site, expected: Expected) {
    site.heal();
    assert_eq!(site.gleaner(&["sync", "items"]).code, 0, "{what}");
    assert!(site.versions().iter().all(|version| *version == 1));
    site.version.store(2, Ordering::SeqCst);
    site.harm();
    judge(what, &site.gleaner(&["sync", "items", "--json"]), expected);
    match expected {
        Arrives => assert!(site.versions().iter().all(|version| *version == 2)),
        Fails(..) => assert!(
            site.versions()
                .iter()
                .all(|version| [1, 2].contains(version))
        ),
    }
    site.heal();
    assert_eq!(site.gleaner(&["sync", "items"]).code, 0, "{what}");
    assert!(
        site.versions().iter().all(|version| *version == 2),
        "{what}"
    );
}

/// A document likewise: what is published is one version whole, whatever happened.
fn document(what: &str, site: &Site, expected: Expected) {
    let published =
        || std::fs::read_to_string(site.home.path("state/documents/manual.txt")).unwrap();
    site.version.store(1, Ordering::SeqCst);
    site.heal();
    assert_eq!(site.gleaner(&["sync", "manual"]).code, 0, "{what}");
    assert_eq!(published(), manual(1));
    site.version.store(2, Ordering::SeqCst);
    site.harm();
    judge(what, &site.gleaner(&["sync", "manual", "--json"]), expected);
    match expected {
        Arrives => assert_eq!(published(), manual(2), "{what}"),
        Fails(..) => assert_eq!(published(), manual(1), "{what}"),
    }
    site.heal();
    assert_eq!(site.gleaner(&["sync", "manual"]).code, 0, "{what}");
    assert_eq!(published(), manual(2), "{what}");
}

/// `gleaner get` likewise: a body is printed whole, or into the file, or not at all.
fn get(what: &str, site: &Site, expected: Expected) {
    let ask = |base: &str| {
        let url = format!("{base}manual");
        site.gleaner(&["get", &url, "-o", "got.txt", "--cache", "memory"])
    };
    let got = || std::fs::read_to_string(site.home.path("got.txt")).unwrap();
    site.version.store(1, Ordering::SeqCst);
    site.heal();
    assert_eq!(ask(&site.healthy).code, 0, "{what}");
    assert_eq!(got(), manual(1));
    site.version.store(2, Ordering::SeqCst);
    site.harm();
    let said = ask(&site.harmed);
    match expected {
        Arrives => assert_eq!((said.code, got()), (0, manual(2)), "{what}: {}", said.err),
        // A page is a page to whoever asks for one.
        Fails("not-ours", _) => assert!(said.code == 0 && got().contains("our terms"), "{what}"),
        Fails(_, reason) => {
            assert_ne!(said.code, 0, "{what}");
            assert_eq!(got(), manual(1), "{what}");
            assert!(said.err.contains(reason), "{what}: {}", said.err);
        }
    }
    site.heal();
    assert_eq!(ask(&site.healthy).code, 0, "{what}");
    assert_eq!(got(), manual(2), "{what}");
}

/// An event that leads to a record through what the network does, and afterwards.
fn fetch(what: &str, site: &Site, expected: Expected) {
    site.version.store(3, Ordering::SeqCst);
    site.harm();
    let agent = site.run();
    assert_eq!(send(site.door, &delivery("e", "{\"part\":7}")).status, 202);
    let listed = || site.gleaner(&["inbox", "list", "--json"]).json()[0].clone();
    let mut event = Value::Null;
    until("it was tried", || {
        event = listed();
        event["state"] != "pending"
    });
    match expected {
        Arrives => assert_eq!(event["state"], "done", "{what}: {event}"),
        Fails(_, reason) => {
            assert_eq!(event["state"], "failed", "{what}: {event}");
            let said = event["reason"].as_str().unwrap();
            assert!(said.contains(reason), "{what}: {said}");
        }
    }
    assert_eq!(agent.stop(), 0, "{what}");
    site.heal();
    let agent = site.run();
    if let Fails(..) = expected {
        let id = event["id"].as_str().unwrap();
        let retried = site.gleaner(&["inbox", "retry", id]);
        assert_eq!(retried.code, 0, "{what}: {retried:?}");
    }
    until("it is done", || listed()["state"] == "done");
    until("the copy is whole", || {
        site.versions().iter().all(|version| *version == 3)
    });
    assert_eq!(agent.stop(), 0, "{what}");
}

#[test]
fn whatever_the_network_does_is_called_by_its_name_and_is_over_when_it_is_over() {
    let only = std::env::var("GLEANER_NETWORK").ok();
    let rows: Vec<_> = table()
        .into_iter()
        .filter(|(what, ..)| only.as_ref().is_none_or(|only| what.contains(only)))
        .collect();
    assert!(!rows.is_empty());
    let (next, wrong) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let workers = std::thread::available_parallelism().map_or(2, usize::from) * 2;
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some((what, harm, expected)) =
                    rows.get(next.fetch_add(1, Ordering::SeqCst))
                {
                    let told = std::panic::catch_unwind(|| {
                        let site = Site::of(*harm);
                        collection(what, &site, *expected);
                        document(what, &site, *expected);
                        get(what, &site, *expected);
                        fetch(what, &site, *expected);
                    });
                    match told {
                        Ok(()) => println!("{what}: as expected"),
                        Err(_) => wrong.lock().unwrap().push(*what),
                    }
                }
            });
        }
    });
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "not as expected: {wrong:?}");
}
