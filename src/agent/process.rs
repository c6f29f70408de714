//! Processing: what came to the hooks is taken up in batches, in order, and marked when it is done.
//!
//! A payload may be processed twice, after a cut, and comes to the same then: records are compared, sources are woken once
//! more. It is never not processed at all.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::time::Duration;

use super::Agent;
use crate::clock::{Mono, Timestamp};
use crate::config::{self, Hook, Pull, Source};
use crate::door::coding;
use crate::door::http::Fields;
use crate::inbox::{InboxError, Position, State, Stored};
use crate::json::{Json, Kind as JsonKind};
use crate::pull::carry::{self, Carrier, Refused, Took};
use crate::pull::key::key_of;
use crate::pull::replay::replay;
use crate::store::Batch;
use crate::upstream::client::{Answer, Ask, shown};
use crate::upstream::outcome::{Expect, Failure, Kind};

/// Payloads in one batch …
const MANY: usize = 500;
/// … and bytes of their bodies.
const LARGE: usize = 1 << 20;
/// A decoded body may be so many times as large as it came.
const SWELL: usize = 20;
/// What does not depend on the payload is tried for ever, longer and longer apart; what does, so many times.
const TRIES: u16 = 5;
const FIRST_WAIT: u64 = 30;
const LONGEST_WAIT: u64 = 3600;
/// Event ids that are known at most.
const MOST_IDS: usize = 100_000;
/// How long nothing is processed when its outcome cannot be written down: it would be done over and over.
const HOLD: Duration = Duration::from_secs(60);
/// How often old payloads and ids are looked for.
const TEND: Duration = Duration::from_secs(3600);
/// Entries that go in one slice.
const SLICE: usize = 50;

/// What the agent keeps of its processing.
#[derive(Debug, Default)]
pub(super) struct Desk {
    /// When each hook's payloads were taken up last.
    last: BTreeMap<String, Mono>,
    tended: Option<Mono>,
    /// The last thing done was a batch.
    had_turn: bool,
    /// Nothing is taken up before: what became of the last batch could not be written down.
    held: Mono,
}

impl Desk {
    /// Whether a batch comes next: events that never stop must not keep sources from being pulled.
    pub(super) fn has_turn(&mut self, others_wait: bool) -> bool {
        self.had_turn = !(others_wait && self.had_turn);
        self.had_turn
    }
}

/// Why a payload could not be processed.
struct Trouble {
    reason: String,
    /// The payload itself is what is wrong.
    is_its_own: bool,
}

impl Trouble {
    fn own(reason: impl Into<String>) -> Self {
        Self {
            reason: reason.into(),
            is_its_own: true,
        }
    }

    fn of(failure: &Failure) -> Self {
        let is_its_own = matches!(failure.kind, Kind::BadData | Kind::Gone | Kind::Refused);
        Self {
            reason: failure.reason.clone(),
            is_its_own,
        }
    }
}

/// What came of a payload that had been tried so often before.
type Tried = (Position, u16, Result<(), Trouble>);

/// A payload that is taken up.
struct Taken {
    position: Position,
    tries: u16,
    stored: Stored,
}

impl Agent {
    /// Processes one batch of what is due; whether there was one.
    pub(super) fn process(&mut self) -> bool {
        if !self.ear.hears || self.state.is_none() || self.wait.now() < self.desk_of_hooks.held {
            return false;
        }
        let (batch, mut results) = self.take_up();
        if batch.is_empty() && results.is_empty() {
            return false;
        }
        let mut woken = Vec::new();
        let mut carried: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        let unreadable = results.len();
        for (at, taken) in batch.iter().enumerate() {
            let hook = self.config.hooks.get(&taken.stored.received.hook).cloned();
            let result = match &hook {
                None => Err(Trouble::own("there is no such hook in the config any more")),
                Some(hook) if !hook.wants(taken.stored.received.event_type.as_deref()) => Ok(()),
                Some(hook) => {
                    woken.extend(hook.wakes.iter().cloned());
                    match (&hook.records, &hook.fetch) {
                        (Some(records), _) => {
                            carried.entry(records.source.clone()).or_default().push(at);
                            Ok(())
                        }
                        (None, Some(_)) => self.fetch_one(hook, &taken.stored, &mut woken),
                        (None, None) => Ok(()),
                    }
                }
            };
            results.push((taken.position, taken.tries, result));
            if self.wait.stopping() {
                break;
            }
        }
        for (name, at) in carried {
            let some: Vec<&Taken> = at.iter().filter_map(|at| batch.get(*at)).collect();
            let outcome = self.carry(&name, &some, &mut woken);
            for (at, result) in at.into_iter().zip(outcome) {
                if let Some(slot) = results.get_mut(unreadable + at) {
                    slot.2 = result;
                }
            }
        }
        self.settle(&results);
        self.wake(&woken);
        self.publish();
        true
    }

