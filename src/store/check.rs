//! The own check: what the store should hold, against what it holds.
//!
//! sled answers a flipped bit by leaving out what it can't read, silently. So every commit also writes the number of
//! entries, their bytes, and a sum over them that does not depend on order, and a scan after start counts again.

use std::collections::BTreeMap;
use std::ops::Bound;

use sha2::{Digest as _, Sha256};

use super::error::StoreError;
use super::raw::Bytes;
use super::{Store, keys, leaf};

const VERSION: u8 = 1;

/// Count and sum over a set of entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Totals {
    pub(super) entries: u64,
    /// Of keys and values.
    pub(super) bytes: u64,
    sum: u128,
}

impl Totals {
    pub(super) fn add(&mut self, key: &[u8], value: &[u8]) {
        self.entries = self.entries.wrapping_add(1);
        self.bytes = self.bytes.wrapping_add(size(key, value));
        self.sum = self.sum.wrapping_add(hash(key, value));
    }

    pub(super) fn remove(&mut self, key: &[u8], value: &[u8]) {
        self.entries = self.entries.wrapping_sub(1);
        self.bytes = self.bytes.wrapping_sub(size(key, value));
        self.sum = self.sum.wrapping_sub(hash(key, value));
    }

    /// Puts one value in the place of another.
    pub(super) fn replace(&mut self, key: &[u8], old: Option<&[u8]>, new: Option<&[u8]>) {
        if let Some(old) = old {
            self.remove(key, old);
        }
        if let Some(new) = new {
            self.add(key, new);
        }
    }
}

fn size(key: &[u8], value: &[u8]) -> u64 {
    (key.len() + value.len()) as u64
}

/// The length of the key goes in first, so that no other pair gives the same text.
fn hash(key: &[u8], value: &[u8]) -> u128 {
    let digest = Sha256::new()
        .chain_update((key.len() as u64).to_be_bytes())
        .chain_update(key)
        .chain_update(value)
        .finalize();
    digest
        .iter()
        .take(16)
        .fold(0, |sum, byte| sum << 8 | u128::from(*byte))
}

/// The one entry that every commit writes: generation and totals, with a checksum of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Check {
    pub(super) generation: u64,
    pub(super) totals: Totals,
}

impl Check {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        out.extend_from_slice(&self.generation.to_be_bytes());
        out.extend_from_slice(&self.totals.entries.to_be_bytes());
        out.extend_from_slice(&self.totals.bytes.to_be_bytes());
        out.extend_from_slice(&self.totals.sum.to_be_bytes());
        let own = checksum(&out);
        out.extend_from_slice(&own);
        out
    }

    pub(super) fn decode(value: &[u8]) -> Result<Self, StoreError> {
        match value.first() {
            Some(&found) if found > VERSION => {
                return Err(StoreError::Newer {
                    what: "the store's check entry",
                    found,
                    known: VERSION,
                });
            }
            _ => {}
        }
        parse(value).ok_or_else(|| StoreError::damaged("the check entry cannot be read"))
    }
}

fn parse(value: &[u8]) -> Option<Check> {
    let (body, own) = value.split_at_checked(value.len().checked_sub(8)?)?;
    if checksum(body) != own {
        return None;
    }
    let (version, mut rest) = body.split_first()?;
    let mut number = || {
        let (taken, left) = rest.split_at_checked(8)?;
        rest = left;
        Some(u64::from_be_bytes(taken.try_into().ok()?))
    };
    let (generation, entries, bytes) = (number()?, number()?, number()?);
    let (high, low) = (number()?, number()?);
    let sum = u128::from(high) << 64 | u128::from(low);
    (*version == VERSION && rest.is_empty()).then_some(Check {
        generation,
        totals: Totals {
            entries,
            bytes,
            sum,
        },
    })
}

fn checksum(body: &[u8]) -> [u8; 8] {
    let digest = Sha256::digest(body);
    let mut own = [0; 8];
    own.iter_mut()
        .zip(digest.iter())
        .for_each(|(to, from)| *to = *from);
    own
}

/// How far the own check has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// There is more to read: call again.
    More,
    /// All was read.
    Done(Verdict),
}

/// What the own check found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The store holds what was committed.
    Sound,
    /// It does not; [`Store::put_aside`] is the way on.
    Damaged {
        /// What is wrong.
        why: String,
    },
}

/// A scan under way: what was met up to a key. A commit in between changes it like the store's own totals, as far as it
/// writes keys that the scan has passed; so a store that is never quiet can still be checked to the end.
#[derive(Debug, Default)]
pub(super) struct Scan {
    /// The last key that was met.
    passed: Vec<u8>,
    /// The last leaf that was met, as long as it is there.
    fence: Vec<u8>,
    totals: Totals,
    rows: BTreeMap<u16, u64>,
}

