//! Reading rows back: to repair, to learn again, to replay.

use rusqlite::types::ValueRef;
use rusqlite::{OptionalExtension as _, params};

use super::SqliteSink;
use super::value::{quoted, sql_generation, sql_key};
use crate::clock::Timestamp;
use crate::config::{Deletes, Source};
use crate::record::{Digest, RecordKey};
use crate::sink::SinkError;

/// A row as the store needs it to compare or to rebuild.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// The record's key.
    pub key: RecordKey,
    /// Digest of its body.
    pub digest: Digest,
    /// Its own update time in milliseconds since 1970.
    pub updated_ms: Option<i64>,
}

impl SqliteSink {
    /// Calls `each` for every row of the source that a commit after `generation` wrote, marked ones left out.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn rows_after(
        &self,
        source: &Source,
        generation: u64,
        mut each: impl FnMut(Row),
    ) -> Result<(), SinkError> {
        let mut read = || {
            let living = if source.deletes == Deletes::Mark {
                "AND deleted = 0"
            } else {
                ""
            };
            let mut query = self.db.prepare(&format!(
                "SELECT key, digest, updated FROM {} WHERE generation > ?1 {living}",
                quoted(&source.name)
            ))?;
            let mut rows = query.query([sql_generation(generation)])?;
            while let Some(row) = rows.next()? {
                if let Some(row) = read_row(row, source)? {
                    each(row);
                }
            }
            Ok(())
        };
        read().map_err(|e: rusqlite::Error| self.explain(&e))
    }

    /// Keys of the source whose deletion a commit after `generation` delivered. Kept for the last generation only.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn removed_after(
        &self,
        source: &Source,
        generation: u64,
    ) -> Result<Vec<RecordKey>, SinkError> {
        let read = || {
            let mut query = self
                .db
                .prepare("SELECT key FROM _removed WHERE source = ?1 AND generation > ?2")?;
            let keys = query
                .query_map(params![source.name, sql_generation(generation)], |row| {
                    row.get::<_, String>(0)
                })?;
            keys.collect::<Result<Vec<String>, _>>()
        };
        let keys = read().map_err(|e| self.explain(&e))?;
        Ok(keys
            .iter()
            .filter_map(|key| RecordKey::from_canonical(key))
            .collect())
    }

    /// Up to `limit` living rows behind the key `after`, in the order of their keys.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn rows(
        &self,
        source: &Source,
        after: Option<&RecordKey>,
        limit: usize,
    ) -> Result<Vec<Row>, SinkError> {
        self.page(source, after, limit, "NULL", |known, _| Ok(known))
    }

    /// The same with their bodies.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn bodies(
        &self,
        source: &Source,
        after: Option<&RecordKey>,
        limit: usize,
    ) -> Result<Vec<(Row, Box<str>)>, SinkError> {
        self.page(source, after, limit, "body", |known, row| {
            Ok((known, row.get::<_, String>(3)?.into_boxed_str()))
        })
    }

    /// The same with their bodies as bytes: damage may have left no text of them.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn raw_bodies(
        &self,
        source: &Source,
        after: Option<&RecordKey>,
        limit: usize,
    ) -> Result<Vec<(Row, Vec<u8>)>, SinkError> {
        self.page(source, after, limit, "CAST(body AS BLOB)", |known, row| {
            Ok((known, row.get(3)?))
        })
    }

    fn page<T>(
        &self,
        source: &Source,
        after: Option<&RecordKey>,
        limit: usize,
        body: &str,
        take: impl Fn(Row, &rusqlite::Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>, SinkError> {
        let read = || {
            let living = if source.deletes == Deletes::Mark {
                "AND deleted = 0"
            } else {
                ""
            };
            let behind = if after.is_some() {
                "key > ?1"
            } else {
                "?1 IS NULL"
            };
            let mut query = self.db.prepare(&format!(
                "SELECT key, digest, updated, {body} FROM {} WHERE {behind} {living} ORDER BY key LIMIT ?2",
                quoted(&source.name)
            ))?;
            let after = after.map(sql_key).transpose()?;
            let mut rows = query.query(params![after, i64::try_from(limit).unwrap_or(i64::MAX)])?;
            let mut out = Vec::new();
            while let Some(row) = rows.next()? {
                if let Some(known) = read_row(row, source)? {
                    out.push(take(known, row)?);
                }
            }
            Ok(out)
        };
        read().map_err(|e: rusqlite::Error| self.explain(&e))
    }

    /// The text of a record as it was delivered last; `None` if there is no row of it.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn body(&self, source: &Source, key: &RecordKey) -> Result<Option<String>, SinkError> {
        let read = || {
            let query = format!("SELECT body FROM {} WHERE key = ?1", quoted(&source.name));
            let key = sql_key(key)?;
            let row = self.db.query_row(&query, params![key], |row| row.get(0));
            row.optional()
        };
        read().map_err(|e: rusqlite::Error| self.explain(&e))
    }

    /// How many living rows the source has.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn count(&self, source: &Source) -> Result<u64, SinkError> {
        let living = if source.deletes == Deletes::Mark {
            "WHERE deleted = 0"
        } else {
            ""
        };
        let count: i64 = self
            .db
            .query_row(
                &format!("SELECT count(*) FROM {} {living}", quoted(&source.name)),
                [],
                |row| row.get(0),
            )
            .map_err(|e| self.explain(&e))?;
        Ok(u64::try_from(count).unwrap_or(0))
    }
}

fn read_row(row: &rusqlite::Row<'_>, source: &Source) -> rusqlite::Result<Option<Row>> {
    let key = match row.get_ref(0)? {
        ValueRef::Text(text) if source.key.len() > 1 => String::from_utf8_lossy(text).into_owned(),
        ValueRef::Text(text) => {
            serde_json::Value::String(String::from_utf8_lossy(text).into_owned()).to_string()
        }
        ValueRef::Integer(number) => number.to_string(),
        ValueRef::Blob(digits) => String::from_utf8_lossy(digits).into_owned(),
        ValueRef::Null | ValueRef::Real(_) => return Ok(None),
    };
    let digest = match row.get_ref(1)? {
        ValueRef::Blob(bytes) => bytes.try_into().map_or(Digest::UNKNOWN, Digest),
        _ => Digest::UNKNOWN,
    };
    let updated: Option<String> = row.get(2)?;
    let updated_ms = updated
        .and_then(|text| text.parse::<Timestamp>().ok())
        .map(Timestamp::as_millisecond);
    Ok(RecordKey::from_canonical(&key).map(|key| Row {
        key,
        digest,
        updated_ms,
    }))
}
