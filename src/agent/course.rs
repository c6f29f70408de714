//! How far incremental passes have come, as `status` shows it.

use crate::config::{Pull, Source};
use crate::desk::{Course, DriftStatus};
use crate::pull::advice::advice;
use crate::pull::plan;
use crate::pull::progress::Progress;
use crate::pull::repair::progress_key;
use crate::sink::sqlite::rfc3339;
use crate::state::State;
use crate::store::SourceId;
use crate::wait::Wait;

/// What is stored of how far a source has come, and what an operator should know of it.
pub(super) fn stored_course(
    state: &State,
    id: SourceId,
    source: &Source,
    wait: &Wait,
) -> Option<(Course, Vec<String>)> {
    if !matches!(source.pull, Pull::Window(_) | Pull::Cursor(_)) {
        return None;
    }
    let stored = state.store.get(&progress_key(id)).ok()??;
    let progress = Progress::decode(&stored)?;
    let clock = wait.clock();
    let course = course(source, &progress, clock.offset(clock.wall()));
    Some((course, advice(source, Some(&progress), None)))
}

pub(super) fn course(source: &Source, progress: &Progress, offset: i32) -> Course {
    let (observed, p50) = progress.late_by(0.5);
    Course {
        watermark: progress.watermark.map(rfc3339),
        cursor: progress.cursor.clone(),
        lateness: match &source.pull {
            Pull::Window(window) => Some(window.lateness.as_secs()),
            _ => None,
        },
        observed,
        late_p50: p50.as_secs(),
        late_p99: progress.late_by(0.99).1.as_secs(),
        late_max: progress.late_by(1.0).1.as_secs(),
        full_at: progress.full_at.map(rfc3339),
        full_due: plan::due_at(source, progress, offset).map(rfc3339),
        full_took: progress.full_took.map(|took| took.as_secs()),
        drift: progress
            .drift
            .iter()
            .map(|drift| DriftStatus {
                at: rfc3339(drift.at),
                added: drift.added,
                changed: drift.changed,
                deleted: drift.deleted,
            })
            .collect(),
    }
}
