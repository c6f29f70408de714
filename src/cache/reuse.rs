//! Whether a kept answer may be used without asking (RFC 9111 4). Pure.

use std::time::Duration;

use super::directives::{Answered, Wanted};
use super::freshness::{Freshness, Times, freshness};
use crate::clock::Timestamp;
use crate::upstream::headers::Headers;

/// What a kept answer is good for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reuse {
    /// It may be used as it is.
    Yes {
        /// Its age, for the field `Age`.
        age: Duration,
        /// It is stale, and the request has said that this will do.
        stale: bool,
    },
    /// It must be asked for, conditionally.
    Ask(Why),
}

/// Why it must be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// It is stale.
    Stale,
    /// The answer says `no-cache`.
    NoCache,
    /// The request says `no-cache`, or wants something younger or longer fresh.
    Wanted,
    /// Nobody knows how old it is: our clock went back.
    ClockWentBack,
}

/// Decides. `stale-while-revalidate` makes no difference: a command that has ended has no background in which to ask.
#[must_use]
pub fn reuse(headers: &Headers, times: Times, wanted: &Wanted, now: Timestamp) -> Reuse {
    let answered = Answered::of(headers);
    if wanted.no_cache {
        return Reuse::Ask(Why::Wanted);
    }
    if answered.no_cache {
        return Reuse::Ask(Why::NoCache);
    }
    let too_old = |age| wanted.max_age.is_some_and(|most| age >= most);
    match freshness(headers, times, now) {
        Freshness::Unknown => Reuse::Ask(Why::ClockWentBack),
        Freshness::Fresh { age, left } => {
            if too_old(age) || wanted.min_fresh.is_some_and(|least| left < least) {
                Reuse::Ask(Why::Wanted)
            } else {
                Reuse::Yes { age, stale: false }
            }
        }
        Freshness::Stale { age, by } => {
            let will_do = wanted.max_stale.is_some_and(|most| by <= most)
                && !answered.must_revalidate
                && wanted.min_fresh.is_none();
            if will_do && !too_old(age) {
                Reuse::Yes { age, stale: true }
            } else {
                Reuse::Ask(Why::Stale)
            }
        }
    }
}

#[cfg(test)]
mod tests;
