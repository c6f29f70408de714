//! What upstreams ask of how often they are asked: kept in mind per upstream, and across restarts where it is worth a write.

use std::time::Duration;

use super::Agent;
use super::turn::later;
use crate::clock::{Mono, Timestamp};
use crate::pull::report::Report;
use crate::schedule::{Why, no_sooner};
use crate::state::State;
use crate::store::{Batch, Key, SourceId, Tag};
use crate::upstream::client::Client;
use crate::upstream::conditional::MAX_RETRY_AFTER;
use crate::upstream::manners::{Pause, Plea};

/// A shorter pause is not worth a write: a restart forgets it. A refusal's counts sooner, since `sync` run by a timer is a
/// process of its own each time; what comes with a success may come with every idle poll.
const fn worth_keeping(plea: Plea) -> Duration {
    match plea {
        Plea::RetryAfter => Duration::from_secs(30),
        Plea::Backoff | Plea::Spent => Duration::from_secs(600),
    }
}

impl Agent {
    /// Adds what the upstream wants an operator to know.
    pub(super) fn pass_on(&mut self, name: &str, report: &mut Report) {
        let upstream = self.config.sources.get(name).map(|source| &source.upstream);
        let client = upstream.and_then(|upstream| self.clients.get_mut(upstream));
        report
            .notes
            .extend(client.and_then(|client| client.turn().take_alert()));
    }
}

/// When a source is due, given what its upstream said in the pass that has just ended.
pub(super) fn put_off(
    client: Option<&mut Client>,
    now: Mono,
    elapsed: Duration,
    due: (Duration, Why),
    dice: f64,
) -> (Duration, Why) {
    let Some(turn) = client.map(Client::turn) else {
        return due;
    };
    let interval = turn.take_poll_interval().unwrap_or_default();
    let pause = turn.paused(now).map(|pause| pause.span).unwrap_or_default();
    let due = no_sooner(due, elapsed, (interval, Why::PollInterval), dice);
    no_sooner(due, elapsed, (pause, Why::RetryAfter), dice)
}

fn pause_key(upstream: &str) -> Key {
    Key::new(
        Tag::Counter,
        SourceId::NONE,
        format!("pause/{upstream}").as_bytes(),
    )
}

/// What is left of a pause that an earlier process was asked for.
pub(super) fn remembered_pause(state: &State, upstream: &str, wall: Timestamp) -> Option<Pause> {
    let stored = state.store.get(&pause_key(upstream)).ok()??;
    let (plea, until) = stored.split_first()?;
    let until = i64::from_be_bytes(until.try_into().ok()?);
    let left = u64::try_from(until.saturating_sub(wall.as_second())).unwrap_or(0);
    let span = Duration::from_secs(left);
    // A clock that woke in the past must not make it longer than anybody may ask for.
    (left > 0 && span <= MAX_RETRY_AFTER).then_some(Pause {
        span,
        plea: match plea {
            1 => Plea::Backoff,
            2 => Plea::Spent,
            _ => Plea::RetryAfter,
        },
    })
}

/// Keeps a pause across restarts, once; and drops it when a pass is `complete` all the same.
pub(super) fn remember_pause(
    state: &mut State,
    upstream: &str,
    pause: Option<Pause>,
    complete: bool,
    wall: Timestamp,
) {
    let known = remembered_pause(state, upstream, wall);
    let mut batch = Batch::new();
    match (pause, known) {
        (Some(pause), known) if pause.span >= worth_keeping(pause.plea) => {
            // Later answers say the same again, to the second or so: they would only wear the card.
            if known.is_some_and(|known| pause.span <= known.span + worth_keeping(pause.plea)) {
                return;
            }
            let plea = match pause.plea {
                Plea::RetryAfter => 0,
                Plea::Backoff => 1,
                Plea::Spent => 2,
            };
            let mut value = vec![plea];
            value.extend_from_slice(&later(wall, pause.span).as_second().to_be_bytes());
            batch.put(pause_key(upstream), &value);
        }
        (None, Some(_)) if complete => batch.remove(pause_key(upstream)),
        _ => return,
    }
    if let Err(error) = state.store.commit(batch) {
        log::error!("{error}");
    }
}
