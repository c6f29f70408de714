//! A page of a collection that is downloaded as a document is, and read from disk then: so that a large listing over a thin link
//! goes on behind a cut.

use std::fs::File;
use std::io::{BufReader, Cursor, Read};
use std::path::Path;

use sha2::{Digest as _, Sha256};

use super::decide::{self, Question};
use super::fetch::{Fetch, MOST_ROUNDS, Mode, Tools};
use super::kept::Note;
use super::part::{BUFFER, Part, discard};
use super::place::{PARTS, Place, local};
use super::receive::{Content, Taken};
use crate::config::{Document, Proof, Source};
use crate::store::Store;
use crate::upstream::client::{Answer, Ask, Full, Head, Held, RestAnswer, shown};
use crate::upstream::outcome::{Expect, Failure, Kind};
use crate::upstream::range::{Rest, other_version};

/// Asks for a page. Its body, if there is a new one, is on disk as a whole when this returns.
///
/// # Errors
/// As [`crate::upstream::client::Client::ask`]; after a cut what came is kept, and gone on with when the same page is asked for
/// again.
pub fn ask(
    source: &Source,
    tools: &mut Tools<'_>,
    ask: &Ask<'_>,
    config: [u8; 8],
) -> Result<Answer, Failure> {
    let document = as_document(source, ask, tools.client.max_body());
    let mode = Mode {
        config: page(config, ask),
        look_only: false,
    };
    let (name, place, wait) = (&source.name, tools.place, tools.wait);
    let mut part = Part::recall(place, name, mode.config, tools.store, wait)?;
    let mut fetch = Fetch::begin(&document, tools, mode);
    let ask = Ask {
        expect: Expect::JsonFile,
        ..*ask
    };
    let mut anew = false;
    for _ in 0..MOST_ROUNDS {
        let note = part.as_ref().and_then(|part| part.note()).cloned();
        let (Some(note), Some(held), false) = (note, part.as_ref().map(Part::held), anew) else {
            return match fetch.tools.client.ask(&ask, fetch.wall)? {
                Answer::Full(full) => fetch.spooled(*full, &mut part),
                other => Ok(other),
            };
        };
        if held.is_whole || held.total == Some(held.bytes) {
            let validators = Held {
                validators: &note.validators,
                url: &note.url,
            };
            let ask = Ask {
                held: Some(validators),
                ..ask
            };
            return match (fetch.tools.client.ask(&ask, fetch.wall)?, part.take()) {
                (Answer::NotModified(head), Some(part)) => {
                    fetch.read_back(vouched(*head, &note), Content::Part(Box::new(part)), true)
                }
                (Answer::Full(full), mut part) => fetch.spooled(*full, &mut part),
                (other, _) => Ok(other),
            };
        }
        let rest = Rest {
            from: held.bytes,
            validator: &note.strong,
            url: &note.url,
            total: note.total,
            coded: note.coded,
        };
        match fetch
            .tools
            .client
            .ask_rest(&Ask { held: None, ..ask }, &rest, fetch.wall)?
        {
            RestAnswer::Whole(Answer::Full(full)) => return fetch.spooled(*full, &mut part),
            RestAnswer::Whole(other) => return Ok(other),
            RestAnswer::Unsatisfied(head, total) => {
                let other = other_version(&head.headers, &rest);
                match decide::after_unsatisfied(held, total, other) {
                    Question::IfPartIsCurrent => {
                        if let Some(part) = &mut part {
                            part.set_total(held.bytes);
                        }
                    }
                    _ => anew = true,
                }
            }
            RestAnswer::Slice(full, slice) => {
                let head = vouched(full.head.clone(), &note);
                let Some(had) = part.take() else {
                    return Err(Failure::new(Kind::Local, "the part is gone").at(shown(ask.url)));
                };
                match fetch.take_slice(had, *full, slice)? {
                    Taken::Some(more) => part = Some(*more),
                    Taken::Whole(content) => return fetch.read_back(head, content, true),
                }
            }
        }
    }
    let reason = "it comes in ever smaller parts; what came is kept";
    Err(Failure::new(Kind::Failing, reason).at(shown(ask.url)))
}

/// The page was read, or cannot be: its download is of no use any more.
///
/// # Errors
/// The store's.
pub fn over(place: &Place, source: &Source, store: &mut Store) -> Result<(), Failure> {
    discard(place, &source.name, store)
}

impl Fetch<'_, '_> {
    /// Takes a full body and opens what was taken.
    fn spooled(&mut self, full: Full, part: &mut Option<Part>) -> Result<Answer, Failure> {
        let (head, proven_end) = (full.head.clone(), full.proven_end);
        let content = self.take_whole(full, part)?;
        self.read_back(head, content, proven_end)
    }

    fn read_back(
        &mut self,
        head: Head,
        mut content: Content,
        proven_end: bool,
    ) -> Result<Answer, Failure> {
        self.check_whole(&mut content, &head)?;
        let body: Box<dyn Read> = match content {
            Content::Memory(bytes) => Box::new(Cursor::new(bytes)),
            Content::Part(mut part) => {
                part.finish(self.tools.store)?;
                let path = self.tools.place.part(&self.document.name);
                let file = File::open(&path).map_err(|error| local(&path, &error))?;
                Box::new(BufReader::with_capacity(BUFFER, file))
            }
        };
        Ok(Answer::Full(Box::new(Full {
            head,
            body,
            proven_end,
        })))
    }
}

/// The head of a part's last answer, with the validators of its first one where it names none itself.
fn vouched(mut head: Head, note: &Note) -> Head {
    let known = [
        ("etag", &note.validators.etag),
        ("last-modified", &note.validators.last_modified),
    ];
    for (name, value) in known {
        if let (Some(value), None) = (value, head.headers.bytes(name)) {
            head.headers.push(name, value);
        }
    }
    head
}

/// Which page it is of which config.
fn page(config: [u8; 8], ask: &Ask<'_>) -> [u8; 8] {
    let mut hasher = Sha256::new_with_prefix(config);
    hasher.update(ask.url.as_str().as_bytes());
    let hash = hasher.finalize();
    let mut first = [0; 8];
    first.copy_from_slice(&hash[..8]);
    first
}

/// What the page is as a document; it is never published.
fn as_document(source: &Source, ask: &Ask<'_>, max_size: u64) -> Document {
    Document {
        name: source.name.clone(),
        upstream: source.upstream.clone(),
        url: ask.url.clone(),
        file: Path::new(PARTS).join(&source.name),
        every: source.every,
        jitter: source.jitter,
        stale_after: source.stale_after,
        proof: Proof::None,
        max_size,
        allow_empty: source.allow_empty,
        content_type: Vec::new(),
        on_change: None,
        ignore_no_store: source.ignore_no_store,
        max_skip: source.max_skip,
        recheck: source.recheck,
    }
}
