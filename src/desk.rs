//! Where the door and the agent meet without touching: what the agent publishes, what was asked of it.
//!
//! The door answers from here at any time, in the middle of a pull too; it never pulls itself. The agent looks at the
//! wishes between steps.

mod answer;
mod document;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use self::answer::{
    BadShown, Departed, Explained, Interrupted, Late, Met, OnPage, Pages, RecordShown, StateShown,
};
pub use self::document::DocumentStatus;
use crate::clock::Mono;
use crate::inbox::RequestId;
use crate::pull::report::{Line, Tally};

/// Wishes that wait. Whoever leaves before an answer comes leaves the wish behind, so they have to be counted here.
const MAX_WISHES: usize = 64;

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
    /// What this device's own clock is worth.
    #[serde(default)]
    pub clock: ClockStatus,
    /// The sources by name.
    pub sources: BTreeMap<String, SourceStatus>,
    /// The documents by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub documents: BTreeMap<String, DocumentStatus>,
    /// Files below `documents/` that belong to no document of the config, by their path there.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub leftovers: Vec<String>,
    /// The hooks by name, as far as a running agent hears them.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub hooks: BTreeMap<String, HookStatus>,
}

/// What one hook has had: counts are since the agent started.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HookStatus {
    /// Payloads that were saved.
    pub saved: u64,
    /// Deliveries of events that were known.
    pub duplicates: u64,
    /// Requests that were refused, by why.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub refused: BTreeMap<String, u64>,
    /// When the last payload came, by the wall clock; of one before the start, as the latest 16 MiB of the inbox say.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub last: Option<String>,
    /// Payloads that wait to be processed, dead letters included.
    pub waiting: u64,
    /// What an operator should know.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub notes: Vec<String>,
}

/// Who knows what came to the hooks, asked when somebody else asks.
pub trait Hears: Send + Sync {
    /// How each hook stands.
    fn hooks(&self, now: Mono) -> BTreeMap<String, HookStatus>;
    /// Why events cannot be saved now, if they cannot.
    fn alarm(&self, now: Mono) -> Option<String>;
    /// What became of a request, as JSON; `None`: it is not known, or no more.
    fn request(&self, id: &str) -> Option<String>;
}

#[derive(Clone, Default)]
struct Ear(Option<Arc<dyn Hears>>);

impl std::fmt::Debug for Ear {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_some() { "Ear" } else { "deaf" })
    }
}

/// What this device's own clock is worth.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockStatus {
    /// `sure` or `unsure`.
    pub state: String,
    /// Why.
    pub reason: String,
    /// The latest instant that has passed for sure: certificates are never checked as of an earlier one.
    pub floor: String,
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
    /// When upstream was last seen to the end, by the wall clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_check: Option<String>,
    /// How many seconds ago that was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checked_ago: Option<u64>,
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
    /// How far incremental passes have come; absent for snapshots.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub course: Option<Course>,
    /// What `checked_ago`, `stale` and `due_in` are reckoned from whenever somebody asks.
    #[serde(skip)]
    pub moments: Moments,
}

/// How far the incremental passes of a source have come, and what its full ones found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Course {
    /// When the last complete pass started, by the upstream's clock: the next window starts at this less the lateness.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub watermark: Option<String>,
    /// The cursor that the next pass sends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// The configured lateness in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lateness: Option<u64>,
    /// New and changed records of which it is known how late they became visible.
    pub observed: u64,
    /// How many seconds late half of them were at most, to the next power of two.
    pub late_p50: u64,
    /// … 99 % of them.
    pub late_p99: u64,
    /// … all of them.
    pub late_max: u64,
    /// When the last complete full pass started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub full_at: Option<String>,
    /// When the next one is due.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub full_due: Option<String>,
    /// How many seconds the last one took.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub full_took: Option<u64>,
    /// What the last reconciles found that had been missed; the newest last.
    pub drift: Vec<DriftStatus>,
}

/// What one reconcile found that windows or cursors had missed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriftStatus {
    /// When it started, by the upstream's clock.
    pub at: String,
    /// Records that were new.
    pub added: u64,
    /// Records that had changed.
    pub changed: u64,
    /// Records that were gone.
    pub deleted: u64,
}

/// Instants of a source.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Moments {
    /// When upstream was last seen to the end.
    pub checked: Option<Mono>,
    /// How old the data may get until it is stale.
    pub stale_after: Duration,
    /// When it is asked next.
    pub due: Option<Mono>,
}

