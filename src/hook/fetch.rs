//! The URL that an event leads to: a template with JSON Pointers in braces, such as `parts/{/data/id}`.

use std::fmt;

use url::Url;

use crate::json::{Json, Kind};
use crate::pointer::{Pointer, PointerError};

/// A URL below an upstream's base, with places for values of the event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UrlTemplate(Vec<Piece>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    Value(Pointer),
}

/// Why a text is no template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BadTemplate {
    /// A brace without its partner.
    Brace,
    /// What is in braces is no pointer.
    Pointer(PointerError),
    /// Nothing is in braces, or what is there is the whole event.
    NoValue,
    /// A segment of the path is `.` or `..`.
    Dots,
    /// It does not stay on the upstream's origin, or has a fragment.
    Away,
}

impl fmt::Display for BadTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Brace => f.write_str("has a brace without its partner"),
            Self::Pointer(error) => write!(
                f,
                "has something else than a JSON Pointer in braces: {error}"
            ),
            Self::NoValue => f.write_str("takes no value out of the event"),
            Self::Dots => f.write_str("has a `.` or `..` in its path"),
            Self::Away => f.write_str("leads away from its upstream"),
        }
    }
}

impl std::error::Error for BadTemplate {}

/// Why an event leads nowhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoUrl {
    /// The value is not there.
    Missing(Pointer),
    /// The value is neither text nor a number.
    Kind(Pointer, Kind),
    /// The value is empty.
    Empty(Pointer),
    /// The value is longer than [`MAX_VALUE`].
    TooLong(Pointer),
    /// The value would be a step up in the path.
    Dots(Pointer),
    /// The URL would not be one of the upstream's.
    Away,
}

impl fmt::Display for NoUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(pointer) => write!(f, "the event has no {pointer}"),
            Self::Kind(pointer, kind) => write!(
                f,
                "{pointer} in the event is {kind}, and a URL takes a string or a number"
            ),
            Self::Empty(pointer) => write!(f, "{pointer} in the event is empty"),
            Self::TooLong(pointer) => {
                write!(f, "{pointer} in the event is longer than {MAX_VALUE} bytes")
            }
            Self::Dots(pointer) => write!(
                f,
                "{pointer} in the event would be a step up in the URL's path"
            ),
            Self::Away => f.write_str("the event leads away from its upstream"),
        }
    }
}

impl std::error::Error for NoUrl {}

/// The longest value in bytes that goes into a URL.
pub const MAX_VALUE: usize = 512;

impl UrlTemplate {
    /// Reads a template.
    ///
    /// # Errors
    /// [`BadTemplate`], apart from what only an upstream's base shows: see [`UrlTemplate::stays`].
    pub fn parse(text: &str) -> Result<Self, BadTemplate> {
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some((plain, behind)) = rest.split_once('{') {
            let (pointer, behind) = behind.split_once('}').ok_or(BadTemplate::Brace)?;
            pieces.push(Piece::Text(plain.to_owned()));
            let pointer = Pointer::parse(pointer).map_err(BadTemplate::Pointer)?;
            if pointer.is_root() {
                return Err(BadTemplate::NoValue);
            }
            pieces.push(Piece::Value(pointer));
            rest = behind;
        }
        pieces.push(Piece::Text(rest.to_owned()));
        let texts = || pieces.iter().filter_map(Piece::text);
        if texts().any(|text| text.contains('}')) {
            return Err(BadTemplate::Brace);
        }
        if texts().any(|text| text.contains('#')) {
            return Err(BadTemplate::Away);
        }
        if pieces.len() == 1 {
            return Err(BadTemplate::NoValue);
        }
        let template = Self(pieces);
        if has_dots(&template.with(|_| "x".to_owned())) {
            return Err(BadTemplate::Dots);
        }
        Ok(template)
    }

    /// Whether what it makes stays on the origin of `base`.
    ///
    /// # Errors
    /// [`BadTemplate::Away`].
    pub fn stays(&self, base: &Url) -> Result<(), BadTemplate> {
        below(base, &self.with(|_| "x".to_owned())).map_or(Err(BadTemplate::Away), |_| Ok(()))
    }

