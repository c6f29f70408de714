//! Asks one upstream: builds a request, follows redirects by our own rules, and turns each answer into what it means.

use std::io::{self, Read};
use std::sync::Arc;
use std::time::Duration;

use flate2::read::MultiGzDecoder;
use ureq::http::{HeaderName, HeaderValue, Method, Request, Response};
use url::Url;

use super::auth::{Credential, resolve, sensitive};
use super::conditional::{Sent, Validators, Variant, age_of, http_date, retry_after};
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
use super::search::fill;
use super::tls::TlsClock;
use super::turn::{Turn, pause_before_redirect};
use crate::clock::{Sighting, Timestamp};
use crate::config::{Limits, Secret, Upstream};

/// The most redirects of one request.
const MAX_HOPS: usize = 5;
/// How much of an unwanted body is read to keep its connection.
const DRAIN: u64 = 16 * 1024;

/// One upstream, ready to be asked.
pub struct Client {
    agent: ureq::Agent,
    line: Line,
    home: Url,
    credential: Credential,
    headers: Vec<(String, Secret)>,
    limits: Limits,
    requests: u64,
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
#[derive(Debug)]
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
    /// Its body: decoded, limited, served while it flows. An end without error is the sender's own end.
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

    /// The request fields that a `Vary` may name, as a variant may know them.
    fn sent(&self) -> Vec<(String, Sent)> {
        let mut sent: Vec<(String, Sent)> = self
            .headers
            .iter()
            .map(|(name, value)| {
                let value = match value {
                    Secret::Literal(text) => Sent::Plain(text.clone()),
                    _ => Sent::Secret,
                };
                (name.clone(), value)
            })
            .collect();
        sent.push(("accept-encoding".into(), Sent::Plain("gzip".into())));
        sent
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
        let mut url = ask.url.clone();
        let method = if ask.search.is_some() { "POST" } else { "GET" };
        let (mut hops, mut conditional, mut renewed, mut moved) = (0, true, false, true);
        loop {
            let held = ask
                .held
                .filter(|held| conditional && *held.url == url)
                .map(|held| held.validators);
            self.turn.wait_for(self.line.wait(), &self.home, &url)?;
            let mut exchange = Exchange::begin(&self.line, (method, &url), held.is_some());
            let mut response = match self.send(&url, held, ask) {
                Ok(response) => response,
                Err(failure) => {
                    exchange.failed(&failure);
                    return Err(failure);
                }
            };
            let headers = headers_of(&response);
            let asked = Asked {
                validators: held,
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
            if !matches!(verdict, Verdict::Body) {
                drain(&mut response, status);
            }
            match verdict {
                Verdict::Body => {
                    let head = self.head(headers, url, moved && hops > 0, elapsed);
                    return Ok(Answer::Full(Box::new(self.full(head, response, exchange))));
                }
                Verdict::Empty => {
                    let head = self.head(headers, url, moved && hops > 0, elapsed);
                    return Ok(Answer::Empty(Box::new(head)));
                }
                Verdict::NotModified => {
                    let head = self.head(headers, url, moved && hops > 0, elapsed);
                    return Ok(Answer::NotModified(Box::new(head)));
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
        let mut request = self.request(url, None, Expect::Json)?;
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

    fn full(&self, head: Head, response: Response<ureq::Body>, exchange: Exchange) -> Full {
        let chunked = head
            .headers
            .list("transfer-encoding")
            .iter()
            .any(|coding| coding.eq_ignore_ascii_case("chunked"));
        let gzip = coding(&head.headers) == Ok(Coding::Gzip);
        let body = response.into_body();
        let proven_end = chunked || gzip || body.content_length().is_some();
        let plain = exchange.followed(body.into_with_config().limit(u64::MAX).reader());
        // Of several gzip members each is checked against its trailer, and garbage behind the last is an error.
        let body: Box<dyn Read> = if gzip {
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

    /// Sends one request; on a kept connection that turns out dead, once more on a new one.
    fn send(
        &mut self,
        url: &Url,
        validators: Option<&Validators>,
        ask: &Ask<'_>,
    ) -> Result<Response<ureq::Body>, Failure> {
        let search = ask.search.map(|template| fill(url, template));
        let url = search.as_ref().map_or(url, |search| &search.url);
        let mut request = self.request(url, validators, ask.expect)?;
        if search.is_some() {
            *request.method_mut() = Method::POST;
            let json = HeaderValue::from_static("application/json");
            request.headers_mut().insert("content-type", json);
        }
        for second in [false, true] {
            self.requests += 1;
            self.line.begin_request();
            let answered = match &search {
                None => self.agent.run(request.clone()),
                Some(search) => self
                    .agent
                    .run(request.clone().map(|()| search.body.clone())),
            };
            match answered {
                Ok(response) => return Ok(response),
                Err(error) => {
                    let state = self.line.conn_state();
                    let died =
                        state.reused && state.answered == 0 && !super::cause::is_stop(&error);
                    if second || !died {
                        return Err(failure_of(&error).at(shown(url)));
                    }
                    log::debug!(
                        "{}: the kept connection had died, once more on a new one",
                        shown(url)
                    );
                }
            }
        }
        Err(Failure::new(Kind::Failing, "the connection died twice").at(shown(url)))
    }

    fn request(
        &mut self,
        url: &Url,
        validators: Option<&Validators>,
        expect: Expect,
    ) -> Result<Request<()>, Failure> {
        let wrong =
            |_| Failure::new(Kind::Refused, "this is no URL that can be asked").at(shown(url));
        let mut request = Request::builder()
            .method(Method::GET)
            .uri(url.as_str())
            .body(())
            .map_err(wrong)?;
        let fields = request.headers_mut();
        fields.insert("accept-encoding", HeaderValue::from_static("gzip"));
        if expect == Expect::Json {
            fields.insert("accept", HeaderValue::from_static("application/json"));
        }
        if let Some(validators) = validators {
            insert(fields, "if-none-match", validators.etag.as_deref());
            insert(
                fields,
                "if-modified-since",
                validators.last_modified.as_deref(),
            );
        }
        if url.origin() == self.home.origin() {
            for (name, secret) in &self.headers {
                let value = resolve(secret)?;
                let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| {
                    Failure::new(Kind::Local, format!("{name} is no header field name"))
                })?;
                fields.insert(name, sensitive(value.expose())?);
            }
            let (agent, line) = (&self.agent, &self.line);
            let requests = &mut self.requests;
            let fetch = |url: &Url, credential: &HeaderValue, form: String| {
                *requests += 1;
                fetch_token(agent, line, url, credential, form)
            };
            if let Some((name, value)) = self.credential.field(self.line.wait().now(), fetch)? {
                let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| {
                    Failure::new(Kind::Local, format!("{name} is no header field name"))
                })?;
                fields.insert(name, value);
            }
        }
        Ok(request)
    }
}

fn insert(fields: &mut ureq::http::HeaderMap, name: &'static str, value: Option<&[u8]>) {
    if let Some(value) = value.and_then(|value| HeaderValue::from_bytes(value).ok()) {
        fields.insert(name, value);
    }
}

/// Asks a token endpoint (RFC 6749 4.4.2).
fn fetch_token(
    agent: &ureq::Agent,
    line: &Line,
    url: &Url,
    credential: &HeaderValue,
    form: String,
) -> Result<Vec<u8>, Failure> {
    let place = format!("token endpoint {}", shown(url));
    line.begin_request();
    let sent = agent
        .post(url.as_str())
        .header("authorization", credential)
        .header("content-type", "application/x-www-form-urlencoded")
        .header("accept", "application/json")
        .send(form);
    let mut response = sent.map_err(|error| failure_of(&error).at(&place))?;
    let status = response.status().as_u16();
    match status {
        200 => response
            .body_mut()
            .with_config()
            .limit(64 * 1024)
            .read_to_vec()
            .map_err(|error| failure_of(&error).at(&place)),
        400 | 401 | 403 => Err(Failure::new(
            Kind::Denied,
            format!("{status}: client id or secret are not accepted"),
        )
        .at(place)),
        429 | 500..=599 => Err(Failure::new(Kind::Failing, format!("{status}")).at(place)),
        _ => Err(Failure::new(Kind::Refused, format!("{status}")).at(place)),
    }
}

/// Where a redirect leads. Never from TLS to plain text; never for ever.
fn redirected(from: &Url, location: &str, hops: usize) -> Result<Url, Failure> {
    let fail = |reason: String| Err(Failure::new(Kind::Failing, reason).at(shown(from)));
    if hops > MAX_HOPS {
        return fail(format!("more than {MAX_HOPS} redirects"));
    }
    let Ok(mut to) = from.join(location) else {
        return fail("redirected to something that is no URL".into());
    };
    to.set_fragment(None);
    match (from.scheme(), to.scheme()) {
        ("https", "http") => fail(format!(
            "redirected from https to http ({}), which is not followed",
            shown(&to)
        )),
        (_, "http" | "https") if to.host_str().is_some_and(|host| !host.is_empty()) => Ok(to),
        // Not as it came: what cannot be taken apart may hold a secret anywhere.
        (_, scheme) => fail(format!(
            "redirected to a URL of the scheme {scheme:.20}, which cannot be followed"
        )),
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

fn headers_of(response: &Response<ureq::Body>) -> Headers {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_logged_of_a_url_holds_no_secret() {
        let url = Url::parse("https://user:pass@a.example:8443/p/q?token=secret&x=1#frag").unwrap();
        assert_eq!(shown(&url), "https://a.example:8443/p/q?token=…&x=…");
    }

    #[test]
    fn redirects_by_our_rules() {
        let from = Url::parse("https://a.example/x/y?q=1").unwrap();
        let table = [
            ("/z", Some("https://a.example/z")),
            ("z#part", Some("https://a.example/x/z")),
            ("//b.example/z", Some("https://b.example/z")),
            ("http://a.example/z", None),
            ("ftp://a.example/z", None),
            ("javascript:alert(1)", None),
            ("http:", None),
        ];
        for (location, expected) in table {
            let to = redirected(&from, location, 1)
                .ok()
                .map(|url| url.to_string());
            assert_eq!(to.as_deref(), expected, "{location}");
        }
        assert!(redirected(&from, "/z", MAX_HOPS + 1).is_err());
        let plain = Url::parse("http://a.example/").unwrap();
        assert_eq!(
            redirected(&plain, "https://a.example/", 1)
                .unwrap()
                .as_str(),
            "https://a.example/"
        );
    }
}
