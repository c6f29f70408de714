//! A batch, written in parts that are each whole in themselves. Only the last one carries the generation.
//!
//! sled can reuse a segment too early when one commit's log is longer than about a segment, so no part comes near that.
//! Every part moves row counts and sums along with what it writes, so a cut between two parts leaves a sound store of
//! the old generation: what was delivered but is not known is then compared again.

use std::mem;

use super::check::Check;
use super::error::StoreError;
use super::keys::{self, Key, MAX_VALUE, SourceId, Tag};
use super::plan::{self, Changes, Part, Writes};
use super::seen::Sighting;
use super::{ENTRY_VERSION, Source, Store, leaf, unknown};
use crate::record::{Known, RecordKey};

/// A part is written when its cost has come to this. The log of a part then takes 30 to 60 KiB, now and then twice that
/// (which nodes are due for rewriting is not to be seen from here), and stays well away from a whole segment.
pub(super) const BUDGET: usize = 40 * 1024;

/// Changes that belong together.
#[derive(Debug, Default)]
pub struct Batch {
    records: Changes,
    small: Vec<Small>,
    pub(super) seen: Vec<Sighting>,
    generation: Option<u64>,
}

#[derive(Debug)]
enum Small {
    Put(Key, Vec<u8>),
    Remove(Key),
    RemovePrefix(Key),
}

impl Batch {
    /// An empty batch.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// States what is known of a record.
    pub fn set(&mut self, source: SourceId, key: &RecordKey, known: Known) {
        self.records
            .insert((source, keys::stored(key).into_owned()), Some(known));
    }

    /// Forgets a record.
    pub fn unset(&mut self, source: SourceId, key: &RecordKey) {
        self.records
            .insert((source, keys::stored(key).into_owned()), None);
    }

    /// Writes a small entry. The store adds the version of its kind.
    pub fn put(&mut self, key: Key, value: &[u8]) {
        self.small.push(put(key, value));
    }

    /// Removes a small entry.
    pub fn remove(&mut self, key: Key) {
        self.small.push(Small::Remove(key));
    }

    /// Removes the small entries whose key starts like this one; those put later in this batch stay.
    pub fn remove_prefix(&mut self, prefix: Key) {
        self.small.push(Small::RemovePrefix(prefix));
    }

    /// Sets the store's generation, in the last part.
    pub fn generation(&mut self, generation: u64) {
        self.generation = Some(generation);
    }

    /// Whether there is nothing to commit.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
            && self.small.is_empty()
            && self.seen.is_empty()
            && self.generation.is_none()
    }
}

impl Store {
    /// Writes the batch; when this returns, it survives a power cut. First the records, then removals, then small
    /// entries, positions last; the generation with the last of them. What changes nothing is not written. Returns the
    /// number of parts that were written.
    ///
    /// # Errors
    ///
    /// [`StoreError::TooLarge`] and [`StoreError::Unknown`] (a source or an ordinal that was not given out) before
    /// anything is written. Any other error poisons the store.
    pub fn commit(&mut self, batch: Batch) -> Result<usize, StoreError> {
        self.refuse_poisoned()?;
        self.refuse_unfit(&batch)?;
        let outcome = self.write_batch(batch);
        self.poison_on_error(outcome)
    }

    /// Leaves a small entry that is worth keeping, but not worth a write of its own: it goes with the next commit that writes
    /// something. One that was left before and has not gone yet is replaced, whatever its key.
    ///
    /// # Errors
    ///
    /// [`StoreError::TooLarge`].
    pub fn ride_along(&mut self, key: &Key, value: &[u8]) -> Result<(), StoreError> {
        key.check()?;
        fits("a value", value.len(), MAX_VALUE - 1)?;
        let mut versioned = vec![key.tag.version()];
        versioned.extend_from_slice(value);
        self.rider = Some((key.bytes().to_vec(), versioned));
        Ok(())
    }

