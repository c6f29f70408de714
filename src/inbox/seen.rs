//! Which event ids are known: those that the store does not have yet are remembered here, so that two deliveries of one
//! event are told apart from two events also when they come in the same turn.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;

use super::error::InboxError;
use super::id::RequestId;
use super::index::Position;
use super::{Event, Inbox};
use crate::store::{Batch, EventKey, Store, StoreError};

/// Ids in one commit when the store is told again. Few enough for one part.
const BATCH: usize = 200;

/// What an event id is known from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Known {
    /// Its payload is saved, under this id.
    Saved(RequestId),
    /// Its payload has come in this turn, and is saved when the next [`Inbox::sync`] returns well: the second delivery may
    /// be answered no sooner than the first, and no better.
    InTurn(RequestId),
}

/// Event ids that the store has not.
#[derive(Debug, Default)]
pub(super) struct Unmarked {
    ids: BTreeMap<EventKey, RequestId>,
    /// Of those whose payload is synced, oldest first.
    synced: VecDeque<Event>,
    fresh: Vec<Event>,
}

impl Unmarked {
    pub(super) fn note(&mut self, event: Event) {
        self.ids.entry(event.key).or_insert(event.id);
        self.fresh.push(event);
    }

    pub(super) fn synced(&mut self) {
        self.synced.extend(self.fresh.drain(..));
    }

    /// The sync has failed: who sends them again sends them for the first time.
    pub(super) fn forsake(&mut self) {
        for event in self.fresh.drain(..) {
            if self.ids.get(&event.key) == Some(&event.id) {
                self.ids.remove(&event.key);
            }
        }
    }
}

impl Inbox {
    /// Whether an event id has been received: asked before [`Inbox::append`].
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn known(&self, store: &Store, key: EventKey) -> Result<Option<Known>, StoreError> {
        if let Some(id) = self.unmarked.ids.get(&key) {
            let fresh = self.unmarked.fresh.iter().any(|event| event.id == *id);
            return Ok(Some(if fresh {
                Known::InTurn(*id)
            } else {
                Known::Saved(*id)
            }));
        }
        let seen = store.seen(key)?;
        Ok(seen.map(|id| Known::Saved(RequestId(id))))
    }

    /// How many synced event ids the store does not have yet.
    #[must_use]
    pub fn unmarked(&self) -> usize {
        self.unmarked.synced.len()
    }

    /// Puts synced event ids that the store does not have yet into a batch, oldest first and at most 200, with the position
    /// up to which it has them then. Returns that; [`Inbox::marked`] takes it when the commit is done. Nothing is lost by
    /// waiting for a batch that is written anyway: after a cut the ids are read from the inbox.
    #[must_use]
    pub fn fill(&self, batch: &mut Batch) -> Option<Position> {
        let some = self.unmarked.synced.iter().take(BATCH);
        fill(batch, some)
    }

    /// The store has the event ids up to here.
    pub fn marked(&mut self, up_to: Position) {
        let unmarked = &mut self.unmarked;
        while let Some(event) = unmarked.synced.pop_front() {
            if event.position > up_to {
                unmarked.synced.push_front(event);
                return;
            }
            if unmarked.ids.get(&event.key) == Some(&event.id) {
                unmarked.ids.remove(&event.key);
            }
        }
    }

    /// Tells the store the event ids that it does not have: at start, before anything is received. Usually those since its
    /// last commit; all that are in the inbox if the store is new. `breathe` is called between commits. Returns how many
    /// were told.
    ///
    /// # Errors
    /// What either says; a later try goes on where this one came to.
    pub fn catch_up(
        &self,
        store: &mut Store,
        mut breathe: impl FnMut(),
    ) -> Result<usize, CatchUpError> {
        let position = |(segment, offset)| Position { segment, offset };
        let mut after = store.seen_position()?.map(position);
        let mut told = 0;
        loop {
            let events = self.events(after)?;
            if events.is_empty() {
                break;
            }
            for some in events.chunks(BATCH) {
                let mut batch = Batch::new();
                after = fill(&mut batch, some.iter());
                store.commit(batch)?;
                told += some.len();
                breathe();
            }
        }
        // Where few payloads have ids, what is before the last segment is not read again at each start.
        let last = self.segments.keys().next_back().copied();
        if let Some(segment) = last.filter(|last| after.is_none_or(|after| after.segment < *last)) {
            let mut batch = Batch::new();
            batch.seen_up_to(segment, 0);
            store.commit(batch)?;
        }
        Ok(told)
    }
}

fn fill<'a>(batch: &mut Batch, events: impl Iterator<Item = &'a Event>) -> Option<Position> {
    let mut last = None;
    for event in events {
        batch.see(event.key, event.id.0, event.trusted_at);
        last = Some(event.position);
    }
    if let Some(Position { segment, offset }) = last {
        batch.seen_up_to(segment, offset);
    }
    last
}

/// Why the store could not be told.
#[derive(Debug)]
pub enum CatchUpError {
    /// The inbox.
    Inbox(InboxError),
    /// The store.
    Store(StoreError),
}

impl fmt::Display for CatchUpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inbox(error) => error.fmt(f),
            Self::Store(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for CatchUpError {}

impl From<InboxError> for CatchUpError {
    fn from(error: InboxError) -> Self {
        Self::Inbox(error)
    }
}

impl From<StoreError> for CatchUpError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}
