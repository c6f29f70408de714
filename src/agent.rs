//! The loop: what is due, do one step, wait.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use crate::clock::{Mono, Timestamp};
use crate::config::{self, Config};
use crate::desk::{Desk, Event, Moments, SourceStatus, Totals, Wish};
use crate::pull::collection::{Mode, Tools, pass};
use crate::pull::replay::replay;
use crate::pull::report::{Outcome, Report, Tally};
use crate::schedule::{Ended, Rhythm, Why, next_due};
use crate::sink::SinkTrouble;
use crate::sink::sqlite::{SourceState, rfc3339};
use crate::state::{State, StateError};
use crate::store::{Key, Opening, Progress, Tag, Verdict};
use crate::upstream::client::{Client, idle_age};
use crate::upstream::connect::Shared;
use crate::upstream::outcome::{Failure, Kind};
use crate::wait::{Wait, Woke};

/// Entries of the store that are verified in one slice.
const VERIFY_SLICE: usize = 500;
/// How long another program's lock on `data.db` is waited for when it is opened, and in which steps.
const BUSY_STEP: Duration = Duration::from_millis(200);
const BUSY_STEPS: u32 = 25;
/// How long an unusable state directory is left alone before the next try.
const REOPEN: Duration = Duration::from_secs(10);
/// How often it is looked whether the store wants to be rewritten.
const TIDY: Duration = Duration::from_secs(3600);

/// The agent: everything that pulls.
pub struct Agent {
    config: Config,
    shared: Shared,
    wait: Wait,
    desk: Desk,
    state: Option<State>,
    verified: bool,
    tidied: Option<Mono>,
    /// It stays, and nobody reads its reports: they go to the log.
    resident: bool,
    alarms: BTreeMap<Topic, Vec<String>>,
    clients: BTreeMap<String, Client>,
    runners: BTreeMap<String, Runner>,
}

/// What an alarm is about: what is over takes its alarms with it, the others stay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Topic {
    /// The state directory cannot be used.
    StateDirectory,
    /// Something was damaged. Stays until the agent is started again: somebody should have seen it.
    Damage,
    /// The config file was not taken.
    ConfigFile,
    /// What the config in effect is warned of.
    Warning,
}

/// What the loop keeps of a source between passes.
#[derive(Debug)]
struct Runner {
    due: Mono,
    why: Why,
    failures: u32,
    settled: Option<u64>,
    noted: Option<Mono>,
    last_check: Option<(Timestamp, Mono)>,
    status: SourceStatus,
}

/// How a source is to be pulled now.
#[derive(Debug, Clone, Copy, Default)]
pub struct Order {
    /// Compare, and change nothing.
    pub dry_run: bool,
    /// Only ask for the first page.
    pub probe: bool,
    /// A person has said that what is missing is gone.
    pub confirmed: bool,
    /// Deliver what is known again instead of asking upstream.
    pub replay: bool,
    /// Ask although the upstream asked us to wait.
    pub insist: bool,
}

impl Agent {
    /// An agent that has not opened anything yet.
    #[must_use]
    pub fn new(config: Config, wait: Wait, desk: Desk) -> Self {
        let mut agent = Self {
            shared: Shared::new(wait.clone()),
            wait,
            desk,
            state: None,
            verified: false,
            tidied: None,
            resident: false,
            alarms: BTreeMap::new(),
            clients: BTreeMap::new(),
            runners: BTreeMap::new(),
            config,
        };
        agent.seat_sources();
        agent
    }

    /// The names of the sources, in order.
    pub fn sources(&self) -> impl Iterator<Item = &str> {
        self.config.sources.keys().map(String::as_str)
    }

    /// The desk that it publishes on.
    #[must_use]
    pub fn desk(&self) -> &Desk {
        &self.desk
    }

    fn seat_sources(&mut self) {
        let now = self.wait.now();
        let config = &self.config;
        self.runners
            .retain(|name, _| config.sources.contains_key(name));
        for name in config.sources.keys() {
            self.runners.entry(name.clone()).or_insert_with(|| Runner {
                due: now,
                why: Why::Every,
                failures: 0,
                settled: None,
                noted: None,
                last_check: None,
                status: SourceStatus {
                    outcome: "never".into(),
                    ..SourceStatus::default()
                },
            });
        }
        let (id, warnings) = (config.agent.id.clone(), config.warnings.clone());
        self.desk.publish(|status| {
            status.agent = id;
            status.version = env!("CARGO_PKG_VERSION").into();
        });
        self.alarms.insert(Topic::Warning, warnings);
        self.publish();
    }

