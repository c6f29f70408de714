//! Reading payloads back: by the inbox itself, and by whoever only looks.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use super::Inbox;
use super::error::InboxError;
use super::frame::{self, Frame};
use super::id::RequestId;
use super::index::{Position, Standing};
use super::marks;
use super::received::Stored;
use super::segment::{self, Header, START};
use super::state::State;
use crate::clock::Timestamp;
use crate::json::time::TimeFormat;
use crate::store::EventKey;

/// A payload without its body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// What it is called, and all that is known of it but its body.
    pub stored: Stored,
    /// Where it is.
    pub position: Position,
    /// Bytes of the body.
    pub bytes: usize,
    /// What became of it.
    pub state: State,
    /// Since when, in seconds since 1970; absent where it has waited ever since.
    pub since: Option<u32>,
}

impl Listed {
    /// As other programs read it, without the payload itself.
    #[must_use]
    pub fn json(&self) -> serde_json::Value {
        let received = &self.stored.received;
        let (tries, next, reason) = match &self.state {
            State::Failed {
                tries,
                next,
                reason,
            } => (*tries, Some(*next), Some(reason)),
            State::Dead { tries, reason } => (*tries, None, Some(reason)),
            _ => (0, None, None),
        };
        let instant = |seconds: u32| Timestamp::from_second(i64::from(seconds)).ok();
        let at = |time: Timestamp| TimeFormat::Rfc3339.write(time);
        serde_json::json!({
            "id": self.stored.id.to_string(),
            "hook": received.hook,
            "received": received.at.to_string(),
            "clock_trusted": received.clock_trusted,
            "peer": received.peer,
            "event_id": received.event_id,
            "event_type": received.event_type,
            "bytes": self.bytes,
            "state": self.state.word(),
            "since": self.since.and_then(instant).map(at),
            "tries": tries,
            "next": next.and_then(instant).map(at),
            "reason": reason,
        })
    }
}

/// Which payloads are asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// Of this hook.
    pub hook: Option<String>,
    /// In this state, by [`State::word`].
    pub state: Option<String>,
}

impl Filter {
    fn passes(&self, listed: &Listed) -> bool {
        let hook = &listed.stored.received.hook;
        self.hook.as_ref().is_none_or(|wanted| wanted == hook)
            && self
                .state
                .as_ref()
                .is_none_or(|wanted| wanted == listed.state.word())
    }
}

/// An event id that was received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Where its payload is.
    pub position: Position,
    /// What the payload is called.
    pub id: RequestId,
    /// The event that it tells of.
    pub key: EventKey,
    /// When it was received, if the clock was trusted.
    pub trusted_at: Option<Timestamp>,
}

/// Looks at an inbox without owning it, and changes nothing. What another process is writing meanwhile is seen up to some
/// point, whole.
#[derive(Debug, Clone)]
pub struct Reader {
    dir: PathBuf,
}

impl Reader {
    /// Looks into this directory.
    #[must_use]
    pub fn new(dir: &Path) -> Self {
        Self {
            dir: dir.to_path_buf(),
        }
    }

    /// Hands out the payloads that pass, oldest first. No inbox is an empty one.
    ///
    /// # Errors
    /// When a file cannot be read, or a newer gleaner wrote it.
    pub fn list(&self, filter: &Filter, mut each: impl FnMut(Listed)) -> Result<(), InboxError> {
        for number in self.numbers()? {
            self.look(number, |listed, _| {
                if filter.passes(&listed) {
                    each(listed);
                }
            })?;
        }
        Ok(())
    }

    /// When the last payload of each hook came, and whether the clock was trusted then, by the latest `segments` segments;
    /// fewer if they tell of all `hooks`.
    ///
    /// # Errors
    /// Those of [`Reader::list`].
    pub fn latest(
        &self,
        hooks: &BTreeSet<String>,
        segments: usize,
    ) -> Result<BTreeMap<String, (Timestamp, bool)>, InboxError> {
        let mut latest = BTreeMap::new();
        for number in self.numbers()?.into_iter().rev().take(segments) {
            if hooks.iter().all(|hook| latest.contains_key(hook)) {
                break;
            }
            let mut here = BTreeMap::new();
            self.look(number, |listed, _| {
                let received = listed.stored.received;
                if listed.state != State::Void {
                    here.insert(received.hook, (received.at, received.clock_trusted));
                }
            })?;
            for (hook, when) in here {
                latest.entry(hook).or_insert(when);
            }
        }
        Ok(latest)
    }

