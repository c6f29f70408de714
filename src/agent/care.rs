//! Taking care of the state directory: opened patiently, verified in slices, rewritten, rebuilt when it is damaged.

use std::ops::Bound;
use std::time::Duration;

use super::{Agent, Topic};
use crate::clock::Mono;
use crate::pull::audit;
use crate::pull::repair::RepairError;
use crate::record::RecordKey;
use crate::sink::SinkTrouble;
use crate::state::{State, StateError};
use crate::store::{Progress, Verdict};
use crate::upstream::outcome::{Failure, Kind};

/// Entries of the store that are verified in one slice.
const VERIFY_SLICE: usize = 500;

/// How long another program's lock on `data.db` is waited for when it is opened, and in which steps.
const BUSY_STEP: Duration = Duration::from_millis(200);

const BUSY_STEPS: u32 = 25;

/// How often it is looked whether the store wants to be rewritten.
const TIDY: Duration = Duration::from_secs(3600);

/// How often `data.db` is read back, besides at the start.
const AUDIT: Duration = Duration::from_secs(7 * 86_400);

/// How far reading `data.db` back has come.
#[derive(Debug, Default)]
pub(super) struct Audit {
    /// The source that is being read, or the first name behind the last one, and the last key that was.
    at: Option<(String, Option<RecordKey>)>,
    /// When it came to its end.
    ended: Option<Mono>,
}

impl Agent {
    /// Reads some rows of `data.db` back, if that is due; whether there may be more. What is not as it was written is in doubt
    /// and delivered again; a file that is damaged is put aside.
    pub(super) fn audit_slice(&mut self) -> bool {
        let now = self.wait.now();
        let is_done = self.audit.ended.is_some_and(|then| now.since(then) < AUDIT);
        let (false, Some(state)) = (is_done, &mut self.state) else {
            return false;
        };
        let (name, after) = self.audit.at.take().unwrap_or_default();
        let sources = &self.config.sources;
        let from = (Bound::Included(name), Bound::Unbounded);
        let Some((name, source)) = sources.range::<String, _>(from).next() else {
            self.audit.ended = Some(now);
            let Err(error) = state.sink.check_notes() else {
                return false;
            };
            log::error!("{error}");
            return self.replace_damaged_sink();
        };
        let name = name.clone();
        match audit::slice(source, after.as_ref(), &mut state.store, &state.sink) {
            Ok(slice) => {
                self.doubt(&name, slice.doubted.len());
                self.audit.at = Some(match slice.last {
                    Some(last) => (name, Some(last)),
                    // The first name behind this one.
                    None => (name + "\0", None),
                });
                true
            }
            Err(RepairError::Sink(error)) if error.kind == SinkTrouble::Damaged => {
                log::error!("{error}");
                self.replace_damaged_sink()
            }
            Err(error) => {
                // Whoever writes next meets it as well.
                log::warn!("data.db could not be read back: {error}");
                self.audit.ended = Some(now);
                false
            }
        }
    }

    /// Says that rows are not what was written, and has the next pass compare everything.
    fn doubt(&mut self, name: &str, rows: usize) {
        if rows == 0 {
            return;
        }
        let alarm = format!(
            "data.db: {rows} rows of {name} were not what was written there; they are compared with upstream and written again"
        );
        log::error!("{alarm}");
        self.alarm(Topic::Damage, alarm);
        if let Some(runner) = self.runners.get_mut(name) {
            (runner.latest, runner.settled) = (None, None);
        }
        self.wake(&[name.to_owned()]);
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

    pub(super) fn verify_slice(&mut self) {
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
    pub(super) fn rebuild(&mut self, why: &str) {
        let Some(state) = self.state.take() else {
            return;
        };
        log::error!("the store is damaged: {why}");
        match state.without_store(why, self.wait.clock().wall()) {
            Ok(None) => {}
            Ok(Some(alarm)) => self.alarm(Topic::Damage, alarm),
            Err(error) => self.alarm(
                Topic::Damage,
                format!("the store is damaged ({why}) and cannot be put aside: {error}"),
            ),
        }
        if let Err(error) = self.open() {
            log::error!("{error}");
        }
    }

    /// A `data.db` that a pass found damaged is put aside, and a new one is opened; whether that is so.
    pub(super) fn replace_damaged_sink(&mut self) -> bool {
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

    /// A `data.db` that somebody took away or replaced while it was open: nobody would read what is written there.
    pub(super) fn notice_replaced_sink(&mut self) {
        if self
            .state
            .take_if(|state| state.sink.is_replaced())
            .is_none()
        {
            return;
        }
        log::warn!(
            "data.db was taken away or replaced while it was open: it is opened anew, and everything is compared"
        );
        if let Err(error) = self.open() {
            log::error!("{error}");
        }
    }

    /// Why nothing new is taken, if the disk is too full for that; `status` says it as long as it is so.
    pub(super) fn refuse_full_disk(&mut self) -> Result<(), Failure> {
        let Some(state) = &mut self.state else {
            return Ok(());
        };
        if !state.is_short() {
            if self.alarms.contains_key(&Topic::Room) {
                log::info!("there is room again: the reserve was made anew");
                self.over(Topic::Room);
            }
            return Ok(());
        }
        let reason = format!(
            "{}: the disk is full, and the reserve that keeps the agent able to start is used up; make room (2 MiB): nothing is fetched or processed before",
            state.dir().display()
        );
        if !self.alarms.contains_key(&Topic::Room) {
            log::error!("{reason}");
        }
        self.alarm(Topic::Room, reason.clone());
        Err(Failure::new(Kind::Local, reason))
    }

    /// A store that a failed commit left poisoned is opened anew before anything else is done with it.
    pub(super) fn heal(&mut self) {
        let Some(state) = &mut self.state else { return };
        if state.store.is_poisoned() {
            log::warn!("the state directory is opened anew");
            self.state = None;
            if let Err(error) = self.open() {
                log::error!("{error}");
            }
        }
    }

    /// Another program that holds a write lock on `data.db` is waited for, with everybody served meanwhile; not for ever.
    pub(super) fn open_patiently(&self) -> Result<State, StateError> {
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
}
