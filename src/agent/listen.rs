//! The agent's ear: the inbox, the reception and the public door, as the config says.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::{Agent, Topic};
use crate::clock::{Clock, Mono};
use crate::config::{self, Config, Env};
use crate::desk::{Hears, HookStatus};
use crate::door::{Certificate, Listen, Place, PublicDoor, Settings};
use crate::inbox::{self, Inbox, Limits};
use crate::reception::{Counts, Quiet, Reception};
use crate::sink::sqlite::rfc3339;
use crate::store::EventKey;

/// What the public door is called among those whom the wait serves.
const DOOR: &str = "door";

/// How long until an inbox that cannot be used is tried again.
const AGAIN: Duration = Duration::from_secs(60);

/// What the agent has of its ear.
#[derive(Debug)]
pub(super) struct Ear {
    pub(super) reception: Reception,
    /// The door as it was opened.
    door: Option<(config::Door, Option<Certificate>)>,
    /// The inbox is open and the store knows its events.
    pub(super) hears: bool,
    /// When that is tried again, if it failed.
    again: Mono,
}

impl Ear {
    pub(super) fn new(reception: Reception) -> Self {
        Self {
            reception,
            door: None,
            hears: false,
            again: Mono::default(),
        }
    }
}

impl Agent {
    /// Opens the door as the config has it: at start, and when the config was read again. What cannot be opened is an
    /// alarm; the agent pulls all the same.
    pub fn listen(&mut self, env: Env<'_>) {
        self.listening = true;
        self.over(Topic::Door);
        for unusable in self.ear.reception.configure(&self.config, env) {
            log::error!("{unusable}");
            self.alarm(Topic::Door, unusable.to_string());
        }
        self.open_ear();
        self.desk.hear_by(Arc::new(Told {
            reception: self.ear.reception.clone(),
            dir: self.config.agent.state.join(inbox::NAME),
            started: self.wait.now(),
            clock: Arc::clone(self.wait.clock()),
        }));
        let wanted = self
            .config
            .door
            .clone()
            .filter(|_| !self.config.hooks.is_empty());
        match (&self.ear.door, &wanted) {
            (Some((open, certificate)), Some(wanted)) if open == wanted => {
                if let Some(Err(error)) = certificate.as_ref().map(Certificate::reload) {
                    let alarm = format!(
                        "the door's certificate was not taken, the one before stays in use: {error}"
                    );
                    log::error!("{alarm}");
                    self.alarm(Topic::Door, alarm);
                }
                return;
            }
            _ => {}
        }
        self.wait.dismiss(DOOR);
        self.ear.door = None;
        let Some(wanted) = wanted else { return };
        match open_door(&wanted, &self.ear.reception) {
            Ok((door, certificate)) => {
                let places: Vec<String> =
                    door.addresses().iter().map(ToString::to_string).collect();
                log::info!(
                    "the door listens at {} for {}",
                    places.join(", "),
                    match self.config.hooks.len() {
                        1 => "1 hook".to_owned(),
                        hooks => format!("{hooks} hooks"),
                    }
                );
                self.addresses = door.addresses();
                self.wait.attend_as(DOOR, Box::new(door));
                self.ear.door = Some((wanted, certificate));
            }
            Err(error) => {
                let alarm = format!(
                    "the door is shut: {error}; the agent pulls all the same, and tries again when the config is read again"
                );
                log::error!("{alarm}");
                self.alarm(Topic::Door, alarm);
            }
        }
    }

    /// Where the public door listens.
    #[must_use]
    pub fn addresses(&self) -> &[std::net::SocketAddr] {
        &self.addresses
    }

    /// Opens the inbox where there are hooks, and tells the store the events that it does not know.
    pub(super) fn open_ear(&mut self) {
        if !self.listening || self.config.hooks.is_empty() || self.state.is_none() {
            return;
        }
        let limits = limits(&self.config);
        let had = self
            .ear
            .reception
            .with_inbox(|inbox| inbox.set_limits(limits));
        if had.is_none() {
            let dir = self.config.agent.state.join(inbox::NAME);
            match Inbox::open(&dir, limits) {
                Ok((inbox, opening)) => {
                    for finding in opening.findings {
                        log::warn!("{finding}");
                    }
                    if let Err(error) = inbox.has_room(0) {
                        log::warn!("events will not be saved: {error}");
                    }
                    let hooks = self.config.hooks.keys().cloned().collect();
                    match inbox::Reader::new(&dir).latest(&hooks, REMEMBERED) {
                        Ok(latest) => self.ear.reception.recall(latest),
                        Err(error) => log::warn!("{error}"),
                    }
                    self.ear.reception.open(inbox);
                    self.ear.hears = false;
                }
                Err(error) => return self.is_deaf(&error.to_string()),
            }
        }
        if !self.ear.hears {
            match self.learn_events() {
                Ok(()) => {
                    self.ear.hears = true;
                    self.over(Topic::Inbox);
                }
                Err(reason) => self.is_deaf(&reason),
            }
        }
    }

    /// Says once, not with every try, that the inbox cannot be used.
    fn is_deaf(&mut self, reason: &str) {
        self.ear.again = self.wait.now().after(AGAIN);
        let alarm = format!(
            "webhooks cannot be saved or processed, and are answered with 503 where they would be new: {reason}; it is tried again every minute"
        );
        if self.alarms.get(&Topic::Inbox) != Some(&vec![alarm.clone()]) {
            log::error!("{alarm}");
            self.over(Topic::Inbox);
            self.alarm(Topic::Inbox, alarm);
        }
    }

