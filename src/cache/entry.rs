//! What is kept of a URL's answers: one small file.
//!
//! The file is JSON with a version. One that cannot be read, of whatever reason, holds nothing.

use serde::{Deserialize, Serialize};

use super::freshness::Times;
use crate::clock::Timestamp;
use crate::upstream::conditional::Variant;
use crate::upstream::headers::Headers;

/// The version of the file.
const VERSION: u8 = 1;
/// Variants of one URL at most; the one that came first goes.
pub const MOST: usize = 8;

/// One kept answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// Which requests it is for.
    pub variant: Variant,
    /// Its status.
    pub status: u16,
    /// Its fields, renewed by every 304 since.
    pub headers: Headers,
    /// When it came, or was last found current.
    pub times: Times,
    /// Its body.
    pub body: Body,
}

/// A kept body, by its content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Body {
    /// SHA-256, in hexadecimal digits.
    pub sha256: String,
    /// Bytes.
    pub length: u64,
}

/// All kept answers of one URL to one method in one view.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Entry {
    /// The answers, oldest first.
    pub kept: Vec<Kept>,
}

#[derive(Serialize, Deserialize)]
struct Written {
    version: u8,
    kept: Vec<WrittenKept>,
}

#[derive(Serialize, Deserialize)]
struct WrittenKept {
    #[serde(default)]
    vary: Variant,
    status: u16,
    headers: Vec<(String, String)>,
    asked_ms: i64,
    answered_ms: i64,
    body: Body,
}

impl Entry {
    /// Puts an answer in the place of the one that the same requests select.
    pub fn put(&mut self, new: Kept) {
        self.kept.retain(|kept| kept.variant != new.variant);
        self.kept.push(new);
        let surplus = self.kept.len().saturating_sub(MOST);
        self.kept.drain(..surplus);
    }

    /// Forgets the answer that the same requests select as `variant`.
    pub fn remove(&mut self, variant: &Variant) {
        self.kept.retain(|kept| kept.variant != *variant);
    }

    /// As the file has it.
    ///
    /// # Errors
    /// None that these types can cause; serde's signature has one.
    pub fn print(&self) -> serde_json::Result<Vec<u8>> {
        serde_json::to_vec(&Written {
            version: VERSION,
            kept: self.kept.iter().map(written).collect(),
        })
    }

    /// Reads a file. `None`: it is torn, damaged, or of another version.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let written: Written = serde_json::from_slice(bytes).ok()?;
        let kept = written.kept.into_iter().map(read).collect::<Option<_>>()?;
        (written.version == VERSION).then_some(Self { kept })
    }
}

fn written(kept: &Kept) -> WrittenKept {
    WrittenKept {
        vary: kept.variant.clone(),
        status: kept.status,
        headers: kept
            .headers
            .iter()
            .map(|(name, value)| (name.to_owned(), latin1(value)))
            .collect(),
        asked_ms: kept.times.asked.as_millisecond(),
        answered_ms: kept.times.answered.as_millisecond(),
        body: kept.body.clone(),
    }
}

fn read(written: WrittenKept) -> Option<Kept> {
    let mut headers = Headers::new();
    for (name, value) in &written.headers {
        let bytes: Option<Vec<u8>> = value
            .chars()
            .map(|c| u8::try_from(u32::from(c)).ok())
            .collect();
        headers.push(name, &bytes?);
    }
    Some(Kept {
        variant: written.vary,
        status: written.status,
        headers,
        times: Times {
            asked: Timestamp::from_millisecond(written.asked_ms).ok()?,
            answered: Timestamp::from_millisecond(written.answered_ms).ok()?,
        },
        body: written.body,
    })
}

/// Any bytes as text, one character each, so that a field value survives whatever it is (RFC 9110 5.5).
fn latin1(bytes: &[u8]) -> String {
    bytes.iter().copied().map(char::from).collect()
}

#[cfg(test)]
mod tests;
