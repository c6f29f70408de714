//! Which config, and whose view of the data, gives what is kept of a source its meaning; and what a change of either undoes.

use super::collection::Pass;
use super::deliver::local;
use super::deliver::sink_failure;
use super::plan::Full;
use super::repair::{config_key, progress_key};
use crate::record::Digest;
use crate::sink::sqlite::Written;
use crate::store::{Batch, Key, Tag};
use crate::upstream::outcome::Failure;

impl Pass<'_, '_> {
    /// Reads everything again when the config that decides what a digest or a memo means has changed. Doubt first, then the
    /// sink, then what says that it was done: a cut in between does it again, also under yet another config.
    pub(super) fn adopt_config(&mut self) -> Result<(), Failure> {
        let key = config_key(self.id);
        let stored = self.tools.store.get(&key).map_err(|e| local(&e))?;
        if stored.as_deref() == Some(&self.mode.config[..]) {
            return Ok(());
        }
        let known = self.tools.store.count(self.id);
        if known > 0 {
            log::info!(
                "{}: its config changed, everything is read again",
                self.source.name
            );
        }
        let wait = self.tools.wait;
        // A stop in between is noticed with the first request; all this is done again then.
        let breathe = || drop(wait.breathe());
        super::repair::doubt(self.tools.store, self.id, breathe).map_err(|e| local(&e))?;
        self.note_written(known == 0)?;
        let mut batch = Batch::new();
        batch.put(key, &self.mode.config);
        if self.is_incremental() && known > 0 {
            // Windows and cursors would not ask for all of it.
            self.progress.owed = Some(Full::Config);
            batch.put(progress_key(self.id), &self.progress.encode());
        }
        if known == 0 {
            batch.put(self.scope_key(), &self.mode.scope);
        }
        self.commit(batch)
    }

    fn scope_key(&self) -> Key {
        Key::new(Tag::Counter, self.id, b"scope")
    }

    /// Whether the rows may still be those of another scope. Their absence from a listing of this one is no loss.
    pub(super) fn is_another_scope(&self) -> Result<bool, Failure> {
        let stored = self.tools.store.get(&self.scope_key());
        let stored = stored.map_err(|e| local(&e))?;
        Ok(stored.is_some_and(|scope| scope != self.mode.scope))
    }

    pub(super) fn note_scope(&mut self) -> Result<(), Failure> {
        let stored = self.tools.store.get(&self.scope_key());
        if stored.map_err(|e| local(&e))?.as_deref() == Some(&self.mode.scope[..]) {
            return Ok(());
        }
        let mut batch = Batch::new();
        batch.put(self.scope_key(), &self.mode.scope);
        self.commit(batch)
    }

    fn note_written(&mut self, whole: bool) -> Result<(), Failure> {
        let written = Written {
            config: self.mode.config.to_vec(),
            whole,
        };
        self.tools
            .sink
            .note_written(&self.source.name, &written)
            .map_err(|error| sink_failure(&error))
    }

    /// Once every row was written under this config, the sink says so; then it can teach a new store.
    pub(super) fn note_whole(&mut self) -> Result<(), Failure> {
        let written = self.tools.sink.written(&self.source.name);
        let written = written.map_err(|error| sink_failure(&error))?;
        if written.is_some_and(|written| written.whole) {
            return Ok(());
        }
        for entry in self.tools.store.records(self.id, None) {
            let (_, known) = entry.map_err(|e| local(&e))?;
            if known.digest == Digest::UNKNOWN {
                return Ok(());
            }
        }
        self.note_written(true)
    }
}
