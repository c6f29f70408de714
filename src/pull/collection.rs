//! One pass over a collection: fetch → select → compare → deliver → commit, page by page.
//!
//! The order is the guarantee. A batch goes to the sinks first, durably, then its digests to the store; what says "this
//! page is had" (memo, marks, position) goes with the page's last batch; what says "this listing is had" (deletions, the
//! end of the pass) comes after the last page.

use std::collections::{BTreeSet, HashSet};
use std::time::Duration;

use url::Url;

use super::deliver::{Counts, local};
use super::graves::Graves;
use super::key::KeyKinds;
use super::marks::Marks;
use super::memo::{Ordinals, page_id};
use super::pages::{PageFault, looks_counted};
use super::plan::{Full, Plan};
use super::position::Position;
use super::progress::Progress;
use super::reading::RecordReader;
use super::report::{Outcome, Report, Tally};
use super::window::Span;
use crate::clock::{Mono, Reading, Timestamp};
use crate::config::Source;
use crate::sink::BadRow;
use crate::sink::sqlite::SqliteSink;
use crate::store::{SourceId, Store};
use crate::upstream::client::{Answer, Ask, Client, shown};
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
    /// How pages are fetched that are read from disk, for a source that says `spool`.
    pub spool: &'a mut dyn Spool,
    /// Told now and then how far the pass is.
    pub progress: &'a mut dyn FnMut(&Tally),
}

/// Downloads pages before they are read.
pub trait Spool {
    /// Asks for a page; its body is on disk when this returns.
    ///
    /// # Errors
    /// As [`Client::ask`].
    fn ask(
        &mut self,
        client: &mut Client,
        store: &mut Store,
        ask: &Ask<'_>,
    ) -> Result<Answer, Failure>;

    /// The page was read, or never can be.
    ///
    /// # Errors
    /// The store's.
    fn over(&mut self, store: &mut Store) -> Result<(), Failure>;
}

/// How far a source's passes have come, as its agent remembers it between two writings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Latest {
    /// How far.
    pub progress: Progress,
    /// When it was written down last.
    pub written: Mono,
    /// When the last complete pass started, by the upstream's clock.
    pub upstream: Option<Timestamp>,
}

/// How a pass is to be made.
#[derive(Debug, Clone)]
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
    /// The passes before this one changed nearly everything: compare some of what changes with what it was.
    pub suspicious: bool,
    /// A full pass is wanted, and why.
    pub full: Option<Full>,
    /// Where the pass before ended, if this process made it.
    pub latest: Option<Latest>,
    /// What our own clock says when the pass starts, and what that is worth.
    pub ours: Reading,
}

/// Makes one pass.
pub fn pass(source: &Source, tools: &mut Tools<'_>, mode: Mode) -> Report {
    let clock = tools.wait.clock().clone();
    let started = clock.mono();
    let before = (tools.client.requests(), tools.client.traffic());
    let mut report = match tools.store.source(&source.name) {
        Err(error) => Report::failed(&source.name, local(&error)),
        Ok(id) => {
            let mut pass = Pass::new(source, id, tools, mode, clock.wall(), started);
            let outcome = pass.run();
            pass.note_moving(&outcome);
            Report {
                pull: pass.word().into(),
                tally: pass.tally,
                resumed: pass.resumed,
                fresh_for: pass.fresh.unwrap_or_default(),
                latest: pass.latest,
                notes: pass.notes,
                ..Report::new(&source.name, outcome)
            }
        }
    };
    let (requests, (up, down)) = (tools.client.requests(), tools.client.traffic());
    report.tally.requests = requests - before.0;
    report.tally.bytes_up = up - before.1.0;
    report.tally.bytes_down = down - before.1.1;
    report.elapsed = clock.mono().since(started);
    report
}

