//! The one place that ever blocks.
//!
//! A pull that waits for its upstream and a schedule that waits for its next due time both wait here, in one `poll`
//! that also holds everything an [`Attendant`] listens to and the pipe that signals write to. So whoever waits, the
//! control socket is served, and a signal ends any wait at once.
//!
//! ```text
//!   upstream socket ─┐
//!   attendants' fds ─┼─ poll ── until the next deadline
//!   wake-up pipe ────┘
//! ```
//!
//! [`Wait`] is `Send + Sync` only because ureq asks it of its connectors; one thread waits, others may [`Wait::stop`]
//! or [`Wait::nudge`].

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{fmt, mem};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use signal_hook::SigId;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::clock::{Clock, Mono};

/// No stretch without a look at the attendants is longer than this while bytes flow.
const BREATH: Duration = Duration::from_millis(20);

/// One `poll` for an upstream lasts no longer. It is also how long [`Wait::fd_ready`] really waits under a clock that
/// stands still, so that no test hangs.
const LONGEST_POLL: Duration = Duration::from_secs(30);

/// One `poll` of the schedule lasts no longer: `poll` does not count the time that a device was suspended, our clock
/// does.
const LONGEST_SLEEP: Duration = Duration::from_secs(300);

/// What an fd is watched for. An error or a hang-up always counts as ready: the next read or write tells which.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interest {
    /// Bytes (or a connection, or the end) to read.
    Read,
    /// Room to write.
    Write,
    /// Either.
    Both,
}

impl Interest {
    fn flags(self) -> PollFlags {
        match self {
            Self::Read => PollFlags::IN,
            Self::Write => PollFlags::OUT,
            Self::Both => PollFlags::IN | PollFlags::OUT,
        }
    }
}

/// How [`Wait::fd_ready`] ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readiness {
    /// The fd can be read or written, or has an error to tell.
    Ready,
    /// The deadline came first.
    DeadlinePassed,
}

/// Why [`Wait::sleep_until`] ended. If there are several reasons, the first of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Woke {
    /// SIGTERM, SIGINT or [`Wait::stop`]: every further wait ends like this.
    Stop,
    /// SIGHUP: the config shall be read again. Reported once.
    Reload,
    /// An attendant has something for the agent loop ([`Wait::nudge`]). Reported once.
    Nudge,
    /// The time has come.
    Deadline,
}

/// A wait ended because the process shall end. Travels inside an [`io::Error`]; see [`is_stop`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stopped;

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("stopped")
    }
}

impl std::error::Error for Stopped {}

impl From<Stopped> for io::Error {
    fn from(stopped: Stopped) -> Self {
        Self::other(stopped) // not `Interrupted`: that would be tried again
    }
}

/// Whether a wait ended with [`Stopped`].
#[must_use]
pub fn is_stop(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<Stopped>())
}

/// The fds that an [`Attendant`] wants looked at in one turn.
#[derive(Debug, Default)]
pub struct Interests<'a> {
    fds: Vec<(BorrowedFd<'a>, usize, Interest)>,
}

impl<'a> Interests<'a> {
    /// Watches `fd`; `token` is the attendant's own name for it and comes back in [`Ready`].
    pub fn add(&mut self, fd: BorrowedFd<'a>, token: usize, interest: Interest) {
        self.fds.push((fd, token, interest));
    }
}

/// What can be done with one of an attendant's fds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ready {
    /// The name that the attendant gave it.
    pub token: usize,
    /// A read will not block (it may tell of an error or the end).
    pub readable: bool,
    /// A write will not block (it may tell of an error).
    pub writable: bool,
}

/// Whoever has to be served while anybody waits: the control socket.
///
/// It is taken out of its seat while it runs, so it never runs inside itself. It must not block, and what it learns
/// it hands on through a queue of its own and [`Wait::nudge`].
pub trait Attendant: Send {
    /// Says what to look at; asked before every poll, so it may differ each time.
    fn interests<'a>(&'a self, into: &mut Interests<'a>);

    /// Serves what is ready. Called when something is, when its deadline has come, and once after it was seated.
    /// Answers its next deadline, if it has one.
    fn attend(&mut self, ready: &[Ready], now: Mono, wait: &Wait) -> Option<Mono>;
}

