//! One page's answer → the next request. Pure.
//!
//! The end of a listing is decided on raw counts and the API's own signal, never on a page that came out shorter than
//! asked for: servers cap page sizes and filter behind them.

use std::fmt;

use url::Url;

use crate::config::{More, PageSize, Pages};
use crate::pointer::Pointer;
use crate::upstream::headers::{Headers, split_outside_quotes, unquote};

/// What one page's answer says about the way on.
pub struct PageFacts<'a> {
    /// The URL that was asked for this page.
    pub asked: &'a Url,
    /// The answer's fields.
    pub headers: &'a Headers,
    /// Raw JSON text at a pointer of the body's envelope.
    pub found: &'a dyn Fn(&Pointer) -> Option<String>,
    /// Records on this page before any filter of ours.
    pub records: u64,
    /// Raw JSON text of the last record's paging key (`pages = { last_key = … }`).
    pub last_key: Option<&'a str>,
}

/// What comes after a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// Another page.
    Page(Url),
    /// The listing is complete, and how that is known.
    End(End),
    /// The way on is broken: the pass fails.
    Broken(PageFault),
}

/// How the end of a listing is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// There is only one page.
    Single,
    /// No next link or token.
    NoNext,
    /// The API's own flag says so.
    NoMore,
    /// A page without a record.
    EmptyPage,
}

/// Why a listing cannot be followed to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PageFault {
    /// The next URL cannot be read.
    Unreadable,
    /// It leads to another origin, where neither credentials nor trust go.
    OtherOrigin(String),
    /// What should be an array of links is none.
    NotLinks(String),
    /// The value there is neither text nor a number.
    NotAToken(String),
    /// The API says that there is more, and not where.
    MoreWithoutToken,
    /// It was asked for in this pass already.
    Repeats(String),
    /// The same records as on the page before.
    SamePage,
    /// More pages than `limits.pages`.
    TooMany(u32),
}

impl fmt::Display for PageFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable => f.write_str("what should be the next page's URL is none"),
            Self::OtherOrigin(origin) => write!(
                f,
                "the next page would be on another origin ({origin}), which is not followed"
            ),
            Self::NotLinks(text) => write!(
                f,
                "what should be an array of links is none: {text:.60}"
            ),
            Self::NotAToken(text) => write!(
                f,
                "the next page's token is neither text nor a number: {text:.60}"
            ),
            Self::MoreWithoutToken => {
                f.write_str("the upstream says that there is more, but not where")
            }
            Self::Repeats(page) => write!(f, "the listing goes in a circle: {page} comes again"),
            Self::SamePage => f.write_str(
                "the same records as on the page before: does the upstream know this page parameter?",
            ),
            Self::TooMany(limit) => write!(
                f,
                "more than {limit} pages (`limits.pages` sets how many are allowed)"
            ),
        }
    }
}

impl Pages {
    /// The first page's URL: `base` with the parameters that this style sends from the start.
    #[must_use]
    pub fn first(&self, base: &Url) -> Url {
        let mut url = base.clone();
        match self {
            Self::Page {
                param, first, size, ..
            } => {
                set(&mut url, param, &first.to_string());
                if let Some(PageSize { param, value }) = size {
                    set(&mut url, param, &value.to_string());
                }
            }
            Self::Offset { param, size, .. } => {
                set(&mut url, param, "0");
                set(&mut url, &size.param, &size.value.to_string());
            }
            _ => {}
        }
        url
    }

    /// Places in the envelope that [`Pages::next`] wants to know.
    #[must_use]
    pub fn wanted(&self) -> Vec<Pointer> {
        let (token, more) = match self {
            Self::Single | Self::Link | Self::NextHeader(_) | Self::TokenHeader { .. } => {
                (None, None)
            }
            Self::Next { next, more } => (Some(next), more.as_ref()),
            Self::Links(links) => (Some(links), None),
            Self::Token { token, more, .. } => (Some(token), more.as_ref()),
            Self::Page { more, .. } | Self::Offset { more, .. } | Self::LastKey { more, .. } => {
                (None, more.as_ref())
            }
        };
        let more = more.map(|more| &more.at);
        token.into_iter().chain(more).cloned().collect()
    }

