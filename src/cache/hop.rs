//! One request of a chain of redirects: what it asks, and what its answers mean for the memory.

use std::io::Read;
use std::time::Duration;

use url::Url;

use super::directives::Wanted;
use super::entry::{Body, Kept};
use super::fetch::{Question, Reply, Source};
use super::freshness::Times;
use super::keeping::{Keeper, Keeping, not_kept};
use super::memory::{Id, Memory};
use super::select::{sealed, select};
use super::stale::{StandIn, Trouble, stand_in};
use super::storable::{Storable, is_askable, kept, storable};
use super::update::{is_worth_writing, updated};
use crate::clock::Timestamp;
use crate::upstream::client::shown;
use crate::upstream::conditional::{Sent, Validators, Variant};
use crate::upstream::headers::Headers;
use crate::upstream::outcome::{Asked, Expect, Failure, Verdict, classify};
use crate::upstream::plain::{Field, Plain, PlainAnswer};

/// One request of a chain of redirects.
pub(super) struct Hop<'a> {
    pub(super) url: &'a Url,
    fields: &'a [Field],
    refresh: bool,
    pub(super) limit: u64,
    pub(super) wanted: Wanted,
    /// The asker asks conditionally or for a part, and remembers by himself.
    pub(super) own: bool,
    /// The asker says which codings he takes, and undoes them himself.
    as_it_comes: bool,
    /// What a variant may know of the request.
    sent: Vec<(String, Sent)>,
    /// Where its answers are kept; `None`: without a memory.
    place: Option<(Memory, Id)>,
}

/// A kept answer, and its body at hand: verified, and open, so that nobody can take it away.
pub(super) struct Held {
    pub(super) kept: Kept,
    body: Box<dyn Read>,
}

/// With one of these the asker has a memory of his own.
const OWN_MEMORY: [&str; 6] = [
    "if-none-match",
    "if-modified-since",
    "if-match",
    "if-unmodified-since",
    "if-range",
    "range",
];

impl<'a> Hop<'a> {
    /// Asks for `url`, where `question` has led to.
    pub(super) fn new(
        question: &Question<'a>,
        url: &'a Url,
        (plain, memory): (&Plain, Option<&Memory>),
    ) -> Self {
        let at_home = url.origin() == question.url.origin();
        let fields = if at_home { question.fields } else { &[] };
        let mut asked = Headers::new();
        for field in fields {
            asked.push(&field.name, &field.value);
        }
        let own = OWN_MEMORY.iter().any(|name| asked.bytes(name).is_some());
        let view = if at_home { question.view } else { "" };
        let place = memory.filter(|_| !own).map(|memory| {
            let mut bare = url.clone();
            bare.set_fragment(None);
            (memory.clone(), memory.id(bare.as_str(), view))
        });
        let mut sent = plain.sent(url);
        if let Some((memory, _)) = &place {
            sent.retain(|(name, _)| !fields.iter().any(|field| field.name == *name));
            sent.extend(sealed(fields, memory.seal()));
        }
        let as_it_comes = asked.bytes("accept-encoding").is_some();
        if !as_it_comes {
            sent.push(("accept-encoding".into(), Sent::Plain("gzip".into())));
        }
        Self {
            url,
            fields,
            refresh: question.refresh && asked.bytes("cache-control").is_none(),
            limit: question.limit,
            wanted: Wanted {
                no_cache: question.refresh || Wanted::of(&asked).no_cache,
                ..Wanted::of(&asked)
            },
            own,
            as_it_comes,
            sent,
            place,
        }
    }
}

