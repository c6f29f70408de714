//! Event ids that were seen: hook and id → what its payload is called.
//!
//! ```text
//! e, none, 0, number of the leaf → version, hour 4, (hash 12, request id 16) × up to 45
//! e, none, 1                     → version, segment 4, offset 4
//! ```
//!
//! Ids are added at the end, so that a batch of them writes one leaf and not one for each, and whole leaves go at the front.
//! A leaf's hour is when its last id was received, in hours since 1970; 0: the clock was not trusted, so its age counts from
//! when it is. What tells which leaf an id is in is in memory: four bytes an id.
//!
//! The second entry says up to where in the inbox ids are here. It is written behind them.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

use sha2::{Digest as _, Sha256};

use super::Store;
use super::commit::Batch;
use super::error::StoreError;
use super::keys::{Key, SourceId, Tag};
use crate::clock::Timestamp;

const HASH: usize = 12;
const ENTRY: usize = HASH + 16;
/// So many fit a leaf of 1,280 bytes.
const LEAF: usize = 45;

const LEAVES: u8 = 0;
const POSITION: u8 = 1;

/// An event of a hook, as it is remembered: a hash of both names, since ids are as long as their senders like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventKey([u8; HASH]);

impl EventKey {
    /// The event that a hook's sender calls so.
    #[must_use]
    pub fn new(hook: &str, event_id: &str) -> Self {
        // The length of the hook's name goes in first, so that no other pair gives the same text.
        let digest = Sha256::new()
            .chain_update((hook.len() as u64).to_be_bytes())
            .chain_update(hook)
            .chain_update(event_id)
            .finalize();
        let mut hash = [0; HASH];
        hash.iter_mut()
            .zip(digest.iter())
            .for_each(|(to, from)| *to = *from);
        Self(hash)
    }
}

/// An event id that is to be remembered.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sighting {
    key: EventKey,
    request: [u8; 16],
    hour: u32,
}

impl Batch {
    /// Remembers an event id and what its payload is called; one that is known stays as it is. `at`: when it was received,
    /// if the clock was trusted.
    pub fn see(&mut self, key: EventKey, request: [u8; 16], at: Option<Timestamp>) {
        self.seen.push(Sighting {
            key,
            request,
            hour: at.map_or(0, hours),
        });
    }

    /// States up to where in the inbox event ids are remembered: segment, and offset in there.
    pub fn seen_up_to(&mut self, segment: u32, offset: u32) {
        let value = [segment.to_be_bytes(), offset.to_be_bytes()].concat();
        self.put(Key::new(Tag::Seen, SourceId::NONE, &[POSITION]), &value);
    }
}

/// Which ids are in which leaf, as far as four bytes of their hashes tell.
#[derive(Debug, Default)]
pub(super) struct Index {
    /// Oldest first.
    leaves: VecDeque<(u32, Vec<u32>)>,
    count: usize,
}

/// A leaf's hour, and its ids.
struct Leaf {
    hour: u32,
    entries: Vec<u8>,
}

impl Leaf {
    fn decode(value: &[u8]) -> Result<Self, StoreError> {
        let (hour, entries) = value
            .split_first_chunk()
            .filter(|(_, entries)| entries.len() % ENTRY == 0)
            .ok_or_else(|| StoreError::damaged("a leaf of event ids cannot be read"))?;
        Ok(Self {
            hour: u32::from_be_bytes(*hour),
            entries: entries.to_vec(),
        })
    }

    fn encode(&self) -> Vec<u8> {
        [&self.hour.to_be_bytes()[..], &self.entries].concat()
    }

    fn find(&self, key: EventKey) -> Option<[u8; 16]> {
        let entry = self
            .entries
            .chunks_exact(ENTRY)
            .find(|entry| entry.starts_with(&key.0))?;
        entry.get(HASH..)?.try_into().ok()
    }

    fn add(&mut self, sighting: &Sighting) {
        // An instant that is not known makes all of the leaf's unknown: it is kept longer, never shorter.
        self.hour = match (self.hour, sighting.hour) {
            (known, new) if self.entries.is_empty() || known > 0 && new > 0 => known.max(new),
            _ => 0,
        };
        self.entries.extend_from_slice(&sighting.key.0);
        self.entries.extend_from_slice(&sighting.request);
    }
}

