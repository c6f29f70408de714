//! Cursors: opaque where they can be, compared where that tells something. Pure.

use std::cmp::Ordering;

use crate::json::number::Decimal;
use crate::json::{Json, time};

/// A cursor out of a body: text or a number as it came, `false` too. `null` and anything else is none.
#[must_use]
pub fn scalar(raw: &str) -> Option<String> {
    match serde_json::from_str::<serde_json::Value>(raw).ok()? {
        serde_json::Value::String(text) => Some(text),
        // The text as it came: a large number must not pass through a float.
        serde_json::Value::Number(_) | serde_json::Value::Bool(_) => Some(raw.trim().to_owned()),
        _ => None,
    }
}

/// The greater of two cursors out of records: as numbers where both are numbers, as instants where both are RFC 3339, else
/// byte by byte.
#[must_use]
pub fn greater(known: String, other: &str) -> String {
    let order = compare(&known, other).unwrap_or_else(|| known.as_str().cmp(other));
    if order == Ordering::Less {
        other.to_owned()
    } else {
        known
    }
}

/// Whether a cursor lies before the one that we had. Only numbers and instants tell that; of opaque ones nothing is known.
#[must_use]
pub fn went_back(before: &str, now: &str) -> bool {
    compare(before, now) == Some(Ordering::Greater)
}

/// Whether a cursor is an instant later than `now`. Of numbers nobody knows whether they are instants.
#[must_use]
pub fn is_ahead(cursor: &str, now: crate::clock::Timestamp) -> bool {
    let text = plain(cursor);
    number(text).is_none() && instant(text).is_some_and(|time| time > now)
}

fn compare(a: &str, b: &str) -> Option<Ordering> {
    let (a, b) = (plain(a), plain(b));
    if let (Some(a), Some(b)) = (number(a), number(b)) {
        return a.scaled(9).zip(b.scaled(9)).map(|(a, b)| a.cmp(&b));
    }
    Some(instant(a)?.cmp(&instant(b)?))
}

/// Without what an entity tag wraps around a number.
fn plain(text: &str) -> &str {
    let text = text.trim();
    text.strip_prefix("W/").unwrap_or(text).trim_matches('"')
}

fn number(text: &str) -> Option<Decimal<'_>> {
    Decimal::parse(text)
}

fn instant(text: &str) -> Option<crate::clock::Timestamp> {
    let quoted = serde_json::to_string(text).ok()?;
    let json = Json::parse(quoted.as_bytes()).ok()?;
    time::parse(json, &time::TimeFormat::Rfc3339).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_a_cursor() {
        let table = [
            ("0", Some("0")),
            ("\"\"", Some("")),
            ("false", Some("false")),
            ("9007199254740993", Some("9007199254740993")),
            ("\"a b\"", Some("a b")),
            ("null", None),
            ("[]", None),
            ("{}", None),
        ];
        for (raw, expected) in table {
            assert_eq!(scalar(raw).as_deref(), expected, "{raw}");
        }
    }

    #[test]
    fn what_has_not_come_yet() {
        let now = "2026-11-30T18:00:00Z".parse().unwrap();
        let table = [
            ("2026-11-30T18:00:00Z", false),
            ("2026-11-30T18:00:00.001Z", true),
            ("2026-11-30T18:30:00+01:00", false),
            ("\"2026-12-01T00:00:00Z\"", true),
            ("99999999999999", false),
            ("tomorrow", false),
        ];
        for (cursor, expected) in table {
            assert_eq!(is_ahead(cursor, now), expected, "{cursor}");
        }
    }

    #[test]
    fn which_is_greater_and_which_went_back() {
        let table = [
            // known, other, greater, other went back
            ("9", "10", "10", false),
            ("10", "9", "10", true),
            (
                "9007199254740992",
                "9007199254740993",
                "9007199254740993",
                false,
            ),
            (
                "\"1700000000001\"",
                "\"1700000000000\"",
                "\"1700000000001\"",
                true,
            ),
            ("W/\"2\"", "\"1\"", "W/\"2\"", true),
            ("0", "0", "0", false),
            ("", "0", "0", false),
            ("0", "", "0", false),
            // 03:00+09:00 is six hours before 00:00Z, whatever the strings say.
            (
                "2026-01-01T00:00:00Z",
                "2026-01-01T03:00:00+09:00",
                "2026-01-01T00:00:00Z",
                true,
            ),
            ("01J8", "01J9", "01J9", false),
            ("01J9", "01J8", "01J9", false),
        ];
        for (known, other, expected, back) in table {
            assert_eq!(
                greater(known.to_owned(), other),
                expected,
                "{known} {other}"
            );
            assert_eq!(went_back(known, other), back, "{known} {other}");
        }
    }
}
