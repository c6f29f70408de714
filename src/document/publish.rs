//! From a body that has come to its end to a file that is published: proven, renamed, and only then written down.

use std::io::Read as _;
use std::path::Path;

use sha2::{Digest as _, Sha256};
use url::Url;

use super::checksum::{Checksum, MAX_SUMS, stated};
use super::decide::{self, Why};
use super::fetch::{Fetch, Origin, Publication};
use super::kept::{Kept, Note, doubt_key, kept_key, note_key};
use super::part::{BUFFER, Part, breathe, discard};
use super::place::Mark;
use super::receive::Content;
use crate::config::Proof;
use crate::pull::report::Outcome;
use crate::store::Batch;
use crate::upstream::client::{Answer, Ask, failure_of_io, shown};
use crate::upstream::outcome::{Expect, Failure, Kind};
use crate::wait::Wait;

impl Fetch<'_, '_> {
    /// Proves a new version, and puts it in the old one's place.
    pub(super) fn publish(
        &mut self,
        mut content: Content,
        origin: Origin,
    ) -> Result<Outcome, Failure> {
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
            return self.same_again(&content, origin);
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

    /// What came is what is published: only what vouches for it may be news.
    fn same_again(&mut self, content: &Content, origin: Origin) -> Result<Outcome, Failure> {
        if let Some(stored) = self.kept.clone() {
            let kept = Kept {
                config: self.mode.config,
                url: origin.url,
                validators: origin.validators,
                variant: origin.variant,
                ..stored.clone()
            };
            // When it was fetched alone is not news: an upstream that never answers 304 must not wear the card.
            if kept.says_more_than(&stored) || origin.why == Some(Why::Recheck) {
                let fetched = self.wall.as_second();
                self.keep(Kept { fetched, ..kept })?;
            }
        }
        if matches!(content, Content::Part(_)) {
            self.drop_part()?;
        }
        self.tally.unchanged += 1;
        Ok(Outcome::Unchanged)
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
    fn stated_sum(&mut self, url: &Url) -> Result<Checksum, Failure> {
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

    /// A part that had taken its place when the power was cut, and was not written down: a rename keeps the inode.
    pub(super) fn adopt(&mut self) -> Result<(), Failure> {
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
    pub(super) fn is_untouched(&mut self) -> Result<bool, Failure> {
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
}

/// Over the bytes of a file; `None`: it cannot be read.
fn digest_of(path: &Path, wait: &Wait) -> Result<Option<Checksum>, Failure> {
    let Ok(mut file) = std::fs::File::open(path) else {
        return Ok(None);
    };
    let (mut hasher, mut buffer) = (Sha256::new(), vec![0; BUFFER]);
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok(Some(Checksum::so_far(&hasher))),
            Ok(read) => hasher.update(&buffer[..read]),
            Err(_) => return Ok(None),
        }
        breathe(wait)?;
    }
}
