//! One turn of one document: ask → receive → verify → publish.
//!
//! The order is the guarantee. A new version is complete, synced and proven before it takes the old one's place, by one rename;
//! what says which version is published, its validators with it, is written after that.

use std::path::PathBuf;
use std::time::Duration;

use super::checksum::Checksum;
use super::decide::{self, Question, Standing, Why};
use super::kept::{Kept, Note, kept_key};
use super::part::{Part, discard, of_store};
use super::place::Place;
use super::receive::{Content, Taken};
use crate::clock::Timestamp;
use crate::config::{Document, Proof};
use crate::pull::report::{Outcome, Report, Tally};
use crate::store::{Batch, Store};
use crate::upstream::client::{Answer, Ask, Client, Head, Held, RestAnswer, shown};
use crate::upstream::conditional::{CacheControl, Validators, Variant, fresh_for, vary_is_star};
use crate::upstream::outcome::{Expect, Failure, Kind};
use crate::upstream::range::{Rest, other_version};
use crate::wait::Wait;

/// What a turn works with.
pub struct Tools<'a> {
    /// The upstream.
    pub client: &'a mut Client,
    /// What is known.
    pub store: &'a mut Store,
    /// Where the files are.
    pub place: &'a Place,
    /// Bytes that all documents may take.
    pub quota: u64,
    /// The one wait, and the clock.
    pub wait: &'a Wait,
    /// Told now and then that bytes came.
    pub progress: &'a mut dyn FnMut(),
}

/// How a turn is to be made.
#[derive(Debug, Clone, Copy)]
pub struct Mode {
    /// Which URL and scope it is of.
    pub config: [u8; 8],
    /// Look whether there is a new version, and fetch and change nothing.
    pub look_only: bool,
}

/// A version took another one's place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Publication {
    /// The document's name.
    pub name: String,
    /// Where it is, absolute.
    pub path: PathBuf,
    /// Over what was there; `None`: nothing was.
    pub old: Option<Checksum>,
    /// Over what is there.
    pub new: Checksum,
}

/// A turn, over.
#[derive(Debug)]
pub struct Done {
    /// How it ended, in the words of a pass.
    pub report: Report,
    /// What is published now, as far as it is known.
    pub kept: Option<Kept>,
    /// What took another's place. There may be one in a turn that failed afterwards.
    pub publication: Option<Publication>,
}

/// A server may send less of the rest than was asked for. So often in one turn that is gone on with.
pub(super) const MOST_ROUNDS: usize = 16;

/// Makes one turn.
pub fn fetch(document: &Document, tools: &mut Tools<'_>, mode: Mode) -> Done {
    let clock = tools.wait.clock().clone();
    let started = clock.mono();
    let before = (tools.client.requests(), tools.client.traffic());
    let mut fetch = Fetch::begin(document, tools, mode);
    let outcome = fetch.run().unwrap_or_else(Outcome::Failed);
    let Fetch {
        tally,
        notes,
        fresh,
        kept,
        publication,
        ..
    } = fetch;
    let mut report = Report {
        pull: "document".into(),
        tally,
        fresh_for: fresh,
        notes,
        ..Report::new(&document.name, outcome)
    };
    let (requests, (up, down)) = (tools.client.requests(), tools.client.traffic());
    report.tally.requests = requests - before.0;
    report.tally.bytes_up = up - before.1.0;
    report.tally.bytes_down = down - before.1.1;
    report.elapsed = clock.mono().since(started);
    Done {
        report,
        kept,
        publication,
    }
}

/// A turn under way.
pub(super) struct Fetch<'a, 't> {
    pub(super) document: &'a Document,
    pub(super) tools: &'a mut Tools<'t>,
    pub(super) mode: Mode,
    pub(super) wall: Timestamp,
    pub(super) kept: Option<Kept>,
    pub(super) publication: Option<Publication>,
    pub(super) tally: Tally,
    notes: Vec<String>,
    fresh: Duration,
}

/// What came of one question.
enum Round {
    Over(Outcome),
    Ask(Question),
}

/// What came of asking for a rest.
enum Told {
    /// It was one, or none is there.
    Over(Round),
    /// An answer that is no part.
    Else(Answer),
}

/// Where a version came from, and what vouches for it.
pub(super) struct Origin {
    pub(super) url: url::Url,
    pub(super) validators: Validators,
    pub(super) variant: Variant,
    pub(super) why: Option<Why>,
}

