//! The loop: what is due, do one step, wait.

mod apply;
mod care;
mod course;
mod documents;
mod explain;
mod hours;
mod inbox;
mod listen;
mod manners;
mod process;
mod told;
mod turn;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use self::course::stored_course;
use self::hours::Hours;
use self::manners::remembered_pause;
use crate::clock::{Mono, Timestamp};
use crate::config::{self, Config, Pull};
use crate::desk::{Desk, Event, Moments, SourceStatus, Wish};
use crate::pull::collection::Latest;
use crate::reception::Reception;
use crate::schedule::Why;
use crate::sink::sqlite::rfc3339;
use crate::state::{State, StateError};
use crate::upstream::client::Client;
use crate::upstream::connect::Shared;
use crate::wait::{Wait, Woke};

/// How long an unusable state directory is left alone before the next try.
const REOPEN: Duration = Duration::from_secs(10);

/// The agent: everything that pulls.
pub struct Agent {
    config: Config,
    shared: Shared,
    wait: Wait,
    desk: Desk,
    state: Option<State>,
    verified: bool,
    audit: care::Audit,
    tidied: Option<Mono>,
    /// It stays, and nobody reads its reports: they go to the log.
    resident: bool,
    alarms: BTreeMap<Topic, Vec<String>>,
    clients: BTreeMap<String, Client>,
    hours: Hours,
    runners: BTreeMap<String, Runner>,
    papers: BTreeMap<String, documents::Paper>,
    ear: listen::Ear,
    desk_of_hooks: process::Desk,
    /// The door was to be opened: it is again when the config was read again.
    listening: bool,
    addresses: Vec<std::net::SocketAddr>,
}

