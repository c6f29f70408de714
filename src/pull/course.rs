//! The course of incremental passes: what a pass asks for, when it started by the upstream's clock, which cursor its pages
//! gave, and how far that brings the source.

use std::time::Duration;

use url::Url;

use super::collection::{Latest, Pass};
use super::cursor;
use super::deliver::local;
use super::pages::with_parameter;
use super::plan::{Full, Plan, plan};
use super::progress::Progress;
use super::repair::progress_key;
use super::window::{self, Span};
use crate::clock::{Reading, Timestamp};
use crate::config::{CursorFrom, Pull};
use crate::store::Batch;
use crate::upstream::date::{self, Basis};
use crate::upstream::headers::Headers;
use crate::upstream::outcome::Failure;

/// How far the origin of a first pass may be off before it is asked for again: our own clock was wrong then.
const ORIGIN_SLACK: Duration = Duration::from_secs(2 * 3600);

impl Pass<'_, '_> {
    /// Whether there are passes of this source that do not list everything.
    pub(super) fn is_incremental(&self) -> bool {
        matches!(self.source.pull, Pull::Window(_) | Pull::Cursor(_))
    }

    /// How far the passes before this one have come.
    pub(super) fn recall_progress(&mut self) -> Result<(), Failure> {
        if !self.is_incremental() {
            return Ok(());
        }
        let stored = self.tools.store.get(&progress_key(self.id));
        let stored = stored
            .map_err(|e| local(&e))?
            .as_deref()
            .and_then(Progress::decode);
        // What this process remembers is newer, unless the state directory was repaired meanwhile.
        let remembered = self.mode.latest.clone().map(|latest| latest.progress);
        self.progress = match (stored, remembered) {
            (Some(stored), Some(remembered)) if stored.owed.is_none() => remembered,
            (stored, _) => stored.unwrap_or_default(),
        };
        Ok(())
    }

    /// Decides what to ask for.
    pub(super) fn make_plan(&mut self) {
        self.plan = plan(
            self.source,
            &self.progress,
            self.mode.full,
            self.upstream_now(),
        );
        self.was = self.progress.watermark;
        self.rewind();
        if self.is_incremental() {
            log::debug!("{}: {:?}", self.source.name, self.plan);
        }
    }

    /// The time upstream, as far as it is known.
    pub(super) fn upstream_now(&self) -> Timestamp {
        self.upstream_started
            .unwrap_or_else(|| self.mode.ours.not_before_floor())
    }

    /// To the first part of the plan.
    pub(super) fn rewind(&mut self) {
        let since = match self.plan {
            Plan::Full { since, .. } => since,
            Plan::Window { since } => Some(since),
            Plan::Cursor { .. } => None,
        };
        self.span = window::first(since, self.step(), self.upstream_now());
        self.walks = 0;
    }

    fn step(&self) -> Option<Duration> {
        match &self.source.pull {
            Pull::Window(window) => window.step,
            _ => None,
        }
    }

    /// The URL of the current part, without what pages add to it.
    pub(super) fn asked_url(&self) -> Url {
        let mut url = self.source.url.clone();
        match (&self.source.pull, &self.plan) {
            (Pull::Window(window), _) => {
                let ends = [
                    (Some(&window.since), self.span.since),
                    (window.until.as_ref(), self.span.until),
                ];
                for (param, time) in ends {
                    if let (Some(param), Some(time)) = (param, time) {
                        let value = param.param.fill(&param.format.write(time));
                        url = with_parameter(&url, &param.param.name, &value);
                    }
                }
            }
            (Pull::Cursor(cursor), plan) => {
                let value = match plan {
                    Plan::Cursor { value } => Some(value),
                    _ => cursor.first.as_ref(),
                };
                if let Some(value) = value {
                    let value = cursor.param.fill(value);
                    url = with_parameter(&url, &cursor.param.name, &value);
                }
            }
            _ => {}
        }
        url
    }

    /// What an answer says about the time upstream: the first one of a part is when its walk started.
    pub(super) fn note_time(&mut self, headers: &Headers, elapsed: Duration) {
        if !self.is_incremental() || self.span_started.is_some() {
            return;
        }
        let ours = Reading {
            wall: self.tools.wait.clock().wall(),
            ..self.mode.ours
        };
        let time = date::of_answer(headers, elapsed, ours);
        // An upstream whose clock is ahead would have windows start in the future. Where ours can be believed, the earlier
        // of the two counts: too early costs a longer window, too late a record.
        let started = if ours.trust.is_sure() {
            time.instant.min(ours.wall)
        } else {
            time.instant
        };
        self.span_started = Some(started);
        if self.upstream_started.is_some() {
            return;
        }
        self.upstream_started = Some(started);
        self.is_dated = time.basis != Basis::Floor;
        // The origin of a first pass is reckoned before anything tells the time upstream.
        let Pull::Window(window) = &self.source.pull else {
            return;
        };
        if let (
            Some(first),
            Plan::Full {
                since: Some(since), ..
            },
            None,
        ) = (window.first, &mut self.plan, self.progress.origin)
        {
            let right = window::origin(started, first);
            let off = right.duration_since(*since).unsigned_abs();
            if off > ORIGIN_SLACK {
                *since = right;
                self.misdated = true;
            }
        }
    }

