//! The program that is told of a source's changes: the batch as lines on its standard input.

use super::child::{self, ChildError, Job};
use super::{Batch, Sink, SinkError, SinkTrouble};
use crate::config::Program;
use crate::wait::Wait;

/// A source's `on_change`.
#[derive(Debug)]
pub struct OnChange<'a> {
    program: &'a Program,
    wait: &'a Wait,
}

impl<'a> OnChange<'a> {
    /// Waits for the program where everybody waits.
    #[must_use]
    pub fn new(program: &'a Program, wait: &'a Wait) -> Self {
        Self { program, wait }
    }
}

impl Sink for OnChange<'_> {
    /// The program has ended with 0 when this returns.
    fn deliver(&mut self, batch: &Batch<'_>) -> Result<(), SinkError> {
        let Some(told) = batch.told else {
            return Ok(());
        };
        let source = &batch.source.name;
        let number = told.seq.to_string();
        let name = self.program.path.file_name().unwrap_or_default();
        let job = Job {
            program: self.program,
            whose: &format!("{source}: {}", name.to_string_lossy()),
            input: told.lines,
            environment: &[("GLEANER_SOURCE", source), ("GLEANER_BATCH", &number)],
        };
        child::run(&job, self.wait).map_err(|error| SinkError {
            kind: match error {
                ChildError::Stopped => SinkTrouble::Stopped,
                _ => SinkTrouble::Other,
            },
            message: format!(
                "on_change: {} {error}; batch {number} ({} changes) is tried again, nothing new is taken before",
                self.program.path.display(),
                batch.changes.len()
            ),
        })
    }
}