    /// When processing is due next, if anything waits.
    pub(super) fn process_due(&self) -> Option<Mono> {
        if !self.ear.hears {
            return None;
        }
        let (now, wall) = (self.wait.now(), self.wait.clock().wall().as_second());
        self.ear.reception.is_seen();
        self.ear.reception.with_inbox(|inbox| {
            let due = inbox.pending(None).map(|pending| {
                let ahead =
                    u64::try_from(i64::from(pending.next).saturating_sub(wall)).unwrap_or(0);
                // A clock that jumped back must not put it off for longer than anything is put off.
                let tried = now.after(Duration::from_secs(ahead.min(LONGEST_WAIT)));
                tried
                    .max(self.hook_due(pending.hook))
                    .max(self.desk_of_hooks.held)
            });
            due.min()
        })?
    }

    fn hook_due(&self, hook: &str) -> Mono {
        let every = self
            .config
            .hooks
            .get(hook)
            .map_or(Duration::ZERO, |hook| hook.every);
        match self.desk_of_hooks.last.get(hook) {
            Some(last) => last.after(every),
            None => Mono::default(),
        }
    }

    /// Reads what is due, in order, as much as fits a batch; and says what cannot be read.
    fn take_up(&mut self) -> (Vec<Taken>, Vec<Tried>) {
        let (now, wall) = (self.wait.now(), self.wait.clock().wall().as_second());
        let reception = self.ear.reception.clone();
        let due: Vec<(Position, u16, String)> = reception
            .with_inbox(|inbox| {
                inbox
                    .pending(None)
                    .filter(|pending| {
                        let ahead = i64::from(pending.next).saturating_sub(wall);
                        ahead <= 0 || ahead > i64::try_from(LONGEST_WAIT).unwrap_or(i64::MAX)
                    })
                    .filter(|pending| self.hook_due(pending.hook) <= now)
                    .take(MANY)
                    .map(|pending| (pending.position, pending.tries, pending.hook.to_owned()))
                    .collect()
            })
            .unwrap_or_default();
        // The rest follows at once.
        let mut is_whole = due.len() < MANY;
        let (mut batch, mut bytes) = (Vec::new(), 0);
        let (mut hooks, mut unreadable) = (Vec::new(), Vec::new());
        for (position, tries, hook) in due {
            if bytes >= LARGE {
                is_whole = false;
                break;
            }
            match reception.with_inbox(|inbox| inbox.read(position)) {
                Some(Ok(stored)) => {
                    bytes += stored.received.body.len();
                    batch.push(Taken {
                        position,
                        tries,
                        stored,
                    });
                    if !hooks.contains(&hook) {
                        hooks.push(hook);
                    }
                }
                Some(Err(error)) => {
                    let trouble = Trouble {
                        is_its_own: matches!(error, InboxError::Damaged { .. }),
                        reason: error.to_string(),
                    };
                    unreadable.push((position, tries, Err(trouble)));
                }
                None => break,
            }
        }
        if is_whole {
            for hook in hooks {
                self.desk_of_hooks.last.insert(hook, now);
            }
        }
        (batch, unreadable)
    }

