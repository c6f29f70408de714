//! Which event a request is, and of which type.

use std::borrow::Cow;
use std::fmt;

use sha2::{Digest as _, Sha256};

use super::verify::Malformed;
use super::{Place, Received, encoding};
use crate::json::{Json, Kind};

/// What identifies an event: equal for every delivery of it. At most [`EventId::MAX_LEN`] visible ASCII characters.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventId(String);

impl EventId {
    /// The longest, in bytes.
    pub const MAX_LEN: usize = 128;

    /// The id that the sender gave. One that is too long or has other characters is replaced by its digest.
    #[must_use]
    pub fn given(id: &[u8]) -> Self {
        match std::str::from_utf8(id) {
            Ok(text)
                if (1..=Self::MAX_LEN).contains(&id.len())
                    && id.iter().all(u8::is_ascii_graphic)
                    && !text.starts_with("sha256:") =>
            {
                Self(text.to_owned())
            }
            _ => Self::digest("sha256:id:", id),
        }
    }

    /// The id of an event without one: equal bodies are one event.
    #[must_use]
    pub fn of_body(body: &[u8]) -> Self {
        Self::digest("sha256:body:", body)
    }

    fn digest(prefix: &str, bytes: &[u8]) -> Self {
        Self(format!(
            "{prefix}{}",
            encoding::to_hex(&Sha256::digest(bytes))
        ))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The event's id: what the first place holds that holds anything, else the digest of the body.
///
/// # Errors
/// [`Malformed::Twice`]: a header that was to give it is there twice. Whoever added one could else make the digest the id,
/// and one event two.
pub fn id(places: &[Place], request: &Received<'_>) -> Result<EventId, Malformed> {
    let id = first(places, request)?;
    Ok(id.map_or_else(|| EventId::of_body(request.body), |id| EventId::given(&id)))
}

/// The longest type in bytes.
const MAX_KIND: usize = 200;

/// The event's type: what the first place holds that holds text. One that is too long, or is no text, is none.
///
/// # Errors
/// As for [`id`]: it would be none, and nothing would be done.
pub fn kind(places: &[Place], request: &Received<'_>) -> Result<Option<String>, Malformed> {
    let kind = first(places, request)?.and_then(|kind| String::from_utf8(kind.into_owned()).ok());
    let is_kind = |kind: &String| kind.len() <= MAX_KIND && !kind.chars().any(char::is_control);
    Ok(kind.filter(is_kind))
}

/// Whether an event of this type is asked for: `filters` is empty, or one of them is the type, or its start up to a `*`.
/// An event without a type is asked for by an empty list and by `*` alone.
#[must_use]
pub fn is_wanted(filters: &[String], kind: Option<&str>) -> bool {
    filters.is_empty()
        || filters.iter().any(|filter| match filter.strip_suffix('*') {
            Some(start) => kind.unwrap_or_default().starts_with(start),
            None => kind == Some(filter.as_str()),
        })
}

fn first<'a>(places: &[Place], request: &Received<'a>) -> Result<Option<Cow<'a, [u8]>>, Malformed> {
    // A body is JSON or not; it is read once, and only if a place asks.
    let mut json = None;
    for place in places {
        let found = match place {
            Place::Header(name) => {
                let mut lines = request.lines(name);
                match (lines.next(), lines.next()) {
                    (Some(_), Some(_)) => return Err(Malformed::Twice(name.clone())),
                    (value, _) => value.filter(|value| !value.is_empty()).map(Cow::Borrowed),
                }
            }
            Place::Body(pointer) => {
                let json = *json.get_or_insert_with(|| Json::parse(request.body).ok());
                json.and_then(|json| scalar(pointer.find(json)?))
            }
        };
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

/// A string's content or a number's text.
fn scalar(value: Json<'_>) -> Option<Cow<'_, [u8]>> {
    let text = match value.kind() {
        Kind::String => value.string()?,
        Kind::Number => Cow::Borrowed(value.as_str()),
        _ => return None,
    };
    if text.is_empty() {
        return None;
    }
    Some(match text {
        Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
        Cow::Owned(text) => Cow::Owned(text.into_bytes()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pointer::Pointer;

    fn of(places: &[Place], headers: &[(&str, &[u8])], body: &str) -> String {
        let request = Received {
            method: "POST",
            target: "/",
            headers,
            body: body.as_bytes(),
        };
        match id(places, &request) {
            Ok(id) => id.as_str().to_owned(),
            Err(why) => why.to_string(),
        }
    }

    #[test]
    fn the_first_place_that_holds_an_id_gives_it() {
        let places = [
            Place::Header("X-Id".to_owned()),
            Place::Body(Pointer::parse("/a/id").unwrap()),
        ];
        assert_eq!(
            of(&places, &[("x-id", b" e1 ")], "{\"a\":{\"id\":\"e2\"}}"),
            "e1"
        );
        assert_eq!(
            of(&places, &[("x-id", b"")], "{\"a\":{\"id\":\"e2\"}}"),
            "e2"
        );
        assert_eq!(of(&places, &[], "{\"a\":{\"id\":1.50}}"), "1.50");
        // Of two nobody knows which one counts, and nothing else is taken instead.
        assert_eq!(
            of(
                &places,
                &[("x-id", b"1"), ("X-ID", b"2")],
                "{\"a\":{\"id\":3}}"
            ),
            "X-Id is there twice, and nobody knows which one counts"
        );
    }

    #[test]
    fn without_an_id_the_body_is_one() {
        let body = |body: &str| of(&[Place::Body(Pointer::parse("/id").unwrap())], &[], body);
        assert_eq!(body("x"), body("x"));
        assert_ne!(body("x"), body("x\n"));
        for text in [
            "{\"id\":{}}",
            "{\"id\":null}",
            "{\"id\":true}",
            "{\"id\":\"\"}",
            "{}",
            "",
            "{\"id\":\"\\ud800\"}",
        ] {
            assert!(body(text).starts_with("sha256:body:"), "{text}");
        }
    }

    #[test]
    fn an_id_that_is_no_key_is_replaced_by_its_digest() {
        let long = "x".repeat(EventId::MAX_LEN);
        assert_eq!(EventId::given(long.as_bytes()).as_str(), long);
        for id in [
            b"a b".as_slice(),
            b"\xff",
            b"",
            "é".as_bytes(),
            b"sha256:body:00",
            "y".repeat(129).as_bytes(),
        ] {
            let given = EventId::given(id);
            assert!(given.as_str().starts_with("sha256:id:"), "{given}");
            assert!(given.as_str().len() <= EventId::MAX_LEN);
        }
    }

    #[test]
    fn types_are_asked_for_by_name_or_start() {
        let filters = |list: &[&str]| {
            list.iter()
                .map(|text| (*text).to_owned())
                .collect::<Vec<_>>()
        };
        for (list, kind, wanted) in [
            (&[][..], None, true),
            (&["push"], Some("push"), true),
            (&["push"], Some("pushed"), false),
            (&["push"], None, false),
            (&["a", "invoice.*"], Some("invoice.paid"), true),
            (&["invoice.*"], Some("invoice"), false),
            (&["*"], None, true),
        ] {
            assert_eq!(is_wanted(&filters(list), kind), wanted, "{list:?} {kind:?}");
        }
    }
}
