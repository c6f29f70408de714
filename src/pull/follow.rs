//! What the followers of a source are told, and when a batch counts as told.
//!
//! ```text
//! data.db (rows, and which batch) → journal → program → store commit (digests, and the number of the next change)
//! ```
//!
//! Between the first and the last step the batch is *held*: `data.db` notes its numbers, the store has not come so far. A held
//! batch goes on before anything else of its source does, with the same changes under the same numbers; other sources go on
//! meanwhile. Its first number is what it is called.

use super::deliver::{Delivery, Pending, local, sink_failure};
use super::keep::overtaken;
use crate::config::Source;
use crate::record::{Change, Digest, Known};
use crate::sink::journal::{Journal, Mark};
use crate::sink::lines::lines;
use crate::sink::program::OnChange;
use crate::sink::sqlite::{Held, SqliteSink};
use crate::sink::{self, Sink as _};
use crate::store::{Batch, Key, SourceId, Store, StoreError, Tag};
use crate::upstream::outcome::Failure;

/// Where the store keeps how far the followers of a source are.
#[must_use]
pub fn mark_key(id: SourceId) -> Key {
    Key::new(Tag::Counter, id, b"told")
}

/// How far they are.
///
/// # Errors
/// When the store cannot be read.
pub fn mark(store: &Store, id: SourceId) -> Result<Mark, StoreError> {
    let stored = store.get(&mark_key(id))?;
    Ok(stored.as_deref().and_then(Mark::decode).unwrap_or_default())
}

/// What a held batch came to when it was taken at last.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Settled {
    pub(super) added: u64,
    pub(super) changed: u64,
    pub(super) deleted: u64,
}

impl Delivery<'_> {
    /// How far the followers are, and the number of the next change. It never had another one: the store, `data.db` and the
    /// journal each remember, and the furthest counts.
    pub(super) fn next(&self, source: &Source, id: SourceId) -> Result<(Mark, u64), Failure> {
        let mark = mark(self.store, id).map_err(|e| local(&e))?;
        let noted = self.sink.next_told(&source.name);
        let mut next = mark.next.max(noted.map_err(|e| sink_failure(&e))?);
        if let Some(spec) = &source.journal {
            let last = Journal::new(self.sink.directory(), spec, mark).last();
            let last = last.map_err(|e| sink_failure(&e))?;
            next = next.max(last.map_or(1, |last| last.saturating_add(1)));
        }
        Ok((mark, next))
    }

    /// Tells the followers of a batch that `data.db` has; answers how far they are then.
    pub(super) fn follow(&mut self, batch: &sink::Batch<'_>, mark: Mark) -> Result<Mark, Failure> {
        let Some(told) = batch.told else {
            return Ok(mark);
        };
        let mut mark = Mark {
            next: told.seq + batch.changes.len() as u64,
            ..mark
        };
        if let Some(spec) = &batch.source.journal {
            let mut journal = Journal::new(self.sink.directory(), spec, mark);
            journal.deliver(batch).map_err(|e| sink_failure(&e))?;
            mark = journal.mark();
        }
        if let Some(program) = &batch.source.on_change {
            let mut program = OnChange::new(program, self.wait);
            program.deliver(batch).map_err(|e| sink_failure(&e))?;
        }
        Ok(mark)
    }

    /// Brings the batch of a source that is held, if there is one, to its followers, and commits it.
    pub(super) fn settle(&mut self, source: &Source, id: SourceId) -> Result<Settled, Failure> {
        let mut settled = Settled::default();
        // What is held of a source that nobody follows any more was settled when the state directory was opened.
        if !source.is_followed() {
            return Ok(settled);
        }
        let mark = mark(self.store, id).map_err(|e| local(&e))?;
        let held = self.sink.held(source, mark.next);
        let Some(held) = held.map_err(|e| sink_failure(&e))? else {
            return Ok(settled);
        };
        let text = lines(&source.name, held.seq, held.fetched, &held.changes);
        let told = sink::Told {
            seq: held.seq,
            lines: &text,
        };
        let generation = self.sink.generation().map_err(|e| sink_failure(&e))?;
        let delivered = sink::Batch {
            source,
            generation,
            fetched: held.fetched,
            changes: &held.changes,
            told: Some(told),
        };
        let mut mark = self.follow(&delivered, mark)?;
        mark.next = mark.next.max(held.seq + held.count);
        let mut pending = Pending::default();
        let mut batch = Batch::new();
        for change in &held.changes {
            let known = self.store.find(id, change.key()).map_err(|e| local(&e))?;
            if let Some(known) = known {
                pending.touch(known.ordinal);
            }
            match (change, known) {
                (Change::Delete { key, .. }, _) => {
                    settled.deleted += 1;
                    batch.unset(id, key);
                }
                (Change::Upsert { key, .. }, known) => {
                    let is_new = known.is_none();
                    settled.added += u64::from(is_new);
                    settled.changed += u64::from(!is_new);
                    batch.set(id, key, self.known_of(id, change, known)?);
                }
            }
        }
        overtaken(self.store, id, pending.touched(), |_| false, &mut batch)?;
        batch.put(mark_key(id), &mark.encode());
        if generation > self.store.generation() {
            batch.generation(generation);
        }
        self.store.commit(batch).map_err(|e| local(&e))?;
        Ok(settled)
    }

    fn known_of(
        &mut self,
        id: SourceId,
        change: &Change,
        known: Option<Known>,
    ) -> Result<Known, Failure> {
        let (digest, body, updated) = match change {
            Change::Upsert {
                digest,
                body,
                updated,
                ..
            } => (*digest, &**body, *updated),
            Change::Delete { .. } => (Digest::UNKNOWN, "", None),
        };
        let ordinal = match known {
            Some(known) => known.ordinal,
            None => self.store.next_ordinal(id).map_err(|e| local(&e))?,
        };
        Ok(Known {
            digest,
            fingerprint: crate::store::fingerprint(self.store.salt(), body.as_bytes()),
            ordinal,
            updated_ms: updated.map(crate::clock::Timestamp::as_millisecond),
        })
    }
}

/// What is to be put right at start: the held batch of a source, and whether anybody follows it still.
///
/// # Errors
/// When `data.db` or the store cannot be read.
pub(super) fn held(
    store: &Store,
    sink: &SqliteSink,
    source: &Source,
    id: SourceId,
) -> Result<Option<(Mark, Held)>, super::repair::RepairError> {
    let mark = mark(store, id)?;
    Ok(sink.held(source, mark.next)?.map(|held| (mark, held)))
}