impl SourceStatus {
    /// Reckons what depends on when it is asked for.
    fn reckon(&mut self, now: Mono) {
        let age = self.moments.checked.map(|then| now.since(then));
        self.checked_ago = age.map(|age| age.as_secs());
        self.stale = age.is_none_or(|age| age > self.moments.stale_after);
        self.due_in = self.moments.due.map(|due| due.since(now).as_secs());
    }
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
    /// Compare everything, however the source is pulled otherwise.
    pub full: bool,
    /// What is missing upstream is gone: delete it.
    pub confirm: bool,
    /// Deliver everything known again instead of asking upstream.
    pub replay: bool,
    /// Instead of all this: something about payloads in the inbox.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inbox: Option<InboxWish>,
    /// Instead of all this: something about what is kept of a source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<StateWish>,
}

/// What is wanted of what is kept of a source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StateWish {
    /// What is known of one record.
    Explain {
        /// Of which source.
        source: String,
        /// Its key as a person writes it.
        key: String,
    },
    /// What is kept between passes.
    Show {
        /// Of which source.
        source: String,
    },
    /// Forget what vouches, so that the next pass reads and delivers everything again.
    Reset {
        /// Of which source.
        source: String,
    },
}

impl StateWish {
    /// Which source it is about.
    #[must_use]
    pub fn source(&self) -> &str {
        match self {
            Self::Explain { source, .. } | Self::Show { source } | Self::Reset { source } => source,
        }
    }
}

/// What is to become of payloads in the inbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InboxWish {
    /// Try these again.
    Retry(Vec<RequestId>),
    /// Try all dead letters again.
    RetryDead,
    /// Give these up.
    Drop(Vec<RequestId>),
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
    Report(Line),
    /// So many payloads in the inbox stand differently now.
    Inbox {
        /// How many.
        changed: usize,
    },
    /// What is known of a record: the object of `explain --json`.
    Explained(Box<Explained>),
    /// What is kept of a source: the object of `state show --json`.
    State(Box<StateShown>),
    /// What vouched for a source is forgotten.
    Reset {
        /// Which.
        source: String,
        /// How many records the next pass compares and delivers.
        records: u64,
    },
    /// The wish could not be carried out.
    Refused {
        /// Whether the one who asked can put it right: there is no such source.
        usage: bool,
        /// Why.
        reason: String,
    },
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
    ear: Ear,
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

    /// What is published, as it stands `now`.
    #[must_use]
    pub fn status(&self, now: Mono) -> Status {
        let mut status = self.lock().status.clone();
        status
            .sources
            .values_mut()
            .for_each(|source| source.reckon(now));
        let documents = status.documents.values_mut();
        documents.for_each(|document| document.reckon(now));
        let ear = self.lock().ear.clone();
        if let Some(ear) = ear.0 {
            status.hooks = ear.hooks(now);
            status.alarms.extend(ear.alarm(now));
        }
        status
    }

    /// From now on this is asked about hooks.
    pub fn hear_by(&self, ear: Arc<dyn Hears>) {
        self.lock().ear = Ear(Some(ear));
    }

    /// What became of a request to a hook, as JSON.
    #[must_use]
    pub fn request(&self, id: &str) -> Option<String> {
        let ear = self.lock().ear.clone();
        ear.0?.request(id)
    }

    /// Leaves a wish for the agent. `None`: too many are waiting already.
    #[must_use]
    pub fn wish(&self, wish: Wish) -> Option<WishId> {
        let mut inner = self.lock();
        if inner.wishes.len() >= MAX_WISHES {
            return None;
        }
        inner.last += 1;
        let id = inner.last;
        inner.wishes.push_back((id, wish));
        inner.answers.insert(id, VecDeque::new());
        Some(id)
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
        let id = desk.wish(Wish::default()).unwrap();
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

    #[test]
    fn wishes_do_not_pile_up() {
        let desk = Desk::default();
        for _ in 0..MAX_WISHES {
            let id = desk.wish(Wish::default()).unwrap();
            desk.leave(id);
        }
        assert_eq!(desk.wish(Wish::default()), None);
        assert!(desk.take().is_some());
        assert!(desk.wish(Wish::default()).is_some());
    }

    #[test]
    fn status_is_reckoned_when_it_is_asked_for() {
        let desk = Desk::default();
        let at = |seconds| Mono(Duration::from_secs(seconds));
        desk.publish(|status| {
            let source = status.sources.entry("a".into()).or_default();
            source.moments = Moments {
                checked: Some(at(100)),
                stale_after: Duration::from_secs(60),
                due: Some(at(130)),
            };
            status.sources.entry("never".into()).or_default();
        });
        let seen = |now| {
            let source = desk.status(now).sources["a"].clone();
            (source.checked_ago, source.stale, source.due_in)
        };
        assert_eq!(seen(at(110)), (Some(10), false, Some(20)));
        assert_eq!(seen(at(161)), (Some(61), true, Some(0)));
        let never = desk.status(at(161)).sources["never"].clone();
        assert_eq!(
            (never.checked_ago, never.stale, never.due_in),
            (None, true, None)
        );
    }
}
