//! Bodies: from the upstream into memory or into a part, within what the document, the quota and the disk allow.

use std::io::Read;

use super::checksum::{Algorithm, Hasher, Stated};
use super::decide::{begins_as_html, is_coded, unwelcome};
use super::fetch::Fetch;
use super::kept::Note;
use super::part::{BUFFER, Part, breathe, discard, remove_file};
use crate::config::value::print_size;
use crate::upstream::client::{Full, Head, failure_of_io, shown};
use crate::upstream::conditional::Validators;
use crate::upstream::outcome::{Failure, Kind};
use crate::upstream::range::{self, Slice};

/// A body that has come to its end.
pub(super) enum Content {
    /// Small enough to be looked at before anything is written.
    Memory(Vec<u8>),
    /// In its part.
    Part(Box<Part>),
}

/// What is held when a body was taken.
pub(super) enum Taken {
    /// All of it.
    Whole(Content),
    /// Not all: a slice that ended before the whole does.
    Some(Box<Part>),
}

impl Fetch<'_, '_> {
    /// Whether an answer may be the document, by its head alone; says whether it is coded.
    fn inspect(&self, head: &Head) -> Result<bool, Failure> {
        let not_ours = |reason: String| Failure::new(Kind::NotOurs, reason).at(shown(&head.url));
        if let Some(reason) = unwelcome(&head.headers, self.document) {
            return Err(not_ours(reason));
        }
        is_coded(&head.headers, self.document).map_err(not_ours)
    }

    /// Whether there is room for `more` bytes behind `held` ones.
    fn check_room(&self, held: u64, more: u64) -> Result<(), Failure> {
        let local = |reason: String| Err(Failure::new(Kind::Local, reason));
        self.check_size(held.saturating_add(more))?;
        // What begins anew takes the place of what was held.
        let part = std::fs::metadata(self.tools.place.part(&self.document.name));
        let goes = part.map_or(0, |meta| if held == 0 { meta.len() } else { 0 });
        let (used, quota) = (
            self.tools.place.used().saturating_sub(goes),
            self.tools.quota,
        );
        if used.saturating_add(more) > quota {
            return local(format!(
                "documents take {used} bytes, and {more} more are over `documents_quota` ({})",
                print_size(quota)
            ));
        }
        match self.tools.place.has_room(more) {
            Ok(()) => Ok(()),
            Err(free) => local(format!(
                "{more} bytes are to come, and {free} are free where the documents are; make room, what was published is untouched"
            )),
        }
    }

    fn check_size(&self, bytes: u64) -> Result<(), Failure> {
        if bytes <= self.document.max_size {
            return Ok(());
        }
        let reason = format!(
            "it has more than {} (`max_size` sets how many bytes are allowed)",
            print_size(self.document.max_size)
        );
        Err(Failure::new(Kind::NotOurs, reason).at(shown(&self.document.url)))
    }

    /// Takes a full body. What was held in part is dropped when this is known to be the document, no sooner.
    pub(super) fn take_whole(
        &mut self,
        full: Full,
        part: &mut Option<Part>,
    ) -> Result<Content, Failure> {
        let Full { head, mut body, .. } = full;
        let coded = self.inspect(&head)?;
        let length = content_length(&head);
        self.check_room(0, length.unwrap_or(0))?;
        self.tools.place.prepare(&self.document.file)?;
        let mut check = ContentCheck::of(&head);
        let first = fill(&mut *body).map_err(|error| failure_of_io(&error).at(shown(&head.url)))?;
        if begins_as_html(&first, self.document) {
            let reason = "it begins as HTML does: is this a captive portal, a login or an error page? (`content_type` if HTML is meant)";
            return Err(Failure::new(Kind::NotOurs, reason).at(shown(&head.url)));
        }
        check.update(&first);
        if first.len() < BUFFER {
            check
                .finish()
                .map_err(|failure| failure.at(shown(&head.url)))?;
            self.check_size(first.len() as u64)?;
            return Ok(Content::Memory(first));
        }
        *part = None;
        discard(self.tools.place, &self.document.name, self.tools.store)?;
        let note = self.note(&head, coded, length);
        let mut part = Part::begin(self.tools.place, &self.document.name, note)?;
        let started = part
            .append(&first)
            .and_then(|()| part.sync(self.tools.store));
        let poured = started.and_then(|()| self.pour(&mut part, &mut *body, &mut check, &head));
        self.keep_on_failure(&mut part, poured)?;
        self.proven_by(check, &head)?;
        Ok(Content::Part(Box::new(part)))
    }

    /// Takes what follows the bytes that are held.
    pub(super) fn take_slice(
        &mut self,
        mut part: Part,
        full: Full,
        slice: Slice,
    ) -> Result<Taken, Failure> {
        let Full { head, mut body, .. } = full;
        if head.headers.bytes("content-type").is_some() {
            self.inspect(&head)?;
        }
        let before = part.bytes();
        self.check_size(slice.total)?;
        self.check_room(before, slice.length)?;
        self.tools.place.prepare(&self.document.file)?;
        part.set_total(slice.total);
        let mut check = ContentCheck::of(&head);
        let poured = self.pour(&mut part, &mut *body, &mut check, &head);
        self.keep_on_failure(&mut part, poured)?;
        self.proven_by(check, &head)?;
        let came = part.bytes() - before;
        if came > slice.length {
            discard(self.tools.place, &self.document.name, self.tools.store)?;
            let reason = "the part has more bytes than its Content-Range";
            return Err(Failure::new(Kind::NotOurs, reason).at(shown(&head.url)));
        }
        if came < slice.length {
            let cut = Failure::new(Kind::Failing, "the body was cut before its end");
            return Err(self.kept_part(&mut part, cut.at(shown(&head.url))));
        }
        Ok(if part.bytes() < slice.total {
            Taken::Some(Box::new(part))
        } else {
            Taken::Whole(Content::Part(Box::new(part)))
        })
    }

