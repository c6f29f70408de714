//! Where a pass stands, so that a cut in the middle of a long listing does not start it again. Pure.

use std::time::Duration;

use url::Url;

use super::codec::{Reader, Writer};

/// Where a pass stands, between two pages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Position {
    /// Which config made it.
    pub config: [u8; 8],
    /// When the pass started, in seconds since 1970.
    pub started: i64,
    /// The page that comes next.
    pub next: Url,
    /// Pages that are done.
    pub pages: u32,
    /// Records that were met, bad ones included.
    pub records: u64,
    /// Which listing it is: a second one confirms what a first one missed.
    pub listing: u8,
    /// Something on the way makes an absence prove nothing.
    pub blind: bool,
}

impl Position {
    /// As an entry.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::default();
        writer
            .bytes(&self.config)
            .signed(self.started)
            .bytes(self.next.as_str().as_bytes())
            .number(u64::from(self.pages))
            .number(self.records)
            .number(u64::from(self.listing))
            .number(u64::from(self.blind));
        writer.finish()
    }

    /// Back from one.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(bytes);
        let position = Self {
            config: reader.bytes()?.try_into().ok()?,
            started: reader.signed()?,
            next: Url::parse(reader.text()?).ok()?,
            pages: u32::try_from(reader.number()?).ok()?,
            records: reader.number()?,
            listing: u8::try_from(reader.number()?).ok()?,
            blind: reader.number()? != 0,
        };
        reader.is_empty().then_some(position)
    }

    /// Whether a pass may go on here: the same config, and not so long ago that its first pages are old news. A clock
    /// that went backwards says nothing; then it may.
    #[must_use]
    pub fn resumable(&self, config: [u8; 8], now: i64, every: Duration) -> bool {
        let age = u64::try_from(now.saturating_sub(self.started)).unwrap_or(0);
        // At least a day: a long listing over a thin link must end some time, however often the power fails.
        self.config == config && age <= every.as_secs().max(24 * 3600)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn position() -> Position {
        Position {
            config: [1; 8],
            started: 1_000_000,
            next: Url::parse("https://a.example/p?cursor=x").unwrap(),
            pages: 3,
            records: 300,
            listing: 1,
            blind: true,
        }
    }

    #[test]
    fn it_survives_storing() {
        let bytes = position().encode();
        assert_eq!(Position::decode(&bytes), Some(position()));
        for end in 0..bytes.len() {
            assert_eq!(Position::decode(&bytes[..end]), None);
        }
    }

    #[test]
    fn who_may_go_on() {
        let every = Duration::from_secs(900);
        let table = [
            ([1; 8], 1_000_100, true),
            ([2; 8], 1_000_100, false),
            ([1; 8], 1_090_000, false),
            ([1; 8], 5, true),
        ];
        for (config, now, expected) in table {
            assert_eq!(position().resumable(config, now, every), expected, "{now}");
        }
    }
}