impl<'a, 't> Fetch<'a, 't> {
    pub(super) fn begin(document: &'a Document, tools: &'a mut Tools<'t>, mode: Mode) -> Self {
        Self {
            document,
            wall: tools.wait.clock().wall(),
            tools,
            mode,
            kept: None,
            publication: None,
            tally: Tally::default(),
            notes: Vec::new(),
            fresh: Duration::ZERO,
        }
    }
}

impl Fetch<'_, '_> {
    fn run(&mut self) -> Result<Outcome, Failure> {
        self.recall()?;
        let (name, config) = (&self.document.name, self.mode.config);
        let mut part = None;
        if !self.mode.look_only {
            self.adopt()?;
            let (place, wait) = (self.tools.place, self.tools.wait);
            part = Part::recall(place, name, config, self.tools.store, wait)?;
        }
        let is_untouched = self.is_untouched()?;
        let kept = self.kept.as_ref();
        let mut question = decide::question(&Standing {
            kept,
            is_untouched,
            selects: kept.is_some_and(|kept| self.tools.client.selects(&kept.variant)),
            part: part.as_ref().map(Part::held),
            config,
            recheck: self.document.recheck,
            now: self.wall.as_second(),
        });
        for _ in 0..MOST_ROUNDS {
            match self.round(question, &mut part)? {
                Round::Over(outcome) => return Ok(outcome),
                Round::Ask(next) => question = next,
            }
        }
        let reason = "it comes in ever smaller parts; what came is kept";
        Err(Failure::new(Kind::Failing, reason).at(shown(&self.document.url)))
    }

    /// Asks once, and does what the answer says.
    fn round(&mut self, question: Question, part: &mut Option<Part>) -> Result<Round, Failure> {
        let url = self.document.url.clone();
        let note = part.as_ref().and_then(|part| part.note()).cloned();
        let kept = self.kept.clone();
        let held = match question {
            Question::IfChanged => kept.as_ref().map(|kept| Held {
                validators: &kept.validators,
                url: &kept.url,
            }),
            Question::IfPartIsCurrent => note.as_ref().map(|note| Held {
                validators: &note.validators,
                url: &note.url,
            }),
            Question::Rest => None,
            Question::Whole(why) => {
                log::debug!("{}: asked for in full: {why}", self.document.name);
                None
            }
        };
        let ask = Ask {
            url: &url,
            held,
            expect: Expect::File,
            allow_empty: self.document.allow_empty,
            search: None,
        };
        let answer = match (question, &note) {
            (Question::Rest, Some(note)) => match self.ask_rest(&ask, note, part)? {
                Told::Over(round) => return Ok(round),
                Told::Else(answer) => answer,
            },
            _ => self.tools.client.ask(&ask, self.wall)?,
        };
        self.answered(question, answer, note.as_ref(), part)
            .map(Round::Over)
    }

    /// Asks for the rest of a part, and takes it.
    fn ask_rest(
        &mut self,
        ask: &Ask<'_>,
        note: &Note,
        part: &mut Option<Part>,
    ) -> Result<Told, Failure> {
        let Some(had) = part.take() else {
            return Ok(Told::Over(Round::Ask(Question::Whole(Why::Restart))));
        };
        let held = had.held();
        let rest = Rest {
            from: held.bytes,
            validator: &note.strong,
            url: &note.url,
            total: note.total,
            coded: note.coded,
        };
        let told = match self.tools.client.ask_rest(ask, &rest, self.wall)? {
            RestAnswer::Slice(full, slice) => {
                let head = self.seen(&full.head);
                match self.take_slice(had, *full, slice)? {
                    Taken::Some(more) => {
                        *part = Some(*more);
                        Round::Ask(Question::Rest)
                    }
                    Taken::Whole(mut content) => {
                        self.check_whole(&mut content, &head)?;
                        Round::Over(self.publish(content, Origin::of_note(note))?)
                    }
                }
            }
            RestAnswer::Unsatisfied(head, total) => {
                *part = Some(had);
                let other = other_version(&head.headers, &rest);
                Round::Ask(decide::after_unsatisfied(held, total, other))
            }
            RestAnswer::Whole(answer) => {
                *part = Some(had);
                return Ok(Told::Else(answer));
            }
        };
        Ok(Told::Over(told))
    }

