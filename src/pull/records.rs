//! Reading a page's records: compared one by one, delivered in batches while the body still flows.

use std::time::Duration;

use url::Url;

use super::collection::Pass;
use super::cursor;
use super::deliver::{Delivery, Pending, local, sink_failure};
use super::marks::Marks;
use super::reading::{BadRecord, Reading};
use super::select::{Layout, SelectError, Selector};
use super::{volatile, window};
use crate::clock::Timestamp;
use crate::config::{Cursor, CursorFrom, Format, Ignore, OnBad, Pages, Pull};
use crate::json::Json;
use crate::pointer::Pointer;
use crate::record::{Digest, Gone, Known, Ordinal};
use crate::sink::BadRow;
use crate::upstream::client::{failure_of_io, shown};
use crate::upstream::outcome::{Failure, Kind};

/// How many bad records are kept aside for a person to look at.
const BAD_KEPT: usize = 20;

/// What the time upstream is taken to be less than its `Date` says, at most.
const DATE_SLACK: Duration = Duration::from_secs(2);

/// What one page's records came to.
#[derive(Debug, Default)]
pub(super) struct PageRead {
    /// Records, tombstones and bad ones included.
    pub(super) records: u64,
    /// Of them, those that were skipped as bad.
    pub(super) bad: u64,
    /// Something makes an absence prove nothing.
    pub(super) blind: bool,
    /// The body may have been cut: nothing may vouch for it later.
    pub(super) unproven: bool,
    /// The records that it had, tombstones left out.
    pub(super) met: Marks,
    /// Raw JSON of the last record's paging key.
    pub(super) last_key: Option<String>,
    /// The greatest cursor in its records.
    pub(super) greatest: Option<String>,
    /// Raw JSON of the envelope's wanted places.
    pub(super) found: Vec<Option<String>>,
}

/// Why a record did not go through.
enum RecordTrouble {
    /// It is not as the config says.
    Bad(BadRecord),
    /// It is not the record's fault.
    Failed(Failure),
}

impl Pass<'_, '_> {
    /// Reads a body record by record, delivering as it goes.
    pub(super) fn read_body(
        &mut self,
        url: &Url,
        body: Box<dyn std::io::Read>,
        proven_end: bool,
    ) -> Result<PageRead, Failure> {
        let source = self.source;
        let wanted = self.wanted();
        let places: Vec<&Pointer> = wanted.iter().collect();
        let layout = Layout {
            format: source.format,
            records: &source.records,
            wanted: &places,
            max_record: self.tools.client.max_record(),
        };
        let mut selector = Selector::new(body, layout);
        let mut page = PageRead::default();
        let mut pending = Pending::default();
        loop {
            let record = match selector.next() {
                Ok(Some(record)) => record,
                Ok(None) => break,
                Err(SelectError::Empty) if source.allow_empty && page.records == 0 => break,
                Err(error) => return Err(failure_of_select(&error).at(shown(url))),
            };
            page.records += 1;
            let number = record.number;
            if let Pages::LastKey { key, .. } = &source.pages {
                page.last_key = Json::parse(record.raw)
                    .ok()
                    .and_then(|json| key.find(json))
                    .map(|value| value.as_str().to_owned());
            }
            if let Pull::Cursor(Cursor {
                from: CursorFrom::Field(field),
                ..
            }) = &source.pull
            {
                let value = Json::parse(record.raw)
                    .ok()
                    .and_then(|json| field.find(json))
                    .and_then(|value| cursor::scalar(value.as_str()));
                if let Some(value) = value.filter(|value| !self.is_to_come(value)) {
                    page.greatest = Some(match page.greatest.take() {
                        Some(known) => cursor::greater(known, &value),
                        None => value,
                    });
                }
            }
            match self.record(record.raw, &mut pending, &mut page) {
                Ok(()) => {}
                Err(RecordTrouble::Failed(failure)) => return Err(failure),
                Err(RecordTrouble::Bad(bad)) => {
                    let passed = self.bad_record(url, number, record.raw, &bad, &mut page);
                    if selector.last_line_unterminated() && !proven_end {
                        return Err(cut_line(url));
                    }
                    passed?;
                }
            }
            if pending.is_full() {
                self.flush(&mut pending)?;
            }
            if page.records % 256 == 0 {
                self.tools
                    .wait
                    .breathe()
                    .map_err(|error| failure_of_io(&error))?;
                (self.tools.progress)(&self.tally);
            }
        }
        if selector.last_line_unterminated() && !proven_end {
            return Err(cut_line(url));
        }
        // The closing bracket of a JSON document proves its end; lines do not.
        if source.format == Format::Ndjson && !proven_end {
            page.blind = true;
            page.unproven = true;
        }
        page.found = (0..wanted.len())
            .map(|at| selector.found(at).map(|json| json.as_str().to_owned()))
            .collect();
        drop(selector);
        self.flush(&mut pending)?;
        Ok(page)
    }

