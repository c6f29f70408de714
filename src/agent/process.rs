//! Processing: what came to the hooks is taken up in batches, in order, and marked when it is done.
//!
//! A payload may be processed twice, after a cut, and comes to the same then: records are compared, sources are woken once
//! more. It is never not processed at all.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Agent;
use super::apply::Trouble;
use crate::clock::{Mono, Timestamp};
use crate::inbox::{InboxError, Position, RequestId, State, Stored};
use crate::pull::carry;
use crate::store::Batch;

/// Payloads in one batch …
const MANY: usize = 500;
/// … and bytes of their bodies.
const LARGE: usize = 1 << 20;
/// What does not depend on the payload is tried for ever, longer and longer apart; what does, so many times.
const TRIES: u16 = 5;
const FIRST_WAIT: u64 = 30;
const LONGEST_WAIT: u64 = 3600;
/// Event ids that are known at most …
const MOST_IDS: usize = 100_000;
/// … and so many more until the oldest are forgotten: what is learnt anew afterwards should be worth it.
const IDS_IN_EXCESS: usize = MOST_IDS / 16;
/// A batch ends after this span, so that fetches from a slow upstream are marked before there are many to be done again, and
/// sources have their turn.
const BATCH_TIME: Duration = Duration::from_secs(10);
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

/// A payload that waits: where it is, and what it is called in messages.
#[derive(Clone)]
pub(super) struct Waiting {
    position: Position,
    id: RequestId,
    hook: String,
    /// How often it was tried before.
    tries: u16,
}

/// What came of a payload.
type Tried = (Waiting, Result<(), Trouble>);

/// A payload that is taken up.
pub(super) struct Taken {
    waiting: Waiting,
    pub(super) stored: Stored,
}

impl Agent {
    /// Processes one batch of what is due; whether there was one.
    pub(super) fn process(&mut self) -> bool {
        if !self.ear.hears || self.state.is_none() || self.wait.now() < self.desk_of_hooks.held {
            return false;
        }
        let (batch, mut results) = self.take_up();
        if !batch.is_empty() && self.refuse_full_disk().is_err() {
            self.desk_of_hooks.held = self.wait.now().after(HOLD);
            return false;
        }
        if batch.is_empty() && results.is_empty() {
            return false;
        }
        let mut woken = Vec::new();
        let mut carried: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        let unreadable = results.len();
        let started = self.wait.now();
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
            results.push((taken.waiting.clone(), result));
            if self.wait.stopping() || self.wait.now().since(started) >= BATCH_TIME {
                // The rest follows at once.
                for left in batch.iter().skip(at + 1) {
                    self.desk_of_hooks.last.remove(&left.stored.received.hook);
                }
                break;
            }
        }
        for (name, at) in carried {
            let some: Vec<&Taken> = at.iter().filter_map(|at| batch.get(*at)).collect();
            let outcome = self.carry(&name, &some, &mut woken);
            for (at, result) in at.into_iter().zip(outcome) {
                if let Some(slot) = results.get_mut(unreadable + at) {
                    slot.1 = result;
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
        let due: Vec<Waiting> = reception
            .with_inbox(|inbox| {
                inbox
                    .pending(None)
                    .filter(|pending| {
                        let ahead = i64::from(pending.next).saturating_sub(wall);
                        ahead <= 0 || ahead > i64::try_from(LONGEST_WAIT).unwrap_or(i64::MAX)
                    })
                    .filter(|pending| self.hook_due(pending.hook) <= now)
                    .take(MANY)
                    .map(|pending| Waiting {
                        position: pending.position,
                        id: pending.id,
                        hook: pending.hook.to_owned(),
                        tries: pending.tries,
                    })
                    .collect()
            })
            .unwrap_or_default();
        // The rest follows at once.
        let mut is_whole = due.len() < MANY;
        let (mut batch, mut bytes) = (Vec::new(), 0);
        let (mut hooks, mut unreadable) = (Vec::new(), Vec::new());
        for waiting in due {
            if bytes >= LARGE {
                is_whole = false;
                break;
            }
            match reception.with_inbox(|inbox| inbox.read(waiting.position)) {
                Some(Ok(stored)) => {
                    bytes += stored.received.body.len();
                    if !hooks.contains(&waiting.hook) {
                        hooks.push(waiting.hook.clone());
                    }
                    batch.push(Taken { waiting, stored });
                }
                Some(Err(error)) => {
                    let trouble = Trouble {
                        is_its_own: matches!(error, InboxError::Damaged { .. }),
                        reason: error.to_string(),
                    };
                    unreadable.push((waiting, Err(trouble)));
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

    /// Marks what became of each payload, and tells the store the event ids that it has not yet.
    fn settle(&mut self, results: &[Tried]) {
        let wall = self.wait.clock().wall();
        let marks: Vec<(Position, State)> = results
            .iter()
            .map(|(waiting, result)| (waiting.position, became(waiting.tries, result, wall)))
            .collect();
        for ((waiting, _), (_, state)) in results.iter().zip(&marks) {
            let (hook, id) = (&waiting.hook, waiting.id);
            match state {
                State::Dead { reason, .. } => log::error!(
                    "hook {hook}: payload {id} is given up: {reason}; `gleaner inbox show {id}` shows it, `retry` or `drop` ends it"
                ),
                State::Failed { reason, tries, .. } if *tries == 1 => {
                    log::warn!("hook {hook}: payload {id} is tried again: {reason}");
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
        let count = self.state.as_ref().map(|state| state.store.seen_count());
        if matches!(count, Some(Ok(count)) if count > MOST_IDS + IDS_IN_EXCESS) {
            // By their number alone, so that it holds without a clock too.
            self.forget_events(None);
        }
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

    /// Forgets event ids that are too many, or too old by a clock that is trusted.
    fn forget_events(&mut self, trusted: Option<Timestamp>) {
        let keep = self.keep_ids();
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
        if forgotten > 0 {
            if let Err(reason) = self.learn_events() {
                log::error!("{reason}");
            }
        }
    }

    /// How long event ids are known: as long as the hook says that wants it longest.
    fn keep_ids(&self) -> Duration {
        let keep = self.config.hooks.values().map(|hook| hook.keep_ids).max();
        keep.unwrap_or(Duration::from_secs(7 * 86_400))
    }

    /// What there is time for when nothing is due: old payloads and ids go, the next segment is made.
    pub(super) fn tend_inbox(&mut self) {
        if !self.ear.hears {
            return;
        }
        let reception = self.ear.reception.clone();
        match reception.with_inbox(crate::inbox::Inbox::prepare) {
            // Whether there is room is said when an event finds none, and not with every look.
            Some(Err(error)) if !error.is_full() => log::warn!("{error}"),
            _ => {}
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
        self.forget_events(trusted);
        let keep = self.keep_ids();
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
    }

    /// Sources that events woke are due now.
    pub(super) fn wake(&mut self, names: &[String]) {
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
