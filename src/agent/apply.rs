//! What an event does to a source: the records that it carries, or the one that it leads to.

use std::io::Read as _;

use super::Agent;
use super::process::Taken;
use crate::config::{self, Hook, OnBad, Pull, Source};
use crate::door::coding;
use crate::door::http::Fields;
use crate::inbox::Stored;
use crate::json::{Json, Kind as JsonKind};
use crate::pointer::Pointer;
use crate::pull::carry::{self, Carrier, Refused, Took};
use crate::pull::key::key_of;
use crate::pull::replay::replay;
use crate::upstream::client::{Answer, Ask, shown};
use crate::upstream::outcome::{Expect, Failure, Kind};

/// Why a payload could not be processed.
pub(super) struct Trouble {
    pub(super) reason: String,
    /// The payload itself is what is wrong.
    pub(super) is_its_own: bool,
}

impl Trouble {
    pub(super) fn own(reason: impl Into<String>) -> Self {
        Self {
            reason: reason.into(),
            is_its_own: true,
        }
    }

    pub(super) fn of(failure: &Failure) -> Self {
        let is_its_own = matches!(failure.kind, Kind::BadData | Kind::Gone | Kind::Refused);
        Self {
            reason: failure.reason.clone(),
            is_its_own,
        }
    }
}

impl Agent {
    /// Carries the records of several payloads into one source.
    pub(super) fn carry(
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
            match records(&taken.stored, &at, source.on_bad_record, &mut carrier) {
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
    pub(super) fn fetch_one(
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
        self.make_client(&source.upstream, source.every)
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
                let raw = record.as_str().as_bytes();
                same_key(event, &fetch.key, &carrier, raw)
                    .map_err(|why| Trouble::own(format!("{}: {why}", shown(&url))))?;
                match carrier.fetched(raw) {
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

    pub(super) fn recount(&mut self, name: &str) {
        if let (Some(state), Some(runner)) = (&mut self.state, self.runners.get_mut(name)) {
            if let Ok(id) = state.store.source(name) {
                runner.status.records = state.store.count(id);
            }
            // A pass of 304s must look for absences again.
            runner.settled = None;
        }
    }
}

/// Whether the record that was fetched is the one that the event says, where the event says that: what is deleted by the
/// event's key must be what is written by the record's.
fn same_key(
    event: Json<'_>,
    pointers: &[Pointer],
    carrier: &Carrier<'_>,
    raw: &[u8],
) -> Result<(), String> {
    let Ok(said) = key_of(event, pointers) else {
        return Ok(());
    };
    match carrier.key(raw) {
        Ok(found) if found != said => Err(format!(
            "the event's key is {said} and the fetched record's is {found}: nothing is written; is `fetch.key` the record's key? leave it out if the API answers with another record on purpose"
        )),
        // A bad record says so itself.
        _ => Ok(()),
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
    coding::content(&fields, &received.body, coding::most(&received.body))
        .map_err(|error| Trouble::own(error.to_string()))
}

enum Wrong {
    /// The payload.
    Own(Trouble),
    /// This device.
    Device(Failure),
}

/// Carries the records of one payload: an array of them, or one. Says whether one of them ties with what is known. All are
/// looked at before any is taken: where a bad one fails the payload, none of it is written.
fn records(
    stored: &Stored,
    at: &Pointer,
    on_bad: OnBad,
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
    let said =
        |number: usize, bad: &dyn std::fmt::Display| format!("record {number} at \"{at}\": {bad}");
    if on_bad == OnBad::Fail {
        for (number, record) in (1..).zip(&all) {
            carrier.is_good(record.as_str().as_bytes()).map_err(|bad| {
                let what = said(number, &bad);
                Wrong::Own(Trouble::own(format!(
                    "{what} (nothing of the event is taken; `on_bad_record = \"skip\"` takes the others)"
                )))
            })?;
        }
    }
    let mut ties = false;
    for (number, record) in (1..).zip(&all) {
        match carrier.take(record.as_str().as_bytes()) {
            Ok(took) => ties |= took == Took::Tie,
            // The event itself stays in the inbox as evidence.
            Err(Refused::Bad(bad)) => log::warn!(
                "hook {}: payload {}: {}, which is skipped",
                stored.received.hook,
                stored.id,
                said(number, &bad)
            ),
            Err(Refused::Failed(failure)) => return Err(Wrong::Device(failure)),
        }
    }
    Ok(ties)
}