    /// Opens the state directory.
    ///
    /// # Errors
    /// Why it cannot be used now.
    pub fn open(&mut self) -> Result<(), StateError> {
        if self.state.is_some() {
            return Ok(());
        }
        let state = self.open_patiently()?;
        for alarm in &state.alarms {
            self.alarm(Topic::Damage, alarm.clone());
        }
        self.over(Topic::StateDirectory);
        self.state = Some(state);
        self.verified = false;
        self.recall();
        self.publish();
        Ok(())
    }

    /// Another program that holds a write lock on `data.db` is waited for, with everybody served meanwhile; not for ever.
    fn open_patiently(&self) -> Result<State, StateError> {
        let mut tries = 0;
        loop {
            match State::open(&self.config, self.wait.clock().wall()) {
                Err(StateError::Sink(error))
                    if error.kind == SinkTrouble::Busy && tries < BUSY_STEPS =>
                {
                    tries += 1;
                    let until = self.wait.now().after(BUSY_STEP);
                    if self.wait.pause_until(until).is_err() {
                        return Err(StateError::Sink(error));
                    }
                }
                other => return other,
            }
        }
    }

    /// What the state directory says of the sources: how they stood, and whether an upstream asked us to wait.
    fn recall(&mut self) {
        let (now, wall) = (self.wait.now(), self.wait.clock().wall());
        let Some(state) = &mut self.state else { return };
        for (name, runner) in &mut self.runners {
            if let Ok(Some(noted)) = state.sink.noted(name) {
                runner.status.outcome = noted.outcome;
                runner.status.reason = noted.reason;
                runner.status.last_check = noted.last_check.map(rfc3339);
                runner.status.last_change = noted.last_complete.map(rfc3339);
                let age = noted
                    .last_check
                    .map(|then| wall.duration_since(then).unsigned_abs());
                runner.last_check = noted
                    .last_check
                    .map(|then| (then, Mono(now.0.saturating_sub(age.unwrap_or_default()))));
                // What is on disk is young enough: an idle poll need not write it again.
                runner.noted = runner.last_check.map(|(_, then)| then);
            }
            if let Ok(id) = state.store.source(name) {
                runner.status.records = state.store.count(id);
                if let Some(wait) = asked_to_wait(state, id, wall) {
                    runner.due = now.after(wait);
                    runner.why = Why::RetryAfter;
                }
            }
        }
    }

    /// Runs until told to stop.
    ///
    /// # Errors
    /// When waiting itself fails.
    pub fn run(&mut self, config_path: &std::path::Path) -> std::io::Result<()> {
        self.desk
            .publish(|status| status.pid = Some(std::process::id()));
        loop {
            if self.wait.stopping() {
                return Ok(());
            }
            while let Some((id, wish)) = self.desk.take() {
                let desk = self.desk.clone();
                self.carry_out(&wish, &mut |event| desk.tell(id, &event));
            }
            let until = self.step();
            match self.wait.sleep_until(until)? {
                Woke::Stop => return Ok(()),
                Woke::Reload => self.reload(config_path),
                Woke::Nudge | Woke::Deadline => {}
            }
        }
    }

    /// Does one thing that is due; says when to look again. What [`Agent::run`] repeats, without its sleeping.
    pub fn step(&mut self) -> Mono {
        self.resident = true;
        let now = self.wait.now();
        if let Err(error) = self.open() {
            self.cannot_open(&error);
            return now.after(REOPEN);
        }
        let due = self
            .runners
            .iter()
            .filter(|(_, runner)| runner.due <= now)
            .min_by_key(|(_, runner)| runner.due);
        if let Some(name) = due.map(|(name, _)| name.clone()) {
            self.pull(&name, Order::default(), &mut |_| ());
            return self.wait.now();
        }
        if !self.verified {
            self.verify_slice();
            return self.wait.now();
        }
        self.tidy();
        self.runners
            .values()
            .map(|runner| runner.due)
            .min()
            .unwrap_or_else(|| now.after(Duration::from_secs(3600)))
    }

    /// Rewrites the store when most of its file is no longer needed: sled's file never shrinks by itself.
    pub fn tidy(&mut self) {
        let (wait, now) = (self.wait.clone(), self.wait.now());
        if self.tidied.is_some_and(|then| now.since(then) < TIDY) {
            return;
        }
        self.tidied = Some(now);
        let Some(state) = &mut self.state else { return };
        // A stop in the middle is noticed at the next wait; a cut in the middle leaves the old store in place.
        let breathe = || drop(wait.breathe());
        let rewritten = match state.store.wants_compaction() {
            Ok(true) => state.store.compact(breathe),
            Ok(false) => return,
            Err(error) => Err(error),
        };
        match rewritten {
            Ok(()) => log::info!("the store was rewritten, without what is no longer needed"),
            Err(error) => log::error!("the store could not be rewritten: {error}"),
        }
    }

