//! The inbox: payloads of hooks, saved as they came before they are answered, and processed later.
//!
//! | file | idea |
//! |---|---|
//! | `received`, `id`, `state` | what came, what it is called, what became of it |
//! | `frame`, `crc` | one payload as bytes, and back, whatever the bytes are |
//! | `segment` | files that are written out once and then filled |
//! | `marks` | the log of what became of a segment's records |
//! | `index` | what is in memory: an entry for each record that is not settled |
//! | `open` | reading all that back at start |
//! | `keep` | which segment may go (pure) |
//! | `read` | listing and showing, also without owning the inbox |
//! | `room` | whether there is room for another payload |
//! | `seen` | which event ids are known already |
//!
//! **The promise**: what [`Inbox::append`] took and a later [`Inbox::sync`] confirmed survives a power cut and is offered by
//! [`Inbox::pending`] until a mark that settles it is durable. Processing may therefore happen twice, never not at all.
//! After a sync that failed nothing is assumed of what came since the last one that held.
//!
//! A cut may tear what is in flight, 512 bytes by 512; bytes that were synced before and lie in the same sector are taken
//! to stay, as SQLite takes them to.

mod crc;
mod error;
mod frame;
mod id;
mod index;
mod keep;
mod marks;
mod open;
mod read;
mod received;
mod room;
mod seen;
mod segment;
mod state;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

pub use error::{Full, InboxError};
pub use id::{NoRequestId, RequestId};
pub use index::Position;
pub use keep::Limits;
pub use open::{Finding, Opening};
pub use read::{Event, Filter, Listed, Reader};
pub use received::{NOT_SAVED, Received, Stored};
pub use room::on_disk;
pub use seen::{CatchUpError, Known};
pub use state::State;

use crate::clock::Timestamp;
use crate::store::EventKey;
use index::{Entry, Segment, Standing};
use keep::Eviction;
use marks::Mark;

/// Where an inbox is below the state directory.
pub const NAME: &str = "inbox";

/// The longest record in bytes.
const MAX_RECORD: usize = 64 * 1024 * 1024;

/// An open inbox. Nobody else writes to it while this lives.
#[derive(Debug)]
pub struct Inbox {
    dir: PathBuf,
    limits: Limits,
    _lock: File,
    segments: BTreeMap<u32, Segment>,
    /// The greatest number that a segment ever had.
    last: u32,
    active: Option<Active>,
    /// Full segments with records that are not synced yet.
    filled: Vec<Active>,
    /// The next one, made ahead of need.
    spare: Option<Active>,
    unsynced: Vec<Unsynced>,
    /// Records that are not settled, the unsynced ones left out.
    outstanding: usize,
    unmarked: seen::Unmarked,
    hooks: Vec<String>,
    ids: id::Counter,
}

/// A segment that is being filled.
#[derive(Debug)]
struct Active {
    number: u32,
    file: File,
    /// Where the next frame goes.
    end: u32,
    size: u32,
}

/// A record that was appended since the last sync.
#[derive(Debug)]
struct Unsynced {
    segment: u32,
    entry: Entry,
    trusted_at: Option<u32>,
}

/// A payload that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pending<'a> {
    /// What it is called.
    pub id: RequestId,
    /// Where it is.
    pub position: Position,
    /// The name of its hook.
    pub hook: &'a str,
    /// How often it was tried in vain.
    pub tries: u16,
    /// When it is to be tried, in seconds since 1970; 0: at once.
    pub next: u32,
}

