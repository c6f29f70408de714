//! When a record was changed upstream: an instant, however it is written.

use std::fmt;

use jiff::civil::DateTime;
use jiff::tz::Offset;

use super::number::Decimal;
use crate::clock::Timestamp;
use crate::json::{Json, Kind};

/// How an instant is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeFormat {
    /// `2026-11-30T18:00:00Z` (RFC 3339).
    Rfc3339,
    /// Seconds since 1970, fractions allowed.
    EpochS,
    /// Milliseconds since 1970.
    EpochMs,
    /// Microseconds since 1970.
    EpochUs,
}

/// Reads the update time `value` as `format` says.
///
/// Epochs are numbers or strings that hold a number, exact to the nanosecond, rounded down. RFC 3339 is taken with any
/// offset, any number of fraction digits, lower-case `t` and `z`, or a space for the `T`; the leap second `:60` is the
/// last nanosecond before the minute ends.
///
/// # Errors
///
/// [`BadTime`] says what is there and why it is no such time.
pub fn parse(value: Json<'_>, format: TimeFormat) -> Result<Timestamp, BadTime> {
    let bad = |problem| BadTime {
        found: excerpt(value.as_str()),
        problem,
    };
    let nanos = |power| {
        let text = value.string();
        let text = match (value.kind(), &text) {
            (Kind::Number, _) => value.as_str(),
            (_, Some(text)) => text.as_ref(),
            _ => return Err(bad(Problem::NoNumber)),
        };
        let number = Decimal::parse(text).ok_or_else(|| bad(Problem::NoNumber))?;
        let nanos = number.scaled(power).ok_or_else(|| bad(Problem::Range))?;
        Timestamp::from_nanosecond(nanos).map_err(|_| bad(Problem::Range))
    };
    match format {
        TimeFormat::Rfc3339 => {
            let text = value.string().ok_or_else(|| bad(Problem::NoString))?;
            parse_rfc3339(&text).map_err(bad)
        }
        TimeFormat::EpochS => nanos(9),
        TimeFormat::EpochMs => nanos(6),
        TimeFormat::EpochUs => nanos(3),
    }
}

/// Whether `text` is a date and time as RFC 3339 writes it.
pub(crate) fn is_rfc3339(text: &str) -> bool {
    parse_rfc3339(text).is_ok()
}

/// RFC 3339, section 5.6: `date-time`.
fn parse_rfc3339(text: &str) -> Result<Timestamp, Problem> {
    let mut rest = Rest(text.as_bytes());
    let year = rest.digits(4)?;
    rest.one_of(b"-")?;
    let month = rest.digits(2)?;
    rest.one_of(b"-")?;
    let day = rest.digits(2)?;
    if rest.0.is_empty() {
        return Err(Problem::NoTime);
    }
    rest.one_of(b"Tt ")?;
    let hour = rest.digits(2)?;
    rest.one_of(b":")?;
    let minute = rest.digits(2)?;
    rest.one_of(b":")?;
    let second = rest.digits(2)?;
    let nanos = rest.fraction()?;
    let offset = rest.offset()?;
    let (second, nanos) = if second == 60 {
        (59, 999_999_999)
    } else {
        (second, nanos)
    };
    let [month, day, hour, minute, second] =
        [month, day, hour, minute, second].map(|part| i8::try_from(part).unwrap_or(i8::MAX));
    let civil = DateTime::new(year, month, day, hour, minute, second, nanos)
        .map_err(|_| Problem::NoSuchDay)?;
    let offset = Offset::from_seconds(offset).map_err(|_| Problem::Shape)?;
    offset.to_timestamp(civil).map_err(|_| Problem::Range)
}

/// What is left to read.
struct Rest<'a>(&'a [u8]);

impl Rest<'_> {
    fn digits(&mut self, count: usize) -> Result<i16, Problem> {
        let (digits, rest) = self.0.split_at_checked(count).ok_or(Problem::Shape)?;
        self.0 = rest;
        digits.iter().try_fold(0, |value: i16, digit| match digit {
            b'0'..=b'9' => Ok(value * 10 + i16::from(digit - b'0')),
            _ => Err(Problem::Shape),
        })
    }

    fn one_of(&mut self, allowed: &[u8]) -> Result<u8, Problem> {
        match self.0.split_first() {
            Some((byte, rest)) if allowed.contains(byte) => {
                self.0 = rest;
                Ok(*byte)
            }
            _ => Err(Problem::Shape),
        }
    }

    /// Nanoseconds; further digits are dropped.
    fn fraction(&mut self) -> Result<i32, Problem> {
        if self.one_of(b".").is_err() {
            return Ok(0);
        }
        let end = self
            .0
            .iter()
            .position(|byte| !byte.is_ascii_digit())
            .unwrap_or(self.0.len());
        let (digits, rest) = self.0.split_at(end);
        self.0 = rest;
        if digits.is_empty() {
            return Err(Problem::Shape);
        }
        let padded = digits.iter().copied().chain(std::iter::repeat(b'0'));
        Ok(padded
            .take(9)
            .fold(0, |nanos, digit| nanos * 10 + i32::from(digit - b'0')))
    }

    /// Seconds east of Greenwich; nothing may follow.
    fn offset(&mut self) -> Result<i32, Problem> {
        if self.0.is_empty() {
            return Err(Problem::NoOffset);
        }
        let sign = match self.one_of(b"Zz+-")? {
            b'-' => -1,
            b'+' => 1,
            _ => 0,
        };
        let mut seconds = 0;
        if sign != 0 {
            let hours = self.digits(2)?;
            self.one_of(b":")?;
            let minutes = self.digits(2)?;
            if hours > 23 || minutes > 59 {
                return Err(Problem::Shape);
            }
            seconds = sign * (i32::from(hours) * 3600 + i32::from(minutes) * 60);
        }
        if self.0.is_empty() {
            Ok(seconds)
        } else {
            Err(Problem::Shape)
        }
    }
}