    /// One record: what is to be delivered goes into `pending`, its mark onto the page unless it is a tombstone.
    fn record(
        &mut self,
        raw: &[u8],
        pending: &mut Pending,
        page: &mut PageRead,
    ) -> Result<(), RecordTrouble> {
        let reading = self.reader.read(raw).map_err(RecordTrouble::Bad)?;
        self.keys.note(&reading.key);
        let known = match pending.known(&reading.key) {
            Some(known) => known,
            None => self
                .tools
                .store
                .find(self.id, &reading.key)
                .map_err(|e| RecordTrouble::Failed(local(&e)))?,
        };
        let updated_ms = reading.updated.map(Timestamp::as_millisecond);
        if reading.deleted {
            // Of a record and its tombstone in one pass the later one counts, whichever comes first.
            let older =
                |known: &Known| self.is_met(known.ordinal, page) && updated_ms < known.updated_ms;
            if known.as_ref().is_some_and(older) {
                page.unproven |= !page.met.has(known.map_or(0, |known| known.ordinal));
                return Ok(());
            }
            self.graves.dig(&reading.key, updated_ms);
            if let Some(known) = known {
                pending.counts.deleted += 1;
                pending.touch(known.ordinal);
                pending.delete(reading.key, Gone::Tombstone);
            }
            return Ok(());
        }
        if self.graves.is_later(&reading.key, updated_ms) {
            // A 304 could not tell when this form of it is all that is left.
            page.unproven = true;
            return Ok(());
        }
        let fingerprint = crate::store::fingerprint(&self.salt, raw);
        if let Some(known) = known {
            let again = page.met.has(known.ordinal);
            self.tally.duplicates += u64::from(again);
            // Of two in one pass the later update wins; without update times, the later one in the listing.
            if self.is_met(known.ordinal, page) && updated_ms < known.updated_ms {
                // A 304 could not tell when this form of it is all that is left.
                page.unproven |= !again;
                return Ok(());
            }
            let same_text = known.fingerprint == fingerprint && known.digest != Digest::UNKNOWN;
            if same_text || self.reader.digest(&reading) == known.digest {
                if !again && self.met(known.ordinal, &mut page.met) {
                    self.tally.unchanged += 1;
                }
                return Ok(());
            }
        }
        let digest = self.reader.digest(&reading);
        if let (Some(Some(known)), true) = (pending.known(&reading.key), known.is_some()) {
            let stored = self
                .tools
                .store
                .find(self.id, &reading.key)
                .map_err(|e| RecordTrouble::Failed(local(&e)))?;
            let as_before =
                |stored: &Known| stored.digest == digest && stored.ordinal == known.ordinal;
            if stored.as_ref().is_some_and(as_before) {
                // An older form of it came first: nobody needs to be told of that and back.
                pending.take_back(&reading.key);
                self.tally.unchanged += 1;
                return Ok(());
            }
        }
        let ordinal = match known {
            Some(known) => {
                pending.touch(known.ordinal);
                known.ordinal
            }
            None => self
                .tools
                .store
                .next_ordinal(self.id)
                .map_err(|e| RecordTrouble::Failed(local(&e)))?,
        };
        self.note_late(reading.updated, known.is_some());
        if !page.met.has(ordinal) {
            let count = if known.is_some() {
                &mut pending.counts.changed
            } else {
                &mut pending.counts.added
            };
            *count += 1;
        } else if pending.known(&reading.key).is_none() {
            // Its first form in this answer was the one that we have.
            self.tally.unchanged = self.tally.unchanged.saturating_sub(1);
            pending.counts.changed += 1;
        }
        self.met(ordinal, &mut page.met);
        let Reading {
            key, json, updated, ..
        } = reading;
        let now_known = Known {
            digest,
            fingerprint,
            ordinal,
            updated_ms,
        };
        pending.upsert(key, json.as_str(), updated, now_known);
        Ok(())
    }

    /// Whether this pass has met a record in another form. What an interrupted one met long ago does not count: upstream may
    /// have gone back meanwhile.
    fn is_met(&self, ordinal: Ordinal, page: &PageRead) -> bool {
        page.met.has(ordinal) || (!self.resumed && self.marks.has(ordinal))
    }

    /// Whether a cursor out of a record is an instant that has not come yet upstream: behind such a one nothing would be
    /// asked for until it has.
    fn is_to_come(&mut self, value: &str) -> bool {
        let Some(started) = self.upstream_started.filter(|_| self.is_dated) else {
            return false;
        };
        let ran = self.tools.wait.now().since(self.began);
        let now = started.saturating_add(ran.saturating_add(DATE_SLACK));
        let is_ahead = cursor::is_ahead(value, now.unwrap_or(Timestamp::MAX));
        if is_ahead && !self.resumed {
            self.note(format!("records are dated later than now upstream ({value:.40}): they do not move the cursor"));
        }
        is_ahead
    }

