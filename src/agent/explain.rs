//! What is known of one record, what is kept of a source, and forgetting what vouches for it.

use super::course::course;
use super::{Agent, Runner};
use crate::clock::Timestamp;
use crate::config::{self, Format, Pull, Source};
use crate::desk::{
    BadShown, Departed, Event, Explained, Interrupted, Late, Met, OnPage, Pages, RecordShown,
    StateShown, StateWish,
};
use crate::pull::kept::{self, Page};
use crate::pull::marks::Marks;
use crate::pull::position::Position;
use crate::pull::progress::Progress;
use crate::pull::repair::{RepairError, config_key};
use crate::pull::spelling::spellings;
use crate::pull::standing::{Evidence, Standing, met, word};
use crate::record::{Digest, RecordKey};
use crate::sink::BadRow;
use crate::sink::sqlite::{Departure, Noted, rfc3339};
use crate::state::State;
use crate::store::SourceId;
use crate::upstream::client::shown;
use crate::wait::Wait;

/// Deletions of one record that are told.
const TOLD: usize = 10;
/// Records that are looked at between two looks at whoever else is served.
const SLICE: usize = 1000;

impl Agent {
    /// Carries out a wish about what is kept of a source.
    pub(super) fn about_state(&mut self, wish: &StateWish) -> Event {
        let Some(source) = self.config.sources.get(wish.source()).cloned() else {
            return self.no_such_source(wish.source());
        };
        let refused = |usage, reason| Event::Refused { usage, reason };
        if let Err(error) = self.open() {
            return refused(false, error.to_string());
        }
        if matches!(wish, StateWish::Reset { .. }) && source.pull == Pull::None {
            return refused(
                true,
                format!(
                    "the records of {name} come by hooks (`pull = \"none\"`): no pass would deliver them again; `gleaner replay {name}` delivers what is known",
                    name = source.name
                ),
            );
        }
        let keys = match wish {
            StateWish::Explain { key, .. } => match spellings(key, &source.key) {
                Ok(keys) => keys,
                Err(error) => return refused(true, format!("{key}: {error}")),
            },
            StateWish::Show { .. } | StateWish::Reset { .. } => Vec::new(),
        };
        let done = match wish {
            StateWish::Explain { key, .. } => self.explain(&source, key, &keys),
            StateWish::Show { .. } => self.show(&source),
            StateWish::Reset { .. } => self.reset(&source),
        };
        done.unwrap_or_else(|error| {
            self.heal();
            refused(false, error.to_string())
        })
    }

    fn explain(
        &mut self,
        source: &Source,
        asked: &str,
        keys: &[RecordKey],
    ) -> Result<Event, RepairError> {
        let runner = self.runners.get(&source.name);
        let Some(state) = self.state.as_mut() else {
            return Ok(closed());
        };
        let kept = Kept::read(state, source, runner)?;
        let mut records = Vec::new();
        for key in keys {
            records.push(record(state, source, &kept, key)?);
        }
        Ok(Event::Explained(Box::new(Explained {
            source: source.name.clone(),
            asked: asked.to_owned(),
            pull: source.pull.word().into(),
            outcome: kept.outcome(),
            last_check: kept.last_check().map(rfc3339),
            notes: notes(source, &kept, &records),
            records,
        })))
    }

