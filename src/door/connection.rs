//! One connection: requests in, one after another, and their answers out in the same order.
//!
//! ```text
//!   (handshake) → head → body → taken → answering ─┬→ head …
//!                   └──── refused ────────↗        └→ draining → closed
//! ```

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;
use std::{io, mem};

use super::http::answer::CONTINUE;
use super::http::{self, Frame, Head, Refusal, Response};
use super::line::{Heard, Line};
use super::memory::Pool;
use super::receiving::{Progress, Receiving};
use super::service::{Admit, Peer};
use super::settings::Settings;
use crate::clock::Mono;
use crate::wait::Interest;

/// So much is read of one connection in one turn of the wait; the others come first then.
const TURN: usize = 64 * 1024;

/// A connection without a head, or with a body that stands still, is safe for so long.
const GRACE: Duration = Duration::from_secs(1);

/// One connection.
#[derive(Debug)]
pub(super) struct Connection {
    line: Line,
    peer: Peer,
    stage: Stage,
    /// Bytes that are not taken yet: at most a head and one read.
    input: Vec<u8>,
    /// So many of them were looked at for a head that is not complete.
    looked: usize,
    /// The TLS handshake is still going on.
    greets: bool,
    output: Vec<u8>,
    sent: usize,
    /// Turned away; not counted.
    refused: bool,
    since: Mono,
    deadline: Mono,
}

#[derive(Debug)]
enum Stage {
    /// A head is to come.
    Head {
        /// Behind an answer, nothing of the next request yet.
        idle: bool,
    },
    Body(Box<Receiving>),
    /// The service has the request.
    Taken(How),
    /// The answer goes out.
    Answering(How),
    /// The last answer has gone; so many bytes are still read and dropped.
    Draining(u64),
}

/// How an answer goes out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct How {
    /// Without its body.
    to_head: bool,
    /// Another request may follow.
    keep: bool,
}

/// What a step came to.
#[derive(Debug)]
pub(super) enum Event {
    /// Nothing more now.
    Wait,
    /// There is more to do at once, but the others come first.
    Again,
    /// It has ended.
    Closed,
    /// A head is complete; [`Connection::admitted`] comes next.
    Head(Head),
    /// A request is complete; [`Connection::answer`] comes next.
    Request(Head, Vec<u8>),
}

/// What a body's memory looks like from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Holding {
    /// No body is coming in.
    Nothing,
    /// It waits for memory.
    Waits,
    /// It goes on; bytes came last at this time.
    Moves(Mono),
}

/// How dispensable a connection is when room is needed, the most dispensable first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Worth {
    /// Between requests, since this time.
    Idle(Mono),
    /// Answered for the last time, at this time.
    Drains(Mono),
    /// Nothing complete has come since this time.
    Headless(Mono),
    /// A body's last bytes came at this time.
    Body(Mono),
    /// It is being answered.
    Busy,
}

impl Worth {
    /// Whether it can go to make room. Who is on his way is safe for a moment, since everybody's first packets take one.
    pub(super) fn is_dispensable(self, now: Mono) -> bool {
        match self {
            Self::Idle(_) | Self::Drains(_) => true,
            Self::Headless(since) | Self::Body(since) => now.since(since) >= GRACE,
            Self::Busy => false,
        }
    }
}

/// What becomes of a connection whose deadline has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Expired {
    /// It has ended.
    Closed,
    /// It is told so.
    Answered,
    /// It goes on.
    Not,
}

impl Connection {
    pub(super) fn new(line: Line, peer: Peer, now: Mono, settings: &Settings) -> Self {
        let greets = line.is_handshaking();
        let deadline = now.after(if greets {
            settings.handshake
        } else {
            settings.head
        });
        Self {
            line,
            peer,
            greets,
            stage: Stage::Head { idle: false },
            input: Vec::new(),
            looked: 0,
            output: Vec::new(),
            sent: 0,
            refused: false,
            since: now,
            deadline,
        }
    }

    pub(super) fn peer(&self) -> &Peer {
        &self.peer
    }

    pub(super) fn deadline(&self) -> Mono {
        self.deadline
    }

    pub(super) fn is_refused(&self) -> bool {
        self.refused
    }

    /// What to watch the socket for.
    pub(super) fn interest(&self) -> Option<Interest> {
        let reads = match &self.stage {
            Stage::Head { .. } | Stage::Draining(_) => true,
            Stage::Body(receiving) => !receiving.waits,
            Stage::Taken(_) | Stage::Answering(_) => false,
        };
        match (reads, self.owes()) {
            (true, true) => Some(Interest::Both),
            (true, false) => Some(Interest::Read),
            (false, true) => Some(Interest::Write),
            (false, false) => None,
        }
    }

