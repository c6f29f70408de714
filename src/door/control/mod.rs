//! The control socket: one request a connection, answered from the desk.

mod replies;

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use replies::Reply;

use super::http::{self, Framing, Head, Refusal, answer};
use super::listen::UnixPlace;
use crate::clock::Mono;
use crate::desk::{Desk, WishId};
use crate::wait::{Attendant, Interest, Interests, Ready, Wait};

/// Connections at a time; the next ones wait in the listener's queue.
const MAX_CONNECTIONS: usize = 16;
/// Of these, so many may follow a wish, which may take hours: `/status` is answered all the same.
const MAX_FOLLOWERS: usize = 8;
/// The largest request head.
const MAX_HEAD: usize = 8 * 1024;
/// The largest request body.
const MAX_BODY: usize = 64 * 1024;
/// A request must have come within this time.
const REQUEST_DEADLINE: Duration = Duration::from_secs(10);
/// An answer must move within this time.
const ANSWER_DEADLINE: Duration = Duration::from_secs(30);
/// When no connection can be accepted (no file descriptor is left), the listener is left alone for so long: it would be
/// ready all the time.
const DEAF: Duration = Duration::from_secs(1);
/// The listener's token; connections have the higher ones.
const LISTENER: usize = 0;

/// The control socket.
#[derive(Debug)]
pub struct ControlDoor {
    place: UnixPlace,
    desk: Desk,
    connections: Vec<Connection>,
    last_token: usize,
    deaf_until: Option<Mono>,
}

#[derive(Debug)]
struct Connection {
    stream: UnixStream,
    token: usize,
    input: Vec<u8>,
    output: Vec<u8>,
    state: State,
    deadline: Option<Mono>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// The request is coming.
    Request,
    /// A wish is followed; its events are passed on.
    Follow(WishId),
    /// The answer is complete: it goes out, and the connection closes.
    Closing,
}

impl ControlDoor {
    /// Listens at `path`, in place of a socket that a dead process left there, with the permissions `mode`.
    ///
    /// # Errors
    /// When the path cannot be listened at: somebody else does, or it is no socket.
    pub fn open(path: &Path, mode: u32, desk: Desk) -> io::Result<Self> {
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        Ok(Self {
            // Who may write to the socket may control the agent.
            place: UnixPlace::bind(path, mode)?,
            desk,
            connections: Vec::new(),
            last_token: LISTENER,
            deaf_until: None,
        })
    }

    fn listens(&self) -> bool {
        self.deaf_until.is_none() && self.connections.len() < MAX_CONNECTIONS
    }

    fn accept(&mut self, now: Mono) {
        while self.connections.len() < MAX_CONNECTIONS {
            let stream = match self.place.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => {
                    log::warn!("control socket: {error}");
                    self.deaf_until = Some(now.after(DEAF));
                    return;
                }
            };
            if stream.set_nonblocking(true).is_err() {
                continue;
            }
            self.last_token = self.last_token.wrapping_add(1).max(LISTENER + 1);
            self.connections.push(Connection {
                stream,
                token: self.last_token,
                input: Vec::new(),
                output: Vec::new(),
                state: State::Request,
                deadline: Some(now.after(REQUEST_DEADLINE)),
            });
        }
    }
}

impl Attendant for ControlDoor {
    fn interests<'a>(&'a self, into: &mut Interests<'a>) {
        if self.listens() {
            into.add(self.place.listener.as_fd(), LISTENER, Interest::Read);
        }
        for connection in &self.connections {
            into.add(
                connection.stream.as_fd(),
                connection.token,
                connection.interest(&self.desk),
            );
        }
    }

    fn attend(&mut self, ready: &[Ready], now: Mono, wait: &Wait) -> Option<Mono> {
        let desk = self.desk.clone();
        if self.deaf_until.is_some_and(|until| until <= now) {
            self.deaf_until = None;
        }
        if ready.iter().any(|ready| ready.token == LISTENER) {
            self.accept(now);
        }
        let mut following = self.connections.iter().filter(|one| one.follows()).count();
        let followed_before = following;
        self.connections.retain_mut(|connection| {
            let is_ready = ready.iter().any(|ready| ready.token == connection.token);
            let followed = connection.follows();
            let may_follow = followed || following < MAX_FOLLOWERS;
            let alive = !is_ready || connection.serve(&desk, now, may_follow);
            if connection.follows() && !followed {
                following += 1;
            }
            connection.hurry(&desk, now);
            // Also when bytes keep dripping: a request has to have come in time.
            let keep = alive && connection.deadline.is_none_or(|deadline| now < deadline);
            if !keep {
                connection.leave(&desk);
            }
            keep
        });
        if following > followed_before {
            wait.nudge();
        }
        self.connections
            .iter()
            .filter_map(|connection| connection.deadline)
            .chain(self.deaf_until)
            .min()
    }
}