    fn answered(
        &mut self,
        question: Question,
        answer: Answer,
        note: Option<&Note>,
        part: &mut Option<Part>,
    ) -> Result<Outcome, Failure> {
        let head = self.seen(answer.head());
        let why = match question {
            Question::Whole(why) => Some(why),
            _ => None,
        };
        let (mut content, proven_end) = match answer {
            Answer::NotModified(_) => {
                self.tally.not_modified += 1;
                return match (question, note, part.take()) {
                    (Question::IfPartIsCurrent, Some(note), Some(part)) => {
                        self.publish(Content::Part(Box::new(part)), Origin::of_note(note))
                    }
                    _ => self.vouched(&head),
                };
            }
            Answer::Empty(_) | Answer::Full(_) if self.mode.look_only => {
                self.tally.changed += 1;
                return Ok(Outcome::Changed);
            }
            Answer::Empty(_) => (Content::Memory(Vec::new()), true),
            Answer::Full(full) => {
                let proven_end = full.proven_end;
                (self.take_whole(*full, part)?, proven_end)
            }
        };
        if matches!(&content, Content::Memory(bytes) if bytes.is_empty())
            && !self.document.allow_empty
        {
            let reason = "without a body: that is not an empty file (`allow_empty = true` if it is meant so)";
            return Err(Failure::new(Kind::NotOurs, reason).at(shown(&head.url)));
        }
        self.check_whole(&mut content, &head)?;
        let mut validators = Validators::reliable(&head.headers);
        if !proven_end {
            // It ended with its connection, which a cut does too: what vouched for it would make a cut one last.
            validators = Validators::default();
            if self.document.proof == Proof::None {
                self.note_once("its answers have neither a length nor chunks, so that nothing tells whether they are whole (`sha256_url` would)");
            }
        }
        if self.keeps_nothing(&head) {
            validators = Validators::default();
        }
        let origin = Origin {
            url: head.url.clone(),
            validators,
            variant: head.variant.clone(),
            why,
        };
        self.publish(content, origin)
    }

    /// What every good answer says, whatever comes of it.
    fn seen(&mut self, head: &Head) -> Head {
        self.fresh = fresh_for(&head.headers, self.wall);
        if head.moved {
            self.note_once(&format!(
                "{} has moved for good to {}: the config should say so",
                shown(&self.document.url),
                shown(&head.url)
            ));
        }
        head.clone()
    }

    pub(super) fn note_once(&mut self, note: &str) {
        if !self.notes.iter().any(|known| known == note) {
            self.notes.push(note.to_owned());
        }
    }

    /// Whether neither validators nor a part of this answer may be kept.
    pub(super) fn keeps_nothing(&self, head: &Head) -> bool {
        let no_store = CacheControl::of(&head.headers).no_store && !self.document.ignore_no_store;
        no_store || vary_is_star(&head.headers)
    }

    /// A 304 vouches for what is published.
    fn vouched(&mut self, head: &Head) -> Result<Outcome, Failure> {
        let Some(kept) = self.kept.clone() else {
            let reason = "304 although nothing was held";
            return Err(Failure::new(Kind::Failing, reason).at(shown(&self.document.url)));
        };
        self.tally.unchanged += 1;
        self.tally.bytes_saved += kept.mark.size;
        let mut newer = kept.clone();
        newer.validators = kept.validators.refreshed_by(&head.headers);
        if newer != kept && !self.mode.look_only {
            self.keep(newer)?;
        }
        Ok(Outcome::Unchanged)
    }

    fn recall(&mut self) -> Result<(), Failure> {
        let stored = self.stored(&kept_key(&self.document.name))?;
        self.kept = stored.as_deref().and_then(Kept::decode);
        Ok(())
    }

    pub(super) fn keep(&mut self, kept: Kept) -> Result<(), Failure> {
        let mut batch = Batch::new();
        batch.put(kept_key(&self.document.name), &kept.encode());
        self.kept = Some(kept);
        self.commit(batch)
    }

    pub(super) fn drop_part(&mut self) -> Result<(), Failure> {
        discard(self.tools.place, &self.document.name, self.tools.store)
    }

    pub(super) fn stored(&self, key: &crate::store::Key) -> Result<Option<Vec<u8>>, Failure> {
        self.tools.store.get(key).map_err(|error| of_store(&error))
    }

    pub(super) fn commit(&mut self, batch: Batch) -> Result<(), Failure> {
        let committed = self.tools.store.commit(batch);
        committed.map(drop).map_err(|error| of_store(&error))
    }
}

impl Origin {
    fn of_note(note: &Note) -> Self {
        Self {
            url: note.url.clone(),
            validators: note.validators.clone(),
            variant: note.variant.clone(),
            why: None,
        }
    }
}
