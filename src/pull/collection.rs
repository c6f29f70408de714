//! One pass over a collection: fetch → select → compare → deliver → commit, page by page.
//!
//! The order is the guarantee. A batch goes to the sinks first, durably, then its digests to the store; what says "this
//! page is had" (memo, marks, position) goes with the page's last batch; what says "this listing is had" (deletions, the
//! end of the pass) comes after the last page.

use std::collections::HashSet;
use std::time::Duration;

use url::Url;

use super::absence::{Loss, judge};
use super::deliver::{Pending, local, sink_failure};
use super::marks::Marks;
use super::memo::{Ordinals, page_id};
use super::pages::PageFault;
use super::position::Position;
use super::reading::RecordReader;
use super::report::{Outcome, Report, Tally};
use crate::clock::{Mono, Timestamp};
use crate::config::Source;
use crate::record::{Gone, RecordKey};
use crate::sink::BadRow;
use crate::sink::sqlite::SqliteSink;
use crate::store::{SourceId, Store};
use crate::upstream::client::{Client, shown};
use crate::upstream::outcome::{Failure, Kind};
use crate::wait::Wait;

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
    /// Identifies whose view of the data it is: rows of another scope go with the first complete listing of this one.
    pub scope: [u8; 8],
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

/// A pass under way.
pub(super) struct Pass<'a, 't> {
    pub(super) source: &'a Source,
    pub(super) id: SourceId,
    pub(super) tools: &'a mut Tools<'t>,
    pub(super) mode: Mode,
    pub(super) reader: RecordReader<'a>,
    /// The store's salt for fingerprints.
    pub(super) salt: [u8; 16],
    /// Wall time at its start.
    pub(super) wall: Timestamp,
    /// Wall time at its start, in an earlier process if it was resumed; seconds.
    pub(super) started: i64,
    /// When its position was written last.
    pub(super) checkpointed: Mono,
    /// Records met.
    pub(super) marks: Marks,
    pub(super) tally: Tally,
    /// What was delivered when the last page was closed.
    pub(super) delivered: u64,
    /// Bad records, the first few.
    pub(super) bad: Vec<BadRow>,
    /// Bad records on pages that a 304 vouched for.
    pub(super) bad_vouched: u64,
    notes: Vec<String>,
    /// The page that is being read, while a memo of it is stored: how it was before.
    pub(super) reading: Option<[u8; 8]>,
    /// Pages met, for evicting memos.
    pub(super) met: HashSet<[u8; 8]>,
    /// Pages asked for in this listing, to notice a circle.
    pub(super) asked: HashSet<[u8; 8]>,
    /// What is stored of its position.
    pub(super) position: Option<Position>,
    /// An earlier process began it.
    pub(super) resumed: bool,
    /// Which listing it is: a second one confirms what a first one missed.
    pub(super) listing: u8,
    /// Records that the listing had, bad ones and tombstones included.
    pub(super) listed: u64,
    /// Something on the way makes an absence prove nothing.
    pub(super) blind: bool,
    /// Records on the largest page so far.
    pub(super) widest: u64,
    /// Records of the page before.
    pub(super) before: Option<Ordinals>,
    /// Nothing but 304s so far.
    pub(super) all_304: bool,
    pub(super) fresh: Option<Duration>,
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
            delivered: 0,
            bad: Vec::new(),
            bad_vouched: 0,
            notes: Vec::new(),
            reading: None,
            met: HashSet::new(),
            asked: HashSet::new(),
            position: None,
            resumed: false,
            listing: 1,
            listed: 0,
            blind: false,
            widest: 0,
            before: None,
            all_304: true,
            fresh: None,
        }
    }

    fn run(&mut self) -> Outcome {
        match self.listings() {
            Ok(outcome) => outcome,
            Err(failure) => {
                // Only what passes by itself is worth going on behind: else the pages before would not be looked at again.
                let passes = matches!(
                    failure.kind,
                    Kind::Failing | Kind::Throttled | Kind::Stopped | Kind::Clock | Kind::Local
                );
                let stuck = self.resumed && self.tally.pages == 0 && failure.kind == Kind::Failing;
                if (!passes || stuck) && !self.mode.dry_run {
                    if let Err(error) = self.forget_position() {
                        return Outcome::Failed(error);
                    }
                }
                Outcome::Failed(failure)
            }
        }
    }

    fn listings(&mut self) -> Result<Outcome, Failure> {
        if !self.mode.dry_run {
            self.adopt_config()?;
        }
        let mut next = self.begin()?;
        loop {
            match self.walk(next) {
                Ok(()) => {}
                Err(failure) if self.resumed && self.tally.pages == 0 && is_dead(&failure) => {
                    log::info!(
                        "{}: the page where an interrupted pass went on is gone, it starts anew",
                        self.source.name
                    );
                    self.start_anew()?;
                    next = self.first_page();
                    continue;
                }
                Err(failure) => return Err(failure),
            }
            if self.mode.probe {
                return Ok(self.done());
            }
            let (missing, known) = self.missing()?;
            let moves = self.source.pages.moves() && self.met.len() > 1;
            if missing > 0 && moves && self.listing == 1 {
                // Records move between pages while we read: one listing alone proves no absence. What either of two
                // has met is there.
                self.listing = 2;
                self.before = None;
                self.asked.clear();
                next = self.first_page();
                continue;
            }
            return self.finish(missing, known);
        }
    }

    /// The place where a resumed pass went on is no more: everything is walked again.
    fn start_anew(&mut self) -> Result<(), Failure> {
        self.forget_position()?;
        self.marks.clear();
        self.asked.clear();
        self.before = None;
        (self.resumed, self.blind, self.listed, self.listing) = (false, false, 0, 1);
        self.started = self.wall.as_second();
        Ok(())
    }

    pub(super) fn first_page(&self) -> Url {
        self.source.pages.first(&self.source.url)
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
            match self.page(&url, pages)? {
                Some(next) if !self.mode.probe => url = next,
                _ => return Ok(()),
            }
        }
    }

    /// Records that are known and that the listing did not have, and how many are known.
    fn missing(&self) -> Result<(u64, u64), Failure> {
        let known = self.tools.store.count(self.id);
        let settled = self.all_304 && self.mode.settled == Some(self.tools.store.generation());
        // While an interrupted pass was not running, what stood on pages to come may have moved to pages behind: only the
        // pass from the start that follows proves an absence.
        if settled || self.blind || self.resumed {
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
        if self.tally.duplicates > 0 {
            self.note(format!(
                "{} records came more than once in one answer under the same key: is `key` unique there?",
                self.tally.duplicates
            ));
        }
        let loss = judge(
            self.listed,
            known,
            missing,
            self.source.max_loss,
            self.mode.confirmed || self.is_another_scope()?,
        );
        if loss == Loss::Gone {
            self.delete_missing()?;
        }
        if !self.mode.dry_run {
            self.forget_position()?;
            self.evict_memos()?;
            self.note_whole()?;
            if loss != Loss::NeedsConfirmation && !self.blind {
                self.note_scope()?;
            }
            // What a 304 vouched for was noted when it was read.
            if self.bad_vouched == 0 && !self.resumed {
                let noted = self.tools.sink.note_bad(&self.source.name, &self.bad);
                noted.map_err(|error| sink_failure(&error))?;
            }
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
                    pending.counts.deleted += 1;
                    pending.touch(record.ordinal);
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
            self.flush(&mut pending)?;
        }
    }

    pub(super) fn note(&mut self, note: String) {
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }
}

/// What a dead page token is answered with.
fn is_dead(failure: &Failure) -> bool {
    matches!(failure.kind, Kind::Gone | Kind::Refused)
}

pub(super) fn broken(url: &Url, fault: &PageFault) -> Failure {
    Failure::new(Kind::BadData, fault.to_string()).at(shown(url))
}
