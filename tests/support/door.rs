//! A public door with a small service, served in a thread of its own, under a clock that stands still.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use gleaner::clock::{Clock, FakeClock, Mono, Timestamp};
use gleaner::door::http::{Head, Response};
use gleaner::door::{
    Admit, Listen, Peer, Place, PublicDoor, Request, Service, Settings, Settled, Taken, Ticket,
};
use gleaner::wait::{Attendant, Interest, Interests, Ready, Wait};

/// What the service saw, in order.
pub type Seen = Arc<Mutex<Vec<String>>>;

/// Answers `/echo` with the request's body, after the turn was settled; `/now` at once; `/no` with 401 before the body.
pub struct Echo {
    pub seen: Seen,
    /// The largest body.
    pub cap: u64,
    /// `/gate` is taken only when something comes here.
    pub gate: Option<mpsc::Receiver<()>>,
    pending: Vec<(Ticket, Response)>,
    tickets: u64,
}

impl Echo {
    pub fn new(cap: u64) -> Self {
        Self {
            seen: Seen::default(),
            cap,
            gate: None,
            pending: Vec::new(),
            tickets: 0,
        }
    }

    fn note(&self, what: String) {
        self.seen.lock().unwrap().push(what);
    }
}

impl Service for Echo {
    fn admit(&mut self, head: &Head, _: &Peer, _: Mono) -> Admit {
        self.note(format!("admit {} {}", head.method, head.path));
        match (head.method.as_str(), head.path.as_str()) {
            ("POST", "/echo" | "/lost" | "/gate") => Admit::Body { cap: self.cap },
            ("GET" | "HEAD" | "POST", "/now") => Admit::Body { cap: 0 },
            (_, "/no") => Admit::Answer(Response::text(401, "no")),
            (_, "/echo") => Admit::Answer(Response::method_not_allowed("POST")),
            _ => Admit::Answer(Response::text(404, "nothing here")),
        }
    }

    fn take(&mut self, request: Request, _: Mono) -> Taken {
        self.note(format!("take {} {}", request.head.path, request.body.len()));
        if let ("/gate", Some(gate)) = (request.head.path.as_str(), &self.gate) {
            gate.recv().unwrap();
        }
        if request.head.path == "/now" {
            return Taken::Answer(Response::text(200, "now"));
        }
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        if request.head.path != "/lost" {
            let echo = Response::new(200).with_body("application/octet-stream", request.body);
            self.pending.push((ticket, echo));
        }
        Taken::Pending(ticket)
    }

    fn settle(&mut self, _: Mono) -> Settled {
        self.note(format!("settle {}", self.pending.len()));
        Settled {
            answers: std::mem::take(&mut self.pending),
            nudge: false,
        }
    }
}

/// A door whose turns are counted.
struct Counted(PublicDoor, Arc<AtomicUsize>);

impl Attendant for Counted {
    fn interests<'a>(&'a self, into: &mut Interests<'a>) {
        self.0.interests(into);
    }

    fn attend(&mut self, ready: &[Ready], now: Mono, wait: &Wait) -> Option<Mono> {
        self.1.fetch_add(1, Ordering::SeqCst);
        self.0.attend(ready, now, wait)
    }
}

/// A door that is served until this is dropped.
pub struct Door {
    pub addresses: Vec<SocketAddr>,
    pub seen: Seen,
    /// How often the door was called.
    turns: Arc<AtomicUsize>,
    clock: Arc<FakeClock>,
    wait: Wait,
    thread: Option<JoinHandle<()>>,
}

impl Door {
    /// At a port of this machine.
    pub fn open(settings: Settings) -> Self {
        Self::at(&[here()], settings, Echo::new(1024 * 1024))
    }

