//! What an answer means: every row of the table in ARCHITECTURE.md, as one pure classification with its reason.

use std::fmt;
use std::time::Duration;

use super::conditional::Validators;
use super::headers::Headers;
use super::manners::{is_rate_limited, wait_after_refusal};
use super::range::{self, ContentRange, Rest, Slice};
use crate::clock::Timestamp;

/// What kind of trouble it is. It decides how long we wait and what `status` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// The upstream asks for time.
    Throttled,
    /// It does not let us.
    Denied,
    /// It is not there (any more).
    Gone,
    /// It says that our request is wrong: the config has to change.
    Refused,
    /// It, or the way to it, does not work now.
    Failing,
    /// Somebody else answered, or not in the form that the config says.
    NotOurs,
    /// The answer is the upstream's, but its data is not as the config says.
    BadData,
    /// A certificate's dates and our clock do not fit, and our clock is not sure.
    Clock,
    /// Something on this device: a full disk, an unreadable secret, a sink that does not take the change.
    Local,
    /// The agent was told to stop.
    Stopped,
}

impl Kind {
    /// One word for logs, `status` and `sync --json`.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Throttled => "throttled",
            Self::Denied => "denied",
            Self::Gone => "gone",
            Self::Refused => "refused",
            Self::Failing => "failing",
            Self::NotOurs => "not-ours",
            Self::BadData => "bad-data",
            Self::Clock => "clock",
            Self::Local => "local",
            Self::Stopped => "stopped",
        }
    }
}

/// Why a request or a pass did not give what was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// What kind of trouble.
    pub kind: Kind,
    /// In words, with what to do where we know.
    pub reason: String,
    /// How long the upstream asked us to wait.
    pub retry_after: Option<Duration>,
}

impl Failure {
    /// A failure for a reason in words.
    #[must_use]
    pub fn new(kind: Kind, reason: impl Into<String>) -> Self {
        Self {
            kind,
            reason: reason.into(),
            retry_after: None,
        }
    }

    /// The same, with where it happened in front of the reason.
    #[must_use]
    pub fn at(mut self, place: impl fmt::Display) -> Self {
        self.reason = format!("{place}: {}", self.reason);
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind.word(), self.reason)
    }
}

impl std::error::Error for Failure {}

/// What was asked, as far as it decides what the answer means.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    /// The validators that the request carried.
    pub validators: Option<&'a Validators>,
    /// The rest that the request asked for.
    pub rest: Option<&'a Rest<'a>>,
    /// Which representation is expected.
    pub expect: Expect,
    /// An empty answer is an answer.
    pub allow_empty: bool,
    /// The request carried a credential that can be renewed, and it was not renewed for this request yet.
    pub renewable: bool,
    /// The request may be sent once more without validators.
    pub may_ask_again: bool,
    /// Now, for a `Retry-After` date in an answer without `Date`.
    pub now: Timestamp,
}

/// Which representation is expected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expect {
    /// JSON, or NDJSON.
    Json,
    /// Whatever comes.
    Any,
    /// A file, byte for byte as it is sent, whatever it is: no coding is asked for, and none is undone.
    File,
    /// JSON, or NDJSON, as a file.
    JsonFile,
}

impl Expect {
    /// Whether the body is wanted as it is sent, without a limit but its reader's own.
    #[must_use]
    pub fn is_file(self) -> bool {
        matches!(self, Self::File | Self::JsonFile)
    }
}

/// What to do with an answer, decided on its head alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// A full representation follows: read it to its end.
    Body,
    /// The rest that was asked for follows.
    Slice(Slice),
    /// There is no rest: the whole has so many bytes, if that is said.
    Unsatisfied(Option<u64>),
    /// An allowed empty answer: an empty listing.
    Empty,
    /// What we hold is current. The body, if any came, is not read.
    NotModified,
    /// Ask once more, without validators, for this reason.
    Unconditionally(&'static str),
    /// Ask once more with a renewed credential.
    Renew,
    /// Go on there.
    Redirect {
        /// 301, 302, 303, 307 or 308.
        status: u16,
        /// `Location` as it came.
        location: String,
    },
    /// Nothing to be had.
    Failed(Failure),
}

