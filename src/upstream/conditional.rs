//! What may be asked conditionally, and how long an answer counts as fresh (RFC 9110 13, RFC 9111). Pure.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::headers::{Headers, split_outside_quotes, unquote};
use crate::clock::Timestamp;

/// `ETag` and `Last-Modified` as they came. Opaque: never parsed, mended or re-quoted; sent back byte for byte.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Validators {
    /// The field value of `ETag`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etag: Option<Vec<u8>>,
    /// The field value of `Last-Modified`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_modified: Option<Vec<u8>>,
}

impl Validators {
    /// Those of an answer. A blank value is none. Two `ETag` lines that differ say nothing certain: none either.
    #[must_use]
    pub fn of(headers: &Headers) -> Self {
        Self {
            etag: single(headers, "etag"),
            last_modified: single(headers, "last-modified"),
        }
    }

    /// Those of an answer that may be asked with. `Last-Modified` alone counts whole seconds: an answer of the very second
    /// in which it was modified may have changed once more in the same second (RFC 9110 8.8.2.2), so then, or when the
    /// answer has no `Date` to tell, it is left out; the next answer will be older.
    #[must_use]
    pub fn reliable(headers: &Headers) -> Self {
        let all = Self::of(headers);
        let instant = |name| {
            headers
                .text(name)
                .and_then(http_date)
                .map(Timestamp::as_second)
        };
        let settled = match (instant("last-modified"), instant("date")) {
            (Some(modified), Some(date)) => modified <= date - 2,
            // What is no date is opaque to us, as an ETag is.
            (None, _) => true,
            (Some(_), None) => false,
        };
        if all.etag.is_some() || settled {
            all
        } else {
            Self::default()
        }
    }

    /// There is nothing to ask with.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.etag.is_none() && self.last_modified.is_none()
    }

    /// What a 304 leaves: its fields replace ours one by one, and what it does not name stays (RFC 9111 4.3.4).
    #[must_use]
    pub fn refreshed_by(&self, not_modified: &Headers) -> Self {
        let newer = Self::of(not_modified);
        Self {
            etag: newer.etag.or_else(|| self.etag.clone()),
            last_modified: newer.last_modified.or_else(|| self.last_modified.clone()),
        }
    }

    /// Whether a 304 that carries `theirs` is about the version that we asked with. A 304 without an ETag is; one
    /// whose ETag differs in more than weakness or a content-coding suffix (`-gzip`, as Apache writes it) is not.
    #[must_use]
    pub fn selected_by(&self, theirs: &Headers) -> bool {
        match (&self.etag, single(theirs, "etag")) {
            (Some(ours), Some(theirs)) => opaque_core(ours) == opaque_core(&theirs),
            _ => true,
        }
    }
}

fn single(headers: &Headers, name: &str) -> Option<Vec<u8>> {
    let mut lines = headers.lines(name);
    let first = lines.next().filter(|value| !value.is_empty())?;
    lines.all(|other| other == first).then(|| first.to_vec())
}

/// An entity tag without `W/`, quotes and the suffix that a server adds for a content coding: for comparing two tags,
/// never for sending.
fn opaque_core(tag: &[u8]) -> &[u8] {
    let tag = tag
        .strip_prefix(b"W/")
        .or_else(|| tag.strip_prefix(b"w/"))
        .unwrap_or(tag);
    let tag = tag.strip_prefix(b"\"").unwrap_or(tag);
    let tag = tag.strip_suffix(b"\"").unwrap_or(tag);
    [&b"-gzip"[..], b"--gzip", b";gzip", b"+gzip"]
        .iter()
        .find_map(|suffix| tag.strip_suffix(*suffix))
        .unwrap_or(tag)
}

/// The directives of `Cache-Control` that concern a private cache (RFC 9111 5.2.2).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CacheControl {
    /// Keep nothing.
    pub no_store: bool,
    /// Ask each time.
    pub no_cache: bool,
    /// Seconds. Where it stands twice or cannot be read, the smallest, or 0.
    pub max_age: Option<u64>,
}

impl CacheControl {
    /// Reads all lines; names in any letter case, arguments as tokens or quoted strings.
    #[must_use]
    pub fn of(headers: &Headers) -> Self {
        let mut control = Self::default();
        for (name, argument) in directives(headers) {
            match (name.as_str(), argument) {
                ("no-store", _) => control.no_store = true,
                // With field names (`no-cache="set-cookie"`) it binds those fields only.
                ("no-cache", None) => control.no_cache = true,
                ("max-age", argument) => {
                    let seconds = delta_seconds(argument.as_deref().unwrap_or("")).unwrap_or(0);
                    control.max_age =
                        Some(control.max_age.map_or(seconds, |known| known.min(seconds)));
                }
                _ => {}
            }
        }
        control
    }
}

/// The directives of `Cache-Control` over all its lines, in order: names in lower case, arguments without their quotes.
#[must_use]
pub fn directives(headers: &Headers) -> Vec<(String, Option<String>)> {
    let parts = |member: String| match member.split_once('=') {
        Some((name, argument)) => (name.trim().to_ascii_lowercase(), Some(unquote(argument))),
        None => (member.trim().to_ascii_lowercase(), None),
    };
    let members = headers.list("cache-control");
    members.into_iter().map(parts).collect()
}

