//! Reading what is known of records.

use std::ops::Bound;

use super::Store;
use super::error::StoreError;
use super::keys::{self, SourceId};
use super::leaf::Walk;
use super::raw::{Bytes, Entries};
use crate::record::{Known, RecordKey};

/// The leaf that the last lookup went to, and how far it came in there. Records that come in key order find theirs one
/// step on.
#[derive(Debug, Default)]
pub(super) struct Nearby {
    range: Option<Range>,
    walk: Walk,
}

/// What the leaf answers for: keys of the source from `low` to below the leaf's bound.
#[derive(Debug)]
struct Range {
    source: SourceId,
    low: Vec<u8>,
    /// Key and value; `None` if the source has nothing from `low` on.
    leaf: Option<(Bytes, Bytes)>,
}

impl Range {
    fn answers(&self, source: SourceId, key: &[u8]) -> bool {
        self.source == source
            && self.low.as_slice() <= key
            && self
                .leaf
                .as_ref()
                .is_none_or(|(bound, _)| key < keys::leaf_bound(bound))
    }
}

impl Nearby {
    /// Forgets the leaf, since a commit may have changed it.
    pub(super) fn clear(&mut self) {
        self.range = None;
    }
}

impl Store {
    /// What is known of a record; `None` if it is unknown. Cheapest when the keys come in order.
    ///
    /// # Errors
    ///
    /// [`StoreError::Damaged`] or [`StoreError::Newer`] if the entry cannot be read.
    pub fn find(&self, source: SourceId, key: &RecordKey) -> Result<Option<Known>, StoreError> {
        let key = keys::stored(key);
        let mut nearby = self.nearby.borrow_mut();
        let Nearby { range, walk } = &mut *nearby;
        if !range
            .as_ref()
            .is_some_and(|range| range.answers(source, &key))
        {
            *range = None;
            let leaf = self.leaf_at(source, &key)?;
            if let Some((_, value)) = &leaf {
                walk.start(value)?;
            }
            *range = Some(Range {
                source,
                low: key.to_vec(),
                leaf,
            });
        }
        match range.as_ref().and_then(|range| range.leaf.as_ref()) {
            Some((_, value)) => walk.seek(value, &key),
            None => Ok(None),
        }
    }

    /// The leaf that a key belongs to.
    fn leaf_at(&self, source: SourceId, key: &[u8]) -> Result<Option<(Bytes, Bytes)>, StoreError> {
        let leaf = self.tree.after(&keys::leaf(source, key))?;
        Ok(leaf.filter(|(key, _)| keys::leaf_source(key) == Some(source)))
    }

    /// All that is known of a source's records, in the store's order of keys, from behind `after` on. The order is that
    /// of the bytes, except among keys that share their first 80 bytes.
    #[must_use]
    pub fn records(&self, source: SourceId, after: Option<&RecordKey>) -> Records<'_> {
        let after = after.map(|key| keys::stored(key).into_owned());
        let from = keys::leaf(source, after.as_deref().unwrap_or_default());
        let entries = self.tree.range(Bound::Excluded(&from));
        Records {
            source,
            after,
            entries,
            leaf: None,
            walk: Walk::default(),
            over: false,
        }
    }
}

/// An iterator over the records of a source. Ends after the first error.
pub struct Records<'a> {
    source: SourceId,
    after: Option<Vec<u8>>,
    entries: Entries<'a>,
    leaf: Option<Bytes>,
    walk: Walk,
    over: bool,
}

impl Records<'_> {
    fn advance(&mut self) -> Result<Option<(RecordKey, Known)>, StoreError> {
        loop {
            if let Some(leaf) = &self.leaf {
                while self.walk.step(leaf)? {
                    if self
                        .after
                        .as_deref()
                        .is_none_or(|after| self.walk.key() > after)
                    {
                        let key = keys::unstored(self.walk.key());
                        return key.zip(self.walk.known()).map(Some).ok_or_else(|| {
                            StoreError::damaged("a digest leaf holds a key that is none")
                        });
                    }
                }
            }
            self.leaf = None;
            let Some((key, value)) = self.entries.next().transpose()? else {
                return Ok(None);
            };
            if keys::leaf_source(&key) != Some(self.source) {
                return Ok(None);
            }
            self.walk.start(&value)?;
            self.leaf = Some(value);
        }
    }
}

impl Iterator for Records<'_> {
    type Item = Result<(RecordKey, Known), StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.over {
            return None;
        }
        let next = self.advance().transpose();
        self.over = !matches!(next, Some(Ok(_)));
        next
    }
}