    /// The part behind the one that is complete, if there is one: its watermark is reached.
    pub(super) fn next_span(&mut self) -> Result<Option<Url>, Failure> {
        let now = self.upstream_now();
        let Some(span) = window::next(self.span, self.step(), now) else {
            return Ok(None);
        };
        if !self.mode.dry_run {
            self.reach();
            // A listing that is also to find what is gone is complete with its last part only, but what it brought is had.
            self.progress.full_at.get_or_insert(now);
            self.remember(self.tally.delivered() > 0)?;
        }
        self.span = span;
        self.span_started = None;
        (self.before, self.repeats) = (None, 0);
        self.asked.clear();
        Ok(Some(self.first_page()))
    }

    /// Moves the watermark to what the complete part allows.
    fn reach(&mut self) {
        let Some(started) = self.span_started else {
            return;
        };
        let Pull::Window(window) = &self.source.pull else {
            self.progress.watermark = Some(started);
            return;
        };
        let reached = window::moved(started, self.span, window.lateness);
        let at_the_end = self.span.until.is_none();
        // An earlier part of a listing from the beginning says less than what windows have reached already. At the end the
        // upstream's clock counts, should it have gone back as well.
        self.progress.watermark = match self.progress.watermark {
            Some(before) if !at_the_end => Some(before.max(reached)),
            _ => Some(reached),
        };
        if let (
            Plan::Full {
                since: Some(since), ..
            },
            Some(first),
        ) = (&self.plan, window.first)
        {
            self.progress.origin = Some((first, *since));
        }
    }

    /// The pass is complete: how far the source has come.
    pub(super) fn advance(&mut self, full: bool) -> Result<(), Failure> {
        let before = self.progress.clone();
        self.reach();
        if let (Pull::Window(window), Some(was), Some(now)) =
            (&self.source.pull, self.was, self.upstream_started)
        {
            if !full && window::is_ahead(was, now, window.lateness) {
                log::warn!(
                    "{}: the upstream's clock went back from {was} to {now}: everything is compared",
                    self.source.name
                );
                self.progress.owed = Some(Full::WentBack);
            }
        }
        if let (Pull::Cursor(_), Some(cursor)) = (&self.source.pull, self.cursor.take()) {
            let went_back = !full
                && before
                    .cursor
                    .as_deref()
                    .is_some_and(|before| cursor::went_back(before, &cursor));
            if went_back {
                log::warn!(
                    "{}: the upstream's cursor went back from {} to {cursor}: everything is compared",
                    self.source.name,
                    before.cursor.as_deref().unwrap_or_default()
                );
                self.progress.owed = Some(Full::WentBack);
            }
            self.progress.cursor = Some(cursor);
        }
        if full {
            self.progress.owed = None;
            self.progress.full_at = self.upstream_started.or(self.progress.full_at);
            if !self.resumed && self.progress.full_at.is_some() {
                let took = self.tools.wait.now().since(self.began);
                self.progress.full_took = Some(took);
            }
        }
        // Where the next pass goes on is written with what this one brought, and else now and then: asking for a little
        // more costs less than wearing the card.
        let quiet = Progress {
            watermark: self.progress.watermark,
            cursor: self.progress.cursor.clone(),
            ..before
        };
        let news = self.tally.delivered() > 0 || quiet != self.progress || full;
        self.remember(news)
    }

    /// Remembers how far the passes have come, on disk if there is `news` or if that is long ago.
    fn remember(&mut self, news: bool) -> Result<(), Failure> {
        let now = self.tools.wait.now();
        let last = self.latest.as_ref().or(self.mode.latest.as_ref());
        let written = last.map(|latest| latest.written);
        let overdue = written.is_none_or(|then| now.since(then) >= self.mode.checkpoint);
        let written = match written {
            Some(then) if !news && !overdue => then,
            _ => {
                let mut batch = Batch::new();
                batch.put(progress_key(self.id), &self.progress.encode());
                self.commit(batch)?;
                now
            }
        };
        self.latest = Some(Latest {
            progress: self.progress.clone(),
            written,
            upstream: self.upstream_started,
        });
        Ok(())
    }

    /// The cursor that a page's answer gives.
    pub(super) fn page_cursor(
        &self,
        headers: &Headers,
        found: impl Fn(&crate::pointer::Pointer) -> Option<String>,
        greatest: Option<&str>,
    ) -> Option<String> {
        let Pull::Cursor(cursor) = &self.source.pull else {
            return None;
        };
        match &cursor.from {
            CursorFrom::Header(name) => headers.text(name).map(str::to_owned),
            CursorFrom::Pointer(pointer) => found(pointer).as_deref().and_then(cursor::scalar),
            CursorFrom::Field(_) => greatest.map(str::to_owned),
        }
    }

    /// What a page's cursor makes of the pass's.
    pub(super) fn take_cursor(&mut self, page: Option<&str>) {
        let (Pull::Cursor(source), Some(page)) = (&self.source.pull, page) else {
            return;
        };
        let known = self.cursor.take();
        self.cursor = Some(match (&source.from, known) {
            // What changes while later pages are read is behind the first page's answer.
            (CursorFrom::Header(_), Some(known)) => known,
            (CursorFrom::Field(_), Some(known)) => cursor::greater(known, page),
            _ => page.to_owned(),
        });
    }

    /// The span to go on with in a resumed pass.
    pub(super) fn restore_span(&mut self, span: Span) {
        self.span = span;
    }
}