/// An attendant and when it wants to be called even if nothing is ready.
struct Seat {
    name: &'static str,
    attendant: Box<dyn Attendant>,
    due: Option<Mono>,
}

/// The wait itself; a handle, cheap to clone.
#[derive(Clone)]
pub struct Wait(Arc<Inner>);

struct Inner {
    clock: Arc<dyn Clock>,
    wake: UnixStream,
    waker: UnixStream,
    stop: Arc<AtomicBool>,
    reload: Arc<AtomicBool>,
    nudge: AtomicBool,
    seats: Mutex<Vec<Seat>>,
    last_turn: Mutex<Mono>,
    signals: Mutex<Vec<SigId>>,
}

/// What one poll found.
struct Turn {
    /// The watched fd is ready.
    watched: bool,
    /// Nothing at all happened until the time was over.
    silent: bool,
}

impl Wait {
    /// A wait over `clock`, without signals and attendants yet.
    ///
    /// # Errors
    ///
    /// No more file descriptors.
    pub fn new(clock: Arc<dyn Clock>) -> io::Result<Self> {
        let (wake, waker) = UnixStream::pair()?;
        wake.set_nonblocking(true)?;
        waker.set_nonblocking(true)?;
        Ok(Self(Arc::new(Inner {
            clock,
            wake,
            waker,
            stop: Arc::default(),
            reload: Arc::default(),
            nudge: AtomicBool::new(false),
            seats: Mutex::default(),
            last_turn: Mutex::default(),
            signals: Mutex::default(),
        })))
    }

    /// From now on SIGTERM and SIGINT stop, and SIGHUP reloads.
    ///
    /// # Errors
    ///
    /// The kernel refuses a handler.
    pub fn install_signals(&self) -> io::Result<()> {
        let flags = [
            (SIGTERM, &self.0.stop),
            (SIGINT, &self.0.stop),
            (SIGHUP, &self.0.reload),
        ];
        for (signal, flag) in flags {
            // Handlers run in the order they were registered: the flag is up before the poll wakes.
            let raise = signal_hook::flag::register(signal, Arc::clone(flag))?;
            lock(&self.0.signals).push(raise);
            let wake = signal_hook::low_level::pipe::register(signal, self.0.waker.try_clone()?)?;
            lock(&self.0.signals).push(wake);
        }
        Ok(())
    }

    /// Seats an attendant; it is served in every wait from now on.
    pub fn attend(&self, attendant: Box<dyn Attendant>) {
        lock(&self.0.seats).push(Seat {
            name: "",
            attendant,
            due: Some(Mono::default()),
        });
    }

    /// Seats an attendant under a name, in place of the one that has it. Not to be called by an attendant.
    pub fn attend_as(&self, name: &'static str, attendant: Box<dyn Attendant>) {
        self.dismiss(name);
        lock(&self.0.seats).push(Seat {
            name,
            attendant,
            due: Some(Mono::default()),
        });
    }

    /// Ends the service of the attendant with this name. Not to be called by an attendant.
    pub fn dismiss(&self, name: &'static str) {
        lock(&self.0.seats).retain(|seat| seat.name != name);
    }