    pub(super) fn holding(&self) -> Holding {
        match &self.stage {
            Stage::Body(receiving) if receiving.waits => Holding::Waits,
            Stage::Body(receiving) => Holding::Moves(receiving.moved),
            _ => Holding::Nothing,
        }
    }

    pub(super) fn worth(&self) -> Worth {
        match &self.stage {
            Stage::Head { idle: true } => Worth::Idle(self.since),
            Stage::Draining(_) => Worth::Drains(self.since),
            Stage::Head { idle: false } => Worth::Headless(self.since),
            Stage::Body(receiving) if !receiving.waits => Worth::Body(receiving.moved),
            _ => Worth::Busy,
        }
    }

    /// Goes as far as it can without waiting.
    pub(super) fn step(&mut self, now: Mono, scratch: &mut [u8], settings: &Settings) -> Event {
        loop {
            match self.go(now, scratch, settings) {
                Ok(event) => return event,
                Err(Trouble::Refused(refusal)) => {
                    log::debug!("door: {}: {refusal}", self.peer);
                    self.turn_away(&refusal.into(), now, settings);
                }
                Err(Trouble::Broken(error)) => {
                    log::debug!("door: {}: {error}", self.peer);
                    return Event::Closed;
                }
            }
        }
    }

    fn go(&mut self, now: Mono, scratch: &mut [u8], settings: &Settings) -> Result<Event, Trouble> {
        let mut quota = TURN;
        loop {
            self.flush()?;
            let owes = self.owes();
            let more = match &mut self.stage {
                Stage::Head { .. } => match self.look(settings.head_bytes)? {
                    Some(head) => return Ok(Event::Head(head)),
                    None => true,
                },
                Stage::Body(receiving) => match receiving.take(&mut self.input, now)? {
                    Progress::Done => return Ok(self.complete()),
                    Progress::NoMemory => return Ok(Event::Wait),
                    Progress::Needs { continued } => {
                        if continued {
                            self.output.extend_from_slice(CONTINUE);
                            self.flush()?;
                        }
                        true
                    }
                },
                Stage::Taken(_) => return Ok(Event::Wait),
                Stage::Answering(_) if owes => return Ok(Event::Wait),
                Stage::Answering(how) => {
                    let keep = how.keep;
                    if let Some(event) = self.answered(keep, now, settings) {
                        return Ok(event);
                    }
                    false
                }
                Stage::Draining(_) => true,
            };
            if !more {
                continue;
            }
            if quota == 0 {
                return Ok(Event::Again);
            }
            let heard = match self.stage {
                Stage::Draining(_) => self.line.skim(scratch)?,
                _ => self.line.read(scratch)?,
            };
            if self.greets && !self.line.is_handshaking() {
                self.greets = false;
                self.deadline = now.after(settings.head);
            }
            match heard {
                Heard::Nothing => return Ok(Event::Wait),
                Heard::End => return Ok(Event::Closed),
                Heard::Bytes(count) => {
                    quota = quota.saturating_sub(count);
                    if !self.heard(&scratch[..count], now, settings) {
                        return Ok(Event::Closed);
                    }
                }
            }
        }
    }

    /// Bytes have come; says whether the connection stays.
    fn heard(&mut self, bytes: &[u8], now: Mono, settings: &Settings) -> bool {
        match &mut self.stage {
            Stage::Draining(left) => {
                *left = left.saturating_sub(bytes.len() as u64);
                return *left > 0;
            }
            Stage::Head { idle } if *idle => {
                *idle = false;
                self.since = now;
                self.deadline = now.after(settings.head);
            }
            Stage::Body(receiving) => receiving.moved = now,
            _ => {}
        }
        self.input.extend_from_slice(bytes);
        true
    }

    /// Looks for a head. One is complete only with a line's end: without a new one there is nothing to read again.
    fn look(&mut self, max: usize) -> Result<Option<Head>, Refusal> {
        let fresh = self.input.get(self.looked..).unwrap_or_default();
        if fresh.is_empty()
            || (self.looked > 0 && self.input.len() <= max && !fresh.contains(&b'\n'))
        {
            self.looked = self.input.len();
            return Ok(None);
        }
        let head = http::head(&self.input, max)?;
        match &head {
            Some(head) => {
                self.looked = 0;
                self.input.drain(..head.size);
            }
            None => self.looked = self.input.len(),
        }
        Ok(head)
    }

