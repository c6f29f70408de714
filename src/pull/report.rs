//! What a pass did, in numbers and in one word.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::collection::Latest;
use crate::upstream::outcome::{Failure, Kind};

/// What a pass has done so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// Pages, 304s included.
    pub pages: u64,
    /// Requests, redirects and second tries included.
    pub requests: u64,
    /// 304s.
    pub not_modified: u64,
    /// Records that were not known.
    pub added: u64,
    /// Records that differ from what was delivered last.
    pub changed: u64,
    /// Records that are gone.
    pub deleted: u64,
    /// Records that are the same.
    pub unchanged: u64,
    /// Records that are not as the config says and were skipped.
    pub bad: u64,
    /// Records that came twice in one answer.
    pub duplicates: u64,
    /// Bytes sent, at the socket.
    pub bytes_up: u64,
    /// Bytes received, at the socket.
    pub bytes_down: u64,
    /// Bytes that 304s spared: what fetching those pages took last time, less what the 304s took.
    pub bytes_saved: u64,
}

impl Tally {
    /// Records that were looked at or that a 304 vouched for.
    #[must_use]
    pub fn records(&self) -> u64 {
        self.added + self.changed + self.unchanged + self.bad
    }

    /// Whether a sink was told anything.
    #[must_use]
    pub fn delivered(&self) -> u64 {
        self.added + self.changed + self.deleted
    }
}

/// How a pass ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Complete, and something changed.
    Changed,
    /// Complete, and nothing changed.
    Unchanged,
    /// Complete, but so much is missing that a person has to say whether it is gone.
    NeedsConfirmation {
        /// Records known that the listing did not have.
        missing: u64,
        /// Records known.
        known: u64,
    },
    /// Not complete.
    Failed(Failure),
}

impl Outcome {
    /// One word for logs, `status` and `--json`.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Changed => "changed",
            Self::Unchanged => "unchanged",
            Self::NeedsConfirmation { .. } => "needs-confirmation",
            Self::Failed(failure) => failure.kind.word(),
        }
    }

    /// Why, in words; empty where the word says it all.
    #[must_use]
    pub fn reason(&self) -> String {
        match self {
            Self::Changed | Self::Unchanged => String::new(),
            Self::NeedsConfirmation { missing, known } => format!(
                "{missing} of {known} records are missing upstream, more than `max_loss` allows; nothing was deleted. If that is right: gleaner reconcile NAME --confirm"
            ),
            Self::Failed(failure) => failure.reason.clone(),
        }
    }

    /// Whether upstream was seen as it is now, to the end.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        !matches!(self, Self::Failed(_))
    }

    /// Whether the pass was told to stop.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        matches!(self, Self::Failed(failure) if failure.kind == Kind::Stopped)
    }
}

/// One pass, over.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// The source's name.
    pub source: String,
    /// What kind of pass it was.
    pub pull: String,
    /// How it ended.
    pub outcome: Outcome,
    /// In numbers.
    pub tally: Tally,
    /// How long it took.
    pub elapsed: Duration,
    /// How long the answer counts as fresh.
    pub fresh_for: Duration,
    /// The pass had been started by an earlier process, so that its first pages may be old news.
    pub resumed: bool,
    /// Where the next pass goes on, for the agent to remember.
    pub latest: Option<Latest>,
    /// What an operator should know beside the outcome.
    pub notes: Vec<String>,
}

/// A report as `sync --json` prints it, one object a line, and as the control socket tells it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// The source's name.
    pub source: String,
    /// How it is pulled.
    pub pull: String,
    /// [`Outcome::word`].
    pub outcome: String,
    /// Why, in words; empty where the word says it all.
    pub reason: String,
    /// In numbers.
    #[serde(flatten)]
    pub tally: Tally,
    /// How long it took, to the millisecond.
    pub seconds: f64,
    /// What an operator should know beside the outcome.
    pub notes: Vec<String>,
}

impl Report {
    /// A pass that ended so, with nothing counted yet.
    #[must_use]
    pub fn new(source: &str, outcome: Outcome) -> Self {
        Self {
            source: source.to_owned(),
            pull: String::new(),
            outcome,
            tally: Tally::default(),
            elapsed: Duration::ZERO,
            fresh_for: Duration::ZERO,
            resumed: false,
            latest: None,
            notes: Vec::new(),
        }
    }

    /// A pass that could not even start.
    #[must_use]
    pub fn failed(source: &str, failure: Failure) -> Self {
        Self::new(source, Outcome::Failed(failure))
    }

    /// As other programs read it.
    #[must_use]
    pub fn line(&self) -> Line {
        Line {
            source: self.source.clone(),
            pull: self.pull.clone(),
            outcome: self.outcome.word().into(),
            reason: self.reason(),
            tally: self.tally,
            seconds: (self.elapsed.as_secs_f64() * 1000.0).round() / 1000.0,
            notes: self.notes.clone(),
        }
    }

    /// Why it ended so, with the source's name where a command is to be copied.
    #[must_use]
    pub fn reason(&self) -> String {
        self.outcome
            .reason()
            .replace(" NAME ", &format!(" {} ", self.source))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let t = &self.tally;
        write!(
            f,
            "{}: {}, {} added, {} changed, {} deleted, {} unchanged; {} requests, {} B up, {} B down, {:.1} s",
            self.source,
            self.outcome.word(),
            t.added,
            t.changed,
            t.deleted,
            t.unchanged,
            t.requests,
            t.bytes_up,
            t.bytes_down,
            self.elapsed.as_secs_f64()
        )?;
        let reason = self.reason();
        if reason.is_empty() {
            Ok(())
        } else {
            write!(f, " ({reason})")
        }
    }
}