impl Inbox {
    /// Appends a payload and names it. It is durable, and may be acknowledged, when the next [`Inbox::sync`] returns well.
    /// Not seen by [`Inbox::pending`] before.
    ///
    /// # Errors
    /// [`InboxError::is_full`] ones before anything is written, [`InboxError::TooLarge`] over 64 MiB, [`InboxError::Io`].
    /// What was appended before stays good.
    pub fn append(&mut self, received: &Received) -> Result<RequestId, InboxError> {
        self.refuse_overload()?;
        let id = self.ids.next(received.at, self.random()?);
        let mut start = frame::encode(id, received);
        let len = start.len() + received.body.len();
        let fits = u32::try_from(len).ok().filter(|_| len <= MAX_RECORD);
        let long = fits.ok_or(InboxError::TooLarge { len })?;
        let hook = self.hook(&received.hook);
        let active = self.room_for(long)?;
        let marker = self.segments[&active.number].marker;
        if frame::seal(marker, &mut start, &received.body).is_none() {
            self.active = Some(active);
            return Err(InboxError::TooLarge { len });
        }
        let offset = active.end;
        let written = active
            .file
            .write_all_at(&start, u64::from(offset))
            .and_then(|()| {
                let behind = u64::from(offset) + start.len() as u64;
                active.file.write_all_at(&received.body, behind)
            });
        if let Err(error) = written {
            let number = active.number;
            // What it has of the frame now is not known: nothing is written behind that.
            self.retire(active);
            return Err(InboxError::io(&segment::path(&self.dir, number), error));
        }
        self.unsynced.push(Unsynced {
            segment: active.number,
            entry: Entry {
                id,
                offset,
                next: 0,
                hook,
                tries: 0,
                standing: Standing::Pending,
            },
            trusted_at: received.clock_trusted.then(|| seconds(received.at)),
        });
        if let Some(event_id) = &received.event_id {
            self.unmarked.note(Event {
                position: Position {
                    segment: active.number,
                    offset,
                },
                id,
                key: EventKey::new(&received.hook, event_id),
                trusted_at: received.clock_trusted.then_some(received.at),
            });
        }
        self.active = Some(Active {
            end: offset + long,
            ..active
        });
        Ok(id)
    }

    /// Makes all durable that was appended since the last sync, with one `fdatasync` (two where a segment ran full).
    /// Costs nothing if there is nothing.
    ///
    /// # Errors
    /// [`InboxError::Unsynced`]: none of it may be acknowledged, and none of it will be processed. The same sync is never
    /// tried again, since the system reports such an error once and forgets the data; what comes next goes to a new segment.
    pub fn sync(&mut self) -> Result<(), InboxError> {
        if self.unsynced.is_empty() {
            return Ok(());
        }
        let in_use = self.filled.iter().chain(&self.active);
        let failed = in_use
            .map(|active| (active.number, active.file.sync_data()))
            .find_map(|(number, synced)| Some((number, synced.err()?)));
        if let Some((number, source)) = failed {
            self.forsake();
            let path = segment::path(&self.dir, number);
            return Err(InboxError::Unsynced { path, source });
        }
        for new in std::mem::take(&mut self.unsynced) {
            if let Some(segment) = self.segments.get_mut(&new.segment) {
                segment.count(new.entry.id, new.trusted_at);
                segment.entries.push(new.entry);
                self.outstanding += 1;
            }
        }
        self.filled.clear();
        self.unmarked.synced();
        Ok(())
    }

    /// Gives up what could not be synced. It may be on disk all the same, so it is marked: its sender was told to send it
    /// again.
    fn forsake(&mut self) {
        self.filled.clear();
        self.active = None;
        self.unmarked.forsake();
        let mut void: BTreeMap<u32, Vec<Mark>> = BTreeMap::new();
        for lost in std::mem::take(&mut self.unsynced) {
            void.entry(lost.segment).or_default().push(Mark {
                offset: lost.entry.offset,
                at: lost.trusted_at.unwrap_or(0),
                state: State::Void,
            });
        }
        for (number, marks) in void {
            let Some(segment) = self.segments.get_mut(&number) else {
                continue;
            };
            let marked = segment
                .log
                .append((&self.dir, number), segment.marker, &marks, None);
            if let Err(error) = marked {
                log::error!(
                    "{error}; what was not acknowledged may be processed at the next start"
                );
            }
        }
    }

