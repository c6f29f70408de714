//! One turn of one document: ask → receive → verify → publish.
//!
//! The order is the guarantee. A new version is complete, synced and proven before it takes the old one's place, by one rename;
//! what says which version is published, its validators with it, is written after that.

use std::io::Read as _;
use std::path::PathBuf;
use std::time::Duration;

use super::checksum::{Checksum, MAX_SUMS, stated};
use super::decide::{self, Held as PartHeld, Question, Standing, Why};
use super::kept::{Kept, Note, doubt_key, kept_key, note_key};
use super::part::{Part, breathe, discard, of_store};
use super::place::{Mark, Place};
use super::receive::{Content, Taken};
use crate::clock::Timestamp;
use crate::config::{Document, Proof};
use crate::pull::report::{Outcome, Report, Tally};
use crate::store::{Batch, Store};
use crate::upstream::client::{Answer, Ask, Client, Head, Held, RestAnswer, failure_of_io, shown};
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
    kept: Option<Kept>,
    publication: Option<Publication>,
    tally: Tally,
    notes: Vec<String>,
    fresh: Duration,
}

/// What came of one question.
enum Round {
    Over(Outcome),
    Ask(Question),
}

/// Where a version came from, and what vouches for it.
struct Origin {
    url: url::Url,
    validators: Validators,
    variant: Variant,
    why: Option<Why>,
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
            part: part.as_ref().map(|part| PartHeld {
                bytes: part.bytes(),
                total: part.note().and_then(|note| note.total),
                is_whole: part.note().is_some_and(|note| note.whole.is_some()),
            }),
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
        let answer = match (question, &note, part.as_ref().map(Part::bytes)) {
            (Question::Rest, Some(note), Some(from)) => {
                let rest = Rest {
                    from,
                    validator: &note.strong,
                    url: &note.url,
                    total: note.total,
                    coded: note.coded,
                };
                match self.tools.client.ask_rest(&ask, &rest, self.wall)? {
                    RestAnswer::Whole(answer) => answer,
                    RestAnswer::Unsatisfied(head, total) => {
                        let other = other_version(&head.headers, &rest);
                        let next = decide::after_unsatisfied(
                            PartHeld {
                                bytes: from,
                                total: note.total,
                                is_whole: false,
                            },
                            total,
                            other,
                        );
                        return Ok(Round::Ask(next));
                    }
                    RestAnswer::Slice(full, slice) => {
                        let head = self.seen(&full.head);
                        let Some(held) = part.take() else {
                            return Ok(Round::Ask(Question::Whole(Why::Restart)));
                        };
                        return match self.take_slice(held, *full, slice)? {
                            Taken::Some(more) => {
                                *part = Some(*more);
                                Ok(Round::Ask(Question::Rest))
                            }
                            Taken::Whole(mut content) => {
                                self.check_whole(&mut content, &head)?;
                                self.publish(content, Origin::of_note(note))
                                    .map(Round::Over)
                            }
                        };
                    }
                }
            }
            _ => self.tools.client.ask(&ask, self.wall)?,
        };
        self.answered(question, answer, note.as_ref(), part)
            .map(Round::Over)
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