/// The start of a text, for an error message.
pub(crate) fn excerpt(text: &str) -> Box<str> {
    const LONGEST: usize = 60;
    match text.char_indices().nth(LONGEST) {
        None => text.into(),
        Some((end, _)) => format!("{}…", &text[..end]).into(),
    }
}

/// A value that is not the update time that the config promises.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BadTime {
    /// What is there, shortened.
    pub found: Box<str>,
    /// Why it will not do.
    pub problem: Problem,
}

/// Why a value is no update time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Problem {
    /// RFC 3339 is a string.
    NoString,
    /// An epoch is a number, or a string that holds one.
    NoNumber,
    /// Not `YYYY-MM-DDThh:mm:ss` and an offset.
    Shape,
    /// A date alone.
    NoTime,
    /// Neither `Z` nor `±hh:mm` at the end: no instant.
    NoOffset,
    /// Such as 30 February or 24:00.
    NoSuchDay,
    /// Beyond the years −9999 to 9999.
    Range,
}

impl fmt::Display for BadTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why = match self.problem {
            Problem::NoString => "expected a string such as \"2026-11-30T18:00:00Z\"",
            Problem::NoNumber => "expected a number",
            Problem::Shape => "expected RFC 3339, such as 2026-11-30T18:00:00Z",
            Problem::NoTime => "a date without a time",
            Problem::NoOffset => "no offset (`Z` or `+01:00`) at its end",
            Problem::NoSuchDay => "there is no such day or time of day",
            Problem::Range => "beyond the year 9999",
        };
        write!(f, "update time {}: {why}", self.found)
    }
}