impl Store {
    /// What the payload is called that first came with this event id; `None` if the id is not known, or no more.
    ///
    /// # Errors
    ///
    /// [`StoreError::Damaged`] or [`StoreError::Newer`] if the entry cannot be read.
    pub fn seen(&self, key: EventKey) -> Result<Option<[u8; 16]>, StoreError> {
        self.load_seen()?;
        let index = self.seen.borrow();
        let mark = mark(&key.0);
        let leaves = index.iter().flat_map(|index| &index.leaves);
        for (number, _) in leaves.filter(|(_, marks)| marks.contains(&mark)) {
            if let Some(value) = self.get(&leaf_key(*number))? {
                if let Some(request) = Leaf::decode(&value)?.find(key) {
                    return Ok(Some(request));
                }
            }
        }
        Ok(None)
    }

    /// Calls `each` for every event id that is remembered, with what its payload is called.
    ///
    /// # Errors
    ///
    /// Those of [`Store::seen`].
    pub fn seen_all(&self, mut each: impl FnMut(EventKey, [u8; 16])) -> Result<(), StoreError> {
        let prefix = Key::new(Tag::Seen, SourceId::NONE, &[LEAVES]);
        for entry in self.scan(&prefix) {
            let leaf = Leaf::decode(&entry?.1)?;
            for entry in leaf.entries.chunks_exact(ENTRY) {
                let (key, request) = entry.split_at(HASH);
                if let (Ok(key), Ok(request)) = (key.try_into(), request.try_into()) {
                    each(EventKey(key), request);
                }
            }
        }
        Ok(())
    }

    /// How many event ids are remembered.
    ///
    /// # Errors
    ///
    /// Those of [`Store::seen`].
    pub fn seen_count(&self) -> Result<usize, StoreError> {
        self.load_seen()?;
        Ok(self.seen.borrow().as_ref().map_or(0, |index| index.count))
    }

    /// Up to where in the inbox event ids are remembered: segment, and offset in there.
    ///
    /// # Errors
    ///
    /// Those of [`Store::get`].
    pub fn seen_position(&self) -> Result<Option<(u32, u32)>, StoreError> {
        let Some(value) = self.get(&Key::new(Tag::Seen, SourceId::NONE, &[POSITION]))? else {
            return Ok(None);
        };
        let number = |bytes: &[u8]| Some(u32::from_be_bytes(bytes.try_into().ok()?));
        value
            .split_at_checked(4)
            .and_then(|(segment, offset)| Some((number(segment)?, number(offset)?)))
            .map(Some)
            .ok_or_else(|| StoreError::damaged("the inbox's position cannot be read"))
    }

    /// Forgets event ids, some 45 at once and the oldest first: those that are more than `most`, and those that were
    /// received longer than `keep` ago. `now` is to be absent as long as the clock is not trusted; then only their number
    /// counts. At most `slice` entries are written; 0 is returned when there is no more to do.
    ///
    /// # Errors
    ///
    /// Those of a commit.
    pub fn expire_seen(
        &mut self,
        now: Option<Timestamp>,
        keep: Duration,
        most: usize,
        slice: usize,
    ) -> Result<usize, StoreError> {
        self.load_seen()?;
        let leaves: Vec<(u32, usize)> = self
            .seen
            .borrow()
            .iter()
            .flat_map(|index| index.leaves.iter().take(slice))
            .map(|(number, marks)| (*number, marks.len()))
            .collect();
        let (mut count, now) = (self.seen_count()?, now.map(hours));
        let (mut batch, mut gone, mut written) = (Batch::new(), Vec::new(), 0);
        for (number, ids) in leaves {
            let key = leaf_key(number);
            let Some(value) = self.get(&key)? else {
                return Err(StoreError::damaged("a leaf of event ids is gone"));
            };
            let mut leaf = Leaf::decode(&value)?;
            match now {
                _ if count > most => batch.remove(key),
                Some(now) if leaf.hour > 0 && is_over(leaf.hour, now, keep) => batch.remove(key),
                Some(now) if leaf.hour == 0 => {
                    leaf.hour = now;
                    batch.put(key, &leaf.encode());
                    written += 1;
                    continue;
                }
                _ => break,
            }
            count -= ids;
            gone.push(number);
            written += 1;
        }
        self.commit(batch)?;
        if let Some(index) = &mut *self.seen.borrow_mut() {
            index.leaves.retain(|(number, _)| !gone.contains(number));
            index.count = count;
        }
        Ok(written)
    }

