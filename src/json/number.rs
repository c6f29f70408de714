//! JSON numbers as the exact decimals that they are written as. Nothing here goes through a float, and nothing writes
//! out an exponent.

use std::cmp::Ordering;

/// A decimal number: digits without zeros at either end, times a power of ten. Equal numbers are equal, however they
/// were written.
#[derive(Debug, Clone)]
pub struct Decimal<'a> {
    negative: bool,
    /// The digits, in two pieces, as they stand before and after the point.
    head: &'a [u8],
    tail: &'a [u8],
    /// The power of ten that the digits, read as a whole number, are multiplied by.
    exponent: Exponent,
}

/// A whole number that is nearly always small.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Exponent {
    Small(i64),
    /// Does not fit the other; digits without leading zeros.
    Huge {
        negative: bool,
        digits: Vec<u8>,
    },
}

impl<'a> Decimal<'a> {
    /// Takes a number as JSON writes it (RFC 8259, section 6); `None` if it is none.
    #[must_use]
    pub fn parse(text: &'a str) -> Option<Self> {
        let bytes = text.as_bytes();
        let (negative, rest) = match bytes.split_first()? {
            (b'-', rest) => (true, rest),
            _ => (false, bytes),
        };
        let (whole, rest) = digits(rest)?;
        if whole.len() > 1 && whole.first() == Some(&b'0') {
            return None;
        }
        let (fraction, rest) = match rest.split_first() {
            Some((b'.', rest)) => digits(rest)?,
            _ => (&[][..], rest),
        };
        let (minus, power) = match rest.split_first() {
            None => (false, &[][..]),
            Some((b'e' | b'E', power)) => {
                let (minus, power) = match power.split_first()? {
                    (b'-', power) => (true, power),
                    (b'+', power) => (false, power),
                    _ => (false, power),
                };
                let (power, rest) = digits(power)?;
                if !rest.is_empty() {
                    return None;
                }
                (minus, power)
            }
            Some(_) => return None,
        };
        Some(Self::of(negative, whole, fraction, minus, power))
    }

    fn of(negative: bool, whole: &'a [u8], fraction: &'a [u8], minus: bool, power: &[u8]) -> Self {
        let mut head = trim_start(whole);
        let mut tail = trim_end(fraction);
        let mut shift = -length(tail);
        if tail.is_empty() {
            let trimmed = trim_end(head);
            shift = length(head) - length(trimmed);
            head = trimmed;
        }
        if head.is_empty() {
            tail = trim_start(tail);
        }
        if head.is_empty() && tail.is_empty() {
            let exponent = Exponent::Small(0);
            return Self {
                negative: false,
                head,
                tail,
                exponent,
            };
        }
        let exponent = Exponent::parse(minus, power).plus(shift);
        Self {
            negative,
            head,
            tail,
            exponent,
        }
    }

    /// Whether it is zero.
    #[must_use]
    pub fn is_zero(&self) -> bool {
        self.head.is_empty() && self.tail.is_empty()
    }

    /// Whether it is a whole number (`1.0` and `1e3` are).
    #[must_use]
    pub fn is_integer(&self) -> bool {
        match &self.exponent {
            Exponent::Small(exponent) => *exponent >= 0,
            Exponent::Huge { negative, .. } => !negative,
        }
    }

    /// A whole number in plain digits; `None` if it is not whole or longer than `max` bytes.
    #[must_use]
    pub fn integer_text(&self, max: usize) -> Option<String> {
        if self.is_zero() {
            return Some("0".to_owned());
        }
        let Exponent::Small(zeros) = self.exponent else {
            return None;
        };
        let zeros = usize::try_from(zeros).ok()?;
        let long =
            (usize::from(self.negative) + self.head.len() + self.tail.len()).checked_add(zeros)?;
        if long > max {
            return None;
        }
        let mut text = String::with_capacity(long);
        if self.negative {
            text.push('-');
        }
        text.extend(self.digits().map(char::from));
        text.extend(std::iter::repeat_n('0', zeros));
        Some(text)
    }

    /// The number times ten to the `power`, rounded down; `None` beyond about ±10^37.
    #[must_use]
    pub fn scaled(&self, power: u8) -> Option<i128> {
        if self.is_zero() {
            return Some(0);
        }
        // How many digits of the result are before its point.
        let whole = match self
            .exponent
            .clone()
            .plus(i64::from(power))
            .plus(self.count())
        {
            Exponent::Small(whole) if whole <= 37 => usize::try_from(whole).unwrap_or(0),
            Exponent::Huge { negative: true, .. } => 0,
            _ => return None,
        };
        let padded = self.digits().chain(std::iter::repeat(b'0'));
        let value = padded.take(whole).fold(0, |value: i128, digit| {
            value * 10 + i128::from(digit - b'0')
        });
        let rest = self.digits().count() > whole;
        Some(match self.negative {
            true => -value - i128::from(rest),
            false => value,
        })
    }

