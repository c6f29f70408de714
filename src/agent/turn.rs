//! One source's turn: its pass, and what follows from how it ended.

use std::time::Duration;

use super::course::course;
use super::manners::{put_off, remember_pause, remembered_pause};
use super::{Agent, Order, Runner};
use crate::clock::{Mono, Timestamp};
use crate::config::{self, Pull, Source};
use crate::desk::{Event, Totals};
use crate::document::place::Place;
use crate::document::{fetch, spool};
use crate::pull::advice::advice;
use crate::pull::collection::{Mode, Spool, Tools, pass};
use crate::pull::plan::{self, Full};
use crate::pull::replay::replay;
use crate::pull::report::{Outcome, Report, Tally};
use crate::pull::volatile::{PASSES, changed_nearly_all};
use crate::schedule::{Ended, Rhythm, next_due};
use crate::sink::sqlite::{SourceState, rfc3339};
use crate::store::Store;
use crate::upstream::client::{Answer, Ask, Client, idle_age};
use crate::upstream::outcome::{Failure, Kind};
use crate::wait::Wait;

impl Agent {
    /// Pulls one source now. The state directory must be open.
    pub fn pull(&mut self, name: &str, order: Order, each: &mut dyn FnMut(Event)) -> Report {
        self.look_at_clock();
        self.notice_replaced_sink();
        let room = if order.dry_run || order.probe {
            Ok(())
        } else {
            self.refuse_full_disk()
        };
        let mut report = match room {
            Ok(()) => self.passes(name, order, each),
            Err(failure) => Report::failed(name, failure),
        };
        if self.replace_damaged_sink() && !self.wait.stopping() {
            report = self.passes(name, order, each);
        }
        self.pass_on(name, &mut report);
        self.look_at_clock();
        // A replay asks nobody: it says nothing of how fresh the data is.
        if order.dry_run || order.probe || order.replay {
            log::debug!("{report}");
        } else {
            self.after(name, &report);
        }
        self.publish();
        if matches!(&report.outcome, Outcome::Failed(failure) if failure.kind == Kind::Local) {
            // If it was the store that cannot be read, the own check is what puts it aside.
            self.verified = false;
        }
        self.heal();
        report
    }

    pub(super) fn passes(
        &mut self,
        name: &str,
        order: Order,
        each: &mut dyn FnMut(Event),
    ) -> Report {
        let mut report = self.one_pass(name, order, None, each);
        let resumed_full = report.resumed && report.pull == "full";
        if report.resumed && report.outcome.is_complete() && !self.wait.stopping() {
            // It began in an earlier process: its first pages may be old news by now.
            report = together(
                report,
                |agent| agent.one_pass(name, order, None, each),
                self,
            );
        }
        // What an older full pass had read before it was cut is not what somebody asks for now.
        if order.full && resumed_full && report.outcome.is_complete() && !self.wait.stopping() {
            let why = Some(Full::Asked);
            return together(report, |agent| agent.one_pass(name, order, why, each), self);
        }
        // Windows and cursors first: what a full pass finds behind them is what they had missed.
        if let Some(why) = self.wants_full(name, order, &report) {
            report = together(
                report,
                |agent| agent.one_pass(name, order, Some(why), each),
                self,
            );
        }
        report
    }

    /// Whether a full pass is to follow an incremental one, and why.
    fn wants_full(&self, name: &str, order: Order, report: &Report) -> Option<Full> {
        let source = self.config.sources.get(name)?;
        let incremental = matches!(report.pull.as_str(), "window" | "cursor");
        if !incremental || !report.outcome.is_complete() || order.probe || self.wait.stopping() {
            return None;
        }
        if order.full {
            return Some(Full::Asked);
        }
        let latest = report.latest.as_ref()?;
        if latest.progress.owed.is_some() {
            return latest.progress.owed;
        }
        let due = plan::due_at(source, &latest.progress, self.offset())?;
        (latest.upstream? >= due).then_some(Full::Due)
    }

    /// Seconds that the device's zone is east of Greenwich now.
    fn offset(&self) -> i32 {
        let clock = self.wait.clock();
        clock.offset(clock.wall())
    }

