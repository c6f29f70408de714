//! `data.db`: the table that the gateway's own programs read. The only room that names rusqlite.
//!
//! One table a source: `key`, `body` (the JSON text as it came), the configured columns, `updated`, `fetched`, `digest`,
//! `generation`, the number of the commit that wrote the row, and `_first_seen`. `_sources` tells readers how far they can
//! trust it, `_gone` which records were deleted and why, `_batch` what the followers of a source are told last.
//! Write-ahead log, kept on disk so that readers without write permission can open the file at any time.

mod file;
mod history;
mod notes;
mod rows;
mod told;
mod value;

use std::cell::Cell;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, ErrorCode, OptionalExtension as _, TransactionBehavior, params};

use self::file::{create_readable, explain, keep_wal, put_aside, sync_directory};
use self::history::FIRST_SEEN;
pub use self::history::{Departure, Facts, GONE_KEPT};
pub use self::notes::{Noted, SourceState, Written};
pub use self::rows::Row;
pub use self::told::Held;
pub use self::value::rfc3339;
use self::value::{column_values, literal, quoted, sql_generation, sql_key};
use super::{Batch, Sink, SinkError, SinkTrouble};
use crate::clock::Timestamp;
use crate::config::{Deletes, Source};
use crate::record::Change;

/// The layout of this version; a file with a higher one is refused.
const LAYOUT: i64 = 1;