    /// A record is new or different: how late that became visible, and whether an earlier pass should have seen it.
    fn note_late(&mut self, updated: Option<Timestamp>, known: bool) {
        if !self.is_incremental() || self.mode.dry_run {
            return;
        }
        if let (Some(updated), Some(was)) = (updated, self.was) {
            self.progress
                .note_lateness(window::lateness_of(updated, was));
        }
        // What was updated since the last pass started could not have been met by it.
        let is_news = updated
            .zip(self.was)
            .is_some_and(|(updated, was)| updated >= was);
        if !is_news && known {
            self.drift.changed += 1;
        } else if !is_news {
            self.drift.added += 1;
        }
    }

    /// Marks a record as met; says whether this pass had not met it yet.
    fn met(&mut self, ordinal: Ordinal, on_page: &mut Marks) -> bool {
        on_page.mark(ordinal);
        self.marks.mark(ordinal)
    }

    fn bad_record(
        &mut self,
        url: &Url,
        number: u64,
        raw: &[u8],
        bad: &BadRecord,
        page: &mut PageRead,
    ) -> Result<(), Failure> {
        if self.source.on_bad_record == OnBad::Fail {
            return Err(Failure::new(
                Kind::BadData,
                format!("record {number} at \"{}\": {bad} (`on_bad_record = \"skip\"` keeps such aside)", self.source.records),
            )
            .at(shown(url)));
        }
        page.bad += 1;
        self.tally.bad += 1;
        match &bad.key {
            // What was known under its key stays.
            Some(key) => {
                if let Some(known) = self.tools.store.find(self.id, key).map_err(|e| local(&e))? {
                    self.marks.mark(known.ordinal);
                    page.met.mark(known.ordinal);
                }
            }
            None => page.blind = true,
        }
        if self.bad.len() < BAD_KEPT {
            let key = bad.key.as_ref().map(|key| key.as_str().to_owned());
            self.bad.push(BadRow {
                page: shown(url),
                number,
                key,
                reason: bad.reason.clone(),
                raw: excerpt(raw),
            });
        }
        Ok(())
    }

    /// What is pending goes to the sink, then to the store.
    pub(super) fn flush(&mut self, pending: &mut Pending) -> Result<(), Failure> {
        if pending.is_empty() {
            return Ok(());
        }
        let counts = pending.counts;
        if self.mode.dry_run {
            pending.clear();
        } else {
            self.deliver(pending)?;
        }
        self.tally.added += counts.added;
        self.tally.changed += counts.changed;
        self.tally.deleted += counts.deleted;
        Ok(())
    }

    /// Compares some of what changes with what it was, where it seems that everything changes each time.
    fn take_sample(&mut self, pending: &Pending) -> Result<(), Failure> {
        if !self.mode.suspicious {
            return Ok(());
        }
        let mut ignored = self.source.ignore.clone();
        if let (Pull::Window(_), Some(updated)) = (&self.source.pull, &self.source.updated) {
            ignored.push(Ignore::At(updated.field.clone()));
        }
        for (key, body) in pending.upserts() {
            if self.sample.len() >= volatile::SAMPLE {
                break;
            }
            let old = self.tools.sink.body(self.source, key);
            let Some(old) = old.map_err(|error| sink_failure(&error))? else {
                continue;
            };
            if let (Ok(old), Ok(new)) = (Json::parse(old.as_bytes()), Json::parse(body.as_bytes()))
            {
                self.sample.push(volatile::differing(old, new, &ignored));
            }
        }
        Ok(())
    }

    /// A batch that followers have not taken yet goes on before anything else does.
    pub(super) fn settle(&mut self) -> Result<(), Failure> {
        let mut delivery = Delivery {
            store: self.tools.store,
            sink: self.tools.sink,
            wait: self.tools.wait,
        };
        let settled = delivery.settle(self.source, self.id)?;
        self.tally.added += settled.added;
        self.tally.changed += settled.changed;
        self.tally.deleted += settled.deleted;
        Ok(())
    }

    fn deliver(&mut self, pending: &mut Pending) -> Result<(), Failure> {
        self.take_sample(pending)?;
        let overtaken = self.overtaken_memos(pending.touched())?;
        let fetched = self.tools.wait.clock().wall();
        let mut delivery = Delivery {
            store: self.tools.store,
            sink: self.tools.sink,
            wait: self.tools.wait,
        };
        delivery.flush(self.source, self.id, pending, fetched, overtaken)
    }
}

fn failure_of_select(error: &SelectError) -> Failure {
    match error {
        SelectError::Io(error) => failure_of_io(error),
        SelectError::Truncated { .. } => Failure::new(Kind::Failing, error.to_string()),
        SelectError::Empty | SelectError::Markup => Failure::new(Kind::NotOurs, error.to_string()),
        other => Failure::new(Kind::BadData, other.to_string()),
    }
}

fn cut_line(url: &Url) -> Failure {
    Failure::new(
        Kind::Failing,
        "the body may have been cut: its last line has no end",
    )
    .at(shown(url))
}

fn excerpt(raw: &[u8]) -> String {
    String::from_utf8_lossy(&raw[..raw.len().min(2000)]).into_owned()
}