/// Decides what an answer's head means for what was asked. Total: every status has a row.
#[must_use]
pub fn classify(status: u16, headers: &Headers, asked: &Asked<'_>) -> Verdict {
    let validated = asked
        .validators
        .is_some_and(|validators| !validators.is_empty());
    let conditional = validated || asked.rest.is_some();
    match status {
        200 | 203 => full(headers, asked),
        204 | 205 => empty(status, asked),
        206 => match asked.rest.map(|rest| range::slice(headers, rest)) {
            Some(Ok(slice)) => Verdict::Slice(slice),
            Some(Err(why)) if asked.may_ask_again => Verdict::Unconditionally(why),
            Some(Err(why)) => failed(Kind::NotOurs, why),
            None => failed(
                Kind::NotOurs,
                "206 (a part) to a request for the whole: the upstream or a cache in between is broken",
            ),
        },
        416 if asked.rest.is_some() => Verdict::Unsatisfied(match range::content_range(headers) {
            Some(ContentRange::Unsatisfied(total)) => Some(total),
            _ => None,
        }),
        304 if !validated && asked.may_ask_again => {
            Verdict::Unconditionally("304 although nothing was held")
        }
        304 if !validated => failed(
            Kind::Failing,
            "304 (not modified) to an unconditional request",
        ),
        304 => match asked.validators {
            Some(ours) if !ours.selected_by(headers) && asked.may_ask_again => {
                Verdict::Unconditionally("304 for another version than the one held")
            }
            Some(ours) if !ours.selected_by(headers) => {
                failed(Kind::Failing, "304 for another version than the one held")
            }
            _ => Verdict::NotModified,
        },
        301 | 302 | 303 | 307 | 308 => match headers
            .text("location")
            .filter(|location| !location.is_empty())
        {
            Some(location) => Verdict::Redirect {
                status,
                location: location.to_owned(),
            },
            None => failed(
                Kind::Failing,
                format!("{status} (redirect) without a Location"),
            ),
        },
        300 | 305 | 306 | 309..=399 => failed(
            Kind::NotOurs,
            format!("{status}: no redirect that can be followed"),
        ),
        400 | 412 if conditional && asked.may_ask_again => {
            Verdict::Unconditionally("the conditional request was refused")
        }
        401 if asked.renewable => Verdict::Renew,
        401 => failed(
            Kind::Denied,
            "401 (unauthorized): the credential is missing, wrong or expired",
        ),
        403 if is_rate_limited(headers) => throttled(status, headers, asked),
        403 => failed(
            Kind::Denied,
            "403 (forbidden): this credential may not read this",
        ),
        407 => failed(
            Kind::Denied,
            "407: the proxy wants credentials; put them in the proxy's URL",
        ),
        404 => failed(Kind::Gone, "404 (not found): is the path right?"),
        410 => failed(
            Kind::Gone,
            "410 (gone): the upstream says that this is gone for good",
        ),
        408 | 425 | 429 | 503 => throttled(status, headers, asked),
        511 => failed(
            Kind::NotOurs,
            "511 (network authentication required): a captive portal wants a login",
        ),
        400..=499 => failed(
            Kind::Refused,
            format!("{status}: the upstream refuses the request as it is configured"),
        ),
        500..=599 => failed(
            Kind::Failing,
            format!("{status}: the upstream has an error of its own"),
        ),
        201..=299 => failed(
            Kind::NotOurs,
            format!("{status} is no answer to a GET that could be read as data"),
        ),
        _ => failed(
            Kind::NotOurs,
            format!("{status} is no final status of HTTP"),
        ),
    }
}

fn failed(kind: Kind, reason: impl Into<String>) -> Verdict {
    Verdict::Failed(Failure::new(kind, reason))
}

fn throttled(status: u16, headers: &Headers, asked: &Asked<'_>) -> Verdict {
    let wait = wait_after_refusal(headers, asked.now);
    let reason = match wait {
        Some(wait) => format!("{status}: asked to wait {} s", wait.as_secs()),
        None => format!("{status}: asked to wait, without saying how long"),
    };
    Verdict::Failed(Failure {
        kind: Kind::Throttled,
        reason,
        retry_after: wait,
    })
}