    /// Verifies the whole store: for a process that does not stay.
    pub fn verify(&mut self) {
        while self.state.is_some() && !self.verified && !self.wait.stopping() {
            self.verify_slice();
        }
    }

    fn verify_slice(&mut self) {
        let Some(state) = &mut self.state else { return };
        match state.store.verify(VERIFY_SLICE) {
            Ok(Progress::More) => {}
            Ok(Progress::Done(Verdict::Sound)) => self.verified = true,
            Ok(Progress::Done(Verdict::Damaged { why })) => self.rebuild(&why),
            Err(error) if error.is_damage() => self.rebuild(&error.to_string()),
            Err(error) => {
                log::error!("{error}");
                self.state = None;
            }
        }
    }

    /// The store is damaged: it is put aside, and what it knew is learnt again from `data.db` and from upstream.
    fn rebuild(&mut self, why: &str) {
        let Some(state) = self.state.take() else {
            return;
        };
        log::error!("the store is damaged: {why}");
        let now = self.wait.clock().wall();
        match state.store.put_aside(why, now) {
            Ok((_, Opening::Rebuilt { aside, why })) => {
                self.alarm(Topic::Damage, format!(
                    "the store was damaged ({why}): it is kept as {}, and all is compared again",
                    aside.display()
                ));
            }
            Ok(_) => {}
            Err(error) => self.alarm(
                Topic::Damage,
                format!("the store is damaged ({why}) and cannot be put aside: {error}"),
            ),
        }
        if let Err(error) = self.open() {
            log::error!("{error}");
        }
    }

    /// Says once, not with every try, that the state directory cannot be used.
    pub fn cannot_open(&mut self, error: &StateError) {
        let alarm = format!("the state directory cannot be used: {error}");
        if self.alarms.get(&Topic::StateDirectory) != Some(&vec![alarm.clone()]) {
            log::error!("{alarm}");
            self.over(Topic::StateDirectory);
            self.alarm(Topic::StateDirectory, alarm);
        }
    }

    fn alarm(&mut self, topic: Topic, alarm: String) {
        let alarms = self.alarms.entry(topic).or_default();
        if !alarms.contains(&alarm) {
            alarms.push(alarm);
        }
        self.publish_alarms();
    }

    /// What the alarms of a topic said holds no more.
    fn over(&mut self, topic: Topic) {
        if self.alarms.remove(&topic).is_some() {
            self.publish_alarms();
        }
    }

    fn publish_alarms(&self) {
        let alarms = self.alarms.values().flatten().cloned().collect();
        self.desk.publish(|status| status.alarms = alarms);
    }

    fn reload(&mut self, path: &std::path::Path) {
        match config::load(path, &|name| std::env::var_os(name)) {
            Err(errors) => {
                log::error!(
                    "the config was read again and not taken, the old one goes on:\n{errors}"
                );
                self.alarm(
                    Topic::ConfigFile,
                    "the config file has errors: the old one goes on; `gleaner check` shows them"
                        .into(),
                );
            }
            Ok(config)
                if config.agent.state != self.config.agent.state
                    || config.agent.control != self.config.agent.control =>
            {
                log::error!(
                    "`state` and `control` cannot change while the agent runs: restart it; the old config goes on"
                );
                self.alarm(
                    Topic::ConfigFile,
                    "`state` and `control` take a restart: the old config goes on".into(),
                );
            }
            Ok(config) => {
                log::info!("the config was read again");
                self.over(Topic::ConfigFile);
                self.config = config;
                self.clients.clear();
                self.state = None;
                self.seat_sources();
                for runner in self.runners.values_mut() {
                    runner.settled = None;
                }
            }
        }
    }

