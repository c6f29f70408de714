//! The reception: what the public door does with a webhook. Who signed it, is it known, save it, answer; nothing else.
//!
//! ```text
//! path → verify over the bytes that came → known event? → append … → one fdatasync for all of the turn → answers
//! ```
//!
//! It never pulls, processes or calls out, and touches neither sled nor SQLite: what it saved the agent takes up between
//! its steps. Which events are known it knows by heart.

mod endpoint;
mod spell;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use self::endpoint::Endpoint;
pub use self::endpoint::Unusable;
use self::spell::Spell;
use crate::clock::{Mono, Timestamp};
use crate::config::{Config, Env};
use crate::door::coding::{self, CodingError};
use crate::door::http::{Head, Response};
use crate::door::{Admit, Peer, Request, Service, Settled, Taken, Ticket};
use crate::hook::challenge::{self, Unanswered};
use crate::hook::{self, Verdict, verify};
use crate::inbox::{Inbox, InboxError, NOT_SAVED, Received, RequestId};
use crate::store::EventKey;
use crate::upstream::tls::TlsClock;

/// When a sender may try again if nothing can be saved now.
const AGAIN: Duration = Duration::from_secs(60);

/// What a payload takes besides its body, roughly.
const HEAD: u64 = 4096;

/// What one hook has had since the agent started.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    /// Payloads that were saved.
    pub saved: u64,
    /// Deliveries of events that were known.
    pub duplicates: u64,
    /// Requests that were refused, by the verdict's word.
    pub refused: BTreeMap<&'static str, u64>,
    /// When the last payload came, by the wall clock; of one before the start, as the inbox says.
    pub last: Option<Timestamp>,
    /// Since when nothing came, as far as this can be told.
    pub quiet_since: Quiet,
}

/// Since when nothing came to a hook.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Quiet {
    /// At least since the agent started.
    #[default]
    Start,
    /// Since this moment of a clock that was trusted.
    Wall(Timestamp),
    /// Since this moment.
    Mono(Mono),
}

/// A handle on what door and agent share; cheap to clone. Never locked across a wait.
#[derive(Debug, Clone)]
pub struct Reception(Arc<Mutex<Inner>>);

#[derive(Debug)]
struct Inner {
    endpoints: Vec<Endpoint>,
    inbox: Option<Inbox>,
    /// Whether `known` is what it should be: an event that is not in it is new.
    is_learnt: bool,
    /// Every known event.
    known: HashMap<EventKey, RequestId>,
    /// What waits for this turn's sync.
    turn: Vec<Waiting>,
    last_ticket: u64,
    clock: Arc<TlsClock>,
    counts: BTreeMap<String, Counts>,
    /// The agent is to look again.
    hurry: bool,
    /// It has been told of what came since it looked last.
    is_told: bool,
    /// As long as payloads cannot be saved.
    spell: Spell,
}

#[derive(Debug)]
struct Waiting {
    hook: String,
    ticket: Ticket,
    id: RequestId,
    ack: u16,
    /// The event that it is the first delivery of.
    first: Option<EventKey>,
}

