//! Asks through the memory: from it while an answer is fresh, conditionally when it is not, and with what may stand in when
//! nobody answers.

use std::fmt;
use std::io::{self, Read};
use std::time::Duration;

use url::Url;

use super::directives::Wanted;
use super::entry::{Body, Kept};
use super::freshness::Times;
use super::keeping::{Keeper, Keeping, not_kept};
use super::memory::{Id, Memory};
use super::reuse::{Reuse, reuse};
use super::select::{sealed, select};
use super::stale::{StandIn, Trouble, stand_in};
use super::storable::{Storable, is_askable, kept, storable};
use super::update::{is_worth_writing, updated};
use crate::clock::Timestamp;
use crate::upstream::client::shown;
use crate::upstream::conditional::{Sent, Validators, Variant};
use crate::upstream::headers::Headers;
use crate::upstream::outcome::{Asked, Expect, Failure, Kind, Verdict, classify};
use crate::upstream::plain::{Field, Plain, PlainAnswer};

/// How much of a redirect's body is read, so that it can be kept and its connection used again.
const REDIRECT: u64 = 64 * 1024;

/// Where an answer came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// From upstream, whole.
    Network,
    /// From the memory, which upstream has confirmed.
    Revalidated,
    /// From the memory alone.
    Cache,
}

impl Source {
    /// One word, as `--json` has it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Network => "network",
            Self::Revalidated => "revalidated",
            Self::Cache => "cache",
        }
    }
}

/// What is asked.
#[derive(Debug, Clone, Copy)]
pub struct Question<'a> {
    /// Where.
    pub url: &'a Url,
    /// Request fields of the asker's own. They go to this URL's origin alone, whatever it redirects to.
    pub fields: &'a [Field],
    /// Whose view of the data this is: which credentials go along, in a form that may stand in a file.
    pub view: &'a str,
    /// Ask even if what is kept is fresh.
    pub refresh: bool,
    /// Bytes of body at most.
    pub limit: u64,
}

/// What was answered.
pub struct Reply {
    /// Its status.
    pub status: u16,
    /// Its fields.
    pub headers: Headers,
    /// Its body, to be read to its end: it is kept then.
    pub body: Box<dyn Read>,
    /// Where it came from.
    pub from: Source,
    /// Which URL gave it, behind redirects.
    pub url: Url,
    /// It is no success: why.
    pub trouble: Option<Failure>,
    /// It stands in for an answer that did not come, or is stale with the asker's leave: its age, and why.
    pub stale: Option<(Duration, String)>,
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reply")
            .field("status", &self.status)
            .field("headers", &self.headers)
            .field("from", &self.from)
            .finish_non_exhaustive()
    }
}

/// Asks.
#[derive(Debug)]
pub struct Fetcher {
    plain: Plain,
    memory: Option<Memory>,
}

/// One request of a chain of redirects.
struct Hop<'a> {
    url: &'a Url,
    fields: &'a [Field],
    refresh: bool,
    limit: u64,
    wanted: Wanted,
    /// The asker asks conditionally or for a part, and remembers by himself.
    own: bool,
    /// The asker says which codings he takes, and undoes them himself.
    as_it_comes: bool,
    /// What a variant may know of the request.
    sent: Vec<(String, Sent)>,
    /// Where its answers are kept; `None`: without a memory.
    place: Option<(Memory, Id)>,
}

/// A kept answer, and its body at hand: verified, and open, so that nobody can take it away.
struct Held {
    kept: Kept,
    body: Box<dyn Read>,
}

impl Fetcher {
    /// Over one upstream and a memory, if there is one.
    #[must_use]
    pub fn new(plain: Plain, memory: Option<Memory>) -> Self {
        Self { plain, memory }
    }

    /// Requests sent so far, and bytes up and down.
    #[must_use]
    pub fn spent(&self) -> (u64, u64, u64) {
        let traffic = self.plain.line().traffic();
        (self.plain.requests(), traffic.up(), traffic.down())
    }

    /// Asks, and follows redirects. Each hop is a question of its own, kept on its own.
    ///
    /// # Errors
    /// There is no answer at all: the network, a limit, or a redirect that is not followed.
    pub fn get(&mut self, question: &Question<'_>) -> Result<Reply, Failure> {
        let mut url = question.url.clone();
        let mut hops = 0;
        loop {
            let at_home = url.origin() == question.url.origin();
            let hop = self.hop(question, &url, at_home);
            let mut reply = self.one(&hop)?;
            let location = reply.headers.text("location").unwrap_or_default();
            let follows = matches!(reply.status, 301 | 302 | 303 | 307 | 308);
            if !follows || location.is_empty() {
                return Ok(reply);
            }
            hops += 1;
            let to = Plain::redirected(&url, location, hops)?;
            log::debug!("{}: {} to {}", shown(&url), reply.status, shown(&to));
            // Read to its end it is kept; whatever comes of it, the redirect was understood.
            let mut body = (&mut reply.body).take(REDIRECT);
            drop(io::copy(&mut body, &mut io::sink()));
            url = to;
        }
    }

