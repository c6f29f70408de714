//! `data.db`: the table that the gateway's own programs read. The only room that names rusqlite.
//!
//! One table a source: `key`, `body` (the JSON text as it came), the configured columns, `updated`, `fetched`, `digest`
//! and `generation`, the number of the commit that wrote the row. `_sources` tells readers how far they can trust it.
//! Write-ahead log, kept on disk so that readers without write permission can open the file at any time.

use std::cell::Cell;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rusqlite::types::{ToSqlOutput, Value, ValueRef};
use rusqlite::{Connection, ErrorCode, OptionalExtension as _, TransactionBehavior, params};

use super::{BadRow, Batch, Sink, SinkError, SinkTrouble};
use crate::clock::Timestamp;
use crate::config::{Deletes, Source};
use crate::json::Json;
use crate::record::{Change, Digest, RecordKey};

/// The layout of this version; a file with a higher one is refused.
const LAYOUT: i64 = 1;

/// The SQLite sink.
#[derive(Debug)]
pub struct SqliteSink {
    db: Connection,
    path: PathBuf,
    id: String,
    damaged: Cell<bool>,
}

/// How the file was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Opening {
    /// It was not there.
    Created,
    /// As it was left.
    Opened,
    /// It was damaged; it is kept aside, and a new one was made.
    Replaced {
        /// Where the damaged one is now.
        aside: PathBuf,
        /// What was wrong.
        why: String,
    },
}

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
    /// Opens or creates the file. One that is no database, or damaged, is put aside as `data.db.damaged-DATE`.
    ///
    /// # Errors
    /// When it cannot be opened for writing, or a newer version wrote it.
    pub fn open(path: &Path, now: Timestamp) -> Result<(Self, Opening), SinkError> {
        let fresh = !path.exists();
        match Self::try_open(path) {
            Ok(sink) => Ok((
                sink,
                if fresh {
                    Opening::Created
                } else {
                    Opening::Opened
                },
            )),
            Err(error) if error.kind == SinkTrouble::Damaged => {
                Self::replace(path, &error.message, now)
            }
            Err(error) => Err(error),
        }
    }

    /// Closes a file that turned out to be damaged, puts it aside as `data.db.damaged-DATE`, and makes a new one.
    ///
    /// # Errors
    /// Those of [`SqliteSink::open`].
    pub fn put_aside(self, why: &str, now: Timestamp) -> Result<(Self, Opening), SinkError> {
        let Self { db, path, .. } = self;
        drop(db);
        Self::replace(&path, why, now)
    }

    fn replace(path: &Path, why: &str, now: Timestamp) -> Result<(Self, Opening), SinkError> {
        let aside = put_aside(path, now)?;
        let why = why.to_owned();
        Ok((Self::try_open(path)?, Opening::Replaced { aside, why }))
    }

    fn try_open(path: &Path) -> Result<Self, SinkError> {
        let explain = |error: rusqlite::Error| explain(path, &error);
        create_readable(path)?;
        let mut db = Connection::open(path).map_err(explain)?;
        db.busy_handler(None).map_err(explain)?;
        keep_wal(&db).map_err(explain)?;
        db.execute_batch(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA cache_size = -512; PRAGMA temp_store = MEMORY;
             PRAGMA journal_size_limit = 4194304;",
        )
        .map_err(explain)?;
        let id = layout(&mut db).map_err(explain)?;
        let layout: i64 = db
            .query_row("SELECT layout FROM _gleaner", [], |row| row.get(0))
            .map_err(explain)?;
        if layout > LAYOUT {
            return Err(SinkError {
                kind: SinkTrouble::Other,
                message: format!(
                    "{}: written by a newer version (layout {layout}, this one knows {LAYOUT}); update gleaner",
                    path.display()
                ),
            });
        }
        sync_directory(path)?;
        Ok(Self {
            db,
            path: path.to_owned(),
            id,
            damaged: Cell::new(false),
        })
    }

    /// The random id that the file got when it was made: another id is another file.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The generation of the last batch that was delivered.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn generation(&self) -> Result<u64, SinkError> {
        let generation: i64 = self
            .db
            .query_row("SELECT generation FROM _gleaner", [], |row| row.get(0))
            .map_err(|e| self.explain(&e))?;
        Ok(u64::try_from(generation).unwrap_or(0))
    }

    /// Raises the generation without a change: after the store was rebuilt beside a file that went back.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn set_generation(&mut self, generation: u64) -> Result<(), SinkError> {
        self.db
            .execute(
                "UPDATE _gleaner SET generation = ?1",
                params![sql_generation(generation)],
            )
            .map(drop)
            .map_err(|e| self.explain(&e))
    }

    /// Makes the source's table and columns as the config has them. Columns that it no longer names go: what they
    /// held is in the body.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn prepare(&mut self, source: &Source) -> Result<(), SinkError> {
        let wanted = columns(source);
        let known = self.known_columns(&source.name)?;
        if known.is_empty() {
            let list: String = wanted
                .iter()
                .map(|name| format!(", {}", quoted(name)))
                .collect();
            return self.execute_batch(&format!(
                "CREATE TABLE {table} (key PRIMARY KEY NOT NULL, body TEXT NOT NULL, updated TEXT, fetched TEXT NOT NULL,
                   digest BLOB NOT NULL, generation INTEGER NOT NULL{list});
                 CREATE INDEX {index} ON {table} (generation);",
                table = quoted(&source.name),
                index = quoted(&format!("_{}_generation", source.name)),
            ));
        }
        let table = quoted(&source.name);
        let added = wanted.iter().filter(|name| !contains(&known, name));
        let added = added.map(|name| format!("ALTER TABLE {table} ADD COLUMN {};", quoted(name)));
        let is_dropped =
            |name: &&String| !contains(&wanted, name) && !BUILT_IN.contains(&name.as_str());
        let dropped = known.iter().filter(is_dropped);
        let dropped =
            dropped.map(|name| format!("ALTER TABLE {table} DROP COLUMN {};", quoted(name)));
        let changes: String = added.chain(dropped).collect();
        if changes.is_empty() {
            return Ok(());
        }
        // What the rows hold in new columns is nobody's config any more, also if this one is taken back.
        let forget = format!(
            "DELETE FROM _written WHERE source = {};",
            literal(&source.name)
        );
        self.execute_batch(&format!("BEGIN IMMEDIATE; {forget} {changes} COMMIT;"))
            .inspect_err(|_| self.roll_back())
    }

    fn roll_back(&self) {
        if !self.db.is_autocommit() {
            if let Err(error) = self.execute_batch("ROLLBACK") {
                log::error!("{error}");
            }
        }
    }

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

    fn known_columns(&self, table: &str) -> Result<Vec<String>, SinkError> {
        let read = || {
            let mut query = self.db.prepare("SELECT name FROM pragma_table_info(?1)")?;
            let names = query.query_map([table], |row| row.get(0))?;
            names.collect::<Result<Vec<String>, _>>()
        };
        read().map_err(|e| self.explain(&e))
    }

    fn execute_batch(&self, sql: &str) -> Result<(), SinkError> {
        self.db.execute_batch(sql).map_err(|e| self.explain(&e))
    }

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
            let after = after.map(|key| sql_key(key, source)).transpose()?;
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

    /// Whether the file turned out to be damaged since it was opened: opened again, it is put aside.
    #[must_use]
    pub fn is_damaged(&self) -> bool {
        self.damaged.get()
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

    fn explain(&self, error: &rusqlite::Error) -> SinkError {
        let error = explain(&self.path, error);
        if error.kind == SinkTrouble::Damaged {
            self.damaged.set(true);
        }
        error
    }
}