    /// Whether records may move from one page to another while the pass goes on, so that one listing alone does not
    /// prove an absence. Only a listing that goes by the records' own keys cannot; behind a link or a token there may be
    /// an offset.
    #[must_use]
    pub fn moves(&self) -> bool {
        !matches!(self, Self::Single | Self::LastKey { .. })
    }

    /// Whether pages are told by a number that we count.
    #[must_use]
    pub fn is_counted(&self) -> bool {
        matches!(self, Self::Page { .. } | Self::Offset { .. })
    }

    /// The field that says where the next page is, in the styles where a header does. A validator vouches for a body, not
    /// for such a field.
    #[must_use]
    pub fn header(&self) -> Option<&str> {
        match self {
            Self::Link => Some("link"),
            Self::NextHeader(name) | Self::TokenHeader { header: name, .. } => Some(name),
            _ => None,
        }
    }

    /// Decides what comes after a page.
    #[must_use]
    pub fn next(&self, facts: &PageFacts<'_>) -> Next {
        match self {
            Self::Single => Next::End(End::Single),
            Self::Link => follow(facts, next_link(facts.headers)),
            Self::NextHeader(name) => follow(
                facts,
                facts
                    .headers
                    .text(name)
                    .map(str::to_owned)
                    .filter(|url| !url.is_empty()),
            ),
            Self::Next { next, more } => {
                match (says_more(facts, more.as_ref()), token(facts, next)) {
                    (Some(false), _) => Next::End(End::NoMore),
                    (Some(true), Ok(None)) => Next::Broken(PageFault::MoreWithoutToken),
                    (_, Ok(url)) => follow(facts, url),
                    (_, Err(fault)) => Next::Broken(fault),
                }
            }
            Self::Links(at) => match (facts.found)(at).as_deref().map(linked_next) {
                None => Next::End(End::NoNext),
                Some(Ok(url)) => follow(facts, url),
                Some(Err(fault)) => Next::Broken(fault),
            },
            Self::Token {
                token: at,
                param,
                more,
            } => match token(facts, at) {
                Ok(token) => with_token(facts, param, token, more.as_ref()),
                Err(fault) => Next::Broken(fault),
            },
            Self::TokenHeader { header, param } => {
                let token = facts
                    .headers
                    .text(header)
                    .map(str::to_owned)
                    .filter(|token| !token.is_empty());
                with_token(facts, param, token, None)
            }
            Self::Page {
                param, first, more, ..
            } => counted(facts, more.as_ref(), || {
                let current = parameter(facts.asked, param)
                    .and_then(|text| text.parse().ok())
                    .unwrap_or(*first);
                (param.clone(), current.saturating_add(1))
            }),
            Self::Offset { param, more, .. } => counted(facts, more.as_ref(), || {
                let current: u64 = parameter(facts.asked, param)
                    .and_then(|text| text.parse().ok())
                    .unwrap_or(0);
                (param.clone(), current.saturating_add(facts.records))
            }),
            Self::LastKey { param, more, .. } => {
                match (says_more(facts, more.as_ref()), facts.last_key) {
                    (Some(false), _) => Next::End(End::NoMore),
                    (None, None) if facts.records == 0 => Next::End(End::EmptyPage),
                    (_, None) => Next::Broken(PageFault::MoreWithoutToken),
                    (_, Some(key)) => match scalar(key) {
                        Ok(Some(key)) => Next::Page(with_parameter(facts.asked, param, &key)),
                        Ok(None) | Err(_) => Next::Broken(PageFault::NotAToken(key.to_owned())),
                    },
                }
            }
        }
    }
}

/// Page numbers and offsets: on until the API says that there is no more, or until a page is empty.
fn counted(facts: &PageFacts<'_>, more: Option<&More>, step: impl Fn() -> (String, u64)) -> Next {
    match says_more(facts, more) {
        Some(false) => Next::End(End::NoMore),
        None if facts.records == 0 => Next::End(End::EmptyPage),
        Some(true) if facts.records == 0 => Next::Broken(PageFault::MoreWithoutToken),
        _ => {
            let (param, value) = step();
            Next::Page(with_parameter(facts.asked, &param, &value.to_string()))
        }
    }
}