    /// Drops all that is known of a source: records, memos, position, bitmap; in parts. Its number stays, and its
    /// ordinals are not given out again. A cut in between leaves some of it.
    ///
    /// # Errors
    ///
    /// Any error poisons the store.
    pub fn forget(&mut self, source: SourceId) -> Result<(), StoreError> {
        self.refuse_poisoned()?;
        let outcome = self.write_forget(source);
        self.poison_on_error(outcome)
    }

    fn write_forget(&mut self, source: SourceId) -> Result<(), StoreError> {
        // The position first: what says that the rest is there goes before the rest.
        let tags = [Tag::Position, Tag::Memo, Tag::Bitmap];
        let mut prefixes: Vec<_> = tags
            .map(|tag| Key::new(tag, source, &[]).bytes().to_vec())
            .into();
        prefixes.push(keys::leaf_prefix(source).to_vec());
        let mut part = Part::default();
        for prefix in prefixes {
            for key in self.keys_below(&prefix)? {
                self.add(&mut part, key, None)?;
            }
        }
        self.write_part(part, None)
    }

    fn write_batch(&mut self, mut batch: Batch) -> Result<usize, StoreError> {
        let seen = self.plan_seen(mem::take(&mut batch.seen))?;
        batch
            .small
            .extend(seen.into_iter().map(|(key, value)| put(key, &value)));
        let mut parts = 0;
        let mut part = Part::default();
        let mut changes = batch.records.into_iter().peekable();
        while changes.peek().is_some() {
            plan::plan_leaf(&self.tree, &mut part, &mut changes)?;
            parts += self.write_full(&mut part)?;
        }
        let (puts, removals) = self.settle(batch.small)?;
        for (key, value) in removals.into_iter().chain(puts) {
            parts += self.add(&mut part, key, value)?;
        }
        if part.writes.is_empty() && batch.generation.is_none() {
            return Ok(parts);
        }
        self.write_part(part, batch.generation)?;
        Ok(parts + 1)
    }

    /// Small changes as entries to write and others to remove. The tags are in the order of writing already: `p` behind
    /// `b`, `c` and `m`.
    fn settle(&self, small: Vec<Small>) -> Result<(Writes, Writes), StoreError> {
        let mut entries = Writes::new();
        for change in small {
            match change {
                Small::Put(key, value) => {
                    entries.insert(key.bytes().to_vec(), Some(value));
                }
                Small::Remove(key) => {
                    entries.insert(key.bytes().to_vec(), None);
                }
                Small::RemovePrefix(prefix) => {
                    entries.retain(|key, _| !key.starts_with(prefix.bytes()));
                    entries.extend(
                        self.keys_below(prefix.bytes())?
                            .into_iter()
                            .map(|key| (key, None)),
                    );
                }
            }
        }
        Ok(entries.into_iter().partition(|(_, value)| value.is_some()))
    }

    fn keys_below(&self, prefix: &[u8]) -> Result<Vec<Vec<u8>>, StoreError> {
        let mut keys = Vec::new();
        for entry in self.tree.range(std::ops::Bound::Included(prefix)) {
            let (key, _) = entry?;
            if !key.starts_with(prefix) {
                break;
            }
            keys.push(key.to_vec());
        }
        Ok(keys)
    }

    /// Adds a write to a part, after writing the part if it is full. Returns how many parts that wrote.
    fn add(
        &mut self,
        part: &mut Part,
        key: Vec<u8>,
        value: Option<Vec<u8>>,
    ) -> Result<usize, StoreError> {
        let written = self.write_full(part)?;
        part.writes.insert(key, value);
        Ok(written)
    }

    fn write_full(&mut self, part: &mut Part) -> Result<usize, StoreError> {
        if part.cost() < BUDGET {
            return Ok(0);
        }
        self.write_part(mem::take(part), None)?;
        Ok(1)
    }

