//! What is known of a record's past: since when it is here, and when and why it went.
//!
//! Since when costs a row five bytes: `_first_seen`, in seconds since 1970. Whoever reads the file with an earlier version
//! writes rows without it, and takes the column away with the first source that it prepares; neither is a loss that would
//! make the file unreadable, so the layout's number stays.

use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension as _, Transaction, params};

use super::SqliteSink;
use super::value::{quoted, sql_key};
use crate::clock::Timestamp;
use crate::config::{Deletes, Source};
use crate::record::{Gone, RecordKey};
use crate::sink::SinkError;

/// Deletions that are remembered of a source.
pub const GONE_KEPT: usize = 5000;

/// The column of the first instant. A column of the config starts with a letter, so none is called like it.
pub(super) const FIRST_SEEN: &str = "_first_seen";

/// Deletions: whose, which, when, and how that was known.
const CREATE: &str = "CREATE TABLE _gone (source TEXT NOT NULL, key TEXT NOT NULL, at TEXT NOT NULL, why TEXT NOT NULL);
             CREATE INDEX _gone_source ON _gone (source);";

/// What a row says of its record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// When the record was first seen; `None` in rows of versions that did not note it.
    pub first_seen: Option<Timestamp>,
    /// When this version of it was fetched.
    pub fetched: Option<Timestamp>,
    /// Its own update time, if the config says where it is.
    pub updated: Option<Timestamp>,
    /// The commit that wrote the row.
    pub generation: u64,
    /// Bytes of its body.
    pub bytes: u64,
    /// It is gone, and its row is kept with a mark.
    pub marked: bool,
}

/// A deletion that was delivered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Departure {
    /// When.
    pub at: Option<Timestamp>,
    /// How it was known: [`Gone::word`].
    pub why: String,
}

/// Makes the table of deletions where an earlier version made the file.
pub(super) fn ensure(db: &Connection) -> rusqlite::Result<()> {
    if !is_there(db)? {
        db.execute_batch(CREATE)?;
    }
    Ok(())
}

pub(super) fn is_there(db: &Connection) -> rusqlite::Result<bool> {
    let query = "SELECT 1 FROM sqlite_master WHERE name = '_gone'";
    let found = db.query_row(query, [], |_| Ok(())).optional()?;
    Ok(found.is_some())
}

/// Remembers deletions, the latest [`GONE_KEPT`] of a source, in the transaction that delivers them.
pub(super) fn remember<'a>(
    tx: &Transaction<'_>,
    source: &Source,
    gone: impl Iterator<Item = (&'a RecordKey, Gone)>,
    at: &str,
) -> rusqlite::Result<()> {
    let mut insert =
        tx.prepare("INSERT INTO _gone (source, key, at, why) VALUES (?1, ?2, ?3, ?4)")?;
    let mut any = false;
    for (key, why) in gone {
        insert.execute(params![source.name, key.as_str(), at, why.word()])?;
        any = true;
    }
    if any {
        tx.execute(
            "DELETE FROM _gone WHERE rowid IN
               (SELECT rowid FROM _gone WHERE source = ?1 ORDER BY rowid DESC LIMIT -1 OFFSET ?2)",
            params![source.name, i64::try_from(GONE_KEPT).unwrap_or(i64::MAX)],
        )?;
    }
    Ok(())
}

