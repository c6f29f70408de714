//! What is in memory of a segment: its totals, and an entry for each record that is not settled.

use std::collections::BTreeMap;
use std::path::Path;

use super::frame::Marker;
use super::id::RequestId;
use super::keep::Facts;
use super::marks::{self, Log, Mark, Summary};
use super::state::State;

/// Where a record is; records come in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// The number of the segment.
    pub segment: u32,
    /// Bytes before the record in there.
    pub offset: u32,
}

/// A record that is not settled: 32 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) id: RequestId,
    pub(super) offset: u32,
    /// When it is tried next, in seconds since 1970.
    pub(super) next: u32,
    pub(super) hook: u16,
    pub(super) tries: u16,
    pub(super) standing: Standing,
}

/// The states of records that are not settled, without what takes room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    Pending,
    Failed,
    Dead,
}

impl Entry {
    /// Takes a state over; `false` if that settles the record.
    pub(super) fn take(&mut self, state: &State) -> bool {
        (self.standing, self.tries, self.next) = match state {
            State::Pending => (Standing::Pending, 0, 0),
            State::Failed { tries, next, .. } => (Standing::Failed, *tries, *next),
            State::Dead { tries, .. } => (Standing::Dead, *tries, 0),
            State::Done | State::Dropped | State::Void => return false,
        };
        true
    }

    pub(super) fn word(&self) -> &'static str {
        match self.standing {
            Standing::Pending => "pending",
            Standing::Failed => "failed",
            Standing::Dead => "dead",
        }
    }
}

/// A segment.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) marker: Marker,
    pub(super) bytes: u64,
    /// In the order of their offsets.
    pub(super) entries: Vec<Entry>,
    pub(super) log: Log,
    /// Over all records that were synced.
    pub(super) summary: Summary,
    /// Its log ends with the summary.
    pub(super) done: bool,
}

impl Segment {
    pub(super) fn new(marker: Marker, bytes: u64) -> Self {
        Self {
            marker,
            bytes,
            entries: Vec::new(),
            log: Log::default(),
            summary: Summary {
                records: 0,
                ids: ([0xFF; 16], [0; 16]),
                newest: None,
            },
            done: false,
        }
    }

    /// Counts a record in.
    pub(super) fn count(&mut self, id: RequestId, trusted_at: Option<u32>) {
        let summary = &mut self.summary;
        summary.records = summary.records.saturating_add(1);
        summary.ids.0 = summary.ids.0.min(id.0);
        summary.ids.1 = summary.ids.1.max(id.0);
        summary.newest = summary.newest.max(trusted_at);
    }

    /// Whether a record of this id may be in here.
    pub(super) fn may_hold(&self, id: RequestId) -> bool {
        (self.summary.ids.0..=self.summary.ids.1).contains(&id.0)
    }

    pub(super) fn facts(&self, number: u32, active: bool) -> Facts {
        Facts {
            number,
            bytes: self.bytes,
            settled: !active && self.entries.is_empty(),
            newest: self.summary.newest,
        }
    }

    pub(super) fn find(&self, offset: u32) -> Option<usize> {
        self.entries
            .binary_search_by_key(&offset, |entry| entry.offset)
            .ok()
    }

    /// Takes marks over. Returns how many records are settled now.
    pub(super) fn apply(&mut self, marks: &[Mark]) -> usize {
        let last: BTreeMap<u32, &State> = marks
            .iter()
            .map(|mark| (mark.offset, &mark.state))
            .collect();
        let before = self.entries.len();
        self.entries.retain_mut(|entry| {
            last.get(&entry.offset)
                .is_none_or(|state| entry.take(state))
        });
        let settled = before - self.entries.len();
        if self.entries.len() < self.entries.capacity() / 4 {
            self.entries.shrink_to_fit();
        }
        settled
    }

    /// Writes the last words of a log. Best effort: without them the segment is looked through at the next start.
    pub(super) fn finish(&mut self, dir: &Path, number: u32) {
        if self.done || !self.entries.is_empty() {
            return;
        }
        let summary = self.summary;
        let finished = self
            .log
            .append((dir, number), self.marker, &[], Some(&summary))
            .and_then(|()| marks::finish(dir, number));
        match finished {
            Ok(()) => self.done = true,
            Err(error) => log::warn!("{error}"),
        }
    }
}

/// The number of a hook's name, given out now if it has none.
pub(super) fn intern(hooks: &mut Vec<String>, name: &str) -> u16 {
    let known = hooks.iter().position(|hook| hook == name);
    let number = known.unwrap_or_else(|| {
        hooks.push(name.to_owned());
        hooks.len() - 1
    });
    // A config does not have 65,536 hooks; should it, their last ones are told apart by reading.
    u16::try_from(number).unwrap_or(u16::MAX)
}
