//! The public door.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd as _;
use std::time::Duration;

use super::connection::{Connection, Event, Expired, Holding, Worth, no_memory};
use super::files;
use super::http::Response;
use super::line::Line;
use super::listen::{Listen, ListenError, Listener};
use super::memory::Pool;
use super::service::{Peer, Request, Service, Taken, Ticket};
use super::settings::Settings;
use crate::clock::Mono;
use crate::wait::{Attendant, Interest, Interests, Ready, Wait};

/// When no connection can be accepted (no file descriptor is left), the listeners are left alone for so long: they would
/// be ready all the time.
const DEAF: Duration = Duration::from_secs(1);
/// So many connections are accepted at one listener in one turn.
const ACCEPTS: usize = 64;
/// So many more connections than allowed are told that they are too many; further ones are closed without a word.
const TOLD: usize = 16;
/// While others wait for memory, a body may stand still for so long.
const STALL: Duration = Duration::from_secs(1);
/// One read.
const SCRATCH: usize = 16 * 1024;

/// The public door: takes HTTP requests at its listeners, inside its [`Settings`], and hands them to a [`Service`].
///
/// It stays open for whoever behaves. When it has all the connections it may have, the one that has been idle longest
/// makes room, then one that was answered for the last time, then the one that has owed its head longest, then the body
/// that has stood still longest; if none of them is there, the new one gets 503. One address that has all it may have
/// makes room only among its own idle ones.
///
/// When the memory for bodies is used up, further bodies wait unread. A body that stands still meanwhile is given up.
pub struct PublicDoor {
    listeners: Vec<Listener>,
    service: Box<dyn Service>,
    settings: Settings,
    /// By token, so in the order in which they came.
    connections: BTreeMap<usize, Connection>,
    last_token: usize,
    pool: Pool,
    /// How often memory had come back when those that wait for some asked last.
    returns_seen: usize,
    /// To be served in the next turn, whatever is ready.
    again: Vec<usize>,
    scratch: Vec<u8>,
    deaf_until: Option<Mono>,
    /// The service took a request in this turn.
    has_taken: bool,
}

impl std::fmt::Debug for PublicDoor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PublicDoor")
            .field("listeners", &self.listeners)
            .field("connections", &self.connections.len())
            .finish_non_exhaustive()
    }
}

impl PublicDoor {
    /// Listens at all these places.
    ///
    /// # Errors
    /// One of them cannot be listened at.
    pub fn open(
        places: &[Listen],
        service: Box<dyn Service>,
        settings: Settings,
    ) -> Result<Self, ListenError> {
        let listeners = Listener::open(places)?;
        let extra = listeners.len() + TOLD;
        let settings = Settings {
            connections: files::make_room(settings.connections, extra),
            ..settings
        };
        Ok(Self {
            last_token: listeners.len(),
            listeners,
            service,
            settings,
            connections: BTreeMap::new(),
            pool: Pool::of(settings.bodies),
            returns_seen: 0,
            again: Vec::new(),
            scratch: vec![0; SCRATCH],
            deaf_until: None,
            has_taken: false,
        })
    }