    /// The URL of an event, below `base` and never off its origin. Values are percent-encoded but for the unreserved
    /// characters (RFC 3986 2.3), so none is more than a part of one segment or parameter.
    ///
    /// # Errors
    /// [`NoUrl`] says which value is in the way.
    pub fn fill(&self, base: &Url, event: Json<'_>) -> Result<Url, NoUrl> {
        let mut last = None;
        for piece in &self.0 {
            if let Piece::Value(pointer) = piece {
                value(pointer, event)?;
                last = Some(pointer);
            }
        }
        let text = self.with(|pointer| value(pointer, event).unwrap_or_default());
        match last {
            Some(pointer) if has_dots(&text) => {
                let dots = self.values().find(|pointer| {
                    value(pointer, event).is_ok_and(|value| value.bytes().all(|byte| byte == b'.'))
                });
                Err(NoUrl::Dots(dots.unwrap_or(pointer).clone()))
            }
            _ => below(base, &text).ok_or(NoUrl::Away),
        }
    }

    fn values(&self) -> impl Iterator<Item = &Pointer> {
        self.0.iter().filter_map(|piece| match piece {
            Piece::Value(pointer) => Some(pointer),
            Piece::Text(_) => None,
        })
    }

    fn with(&self, mut value: impl FnMut(&Pointer) -> String) -> String {
        self.0
            .iter()
            .map(|piece| match piece {
                Piece::Text(text) => text.clone(),
                Piece::Value(pointer) => value(pointer),
            })
            .collect()
    }
}

impl Piece {
    fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Value(_) => None,
        }
    }
}

impl fmt::Display for UrlTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.with(|pointer| format!("{{{pointer}}}")))
    }
}

/// A value of the event, percent-encoded.
fn value(pointer: &Pointer, event: Json<'_>) -> Result<String, NoUrl> {
    let found = pointer
        .find(event)
        .ok_or_else(|| NoUrl::Missing(pointer.clone()))?;
    let text = match found.kind() {
        Kind::String => found.string(),
        Kind::Number => Some(found.as_str().into()),
        _ => None,
    };
    let text = text.ok_or_else(|| NoUrl::Kind(pointer.clone(), found.kind()))?;
    if text.is_empty() {
        return Err(NoUrl::Empty(pointer.clone()));
    }
    if text.len() > MAX_VALUE {
        return Err(NoUrl::TooLong(pointer.clone()));
    }
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                encoded.push(char::from(byte));
            }
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    Ok(encoded)
}

/// Whether a segment of the path is `.` or `..`, however it is written: a URL's parser takes the one before it away.
fn has_dots(text: &str) -> bool {
    let path = text.split(['?', '#']).next().unwrap_or_default();
    path.split(['/', '\\']).any(|segment| {
        let plain = segment.to_ascii_lowercase().replace("%2e", ".");
        matches!(plain.as_str(), "." | "..")
    })
}

