//! How one record stands, and by which pass it was met last: concluded from what is kept anyway. Pure.
//!
//! Nothing is written when a record is merely met again, so there is no note of it. But a complete listing deletes what it
//! does not meet: what is still there was met, unless the listing proved no absence.

use std::time::Duration;

use super::plan::{Full, Plan};
use super::progress::Progress;
use crate::clock::Timestamp;
use crate::config::Pull;

/// The time upstream is told a second early, and how long a pass took is kept in whole seconds.
const SLACK: Duration = Duration::from_secs(2);

/// How a record stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Known, and in `data.db`.
    Present,
    /// Known, but its row is not in `data.db`: somebody took it away.
    Removed,
    /// In `data.db`, but not known: somebody put it there, or it was delivered just before a cut.
    Stray,
    /// The last pass that had it skipped it as bad, and no earlier form is known.
    Bad,
    /// It was here, and is gone.
    Gone,
    /// Never met, as far as is remembered.
    NeverSeen,
}

impl Standing {
    /// Concludes. `known`: to the store; `row`: whether `data.db` has one, and if it is marked as deleted; `gone`: a deletion
    /// is remembered; `bad`: it is among the bad records of the last complete pass.
    #[must_use]
    pub fn of(known: bool, row: Option<bool>, gone: bool, bad: bool) -> Self {
        match (known, row) {
            (true, Some(false)) => Self::Present,
            (true, None) => Self::Removed,
            (true, Some(true)) | (false, Some(false)) => Self::Stray,
            (false, _) if bad => Self::Bad,
            (false, Some(true)) => Self::Gone,
            (false, None) if gone => Self::Gone,
            (false, None) => Self::NeverSeen,
        }
    }

    /// One word, for `--json`.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Present => "present",
            Self::Removed => "removed",
            Self::Stray => "stray",
            Self::Bad => "bad",
            Self::Gone => "gone",
            Self::NeverSeen => "never-seen",
        }
    }
}

/// What tells by which pass a known record was met last.
#[derive(Debug, Clone, Copy)]
pub struct Evidence<'a> {
    /// How its source is pulled.
    pub pull: &'a Pull,
    /// How far its incremental passes have come.
    pub progress: &'a Progress,
    /// When the version that is here was fetched.
    pub fetched: Option<Timestamp>,
    /// Its own update time.
    pub updated: Option<Timestamp>,
    /// A page that is vouched for had it when it was read.
    pub on_page: bool,
    /// The interrupted pass has met it: what that asks for, and when it started.
    pub interrupted: Option<(&'a Plan, Timestamp)>,
    /// When upstream was last seen to the end.
    pub last_check: Option<Timestamp>,
    /// What the last complete listing did not have was deleted: it was neither blind nor does it wait for a word.
    pub proven: bool,
}

impl Evidence<'_> {
    /// What delivered the version that is here: `pass`, unless that was behind the last complete one. Then it may as well
    /// have been an event, or a pass that was not complete.
    fn delivered(&self, pass: &'static str) -> Option<(&'static str, Timestamp)> {
        let at = self.fetched?;
        let is_behind = self.last_check.is_none_or(|check| at > check);
        Some((if is_behind { UNKNOWN } else { pass }, at))
    }
}

/// Nothing tells which.
const UNKNOWN: &str = "unknown";

