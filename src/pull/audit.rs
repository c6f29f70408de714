//! Reading `data.db` back, in slices: whether its rows are still what was written.
//!
//! SQLite has no sums over its pages. What it stumbles over it reports, if somebody reads it; a byte of a body that is another
//! nobody would notice. So each row is read, its body's digest reckoned again, and compared with the one beside it and with
//! what the store knows. What differs is in doubt: the next pass compares it with upstream and writes it again.

use super::reading::RecordReader;
use super::repair::{RepairError, doubt_records, owe_full};
use crate::config::Source;
use crate::record::{Digest, RecordKey};
use crate::sink::sqlite::SqliteSink;
use crate::store::Store;

/// Rows of one slice.
pub const SLICE: usize = 100;

/// What a slice found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slice {
    /// Where the next one starts; none: all was read.
    pub last: Option<RecordKey>,
    /// Rows that are not what was written.
    pub doubted: Vec<RecordKey>,
}

/// Reads the rows of a source behind a key. Rows in doubt already are left out, and so is a source whose count is not the
/// store's: that is for the next opening to put right.
///
/// # Errors
/// When either cannot be read or written. A sink that is damaged says so ([`SqliteSink::is_damaged`]), also for a row under a
/// key that was never written.
pub fn slice(
    source: &Source,
    after: Option<&RecordKey>,
    store: &mut Store,
    sink: &SqliteSink,
) -> Result<Slice, RepairError> {
    let id = store.source(&source.name)?;
    let rows = sink.raw_bodies(source, after, SLICE)?;
    let mut reader = RecordReader::new(source);
    let last = (rows.len() == SLICE).then(|| rows.last().map(|(row, _)| row.key.clone()));
    let mut doubted = Vec::new();
    for (row, body) in rows {
        let Some(known) = store.find(id, &row.key)? else {
            if store.count(id) != sink.count(source)? {
                return Ok(Slice {
                    last: None,
                    doubted,
                });
            }
            return Err(RepairError::Sink(sink.is_not_as_written(&format!(
                "{} has a row under {}, which was never written",
                source.name, row.key
            ))));
        };
        if known.digest == Digest::UNKNOWN {
            continue;
        }
        let reckoned = reader.read(&body).map(|reading| reader.digest(&reading));
        if row.digest != known.digest || reckoned != Ok(known.digest) {
            doubted.push(row.key);
        }
    }
    if !doubted.is_empty() {
        doubt_records(store, id, &doubted)?;
        owe_full(store, id)?;
    }
    Ok(Slice {
        last: last.flatten(),
        doubted,
    })
}
