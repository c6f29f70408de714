//! When a record was changed upstream: an instant, however it is written.

mod pattern;

use std::fmt;

use jiff::civil::DateTime;
use jiff::tz::Offset;

pub use self::pattern::{BadPattern, Pattern};
use super::number::Decimal;
use crate::clock::Timestamp;
use crate::json::{Json, Kind};

/// How an instant is written.
///
/// Every format reads finer times than it writes: what is written is cut to the unit that its name says, what is read is
/// taken as exact as it comes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TimeFormat {
    /// `2026-11-30T18:00:00Z` (RFC 3339), written in whole seconds.
    Rfc3339,
    /// The same, written in milliseconds: `2026-11-30T18:00:00.000Z`.
    Rfc3339Ms,
    /// The same, written in microseconds.
    Rfc3339Us,
    /// Seconds since 1970, fractions allowed when read.
    EpochS,
    /// Milliseconds since 1970.
    EpochMs,
    /// Microseconds since 1970.
    EpochUs,
    /// In a form of the API's own.
    Pattern(Pattern),
}

impl TimeFormat {
    /// Writes `time` in UTC, or in a pattern's zone, for a request: the latest moment that this format can write and that is not after `time`. It
    /// never rounds up, since a window that starts there would miss what lies between. (Before the year 0, which RFC 3339
    /// cannot write, it writes that year.)
    #[must_use]
    pub fn write(&self, time: Timestamp) -> String {
        let floor = |unit: i128| time.as_nanosecond().div_euclid(unit).to_string();
        match self {
            Self::Rfc3339 => write_rfc3339(time, 0),
            Self::Rfc3339Ms => write_rfc3339(time, 3),
            Self::Rfc3339Us => write_rfc3339(time, 6),
            Self::EpochS => floor(1_000_000_000),
            Self::EpochMs => floor(1_000_000),
            Self::EpochUs => floor(1_000),
            Self::Pattern(pattern) => pattern
                .write(time)
                .unwrap_or_else(|| write_rfc3339(time, 0)),
        }
    }
}

/// With so many digits of the second's fraction, at most 9; the others are cut off.
fn write_rfc3339(time: Timestamp, digits: usize) -> String {
    let civil = Offset::UTC.to_datetime(time);
    if civil.year() < 0 {
        return "0000-01-01T00:00:00Z".into();
    }
    // A civil time counts its fraction upwards, before 1970 too: cutting it off is rounding down.
    let nanos = format!("{:09}", civil.subsec_nanosecond());
    let fraction = match nanos.get(..digits) {
        Some(fraction) if digits > 0 => format!(".{fraction}"),
        _ => String::new(),
    };
    format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}{fraction}Z",
        civil.year(),
        civil.month(),
        civil.day(),
        civil.hour(),
        civil.minute(),
        civil.second()
    )
}

/// Reads the update time `value` as `format` says.
///
/// Epochs are numbers or strings that hold a number, exact to the nanosecond, rounded down. RFC 3339 is taken with any
/// offset, any number of fraction digits, lower-case `t` and `z`, or a space for the `T`; the leap second `:60` is the
/// last nanosecond before the minute ends. A pattern is taken as [`Pattern`] says.
///
/// # Errors
///
/// [`BadTime`] says what is there and why it is no such time.
pub fn parse(value: Json<'_>, format: &TimeFormat) -> Result<Timestamp, BadTime> {
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
        TimeFormat::Rfc3339 | TimeFormat::Rfc3339Ms | TimeFormat::Rfc3339Us => {
            let text = value.string().ok_or_else(|| bad(Problem::NoString))?;
            parse_rfc3339(&text).map_err(bad)
        }
        TimeFormat::EpochS => nanos(9),
        TimeFormat::EpochMs => nanos(6),
        TimeFormat::EpochUs => nanos(3),
        TimeFormat::Pattern(pattern) => {
            let text = value.string().ok_or_else(|| bad(Problem::NoString))?;
            pattern.earliest(&text).ok_or_else(|| bad(Problem::Pattern))
        }
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
    /// Not as the pattern says.
    Pattern,
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
            Problem::Pattern => "expected a time as the pattern of `format` says",
            Problem::Range => "beyond the year 9999",
        };
        write!(f, "update time {}: {why}", self.found)
    }
}

impl std::error::Error for BadTime {}

#[cfg(test)]
mod tests;