fn below(base: &Url, text: &str) -> Option<Url> {
    let url = base.join(text).ok()?;
    let is_plain =
        url.username().is_empty() && url.password().is_none() && url.fragment().is_none();
    (url.origin() == base.origin() && is_plain).then_some(url)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn base() -> Url {
        Url::parse("https://erp.example/api/").unwrap()
    }

    fn filled(template: &str, event: &str) -> Result<String, String> {
        let template = UrlTemplate::parse(template).map_err(|error| error.to_string())?;
        template.stays(&base()).map_err(|error| error.to_string())?;
        let event = Json::parse(event.as_bytes()).unwrap();
        let url = template
            .fill(&base(), event)
            .map_err(|error| error.to_string())?;
        Ok(url.into())
    }

    #[test]
    fn values_become_parts_of_the_url() {
        for (template, event, url) in [
            ("parts/{/id}", r#"{"id":"p-1"}"#, "parts/p-1"),
            ("parts/{/id}", r#"{"id":12}"#, "parts/12"),
            ("{/a}/{/b}.json", r#"{"a":1,"b":"x"}"#, "1/x.json"),
            (
                "parts?id={/id}&full=1",
                r#"{"id":"a&b=c"}"#,
                "parts?id=a%26b%3Dc&full=1",
            ),
            ("parts/{/id}", r#"{"id":"a/b?c#d"}"#, "parts/a%2Fb%3Fc%23d"),
            (
                "parts/{/id}",
                r#"{"id":"../../secret"}"#,
                "parts/..%2F..%2Fsecret",
            ),
            ("parts/{/id}", r#"{"id":"%2e%2e"}"#, "parts/%252e%252e"),
            ("parts/{/id}", r#"{"id":"é ü"}"#, "parts/%C3%A9%20%C3%BC"),
            ("parts/{/id}", r#"{"id":"..."}"#, "parts/..."),
            (
                "{/url}",
                r#"{"url":"https://evil.example/x"}"#,
                "https%3A%2F%2Fevil.example%2Fx",
            ),
            (
                "{/url}",
                r#"{"url":"//evil.example"}"#,
                "%2F%2Fevil.example",
            ),
            (
                "{/url}",
                r#"{"url":"\\\\evil.example"}"#,
                "%5C%5Cevil.example",
            ),
        ] {
            let full = format!("https://erp.example/api/{url}");
            assert_eq!(filled(template, event), Ok(full), "{template} {event}");
        }
    }

    #[test]
    fn what_leads_nowhere_says_why() {
        for (event, why) in [
            ("{}", "the event has no /id"),
            ("[]", "the event has no /id"),
            (r#"{"id":""}"#, "/id in the event is empty"),
            (
                r#"{"id":null}"#,
                "/id in the event is null, and a URL takes a string or a number",
            ),
            (
                r#"{"id":{"a":1}}"#,
                "/id in the event is an object, and a URL takes a string or a number",
            ),
            (
                r#"{"id":[1]}"#,
                "/id in the event is an array, and a URL takes a string or a number",
            ),
            (
                r#"{"id":true}"#,
                "/id in the event is a boolean, and a URL takes a string or a number",
            ),
            (
                r#"{"id":".."}"#,
                "/id in the event would be a step up in the URL's path",
            ),
            (
                r#"{"id":"."}"#,
                "/id in the event would be a step up in the URL's path",
            ),
        ] {
            assert_eq!(filled("parts/{/id}", event), Err(why.to_owned()), "{event}");
        }
        let long = format!("{{\"id\":\"{}\"}}", "x".repeat(MAX_VALUE + 1));
        assert_eq!(
            filled("{/id}", &long),
            Err("/id in the event is longer than 512 bytes".to_owned())
        );
        // Two halves of a step up.
        let halves = r#"{"a":".","b":"."}"#;
        assert!(filled("parts/{/a}{/b}", halves).is_err());
        assert!(filled("parts/{/a}%2E", halves).is_err());
    }

    #[test]
    fn a_template_is_checked_before_any_event() {
        for (template, why) in [
            ("parts", "takes no value out of the event"),
            ("parts/{}", "takes no value out of the event"),
            ("parts/{/id", "has a brace without its partner"),
            ("parts/}{/id}", "has a brace without its partner"),
            ("../{/id}", "has a `.` or `..` in its path"),
            ("a/%2E%2e/{/id}", "has a `.` or `..` in its path"),
            ("https://evil.example/{/id}", "leads away from its upstream"),
            ("//evil.example/{/id}", "leads away from its upstream"),
            ("http://erp.example/{/id}", "leads away from its upstream"),
            ("https://erp.example{/id}", "leads away from its upstream"),
            (
                "https://u@erp.example/{/id}",
                "leads away from its upstream",
            ),
            ("a#{/id}", "leads away from its upstream"),
        ] {
            assert_eq!(filled(template, "{}"), Err(why.to_owned()), "{template}");
        }
        assert!(UrlTemplate::parse("a/{id}").is_err());
    }

    proptest! {
        #[test]
        fn whatever_the_event_says_the_url_stays(value in "[./\\\\@:?#%a-z\\u{0}-\\u{20}é]{1,12}", template in "[a-z/?=]{0,6}\\{/v\\}[a-z./?=]{0,6}") {
            let Ok(template) = UrlTemplate::parse(&template) else { return Ok(()) };
            prop_assume!(template.stays(&base()).is_ok());
            let event = serde_json::json!({ "v": value }).to_string();
            if let Ok(url) = template.fill(&base(), Json::parse(event.as_bytes()).unwrap()) {
                prop_assert_eq!(url.origin(), base().origin());
                let plain = template.fill(&base(), Json::parse(b"{\"v\":\"x\"}").unwrap()).unwrap();
                let segments = |url: &Url| url.path().matches('/').count();
                prop_assert_eq!(segments(&url), segments(&plain));
                prop_assert_eq!(url.query().is_some(), plain.query().is_some());
            }
        }

        #[test]
        fn what_is_printed_reads_the_same(text in "[a-z/?=]{0,6}\\{/[a-z~01/]{0,5}\\}[a-z./?=]{0,6}") {
            if let Ok(template) = UrlTemplate::parse(&text) {
                prop_assert_eq!(UrlTemplate::parse(&template.to_string()), Ok(template));
            }
        }
    }
}