fn latest<const N: usize>(
    all: [Option<(&'static str, Timestamp)>; N],
) -> Option<(&'static str, Timestamp)> {
    all.into_iter().flatten().max_by_key(|(_, at)| *at)
}

/// The pass that met a record last, in one word, and when; `None` if nothing tells.
#[must_use]
pub fn met(evidence: &Evidence<'_>) -> Option<(&'static str, Timestamp)> {
    if let Some((plan, started)) = evidence.interrupted {
        return Some((word(plan), started));
    }
    let progress = evidence.progress;
    let incremental = match evidence.pull {
        Pull::None => return evidence.fetched.map(|at| ("hook", at)),
        Pull::Snapshot => {
            let proven = evidence.on_page || evidence.proven;
            let checked = evidence.last_check.filter(|_| proven);
            let checked = checked.map(|at| ("snapshot", at));
            return latest([evidence.delivered("snapshot"), checked]);
        }
        Pull::Window(_) => "window",
        Pull::Cursor(_) => "cursor",
    };
    let is_listed = progress.origin.is_none_or(|(_, origin)| {
        evidence
            .updated
            .is_some_and(|updated| updated.as_millisecond() >= origin.as_millisecond())
    });
    let by_full = progress
        .full_at
        .filter(|_| is_listed && evidence.proven && progress.unconfirmed.is_none());
    let last_was_full = progress.full_at.is_some() && progress.full_at == progress.watermark;
    let by_page = progress.watermark.filter(|_| evidence.on_page);
    let by_page = by_page.map(|at| (if last_was_full { "full" } else { incremental }, at));
    let delivered = evidence.delivered(incremental);
    // What was fetched before the last full pass began was met by that one; of what came later it is the delivery that tells.
    let by_full = by_full.map(|at| ("full", at));
    latest([delivered, by_full, by_page]).map(|(pass, at)| match progress.full_at {
        _ if pass == UNKNOWN => (pass, at),
        // During the last full pass, or before anything else was complete, no window or cursor delivered.
        Some(full) if is_during(at, full, progress) => ("full", at),
        None if progress.owed.is_some() => (UNKNOWN, at),
        None => ("full", at),
        Some(_) => (pass, at),
    })
}

/// Whether a delivery, told by our clock, fell into the last full pass, told by the upstream's. Where the two disagree the
/// kind of pass may be wrong by that much; nothing is decided by it.
fn is_during(at: Timestamp, full: Timestamp, progress: &Progress) -> bool {
    let took = progress.full_took.unwrap_or_default() + SLACK;
    at >= full && full.saturating_add(took).is_ok_and(|end| at <= end)
}

/// What kind of pass it is, for people.
#[must_use]
pub fn word(plan: &Plan) -> &'static str {
    match plan {
        Plan::Window { .. } => "window",
        Plan::Cursor { .. } => "cursor",
        Plan::Full {
            why: Full::Snapshot,
            ..
        } => "snapshot",
        Plan::Full { .. } => "full",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn how_it_stands() {
        use Standing::*;
        let table = [
            // known, row (marked), gone, bad
            (true, Some(false), false, false, Present),
            (true, Some(false), true, true, Present),
            (true, None, false, false, Removed),
            (true, Some(true), false, false, Stray),
            (false, Some(false), false, false, Stray),
            (false, None, true, true, Bad),
            (false, None, false, true, Bad),
            (false, Some(true), false, false, Gone),
            (false, None, true, false, Gone),
            (false, None, false, false, NeverSeen),
        ];
        for (known, row, gone, bad, expected) in table {
            let standing = Standing::of(known, row, gone, bad);
            assert_eq!(standing, expected, "{known} {row:?} {gone} {bad}");
        }
    }

    fn evidence<'a>(pull: &'a Pull, progress: &'a Progress) -> Evidence<'a> {
        Evidence {
            pull,
            progress,
            fetched: Some(at(100)),
            updated: Some(at(90)),
            on_page: false,
            interrupted: None,
            last_check: Some(at(500)),
            proven: true,
        }
    }

    #[test]
    fn a_snapshot_meets_what_it_does_not_delete() {
        let progress = Progress::default();
        let of = |on_page, proven| {
            met(&Evidence {
                on_page,
                proven,
                ..evidence(&Pull::Snapshot, &progress)
            })
        };
        assert_eq!(of(false, true), Some(("snapshot", at(500))));
        assert_eq!(of(true, false), Some(("snapshot", at(500))));
        assert_eq!(of(false, false), Some(("snapshot", at(100))));
        let plan = Plan::Full {
            why: Full::Snapshot,
            since: None,
        };
        let interrupted = Evidence {
            interrupted: Some((&plan, at(600))),
            ..evidence(&Pull::Snapshot, &progress)
        };
        assert_eq!(met(&interrupted), Some(("snapshot", at(600))));
        let by_event = Evidence {
            fetched: Some(at(501)),
            ..evidence(&Pull::Snapshot, &progress)
        };
        assert_eq!(met(&by_event), Some(("unknown", at(501))));
        let by_hook = evidence(&Pull::None, &progress);
        assert_eq!(met(&by_hook), Some(("hook", at(100))));
    }

    fn cursor() -> Pull {
        Pull::Cursor(crate::config::Cursor {
            from: crate::config::CursorFrom::Header("etag".into()),
            param: crate::config::Param {
                name: "since".into(),
                template: "{}".into(),
            },
            first: None,
        })
    }

    #[test]
    fn full_passes_and_the_ones_between() {
        let pull = cursor();
        let progress = |full: Option<i64>, watermark: i64| Progress {
            full_at: full.map(at),
            full_took: full.map(|_| Duration::from_secs(10)),
            watermark: Some(at(watermark)),
            ..Progress::default()
        };
        let (early, late) = (progress(Some(50), 400), progress(Some(300), 400));
        let (last_full, none) = (progress(Some(400), 400), Progress::default());
        let table = [
            // progress, fetched, on a page, proven, expected
            (&early, 100, false, true, ("cursor", 100)),
            (&early, 55, false, true, ("full", 55)),
            (&early, 100, true, true, ("cursor", 400)),
            (&late, 100, false, true, ("full", 300)),
            (&late, 100, false, false, ("cursor", 100)),
            (&last_full, 100, true, true, ("full", 400)),
            (&none, 100, false, true, ("full", 100)),
        ];
        for (progress, fetched, on_page, proven, expected) in table {
            let found = met(&Evidence {
                fetched: Some(at(fetched)),
                on_page,
                proven,
                ..evidence(&pull, progress)
            });
            let expected = (expected.0, at(expected.1));
            assert_eq!(found, Some(expected), "{fetched} {on_page} {proven}");
        }
    }

    #[test]
    fn a_full_pass_with_a_start_says_nothing_of_what_is_older() {
        let pull = cursor();
        let progress = Progress {
            full_at: Some(at(300)),
            watermark: Some(at(300)),
            origin: Some((Duration::from_secs(1), at(95))),
            ..Progress::default()
        };
        let found = met(&evidence(&pull, &progress));
        assert_eq!(found, Some(("cursor", at(100))));
        let waiting = Progress {
            origin: None,
            unconfirmed: Some((9, 10)),
            ..progress
        };
        assert_eq!(met(&evidence(&pull, &waiting)), Some(("cursor", at(100))));
    }
}
