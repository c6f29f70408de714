//! Where a pass stands, so that a cut in the middle of a long listing does not start it again. Pure.

use std::time::Duration;

use url::Url;

use super::codec::{Reader, Writer};
use super::plan::{Full, Plan};
use super::progress::{read_time, time};
use super::window::Span;
use crate::clock::Timestamp;

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
    /// What the pass asks for.
    pub plan: Plan,
    /// Which part of that it is at.
    pub span: Span,
    /// When the walk over that part started, by the upstream's clock.
    pub span_started: Option<Timestamp>,
    /// When the pass started, by the upstream's clock.
    pub upstream_started: Option<Timestamp>,
    /// The cursor that its pages gave so far.
    pub cursor: Option<String>,
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
        match &self.plan {
            Plan::Full { why, since } => {
                writer.number(0).number(why.number());
                time(&mut writer, *since);
            }
            Plan::Window { since } => {
                writer.number(1);
                time(&mut writer, Some(*since));
            }
            Plan::Cursor { value } => {
                writer.number(2).bytes(value.as_bytes());
            }
        }
        for instant in [
            self.span.since,
            self.span.until,
            self.span_started,
            self.upstream_started,
        ] {
            time(&mut writer, instant);
        }
        writer.optional(self.cursor.as_deref().map(str::as_bytes));
        writer.finish()
    }

    /// Back from one.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(bytes);
        let mut position = Self {
            config: reader.bytes()?.try_into().ok()?,
            started: reader.signed()?,
            next: Url::parse(reader.text()?).ok()?,
            pages: u32::try_from(reader.number()?).ok()?,
            records: reader.number()?,
            listing: u8::try_from(reader.number()?).ok()?,
            blind: reader.number()? != 0,
            plan: Plan::Full {
                why: Full::Snapshot,
                since: None,
            },
            span: Span::default(),
            span_started: None,
            upstream_started: None,
            cursor: None,
        };
        // Version 0.1 before windows ended here: all it knew were snapshots.
        if !reader.is_empty() {
            position.read_plan(&mut reader)?;
        }
        reader.is_empty().then_some(position)
    }

    fn read_plan(&mut self, reader: &mut Reader<'_>) -> Option<()> {
        self.plan = match reader.number()? {
            0 => Plan::Full {
                why: Full::numbered(reader.number()?)?,
                since: read_time(reader)?,
            },
            1 => Plan::Window {
                since: read_time(reader)??,
            },
            2 => Plan::Cursor {
                value: reader.text()?.to_owned(),
            },
            _ => return None,
        };
        self.span.since = read_time(reader)?;
        self.span.until = read_time(reader)?;
        self.span_started = read_time(reader)?;
        self.upstream_started = read_time(reader)?;
        self.cursor = match reader.optional()? {
            None => None,
            Some(cursor) => Some(std::str::from_utf8(cursor).ok()?.to_owned()),
        };
        Some(())
    }

    /// Whether a pass may go on here: the same config, and, for a full one, not so long ago that its first pages are old
    /// news. `every`: how often such passes are made. A clock that went backwards says nothing; then it may. A window or a
    /// cursor is never too old: what the next one asks for starts where this one did.
    #[must_use]
    pub fn resumable(&self, config: [u8; 8], now: i64, every: Duration) -> bool {
        let age = u64::try_from(now.saturating_sub(self.started)).unwrap_or(0);
        // At least a day: a long listing over a thin link must end some time, however often the power fails.
        self.config == config
            && (!matches!(self.plan, Plan::Full { .. }) || age <= every.as_secs().max(24 * 3600))
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
            plan: Plan::Full {
                why: Full::Due,
                since: Timestamp::from_second(77).ok(),
            },
            span: Span {
                since: Timestamp::from_second(77).ok(),
                until: None,
            },
            span_started: Timestamp::from_second(99).ok(),
            upstream_started: Timestamp::from_second(98).ok(),
            cursor: Some(String::new()),
        }
    }

    #[test]
    fn it_survives_storing() {
        let bytes = position().encode();
        assert_eq!(Position::decode(&bytes), Some(position()));
        // What was written before there were plans: a snapshot's.
        let old = 9 + 3 + 29 + 1 + 2 + 1 + 1;
        for end in 0..bytes.len() {
            let is_old = end == old;
            assert_eq!(Position::decode(&bytes[..end]).is_some(), is_old, "{end}");
        }
        let since = Timestamp::from_second(-5).unwrap();
        for plan in [
            Plan::Window { since },
            Plan::Cursor {
                value: "\"0\"".into(),
            },
        ] {
            let position = Position { plan, ..position() };
            assert_eq!(Position::decode(&position.encode()), Some(position));
        }
    }

    /// Entries as the first version wrote them are read for ever.
    #[test]
    fn a_position_of_the_first_version_is_still_one() {
        let mut bytes = vec![8];
        bytes.extend([1; 8]);
        bytes.extend([0x80, 0x89, 0x7a]);
        bytes.push(13);
        bytes.extend(b"https://a.b/p");
        bytes.extend([3, 0xac, 0x02, 1, 0]);
        let position = Position::decode(&bytes).unwrap();
        assert_eq!((position.started, position.records), (1_000_000, 300));
        assert_eq!(
            position.plan,
            Plan::Full {
                why: Full::Snapshot,
                since: None
            }
        );
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