impl Sink for SqliteSink {
    fn deliver(&mut self, batch: &Batch<'_>) -> Result<(), SinkError> {
        let written = write_batch(&mut self.db, batch);
        written.map_err(|error| self.explain(&error))
    }
}

/// Columns that every table has.
const BUILT_IN: [&str; 7] = [
    "key",
    "body",
    "updated",
    "fetched",
    "digest",
    "generation",
    "deleted",
];

fn columns(source: &Source) -> Vec<String> {
    let mark = (source.deletes == Deletes::Mark).then(|| "deleted".to_owned());
    source
        .columns
        .iter()
        .map(|(name, _)| name.clone())
        .chain(mark)
        .collect()
}

fn contains(names: &[String], name: &str) -> bool {
    names.iter().any(|known| known.eq_ignore_ascii_case(name))
}

/// What every file has beside the tables of the sources.
const CREATE: &str = "CREATE TABLE _gleaner (id TEXT NOT NULL, layout INTEGER NOT NULL, generation INTEGER NOT NULL);
             INSERT INTO _gleaner VALUES (lower(hex(randomblob(16))), 1, 0);
             CREATE TABLE _removed (source TEXT NOT NULL, key TEXT NOT NULL, generation INTEGER NOT NULL);
             CREATE TABLE _written (source TEXT PRIMARY KEY NOT NULL, config BLOB NOT NULL, whole INTEGER NOT NULL);
             CREATE TABLE _bad (source TEXT NOT NULL, page TEXT NOT NULL, number INTEGER NOT NULL, key TEXT,
               reason TEXT NOT NULL, raw TEXT NOT NULL);
             CREATE TABLE _source_state (name TEXT PRIMARY KEY NOT NULL, last_check TEXT, last_complete TEXT,
               stale_at TEXT, outcome TEXT NOT NULL, reason TEXT NOT NULL, records INTEGER NOT NULL);
             CREATE VIEW _sources AS SELECT name, last_check, last_complete, stale_at,
               (stale_at IS NULL OR strftime('%Y-%m-%dT%H:%M:%SZ', 'now') >= stale_at) AS stale,
               outcome, reason, records FROM _source_state;";

