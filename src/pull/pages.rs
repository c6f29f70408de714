//! One page's answer → the next request. Pure.
//!
//! The end of a listing is decided on raw counts and the API's own signal, never on a page that came out shorter than
//! asked for: servers cap page sizes and filter behind them.

use std::fmt;

use url::Url;

use crate::config::{PageSize, Pages};
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
    /// The value there is neither text nor a number.
    NotAToken(String),
    /// The API says that there is more, and not where.
    MoreWithoutToken,
    /// It was asked for in this pass already.
    Repeats(String),
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
            Self::NotAToken(text) => write!(
                f,
                "the next page's token is neither text nor a number: {text:.60}"
            ),
            Self::MoreWithoutToken => {
                f.write_str("the upstream says that there is more, but not where")
            }
            Self::Repeats(page) => write!(f, "the listing goes in a circle: {page} comes again"),
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
            Self::Next(pointer) => (Some(pointer), None),
            Self::Token { token, more, .. } => (Some(token), more.as_ref()),
            Self::Page { more, .. } | Self::Offset { more, .. } | Self::LastKey { more, .. } => {
                (None, more.as_ref())
            }
        };
        token.into_iter().chain(more).cloned().collect()
    }

    /// Whether records may move from one page to another while the pass goes on, so that one listing alone does not
    /// prove an absence. Only a listing that goes by the records' own keys cannot; behind a link or a token there may be
    /// an offset.
    #[must_use]
    pub fn moves(&self) -> bool {
        !matches!(self, Self::Single | Self::LastKey { .. })
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
            Self::Next(pointer) => match token(facts, pointer) {
                Ok(url) => follow(facts, url),
                Err(fault) => Next::Broken(fault),
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
                        Ok(Some(key)) => Next::Page(replaced(facts.asked, param, &key)),
                        Ok(None) | Err(_) => Next::Broken(PageFault::NotAToken(key.to_owned())),
                    },
                }
            }
        }
    }
}

/// Page numbers and offsets: on until the API says that there is no more, or until a page is empty.
fn counted(
    facts: &PageFacts<'_>,
    more: Option<&Pointer>,
    step: impl Fn() -> (String, u64),
) -> Next {
    match says_more(facts, more) {
        Some(false) => Next::End(End::NoMore),
        None if facts.records == 0 => Next::End(End::EmptyPage),
        Some(true) if facts.records == 0 => Next::Broken(PageFault::MoreWithoutToken),
        _ => {
            let (param, value) = step();
            Next::Page(replaced(facts.asked, &param, &value.to_string()))
        }
    }
}

fn with_token(
    facts: &PageFacts<'_>,
    param: &str,
    token: Option<String>,
    more: Option<&Pointer>,
) -> Next {
    match (says_more(facts, more), token) {
        (Some(false), _) => Next::End(End::NoMore),
        (Some(true), None) => Next::Broken(PageFault::MoreWithoutToken),
        (None, None) => Next::End(End::NoNext),
        (_, Some(token)) => Next::Page(replaced(facts.asked, param, &token)),
    }
}

/// The API's flag, if it is configured and there: `false`, `0`, `""` and `null` are no, anything else is yes.
fn says_more(facts: &PageFacts<'_>, more: Option<&Pointer>) -> Option<bool> {
    let raw = (facts.found)(more?)?;
    Some(!matches!(
        raw.trim(),
        "false" | "0" | "\"\"" | "null" | "\"false\""
    ))
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
    *url = replaced(url, name, value);
}

