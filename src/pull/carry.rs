//! Records that come outside of a pass: in an event, or fetched because of one. Compared like any others, delivered in the
//! same order: the sink first, then the store.
//!
//! An event is a hint of what was, not of what is: it may be old, or come twice, or behind a later one. By update times an
//! older record never replaces a newer one, nor brings a deleted one back.

use super::deliver::{Delivery, Pending, local, sink_failure};
use super::keep::overtaken;
use super::reading::{BadRecord, RecordReader};
use super::repair::config_key;
use crate::clock::Timestamp;
use crate::config::{Pull, Source};
use crate::record::{Digest, Gone, Known, RecordKey};
use crate::sink::sqlite::{SqliteSink, Written};
use crate::store::{Batch, Key, SourceId, Store, Tag};
use crate::upstream::outcome::Failure;
use crate::wait::Wait;

/// How a record's grave is called in the store: its key is hashed, since keys are as long as upstreams like.
const GRAVE: &[u8] = b"grave";

/// What became of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Took {
    /// It was not known.
    Added,
    /// It differs from what was known.
    Changed,
    /// It is what is known.
    Unchanged,
    /// It says that it is gone, and was known.
    Deleted,
    /// What is known is newer.
    Older,
    /// What is known differs and is of the same time: only upstream can tell.
    Tie,
}

/// Why a record was not taken.
#[derive(Debug)]
pub enum Refused {
    /// It is not as the config says.
    Bad(BadRecord),
    /// It is this device's fault.
    Failed(Failure),
}

/// Carries records into one source.
pub struct Carrier<'a> {
    source: &'a Source,
    id: SourceId,
    store: &'a mut Store,
    sink: &'a mut SqliteSink,
    wait: &'a Wait,
    reader: RecordReader<'a>,
    salt: [u8; 16],
    pending: Pending,
    graves: Batch,
    carried: u64,
}

