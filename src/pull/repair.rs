//! Making the store and the sink agree again: after a cut between the two, after either was lost or went back.
//!
//! Every row in `data.db` carries the generation of the commit that wrote it. A cut between the sink and the store leaves
//! the sink one generation ahead: its newest rows are marked as unknown in the store, so the next pass compares them
//! again even if upstream has meanwhile gone back to the old value. Any other difference means that one of the two was
//! lost or restored: what the store knows is then made anew from the rows.

use std::fmt;

use super::plan::Full;
use super::progress::Progress;
use crate::config::Source;
use crate::record::{Change, Digest, Fingerprint, Known, RecordKey};
use crate::sink::SinkError;
use crate::sink::journal::Mark;
use crate::sink::sqlite::SqliteSink;
use crate::store::{Batch, Key, SourceId, Store, StoreError, Tag};

/// Stands where no config's fingerprint can: the next pass adopts its own.
const NO_CONFIG: &[u8] = b"";

/// Entries in one commit.
const CHUNK: usize = 250;

/// What to do so that store and sink agree. Decided from the generations alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repair {
    /// They agree.
    None,
    /// A cut: the sink has one batch that the store does not know of.
    Doubt {
        /// The store's generation: later rows are unknown.
        since: u64,
    },
    /// One of them is another file, or went back in time: learn all from the rows.
    Relearn(Reason),
}

/// Why all is learnt again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// The store is new, and the sink is not.
    NewStore,
    /// `data.db` is not the file that the store knows.
    OtherSink,
    /// The sink is behind the store.
    SinkBehind,
    /// The store is more than one batch behind the sink.
    StoreBehind,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NewStore => "the store is new",
            Self::OtherSink => "data.db is another file than before",
            Self::SinkBehind => "data.db is older than the store",
            Self::StoreBehind => "the store is older than data.db",
        })
    }
}

/// Decides. `paired`: the sink that the store knows, if it knows one.
#[must_use]
pub fn decide(store: u64, paired: Option<&str>, sink: u64, sink_id: &str) -> Repair {
    match paired {
        None if store == 0 && sink == 0 => Repair::None,
        None => Repair::Relearn(Reason::NewStore),
        Some(known) if known != sink_id => Repair::Relearn(Reason::OtherSink),
        Some(_) if sink == store => Repair::None,
        Some(_) if sink == store + 1 => Repair::Doubt { since: store },
        Some(_) if sink < store => Repair::Relearn(Reason::SinkBehind),
        Some(_) => Repair::Relearn(Reason::StoreBehind),
    }
}

/// A repair that did not succeed.
#[derive(Debug)]
pub enum RepairError {
    /// The store's part.
    Store(StoreError),
    /// The sink's part.
    Sink(SinkError),
}

impl fmt::Display for RepairError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store(error) => error.fmt(f),
            Self::Sink(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for RepairError {}

impl From<StoreError> for RepairError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<SinkError> for RepairError {
    fn from(error: SinkError) -> Self {
        Self::Sink(error)
    }
}

/// Where the store keeps under which config it knows what it knows of a source.
#[must_use]
pub fn config_key(id: SourceId) -> Key {
    Key::new(Tag::Counter, id, b"config")
}

/// Where the store keeps how far the incremental passes of a source have come.
#[must_use]
pub fn progress_key(id: SourceId) -> Key {
    Key::new(Tag::Counter, id, b"progress")
}

/// Makes store and sink agree before the first pass. Can be cut at any point: it is decided and done again.
///
/// # Errors
/// When either cannot be read or written.
pub fn agree<'a>(
    store: &mut Store,
    sink: &mut SqliteSink,
    sources: impl Iterator<Item = &'a Source> + Clone,
) -> Result<Repair, RepairError> {
    for source in sources.clone() {
        sink.prepare(source)?;
    }
    let key = Key::new(Tag::Counter, SourceId::NONE, b"data.db");
    let paired = store.get(&key)?.and_then(|id| String::from_utf8(id).ok());
    let (ours, theirs) = (store.generation(), sink.generation()?);
    let repair = decide(ours, paired.as_deref(), theirs, sink.id());
    match repair {
        Repair::None => {}
        Repair::Doubt { since } => {
            for source in sources.clone() {
                doubt_after(store, sink, source, since)?;
            }
        }
        Repair::Relearn(_) => {
            for source in sources.clone() {
                relearn(store, sink, source)?;
            }
        }
    }
    if repair != Repair::None {
        forget_unnamed(store, sources.clone())?;
        let generation = ours.max(theirs);
        if theirs < generation {
            sink.set_generation(generation)?;
        }
        commit(store, |batch| {
            batch.put(key.clone(), sink.id().as_bytes());
            batch.generation(generation);
        })?;
    } else if paired.is_none() {
        commit(store, |batch| batch.put(key.clone(), sink.id().as_bytes()))?;
    }
    for source in sources.clone() {
        doubt_held(store, sink, source)?;
    }
    for source in sources {
        // A source that was taken out of the config and came back, or rows that somebody removed by hand.
        let id = store.source(&source.name)?;
        if store.count(id) != sink.count(source)? {
            relearn(store, sink, source)?;
        }
        doubt_other_config(store, sink, source)?;
    }
    Ok(repair)
}

