//! The end of a pass: what was not met, deletions, and how far the source has come.

use super::absence::{Loss, judge};
use super::collection::Pass;
use super::deliver::{Pending, local, sink_failure};
use super::plan::Plan;
use super::progress::Drift;
use super::report::Outcome;
use super::{standing, volatile};
use crate::config::{Ignore, print_ignore};
use crate::pointer::Pointer;
use crate::record::{Gone, Known, RecordKey};
use crate::upstream::outcome::Failure;

impl Pass<'_, '_> {
    /// Records that are known and that the listing did not have, and how many are known.
    pub(super) fn missing(&self) -> Result<(u64, u64), Failure> {
        let known = self.tools.store.count(self.id);
        // Of a window that was complete nobody knows what it did not ask for.
        let settled = !self.is_incremental()
            && self.all_304
            && self.mode.settled == Some(self.tools.store.generation());
        // While an interrupted pass was not running, what stood on pages to come may have moved to pages behind: only the
        // pass from the start that follows proves an absence.
        let unsure = self.resumed && !self.is_incremental();
        if settled || self.blind || unsure {
            return Ok((0, known));
        }
        let mut missing = 0;
        for entry in self.tools.store.records(self.id, None) {
            let (_, record) = entry.map_err(|e| local(&e))?;
            missing += u64::from(self.is_missing(&record));
        }
        Ok((missing, known))
    }

    /// A listing that starts at an update time says nothing of records that were updated before it.
    fn is_missing(&self, known: &Known) -> bool {
        let since = match self.plan {
            Plan::Full { since, .. } => since,
            Plan::Window { .. } | Plan::Cursor { .. } => return false,
        };
        let listed = since.is_none_or(|since| {
            known
                .updated_ms
                .is_some_and(|updated| updated >= since.as_millisecond())
        });
        listed && !self.marks.has(known.ordinal)
    }

    /// A window or a run behind a cursor is complete.
    pub(super) fn finish_incremental(&mut self) -> Result<Outcome, Failure> {
        self.note_keys();
        if self.mode.dry_run {
            return Ok(self.done());
        }
        self.forget_position()?;
        self.evict_memos()?;
        self.advance(false)?;
        if self.bad_vouched == 0 && !self.resumed {
            let noted = self.tools.sink.note_bad(&self.source.name, &self.bad);
            noted.map_err(|error| sink_failure(&error))?;
        }
        // Until a person has said so, or the next full pass has them again.
        if let Some((missing, known)) = self.progress.unconfirmed {
            return Ok(Outcome::NeedsConfirmation { missing, known });
        }
        Ok(self.done())
    }

    /// The listing is complete: deletions, and the end of the pass.
    pub(super) fn finish(&mut self, missing: u64, known: u64) -> Result<Outcome, Failure> {
        if self.blind {
            self.note("absent records were not deleted: a bad record without a readable key, or a body that may have been cut, was on the way".into());
        }
        self.note_keys();
        let loss = judge(
            self.listed,
            known,
            missing,
            self.source.max_loss,
            self.mode.confirmed || self.is_another_scope()?,
        );
        if loss == Loss::Gone {
            self.delete_missing()?;
        }
        if !self.mode.dry_run {
            self.forget_position()?;
            self.evict_memos()?;
            self.note_whole()?;
            if loss != Loss::NeedsConfirmation && !self.blind {
                self.note_scope()?;
            }
            if self.is_incremental() {
                self.progress.unconfirmed =
                    (loss == Loss::NeedsConfirmation).then_some((missing, known));
                self.note_drift();
                self.advance(true)?;
            }
            // What a 304 vouched for was noted when it was read.
            if self.bad_vouched == 0 && !self.resumed {
                let noted = self.tools.sink.note_bad(&self.source.name, &self.bad);
                noted.map_err(|error| sink_failure(&error))?;
            }
        }
        if loss == Loss::NeedsConfirmation {
            return Ok(Outcome::NeedsConfirmation { missing, known });
        }
        Ok(self.done())
    }

    /// Which field moves, if this pass over everything changed nearly everything once more and that explains it.
    pub(super) fn note_moving(&mut self, outcome: &Outcome) {
        if !outcome.is_complete() || !volatile::changed_nearly_all(&self.tally) {
            return;
        }
        let Some(fields) = volatile::moving(&self.sample) else {
            return;
        };
        let new = fields
            .iter()
            .filter_map(|field| Some(Ignore::At(Pointer::parse(field).ok()?)));
        let ignore: Vec<Ignore> = self.source.ignore.iter().cloned().chain(new).collect();
        self.note(format!(
            "nearly every record changes with each pass, and in {} alone; if that means nothing, write `ignore = {}` in [source.{}]",
            fields.join(", "),
            print_ignore(&ignore),
            self.source.name
        ));
    }

    /// What is odd about the keys that came.
    fn note_keys(&mut self) {
        if self.tally.duplicates > 0 {
            self.note(format!(
                "{} records came more than once in one answer under the same key: is `key` unique there?",
                self.tally.duplicates
            ));
        }
        if self.keys.are_mixed() {
            self.note("keys are numbers in some records and strings in others: 7 and \"7\" are two records".into());
        }
    }

    /// What a scheduled full pass found although windows or cursors had just been read to their end.
    fn note_drift(&mut self) {
        let Plan::Full { why, .. } = self.plan else {
            return;
        };
        if !why.shows_drift() {
            return;
        }
        let drift = Drift {
            at: self.upstream_now(),
            why,
            added: self.drift.added,
            changed: self.drift.changed,
            deleted: self.tally.deleted,
        };
        if drift.sum() > 0 {
            log::warn!(
                "{}: the reconcile found {} records that had been missed: {} new, {} changed, {} gone",
                self.source.name,
                drift.sum(),
                drift.added,
                drift.changed,
                drift.deleted
            );
        }
        self.progress.note_drift(drift);
    }

    pub(super) fn done(&self) -> Outcome {
        if self.tally.delivered() > 0 {
            Outcome::Changed
        } else {
            Outcome::Unchanged
        }
    }

    fn delete_missing(&mut self) -> Result<(), Failure> {
        let mut after: Option<RecordKey> = None;
        loop {
            let mut pending = Pending::default();
            for entry in self.tools.store.records(self.id, after.as_ref()) {
                let (key, record) = entry.map_err(|e| local(&e))?;
                if self.is_missing(&record) {
                    pending.counts.deleted += 1;
                    pending.touch(record.ordinal);
                    pending.delete(key, Gone::Missing);
                    if pending.is_full() {
                        break;
                    }
                }
            }
            let Some(last) = pending.last_key() else {
                return Ok(());
            };
            after = Some(last);
            self.flush(&mut pending)?;
        }
    }

    /// What kind of pass it was, for people.
    pub(super) fn word(&self) -> &'static str {
        standing::word(&self.plan)
    }
}
