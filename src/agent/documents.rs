//! Documents beside sources: one thread, one schedule, the same manners towards their upstreams.

use std::time::Duration;

use super::manners::{put_off, remember_pause, remembered_pause};
use super::turn::{dice, ended};
use super::{Agent, Order};
use crate::clock::{Mono, Timestamp};
use crate::config::{self, Document};
use crate::desk::{DocumentStatus, Event, Moments, Totals};
use crate::document::fetch::{self, Done, Mode, Publication, Tools};
use crate::document::kept::{Kept, kept_key, told_key};
use crate::document::part::BUFFER;
use crate::document::place::Place;
use crate::document::tend;
use crate::pull::report::{Outcome, Report};
use crate::schedule::{Rhythm, Why, next_due};
use crate::sink::sqlite::rfc3339;
use crate::store::Batch;
use crate::upstream::outcome::{Failure, Kind};

/// What the loop keeps of a document between turns.
#[derive(Debug)]
pub(super) struct Paper {
    pub(super) due: Mono,
    why: Why,
    failures: u32,
    kept: Option<Kept>,
    /// When it was last written down that upstream was seen.
    noted: Option<Mono>,
    last_check: Option<(Timestamp, Mono)>,
    status: DocumentStatus,
}

impl Agent {
    pub(super) fn is_document(&self, name: &str) -> bool {
        self.config.documents.contains_key(name)
    }

    pub(super) fn seat_documents(&mut self) {
        let now = self.wait.now();
        let documents = &self.config.documents;
        self.papers.retain(|name, _| documents.contains_key(name));
        for name in documents.keys() {
            self.papers.entry(name.clone()).or_insert_with(|| Paper {
                due: now,
                why: Why::Every,
                failures: 0,
                kept: None,
                noted: None,
                last_check: None,
                status: DocumentStatus {
                    outcome: "never".into(),
                    ..DocumentStatus::default()
                },
            });
        }
    }

    pub(super) fn place(&self) -> Place {
        Place::of(&self.config.agent.state)
    }

    /// What the state directory says of the documents; what nobody needs any more is removed.
    pub(super) fn recall_documents(&mut self) {
        let place = self.place();
        let (now, wall) = (self.wait.now(), self.wait.clock().wall());
        let Some(state) = &mut self.state else { return };
        let spooled = self.config.sources.values();
        let spooled = spooled.filter(|source| source.spool);
        let names = spooled.map(|source| source.name.as_str());
        let names = names.chain(self.config.documents.keys().map(String::as_str));
        if let Err(failure) = tend::tidy(&place, &names.collect(), &mut state.store) {
            log::error!("{}", failure.reason);
        }
        let leftovers = tend::leftovers(&place, &self.config.documents);
        for path in &leftovers {
            log::info!(
                "{} belongs to no document: it stays, remove it if nobody needs it",
                place.file(path).display()
            );
        }
        for (name, paper) in &mut self.papers {
            let stored = state.store.get(&kept_key(name)).ok().flatten();
            paper.kept = stored.as_deref().and_then(Kept::decode);
            let checked = paper.kept.as_ref().map(|kept| kept.checked);
            let checked = checked.and_then(|seconds| Timestamp::from_second(seconds).ok());
            // A check that our clock takes to be in the future has no age: the clock may be wrong.
            let age = checked.and_then(|then| Duration::try_from(wall.duration_since(then)).ok());
            if paper.last_check.is_none() {
                paper.last_check = checked
                    .zip(age)
                    .map(|(then, age)| (then, Mono(now.0.saturating_sub(age))));
                paper.noted = paper.last_check.map(|(_, then)| then);
            }
            if paper.kept.is_some() && paper.status.outcome == "never" {
                paper.status.outcome = Outcome::Unchanged.word().into();
                let document = self.config.documents.get(name);
                let told = state.store.get(&told_key(name)).ok().flatten();
                let is_owed = document.is_some_and(|document| document.on_change.is_some())
                    && told.as_deref() != paper.kept.as_ref().map(|kept| &kept.digest.0[..]);
                if is_owed {
                    paper.status.outcome = Kind::Local.word().into();
                    paper.status.reason =
                        "on_change: the program has not taken what is published; it is told with the next poll".into();
                }
            }
            let upstream = self.config.documents.get(name).map(|doc| &doc.upstream);
            if let Some(pause) = upstream.and_then(|name| remembered_pause(state, name, wall)) {
                paper.due = now.after(pause.span);
                paper.why = Why::RetryAfter;
            }
        }
        let leftovers = leftovers.iter().map(|path| path.display().to_string());
        let leftovers = leftovers.collect();
        self.desk.publish(|status| status.leftovers = leftovers);
    }

