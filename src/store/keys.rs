//! How keys are laid out: tag, source (big-endian), rest. And how a record's key is put among them.

use std::borrow::Cow;

use sha2::{Digest as _, Sha256};

use super::error::StoreError;
use crate::record::RecordKey;

/// The longest key of an entry that another room may choose, in bytes after tag and source. Index nodes hold 256 keys
/// and have to stay below a quarter of a segment.
pub const MAX_REST: usize = 128;

/// The longest value in bytes, version included.
pub const MAX_VALUE: usize = 3000;

/// Version of the whole layout; a store with a higher one is refused.
pub(super) const FORMAT: u8 = 1;

/// A source's number in the store. Given out by [`super::Store::source`], never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceId(pub(super) u16);

impl SourceId {
    /// For entries that belong to no source.
    pub const NONE: Self = Self(0);
}

/// The kinds of small entries that other rooms keep here. Each has its own version, so that one can change alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tag {
    /// A block of the reconcile bitmap.
    Bitmap,
    /// Counters, histograms, the clock floor.
    Counter,
    /// The memo of a page: validators, next, keys.
    Memo,
    /// A source's pass: plan, window, position, totals. Written last of a batch.
    Position,
    /// Event ids that were seen.
    Seen,
}

impl Tag {
    const fn byte(self) -> u8 {
        match self {
            Self::Bitmap => b'b',
            Self::Counter => COUNTER,
            Self::Memo => b'm',
            Self::Position => b'p',
            Self::Seen => b'e',
        }
    }

    /// The version that this binary writes, and the highest that it reads.
    pub(super) const fn version(self) -> u8 {
        match self {
            Self::Bitmap | Self::Counter | Self::Memo | Self::Position | Self::Seen => 1,
        }
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Bitmap => "a bitmap block",
            Self::Counter => "a counter",
            Self::Memo => "a page memo",
            Self::Position => "a pass position",
            Self::Seen => "an event id",
        }
    }
}

const COUNTER: u8 = b'c';
const LEAF: u8 = b'd';

/// Among the entries under `c`, which ones are the store's own.
#[derive(Clone, Copy)]
enum Meta {
    Format = 1,
    Salt = 2,
    Check = 3,
    SourceName = 4,
    SourceRows = 5,
    /// Those of other rooms.
    Others = 9,
}

/// The key of a small entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    pub(super) tag: Tag,
    bytes: Vec<u8>,
    /// How many of the bytes are the layout's own.
    fixed: usize,
}

impl Key {
    /// The entry of this kind and source that is called `rest`, or as a prefix: all whose names start so.
    #[must_use]
    pub fn new(tag: Tag, source: SourceId, rest: &[u8]) -> Self {
        let mut bytes = head(tag.byte(), source.0);
        if tag == Tag::Counter {
            bytes.push(Meta::Others as u8);
        }
        let fixed = bytes.len();
        bytes.extend_from_slice(rest);
        Self { tag, bytes, fixed }
    }

    /// What the entry is called within its kind and source.
    #[must_use]
    pub fn rest(&self) -> &[u8] {
        self.bytes.get(self.fixed..).unwrap_or_default()
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The rest of a stored key that starts like this one.
    pub(super) fn rest_of<'a>(&self, stored: &'a [u8]) -> &'a [u8] {
        stored.get(self.fixed..).unwrap_or_default()
    }

    pub(super) fn check(&self) -> Result<(), StoreError> {
        let len = self.rest().len();
        if len > MAX_REST {
            Err(StoreError::TooLarge {
                what: "a key",
                len,
                max: MAX_REST,
            })
        } else {
            Ok(())
        }
    }
}

fn head(tag: u8, source: u16) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(24);
    bytes.push(tag);
    bytes.extend_from_slice(&source.to_be_bytes());
    bytes
}

fn meta(source: u16, kind: Meta) -> Vec<u8> {
    let mut bytes = head(COUNTER, source);
    bytes.push(kind as u8);
    bytes
}

/// Where the format is stated.
pub(super) fn format() -> Vec<u8> {
    meta(0, Meta::Format)
}