    /// Appends text that equal numbers share and others do not: `-`, digits, `e`, power of ten; `0` for zero.
    pub fn write_canonical(&self, out: &mut Vec<u8>) {
        if self.is_zero() {
            out.push(b'0');
            return;
        }
        if self.negative {
            out.push(b'-');
        }
        out.extend_from_slice(self.head);
        out.extend_from_slice(self.tail);
        out.push(b'e');
        self.exponent.write(out);
    }

    fn digits(&self) -> impl Iterator<Item = u8> {
        self.head.iter().chain(self.tail).copied()
    }

    fn count(&self) -> i64 {
        length(self.head) + length(self.tail)
    }

    /// Compares the sizes of two numbers that are not zero.
    fn cmp_size(&self, other: &Self) -> Ordering {
        let first_digit = |number: &Self| number.exponent.clone().plus(number.count());
        // Digits have no zeros at their end, so that the longer of two with a common start is the larger.
        first_digit(self)
            .cmp(&first_digit(other))
            .then_with(|| self.digits().cmp(other.digits()))
    }
}

impl Ord for Decimal<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        let sign = |number: &Self| match (number.is_zero(), number.negative) {
            (true, _) => 0,
            (_, true) => -1,
            (_, false) => 1,
        };
        match (sign(self), sign(other)) {
            (1, 1) => self.cmp_size(other),
            (-1, -1) => other.cmp_size(self),
            (one, two) => one.cmp(&two),
        }
    }
}

impl PartialOrd for Decimal<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Decimal<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Decimal<'_> {}

impl Exponent {
    /// So many digits surely fit an `i64`, with room for a shift.
    const SMALL: usize = 18;

    fn parse(negative: bool, digits: &[u8]) -> Self {
        let digits = trim_start(digits);
        if digits.len() > Self::SMALL {
            return Self::huge(negative, digits.to_vec());
        }
        let size = digits
            .iter()
            .fold(0, |size: i64, digit| size * 10 + i64::from(digit - b'0'));
        Self::Small(if negative { -size } else { size })
    }

    /// Small if it can be, so that there is one form of each number.
    fn huge(negative: bool, digits: Vec<u8>) -> Self {
        let size = digits.iter().try_fold(0i64, |size, digit| {
            size.checked_mul(10)?.checked_add(i64::from(digit - b'0'))
        });
        match size {
            Some(size) => Self::Small(if negative { -size } else { size }),
            None => Self::Huge { negative, digits },
        }
    }

    /// Adds a count of digits, which is far smaller than a huge exponent.
    fn plus(self, shift: i64) -> Self {
        let (negative, mut digits) = match self {
            Self::Small(exponent) => match exponent.checked_add(shift) {
                Some(sum) => return Self::Small(sum),
                None => (
                    exponent < 0,
                    exponent.unsigned_abs().to_string().into_bytes(),
                ),
            },
            Self::Huge { negative, digits } => (negative, digits),
        };
        let mut carry = i128::from(if negative { -shift } else { shift });
        for digit in digits.iter_mut().rev() {
            let sum = i128::from(*digit - b'0') + carry;
            *digit = b'0' + u8::try_from(sum.rem_euclid(10)).unwrap_or(0);
            carry = sum.div_euclid(10);
        }
        if carry > 0 {
            digits.splice(0..0, carry.to_string().into_bytes());
        }
        Self::huge(negative, trim_start(&digits).to_vec())
    }

    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Small(exponent @ 0..=9) => out.push(b'0' + u8::try_from(*exponent).unwrap_or(0)),
            Self::Small(exponent) => out.extend_from_slice(exponent.to_string().as_bytes()),
            Self::Huge { negative, digits } => {
                if *negative {
                    out.push(b'-');
                }
                out.extend_from_slice(digits);
            }
        }
    }
}

impl Ord for Exponent {
    fn cmp(&self, other: &Self) -> Ordering {
        let side = |exponent: &Self| match exponent {
            Self::Huge { negative: true, .. } => -1,
            Self::Small(_) => 0,
            Self::Huge {
                negative: false, ..
            } => 1,
        };
        match (self, other) {
            (Self::Small(one), Self::Small(two)) => one.cmp(two),
            (
                Self::Huge {
                    negative,
                    digits: one,
                },
                Self::Huge { digits: two, .. },
            ) if side(self) == side(other) => {
                let order = one.len().cmp(&two.len()).then_with(|| one.cmp(two));
                if *negative { order.reverse() } else { order }
            }
            _ => side(self).cmp(&side(other)),
        }
    }
}

impl PartialOrd for Exponent {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// One or more digits, and what follows them.
fn digits(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = text
        .iter()
        .position(|byte| !byte.is_ascii_digit())
        .unwrap_or(text.len());
    (end > 0).then(|| text.split_at(end))
}

fn trim_start(digits: &[u8]) -> &[u8] {
    let start = digits
        .iter()
        .position(|&digit| digit != b'0')
        .unwrap_or(digits.len());
    &digits[start..]
}

fn trim_end(digits: &[u8]) -> &[u8] {
    let end = digits
        .iter()
        .rposition(|&digit| digit != b'0')
        .map_or(0, |last| last + 1);
    &digits[..end]
}

fn length(digits: &[u8]) -> i64 {
    i64::try_from(digits.len()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
