//! One record as the config reads it: whose it is, whether it is gone, whether it may replace another. Pure.

use std::fmt;

use super::digest::Canon;
use super::key::key_of;
use crate::clock::Timestamp;
use crate::config::{Deleted, Ignore, Pull, Source};
use crate::json::{Json, Kind, number, time};
use crate::record::{Digest, RecordKey};

/// Reads the records of one source.
#[derive(Debug)]
pub struct RecordReader<'a> {
    source: &'a Source,
    canon: Canon,
}

/// A record, read.
#[derive(Debug)]
pub struct Reading<'a> {
    /// Whose it is.
    pub key: RecordKey,
    /// The text as it came.
    pub json: Json<'a>,
    /// It says itself that it is gone.
    pub deleted: bool,
    /// Its own update time, if it states one.
    pub updated: Option<Timestamp>,
}

/// Why a record is not as the config says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadRecord {
    /// Its key, if that much could be read.
    pub key: Option<RecordKey>,
    /// What is wrong, with the pointer.
    pub reason: String,
}

impl fmt::Display for BadRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.key {
            Some(key) => write!(f, "(key {key}) {}", self.reason),
            None => f.write_str(&self.reason),
        }
    }
}

impl<'a> RecordReader<'a> {
    /// For the records of `source`.
    #[must_use]
    pub fn new(source: &'a Source) -> Self {
        let mut ignore = source.ignore.clone();
        if let (Pull::Window(_), Some(updated)) = (&source.pull, &source.updated) {
            // Upstreams touch it in bulk.
            ignore.push(Ignore::At(updated.field.clone()));
        }
        Self {
            source,
            canon: Canon::new(&ignore),
        }
    }

    /// Reads one.
    ///
    /// # Errors
    /// [`BadRecord`] when it is no JSON, has no key, or breaks the contract.
    pub fn read<'r>(&self, raw: &'r [u8]) -> Result<Reading<'r>, BadRecord> {
        let json = Json::parse(raw).map_err(|bad| BadRecord {
            key: None,
            reason: bad.to_string(),
        })?;
        let key = key_of(json, &self.source.key).map_err(|bad| BadRecord {
            key: None,
            reason: bad.to_string(),
        })?;
        let bad = |reason: String| BadRecord {
            key: Some(key.clone()),
            reason,
        };
        let updated = match &self.source.updated {
            Some(updated) => match updated
                .field
                .find(json)
                .filter(|value| value.kind() != Kind::Null)
            {
                Some(value) => Some(
                    time::parse(value, &updated.format)
                        .map_err(|error| bad(format!("{}: {error}", updated.field)))?,
                ),
                None => None,
            },
            None => None,
        };
        let deleted = self
            .source
            .deleted
            .as_ref()
            .is_some_and(|deleted| says_deleted(deleted, json));
        if !deleted {
            // A tombstone often has nothing but its key: the contract is for what replaces data.
            for (pointer, rule) in &self.source.require {
                rule.check(pointer.find(json))
                    .map_err(|breach| bad(format!("{pointer}: {breach}")))?;
            }
            if let Some(schema) = &self.source.schema {
                schema.check(json).map_err(&bad)?;
            }
        }
        Ok(Reading {
            key,
            json,
            deleted,
            updated,
        })
    }

    /// The digest of what `reading` says.
    pub fn digest(&mut self, reading: &Reading<'_>) -> Digest {
        self.canon.digest(reading.json)
    }
}

/// Whether a record says that it is deleted.
fn says_deleted(deleted: &Deleted, json: Json<'_>) -> bool {
    let Some(value) = deleted.pointer.find(json) else {
        return false;
    };
    match &deleted.equals {
        Some(expected) => serde_json::from_str::<serde_json::Value>(value.as_str())
            .is_ok_and(|value| value == *expected),
        None => {
            !matches!(value.as_str(), "null" | "false" | "\"\"" | "\"false\"") && !is_zero(value)
        }
    }
}

fn is_zero(value: Json<'_>) -> bool {
    value.kind() == Kind::Number
        && number::Decimal::parse(value.as_str()).is_some_and(|number| number.is_zero())
}
