//! What the agent tells of one record, and of what it keeps of a source. Instants are RFC 3339 in UTC.

use serde::{Deserialize, Serialize};

use super::Course;

/// What is known of a record: the object of `explain --json`. Fields that are not known are `null`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explained {
    /// Whose record.
    pub source: String,
    /// The key as it was asked for.
    pub asked: String,
    /// How the source is pulled.
    pub pull: String,
    /// How the source's last pass ended.
    pub outcome: String,
    /// When upstream was last seen to the end.
    pub last_check: Option<String>,
    /// Each key that may be meant: what is written as JSON first, then as plain text.
    pub records: Vec<RecordShown>,
    /// What may keep a record away, or makes this answer unsure.
    pub notes: Vec<String>,
}

/// What is known under one key.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordShown {
    /// The key as JSON: text in quotes is text, a number is a number, and these are two keys.
    pub key: String,
    /// `present`, `removed`, `stray`, `bad`, `gone` or `never-seen`.
    pub state: String,
    /// What that means, in words.
    pub why: String,
    /// When it was first seen.
    pub first_seen: Option<String>,
    /// When the version that is here was fetched and delivered: it last changed then.
    pub changed: Option<String>,
    /// Its own update time, if the config says where that is.
    pub updated: Option<String>,
    /// The pass that met it last.
    pub met: Option<Met>,
    /// The page that had it.
    pub page: Option<OnPage>,
    /// What it is compared by, in hexadecimal.
    pub digest: Option<String>,
    /// The digest is not known for sure: the next pass that meets it delivers it again.
    pub in_doubt: bool,
    /// The number that marks it in a listing.
    pub ordinal: Option<u32>,
    /// The table in `data.db`, if it has a row there.
    pub table: Option<String>,
    /// The batch that wrote the row.
    pub generation: Option<u64>,
    /// Bytes of its body.
    pub bytes: Option<u64>,
    /// Its deletions that are remembered, the latest first.
    pub gone: Vec<Departed>,
    /// It is among the bad records of the last complete pass.
    pub bad: Option<BadShown>,
}

/// A pass that met a record.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Met {
    /// `snapshot`, `full`, `window`, `cursor`, `hook`, or `unknown`.
    pub pass: String,
    /// When that was: the latest such instant that is sure.
    pub at: String,
}

/// A page that had a record.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OnPage {
    /// Its URL, without query values.
    pub url: String,
    /// Which page of the listing, from 1.
    pub number: u64,
    /// When it was last read in full; since then upstream has said that it is the same.
    pub read: Option<String>,
}

/// A deletion.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Departed {
    /// When.
    pub at: Option<String>,
    /// `tombstone`: the record said so; `missing`: a complete listing did not have it.
    pub why: String,
}

/// A record that was skipped as bad.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BadShown {
    /// The page's URL, without query values.
    pub page: String,
    /// Which record of the page, from 1.
    pub number: u64,
    /// What is wrong with it.
    pub reason: String,
}

/// What is kept of a source between passes: the object of `state show --json`. Fields that are not known are `null`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateShown {
    /// Which source.
    pub source: String,
    /// How it is pulled.
    pub pull: String,
    /// How the last pass ended.
    pub outcome: String,
    /// When upstream was last seen to the end.
    pub last_check: Option<String>,
    /// Records known.
    pub records: u64,
    /// Of them, those whose digest is in doubt: the next pass that meets them delivers them again.
    pub in_doubt: u64,
    /// Numbers given to records so far.
    pub ordinals: u64,
    /// The store's generation, and that of `data.db`: they differ between a cut and the next start only.
    pub generation: u64,
    /// That of `data.db`.
    pub data_generation: u64,
    /// Fingerprint of the config that gives meaning to what is kept, in hexadecimal.
    pub config: String,
    /// It is that of the config in effect; if not, the next pass reads everything again.
    pub config_current: bool,
    /// How far incremental passes have come, and what full ones found; absent for snapshots.
    pub course: Option<Course>,
    /// Why the next pass has to be a full one, if it has to.
    pub owed: Option<String>,
    /// How late records became visible: counts by the power of two of seconds that they were below.
    pub lateness: Vec<Late>,
    /// An interrupted pass, and where it stands.
    pub interrupted: Option<Interrupted>,
    /// Pages that are remembered.
    pub pages: Pages,
    /// How many seconds the last full pass took, if that is known.
    pub full_took: Option<u64>,
    /// Deletions that are remembered.
    pub gone: u64,
    /// Since when.
    pub gone_since: Option<String>,
}

/// A bar of the lateness histogram.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Late {
    /// Less than so many seconds late; 0: not late at all.
    pub below: u64,
    /// How many records.
    pub records: u64,
}

/// A pass that was interrupted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interrupted {
    /// `snapshot`, `full`, `window` or `cursor`.
    pub pass: String,
    /// When it started.
    pub started: Option<String>,
    /// Pages that are done.
    pub pages: u32,
    /// Records that it has met.
    pub records: u64,
    /// The page that comes next, without query values.
    pub next: String,
}

/// The pages that are remembered instead of their bodies.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pages {
    /// How many.
    pub count: u64,
    /// Of them, those with validators: they are asked for conditionally.
    pub with_validators: u64,
    /// Records on them.
    pub records: u64,
    /// Bytes that they take in the store.
    pub bytes: u64,
    /// Bytes that fetching them took: what asking for all of them in full costs.
    pub wire: u64,
}