impl Connection {
    fn interest(&self, desk: &Desk) -> Interest {
        match self.state {
            State::Request => Interest::Read,
            State::Closing => Interest::Write,
            // Reading tells when the other side has gone.
            State::Follow(id) if !self.output.is_empty() || desk.has_news(id) => Interest::Both,
            State::Follow(_) => Interest::Read,
        }
    }

    fn follows(&self) -> bool {
        matches!(self.state, State::Follow(_))
    }

    /// Goes as far as it can without waiting; says whether the connection stays.
    fn serve(&mut self, desk: &Desk, now: Mono, may_follow: bool) -> bool {
        let alive = match self.state {
            State::Request => self.read_request(desk, now, may_follow),
            State::Follow(id) => self.other_side_is_there() && self.follow(id, desk),
            State::Closing => true,
        };
        alive && self.write_out(now)
    }

    fn read_request(&mut self, desk: &Desk, now: Mono, may_follow: bool) -> bool {
        let mut buffer = [0; 4096];
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => return false,
                Ok(read) => self.input.extend_from_slice(&buffer[..read]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return true,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => return false,
            }
            let reply = match request(&self.input) {
                Ok(Some((head, body))) => replies::reply(&head, body, desk, now, may_follow),
                Ok(None) => continue,
                Err(refusal) => replies::text(refusal.status(), &refusal.to_string()),
            };
            self.input = Vec::new();
            self.deadline = Some(now.after(ANSWER_DEADLINE));
            match reply {
                Reply::Whole(bytes) => {
                    self.output = bytes;
                    self.state = State::Closing;
                }
                Reply::Follow(id) => {
                    self.output = answer::chunked("application/x-ndjson");
                    self.state = State::Follow(id);
                    self.deadline = None;
                }
            }
            return true;
        }
    }

    fn other_side_is_there(&mut self) -> bool {
        // More of the same request's bytes mean nothing.
        let mut buffer = [0; 1024];
        match self.stream.read(&mut buffer) {
            Ok(0) => false,
            Ok(_) => true,
            Err(error) => matches!(
                error.kind(),
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
            ),
        }
    }

    fn follow(&mut self, id: WishId, desk: &Desk) -> bool {
        // What the other side has not taken yet waits at the desk, where a later progress replaces an earlier one.
        if !self.output.is_empty() {
            return true;
        }
        for line in desk.fetch(id) {
            let done = line == "\"done\"";
            self.output
                .extend_from_slice(&answer::chunk(format!("{line}\n").as_bytes()));
            if done {
                self.output.extend_from_slice(&answer::chunk(b""));
                desk.leave(id);
                self.state = State::Closing;
            }
        }
        true
    }

    fn write_out(&mut self, now: Mono) -> bool {
        while !self.output.is_empty() {
            match self.stream.write(&self.output) {
                Ok(0) => return false,
                Ok(written) => {
                    self.output.drain(..written);
                    self.deadline = Some(now.after(ANSWER_DEADLINE));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return true,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
        self.state != State::Closing
    }

    /// A follower has time without end while there is nothing to tell it; what there is, it has to take.
    fn hurry(&mut self, desk: &Desk, now: Mono) {
        if let State::Follow(id) = self.state {
            if self.output.is_empty() && !desk.has_news(id) {
                self.deadline = None;
            } else {
                self.deadline.get_or_insert(now.after(ANSWER_DEADLINE));
            }
        }
    }

    fn leave(&self, desk: &Desk) {
        if let State::Follow(id) = self.state {
            desk.leave(id);
        }
    }
}

/// A request with its body, once both are there. Callers of this socket know the length of what they send.
fn request(input: &[u8]) -> Result<Option<(Head, &[u8])>, Refusal> {
    let Some(head) = http::head(input, MAX_HEAD)? else {
        return Ok(None);
    };
    let length = match head.framing {
        Framing::Chunked => return Err(Refusal::Coding),
        Framing::Length(length) => usize::try_from(length)
            .ok()
            .filter(|length| *length <= MAX_BODY)
            .ok_or(Refusal::BodyTooLarge)?,
    };
    let body = input.get(head.size..head.size + length);
    Ok(body.map(|body| (head, body)))
}