/// What an alarm is about: what is over takes its alarms with it, the others stay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Topic {
    /// The state directory cannot be used.
    StateDirectory,
    /// The disk is too full to take anything new.
    Room,
    /// Something was damaged. Stays until the agent is started again: somebody should have seen it.
    Damage,
    /// The config file was not taken.
    ConfigFile,
    /// Webhooks do not come in as the config says.
    Door,
    /// The inbox cannot be used.
    Inbox,
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
    /// Where its passes have come to, as this process knows.
    latest: Option<Latest>,
    /// How long its last complete full pass took.
    full_took: Option<Duration>,
    /// How many passes over everything in a row changed nearly everything.
    stirred: u32,
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
    /// Compare everything.
    pub full: bool,
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
        let shared = Shared::new(wait.clone());
        let reception = Reception::new(shared.tls_clock.clone());
        let mut agent = Self {
            shared,
            wait,
            desk,
            state: None,
            verified: false,
            audit: care::Audit::default(),
            tidied: None,
            resident: false,
            alarms: BTreeMap::new(),
            clients: BTreeMap::new(),
            hours: Hours::default(),
            runners: BTreeMap::new(),
            papers: BTreeMap::new(),
            ear: listen::Ear::new(reception),
            desk_of_hooks: process::Desk::default(),
            listening: false,
            addresses: Vec::new(),
            config,
        };
        agent.seat_sources();
        agent.look_at_clock();
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
                latest: None,
                full_took: None,
                stirred: 0,
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
        self.seat_documents();
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
        let _said_in_status = self.refuse_full_disk();
        self.verified = false;
        self.audit = care::Audit::default();
        self.recall_floor();
        self.recall();
        self.recall_documents();
        // A store that was put aside has to be told what came to the hooks.
        self.ear.hears = false;
        self.open_ear();
        self.publish();
        Ok(())
    }

    /// What the state directory says of the sources: how they stood, and whether an upstream asked us to wait.
    fn recall(&mut self) {
        let (now, wall) = (self.wait.now(), self.wait.clock().wall());
        let Some(state) = &mut self.state else { return };
        for (name, runner) in &mut self.runners {
            // What was repaired while the state directory was opened counts.
            runner.latest = None;
            if let Ok(Some(noted)) = state.sink.noted(name) {
                runner.status.outcome = noted.outcome;
                runner.status.reason = noted.reason;
                runner.status.last_check = noted.last_check.map(rfc3339);
                runner.status.last_change = noted.last_complete.map(rfc3339);
                // A check that our clock takes to be in the future has no age: the clock may be wrong.
                let age = noted
                    .last_check
                    .and_then(|then| Duration::try_from(wall.duration_since(then)).ok());
                runner.last_check = noted
                    .last_check
                    .zip(age)
                    .map(|(then, age)| (then, Mono(now.0.saturating_sub(age))));
                // What is on disk is young enough: an idle poll need not write it again.
                runner.noted = runner.last_check.map(|(_, then)| then);
            }
            if let Ok(id) = state.store.source(name) {
                runner.status.records = state.store.count(id);
                if let Some(source) = self.config.sources.get(name) {
                    if let Some((course, notes)) = stored_course(state, id, source, &self.wait) {
                        runner.status.course = Some(course);
                        runner.status.notes = notes;
                    }
                }
            }
            let upstream = self.config.sources.get(name).map(|source| &source.upstream);
            if let Some(pause) = upstream.and_then(|name| remembered_pause(state, name, wall)) {
                runner.due = now.after(pause.span);
                runner.why = Why::RetryAfter;
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
        self.look_at_clock();
        self.heal();
        if let Err(error) = self.open() {
            self.cannot_open(&error);
            return now.after(REOPEN);
        }
        self.mend_ear();
        let due = self
            .runners
            .iter()
            .filter(|(name, runner)| runner.due <= now && self.is_pulled(name))
            .min_by_key(|(_, runner)| runner.due)
            .map(|(name, runner)| (runner.due, name.clone()));
        let paper = self.due_document(now);
        if self
            .desk_of_hooks
            .has_turn(due.is_some() || paper.is_some())
            && self.process()
        {
            return self.wait.now();
        }
        if let Some((_, name)) = paper.filter(|(at, _)| due.as_ref().is_none_or(|due| at < &due.0))
        {
            self.fetch(&name, Order::default(), &mut |_| ());
            return self.wait.now();
        }
        if let Some((_, name)) = due {
            self.pull(&name, Order::default(), &mut |_| ());
            return self.wait.now();
        }
        if !self.verified {
            self.verify_slice();
            return self.wait.now();
        }
        if self.audit_slice() {
            return self.wait.now();
        }
        self.tidy();
        self.tend_inbox();
        self.runners
            .iter()
            .filter(|(name, _)| self.is_pulled(name))
            .map(|(_, runner)| runner.due)
            .chain(self.papers.values().map(|paper| paper.due))
            .chain(self.process_due())
            .chain(self.mend_due())
            .min()
            .unwrap_or_else(|| now.after(Duration::from_secs(3600)))
    }

    /// Whether a source is asked for at all, rather than fed by hooks.
    fn is_pulled(&self, name: &str) -> bool {
        let source = self.config.sources.get(name);
        source.is_some_and(|source| source.pull != Pull::None)
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
                if self.listening {
                    self.listen(&|name| std::env::var_os(name));
                }
                for runner in self.runners.values_mut() {
                    runner.settled = None;
                    runner.latest = None;
                }
            }
        }
    }

    /// Carries out a wish, handing on what is told about it as it comes.
    pub fn carry_out(&mut self, wish: &Wish, each: &mut dyn FnMut(Event)) {
        if let Some(wish) = &wish.inbox {
            each(self.change_inbox(wish));
            return each(Event::Done);
        }
        if let Some(wish) = &wish.state {
            each(self.about_state(wish));
            return each(Event::Done);
        }
        let names = if wish.sources.is_empty() {
            let pulled = self.sources().filter(|name| self.is_pulled(name));
            let documents = self.config.documents.keys().map(String::as_str);
            pulled.chain(documents).map(str::to_owned).collect()
        } else {
            wish.sources.clone()
        };
        let unknown = names
            .iter()
            .find(|name| !self.config.sources.contains_key(*name) && !self.is_document(name));
        if let Some(name) = unknown {
            each(self.no_such_source(name));
        } else if let (true, Some(name)) = (
            wish.replay || wish.full || wish.confirm,
            wish.sources.iter().find(|name| self.is_document(name)),
        ) {
            each(Event::Refused {
                usage: true,
                reason: format!(
                    "{name} is a document, which has no records: `gleaner sync {name}` asks for it"
                ),
            });
        } else if let (false, Some(name)) = (
            wish.replay,
            wish.sources
                .iter()
                .find(|name| !self.is_pulled(name) && !self.is_document(name)),
        ) {
            each(Event::Refused {
                usage: true,
                reason: format!(
                    "the records of {name} come by hooks (`pull = \"none\"`): there is nothing to ask for; `gleaner inbox list` shows what came"
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
                full: wish.full || wish.confirm,
                confirmed: wish.confirm,
                replay: wish.replay,
                insist: !wish.sources.is_empty(),
            };
            for name in names {
                let report = match self.is_document(&name) {
                    true => self.fetch(&name, order, each),
                    false => self.pull(&name, order, each),
                };
                each(Event::Report(report.line()));
                if self.wait.stopping() {
                    break;
                }
            }
        }
        each(Event::Done);
    }

    fn no_such_source(&self, name: &str) -> Event {
        let documents = self.config.documents.keys().map(String::as_str);
        let known: Vec<&str> = self.sources().chain(documents).collect();
        Event::Refused {
            usage: true,
            reason: format!(
                "the running agent has no source \"{name}\", only: {}; if the config file is newer than that, make it read the file again (SIGHUP, or systemctl reload gleaner)",
                known.join(", ")
            ),
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
            due: (self.resident && self.is_pulled(name)).then_some(runner.due),
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
        self.publish_documents();
    }

    /// The control socket's permissions.
    #[must_use]
    pub fn control_mode(&self) -> u32 {
        self.config.agent.control_mode
    }

    /// Where the control socket is.
    #[must_use]
    pub fn control(&self) -> PathBuf {
        self.config.agent.control.clone()
    }
}