impl Scan {
    /// A commit replaces a value.
    pub(super) fn replace(
        &mut self,
        key: &[u8],
        old: Option<&[u8]>,
        new: Option<&[u8]>,
    ) -> Result<(), StoreError> {
        if key > self.passed.as_slice() {
            return Ok(());
        }
        self.totals.replace(key, old, new);
        if new.is_none() && self.fence == key {
            // Its rows may have moved into the next leaf.
            self.fence.clear();
        }
        if let Some(source) = keys::leaf_source(key) {
            let rows = self.rows.entry(source.0).or_default();
            let count = |leaf: Option<&[u8]>| leaf.map_or(Ok(0), leaf::count).map(u64::from);
            *rows = rows.wrapping_sub(count(old)?).wrapping_add(count(new)?);
        }
        Ok(())
    }

    fn meet(&mut self, key: &[u8], value: &Bytes) -> Result<(), StoreError> {
        // A leaf may only hold what lies above the bound of the leaf before it and below its own.
        if let Some(source) = keys::leaf_source(key) {
            let rows = leaf::decode(value)?;
            let same = keys::leaf_source(&self.fence) == Some(source);
            let low = if same {
                keys::leaf_bound(&self.fence)
            } else {
                &[]
            };
            let inside = |row: &leaf::Row| {
                row.key.as_slice() >= low && row.key.as_slice() < keys::leaf_bound(key)
            };
            if !rows.iter().all(inside) {
                return Err(StoreError::damaged(
                    "a digest leaf holds records of another",
                ));
            }
            *self.rows.entry(source.0).or_default() += rows.len() as u64;
            self.fence = key.to_vec();
        }
        if key != keys::check() {
            self.totals.add(key, value);
        }
        self.passed = key.to_vec();
        Ok(())
    }
}

impl Store {
    /// Reads up to `budget` entries for the own check, and goes on where it was at the next call; commits may come in
    /// between. After [`Progress::Done`] the next call starts over.
    ///
    /// # Errors
    ///
    /// [`StoreError::Newer`] if an entry is of a newer version; [`StoreError::Poisoned`] after a commit that failed, since what
    /// is on disk then is another sum than this one knows. Damage is no error here but a [`Verdict`].
    pub fn verify(&mut self, budget: usize) -> Result<Progress, StoreError> {
        self.refuse_poisoned()?;
        let mut scan = self.scan.take().unwrap_or_default();
        match self.scan_on(&mut scan, budget) {
            Ok(false) => {
                self.scan = Some(scan);
                Ok(Progress::More)
            }
            Ok(true) => Ok(Progress::Done(self.judge(&scan))),
            Err(StoreError::Damaged { why }) => Ok(Progress::Done(Verdict::Damaged { why })),
            Err(error) => Err(error),
        }
    }

    /// Whether the end was reached.
    fn scan_on(&self, scan: &mut Scan, budget: usize) -> Result<bool, StoreError> {
        let from = scan.passed.clone();
        let mut entries = self.tree.range(Bound::Excluded(&from));
        for _ in 0..budget {
            let Some(entry) = entries.next() else {
                return Ok(true);
            };
            let (key, value) = entry?;
            scan.meet(&key, &value)?;
        }
        Ok(false)
    }

    fn judge(&self, scan: &Scan) -> Verdict {
        let (have, want) = (scan.totals, self.check.totals);
        let why = if have.entries != want.entries {
            format!(
                "it holds {} entries instead of {}",
                have.entries, want.entries
            )
        } else if have != want {
            "an entry is not what was written".to_owned()
        } else if let Some((name, have, want)) = self.wrong_rows(scan) {
            format!("source {name} has {have} records instead of {want}")
        } else {
            return Verdict::Sound;
        };
        Verdict::Damaged { why }
    }

    fn wrong_rows(&self, scan: &Scan) -> Option<(String, u64, u64)> {
        let met = |id: &u16| scan.rows.get(id).copied().unwrap_or(0);
        let known = self
            .sources
            .iter()
            .map(|(id, source)| (source.name.clone(), met(id), source.rows));
        let strays = scan
            .rows
            .iter()
            .filter(|(id, _)| !self.sources.contains_key(id));
        let strays = strays.map(|(id, rows)| (format!("number {id}"), *rows, 0));
        known.chain(strays).find(|(_, have, want)| have != want)
    }
}