    /// Carries the records of several payloads into one source.
    fn carry(
        &mut self,
        name: &str,
        payloads: &[&Taken],
        woken: &mut Vec<String>,
    ) -> Vec<Result<(), Trouble>> {
        let mut results = Vec::new();
        let failed = |failure: &Failure| {
            let all = payloads.iter().map(|_| Err(Trouble::of(failure)));
            all.collect::<Vec<_>>()
        };
        let config = &self.config;
        let Some(source) = config.sources.get(name).cloned() else {
            return failed(&Failure::new(
                Kind::Local,
                format!("there is no source {name}"),
            ));
        };
        let Some(fingerprint) = fingerprint(config, &source) else {
            return failed(&Failure::new(Kind::Local, "its upstream is not configured"));
        };
        if let Err(failure) = self.adopt(&source, fingerprint) {
            return failed(&failure);
        }
        let hooks = self.config.hooks.clone();
        let Some(state) = self.state.as_mut() else {
            return failed(&Failure::new(
                Kind::Local,
                "the state directory cannot be used",
            ));
        };
        let carrier = Carrier::into_source(
            &source,
            fingerprint,
            &mut state.store,
            &mut state.sink,
            &self.wait,
        );
        let mut carrier = match carrier {
            Ok(Some(carrier)) => carrier,
            Ok(None) => {
                woken.push(name.to_owned());
                return failed(&Failure::new(
                    Kind::Failing,
                    format!("{name} is to be pulled first"),
                ));
            }
            Err(failure) => return failed(&failure),
        };
        let mut failure = None;
        for taken in payloads {
            let at = hooks
                .get(&taken.stored.received.hook)
                .and_then(|hook| hook.records.as_ref())
                .map(|records| records.at.clone())
                .unwrap_or_default();
            match records(&taken.stored, &at, &mut carrier) {
                Ok(ties) => {
                    if ties && source.pull != Pull::None {
                        woken.push(name.to_owned());
                    }
                    results.push(Ok(()));
                }
                Err(Wrong::Own(trouble)) => results.push(Err(trouble)),
                Err(Wrong::Device(local)) => {
                    results.push(Err(Trouble::of(&local)));
                    failure = Some(local);
                    break;
                }
            }
        }
        let delivered = match failure {
            None => carrier.finish(),
            Some(failure) => Err(failure),
        };
        match delivered {
            Ok(records) => {
                if let Some(runner) = self.runners.get_mut(name) {
                    runner.status.totals.added = runner.status.totals.added.saturating_add(records);
                }
                self.recount(name);
                log::debug!(
                    "{name}: {} events brought {records} records",
                    payloads.len()
                );
                results
            }
            Err(failure) => {
                log::error!("{name}: {}", failure.reason);
                failed(&failure)
            }
        }
    }

    /// Takes over the config of a source that no pass takes it over for.
    fn adopt(&mut self, source: &Source, fingerprint: [u8; 8]) -> Result<(), Failure> {
        if source.pull != Pull::None {
            return Ok(());
        }
        let Some(state) = self.state.as_mut() else {
            return Ok(());
        };
        let (store, sink) = (&mut state.store, &mut state.sink);
        if Carrier::into_source(source, fingerprint, store, sink, &self.wait)?.is_some() {
            return Ok(());
        }
        if carry::adopt(source, fingerprint, store, sink)? {
            log::info!(
                "{}: its config changed, every record is delivered again",
                source.name
            );
            let report = replay(source, store, sink, &self.wait);
            if let crate::pull::report::Outcome::Failed(failure) = report.outcome {
                return Err(failure);
            }
        }
        Ok(())
    }

    /// Fetches the one record that an event leads to.
    fn fetch_one(
        &mut self,
        hook: &Hook,
        stored: &Stored,
        woken: &mut Vec<String>,
    ) -> Result<(), Trouble> {
        let Some(fetch) = &hook.fetch else {
            return Ok(());
        };
        let body = content(stored)?;
        let event = Json::parse(&body)
            .map_err(|bad| Trouble::own(format!("the event is no JSON: {bad}")))?;
        let Some(source) = self.config.sources.get(&fetch.source).cloned() else {
            return Err(Trouble::own(format!("there is no source {}", fetch.source)));
        };
        let Some(base) = self
            .config
            .upstreams
            .get(&source.upstream)
            .map(|upstream| upstream.base.clone())
        else {
            return Err(Trouble::own("its upstream is not configured"));
        };
        let url = fetch
            .url
            .fill(&base, event)
            .map_err(|error| Trouble::own(format!("the event leads nowhere: {error}")))?;
        let local = |reason: &str| Failure::new(Kind::Local, reason.to_owned());
        let fingerprint = fingerprint(&self.config, &source)
            .ok_or_else(|| Trouble::own("its upstream is not configured"))?;
        self.adopt(&source, fingerprint)
            .map_err(|failure| Trouble::of(&failure))?;
        self.make_client(&source)
            .map_err(|failure| Trouble::of(&failure))?;
        let now = self.wait.clock().wall();
        let ask = Ask {
            url: &url,
            held: None,
            expect: Expect::Json,
            allow_empty: false,
            search: None,
        };
        let (Some(client), Some(state)) =
            (self.clients.get_mut(&source.upstream), self.state.as_mut())
        else {
            return Err(Trouble::of(&local("the state directory cannot be used")));
        };
        if let Some(failure) = client.turn().refuses(self.wait.now()) {
            return Err(Trouble::of(&failure));
        }
        let answer = match client.ask(&ask, now) {
            Ok(Answer::Full(full)) => {
                let most = client.max_record() as u64;
                let mut text = Vec::new();
                full.body
                    .take(most + 1)
                    .read_to_end(&mut text)
                    .map_err(|error| {
                        Trouble::of(&crate::upstream::client::failure_of_io(&error))
                    })?;
                if text.len() as u64 > most {
                    return Err(Trouble::own(format!(
                        "{}: the record is larger than `limits.record`",
                        shown(&url)
                    )));
                }
                Some(text)
            }
            Ok(_) => {
                return Err(Trouble::of(
                    &Failure::new(Kind::Failing, "an empty answer").at(shown(&url)),
                ));
            }
            Err(failure) if failure.kind == Kind::Gone => None,
            Err(failure) => return Err(Trouble::of(&failure)),
        };
        let carrier = Carrier::into_source(
            &source,
            fingerprint,
            &mut state.store,
            &mut state.sink,
            &self.wait,
        )
        .map_err(|failure| Trouble::of(&failure))?;
        let Some(mut carrier) = carrier else {
            woken.push(source.name.clone());
            return Err(Trouble::of(&Failure::new(
                Kind::Failing,
                format!("{} is to be pulled first", source.name),
            )));
        };
        match answer {
            Some(text) => {
                let json = Json::parse(&text)
                    .map_err(|bad| Trouble::own(format!("{}: {bad}", shown(&url))))?;
                let record = fetch.at.find(json).ok_or_else(|| {
                    Trouble::own(format!(
                        "{}: there is nothing at \"{}\"",
                        shown(&url),
                        fetch.at
                    ))
                })?;
                match carrier.fetched(record.as_str().as_bytes()) {
                    Ok(_) => {}
                    Err(Refused::Bad(bad)) => {
                        return Err(Trouble::own(format!("{}: {bad}", shown(&url))));
                    }
                    Err(Refused::Failed(failure)) => return Err(Trouble::of(&failure)),
                }
            }
            None if fetch.key.is_empty() => woken.push(source.name.clone()),
            None => {
                let key = key_of(event, &fetch.key)
                    .map_err(|bad| Trouble::own(format!("the event's key: {bad}")))?;
                carrier
                    .delete(key)
                    .map_err(|failure| Trouble::of(&failure))?;
            }
        }
        carrier.finish().map_err(|failure| Trouble::of(&failure))?;
        self.recount(&source.name);
        Ok(())
    }

