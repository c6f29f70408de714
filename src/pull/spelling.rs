//! Which keys a person may mean by what he writes. Pure.
//!
//! `42` may be the number or the text of the same digits, which are two keys. What is meant is read as JSON first, then as
//! plain text; for a key of several parts, as a JSON array whose parts may each be either.

use std::fmt;

use super::key::{Found, canonical_scalar};
use crate::json::{Json, Kind};
use crate::pointer::Pointer;
use crate::record::RecordKey;

/// Parts that may be a number or a text: each doubles the spellings.
const MOST_DOUBTFUL: usize = 4;

/// What is written is no key of the source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoKey {
    /// Nothing is written.
    Empty,
    /// The key has several parts.
    NoArray {
        /// Where they are in a record.
        parts: Vec<String>,
    },
    /// A part is not what a key can be.
    Part {
        /// Which, from 1; 0 for a key of one part.
        number: usize,
        /// What it is.
        found: Found,
    },
    /// Longer than a key can be.
    TooLong,
}

impl fmt::Display for NoKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("an empty text is no key"),
            Self::NoArray { parts } => write!(
                f,
                "the key has {} parts ({}): write them as a JSON array, such as '[\"a\",1]'",
                parts.len(),
                parts.join(", ")
            ),
            Self::Part { number: 0, found } => {
                write!(f, "expected a string or an integer, found {found}")
            }
            Self::Part { number, found } => write!(
                f,
                "part {number} is no key's: expected a string or an integer, found {found}"
            ),
            Self::TooLong => write!(f, "longer than {} bytes", RecordKey::MAX_LEN),
        }
    }
}

impl std::error::Error for NoKey {}

/// The keys that `written` may mean in a source whose key is at `pointers`: what it is as JSON first.
///
/// # Errors
/// It can be no key at all.
pub fn spellings(written: &str, pointers: &[Pointer]) -> Result<Vec<RecordKey>, NoKey> {
    if pointers.len() > 1 {
        return composite(written, pointers);
    }
    if written.is_empty() {
        return Err(NoKey::Empty);
    }
    let json = Json::parse(written.as_bytes()).ok();
    let as_json = json.and_then(|json| canonical_scalar(json).ok());
    let as_text = text(written).map_err(|found| NoKey::Part { number: 0, found })?;
    keys(as_json.into_iter().chain([as_text]))
}

fn composite(written: &str, pointers: &[Pointer]) -> Result<Vec<RecordKey>, NoKey> {
    let no_array = || NoKey::NoArray {
        parts: pointers.iter().map(ToString::to_string).collect(),
    };
    let parts: Vec<&serde_json::value::RawValue> =
        serde_json::from_str(written).map_err(|_| no_array())?;
    if parts.len() != pointers.len() {
        return Err(no_array());
    }
    let mut all = vec![String::from("[")];
    let mut doubtful = 0;
    for (at, part) in parts.iter().enumerate() {
        let trouble = |found| NoKey::Part {
            number: at + 1,
            found,
        };
        let json = Json::parse(part.get().as_bytes()).map_err(|_| no_array())?;
        let mut ways = vec![canonical_scalar(json).map_err(trouble)?];
        if let Some(other) = other_kind(json).filter(|_| doubtful < MOST_DOUBTFUL) {
            doubtful += 1;
            ways.push(other);
        }
        let comma = if at == 0 { "" } else { "," };
        let begun = std::mem::take(&mut all);
        for way in &ways {
            all.extend(begun.iter().map(|start| format!("{start}{comma}{way}")));
        }
    }
    keys(all.into_iter().map(|text| text + "]"))
}

/// The number for a text of digits, the text of a number's digits.
fn other_kind(json: Json<'_>) -> Option<String> {
    match json.kind() {
        Kind::Number => text(json.as_str()).ok(),
        Kind::String => {
            let inner = json.string()?;
            let other = Json::parse(inner.as_bytes()).ok()?;
            (other.kind() == Kind::Number)
                .then(|| canonical_scalar(other).ok())
                .flatten()
        }
        _ => None,
    }
}

/// A text's canonical form.
fn text(plain: &str) -> Result<String, Found> {
    let quoted = serde_json::Value::String(plain.to_owned()).to_string();
    Json::parse(quoted.as_bytes())
        .map_err(|_| Found::EmptyString)
        .and_then(canonical_scalar)
}

