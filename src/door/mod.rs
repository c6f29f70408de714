//! The door: listeners and connections, served by whoever waits. It records and answers; it never pulls.
//!
//! - [`http`] reads requests strictly;
//! - `control` says what the control socket answers.

mod control;
pub mod http;

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use control::Reply;

use crate::clock::Mono;
use crate::desk::{Desk, WishId};
use crate::wait::{Attendant, Interest, Interests, Ready, Wait};

/// Connections at a time; the next ones wait in the listener's queue.
const MAX_CONNECTIONS: usize = 16;
/// Of these, so many may follow a wish, which may take hours: `/status` is answered all the same.
const MAX_FOLLOWERS: usize = 8;
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
    listener: UnixListener,
    path: PathBuf,
    /// Device and inode of the socket: what is at `path` may be somebody else's by now.
    identity: Option<(u64, u64)>,
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
    /// Listens at `path`, in place of a socket that a dead process left there. Only owner and group may use it.
    ///
    /// # Errors
    /// When the path cannot be listened at: somebody else does, or it is no socket.
    pub fn open(path: &Path, desk: Desk) -> io::Result<Self> {
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        clear_the_way(path)?;
        let listener = UnixListener::bind(path)?;
        // Who may write to the socket may control the agent.
        fs::set_permissions(path, fs::Permissions::from_mode(0o660))?;
        listener.set_nonblocking(true)?;
        Ok(Self {
            listener,
            path: path.to_owned(),
            identity: identity(path),
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
            let stream = match self.listener.accept() {
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

impl Drop for ControlDoor {
    fn drop(&mut self) {
        // A socket that nobody listens at would only make callers wonder. If it cannot go, the next start takes it away.
        if self.identity.is_some() && identity(&self.path) == self.identity {
            drop(fs::remove_file(&self.path));
        }
    }
}

/// Takes away a socket that nobody listens at any more.
fn clear_the_way(path: &Path) -> io::Result<()> {
    let in_the_way = |kind, what: &str| Err(io::Error::new(kind, what.to_owned()));
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
        Ok(meta) if !meta.file_type().is_socket() => {
            return in_the_way(
                io::ErrorKind::AlreadyExists,
                "something that is no socket is in the way",
            );
        }
        Ok(_) => {}
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path),
        Err(error) => Err(error),
        Ok(_) => in_the_way(
            io::ErrorKind::AddrInUse,
            "another process listens there (two agents need two `[agent] control`)",
        ),
    }
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    fs::symlink_metadata(path)
        .ok()
        .map(|meta| (meta.dev(), meta.ino()))
}

impl Attendant for ControlDoor {
    fn interests<'a>(&'a self, into: &mut Interests<'a>) {
        if self.listens() {
            into.add(self.listener.as_fd(), LISTENER, Interest::Read);
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
            let reply = match http::head(&self.input, MAX_BODY) {
                Ok(Some(head)) if self.input.len() < head.size + head.length => continue,
                Ok(Some(head)) => {
                    let body = &self.input[head.size..head.size + head.length];
                    control::reply(&head, body, desk, now, may_follow)
                }
                Ok(None) => continue,
                Err(refusal) => control::text(refusal.status(), &refusal.to_string()),
            };
            self.input = Vec::new();
            self.deadline = Some(now.after(ANSWER_DEADLINE));
            match reply {
                Reply::Whole(bytes) => {
                    self.output = bytes;
                    self.state = State::Closing;
                }
                Reply::Follow(id) => {
                    self.output = http::chunked("application/x-ndjson");
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
                .extend_from_slice(&http::chunk(format!("{line}\n").as_bytes()));
            if done {
                self.output.extend_from_slice(&http::chunk(b""));
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