    /// The clock that deadlines are measured by.
    #[must_use]
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.0.clock
    }

    /// Monotonic time now.
    #[must_use]
    pub fn now(&self) -> Mono {
        self.0.clock.mono()
    }

    /// Ends every wait, now and from now on.
    pub fn stop(&self) {
        self.0.stop.store(true, Ordering::SeqCst);
        self.wake();
    }

    /// Whether the process shall end.
    #[must_use]
    pub fn stopping(&self) -> bool {
        self.0.stop.load(Ordering::SeqCst)
    }

    /// Wakes the agent loop from [`Wait::sleep_until`]; if it is not asleep, its next sleep ends at once.
    pub fn nudge(&self) {
        self.0.nudge.store(true, Ordering::SeqCst);
        self.wake();
    }

    /// Waits for an upstream's fd and serves the attendants meanwhile. Waits really, whatever the clock; under a clock
    /// that stands still for 30 s of real time the deadline counts as passed.
    ///
    /// # Errors
    ///
    /// [`Stopped`], or `poll` itself failed (out of memory).
    pub fn fd_ready(
        &self,
        fd: BorrowedFd<'_>,
        interest: Interest,
        deadline: Option<Mono>,
    ) -> io::Result<Readiness> {
        let mut standing = Duration::ZERO;
        loop {
            let now = self.go_on()?;
            let left = deadline.map_or(LONGEST_POLL, |deadline| deadline.since(now));
            let timeout = left.min(self.due_in(now)).min(LONGEST_POLL);
            let turn = self.turn(Some((fd, interest)), timeout)?;
            if turn.watched {
                self.go_on()?;
                return Ok(Readiness::Ready);
            }
            if left.is_zero() {
                return Ok(Readiness::DeadlinePassed);
            }
            if turn.silent && self.now() == now {
                standing = standing.saturating_add(timeout);
            }
            if standing >= LONGEST_POLL {
                return Ok(Readiness::DeadlinePassed);
            }
        }
    }

    /// Waits for an fd also when the process shall end: for what has to end with it. Serves the attendants meanwhile. Waits
    /// really, whatever the clock; under a clock that stands still `span` counts as passed after as long in real time.
    ///
    /// # Errors
    ///
    /// `poll` itself failed (out of memory).
    pub fn linger(&self, fd: BorrowedFd<'_>, span: Duration) -> io::Result<Readiness> {
        let until = self.now().after(span);
        let mut standing = Duration::ZERO;
        loop {
            let now = self.now();
            let left = until.since(now);
            let timeout = left.min(self.due_in(now));
            let turn = self.turn(Some((fd, Interest::Read)), timeout)?;
            if turn.watched {
                return Ok(Readiness::Ready);
            }
            if turn.silent && self.now() == now {
                standing = standing.saturating_add(timeout);
            }
            if left.is_zero() || standing >= span {
                return Ok(Readiness::DeadlinePassed);
            }
        }
    }

    /// Waits for the schedule and serves the attendants meanwhile. With a fake clock it serves what is ready and moves
    /// the clock on to the next deadline, without waiting.
    ///
    /// # Errors
    ///
    /// `poll` failed (out of memory).
    pub fn sleep_until(&self, until: Mono) -> io::Result<Woke> {
        self.turn(None, Duration::ZERO)?;
        loop {
            if self.stopping() {
                return Ok(Woke::Stop);
            }
            if self.0.reload.swap(false, Ordering::SeqCst) {
                return Ok(Woke::Reload);
            }
            if self.0.nudge.swap(false, Ordering::SeqCst) {
                return Ok(Woke::Nudge);
            }
            let now = self.now();
            if until <= now {
                return Ok(Woke::Deadline);
            }
            let next = until
                .min(now.after(self.due_in(now)))
                .min(now.after(LONGEST_SLEEP));
            let nap = self.0.clock.nap(next);
            self.turn(None, nap)?;
        }
    }

    /// Pauses in the middle of a step and serves the attendants meanwhile. Leaves reloads and nudges to the loop.
    ///
    /// # Errors
    ///
    /// [`Stopped`], or `poll` itself failed.
    pub fn pause_until(&self, until: Mono) -> io::Result<()> {
        loop {
            let now = self.go_on()?;
            if until <= now {
                return Ok(());
            }
            let next = until
                .min(now.after(self.due_in(now)))
                .min(now.after(LONGEST_SLEEP));
            let nap = self.0.clock.nap(next);
            self.turn(None, nap)?;
        }
    }

    /// Serves the attendants without waiting, if the last turn is 20 ms ago or longer; cheap when called often. For
    /// long work that would not wait: a download that never pauses, a long parse.
    ///
    /// # Errors
    ///
    /// [`Stopped`], or `poll` itself failed.
    pub fn breathe(&self) -> io::Result<()> {
        let now = self.go_on()?;
        if now.since(*lock(&self.0.last_turn)) >= BREATH {
            self.turn(None, Duration::ZERO)?;
            self.go_on()?;
        }
        Ok(())
    }

    /// The time, unless the process shall end.
    fn go_on(&self) -> io::Result<Mono> {
        if self.stopping() {
            Err(Stopped.into())
        } else {
            Ok(self.now())
        }
    }

    /// How long until an attendant wants to be called.
    fn due_in(&self, now: Mono) -> Duration {
        let seats = lock(&self.0.seats);
        seats
            .iter()
            .filter_map(|seat| seat.due)
            .map(|due| due.since(now))
            .min()
            .unwrap_or(Duration::MAX)
    }

    fn wake(&self) {
        // Full means that it wakes anyway; no other error is possible while we hold both ends.
        let _ = (&self.0.waker).write(&[0]);
    }

    /// One poll and one round of service.
    fn turn(
        &self,
        watched: Option<(BorrowedFd<'_>, Interest)>,
        timeout: Duration,
    ) -> io::Result<Turn> {
        // Out of their seats while they are looked at and run: an attendant that comes back here finds them empty.
        let mut seats = mem::take(&mut *lock(&self.0.seats));
        let looked = look(&seats, self.0.wake.as_fd(), watched, timeout);
        let now = self.now();
        *lock(&self.0.last_turn) = now;
        if let Ok(found) = &looked {
            if found.woken {
                self.drain();
            }
            for (seat, ready) in seats.iter_mut().zip(&found.ready) {
                if !ready.is_empty() || seat.due.is_some_and(|due| due <= now) {
                    seat.due = seat.attendant.attend(ready, now, self);
                }
            }
        }
        let mut back = lock(&self.0.seats);
        seats.append(&mut back);
        *back = seats;
        looked.map(|found| Turn {
            watched: found.watched,
            silent: found.silent,
        })
    }

    fn drain(&self) {
        let mut bytes = [0; 64];
        while matches!((&self.0.wake).read(&mut bytes), Ok(1..)) {}
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        for signal in lock(&self.signals).drain(..) {
            signal_hook::low_level::unregister(signal);
        }
    }
}

