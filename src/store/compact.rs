//! Rewriting into a new store, since sled's file never shrinks.

use std::ops::Bound;

use super::check::{Check, Totals};
use super::error::StoreError;
use super::raw::{SEGMENT, Tree};
use super::{Store, keys, recover};

/// Below this a rewrite is not worth its writes.
const SMALL: u64 = 4 * 1024 * 1024;

/// Bytes of entries in one batch of a rewrite: appending in order takes about four times as much log.
const BATCH: usize = 24 * 1024;

impl Store {
    /// Whether the file is larger than 4 MiB and four times what is in it.
    ///
    /// # Errors
    ///
    /// [`StoreError::Io`] and its like.
    pub fn wants_compaction(&self) -> Result<bool, StoreError> {
        Ok(self.size()? > SMALL.max(self.check.totals.bytes.saturating_mul(4)))
    }

    /// Copies all entries into a new store, checks their sum, and goes on with that one. `breathe` is called between
    /// batches, some milliseconds apart on a fast disk, so that nobody else waits for all of it. A cut at any point
    /// leaves the one or the other.
    ///
    /// # Errors
    ///
    /// [`StoreError::Damaged`] if what was read is not what was committed, and the errors of the surroundings: then this
    /// store stays in use. An error while `CURRENT` changes poisons it.
    pub fn compact(&mut self, breathe: impl FnMut()) -> Result<(), StoreError> {
        self.refuse_poisoned()?;
        let dir = recover::next_dir(&self.home)?;
        let copied =
            Tree::open(&dir, SEGMENT).and_then(|new| self.copy_into(&new, breathe).map(|()| new));
        let new = match copied {
            Ok(new) => new,
            Err(error) => {
                recover::remove(&dir)?;
                return Err(error);
            }
        };
        // From here on either one may be the store after a cut: they hold the same. After an error it is not known
        // which, so nothing may be written to this one any more.
        let outcome = recover::write_current(&self.home, &dir);
        self.poison_on_error(outcome)?;
        self.nearby.borrow_mut().clear();
        self.scan = None;
        drop(std::mem::replace(&mut self.tree, new));
        recover::remove_others(&self.home, &dir)
    }

    /// The format entry goes last, with the totals: without it a store does not open.
    fn copy_into(&self, new: &Tree, mut breathe: impl FnMut()) -> Result<(), StoreError> {
        let last = [keys::format(), keys::check()];
        let mut batch = sled::Batch::default();
        let mut size = 0;
        for entry in self.tree.range(Bound::Unbounded) {
            let (key, value) = entry?;
            if last.iter().any(|last| key == last) {
                continue;
            }
            size += key.len() + value.len();
            batch.insert(key, value);
            if size >= BATCH {
                new.write(std::mem::take(&mut batch))?;
                size = 0;
                breathe();
            }
        }
        for key in last {
            let value = self
                .tree
                .get(&key)?
                .ok_or_else(|| StoreError::damaged("its own entries are gone"))?;
            batch.insert(key, value);
        }
        new.write(batch)?;
        let totals = total(new, breathe)?;
        let check = new
            .get(&keys::check())?
            .map(|value| Check::decode(&value))
            .transpose()?;
        if check != Some(self.check) || totals != self.check.totals {
            return Err(StoreError::damaged(
                "a rewrite does not hold what was committed",
            ));
        }
        Ok(())
    }
}

/// Reads all entries of a tree.
fn total(tree: &Tree, mut breathe: impl FnMut()) -> Result<Totals, StoreError> {
    let mut totals = Totals::default();
    for entry in tree.range(Bound::Unbounded) {
        let (key, value) = entry?;
        if key != keys::check() {
            totals.add(&key, &value);
        }
        if totals.entries % 64 == 0 {
            breathe();
        }
    }
    Ok(totals)
}
