//! How far a source's incremental passes have come, and what its full passes found. Pure.

use std::time::Duration;

use super::codec::{Reader, Writer};
use super::plan::Full;
use crate::clock::Timestamp;

/// Reconciles that are remembered.
const KEPT: usize = 8;
/// Buckets of the lateness histogram: bucket n counts what was at least 2ⁿ⁻¹ and less than 2ⁿ seconds late, bucket 0 what
/// was not late at all.
pub const BUCKETS: usize = 32;

/// What is kept of a source between passes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Progress {
    /// When the last complete pass started, by the upstream's clock.
    pub watermark: Option<Timestamp>,
    /// The cursor of the last complete pass, exactly as it came. An empty one is one.
    pub cursor: Option<String>,
    /// From when on the copy holds everything, and the config's `first` that said so.
    pub origin: Option<(Duration, Timestamp)>,
    /// When the last complete full pass started, by the upstream's clock.
    pub full_at: Option<Timestamp>,
    /// How long the last complete full pass took.
    pub full_took: Option<Duration>,
    /// The next pass has to be a full one, and why.
    pub owed: Option<Full>,
    /// Records that the last full pass missed and that wait for a person's word, of how many.
    pub unconfirmed: Option<(u64, u64)>,
    /// What the last reconciles found that incremental passes had missed; the newest last.
    pub drift: Vec<Drift>,
    /// How late records became visible at least.
    pub lateness: [u64; BUCKETS],
}

/// What a reconcile found that windows or cursors had missed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drift {
    /// When it started, by the upstream's clock.
    pub at: Timestamp,
    /// Why it was made.
    pub why: Full,
    /// Records that had not been met.
    pub added: u64,
    /// Records that had changed unnoticed.
    pub changed: u64,
    /// Records that were gone unnoticed.
    pub deleted: u64,
}

impl Drift {
    /// Records in all.
    #[must_use]
    pub fn sum(&self) -> u64 {
        self.added + self.changed + self.deleted
    }
}

impl Progress {
    /// Remembers what a reconcile found.
    pub fn note_drift(&mut self, drift: Drift) {
        self.drift.push(drift);
        let surplus = self.drift.len().saturating_sub(KEPT);
        self.drift.drain(..surplus);
    }

    /// Counts how late a record became visible at least.
    pub fn note_lateness(&mut self, late: Duration) {
        let seconds = late.as_secs();
        let bucket = (u64::BITS - seconds.leading_zeros()) as usize;
        if let Some(count) = self.lateness.get_mut(bucket.min(BUCKETS - 1)) {
            *count = count.saturating_add(1);
        }
    }

    /// How many records the histogram has, and how late the given share of them was at most: the upper end of the bucket.
    #[must_use]
    pub fn late_by(&self, share: f64) -> (u64, Duration) {
        let total: u64 = self.lateness.iter().sum();
        #[expect(
            clippy::cast_precision_loss,
            reason = "counts of records are far below 2^52"
        )]
        let enough = |sum: u64| sum as f64 >= total as f64 * share;
        let mut sum = 0;
        for (bucket, count) in self.lateness.iter().enumerate() {
            sum += count;
            if enough(sum) {
                let most = if bucket == 0 { 0 } else { 1 << bucket };
                return (total, Duration::from_secs(most));
            }
        }
        (total, Duration::ZERO)
    }

    /// As an entry. What a later version appends is cut off by an earlier one.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::default();
        time(&mut writer, self.watermark);
        writer.optional(self.cursor.as_deref().map(str::as_bytes));
        match self.origin {
            None => {
                writer.number(0);
            }
            Some((first, origin)) => {
                writer.number(1).number(first.as_secs());
                time(&mut writer, Some(origin));
            }
        }
        time(&mut writer, self.full_at);
        let took = self.full_took.map_or(0, |took| took.as_secs() + 1);
        writer.number(took);
        writer.number(self.owed.map_or(0, |why| why.number() + 1));
        match self.unconfirmed {
            None => writer.number(0),
            Some((missing, known)) => writer.number(1).number(missing).number(known),
        };
        writer.number(self.drift.len() as u64);
        for drift in &self.drift {
            time(&mut writer, Some(drift.at));
            writer
                .number(drift.why.number())
                .number(drift.added)
                .number(drift.changed)
                .number(drift.deleted);
        }
        let used = self.lateness.iter().rposition(|count| *count > 0);
        let used = used.map_or(0, |last| last + 1);
        writer.number(used as u64);
        for count in self.lateness.iter().take(used) {
            writer.number(*count);
        }
        writer.finish()
    }

    /// Back from one.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(bytes);
        let mut progress = Self {
            watermark: read_time(&mut reader)?,
            cursor: match reader.optional()? {
                None => None,
                Some(cursor) => Some(std::str::from_utf8(cursor).ok()?.to_owned()),
            },
            ..Self::default()
        };
        if reader.number()? == 1 {
            let first = Duration::from_secs(reader.number()?);
            progress.origin = Some((first, read_time(&mut reader)??));
        }
        progress.full_at = read_time(&mut reader)?;
        progress.full_took = reader.number()?.checked_sub(1).map(Duration::from_secs);
        progress.owed = match reader.number()?.checked_sub(1) {
            None => None,
            Some(number) => Some(Full::numbered(number)?),
        };
        if reader.number()? == 1 {
            progress.unconfirmed = Some((reader.number()?, reader.number()?));
        }
        for _ in 0..reader.number()?.min(KEPT as u64) {
            progress.drift.push(Drift {
                at: read_time(&mut reader)??,
                why: Full::numbered(reader.number()?)?,
                added: reader.number()?,
                changed: reader.number()?,
                deleted: reader.number()?,
            });
        }
        let used = usize::try_from(reader.number()?).ok()?;
        for count in progress.lateness.iter_mut().take(used) {
            *count = reader.number()?;
        }
        Some(progress)
    }
}

