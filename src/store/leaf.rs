//! The digest leaf: many records in one value, sorted, each key written as what differs from the one before.
//!
//! ```text
//! version u8 · count u16 LE · rows
//! row: shared varint · suffix length × 2 + dated varint · suffix · digest 16 · fingerprint u64 LE
//!      · ordinal (zigzag difference to the row before) · updated_ms likewise, if dated
//! ```

use std::cmp::Ordering;

use super::error::StoreError;
use crate::record::{Digest, Fingerprint, Known};

/// What this binary writes, and the highest that it reads.
pub(super) const VERSION: u8 = 1;

/// A leaf above this many bytes splits. Twice as much was measured too: 66 instead of 71 bytes on disk a record, but 8 kB
/// of log instead of 3 for one changed record, and 3.6 kB instead of 2.1 a record when a first load comes in no order.
pub(super) const FULL: usize = 1280;
/// One below this joins its neighbour …
pub(super) const THIN: usize = 300;
/// … if the two together are no longer than this, so that the next insert does not split them again.
pub(super) const JOINED: usize = 1024;
/// What an inner split aims at.
const ROOMY: usize = 960;

const HEAD: usize = 3;

/// A stored key and what is known of the record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) key: Vec<u8>,
    pub(super) known: Known,
}

/// A walk over the rows of a leaf. The bytes are passed at each step, so that a walk can be kept beside them.
#[derive(Debug, Clone, Default)]
pub(super) struct Walk {
    /// Key of the row that the walk is at.
    key: Vec<u8>,
    known: Option<Known>,
    next: usize,
    left: u16,
    updated: i64,
}

impl Walk {
    /// Starts before the first row.
    pub(super) fn start(&mut self, leaf: &[u8]) -> Result<(), StoreError> {
        self.key.clear();
        self.known = None;
        self.next = HEAD;
        self.left = count(leaf)?;
        self.updated = 0;
        Ok(())
    }

    /// Moves on by a row; `false` behind the last.
    pub(super) fn step(&mut self, leaf: &[u8]) -> Result<bool, StoreError> {
        if self.left == 0 {
            self.known = None;
            return if self.next == leaf.len() {
                Ok(false)
            } else {
                Err(torn())
            };
        }
        self.read(leaf).ok_or_else(torn)?;
        self.left -= 1;
        Ok(true)
    }

    fn read(&mut self, leaf: &[u8]) -> Option<()> {
        let mut rest = leaf.get(self.next..)?;
        let shared = usize::try_from(take_varint(&mut rest)?).ok()?;
        let packed = take_varint(&mut rest)?;
        let suffix = take(&mut rest, usize::try_from(packed >> 1).ok()?)?;
        if shared > self.key.len() {
            return None;
        }
        self.key.truncate(shared);
        self.key.extend_from_slice(suffix);
        let digest = Digest(take(&mut rest, 16)?.try_into().ok()?);
        let fingerprint = Fingerprint(u64::from_le_bytes(take(&mut rest, 8)?.try_into().ok()?));
        let before = self.known.map_or(0, |known| i64::from(known.ordinal));
        let ordinal = u32::try_from(before.checked_add(unzigzag(take_varint(&mut rest)?))?).ok()?;
        let updated_ms = if packed & 1 == 1 {
            self.updated = self.updated.wrapping_add(unzigzag(take_varint(&mut rest)?));
            Some(self.updated)
        } else {
            None
        };
        self.known = Some(Known {
            digest,
            fingerprint,
            ordinal,
            updated_ms,
        });
        self.next = leaf.len() - rest.len();
        Some(())
    }

    /// The stored key of the row that the walk is at.
    pub(super) fn key(&self) -> &[u8] {
        &self.key
    }

    /// What is known of that record; `None` before the first row and behind the last.
    pub(super) fn known(&self) -> Option<Known> {
        self.known
    }

    /// Moves on to `key` and returns what is known of it. Starts over if the walk is already beyond.
    pub(super) fn seek(&mut self, leaf: &[u8], key: &[u8]) -> Result<Option<Known>, StoreError> {
        let mut order = self
            .known
            .map_or(Ordering::Less, |_| self.key.as_slice().cmp(key));
        if order == Ordering::Greater || (self.known.is_none() && self.left == 0) {
            self.start(leaf)?;
            order = Ordering::Less;
        }
        while order == Ordering::Less && self.step(leaf)? {
            order = self.key.as_slice().cmp(key);
        }
        Ok(if order == Ordering::Equal {
            self.known
        } else {
            None
        })
    }
}

/// How many rows a leaf states.
pub(super) fn count(leaf: &[u8]) -> Result<u16, StoreError> {
    match leaf {
        [VERSION, low, high, ..] => Ok(u16::from_le_bytes([*low, *high])),
        [found, ..] if *found > VERSION => Err(StoreError::Newer {
            what: "a digest leaf",
            found: *found,
            known: VERSION,
        }),
        _ => Err(torn()),
    }
}

/// All rows of a leaf, checked: whole, sorted, each once.
pub(super) fn decode(leaf: &[u8]) -> Result<Vec<Row>, StoreError> {
    let mut walk = Walk::default();
    walk.start(leaf)?;
    let mut rows: Vec<Row> = Vec::with_capacity(usize::from(walk.left));
    while walk.step(leaf)? {
        let (key, Some(known)) = (walk.key.clone(), walk.known) else {
            return Err(torn());
        };
        if rows.last().is_some_and(|last| last.key >= key) {
            return Err(StoreError::damaged("a digest leaf is not sorted"));
        }
        rows.push(Row { key, known });
    }
    Ok(rows)
}