    /// Reads a body into a part to its end.
    fn pour(
        &mut self,
        part: &mut Part,
        body: &mut dyn Read,
        check: &mut ContentCheck,
        head: &Head,
    ) -> Result<(), Failure> {
        let mut buffer = vec![0; BUFFER];
        loop {
            let read = body
                .read(&mut buffer)
                .map_err(|error| failure_of_io(&error).at(shown(&head.url)))?;
            if read == 0 {
                return Ok(());
            }
            let bytes = &buffer[..read];
            self.check_size(part.bytes().saturating_add(read as u64))?;
            check.update(bytes);
            part.append(bytes)?;
            if part.wants_sync() {
                part.sync(self.tools.store)?;
                // Where the length is not known beforehand, this is how it is found in time.
                self.check_room(part.bytes(), 0)?;
            }
            breathe(self.tools.wait)?;
            (self.tools.progress)();
        }
    }

    /// After a cut: what came is kept, if a later request can go on behind it.
    fn keep_on_failure(
        &mut self,
        part: &mut Part,
        poured: Result<(), Failure>,
    ) -> Result<(), Failure> {
        match poured {
            Ok(()) => Ok(()),
            Err(failure) if failure.kind == Kind::NotOurs => {
                discard(self.tools.place, &self.document.name, self.tools.store)?;
                Err(failure)
            }
            Err(failure) => Err(self.kept_part(part, failure)),
        }
    }

    fn kept_part(&mut self, part: &mut Part, failure: Failure) -> Failure {
        let name = &self.document.name;
        if part.note().is_none() {
            remove_file(&self.tools.place.part(name));
            return failure;
        }
        match part.sync(self.tools.store) {
            Ok(()) => log::info!("{name}: {} bytes are kept to go on behind", part.bytes()),
            Err(error) => log::error!("{name}: {}", error.reason),
        }
        failure
    }

    /// Whether the content is what the answer says of it; if not, nothing of it is kept.
    fn proven_by(&mut self, check: ContentCheck, head: &Head) -> Result<(), Failure> {
        check.finish().map_err(|failure| {
            match discard(self.tools.place, &self.document.name, self.tools.store) {
                Ok(()) => failure.at(shown(&head.url)),
                Err(error) => error,
            }
        })
    }

    /// What is noted of a download that begins. `None`: nothing could go on with it.
    fn note(&self, head: &Head, coded: bool, length: Option<u64>) -> Option<Note> {
        if self.keeps_nothing(head) {
            return None;
        }
        Some(Note {
            config: self.mode.config,
            url: head.url.clone(),
            strong: range::strong(&head.headers)?,
            validators: Validators::reliable(&head.headers),
            variant: head.variant.clone(),
            total: length,
            coded,
            synced: 0,
            prefix: super::checksum::Checksum::of(b""),
            boot: String::new(),
            whole: None,
        })
    }

    /// Whether the whole is what the answer says of it (`Repr-Digest`, RFC 9530 3).
    pub(super) fn check_whole(
        &mut self,
        content: &mut Content,
        head: &Head,
    ) -> Result<(), Failure> {
        let Some(stated) = Stated::of(&head.headers, "repr-digest") else {
            return Ok(());
        };
        let digest = match (&mut *content, stated.algorithm) {
            (Content::Part(part), Algorithm::Sha256) => part.digest().0.to_vec(),
            (Content::Part(part), algorithm) => {
                let mut hasher = Hasher::new(algorithm);
                part.read_from(0, self.tools.wait, &mut |bytes| hasher.update(bytes))?;
                hasher.finish()
            }
            (Content::Memory(bytes), algorithm) => {
                let mut hasher = Hasher::new(algorithm);
                hasher.update(bytes);
                hasher.finish()
            }
        };
        if stated.is(&digest) {
            return Ok(());
        }
        discard(self.tools.place, &self.document.name, self.tools.store)?;
        Err(Failure::new(
            Kind::Failing,
            "it is not what its Repr-Digest says: damaged on its way, and to be fetched again",
        )
        .at(shown(&head.url)))
    }
}

/// The length that an answer states, where that is what ends it.
fn content_length(head: &Head) -> Option<u64> {
    if head.headers.bytes("transfer-encoding").is_some() {
        return None;
    }
    head.headers.text("content-length")?.parse().ok()
}

/// Reads until the buffer is full or the body ends.
fn fill(body: &mut dyn Read) -> std::io::Result<Vec<u8>> {
    let mut first = Vec::new();
    body.take(BUFFER as u64).read_to_end(&mut first)?;
    Ok(first)
}

/// What an answer says of its content (`Content-Digest`, RFC 9530 2), and that content.
struct ContentCheck(Option<(Stated, Hasher)>);

impl ContentCheck {
    fn of(head: &Head) -> Self {
        let stated = Stated::of(&head.headers, "content-digest");
        Self(stated.map(|stated| {
            let hasher = Hasher::new(stated.algorithm);
            (stated, hasher)
        }))
    }

    fn update(&mut self, bytes: &[u8]) {
        if let Some((_, hasher)) = &mut self.0 {
            hasher.update(bytes);
        }
    }

    fn finish(self) -> Result<(), Failure> {
        let Some((stated, hasher)) = self.0 else {
            return Ok(());
        };
        if stated.is(&hasher.finish()) {
            return Ok(());
        }
        Err(Failure::new(
            Kind::Failing,
            "it is not what its Content-Digest says: damaged on its way, and to be fetched again",
        ))
    }
}
