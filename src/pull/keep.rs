//! What is kept between pages and between passes: memos, marks, the position. Written with changes, and otherwise at most
//! once in a checkpoint, so that an idle poll writes nothing.

use std::time::Duration;

use url::Url;

use super::collection::Pass;
use super::deliver::local;
use super::memo::{Memo, Ordinals, page_id};
use super::plan::Plan;
use super::position::Position;
use crate::record::Ordinal;
use crate::store::{Batch, Key, SourceId, Store, Tag};
use crate::upstream::client::Head;
use crate::upstream::conditional::{CacheControl, vary_is_star};
use crate::upstream::outcome::Failure;

/// Entries as they are stored: what they are called, and their bytes.
type Entries = Vec<(Vec<u8>, Vec<u8>)>;

impl Pass<'_, '_> {
    fn entries(&self, prefix: &Key) -> Result<Entries, Failure> {
        self.tools
            .store
            .scan(prefix)
            .collect::<Result<_, _>>()
            .map_err(|e| local(&e))
    }

    /// Commits what is no delivery.
    pub(super) fn commit(&mut self, batch: Batch) -> Result<(), Failure> {
        if batch.is_empty() {
            return Ok(());
        }
        self.tools
            .store
            .commit(batch)
            .map(drop)
            .map_err(|e| local(&e))
    }

    /// Where to begin: at the first page of what is due, or where an earlier process was cut.
    pub(super) fn begin(&mut self) -> Result<Url, Failure> {
        self.make_plan();
        let key = Key::new(Tag::Position, self.id, b"");
        let stored = self.tools.store.get(&key).map_err(|e| local(&e))?;
        if stored.is_none() || self.mode.dry_run {
            return Ok(self.first_page());
        }
        self.position = stored.as_deref().and_then(Position::decode);
        let now = self.wall.as_second();
        // Who asks for everything is not served by the rest of a window.
        let is_wanted = |position: &Position| {
            let full = matches!(self.plan, Plan::Full { .. });
            let wanted = self.is_incremental() && full;
            !wanted || matches!(position.plan, Plan::Full { .. })
        };
        let position = match &self.position {
            Some(position)
                if position.resumable(self.mode.config, now, self.full_every())
                    && is_wanted(position) =>
            {
                position.clone()
            }
            _ => {
                self.drop_position()?;
                return Ok(self.first_page());
            }
        };
        for (rest, bytes) in self.entries(&Key::new(Tag::Bitmap, self.id, b""))? {
            if let Ok(block) = <[u8; 4]>::try_from(&rest[..]) {
                self.marks.restore(u32::from_be_bytes(block), &bytes);
            }
        }
        log::info!(
            "{}: going on behind page {} of an interrupted pass",
            self.source.name,
            position.pages
        );
        self.resumed = true;
        self.all_304 = false;
        self.started = position.started;
        self.listing = position.listing;
        self.listed = position.records;
        self.blind = position.blind;
        if self.is_incremental() {
            self.plan = position.plan;
            self.span_started = position.span_started;
            self.upstream_started = position.upstream_started;
            self.cursor = position.cursor;
            self.restore_span(position.span);
        }
        Ok(position.next)
    }

    /// How often full passes are made. What changes behind one that takes days is seen by the windows that follow it.
    fn full_every(&self) -> Duration {
        if self.is_incremental() {
            self.source.reconcile_every.unwrap_or(Duration::MAX)
        } else {
            self.source.every
        }
    }

    /// Whether a page may be asked for with this memo.
    pub(super) fn is_usable(&self, memo: &Memo) -> bool {
        // A clock that jumped must not stop us from asking in full now and then, nor make us do so each time.
        let age = self.wall.as_second().saturating_sub(memo.fetched);
        let rechecked = age < i64::try_from(self.source.recheck.as_secs()).unwrap_or(i64::MAX);
        memo.config == self.mode.config
            && !memo.validators.is_empty()
            && rechecked
            && self.tools.client.selects(&memo.variant)
    }

    /// What is kept of a page.
    pub(super) fn memo(&self, url: &Url) -> Result<Option<Memo>, Failure> {
        let entries = self.entries(&Key::new(Tag::Memo, self.id, &page_id(url)))?;
        let parts: Vec<Vec<u8>> = entries.into_iter().map(|(_, bytes)| bytes).collect();
        Ok(Memo::decode(&parts))
    }