    /// The service has seen the head.
    pub(super) fn admitted(
        &mut self,
        head: Head,
        admit: Admit,
        now: Mono,
        pool: &Pool,
        settings: &Settings,
    ) {
        let how = How {
            to_head: head.method == "HEAD",
            keep: head.keep_alive,
        };
        let cap = match admit {
            Admit::Body { cap } => cap,
            Admit::Answer(response) => {
                // A body that nobody reads would be taken for the next request.
                let keep = how.keep && head.framing.is_empty();
                return self.send(&response, How { keep, ..how }, now, settings);
            }
        };
        match Frame::new(head.framing, cap) {
            Ok(frame) => {
                self.since = now;
                let mut receiving = Receiving {
                    owes_continue: head.expects_continue && !head.framing.is_empty(),
                    head,
                    frame,
                    body: Vec::new(),
                    memory: pool.share(),
                    waits: false,
                    end: now.after(settings.body),
                    mark: (now, 0),
                    moved: now,
                };
                self.deadline = receiving.next_deadline(settings);
                receiving.owes_continue &= self.input.is_empty();
                self.stage = Stage::Body(Box::new(receiving));
            }
            Err(refusal) => {
                self.send(&refusal.into(), How { keep: false, ..how }, now, settings);
            }
        }
    }

    fn complete(&mut self) -> Event {
        let how = How {
            to_head: false,
            keep: false,
        };
        match mem::replace(&mut self.stage, Stage::Taken(how)) {
            Stage::Body(receiving) => {
                self.stage = Stage::Taken(How {
                    to_head: receiving.head.method == "HEAD",
                    keep: receiving.head.keep_alive,
                });
                Event::Request(receiving.head, receiving.body)
            }
            other => {
                self.stage = other;
                Event::Wait
            }
        }
    }

    /// The answer to the request that was taken.
    pub(super) fn answer(&mut self, response: &Response, now: Mono, settings: &Settings) {
        if let Stage::Taken(how) = self.stage {
            self.send(response, how, now, settings);
        }
    }

    /// An answer to no request, or to one that is not read any further.
    pub(super) fn turn_away(&mut self, response: &Response, now: Mono, settings: &Settings) {
        let to_head = match &self.stage {
            Stage::Body(receiving) => receiving.head.method == "HEAD",
            _ => false,
        };
        let how = How {
            to_head,
            keep: false,
        };
        self.send(response, how, now, settings);
    }

    /// Answers instead of serving, outside of all counts.
    pub(super) fn refuse(&mut self, response: &Response, now: Mono, settings: &Settings) {
        self.refused = true;
        self.turn_away(response, now, settings);
    }

    fn send(&mut self, response: &Response, how: How, now: Mono, settings: &Settings) {
        // Unless a 100 is still on its way, there is nothing before it.
        self.output
            .extend_from_slice(&response.to_bytes(how.to_head, how.keep));
        self.stage = Stage::Answering(how);
        self.deadline = now.after(settings.write);
        if !how.keep {
            self.input = Vec::new();
        }
    }

    /// The answer has gone out. Another request of this connection is not looked at in the same turn: the turn may be
    /// settled already.
    fn answered(&mut self, keep: bool, now: Mono, settings: &Settings) -> Option<Event> {
        self.output = Vec::new();
        self.sent = 0;
        self.since = now;
        if !keep {
            self.line.shut();
            self.stage = Stage::Draining(settings.drain_bytes);
            self.deadline = now.after(settings.drain);
            return None;
        }
        let idle = self.input.is_empty();
        self.stage = Stage::Head { idle };
        self.deadline = now.after(if idle { settings.idle } else { settings.head });
        if idle {
            // What waits takes no memory.
            self.input = Vec::new();
        }
        if idle && !self.line.has_more() {
            Some(Event::Wait)
        } else {
            // The next one is there already; the others come first.
            Some(Event::Again)
        }
    }

    /// Its time is over, or that of a span of its body.
    pub(super) fn expire(&mut self, now: Mono, settings: &Settings) -> Expired {
        let answer = match &mut self.stage {
            Stage::Head { .. } if !self.input.is_empty() => {
                Response::text(408, "the head did not come in time")
            }
            Stage::Body(receiving) => {
                if receiving.is_fast(now, settings) && now < receiving.end {
                    self.deadline = receiving.next_deadline(settings);
                    return Expired::Not;
                }
                if receiving.waits {
                    no_memory(settings)
                } else {
                    Response::text(408, "the body did not come in time")
                }
            }
            _ => return Expired::Closed,
        };
        self.turn_away(&answer, now, settings);
        Expired::Answered
    }

    fn flush(&mut self) -> io::Result<()> {
        while let Some(rest) = self.output.get(self.sent..).filter(|rest| !rest.is_empty()) {
            let sent = self.line.write(rest)?;
            if sent == 0 {
                break;
            }
            self.sent += sent;
        }
        self.line.flush()
    }

    /// Whether something is still to go out.
    fn owes(&self) -> bool {
        self.sent < self.output.len() || self.line.owes()
    }
}

/// What is said when there is no memory for a body.
pub(super) fn no_memory(settings: &Settings) -> Response {
    Response::unavailable("too many bodies are on their way", settings.progress)
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.line.as_fd()
    }
}

/// Why a step went no further.
enum Trouble {
    Refused(Refusal),
    Broken(io::Error),
}

impl From<Refusal> for Trouble {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        Self::Broken(error)
    }
}
