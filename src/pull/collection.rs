//! One pass over a collection: fetch → select → compare → deliver → commit, page by page.
//!
//! The order is the guarantee. A batch goes to the sinks first, durably, then its digests to the store; what says "this
//! page is had" (memo, marks, position) goes with the page's last batch; what says "this listing is had" (deletions, the
//! end of the pass) comes after the last page.

use std::collections::HashSet;
use std::time::Duration;

use url::Url;

use super::absence::{Loss, judge};
use super::deliver::{Delivery, Pending};
use super::marks::Marks;
use super::memo::{Memo, Ordinals, page_id};
use super::pages::{Next, PageFacts, PageFault};
use super::position::Position;
use super::reading::{BadRecord, Reading, RecordReader};
use super::report::{Outcome, Report, Tally};
use super::select::{Layout, SelectError, Selector};
use crate::clock::{Mono, Timestamp};
use crate::config::{OnBad, Source};
use crate::pointer::Pointer;
use crate::record::{Change, Digest, Gone, Known, Ordinal, RecordKey};
use crate::sink::BadRow;
use crate::sink::sqlite::SqliteSink;
use crate::store::{Batch, Key, SourceId, Store, StoreError, Tag};
use crate::upstream::client::{Answer, Ask, Client, Full, Head, Held, failure_of_io, shown};
use crate::upstream::conditional::{CacheControl, Validators, fresh_for, vary_is_star};
use crate::upstream::outcome::{Expect, Failure, Kind};
use crate::wait::Wait;

/// How many bad records are kept aside for a person to look at.
const BAD_KEPT: usize = 20;

/// What a pass works with.
pub struct Tools<'a> {
    /// The upstream.
    pub client: &'a mut Client,
    /// What is known.
    pub store: &'a mut Store,
    /// Where changes go.
    pub sink: &'a mut SqliteSink,
    /// The one wait, and the clock.
    pub wait: &'a Wait,
    /// Told now and then how far the pass is.
    pub progress: &'a mut dyn FnMut(&Tally),
}

/// How a pass is to be made.
#[derive(Debug, Clone, Copy)]
pub struct Mode {
    /// Compare, and change nothing.
    pub dry_run: bool,
    /// Only the first page: does the source answer as the config says?
    pub probe: bool,
    /// A person has said that what is missing is gone.
    pub confirmed: bool,
    /// How often a position without changes is written down.
    pub checkpoint: Duration,
    /// Identifies the config of the source: pages read under another one are read again.
    pub config: [u8; 8],
    /// After a complete pass that missed nothing: the store's generation then. While it stands, a pass of 304s needs no
    /// look for absences.
    pub settled: Option<u64>,
}

/// Makes one pass.
pub fn pass(source: &Source, tools: &mut Tools<'_>, mode: Mode) -> Report {
    let clock = tools.wait.clock().clone();
    let started = clock.mono();
    let before = (tools.client.requests(), tools.client.traffic());
    let id = tools.store.source(&source.name);
    let (outcome, mut tally, notes, resumed, fresh) = match id {
        Err(error) => (
            Outcome::Failed(local(&error)),
            Tally::default(),
            Vec::new(),
            false,
            Duration::ZERO,
        ),
        Ok(id) => {
            let mut pass = Pass::new(source, id, tools, mode, clock.wall(), started);
            let outcome = pass.run();
            (
                outcome,
                pass.tally,
                pass.notes,
                pass.resumed,
                pass.fresh.unwrap_or_default(),
            )
        }
    };
    let (requests, (up, down)) = (tools.client.requests(), tools.client.traffic());
    tally.requests = requests - before.0;
    tally.bytes_up = up - before.1.0;
    tally.bytes_down = down - before.1.1;
    Report {
        source: source.name.clone(),
        outcome,
        tally,
        elapsed: clock.mono().since(started),
        fresh_for: fresh,
        resumed,
        notes,
    }
}

struct Pass<'a, 't> {
    source: &'a Source,
    id: SourceId,
    tools: &'a mut Tools<'t>,
    mode: Mode,
    reader: RecordReader<'a>,
    salt: [u8; 16],
    wall: Timestamp,
    started: i64,
    checkpointed: Mono,
    marks: Marks,
    tally: Tally,
    bad: Vec<BadRow>,
    notes: Vec<String>,
    met: HashSet<[u8; 8]>,
    asked: HashSet<[u8; 8]>,
    position: Option<Position>,
    resumed: bool,
    listing: u8,
    listed: u64,
    blind: bool,
    all_304: bool,
    fresh: Option<Duration>,
}

