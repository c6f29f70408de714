//! Values with a unit: durations, sizes, shares. Each is parsed from a string and printed back as one that parses to
//! the same value.

use std::fmt;
use std::time::Duration;

/// The longest duration that may be written: ten years. Sums of a few stay far from any overflow.
pub const MAX_DURATION: Duration = Duration::from_secs(3660 * 86_400);

/// Why a value can't be read. `Display` completes a sentence that starts with the value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueError {
    /// Nothing is written.
    Empty,
    /// There is no number where one must be, or it has a sign, a fraction or a space.
    NoNumber,
    /// A number without a unit.
    NoUnit,
    /// A unit that is not known.
    UnknownUnit,
    /// Units come twice or the smaller one first.
    Order,
    /// Outside the range that can be meant.
    TooLarge,
}

impl fmt::Display for ValueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "is empty",
            Self::NoNumber => "has no whole number before the unit",
            Self::NoUnit => "has a number without a unit",
            Self::UnknownUnit => "has an unknown unit",
            Self::Order => "has its units out of order",
            Self::TooLarge => "is too large",
        })
    }
}

impl std::error::Error for ValueError {}

/// Units of a duration in milliseconds, largest first.
const SPANS: [(&str, u64); 5] = [
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1000),
    ("ms", 1),
];

/// Reads `"15m"`, `"1h30m"`, `"500ms"`, `"7d"`: whole numbers with the units `d`, `h`, `m`, `s`, `ms`, larger ones first.
///
/// # Errors
/// [`ValueError`], also for more than [`MAX_DURATION`].
pub fn parse_duration(text: &str) -> Result<Duration, ValueError> {
    if text.is_empty() {
        return Err(ValueError::Empty);
    }
    let mut rest = text;
    let mut units = SPANS.iter();
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let (number, unit, tail) = number_and_unit(rest)?;
        rest = tail;
        if !SPANS.iter().any(|(name, _)| *name == unit) {
            return Err(ValueError::UnknownUnit);
        }
        let (_, size) = units
            .find(|(name, _)| *name == unit)
            .ok_or(ValueError::Order)?;
        total = number
            .checked_mul(*size)
            .and_then(|ms| total.checked_add(ms))
            .ok_or(ValueError::TooLarge)?;
    }
    Some(Duration::from_millis(total))
        .filter(|span| *span <= MAX_DURATION)
        .ok_or(ValueError::TooLarge)
}

/// Prints a duration so that [`parse_duration`] reads it again. What is below a millisecond is dropped.
#[must_use]
pub fn print_duration(span: Duration) -> String {
    let mut left = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
    let mut text = String::new();
    for (unit, size) in SPANS {
        if left >= size {
            text.push_str(&format!("{}{unit}", left / size));
            left %= size;
        }
    }
    if text.is_empty() {
        "0s".to_owned()
    } else {
        text
    }
}

/// Units of a size in bytes. Printing takes the first that divides the size.
const SIZES: [(&str, u64); 10] = [
    ("GiB", 1 << 30),
    ("GB", 1_000_000_000),
    ("MiB", 1 << 20),
    ("MB", 1_000_000),
    ("KiB", 1 << 10),
    ("kB", 1000),
    ("B", 1),
    ("G", 1_000_000_000),
    ("M", 1_000_000),
    ("k", 1000),
];

/// Reads `"1MiB"`, `"64k"`, `"512B"` as bytes. `k`, `M`, `G` (with or without `B`) are decimal, `KiB`, `MiB`, `GiB`
/// binary; upper and lower case are the same.
///
/// # Errors
/// [`ValueError`].
pub fn parse_size(text: &str) -> Result<u64, ValueError> {
    if text.is_empty() {
        return Err(ValueError::Empty);
    }
    let (number, unit, rest) = number_and_unit(text)?;
    let known = SIZES
        .iter()
        .find(|(name, _)| rest.is_empty() && name.eq_ignore_ascii_case(unit));
    let (_, size) = known.ok_or(ValueError::UnknownUnit)?;
    number.checked_mul(*size).ok_or(ValueError::TooLarge)
}

/// Prints a size so that [`parse_size`] reads it again.
#[must_use]
pub fn print_size(bytes: u64) -> String {
    let fits = SIZES
        .iter()
        .find(|(_, size)| bytes >= *size && bytes % size == 0);
    let (unit, size) = fits.unwrap_or(&("B", 1));
    format!("{}{unit}", bytes / size)
}

/// Reads `"10%"` or `"0.5%"` as a share between 0 and 1; at most four decimals.
///
/// # Errors
/// [`ValueError`], also for more than 100 %.
pub fn parse_percent(text: &str) -> Result<f64, ValueError> {
    if text.is_empty() {
        return Err(ValueError::Empty);
    }
    let number = text.strip_suffix('%').ok_or(ValueError::NoUnit)?;
    let (whole, decimals) = number.split_once('.').unwrap_or((number, "0"));
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(decimals) || decimals.len() > 4 {
        return Err(ValueError::NoNumber);
    }
    let percent: f64 = number.parse().map_err(|_| ValueError::NoNumber)?;
    Some(percent / 100.0)
        .filter(|share| *share <= 1.0)
        .ok_or(ValueError::TooLarge)
}