    /// The document that is due first, if one is.
    pub(super) fn due_document(&self, now: Mono) -> Option<(Mono, String)> {
        let due = self.papers.iter().filter(|(_, paper)| paper.due <= now);
        due.min_by_key(|(_, paper)| paper.due)
            .map(|(name, paper)| (paper.due, name.clone()))
    }

    /// Asks for one document now. The state directory must be open.
    pub fn fetch(&mut self, name: &str, order: Order, each: &mut dyn FnMut(Event)) -> Report {
        self.look_at_clock();
        let mut done = self.one_turn(name, order, each);
        let upstream = self.config.documents.get(name).map(|doc| &doc.upstream);
        let client = upstream.and_then(|upstream| self.clients.get_mut(upstream));
        let alert = client.and_then(|client| client.turn().take_alert());
        done.report.notes.extend(alert);
        self.look_at_clock();
        if let Some(publication) = &done.publication {
            self.published(publication);
        }
        if order.dry_run || order.probe {
            log::debug!("{}", done.report);
        } else {
            let paper = self.papers.get(name).and_then(|paper| paper.kept.clone());
            let kept = done.kept.clone().or(paper);
            if let Err(failure) = self.tell_of(name, kept.as_ref()) {
                done.report.outcome = Outcome::Failed(failure);
            }
            self.after_document(name, &done);
        }
        self.publish();
        if matches!(&done.report.outcome, Outcome::Failed(failure) if failure.kind == Kind::Local) {
            // If it was the store that cannot be read, the own check is what puts it aside.
            self.verified = false;
        }
        self.heal();
        done.report
    }

    /// The one place that knows of every new version of a document, after it can be read and before anything else is done.
    fn published(&mut self, publication: &Publication) {
        let old = publication
            .old
            .map_or("nothing".to_owned(), |old| old.to_string());
        log::info!(
            "{}: {} is published as {}, in place of {old}",
            publication.name,
            publication.new,
            publication.path.display()
        );
    }

    fn one_turn(&mut self, name: &str, order: Order, each: &mut dyn FnMut(Event)) -> Done {
        let failed = |failure| Done {
            report: Report::failed(name, failure),
            kept: None,
            publication: None,
        };
        let local = |reason: &str| failed(Failure::new(Kind::Local, reason));
        let Some(document) = self.config.documents.get(name).cloned() else {
            return local("there is no such document");
        };
        let Some(upstream) = self.config.upstreams.get(&document.upstream) else {
            return local("its upstream is not configured");
        };
        let config = config::document_fingerprint(&document, upstream);
        if let Err(failure) = self.make_client(&document.upstream, document.every) {
            return failed(failure);
        }
        let place = self.place();
        let (Some(client), Some(state)) = (
            self.clients.get_mut(&document.upstream),
            self.state.as_mut(),
        ) else {
            return local("the state directory cannot be used");
        };
        if order.insist {
            client.turn().insist();
        } else if let Some(failure) = client.turn().refuses(self.wait.now()) {
            return failed(failure);
        }
        let (desk, line, before) = (self.desk.clone(), client.line().clone(), client.traffic());
        let mut progress = || {
            let totals = Totals {
                bytes_up: line.traffic().up().saturating_sub(before.0),
                bytes_down: line.traffic().down().saturating_sub(before.1),
                ..Totals::default()
            };
            desk.publish(|status| {
                if let Some(document) = status.documents.get_mut(name) {
                    document.running = Some(totals);
                }
            });
            each(Event::Progress {
                source: name.to_owned(),
                tally: totals,
            });
        };
        progress();
        let mut tools = Tools {
            client,
            store: &mut state.store,
            place: &place,
            quota: self.config.agent.documents_quota,
            wait: &self.wait,
            progress: &mut progress,
        };
        let mode = Mode {
            config,
            look_only: order.dry_run || order.probe,
        };
        fetch::fetch(&document, &mut tools, mode)
    }

