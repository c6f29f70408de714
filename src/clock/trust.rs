//! Whether our own clock can be believed, and since when it cannot be earlier. Pure.

use std::fmt;
use std::time::Duration;

use super::{Mono, Timestamp};

/// What our own clock says, and what that is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reading {
    /// The wall clock.
    pub wall: Timestamp,
    /// Whether it can be believed.
    pub trust: Trust,
    /// The latest instant that has passed for sure.
    pub floor: Timestamp,
}

impl Reading {
    /// The wall clock, but never earlier than the floor.
    #[must_use]
    pub fn not_before_floor(&self) -> Timestamp {
        self.wall.max(self.floor)
    }
}

/// Whether the wall clock can be believed, with the reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trust {
    /// It can.
    Sure(Sure),
    /// It cannot: what needs to know the time waits.
    Unsure(Unsure),
}

impl Trust {
    /// Whether it can be believed.
    #[must_use]
    pub fn is_sure(self) -> bool {
        matches!(self, Self::Sure(_))
    }

    /// One word for `status`.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Sure(_) => "sure",
            Self::Unsure(_) => "unsure",
        }
    }
}

impl fmt::Display for Trust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sure(why) => why.fmt(f),
            Self::Unsure(why) => why.fmt(f),
        }
    }
}

/// Why it can be believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sure {
    /// A time daemon has set it since boot.
    Ntp,
    /// Two upstreams tell the same time over TLS.
    TwoUpstreams,
}

impl fmt::Display for Sure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ntp => "a time daemon has set it since boot",
            Self::TwoUpstreams => "two upstreams tell the same time over TLS",
        })
    }
}

/// Why it cannot be believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unsure {
    /// Nobody vouches for it.
    Unvouched,
    /// It shows a time that has passed for sure.
    BeforeFloor,
    /// What upstreams tell over TLS differs from it by this much.
    Contradicted(Duration),
}

impl fmt::Display for Unsure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unvouched => f.write_str(
                "no time daemon has set it since boot, and no two upstreams tell the same time over TLS",
            ),
            Self::BeforeFloor => f.write_str("it shows a time that has passed for sure"),
            Self::Contradicted(by) => write!(
                f,
                "upstreams tell another time over TLS, by {} s: set it, or let a time daemon do it",
                by.as_secs()
            ),
        }
    }
}

/// No clock can show an earlier time than this and be right: when this version was released. A constant rather than the
/// time of the build, so that the same sources give the same binary; whoever packages it later and sets
/// `SOURCE_DATE_EPOCH`, as reproducible builds do, raises it. To be raised with each release.
const RELEASED: &str = "2026-11-30T00:00:00Z";

/// From here on a `SOURCE_DATE_EPOCH` is taken for a mistake: 2100-01-01. A floor in the future would keep every
/// certificate from being valid.
const ABSURD: i64 = 4_102_444_800;

/// The first floor: when this version was released or packaged, whichever is later.
#[must_use]
pub fn build_floor() -> Timestamp {
    first_floor(option_env!("SOURCE_DATE_EPOCH"))
}

fn first_floor(packaged: Option<&str>) -> Timestamp {
    let released = RELEASED.parse().unwrap_or(Timestamp::UNIX_EPOCH);
    let packaged = packaged
        .and_then(|text| text.trim().parse().ok())
        .filter(|seconds| (0..ABSURD).contains(seconds))
        .and_then(|seconds| Timestamp::from_second(seconds).ok());
    packaged.map_or(released, |packaged| released.max(packaged))
}

/// Two clocks agree when they are no further apart than this.
pub const AGREE: Duration = Duration::from_secs(60);

/// From here on two upstreams outweigh a time daemon.
const FAR: Duration = Duration::from_secs(3600);

/// How long what an upstream told counts. In a day our monotonic clock strays by seconds.
const LASTS: Duration = Duration::from_secs(24 * 3600);

/// What time it was by a host that showed a valid certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sighting {
    /// Who told it.
    pub host: String,
    /// What it told.
    pub told: Timestamp,
    /// When.
    pub at: Mono,
}