    fn refuse_overload(&self) -> Result<(), InboxError> {
        let outstanding = self.outstanding + self.unsynced.len();
        if outstanding >= self.limits.outstanding {
            return Err(InboxError::Full(Full::Backlog { outstanding }));
        }
        self.refuse_low_water(0)
    }

    fn refuse_low_water(&self, need: u64) -> Result<(), InboxError> {
        on_disk(&self.dir, self.limits.low_water, need)
    }

    /// Takes the segment that a record of this length goes to, making one if the last is full.
    fn room_for(&mut self, long: u32) -> Result<Active, InboxError> {
        if let Some(active) = self.active.take() {
            if active.size.saturating_sub(active.end) >= long {
                return Ok(active);
            }
            self.active = Some(active);
        }
        let usual = self.usual_size();
        if let Some(spare) = self.spare.take() {
            if spare.size - spare.end >= long {
                self.close_active();
                return Ok(spare);
            }
            // Records come in the order of their segments: it cannot be filled after a later one.
            self.remove(spare.number)?;
        }
        let next = self.make(usual.max(segment::START.saturating_add(long)))?;
        self.close_active();
        Ok(next)
    }

    /// Makes the next segment ahead of need, so that no sender waits for it: worth calling when there is nothing else to do.
    /// Does nothing as long as the last one is not mostly full. Returns whether it made one.
    ///
    /// # Errors
    /// Those of [`Inbox::append`]: nothing is worse than before.
    pub fn prepare(&mut self) -> Result<bool, InboxError> {
        let ample = |active: &Active| active.end < active.size / 4 * 3;
        if self.spare.is_some() || self.active.as_ref().is_none_or(ample) {
            return Ok(false);
        }
        self.spare = Some(self.make(self.usual_size())?);
        Ok(true)
    }

    fn make(&mut self, size: u32) -> Result<Active, InboxError> {
        self.evict_for(u64::from(size))?;
        self.refuse_low_water(u64::from(size))?;
        let number = self.last.saturating_add(1);
        let marker = self.random()?.to_be_bytes();
        let file = segment::create(&self.dir, number, size, marker)?;
        self.last = number;
        self.segments
            .insert(number, Segment::new(marker, u64::from(size)));
        Ok(Active {
            number,
            file,
            end: segment::START,
            size,
        })
    }

    fn close_active(&mut self) {
        if let Some(full) = self.active.take() {
            self.retire(full);
        }
    }

    fn is_in_use(&self, number: u32) -> bool {
        let files = self.active.iter().chain(&self.filled).chain(&self.spare);
        files.into_iter().any(|active| active.number == number)
    }

    /// A segment that takes no more.
    fn retire(&mut self, active: Active) {
        let number = active.number;
        if self.unsynced.iter().any(|new| new.segment == number) {
            self.filled.push(active);
        } else if let Some(segment) = self.segments.get_mut(&number) {
            segment.finish(&self.dir, number);
        }
    }

    /// A quota has room for several segments.
    fn usual_size(&self) -> u32 {
        let quarter = u32::try_from(self.limits.quota / 4).unwrap_or(u32::MAX);
        quarter.clamp(64 * 1024, segment::SIZE)
    }

    fn evict_for(&mut self, need: u64) -> Result<(), InboxError> {
        loop {
            match self.eviction(need, None) {
                Eviction::ForRoom(number) => self.remove(number)?,
                Eviction::NoRoom { used } => {
                    let quota = self.limits.quota;
                    return Err(InboxError::Full(Full::Quota { used, quota, need }));
                }
                Eviction::Nothing | Eviction::Old(_) => return Ok(()),
            }
        }
    }

    fn eviction(&self, need: u64, now: Option<u32>) -> Eviction {
        let facts = self
            .segments
            .iter()
            .map(|(number, segment)| segment.facts(*number, self.is_in_use(*number)));
        keep::decide(facts, need, &self.limits, now)
    }

