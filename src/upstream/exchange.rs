//! What the log says of one request: one line at debug when its answer is over, body included.

use std::io::{self, Read};
use std::time::Duration;

use url::Url;

use super::line::Line;
use super::outcome::{Failure, Verdict};
use crate::clock::Mono;

/// One request and its answer. Logs itself when it is dropped: method, URL without secrets, status, what the cache was good
/// for, bytes at the socket, duration.
#[derive(Debug)]
pub(super) struct Exchange {
    line: Line,
    method: &'static str,
    url: String,
    conditional: bool,
    started: Mono,
    /// The line's byte counts, up and down, when it began.
    before: (u64, u64),
    answer: String,
}

impl Exchange {
    /// Begins; `conditional`: with validators.
    pub(super) fn begin(
        line: &Line,
        (method, url): (&'static str, &Url),
        conditional: bool,
    ) -> Self {
        Self {
            line: line.clone(),
            method,
            url: shown(url),
            conditional,
            started: line.wait().now(),
            before: (line.traffic().up(), line.traffic().down()),
            answer: "dropped".into(),
        }
    }

    /// How long it has been going on.
    pub(super) fn elapsed(&self) -> Duration {
        self.line.wait().now().since(self.started)
    }

    /// There was no answer.
    pub(super) fn failed(&mut self, failure: &Failure) {
        self.answer = format!("no answer ({})", failure.kind.word());
    }

    /// There was one, and this is what it means.
    pub(super) fn answered(&mut self, status: u16, verdict: &Verdict) {
        let meaning = match verdict {
            Verdict::NotModified => "cache revalidated",
            Verdict::Body | Verdict::Empty if self.conditional => "cache outdated",
            Verdict::Body | Verdict::Empty => "not in the cache",
            Verdict::Slice(_) => "the rest of what is held in part",
            Verdict::Unsatisfied(_) => "no rest of what is held in part",
            Verdict::Unconditionally(_) => "cache not usable, to be asked again",
            Verdict::Renew => "token refused, to be renewed",
            Verdict::Redirect { .. } => "redirect",
            Verdict::Failed(failure) => failure.kind.word(),
        };
        self.answer = format!("{status}, {meaning}");
    }

    /// The answer's body: while it is read, the exchange goes on.
    pub(super) fn followed<R: Read>(self, body: R) -> impl Read {
        Followed {
            body,
            _exchange: self,
        }
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        let traffic = self.line.traffic();
        log::debug!(
            "{} {}: {}, {} B up, {} B down, {:.3} s",
            self.method,
            self.url,
            self.answer,
            traffic.up().saturating_sub(self.before.0),
            traffic.down().saturating_sub(self.before.1),
            self.elapsed().as_secs_f64()
        );
    }
}

struct Followed<R> {
    body: R,
    _exchange: Exchange,
}

impl<R: Read> Read for Followed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.body.read(buffer)
    }
}

/// A URL as it may be logged: no userinfo, no query values.
#[must_use]
pub fn shown(url: &Url) -> String {
    let mut text = format!("{}{}", url.origin().ascii_serialization(), url.path());
    if url.query().is_some() {
        let names: Vec<String> = url
            .query_pairs()
            .map(|(name, _)| format!("{name}=…"))
            .collect();
        text.push('?');
        text.push_str(&names.join("&"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_logged_of_a_url_holds_no_secret() {
        let url = Url::parse("https://user:pass@a.example:8443/p/q?token=secret&x=1#frag").unwrap();
        assert_eq!(shown(&url), "https://a.example:8443/p/q?token=…&x=…");
    }
}