/// Non-negative seconds; more digits than fit mean "for ever" (RFC 9111 1.2.2), anything else nothing.
#[must_use]
pub fn delta_seconds(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    digits.then(|| text.parse().unwrap_or(u64::MAX).min(1 << 31))
}

/// How long after its arrival an answer still counts as fresh: `max-age` minus `Age`, or `Expires` minus `Date`
/// where there is no `max-age`. No heuristic: an answer that says nothing is stale at once.
#[must_use]
pub fn fresh_for(headers: &Headers, now: Timestamp) -> Duration {
    let control = CacheControl::of(headers);
    if control.no_store || control.no_cache || vary_is_star(headers) {
        return Duration::ZERO;
    }
    let age = age_of(headers).as_secs();
    let lifetime = match control.max_age {
        Some(seconds) => seconds,
        None => expires_in(headers, now),
    };
    Duration::from_secs(lifetime.saturating_sub(age))
}

/// How long a cache has held an answer. Several `Age` lines: the first counts (RFC 9111 5.1); one that cannot be read
/// counts as none.
#[must_use]
pub fn age_of(headers: &Headers) -> Duration {
    let seconds = headers
        .text("age")
        .and_then(|text| delta_seconds(text.split(',').next().unwrap_or("").trim()));
    Duration::from_secs(seconds.unwrap_or(0))
}

/// How many seconds `Expires` lies behind `Date`, or behind `now` where there is no `Date`; 0 without one.
#[must_use]
pub fn expires_in(headers: &Headers, now: Timestamp) -> u64 {
    // `Expires: 0` and other garbage mean "already expired" (RFC 9111 5.3).
    let Some(expires) = headers.text("expires").and_then(http_date) else {
        return 0;
    };
    let from = headers.text("date").and_then(http_date).unwrap_or(now);
    u64::try_from(expires.as_second().saturating_sub(from.as_second())).unwrap_or(0)
}

/// An HTTP date in any of its three forms (RFC 9110 5.6.7).
#[must_use]
pub fn http_date(text: &str) -> Option<Timestamp> {
    let time = httpdate::parse_http_date(text.trim()).ok()?;
    Timestamp::try_from(time).ok()
}

/// How long `Retry-After` asks for: seconds (fractions survive, rounded up) or a date, measured from the answer's own
/// `Date` where it has one. Garbage and negative values are none. At most [`MAX_RETRY_AFTER`].
#[must_use]
pub fn retry_after(headers: &Headers, now: Timestamp) -> Option<Duration> {
    let text = headers.text("retry-after")?.trim();
    let wait = if let Some(at) = http_date(text) {
        let from = headers.text("date").and_then(http_date).unwrap_or(now);
        u64::try_from(at.as_second().saturating_sub(from.as_second())).unwrap_or(0)
    } else {
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        let more = u64::from(!fraction.is_empty());
        if !fraction.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        delta_seconds(whole)?.saturating_add(more)
    };
    Some(Duration::from_secs(wait).min(MAX_RETRY_AFTER))
}

/// The longest pause that an answer can impose.
pub const MAX_RETRY_AFTER: Duration = Duration::from_secs(24 * 3600);

/// `Vary: *`: the answer may not be reused for any request (RFC 9111 4.1).
#[must_use]
pub fn vary_is_star(headers: &Headers) -> bool {
    headers.list("vary").iter().any(|name| name == "*")
}

/// What an answer depends on: the request fields that its `Vary` names, with a hash over the values we sent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Variant {
    /// Lower-case names, sorted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
    /// Over their values in the request.
    #[serde(default)]
    pub values: u64,
}

impl Variant {
    /// The variant that an answer with `headers` is, given what we sent. Secret fields count by the upstream's scope
    /// alone, so that neither a token nor its hash is ever stored.
    #[must_use]
    pub fn of(headers: &Headers, sent: &[(String, Sent)]) -> Self {
        let mut names: Vec<String> = headers
            .list("vary")
            .iter()
            .map(|name| name.to_ascii_lowercase())
            .collect();
        names.sort();
        names.dedup();
        let values = hash_values(&names, sent);
        Self { names, values }
    }

    /// Whether a request with these fields selects this variant.
    #[must_use]
    pub fn matches(&self, sent: &[(String, Sent)]) -> bool {
        hash_values(&self.names, sent) == self.values
    }
}

/// A request field's value, as far as a variant may know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sent {
    /// As sent.
    Plain(String),
    /// A secret: not looked at.
    Secret,
}

fn hash_values(names: &[String], sent: &[(String, Sent)]) -> u64 {
    let mut hasher = Sha256::new();
    for name in names {
        hasher.update(name.as_bytes());
        for (known, value) in sent
            .iter()
            .filter(|(known, _)| known.eq_ignore_ascii_case(name))
        {
            hasher.update([1]);
            hasher.update(known.to_ascii_lowercase().as_bytes());
            if let Sent::Plain(value) = value {
                // White space and list layout do not select (RFC 9111 4.1).
                split_outside_quotes(value, ',', |part| {
                    hasher.update([2]);
                    hasher.update(part.trim().as_bytes());
                });
            }
        }
        hasher.update([0]);
    }
    let hash = hasher.finalize();
    hash.iter()
        .take(8)
        .fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests;
