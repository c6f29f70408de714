//! Asking for the rest of a representation that is held in part (RFC 9110 14), and whether an answer is that rest. Pure.

use url::Url;

use super::conditional::{Validators, http_date};
use super::headers::Headers;
use super::outcome::coding_named;

/// The rest of a representation: `Range: bytes=N-` with `If-Range`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rest<'a> {
    /// Bytes that are held: what is asked for starts here.
    pub from: u64,
    /// What vouches for them, sent as `If-Range` as it came. A strong one, see [`strong`].
    pub validator: &'a [u8],
    /// Which URL gave them, behind redirects: a range is asked for there and nowhere else.
    pub url: &'a Url,
    /// The length of the whole, where the first answer stated it.
    pub total: Option<u64>,
    /// The first answer had a content coding.
    pub coded: bool,
}

/// How much older a `Last-Modified` must be than the `Date` beside it to be a strong validator (RFC 9110 8.8.2.2): only then
/// could nothing have changed twice in its second, even if two clocks are at work.
const SETTLED: i64 = 60;

/// The one validator of an answer that `If-Range` may carry (RFC 9110 13.1.5), as it came: a strong entity tag; or, where
/// there is no entity tag at all, a `Last-Modified` that is old enough to be strong. A tag without its quotes is none: an
/// upstream could not tell it from a date.
#[must_use]
pub fn strong(headers: &Headers) -> Option<Vec<u8>> {
    let Validators {
        etag,
        last_modified,
    } = Validators::of(headers);
    if headers.bytes("etag").is_some_and(|tag| !tag.is_empty()) {
        return etag.filter(|tag| is_strong(tag));
    }
    let instant = |text: &[u8]| http_date(std::str::from_utf8(text).ok()?).map(|at| at.as_second());
    let modified = instant(last_modified.as_deref()?)?;
    let date = instant(headers.bytes("date")?)?;
    last_modified.filter(|_| modified <= date.saturating_sub(SETTLED))
}

/// An entity tag as RFC 9110 8.8.3 spells it, and not a weak one.
fn is_strong(tag: &[u8]) -> bool {
    tag.len() >= 2
        && tag.first() == Some(&b'"')
        && tag.last() == Some(&b'"')
        && !tag[1..tag.len() - 1].contains(&b'"')
}

/// What `Content-Range` says (RFC 9110 14.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContentRange {
    /// These bytes, first and last one, of so many if that is known.
    Slice(u64, u64, Option<u64>),
    /// None of the bytes that were asked for: there are so many.
    Unsatisfied(u64),
}

/// Reads the field. `None`: it is not there, is there several times, or says nothing that could be true.
#[must_use]
pub fn content_range(headers: &Headers) -> Option<ContentRange> {
    let mut lines = headers.lines("content-range");
    let text = std::str::from_utf8(lines.next()?).ok()?;
    if lines.next().is_some() {
        return None;
    }
    let (unit, range) = text.split_once(' ')?;
    if !unit.eq_ignore_ascii_case("bytes") {
        return None;
    }
    let (span, total) = range.trim().split_once('/')?;
    let total = match total {
        "*" => None,
        digits => Some(number(digits)?),
    };
    if span == "*" {
        return total.map(ContentRange::Unsatisfied);
    }
    let (first, last) = span.split_once('-')?;
    let (first, last) = (number(first)?, number(last)?);
    let fits = first <= last && total.is_none_or(|total| last < total);
    fits.then_some(ContentRange::Slice(first, last, total))
}

fn number(digits: &str) -> Option<u64> {
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| digits.parse().ok())?
}

/// A part that fits behind what is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slice {
    /// Bytes that follow.
    pub length: u64,
    /// The length of the whole.
    pub total: u64,
}

/// Whether a 206 is the rest that was asked for, of the very version that is held.
///
/// # Errors
/// Why it is not: then everything is to be asked for.
pub fn slice(headers: &Headers, rest: &Rest<'_>) -> Result<Slice, &'static str> {
    let media_type = headers.text("content-type").unwrap_or_default();
    if media_type
        .get(..10)
        .is_some_and(|start| start.eq_ignore_ascii_case("multipart/"))
    {
        return Err("206 with several parts, and one was asked for");
    }
    let Some(ContentRange::Slice(first, last, total)) = content_range(headers) else {
        return Err("206 without a Content-Range that can be read");
    };
    if first != rest.from {
        return Err("206 that starts at another byte than the one asked for");
    }
    let total = match (total, rest.total) {
        (Some(theirs), Some(ours)) if theirs != ours => {
            return Err("206 of a whole of another length");
        }
        (Some(total), _) | (None, Some(total)) => total,
        (None, None) => return Err("206 that does not say how long the whole is"),
    };
    if last >= total {
        return Err("206 that ends behind the end of the whole");
    }
    let length = last - first + 1;
    let stated = headers.text("content-length").map(number);
    if stated.is_some_and(|stated| stated != Some(length)) {
        return Err("206 whose length is not that of its Content-Range");
    }
    if coding_named(headers) && !rest.coded {
        return Err("206 in another content coding");
    }
    match other_version(headers, rest) {
        true => Err("206 of another version than the one asked for"),
        false => Ok(Slice { length, total }),
    }
}

/// Whether an answer's validator is another one than that of the part that is held. One that states none is taken to honour
/// `If-Range`.
#[must_use]
pub fn other_version(headers: &Headers, rest: &Rest<'_>) -> bool {
    let name = if is_strong(rest.validator) {
        "etag"
    } else {
        "last-modified"
    };
    headers.lines(name).any(|theirs| theirs != rest.validator)
}

#[cfg(test)]
mod tests;
