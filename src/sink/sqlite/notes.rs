//! What is noted beside the rows: how a source stands, under which config its rows were written, which records were bad.

use rusqlite::{Connection, OptionalExtension as _, TransactionBehavior, params};

use super::SqliteSink;
use super::value::rfc3339;
use crate::clock::Timestamp;
use crate::sink::{BadRow, SinkError};

/// Under which config the rows of a source were written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// Its fingerprint.
    pub config: Vec<u8>,
    /// All rows; else those only that the store is sure of, and the others under an earlier one.
    pub whole: bool,
}

/// What was noted of a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Noted {
    /// When upstream was last asked successfully; at most one checkpoint old.
    pub last_check: Option<Timestamp>,
    /// When the last complete pass that changed something was.
    pub last_complete: Option<Timestamp>,
    /// How the last pass ended.
    pub outcome: String,
    /// And why.
    pub reason: String,
}

/// What `_sources` says of one source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceState<'a> {
    /// The source's name.
    pub name: &'a str,
    /// When upstream was last asked successfully.
    pub last_check: Option<Timestamp>,
    /// When the last complete pass started.
    pub last_complete: Option<Timestamp>,
    /// From when on the rows count as stale.
    pub stale_at: Option<Timestamp>,
    /// How the last pass ended.
    pub outcome: &'a str,
    /// And why.
    pub reason: &'a str,
    /// Rows that are not marked deleted.
    pub records: u64,
}

impl SqliteSink {
    /// Under which config the rows of a source were written; `None` if that is not known.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn written(&self, source: &str) -> Result<Option<Written>, SinkError> {
        self.db
            .query_row(
                "SELECT config, whole FROM _written WHERE source = ?1",
                [source],
                |row| {
                    Ok(Written {
                        config: row.get(0)?,
                        whole: row.get(1)?,
                    })
                },
            )
            .optional()
            .map_err(|e| self.explain(&e))
    }

    /// Notes under which config the rows of a source are written from now on.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn note_written(&mut self, source: &str, written: &Written) -> Result<(), SinkError> {
        self.db
            .execute(
                "INSERT INTO _written VALUES (?1, ?2, ?3)
                 ON CONFLICT (source) DO UPDATE SET config = ?2, whole = ?3",
                params![source, written.config, written.whole],
            )
            .map(drop)
            .map_err(|e| self.explain(&e))
    }

    /// Writes down how a source stands, for local readers.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn note(&mut self, state: &SourceState<'_>) -> Result<(), SinkError> {
        let text = |instant: Option<Timestamp>| instant.map(rfc3339);
        self.db
            .execute(
                "INSERT INTO _source_state (name, last_check, last_complete, stale_at, outcome, reason, records)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
                 ON CONFLICT (name) DO UPDATE SET last_check = ifnull(?2, last_check),
                   last_complete = ifnull(?3, last_complete), stale_at = ifnull(?4, stale_at), outcome = ?5, reason = ?6,
                   records = ?7",
                params![
                    state.name,
                    text(state.last_check),
                    text(state.last_complete),
                    text(state.stale_at),
                    state.outcome,
                    state.reason,
                    i64::try_from(state.records).unwrap_or(i64::MAX)
                ],
            )
            .map(drop)
            .map_err(|e| self.explain(&e))
    }

    /// What was noted of a source last.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn noted(&self, name: &str) -> Result<Option<Noted>, SinkError> {
        let instant = |text: Option<String>| text.and_then(|text| text.parse().ok());
        self.db
            .query_row("SELECT last_check, last_complete, outcome, reason FROM _source_state WHERE name = ?1", [name], |row| {
                Ok(Noted {
                    last_check: instant(row.get(0)?),
                    last_complete: instant(row.get(1)?),
                    outcome: row.get(2)?,
                    reason: row.get(3)?,
                })
            })
            .optional()
            .map_err(|e| self.explain(&e))
    }

    /// Keeps a source's bad records in `_bad` for a person to look at, in place of those of the last pass. Writes only
    /// when they differ.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn note_bad(&mut self, source: &str, bad: &[BadRow]) -> Result<(), SinkError> {
        let known = self.bad(source)?;
        if known == bad {
            return Ok(());
        }
        let write = |db: &mut Connection| {
            let tx = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
            tx.execute("DELETE FROM _bad WHERE source = ?1", [source])?;
            for row in bad {
                tx.execute(
                    "INSERT INTO _bad (source, page, number, key, reason, raw) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
                    params![source, row.page, i64::try_from(row.number).unwrap_or(i64::MAX), row.key, row.reason, row.raw],
                )?;
            }
            tx.commit()
        };
        let written = write(&mut self.db);
        written.map_err(|e| self.explain(&e))
    }

    /// The bad records of a source's last complete pass.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn bad(&self, source: &str) -> Result<Vec<BadRow>, SinkError> {
        let read = || {
            let mut query = self.db.prepare(
                "SELECT page, number, key, reason, raw FROM _bad WHERE source = ?1 ORDER BY rowid",
            )?;
            let rows = query.query_map([source], |row| {
                let number: i64 = row.get(1)?;
                Ok(BadRow {
                    page: row.get(0)?,
                    number: u64::try_from(number).unwrap_or(0),
                    key: row.get(2)?,
                    reason: row.get(3)?,
                    raw: row.get(4)?,
                })
            })?;
            rows.collect::<rusqlite::Result<Vec<BadRow>>>()
        };
        read().map_err(|e| self.explain(&e))
    }
}
