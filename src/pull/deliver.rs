//! A batch on its way: to the sinks, durably, then to the store.

use std::collections::HashMap;
use std::time::Duration;

use super::follow::mark_key;
use crate::clock::Timestamp;
use crate::config::Source;
use crate::record::{Change, Gone, Known, Ordinal, RecordKey};
use crate::sink::journal::Mark;
use crate::sink::lines::lines;
use crate::sink::sqlite::SqliteSink;
use crate::sink::{self, Sink as _, SinkError, SinkTrouble, Told};
use crate::store::{Batch, SourceId, Store, StoreError};
use crate::upstream::client::failure_of_io;
use crate::upstream::outcome::{Failure, Kind};
use crate::wait::Wait;

/// A batch is delivered when it has this many changes …
const MANY: usize = 250;
/// … or this many bytes.
const LARGE: usize = 256 * 1024;
/// How long another writer's lock on `data.db` is waited for, and in which steps.
const BUSY_STEP: Duration = Duration::from_millis(50);
const BUSY_STEPS: u32 = 100;

/// Changes that are not delivered yet.
#[derive(Debug, Default)]
pub(super) struct Pending {
    changes: Vec<Change>,
    known: HashMap<RecordKey, (usize, Option<Known>)>,
    /// Records that were known before.
    touched: Vec<Ordinal>,
    bytes: usize,
    /// What it comes to; counted when it is delivered.
    pub(super) counts: Counts,
}

/// What pending changes come to.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Counts {
    pub(super) added: u64,
    pub(super) changed: u64,
    pub(super) deleted: u64,
}

impl Pending {
    /// What will be known of a record once this is delivered; `None` if it is not in here.
    pub(super) fn known(&self, key: &RecordKey) -> Option<Option<Known>> {
        self.known.get(key).map(|(_, known)| *known)
    }

    /// The record of this ordinal, known before, changes or goes.
    pub(super) fn touch(&mut self, ordinal: Ordinal) {
        self.touched.push(ordinal);
    }

    /// Records that were known before and will be different, in order.
    pub(super) fn touched(&mut self) -> &[Ordinal] {
        self.touched.sort_unstable();
        &self.touched
    }

    pub(super) fn upsert(
        &mut self,
        key: RecordKey,
        body: &str,
        updated: Option<Timestamp>,
        known: Known,
    ) {
        let digest = known.digest;
        self.push(
            Change::Upsert {
                key,
                body: body.into(),
                digest,
                updated,
            },
            Some(known),
        );
    }

    pub(super) fn delete(&mut self, key: RecordKey, why: Gone) {
        self.push(Change::Delete { key, why }, None);
    }

    /// A key stands once: the later change takes the place of the earlier one.
    fn push(&mut self, change: Change, known: Option<Known>) {
        self.bytes += match &change {
            Change::Upsert { key, body, .. } => key.as_bytes().len() + body.len(),
            Change::Delete { key, .. } => key.as_bytes().len(),
        };
        match self.known.get_mut(change.key()) {
            Some((place, entry)) => {
                *entry = known;
                self.changes[*place] = change;
            }
            None => {
                self.known
                    .insert(change.key().clone(), (self.changes.len(), known));
                self.changes.push(change);
            }
        }
    }

    /// A change of this key comes to nothing: what came later in the same answer is what was there before.
    pub(super) fn take_back(&mut self, key: &RecordKey) {
        let Some((place, _)) = self.known.remove(key) else {
            return;
        };
        self.changes.swap_remove(place);
        if let Some(moved) = self.changes.get(place) {
            if let Some((at, _)) = self.known.get_mut(moved.key()) {
                *at = place;
            }
        }
        self.counts.changed = self.counts.changed.saturating_sub(1);
    }

    /// Records that are new or different, with their text.
    pub(super) fn upserts(&self) -> impl Iterator<Item = (&RecordKey, &str)> {
        self.changes.iter().filter_map(|change| match change {
            Change::Upsert { key, body, .. } => Some((key, &**body)),
            Change::Delete { .. } => None,
        })
    }

    pub(super) fn len(&self) -> u64 {
        self.changes.len() as u64
    }

    pub(super) fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    pub(super) fn is_full(&self) -> bool {
        self.changes.len() >= MANY || self.bytes >= LARGE
    }

    pub(super) fn last_key(&self) -> Option<RecordKey> {
        self.changes.last().map(|change| change.key().clone())
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

/// Where a batch goes.
pub(super) struct Delivery<'a> {
    pub(super) store: &'a mut Store,
    pub(super) sink: &'a mut SqliteSink,
    pub(super) wait: &'a Wait,
}

impl Delivery<'_> {
    /// Delivers what is pending under the next generation, then commits its digests under it, and `batch` with them.
    pub(super) fn flush(
        &mut self,
        source: &Source,
        id: SourceId,
        pending: &mut Pending,
        fetched: Timestamp,
        mut batch: Batch,
    ) -> Result<(), Failure> {
        if pending.changes.is_empty() {
            return Ok(());
        }
        let generation = self.store.generation() + 1;
        let (mark, seq) = if source.is_followed() {
            self.next(source, id)?
        } else {
            (Mark::default(), 0)
        };
        let text = if source.is_followed() {
            lines(&source.name, seq, fetched, &pending.changes)
        } else {
            Vec::new()
        };
        let told = source.is_followed().then_some(Told { seq, lines: &text });
        let delivered = sink::Batch {
            source,
            generation,
            fetched,
            changes: &pending.changes,
            told,
        };
        self.deliver(&delivered)?;
        match self.follow(&delivered, mark) {
            Ok(mark) if told.is_some() => batch.put(mark_key(id), &mark.encode()),
            Ok(_) => {}
            Err(failure) => {
                // The batch is held. What it overtakes vouches for nothing any more, whenever it goes on.
                self.store.commit(batch).map_err(|e| local(&e))?;
                return Err(failure);
            }
        }
        for (key, (_, known)) in pending.known.drain() {
            match known {
                Some(known) => batch.set(id, &key, known),
                None => batch.unset(id, &key),
            }
        }
        batch.generation(generation);
        // Between two syncs of the card, whoever else is served has a turn. A stop is noticed at the next wait: here it would
        // leave the sink ahead of the store for nothing.
        let _ = self.wait.breathe();
        self.store.commit(batch).map_err(|e| local(&e))?;
        *pending = Pending::default();
        Ok(())
    }

    /// A reader's tool that holds a write lock is waited for, with everybody served meanwhile; not for ever.
    fn deliver(&mut self, batch: &sink::Batch<'_>) -> Result<(), Failure> {
        let mut tries = 0;
        loop {
            match self.sink.deliver(batch) {
                Ok(()) => return Ok(()),
                Err(error) if error.kind == SinkTrouble::Busy && tries < BUSY_STEPS => {
                    tries += 1;
                    let until = self.wait.now().after(BUSY_STEP);
                    self.wait
                        .pause_until(until)
                        .map_err(|error| failure_of_io(&error))?;
                }
                Err(error) => return Err(sink_failure(&error)),
            }
        }
    }
}

/// What a sink's error means for a pass.
pub(super) fn sink_failure(error: &SinkError) -> Failure {
    let kind = match error.kind {
        SinkTrouble::Stopped => Kind::Stopped,
        _ => Kind::Local,
    };
    Failure::new(kind, error.to_string())
}

/// A failure of the store: it is this device's.
pub(super) fn local(error: &StoreError) -> Failure {
    Failure::new(Kind::Local, error.to_string())
}