    /// The payload of this id, with its body, and what became of it.
    ///
    /// # Errors
    /// [`InboxError::Unknown`], and those of [`Reader::list`].
    pub fn show(&self, id: RequestId) -> Result<Listed, InboxError> {
        for number in self.numbers()?.into_iter().rev() {
            if let Some(listed) = self.find(number, id)? {
                return Ok(listed);
            }
        }
        Err(InboxError::Unknown { id })
    }

    fn find(&self, number: u32, id: RequestId) -> Result<Option<Listed>, InboxError> {
        let mut found = None;
        self.look(number, |listed, frame| {
            if listed.stored.id == id {
                let stored = frame.stored();
                found = Some(Listed {
                    stored: stored.unwrap_or_else(|| listed.stored.clone()),
                    ..listed
                });
            }
        })?;
        Ok(found)
    }

    fn numbers(&self) -> Result<Vec<u32>, InboxError> {
        if !self.dir.exists() {
            return Ok(Vec::new());
        }
        let files = segment::list(&self.dir)?;
        let segments = files.into_iter().filter(|(_, kind)| kind == "seg");
        Ok(segments.map(|(number, _)| number).collect())
    }

    fn look(&self, number: u32, mut each: impl FnMut(Listed, Frame<'_>)) -> Result<(), InboxError> {
        let path = segment::path(&self.dir, number);
        let Some(bytes) = present(segment::read(&path))? else {
            return Ok(());
        };
        let marker = match segment::read_header(&bytes) {
            Header::Known(marker) => marker,
            Header::Newer(found) => return Err(InboxError::Newer { path, found }),
            Header::Damaged => return Ok(()),
        };
        let mut states = BTreeMap::new();
        // A log may get its other name while we look: then it is found under that.
        for kind in ["marks", "done"] {
            let log = segment::named(&self.dir, number, kind);
            if let Some(bytes) = present(segment::read(&log))? {
                marks::scan(marker, &bytes, |mark| {
                    states.insert(mark.offset, (mark.state, mark.at));
                });
            }
        }
        let mut newer = None;
        frame::scan(marker, &bytes, start(), |at, frame| {
            let Some(stored) = frame.head() else {
                newer = newer.or(frame.newer());
                return;
            };
            let offset = u32::try_from(at).unwrap_or(u32::MAX);
            let (state, since) = match states.remove(&offset) {
                Some((state, at)) => (state, Some(at)),
                None => (State::Pending, None),
            };
            let listed = Listed {
                stored,
                position: Position {
                    segment: number,
                    offset,
                },
                bytes: frame.body_len(),
                state,
                since,
            };
            each(listed, frame);
        });
        newer.map_or(Ok(()), |found| Err(InboxError::Newer { path, found }))
    }
}

fn start() -> usize {
    usize::try_from(START).unwrap_or(usize::MAX)
}

/// What is gone is no error: it may have been evicted since it was listed.
fn present<T>(read: Result<T, InboxError>) -> Result<Option<T>, InboxError> {
    match read {
        Ok(value) => Ok(Some(value)),
        Err(InboxError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

impl Inbox {
    /// The payload at a position that [`Inbox::pending`] gave.
    ///
    /// # Errors
    /// [`InboxError::Damaged`] if it is not what was written: it has to be marked, or it comes again.
    pub fn read(&self, position: Position) -> Result<Stored, InboxError> {
        let path = segment::path(&self.dir, position.segment);
        let damaged = || InboxError::Damaged {
            path: path.clone(),
            offset: position.offset,
        };
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::UnexpectedEof => damaged(),
            _ => InboxError::io(&path, error),
        };
        let segment = self.segments.get(&position.segment).ok_or_else(damaged)?;
        let file = File::open(&path).map_err(failed)?;
        let at = u64::from(position.offset);
        let mut bytes = vec![0; frame::FIXED];
        file.read_exact_at(&mut bytes, at).map_err(failed)?;
        let long = frame::length(segment.marker, &bytes)
            .filter(|long| u64::try_from(*long).is_ok_and(|long| long <= segment.bytes));
        bytes.resize(long.ok_or_else(damaged)?, 0);
        file.read_exact_at(&mut bytes, at).map_err(failed)?;
        frame::whole(segment.marker, &bytes)
            .and_then(|frame| frame.stored())
            .ok_or_else(damaged)
    }

    /// What became of the payload of this id, without its body.
    ///
    /// # Errors
    /// [`InboxError::Unknown`], and what the system says.
    pub fn find(&self, id: RequestId) -> Result<Listed, InboxError> {
        let reader = Reader::new(&self.dir);
        for (number, segment) in self.segments.iter().rev() {
            if segment.may_hold(id) {
                if let Some(mut listed) = reader.find(*number, id)? {
                    listed.stored.received.body = Vec::new();
                    return Ok(listed);
                }
            }
        }
        Err(InboxError::Unknown { id })
    }

    /// Has failed and dead payloads tried again at once, as if for the first time.
    ///
    /// # Errors
    /// [`InboxError::Unknown`] and [`InboxError::Unfit`] before anything is changed; those of [`Inbox::mark`].
    pub fn retry(&mut self, ids: &[RequestId], now: Timestamp) -> Result<usize, InboxError> {
        let fit = |standing| standing != Standing::Pending;
        self.put(ids, State::Pending, fit, now)
    }

    /// Gives up payloads that are not processed. They are kept as evidence like processed ones.
    ///
    /// # Errors
    /// [`InboxError::Unknown`] and [`InboxError::Unfit`] before anything is changed; those of [`Inbox::mark`].
    pub fn give_up(&mut self, ids: &[RequestId], now: Timestamp) -> Result<usize, InboxError> {
        self.put(ids, State::Dropped, |_| true, now)
    }

    /// The dead letters, oldest first.
    #[must_use]
    pub fn dead(&self) -> Vec<RequestId> {
        let entries = self.segments.values().flat_map(|segment| &segment.entries);
        entries
            .filter(|entry| entry.standing == Standing::Dead)
            .map(|entry| entry.id)
            .collect()
    }

    fn put(
        &mut self,
        ids: &[RequestId],
        state: State,
        fit: impl Fn(Standing) -> bool,
        now: Timestamp,
    ) -> Result<usize, InboxError> {
        let mut wanted: BTreeMap<RequestId, Option<Position>> =
            ids.iter().map(|id| (*id, None)).collect();
        for (number, segment) in &self.segments {
            for entry in &segment.entries {
                let Some(place) = wanted.get_mut(&entry.id) else {
                    continue;
                };
                if !fit(entry.standing) {
                    return Err(InboxError::Unfit {
                        id: entry.id,
                        is: entry.word(),
                    });
                }
                *place = Some(Position {
                    segment: *number,
                    offset: entry.offset,
                });
            }
        }
        let mut marks = Vec::new();
        for (id, place) in wanted {
            match place {
                Some(position) => marks.push((position, state.clone())),
                // Settled, if it is here at all.
                None => {
                    let is = self.find(id)?.state.word();
                    return Err(InboxError::Unfit { id, is });
                }
            }
        }
        self.mark(&marks, now)
    }

    /// Event ids behind a position, or all, in the order in which they came: what the store has to be told again at start.
    /// Those of one segment at a time; no more come when the answer is empty. A position that is not in this inbox (it was
    /// emptied) counts as none. Ids of records that were never acknowledged are left out.
    ///
    /// # Errors
    /// What the system says.
    pub fn events(&self, after: Option<Position>) -> Result<Vec<Event>, InboxError> {
        let after = after.filter(|after| after.segment <= self.last);
        let reader = Reader::new(&self.dir);
        let from = after.map_or(0, |after| after.segment);
        for number in self.segments.range(from..).map(|(number, _)| *number) {
            let mut events = Vec::new();
            reader.look(number, |listed, _| {
                let new = after.is_none_or(|after| listed.position > after);
                let received = listed.stored.received;
                if let (true, Some(event_id)) =
                    (new && listed.state != State::Void, received.event_id)
                {
                    events.push(Event {
                        position: listed.position,
                        id: listed.stored.id,
                        key: EventKey::new(&received.hook, &event_id),
                        trusted_at: received.clock_trusted.then_some(received.at),
                    });
                }
            })?;
            if !events.is_empty() {
                return Ok(events);
            }
        }
        Ok(Vec::new())
    }
}
