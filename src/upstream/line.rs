//! What all connections to one upstream share: deadlines, byte counts, and how the last request fared.

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::cause::TransportCause;
use crate::clock::Mono;
use crate::config::Limits;
use crate::wait::{Interest, Readiness, Wait};

/// The line to one upstream; a handle, cheap to clone. The caller keeps one, each connection another.
#[derive(Debug, Clone)]
pub struct Line(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    wait: Wait,
    patience: Patience,
    traffic: Traffic,
    request: Mutex<Request>,
}

/// How long a line waits for what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// To connect: name, TCP, proxy and TLS together.
    pub connect: Duration,
    /// Without a single byte of progress.
    pub stall: Duration,
    /// For one request with its body.
    pub total: Duration,
}

impl From<&Limits> for Patience {
    fn from(limits: &Limits) -> Self {
        Self {
            connect: limits.connect,
            stall: limits.stall,
            total: limits.total,
        }
    }
}

/// Bytes that crossed the sockets, TLS, proxies and handshakes included, without TCP's and IP's headers.
#[derive(Debug, Default)]
pub struct Traffic {
    up: AtomicU64,
    down: AtomicU64,
    connections: AtomicU64,
}

impl Traffic {
    /// Bytes sent so far.
    #[must_use]
    pub fn up(&self) -> u64 {
        self.up.load(Ordering::Relaxed)
    }

    /// Bytes received so far.
    #[must_use]
    pub fn down(&self) -> u64 {
        self.down.load(Ordering::Relaxed)
    }

    /// TCP connections that came up so far.
    #[must_use]
    pub fn connections(&self) -> u64 {
        self.connections.load(Ordering::Relaxed)
    }

    pub(super) fn sent(&self, bytes: usize) {
        self.up.fetch_add(widen(bytes), Ordering::Relaxed);
    }

    pub(super) fn received(&self, bytes: usize) {
        self.down.fetch_add(widen(bytes), Ordering::Relaxed);
    }

    pub(super) fn connected(&self) {
        self.connections.fetch_add(1, Ordering::Relaxed);
    }
}

/// How the request that [`Line::begin_request`] began has fared on its connection. Also readable after it failed: an
/// idempotent request that dies on a reused connection with no byte of an answer is worth a second try.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ConnState {
    /// The request went out on a connection from an earlier one.
    pub reused: bool,
    /// Bytes of the answer that have come, inside TLS.
    pub answered: u64,
}

/// The request in progress.
#[derive(Debug, Default)]
struct Request {
    /// When it must be done, body included.
    total_until: Option<Mono>,
    /// When the connection must be up; `Some` only while one is being made.
    connect_until: Option<Mono>,
    /// Connects within connects: through a proxy they nest.
    connecting: u32,
    dialled: bool,
    answered: u64,
}

impl Line {
    /// A line that waits in `wait`.
    #[must_use]
    pub fn new(wait: Wait, patience: Patience) -> Self {
        Self(Arc::new(Inner {
            wait,
            patience,
            traffic: Traffic::default(),
            request: Mutex::default(),
        }))
    }

    /// Starts the clock for one request and its body. To be called before each: without it the last one's total
    /// deadline goes on.
    pub fn begin_request(&self) {
        let total_until = Some(self.wait().now().after(self.0.patience.total));
        *self.request() = Request {
            total_until,
            ..Request::default()
        };
    }

    /// How the request that was begun last has fared.
    #[must_use]
    pub fn conn_state(&self) -> ConnState {
        let request = self.request();
        ConnState {
            reused: !request.dialled,
            answered: request.answered,
        }
    }

    /// Bytes and connections so far.
    #[must_use]
    pub fn traffic(&self) -> &Traffic {
        &self.0.traffic
    }

    /// Where this line waits.
    #[must_use]
    pub fn wait(&self) -> &Wait {
        &self.0.wait
    }

    /// Until dropped, the connect deadline rules instead of the stall deadline.
    pub(super) fn dial(&self) -> Dialling {
        let until = self.wait().now().after(self.0.patience.connect);
        let mut request = self.request();
        request.dialled = true;
        request.connecting += 1;
        request.connect_until.get_or_insert(until);
        Dialling(self.clone())
    }

    /// Notes bytes of an answer, inside TLS.
    pub(super) fn answered(&self, bytes: usize) -> u64 {
        let mut request = self.request();
        request.answered = request.answered.saturating_add(widen(bytes));
        request.answered
    }

    /// The next deadline if nothing moves from now on, and what has happened when it passes.
    pub(super) fn deadline(&self) -> (Mono, TransportCause) {
        let patience = self.0.patience;
        let request = self.request();
        let (until, cause) = match request.connect_until {
            Some(until) => (until, TransportCause::ConnectTimeout(patience.connect)),
            None => (
                self.wait().now().after(patience.stall),
                TransportCause::Stalled(patience.stall),
            ),
        };
        match request.total_until {
            Some(total) if total < until => (total, TransportCause::TotalTime(patience.total)),
            _ => (until, cause),
        }
    }

    /// Waits for an fd until [`Line::deadline`], or `at_most` if that comes first.
    pub(super) fn fd_ready(
        &self,
        fd: BorrowedFd<'_>,
        interest: Interest,
        at_most: Option<Mono>,
    ) -> Result<(), TransportCause> {
        let (until, cause) = self.deadline();
        let until = at_most.map_or(until, |at_most| at_most.min(until));
        match self.wait().fd_ready(fd, interest, Some(until)) {
            Ok(Readiness::Ready) => Ok(()),
            Ok(Readiness::DeadlinePassed) => Err(cause),
            Err(error) => Err(TransportCause::of_socket(&error)),
        }
    }

    /// While bytes flow nobody waits, so deadlines and attendants get their turn here.
    pub(super) fn breathe(&self) -> Result<(), TransportCause> {
        let (until, cause) = self.deadline();
        if until <= self.wait().now() {
            return Err(cause);
        }
        self.wait()
            .breathe()
            .map_err(|error| TransportCause::of_socket(&error))
    }

    fn request(&self) -> MutexGuard<'_, Request> {
        self.0
            .request
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection is being made.
pub(super) struct Dialling(Line);

impl Dialling {
    /// Whether this is the connection that was asked for, not one that it goes through (to a proxy).
    pub(super) fn is_outermost(&self) -> bool {
        self.0.request().connecting == 1
    }
}

impl Drop for Dialling {
    fn drop(&mut self) {
        let mut request = self.0.request();
        request.connecting = request.connecting.saturating_sub(1);
        if request.connecting == 0 {
            request.connect_until = None;
        }
    }
}

fn widen(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}
