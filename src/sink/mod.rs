//! Where changes are delivered. A sink has a batch durably before the store says that it was delivered.
//!
//! `data.db` comes first: with the rows it keeps which batch is on its way to the followers, so that after a cut or a failure
//! the same batch goes on under the same number. The journal and the program of a source follow, in this order.

pub mod child;
pub mod journal;
pub mod lines;
pub mod program;
pub mod sqlite;

use std::fmt;
use std::io;
use std::path::Path;

use crate::clock::Timestamp;
use crate::config::Source;
use crate::record::Change;

/// Changes of one source that become visible together.
#[derive(Debug)]
pub struct Batch<'a> {
    /// Whose they are.
    pub source: &'a Source,
    /// The commit they belong to: one more than the store's.
    pub generation: u64,
    /// When they were fetched.
    pub fetched: Timestamp,
    /// In the order they came; a key stands once.
    pub changes: &'a [Change],
    /// What followers are told; `None` if the source has none.
    pub told: Option<Told<'a>>,
}

/// A batch as followers are told of it.
#[derive(Debug, Clone, Copy)]
pub struct Told<'a> {
    /// The number of its first change, which is also what the batch is called. No other change of the source ever has it.
    pub seq: u64,
    /// Its changes as [`lines::lines`] writes them.
    pub lines: &'a [u8],
}

/// Takes batches: `data.db`, a journal, a program.
pub trait Sink {
    /// Delivers a batch: durably, or not at all.
    ///
    /// # Errors
    /// Nothing of the batch is visible then, and it comes again.
    fn deliver(&mut self, batch: &Batch<'_>) -> Result<(), SinkError>;
}

/// A record that was skipped as bad, kept aside for a person to look at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadRow {
    /// The page's URL without query values.
    pub page: String,
    /// Which record of the page, from 1.
    pub number: u64,
    /// Its key, if that could be read.
    pub key: Option<String>,
    /// What is wrong with it.
    pub reason: String,
    /// The start of its text.
    pub raw: String,
}

/// Why a sink did not take a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SinkError {
    /// What kind of trouble.
    pub kind: SinkTrouble,
    /// In words, with the path and what to do.
    pub message: String,
}

/// What kind of trouble a sink has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SinkTrouble {
    /// Another program holds a write lock; soon over.
    Busy,
    /// No space left.
    Full,
    /// Not writable.
    ReadOnly,
    /// What is there is damaged, or not ours.
    Damaged,
    /// The agent was told to stop.
    Stopped,
    /// Anything else.
    Other,
}

impl SinkError {
    /// What the system said of a file.
    #[must_use]
    pub fn io(path: &Path, error: &io::Error) -> Self {
        let kind = match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => SinkTrouble::Full,
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                SinkTrouble::ReadOnly
            }
            _ => SinkTrouble::Other,
        };
        let hint = match kind {
            SinkTrouble::Full => "; make room, nothing was lost",
            _ => "",
        };
        Self {
            kind,
            message: format!("{}: {error}{hint}", path.display()),
        }
    }
}

impl fmt::Display for SinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for SinkError {}
