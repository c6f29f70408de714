//! Request ids: UUIDs of version 7 (RFC 9562 5.7), which sort by when they were given out.
//!
//! Written here rather than taken from `uuid`: that brings a random number generator besides the one of the system that
//! is used anyway, for what is twenty lines.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;

/// What one received payload is called from then on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RequestId(pub [u8; 16]);

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (nth, byte) in self.0.iter().enumerate() {
            if matches!(nth, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The text is no UUID.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoRequestId;

impl fmt::Display for NoRequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a request id looks like 019ad0a2-7c1e-7b43-8f21-5d0c9e4b7a10")
    }
}

impl std::error::Error for NoRequestId {}

impl From<RequestId> for String {
    fn from(id: RequestId) -> Self {
        id.to_string()
    }
}

impl TryFrom<String> for RequestId {
    type Error = NoRequestId;

    fn try_from(text: String) -> Result<Self, NoRequestId> {
        text.parse()
    }
}

impl FromStr for RequestId {
    type Err = NoRequestId;

    /// Reads the form with hyphens, in any letter case.
    fn from_str(text: &str) -> Result<Self, NoRequestId> {
        let groups: Vec<&str> = text.split('-').collect();
        let lengths = [8, 4, 4, 4, 12];
        let fits = groups.len() == lengths.len()
            && groups
                .iter()
                .zip(lengths)
                .all(|(group, long)| group.len() == long);
        let digits = groups.concat();
        if !fits || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(NoRequestId);
        }
        u128::from_str_radix(&digits, 16)
            .map(|number| Self(number.to_be_bytes()))
            .map_err(|_| NoRequestId)
    }
}

/// Gives out ids that rise, however the clock moves: an instant that is not after the last one's counts on from there
/// (RFC 9562 6.2, method 1).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counter {
    /// Milliseconds since 1970, and behind them twelve bits that count.
    last: u64,
}

impl Counter {
    /// The next id. `random` is what makes it differ from the ids of another start.
    #[must_use]
    pub(super) fn next(&mut self, now: Timestamp, random: u64) -> RequestId {
        let millis = u64::try_from(now.as_millisecond()).unwrap_or(0) & 0xFFFF_FFFF_FFFF;
        self.last = (millis << 12).max(self.last.wrapping_add(1));
        let (time, count) = (self.last >> 12, self.last & 0xFFF);
        let high = time << 16 | 0x7000 | count;
        let low = random >> 2 | 1 << 63;
        RequestId((u128::from(high) << 64 | u128::from(low)).to_be_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of RFC 9562 A.6, whose count is random there.
    #[test]
    fn an_id_is_a_uuid_of_version_7() {
        let now: Timestamp = "2022-02-22T14:22:22-05:00".parse().unwrap();
        let mut counter = Counter::default();
        let id = counter.next(now, 0x18C4_DC0C_0C07_398F << 2);
        assert_eq!(id.to_string(), "017f22e2-79b0-7000-98c4-dc0c0c07398f");
        assert_eq!(id.to_string().parse(), Ok(id));
        assert_eq!(id.to_string().to_uppercase().parse(), Ok(id));
    }

    #[test]
    fn ids_rise_also_when_the_clock_falls() {
        let mut counter = Counter::default();
        let mut last = counter.next(Timestamp::from_millisecond(2_000_000).unwrap(), u64::MAX);
        for n in 0..10_000 {
            let now = Timestamp::from_millisecond(1_000_000 + n % 7).unwrap();
            let id = counter.next(now, 0);
            assert!(id > last, "{id} after {last}");
            assert_eq!((id.0[6] >> 4, id.0[8] >> 6), (7, 2));
            last = id;
        }
    }

    #[test]
    fn other_texts_are_none() {
        for text in [
            "",
            "017f22e279b0700098c4dc0c0c07398f",
            "017f22e2-79b0-7000-98c4-dc0c0c07398",
            "017f22e2-79b0-7000-98c4-dc0c0c07398g",
            "+17f22e2-79b0-7000-98c4-dc0c0c07398f",
            "017f22e2-79b0-7000-98c4-dc0c0c07398f-",
            "017f22-e279b0-7000-98c4-dc0c0c07398f",
            "é17f22e-79b0-7000-98c4-dc0c0c07398f",
        ] {
            assert_eq!(text.parse::<RequestId>(), Err(NoRequestId), "{text}");
        }
    }
}
