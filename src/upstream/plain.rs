//! One exchange without policy: a GET goes out, and whatever status comes back is an answer. What it means, whether it is
//! kept and where a redirect leads is decided elsewhere ([`crate::cache`]).
//!
//! A configured upstream's headers and credential go to its own origin alone.

use std::fmt;
use std::io::{self, Read};

use flate2::read::MultiGzDecoder;
use ureq::http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response};
use url::Url;

use super::auth::{Credential, resolve, sensitive};
use super::client::headers_of;
use super::conditional::Sent;
use super::exchange::shown;
use super::failure::failure_of;
use super::headers::Headers;
use super::limit::Limited;
use super::line::Line;
use super::outcome::{Coding, Failure, Kind, coding};
use super::redirect::redirected;
use super::token::fetch_token;
use crate::config::{Secret, Upstream};

/// Asks, one exchange at a time.
pub struct Plain {
    agent: ureq::Agent,
    line: Line,
    home: Url,
    credential: Credential,
    headers: Vec<(String, Secret)>,
    requests: u64,
}

/// A request field of the asker's own.
#[derive(Clone, PartialEq, Eq)]
pub struct Field {
    /// Its name, lower case.
    pub name: String,
    /// Its value.
    pub value: Vec<u8>,
}

impl fmt::Debug for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: …", self.name)
    }
}

/// An answer of any status.
pub struct PlainAnswer {
    /// Its status.
    pub status: u16,
    /// Its fields.
    pub headers: Headers,
    /// Its body: limited, and decoded if it was coded in gzip that this side had asked for. An end without error is the
    /// sender's own end.
    pub body: Box<dyn Read>,
    /// Whether the framing proves where the body ends: a length, chunks or gzip's trailer do, a closing connection does not.
    pub proven_end: bool,
}

impl fmt::Debug for PlainAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PlainAnswer")
            .field("status", &self.status)
            .field("headers", &self.headers)
            .field("proven_end", &self.proven_end)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Plain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plain")
            .field("home", &shown(&self.home))
            .finish_non_exhaustive()
    }
}

impl Plain {
    pub(super) fn new(upstream: &Upstream, agent: ureq::Agent, line: Line) -> Self {
        Self {
            agent,
            line,
            home: upstream.base.clone(),
            credential: Credential::new(upstream.auth.clone()),
            headers: upstream.headers.clone(),
            requests: 0,
        }
    }

    /// What its connections share: byte counts, the wait, the clock.
    #[must_use]
    pub fn line(&self) -> &Line {
        &self.line
    }