    /// After a turn: when it is due next, what `status` shall know.
    fn after_document(&mut self, name: &str, done: &Done) {
        let report = &done.report;
        let (now, wall) = (self.wait.now(), self.wait.clock().wall());
        let (Some(document), Some(paper), Some(state)) = (
            self.config.documents.get(name),
            self.papers.get_mut(name),
            self.state.as_mut(),
        ) else {
            return;
        };
        say(paper, report, self.resident);
        if let Some(kept) = &done.kept {
            paper.kept = Some(kept.clone());
        }
        if report.outcome.is_stopped() {
            return;
        }
        let complete = report.outcome.is_complete();
        // What was cut again but came further is no reason to wait longer and longer.
        let came_further = report.tally.bytes_down > BUFFER as u64;
        paper.failures = match (complete, came_further) {
            (true, _) => 0,
            (false, true) => 1,
            (false, false) => paper.failures.saturating_add(1),
        };
        let client = self.clients.get_mut(&document.upstream);
        paper.schedule(document, report, client, now);
        paper.note(report, (now, wall));
        let client = self.clients.get_mut(&document.upstream);
        let pause = client.and_then(|client| client.turn().paused(now));
        remember_pause(state, &document.upstream, pause, complete, wall);
        let overdue = paper
            .noted
            .is_none_or(|then| now.since(then) >= self.config.agent.checkpoint);
        if let (true, true, Some(kept)) = (complete, overdue, &mut paper.kept) {
            kept.checked = wall.as_second();
            let mut batch = Batch::new();
            batch.put(kept_key(name), &kept.encode());
            match state.store.commit(batch) {
                Ok(_) => paper.noted = Some(now),
                Err(error) => log::error!("{error}"),
            }
        }
    }

    /// Publishes how all documents stand.
    pub(super) fn publish_documents(&self) {
        let place = self.place();
        let mut all = std::collections::BTreeMap::new();
        for (name, paper) in &self.papers {
            let Some(document) = self.config.documents.get(name) else {
                continue;
            };
            let kept = paper.kept.as_ref();
            let moment = |seconds| Timestamp::from_second(seconds).ok().map(rfc3339);
            let status = DocumentStatus {
                path: place.file(&document.file).display().to_string(),
                sha256: kept.map(|kept| kept.digest.to_string()),
                size: kept.map(|kept| kept.mark.size),
                last_check: paper.last_check.map(|(wall, _)| rfc3339(wall)),
                last_change: kept.and_then(|kept| moment(kept.changed)),
                due_why: paper.why.to_string(),
                moments: Moments {
                    checked: paper.last_check.map(|(_, then)| then),
                    stale_after: document.stale_after,
                    due: self.resident.then_some(paper.due),
                },
                ..paper.status.clone()
            };
            all.insert(name.clone(), status);
        }
        self.desk.publish(|status| status.documents = all);
    }
}

impl Paper {
    fn schedule(
        &mut self,
        document: &Document,
        report: &Report,
        client: Option<&mut crate::upstream::client::Client>,
        now: Mono,
    ) {
        let rhythm = Rhythm {
            every: document.every,
            jitter: document.jitter,
            max_skip: document.max_skip,
        };
        let ended = ended(report, self.failures);
        let due = next_due(rhythm, report.elapsed, ended, dice());
        let (span, why) = put_off(client, now, report.elapsed, due, dice());
        self.due = Mono(now.0.saturating_sub(report.elapsed)).after(span);
        self.why = why;
    }

    fn note(&mut self, report: &Report, (now, wall): (Mono, Timestamp)) {
        self.status.outcome = report.outcome.word().into();
        self.status.reason = report.reason();
        self.status.failures = self.failures;
        self.status.notes.clone_from(&report.notes);
        self.status.totals.add(&report.tally);
        if report.outcome.is_complete() {
            self.last_check = Some((wall, now));
        }
        if report.tally.delivered() > 0 {
            // Its entry was written with it.
            self.noted = Some(now);
        }
    }
}

/// Says how a turn ended; a failure once, not with every try.
fn say(paper: &Paper, report: &Report, resident: bool) {
    let level = match &report.outcome {
        Outcome::Unchanged => log::Level::Debug,
        Outcome::Changed => log::Level::Info,
        Outcome::Failed(failure) if failure.kind == Kind::Stopped => log::Level::Info,
        _ => log::Level::Warn,
    };
    let said =
        paper.status.outcome == report.outcome.word() && paper.status.reason == report.reason();
    let level = if said || !resident {
        log::Level::Debug
    } else {
        level
    };
    log::log!(level, "{report}");
    for note in report
        .notes
        .iter()
        .filter(|note| !paper.status.notes.contains(note))
    {
        log::warn!("{}: {note}", report.source);
    }
}