fn layout(db: &mut Connection) -> rusqlite::Result<String> {
    // Reading first: a file that is as it should be opens beside another program's write lock.
    if !has_layout(db)? {
        let tx = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
        if !has_layout(&tx)? {
            tx.execute_batch(CREATE)?;
        }
        tx.commit()?;
    }
    db.query_row("SELECT id FROM _gleaner", [], |row| row.get(0))
}

fn has_layout(db: &Connection) -> rusqlite::Result<bool> {
    db.query_row(
        "SELECT 1 FROM sqlite_master WHERE name = '_gleaner'",
        [],
        |_| Ok(()),
    )
    .optional()
    .map(|found| found.is_some())
}

fn write_batch(db: &mut Connection, batch: &Batch<'_>) -> rusqlite::Result<()> {
    let source = batch.source;
    let generation = sql_generation(batch.generation);
    let tx = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    tx.execute("DELETE FROM _removed WHERE generation <> ?1", [generation])?;
    {
        let mut upsert = tx.prepare(&upsert_sql(source))?;
        let mut delete = tx.prepare(&match source.deletes {
            Deletes::Remove => format!(
                "DELETE FROM {} WHERE key = ?1 AND ?2 IS NOT NULL",
                quoted(&source.name)
            ),
            Deletes::Mark => format!(
                "UPDATE {} SET deleted = 1, generation = ?2 WHERE key = ?1",
                quoted(&source.name)
            ),
        })?;
        let mut removed = tx.prepare("INSERT INTO _removed VALUES (?1, ?2, ?3)")?;
        let fetched = rfc3339(batch.fetched);
        for change in batch.changes {
            match change {
                Change::Upsert {
                    key,
                    body,
                    digest,
                    updated,
                } => {
                    let updated = updated.map(rfc3339);
                    let fixed: [&dyn rusqlite::ToSql; 6] = [
                        &sql_key(key, source)?,
                        body,
                        &updated,
                        &fetched,
                        &&digest.0[..],
                        &generation,
                    ];
                    let values = column_values(source, body);
                    let all = fixed
                        .into_iter()
                        .chain(values.iter().map(|value| value as &dyn rusqlite::ToSql));
                    upsert.execute(rusqlite::params_from_iter(all))?;
                }
                Change::Delete { key, .. } => {
                    delete.execute(params![sql_key(key, source)?, generation])?;
                    removed.execute(params![source.name, key.as_str(), generation])?;
                }
            }
        }
    }
    tx.execute("UPDATE _gleaner SET generation = ?1", [generation])?;
    tx.commit()
}

