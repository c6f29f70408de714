//! A document's program: it is told of each version that is published, until it has taken it.

use super::Agent;
use crate::config::Document;
use crate::document::checksum::Checksum;
use crate::document::kept::{Kept, told_key};
use crate::sink::child::{self, ChildError, Job};
use crate::store::Batch;
use crate::upstream::outcome::{Failure, Kind};

impl Agent {
    /// Tells a document's program of the version that is published, unless it has taken that before. What it took last is
    /// written down after it did: cut in between, it is told once more.
    pub(super) fn tell_of(&mut self, name: &str, kept: Option<&Kept>) -> Result<(), Failure> {
        let (Some(document), Some(kept), Some(state)) =
            (self.config.documents.get(name), kept, self.state.as_mut())
        else {
            return Ok(());
        };
        let Some(program) = &document.on_change else {
            return Ok(());
        };
        let local = |reason: String| Failure::new(Kind::Local, reason);
        let taken = state
            .store
            .get(&told_key(name))
            .map_err(|error| local(error.to_string()))?
            .and_then(|bytes| Some(Checksum(bytes.try_into().ok()?)));
        if taken == Some(kept.digest) {
            return Ok(());
        }
        let path = self.place().file(&document.file);
        let (path, new) = (path.to_string_lossy(), kept.digest.to_string());
        let old = taken.map(|taken| taken.to_string());
        let line = serde_json::json!({
            "document": name,
            "path": path,
            "old": old,
            "new": new,
            "size": kept.mark.size,
        });
        let line = format!("{line}\n");
        let job = Job {
            program,
            whose: &whose(document),
            input: line.as_bytes(),
            environment: &[
                ("GLEANER_DOCUMENT", name),
                ("GLEANER_FILE", &path),
                ("GLEANER_OLD", old.as_deref().unwrap_or_default()),
                ("GLEANER_NEW", &new),
            ],
        };
        child::run(&job, &self.wait).map_err(|error| {
            let kind = match error {
                ChildError::Stopped => Kind::Stopped,
                _ => Kind::Local,
            };
            let program = program.path.display();
            let reason = format!(
                "on_change: {program} {error}; the file is published, and it is told again with the next poll"
            );
            Failure::new(kind, reason)
        })?;
        let Some(state) = self.state.as_mut() else {
            return Err(local("the state directory cannot be used".into()));
        };
        let mut batch = Batch::new();
        batch.put(told_key(name), &kept.digest.0);
        state
            .store
            .commit(batch)
            .map(drop)
            .map_err(|error| local(error.to_string()))
    }
}

/// For the log.
fn whose(document: &Document) -> String {
    let program = document.on_change.as_ref().map(|program| &program.path);
    let file = program
        .and_then(|path| path.file_name())
        .unwrap_or_default();
    format!("{}: {}", document.name, file.to_string_lossy())
}