fn keys(texts: impl Iterator<Item = String>) -> Result<Vec<RecordKey>, NoKey> {
    let mut keys = Vec::new();
    for text in texts {
        let key = RecordKey::from_canonical(&text).ok_or(NoKey::TooLong)?;
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    Ok(keys)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::pull::key::key_of;

    fn pointers(texts: &[&str]) -> Vec<Pointer> {
        texts
            .iter()
            .map(|text| Pointer::parse(text).unwrap())
            .collect()
    }

    fn read(written: &str, key: &[&str]) -> Result<Vec<String>, String> {
        spellings(written, &pointers(key))
            .map(|keys| keys.iter().map(ToString::to_string).collect())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn json_first_then_plain_text() {
        let table: [(&str, &[&str]); 11] = [
            ("42", &["42", "\"42\""]),
            ("\"42\"", &["\"42\"", "\"\\\"42\\\"\""]),
            ("abc", &["\"abc\""]),
            ("1.0", &["1", "\"1.0\""]),
            ("1.5", &["\"1.5\""]),
            ("-0", &["0", "\"-0\""]),
            ("true", &["\"true\""]),
            ("null", &["\"null\""]),
            ("[\"a\",1]", &["\"[\\\"a\\\",1]\""]),
            ("é", &["\"é\""]),
            (
                "123456789012345678901234567890",
                &[
                    "123456789012345678901234567890",
                    "\"123456789012345678901234567890\"",
                ],
            ),
        ];
        for (written, keys) in table {
            let keys = keys.iter().map(ToString::to_string).collect();
            assert_eq!(read(written, &["/id"]), Ok(keys), "{written}");
        }
    }

    #[test]
    fn parts_may_each_be_either() {
        let table: [(&str, &[&str]); 3] = [
            ("[\"a\", 1]", &["[\"a\",1]", "[\"a\",\"1\"]"]),
            ("[\"a\",\"b\"]", &["[\"a\",\"b\"]"]),
            (
                "[1,\"2\"]",
                &["[1,\"2\"]", "[\"1\",\"2\"]", "[1,2]", "[\"1\",2]"],
            ),
        ];
        for (written, keys) in table {
            let keys = keys.iter().map(ToString::to_string).collect();
            assert_eq!(read(written, &["/a", "/b"]), Ok(keys), "{written}");
        }
    }

    #[test]
    fn what_is_no_key_is_said() {
        let parts = "the key has 2 parts (/a, /b): write them as a JSON array, such as '[\"a\",1]'";
        let long = "x".repeat(600);
        let table: [(&str, &[&str], &str); 7] = [
            ("", &["/id"], "an empty text is no key"),
            (&long, &["/id"], "longer than 512 bytes"),
            ("a", &["/a", "/b"], parts),
            ("[1]", &["/a", "/b"], parts),
            ("{}", &["/a", "/b"], parts),
            (
                "[1,null]",
                &["/a", "/b"],
                "part 2 is no key's: expected a string or an integer, found null",
            ),
            (
                "[1.5,1]",
                &["/a", "/b"],
                "part 1 is no key's: expected a string or an integer, found a number that is not whole",
            ),
        ];
        for (written, key, error) in table {
            assert_eq!(read(written, key), Err(error.to_owned()), "{written}");
        }
    }

    proptest! {
        /// Whatever a record's key is, its canonical text, its value as JSON and its plain text all lead to it.
        #[test]
        fn a_record_is_found_by_its_own_key(text in "[^\u{0}]{1,20}", number: i64, composite: bool) {
            let record = serde_json::json!({"a": text, "b": number}).to_string();
            let record = Json::parse(record.as_bytes()).unwrap();
            if composite {
                let at = pointers(&["/a", "/b"]);
                let key = key_of(record, &at).unwrap();
                prop_assert_eq!(&spellings(key.as_str(), &at).unwrap()[0], &key);
            } else {
                for (at, plain) in [("/a", text.clone()), ("/b", number.to_string())] {
                    let at = pointers(&[at]);
                    let key = key_of(record, &at).unwrap();
                    prop_assert_eq!(&spellings(key.as_str(), &at).unwrap()[0], &key);
                    prop_assert!(spellings(&plain, &at).unwrap().contains(&key));
                }
            }
        }
    }
}