    /// Requests sent so far.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.requests
    }

    /// Whether a 401 may be answered by asking once more after [`Plain::renew`].
    #[must_use]
    pub fn renewable(&self) -> bool {
        self.credential.renewable()
    }

    /// Forgets a token, so that the next exchange fetches a new one.
    pub fn renew(&mut self) {
        self.credential.forget();
    }

    /// Whether `url` is where the upstream's headers and credential go.
    #[must_use]
    pub fn is_home(&self, url: &Url) -> bool {
        url.origin() == self.home.origin()
    }

    /// The upstream's own request fields for `url`, as a variant may know them.
    #[must_use]
    pub fn sent(&self, url: &Url) -> Vec<(String, Sent)> {
        let known = |(name, value): &(String, Secret)| {
            let value = match value {
                Secret::Literal(text) => Sent::Plain(text.clone()),
                _ => Sent::Secret,
            };
            (name.to_ascii_lowercase(), value)
        };
        let headers = self.headers.iter().filter(|_| self.is_home(url));
        headers.map(known).collect()
    }

    /// Sends `fields` to `url`, and takes at most `limit` bytes of decoded body. A kept connection that turns out dead is
    /// replaced once. gzip is asked for, and undone, unless `fields` say what may be sent.
    ///
    /// # Errors
    /// There is no answer, or one that cannot be HTTP.
    pub fn ask(&mut self, url: &Url, fields: &[Field], limit: u64) -> Result<PlainAnswer, Failure> {
        let as_it_comes = fields.iter().any(|field| field.name == "accept-encoding");
        let request = self.request(url, fields)?;
        let started = self.line.wait().now();
        let response = self.send(url, &request)?;
        let status = response.status().as_u16();
        let elapsed = self.line.wait().now().since(started);
        log::debug!(
            "GET {}: {status}, {:.3} s",
            shown(url),
            elapsed.as_secs_f64()
        );
        let headers = headers_of(&response);
        let chunked = headers
            .list("transfer-encoding")
            .iter()
            .any(|coding| coding.eq_ignore_ascii_case("chunked"));
        let gzip = !as_it_comes && has_body(status) && coding(&headers) == Ok(Coding::Gzip);
        let body = response.into_body();
        // ureq knows no length of a body that is stated to be empty.
        let is_counted = headers.bytes("content-length").is_some();
        let proven_end = chunked || gzip || is_counted || !has_body(status);
        let plain = body.into_with_config().limit(u64::MAX).reader();
        let body: Box<dyn Read> = match (has_body(status), gzip) {
            // A kept connection must not be waited on for a body that never comes.
            (false, _) => Box::new(io::empty()),
            (true, true) => Box::new(Limited::new(MultiGzDecoder::new(plain), limit)),
            (true, false) => Box::new(Limited::new(plain, limit)),
        };
        Ok(PlainAnswer {
            status,
            headers,
            body,
            proven_end,
        })
    }

    /// Where a redirect from `from` leads, after `hops` of them. Never from TLS to plain text; never for ever.
    ///
    /// # Errors
    /// It leads nowhere, or where it is not followed.
    pub fn redirected(from: &Url, location: &str, hops: usize) -> Result<Url, Failure> {
        redirected(from, location, hops)
    }

    fn send(&mut self, url: &Url, request: &Request<()>) -> Result<Response<ureq::Body>, Failure> {
        let mut second = false;
        loop {
            self.requests += 1;
            self.line.begin_request();
            match self.agent.run(request.clone()) {
                Ok(response) => return Ok(response),
                Err(error) => {
                    let state = self.line.conn_state();
                    let died =
                        state.reused && state.answered == 0 && !super::cause::is_stop(&error);
                    if second || !died {
                        return Err(failure_of(&error).at(shown(url)));
                    }
                    second = true;
                }
            }
        }
    }

    fn request(&mut self, url: &Url, fields: &[Field]) -> Result<Request<()>, Failure> {
        let wrong =
            |_| Failure::new(Kind::Refused, "this is no URL that can be asked").at(shown(url));
        let mut request = Request::builder()
            .method(Method::GET)
            .uri(url.as_str())
            .body(())
            .map_err(wrong)?;
        let into = request.headers_mut();
        into.insert("accept-encoding", HeaderValue::from_static("gzip"));
        if self.is_home(url) {
            for (name, secret) in &self.headers {
                into.insert(name_of(name)?, sensitive(resolve(secret)?.expose())?);
            }
            let (agent, line) = (&self.agent, &self.line);
            let requests = &mut self.requests;
            let fetch = |url: &Url, credential: &HeaderValue, form: String| {
                *requests += 1;
                fetch_token(agent, line, url, credential, form)
            };
            if let Some((name, value)) = self.credential.field(self.line.wait().now(), fetch)? {
                into.insert(name_of(&name)?, value);
            }
        }
        put(into, fields)?;
        Ok(request)
    }
}

/// The asker's own fields take the place of those that would be sent anyway.
fn put(into: &mut HeaderMap, fields: &[Field]) -> Result<(), Failure> {
    for field in fields {
        into.remove(name_of(&field.name)?);
    }
    for field in fields {
        let mut value = HeaderValue::from_bytes(&field.value).map_err(|_| {
            let reason = format!(
                "the value of {} is none that a header can carry",
                field.name
            );
            Failure::new(Kind::Local, reason)
        })?;
        value.set_sensitive(true);
        into.append(name_of(&field.name)?, value);
    }
    Ok(())
}

fn name_of(name: &str) -> Result<HeaderName, Failure> {
    HeaderName::from_bytes(name.as_bytes())
        .map_err(|_| Failure::new(Kind::Local, format!("{name} is no header field name")))
}

/// Whether an answer of this status to a GET has a body (RFC 9112 6.3).
fn has_body(status: u16) -> bool {
    !matches!(status, 100..=199 | 204 | 304)
}
