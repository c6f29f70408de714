//! Which batch of a source its followers were told of last, or are to be told of: written with its rows, in one transaction.
//!
//! Only the keys are kept: until followers have the batch the source brings no other one, so the bodies are in the rows. Of a
//! source without followers nothing is kept here.

use rusqlite::{Connection, OptionalExtension as _, Transaction, params};

use super::SqliteSink;
use super::value::{quoted, rfc3339, sql_generation, sql_key};
use crate::clock::Timestamp;
use crate::config::Source;
use crate::record::{Change, Digest, Gone, RecordKey};
use crate::sink::{Batch, SinkError};

const CREATE: &str = "CREATE TABLE _batch (source TEXT PRIMARY KEY NOT NULL, seq INTEGER NOT NULL, count INTEGER NOT NULL,
               fetched TEXT NOT NULL, changes TEXT NOT NULL)";

/// A batch as it was delivered to `data.db`.
#[derive(Debug, Clone, PartialEq)]
pub struct Held {
    /// The number of its first change.
    pub seq: u64,
    /// When it was fetched.
    pub fetched: Timestamp,
    /// What it says. A row that somebody took away meanwhile is left out.
    pub changes: Vec<Change>,
    /// How many numbers it has.
    pub count: u64,
}

/// Makes the table where an earlier version made the file.
pub(super) fn ensure(db: &Connection) -> rusqlite::Result<()> {
    if !is_there(db)? {
        db.execute_batch(CREATE)?;
    }
    Ok(())
}

pub(super) fn is_there(db: &Connection) -> rusqlite::Result<bool> {
    let query = "SELECT 1 FROM sqlite_master WHERE name = '_batch'";
    let found = db.query_row(query, [], |_| Ok(())).optional()?;
    Ok(found.is_some())
}

/// Notes what followers are to be told, in the transaction that delivers it.
pub(super) fn note(tx: &Transaction<'_>, batch: &Batch<'_>) -> rusqlite::Result<()> {
    let Some(told) = batch.told else {
        return Ok(());
    };
    let entry = |change: &Change| match change {
        Change::Upsert { key, .. } => (key.as_str().to_owned(), None),
        Change::Delete { key, why } => (key.as_str().to_owned(), Some(why.word())),
    };
    let changes: Vec<(String, Option<&str>)> = batch.changes.iter().map(entry).collect();
    let text = serde_json::to_string(&changes)
        .map_err(|error| rusqlite::Error::ToSqlConversionFailure(Box::new(error)))?;
    tx.execute(
        "INSERT OR REPLACE INTO _batch VALUES (?1, ?2, ?3, ?4, ?5)",
        params![
            batch.source.name,
            sql_generation(told.seq),
            i64::try_from(changes.len()).unwrap_or(i64::MAX),
            rfc3339(batch.fetched),
            text
        ],
    )
    .map(drop)
}

impl SqliteSink {
    /// The number behind the last change of a source that is noted for followers; 1 if there is none.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn next_told(&self, source: &str) -> Result<u64, SinkError> {
        self.db
            .query_row(
                "SELECT seq + count FROM _batch WHERE source = ?1",
                [source],
                |row| row.get::<_, i64>(0),
            )
            .optional()
            .map(|next| next.and_then(|next| u64::try_from(next).ok()).unwrap_or(1))
            .map_err(|e| self.explain(&e))
    }

    /// The last batch of a source, if its first change has the number `next` or a later one: nobody knows yet whether its
    /// followers have it.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn held(&self, source: &Source, next: u64) -> Result<Option<Held>, SinkError> {
        let read = || {
            let found = self
                .db
                .query_row(
                    "SELECT seq, count, fetched, changes FROM _batch WHERE source = ?1 AND seq >= ?2",
                    params![source.name, sql_generation(next)],
                    |row| {
                        Ok((
                            row.get::<_, i64>(0)?,
                            row.get::<_, i64>(1)?,
                            row.get::<_, String>(2)?,
                            row.get::<_, String>(3)?,
                        ))
                    },
                )
                .optional()?;
            let Some((seq, count, fetched, changes)) = found else {
                return Ok(None);
            };
            let listed: Vec<(String, Option<String>)> =
                serde_json::from_str(&changes).unwrap_or_default();
            let mut changes = Vec::new();
            for (key, why) in listed {
                if let Some(key) = RecordKey::from_canonical(&key) {
                    changes.extend(self.change(source, key, why.as_deref())?);
                }
            }
            Ok(Some(Held {
                seq: u64::try_from(seq).unwrap_or(1),
                fetched: fetched.parse().unwrap_or(Timestamp::UNIX_EPOCH),
                changes,
                count: u64::try_from(count).unwrap_or(0),
            }))
        };
        read().map_err(|e: rusqlite::Error| self.explain(&e))
    }

    /// One change of the last batch, out of its row.
    fn change(
        &self,
        source: &Source,
        key: RecordKey,
        why: Option<&str>,
    ) -> rusqlite::Result<Option<Change>> {
        if let Some(why) = why {
            let why = if why == Gone::Tombstone.word() {
                Gone::Tombstone
            } else {
                Gone::Missing
            };
            return Ok(Some(Change::Delete { key, why }));
        }
        let query = format!(
            "SELECT body, digest, updated FROM {} WHERE key = ?1",
            quoted(&source.name)
        );
        let bound = sql_key(&key)?;
        let row = self.db.query_row(&query, params![bound], |row| {
            let digest: Vec<u8> = row.get(1)?;
            let updated: Option<String> = row.get(2)?;
            Ok((row.get::<_, String>(0)?, digest, updated))
        });
        Ok(row
            .optional()?
            .map(|(body, digest, updated)| Change::Upsert {
                key,
                body: body.into(),
                digest: digest.try_into().map_or(Digest::UNKNOWN, Digest),
                updated: updated.and_then(|text| text.parse().ok()),
            }))
    }
}