/// Where the salt is kept.
pub(super) fn salt() -> Vec<u8> {
    meta(0, Meta::Salt)
}

/// Where generation and sums are kept; the one entry that the sums leave out.
pub(super) fn check() -> Vec<u8> {
    meta(0, Meta::Check)
}

/// Where the name of a source is kept.
pub(super) fn source_name(source: SourceId) -> Vec<u8> {
    meta(source.0, Meta::SourceName)
}

/// Where the row count and the next ordinal of a source are kept.
pub(super) fn source_rows(source: SourceId) -> Vec<u8> {
    meta(source.0, Meta::SourceRows)
}

/// What a stored key of the registry of sources says; `None` for any other key.
pub(super) fn parse_source_name(key: &[u8]) -> Option<SourceId> {
    match key {
        [COUNTER, high, low, kind] if *kind == Meta::SourceName as u8 => {
            Some(SourceId(u16::from_be_bytes([*high, *low])))
        }
        _ => None,
    }
}

/// The start of all keys under `c`.
pub(super) const COUNTERS: [u8; 1] = [COUNTER];

/// The start of the keys of a source's leaves.
pub(super) fn leaf_prefix(source: SourceId) -> [u8; 3] {
    let [high, low] = source.0.to_be_bytes();
    [LEAF, high, low]
}

/// The source of a leaf's key; `None` if it is no leaf's.
pub(super) fn leaf_source(key: &[u8]) -> Option<SourceId> {
    match key {
        [LEAF, high, low, ..] => Some(SourceId(u16::from_be_bytes([*high, *low]))),
        _ => None,
    }
}

/// The key of the leaf that holds everything below `bound`. A leaf is found by the first key *above* the one looked
/// for: one forward step of the tree, also at the end, and appending never renames a leaf.
pub(super) fn leaf(source: SourceId, bound: &[u8]) -> Vec<u8> {
    let mut bytes = head(LEAF, source.0);
    bytes.extend_from_slice(bound);
    bytes
}

/// The bound of a leaf, out of its key.
pub(super) fn leaf_bound(key: &[u8]) -> &[u8] {
    key.get(3..).unwrap_or_default()
}

/// Above every record key: they are UTF-8, where this byte does not occur.
pub(super) const LAST: &[u8] = &[0xFF];

/// Record keys up to this length are stored as they are.
const PLAIN: usize = 80;
const HASH: usize = 15;

/// A record's key as it is stored and ordered. A long one gets a hash after its first 80 bytes, so that any two differ
/// within the first 96 and the bounds between leaves stay short, however long the keys and what they have in common.
pub(super) fn stored(key: &RecordKey) -> Cow<'_, [u8]> {
    let bytes = key.as_bytes();
    let (Some(start), Some(rest)) = (bytes.get(..PLAIN), bytes.get(PLAIN..)) else {
        return Cow::Borrowed(bytes);
    };
    if rest.is_empty() {
        return Cow::Borrowed(bytes);
    }
    let hash = Sha256::digest(bytes);
    let mut form = Vec::with_capacity(bytes.len() + 1 + HASH);
    form.extend_from_slice(start);
    form.push(0xFF);
    // Seven bits of each byte: sled's backward iteration is not at ease with runs of 0xFF.
    form.extend(hash.iter().take(HASH).map(|byte| byte & 0x7F));
    form.extend_from_slice(rest);
    Cow::Owned(form)
}

/// The record's key out of its stored form; `None` if that was not written by [`stored`].
pub(super) fn unstored(form: &[u8]) -> Option<RecordKey> {
    let text = if form.get(PLAIN) == Some(&0xFF) {
        let rest = form.get(PLAIN + 1 + HASH..)?;
        [form.get(..PLAIN)?, rest].concat()
    } else {
        form.to_vec()
    };
    RecordKey::from_canonical(&String::from_utf8(text).ok()?)
}

/// The shortest bound that lies above `left` and not above `right`.
pub(super) fn between(left: &[u8], right: &[u8]) -> Vec<u8> {
    let common = left.iter().zip(right).take_while(|(a, b)| a == b).count();
    right.get(..=common).unwrap_or(right).to_vec()
}
