//! What an answer says about how often we may ask. Pure.
//!
//! | field | asks for |
//! |---|---|
//! | `Retry-After` (RFC 9110 10.2.3) on 408, 425, 429, 5xx and a 403 about quantity | a pause of the whole upstream |
//! | … on a redirect | that long before it is followed |
//! | … on anything else | nothing: the RFC gives it no meaning there |
//! | `Backoff` (Kinto, Mozilla's sync servers), on successes too | a pause of the whole upstream |
//! | `RateLimit`, `RateLimit-Policy` (draft-ietf-httpapi-ratelimit-headers, both forms) | a pause until the reset, when nothing is left |
//! | `RateLimit-Remaining`, `X-RateLimit-Remaining`, `X-Rate-Limit-Remaining` with `…-Reset` | the same |
//! | `X-Poll-Interval` (GitHub), on a 304 too | at least so long from one poll of this source to the next |
//! | `Alert` (Kinto) | a word to the operator |
//!
//! While something is left, nothing is slowed down.

use std::fmt;
use std::time::Duration;

use super::conditional::{MAX_RETRY_AFTER, http_date, retry_after};
use super::headers::{Headers, split_outside_quotes, unquote};
use crate::clock::Timestamp;

/// How long it is waited when nothing is left and nobody says until when.
const UNTOLD: Duration = Duration::from_secs(60);

/// What an answer says about how often we may ask.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Manners {
    /// The whole upstream is not to be asked for this long.
    pub pause: Option<Pause>,
    /// The same source is not to be polled again before this long.
    pub poll_interval: Option<Duration>,
    /// What an operator should know, in the upstream's words.
    pub alert: Option<String>,
}

/// A pause that an upstream asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pause {
    /// How long, from the answer on. At most [`MAX_RETRY_AFTER`].
    pub span: Duration,
    /// How it asked.
    pub plea: Plea,
}

/// How an upstream asked for a pause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plea {
    /// `Retry-After` on a refusal.
    RetryAfter,
    /// `Backoff`.
    Backoff,
    /// No request is left until its limit is reset.
    Spent,
}

impl fmt::Display for Plea {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::RetryAfter => "the upstream asked to wait",
            Self::Backoff => "the upstream asked everybody to come less often",
            Self::Spent => "the upstream allows no further request until its limit is reset",
        })
    }
}

/// Reads the manners out of an answer. Of several pleas the longest counts.
#[must_use]
pub fn manners(status: u16, headers: &Headers, now: Timestamp) -> Manners {
    let refusal = match status {
        408 | 425 | 429 | 503 => wait_after_refusal(headers, now),
        403 if is_rate_limited(headers) => wait_after_refusal(headers, now),
        500..=599 => retry_after(headers, now),
        _ => None,
    };
    let pleas = [
        (Plea::RetryAfter, refusal),
        (Plea::Backoff, seconds(headers, "backoff")),
        (Plea::Spent, spent(headers, now)),
    ];
    let longest = pleas
        .into_iter()
        .filter_map(|(plea, span)| span.map(|span| Pause { span, plea }))
        .filter(|pause| pause.span > Duration::ZERO)
        .max_by_key(|pause| pause.span);
    Manners {
        pause: longest,
        poll_interval: seconds(headers, "x-poll-interval").filter(|span| *span > Duration::ZERO),
        alert: alert(headers),
    }
}

/// How long a refusal asks to wait: `Retry-After`, else until the reset of a limit of which nothing is said to be left.
/// (GitHub sends its hourly limit with every answer: what is not spent is not why we were refused.)
#[must_use]
pub fn wait_after_refusal(headers: &Headers, now: Timestamp) -> Option<Duration> {
    retry_after(headers, now).or_else(|| {
        quotas(headers, now)
            .into_iter()
            .filter(|quota| quota.remaining.is_none_or(|left| left == 0))
            .filter_map(|quota| quota.reset)
            .max()
    })
}

/// Whether a 403 is about quantity, as GitHub and others send it.
#[must_use]
pub fn is_rate_limited(headers: &Headers) -> bool {
    let none_left = |quota: &Quota| quota.remaining == Some(0);
    headers.text("retry-after").is_some()
        || quotas(headers, Timestamp::UNIX_EPOCH).iter().any(none_left)
}

/// What is left of one of an upstream's limits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Quota {
    remaining: Option<u64>,
    reset: Option<Duration>,
}

fn spent(headers: &Headers, now: Timestamp) -> Option<Duration> {
    quotas(headers, now)
        .into_iter()
        .filter(|quota| quota.remaining == Some(0))
        .map(|quota| quota.reset.unwrap_or(UNTOLD))
        .max()
}