    pub(super) fn one_pass(
        &mut self,
        name: &str,
        order: Order,
        full: Option<Full>,
        each: &mut dyn FnMut(Event),
    ) -> Report {
        let failed = |failure| Report::failed(name, failure);
        let ours = self.reading();
        let Some(source) = self.config.sources.get(name).cloned() else {
            return failed(Failure::new(Kind::Local, "there is no such source"));
        };
        if let (true, Some(state)) = (order.replay, self.state.as_mut()) {
            return replay(&source, &mut state.store, &mut state.sink, &self.wait);
        }
        if source.pull == Pull::None {
            return failed(Failure::new(
                Kind::Local,
                "its records come by hooks (`pull = \"none\"`): there is nothing to ask for",
            ));
        }
        let Some(upstream) = self.config.upstreams.get(&source.upstream) else {
            return failed(Failure::new(Kind::Local, "its upstream is not configured"));
        };
        let fingerprint = config::fingerprint(&source, upstream);
        if let Err(failure) = self.make_client(&source.upstream, source.every) {
            return failed(failure);
        }
        let Some(upstream) = self.config.upstreams.get(&source.upstream) else {
            return failed(Failure::new(Kind::Local, "its upstream is not configured"));
        };
        let (Some(client), Some(state)) =
            (self.clients.get_mut(&source.upstream), self.state.as_mut())
        else {
            return failed(Failure::new(
                Kind::Local,
                "the state directory cannot be used",
            ));
        };
        if order.insist {
            client.turn().insist();
        } else if let Some(failure) = client.turn().refuses(self.wait.now()) {
            return failed(failure);
        }
        let mode = Mode {
            dry_run: order.dry_run || order.probe,
            probe: order.probe,
            confirmed: order.confirmed,
            checkpoint: self.config.agent.checkpoint,
            config: fingerprint,
            scope: config::scope_fingerprint(&source, upstream),
            settled: self.runners.get(name).and_then(|runner| runner.settled),
            suspicious: self
                .runners
                .get(name)
                .is_some_and(|runner| runner.stirred + 1 >= PASSES),
            full,
            latest: self
                .runners
                .get(name)
                .and_then(|runner| runner.latest.clone()),
            ours,
        };
        let desk = self.desk.clone();
        let line = client.line().clone();
        let before = client.traffic();
        let show = |totals: Totals| {
            desk.publish(|status| {
                if let Some(source) = status.sources.get_mut(name) {
                    source.running = Some(totals);
                }
            });
        };
        show(Totals::default());
        each(Event::Progress {
            source: name.to_owned(),
            tally: Totals::default(),
        });
        let mut progress = |tally: &Tally| {
            let mut totals = Totals::default();
            totals.add(tally);
            // The pass itself counts them when it is over.
            totals.bytes_up = line.traffic().up().saturating_sub(before.0);
            totals.bytes_down = line.traffic().down().saturating_sub(before.1);
            show(totals);
            each(Event::Progress {
                source: name.to_owned(),
                tally: totals,
            });
        };
        let mut spool = SpoolOf {
            source: &source,
            config: fingerprint,
            place: Place::of(&self.config.agent.state),
            quota: self.config.agent.documents_quota,
            wait: &self.wait,
        };
        let mut tools = Tools {
            spool: &mut spool,
            client,
            store: &mut state.store,
            sink: &mut state.sink,
            wait: &self.wait,
            progress: &mut progress,
        };
        let report = pass(&source, &mut tools, mode);
        if let (Some(latest), Some(runner)) = (&report.latest, self.runners.get_mut(name)) {
            runner.latest = Some(latest.clone());
        }
        report
    }

    /// Makes the client of an upstream, if there is none yet, for who asks it that often.
    pub(super) fn make_client(&mut self, name: &str, every: Duration) -> Result<(), Failure> {
        if self.clients.contains_key(name) {
            return Ok(());
        }
        let Some(upstream) = self.config.upstreams.get(name) else {
            return Err(Failure::new(Kind::Local, "its upstream is not configured"));
        };
        let sources = self.config.sources.values();
        let sources = sources.map(|source| (&source.upstream, source.every));
        let documents = self.config.documents.values();
        let documents = documents.map(|document| (&document.upstream, document.every));
        let slowest = sources
            .chain(documents)
            .filter(|(upstream, _)| *upstream == name)
            .map(|(_, every)| every)
            .max();
        let mut client = self
            .shared
            .client(upstream, idle_age(slowest.unwrap_or(every)))?;
        let pause = self
            .state
            .as_ref()
            .and_then(|state| remembered_pause(state, name, self.wait.clock().wall()));
        if let Some(pause) = pause {
            client.turn().pause(pause, self.wait.now());
        }
        self.clients.insert(name.to_owned(), client);
        Ok(())
    }