impl<'a> Carrier<'a> {
    /// Carries into `source`. `None`: what is known of it was read under another config than `config`; a pass has to adopt
    /// this one first.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn into_source(
        source: &'a Source,
        config: [u8; 8],
        store: &'a mut Store,
        sink: &'a mut SqliteSink,
        wait: &'a Wait,
    ) -> Result<Option<Self>, Failure> {
        let id = store.source(&source.name).map_err(|e| local(&e))?;
        let adopted = store.get(&config_key(id)).map_err(|e| local(&e))?;
        if adopted.as_deref() != Some(&config[..]) {
            return Ok(None);
        }
        let mut delivery = Delivery {
            store: &mut *store,
            sink: &mut *sink,
            wait,
        };
        delivery.settle(source, id)?;
        let salt = *store.salt();
        Ok(Some(Self {
            source,
            id,
            store,
            sink,
            wait,
            reader: RecordReader::new(source),
            salt,
            pending: Pending::default(),
            graves: Batch::new(),
            carried: 0,
        }))
    }

    /// Whether a record is as the config says: asked before any of several is taken, where all or none are to be.
    ///
    /// # Errors
    /// [`BadRecord`], as [`Carrier::take`] would have it.
    pub fn is_good(&self, raw: &[u8]) -> Result<(), BadRecord> {
        self.reader.read(raw).map(drop)
    }

    /// The key of a record, raw JSON.
    ///
    /// # Errors
    /// [`BadRecord`], as [`Carrier::take`] would have it.
    pub fn key(&self, raw: &[u8]) -> Result<RecordKey, BadRecord> {
        self.reader.read(raw).map(|reading| reading.key)
    }

    /// Takes one record, raw JSON. What is taken is delivered by [`Carrier::finish`] at the latest.
    ///
    /// # Errors
    /// [`Refused`]: nothing of this record was taken.
    pub fn take(&mut self, raw: &[u8]) -> Result<Took, Refused> {
        // Without anybody to ask, of two versions of one time the later to come counts.
        self.take_as(raw, self.source.pull == Pull::None)
    }

    fn take_as(&mut self, raw: &[u8], settles_ties: bool) -> Result<Took, Refused> {
        let reading = self.reader.read(raw).map_err(Refused::Bad)?;
        let known = self.known(&reading.key).map_err(Refused::Failed)?;
        let updated = reading.updated.map(Timestamp::as_millisecond);
        let since = match known {
            Some(known) => known.updated_ms,
            None => self.grave(&reading.key).map_err(Refused::Failed)?,
        };
        let is_older = updated
            .zip(since)
            .is_some_and(|(updated, since)| updated < since);
        if is_older {
            return Ok(Took::Older);
        }
        if reading.deleted {
            if let Some(updated) = updated {
                self.graves
                    .put(grave_key(self.id, &reading.key), &updated.to_be_bytes());
            }
            let Some(known) = known else {
                return Ok(Took::Unchanged);
            };
            self.pending.touch(known.ordinal);
            self.pending.delete(reading.key, Gone::Tombstone);
            self.flush_if_full().map_err(Refused::Failed)?;
            return Ok(Took::Deleted);
        }
        let digest = self.reader.digest(&reading);
        if known.is_some_and(|known| known.digest == digest) {
            return Ok(Took::Unchanged);
        }
        let is_doubted = known.is_some_and(|known| known.digest == Digest::UNKNOWN);
        if !settles_ties && updated.is_some() && updated == since && known.is_some() && !is_doubted
        {
            return Ok(Took::Tie);
        }
        let ordinal = match known {
            Some(known) => {
                self.pending.touch(known.ordinal);
                known.ordinal
            }
            None => {
                let next = self.store.next_ordinal(self.id);
                next.map_err(|e| Refused::Failed(local(&e)))?
            }
        };
        if since.is_some() && known.is_none() {
            self.graves.remove(grave_key(self.id, &reading.key));
        }
        let now_known = Known {
            digest,
            fingerprint: crate::store::fingerprint(&self.salt, raw),
            ordinal,
            updated_ms: updated,
        };
        let json = reading.json;
        self.pending
            .upsert(reading.key, json.as_str(), reading.updated, now_known);
        self.flush_if_full().map_err(Refused::Failed)?;
        Ok(if known.is_some() {
            Took::Changed
        } else {
            Took::Added
        })
    }

    /// Takes a record that was just fetched: it is what upstream has, so a tie goes to it.
    ///
    /// # Errors
    /// [`Refused`]: nothing of this record was taken.
    pub fn fetched(&mut self, raw: &[u8]) -> Result<Took, Refused> {
        self.take_as(raw, true)
    }

    /// Deletes a record that upstream says is gone; whether it was known.
    ///
    /// # Errors
    /// When it cannot be delivered.
    pub fn delete(&mut self, key: RecordKey) -> Result<bool, Failure> {
        let Some(known) = self.known(&key)? else {
            return Ok(false);
        };
        self.pending.touch(known.ordinal);
        self.pending.delete(key, Gone::Tombstone);
        self.flush_if_full()?;
        Ok(true)
    }

    /// Delivers what is left; how many records were delivered in all.
    ///
    /// # Errors
    /// What was not delivered has to be taken again.
    pub fn finish(mut self) -> Result<u64, Failure> {
        self.flush()?;
        Ok(self.carried)
    }

    fn known(&self, key: &RecordKey) -> Result<Option<Known>, Failure> {
        match self.pending.known(key) {
            Some(known) => Ok(known),
            None => self.store.find(self.id, key).map_err(|e| local(&e)),
        }
    }

    /// Up to when a record that is not known is known to be gone, in milliseconds since 1970.
    fn grave(&self, key: &RecordKey) -> Result<Option<i64>, Failure> {
        let stored = self.store.get(&grave_key(self.id, key));
        let stored = stored.map_err(|e| local(&e))?;
        Ok(stored
            .and_then(|bytes| bytes.try_into().ok())
            .map(i64::from_be_bytes))
    }

    fn flush_if_full(&mut self) -> Result<(), Failure> {
        if self.pending.is_full() {
            self.flush()?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Failure> {
        if self.pending.is_empty() && self.graves.is_empty() {
            return Ok(());
        }
        let mut batch = std::mem::take(&mut self.graves);
        overtaken(
            self.store,
            self.id,
            self.pending.touched(),
            |_| false,
            &mut batch,
        )?;
        if self.pending.is_empty() {
            return self.store.commit(batch).map(drop).map_err(|e| local(&e));
        }
        self.carried += self.pending.len();
        let fetched = self.wait.clock().wall();
        let mut delivery = Delivery {
            store: self.store,
            sink: self.sink,
            wait: self.wait,
        };
        delivery.flush(self.source, self.id, &mut self.pending, fetched, batch)
    }
}

/// Adopts a config for a source that no pass adopts it for: one that only hooks bring records to. Says whether there are
/// records that were written under another one: they are to be delivered again.
///
/// # Errors
/// When store or sink cannot be read or written.
pub fn adopt(
    source: &Source,
    config: [u8; 8],
    store: &mut Store,
    sink: &mut SqliteSink,
) -> Result<bool, Failure> {
    let id = store.source(&source.name).map_err(|e| local(&e))?;
    let known = store.count(id);
    super::repair::doubt(store, id, || ()).map_err(|e| local(&e))?;
    let written = Written {
        config: config.to_vec(),
        whole: known == 0,
    };
    sink.note_written(&source.name, &written)
        .map_err(|error| sink_failure(&error))?;
    let mut batch = Batch::new();
    batch.put(config_key(id), &config);
    store.commit(batch).map_err(|e| local(&e))?;
    Ok(known > 0)
}

fn grave_key(id: SourceId, key: &RecordKey) -> Key {
    let digest = crate::store::fingerprint(&[0; 16], key.as_bytes());
    let mut rest = GRAVE.to_vec();
    rest.extend_from_slice(&digest.0.to_be_bytes());
    Key::new(Tag::Counter, id, &rest)
}

/// Forgets graves of records that were gone longer ago than `before`, at most `slice` of them; how many.
///
/// # Errors
/// When the store cannot be read or written.
pub fn close_graves(
    store: &mut Store,
    id: SourceId,
    before: Timestamp,
    slice: usize,
) -> Result<usize, Failure> {
    let mut batch = Batch::new();
    let mut closed = 0;
    for entry in store.scan(&Key::new(Tag::Counter, id, GRAVE)) {
        let (rest, bytes) = entry.map_err(|e| local(&e))?;
        let since = bytes.try_into().ok().map(i64::from_be_bytes);
        if since.is_none_or(|since| since < before.as_millisecond()) {
            let mut name = GRAVE.to_vec();
            name.extend_from_slice(&rest);
            batch.remove(Key::new(Tag::Counter, id, &name));
            closed += 1;
            if closed == slice {
                break;
            }
        }
    }
    if closed > 0 {
        store.commit(batch).map_err(|e| local(&e))?;
    }
    Ok(closed)
}