    /// Writes one part, with the counts and sums that follow from it.
    pub(super) fn write_part(
        &mut self,
        part: Part,
        generation: Option<u64>,
    ) -> Result<(), StoreError> {
        let mut batch = sled::Batch::default();
        let mut check = self.check;
        for (key, value) in part.writes {
            self.write_entry(&mut batch, &mut check, key, value)?;
        }
        let sources: Vec<_> = self
            .sources
            .iter()
            .map(|(id, source)| (SourceId(*id), source.encode()))
            .collect();
        for (id, value) in sources {
            self.write_entry(&mut batch, &mut check, keys::source_rows(id), Some(value))?;
        }
        if let Some(generation) = generation {
            check.generation = generation;
        }
        if check == self.check {
            return Ok(());
        }
        if let Some((key, value)) = self.rider.take() {
            self.write_entry(&mut batch, &mut check, key, Some(value))?;
        }
        batch.insert(keys::check(), check.encode());
        self.nearby.borrow_mut().clear();
        self.tree.write(batch)?;
        self.check = check;
        Ok(())
    }

    fn write_entry(
        &mut self,
        batch: &mut sled::Batch,
        check: &mut Check,
        key: Vec<u8>,
        value: Option<Vec<u8>>,
    ) -> Result<(), StoreError> {
        let old = self.tree.get(&key)?;
        if old.as_deref() == value.as_deref() {
            return Ok(());
        }
        if let Some(source) = keys::leaf_source(&key) {
            let count = |leaf: Option<&[u8]>| leaf.map_or(Ok(0), leaf::count).map(u64::from);
            let (before, after) = (count(old.as_deref())?, count(value.as_deref())?);
            let entry = self
                .sources
                .get_mut(&source.0)
                .ok_or_else(|| unknown(source))?;
            entry.rows = entry.rows.wrapping_sub(before).wrapping_add(after);
        }
        check.totals.replace(&key, old.as_deref(), value.as_deref());
        if let Some(scan) = &mut self.scan {
            scan.replace(&key, old.as_deref(), value.as_deref())?;
        }
        match value {
            Some(value) => batch.insert(key, value),
            None => batch.remove(key),
        }
        Ok(())
    }

    pub(super) fn add_source(&mut self, id: SourceId, name: &str) -> Result<(), StoreError> {
        self.refuse_poisoned()?;
        let mut value = vec![ENTRY_VERSION];
        value.extend_from_slice(name.as_bytes());
        fits("a source name", value.len(), 2048)?;
        self.sources.insert(
            id.0,
            Source {
                name: name.to_owned(),
                rows: 0,
                next: 0,
            },
        );
        let mut part = Part::default();
        part.writes.insert(keys::source_name(id), Some(value));
        let outcome = self.write_part(part, None);
        self.poison_on_error(outcome)
    }

    pub(super) fn refuse_poisoned(&self) -> Result<(), StoreError> {
        self.poisoned
            .as_ref()
            .map_or(Ok(()), |why| Err(StoreError::Poisoned { why: why.clone() }))
    }

    pub(super) fn poison_on_error<T>(
        &mut self,
        outcome: Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        outcome.inspect_err(|error| self.poisoned = Some(error.to_string()))
    }

    fn refuse_unfit(&self, batch: &Batch) -> Result<(), StoreError> {
        for ((source, _), known) in &batch.records {
            let entry = self
                .sources
                .get(&source.0)
                .ok_or_else(|| unknown(*source))?;
            if let Some(known) = known.filter(|known| known.ordinal >= entry.next) {
                return Err(StoreError::Unknown {
                    what: format!("ordinal {} of {}", known.ordinal, entry.name),
                });
            }
        }
        for change in &batch.small {
            match change {
                Small::Put(key, value) => {
                    key.check()?;
                    fits("a value", value.len(), MAX_VALUE)?;
                }
                Small::Remove(key) | Small::RemovePrefix(key) => key.check()?,
            }
        }
        Ok(())
    }
}

fn put(key: Key, value: &[u8]) -> Small {
    let mut versioned = Vec::with_capacity(value.len() + 1);
    versioned.push(key.tag.version());
    versioned.extend_from_slice(value);
    Small::Put(key, versioned)
}

fn fits(what: &'static str, len: usize, max: usize) -> Result<(), StoreError> {
    if len > max {
        Err(StoreError::TooLarge { what, len, max })
    } else {
        Ok(())
    }
}