fn column_values(source: &Source, body: &str) -> Vec<Value> {
    let json = Json::parse(body.as_bytes()).ok();
    source
        .columns
        .iter()
        .map(|(_, at)| sql_value(json.and_then(|json| at.find(json))))
        .collect()
}

fn upsert_sql(source: &Source) -> String {
    let mut names = vec![
        "key".to_owned(),
        "body".into(),
        "updated".into(),
        "fetched".into(),
        "digest".into(),
        "generation".into(),
    ];
    names.extend(source.columns.iter().map(|(name, _)| quoted(name)));
    let mut values: Vec<String> = (1..=names.len()).map(|n| format!("?{n}")).collect();
    if source.deletes == Deletes::Mark {
        names.push("deleted".into());
        values.push("0".into());
    }
    let sets: Vec<String> = names
        .iter()
        .skip(1)
        .map(|name| format!("{name} = excluded.{name}"))
        .collect();
    format!(
        "INSERT INTO {} ({}) VALUES ({}) ON CONFLICT (key) DO UPDATE SET {}",
        quoted(&source.name),
        names.join(", "),
        values.join(", "),
        sets.join(", ")
    )
}

/// An identifier as SQL reads it literally.
fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A text as SQL reads it literally.
fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

fn sql_generation(generation: u64) -> i64 {
    i64::try_from(generation).unwrap_or(i64::MAX)
}

/// RFC 3339 in UTC with milliseconds where there are any.
#[must_use]
pub fn rfc3339(instant: Timestamp) -> String {
    let whole = instant.subsec_nanosecond() == 0;
    if whole {
        format!("{instant:.0}")
    } else {
        format!("{instant:.3}")
    }
}

/// A key as its column holds it: text as text, a whole number as integer (as a blob of digits where SQLite's 64 bits
/// are too few, so that it stays apart from the text of the same digits), a composite key as its JSON array.
fn sql_key<'a>(key: &'a RecordKey, source: &Source) -> rusqlite::Result<ToSqlOutput<'a>> {
    let text = key.as_str();
    if source.key.len() > 1 {
        return Ok(ToSqlOutput::Borrowed(ValueRef::Text(text.as_bytes())));
    }
    if text.starts_with('"') {
        let inner: String = serde_json::from_str(text)
            .map_err(|e| rusqlite::Error::ToSqlConversionFailure(Box::new(e)))?;
        return Ok(ToSqlOutput::Owned(Value::Text(inner)));
    }
    Ok(match text.parse::<i64>() {
        Ok(number) => ToSqlOutput::Owned(Value::Integer(number)),
        Err(_) => ToSqlOutput::Owned(Value::Blob(text.as_bytes().to_vec())),
    })
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

/// A JSON value as a plain column: text, number and null as SQLite has them, `true` as 1, anything else as JSON text.
fn sql_value(json: Option<Json<'_>>) -> Value {
    let Some(json) = json else { return Value::Null };
    let raw = json.as_str();
    match raw.as_bytes().first() {
        Some(b'"') => {
            serde_json::from_str(raw).map_or_else(|_| Value::Text(raw.to_owned()), Value::Text)
        }
        Some(b't') => Value::Integer(1),
        Some(b'f') => Value::Integer(0),
        Some(b'n') | None => Value::Null,
        Some(b'-' | b'0'..=b'9') => raw
            .parse::<i64>()
            .map(Value::Integer)
            .or_else(|_| raw.parse::<f64>().map(Value::Real))
            .unwrap_or_else(|_| Value::Text(raw.to_owned())),
        Some(_) => Value::Text(raw.to_owned()),
    }
}