/// The SQLite sink.
#[derive(Debug)]
pub struct SqliteSink {
    db: Connection,
    path: PathBuf,
    id: String,
    damaged: Cell<bool>,
    /// Device and inode of the file as it was opened.
    file: Option<(u64, u64)>,
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
            file: identity(path),
        })
    }

    /// The random id that the file got when it was made: another id is another file.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The directory that the file is in: what else is delivered lies beside it.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new("."))
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
        if !known.is_empty() && !contains(&known, "generation") {
            return Err(SinkError {
                kind: SinkTrouble::Other,
                message: format!(
                    "{}: the table \"{}\" was not made by gleaner; name the source, or the table, otherwise",
                    self.path.display(),
                    source.name
                ),
            });
        }
        if known.is_empty() {
            let list: String = wanted
                .iter()
                .map(|name| format!(", {}", definition(name)))
                .collect();
            return self.execute_batch(&format!(
                "CREATE TABLE {table} (key PRIMARY KEY NOT NULL, body TEXT NOT NULL, updated TEXT, fetched TEXT NOT NULL,
                   digest BLOB NOT NULL, generation INTEGER NOT NULL, {FIRST_SEEN} INTEGER{list});
                 CREATE INDEX {index} ON {table} (generation);",
                table = quoted(&source.name),
                index = quoted(&format!("_{}_generation", source.name)),
            ));
        }
        let table = quoted(&source.name);
        // It says nothing of what a row holds, so it is no change of the config.
        if !contains(&known, FIRST_SEEN) {
            self.execute_batch(&format!(
                "ALTER TABLE {table} ADD COLUMN {FIRST_SEEN} INTEGER"
            ))?;
        }
        let added = wanted.iter().filter(|name| !contains(&known, name));
        let added =
            added.map(|name| format!("ALTER TABLE {table} ADD COLUMN {};", definition(name)));
        let is_dropped =
            |name: &&String| !contains(&wanted, name) && !BUILT_IN.contains(&name.as_str());
        let dropped: Vec<&String> = known.iter().filter(is_dropped).collect();
        // Rows that were marked have to go with the mark, or they would count as living.
        let unmarked = (contains(&known, MARK) && !contains(&wanted, MARK)).then(|| {
            format!(
                "DELETE FROM {table} WHERE {MARK} <> 0; ALTER TABLE {table} DROP COLUMN {MARK};"
            )
        });
        let changes: String = added.chain(unmarked).collect();
        if !changes.is_empty() {
            self.change_columns(source, &changes)?;
        }
        dropped
            .iter()
            .try_for_each(|name| self.drop_column(source, name))
    }

    /// Changes what rows hold beside their bodies. That is nobody's config any more, also if this one is taken back.
    fn change_columns(&self, source: &Source, changes: &str) -> Result<(), SinkError> {
        let forget = format!(
            "DELETE FROM _written WHERE source = {};",
            literal(&source.name)
        );
        self.execute_batch(&format!("BEGIN IMMEDIATE; {forget} {changes} COMMIT;"))
            .inspect_err(|_| self.roll_back())
    }

    /// Takes a column away. One that an index or a view of a reader's uses stays, empty: its name is no longer ours to fill.
    fn drop_column(&self, source: &Source, name: &str) -> Result<(), SinkError> {
        let (table, column) = (quoted(&source.name), quoted(name));
        let Err(error) = self
            .db
            .execute_batch(&format!("ALTER TABLE {table} DROP COLUMN {column}"))
        else {
            return Ok(());
        };
        if error.sqlite_error_code() != Some(ErrorCode::Unknown) {
            return Err(self.explain(&error));
        }
        let filled = format!("SELECT 1 FROM {table} WHERE {column} IS NOT NULL LIMIT 1");
        let filled = self
            .db
            .query_row(&filled, [], |_| Ok(()))
            .optional()
            .map_err(|e| self.explain(&e))?;
        if filled.is_some() {
            log::warn!(
                "data.db: column {name} of {table} is no longer in the config; it stays, empty, since something uses it ({error})"
            );
            self.change_columns(source, &format!("UPDATE {table} SET {column} = NULL;"))?;
        }
        Ok(())
    }

    fn roll_back(&self) {
        if !self.db.is_autocommit() {
            if let Err(error) = self.execute_batch("ROLLBACK") {
                log::error!("{error}");
            }
        }
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

    /// Whether what is at its path is no longer the file that is open: somebody took it away, or put another one there.
    /// Readers would not see what is written.
    #[must_use]
    pub fn is_replaced(&self) -> bool {
        identity(&self.path) != self.file
    }

    /// Whether the file turned out to be damaged since it was opened: opened again, it is put aside.
    #[must_use]
    pub fn is_damaged(&self) -> bool {
        self.damaged.get()
    }

    /// Checks the tables that are ours and small: what is noted of sources, deletions and the file itself. The tables of sources
    /// are read row by row instead, in slices.
    ///
    /// # Errors
    /// When the file cannot be read, or is damaged.
    pub fn check_notes(&self) -> Result<(), SinkError> {
        let tables = "SELECT name FROM sqlite_master WHERE type = 'table' AND name GLOB '[_]*'";
        let read = || -> rusqlite::Result<Vec<String>> {
            let mut found = Vec::new();
            let mut tables = self.db.prepare(tables)?;
            let names = tables.query_map([], |row| row.get::<_, String>(0))?;
            for name in names {
                let check = format!("PRAGMA quick_check({})", quoted(&name?));
                let said: String = self.db.query_row(&check, [], |row| row.get(0))?;
                if said != "ok" {
                    found.push(said);
                }
            }
            Ok(found)
        };
        match read().map_err(|error| self.explain(&error))?.first() {
            None => Ok(()),
            Some(said) => Err(self.is_not_as_written(said)),
        }
    }

    /// The error of something in the file that was never written there: the file is damaged from now on.
    #[must_use]
    pub fn is_not_as_written(&self, what: &str) -> SinkError {
        self.damaged.set(true);
        SinkError {
            kind: SinkTrouble::Damaged,
            message: format!("{}: {what}", self.path.display()),
        }
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

fn identity(path: &Path) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt as _;
    let meta = std::fs::metadata(path).ok()?;
    Some((meta.dev(), meta.ino()))
}

/// Columns that every table has.
const BUILT_IN: [&str; 8] = [
    "key",
    "body",
    "updated",
    "fetched",
    "digest",
    "generation",
    "deleted",
    FIRST_SEEN,
];

/// The column that marks a deleted record's row.
const MARK: &str = "deleted";

/// A column as it is made. Rows that are there when the mark comes are not deleted.
fn definition(name: &str) -> String {
    if name == MARK {
        format!("{MARK} INTEGER NOT NULL DEFAULT 0")
    } else {
        quoted(name)
    }
}

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
    if !has_layout(db)? || !history::is_there(db)? || !told::is_there(db)? {
        let tx = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
        if !has_layout(&tx)? {
            tx.execute_batch(CREATE)?;
        }
        history::ensure(&tx)?;
        told::ensure(&tx)?;
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
    let fetched = rfc3339(batch.fetched);
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
        for change in batch.changes {
            match change {
                Change::Upsert {
                    key,
                    body,
                    digest,
                    updated,
                } => {
                    let updated = updated.map(rfc3339);
                    let fixed: [&dyn rusqlite::ToSql; 7] = [
                        &sql_key(key)?,
                        body,
                        &updated,
                        &fetched,
                        &&digest.0[..],
                        &generation,
                        &batch.fetched.as_second(),
                    ];
                    let values = column_values(source, body);
                    let all = fixed
                        .into_iter()
                        .chain(values.iter().map(|value| value as &dyn rusqlite::ToSql));
                    upsert.execute(rusqlite::params_from_iter(all))?;
                }
                Change::Delete { key, .. } => {
                    delete.execute(params![sql_key(key)?, generation])?;
                    removed.execute(params![source.name, key.as_str(), generation])?;
                }
            }
        }
    }
    let gone = batch.changes.iter().filter_map(|change| match change {
        Change::Delete { key, why } => Some((key, *why)),
        Change::Upsert { .. } => None,
    });
    history::remember(&tx, source, gone, &fetched)?;
    told::note(&tx, batch)?;
    tx.execute("UPDATE _gleaner SET generation = ?1", [generation])?;
    tx.commit()
}

fn upsert_sql(source: &Source) -> String {
    let mut names = vec![
        "key".to_owned(),
        "body".into(),
        "updated".into(),
        "fetched".into(),
        "digest".into(),
        "generation".into(),
        FIRST_SEEN.into(),
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
        .filter(|name| *name != FIRST_SEEN)
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
