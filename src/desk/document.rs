//! How a document stands, as the agent publishes it.

use serde::{Deserialize, Serialize};

use super::{Moments, Totals};
use crate::clock::Mono;

/// How one document stands.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct DocumentStatus {
    /// How the last turn ended; `never` before the first.
    pub outcome: String,
    /// And why, where there is something to say.
    pub reason: String,
    /// Failures in a row.
    pub failures: u32,
    /// Where the file is, absolute.
    pub path: String,
    /// Over its bytes; absent before the first.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub sha256: Option<String>,
    /// Its bytes.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub size: Option<u64>,
    /// When upstream was last seen, by the wall clock.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub last_check: Option<String>,
    /// How many seconds ago that was.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub checked_ago: Option<u64>,
    /// When its bytes changed last.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub last_change: Option<String>,
    /// The file is older than `stale_after`, or there is none.
    pub stale: bool,
    /// Seconds until it is asked for next; absent without a running agent.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub due_in: Option<u64>,
    /// Why then.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub due_why: String,
    /// It is being fetched, and how far that is.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub running: Option<Totals>,
    /// Since the agent started.
    pub totals: Totals,
    /// What an operator should know.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub notes: Vec<String>,
    /// What `checked_ago`, `stale` and `due_in` are reckoned from whenever somebody asks.
    #[serde(skip)]
    pub moments: Moments,
}

impl DocumentStatus {
    /// Reckons what depends on when it is asked for.
    pub(super) fn reckon(&mut self, now: Mono) {
        let age = self.moments.checked.map(|then| now.since(then));
        self.checked_ago = age.map(|age| age.as_secs());
        self.stale = age.is_none_or(|age| age > self.moments.stale_after);
        self.due_in = self.moments.due.map(|due| due.since(now).as_secs());
    }
}