    /// The addresses of the TCP listeners: where a port was 0, which one it became.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.listeners
            .iter()
            .filter_map(Listener::address)
            .collect()
    }

    fn accept(&mut self, listener: usize, now: Mono) {
        for _ in 0..ACCEPTS {
            let Some(accepted) = self.listeners.get(listener).map(Listener::accept) else {
                return;
            };
            match accepted {
                Ok(Some((line, peer))) => self.welcome(line, peer, now),
                Ok(None) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if is_passing(&error) => {}
                Err(error) => {
                    log::warn!("door: no connection can be accepted: {error}");
                    self.deaf_until = Some(now.after(DEAF));
                    return;
                }
            }
        }
    }

    fn welcome(&mut self, line: Line, peer: Peer, now: Mono) {
        let has_room = self.make_room(&peer, now);
        if !has_room && self.connections.len() >= self.settings.connections + TOLD {
            log::debug!("door: {peer}: one too many");
            return;
        }
        if !has_room && peer.tls {
            // Nothing can be said before a handshake.
            return;
        }
        let mut connection = Connection::new(line, peer, now, &self.settings);
        self.last_token += 1;
        if !has_room {
            log::debug!("door: {peer}: one too many, told so");
            let words = Response::unavailable("too many connections", self.settings.head);
            connection.refuse(&words, now, &self.settings);
        }
        self.again.push(self.last_token);
        self.connections.insert(self.last_token, connection);
    }

    /// Whether there is room for one more from here, made if need be.
    fn make_room(&mut self, peer: &Peer, now: Mono) -> bool {
        if let Some(group) = peer.group() {
            let of_group = |one: &Connection| one.peer().group() == Some(group);
            if self.count(of_group) >= self.settings.per_peer {
                match self.least(of_group) {
                    Some((Worth::Idle(_), token)) => self.connections.remove(&token),
                    _ => return false,
                };
            }
        }
        if self.count(|_| true) < self.settings.connections {
            return true;
        }
        match self.least(|one| one.worth().is_dispensable(now)) {
            Some((_, token)) => self.connections.remove(&token).is_some(),
            None => false,
        }
    }

    fn count(&self, which: impl Fn(&Connection) -> bool) -> usize {
        let all = self.connections.values();
        all.filter(|one| !one.is_refused() && which(one)).count()
    }

    /// The most dispensable one.
    fn least(&self, which: impl Fn(&Connection) -> bool) -> Option<(Worth, usize)> {
        let all = self.connections.iter();
        all.filter(|(_, one)| !one.is_refused() && which(one))
            .map(|(token, one)| (one.worth(), *token))
            .min()
    }

    /// Serves one connection. Its request may become pending.
    fn serve(&mut self, token: usize, now: Mono, wait: &Wait) -> Option<Ticket> {
        let connection = self.connections.get_mut(&token)?;
        loop {
            match connection.step(now, &mut self.scratch, &self.settings) {
                Event::Wait => return None,
                Event::Again => {
                    self.again.push(token);
                    return None;
                }
                Event::Closed => {
                    self.connections.remove(&token);
                    return None;
                }
                Event::Head(head) => {
                    let admit = self.service.admit(&head, connection.peer(), now);
                    connection.admitted(head, admit, now, &self.pool, &self.settings);
                }
                Event::Request(head, body) => {
                    let request = Request {
                        head,
                        body,
                        peer: *connection.peer(),
                        received: wait.clock().wall(),
                    };
                    self.has_taken = true;
                    match self.service.take(request, now) {
                        Taken::Answer(response) => {
                            connection.answer(&response, now, &self.settings);
                        }
                        Taken::Pending(ticket) => return Some(ticket),
                    }
                }
            }
        }
    }

    /// One sync for all that is pending, and then their answers.
    fn settle(&mut self, pending: &[(Ticket, usize)], now: Mono, wait: &Wait) {
        let settled = self.service.settle(now);
        let mut answers: BTreeMap<Ticket, Response> = settled.answers.into_iter().collect();
        for (ticket, token) in pending {
            let response = answers.remove(ticket).unwrap_or_else(|| {
                log::error!("door: a request was left without an answer");
                Response::unavailable("this was not saved", self.settings.progress)
            });
            if let Some(connection) = self.connections.get_mut(token) {
                connection.answer(&response, now, &self.settings);
                self.send(*token, now, wait);
            }
        }
        if settled.nudge {
            wait.nudge();
        }
    }

    /// Ends what is over time.
    fn expire(&mut self, now: Mono, wait: &Wait) {
        let over = self.which(|one| one.deadline() <= now);
        for token in over {
            let Some(connection) = self.connections.get_mut(&token) else {
                continue;
            };
            match connection.expire(now, &self.settings) {
                Expired::Not => {}
                Expired::Closed => drop(self.connections.remove(&token)),
                Expired::Answered => self.send(token, now, wait),
            }
        }
    }

    /// Sends an answer on its way. No request becomes pending by that.
    fn send(&mut self, token: usize, now: Mono, wait: &Wait) {
        let ticket = self.serve(token, now, wait);
        debug_assert_eq!(
            ticket, None,
            "an answer is followed by no request in its turn"
        );
    }

    /// Bodies wait for memory: whoever stands still gives his back. Answers when to look again.
    fn relieve(&mut self, now: Mono, wait: &Wait) -> Option<Mono> {
        let newest_waiting = self.which(|one| one.holding() == Holding::Waits).pop()?;
        if self.pool.returns() != self.returns_seen {
            return Some(now);
        }
        let slowest = self
            .connections
            .iter()
            .filter_map(|(token, one)| match one.holding() {
                Holding::Moves(moved) => Some((moved, *token)),
                _ => None,
            })
            .min();
        let (token, response) = match slowest {
            Some((moved, token)) if now.since(moved) >= STALL => {
                (token, Response::text(408, "the body stands still"))
            }
            Some((moved, _)) => return Some(moved.after(STALL)),
            // All of them wait: nobody would ever get on.
            None => (newest_waiting, no_memory(&self.settings)),
        };
        if let Some(connection) = self.connections.get_mut(&token) {
            connection.turn_away(&response, now, &self.settings);
            self.send(token, now, wait);
        }
        Some(now)
    }

    fn which(&self, which: impl Fn(&Connection) -> bool) -> Vec<usize> {
        let all = self.connections.iter();
        all.filter(|(_, one)| which(one))
            .map(|(token, _)| *token)
            .collect()
    }

    /// Whom to serve in this turn.
    fn awake(&mut self, ready: &[Ready]) -> Vec<usize> {
        let mut awake = std::mem::take(&mut self.again);
        awake.extend(ready.iter().map(|ready| ready.token));
        if self.pool.returns() != self.returns_seen {
            self.returns_seen = self.pool.returns();
            awake.extend(self.which(|one| one.holding() == Holding::Waits));
        }
        awake.sort_unstable();
        awake.dedup();
        awake
    }
}

