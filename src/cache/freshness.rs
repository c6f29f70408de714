//! How old an answer is, and how long it counts as fresh (RFC 9111 4.2). Pure.
//!
//! There is no heuristic: an answer that says nothing of its lifetime is stale at once.

use std::time::Duration;

use super::directives::Answered;
use crate::clock::Timestamp;
use crate::upstream::conditional::{age_of, expires_in, http_date};
use crate::upstream::headers::Headers;

/// When an answer was asked for and when its head had come, by our own clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Times {
    /// `request_time`.
    pub asked: Timestamp,
    /// `response_time`.
    pub answered: Timestamp,
}

/// Whether an answer is fresh.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Freshness {
    /// It is.
    Fresh {
        /// Its age now.
        age: Duration,
        /// For how much longer.
        left: Duration,
    },
    /// It is not.
    Stale {
        /// Its age now.
        age: Duration,
        /// Since when.
        by: Duration,
    },
    /// Our clock shows an earlier time than when the answer came: it was wrong then or is wrong now, and nobody knows how
    /// old the answer is.
    Unknown,
}

/// How old an answer is now (RFC 9111 4.2.3); `None` if our clock went back behind its arrival.
#[must_use]
pub fn age(headers: &Headers, times: Times, now: Timestamp) -> Option<Duration> {
    let resident = span(times.answered, now)?;
    let date = headers.text("date").and_then(http_date);
    // An upstream's clock that is ahead of ours makes its answers no younger than new.
    let apparent = date.and_then(|date| span(date, times.answered));
    // A clock that was set while the answer was on its way tells nothing of the delay.
    let delay = span(times.asked, times.answered).unwrap_or_default();
    let corrected = age_of(headers).saturating_add(delay);
    let initial = apparent.unwrap_or_default().max(corrected);
    Some(initial.saturating_add(resident))
}

/// How long an answer counts as fresh (RFC 9111 4.2.1): `max-age`, else `Expires` less `Date`, else not at all.
#[must_use]
pub fn lifetime(headers: &Headers, times: Times) -> Duration {
    let seconds = || Duration::from_secs(expires_in(headers, times.answered));
    Answered::of(headers).max_age.unwrap_or_else(seconds)
}

/// Whether an answer is fresh now.
#[must_use]
pub fn freshness(headers: &Headers, times: Times, now: Timestamp) -> Freshness {
    let lifetime = lifetime(headers, times);
    match age(headers, times, now) {
        None => Freshness::Unknown,
        Some(age) if lifetime > age => Freshness::Fresh {
            age,
            left: lifetime.saturating_sub(age),
        },
        Some(age) => Freshness::Stale {
            age,
            by: age.saturating_sub(lifetime),
        },
    }
}

/// From one instant to a later one; `None` if it is earlier.
fn span(from: Timestamp, to: Timestamp) -> Option<Duration> {
    Duration::try_from(to.duration_since(from)).ok()
}

#[cfg(test)]
mod tests;