    /// Carries out a wish, handing on what is told about it as it comes.
    pub fn carry_out(&mut self, wish: &Wish, each: &mut dyn FnMut(Event)) {
        let names = if wish.sources.is_empty() {
            self.sources().map(str::to_owned).collect()
        } else {
            wish.sources.clone()
        };
        let unknown = names
            .iter()
            .find(|name| !self.config.sources.contains_key(*name));
        if let Some(name) = unknown {
            let known: Vec<&str> = self.sources().collect();
            each(Event::Refused {
                usage: true,
                reason: format!(
                    "the running agent has no source \"{name}\", only: {}; if the config file is newer than that, make it read the file again (SIGHUP, or systemctl reload gleaner)",
                    known.join(", ")
                ),
            });
        } else if let Err(error) = self.open() {
            each(Event::Refused {
                usage: false,
                reason: error.to_string(),
            });
        } else {
            let order = Order {
                dry_run: wish.dry_run,
                probe: wish.probe,
                confirmed: wish.confirm,
                replay: wish.replay,
                insist: !wish.sources.is_empty(),
            };
            for name in names {
                let report = self.pull(&name, order, each);
                each(Event::Report(report.line()));
                if self.wait.stopping() {
                    break;
                }
            }
        }
        each(Event::Done);
    }

