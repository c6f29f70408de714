//! What a record is to every room: its key, its digest, and a change to it.

use std::fmt;

use crate::clock::Timestamp;

/// A record's identity within its source: canonical JSON text of the value (or, for a composite key, of the array of
/// values) that the config's `key` points at. `"7"` and `7` are different keys.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordKey(Box<str>);

impl RecordKey {
    /// The longest key in bytes; a longer one is a bad record.
    pub const MAX_LEN: usize = 512;

    /// Takes canonical JSON text that is no longer than [`RecordKey::MAX_LEN`]; `None` if it is longer.
    #[must_use]
    pub fn from_canonical(text: &str) -> Option<Self> {
        (text.len() <= Self::MAX_LEN).then(|| Self(text.into()))
    }

    /// The canonical JSON text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Its bytes, as they are ordered in the store.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl fmt::Display for RecordKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for RecordKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RecordKey({})", self.0)
    }
}

/// The first 16 bytes of SHA-256 over a record's canonical JSON without its ignored fields.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digest(pub [u8; 16]);

impl Digest {
    /// Equal to no digest: what is stored when it is not known what the sinks hold, so that the next pass delivers.
    pub const UNKNOWN: Self = Self([0; 16]);
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({self})")
    }
}

/// 64 bits over a record's text as it came, keyed by the store's salt. Equal means equal text; it saves canonicalising.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Default)]
pub struct Fingerprint(pub u64);

/// A small number that a source gives to each record it learns of; a bit in the reconcile bitmap. Never reused.
pub type Ordinal = u32;

/// What the store knows of one record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Known {
    /// Digest of what the sinks hold, or [`Digest::UNKNOWN`].
    pub digest: Digest,
    /// Of the text that gave the digest.
    pub fingerprint: Fingerprint,
    /// Its place in the bitmap.
    pub ordinal: Ordinal,
    /// The record's own update time in milliseconds since 1970, if it states one.
    pub updated_ms: Option<i64>,
}

/// One thing that a sink is told.
#[derive(Clone, PartialEq, Debug)]
pub enum Change {
    /// The record is new or differs.
    Upsert {
        /// Its key.
        key: RecordKey,
        /// The JSON text as it came.
        body: Box<str>,
        /// Of the canonical form.
        digest: Digest,
        /// Its own update time, if it states one.
        updated: Option<Timestamp>,
    },
    /// The record is gone upstream.
    Delete {
        /// Its key.
        key: RecordKey,
        /// How that is known.
        why: Gone,
    },
}

impl Change {
    /// The record that this is about.
    #[must_use]
    pub fn key(&self) -> &RecordKey {
        match self {
            Self::Upsert { key, .. } | Self::Delete { key, .. } => key,
        }
    }
}

/// How a deletion is known. There is no guess among them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Gone {
    /// The record said so itself.
    Tombstone,
    /// A complete listing did not have it.
    Missing,
}

impl Gone {
    /// One word, as `data.db` keeps it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Tombstone => "tombstone",
            Self::Missing => "missing",
        }
    }
}