/// Rows that were written under another config than the store believes: the next pass shall write all of them again.
fn doubt_other_config(
    store: &mut Store,
    sink: &SqliteSink,
    source: &Source,
) -> Result<(), RepairError> {
    let key = config_key(store.source(&source.name)?);
    let believed = store.get(&key)?;
    let written = sink.written(&source.name)?.map(|written| written.config);
    if believed.is_none() || believed == written {
        return Ok(());
    }
    Ok(commit(store, |batch| batch.put(key, NO_CONFIG))?)
}

fn commit(store: &mut Store, fill: impl FnOnce(&mut Batch)) -> Result<(), StoreError> {
    let mut batch = Batch::new();
    fill(&mut batch);
    store.commit(batch).map(drop)
}

/// A batch that `data.db` has and followers may not: the store learns of its rows, as unknown until all have taken it. If
/// nobody follows the source any more, nobody is told.
fn doubt_held(store: &mut Store, sink: &SqliteSink, source: &Source) -> Result<(), RepairError> {
    let id = store.source(&source.name)?;
    let Some((mark, held)) = super::follow::held(store, sink, source, id)? else {
        return Ok(());
    };
    let mut batch = Batch::new();
    drop_memory(&mut batch, id);
    for change in &held.changes {
        match change {
            Change::Delete { key, .. } => batch.unset(id, key),
            Change::Upsert { key, .. } => {
                let known = match store.find(id, key)? {
                    Some(known) => Known {
                        digest: Digest::UNKNOWN,
                        ..known
                    },
                    None => unknown(store, id)?,
                };
                batch.set(id, key, known);
            }
        }
    }
    if !source.is_followed() {
        let next = held.seq + held.count;
        let mark = Mark { next, ..mark };
        batch.put(super::follow::mark_key(id), &mark.encode());
    }
    Ok(store.commit(batch).map(drop)?)
}

/// Rows that a commit after `since` wrote, or deleted, are unknown from now on.
fn doubt_after(
    store: &mut Store,
    sink: &SqliteSink,
    source: &Source,
    since: u64,
) -> Result<(), RepairError> {
    let id = store.source(&source.name)?;
    let mut keys = Vec::new();
    let removed = sink.removed_after(source, since)?;
    sink.rows_after(source, since, |row| keys.push(row.key))?;
    if keys.is_empty() && removed.is_empty() {
        return Ok(());
    }
    log::info!(
        "{}: {} records were delivered just before a cut, they are compared again",
        source.name,
        keys.len() + removed.len()
    );
    // A row that is gone is not known any more: if upstream still has it, it comes as a new one.
    for chunk in removed.chunks(CHUNK) {
        let mut batch = Batch::new();
        drop_memory(&mut batch, id);
        chunk.iter().for_each(|key| batch.unset(id, key));
        store.commit(batch)?;
    }
    Ok(doubt_records(store, id, &keys)?)
}

/// What is known of records is that they are there: the next pass compares and delivers them.
pub(super) fn doubt_records(
    store: &mut Store,
    id: SourceId,
    keys: &[RecordKey],
) -> Result<(), StoreError> {
    for chunk in keys.chunks(CHUNK) {
        let mut batch = Batch::new();
        drop_memory(&mut batch, id);
        for key in chunk {
            let known = match store.find(id, key)? {
                Some(known) => Known {
                    digest: Digest::UNKNOWN,
                    ..known
                },
                None => unknown(store, id)?,
            };
            batch.set(id, key, known);
        }
        store.commit(batch)?;
    }
    Ok(())
}

