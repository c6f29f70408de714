//! Asks through the memory: from it while an answer is fresh, conditionally when it is not, and with what may stand in when
//! nobody answers.

use std::fmt;
use std::io::{self, Read};
use std::time::Duration;

use url::Url;

use super::freshness::Times;
use super::hop::{Held, Hop};
use super::memory::Memory;
use super::reuse::{Reuse, reuse};
use super::stale::Trouble;
use crate::clock::Timestamp;
use crate::upstream::client::shown;
use crate::upstream::headers::Headers;
use crate::upstream::outcome::{Asked, Expect, Failure, Kind, Verdict, classify};
use crate::upstream::plain::{Field, Plain};

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
            let hop = Hop::new(question, &url, (&self.plain, self.memory.as_ref()));
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
    fn ask(&mut self, hop: &Hop<'_>, held: Option<Box<Held>>) -> Result<Reply, Failure> {
        if hop.wanted.only_if_cached {
            let reason = "only-if-cached was asked for, and nothing in the cache may be used";
            return Err(Failure::new(Kind::Failing, reason).at(shown(hop.url)));
        }
        let mut validators = held.as_ref().map(|held| held.validators());
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
        held: Option<Box<Held>>,
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