/// Prints a share so that [`parse_percent`] reads it again, if it came from there.
#[must_use]
pub fn print_percent(share: f64) -> String {
    let with = |decimals: usize| format!("{:.decimals$}%", share * 100.0);
    (0..4)
        .map(with)
        .find(|text| parse_percent(text) == Ok(share))
        .unwrap_or_else(|| with(4))
}

/// Splits `"30m15s"` into 30, `m` and `15s`.
fn number_and_unit(text: &str) -> Result<(u64, &str, &str), ValueError> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, rest) = text.split_at(digits);
    if number.is_empty() {
        return Err(ValueError::NoNumber);
    }
    let letters = rest.bytes().take_while(u8::is_ascii_alphabetic).count();
    let (unit, rest) = rest.split_at(letters);
    match (unit, rest) {
        ("", "") => Err(ValueError::NoUnit),
        ("", _) => Err(ValueError::NoNumber),
        _ => Ok((
            number.parse().map_err(|_| ValueError::TooLarge)?,
            unit,
            rest,
        )),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn durations_as_people_write_them() {
        for (text, ms, printed) in [
            ("15m", 900_000, "15m"),
            ("1h30m", 5_400_000, "1h30m"),
            ("90m", 5_400_000, "1h30m"),
            ("500ms", 500, "500ms"),
            ("1s500ms", 1500, "1s500ms"),
            ("7d", 604_800_000, "7d"),
            ("24h", 86_400_000, "1d"),
            ("0s", 0, "0s"),
            ("3660d", 316_224_000_000, "3660d"),
        ] {
            assert_eq!(
                parse_duration(text),
                Ok(Duration::from_millis(ms)),
                "{text}"
            );
            assert_eq!(print_duration(Duration::from_millis(ms)), printed);
        }
        for (text, error) in [
            ("", ValueError::Empty),
            ("15", ValueError::NoUnit),
            ("m", ValueError::NoNumber),
            ("-5m", ValueError::NoNumber),
            ("1.5h", ValueError::NoNumber),
            ("15 m", ValueError::NoNumber),
            ("15x", ValueError::UnknownUnit),
            ("15M", ValueError::UnknownUnit),
            ("30m1h", ValueError::Order),
            ("1m1m", ValueError::Order),
            ("3661d", ValueError::TooLarge),
            ("99999999999999999999s", ValueError::TooLarge),
            ("9999999999999999999d", ValueError::TooLarge),
        ] {
            assert_eq!(parse_duration(text), Err(error), "{text}");
        }
    }

    #[test]
    fn sizes_as_people_write_them() {
        for (text, bytes, printed) in [
            ("1MiB", 1_048_576, "1MiB"),
            ("64k", 64_000, "64kB"),
            ("64KB", 64_000, "64kB"),
            ("64kib", 65_536, "64KiB"),
            ("1GiB", 1 << 30, "1GiB"),
            ("1025B", 1025, "1025B"),
            ("0B", 0, "0B"),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
            assert_eq!(print_size(bytes), printed);
        }
        for (text, error) in [
            ("", ValueError::Empty),
            ("64", ValueError::NoUnit),
            ("MiB", ValueError::NoNumber),
            ("1.5M", ValueError::NoNumber),
            ("1TB", ValueError::UnknownUnit),
            ("1MiB1B", ValueError::UnknownUnit),
            ("99999999999999999GiB", ValueError::TooLarge),
        ] {
            assert_eq!(parse_size(text), Err(error), "{text}");
        }
    }

    #[test]
    fn shares_as_people_write_them() {
        for (text, share, printed) in [
            ("10%", 0.1, "10%"),
            ("0%", 0.0, "0%"),
            ("100.0%", 1.0, "100%"),
            ("0.0125%", 0.000_125, "0.0125%"),
        ] {
            assert_eq!(parse_percent(text), Ok(share), "{text}");
            assert_eq!(print_percent(share), printed);
        }
        for (text, error) in [
            ("", ValueError::Empty),
            ("10", ValueError::NoUnit),
            ("%", ValueError::NoNumber),
            ("-1%", ValueError::NoNumber),
            ("1e1%", ValueError::NoNumber),
            ("nan%", ValueError::NoNumber),
            ("1.%", ValueError::NoNumber),
            ("0.00001%", ValueError::NoNumber),
            ("100.1%", ValueError::TooLarge),
        ] {
            assert_eq!(parse_percent(text), Err(error), "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_printed_parses_to_the_same_value(ms in 0..316_224_000_000_u64, bytes: u64, ten_thousandths in 0..=1_000_000_u32) {
            let span = Duration::from_millis(ms);
            prop_assert_eq!(parse_duration(&print_duration(span)), Ok(span));
            prop_assert_eq!(parse_size(&print_size(bytes)), Ok(bytes));
            let text = format!("{}.{:04}%", ten_thousandths / 10_000, ten_thousandths % 10_000);
            let share = parse_percent(&text);
            prop_assert!(share.is_ok());
            prop_assert_eq!(parse_percent(&print_percent(share.unwrap_or(-1.0))), share);
        }

        #[test]
        fn no_text_makes_a_parser_panic(text in ".{0,12}") {
            let _ = (parse_duration(&text), parse_size(&text), parse_percent(&text));
        }
    }
}
