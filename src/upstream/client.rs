//! Asks one upstream: builds a request, follows redirects by our own rules, and turns each answer into what it means.

use std::io::{self, Read};
use std::sync::Arc;
use std::time::Duration;

use flate2::read::MultiGzDecoder;
use ureq::http::{Method, Response};
use url::Url;

use super::auth::Credential;
use super::conditional::{Validators, Variant, age_of, http_date, retry_after};
use super::date::{UpstreamTime, of_answer};
use super::exchange::Exchange;
pub use super::exchange::shown;
use super::failure::failure_of;
pub use super::failure::failure_of_io;
use super::headers::Headers;
use super::limit::Limited;
use super::line::Line;
use super::manners::manners;
use super::outcome::{Asked, Coding, Expect, Failure, Kind, Verdict, classify, coding};
use super::range::{Rest, Slice};
use super::redirect::redirected;
use super::tls::TlsClock;
use super::turn::{Turn, pause_before_redirect};
use crate::clock::{Sighting, Timestamp};
use crate::config::{Limits, Secret, Upstream};

/// How much of an unwanted body is read to keep its connection.
const DRAIN: u64 = 16 * 1024;

/// One upstream, ready to be asked.
pub struct Client {
    pub(super) agent: ureq::Agent,
    pub(super) line: Line,
    pub(super) home: Url,
    pub(super) credential: Credential,
    pub(super) headers: Vec<(String, Secret)>,
    limits: Limits,
    pub(super) requests: u64,
    clock: Arc<TlsClock>,
    turn: Turn,
    /// What time it is by the upstream's own origin, over TLS.
    seen: Option<Sighting>,
}

/// A question.
#[derive(Debug, Clone, Copy)]
pub struct Ask<'a> {
    /// Where.
    pub url: &'a Url,
    /// What is held of it.
    pub held: Option<Held<'a>>,
    /// Which representation is expected.
    pub expect: Expect,
    /// An empty answer is an answer.
    pub allow_empty: bool,
    /// The body of a search by POST; parameters that are JSON Pointers go into it.
    pub search: Option<&'a serde_json::Value>,
}

/// What is held of an earlier answer.
#[derive(Debug, Clone, Copy)]
pub struct Held<'a> {
    /// Its validators.
    pub validators: &'a Validators,
    /// The URL that gave it, behind redirects: validators are sent there and nowhere else.
    pub url: &'a Url,
}

/// An answer that is one.
#[derive(Debug)]
pub enum Answer {
    /// A full representation.
    Full(Box<Full>),
    /// An empty one, where that is allowed.
    Empty(Box<Head>),
    /// What is held is current.
    NotModified(Box<Head>),
}

/// An answer to who asked for the rest of what is held in part.
#[derive(Debug)]
pub enum RestAnswer {
    /// The rest, or its beginning.
    Slice(Box<Full>, Slice),
    /// There is no rest: the whole has so many bytes, if that is said. The head is that of a refusal.
    Unsatisfied(Box<Head>, Option<u64>),
    /// Something else than a part.
    Whole(Answer),
}

impl Answer {
    /// Its head.
    #[must_use]
    pub fn head(&self) -> &Head {
        match self {
            Self::Full(full) => &full.head,
            Self::Empty(head) | Self::NotModified(head) => head,
        }
    }
}

/// An answer's head.
#[derive(Debug, Clone)]
pub struct Head {
    /// Its fields.
    pub headers: Headers,
    /// Which URL gave it, behind redirects.
    pub url: Url,
    /// A permanent redirect led here from what the config says.
    pub moved: bool,
    /// The variant that it is, by its `Vary`.
    pub variant: Variant,
    /// Up to when, in the upstream's own time, it surely shows everything.
    pub upstream_time: UpstreamTime,
}

/// A full representation.
pub struct Full {
    /// Its head.
    pub head: Head,
    /// Its body: decoded and limited (but for files, see [`Expect`]), served while it flows. An end without error is the sender's own end.
    pub body: Box<dyn Read>,
    /// Whether the framing proves where the body ends: a length, chunks or gzip's trailer do, a closing connection does not.
    pub proven_end: bool,
}

impl std::fmt::Debug for Full {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Full")
            .field("head", &self.head)
            .field("proven_end", &self.proven_end)
            .finish_non_exhaustive()
    }
}

impl Client {
    /// A client for `upstream` over a ready agent and its line. `clock` says what our own clock is worth.
    #[must_use]
    pub fn new(upstream: &Upstream, agent: ureq::Agent, line: Line, clock: Arc<TlsClock>) -> Self {
        Self {
            agent,
            line,
            home: upstream.base.clone(),
            credential: Credential::new(upstream.auth.clone()),
            headers: upstream.headers.clone(),
            limits: upstream.limits.clone(),
            requests: 0,
            clock,
            turn: Turn::new(upstream.min_interval),
            seen: None,
        }
    }

    /// Pages of one pass at most.
    #[must_use]
    pub fn max_pages(&self) -> u32 {
        self.limits.pages
    }

    /// Bytes of one body at most.
    #[must_use]
    pub fn max_body(&self) -> u64 {
        self.limits.body
    }