fn with_token(
    facts: &PageFacts<'_>,
    param: &str,
    token: Option<String>,
    more: Option<&More>,
) -> Next {
    match (says_more(facts, more), token) {
        (Some(false), _) => Next::End(End::NoMore),
        (Some(true), None) => Next::Broken(PageFault::MoreWithoutToken),
        (None, None) => Next::End(End::NoNext),
        (_, Some(token)) => Next::Page(with_parameter(facts.asked, param, &token)),
    }
}

/// The API's flag, if it is configured and there: `false`, `0`, `""` and `null` are no, anything else is yes.
fn says_more(facts: &PageFacts<'_>, more: Option<&More>) -> Option<bool> {
    let more = more?;
    let raw = (facts.found)(&more.at)?;
    let yes = !matches!(
        raw.trim(),
        "false" | "0" | "\"\"" | "null" | "\"false\"" | "\"0\"" | "\"no\"" | "[]" | "{}"
    );
    Some(yes != more.says_end)
}

/// Text or a number at `pointer`. `null`, `""`, `false` and nothing at all mean that there is no next page.
fn token(facts: &PageFacts<'_>, pointer: &Pointer) -> Result<Option<String>, PageFault> {
    (facts.found)(pointer).map_or(Ok(None), |raw| scalar(&raw))
}

fn scalar(raw: &str) -> Result<Option<String>, PageFault> {
    match serde_json::from_str::<serde_json::Value>(raw) {
        Ok(serde_json::Value::Null | serde_json::Value::Bool(false)) => Ok(None),
        Ok(serde_json::Value::String(text)) => Ok(Some(text).filter(|text| !text.is_empty())),
        // The text as it came: a large number must not pass through a float.
        Ok(serde_json::Value::Number(_)) => Ok(Some(raw.trim().to_owned())),
        _ => Err(PageFault::NotAToken(raw.to_owned())),
    }
}

fn follow(facts: &PageFacts<'_>, reference: Option<String>) -> Next {
    let Some(reference) = reference else {
        return Next::End(End::NoNext);
    };
    match facts.asked.join(reference.trim()) {
        Err(_) => Next::Broken(PageFault::Unreadable),
        Ok(url) => match on_origin(facts.asked, url) {
            Ok(url) => Next::Page(url),
            Err(origin) => Next::Broken(PageFault::OtherOrigin(origin)),
        },
    }
}

/// `url` if it is on `home`'s origin. An API behind a TLS proxy often writes `http://` for its own host: asked over
/// TLS all the same, nothing leaves the origin. Otherwise the foreign origin, for the message.
///
/// # Errors
/// The foreign origin in ASCII.
pub fn on_origin(home: &Url, mut url: Url) -> Result<Url, String> {
    url.set_fragment(None);
    let plain_port = url.port().is_none() || url.port() == home.port();
    if home.scheme() == "https" && url.scheme() == "http" && url.host() == home.host() && plain_port
    {
        let upgraded = url
            .set_scheme("https")
            .and_then(|()| url.set_port(home.port()));
        if upgraded.is_err() {
            return Err(url.origin().ascii_serialization());
        }
    }
    if url.origin() == home.origin() && url.username().is_empty() && url.password().is_none() {
        Ok(url)
    } else {
        Err(url.origin().ascii_serialization())
    }
}

/// The target of the link with relation `next` in an array of links: `[{"rel": "next", "href": …}]` as in OGC API Features,
/// or with `relation` and `url` as in FHIR. Of several the first that leads to JSON or does not say where to: the others
/// are the same page for people. `null` is an array without links.
fn linked_next(raw: &str) -> Result<Option<String>, PageFault> {
    let no_links = || PageFault::NotLinks(raw.to_owned());
    let links: Option<Vec<BodyLink>> = serde_json::from_str(raw).map_err(|_| no_links())?;
    let links = links.unwrap_or_default();
    let next = links.iter().filter(|link| {
        let names = link.rel.as_deref().unwrap_or_default();
        names
            .split_ascii_whitespace()
            .any(|name| name.eq_ignore_ascii_case("next"))
    });
    let mut urls = next.clone().filter(|link| link.is_for_us()).chain(next);
    Ok(urls.find_map(|link| link.href.clone().filter(|url| !url.is_empty())))
}