impl std::error::Error for BadTime {}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(value: &str, format: TimeFormat) -> Result<String, Problem> {
        parse(Json::parse(value.as_bytes()).unwrap(), format)
            .map(|time| time.to_string())
            .map_err(|bad| bad.problem)
    }

    #[test]
    fn rfc3339_in_its_spellings() {
        let table = [
            ("2026-11-30T18:00:00Z", "2026-11-30T18:00:00Z"),
            ("2026-11-30t18:00:00z", "2026-11-30T18:00:00Z"),
            ("2026-11-30 18:00:00Z", "2026-11-30T18:00:00Z"),
            ("2026-11-30T18:00:00+00:00", "2026-11-30T18:00:00Z"),
            ("2026-11-30T18:00:00-00:00", "2026-11-30T18:00:00Z"),
            ("2026-11-30T19:30:00+01:30", "2026-11-30T18:00:00Z"),
            ("2026-11-30T00:30:00+23:59", "2026-11-29T00:31:00Z"),
            ("2026-12-31T23:30:00-08:00", "2027-01-01T07:30:00Z"),
            ("2024-02-29T00:00:00Z", "2024-02-29T00:00:00Z"),
            ("1985-04-12T23:20:50.52Z", "1985-04-12T23:20:50.52Z"),
            (
                "2026-11-30T18:00:00.1234567899Z",
                "2026-11-30T18:00:00.123456789Z",
            ),
            (
                "2026-11-30T18:00:00.000000000000000001Z",
                "2026-11-30T18:00:00Z",
            ),
            ("2016-12-31T23:59:60Z", "2016-12-31T23:59:59.999999999Z"),
            ("2016-12-31T23:59:60.5Z", "2016-12-31T23:59:59.999999999Z"),
            (
                "2017-01-01T00:59:60+01:00",
                "2016-12-31T23:59:59.999999999Z",
            ),
            ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00Z"),
            ("1969-12-31T23:59:59.9Z", "1969-12-31T23:59:59.9Z"),
        ];
        for (text, time) in table {
            assert_eq!(
                read(&format!("\"{text}\""), TimeFormat::Rfc3339).as_deref(),
                Ok(time),
                "{text}"
            );
        }
        assert!(read(r#""2026-11-30T18:00:00\u005a""#, TimeFormat::Rfc3339).is_ok());
    }

    #[test]
    fn what_rfc3339_does_not_say() {
        let table = [
            ("2026-11-30", Problem::NoTime),
            ("2026-11-30T18:00:00", Problem::NoOffset),
            ("2026-11-30T18:00:00.5", Problem::NoOffset),
            ("2026-02-29T00:00:00Z", Problem::NoSuchDay),
            ("2026-13-01T00:00:00Z", Problem::NoSuchDay),
            ("2026-00-01T00:00:00Z", Problem::NoSuchDay),
            ("2026-01-01T24:00:00Z", Problem::NoSuchDay),
            ("2026-01-01T00:60:00Z", Problem::NoSuchDay),
            ("2026-01-01T00:00:61Z", Problem::NoSuchDay),
            ("9999-12-31T23:59:59-23:00", Problem::Range),
            ("", Problem::Shape),
            ("yesterday", Problem::Shape),
            ("1764525600", Problem::Shape),
            ("2026-11-30T18:00Z", Problem::Shape),
            ("2026-11-30T18:00:00.Z", Problem::Shape),
            ("2026-11-30T18:00:00,5Z", Problem::Shape),
            ("2026-11-30T18:00:00+0100", Problem::Shape),
            ("2026-11-30T18:00:00+24:00", Problem::Shape),
            ("2026-11-30T18:00:00+01:60", Problem::Shape),
            ("2026-11-30T18:00:00Z ", Problem::Shape),
            ("2026-11-30T18:00:00Z[UTC]", Problem::Shape),
            ("26-11-30T18:00:00Z", Problem::Shape),
            ("+2026-11-30T18:00:00Z", Problem::Shape),
            ("2026-11-30T18:00:00\u{2212}01:00", Problem::Shape),
            ("2026-1\u{661}-30T18:00:00Z", Problem::Shape),
        ];
        for (text, problem) in table {
            assert_eq!(
                read(&format!("\"{text}\""), TimeFormat::Rfc3339),
                Err(problem),
                "{text}"
            );
        }
        for value in ["1764525600", "null", "true", "{}", r#""\ud800""#] {
            assert_eq!(
                read(value, TimeFormat::Rfc3339),
                Err(Problem::NoString),
                "{value}"
            );
        }
    }

    #[test]
    fn epochs_are_exact() {
        use TimeFormat::{EpochMs, EpochS, EpochUs};
        let table = [
            ("1764525600", EpochS, "2025-11-30T18:00:00Z"),
            (r#""1764525600""#, EpochS, "2025-11-30T18:00:00Z"),
            (
                "1764525600.123456789",
                EpochS,
                "2025-11-30T18:00:00.123456789Z",
            ),
            (r#""1764525600.1""#, EpochS, "2025-11-30T18:00:00.1Z"),
            ("1.7645256e9", EpochS, "2025-11-30T18:00:00Z"),
            ("1764525600000", EpochMs, "2025-11-30T18:00:00Z"),
            ("1764525600000.5", EpochMs, "2025-11-30T18:00:00.0005Z"),
            ("1764525600000001", EpochUs, "2025-11-30T18:00:00.000001Z"),
            ("0", EpochS, "1970-01-01T00:00:00Z"),
            ("-0.5", EpochS, "1969-12-31T23:59:59.5Z"),
            ("-0.0000000001", EpochS, "1969-12-31T23:59:59.999999999Z"),
            ("1e-999999999999999999999", EpochS, "1970-01-01T00:00:00Z"),
        ];
        for (value, format, time) in table {
            assert_eq!(read(value, format).as_deref(), Ok(time), "{value}");
        }
        for value in [
            "1764525600000000",
            "1e30",
            "1e999999999",
            "-1e18",
            r#""1e40""#,
        ] {
            assert_eq!(read(value, EpochS), Err(Problem::Range), "{value}");
        }
        for value in [
            "null",
            "false",
            "[]",
            r#""""#,
            r#"" 1""#,
            r#""2026-11-30T18:00:00Z""#,
            r#""0x10""#,
            r#""NaN""#,
        ] {
            assert_eq!(read(value, EpochS), Err(Problem::NoNumber), "{value}");
        }
    }

    #[test]
    fn errors_show_what_is_there() {
        let bad = parse(
            Json::parse(br#""2026-11-30T18:00:00""#).unwrap(),
            TimeFormat::Rfc3339,
        )
        .unwrap_err();
        assert_eq!(
            bad.to_string(),
            "update time \"2026-11-30T18:00:00\": no offset (`Z` or `+01:00`) at its end"
        );
        let long = format!("\"{}\"", "é".repeat(100));
        let bad = parse(Json::parse(long.as_bytes()).unwrap(), TimeFormat::EpochS).unwrap_err();
        assert_eq!(bad.found.chars().count(), 61);
    }
}