/// What the store knows of a source is made anew from the sink's rows. The rows of its last generation count as unknown:
/// other sinks may not have had them.
fn relearn(store: &mut Store, sink: &SqliteSink, source: &Source) -> Result<(), RepairError> {
    let id = store.source(&source.name)?;
    // Before the records: rows of several configs teach nothing that a digest could be compared with.
    let written = sink.written(&source.name)?;
    let config = written.filter(|written| written.whole);
    let config = config.map_or(NO_CONFIG.to_vec(), |written| written.config);
    commit(store, |batch| batch.put(config_key(id), &config))?;
    owe_full(store, id)?;
    store.forget(id)?;
    let last = sink.generation()?;
    let mut uncertain = std::collections::HashSet::new();
    sink.rows_after(source, last.saturating_sub(1), |row| {
        uncertain.insert(row.key);
    })?;
    let (mut after, mut count) = (None, 0u64);
    loop {
        let rows = sink.rows(source, after.as_ref(), CHUNK)?;
        let Some(last) = rows.last() else { break };
        after = Some(last.key.clone());
        let mut batch = Batch::new();
        for row in &rows {
            let digest = if uncertain.contains(&row.key) {
                Digest::UNKNOWN
            } else {
                row.digest
            };
            batch.set(
                id,
                &row.key,
                Known {
                    digest,
                    updated_ms: row.updated_ms,
                    ..unknown(store, id)?
                },
            );
            count += 1;
        }
        store.commit(batch)?;
    }
    if count > 0 {
        log::warn!(
            "{}: {count} records were learnt again from data.db",
            source.name
        );
    }
    Ok(())
}

/// What is in doubt may be older than the watermark says: the next pass compares everything.
pub(super) fn owe_full(store: &mut Store, id: SourceId) -> Result<(), StoreError> {
    let progress = store.get(&progress_key(id))?;
    if let Some(mut progress) = progress.as_deref().and_then(Progress::decode) {
        progress.owed = Some(Full::Lost);
        commit(store, |batch| {
            batch.put(progress_key(id), &progress.encode())
        })?;
    }
    Ok(())
}

/// Of sources that the config does not name now nothing is kept that could be wrong when they come back.
fn forget_unnamed<'a>(
    store: &mut Store,
    sources: impl Iterator<Item = &'a Source> + Clone,
) -> Result<(), StoreError> {
    let unnamed: Vec<SourceId> = store
        .sources()
        .filter(|(_, name)| !sources.clone().any(|source| source.name == *name))
        .map(|(id, _)| id)
        .collect();
    for id in unnamed {
        // How far its passes had come goes first: it says that the rest is there.
        commit(store, |batch| batch.remove(progress_key(id)))?;
        store.forget(id)?;
    }
    Ok(())
}

/// Marks every record of a source as unknown, so that the next pass delivers all of them. `between` two commits whoever
/// else is served has a turn: of a million records there are four thousand.
///
/// # Errors
/// When the store cannot be read or written.
pub fn doubt(store: &mut Store, id: SourceId, mut between: impl FnMut()) -> Result<(), StoreError> {
    let mut after = None;
    loop {
        between();
        let mut batch = Batch::new();
        drop_memory(&mut batch, id);
        let chunk = store
            .records(id, after.as_ref())
            .take(CHUNK)
            .collect::<Result<Vec<_>, _>>()?;
        let Some((last, _)) = chunk.last() else {
            return store.commit(batch).map(drop);
        };
        after = Some(last.clone());
        for (key, known) in &chunk {
            batch.set(
                id,
                key,
                Known {
                    digest: Digest::UNKNOWN,
                    ..*known
                },
            );
        }
        store.commit(batch)?;
    }
}

/// A 304 must not vouch for what is in doubt.
fn drop_memory(batch: &mut Batch, id: SourceId) {
    batch.remove_prefix(Key::new(Tag::Memo, id, b""));
    batch.remove_prefix(Key::new(Tag::Bitmap, id, b""));
    batch.remove(Key::new(Tag::Position, id, b""));
}

fn unknown(store: &mut Store, id: SourceId) -> Result<Known, StoreError> {
    let ordinal = store.next_ordinal(id)?;
    Ok(Known {
        digest: Digest::UNKNOWN,
        fingerprint: Fingerprint::default(),
        ordinal,
        updated_ms: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_believed() {
        let table = [
            (0, None, 0, "a", Repair::None),
            (0, None, 9, "a", Repair::Relearn(Reason::NewStore)),
            (5, Some("a"), 5, "a", Repair::None),
            (5, Some("a"), 6, "a", Repair::Doubt { since: 5 }),
            (5, Some("a"), 7, "a", Repair::Relearn(Reason::StoreBehind)),
            (5, Some("a"), 4, "a", Repair::Relearn(Reason::SinkBehind)),
            (5, Some("a"), 5, "b", Repair::Relearn(Reason::OtherSink)),
            (0, Some("a"), 0, "b", Repair::Relearn(Reason::OtherSink)),
            (5, None, 5, "a", Repair::Relearn(Reason::NewStore)),
        ];
        for (store, paired, sink, id, expected) in table {
            assert_eq!(
                decide(store, paired, sink, id),
                expected,
                "{store} {paired:?} {sink} {id}"
            );
        }
    }
}