impl Reception {
    /// A reception that saves nothing yet: every hook is answered with 503 until it has an inbox.
    #[must_use]
    pub fn new(clock: Arc<TlsClock>) -> Self {
        Self(Arc::new(Mutex::new(Inner {
            endpoints: Vec::new(),
            inbox: None,
            is_learnt: false,
            known: HashMap::new(),
            turn: Vec::new(),
            last_ticket: 0,
            clock,
            counts: BTreeMap::new(),
            hurry: false,
            is_told: false,
            spell: Spell::default(),
        })))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the hooks of a config; returns those whose secrets cannot be used now: they are answered with 503.
    pub fn configure(&self, config: &Config, env: Env<'_>) -> Vec<Unusable> {
        let body = config.door.as_ref().map(|door| door.limits.body);
        let (endpoints, unusable) = Endpoint::all(config.hooks.values(), body, env);
        let mut inner = self.lock();
        inner
            .counts
            .retain(|name, _| config.hooks.contains_key(name));
        for name in config.hooks.keys() {
            inner.counts.entry(name.clone()).or_default();
        }
        inner.endpoints = endpoints;
        unusable
    }

    /// Takes an inbox into use. Nothing is taken in before [`Reception::replace_known`]: what came before would be taken for
    /// new.
    pub fn open(&self, inbox: Inbox) {
        let mut inner = self.lock();
        inner.known.clear();
        inner.is_learnt = false;
        inner.inbox = Some(inbox);
    }

    /// Event ids that are known from now on.
    pub fn replace_known(&self, known: HashMap<EventKey, RequestId>) {
        let mut inner = self.lock();
        inner.known = known;
        inner.is_learnt = true;
    }

    /// Whether the wall clock can be believed.
    #[must_use]
    pub fn knows_time(&self) -> bool {
        self.lock().clock.reading().trust.is_sure()
    }

    /// What came last before the agent started, by hook, and whether the clock was trusted then.
    pub fn recall(&self, latest: BTreeMap<String, (Timestamp, bool)>) {
        let mut inner = self.lock();
        for (name, (at, is_trusted)) in latest {
            let Some(counts) = inner.counts.get_mut(&name) else {
                continue;
            };
            if counts.last.is_none() {
                counts.last = Some(at);
                if is_trusted {
                    counts.quiet_since = Quiet::Wall(at);
                }
            }
        }
    }

    /// Works with the inbox; `None`: there is none.
    pub fn with_inbox<T>(&self, work: impl FnOnce(&mut Inbox) -> T) -> Option<T> {
        self.lock().inbox.as_mut().map(work)
    }

    /// The agent is about to see all that has come: it is to be told of what comes from now on.
    pub fn is_seen(&self) {
        self.lock().is_told = false;
    }

    /// Why payloads cannot be saved now, for people; `None`: they can, as far as anybody knows. `now` is when that is asked.
    #[must_use]
    pub fn trouble(&self, now: Mono) -> Option<String> {
        self.lock().trouble(now)
    }

    /// Whether payloads could not be saved when the last one came: then [`Reception::trouble`] is to be asked now and then,
    /// so that its end is noticed.
    #[must_use]
    pub fn is_troubled(&self) -> bool {
        self.lock().spell.lasts()
    }

    /// What each hook has had since the agent started.
    #[must_use]
    pub fn counts(&self) -> BTreeMap<String, Counts> {
        self.lock().counts.clone()
    }

    /// The door's side of it.
    #[must_use]
    pub fn service(&self) -> Box<dyn Service> {
        Box::new(self.clone())
    }
}

impl Service for Reception {
    fn admit(&mut self, head: &Head, _peer: &Peer, _now: Mono) -> Admit {
        self.lock().admit(head)
    }

    fn take(&mut self, request: Request, now: Mono) -> Taken {
        self.lock().take(&request, now)
    }

    fn settle(&mut self, now: Mono) -> Settled {
        self.lock().settle(now)
    }
}

impl Inner {
    fn admit(&mut self, head: &Head) -> Admit {
        let Some(endpoint) = self.endpoint(&head.path) else {
            return Admit::Answer(Response::text(404, "there is no such hook"));
        };
        let asks = endpoint.answers_get() && head.method == "GET";
        if head.method != "POST" && !asks {
            return Admit::Answer(Response::method_not_allowed(endpoint.allowed()));
        }
        // Before the body: a sender need not send what cannot be saved.
        let (word, why) = if self.inbox.is_none() || !self.is_learnt {
            ("inbox-shut", "nothing can be saved now")
        } else if endpoint.keys.is_none() {
            ("no-secret", "this hook cannot be used now")
        } else {
            return Admit::Body {
                cap: endpoint.max_body,
            };
        };
        let name = endpoint.name.clone();
        self.count_refusal(&name, word);
        Admit::Answer(Response::unavailable(why, AGAIN))
    }

    fn endpoint(&self, path: &str) -> Option<&Endpoint> {
        self.endpoints.iter().find(|endpoint| endpoint.path == path)
    }

