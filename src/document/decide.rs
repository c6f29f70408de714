//! What is asked of a document's upstream, and what may be published of what it answers. Pure.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use url::Url;

use super::kept::Kept;
use crate::config::Document;
use crate::upstream::headers::Headers;
use crate::upstream::outcome::{Coding, coding};

/// What to ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Question {
    /// All of it, unconditionally, for this reason.
    Whole(Why),
    /// All of it, unless it is what was published.
    IfChanged,
    /// What follows the bytes that are held, if they are of the same version; else all of it.
    Rest,
    /// All of it, unless it is what is held whole and was not published yet.
    IfPartIsCurrent,
}

/// Why everything is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// Nothing is held.
    First,
    /// What is held is of another URL or scope.
    Elsewhere,
    /// The published file is gone, or is not as it was published.
    Touched,
    /// The answer had no validators that could be sent back, or is another variant.
    Unvalidated,
    /// It was long enough vouched for by 304s alone.
    Recheck,
    /// What is held in part is no part of it.
    Restart,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::First => "nothing is held",
            Self::Elsewhere => "what is held is of another URL or scope",
            Self::Touched => "the published file is not as it was published",
            Self::Unvalidated => "what is held cannot be asked for conditionally",
            Self::Recheck => "nothing but 304s for longer than `recheck`",
            Self::Restart => "what is held in part is no part of it",
        })
    }
}

/// What is held, as far as it decides what to ask.
#[derive(Debug, Clone, Copy)]
pub struct Standing<'a> {
    /// What is published.
    pub kept: Option<&'a Kept>,
    /// The published file is as it was published.
    pub is_untouched: bool,
    /// A request of ours selects the variant that is published.
    pub selects: bool,
    /// What is held of a newer one.
    pub part: Option<Held>,
    /// Which URL and scope is asked for.
    pub config: [u8; 8],
    /// How long 304s are believed.
    pub recheck: Duration,
    /// Seconds since 1970.
    pub now: i64,
}

/// Bytes that are held of a download.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    /// So many.
    pub bytes: u64,
    /// The length of the whole, if it is known.
    pub total: Option<u64>,
    /// It had come to its end.
    pub is_whole: bool,
}

/// Decides what to ask. A download under way goes before what is published: it is newer.
#[must_use]
pub fn question(standing: &Standing<'_>) -> Question {
    if let Some(part) = standing.part.filter(|part| part.bytes > 0) {
        return if part.is_whole || part.total == Some(part.bytes) {
            Question::IfPartIsCurrent
        } else {
            Question::Rest
        };
    }
    let Some(kept) = standing.kept else {
        return Question::Whole(Why::First);
    };
    // A clock that jumped must not keep us from asking in full now and then, nor make us do so each time.
    let age = standing.now.saturating_sub(kept.fetched);
    let recheck = i64::try_from(standing.recheck.as_secs()).unwrap_or(i64::MAX);
    let why = if kept.config != standing.config {
        Why::Elsewhere
    } else if !standing.is_untouched {
        Why::Touched
    } else if kept.validators.is_empty() || !standing.selects {
        Why::Unvalidated
    } else if age >= recheck {
        Why::Recheck
    } else {
        return Question::IfChanged;
    };
    Question::Whole(why)
}

/// What to ask after a 416 to a request for the rest. The part may be whole already: if nothing says otherwise (not the length
/// that the first answer stated, nor the one that the 416 states, which Apache leaves out), its own validator tells without moving
/// a body. Anything else is begun anew.
#[must_use]
pub fn after_unsatisfied(part: Held, stated: Option<u64>, other_version: bool) -> Question {
    let mut lengths = [part.total, stated].into_iter().flatten();
    if lengths.all(|length| length == part.bytes) && !other_version {
        Question::IfPartIsCurrent
    } else {
        Question::Whole(Why::Restart)
    }
}

/// What is wrong with an answer's media type. By default HTML is refused where the file's name does not end like HTML: captive
/// portals and error pages come as 200 too.
#[must_use]
pub fn unwelcome(headers: &Headers, document: &Document) -> Option<String> {
    let media_type = headers.text("content-type").map(|value| {
        let essence = value.split(';').next().unwrap_or_default();
        essence.trim().to_ascii_lowercase()
    });
    let media_type = media_type.filter(|media_type| !media_type.is_empty());
    let expected = &document.content_type;
    if expected.is_empty() {
        let html = media_type.filter(|kind| is_html(kind) && !expects_html(document))?;
        return Some(format!(
            "Content-Type {html}: is this a captive portal, a login or an error page? (`content_type = \"{html}\"` if HTML is meant)"
        ));
    }
    let Some(media_type) = media_type else {
        return Some("it has no Content-Type, and `content_type` says which are expected".into());
    };
    let fits = expected.iter().any(|kind| match kind.strip_suffix('*') {
        Some(start) => media_type.starts_with(start),
        None => *kind == media_type,
    });
    (!fits).then(|| {
        format!(
            "Content-Type {media_type} is none of `content_type`: is this a captive portal, a login or an error page?"
        )
    })
}

fn is_html(media_type: &str) -> bool {
    matches!(media_type, "text/html" | "application/xhtml+xml")
}

/// Whether HTML is what the config expects.
fn expects_html(document: &Document) -> bool {
    let name = document.file.to_string_lossy().to_ascii_lowercase();
    [".html", ".htm", ".xhtml"]
        .iter()
        .any(|end| name.ends_with(end))
}

/// Whether a body that begins so is HTML where nobody expects it, whatever its Content-Type says. Where `content_type` was
/// written, and the answer has it, nothing is looked into.
#[must_use]
pub fn begins_as_html(start: &[u8], document: &Document) -> bool {
    if expects_html(document) || !document.content_type.is_empty() {
        return false;
    }
    let start = start.strip_prefix(b"\xef\xbb\xbf").unwrap_or(start);
    let start = start.trim_ascii_start();
    [&b"<!doctype html"[..], b"<html"].iter().any(|tag| {
        start
            .get(..tag.len())
            .is_some_and(|head| head.eq_ignore_ascii_case(tag))
    })
}

/// Whether an answer's content coding is one that the document may have: none; or any, where its name says that a compressed file
/// is meant. Then the coded bytes are what is kept: servers label `x.tar.gz` with `Content-Encoding: gzip` too.
///
/// # Errors
/// The coding that nobody asked for, in words.
pub fn is_coded(headers: &Headers, document: &Document) -> Result<bool, String> {
    if coding(headers) == Ok(Coding::Identity) {
        return Ok(false);
    }
    let names = [last_segment(&document.url), name_of(&document.file)];
    let compressed = [".gz", ".tgz", ".z", ".br", ".zst", ".xz", ".bz2", ".svgz"];
    let is_meant = names.iter().any(|name| {
        let name = name.to_ascii_lowercase();
        compressed.iter().any(|end| name.ends_with(end))
    });
    if is_meant {
        return Ok(true);
    }
    Err(format!(
        "Content-Encoding {:.60} was not asked for: documents are kept as they are sent (if a compressed file is meant, let `file` end in .gz)",
        headers.list("content-encoding").join(", ")
    ))
}

/// The last name of a URL's path: what a file of checksums calls it.
#[must_use]
pub fn last_segment(url: &Url) -> String {
    let last = url.path_segments().and_then(|mut parts| parts.next_back());
    let last = last.unwrap_or_default();
    url::form_urlencoded::parse(last.replace('+', "%2B").as_bytes())
        .next()
        .map(|(name, _)| name.into_owned())
        .unwrap_or_default()
}

fn name_of(file: &Path) -> String {
    file.file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests;