fn full(headers: &Headers, asked: &Asked<'_>) -> Verdict {
    if headers.bytes("content-range").is_some() {
        if asked.rest.is_some() && asked.may_ask_again {
            return Verdict::Unconditionally("200 with a Content-Range: a part, sold as the whole");
        }
        return failed(
            Kind::NotOurs,
            "200 with a Content-Range: a part, sold as the whole",
        );
    }
    if let Err(reason) = framing(headers) {
        return failed(Kind::NotOurs, reason);
    }
    // What a file may be coded in, its name says: whoever asked for it knows.
    if let (Err(codings), true) = (coding(headers), asked.expect != Expect::File) {
        return failed(
            Kind::NotOurs,
            format!("Content-Encoding {codings} was not asked for"),
        );
    }
    if asked.expect == Expect::JsonFile && coding_named(headers) {
        let codings = headers.list("content-encoding").join(", ");
        return failed(
            Kind::NotOurs,
            format!(
                "Content-Encoding {codings:.60} was not asked for (`spool` takes a body as it is)"
            ),
        );
    }
    if headers.text("content-length") == Some("0") {
        return empty(200, asked);
    }
    if matches!(asked.expect, Expect::Json | Expect::JsonFile) {
        if let Some(media_type) = wrong_media_type(headers) {
            return failed(
                Kind::NotOurs,
                format!(
                    "Content-Type {media_type} is not JSON: is this a captive portal, a login or an error page?"
                ),
            );
        }
    }
    Verdict::Body
}

/// How a body is coded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coding {
    /// As it is.
    Identity,
    /// `gzip`, also spelled `x-gzip` and in any letter case (RFC 9110 8.4.1.3).
    Gzip,
}

/// The one coding that a body may have.
///
/// # Errors
/// The codings as they stand there, if they are any but one gzip: nothing else was asked for.
pub fn coding(headers: &Headers) -> Result<Coding, String> {
    let mut codings = headers.list("content-encoding");
    codings.retain(|coding| !coding.eq_ignore_ascii_case("identity"));
    match codings.as_slice() {
        [] => Ok(Coding::Identity),
        [one] if one.eq_ignore_ascii_case("gzip") || one.eq_ignore_ascii_case("x-gzip") => {
            Ok(Coding::Gzip)
        }
        _ => Err(codings.join(", ")),
    }
}

/// Whether a content coding is named, other than none at all.
pub(super) fn coding_named(headers: &Headers) -> bool {
    coding(headers) != Ok(Coding::Identity)
}

/// Whether the head says without doubt where the body ends (RFC 9112 6.3): one length, or exactly `chunked`. A library that
/// picks one of two lengths or skips a coding that it does not know would read a part, or something else, as the whole.
fn framing(headers: &Headers) -> Result<(), String> {
    let codings = headers.list("transfer-encoding");
    let is_chunked = codings.len() == 1 && codings[0].eq_ignore_ascii_case("chunked");
    if headers.bytes("transfer-encoding").is_some() && !is_chunked {
        return Err(format!(
            "Transfer-Encoding {:.60} cannot be read",
            codings.join(", ")
        ));
    }
    let mut lengths = headers.lines("content-length");
    if let Some(first) = lengths.next() {
        let number = !first.is_empty() && first.iter().all(u8::is_ascii_digit);
        if !number || lengths.any(|other| other != first) {
            return Err("its Content-Length is no number, or several".into());
        }
    }
    Ok(())
}

fn empty(status: u16, asked: &Asked<'_>) -> Verdict {
    if asked.allow_empty {
        Verdict::Empty
    } else {
        failed(
            Kind::NotOurs,
            format!(
                "{status} without a body: that is not an empty listing (`allow_empty = true` if this API means it so)"
            ),
        )
    }
}

/// The media type, if it is one that cannot be JSON. Text and octet streams pass: file servers send data that way.
fn wrong_media_type(headers: &Headers) -> Option<String> {
    let value = headers.text("content-type")?;
    let media_type = value
        .split(';')
        .next()
        .unwrap_or("")
        .trim()
        .to_ascii_lowercase();
    let passes = media_type.is_empty()
        || media_type.contains("json")
        || matches!(
            media_type.as_str(),
            "text/plain"
                | "application/octet-stream"
                | "binary/octet-stream"
                | "text/javascript"
                | "application/javascript"
        );
    (!passes).then_some(media_type)
}

#[cfg(test)]
mod tests;
