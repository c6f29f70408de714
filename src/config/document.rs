//! Documents as the config states them.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use url::Url;

use super::followers::Program;

/// `[document.NAME]`: one HTTP representation that is kept as a file, byte for byte.
#[derive(Debug, Clone, PartialEq)]
pub struct Document {
    /// Its name; no source has the same.
    pub name: String,
    /// Key into [`super::Config::upstreams`].
    pub upstream: String,
    /// Where it is, absolute; query included.
    pub url: Url,
    /// The file that it is kept as, below `documents/` of the state directory. Names only: no `..`, not absolute.
    pub file: PathBuf,
    /// How often. Default 15 min.
    pub every: Duration,
    /// Up to this much is added to each due time. Default: a tenth of `every`.
    pub jitter: Duration,
    /// From when on the file counts as stale. Default: 3 × `every`.
    pub stale_after: Duration,
    /// The SHA-256 that it must have, or where that is written.
    pub proof: Proof,
    /// The largest file in bytes. Default: the upstream's `limits.body`.
    pub max_size: u64,
    /// An empty answer is an empty file rather than an error. Default false.
    pub allow_empty: bool,
    /// Media types that it may have, in lower case: `type/subtype` or `type/*`. None: any but HTML, unless the file is named so.
    pub content_type: Vec<String>,
    /// A program that is told of each new version.
    pub on_change: Option<Program>,
    /// Keep validators and parts although the answer says `no-store`. Default false.
    pub ignore_no_store: bool,
    /// How long an answer's freshness may put off a poll. Default 24 h.
    pub max_skip: Duration,
    /// After this long of 304s it is fetched in full. Default 30 d.
    pub recheck: Duration,
}

/// What a document is checked against beside its length.
#[derive(Debug, Clone, PartialEq)]
pub enum Proof {
    /// Nothing but what its answer states.
    None,
    /// This SHA-256.
    Sha256([u8; 32]),
    /// The SHA-256 that is written there, as `sha256sum` writes it.
    Sha256Url(Url),
}

/// 64 hexadecimal digits.
pub(super) struct Hex<'a>(pub(super) &'a [u8; 32]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Reads 64 hexadecimal digits in any letter case; `None`: they are not that.
#[must_use]
pub fn parse_sha256(text: &str) -> Option<[u8; 32]> {
    let mut digest = [0; 32];
    if text.len() != 2 * digest.len() {
        return None;
    }
    for (byte, pair) in digest.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        let nibble = |letter: u8| char::from(letter).to_digit(16);
        *byte = u8::try_from(nibble(pair[0])? << 4 | nibble(pair[1])?).ok()?;
    }
    Some(digest)
}