    /// Marks what became of each payload, and tells the store the event ids that it has not yet.
    fn settle(&mut self, results: &[Tried]) {
        let wall = self.wait.clock().wall();
        let marks: Vec<(Position, State)> = results
            .iter()
            .map(|(position, tries, result)| (*position, became(*tries, result, wall)))
            .collect();
        for (_, state) in &marks {
            match state {
                State::Dead { reason, .. } => log::error!(
                    "a payload is given up: {reason}; see `gleaner inbox list --state dead`"
                ),
                State::Failed { reason, tries, .. } if *tries == 1 => {
                    log::warn!("a payload is tried again: {reason}")
                }
                _ => {}
            }
        }
        match self
            .ear
            .reception
            .with_inbox(|inbox| inbox.mark(&marks, wall))
        {
            Some(Ok(_)) | None => {}
            Some(Err(error)) => {
                log::error!("{error}; nothing is processed for a minute");
                self.desk_of_hooks.held = self.wait.now().after(HOLD);
            }
        }
        self.remember_events();
    }

    /// Tells the store the event ids that it has not yet.
    fn remember_events(&mut self) {
        let Some(state) = &mut self.state else { return };
        let reception = &self.ear.reception;
        loop {
            let mut batch = Batch::new();
            let Some(Some(up_to)) = reception.with_inbox(|inbox| inbox.fill(&mut batch)) else {
                return;
            };
            if let Err(error) = state.store.commit(batch) {
                log::error!("{error}");
                return;
            }
            reception.with_inbox(|inbox| inbox.marked(up_to));
        }
    }

    /// What there is time for when nothing is due: old payloads and ids go, the next segment is made.
    pub(super) fn tend_inbox(&mut self) {
        if !self.ear.hears {
            return;
        }
        let reception = self.ear.reception.clone();
        if let Some(Err(error)) = reception.with_inbox(crate::inbox::Inbox::prepare) {
            log::warn!("{error}");
        }
        let now = self.wait.now();
        if self
            .desk_of_hooks
            .tended
            .is_some_and(|then| now.since(then) < TEND)
        {
            return;
        }
        self.desk_of_hooks.tended = Some(now);
        let ours = self.reading();
        let trusted = ours.trust.is_sure().then_some(ours.wall);
        if let Some(Err(error)) = reception.with_inbox(|inbox| inbox.expire(trusted)) {
            log::error!("{error}");
        }
        self.remember_events();
        let keep = self.config.hooks.values().map(|hook| hook.keep_ids).max();
        let keep = keep.unwrap_or(Duration::from_secs(7 * 86_400));
        let mut forgotten = 0;
        while let Some(state) = &mut self.state {
            match state.store.expire_seen(trusted, keep, MOST_IDS, SLICE) {
                Ok(0) => break,
                Ok(gone) => forgotten += gone,
                Err(error) => {
                    log::error!("{error}");
                    break;
                }
            }
            // Between two slices whoever else is served has a turn.
            if self.wait.breathe().is_err() {
                break;
            }
        }
        if let (Some(now), Some(state)) = (trusted, &mut self.state) {
            let before = now.saturating_sub(keep).unwrap_or(Timestamp::MIN);
            for name in self.config.sources.keys() {
                if let Ok(id) = state.store.source(name) {
                    if let Err(failure) = carry::close_graves(&mut state.store, id, before, SLICE) {
                        log::error!("{}", failure.reason);
                    }
                }
            }
        }
        if forgotten > 0 {
            if let Err(reason) = self.learn_events() {
                log::error!("{reason}");
            }
        }
    }