impl SqliteSink {
    /// What the row of a record says; `None` if there is none.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn facts(&self, source: &Source, key: &RecordKey) -> Result<Option<Facts>, SinkError> {
        let mark = if source.deletes == Deletes::Mark {
            "deleted"
        } else {
            "0"
        };
        let read = || {
            let query = format!(
                "SELECT {FIRST_SEEN}, fetched, updated, generation, length(CAST(body AS BLOB)), {mark} FROM {} WHERE key = ?1",
                quoted(&source.name)
            );
            let key = sql_key(key)?;
            self.db
                .query_row(&query, params![key], |row| {
                    let instant = |text: Option<String>| text.and_then(|text| text.parse().ok());
                    let number = |at| -> rusqlite::Result<u64> {
                        Ok(u64::try_from(row.get::<_, i64>(at)?).unwrap_or(0))
                    };
                    Ok(Facts {
                        first_seen: match row.get_ref(0)? {
                            ValueRef::Integer(seconds) => Timestamp::from_second(seconds).ok(),
                            _ => None,
                        },
                        fetched: instant(row.get(1)?),
                        updated: instant(row.get(2)?),
                        generation: number(3)?,
                        bytes: number(4)?,
                        marked: number(5)? != 0,
                    })
                })
                .optional()
        };
        read().map_err(|e: rusqlite::Error| self.explain(&e))
    }

    /// The deletions of a record that are remembered, the latest first.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn departures(
        &self,
        source: &Source,
        key: &RecordKey,
    ) -> Result<Vec<Departure>, SinkError> {
        let read = || {
            let mut query = self.db.prepare(
                "SELECT at, why FROM _gone WHERE source = ?1 AND key = ?2 ORDER BY rowid DESC",
            )?;
            let rows = query.query_map(params![source.name, key.as_str()], |row| {
                Ok(Departure {
                    at: row.get::<_, String>(0)?.parse().ok(),
                    why: row.get(1)?,
                })
            })?;
            rows.collect::<rusqlite::Result<Vec<Departure>>>()
        };
        read().map_err(|e| self.explain(&e))
    }

    /// How many deletions of a source are remembered, and since when.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn remembered(&self, source: &Source) -> Result<(u64, Option<Timestamp>), SinkError> {
        self.db
            .query_row(
                "SELECT count(*), (SELECT at FROM _gone WHERE source = ?1 ORDER BY rowid LIMIT 1)
                 FROM _gone WHERE source = ?1",
                params![source.name],
                |row| {
                    let count = u64::try_from(row.get::<_, i64>(0)?).unwrap_or(0);
                    let oldest: Option<String> = row.get(1)?;
                    Ok((count, oldest.and_then(|at| at.parse().ok())))
                },
            )
            .map_err(|e| self.explain(&e))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;
    use crate::record::{Change, Digest};
    use crate::sink::{Batch, Sink as _};

    fn key(number: usize) -> RecordKey {
        RecordKey::from_canonical(&number.to_string()).unwrap()
    }

    #[test]
    fn deletions_are_remembered_up_to_a_bound_for_each_source() {
        let dir = tempfile::tempdir().unwrap();
        let now = "2026-11-30T00:00:00Z".parse().unwrap();
        let text = "[source.a]\nurl = \"https://a.example/\"\nkey = \"/id\"\n[source.b]\nurl = \"https://a.example/b\"\nkey = \"/id\"\n";
        let config = config::parse(text, &dir.path().join("gleaner.toml"), &|_| None).unwrap();
        let (mut sink, _) = SqliteSink::open(&dir.path().join("data.db"), now).unwrap();
        let (one, other) = (&config.sources["a"], &config.sources["b"]);
        sink.prepare(one).unwrap();
        sink.prepare(other).unwrap();
        let mut generation = 0;
        let mut deliver = |sink: &mut SqliteSink, source, changes: &[Change]| {
            generation += 1;
            let batch = Batch {
                source,
                generation,
                fetched: now,
                changes,
                told: None,
            };
            sink.deliver(&batch).unwrap();
        };
        let gone = |number| Change::Delete {
            key: key(number),
            why: Gone::Missing,
        };
        deliver(&mut sink, other, &[gone(1)]);
        let all: Vec<Change> = (0..GONE_KEPT + 10).map(gone).collect();
        for chunk in all.chunks(250) {
            deliver(&mut sink, one, chunk);
        }
        assert_eq!(sink.remembered(one).unwrap(), (GONE_KEPT as u64, Some(now)));
        assert_eq!(sink.remembered(other).unwrap(), (1, Some(now)));
        for (number, remembered) in [(9, 0), (10, 1), (GONE_KEPT + 9, 1)] {
            let found = sink.departures(one, &key(number)).unwrap();
            assert_eq!(found.len(), remembered, "{number}");
        }
        // A key that goes twice is remembered twice, the later one first.
        deliver(
            &mut sink,
            other,
            &[Change::Delete {
                key: key(1),
                why: Gone::Tombstone,
            }],
        );
        let words: Vec<String> = sink
            .departures(other, &key(1))
            .unwrap()
            .into_iter()
            .map(|gone| gone.why)
            .collect();
        assert_eq!(words, ["tombstone", "missing"]);
        // Nothing is written for a batch that deletes nothing.
        let upsert = Change::Upsert {
            key: key(1),
            body: "{}".into(),
            digest: Digest([1; 16]),
            updated: None,
        };
        deliver(&mut sink, other, &[upsert]);
        let facts = sink.facts(other, &key(1)).unwrap().unwrap();
        assert_eq!(
            (facts.first_seen, facts.bytes, facts.marked),
            (Some(now), 2, false)
        );
        assert_eq!(sink.remembered(other).unwrap().0, 2);
    }
}