/// What one page's records came to.
struct PageRead {
    records: u64,
    bad: u64,
    blind: bool,
    ordinals: Vec<Ordinal>,
    last_key: Option<String>,
    found: Vec<Option<String>>,
}

impl<'a, 't> Pass<'a, 't> {
    fn new(
        source: &'a Source,
        id: SourceId,
        tools: &'a mut Tools<'t>,
        mode: Mode,
        wall: Timestamp,
        now: Mono,
    ) -> Self {
        let salt = *tools.store.salt();
        Self {
            source,
            id,
            tools,
            mode,
            reader: RecordReader::new(source),
            salt,
            wall,
            started: wall.as_second(),
            checkpointed: now,
            marks: Marks::default(),
            tally: Tally::default(),
            bad: Vec::new(),
            notes: Vec::new(),
            met: HashSet::new(),
            asked: HashSet::new(),
            position: None,
            resumed: false,
            listing: 1,
            listed: 0,
            blind: false,
            all_304: true,
            fresh: None,
        }
    }

    fn run(&mut self) -> Outcome {
        match self.listings() {
            Ok(outcome) => outcome,
            Err(failure) => Outcome::Failed(failure),
        }
    }

    fn listings(&mut self) -> Result<Outcome, Failure> {
        if !self.mode.dry_run {
            self.adopt_config()?;
        }
        let mut next = self.begin()?;
        loop {
            self.walk(next)?;
            if self.mode.probe {
                return Ok(self.done());
            }
            let (missing, known) = self.missing()?;
            if missing > 0 && self.source.pages.moves() && self.listing == 1 {
                // Records move between pages while we read: one listing alone proves no absence. What either of two
                // has met is there.
                self.listing = 2;
                self.asked.clear();
                next = self.first_page();
                continue;
            }
            return self.finish(missing, known);
        }
    }

    /// Reads everything again when the config that decides what a digest or a memo means has changed.
    fn adopt_config(&mut self) -> Result<(), Failure> {
        let key = Key::new(Tag::Counter, self.id, b"config");
        let stored = self.tools.store.get(&key).map_err(|e| local(&e))?;
        if stored.as_deref() == Some(&self.mode.config[..]) {
            return Ok(());
        }
        if stored.is_some() {
            log::info!(
                "{}: its config changed, everything is read again",
                self.source.name
            );
            super::repair::doubt(self.tools.store, self.id).map_err(|e| local(&e))?;
        }
        let mut batch = Batch::new();
        batch.put(key, &self.mode.config);
        self.commit(batch)
    }

    fn entries(&self, prefix: &Key) -> Result<Vec<(Vec<u8>, Vec<u8>)>, Failure> {
        self.tools
            .store
            .scan(prefix)
            .collect::<Result<_, _>>()
            .map_err(|e| local(&e))
    }

    fn commit(&mut self, batch: Batch) -> Result<(), Failure> {
        if batch.is_empty() {
            return Ok(());
        }
        self.tools
            .store
            .commit(batch)
            .map(drop)
            .map_err(|e| local(&e))
    }

    fn first_page(&self) -> Url {
        self.source.pages.first(&self.source.url)
    }