    fn show(&mut self, source: &Source) -> Result<Event, RepairError> {
        let runner = self.runners.get(&source.name);
        let fingerprint = self
            .config
            .upstreams
            .get(&source.upstream)
            .map(|upstream| config::fingerprint(source, upstream));
        let Some(state) = self.state.as_mut() else {
            return Ok(closed());
        };
        let kept = Kept::read(state, source, runner)?;
        let stored = state.store.get(&config_key(kept.id))?.unwrap_or_default();
        let (gone, gone_since) = state.sink.remembered(source)?;
        let incremental = matches!(source.pull, Pull::Window(_) | Pull::Cursor(_));
        let clock = self.wait.clock();
        let offset = clock.offset(clock.wall());
        let of_snapshots = runner.and_then(|runner| runner.full_took);
        let full_took = kept.progress.full_took.or(of_snapshots);
        Ok(Event::State(Box::new(StateShown {
            source: source.name.clone(),
            pull: source.pull.word().into(),
            outcome: kept.outcome(),
            last_check: kept.last_check().map(rfc3339),
            records: state.store.count(kept.id),
            in_doubt: in_doubt(state, kept.id, &self.wait)?,
            ordinals: state.store.ordinals(kept.id).into(),
            generation: state.store.generation(),
            data_generation: state.sink.generation()?,
            config: stored.iter().map(|byte| format!("{byte:02x}")).collect(),
            config_current: fingerprint.is_some_and(|current| stored == current),
            course: incremental.then(|| course(source, &kept.progress, offset)),
            owed: kept.progress.owed.map(|why| why.to_string()),
            lateness: histogram(&kept.progress),
            interrupted: kept.interrupted.as_ref().map(|(position, _)| Interrupted {
                pass: word(&position.plan).into(),
                started: Timestamp::from_second(position.started).ok().map(rfc3339),
                pages: position.pages,
                records: position.records,
                next: shown(&position.next),
            }),
            pages: sum(&kept.pages),
            full_took: full_took.map(|took| took.as_secs()),
            gone,
            gone_since: gone_since.map(rfc3339),
        })))
    }

    fn reset(&mut self, source: &Source) -> Result<Event, RepairError> {
        let Some(state) = self.state.as_mut() else {
            return Ok(closed());
        };
        let wait = self.wait.clone();
        // A stop in between is noticed at the next wait.
        let between = || drop(wait.breathe());
        let records = kept::reset(source, &mut state.store, &mut state.sink, between)?;
        if let Some(runner) = self.runners.get_mut(&source.name) {
            // What this process remembers vouches as well.
            runner.latest = None;
            runner.settled = None;
        }
        log::info!(
            "{}: reset, the next pass reads and delivers everything again ({records} records)",
            source.name
        );
        Ok(Event::Reset {
            source: source.name.clone(),
            records,
        })
    }
}

fn closed() -> Event {
    Event::Refused {
        usage: false,
        reason: "the state directory cannot be used".into(),
    }
}

/// What is kept of a source besides its records.
struct Kept {
    id: SourceId,
    pages: Vec<Page>,
    interrupted: Option<(Position, Marks)>,
    progress: Progress,
    noted: Option<Noted>,
    live_check: Option<Timestamp>,
    bad: Vec<BadRow>,
}

impl Kept {
    fn read(
        state: &mut State,
        source: &Source,
        runner: Option<&Runner>,
    ) -> Result<Self, RepairError> {
        let id = state.store.source(&source.name)?;
        let stored = kept::progress(&state.store, id)?;
        let latest = runner.and_then(|runner| runner.latest.as_ref());
        let live_check = runner
            .and_then(|runner| runner.status.last_check.as_deref())
            .and_then(|at| at.parse().ok());
        Ok(Self {
            id,
            pages: kept::pages(&state.store, id)?,
            interrupted: kept::interrupted(&state.store, id)?,
            // What this process remembers is newer than what it has written down.
            progress: latest.map_or(stored, |latest| latest.progress.clone()),
            noted: state.sink.noted(&source.name)?,
            live_check,
            bad: state.sink.bad(&source.name)?,
        })
    }

    fn outcome(&self) -> String {
        let noted = self.noted.as_ref();
        noted.map_or("never".into(), |noted| noted.outcome.clone())
    }

    fn last_check(&self) -> Option<Timestamp> {
        let noted = self.noted.as_ref().and_then(|noted| noted.last_check);
        self.live_check.max(noted)
    }

    /// Whether what the last complete listing did not have was deleted for sure.
    fn proves_absence(&self, source: &Source) -> bool {
        let settled = matches!(self.outcome().as_str(), "changed" | "unchanged");
        let blind = self.bad.iter().any(|bad| bad.key.is_none())
            || self.pages.iter().any(|page| page.memo.blind)
            // The end of such a listing is not always proven, and whether it was is not noted.
            || source.format == Format::Ndjson;
        settled && !blind
    }
}