    /// Most commands ask for no event id, so the index is made when one does.
    fn load_seen(&self) -> Result<(), StoreError> {
        if self.seen.borrow().is_some() {
            return Ok(());
        }
        let mut index = Index::default();
        let prefix = Key::new(Tag::Seen, SourceId::NONE, &[LEAVES]);
        for entry in self.scan(&prefix) {
            let (name, value) = entry?;
            let number = name
                .get(1..)
                .and_then(|number| Some(u32::from_be_bytes(number.try_into().ok()?)))
                .ok_or_else(|| StoreError::damaged("a leaf of event ids has no number"))?;
            let leaf = Leaf::decode(&value)?;
            let marks: Vec<u32> = leaf.entries.chunks_exact(ENTRY).map(mark).collect();
            index.count += marks.len();
            index.leaves.push_back((number, marks));
        }
        *self.seen.borrow_mut() = Some(index);
        Ok(())
    }

    /// Which of these are known: one walk over the index for all of them.
    fn known_among(&self, seen: &[Sighting]) -> Result<HashSet<EventKey>, StoreError> {
        self.load_seen()?;
        let mut asked: HashMap<u32, Vec<EventKey>> = HashMap::new();
        for Sighting { key, .. } in seen {
            asked.entry(mark(&key.0)).or_default().push(*key);
        }
        let mut known = HashSet::new();
        let index = self.seen.borrow();
        for (number, marks) in index.iter().flat_map(|index| &index.leaves) {
            let mut maybe = marks.iter().filter_map(|mark| asked.get(mark)).peekable();
            if maybe.peek().is_none() {
                continue;
            }
            let Some(value) = self.get(&leaf_key(*number))? else {
                continue;
            };
            let leaf = Leaf::decode(&value)?;
            known.extend(maybe.flatten().filter(|key| leaf.find(**key).is_some()));
        }
        Ok(known)
    }

    /// The leaves to write for what was seen, as a part of a commit: should that fail, the store is opened anew.
    pub(super) fn plan_seen(
        &mut self,
        seen: Vec<Sighting>,
    ) -> Result<Vec<(Key, Vec<u8>)>, StoreError> {
        if seen.is_empty() {
            return Ok(Vec::new());
        }
        let mut known = self.known_among(&seen)?;
        let mut new: Vec<Sighting> = Vec::new();
        for sighting in seen {
            if known.insert(sighting.key) {
                new.push(sighting);
            }
        }
        let mut index = self.seen.take().unwrap_or_default();
        let mut writes = Vec::new();
        let mut left = new.as_slice();
        while !left.is_empty() {
            let last = index
                .leaves
                .back()
                .map(|(number, ids)| (*number, ids.len()));
            let (number, mut leaf) = match last {
                Some((number, ids)) if ids < LEAF => {
                    let value = self
                        .get(&leaf_key(number))?
                        .ok_or_else(|| StoreError::damaged("a leaf of event ids is gone"))?;
                    (number, Leaf::decode(&value)?)
                }
                last => {
                    let after = last.map_or(Some(0), |(number, _)| number.checked_add(1));
                    let number = after.ok_or(StoreError::Exhausted {
                        what: "leaves of event ids",
                    })?;
                    index.leaves.push_back((number, Vec::new()));
                    (
                        number,
                        Leaf {
                            hour: 0,
                            entries: Vec::new(),
                        },
                    )
                }
            };
            let room = LEAF - leaf.entries.len() / ENTRY;
            let (now, later) = left.split_at(room.min(left.len()));
            left = later;
            for sighting in now {
                leaf.add(sighting);
                index.count += 1;
                if let Some((_, marks)) = index.leaves.back_mut() {
                    marks.push(mark(&sighting.key.0));
                }
            }
            writes.push((leaf_key(number), leaf.encode()));
        }
        *self.seen.borrow_mut() = Some(index);
        Ok(writes)
    }
}

fn leaf_key(number: u32) -> Key {
    let mut name = vec![LEAVES];
    name.extend_from_slice(&number.to_be_bytes());
    Key::new(Tag::Seen, SourceId::NONE, &name)
}

fn mark(entry: &[u8]) -> u32 {
    let four = entry.first_chunk().copied();
    u32::from_be_bytes(four.unwrap_or_default())
}

/// Hours since 1970, at least one: 0 says that it is not known.
fn hours(at: Timestamp) -> u32 {
    u32::try_from(at.as_second() / 3600).unwrap_or(0).max(1)
}

fn is_over(hour: u32, now: u32, keep: Duration) -> bool {
    // The hour has begun: it takes one more until all of it is that long ago.
    u64::from(now.saturating_sub(hour)) > keep.as_secs().div_ceil(3600)
}

#[cfg(test)]
mod tests;