/// `url` with the query parameter `name` set; the others stay where they are, as they were written.
fn replaced(url: &Url, name: &str, value: &str) -> Url {
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
mod tests {
    use super::*;

    fn p(text: &str) -> Pointer {
        Pointer::parse(text).unwrap()
    }

    struct Page<'a> {
        asked: &'a str,
        headers: &'a [(&'a str, &'a str)],
        body: &'a str,
        records: u64,
        last: Option<&'a str>,
    }

    const PAGE: Page<'_> = Page {
        asked: "https://a.example/v1/parts?x=1",
        headers: &[],
        body: "{}",
        records: 2,
        last: None,
    };

    fn next(pages: &Pages, page: &Page<'_>) -> String {
        let headers = page
            .headers
            .iter()
            .fold(Headers::new(), |all, (name, value)| all.with(name, value));
        let body: serde_json::Value = serde_json::from_str(page.body).unwrap();
        let facts = PageFacts {
            asked: &Url::parse(page.asked).unwrap(),
            headers: &headers,
            found: &|pointer| body.pointer(&pointer.to_string()).map(ToString::to_string),
            records: page.records,
            last_key: page.last,
        };
        match pages.next(&facts) {
            Next::Page(url) => url.to_string(),
            Next::End(end) => format!("end: {end:?}"),
            Next::Broken(fault) => format!("broken: {fault}"),
        }
    }

    #[test]
    fn link_headers_as_servers_write_them() {
        let table: &[(&[(&str, &str)], &str)] = &[
            (&[], "end: NoNext"),
            (
                &[("Link", "<https://a.example/v1/parts?page=2>; rel=\"next\"")],
                "https://a.example/v1/parts?page=2",
            ),
            (
                &[(
                    "link",
                    "</v1/parts?page=1>; rel=prev, </v1/parts?page=3>; rel=next",
                )],
                "https://a.example/v1/parts?page=3",
            ),
            (
                &[("link", "<?page=3>; REL=\"Prev Next\"")],
                "https://a.example/v1/parts?page=3",
            ),
            (
                &[
                    ("link", "<?a=1,2>; rel=prev"),
                    ("link", "<?a=3,4>;title=\"a, <b>; rel=x\";rel=next"),
                ],
                "https://a.example/v1/parts?a=3,4",
            ),
            (&[("link", "<?page=3>; rel=prev; rel=next")], "end: NoNext"),
            (
                &[("link", "<?page=3>; rel=next; anchor=\"/other\"")],
                "end: NoNext",
            ),
            (&[("link", "<?page=3>; rel=nextish")], "end: NoNext"),
            (&[("link", "<?page=3")], "end: NoNext"),
            (
                &[("link", "<https://b.example/x>; rel=next")],
                "broken: the next page would be on another origin (https://b.example), which is not followed",
            ),
            (
                &[("link", "<http://a.example/x>; rel=next")],
                "https://a.example/x",
            ),
            (
                &[("link", "<http://a.example:8080/x>; rel=next")],
                "broken: the next page would be on another origin (http://a.example:8080), which is not followed",
            ),
            (
                &[("link", "<https://u:p@a.example/x>; rel=next")],
                "broken: the next page would be on another origin (https://a.example), which is not followed",
            ),
        ];
        for (headers, expected) in table {
            assert_eq!(
                next(&Pages::Link, &Page { headers, ..PAGE }),
                *expected,
                "{headers:?}"
            );
        }
    }

    #[test]
    fn next_urls_and_tokens_in_the_body() {
        let url = Pages::Next(p("/links/next"));
        for (body, expected) in [
            (
                r#"{"links":{"next":"/v1/parts?c=2"}}"#,
                "https://a.example/v1/parts?c=2",
            ),
            (
                r#"{"links":{"next":"?filter[x]=a|b c"}}"#,
                "https://a.example/v1/parts?filter[x]=a|b%20c",
            ),
            (r#"{"links":{"next":null}}"#, "end: NoNext"),
            (r#"{"links":{"next":""}}"#, "end: NoNext"),
            (r#"{"links":{"next":false}}"#, "end: NoNext"),
            (r#"{"links":{}}"#, "end: NoNext"),
            (
                r#"{"links":{"next":{"href":"x"}}}"#,
                "broken: the next page's token is neither text nor a number: {\"href\":\"x\"}",
            ),
            (
                r#"{"links":{"next":"https://"}}"#,
                "broken: what should be the next page's URL is none",
            ),
        ] {
            assert_eq!(next(&url, &Page { body, ..PAGE }), expected, "{body}");
        }
        let token = Pages::Token {
            token: p("/next"),
            param: "cursor".into(),
            more: Some(p("/more")),
        };
        for (body, expected) in [
            (
                r#"{"next":"a b&c=1"}"#,
                "https://a.example/v1/parts?x=1&cursor=a+b%26c%3D1",
            ),
            (
                r#"{"next":9007199254740993}"#,
                "https://a.example/v1/parts?x=1&cursor=9007199254740993",
            ),
            (r#"{"next":0}"#, "https://a.example/v1/parts?x=1&cursor=0"),
            (r#"{"next":"a","more":false}"#, "end: NoMore"),
            (
                r#"{"next":null,"more":true}"#,
                "broken: the upstream says that there is more, but not where",
            ),
            (r#"{"next":null}"#, "end: NoNext"),
        ] {
            assert_eq!(next(&token, &Page { body, ..PAGE }), expected, "{body}");
        }
        let asked = "https://a.example/v1/parts?cursor=a&x=1";
        assert_eq!(
            next(
                &token,
                &Page {
                    asked,
                    body: r#"{"next":"b"}"#,
                    ..PAGE
                }
            ),
            "https://a.example/v1/parts?x=1&cursor=b"
        );
        // An empty page in the middle that names its next one is no end.
        assert_eq!(
            next(
                &token,
                &Page {
                    records: 0,
                    body: r#"{"next":"b"}"#,
                    ..PAGE
                }
            ),
            "https://a.example/v1/parts?x=1&cursor=b"
        );
    }

    #[test]
    fn tokens_and_urls_in_headers() {
        let token = Pages::TokenHeader {
            header: "X-Next".into(),
            param: "cursor".into(),
        };
        assert_eq!(
            next(
                &token,
                &Page {
                    headers: &[("x-next", "q")],
                    ..PAGE
                }
            ),
            "https://a.example/v1/parts?x=1&cursor=q"
        );
        assert_eq!(next(&token, &PAGE), "end: NoNext");
        let url = Pages::NextHeader("Next-Page".into());
        assert_eq!(
            next(
                &url,
                &Page {
                    headers: &[("next-page", "/v1/parts?_token=9")],
                    ..PAGE
                }
            ),
            "https://a.example/v1/parts?_token=9"
        );
        assert_eq!(
            next(
                &url,
                &Page {
                    headers: &[("next-page", "")],
                    ..PAGE
                }
            ),
            "end: NoNext"
        );
    }

    #[test]
    fn counted_pages_end_with_an_empty_one_not_with_a_short_one() {
        let size = PageSize {
            param: "per_page".into(),
            value: 100,
        };
        let pages = Pages::Page {
            param: "page".into(),
            first: 1,
            size: Some(size.clone()),
            more: None,
        };
        assert_eq!(
            pages
                .first(&Url::parse("https://a.example/p?x=1").unwrap())
                .as_str(),
            "https://a.example/p?x=1&page=1&per_page=100"
        );
        let asked = "https://a.example/p?x=1&page=1&per_page=100";
        assert_eq!(
            next(
                &pages,
                &Page {
                    asked,
                    records: 30,
                    ..PAGE
                }
            ),
            "https://a.example/p?x=1&per_page=100&page=2"
        );
        assert_eq!(
            next(
                &pages,
                &Page {
                    asked,
                    records: 0,
                    ..PAGE
                }
            ),
            "end: EmptyPage"
        );

        let offset = Pages::Offset {
            param: "offset".into(),
            size,
            more: Some(p("/more")),
        };
        let asked = "https://a.example/p?per_page=100&offset=60";
        // The server gave 30 where 100 were asked for: the offset goes by what came.
        assert_eq!(
            next(
                &offset,
                &Page {
                    asked,
                    records: 30,
                    ..PAGE
                }
            ),
            "https://a.example/p?per_page=100&offset=90"
        );
        assert_eq!(
            next(
                &offset,
                &Page {
                    asked,
                    records: 30,
                    body: r#"{"more":false}"#,
                    ..PAGE
                }
            ),
            "end: NoMore"
        );
        assert_eq!(
            next(
                &offset,
                &Page {
                    asked,
                    records: 0,
                    body: r#"{"more":true}"#,
                    ..PAGE
                }
            ),
            "broken: the upstream says that there is more, but not where"
        );
    }

    #[test]
    fn the_last_key_starts_the_next_page() {
        let pages = Pages::LastKey {
            key: p("/id"),
            param: "starting_after".into(),
            more: Some(p("/has_more")),
        };
        let more = r#"{"has_more":true}"#;
        assert_eq!(
            next(
                &pages,
                &Page {
                    last: Some("\"ev_1\""),
                    body: more,
                    ..PAGE
                }
            ),
            "https://a.example/v1/parts?x=1&starting_after=ev_1"
        );
        assert_eq!(
            next(
                &pages,
                &Page {
                    last: Some("7"),
                    ..PAGE
                }
            ),
            "https://a.example/v1/parts?x=1&starting_after=7"
        );
        assert_eq!(
            next(
                &pages,
                &Page {
                    last: Some("7"),
                    body: r#"{"has_more":false}"#,
                    ..PAGE
                }
            ),
            "end: NoMore"
        );
        assert_eq!(next(&pages, &Page { records: 0, ..PAGE }), "end: EmptyPage");
        assert_eq!(
            next(
                &pages,
                &Page {
                    records: 0,
                    body: more,
                    ..PAGE
                }
            ),
            "broken: the upstream says that there is more, but not where"
        );
    }
}
