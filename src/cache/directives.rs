//! `Cache-Control` as it concerns a private cache (RFC 9111 5.2, RFC 5861). Pure.
//!
//! All lines count, names in any letter case, arguments as tokens or quoted strings. A number that cannot be read is the
//! one that asks for most care: 0 where it allows something.

use std::time::Duration;

use crate::upstream::conditional::{CacheControl, delta_seconds, directives};
use crate::upstream::headers::Headers;

/// What an answer says (RFC 9111 5.2.2). `s-maxage`, `public`, `private` and `proxy-revalidate` concern shared caches alone.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Answered {
    /// Keep nothing, also beside a `must-understand` that would lift it.
    pub no_store: bool,
    /// Ask each time; also in its form with field names, which is read as the one without (RFC 9111 5.2.2.4 allows it).
    pub no_cache: bool,
    /// Keep it only if the status is understood.
    pub must_understand: bool,
    /// Never use it stale, not even when nobody answers.
    pub must_revalidate: bool,
    /// How long it counts as fresh. Of several the smallest; one that cannot be read is 0.
    pub max_age: Option<Duration>,
    /// How long after that it may stand in for an error (RFC 5861 4).
    pub stale_if_error: Option<Duration>,
}

/// What a request says (RFC 9111 5.2.1).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Keep nothing of the answer.
    pub no_store: bool,
    /// Ask in any case; so does `Pragma: no-cache` where there is no `Cache-Control`.
    pub no_cache: bool,
    /// Do not ask.
    pub only_if_cached: bool,
    /// Nothing older than this.
    pub max_age: Option<Duration>,
    /// Nothing that is not fresh for this long.
    pub min_fresh: Option<Duration>,
    /// Something stale will do, for this long.
    pub max_stale: Option<Duration>,
    /// How long after it became stale something may stand in for an error (RFC 5861 4).
    pub stale_if_error: Option<Duration>,
}

impl Answered {
    /// Reads an answer's fields.
    #[must_use]
    pub fn of(headers: &Headers) -> Self {
        let basic = CacheControl::of(headers);
        let mut read = Self {
            no_store: basic.no_store,
            no_cache: basic.no_cache,
            max_age: basic.max_age.map(Duration::from_secs),
            ..Self::default()
        };
        for (name, argument) in directives(headers) {
            match name.as_str() {
                "no-cache" => read.no_cache = true,
                "must-understand" => read.must_understand = true,
                "must-revalidate" => read.must_revalidate = true,
                "stale-if-error" => least(&mut read.stale_if_error, argument.as_deref()),
                _ => {}
            }
        }
        read
    }
}

impl Wanted {
    /// Reads a request's fields.
    #[must_use]
    pub fn of(headers: &Headers) -> Self {
        let mut read = Self::default();
        if headers.bytes("cache-control").is_none() {
            let pragma = headers.list("pragma");
            read.no_cache = pragma
                .iter()
                .any(|one| one.eq_ignore_ascii_case("no-cache"));
        }
        for (name, argument) in directives(headers) {
            let argument = argument.as_deref();
            match name.as_str() {
                "no-store" => read.no_store = true,
                "no-cache" => read.no_cache = true,
                "only-if-cached" => read.only_if_cached = true,
                "max-age" => least(&mut read.max_age, argument),
                "stale-if-error" => least(&mut read.stale_if_error, argument),
                "min-fresh" => {
                    // The largest, and of what cannot be read the end of time: it is a demand.
                    let asked = argument.and_then(seconds).unwrap_or(Duration::MAX);
                    read.min_fresh = read.min_fresh.max(Some(asked));
                }
                // Without a number it means: however stale.
                "max-stale" if argument.is_none() => {
                    read.max_stale = read.max_stale.or(Some(Duration::MAX));
                }
                "max-stale" => least(&mut read.max_stale, argument),
                _ => {}
            }
        }
        read
    }
}

/// Takes a number that allows something: the smallest counts, and one that cannot be read is 0.
fn least(into: &mut Option<Duration>, argument: Option<&str>) {
    let read = argument.and_then(seconds).unwrap_or_default();
    *into = Some(into.map_or(read, |known| known.min(read)));
}

fn seconds(text: &str) -> Option<Duration> {
    delta_seconds(text).map(Duration::from_secs)
}

#[cfg(test)]
mod tests;