    /// A page is had: its memo, the marks and the position are written down, if they say anything new.
    pub(super) fn close_page(
        &mut self,
        url: &Url,
        memo: &Memo,
        head: &Head,
        stored: Option<&Memo>,
        number: u32,
    ) -> Result<(), Failure> {
        if self.mode.dry_run {
            return Ok(());
        }
        let mut batch = Batch::new();
        let prefix = Key::new(Tag::Memo, self.id, &page_id(url));
        let no_store = CacheControl::of(&head.headers).no_store && !self.source.ignore_no_store;
        let keepable = self.source.search.is_none()
            && !memo.validators.is_empty()
            && !no_store
            && !vary_is_star(&head.headers);
        if keepable && (memo.says_more_than(stored) || self.recheck_is_due(stored)) {
            batch.remove_prefix(prefix);
            for (part, bytes) in memo.encode().into_iter().enumerate() {
                batch.put(memo_key(self.id, url, part), &bytes);
            }
        } else if !keepable && stored.is_some() {
            batch.remove_prefix(prefix);
        }
        let delivered = self.tally.delivered() > self.delivered || !batch.is_empty();
        self.delivered = self.tally.delivered();
        let overdue = self.tools.wait.now().since(self.checkpointed) >= self.mode.checkpoint;
        if let Some(next) = memo.next.as_ref().filter(|_| delivered || overdue) {
            let position = Position {
                config: self.mode.config,
                started: self.started,
                next: next.clone(),
                pages: number,
                records: self.listed,
                listing: self.listing,
                blind: self.blind,
                plan: self.plan.clone(),
                span: self.span,
                span_started: self.span_started,
                upstream_started: self.upstream_started,
                cursor: self.cursor.clone(),
            };
            for (block, bytes) in self.marks.take_dirty() {
                batch.put(Key::new(Tag::Bitmap, self.id, &block.to_be_bytes()), &bytes);
            }
            batch.put(Key::new(Tag::Position, self.id, b""), &position.encode());
            self.position = Some(position);
            self.checkpointed = self.tools.wait.now();
        }
        self.commit(batch)
    }

    fn recheck_is_due(&self, stored: Option<&Memo>) -> bool {
        stored.is_some_and(|memo| !self.is_usable(memo))
    }

    /// Removes the memos that what is about to be delivered overtakes, in the same commit.
    ///
    /// A memo says "a 304 here means: what we have is what it has". That ends with the first record delivered from a new
    /// body, not with its last: when the rest does not come and upstream goes back, its 304 would vouch for rows that
    /// are not from there. It ends as well for a page that a record has left for the one being read; that page's own
    /// body has changed then, so nothing is lost. (Pages that this pass has met already keep theirs: of a record that
    /// stands on several pages in several forms, each would else undo the other for ever.)
    ///
    /// `touched` ascends.
    pub(super) fn overtaken_memos(&mut self, touched: &[Ordinal]) -> Result<Batch, Failure> {
        let mut batch = Batch::new();
        if let Some(page) = self.reading.take() {
            batch.remove_prefix(Key::new(Tag::Memo, self.id, &page));
        }
        let met = &self.met;
        overtaken(
            self.tools.store,
            self.id,
            touched,
            |page| met.contains(page),
            &mut batch,
        )?;
        Ok(batch)
    }

    /// The next pass starts at its first page.
    pub(super) fn forget_position(&mut self) -> Result<(), Failure> {
        if self.position.is_none() {
            return Ok(());
        }
        self.drop_position()
    }

    fn drop_position(&mut self) -> Result<(), Failure> {
        self.position = None;
        let mut batch = Batch::new();
        batch.remove(Key::new(Tag::Position, self.id, b""));
        batch.remove_prefix(Key::new(Tag::Bitmap, self.id, b""));
        self.commit(batch)
    }

    /// Memos of pages that the complete pass did not meet are of no use: token URLs differ each time.
    pub(super) fn evict_memos(&mut self) -> Result<(), Failure> {
        if self.resumed || self.all_304 {
            return Ok(());
        }
        let stored = self.entries(&Key::new(Tag::Memo, self.id, b""))?;
        let mut batch = Batch::new();
        for (rest, _) in stored {
            let page = rest
                .get(..8)
                .and_then(|page| <[u8; 8]>::try_from(page).ok());
            if page.is_none_or(|page| !self.met.contains(&page)) {
                batch.remove(Key::new(Tag::Memo, self.id, &rest));
            }
        }
        self.commit(batch)
    }
}

/// Removes the memos of pages that hold one of these records, those left out that are to be `kept`. `touched` ascends.
pub(super) fn overtaken(
    store: &Store,
    id: SourceId,
    touched: &[Ordinal],
    kept: impl Fn(&[u8; 8]) -> bool,
    batch: &mut Batch,
) -> Result<(), Failure> {
    if touched.is_empty() {
        return Ok(());
    }
    let mut last = None;
    for entry in store.scan(&Key::new(Tag::Memo, id, b"")) {
        let (rest, bytes) = entry.map_err(|e| local(&e))?;
        let Some((page, part)) = rest.split_first_chunk::<8>() else {
            continue;
        };
        let is_head = part == [0, 0];
        let known = last == Some(*page) || kept(page);
        if !is_head && !known && vouches(&bytes, touched) {
            batch.remove_prefix(Key::new(Tag::Memo, id, page));
            last = Some(*page);
        }
    }
    Ok(())
}

/// Whether a stored part of a memo's ordinals has one of these, or cannot be read.
fn vouches(part: &[u8], touched: &[Ordinal]) -> bool {
    Ordinals::decode(&[part]).is_none_or(|ordinals| ordinals.has_any(touched))
}

fn memo_key(id: SourceId, url: &Url, part: usize) -> Key {
    let mut rest = page_id(url).to_vec();
    rest.extend_from_slice(&u16::try_from(part).unwrap_or(u16::MAX).to_be_bytes());
    Key::new(Tag::Memo, id, &rest)
}