    /// Pulls one source now. The state directory must be open.
    pub fn pull(&mut self, name: &str, order: Order, each: &mut dyn FnMut(Event)) -> Report {
        let mut report = self.passes(name, order, each);
        if self.replace_damaged_sink() && !self.wait.stopping() {
            report = self.passes(name, order, each);
        }
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

    fn passes(&mut self, name: &str, order: Order, each: &mut dyn FnMut(Event)) -> Report {
        let mut report = self.one_pass(name, order, each);
        if report.resumed && report.outcome.is_complete() && !self.wait.stopping() {
            // It began in an earlier process: its first pages may be old news by now.
            let first = report.tally;
            report = self.one_pass(name, order, each);
            report.tally = sum(&first, &report.tally);
            if report.outcome == Outcome::Unchanged && first.delivered() > 0 {
                report.outcome = Outcome::Changed;
            }
        }
        report
    }

    /// A `data.db` that a pass found damaged is put aside, and a new one is opened; whether that is so.
    fn replace_damaged_sink(&mut self) -> bool {
        let Some(state) = self.state.take_if(|state| state.sink.is_damaged()) else {
            return false;
        };
        match state.without_sink(self.wait.clock().wall()) {
            Ok(None) => {}
            Ok(Some(alarm)) => self.alarm(Topic::Damage, alarm),
            Err(error) => log::error!("{error}"),
        }
        if let Err(error) = self.open() {
            log::error!("{error}");
        }
        self.state.is_some()
    }

    fn one_pass(&mut self, name: &str, order: Order, each: &mut dyn FnMut(Event)) -> Report {
        let failed = |failure| Report::failed(name, failure);
        let Some(source) = self.config.sources.get(name).cloned() else {
            return failed(Failure::new(Kind::Local, "there is no such source"));
        };
        let Some(upstream) = self.config.upstreams.get(&source.upstream) else {
            return failed(Failure::new(Kind::Local, "its upstream is not configured"));
        };
        let fingerprint = config::fingerprint(&source, upstream);
        if !self.clients.contains_key(&source.upstream) {
            let slowest = self
                .config
                .sources
                .values()
                .filter(|other| other.upstream == source.upstream)
                .map(|other| other.every)
                .max();
            match self
                .shared
                .client(upstream, idle_age(slowest.unwrap_or(source.every)))
            {
                Ok(client) => drop(self.clients.insert(source.upstream.clone(), client)),
                Err(failure) => return failed(failure),
            }
        }
        let wall = self.wait.clock().wall();
        let (Some(client), Some(state)) =
            (self.clients.get_mut(&source.upstream), self.state.as_mut())
        else {
            return failed(Failure::new(
                Kind::Local,
                "the state directory cannot be used",
            ));
        };
        if order.replay {
            return replay(&source, &mut state.store, &mut state.sink, &self.wait);
        }
        if !order.insist {
            let wait = state
                .store
                .source(name)
                .ok()
                .and_then(|id| asked_to_wait(state, id, wall));
            if let Some(wait) = wait {
                let reason = format!(
                    "the upstream asked to wait, {} s are left (name the source to ask all the same)",
                    wait.as_secs()
                );
                return failed(Failure {
                    kind: Kind::Throttled,
                    reason,
                    retry_after: Some(wait),
                });
            }
        }
        let mode = Mode {
            dry_run: order.dry_run || order.probe,
            probe: order.probe,
            confirmed: order.confirmed,
            checkpoint: self.config.agent.checkpoint,
            config: fingerprint,
            scope: config::scope_fingerprint(upstream),
            settled: self.runners.get(name).and_then(|runner| runner.settled),
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
        let mut tools = Tools {
            client,
            store: &mut state.store,
            sink: &mut state.sink,
            wait: &self.wait,
            progress: &mut progress,
        };
        pass(&source, &mut tools, mode)
    }

    /// After a pass: when it is due next, what `status` and local readers shall know.
    fn after(&mut self, name: &str, report: &Report) {
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
        let (span, why) = next_due(
            rhythm,
            report.elapsed,
            ended(report, runner.failures),
            dice(),
        );
        runner.due = Mono(now.0.saturating_sub(report.elapsed)).after(span);
        runner.why = why;
        runner.settled = (report.outcome == Outcome::Unchanged
            || report.outcome == Outcome::Changed)
            .then(|| state.store.generation());
        let turned = turned(&runner.status.outcome, &report.outcome);
        note_status(runner, report, (now, wall));
        if let Ok(id) = state.store.source(name) {
            runner.status.records = state.store.count(id);
            remember_wait(state, id, report, wall);
        }
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

    /// A store that a pass left poisoned is opened anew before the next one.
    fn heal(&mut self) {
        let Some(state) = &mut self.state else { return };
        if state.store.is_poisoned() {
            log::warn!("the state directory is opened anew");
            self.state = None;
            if let Err(error) = self.open() {
                log::error!("{error}");
            }
        }
    }

    /// Publishes how all sources stand.
    pub fn publish(&self) {
        let moments = |name: &str, runner: &Runner| Moments {
            checked: runner.last_check.map(|(_, then)| then),
            stale_after: self
                .config
                .sources
                .get(name)
                .map(|source| source.stale_after)
                .unwrap_or_default(),
            // Nobody waits for it where no agent stays.
            due: self.resident.then_some(runner.due),
        };
        let sources: BTreeMap<String, SourceStatus> = self
            .runners
            .iter()
            .map(|(name, runner)| {
                let status = SourceStatus {
                    due_why: runner.why.to_string(),
                    moments: moments(name, runner),
                    ..runner.status.clone()
                };
                (name.clone(), status)
            })
            .collect();
        self.desk.publish(|status| status.sources = sources);
    }

    /// Where the control socket is.
    #[must_use]
    pub fn control(&self) -> PathBuf {
        self.config.agent.control.clone()
    }
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

fn ended(report: &Report, in_a_row: u32) -> Ended {
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
fn turned(before: &str, now: &Outcome) -> bool {
    let went_well = [Outcome::Changed.word(), Outcome::Unchanged.word()];
    before != now.word() && !(went_well.contains(&before) && went_well.contains(&now.word()))
}

fn later(wall: Timestamp, span: Duration) -> Timestamp {
    wall.saturating_add(span).unwrap_or(Timestamp::MAX)
}

const WAIT_ENTRY: &[u8] = b"retry-after";

/// How long an upstream's `Retry-After` still asks us to wait; it is kept across restarts.
fn asked_to_wait(state: &State, id: crate::store::SourceId, wall: Timestamp) -> Option<Duration> {
    let stored = state
        .store
        .get(&Key::new(Tag::Counter, id, WAIT_ENTRY))
        .ok()??;
    let until = i64::from_be_bytes(stored.try_into().ok()?);
    let left = u64::try_from(until.saturating_sub(wall.as_second())).unwrap_or(0);
    // A clock that jumped back must not make it longer than anybody may ask for.
    (left > 0 && left <= 24 * 3600 + 3600).then(|| Duration::from_secs(left))
}

fn remember_wait(state: &mut State, id: crate::store::SourceId, report: &Report, wall: Timestamp) {
    let key = Key::new(Tag::Counter, id, WAIT_ENTRY);
    let stored = matches!(state.store.get(&key), Ok(Some(_)));
    let mut batch = crate::store::Batch::new();
    match &report.outcome {
        Outcome::Failed(Failure {
            retry_after: Some(wait),
            ..
        }) => {
            if asked_to_wait(state, id, wall).is_some() {
                return; // the first one said it, later ones would only wear the card
            }
            batch.put(key, &later(wall, *wait).as_second().to_be_bytes());
        }
        outcome if outcome.is_complete() && stored => batch.remove(key),
        _ => return,
    }
    if let Err(error) = state.store.commit(batch) {
        log::error!("{error}");
    }
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
fn dice() -> f64 {
    let mut bytes = [0u8; 4];
    // Without entropy yet (early boot) the middle is as good as any.
    match rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::NONBLOCK) {
        Ok(4) => f64::from(u32::from_le_bytes(bytes)) / f64::from(u32::MAX),
        _ => 0.5,
    }
}