impl Attendant for PublicDoor {
    fn interests<'a>(&'a self, into: &mut Interests<'a>) {
        if self.deaf_until.is_none() {
            for (token, listener) in self.listeners.iter().enumerate() {
                into.add(listener.as_fd(), token, Interest::Read);
            }
        }
        for (token, connection) in &self.connections {
            if let Some(interest) = connection.interest() {
                into.add(connection.as_fd(), *token, interest);
            }
        }
    }

    fn attend(&mut self, ready: &[Ready], now: Mono, wait: &Wait) -> Option<Mono> {
        if self.deaf_until.is_some_and(|until| until <= now) {
            self.deaf_until = None;
        }
        let mut pending = Vec::new();
        let awake = self.awake(ready);
        let (listeners, connections) =
            awake.split_at(awake.partition_point(|token| *token < self.listeners.len()));
        for token in connections {
            if let Some(ticket) = self.serve(*token, now, wait) {
                pending.push((ticket, *token));
            }
        }
        // Behind the others: who makes room is decided by how they stand now.
        for token in listeners {
            self.accept(*token, now);
        }
        // Also where all was answered at once: the service may want the agent to look.
        if std::mem::take(&mut self.has_taken) {
            self.settle(&pending, now, wait);
        }
        self.expire(now, wait);
        let relief = self.relieve(now, wait);
        let at_once = (!self.again.is_empty()).then_some(now);
        self.connections
            .values()
            .map(Connection::deadline)
            .chain(self.deaf_until)
            .chain(relief)
            .chain(at_once)
            .min()
    }
}

/// An error of the connection that was to be accepted, not of the listener (`accept(2)`).
fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::Interrupted
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
    )
}
