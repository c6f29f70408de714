//! Where the door and the agent meet without touching: what the agent publishes, what was asked of it.
//!
//! The door answers from here at any time, in the middle of a pull too; it never pulls itself. The agent looks at the
//! wishes between steps.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use crate::pull::report::Tally;

/// What the agent publishes, as `status --json` prints it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// `[agent] id`.
    pub agent: String,
    /// This program's version.
    pub version: String,
    /// The running agent; absent where the state was read without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// What a person should look at: damage, an unusable state directory, a config that was not taken.
    pub alarms: Vec<String>,
    /// The sources by name.
    pub sources: BTreeMap<String, SourceStatus>,
}

/// How one source stands.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SourceStatus {
    /// How the last pass ended; `never` before the first.
    pub outcome: String,
    /// And why, where there is something to say.
    pub reason: String,
    /// Since when failures are in a row, how many.
    pub failures: u32,
    /// Records known.
    pub records: u64,
    /// When upstream was last seen to the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_check: Option<String>,
    /// When the last complete pass that changed something, or the first one, started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_change: Option<String>,
    /// The data is older than `stale_after`.
    pub stale: bool,
    /// Seconds until it is asked next; absent without a running agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub due_in: Option<u64>,
    /// Why then.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub due_why: String,
    /// A pass is going on, and how far it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub running: Option<Totals>,
    /// Since the agent started.
    pub totals: Totals,
    /// What an operator should know.
    pub notes: Vec<String>,
}

/// Sums over passes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Passes.
    pub passes: u64,
    /// Requests.
    pub requests: u64,
    /// 304s.
    pub not_modified: u64,
    /// Records added.
    pub added: u64,
    /// Records changed.
    pub changed: u64,
    /// Records deleted.
    pub deleted: u64,
    /// Records unchanged.
    pub unchanged: u64,
    /// Bytes sent.
    pub bytes_up: u64,
    /// Bytes received.
    pub bytes_down: u64,
    /// Bytes that 304s spared.
    pub bytes_saved: u64,
}

impl Totals {
    /// Adds a pass.
    pub fn add(&mut self, tally: &Tally) {
        let sums = [
            (&mut self.requests, tally.requests),
            (&mut self.not_modified, tally.not_modified),
            (&mut self.added, tally.added),
            (&mut self.changed, tally.changed),
            (&mut self.deleted, tally.deleted),
            (&mut self.unchanged, tally.unchanged),
            (&mut self.bytes_up, tally.bytes_up),
            (&mut self.bytes_down, tally.bytes_down),
            (&mut self.bytes_saved, tally.bytes_saved),
        ];
        for (sum, more) in sums {
            *sum = sum.saturating_add(more);
        }
        self.passes = self.passes.saturating_add(1);
    }
}

/// What somebody asks the agent to do now.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Wish {
    /// Which sources; none: all.
    pub sources: Vec<String>,
    /// Compare, and change nothing.
    pub dry_run: bool,
    /// Only ask for the first page.
    pub probe: bool,
    /// What is missing upstream is gone: delete it.
    pub confirm: bool,
    /// Deliver everything known again instead of asking upstream.
    pub replay: bool,
}

/// What comes back while a wish is carried out, one JSON object a line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// How far a source is.
    Progress {
        /// Which.
        source: String,
        /// How far.
        tally: Totals,
    },
    /// A source is done: the object of `sync --json`.
    Report(serde_json::Value),
    /// The wish could not be carried out.
    Refused(String),
    /// The wish is carried out. Without this line the answer was cut.
    Done,
}

/// A wish's number.
pub type WishId = u64;

#[derive(Debug, Default)]
struct Inner {
    status: Status,
    wishes: VecDeque<(WishId, Wish)>,
    answers: BTreeMap<WishId, VecDeque<String>>,
    last: WishId,
}

/// The desk; a handle, cheap to clone. No lock is ever held across a wait.
#[derive(Debug, Clone, Default)]
pub struct Desk(Arc<Mutex<Inner>>);

impl Desk {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes what is published.
    pub fn publish(&self, change: impl FnOnce(&mut Status)) {
        change(&mut self.lock().status);
    }

    /// What is published.
    #[must_use]
    pub fn status(&self) -> Status {
        self.lock().status.clone()
    }

    /// Leaves a wish for the agent.
    pub fn wish(&self, wish: Wish) -> WishId {
        let mut inner = self.lock();
        inner.last += 1;
        let id = inner.last;
        inner.wishes.push_back((id, wish));
        inner.answers.insert(id, VecDeque::new());
        id
    }

    /// The agent takes the oldest wish.
    #[must_use]
    pub fn take(&self) -> Option<(WishId, Wish)> {
        self.lock().wishes.pop_front()
    }

    /// Tells whoever wished. Nobody may be listening any more: then it is dropped. A progress that was not fetched yet is
    /// replaced by a later one, so a slow listener costs no memory.
    pub fn tell(&self, id: WishId, event: &Event) {
        let Ok(line) = serde_json::to_string(event) else {
            return;
        };
        if let Some(lines) = self.lock().answers.get_mut(&id) {
            let progress = "{\"progress\"";
            if line.starts_with(progress)
                && lines.back().is_some_and(|last| last.starts_with(progress))
            {
                lines.pop_back();
            }
            lines.push_back(line);
        }
    }

    /// Whether there is something to fetch for a wish.
    #[must_use]
    pub fn has_news(&self, id: WishId) -> bool {
        self.lock()
            .answers
            .get(&id)
            .is_some_and(|lines| !lines.is_empty())
    }

    /// The door fetches what there is to tell.
    #[must_use]
    pub fn fetch(&self, id: WishId) -> Vec<String> {
        self.lock()
            .answers
            .get_mut(&id)
            .map(|lines| lines.drain(..).collect())
            .unwrap_or_default()
    }

    /// Nobody listens to this wish any more. It is carried out all the same.
    pub fn leave(&self, id: WishId) {
        self.lock().answers.remove(&id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_listener_costs_no_memory() {
        let desk = Desk::default();
        let id = desk.wish(Wish::default());
        for _ in 0..1000 {
            desk.tell(
                id,
                &Event::Progress {
                    source: "a".into(),
                    tally: Totals::default(),
                },
            );
        }
        desk.tell(id, &Event::Done);
        assert_eq!(desk.fetch(id).len(), 2);
        desk.leave(id);
        desk.tell(id, &Event::Done);
        assert!(desk.fetch(id).is_empty());
    }
}
