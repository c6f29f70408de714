//! Time, asked for in this one place.
//!
//! Everything else takes an instant as a value, so that a test can say what time it is. Three kinds of time are kept
//! apart by type: wall time ([`Timestamp`]) is for people and for other machines, monotonic time ([`Mono`]) for every
//! interval and deadline of ours, and upstream time (a [`Timestamp`] that an answer's `Date` gave) for what is asked
//! of an upstream.

mod trust;
mod witness;

use std::sync::Mutex;
use std::time::Duration;

pub use jiff::Timestamp;

pub use self::trust::{
    AGREE, Evidence, Reading, Sighting, Sure, Trust, Unsure, build_floor, judge, raised,
};
pub use self::witness::Witnesses;

/// An instant on the monotonic clock, counted from an arbitrary origin. Suspended time counts (`CLOCK_BOOTTIME`), so a
/// device that slept does not think that its data is fresh.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Mono(pub Duration);

impl Mono {
    /// What the boot counts as: ten years, so that instants before it can be reckoned too. A device that was off for days
    /// knows how old its data is.
    pub const BOOT: Self = Self(Duration::from_secs(3_660 * 24 * 3_600));

    /// This instant moved into the future; saturates.
    #[must_use]
    pub fn after(self, span: Duration) -> Self {
        Self(self.0.saturating_add(span))
    }

    /// The time from `earlier` to here, zero if `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

/// Where time comes from. The seam that tests need: [`SystemClock`] in the field, [`FakeClock`] in tests.
pub trait Clock: Send + Sync + std::fmt::Debug {
    /// Wall time now.
    fn wall(&self) -> Timestamp;
    /// Monotonic time now.
    fn mono(&self) -> Mono;
    /// Seconds that the device's zone is east of Greenwich at `time`. Zero where no zone is known.
    fn offset(&self, time: Timestamp) -> i32 {
        let _ = time;
        0
    }
    /// How long the wait shall really sleep to reach `until` when nobody but the schedule waits. A fake clock answers
    /// zero and moves itself to `until`.
    fn nap(&self, until: Mono) -> Duration {
        until.since(self.mono())
    }
}

/// The machine's clocks.
#[derive(Debug, Default, Clone, Copy)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the place that asks")]
    fn wall(&self) -> Timestamp {
        Timestamp::now()
    }

    fn offset(&self, time: Timestamp) -> i32 {
        jiff::tz::TimeZone::system().to_offset(time).seconds()
    }

    fn mono(&self) -> Mono {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
        let nanos = u32::try_from(now.tv_nsec).unwrap_or(0);
        Mono(Mono::BOOT.0.saturating_add(Duration::new(seconds, nanos)))
    }
}

/// A clock that stands still until a test moves it, or until the schedule sleeps.
#[derive(Debug)]
pub struct FakeClock {
    now: Mutex<(Timestamp, Mono)>,
}

impl FakeClock {
    /// A clock that shows `wall`.
    #[must_use]
    pub fn at(wall: Timestamp) -> Self {
        Self {
            now: Mutex::new((wall, Mono::BOOT.after(Duration::from_secs(1000)))),
        }
    }

    /// Moves both clocks forward.
    pub fn advance(&self, span: Duration) {
        let mut now = self.lock();
        now.0 = now.0.saturating_add(span).unwrap_or(Timestamp::MAX);
        now.1 = now.1.after(span);
    }

    /// The device boots: the monotonic clock starts anew, the wall clock goes on.
    pub fn reboot(&self) {
        self.lock().1 = Mono::BOOT;
    }

    /// Sets the wall clock alone, as NTP does.
    pub fn set_wall(&self, wall: Timestamp) {
        self.lock().0 = wall;
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, (Timestamp, Mono)> {
        self.now
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Clock for FakeClock {
    fn wall(&self) -> Timestamp {
        self.lock().0
    }

    fn mono(&self) -> Mono {
        self.lock().1
    }

    fn nap(&self, until: Mono) -> Duration {
        let ahead = until.since(self.mono());
        self.advance(ahead);
        Duration::ZERO
    }
}
