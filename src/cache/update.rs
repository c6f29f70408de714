//! What a 304 changes in a kept answer (RFC 9111 3.2, 4.3.4). Pure.

use super::entry::Kept;
use super::freshness::{Times, lifetime};
use super::storable::{OF_CONNECTION, kept};
use crate::upstream::headers::Headers;

/// Fields that say how the kept bytes are to be read. They stay, since the bytes do: what is kept was counted and decoded
/// already, and a 304 has no bytes of its own.
const OF_THE_BODY: [&str; 3] = ["content-length", "content-encoding", "content-range"];

/// The kept fields, renewed: each field that the 304 has takes the place of all lines of that name; the others stay.
#[must_use]
pub fn updated(kept: &Headers, not_modified: &Headers) -> Headers {
    let blank = |name: &str| {
        let is_validator = matches!(name, "etag" | "last-modified");
        is_validator && not_modified.lines(name).all(<[u8]>::is_empty)
    };
    let stays = |name: &str| {
        // A blank validator takes none away.
        OF_THE_BODY.contains(&name) || OF_CONNECTION.contains(&name) || blank(name)
    };
    let newer: Vec<(&str, &[u8])> = not_modified
        .iter()
        .filter(|(name, _)| !stays(name))
        .collect();
    let mut headers = Headers::new();
    // How old it is, the confirmation says, also by saying nothing.
    let is_replaced = |name: &str| {
        matches!(name, "age" | "date") || newer.iter().any(|(other, _)| *other == name)
    };
    for (name, value) in kept.iter().filter(|(name, _)| !is_replaced(name)) {
        headers.push(name, value);
    }
    for (name, value) in newer {
        headers.push(name, value);
    }
    headers
}

/// Whether a renewed answer is worth writing. When it was stale at once before and still is, and nothing but its date has
/// changed, the next request will be the same one: the card is spared.
#[must_use]
pub fn is_worth_writing(before: &Kept, headers: &Headers, times: Times) -> bool {
    let says = |headers: &Headers| {
        let mut lines: Vec<(String, Vec<u8>)> = kept(headers)
            .iter()
            .filter(|(name, _)| !matches!(*name, "date" | "age" | "expires"))
            .map(|(name, value)| (name.to_owned(), value.to_vec()))
            .collect();
        lines.sort();
        lines
    };
    let lives = |headers: &Headers, times| !lifetime(headers, times).is_zero();
    let answered = super::directives::Answered::of(headers);
    lives(headers, times)
        || lives(&before.headers, before.times)
        || answered.stale_if_error.is_some()
        || says(headers) != says(&before.headers)
}

#[cfg(test)]
mod tests;