    /// After a pass: when it is due next, what `status` and local readers shall know.
    pub(super) fn after(&mut self, name: &str, report: &Report) {
        let (now, wall) = (self.wait.now(), self.wait.clock().wall());
        let (Some(source), Some(runner), Some(state)) = (
            self.config.sources.get(name),
            self.runners.get_mut(name),
            self.state.as_mut(),
        ) else {
            return;
        };
        let level = match &report.outcome {
            Outcome::Unchanged => log::Level::Debug,
            Outcome::Changed => log::Level::Info,
            Outcome::Failed(failure) if failure.kind == Kind::Stopped => log::Level::Info,
            Outcome::NeedsConfirmation { .. } | Outcome::Failed(_) => log::Level::Warn,
        };
        // A failure is said once, not with every try.
        let said = runner.status.outcome == report.outcome.word()
            && runner.status.reason == report.reason();
        let level = if said || !self.resident {
            log::Level::Debug
        } else {
            level
        };
        log::log!(level, "{report}");
        for note in report
            .notes
            .iter()
            .filter(|note| !runner.status.notes.contains(note))
        {
            log::warn!("{name}: {note}");
        }
        if report.outcome.is_stopped() {
            return;
        }
        let complete = report.outcome.is_complete();
        runner.failures = if complete {
            0
        } else {
            runner.failures.saturating_add(1)
        };
        let rhythm = Rhythm {
            every: source.every,
            jitter: source.jitter,
            max_skip: source.max_skip,
        };
        let mut client = self.clients.get_mut(&source.upstream);
        let pause = client.as_mut().and_then(|client| client.turn().paused(now));
        let due = next_due(
            rhythm,
            report.elapsed,
            ended(report, runner.failures),
            dice(),
        );
        let (span, why) = put_off(client, now, report.elapsed, due, dice());
        runner.due = Mono(now.0.saturating_sub(report.elapsed)).after(span);
        runner.why = why;
        runner.settled = (report.outcome == Outcome::Unchanged
            || report.outcome == Outcome::Changed)
            .then(|| state.store.generation());
        if complete && report.tally.not_modified == 0 && report.pull == "snapshot" {
            runner.full_took = Some(report.elapsed);
        }
        if complete && matches!(report.pull.as_str(), "snapshot" | "full") {
            runner.stirred = if changed_nearly_all(&report.tally) {
                runner.stirred.saturating_add(1)
            } else {
                0
            };
        }
        let turned = turned(&runner.status.outcome, &report.outcome);
        note_status(runner, report, (now, wall));
        if let Ok(id) = state.store.source(name) {
            runner.status.records = state.store.count(id);
            if let Some(latest) = &runner.latest {
                let offset = self.wait.clock().offset(wall);
                runner.status.course = Some(course(source, &latest.progress, offset));
            }
            let progress = runner.latest.as_ref().map(|latest| &latest.progress);
            runner
                .status
                .notes
                .extend(advice(source, progress, runner.full_took));
        }
        remember_pause(state, &source.upstream, pause, complete, wall);
        let overdue = runner
            .noted
            .is_none_or(|then| now.since(then) >= self.config.agent.checkpoint);
        if turned || report.tally.delivered() > 0 || overdue {
            runner.noted = Some(now);
            let stale_at = complete.then(|| {
                later(
                    wall,
                    source
                        .stale_after
                        .saturating_add(self.config.agent.checkpoint),
                )
            });
            let noted = state.sink.note(&SourceState {
                name,
                last_check: complete.then_some(wall),
                last_complete: (complete && (report.tally.delivered() > 0 || turned))
                    .then_some(wall),
                stale_at,
                outcome: report.outcome.word(),
                reason: &report.reason(),
                records: runner.status.records,
            });
            if let Err(error) = noted {
                log::error!("{error}");
                runner.noted = None;
            }
        }
    }
}

