//! What the agent knows of the time: whether its clock can be believed, and since when it cannot be earlier.

use super::Agent;
use crate::clock::{
    Evidence, Reading, Sighting, Timestamp, Trust, Unsure, Witnesses, build_floor, judge, raised,
};
use crate::desk::ClockStatus;
use crate::json::time::TimeFormat;
use crate::store::{Key, SourceId, Tag};

/// What is known of the time.
#[derive(Debug)]
pub(super) struct Hours {
    floor: Timestamp,
    /// The floor that is in the store, or goes there with its next commit.
    kept: Timestamp,
    /// What upstreams told, one each by host: two upstreams at one host are one witness.
    seen: Vec<Sighting>,
    /// What was found last.
    trust: Option<Trust>,
}

impl Default for Hours {
    fn default() -> Self {
        let floor = build_floor();
        Self {
            floor,
            kept: floor,
            seen: Vec::new(),
            trust: None,
        }
    }
}

impl Hours {
    fn saw(&mut self, sighting: &Sighting) {
        match self.seen.iter_mut().find(|seen| seen.host == sighting.host) {
            Some(seen) if seen.at < sighting.at => seen.clone_from(sighting),
            Some(_) => {}
            None => self.seen.push(sighting.clone()),
        }
    }
}

fn floor_key() -> Key {
    Key::new(Tag::Counter, SourceId::NONE, b"clock-floor")
}

impl Agent {
    /// Takes up the floor that an earlier process was sure of.
    pub(super) fn recall_floor(&mut self) {
        let stored = self
            .state
            .as_ref()
            .and_then(|state| state.store.get(&floor_key()).ok().flatten())
            .and_then(|bytes| Some(i64::from_be_bytes(bytes.try_into().ok()?)))
            .and_then(|seconds| Timestamp::from_second(seconds).ok());
        self.hours.kept = stored.unwrap_or(build_floor());
        self.hours.floor = self.hours.floor.max(self.hours.kept);
        self.look_at_clock();
    }

    /// Finds out what our clock is worth, and tells whoever goes by it: certificates, windows, `status`. The floor rides
    /// along with the store's other commits, a checkpoint apart; where nothing changes for weeks it stays weeks behind,
    /// and that is early enough to get through TLS again.
    pub(super) fn look_at_clock(&mut self) {
        for sighting in self.clients.values().filter_map(|client| client.seen()) {
            self.hours.saw(sighting);
        }
        let witnesses = match &self.config.agent.time_sync {
            Some(file) => Witnesses::only(file),
            None => Witnesses::known(),
        };
        let evidence = Evidence {
            wall: self.wait.clock().wall(),
            now: self.wait.now(),
            floor: self.hours.floor,
            set: witnesses.set_at(),
            sightings: &self.hours.seen,
        };
        let (trust, raised) = (judge(&evidence), raised(&evidence));
        self.hours.floor = raised.unwrap_or(self.hours.floor);
        self.shared.tls_clock.raise_floor(self.hours.floor);
        self.shared.tls_clock.believe(trust);
        self.keep_floor();
        self.tell_of_clock(trust);
    }

    /// What our own clock says now, and what that is worth.
    pub(super) fn reading(&self) -> Reading {
        Reading {
            wall: self.wait.clock().wall(),
            trust: self.hours.trust.unwrap_or(Trust::Unsure(Unsure::Unvouched)),
            floor: self.hours.floor,
        }
    }

    fn keep_floor(&mut self) {
        let (floor, kept) = (self.hours.floor, self.hours.kept);
        let worth_it = floor.duration_since(kept) >= to_signed(self.config.agent.checkpoint);
        let Some(state) = self.state.as_mut().filter(|_| worth_it) else {
            return;
        };
        let seconds = floor.as_second().to_be_bytes();
        match state.store.ride_along(&floor_key(), &seconds) {
            Ok(()) => self.hours.kept = floor,
            Err(error) => log::error!("{error}"),
        }
    }

    fn tell_of_clock(&mut self, trust: Trust) {
        // By how much it is off moves with every look.
        let same = match (self.hours.trust, trust) {
            (
                Some(Trust::Unsure(Unsure::Contradicted(_))),
                Trust::Unsure(Unsure::Contradicted(_)),
            ) => true,
            (known, now) => known == Some(now),
        };
        if !same && self.resident {
            let level = match trust {
                Trust::Unsure(Unsure::BeforeFloor | Unsure::Contradicted(_)) => log::Level::Warn,
                Trust::Sure(_) | Trust::Unsure(Unsure::Unvouched) => log::Level::Info,
            };
            log::log!(level, "the clock is {}: {trust}", trust.word());
        }
        self.hours.trust = Some(trust);
        let floor = TimeFormat::Rfc3339.write(self.hours.floor);
        self.desk.publish(|status| {
            status.clock = ClockStatus {
                state: trust.word().into(),
                reason: trust.to_string(),
                floor,
            };
        });
    }
}

fn to_signed(span: std::time::Duration) -> jiff::SignedDuration {
    jiff::SignedDuration::try_from(span).unwrap_or(jiff::SignedDuration::MAX)
}