impl Hop<'_> {
    /// What is kept for this request, if its body is whole.
    pub(super) fn held(&self, now: Timestamp) -> Option<Box<Held>> {
        let (memory, id) = self.place.as_ref()?;
        let entry = memory.entry(id);
        let kept = select(&entry.kept, &self.sent)?.clone();
        let body = Box::new(memory.body(&kept.body, now)?);
        Some(Box::new(Held { kept, body }))
    }

    /// The request's fields: the asker's own and the validators.
    pub(super) fn request(&self, validators: Option<&Validators>) -> Vec<Field> {
        let mut fields = self.fields.to_vec();
        let mut add = |name: &str, value: Option<&[u8]>| {
            fields.extend(value.map(|value| Field {
                name: name.to_owned(),
                value: value.to_vec(),
            }));
        };
        add("if-none-match", validators.and_then(|v| v.etag.as_deref()));
        add(
            "if-modified-since",
            validators.and_then(|v| v.last_modified.as_deref()),
        );
        // Caches on the way are to ask, too.
        add("cache-control", self.refresh.then_some(b"max-age=0"));
        fields
    }

    /// An answer that came whole or not at all: hands it on, and keeps it if it may be kept.
    pub(super) fn answered(
        &self,
        answer: PlainAnswer,
        held: Option<Box<Held>>,
        times: Times,
    ) -> Reply {
        let trouble = self.trouble(answer.status, &answer.headers, times.answered);
        let mut held = held;
        if let Some(failure) = &trouble {
            let status = Trouble::Status(answer.status);
            match self.instead(held, status, failure, times.answered) {
                Ok(reply) => return reply,
                Err(back) => held = back,
            }
        }
        let is_sound = trouble.is_none() || answer.status >= 400;
        let keeper = is_sound.then(|| self.keeper(&answer, times)).flatten();
        let body: Box<dyn Read> = match keeper {
            Some(keeper) => Box::new(Keeping::new(answer.body, keeper)),
            None => {
                // What upstream says now holds, also where it may not be kept.
                if let (Some(held), true) = (held, is_sound && answer.status < 500) {
                    self.forget(&held.kept.variant);
                }
                answer.body
            }
        };
        Reply {
            status: answer.status,
            headers: answer.headers,
            body,
            from: Source::Network,
            url: self.url.clone(),
            trouble,
            stale: None,
        }
    }

    fn keeper(&self, answer: &PlainAnswer, times: Times) -> Option<Keeper> {
        let (memory, id) = self.place.as_ref()?;
        let decided = storable(answer.status, &answer.headers, &self.wanted);
        if decided != Storable::Yes || !answer.proven_end {
            log::debug!("{}: not kept, {decided:?}", shown(self.url));
            return None;
        }
        let length = answer.headers.text("content-length");
        let length: Option<u64> = length.and_then(|text| text.parse().ok());
        if length.is_some_and(|length| length > memory.bound()) {
            log::debug!("{}: larger than the whole cache", shown(self.url));
            return None;
        }
        let incoming = memory.begin().map_err(|error| not_kept(&error)).ok()?;
        Some(Keeper {
            memory: memory.clone(),
            id: id.clone(),
            kept: Kept {
                variant: Variant::of(&answer.headers, &self.sent),
                status: answer.status,
                headers: kept(&answer.headers),
                times,
                body: Body {
                    sha256: String::new(),
                    length: 0,
                },
            },
            incoming,
            now: times.answered,
        })
    }

    /// What is held, in the place of an answer that did not come or is an error; else it is given back.
    pub(super) fn instead(
        &self,
        held: Option<Box<Held>>,
        trouble: Trouble,
        failure: &Failure,
        now: Timestamp,
    ) -> Result<Reply, Option<Box<Held>>> {
        let Some(held) = held else {
            return Err(None);
        };
        let kept = &held.kept;
        match stand_in(&kept.headers, kept.times, &self.wanted, trouble, now) {
            StandIn::Kept { age } => {
                Ok(held.reply(self, age, Some((age, failure.reason.clone())), now))
            }
            StandIn::Trouble(why) => {
                log::debug!("{}: in the cache, not used: {why:?}", shown(self.url));
                Err(Some(held))
            }
        }
    }

    /// Why an answer of this head is no success, if it is none.
    fn trouble(&self, status: u16, headers: &Headers, now: Timestamp) -> Option<Failure> {
        if self.own && matches!(status, 206 | 304) {
            return None;
        }
        // Whatever was created or accepted, what came with it is what was asked for.
        let status = match status {
            201..=299 if !matches!(status, 204..=206) => 200,
            other => other,
        };
        let mut headers = headers.clone();
        if self.as_it_comes {
            headers.remove("content-encoding");
        }
        let asked = Asked {
            validators: None,
            expect: Expect::Any,
            rest: None,
            allow_empty: true,
            renewable: false,
            may_ask_again: false,
            now,
        };
        match classify(status, &headers, &asked) {
            Verdict::Failed(failure) => Some(failure.at(shown(self.url))),
            _ => None,
        }
    }

    fn forget(&self, variant: &Variant) {
        if let Some((memory, id)) = &self.place {
            let mut entry = memory.entry(id);
            entry.remove(variant);
            let written = memory.write(id, &entry);
            written.unwrap_or_else(|error| log::warn!("the cache keeps what is outdated: {error}"));
        }
    }

    fn renew(&self, kept: Kept) {
        if let Some((memory, id)) = &self.place {
            let mut entry = memory.entry(id);
            entry.put(kept);
            let written = memory.write(id, &entry);
            written.unwrap_or_else(|error| not_kept(&error));
        }
    }
}

impl Held {
    /// What it may be asked for with; nothing, if it is an error.
    pub(super) fn validators(&self) -> Validators {
        if is_askable(self.kept.status) {
            Validators::reliable(&self.kept.headers)
        } else {
            Validators::default()
        }
    }

    /// As an answer out of the memory, with its age (RFC 9111 5.1).
    pub(super) fn reply(
        self,
        hop: &Hop<'_>,
        age: Duration,
        stale: Option<(Duration, String)>,
        now: Timestamp,
    ) -> Reply {
        let trouble = hop.trouble(self.kept.status, &self.kept.headers, now);
        let mut headers = self.kept.headers;
        headers.remove("age");
        headers.push("age", age.as_secs().to_string().as_bytes());
        Reply {
            status: self.kept.status,
            headers,
            body: self.body,
            from: Source::Cache,
            url: hop.url.clone(),
            trouble,
            stale,
        }
    }

    /// As an answer that upstream has confirmed, renewed by what the confirmation says.
    pub(super) fn confirmed(self, hop: &Hop<'_>, not_modified: &Headers, times: Times) -> Reply {
        let headers = updated(&self.kept.headers, not_modified);
        if storable(self.kept.status, &headers, &hop.wanted) != Storable::Yes {
            hop.forget(&self.kept.variant);
        } else if is_worth_writing(&self.kept, &headers, times) {
            let mut renewed = self.kept.clone();
            renewed.headers = kept(&headers);
            renewed.times = times;
            hop.renew(renewed);
        }
        Reply {
            status: self.kept.status,
            headers,
            body: self.body,
            from: Source::Revalidated,
            url: hop.url.clone(),
            trouble: None,
            stale: None,
        }
    }
}