    fn hop<'a>(&self, question: &Question<'a>, url: &'a Url, at_home: bool) -> Hop<'a> {
        let fields = if at_home { question.fields } else { &[] };
        let mut asked = Headers::new();
        for field in fields {
            asked.push(&field.name, &field.value);
        }
        let own = OWN_MEMORY.iter().any(|name| asked.bytes(name).is_some());
        let view = if at_home { question.view } else { "" };
        let place = self.memory.as_ref().filter(|_| !own).map(|memory| {
            let mut plain = url.clone();
            plain.set_fragment(None);
            (memory.clone(), memory.id(plain.as_str(), view))
        });
        let mut sent = self.plain.sent(url);
        if let Some((memory, _)) = &place {
            sent.retain(|(name, _)| !fields.iter().any(|field| field.name == *name));
            sent.extend(sealed(fields, memory.seal()));
        }
        let as_it_comes = asked.bytes("accept-encoding").is_some();
        if !as_it_comes {
            sent.push(("accept-encoding".into(), Sent::Plain("gzip".into())));
        }
        Hop {
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

    fn now(&self) -> Timestamp {
        self.plain.line().wait().clock().wall()
    }

    /// One question without redirects.
    fn one(&mut self, hop: &Hop<'_>) -> Result<Reply, Failure> {
        let now = self.now();
        let Some(held) = hop.held(now) else {
            return self.ask(hop, None);
        };
        let decided = reuse(&held.kept.headers, held.kept.times, &hop.wanted, now);
        log::debug!("{}: in the cache, {decided:?}", shown(hop.url));
        match decided {
            Reuse::Yes { age, stale } => {
                let why = || (age, "the request says that this will do".to_owned());
                Ok(held.reply(hop, age, stale.then(why), now))
            }
            Reuse::Ask(_) => self.ask(hop, Some(held)),
        }
    }

    /// Asks upstream, conditionally if something is held that can be asked for so.
    fn ask(&mut self, hop: &Hop<'_>, held: Option<Held>) -> Result<Reply, Failure> {
        if hop.wanted.only_if_cached {
            let reason = "only-if-cached was asked for, and nothing in the cache may be used";
            return Err(Failure::new(Kind::Failing, reason).at(shown(hop.url)));
        }
        let mut validators = held.as_ref().map(Held::validators);
        let (mut again, mut renewed) = (false, false);
        loop {
            let asked = self.now();
            let fields = hop.request(validators.as_ref());
            let answer = match self.plain.ask(hop.url, &fields, hop.limit) {
                Ok(answer) => answer,
                Err(failure) => return self.no_answer(hop, held, failure),
            };
            let times = Times {
                asked,
                answered: self.now(),
            };
            let question = Asked {
                validators: validators.as_ref(),
                expect: Expect::Any,
                rest: None,
                allow_empty: true,
                renewable: self.plain.renewable() && !renewed,
                may_ask_again: !again && !hop.own,
                now: times.answered,
            };
            match classify(answer.status, &answer.headers, &question) {
                Verdict::Unconditionally(why) => {
                    log::debug!("{}: {why}", shown(hop.url));
                    (again, validators) = (true, None);
                }
                Verdict::Renew => {
                    renewed = true;
                    self.plain.renew();
                }
                Verdict::NotModified => {
                    if let Some(held) = held {
                        return Ok(held.confirmed(hop, &answer.headers, times));
                    }
                    // Validators are only sent of what is held.
                    let reason = "304 (not modified), and nothing is held";
                    return Err(Failure::new(Kind::Failing, reason).at(shown(hop.url)));
                }
                _ => return Ok(hop.answered(answer, held, times)),
            }
        }
    }

    fn no_answer(
        &self,
        hop: &Hop<'_>,
        held: Option<Held>,
        failure: Failure,
    ) -> Result<Reply, Failure> {
        // The device's own trouble, and a word to stop, are no news from upstream.
        if matches!(failure.kind, Kind::Local | Kind::Stopped) {
            return Err(failure);
        }
        match hop.instead(held, Trouble::NoAnswer, &failure, self.now()) {
            Ok(reply) => Ok(reply),
            Err(_) => Err(failure),
        }
    }
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

impl Hop<'_> {
    /// What is kept for this request, if its body is whole.
    fn held(&self, now: Timestamp) -> Option<Held> {
        let (memory, id) = self.place.as_ref()?;
        let entry = memory.entry(id);
        let kept = select(&entry.kept, &self.sent)?.clone();
        let body = Box::new(memory.body(&kept.body, now)?);
        Some(Held { kept, body })
    }

    /// The request's fields: the asker's own and the validators.
    fn request(&self, validators: Option<&Validators>) -> Vec<Field> {
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
    fn answered(&self, answer: PlainAnswer, held: Option<Held>, times: Times) -> Reply {
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
    fn instead(
        &self,
        held: Option<Held>,
        trouble: Trouble,
        failure: &Failure,
        now: Timestamp,
    ) -> Result<Reply, Option<Held>> {
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
    fn validators(&self) -> Validators {
        if is_askable(self.kept.status) {
            Validators::reliable(&self.kept.headers)
        } else {
            Validators::default()
        }
    }

    /// As an answer out of the memory, with its age (RFC 9111 5.1).
    fn reply(
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
    fn confirmed(self, hop: &Hop<'_>, not_modified: &Headers, times: Times) -> Reply {
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