/// One link of a body.
#[derive(serde::Deserialize)]
struct BodyLink {
    #[serde(default, alias = "relation")]
    rel: Option<String>,
    #[serde(default, alias = "url")]
    href: Option<String>,
    #[serde(default, rename = "type")]
    media: Option<String>,
}

impl BodyLink {
    fn is_for_us(&self) -> bool {
        self.media
            .as_deref()
            .is_none_or(|media| media.to_ascii_lowercase().contains("json"))
    }
}

/// The target of the first link with relation `next` about the page itself (RFC 8288 3).
fn next_link(headers: &Headers) -> Option<String> {
    headers
        .lines("link")
        .find_map(|line| next_in_line(&String::from_utf8_lossy(line)))
}

fn next_in_line(line: &str) -> Option<String> {
    let mut rest = line;
    // Targets may hold commas, so a line is walked link by link rather than split.
    while let Some(open) = rest.find('<') {
        let (target, after) = rest[open + 1..].split_once('>')?;
        let end = end_of_parameters(after);
        if is_next(&after[..end]) {
            return Some(target.trim().to_owned());
        }
        rest = &after[end..];
    }
    None
}

fn end_of_parameters(text: &str) -> usize {
    let mut end = text.len();
    let mut first = true;
    split_outside_quotes(text, ',', |part| {
        if std::mem::take(&mut first) {
            end = part.len();
        }
    });
    end
}

fn is_next(parameters: &str) -> bool {
    let (mut relation, mut anchored) = (None, false);
    split_outside_quotes(parameters, ';', |part| {
        if let Some((name, value)) = part.split_once('=') {
            match name.trim().to_ascii_lowercase().as_str() {
                // Only the first counts (RFC 8288 3.3).
                "rel" if relation.is_none() => relation = Some(unquote(value).to_ascii_lowercase()),
                "anchor" => anchored = true,
                _ => {}
            }
        }
    });
    !anchored
        && relation.is_some_and(|names| names.split_ascii_whitespace().any(|name| name == "next"))
}

fn parameter(url: &Url, name: &str) -> Option<String> {
    url.query_pairs()
        .find(|(known, _)| known == name)
        .map(|(_, value)| value.into_owned())
}

fn set(url: &mut Url, name: &str, value: &str) {
    *url = with_parameter(url, name, value);
}

/// Whether there is a page number or an offset behind a link: the next page's URL differs from this one's, which had so many
/// `records`, in a number that went up by one or by those records.
#[must_use]
pub fn looks_counted(page: &Url, next: &Url, records: u64) -> bool {
    let numbers = |url: &Url| -> Vec<(String, u64)> {
        url.query_pairs()
            .filter_map(|(name, value)| Some((name.into_owned(), value.parse().ok()?)))
            .collect()
    };
    let before = numbers(page);
    numbers(next).iter().any(|(name, value)| {
        match before.iter().find(|(known, _)| known == name) {
            Some((_, before)) => value
                .checked_sub(*before)
                .is_some_and(|step| step == 1 || (step == records && records > 1)),
            // The first page often goes without.
            None => (*value == 2 && name.contains("page")) || (*value == records && records > 1),
        }
    })
}

/// `url` with the query parameter `name` set; the others stay where they are, as they were written.
#[must_use]
pub fn with_parameter(url: &Url, name: &str, value: &str) -> Url {
    let encoded: String = url::form_urlencoded::Serializer::new(String::new())
        .append_pair(name, value)
        .finish();
    let is_it = |pair: &str| {
        url::form_urlencoded::parse(pair.as_bytes())
            .next()
            .is_some_and(|(known, _)| known == name)
    };
    let mut pairs: Vec<&str> = url
        .query()
        .unwrap_or("")
        .split('&')
        .filter(|pair| !pair.is_empty() && !is_it(pair))
        .collect();
    pairs.push(&encoded);
    let mut out = url.clone();
    out.set_query(Some(&pairs.join("&")));
    out
}

#[cfg(test)]
mod tests;
