//! Which record it is.

use std::fmt;

use crate::json::number::Decimal;
use crate::json::{Json, Kind, Piece, pieces};
use crate::pointer::Pointer;
use crate::record::RecordKey;

/// The key of `record`: the canonical text of what the one pointer points at, or of the array of what several do.
///
/// # Errors
///
/// [`BadKey`] names the pointer and what is there instead of a string or an integer. An empty string is no key.
pub fn key_of(record: Json<'_>, pointers: &[Pointer]) -> Result<RecordKey, BadKey> {
    let scalar = |pointer: &Pointer| {
        pointer
            .find(record)
            .ok_or(Found::Nothing)
            .and_then(canonical_scalar)
            .map_err(|found| BadKey {
                pointer: pointer.clone(),
                found,
            })
    };
    let (first, text) = match pointers {
        [] => (&Pointer::root(), None),
        [single] => {
            let text = scalar(single)?;
            // Alone it becomes the text of a column, which half a surrogate pair cannot be.
            if pointer_text_is_broken(single, record) {
                return Err(BadKey {
                    pointer: single.clone(),
                    found: Found::HalfSurrogate,
                });
            }
            (single, Some(text))
        }
        [first, ..] => {
            let parts = pointers.iter().map(scalar).collect::<Result<Vec<_>, _>>()?;
            (first, Some(format!("[{}]", parts.join(","))))
        }
    };
    let found = match text {
        None => Found::Nothing,
        Some(text) => match RecordKey::from_canonical(&text) {
            Some(key) => return Ok(key),
            None => Found::TooLong,
        },
    };
    Err(BadKey {
        pointer: first.clone(),
        found,
    })
}

/// What kinds of keys there are among records: an API that writes a number here and the same in quotes there has each of
/// them twice.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct KeyKinds {
    numbers: bool,
    strings: bool,
}

impl KeyKinds {
    /// One more key. Those of several parts do not count.
    pub fn note(&mut self, key: &RecordKey) {
        match key.as_bytes().first() {
            Some(b'"') => self.strings = true,
            Some(b'[') | None => {}
            Some(_) => self.numbers = true,
        }
    }

    /// There are numbers and strings.
    #[must_use]
    pub fn are_mixed(self) -> bool {
        self.numbers && self.strings
    }
}

fn pointer_text_is_broken(pointer: &Pointer, record: Json<'_>) -> bool {
    pointer
        .find(record)
        .is_some_and(|value| value.kind() == Kind::String && value.string().is_none())
}

/// The one way to write a key's value: a string with as few escapes as can be, an integer in plain digits (`1.0` is 1,
/// `1e3` is 1000).
///
/// # Errors
///
/// What it is, if it is neither, or too long for a [`RecordKey`].
pub fn canonical_scalar(value: Json<'_>) -> Result<String, Found> {
    match value.kind() {
        Kind::String => match value.string_inner() {
            None | Some("") => Err(Found::EmptyString),
            Some(inner) => Ok(canonical_string(inner)),
        },
        Kind::Number => {
            let number = Decimal::parse(value.as_str());
            match number {
                Some(number) if number.is_integer() => number
                    .integer_text(RecordKey::MAX_LEN)
                    .ok_or(Found::TooLong),
                _ => Err(Found::Fraction),
            }
        }
        kind => Err(Found::Kind(kind)),
    }
}

/// Writes a string's content with as few escapes as JSON allows (as RFC 8785, section 3.2.2.2, does).
fn canonical_string(inner: &str) -> String {
    let mut text = String::with_capacity(inner.len() + 2);
    text.push('"');
    for piece in pieces(inner) {
        match piece {
            Piece::Plain(plain) => text.push_str(plain),
            Piece::Char('"') => text.push_str("\\\""),
            Piece::Char('\\') => text.push_str("\\\\"),
            Piece::Char('\u{8}') => text.push_str("\\b"),
            Piece::Char('\t') => text.push_str("\\t"),
            Piece::Char('\n') => text.push_str("\\n"),
            Piece::Char('\u{c}') => text.push_str("\\f"),
            Piece::Char('\r') => text.push_str("\\r"),
            Piece::Char(char) if char < ' ' => {
                text.push_str(&format!("\\u{:04x}", u32::from(char)))
            }
            Piece::Char(char) => text.push(char),
            Piece::Lone(unit) => text.push_str(&format!("\\u{unit:04x}")),
        }
    }
    text.push('"');
    text
}

/// A record without a usable key. Its `Display` reads like `key /id: expected a string or an integer, found null`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BadKey {
    /// Which pointer.
    pub pointer: Pointer,
    /// What is there.
    pub found: Found,
}

impl fmt::Display for BadKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pointer, found } = self;
        if pointer.is_root() {
            f.write_str("key: ")?;
        } else {
            write!(f, "key {pointer}: ")?;
        }
        match found {
            Found::TooLong => write!(f, "longer than {} bytes", RecordKey::MAX_LEN),
            _ => write!(f, "expected a string or an integer, found {found}"),
        }
    }
}

impl std::error::Error for BadKey {}

