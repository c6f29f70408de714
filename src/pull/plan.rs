//! Which pass is due, from where, and why. Pure.

use std::fmt;
use std::time::Duration;

use super::progress::Progress;
use super::window;
use crate::clock::Timestamp;
use crate::config::{Pull, Source};

/// What a pass asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Plan {
    /// Everything, to find also what is gone; from `since` on where the config says how far back the copy reaches.
    Full {
        /// Why.
        why: Full,
        /// Update times from here on.
        since: Option<Timestamp>,
    },
    /// What was updated from `since` on.
    Window {
        /// The start.
        since: Timestamp,
    },
    /// What follows this cursor.
    Cursor {
        /// The cursor as it came.
        value: String,
    },
}

/// Why a pass lists everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Full {
    /// That is how this source is pulled.
    Snapshot,
    /// Nothing tells where to go on: the first pass, or what told it is lost.
    First,
    /// Somebody asked for it.
    Asked,
    /// `reconcile.every` is over.
    Due,
    /// What decides the meaning of digests changed in the config.
    Config,
    /// The upstream no longer knows the cursor.
    DeadCursor,
    /// The upstream went back in time: its cursor, or its clock.
    WentBack,
    /// The copy is older than what upstream keeps tombstones for.
    Retention,
    /// What was known was lost or restored, and learnt again from the rows.
    Lost,
    /// A person had it forgotten what vouches for the records.
    Reset,
}

impl Full {
    /// Every reason, in the order of their numbers on disk.
    const ALL: [Self; 10] = [
        Self::Snapshot,
        Self::First,
        Self::Asked,
        Self::Due,
        Self::Config,
        Self::DeadCursor,
        Self::WentBack,
        Self::Retention,
        Self::Lost,
        Self::Reset,
    ];

    /// The number that stands for it on disk.
    #[must_use]
    pub fn number(self) -> u64 {
        Self::ALL
            .iter()
            .position(|why| *why == self)
            .map_or(0, |at| at as u64)
    }

    /// Back from the number.
    #[must_use]
    pub fn numbered(number: u64) -> Option<Self> {
        Self::ALL.get(usize::try_from(number).ok()?).copied()
    }

    /// Whether what it finds is what incremental passes had missed.
    #[must_use]
    pub fn shows_drift(self) -> bool {
        matches!(self, Self::Asked | Self::Due)
    }
}

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Snapshot => "a snapshot",
            Self::First => "nothing is known yet",
            Self::Asked => "asked for",
            Self::Due => "due",
            Self::Config => "the config changed",
            Self::DeadCursor => "the upstream no longer knows the cursor",
            Self::WentBack => "the upstream went back in time",
            Self::Retention => "the copy is older than what upstream keeps",
            Self::Lost => "the store or data.db was lost or restored",
            Self::Reset => "what was kept of it was reset",
        })
    }
}

/// Decides. `asked`: a full pass is wanted now, and why; `now`: the time upstream, as far as it is known.
#[must_use]
pub fn plan(source: &Source, progress: &Progress, asked: Option<Full>, now: Timestamp) -> Plan {
    let forced = forced(source, progress, now).or(asked);
    match &source.pull {
        Pull::Snapshot | Pull::None => Plan::Full {
            why: Full::Snapshot,
            since: None,
        },
        Pull::Window(window) => match (forced, progress.watermark) {
            (None, Some(watermark)) => Plan::Window {
                since: window::start(watermark, window.lateness),
            },
            (why, _) => Plan::Full {
                why: why.unwrap_or(Full::First),
                since: origin(source, progress, now),
            },
        },
        Pull::Cursor(_) => match (forced, &progress.cursor) {
            (None, Some(value)) => Plan::Cursor {
                value: value.clone(),
            },
            (why, _) => Plan::Full {
                why: why.unwrap_or(Full::First),
                since: None,
            },
        },
    }
}

/// Why the next pass has to be a full one, whatever the schedule says.
fn forced(source: &Source, progress: &Progress, now: Timestamp) -> Option<Full> {
    if progress.owed.is_some() {
        return progress.owed;
    }
    let keep = source.keep_upstream?;
    let age = now.duration_since(progress.watermark?);
    let is_older = Duration::try_from(age).is_ok_and(|age| age > keep);
    is_older.then_some(Full::Retention)
}

/// From when on the copy holds everything. It stays where the first pass set it, as long as the config's `first` does.
fn origin(source: &Source, progress: &Progress, now: Timestamp) -> Option<Timestamp> {
    let Pull::Window(window) = &source.pull else {
        return None;
    };
    let first = window.first?;
    match progress.origin {
        Some((known, origin)) if known == first => Some(origin),
        _ => Some(window::origin(now, first)),
    }
}

/// When the next scheduled full pass is due, by the upstream's clock. `at` and `offset` (of the device's zone, in seconds
/// east) move it to a time of day: the last such time that is not more than `every` after the last one, but never before
/// half of it is over.
#[must_use]
pub fn due_at(source: &Source, progress: &Progress, offset: i32) -> Option<Timestamp> {
    let every = source.reconcile_every?;
    let last = progress.full_at?;
    let due = last.saturating_add(every).unwrap_or(Timestamp::MAX);
    let Some(at) = source.reconcile_at else {
        return Some(due);
    };
    let local = due.as_second().saturating_add(offset.into());
    let into_day = local.rem_euclid(86_400);
    let wanted = i64::from(at.0) * 60;
    let back = (into_day - wanted).rem_euclid(86_400);
    let moved = Timestamp::from_second(due.as_second().saturating_sub(back)).unwrap_or(due);
    let earliest = last.saturating_add(every / 2).unwrap_or(Timestamp::MAX);
    if moved >= earliest {
        Some(moved)
    } else {
        Some(due)
    }
}