    fn take(&mut self, request: &Request, now_here: Mono) -> Taken {
        let Some(at) = self
            .endpoints
            .iter()
            .position(|endpoint| endpoint.path == request.head.path)
        else {
            return Taken::Answer(Response::text(404, "there is no such hook"));
        };
        let ours = self.clock.reading();
        let now = ours.trust.is_sure().then_some(ours.wall);
        let endpoint = &self.endpoints[at];
        let (verdict, asked) = endpoint.judge(request, now);
        let name = endpoint.name.clone();
        match asked {
            Asked::No => {}
            Asked::Answered(answer) => {
                log::info!("hook {name}: the sender's setup is answered");
                return Taken::Answer(Response::new(200).with_body(answer.media_type, answer.body));
            }
            Asked::Failed(why) => {
                self.count_refusal(&name, Unanswered::WORD);
                log::debug!(
                    "hook {name}: {} from {}: {why}",
                    Unanswered::WORD,
                    request.peer
                );
                return Taken::Answer(Response::text(why.status(), Unanswered::WORD));
            }
        }
        let event = match verdict {
            Verdict::Valid(event) => event,
            refused => return Taken::Answer(self.refuse(&name, request, &refused)),
        };
        if request.head.method != "POST" {
            return Taken::Answer(Response::method_not_allowed("POST"));
        }
        let ack = endpoint.ack;
        let key = EventKey::new(&name, event.id.as_str());
        if let Some(id) = self.known.get(&key).copied() {
            self.count(&name).duplicates += 1;
            log::debug!("hook {name}: event {} is known as {id}", event.id.as_str());
            // A duplicate of what this very turn brought is saved when that is.
            if self.turn.iter().any(|waiting| waiting.id == id) {
                return Taken::Pending(self.wait_for(&name, id, ack, None));
            }
            return Taken::Answer(acknowledgement(ack, id, true));
        }
        if let Some(answer) = self.refuse_coding(&name, request) {
            return Taken::Answer(answer);
        }
        let received = Received {
            hook: name.clone(),
            at: request.received,
            clock_trusted: now.is_some(),
            peer: request.peer.to_string(),
            method: request.head.method.clone(),
            target: target(&request.head).into_bytes(),
            headers: saved_fields(&self.endpoints[at], &request.head),
            body: request.body.clone(),
            event_id: Some(event.id.as_str().to_owned()),
            event_type: event.kind,
        };
        let Some(inbox) = &mut self.inbox else {
            return Taken::Answer(Response::unavailable("nothing can be saved now", AGAIN));
        };
        match inbox.append(&received) {
            Ok(id) => {
                self.known.insert(key, id);
                // When it is due is for the agent to say; it may have gone to sleep until tomorrow.
                self.hurry |= !self.is_told;
                self.is_told = true;
                let counts = self.count(&name);
                counts.saved += 1;
                counts.last = Some(request.received);
                counts.quiet_since = Quiet::Mono(now_here);
                Taken::Pending(self.wait_for(&name, id, ack, Some(key)))
            }
            Err(error) => Taken::Answer(self.not_saved(&name, &received, &error, now_here)),
        }
    }

    /// Says why a payload is not saved: to the sender at once, to people once.
    fn not_saved(
        &mut self,
        name: &str,
        received: &Received,
        error: &InboxError,
        now: Mono,
    ) -> Response {
        self.count_refusal(name, error.word());
        if matches!(error, InboxError::TooLarge { .. }) {
            return Response::text(413, "too large");
        }
        let need = received.body.len() as u64 + HEAD;
        // From now on the agent looks now and then whether it is over.
        self.hurry |= !self.spell.lasts();
        self.spell.met(error, need, now);
        Response::unavailable("it cannot be saved now", AGAIN)
    }

    fn trouble(&mut self, now: Mono) -> Option<String> {
        let inbox = self.inbox.as_ref()?;
        self.spell.look(inbox, now)
    }

    fn wait_for(&mut self, name: &str, id: RequestId, ack: u16, first: Option<EventKey>) -> Ticket {
        self.last_ticket += 1;
        let ticket = Ticket(self.last_ticket);
        self.turn.push(Waiting {
            hook: name.to_owned(),
            ticket,
            id,
            ack,
            first,
        });
        ticket
    }

    fn count(&mut self, name: &str) -> &mut Counts {
        self.counts.entry(name.to_owned()).or_default()
    }

    /// The answer to a body whose content nobody could read later.
    fn refuse_coding(&mut self, name: &str, request: &Request) -> Option<Response> {
        let body = &request.body;
        let error = coding::check(&request.head.fields, body, coding::most(body)).err()?;
        self.count_refusal(name, error.word());
        log::warn!(
            "hook {name}: {} from {}: {error}",
            error.word(),
            request.peer
        );
        let answer = Response::text(error.status(), &error.to_string());
        Some(match error {
            // RFC 9110 15.5.16.
            CodingError::Unknown => answer.with_field("Accept-Encoding", "gzip"),
            _ => answer,
        })
    }

    fn count_refusal(&mut self, name: &str, word: &'static str) {
        *self.count(name).refused.entry(word).or_default() += 1;
    }

