//! Whether a kept answer may stand in for one that did not come (RFC 9111 4.2.4, RFC 5861 4). Pure.

use std::time::Duration;

use super::directives::{Answered, Wanted};
use super::freshness::{Freshness, Times, freshness};
use crate::clock::Timestamp;
use crate::upstream::headers::Headers;

/// What went wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// There is no answer.
    NoAnswer,
    /// There is one of this status.
    Status(u16),
}

/// What to give.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StandIn {
    /// The kept answer, of this age.
    Kept {
        /// Its age.
        age: Duration,
    },
    /// The trouble itself.
    Trouble(Why),
}

/// Why the kept answer does not stand in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// It is an answer, not an error as RFC 5861 means it (500, 502, 503, 504).
    NoError,
    /// Neither the kept answer nor the request says `stale-if-error`.
    NotAllowed,
    /// The kept answer wants to be asked for each time, or once it is stale.
    MustAsk,
    /// It has been stale for too long.
    TooOld,
    /// Nobody knows how old it is: our clock went back.
    ClockWentBack,
}

/// Decides for a kept answer that could not be revalidated. What answer and request allow adds up to the larger of both;
/// `must-revalidate` and `no-cache` outweigh them. Without `stale-if-error` the trouble is told: a script that may go on with
/// old data says so by its own `Cache-Control: stale-if-error=SECONDS`.
#[must_use]
pub fn stand_in(
    headers: &Headers,
    times: Times,
    wanted: &Wanted,
    trouble: Trouble,
    now: Timestamp,
) -> StandIn {
    let answered = Answered::of(headers);
    if !matches!(
        trouble,
        Trouble::NoAnswer | Trouble::Status(500 | 502 | 503 | 504)
    ) {
        return StandIn::Trouble(Why::NoError);
    }
    if answered.must_revalidate || answered.no_cache || wanted.no_cache {
        return StandIn::Trouble(Why::MustAsk);
    }
    let Some(allowed) = answered.stale_if_error.max(wanted.stale_if_error) else {
        return StandIn::Trouble(Why::NotAllowed);
    };
    match freshness(headers, times, now) {
        Freshness::Unknown => StandIn::Trouble(Why::ClockWentBack),
        Freshness::Fresh { age, .. } => StandIn::Kept { age },
        Freshness::Stale { age, by } if by <= allowed => StandIn::Kept { age },
        Freshness::Stale { .. } => StandIn::Trouble(Why::TooOld),
    }
}

#[cfg(test)]
mod tests;