    /// Where to begin: at the first page, or where an earlier process was cut.
    fn begin(&mut self) -> Result<Url, Failure> {
        let key = Key::new(Tag::Position, self.id, b"");
        let stored = self.tools.store.get(&key).map_err(|e| local(&e))?;
        self.position = stored.as_deref().and_then(Position::decode);
        let now = self.wall.as_second();
        let resumable =
            |position: &&Position| position.resumable(self.mode.config, now, self.source.every);
        let Some(position) = self
            .position
            .as_ref()
            .filter(resumable)
            .filter(|_| !self.mode.dry_run)
            .cloned()
        else {
            return Ok(self.first_page());
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
        Ok(position.next)
    }

    /// Walks pages until the listing ends.
    fn walk(&mut self, first: Url) -> Result<(), Failure> {
        let mut url = first;
        let mut pages = 0u32;
        loop {
            pages += 1;
            if !self.asked.insert(page_id(&url)) {
                return Err(broken(&url, &PageFault::Repeats(shown(&url))));
            }
            if pages > self.tools.client.max_pages() {
                return Err(broken(
                    &url,
                    &PageFault::TooMany(self.tools.client.max_pages()),
                ));
            }
            let first = pages == 1 && !self.resumed;
            match self.page(&url, first, pages)? {
                Some(next) if !self.mode.probe => url = next,
                _ => return Ok(()),
            }
        }
    }

    /// One page: its records delivered, its memo kept; what comes next.
    fn page(&mut self, url: &Url, first: bool, number: u32) -> Result<Option<Url>, Failure> {
        let stored = self.memo(url)?;
        let usable = stored.as_ref().filter(|memo| self.is_usable(memo));
        let held = usable.map(|memo| Held {
            validators: &memo.validators,
            url: &memo.url,
        });
        let ask = Ask {
            url,
            held,
            expect: Expect::Json,
            allow_empty: self.source.allow_empty,
        };
        let before = self.wire();
        let now = self.tools.wait.clock().wall();
        let answer = match self.tools.client.ask(&ask, now) {
            Ok(answer) => answer,
            Err(failure) if !first && failure.kind == Kind::Gone && self.resumed => {
                self.forget_position()?;
                return Err(Failure::new(
                    Kind::Failing,
                    format!(
                        "the page where an interrupted pass went on is gone, it starts anew ({})",
                        failure.reason
                    ),
                ));
            }
            Err(failure) => return Err(failure),
        };
        self.tally.pages += 1;
        self.met.insert(page_id(url));
        let (memo, head) = match answer {
            Answer::NotModified(head) => {
                // Only a request with a memo's validators is answered so.
                let Some(mut memo) = stored.clone() else {
                    return Err(
                        Failure::new(Kind::Failing, "304 although nothing was held").at(shown(url))
                    );
                };
                memo.validators = memo.validators.refreshed_by(&head.headers);
                self.vouched(&memo, before);
                (memo, *head)
            }
            Answer::Empty(head) => {
                let read = PageRead {
                    records: 0,
                    bad: 0,
                    blind: false,
                    ordinals: vec![],
                    last_key: None,
                    found: vec![],
                };
                (self.fetched(url, &head, read, before, now)?, *head)
            }
            Answer::Full(full) => {
                let Full {
                    head,
                    body,
                    proven_end,
                } = *full;
                let read = self.read_body(url, body, proven_end)?;
                (self.fetched(url, &head, read, before, now)?, head)
            }
        };
        let fresh = fresh_for(&head.headers, now);
        self.fresh = Some(self.fresh.map_or(fresh, |known| known.min(fresh)));
        if head.moved {
            self.note(format!(
                "{} has moved for good to {}: the config should say so",
                shown(url),
                shown(&head.url)
            ));
        }
        self.close_page(url, &memo, &head, stored.as_ref(), number)?;
        (self.tools.progress)(&self.tally);
        Ok(memo.next)
    }

    fn wire(&self) -> u64 {
        let (up, down) = self.tools.client.traffic();
        up + down
    }

    fn is_usable(&self, memo: &Memo) -> bool {
        // A clock that jumped must not stop us from asking in full now and then, nor make us do so each time.
        let age = self.wall.as_second().saturating_sub(memo.fetched);
        let rechecked = age < i64::try_from(self.source.recheck.as_secs()).unwrap_or(i64::MAX);
        memo.config == self.mode.config
            && !memo.validators.is_empty()
            && rechecked
            && self.tools.client.selects(&memo.variant)
    }

    fn memo(&self, url: &Url) -> Result<Option<Memo>, Failure> {
        let entries = self.entries(&Key::new(Tag::Memo, self.id, &page_id(url)))?;
        let parts: Vec<Vec<u8>> = entries.into_iter().map(|(_, bytes)| bytes).collect();
        Ok(Memo::decode(&parts))
    }

    /// A 304 vouches for the records that the page had.
    fn vouched(&mut self, memo: &Memo, before: u64) {
        self.tally.not_modified += 1;
        self.tally.bad += memo.bad;
        let mut met = 0;
        for ordinal in memo.ordinals.iter() {
            met += u64::from(self.marks.mark(ordinal));
        }
        self.tally.unchanged += met;
        self.tally.bytes_saved += memo.wire.saturating_sub(self.wire() - before);
        self.listed += memo.records;
        self.blind |= memo.blind;
    }

    /// The memo of a page that was read in full.
    fn fetched(
        &mut self,
        url: &Url,
        head: &Head,
        read: PageRead,
        before: u64,
        now: Timestamp,
    ) -> Result<Memo, Failure> {
        self.all_304 = false;
        self.listed += read.records;
        self.blind |= read.blind;
        let wanted = self.source.pages.wanted();
        let found = |pointer: &Pointer| {
            let at = wanted.iter().position(|known| known == pointer)?;
            read.found.get(at).cloned().flatten()
        };
        let facts = PageFacts {
            asked: url,
            headers: &head.headers,
            found: &found,
            records: read.records,
            last_key: read.last_key.as_deref(),
        };
        let next = match self.source.pages.next(&facts) {
            Next::Page(next) => Some(next),
            Next::End(_) => None,
            Next::Broken(fault) => return Err(broken(url, &fault)),
        };
        Ok(Memo {
            config: self.mode.config,
            url: head.url.clone(),
            validators: Validators::of(&head.headers),
            variant: head.variant.clone(),
            next,
            records: read.records,
            bad: read.bad,
            blind: read.blind,
            wire: self.wire() - before,
            fetched: now.as_second(),
            ordinals: Ordinals::collect(read.ordinals),
        })
    }

    /// Reads a body record by record, delivering as it goes.
    fn read_body(
        &mut self,
        url: &Url,
        body: Box<dyn std::io::Read>,
        proven_end: bool,
    ) -> Result<PageRead, Failure> {
        let source = self.source;
        let wanted = source.pages.wanted();
        let places: Vec<&Pointer> = wanted.iter().collect();
        let layout = Layout {
            format: source.format,
            records: &source.records,
            wanted: &places,
            max_record: self.tools.client.max_record(),
        };
        let mut selector = Selector::new(body, layout);
        let mut page = PageRead {
            records: 0,
            bad: 0,
            blind: false,
            ordinals: vec![],
            last_key: None,
            found: vec![],
        };
        let mut pending = Pending::default();
        let mut on_page = Marks::default();
        loop {
            let record = match selector.next() {
                Ok(Some(record)) => record,
                Ok(None) => break,
                Err(error) => return Err(failure_of_select(&error).at(shown(url))),
            };
            page.records += 1;
            let number = record.number;
            match self.record(record.raw, &mut pending, &mut on_page) {
                Ok(ordinal) => page.ordinals.extend(ordinal),
                Err(RecordTrouble::Failed(failure)) => return Err(failure),
                Err(RecordTrouble::Bad(bad)) => {
                    self.bad_record(url, number, record.raw, &bad, &mut page)?
                }
            }
            if let crate::config::Pages::LastKey { key, .. } = &source.pages {
                page.last_key = crate::json::Json::parse(record.raw)
                    .ok()
                    .and_then(|json| key.find(json))
                    .map(|value| value.as_str().to_owned());
            }
            if pending.is_full() {
                self.flush(&mut pending, Batch::new())?;
            }
            if page.records % 256 == 0 {
                self.tools
                    .wait
                    .breathe()
                    .map_err(|error| failure_of_io(&error))?;
                (self.tools.progress)(&self.tally);
            }
        }
        if selector.last_line_unterminated() && !proven_end {
            return Err(Failure::new(
                Kind::Failing,
                "the body may have been cut: its last line has no end",
            )
            .at(shown(url)));
        }
        // The closing bracket of a JSON document proves its end; lines do not.
        if source.format == crate::config::Format::Ndjson && !proven_end {
            page.blind = true;
        }
        page.found = (0..wanted.len())
            .map(|at| selector.found(at).map(|json| json.as_str().to_owned()))
            .collect();
        drop(selector);
        self.flush(&mut pending, Batch::new())?;
        Ok(page)
    }

    /// One record: what is to be delivered goes into `pending`. Its ordinal, unless it is a tombstone.
    fn record(
        &mut self,
        raw: &[u8],
        pending: &mut Pending,
        on_page: &mut Marks,
    ) -> Result<Option<Ordinal>, RecordTrouble> {
        let reading = self.reader.read(raw).map_err(RecordTrouble::Bad)?;
        let known = match pending.known(&reading.key) {
            Some(known) => known,
            None => self
                .tools
                .store
                .find(self.id, &reading.key)
                .map_err(|e| RecordTrouble::Failed(local(&e)))?,
        };
        if reading.deleted {
            if known.is_some() {
                self.tally.deleted += 1;
                pending.delete(reading.key, Gone::Tombstone);
            }
            return Ok(None);
        }
        let fingerprint = crate::store::fingerprint(&self.salt, raw);
        if let Some(known) = known {
            let again = on_page.has(known.ordinal);
            if again {
                self.tally.duplicates += 1;
                // Of two in one answer the later update wins; without update times, the later one in the answer.
                let older = reading.updated.map(Timestamp::as_millisecond) < known.updated_ms;
                if older {
                    return Ok(None);
                }
            }
            let same_text = known.fingerprint == fingerprint && known.digest != Digest::UNKNOWN;
            if same_text || self.reader.digest(&reading) == known.digest {
                if !again {
                    self.met(known.ordinal, on_page);
                    self.tally.unchanged += 1;
                }
                return Ok(Some(known.ordinal));
            }
        }
        let digest = self.reader.digest(&reading);
        let ordinal = match known {
            Some(known) => known.ordinal,
            None => self
                .tools
                .store
                .next_ordinal(self.id)
                .map_err(|e| RecordTrouble::Failed(local(&e)))?,
        };
        if !on_page.has(ordinal) {
            let tally = if known.is_some() {
                &mut self.tally.changed
            } else {
                &mut self.tally.added
            };
            *tally += 1;
        }
        self.met(ordinal, on_page);
        let Reading {
            key, json, updated, ..
        } = reading;
        let now_known = Known {
            digest,
            fingerprint,
            ordinal,
            updated_ms: updated.map(Timestamp::as_millisecond),
        };
        pending.upsert(key, json.as_str(), updated, now_known);
        Ok(Some(ordinal))
    }

    fn met(&mut self, ordinal: Ordinal, on_page: &mut Marks) {
        self.marks.mark(ordinal);
        on_page.mark(ordinal);
    }

    fn bad_record(
        &mut self,
        url: &Url,
        number: u64,
        raw: &[u8],
        bad: &BadRecord,
        page: &mut PageRead,
    ) -> Result<(), Failure> {
        if self.source.on_bad_record == OnBad::Fail {
            return Err(Failure::new(
                Kind::BadData,
                format!("record {number} at \"{}\": {bad} (`on_bad_record = \"skip\"` keeps such aside)", self.source.records),
            )
            .at(shown(url)));
        }
        page.bad += 1;
        self.tally.bad += 1;
        match &bad.key {
            // What was known under its key stays.
            Some(key) => {
                if let Some(known) = self.tools.store.find(self.id, key).map_err(|e| local(&e))? {
                    self.marks.mark(known.ordinal);
                    page.ordinals.push(known.ordinal);
                }
            }
            None => page.blind = true,
        }
        if self.bad.len() < BAD_KEPT {
            let key = bad.key.as_ref().map(|key| key.as_str().to_owned());
            self.bad.push(BadRow {
                page: shown(url),
                number,
                key,
                reason: bad.reason.clone(),
                raw: excerpt(raw),
            });
        }
        Ok(())
    }

    /// What is pending goes to the sink, then to the store.
    fn flush(&mut self, pending: &mut Pending, extra: Batch) -> Result<(), Failure> {
        if self.mode.dry_run {
            pending.clear();
            return Ok(());
        }
        let fetched = self.tools.wait.clock().wall();
        let mut delivery = Delivery {
            store: self.tools.store,
            sink: self.tools.sink,
            wait: self.tools.wait,
        };
        delivery.flush(self.source, self.id, pending, extra, fetched)
    }

    /// A page is had: its memo, the marks and the position are written down, if they say anything new.
    fn close_page(
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
        let keepable = !memo.validators.is_empty() && !no_store && !vary_is_star(&head.headers);
        if keepable && memo.says_more_than(stored) || keepable && self.recheck_is_due(stored) {
            batch.remove_prefix(prefix);
            for (part, bytes) in memo.encode().into_iter().enumerate() {
                batch.put(memo_key(self.id, url, part), &bytes);
            }
        } else if !keepable && stored.is_some() {
            batch.remove_prefix(prefix);
        }
        let delivered = self.tally.delivered() > 0 || !batch.is_empty();
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
            };
            if self.position.is_none() {
                // Marks of an older pass must not be taken for this one's.
                batch.remove_prefix(Key::new(Tag::Bitmap, self.id, b""));
            }
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

    fn forget_position(&mut self) -> Result<(), Failure> {
        if self.position.take().is_none() {
            return Ok(());
        }
        let mut batch = Batch::new();
        batch.remove(Key::new(Tag::Position, self.id, b""));
        batch.remove_prefix(Key::new(Tag::Bitmap, self.id, b""));
        self.commit(batch)
    }

    /// Records that are known and that the listing did not have, and how many are known.
    fn missing(&self) -> Result<(u64, u64), Failure> {
        let known = self.tools.store.count(self.id);
        let settled = self.all_304 && self.mode.settled == Some(self.tools.store.generation());
        if settled || self.blind {
            return Ok((0, known));
        }
        let mut missing = 0;
        for entry in self.tools.store.records(self.id, None) {
            let (_, record) = entry.map_err(|e| local(&e))?;
            missing += u64::from(!self.marks.has(record.ordinal));
        }
        Ok((missing, known))
    }

    /// The listing is complete: deletions, and the end of the pass.
    fn finish(&mut self, missing: u64, known: u64) -> Result<Outcome, Failure> {
        if self.blind {
            self.note("absent records were not deleted: a bad record without a readable key, or a body that may have been cut, was on the way".into());
        }
        let loss = judge(
            self.listed,
            known,
            missing,
            self.source.max_loss,
            self.mode.confirmed,
        );
        if loss == Loss::Gone {
            self.delete_missing()?;
        }
        if !self.mode.dry_run {
            self.forget_position()?;
            self.evict_memos()?;
            self.tools
                .sink
                .note_bad(&self.source.name, &self.bad)
                .map_err(|error| super::deliver::sink_failure(&error))?;
        }
        if loss == Loss::NeedsConfirmation {
            return Ok(Outcome::NeedsConfirmation { missing, known });
        }
        Ok(self.done())
    }

    fn done(&self) -> Outcome {
        if self.tally.delivered() > 0 {
            Outcome::Changed
        } else {
            Outcome::Unchanged
        }
    }

    fn delete_missing(&mut self) -> Result<(), Failure> {
        let mut after: Option<RecordKey> = None;
        loop {
            let mut pending = Pending::default();
            for entry in self.tools.store.records(self.id, after.as_ref()) {
                let (key, record) = entry.map_err(|e| local(&e))?;
                if !self.marks.has(record.ordinal) {
                    self.tally.deleted += 1;
                    pending.delete(key, Gone::Missing);
                    if pending.is_full() {
                        break;
                    }
                }
            }
            let Some(last) = pending.last_key() else {
                return Ok(());
            };
            after = Some(last);
            self.flush(&mut pending, Batch::new())?;
        }
    }

    /// Memos of pages that the complete pass did not meet are of no use: token URLs differ each time.
    fn evict_memos(&mut self) -> Result<(), Failure> {
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

    fn note(&mut self, note: String) {
        if !self.notes.contains(&note) {
            log::warn!("{}: {note}", self.source.name);
            self.notes.push(note);
        }
    }
}

/// Why a record did not go through.
enum RecordTrouble {
    /// It is not as the config says.
    Bad(BadRecord),
    /// It is not the record's fault.
    Failed(Failure),
}

fn memo_key(id: SourceId, url: &Url, part: usize) -> Key {
    let mut rest = page_id(url).to_vec();
    rest.extend_from_slice(&u16::try_from(part).unwrap_or(u16::MAX).to_be_bytes());
    Key::new(Tag::Memo, id, &rest)
}

fn broken(url: &Url, fault: &PageFault) -> Failure {
    Failure::new(Kind::BadData, fault.to_string()).at(shown(url))
}

/// A failure of the store: it is this device's.
pub(super) fn local(error: &StoreError) -> Failure {
    Failure::new(Kind::Local, error.to_string())
}

fn failure_of_select(error: &SelectError) -> Failure {
    match error {
        SelectError::Io(error) => failure_of_io(error),
        SelectError::Truncated { .. } => Failure::new(Kind::Failing, error.to_string()),
        SelectError::Empty | SelectError::Markup => Failure::new(Kind::NotOurs, error.to_string()),
        other => Failure::new(Kind::BadData, other.to_string()),
    }
}

fn excerpt(raw: &[u8]) -> String {
    String::from_utf8_lossy(&raw[..raw.len().min(2000)]).into_owned()
}

/// Used by [`Pending`]: what a change is about.
pub(super) fn upsert(
    key: RecordKey,
    body: &str,
    digest: Digest,
    updated: Option<Timestamp>,
) -> Change {
    Change::Upsert {
        key,
        body: body.into(),
        digest,
        updated,
    }
}