/// An instant with its nanoseconds, or none.
pub(super) fn time(writer: &mut Writer, time: Option<Timestamp>) {
    match time {
        None => writer.number(0),
        Some(time) => {
            let nanos = time.subsec_nanosecond();
            writer
                .number(1)
                .signed(time.as_second())
                .signed(nanos.into())
        }
    };
}

/// Back from that.
#[expect(clippy::option_option, reason = "unreadable, or none")]
pub(super) fn read_time(reader: &mut Reader<'_>) -> Option<Option<Timestamp>> {
    match reader.number()? {
        0 => Some(None),
        1 => {
            let (seconds, nanos) = (reader.signed()?, i32::try_from(reader.signed()?).ok()?);
            Timestamp::new(seconds, nanos).ok().map(Some)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_time() -> impl Strategy<Value = Timestamp> {
        (-10_000_000_000i64..10_000_000_000, 0i32..1_000_000_000)
            .prop_map(|(seconds, nanos)| Timestamp::new(seconds, nanos).unwrap())
    }

    fn any_drift() -> impl Strategy<Value = Drift> {
        (any_time(), 0u64..8, any::<u64>(), 0u64..9, 0u64..9).prop_map(
            |(at, why, added, changed, deleted)| Drift {
                at,
                why: Full::numbered(why).unwrap(),
                added,
                changed,
                deleted,
            },
        )
    }

    proptest! {
        #[test]
        fn it_survives_storing(
            watermark in proptest::option::of(any_time()),
            cursor: Option<String>,
            origin in proptest::option::of((0u64..1_000_000_000, any_time())),
            full in (proptest::option::of(any_time()), proptest::option::of(0u64..100_000), proptest::option::of(0u64..8)),
            unconfirmed: Option<(u64, u64)>,
            drift in proptest::collection::vec(any_drift(), 0..=KEPT),
            lateness in proptest::collection::vec(any::<u64>(), BUCKETS),
            tail: Vec<u8>,
        ) {
            let progress = Progress {
                watermark,
                cursor,
                origin: origin.map(|(first, origin)| (Duration::from_secs(first), origin)),
                full_at: full.0,
                full_took: full.1.map(Duration::from_secs),
                owed: full.2.and_then(Full::numbered),
                unconfirmed,
                drift,
                lateness: lateness.try_into().unwrap(),
            };
            let mut bytes = progress.encode();
            prop_assert_eq!(Progress::decode(&bytes), Some(progress.clone()));
            bytes.extend(tail);
            prop_assert_eq!(Progress::decode(&bytes), Some(progress), "a later version wrote more");
        }

        #[test]
        fn garbage_is_no_progress_and_no_panic(bytes: Vec<u8>) {
            let _ = Progress::decode(&bytes);
        }
    }

    #[test]
    fn how_late_records_are() {
        let mut progress = Progress::default();
        assert_eq!(progress.late_by(0.99), (0, Duration::ZERO));
        for seconds in [0, 0, 0, 1, 3, 4, 3599, 3600, 100_000] {
            progress.note_lateness(Duration::from_secs(seconds));
        }
        progress.note_lateness(Duration::MAX);
        assert_eq!(progress.late_by(0.5), (10, Duration::from_secs(4)));
        assert_eq!(progress.late_by(0.8), (10, Duration::from_secs(4096)));
        assert_eq!(progress.late_by(0.9), (10, Duration::from_secs(131_072)));
        assert_eq!(progress.late_by(1.0), (10, Duration::from_secs(1 << 31)));
    }
}