    fn note_once(&mut self, note: &str) {
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

    /// Proves a new version, and puts it in the old one's place.
    fn publish(&mut self, mut content: Content, origin: Origin) -> Result<Outcome, Failure> {
        let digest = match &mut content {
            Content::Memory(bytes) => Checksum::of(bytes),
            Content::Part(part) => {
                // From here on it need not be fetched again, whatever happens.
                part.finish(self.tools.store)?;
                part.digest()
            }
        };
        self.prove(&content, digest)?;
        let was = self.kept.clone();
        let same = was.as_ref().is_some_and(|kept| kept.digest == digest);
        let now = self.wall.as_second();
        if same && self.is_untouched()? {
            if let Some(mut kept) = was {
                let stored = kept.clone();
                kept.config = self.mode.config;
                kept.url = origin.url;
                kept.validators = origin.validators;
                kept.variant = origin.variant;
                kept.fetched = stored.fetched;
                // When it was fetched alone is not news: an upstream that never answers 304 must not wear the card.
                if kept.says_more_than(&stored) || origin.why == Some(Why::Recheck) {
                    kept.fetched = now;
                    self.keep(kept)?;
                }
            }
            if matches!(content, Content::Part(_)) {
                self.drop_part()?;
            }
            self.tally.unchanged += 1;
            return Ok(Outcome::Unchanged);
        }
        self.tools.place.prepare(&self.document.file)?;
        if let Content::Memory(bytes) = &content {
            discard(self.tools.place, &self.document.name, self.tools.store)?;
            let mut part = Part::begin(self.tools.place, &self.document.name, None)?;
            part.append(bytes)
                .and_then(|()| part.finish(self.tools.store))?;
        }
        let mark = self
            .tools
            .place
            .publish(&self.document.name, &self.document.file)?;
        let kept = Kept {
            config: self.mode.config,
            file: self.document.file.to_string_lossy().into_owned(),
            url: origin.url,
            validators: origin.validators,
            variant: origin.variant,
            digest,
            mark,
            fetched: now,
            changed: match &was {
                Some(was) if same => was.changed,
                _ => now,
            },
            checked: now,
        };
        self.published(kept, was.as_ref())?;
        Ok(Outcome::Changed)
    }

    /// A file has taken its place: that is written down, with what vouches for it, and what led there is forgotten.
    fn published(&mut self, kept: Kept, was: Option<&Kept>) -> Result<(), Failure> {
        let (old, new) = (was.map(|was| was.digest), kept.digest);
        match old {
            None => self.tally.added += 1,
            Some(_) => self.tally.changed += 1,
        }
        if old == Some(new) {
            let there = was.is_some_and(|was| was.file == kept.file);
            if there {
                self.note_once("the file had been changed or removed by somebody else: it is as it was published again");
            }
        } else {
            self.publication = Some(Publication {
                name: self.document.name.clone(),
                path: self.tools.place.file(&self.document.file),
                old,
                new,
            });
        }
        let mut batch = Batch::new();
        batch.put(kept_key(&self.document.name), &kept.encode());
        for key in [
            note_key(&self.document.name),
            doubt_key(&self.document.name),
        ] {
            if self.stored(&key)?.is_some() {
                batch.remove(key);
            }
        }
        self.kept = Some(kept);
        self.commit(batch)
    }

    /// Whether a version has the checksum that the config wants.
    fn prove(&mut self, content: &Content, digest: Checksum) -> Result<(), Failure> {
        let (expected, by) = match self.document.proof.clone() {
            Proof::None => return Ok(()),
            Proof::Sha256(expected) => (Checksum(expected), "`sha256`".to_owned()),
            Proof::Sha256Url(url) => (self.stated_sum(&url)?, shown(&url)),
        };
        if expected == digest {
            return Ok(());
        }
        // Once it may have been damaged on its way. The same digest twice is what upstream has: that is not fetched a third time,
        // only asked for, until it changes or the checksum does.
        let key = doubt_key(&self.document.name);
        let known = self.stored(&key)?;
        if known.as_deref() != Some(&digest.0[..]) {
            let mut batch = Batch::new();
            batch.put(key, &digest.0);
            self.commit(batch)?;
            if matches!(content, Content::Part(_)) {
                self.drop_part()?;
            }
        }
        let reason = format!(
            "its SHA-256 is {digest}, and {by} says {expected}: not published, the file is as it was"
        );
        Err(Failure::new(Kind::BadData, reason).at(shown(&self.document.url)))
    }

    /// The checksum that is written at `url`.
    fn stated_sum(&mut self, url: &url::Url) -> Result<Checksum, Failure> {
        let ask = Ask {
            url,
            held: None,
            expect: Expect::File,
            allow_empty: false,
            search: None,
        };
        let mut text = Vec::new();
        if let Answer::Full(full) = self.tools.client.ask(&ask, self.wall)? {
            full.body
                .take(MAX_SUMS)
                .read_to_end(&mut text)
                .map_err(|error| failure_of_io(&error).at(shown(url)))?;
        }
        let name = decide::last_segment(&self.document.url);
        stated(&String::from_utf8_lossy(&text), &name)
            .map_err(|why| Failure::new(Kind::BadData, why.to_string()).at(shown(url)))
    }

    fn recall(&mut self) -> Result<(), Failure> {
        let stored = self.stored(&kept_key(&self.document.name))?;
        self.kept = stored.as_deref().and_then(Kept::decode);
        Ok(())
    }

    /// A part that had taken its place when the power was cut, and was not written down: a rename keeps the inode.
    fn adopt(&mut self) -> Result<(), Failure> {
        let (place, name) = (self.tools.place, &self.document.name);
        let stored = self.stored(&note_key(name))?;
        let Some(note) = stored.as_deref().and_then(Note::decode) else {
            return Ok(());
        };
        let mark = Mark::of(&place.file(&self.document.file));
        let Some(mark) =
            mark.filter(|mark| Some(mark.inode) == note.whole && mark.size == note.synced)
        else {
            return Ok(());
        };
        if place.part(name).exists() {
            return Ok(());
        }
        log::info!("{name}: was published when the last run was cut");
        let (was, now) = (self.kept.clone(), self.wall.as_second());
        let kept = Kept {
            config: note.config,
            file: self.document.file.to_string_lossy().into_owned(),
            url: note.url,
            validators: note.validators,
            variant: note.variant,
            digest: note.prefix,
            mark,
            fetched: now,
            changed: now,
            checked: now,
        };
        self.published(kept, was.as_ref())
    }

    /// Whether the published file is as it was published. One that was copied back, or touched, and has the same bytes, is.
    fn is_untouched(&mut self) -> Result<bool, Failure> {
        let Some(kept) = self.kept.clone() else {
            return Ok(false);
        };
        if kept.file != self.document.file.to_string_lossy() {
            return Ok(false);
        }
        let path = self.tools.place.file(&self.document.file);
        match Mark::of(&path) {
            Some(mark) if mark == kept.mark => Ok(true),
            Some(mark) if mark.size == kept.mark.size && !self.mode.look_only => {
                if digest_of(&path, self.tools.wait)? != Some(kept.digest) {
                    return Ok(false);
                }
                self.keep(Kept { mark, ..kept })?;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    fn keep(&mut self, kept: Kept) -> Result<(), Failure> {
        let mut batch = Batch::new();
        batch.put(kept_key(&self.document.name), &kept.encode());
        self.kept = Some(kept);
        self.commit(batch)
    }

    fn drop_part(&mut self) -> Result<(), Failure> {
        discard(self.tools.place, &self.document.name, self.tools.store)
    }

    fn stored(&self, key: &crate::store::Key) -> Result<Option<Vec<u8>>, Failure> {
        self.tools.store.get(key).map_err(|error| of_store(&error))
    }

    fn commit(&mut self, batch: Batch) -> Result<(), Failure> {
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

/// Over the bytes of a file; `None`: it cannot be read.
fn digest_of(path: &std::path::Path, wait: &Wait) -> Result<Option<Checksum>, Failure> {
    use sha2::{Digest as _, Sha256};

    let Ok(mut file) = std::fs::File::open(path) else {
        return Ok(None);
    };
    let (mut hasher, mut buffer) = (Sha256::new(), vec![0; super::part::BUFFER]);
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok(Some(Checksum::so_far(&hasher))),
            Ok(read) => hasher.update(&buffer[..read]),
            Err(_) => return Ok(None),
        }
        breathe(wait)?;
    }
}