    pub fn at(places: &[Listen], settings: Settings, service: Echo) -> Self {
        let clock = Arc::new(FakeClock::at(Timestamp::UNIX_EPOCH));
        let wait = Wait::new(Arc::clone(&clock) as Arc<dyn Clock>).unwrap();
        let seen = Arc::clone(&service.seen);
        let door = PublicDoor::open(places, Box::new(service), settings).unwrap();
        let addresses = door.addresses();
        let turns = Arc::new(AtomicUsize::new(0));
        wait.attend(Box::new(Counted(door, Arc::clone(&turns))));
        let waiting = wait.clone();
        let thread = thread::spawn(move || {
            // Nothing ever comes here: whoever waits serves the door.
            let (nothing, _kept) = UnixStream::pair().unwrap();
            while waiting
                .fd_ready(nothing.as_fd(), Interest::Read, None)
                .is_ok()
            {}
        });
        Self {
            addresses,
            seen,
            turns,
            clock,
            wait,
            thread: Some(thread),
        }
    }

    /// The clock goes on by so much, at once.
    pub fn advance(&self, span: Duration) {
        self.clock.advance(span);
        self.wait.nudge();
    }

    /// How often the door has been called.
    pub fn turns(&self) -> usize {
        self.turns.load(Ordering::SeqCst)
    }

    pub fn seen(&self) -> Vec<String> {
        self.seen.lock().unwrap().clone()
    }

    /// Until the door has read all that was sent to it so far: what is asked here came behind that.
    pub fn catch_up(&self) {
        assert_eq!(status(&self.ask(NOW_AND_CLOSE)), 200);
    }

    /// A connection.
    pub fn connect(&self) -> Caller<TcpStream> {
        Caller(TcpStream::connect(self.addresses[0]).unwrap())
    }

    /// One request on a connection of its own, and all that comes back.
    pub fn ask(&self, bytes: impl AsRef<[u8]>) -> String {
        let mut caller = self.connect();
        caller.send(bytes);
        caller.rest()
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.wait.stop();
        let ended = self.thread.take().map(JoinHandle::join);
        if !thread::panicking() {
            ended.unwrap().unwrap();
        }
    }
}

/// A port of this machine that is free.
pub fn here() -> Listen {
    Listen {
        place: Place::Tcp("127.0.0.1:0".parse().unwrap()),
        tls: None,
    }
}

/// A request with a body.
pub fn post(path: &str, body: &[u8]) -> Vec<u8> {
    let mut out = format!(
        "POST {path} HTTP/1.1\r\nHost: gw\r\nContent-Length: {}\r\n\r\n",
        body.len()
    )
    .into_bytes();
    out.extend_from_slice(body);
    out
}

pub const NOW: &[u8] = b"GET /now HTTP/1.1\r\nHost: gw\r\n\r\n";
pub const NOW_AND_CLOSE: &[u8] = b"GET /now HTTP/1.1\r\nHost: gw\r\nConnection: close\r\n\r\n";

/// The asking side.
pub struct Caller<S>(pub S);

impl<S: Read + Write> Caller<S> {
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.write_all(bytes.as_ref()).unwrap();
    }

    /// One answer by its Content-Length: head and body.
    pub fn answer(&mut self) -> (String, Vec<u8>) {
        let head = self.head();
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("Content-Length: "))
            .map_or(0, |length| length.parse().unwrap());
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).unwrap();
        (head, body)
    }

    /// One head alone.
    pub fn head(&mut self) -> String {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            self.0.read_exact(&mut byte).unwrap();
            head.extend(byte);
        }
        String::from_utf8(head).unwrap()
    }

    /// The status of one answer.
    pub fn status(&mut self) -> u16 {
        status(&self.answer().0)
    }

    /// All that comes until the door closes.
    pub fn rest(&mut self) -> String {
        let mut out = Vec::new();
        self.0.read_to_end(&mut out).unwrap();
        String::from_utf8_lossy(&out).into_owned()
    }

    /// Whether the door has closed, or reset, without another word.
    pub fn is_closed(&mut self) -> bool {
        match self.0.read(&mut [0]) {
            Ok(read) => read == 0,
            Err(error) => error.kind() == ErrorKind::ConnectionReset,
        }
    }
}

impl Caller<TcpStream> {
    /// Nothing more will be sent.
    pub fn shut(&self) {
        self.0.shutdown(Shutdown::Write).unwrap();
    }
}

/// The status in an answer's head.
pub fn status(head: &str) -> u16 {
    head.split(' ')
        .nth(1)
        .and_then(|code| code.parse().ok())
        .unwrap_or(0)
}
