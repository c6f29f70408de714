//! Which segment may go, and why.

use std::time::Duration;

/// What an inbox may take, and how long it keeps what was processed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes that its segments may take; below 16 MiB the segments are made smaller too.
    pub quota: u64,
    /// How long payloads are kept after they were received, as far as the quota allows. What is not processed is kept in
    /// any case.
    pub keep: Duration,
    /// Bytes to be left free on the file system: with less, nothing is taken.
    pub low_water: u64,
    /// How many payloads may wait or be dead; each takes 32 bytes of memory.
    pub outstanding: usize,
}

impl Default for Limits {
    /// 256 MiB, 30 days, 16 MiB, 100,000.
    fn default() -> Self {
        Self {
            quota: 256 * 1024 * 1024,
            keep: Duration::from_secs(30 * 24 * 3600),
            low_water: 16 * 1024 * 1024,
            outstanding: 100_000,
        }
    }
}

/// What decides about a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Facts {
    pub(super) number: u32,
    pub(super) bytes: u64,
    /// It is no longer filled, and nothing in it waits or is dead.
    pub(super) settled: bool,
    /// The last instant of a trusted clock at which it can have got a record, in seconds since 1970.
    pub(super) newest: Option<u32>,
}

/// Which segment goes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Eviction {
    /// None: there is room, and nothing is old.
    Nothing,
    /// This one: all in it is older than is kept.
    Old(u32),
    /// This one, since room is needed and it is the oldest.
    ForRoom(u32),
    /// None, though room is needed: all that is there has to be kept.
    NoRoom {
        /// Bytes taken.
        used: u64,
    },
}

/// Decides about segments, oldest first. `need` are bytes that are to be taken now; `now` is unknown as long as the clock is
/// not trusted, and then nothing is old. Room goes by order alone.
pub(super) fn decide(
    segments: impl Iterator<Item = Facts>,
    need: u64,
    limits: &Limits,
    now: Option<u32>,
) -> Eviction {
    let (mut used, mut oldest) = (0_u64, None);
    for segment in segments {
        used = used.saturating_add(segment.bytes);
        if segment.settled && oldest.is_none() {
            oldest = Some(segment);
        }
    }
    let short = need > 0 && used.saturating_add(need) > limits.quota;
    match oldest {
        Some(segment) if short => Eviction::ForRoom(segment.number),
        None if short => Eviction::NoRoom { used },
        Some(Facts {
            number,
            newest: Some(newest),
            ..
        }) if now.is_some_and(|now| is_old(newest, now, limits.keep)) => Eviction::Old(number),
        _ => Eviction::Nothing,
    }
}

fn is_old(newest: u32, now: u32, keep: Duration) -> bool {
    u64::from(now.saturating_sub(newest)) > keep.as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(number: u32, settled: bool, newest: Option<u32>) -> Facts {
        Facts {
            number,
            bytes: 10,
            settled,
            newest,
        }
    }

    #[test]
    fn the_oldest_settled_segment_goes_when_it_is_old_or_room_is_needed() {
        let limits = Limits {
            quota: 35,
            keep: Duration::from_secs(100),
            ..Limits::default()
        };
        let stuck = facts(1, false, Some(1));
        let old = facts(2, true, Some(1000));
        let young = facts(3, true, Some(2000));
        let undated = facts(4, true, None);
        let table: &[(&[Facts], u64, Option<u32>, Eviction)] = &[
            (&[], 0, Some(9999), Eviction::Nothing),
            (&[], 36, Some(9999), Eviction::NoRoom { used: 0 }),
            (&[stuck], 0, Some(9999), Eviction::Nothing),
            (&[stuck, old], 0, Some(1100), Eviction::Nothing),
            (&[stuck, old], 0, Some(1101), Eviction::Old(2)),
            (&[stuck, old], 0, Some(500), Eviction::Nothing),
            (&[stuck, old], 0, None, Eviction::Nothing),
            (&[stuck, old], 15, None, Eviction::Nothing),
            (&[stuck, old], 16, None, Eviction::ForRoom(2)),
            (&[stuck, young], 16, Some(2001), Eviction::ForRoom(3)),
            (&[young, old], 0, Some(2001), Eviction::Nothing),
            (&[undated, old], 0, Some(9999), Eviction::Nothing),
            (&[stuck; 4], 10, Some(9999), Eviction::NoRoom { used: 40 }),
            (&[stuck; 4], 0, Some(9999), Eviction::Nothing),
        ];
        for (segments, need, now, expected) in table {
            let decided = decide(segments.iter().copied(), *need, &limits, *now);
            assert_eq!(decided, *expected, "{segments:?} {need} {now:?}");
        }
    }
}