impl fmt::Debug for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wait")
            .field("stopping", &self.stopping())
            .finish_non_exhaustive()
    }
}

/// What a poll saw: for each seat what is ready there.
struct Found {
    woken: bool,
    watched: bool,
    silent: bool,
    ready: Vec<Vec<Ready>>,
}

/// The poll itself. An interrupted one found nothing, but was not silent.
fn look(
    seats: &[Seat],
    wake: BorrowedFd<'_>,
    watched: Option<(BorrowedFd<'_>, Interest)>,
    timeout: Duration,
) -> io::Result<Found> {
    let wishes: Vec<Interests<'_>> = seats
        .iter()
        .map(|seat| {
            let mut wishes = Interests::default();
            seat.attendant.interests(&mut wishes);
            wishes
        })
        .collect();
    let mut fds = vec![PollFd::from_borrowed_fd(wake, PollFlags::IN)];
    fds.extend(watched.map(|(fd, interest)| PollFd::from_borrowed_fd(fd, interest.flags())));
    let before_wishes = fds.len();
    let wished = wishes.iter().flat_map(|wishes| &wishes.fds);
    fds.extend(wished.map(|(fd, _, interest)| PollFd::from_borrowed_fd(*fd, interest.flags())));

    let timeout = Timespec::try_from(timeout).ok();
    let silent = match poll(&mut fds, timeout.as_ref()) {
        Ok(count) => count == 0,
        Err(Errno::INTR) => {
            fds.iter_mut().for_each(PollFd::clear_revents);
            false
        }
        Err(errno) => return Err(errno.into()),
    };
    let mut rest = fds.iter().skip(before_wishes);
    let ready = wishes.iter().map(|wishes| {
        wishes
            .fds
            .iter()
            .zip(rest.by_ref())
            .filter_map(|((_, token, _), fd)| ready(*token, fd.revents()))
            .collect()
    });
    Ok(Found {
        ready: ready.collect(),
        woken: fds.first().is_some_and(|fd| !fd.revents().is_empty()),
        watched: watched.is_some() && fds.get(1).is_some_and(|fd| !fd.revents().is_empty()),
        silent,
    })
}

fn ready(token: usize, seen: PollFlags) -> Option<Ready> {
    let broken = seen.intersects(PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL);
    let readable = broken || seen.intersects(PollFlags::IN);
    let writable = broken || seen.intersects(PollFlags::OUT);
    (readable || writable).then_some(Ready {
        token,
        readable,
        writable,
    })
}

/// A panic elsewhere leaves nothing half-done behind these locks.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