/// What is known under one key.
fn record(
    state: &State,
    source: &Source,
    kept: &Kept,
    key: &RecordKey,
) -> Result<RecordShown, RepairError> {
    let known = state.store.find(kept.id, key)?;
    let row = state.sink.facts(source, key)?;
    let gone = state.sink.departures(source, key)?;
    let bad = kept
        .bad
        .iter()
        .find(|bad| bad.key.as_deref() == Some(key.as_str()));
    let standing = Standing::of(
        known.is_some(),
        row.as_ref().map(|row| row.marked),
        !gone.is_empty(),
        bad.is_some(),
    );
    let ordinal = known.map(|known| known.ordinal);
    let page = ordinal.and_then(|ordinal| {
        let has = |page: &&Page| page.memo.ordinals.has_any(&[ordinal]);
        kept.pages.iter().find(has)
    });
    let interrupted = kept.interrupted.as_ref().and_then(|(position, marks)| {
        let started = Timestamp::from_second(position.started).ok()?;
        ordinal
            .is_some_and(|ordinal| marks.has(ordinal))
            .then_some((&position.plan, started))
    });
    let updated = known
        .and_then(|known| known.updated_ms)
        .and_then(|ms| Timestamp::from_millisecond(ms).ok())
        .or(row.as_ref().and_then(|row| row.updated));
    let evidence = Evidence {
        pull: &source.pull,
        progress: &kept.progress,
        fetched: row.as_ref().and_then(|row| row.fetched),
        updated,
        on_page: page.is_some(),
        interrupted,
        last_check: kept.last_check(),
        proven: kept.proves_absence(source),
    };
    Ok(RecordShown {
        key: key.to_string(),
        state: standing.word().into(),
        why: why(standing, kept, &gone, bad),
        first_seen: row.as_ref().and_then(|row| row.first_seen).map(rfc3339),
        changed: evidence.fetched.map(rfc3339),
        updated: updated.map(rfc3339),
        met: known.and_then(|_| met(&evidence)).map(|(pass, at)| Met {
            pass: pass.into(),
            at: rfc3339(at),
        }),
        page: page.map(|page| OnPage {
            url: shown(&page.memo.url),
            number: page.number as u64,
            read: Timestamp::from_second(page.memo.fetched).ok().map(rfc3339),
        }),
        digest: known
            .filter(|known| known.digest != Digest::UNKNOWN)
            .map(|known| known.digest.to_string()),
        in_doubt: known.is_some_and(|known| known.digest == Digest::UNKNOWN),
        ordinal,
        table: row.as_ref().map(|_| source.name.clone()),
        generation: row.as_ref().map(|row| row.generation),
        bytes: row.as_ref().map(|row| row.bytes),
        gone: gone
            .into_iter()
            .take(TOLD)
            .map(|gone| Departed {
                at: gone.at.map(rfc3339),
                why: gone.why,
            })
            .collect(),
        bad: bad.map(|bad| BadShown {
            page: bad.page.clone(),
            number: bad.number,
            reason: bad.reason.clone(),
        }),
    })
}

/// What a standing means, in words.
fn why(standing: Standing, kept: &Kept, gone: &[Departure], bad: Option<&BadRow>) -> String {
    match standing {
        Standing::Present if bad.is_some() => "an earlier form of it is kept: the last complete pass skipped the newest as bad".into(),
        Standing::Present => String::new(),
        Standing::Removed => "it is known, but its row is not in data.db: somebody took it away. `gleaner state reset` has everything delivered again".into(),
        Standing::Stray => "its row is in data.db, but it is not known: somebody changed data.db. `gleaner state reset` has everything compared again".into(),
        Standing::Bad => format!(
            "skipped as a bad record: {}",
            bad.map_or("", |bad| &bad.reason)
        ),
        Standing::Gone => departure(gone.first()),
        Standing::NeverSeen if kept.last_check().is_none() => "never seen; and the source was never seen to its end".into(),
        Standing::NeverSeen => "never seen, as far as is remembered".into(),
    }
}