/// Pages that are told by numbers move while they are read: they are walked again until a walk finds nothing new, and so
/// often at most.
const MOST_WALKS: u8 = 3;

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
    /// When it began, in this process.
    pub(super) began: Mono,
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
    /// Where records of a suspicious pass differ from what they were, the first few.
    pub(super) sample: Vec<BTreeSet<String>>,
    /// What it asks for.
    pub(super) plan: Plan,
    /// Which part of that it is at.
    pub(super) span: Span,
    /// When the walk over that part started, by the upstream's clock: known with its first answer.
    pub(super) span_started: Option<Timestamp>,
    /// When the pass started, by the upstream's clock.
    pub(super) upstream_started: Option<Timestamp>,
    /// The cursor that its pages gave so far.
    pub(super) cursor: Option<String>,
    /// How far the passes have come, this one's completed parts included.
    pub(super) progress: Progress,
    /// The watermark before this pass.
    pub(super) was: Option<Timestamp>,
    /// What it found that passes before it should have found.
    pub(super) drift: Counts,
    /// What is remembered when it is over.
    pub(super) latest: Option<Latest>,
    /// It took a wrong clock of ours for the time upstream, and starts once more.
    pub(super) misdated: bool,
    /// How often the part was walked.
    pub(super) walks: u8,
    /// Pages told by numbers, whether we count them or their links do.
    pub(super) counted: bool,
    /// What kinds of keys its records have.
    pub(super) keys: KeyKinds,
    /// Records that it met as tombstones.
    pub(super) graves: Graves,
    /// The time upstream is known from its `Date`, or from a clock that can be believed.
    pub(super) is_dated: bool,
    /// A token had died in the middle, and the pass started once more.
    pub(super) revived: bool,
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
    /// Pages in a row that had the records of the one before.
    pub(super) repeats: u8,
    /// Records on those pages.
    pub(super) repeated: u64,
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
            began: now,
            checkpointed: now,
            marks: Marks::default(),
            tally: Tally::default(),
            delivered: 0,
            bad: Vec::new(),
            bad_vouched: 0,
            notes: Vec::new(),
            sample: Vec::new(),
            plan: Plan::Full {
                why: Full::Snapshot,
                since: None,
            },
            span: Span::default(),
            span_started: None,
            upstream_started: None,
            cursor: None,
            progress: Progress::default(),
            was: None,
            drift: Counts::default(),
            latest: None,
            misdated: false,
            walks: 0,
            counted: source.pages.is_counted(),
            keys: KeyKinds::default(),
            graves: Graves::default(),
            is_dated: false,
            revived: false,
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
            repeats: 0,
            repeated: 0,
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
        self.recall_progress()?;
        if !self.mode.dry_run {
            self.settle()?;
            self.adopt_config()?;
        }
        let mut next = self.begin()?;
        loop {
            let before = (self.tally.pages, self.tally.delivered());
            if let Err(failure) = self.walk(next) {
                next = self.once_more(failure, before.0)?;
                continue;
            }
            if self.mode.probe {
                return Ok(self.done());
            }
            if std::mem::take(&mut self.misdated) {
                next = self.start_anew()?;
                continue;
            }
            if self.moved_while_read(before) {
                next = self.again();
                continue;
            }
            if let Some(following) = self.next_span()? {
                next = following;
                continue;
            }
            if !matches!(self.plan, Plan::Full { .. }) {
                return self.finish_incremental();
            }
            let (missing, known) = self.missing()?;
            let moves = self.source.pages.moves();
            if missing > 0 && self.resumed && self.is_incremental() && moves {
                // While an interrupted pass was not running, what stood on pages to come may have moved to pages behind:
                // only one from the start proves an absence. Where pages go by the records' own keys nothing moves.
                next = self.start_anew()?;
                continue;
            }
            if missing > 0 && moves && self.met.len() > 1 && self.listing == 1 {
                // Records move between pages while we read: one listing alone proves no absence. What either of two
                // has met is there.
                self.listing = 2;
                self.rewind();
                next = self.again();
                continue;
            }
            return self.finish(missing, known);
        }
    }

    /// What to do about a walk that failed: the page to begin at once more, or the failure.
    fn once_more(&mut self, failure: Failure, pages_before: u64) -> Result<Url, Failure> {
        let at_first = self.tally.pages == pages_before;
        if !is_dead(&failure) {
            return Err(failure);
        }
        if self.resumed && at_first {
            log::info!(
                "{}: the page where an interrupted pass went on is gone, it starts anew",
                self.source.name
            );
            return self.start_anew();
        }
        if at_first && matches!(self.plan, Plan::Cursor { .. }) {
            log::warn!(
                "{}: the upstream does not take our cursor any more ({}): everything is compared",
                self.source.name,
                failure.reason
            );
            self.plan = Plan::Full {
                why: Full::DeadCursor,
                since: None,
            };
            return self.start_anew();
        }
        if !at_first && !self.source.pages.is_counted() && !self.revived {
            self.revived = true;
            log::info!(
                "{}: the way to the next page died on the way, the pass starts once more",
                self.source.name
            );
            return self.start_anew();
        }
        Err(failure)
    }

    /// Everything that the plan asks for is walked again from its start, with nothing met yet.
    fn start_anew(&mut self) -> Result<Url, Failure> {
        self.forget_position()?;
        self.marks.clear();
        self.graves.clear();
        (self.resumed, self.blind, self.listed, self.listing) = (false, false, 0, 1);
        self.started = self.wall.as_second();
        self.cursor = None;
        self.rewind();
        Ok(self.again())
    }

    /// To walk the same part again.
    fn again(&mut self) -> Url {
        (self.before, self.repeats) = (None, 0);
        self.asked.clear();
        self.first_page()
    }

    /// Whether what was walked may have moved meanwhile, so that a record slipped through between two pages. A snapshot
    /// finds it with its next pass; a window would not ask for it again.
    fn moved_while_read(&mut self, before: (u64, u64)) -> bool {
        self.walks = self.walks.saturating_add(1);
        let pages = self.tally.pages - before.0;
        let news = self.tally.delivered() > before.1;
        let again = self.is_incremental()
            && self.counted
            && pages > 1
            && news
            && self.walks < MOST_WALKS
            && !self.mode.dry_run;
        if !again {
            self.walks = 0;
        }
        again
    }

    pub(super) fn first_page(&self) -> Url {
        self.source.pages.first(&self.asked_url())
    }

    /// Walks pages until the listing ends.
    fn walk(&mut self, first: Url) -> Result<(), Failure> {
        let mut url = first;
        let mut pages = 0u32;
        loop {
            let listed = self.listed;
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
                Some(next) if !self.mode.probe && !self.misdated => {
                    // Keys without gaps look like offsets, and are none.
                    self.counted |= self.source.pages.moves()
                        && looks_counted(&url, &next, self.listed - listed);
                    url = next;
                }
                _ => return Ok(()),
            }
        }
    }

    pub(super) fn note(&mut self, note: String) {
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }
}

/// What a dead page token, or a dead cursor, is answered with.
fn is_dead(failure: &Failure) -> bool {
    matches!(failure.kind, Kind::Gone | Kind::Refused)
}

pub(super) fn broken(url: &Url, fault: &PageFault) -> Failure {
    Failure::new(Kind::BadData, fault.to_string()).at(shown(url))
}