/// The leaf that holds these sorted rows.
pub(super) fn encode(rows: &[Row]) -> Vec<u8> {
    let mut out = vec![VERSION];
    out.extend_from_slice(&u16::try_from(rows.len()).unwrap_or(u16::MAX).to_le_bytes());
    let mut writer = Writer::default();
    for row in rows {
        writer.write(row, &mut out);
    }
    out
}

/// What a row is written relative to.
#[derive(Default)]
struct Writer<'a> {
    before: Option<&'a Row>,
    updated: i64,
    scratch: Vec<u8>,
}

impl<'a> Writer<'a> {
    fn write(&mut self, row: &'a Row, out: &mut Vec<u8>) {
        let shared = self
            .before
            .map_or(0, |before| common(&before.key, &row.key));
        let suffix = row.key.get(shared..).unwrap_or_default();
        put_varint(out, shared as u64);
        put_varint(
            out,
            (suffix.len() as u64) << 1 | u64::from(row.known.updated_ms.is_some()),
        );
        out.extend_from_slice(suffix);
        out.extend_from_slice(&row.known.digest.0);
        out.extend_from_slice(&row.known.fingerprint.0.to_le_bytes());
        let ordinal = self
            .before
            .map_or(0, |before| i64::from(before.known.ordinal));
        put_varint(out, zigzag(i64::from(row.known.ordinal) - ordinal));
        if let Some(updated) = row.known.updated_ms {
            put_varint(out, zigzag(updated.wrapping_sub(self.updated)));
            self.updated = updated;
        }
        self.before = Some(row);
    }

    /// Goes on as if `row` had been written, and returns how many bytes that would have been.
    fn measure(&mut self, row: &'a Row) -> usize {
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        self.write(row, &mut scratch);
        self.scratch = scratch;
        self.scratch.len()
    }
}

/// Cuts sorted rows into leaves. When the new rows were `appended`, each leaf is filled, since a first load in key
/// order never comes back to it; otherwise the rows are spread evenly and leave room.
pub(super) fn partition(rows: &[Row], appended: bool) -> Vec<&[Row]> {
    if rows.is_empty() {
        return Vec::new();
    }
    let mut writer = Writer::default();
    let total = HEAD + rows.iter().map(|row| writer.measure(row)).sum::<usize>();
    if total <= FULL {
        return vec![rows];
    }
    let aim = total.div_ceil(total.div_ceil(ROOMY).max(2));
    let mut pieces = Vec::new();
    let mut writer = Writer::default();
    let (mut start, mut size) = (0, HEAD);
    for (at, row) in rows.iter().enumerate() {
        let mut more = writer.measure(row);
        let full = size + more > FULL || (!appended && size >= aim);
        if at > start && full {
            pieces.extend(rows.get(start..at));
            (start, size) = (at, HEAD);
            // A row's size depends on those before it in its leaf: key, ordinal and time are written as differences.
            writer = Writer::default();
            more = writer.measure(row);
        }
        size += more;
    }
    pieces.extend(rows.get(start..));
    pieces
}

/// What merging changes into rows did.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Merged {
    pub(super) rows: Vec<Row>,
    /// Whether anything differs at all.
    pub(super) changed: bool,
    /// Whether a row is gone.
    pub(super) shrunk: bool,
    /// Whether all that is new lies behind all that was there.
    pub(super) appended: bool,
}

/// Merges sorted changes (`None` removes) into sorted rows.
pub(super) fn merge(old: Vec<Row>, changes: Vec<(Vec<u8>, Option<Known>)>) -> Merged {
    let last = old.last().map(|row| row.key.clone());
    let rows = Vec::with_capacity(old.len() + changes.len());
    let mut merged = Merged {
        rows,
        changed: false,
        shrunk: false,
        appended: true,
    };
    let mut old = old.into_iter().peekable();
    for (key, change) in changes {
        while let Some(row) = old.next_if(|row| row.key < key) {
            merged.rows.push(row);
        }
        let before = old.next_if(|row| row.key == key);
        match (before, change) {
            (Some(row), Some(known)) => {
                merged.changed |= row.known != known;
                merged.rows.push(Row { key, known });
            }
            (None, Some(known)) => {
                merged.appended &= last.as_ref().is_none_or(|last| *last < key);
                merged.changed = true;
                merged.rows.push(Row { key, known });
            }
            (Some(_), None) => merged.shrunk = true,
            (None, None) => {}
        }
    }
    merged.rows.extend(old);
    merged.changed |= merged.shrunk;
    merged
}

fn common(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

fn torn() -> StoreError {
    StoreError::damaged("a digest leaf cannot be read")
}

fn take<'a>(rest: &mut &'a [u8], len: usize) -> Option<&'a [u8]> {
    let (taken, left) = rest.split_at_checked(len)?;
    *rest = left;
    Some(taken)
}

fn take_varint(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, left) = rest.split_first()?;
        *rest = left;
        value |= u64::from(byte & 0x7F) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value > 0x7F {
        out.push((value & 0x7F) as u8 | 0x80);
        value >>= 7;
    }
    out.push((value & 0x7F) as u8);
}

/// Small for small distances, whichever way they go.
fn zigzag(value: i64) -> u64 {
    u64::from_ne_bytes(((value << 1) ^ (value >> 63)).to_ne_bytes())
}

fn unzigzag(value: u64) -> i64 {
    let half = i64::from_ne_bytes((value >> 1).to_ne_bytes());
    if value & 1 == 1 { !half } else { half }
}
