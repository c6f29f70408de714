//! What the store keeps of a source besides its records, read back for a person; and how it is made to forget what vouches.

use std::collections::HashMap;

use super::marks::Marks;
use super::memo::{Memo, page_id};
use super::plan::Full;
use super::position::Position;
use super::progress::Progress;
use super::repair::{RepairError, doubt, progress_key};
use crate::config::{Pull, Source};
use crate::sink::sqlite::{SqliteSink, Written};
use crate::store::{Batch, Key, SourceId, Store, StoreError, Tag};

/// A page that is remembered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// Its memo.
    pub memo: Memo,
    /// Which page of its listing it is, from 1, as far as the pages before it are remembered too.
    pub number: usize,
    /// Bytes that its entries have in the store, without their keys.
    pub bytes: u64,
}

/// The pages of a source that are remembered. What cannot be read is left out: the next pass asks for it in full.
///
/// # Errors
/// When the store cannot be read.
pub fn pages(store: &Store, id: SourceId) -> Result<Vec<Page>, StoreError> {
    let mut entries: Vec<([u8; 8], Vec<Vec<u8>>)> = Vec::new();
    for entry in store.scan(&Key::new(Tag::Memo, id, b"")) {
        let (rest, bytes) = entry?;
        let Some((page, _)) = rest.split_first_chunk::<8>() else {
            continue;
        };
        match entries.last_mut() {
            Some((last, parts)) if last == page => parts.push(bytes),
            _ => entries.push((*page, vec![bytes])),
        }
    }
    let mut pages = Vec::new();
    let mut before: HashMap<[u8; 8], [u8; 8]> = HashMap::new();
    for (page, parts) in entries {
        let Some(memo) = Memo::decode(&parts) else {
            continue;
        };
        if let Some(next) = &memo.next {
            before.insert(page_id(next), page);
        }
        let bytes = parts.iter().map(|part| part.len() as u64).sum();
        pages.push((page, memo, bytes));
    }
    let most = pages.len();
    let number = |page: [u8; 8]| {
        let steps = std::iter::successors(Some(page), |page| before.get(page).copied());
        // A circle of pages has no first one.
        steps.take(most).count()
    };
    let mut pages: Vec<Page> = pages
        .into_iter()
        .map(|(page, memo, bytes)| Page {
            number: number(page),
            memo,
            bytes,
        })
        .collect();
    pages.sort_by_key(|page| page.number);
    Ok(pages)
}

/// Where an interrupted pass stands, and which records it has met.
///
/// # Errors
/// When the store cannot be read.
pub fn interrupted(store: &Store, id: SourceId) -> Result<Option<(Position, Marks)>, StoreError> {
    let stored = store.get(&Key::new(Tag::Position, id, b""))?;
    let Some(position) = stored.as_deref().and_then(Position::decode) else {
        return Ok(None);
    };
    let mut marks = Marks::default();
    for entry in store.scan(&Key::new(Tag::Bitmap, id, b"")) {
        let (rest, bytes) = entry?;
        if let Ok(block) = <[u8; 4]>::try_from(&rest[..]) {
            marks.restore(u32::from_be_bytes(block), &bytes);
        }
    }
    Ok(Some((position, marks)))
}

/// How far the incremental passes of a source have come; nothing for a source without such.
///
/// # Errors
/// When the store cannot be read.
pub fn progress(store: &Store, id: SourceId) -> Result<Progress, StoreError> {
    let stored = store.get(&progress_key(id))?;
    Ok(stored
        .as_deref()
        .and_then(Progress::decode)
        .unwrap_or_default())
}

/// Forgets what vouches for a source's records: pages with their validators, where passes stand and how far they have
/// come. What was delivered is in doubt from now on, so the next pass reads and delivers everything again. Which records are
/// known stays, and so does from when on the copy holds everything: what is gone is still found to be. `between` two commits
/// others have a turn.
///
/// It can be cut anywhere and is done again then; nothing is lost in between.
///
/// # Errors
/// When the store or the sink cannot be read or written.
pub fn reset(
    source: &Source,
    store: &mut Store,
    sink: &mut SqliteSink,
    between: impl FnMut(),
) -> Result<u64, RepairError> {
    let id = store.source(&source.name)?;
    // Should the store be lost before that pass: rows that nobody vouches for teach a new one nothing.
    if let Some(written) = sink.written(&source.name)? {
        let written = Written {
            whole: false,
            ..written
        };
        sink.note_written(&source.name, &written)?;
    }
    if matches!(source.pull, Pull::Window(_) | Pull::Cursor(_)) {
        let was = progress(store, id)?;
        let progress = Progress {
            watermark: None,
            cursor: None,
            full_at: None,
            unconfirmed: None,
            owed: Some(Full::Reset),
            ..was
        };
        let mut batch = Batch::new();
        batch.put(progress_key(id), &progress.encode());
        store.commit(batch)?;
    }
    doubt(store, id, between)?;
    Ok(store.count(id))
}
