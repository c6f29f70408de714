//! The state store: what is known of every record, how far every pass came, and whether all that is still what was
//! written. The only room that names sled.
//!
//! | file | idea |
//! |---|---|
//! | `raw` | sled in its rails: open, read, write, panics caught |
//! | `recover` | directory, lock, `CURRENT`; damage told from environment; putting aside |
//! | `keys` | layout of keys |
//! | `leaf` | many records in one value |
//! | `plan` | changes to records → leaves to write |
//! | `commit` | a batch, in parts that are each whole; generation last |
//! | `records` | lookups and iteration |
//! | `seen` | event ids of hooks |
//! | `check` | the own check |
//! | `compact` | rewriting into a new store |
//!
//! A commit is durable when it returns. After an error of a commit nobody knows what is on disk: the store refuses
//! every further one, and the process has to end and open it again.

mod check;
mod commit;
mod compact;
mod error;
mod fingerprint;
mod keys;
mod leaf;
mod plan;
mod raw;
mod records;
mod recover;
mod seen;

#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::File;
use std::ops::Bound;
use std::path::PathBuf;

pub use check::{Progress, Verdict};
pub use commit::Batch;
pub use error::StoreError;
pub use fingerprint::fingerprint;
pub use keys::{Key, MAX_REST, MAX_VALUE, SourceId, Tag};
pub use records::Records;
pub use recover::Opening;
pub use seen::EventKey;

use check::Check;
use raw::Tree;
use records::Nearby;

use crate::record::Ordinal;

/// The store. One process has it open at a time; see the module for what a commit promises.
#[derive(Debug)]
pub struct Store {
    tree: Tree,
    /// The directory that holds `CURRENT`.
    home: PathBuf,
    /// Held as long as the store is open.
    lock: File,
    salt: [u8; 16],
    check: Check,
    sources: BTreeMap<u16, Source>,
    nearby: RefCell<Nearby>,
    seen: RefCell<Option<seen::Index>>,
    scan: Option<check::Scan>,
    poisoned: Option<String>,
    /// Goes with the next commit.
    rider: Option<(Vec<u8>, Vec<u8>)>,
}

/// What is kept of a source.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Source {
    name: String,
    rows: u64,
    /// The next ordinal to give out.
    next: Ordinal,
}

impl Source {
    fn encode(&self) -> Vec<u8> {
        let mut value = vec![ENTRY_VERSION];
        value.extend_from_slice(&self.rows.to_be_bytes());
        value.extend_from_slice(&self.next.to_be_bytes());
        value
    }

    fn decode(name: &[u8], rows: Option<&[u8]>) -> Option<Self> {
        let (&ENTRY_VERSION, name) = name.split_first()? else {
            return None;
        };
        let name = String::from_utf8(name.to_vec()).ok()?;
        let Some((&ENTRY_VERSION, counts)) = rows?.split_first() else {
            return None;
        };
        let (rows, next) = counts.split_at_checked(8)?;
        Some(Self {
            name,
            rows: u64::from_be_bytes(rows.try_into().ok()?),
            next: u32::from_be_bytes(next.try_into().ok()?),
        })
    }
}

const ENTRY_VERSION: u8 = 1;

impl Store {
    /// Whether a commit has failed: nothing more is written then, and the store is to be opened anew.
    #[must_use]
    pub fn is_poisoned(&self) -> bool {
        self.poisoned.is_some()
    }

    /// The generation of the last whole commit; 0 in a new store.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.check.generation
    }

    /// Random bytes made with the store, for [`fingerprint`].
    #[must_use]
    pub fn salt(&self) -> &[u8; 16] {
        &self.salt
    }

    /// The number of the source of this name, given out now if it has none. The number and the ordinals below it
    /// outlive [`Store::forget`].
    ///
    /// # Errors
    ///
    /// Those of a commit, [`StoreError::TooLarge`] for a name over 2 kB, [`StoreError::Exhausted`] after 65,535 sources.
    pub fn source(&mut self, name: &str) -> Result<SourceId, StoreError> {
        if let Some((id, _)) = self.sources.iter().find(|(_, source)| source.name == name) {
            return Ok(SourceId(*id));
        }
        let last = self.sources.keys().next_back().copied().unwrap_or(0);
        let id = last.checked_add(1).ok_or(StoreError::Exhausted {
            what: "source numbers",
        })?;
        self.add_source(SourceId(id), name)?;
        Ok(SourceId(id))
    }

    /// Number and name of every source that ever was.
    pub fn sources(&self) -> impl Iterator<Item = (SourceId, &str)> {
        self.sources
            .iter()
            .map(|(id, source)| (SourceId(*id), source.name.as_str()))
    }

    /// How many records of a source are known.
    #[must_use]
    pub fn count(&self, source: SourceId) -> u64 {
        self.sources.get(&source.0).map_or(0, |source| source.rows)
    }

    /// An ordinal that no record of this source ever had. It is on disk with the next commit; one that was given out
    /// and never committed may come again after a restart.
    ///
    /// # Errors
    ///
    /// [`StoreError::Unknown`] source; [`StoreError::Exhausted`] after four billion.
    pub fn next_ordinal(&mut self, source: SourceId) -> Result<Ordinal, StoreError> {
        let entry = self
            .sources
            .get_mut(&source.0)
            .ok_or_else(|| unknown(source))?;
        let ordinal = entry.next;
        entry.next = ordinal
            .checked_add(1)
            .ok_or(StoreError::Exhausted { what: "ordinals" })?;
        Ok(ordinal)
    }

    /// The first ordinal that was not given out yet: all in use are below it.
    #[must_use]
    pub fn ordinals(&self, source: SourceId) -> Ordinal {
        self.sources.get(&source.0).map_or(0, |source| source.next)
    }

    /// The small entry of this key.
    ///
    /// # Errors
    ///
    /// [`StoreError::Newer`] if a newer gleaner wrote it, [`StoreError::Damaged`].
    pub fn get(&self, key: &Key) -> Result<Option<Vec<u8>>, StoreError> {
        self.tree
            .get(key.bytes())?
            .map(|value| unversioned(key.tag, &value))
            .transpose()
    }

    /// The small entries whose key starts like this one, as rest of the key and value, in the order of their keys.
    pub fn scan<'a>(
        &'a self,
        prefix: &'a Key,
    ) -> impl Iterator<Item = Result<(Vec<u8>, Vec<u8>), StoreError>> + 'a {
        let starts = move |entry: &Result<(raw::Bytes, raw::Bytes), StoreError>| {
            entry
                .as_ref()
                .map_or(true, |(key, _)| key.starts_with(prefix.bytes()))
        };
        self.tree
            .range(Bound::Included(prefix.bytes()))
            .take_while(starts)
            .map(move |entry| {
                let (key, value) = entry?;
                Ok((
                    prefix.rest_of(&key).to_vec(),
                    unversioned(prefix.tag, &value)?,
                ))
            })
    }
}

fn unknown(source: SourceId) -> StoreError {
    StoreError::Unknown {
        what: format!("source number {}", source.0),
    }
}

/// The value as another room gave it.
fn unversioned(tag: Tag, value: &[u8]) -> Result<Vec<u8>, StoreError> {
    match value.split_first() {
        Some((&found, rest)) if found == tag.version() => Ok(rest.to_vec()),
        Some((&found, _)) if found > tag.version() => Err(StoreError::Newer {
            what: tag.name(),
            found,
            known: tag.version(),
        }),
        _ => Err(StoreError::damaged(format!(
            "{} has no version",
            tag.name()
        ))),
    }
}