    /// Bytes of one record at most.
    #[must_use]
    pub fn max_record(&self) -> usize {
        self.limits.record
    }

    /// What its connections share: byte counts that move while a body flows.
    #[must_use]
    pub fn line(&self) -> &Line {
        &self.line
    }

    /// Requests sent so far.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.requests
    }

    /// Bytes sent and received so far, at the socket.
    #[must_use]
    pub fn traffic(&self) -> (u64, u64) {
        let traffic = self.line.traffic();
        (traffic.up(), traffic.down())
    }

    /// When it may be asked, and what it said about that.
    pub fn turn(&mut self) -> &mut Turn {
        &mut self.turn
    }

    /// What time it is upstream, as the last answer of its own origin told over TLS.
    #[must_use]
    pub fn seen(&self) -> Option<&Sighting> {
        self.seen.as_ref()
    }

    /// Notes what an answer of the upstream's own origin says beside its content. Where it redirects to is somebody else.
    fn heed(&mut self, url: &Url, status: u16, headers: &Headers) {
        if url.origin() != self.home.origin() {
            return;
        }
        let (at, ours) = (self.line.wait().now(), self.clock.reading());
        self.turn.heed(manners(status, headers, ours.wall), at);
        // What a cache held is not from now.
        let fresh = age_of(headers).is_zero();
        let date = headers.text("date").and_then(http_date);
        if let (Some(told), Some(host), "https", true) = (date, url.host_str(), url.scheme(), fresh)
        {
            self.seen = Some(Sighting {
                host: host.to_owned(),
                told,
                at,
            });
        }
    }

    /// Whether an answer that was this variant may be asked for conditionally.
    #[must_use]
    pub fn selects(&self, variant: &Variant) -> bool {
        variant.matches(&self.sent())
    }

    /// Asks. At most two requests beside redirects and token renewal: what was refused conditionally is asked for
    /// once more without validators, and a kept connection that had died is replaced once.
    ///
    /// # Errors
    /// Everything that is not an answer to what was asked, as the kind of trouble it is, with its reason.
    pub fn ask(&mut self, ask: &Ask<'_>, now: Timestamp) -> Result<Answer, Failure> {
        match self.exchanges(ask, None, now)? {
            RestAnswer::Whole(answer) => Ok(answer),
            // Only a request for a part is answered so.
            RestAnswer::Slice(..) | RestAnswer::Unsatisfied(..) => {
                Err(Failure::new(Kind::NotOurs, "a part, and all was asked for").at(shown(ask.url)))
            }
        }
    }

    /// Asks for the rest of what is held in part. What is no such rest (another version, another place, a part that is sold as
    /// the whole) is asked for once more as a whole.
    ///
    /// # Errors
    /// As [`Client::ask`].
    pub fn ask_rest(
        &mut self,
        ask: &Ask<'_>,
        rest: &Rest<'_>,
        now: Timestamp,
    ) -> Result<RestAnswer, Failure> {
        self.exchanges(ask, Some(rest), now)
    }

    fn exchanges(
        &mut self,
        ask: &Ask<'_>,
        rest: Option<&Rest<'_>>,
        now: Timestamp,
    ) -> Result<RestAnswer, Failure> {
        let mut url = ask.url.clone();
        let method = if ask.search.is_some() { "POST" } else { "GET" };
        let (mut hops, mut conditional, mut renewed, mut moved) = (0, true, false, true);
        loop {
            let held = ask
                .held
                .filter(|held| conditional && *held.url == url)
                .map(|held| held.validators);
            let rest = rest.filter(|rest| conditional && *rest.url == url);
            self.turn.wait_for(self.line.wait(), &self.home, &url)?;
            let mut exchange =
                Exchange::begin(&self.line, (method, &url), held.is_some() || rest.is_some());
            let mut response = match self.send(&url, (held, rest), ask) {
                Ok(response) => response,
                Err(failure) => {
                    exchange.failed(&failure);
                    return Err(failure);
                }
            };
            let headers = headers_of(&response);
            let asked = Asked {
                validators: held,
                rest,
                expect: ask.expect,
                allow_empty: ask.allow_empty,
                renewable: self.credential.renewable() && !renewed,
                may_ask_again: conditional,
                now,
            };
            let status = response.status().as_u16();
            let elapsed = exchange.elapsed();
            self.heed(&url, status, &headers);
            let verdict = classify(status, &headers, &asked);
            exchange.answered(status, &verdict);
            if !matches!(verdict, Verdict::Body | Verdict::Slice(_)) {
                drain(&mut response, status);
            }
            match verdict {
                Verdict::Body => {
                    let head = self.head(headers, url, moved && hops > 0, elapsed);
                    let full = self.full(head, response, exchange, ask.expect);
                    return Ok(RestAnswer::Whole(Answer::Full(Box::new(full))));
                }
                Verdict::Slice(slice) => {
                    let head = self.head(headers, url, moved && hops > 0, elapsed);
                    let full = self.full(head, response, exchange, ask.expect);
                    return Ok(RestAnswer::Slice(Box::new(full), slice));
                }
                Verdict::Unsatisfied(total) => {
                    let head = self.head(headers, url, moved && hops > 0, elapsed);
                    return Ok(RestAnswer::Unsatisfied(Box::new(head), total));
                }
                Verdict::Empty => {
                    let head = self.head(headers, url, moved && hops > 0, elapsed);
                    return Ok(RestAnswer::Whole(Answer::Empty(Box::new(head))));
                }
                Verdict::NotModified => {
                    let head = self.head(headers, url, moved && hops > 0, elapsed);
                    return Ok(RestAnswer::Whole(Answer::NotModified(Box::new(head))));
                }
                Verdict::Unconditionally(why) => {
                    log::debug!(
                        "{}: {why}, asking once more without validators",
                        shown(&url)
                    );
                    conditional = false;
                }
                Verdict::Renew => {
                    renewed = true;
                    self.credential.forget();
                }
                Verdict::Redirect { status, .. } if ask.search.is_some() && status < 307 => {
                    let reason = format!(
                        "{status}: the search is redirected to something that is no search; write the URL where it is"
                    );
                    return Err(Failure::new(Kind::Refused, reason).at(shown(&url)));
                }
                Verdict::Redirect { status, location } => {
                    hops += 1;
                    moved &= matches!(status, 301 | 308);
                    if let Some(span) = retry_after(&headers, now) {
                        pause_before_redirect(self.line.wait(), span, &url)?;
                    }
                    url = redirected(&url, &location, hops)?;
                }
                Verdict::Failed(failure) => return Err(failure.at(shown(&url))),
            }
        }
    }

    /// The fields of `url` without its body: a HEAD request, unconditional and straight there. `None` if that is not
    /// answered with a plain 200, as by servers that know no HEAD.
    ///
    /// # Errors
    /// Only that the agent stops, that the upstream asked to wait, or that a secret cannot be read.
    pub fn peek(&mut self, url: &Url) -> Result<Option<Headers>, Failure> {
        self.turn.wait_for(self.line.wait(), &self.home, url)?;
        let mut request = self.request(url, (None, None), Expect::Json)?;
        *request.method_mut() = Method::HEAD;
        self.requests += 1;
        self.line.begin_request();
        match self.agent.run(request) {
            Ok(response) => {
                let (status, headers) = (response.status().as_u16(), headers_of(&response));
                log::debug!("HEAD {}: {status}", shown(url));
                self.heed(url, status, &headers);
                Ok((status == 200).then_some(headers))
            }
            Err(error) => match failure_of(&error) {
                failure if failure.kind == Kind::Stopped => Err(failure),
                _ => Ok(None),
            },
        }
    }

    fn head(&self, headers: Headers, url: Url, moved: bool, elapsed: Duration) -> Head {
        let variant = Variant::of(&headers, &self.sent());
        let upstream_time = of_answer(&headers, elapsed, self.clock.reading());
        Head {
            headers,
            url,
            moved,
            variant,
            upstream_time,
        }
    }

    fn full(
        &self,
        head: Head,
        response: Response<ureq::Body>,
        exchange: Exchange,
        expect: Expect,
    ) -> Full {
        let chunked = head
            .headers
            .list("transfer-encoding")
            .iter()
            .any(|coding| coding.eq_ignore_ascii_case("chunked"));
        // A file is kept as it was sent.
        let gzip = !expect.is_file() && coding(&head.headers) == Ok(Coding::Gzip);
        let body = response.into_body();
        let proven_end = chunked || gzip || body.content_length().is_some();
        let plain = exchange.followed(body.into_with_config().limit(u64::MAX).reader());
        // Of several gzip members each is checked against its trailer, and garbage behind the last is an error.
        let body: Box<dyn Read> = if expect.is_file() {
            Box::new(plain)
        } else if gzip {
            Box::new(Limited::new(MultiGzDecoder::new(plain), self.limits.body))
        } else {
            Box::new(Limited::new(plain, self.limits.body))
        };
        Full {
            head,
            body,
            proven_end,
        }
    }
}

/// Reads a small unwanted body so that its connection can be kept. A 304 has none to be read.
fn drain(response: &mut Response<ureq::Body>, status: u16) {
    if status != 304
        && response
            .body()
            .content_length()
            .is_some_and(|length| length <= DRAIN)
    {
        let mut rest = response.body_mut().with_config().limit(DRAIN).reader();
        // Whatever comes of it: at worst the connection is not kept.
        drop(io::copy(&mut rest, &mut io::sink()));
    }
}

pub(super) fn headers_of(response: &Response<ureq::Body>) -> Headers {
    let mut headers = Headers::new();
    for (name, value) in response.headers() {
        headers.push(name.as_str(), value.as_bytes());
    }
    headers
}

/// How long a kept connection may wait for its next use: the polling interval and some more, so that an idle poll costs no
/// handshake where the server allows that.
#[must_use]
pub fn idle_age(every: Duration) -> Duration {
    every
        .saturating_add(Duration::from_secs(60))
        .clamp(Duration::from_secs(60), Duration::from_secs(3600))
}
