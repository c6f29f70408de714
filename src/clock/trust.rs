//! Whether our own clock can be believed, and since when it cannot be earlier. Pure.

use std::fmt;
use std::time::Duration;

use super::Timestamp;

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