    /// Tries again what [`Agent::open_ear`] could not do.
    pub(super) fn mend_ear(&mut self) {
        let now = self.wait.now();
        if !self.is_deaf_now() {
            if self.ear.reception.is_troubled() && self.ear.again <= now {
                // Notices, and says, that it is over.
                let _told_by_status = self.ear.reception.trouble(now);
                self.ear.again = now.after(AGAIN);
            }
        } else if self.ear.again <= now {
            self.open_ear();
        }
    }

    /// When that is due.
    pub(super) fn mend_due(&self) -> Option<Mono> {
        let wants_care = self.is_deaf_now() || self.ear.reception.is_troubled();
        wants_care.then_some(self.ear.again)
    }

    fn is_deaf_now(&self) -> bool {
        self.listening && !self.config.hooks.is_empty() && !self.ear.hears
    }

    /// The store is told what the inbox has, and the reception what the store knows then.
    ///
    /// # Errors
    /// Why not; nothing was learnt then.
    pub(super) fn learn_events(&mut self) -> Result<(), String> {
        let Some(state) = &mut self.state else {
            return Err("the state directory cannot be used".into());
        };
        let reception = self.ear.reception.clone();
        // Nobody is served meanwhile: an event that comes now would not be known for one that came before.
        let told = reception.with_inbox(|inbox| inbox.catch_up(&mut state.store, || ()));
        match told {
            Some(Ok(_)) => {}
            Some(Err(error)) => return Err(error.to_string()),
            None => return Err("there is no inbox".into()),
        }
        let mut known: HashMap<EventKey, _> = HashMap::new();
        state
            .store
            .seen_all(|key, id| {
                known.insert(key, inbox::RequestId(id));
            })
            .map_err(|error| error.to_string())?;
        reception.replace_known(known);
        Ok(())
    }
}

/// So many of the latest segments are read at start for what came last: 16 MiB, under a second on slow cards.
const REMEMBERED: usize = 4;

/// A hook that nothing came to for so long is worth a word.
const SILENT: Duration = Duration::from_secs(30 * 86_400);

/// Answers for the desk what came to the hooks.
pub(super) struct Told {
    pub(super) reception: Reception,
    pub(super) dir: PathBuf,
    pub(super) started: Mono,
    pub(super) clock: Arc<dyn Clock>,
}

impl Hears for Told {
    fn hooks(&self, now: Mono) -> BTreeMap<String, HookStatus> {
        let waiting = self
            .reception
            .with_inbox(|inbox| {
                let mut waiting: BTreeMap<String, u64> = BTreeMap::new();
                for pending in inbox.pending(None) {
                    *waiting.entry(pending.hook.to_owned()).or_default() += 1;
                }
                waiting
            })
            .unwrap_or_default();
        let status = |(name, counts): (String, Counts)| {
            let quiet = match counts.quiet_since {
                Quiet::Start => now.since(self.started),
                Quiet::Mono(then) => now.since(then),
                Quiet::Wall(_) if !self.reception.knows_time() => now.since(self.started),
                Quiet::Wall(then) => {
                    let span = self.clock.wall().duration_since(then);
                    Duration::try_from(span).unwrap_or_default()
                }
            };
            let mut notes = Vec::new();
            if quiet >= SILENT {
                notes.push(format!(
                    "nothing has come for {} days; if nobody sends there any more, take [hook.{name}] out of the config and reload",
                    quiet.as_secs() / 86_400
                ));
            }
            let refused = counts.refused.iter();
            let status = HookStatus {
                saved: counts.saved,
                duplicates: counts.duplicates,
                refused: refused
                    .map(|(why, count)| ((*why).to_owned(), *count))
                    .collect(),
                last: counts.last.map(rfc3339),
                waiting: waiting.get(&name).copied().unwrap_or(0),
                notes,
            };
            (name, status)
        };
        self.reception.counts().into_iter().map(status).collect()
    }

    fn alarm(&self, now: Mono) -> Option<String> {
        self.reception.trouble(now)
    }

    fn request(&self, id: &str) -> Option<String> {
        let id = id.parse().ok()?;
        let listed = inbox::Reader::new(&self.dir).show(id).ok()?;
        Some(listed.json().to_string())
    }
}

/// What the inbox as a whole may take: what its hooks may.
fn limits(config: &Config) -> Limits {
    let keep = config.hooks.values().map(|hook| hook.keep).max();
    Limits {
        quota: config.hooks.values().map(|hook| hook.quota).sum(),
        keep: keep.unwrap_or(Limits::default().keep),
        ..Limits::default()
    }
}

fn open_door(
    door: &config::Door,
    reception: &Reception,
) -> Result<(PublicDoor, Option<Certificate>), String> {
    let certificate = match &door.tls {
        Some(tls) => {
            Some(Certificate::read(&tls.cert, &tls.key).map_err(|error| error.to_string())?)
        }
        None => None,
    };
    let places: Vec<Listen> = door
        .listen
        .iter()
        .map(|listen| Listen {
            place: match listen {
                config::Listen::Address(address) => Place::Tcp(*address),
                config::Listen::Systemd(name) => Place::Systemd { name: name.clone() },
            },
            tls: certificate.clone(),
        })
        .collect();
    let limits = &door.limits;
    let settings = Settings {
        connections: limits.connections,
        per_peer: limits.per_peer,
        head_bytes: limits.head,
        bodies: limits.memory,
        head: limits.head_time,
        body: limits.body_time,
        idle: limits.idle,
        ..Settings::default()
    };
    PublicDoor::open(&places, reception.service(), settings)
        .map(|door| (door, certificate))
        .map_err(|error| error.to_string())
}