fn departure(gone: Option<&Departure>) -> String {
    let Some(gone) = gone else {
        return "gone; its deletion is no longer remembered".into();
    };
    let at = gone.at.map_or("at an unknown time".into(), rfc3339);
    match gone.why.as_str() {
        "tombstone" => format!("gone {at}: upstream said that it is deleted (a tombstone)"),
        "missing" => format!("gone {at}: the full pass that ended then did not have it"),
        other => format!("gone {at}: {other}"),
    }
}

/// What may keep a record away, or makes the answer unsure.
fn notes(source: &Source, kept: &Kept, records: &[RecordShown]) -> Vec<String> {
    let mut notes = Vec::new();
    let (present, absent): (Vec<_>, Vec<_>) = records
        .iter()
        .partition(|record| record.state == Standing::Present.word());
    let is_absent = present.is_empty() && !absent.is_empty();
    if let (Pull::Window(_), Some((_, origin))) = (&source.pull, kept.progress.origin) {
        let origin = rfc3339(origin);
        if is_absent {
            notes.push(format!("records that were updated before {origin} are not asked for (`first`): one of them is absent for that reason"));
        }
        let is_older = |record: &&&RecordShown| {
            let updated = record.updated.as_deref().and_then(|at| at.parse().ok());
            updated.is_some_and(|updated: Timestamp| {
                kept.progress
                    .origin
                    .is_some_and(|(_, origin)| updated < origin)
            })
        };
        for record in present.iter().filter(is_older) {
            notes.push(format!("{} was updated before {origin}, from where on the source asks (`first`): that it is gone upstream would not be noticed", record.key));
        }
    }
    if let (Pull::Cursor(cursor), true) = (&source.pull, is_absent) {
        if let Some(first) = &cursor.first {
            notes.push(format!(
                "only what follows the cursor {first} is asked for (`first`)"
            ));
        }
    }
    if source.pull == Pull::None && is_absent {
        notes.push("its records come by hooks: what is not sent is not here".into());
    }
    let keyless = kept.bad.iter().filter(|bad| bad.key.is_none()).count();
    if keyless > 0 && is_absent {
        notes.push(format!("{keyless} bad records without a readable key were skipped: it may be one of them (the table _bad has them)"));
    }
    if kept.progress.unconfirmed.is_some() || kept.outcome() == "needs-confirmation" {
        notes.push("records that the last full pass did not have wait for `gleaner reconcile --confirm`; which ones is not kept".into());
    }
    if !matches!(
        kept.outcome().as_str(),
        "changed" | "unchanged" | "needs-confirmation" | "never"
    ) {
        let reason = kept.noted.as_ref().map_or("", |noted| &noted.reason);
        notes.push(format!(
            "the last pass was not complete ({}): {reason}",
            kept.outcome()
        ));
    }
    if kept.interrupted.is_some() && is_absent {
        notes.push(
            "a pass is interrupted on its way: what stands on pages to come is not met yet".into(),
        );
    }
    notes
}

fn in_doubt(state: &State, id: SourceId, wait: &Wait) -> Result<u64, RepairError> {
    let mut count = 0;
    for (at, entry) in state.store.records(id, None).enumerate() {
        count += u64::from(entry?.1.digest == Digest::UNKNOWN);
        if at % SLICE == SLICE - 1 {
            // A stop is noticed at the next wait.
            drop(wait.breathe());
        }
    }
    Ok(count)
}

fn histogram(progress: &Progress) -> Vec<Late> {
    let used = progress.lateness.iter().rposition(|count| *count > 0);
    let bars = progress.lateness.iter().enumerate();
    bars.take(used.map_or(0, |last| last + 1))
        .map(|(bucket, count)| Late {
            below: if bucket == 0 { 0 } else { 1 << bucket },
            records: *count,
        })
        .collect()
}

fn sum(pages: &[Page]) -> Pages {
    let mut sum = Pages::default();
    for page in pages {
        sum.count += 1;
        sum.with_validators += u64::from(!page.memo.validators.is_empty());
        sum.records += page.memo.records;
        sum.bytes += page.bytes;
        sum.wire += page.memo.wire;
    }
    sum
}