/// What there is to judge the wall clock by.
#[derive(Debug, Clone, Copy)]
pub struct Evidence<'a> {
    /// The wall clock.
    pub wall: Timestamp,
    /// The monotonic clock.
    pub now: Mono,
    /// The floor.
    pub floor: Timestamp,
    /// When a time daemon noted last, by the wall clock, that it had set it. Before it is believed it has to fit: see
    /// [`judge`].
    pub set: Option<Timestamp>,
    /// What upstreams told, at most one each.
    pub sightings: &'a [Sighting],
}

impl Evidence<'_> {
    /// How far each host's clock is from ours now.
    fn apart(&self) -> impl Iterator<Item = (Timestamp, Duration)> {
        self.sightings.iter().filter_map(|seen| {
            let since = self.now.since(seen.at);
            let theirs = seen.told.saturating_add(since).unwrap_or(Timestamp::MAX);
            (since <= LASTS).then(|| (theirs, theirs.duration_since(self.wall).unsigned_abs()))
        })
    }

    /// Whether the wall clock still runs as the time daemon set it: its note is from this boot. A clock that was set to
    /// 2041 afterwards shows a note older than the machine has been up; one that was set back, a note from the future.
    fn is_set(&self) -> bool {
        let up = self.now.since(Mono::BOOT).saturating_add(AGREE);
        self.set.is_some_and(|set| {
            let age = self.wall.duration_since(set);
            Duration::try_from(age).map_or(age.unsigned_abs() <= AGREE, |age| age <= up)
        })
    }

    /// Whether two of the hosts that `which` picks tell the same time.
    fn two_agree(&self, which: impl Fn(Duration) -> bool) -> bool {
        let mut told: Vec<_> = self
            .apart()
            .filter(|(_, apart)| which(*apart))
            .map(|(theirs, _)| theirs)
            .collect();
        told.sort();
        let close = |pair: &[Timestamp]| matches!(pair, [a, b] if b.duration_since(*a).unsigned_abs() <= AGREE);
        told.windows(2).any(close)
    }

    fn agrees(&self) -> bool {
        self.apart().any(|(_, apart)| apart <= AGREE)
    }
}

/// Whether the wall clock can be believed.
///
/// - Never when it is behind the floor.
/// - When a time daemon has set it in this boot, and it was not stepped since. One upstream that tells another time does not
///   outweigh that: its clock is the likelier one to be wrong, and one wrong upstream must not close our hooks. Two that
///   agree with each other do, when they are more than an hour off and nobody takes our side. A boot in 2041 needs no such
///   vote: no note of a time daemon fits it.
/// - Without a time daemon: when two upstreams agree over TLS within a minute with each other and with the clock.
#[must_use]
pub fn judge(evidence: &Evidence<'_>) -> Trust {
    if evidence.wall < evidence.floor {
        return Trust::Unsure(Unsure::BeforeFloor);
    }
    let nearest = evidence.apart().map(|(_, apart)| apart).min();
    if evidence.is_set() {
        let outvoted = !evidence.agrees() && evidence.two_agree(|apart| apart > FAR);
        return match nearest {
            Some(apart) if outvoted => Trust::Unsure(Unsure::Contradicted(apart)),
            _ => Trust::Sure(Sure::Ntp),
        };
    }
    if evidence.two_agree(|apart| apart <= AGREE) {
        return Trust::Sure(Sure::TwoUpstreams);
    }
    match nearest {
        Some(apart) if apart > AGREE => Trust::Unsure(Unsure::Contradicted(apart)),
        _ => Trust::Unsure(Unsure::Unvouched),
    }
}

/// Where the floor is to be raised to, if at all: a minute before now, when the clock can be believed *and* an upstream tells
/// the same time over TLS.
///
/// A floor never sinks again, and one in the future would make every certificate expired for good. So a time daemon's word
/// alone is not enough: it may have been lied to. A certificate that is valid by that time bounds the lie to its own
/// lifetime. Who speaks TLS to nobody needs no floor.
#[must_use]
pub fn raised(evidence: &Evidence<'_>) -> Option<Timestamp> {
    let safe = evidence.wall.saturating_sub(AGREE).ok()?;
    let raised = judge(evidence).is_sure() && evidence.agrees() && safe > evidence.floor;
    raised.then_some(safe)
}

#[cfg(test)]
mod tests;
