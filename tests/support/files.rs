//! An agent with one document, `fw`, at the upstream's `/fw.bin`, kept as `fw.bin` unless said otherwise.

use std::path::PathBuf;

use gleaner::agent::Order;
use gleaner::desk::DocumentStatus;
use gleaner::pull::report::Report;

use super::agent::{Gateway, Plan};
use super::upstream::{Answer, Request, Upstream};

/// What a test says of its document.
pub fn document(upstream: &Upstream, lines: &str) -> Gateway {
    plan(upstream, lines).start()
}

/// The same, to be told more of the agent.
pub fn plan(upstream: &Upstream, lines: &str) -> Plan {
    Gateway::of(upstream).more(&section(lines))
}

/// The section of the document.
pub fn section(lines: &str) -> String {
    let has = |word: &str| {
        lines.lines().any(|line| {
            line.split('=')
                .next()
                .is_some_and(|name| name.trim() == word)
        })
    };
    let file = if has("file") {
        ""
    } else {
        "file = \"fw.bin\"\n"
    };
    let path = if has("path") || has("url") {
        ""
    } else {
        "path = \"fw.bin\"\n"
    };
    let upstream = if has("url") {
        ""
    } else {
        "upstream = \"up\"\n"
    };
    format!("[document.fw]\n{upstream}{file}{path}{lines}\n")
}

impl Gateway {
    /// What `gleaner sync fw` does.
    pub fn fetch(&mut self) -> Report {
        self.fetch_as(Order {
            insist: true,
            ..Order::default()
        })
    }

    pub fn fetch_as(&mut self, order: Order) -> Report {
        let report = self.agent().fetch("fw", order, &mut |_| ());
        assert_eq!(report.source, "fw");
        report
    }

    /// `changed`, `unchanged`, `not-ours`, …
    pub fn fetched(&mut self) -> &'static str {
        self.fetch().outcome.word()
    }

    /// Where a published file is.
    pub fn file(&self, name: &str) -> PathBuf {
        self.state().join("documents").join(name)
    }

    /// What is published as `fw.bin`.
    pub fn content(&self) -> Option<Vec<u8>> {
        std::fs::read(self.file("fw.bin")).ok()
    }

    /// Where its download is.
    pub fn part(&self) -> PathBuf {
        self.file(".part/fw")
    }

    /// Bytes of its download.
    pub fn part_len(&self) -> Option<u64> {
        std::fs::metadata(self.part()).ok().map(|meta| meta.len())
    }

    /// How it stands, as `status` shows it.
    pub fn document_status(&mut self) -> DocumentStatus {
        let now = self.now();
        let agent = self.agent();
        agent.publish();
        agent.desk().status(now).documents["fw"].clone()
    }
}

/// Bytes that repeat nowhere near, another sequence for each seed.
pub fn bytes(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut out = Vec::with_capacity(length + 8);
    while out.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        out.extend(state.to_le_bytes());
    }
    out.truncate(length);
    out
}

/// Where a `Range` of the form `bytes=N-` starts.
pub fn range_start(request: &Request) -> Option<usize> {
    let range = request.header("range")?;
    range
        .strip_prefix("bytes=")?
        .strip_suffix('-')?
        .parse()
        .ok()
}

/// What a good server does with a file of this version: conditional requests and ranges.
pub fn serve(request: &Request, tag: &str, body: &[u8]) -> Answer {
    if request.header("if-none-match") == Some(tag) {
        return Answer::not_modified().etag(tag);
    }
    let fits = request
        .header("if-range")
        .is_none_or(|theirs| theirs == tag);
    match range_start(request).filter(|_| fits) {
        Some(from) if from < body.len() => Answer::status(206)
            .etag(tag)
            .header(
                "Content-Range",
                &format!("bytes {from}-{}/{}", body.len() - 1, body.len()),
            )
            .body(&body[from..]),
        Some(_) => Answer::status(416).header("Content-Range", &format!("bytes */{}", body.len())),
        None => Answer::ok().etag(tag).body(body),
    }
}

impl Gateway {
    /// Seconds until it is asked for next, once it has been: as the agent that stays sees it.
    pub fn due_in(&mut self) -> u64 {
        self.agent().step();
        self.document_status().due_in.unwrap()
    }
}