    /// Deletes segments whose records are all settled and older than is kept. `now` is to be absent as long as the clock is
    /// not trusted; then nothing is old. Returns how many went.
    ///
    /// # Errors
    /// When a file cannot be removed.
    pub fn expire(&mut self, now: Option<Timestamp>) -> Result<usize, InboxError> {
        let now = now.map(seconds);
        let mut gone = 0;
        if let Some(now) = now {
            // Received before the clock was right: that counts from when it is.
            let undated = |segment: &&mut Segment| segment.summary.newest.is_none();
            for segment in self.segments.values_mut().filter(undated) {
                segment.summary.newest = Some(now);
            }
        }
        while let Eviction::Old(number) = self.eviction(0, now) {
            self.remove(number)?;
            gone += 1;
        }
        Ok(gone)
    }

    /// The payloads go before what says that they are settled: the other way round a cut would have them processed again.
    fn remove(&mut self, number: u32) -> Result<(), InboxError> {
        segment::remove(&segment::path(&self.dir, number))?;
        segment::sync_names(&self.dir)?;
        self.segments.remove(&number);
        for kind in ["marks", "done"] {
            segment::remove(&segment::named(&self.dir, number, kind))?;
        }
        Ok(())
    }

    fn hook(&mut self, name: &str) -> u16 {
        index::intern(&mut self.hooks, name)
    }

    fn random(&self) -> Result<u64, InboxError> {
        open::random(&self.dir)
    }

    /// What waits behind a position, or from the start, in the order in which it came; dead letters left out. Whoever
    /// appends or marks in between asks again with the last position that he had.
    pub fn pending(&self, after: Option<Position>) -> impl Iterator<Item = Pending<'_>> {
        let from = after.map_or(0, |after| after.segment);
        self.segments
            .range(from..)
            .flat_map(|(number, segment)| segment.entries.iter().map(|entry| (*number, entry)))
            .filter(|(_, entry)| entry.standing != Standing::Dead)
            .map(|(segment, entry)| Pending {
                id: entry.id,
                position: Position {
                    segment,
                    offset: entry.offset,
                },
                hook: self
                    .hooks
                    .get(usize::from(entry.hook))
                    .map_or("", String::as_str),
                tries: entry.tries,
                next: entry.next,
            })
            .filter(move |pending| after.is_none_or(|after| pending.position > after))
    }

    /// Says what became of payloads; when this returns, it survives a power cut. One write and one sync for all of a
    /// segment. What is settled already is left as it is. Returns how many changed.
    ///
    /// # Errors
    /// Then some or all are what they were before, and are processed again.
    pub fn mark(
        &mut self,
        what: &[(Position, State)],
        now: Timestamp,
    ) -> Result<usize, InboxError> {
        let mut by_segment: BTreeMap<u32, Vec<Mark>> = BTreeMap::new();
        for (position, state) in what {
            let segment = self.segments.get(&position.segment);
            if segment.is_some_and(|segment| segment.find(position.offset).is_some()) {
                by_segment.entry(position.segment).or_default().push(Mark {
                    offset: position.offset,
                    at: seconds(now),
                    state: state.clone(),
                });
            }
        }
        let mut changed = 0;
        for (number, marks) in by_segment {
            let in_use = self.is_in_use(number);
            let Some(segment) = self.segments.get_mut(&number) else {
                continue;
            };
            segment
                .log
                .append((&self.dir, number), segment.marker, &marks, None)?;
            changed += marks.len();
            self.outstanding -= segment.apply(&marks);
            if !in_use {
                segment.finish(&self.dir, number);
            }
        }
        Ok(changed)
    }

    /// How many payloads wait or are dead.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.outstanding
    }

    /// What it may take from now on.
    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// Where it is.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }
}

/// Whole seconds since 1970, as far as they fit (1970 to 2106).
fn seconds(at: Timestamp) -> u32 {
    u32::try_from(at.as_second().max(0)).unwrap_or(u32::MAX)
}
