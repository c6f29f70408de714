//! Whether an answer to a GET may be kept (RFC 9111 3). Pure.
//!
//! A private cache may keep what was asked for with `Authorization`; whose view it is, is part of the key.

use super::directives::{Answered, Wanted};
use crate::upstream::conditional::{Validators, vary_is_star};
use crate::upstream::headers::Headers;

/// What becomes of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Storable {
    /// It may be kept.
    Yes,
    /// It may not, or to no avail.
    No(Why),
}

/// Why an answer is not kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// The answer says `no-store`.
    NoStore,
    /// The request does.
    Unwanted,
    /// A part, or nothing by itself: 206, 304.
    NotWhole,
    /// No final status that HTTP defines, and the answer wants to be kept by those alone who understand it.
    NotUnderstood,
    /// `Vary: *`: no request ever selects it.
    VaryStar,
    /// It is stale at once and has no validator: it could never be used again.
    Useless,
}

/// Fields that are credentials an answer hands out: never in a file.
pub const CREDENTIALS: [&str; 4] = [
    "set-cookie",
    "set-cookie2",
    "authentication-info",
    "proxy-authentication-info",
];

/// Fields of the connection rather than of the answer (RFC 9111 3.1, RFC 9110 7.6.1).
pub const OF_CONNECTION: [&str; 9] = [
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authentication-info",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "transfer-encoding",
    "upgrade",
];

/// Decides on a head alone.
#[must_use]
pub fn storable(status: u16, headers: &Headers, wanted: &Wanted) -> Storable {
    let answered = Answered::of(headers);
    if answered.no_store {
        return Storable::No(Why::NoStore);
    }
    if wanted.no_store {
        return Storable::No(Why::Unwanted);
    }
    if matches!(status, 206 | 304) {
        return Storable::No(Why::NotWhole);
    }
    if !(200..=599).contains(&status) || (answered.must_understand && !is_understood(status)) {
        return Storable::No(Why::NotUnderstood);
    }
    if vary_is_star(headers) {
        return Storable::No(Why::VaryStar);
    }
    let has = |name| headers.bytes(name).is_some_and(|value| !value.is_empty());
    let lives = answered.max_age.is_some_and(|age| !age.is_zero())
        || (answered.max_age.is_none() && has("expires"));
    let can_be_asked = is_askable(status) && !Validators::reliable(headers).is_empty();
    if lives || can_be_asked || answered.stale_if_error.is_some() {
        Storable::Yes
    } else {
        Storable::No(Why::Useless)
    }
}

/// Whether an answer of this status is asked for conditionally once it is stale. An error's validator is not asked with:
/// what its resource has turned into has another.
#[must_use]
pub fn is_askable(status: u16) -> bool {
    matches!(status, 200 | 203)
}

/// Statuses whose meaning for a cache this one knows (RFC 9110 15).
fn is_understood(status: u16) -> bool {
    matches!(
        status,
        200 | 203 | 204 | 300..=303 | 307 | 308 | 404 | 405 | 410 | 414 | 501
    )
}

/// The fields of an answer that are kept: without those of its connection and without credentials that it hands out.
#[must_use]
pub fn kept(headers: &Headers) -> Headers {
    let named: Vec<String> = headers
        .list("connection")
        .iter()
        .map(|name| name.to_ascii_lowercase())
        .collect();
    let goes = |name: &str| {
        OF_CONNECTION.contains(&name)
            || CREDENTIALS.contains(&name)
            || named.iter().any(|other| other == name)
    };
    let mut kept = Headers::new();
    for (name, value) in headers.iter().filter(|(name, _)| !goes(name)) {
        kept.push(name, value);
    }
    kept
}

#[cfg(test)]
mod tests;