    fn recount(&mut self, name: &str) {
        if let (Some(state), Some(runner)) = (&mut self.state, self.runners.get_mut(name)) {
            if let Ok(id) = state.store.source(name) {
                runner.status.records = state.store.count(id);
            }
            // A pass of 304s must look for absences again.
            runner.settled = None;
        }
    }

    /// Sources that events woke are due now.
    fn wake(&mut self, names: &[String]) {
        let now = self.wait.now();
        for name in names {
            if let Some(runner) = self.runners.get_mut(name) {
                if runner.due > now {
                    runner.due = now;
                    runner.why = crate::schedule::Why::Woken;
                }
            }
        }
    }
}

fn fingerprint(config: &config::Config, source: &Source) -> Option<[u8; 8]> {
    let upstream = config.upstreams.get(&source.upstream)?;
    Some(config::fingerprint(source, upstream))
}

/// The event's content: decoded where it came coded.
fn content(stored: &Stored) -> Result<std::borrow::Cow<'_, [u8]>, Trouble> {
    let received = &stored.received;
    let fields: Fields = received
        .headers
        .iter()
        .map(|(name, value)| (String::from_utf8_lossy(name).into_owned(), value.clone()))
        .collect();
    let limit = received.body.len().saturating_mul(SWELL).max(64 * 1024);
    coding::content(&fields, &received.body, limit).map_err(|error| Trouble::own(error.to_string()))
}

enum Wrong {
    /// The payload.
    Own(Trouble),
    /// This device.
    Device(Failure),
}

/// Carries the records of one payload: an array of them, or one. Says whether one of them ties with what is known.
fn records(
    stored: &Stored,
    at: &crate::pointer::Pointer,
    carrier: &mut Carrier<'_>,
) -> Result<bool, Wrong> {
    let body = content(stored).map_err(Wrong::Own)?;
    let json = Json::parse(&body)
        .map_err(|bad| Wrong::Own(Trouble::own(format!("the event is no JSON: {bad}"))))?;
    let found = at
        .find(json)
        .ok_or_else(|| Wrong::Own(Trouble::own(format!("the event has nothing at \"{at}\""))))?;
    let all: Vec<Json<'_>> = match found.kind() {
        JsonKind::Array => found.items().collect(),
        JsonKind::Object => vec![found],
        _ => {
            return Err(Wrong::Own(Trouble::own(format!(
                "what is at \"{at}\" is neither a record nor an array of them"
            ))));
        }
    };
    let mut ties = false;
    for record in all {
        match carrier.take(record.as_str().as_bytes()) {
            Ok(took) => ties |= took == Took::Tie,
            Err(Refused::Bad(bad)) => return Err(Wrong::Own(Trouble::own(bad.to_string()))),
            Err(Refused::Failed(failure)) => return Err(Wrong::Device(failure)),
        }
    }
    Ok(ties)
}

/// What a payload's state is after a try.
fn became(tries: u16, result: &Result<(), Trouble>, wall: Timestamp) -> State {
    let Err(trouble) = result else {
        return State::Done;
    };
    let tries = tries.saturating_add(1);
    if trouble.is_its_own && tries >= TRIES {
        return State::Dead {
            tries,
            reason: trouble.reason.clone(),
        };
    }
    let doublings = u32::from(tries - 1).min(10);
    let wait = FIRST_WAIT.saturating_mul(1 << doublings).min(LONGEST_WAIT);
    let next = wall
        .as_second()
        .saturating_add(i64::try_from(wait).unwrap_or(i64::MAX));
    State::Failed {
        tries,
        next: u32::try_from(next).unwrap_or(u32::MAX),
        reason: trouble.reason.clone(),
    }
}