/// What is where a key should be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Found {
    /// Nothing.
    Nothing,
    /// A string without content.
    EmptyString,
    /// A number that is not whole.
    Fraction,
    /// A value of another kind.
    Kind(Kind),
    /// A string with half a surrogate pair.
    HalfSurrogate,
    /// A key longer than [`RecordKey::MAX_LEN`].
    TooLong,
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("nothing"),
            Self::EmptyString => f.write_str("an empty string"),
            Self::HalfSurrogate => f.write_str("a string with half a surrogate pair"),
            Self::Fraction => f.write_str("a number that is not whole"),
            Self::Kind(kind) => kind.fmt(f),
            Self::TooLong => f.write_str("something too long"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(pointers: &[&str], record: &str) -> Result<String, String> {
        let pointers: Vec<_> = pointers
            .iter()
            .map(|text| Pointer::parse(text).unwrap())
            .collect();
        key_of(Json::parse(record.as_bytes()).unwrap(), &pointers)
            .map(|key| key.to_string())
            .map_err(|bad| bad.to_string())
    }

    #[test]
    fn strings_and_integers_are_keys_each_in_one_spelling() {
        let table = [
            (r#"{"id":"a"}"#, r#""a""#),
            (r#"{"id":"\u0061"}"#, r#""a""#),
            (r#"{"id":"7"}"#, r#""7""#),
            (r#"{"id":7}"#, "7"),
            (r#"{"id":7.0}"#, "7"),
            (r#"{"id":1e3}"#, "1000"),
            (r#"{"id":-0}"#, "0"),
            (r#"{"id":-12e0}"#, "-12"),
            (r#"{"id":9007199254740993}"#, "9007199254740993"),
            (
                r#"{"id":123456789012345678901234567890}"#,
                "123456789012345678901234567890",
            ),
            (
                r#"{"id":"\/\"\\\b\f\n\r\t\u0001\u001F\u007f"}"#,
                "\"/\\\"\\\\\\b\\f\\n\\r\\t\\u0001\\u001f\u{7f}\"",
            ),
            (r#"{"id":"\u00e9\uD83D\uDE00é"}"#, "\"é😀é\""),
            (r#"{"id":" "}"#, r#"" ""#),
        ];
        for (record, text) in table {
            assert_eq!(key(&["/id"], record).as_deref(), Ok(text), "{record}");
        }
    }

    #[test]
    fn half_a_surrogate_pair_is_no_text_and_so_no_key_of_its_own() {
        for id in [r#""\uD83D""#, r#""\ude00\ud83dx""#] {
            let error = key(&["/id"], &format!("{{\"id\":{id}}}")).unwrap_err();
            assert!(error.contains("half a surrogate pair"), "{error}");
            assert!(key(&["/id", "/n"], &format!("{{\"id\":{id},\"n\":1}}")).is_ok());
        }
    }

    #[test]
    fn a_canonical_key_is_json_and_its_own_key() {
        for id in [r#""a\"\\\u0000é""#, "12e2", r#""\ud800""#] {
            let one = canonical_scalar(Json::parse(id.as_bytes()).unwrap()).unwrap();
            let two = canonical_scalar(Json::parse(one.as_bytes()).unwrap()).unwrap();
            assert_eq!(one, two);
        }
    }

    #[test]
    fn several_pointers_make_an_array() {
        let record = r#"{"site":"n\u006f\"","no":1.0,"deep":{"x":[2]}}"#;
        assert_eq!(
            key(&["/site", "/no", "/deep/x/0"], record).as_deref(),
            Ok(r#"["no\"",1,2]"#)
        );
        assert_eq!(
            key(&["/site", "/none"], record),
            Err("key /none: expected a string or an integer, found nothing".to_owned())
        );
        assert_eq!(key(&[""], "5").as_deref(), Ok("5"));
    }

    #[test]
    fn anything_else_is_named() {
        let long = format!(r#"{{"id":"{}"}}"#, "x".repeat(511));
        let table = [
            ("{}", "expected a string or an integer, found nothing"),
            (
                r#"{"id":null}"#,
                "expected a string or an integer, found null",
            ),
            (
                r#"{"id":true}"#,
                "expected a string or an integer, found a boolean",
            ),
            (
                r#"{"id":{}}"#,
                "expected a string or an integer, found an object",
            ),
            (
                r#"{"id":[1]}"#,
                "expected a string or an integer, found an array",
            ),
            (
                r#"{"id":1.5}"#,
                "expected a string or an integer, found a number that is not whole",
            ),
            (
                r#"{"id":1e-99999999999999999999}"#,
                "expected a string or an integer, found a number that is not whole",
            ),
            (
                r#"{"id":""}"#,
                "expected a string or an integer, found an empty string",
            ),
            (r#"{"id":1e512}"#, "longer than 512 bytes"),
            (r#"{"id":1e99999999999999999999}"#, "longer than 512 bytes"),
            (&long, "longer than 512 bytes"),
        ];
        for (record, message) in table {
            assert_eq!(
                key(&["/id"], record),
                Err(format!("key /id: {message}")),
                "{record}"
            );
        }
        let longest = format!(r#"{{"id":"{}"}}"#, "x".repeat(510));
        assert!(key(&["/id"], &longest).is_ok());
        assert!(key(&["/id"], r#"{"id":1e511}"#).is_ok());
    }
}