    fn refuse(&mut self, name: &str, request: &Request, verdict: &Verdict) -> Response {
        self.count_refusal(name, verdict.word());
        // Strangers knock all day: one line each, at a level that is off in the field.
        log::debug!(
            "hook {name}: {} from {}: {verdict}",
            verdict.word(),
            request.peer
        );
        match verdict.refusal() {
            Some(503) => {
                // By the next try the clock may be right, and an agent that sleeps has not looked at it.
                self.hurry = true;
                Response::unavailable("the time is not known here yet", AGAIN)
            }
            status => Response::text(status.unwrap_or(400), verdict.word()),
        }
    }

    /// Nothing of a turn was saved: what was counted as saved was not.
    fn unsave(&mut self, turn: &[Waiting], error: &InboxError, now: Mono) {
        for waiting in turn {
            let counts = self.count(&waiting.hook);
            match &waiting.first {
                Some(_) => counts.saved = counts.saved.saturating_sub(1),
                None => counts.duplicates = counts.duplicates.saturating_sub(1),
            }
            self.count_refusal(&waiting.hook, error.word());
            self.spell.met(error, 0, now);
            if let Some(key) = waiting.first {
                // Who sends it again sends it for the first time.
                self.known.remove(&key);
            }
        }
        self.hurry = true;
    }

    /// All of the turn with one sync.
    fn settle(&mut self, now: Mono) -> Settled {
        let turn = std::mem::take(&mut self.turn);
        let synced = match &mut self.inbox {
            Some(inbox) => inbox.sync(),
            None => return Settled::default(),
        };
        let answer = |waiting: &Waiting| match &synced {
            Ok(()) => acknowledgement(waiting.ack, waiting.id, waiting.first.is_none()),
            Err(_) => Response::unavailable("it could not be saved", AGAIN),
        };
        let answers = turn
            .iter()
            .map(|waiting| (waiting.ticket, answer(waiting)))
            .collect();
        match &synced {
            Ok(()) if turn.is_empty() => {}
            Ok(()) => self.spell.over(now),
            Err(error) => self.unsave(&turn, error, now),
        }
        Settled {
            answers,
            nudge: std::mem::take(&mut self.hurry),
        }
    }
}

/// What an acknowledged sender gets.
fn acknowledgement(status: u16, id: RequestId, duplicate: bool) -> Response {
    if status == 204 {
        return Response::new(204);
    }
    let mut body = format!("{{\"request_id\":\"{id}\"");
    if duplicate {
        body.push_str(",\"duplicate\":true");
    }
    body.push_str("}\n");
    Response::json(status, body)
}

/// The fields as they are saved. One that is the secret itself is not: who reads the inbox's files later, or a copy of them,
/// could sign with it.
fn saved_fields(endpoint: &Endpoint, head: &Head) -> Vec<(Vec<u8>, Vec<u8>)> {
    let secret = endpoint.rule.scheme.token.as_deref();
    let is_secret = |name: &str| secret.is_some_and(|secret| secret.eq_ignore_ascii_case(name));
    let saved = |(name, value): (&str, &[u8])| {
        let value = if is_secret(name) {
            format!("{NOT_SAVED}{} bytes)", value.len()).into_bytes()
        } else {
            value.to_vec()
        };
        (name.as_bytes().to_vec(), value)
    };
    head.fields.iter().map(saved).collect()
}

fn target(head: &Head) -> String {
    match &head.query {
        Some(query) => format!("{}?{query}", head.path),
        None => head.path.clone(),
    }
}

/// Whether a sender asks to be answered while it sets the hook up.
enum Asked {
    No,
    Answered(challenge::Answer),
    Failed(Unanswered),
}

/// Judges a request by an endpoint's rule, in the terms of the pure room.
fn judged(endpoint: &Endpoint, request: &Request, now: Option<Timestamp>) -> (Verdict, Asked) {
    let target = target(&request.head);
    let headers: Vec<(&str, &[u8])> = request.head.fields.iter().collect();
    let received = hook::Received {
        method: &request.head.method,
        target: &target,
        headers: &headers,
        body: &request.body,
    };
    let keys = endpoint.keys.as_deref().unwrap_or_default();
    let verdict = verify(&endpoint.rule, keys, &received, now);
    let Some(challenge) = endpoint.challenge else {
        return (verdict, Asked::No);
    };
    let token = endpoint
        .token
        .as_ref()
        .map(|token| token.expose().as_bytes());
    let asked = match challenge::answer(challenge, token, &received, &verdict) {
        Some(answer) => Asked::Answered(answer),
        None if matches!(verdict, Verdict::Valid(_)) => Asked::No,
        None => challenge::unanswered(challenge, token, &received).map_or(Asked::No, Asked::Failed),
    };
    (verdict, asked)
}