/// The spool of one source.
struct SpoolOf<'a> {
    source: &'a Source,
    config: [u8; 8],
    place: Place,
    quota: u64,
    wait: &'a Wait,
}

impl Spool for SpoolOf<'_> {
    fn ask(
        &mut self,
        client: &mut Client,
        store: &mut Store,
        ask: &Ask<'_>,
    ) -> Result<Answer, Failure> {
        let mut tools = fetch::Tools {
            client,
            store,
            place: &self.place,
            quota: self.quota,
            wait: self.wait,
            progress: &mut || (),
        };
        spool::ask(self.source, &mut tools, ask, self.config)
    }

    fn over(&mut self, store: &mut Store) -> Result<(), Failure> {
        spool::over(&self.place, self.source, store)
    }
}

/// A pass and the one that follows it at once, as one report.
fn together(first: Report, then: impl FnOnce(&mut Agent) -> Report, agent: &mut Agent) -> Report {
    let mut report = then(agent);
    if report.outcome == Outcome::Unchanged && first.tally.delivered() > 0 {
        report.outcome = Outcome::Changed;
    }
    report.tally = sum(&first.tally, &report.tally);
    report.elapsed = report.elapsed.saturating_add(first.elapsed);
    if first.pull != report.pull {
        report.pull = format!("{}+{}", first.pull, report.pull);
    }
    for note in first.notes {
        if !report.notes.contains(&note) {
            report.notes.push(note);
        }
    }
    report.latest = report.latest.or(first.latest);
    report
}

fn note_status(runner: &mut Runner, report: &Report, (now, wall): (Mono, Timestamp)) {
    let status = &mut runner.status;
    status.outcome = report.outcome.word().into();
    status.reason = report.reason();
    status.failures = runner.failures;
    status.notes.clone_from(&report.notes);
    status.totals.add(&report.tally);
    if report.outcome.is_complete() {
        runner.last_check = Some((wall, now));
        status.last_check = Some(rfc3339(wall));
        if report.tally.delivered() > 0 || status.last_change.is_none() {
            status.last_change = Some(rfc3339(wall));
        }
    }
}

pub(super) fn ended(report: &Report, in_a_row: u32) -> Ended {
    match &report.outcome {
        Outcome::Failed(failure) => Ended::Failed {
            kind: failure.kind,
            retry_after: failure.retry_after,
            in_a_row,
        },
        _ => Ended::Complete {
            fresh_for: report.fresh_for,
        },
    }
}

/// Whether a source stands differently than at its last pass, so that local readers should know now. A change and then none
/// is the same to them: whoever finds nothing new writes nothing.
pub(super) fn turned(before: &str, now: &Outcome) -> bool {
    let went_well = [Outcome::Changed.word(), Outcome::Unchanged.word()];
    before != now.word() && !(went_well.contains(&before) && went_well.contains(&now.word()))
}

pub(super) fn later(wall: Timestamp, span: Duration) -> Timestamp {
    wall.saturating_add(span).unwrap_or(Timestamp::MAX)
}

fn sum(first: &Tally, second: &Tally) -> Tally {
    Tally {
        pages: first.pages + second.pages,
        requests: first.requests + second.requests,
        not_modified: first.not_modified + second.not_modified,
        added: first.added + second.added,
        changed: first.changed + second.changed,
        deleted: first.deleted + second.deleted,
        bytes_up: first.bytes_up + second.bytes_up,
        bytes_down: first.bytes_down + second.bytes_down,
        bytes_saved: first.bytes_saved + second.bytes_saved,
        ..*second
    }
}

/// A number in 0..1, so that a fleet does not knock in step.
pub(super) fn dice() -> f64 {
    let mut bytes = [0u8; 4];
    // Without entropy yet (early boot) the middle is as good as any.
    match rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::NONBLOCK) {
        Ok(4) => f64::from(u32::from_le_bytes(bytes)) / f64::from(u32::MAX),
        _ => 0.5,
    }
}