/// All limits that an answer tells of, in whichever spelling.
fn quotas(headers: &Headers, now: Timestamp) -> Vec<Quota> {
    let mut quotas = structured(headers);
    for family in ["ratelimit", "x-ratelimit", "x-rate-limit"] {
        let field = |part| first_number(headers, &format!("{family}-{part}"));
        let quota = Quota {
            remaining: field("remaining").and_then(|left| u64::try_from(left).ok()),
            reset: field("reset").map(|reset| until(reset, headers, now)),
        };
        if quota != Quota::default() {
            quotas.push(quota);
        }
    }
    quotas
}

/// The field `RateLimit`: a list of policies, `"default";r=50;t=30`, or in older drafts one dictionary,
/// `limit=100, remaining=50, reset=30`. A policy that says not when it is reset is reset within its window
/// (`RateLimit-Policy: "default";q=100;w=60`).
fn structured(headers: &Headers) -> Vec<Quota> {
    let windows: Vec<_> = headers.list("ratelimit-policy");
    let window = |name: &str| {
        let policy = windows.iter().find(|policy| item(policy).0 == name)?;
        parameter(policy, "w")
    };
    let mut quotas = Vec::new();
    let mut dictionary = Quota::default();
    for member in headers.list("ratelimit") {
        let (name, _) = item(&member);
        if let Some(remaining) = parameter(&member, "r") {
            let reset = parameter(&member, "t").or_else(|| window(&name));
            quotas.push(Quota {
                remaining: Some(remaining),
                reset: reset.map(clamped),
            });
        } else if let Some((name, value)) = member.split_once('=') {
            let value = value.trim().parse().ok();
            match name.trim() {
                "remaining" => dictionary.remaining = value,
                "reset" => dictionary.reset = value.map(clamped),
                _ => {}
            }
        }
    }
    if dictionary != Quota::default() {
        quotas.push(dictionary);
    }
    quotas
}

/// An item of a structured field (RFC 9651) and what follows it.
fn item(member: &str) -> (String, Vec<String>) {
    let mut parts = Vec::new();
    split_outside_quotes(member, ';', |part| parts.push(part.trim().to_owned()));
    let name = parts.first().map(|name| unquote(name)).unwrap_or_default();
    (name, parts.split_off(1.min(parts.len())))
}

/// A whole number among an item's parameters.
fn parameter(member: &str, name: &str) -> Option<u64> {
    let (_, parameters) = item(member);
    parameters.iter().find_map(|parameter| {
        let (known, value) = parameter.split_once('=')?;
        (known.trim() == name).then(|| value.trim().parse().ok())?
    })
}

/// The number that a field begins with. Some append more: `99;w=60`, `100, 100;w=60`.
fn first_number(headers: &Headers, name: &str) -> Option<i64> {
    let text = headers.text(name)?;
    let number = text.split([',', ';', '.']).next()?.trim();
    number.parse().ok()
}

/// Until when: seconds from now, or an instant in seconds or milliseconds since 1970. Nobody's limit is reset in 30 years,
/// and none was in 1970, so the size tells.
fn until(reset: i64, headers: &Headers, now: Timestamp) -> Duration {
    let from = headers.text("date").and_then(http_date).unwrap_or(now);
    let seconds = match reset {
        100_000_000_000.. => (reset / 1000 + 1).saturating_sub(from.as_second()),
        1_000_000_000.. => reset.saturating_sub(from.as_second()),
        _ => reset,
    };
    clamped(u64::try_from(seconds).unwrap_or(0))
}

fn clamped(seconds: u64) -> Duration {
    Duration::from_secs(seconds).min(MAX_RETRY_AFTER)
}

/// A field of seconds; fractions are rounded up, anything else is none.
fn seconds(headers: &Headers, name: &str) -> Option<Duration> {
    let text = headers.text(name)?;
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !digits(whole) || !digits(fraction) {
        return None;
    }
    let more = u64::from(!fraction.is_empty());
    Some(clamped(
        whole.parse().unwrap_or(u64::MAX).saturating_add(more),
    ))
}

/// What Kinto warns of (`{"code": "soft-eol", "message": "…", "url": "…"}`), in one line; of another shape, as it stands.
fn alert(headers: &Headers) -> Option<String> {
    let text = headers.text("alert")?;
    let object: Option<serde_json::Value> = serde_json::from_str(text).ok();
    let member = |name| {
        let value = object.as_ref()?.get(name)?;
        value.as_str().filter(|text| !text.is_empty())
    };
    let said = match member("message") {
        None => text.to_owned(),
        Some(message) => {
            let mut said = message.to_owned();
            if let Some(code) = member("code").or_else(|| member("type")) {
                said = format!("{code}: {said}");
            }
            if let Some(url) = member("url") {
                said = format!("{said} ({url})");
            }
            said
        }
    };
    let shown: String = said
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(300)
        .collect();
    let shown = shown.trim();
    (!shown.is_empty()).then(|| format!("the upstream warns: {shown}"))
}

#[cfg(test)]
mod tests;