/// Keeps `-wal` and `-shm` when the last connection closes: without them a reader that may not write the directory
/// could not open the file.
#[expect(
    unsafe_code,
    reason = "rusqlite has no safe call for SQLITE_FCNTL_PERSIST_WAL"
)]
fn keep_wal(db: &Connection) -> rusqlite::Result<()> {
    let mut on: std::os::raw::c_int = 1;
    // SAFETY: the handle is open for as long as `db` is borrowed; the call reads and writes one int through the pointer,
    // which outlives it; "main" is a C string.
    let code = unsafe {
        rusqlite::ffi::sqlite3_file_control(
            db.handle(),
            c"main".as_ptr(),
            rusqlite::ffi::SQLITE_FCNTL_PERSIST_WAL,
            std::ptr::from_mut(&mut on).cast(),
        )
    };
    if code == rusqlite::ffi::SQLITE_OK {
        Ok(())
    } else {
        Err(rusqlite::Error::SqliteFailure(
            rusqlite::ffi::Error::new(code),
            None,
        ))
    }
}

/// Makes the file readable for the group before SQLite does; its log files take the same mode.
fn create_readable(path: &Path) -> Result<(), SinkError> {
    let made = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o640)
        .open(path);
    made.map(drop).map_err(|error| io_error(path, &error))
}

fn sync_directory(path: &Path) -> Result<(), SinkError> {
    let directory = path.parent().unwrap_or(Path::new("."));
    std::fs::File::open(directory)
        .and_then(|dir| dir.sync_all())
        .map_err(|error| io_error(directory, &error))
}

fn put_aside(path: &Path, now: Timestamp) -> Result<PathBuf, SinkError> {
    let day = now.strftime("%Y-%m-%d").to_string();
    let named = |n: u32| {
        let suffix = if n == 0 {
            String::new()
        } else {
            format!("-{n}")
        };
        PathBuf::from(format!("{}.damaged-{day}{suffix}", path.display()))
    };
    let aside = (0..1000)
        .map(named)
        .find(|candidate| !candidate.exists())
        .unwrap_or_else(|| named(1000));
    std::fs::rename(path, &aside).map_err(|error| io_error(path, &error))?;
    for log in ["-wal", "-shm"] {
        let from = PathBuf::from(format!("{}{log}", path.display()));
        if from.exists() {
            let to = PathBuf::from(format!("{}{log}", aside.display()));
            std::fs::rename(&from, &to).map_err(|error| io_error(&from, &error))?;
        }
    }
    sync_directory(path)?;
    Ok(aside)
}

fn io_error(path: &Path, error: &std::io::Error) -> SinkError {
    let kind = match error.kind() {
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => SinkTrouble::Full,
        std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::ReadOnlyFilesystem => {
            SinkTrouble::ReadOnly
        }
        _ => SinkTrouble::Other,
    };
    SinkError {
        kind,
        message: format!("{}: {error}", path.display()),
    }
}

fn explain(path: &Path, error: &rusqlite::Error) -> SinkError {
    let (kind, hint) = match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => (SinkTrouble::Full, "; make room, nothing was lost"),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => (
            SinkTrouble::Busy,
            "; another program holds a write lock: this file is for reading",
        ),
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => (SinkTrouble::Damaged, ""),
        Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => (
            SinkTrouble::ReadOnly,
            "; is the directory writable for this user?",
        ),
        _ => (SinkTrouble::Other, ""),
    };
    SinkError {
        kind,
        message: format!("{}: {error}{hint}", path.display()),
    }
}
