//! Changes to records → which leaves to write, each once.

use std::collections::BTreeMap;
use std::iter::Peekable;
use std::ops::Bound;

use super::error::StoreError;
use super::keys::{self, SourceId};
use super::leaf::{self, Row};
use super::raw::Tree;
use crate::record::Known;

/// Changes to records by source and stored key; `None` removes.
pub(super) type Changes = BTreeMap<(SourceId, Vec<u8>), Option<Known>>;

/// Entries to write by key; `None` removes.
pub(super) type Writes = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

/// The writes of one part of a commit. What is in here counts as written for who reads through it.
#[derive(Debug, Default)]
pub(super) struct Part {
    pub(super) writes: Writes,
}

/// What sled writes besides, per write: it rewrites a node of eight to sixteen entries at every tenth change and when it
/// splits or merges. Measured as two bytes for each of the value and this.
const SHARE: usize = 1536;

/// So much of a leaf's changes is planned at once, so that a part's size stays in hand.
const GROUP: usize = 4 * 1024;

impl Part {
    /// About how many bytes of log this part will take.
    pub(super) fn cost(&self) -> usize {
        let of_one = |(key, value): (&Vec<u8>, &Option<Vec<u8>>)| match value {
            // An index node holds up to 256 keys and is rewritten whole: long ones weigh more than once.
            Some(value) => {
                2 * (key.len() + value.len()) + SHARE + 24 * key.len().saturating_sub(32)
            }
            // Merging takes more than the removal itself.
            None => 2 * SHARE,
        };
        // One such node may be rewritten by chance, whatever the part holds: with long keys that is a good share of it.
        let longest = self.writes.keys().map(Vec::len).max().unwrap_or(0);
        let by_chance = 96 * longest.saturating_sub(32);
        by_chance + self.writes.iter().map(of_one).sum::<usize>()
    }

    /// The first leaf of the source whose bound lies above `bound`.
    fn leaf_above(
        &self,
        tree: &Tree,
        source: SourceId,
        bound: &[u8],
    ) -> Result<Option<Leaf>, StoreError> {
        let from = keys::leaf(source, bound);
        let pending = self
            .writes
            .range((Bound::Excluded(from.clone()), Bound::Unbounded));
        let pending = pending
            .take_while(|(key, _)| keys::leaf_source(key) == Some(source))
            .find_map(Leaf::pending);
        let mut at = from;
        while let Some(stored) = tree
            .after(&at)?
            .and_then(|entry| Leaf::stored(source, entry))
        {
            if !self.writes.contains_key(&stored.key) {
                return Ok(Some(match pending {
                    Some(pending) if pending.key < stored.key => pending,
                    _ => stored,
                }));
            }
            at = stored.key;
        }
        Ok(pending)
    }

    /// The leaf next below `bound`, if this part writes it: deletions come in the order of keys, so what they leave thin is
    /// met side by side. Any other would have to be looked for backwards, which sled does with a constant of a megabyte
    /// in the binary.
    fn leaf_below(
        &self,
        tree: &Tree,
        source: SourceId,
        bound: &[u8],
    ) -> Result<Option<Leaf>, StoreError> {
        let own = keys::leaf(source, bound);
        let below = self.writes.range(..own.clone()).rev();
        let Some(below) = below
            .take_while(|(key, _)| keys::leaf_source(key) == Some(source))
            .find_map(Leaf::pending)
        else {
            return Ok(None);
        };
        let mut at = below.key.clone();
        while let Some((key, _)) = tree.after(&at)? {
            if *key >= *own {
                break;
            }
            // What is to be removed does not stand between.
            if !self.writes.contains_key(&*key) {
                return Ok(None);
            }
            at = key.to_vec();
        }
        Ok(Some(below))
    }
}

struct Leaf {
    key: Vec<u8>,
    value: Vec<u8>,
}

impl Leaf {
    fn pending((key, value): (&Vec<u8>, &Option<Vec<u8>>)) -> Option<Self> {
        value.clone().map(|value| Self {
            key: key.clone(),
            value,
        })
    }

    fn stored(
        source: SourceId,
        (key, value): (super::raw::Bytes, super::raw::Bytes),
    ) -> Option<Self> {
        (keys::leaf_source(&key) == Some(source)).then(|| Self {
            key: key.to_vec(),
            value: value.to_vec(),
        })
    }
}

/// Plans the changes that fall into the leaf of the first one, and takes them off.
pub(super) fn plan_leaf<I>(
    tree: &Tree,
    part: &mut Part,
    changes: &mut Peekable<I>,
) -> Result<(), StoreError>
where
    I: Iterator<Item = ((SourceId, Vec<u8>), Option<Known>)>,
{
    let Some(((source, first), _)) = changes.peek() else {
        return Ok(());
    };
    let source = *source;
    let (key, old) = match part.leaf_above(tree, source, first)? {
        Some(leaf) => (leaf.key, leaf::decode(&leaf.value)?),
        None => (keys::leaf(source, keys::LAST), Vec::new()),
    };
    let mut group = Vec::new();
    let mut size = 0;
    let bound = keys::leaf_bound(&key);
    while let Some(((_, record), known)) = changes
        .next_if(|((of, record), _)| size < GROUP && *of == source && record.as_slice() < bound)
    {
        size += record.len() + 32;
        group.push((record, known));
    }
    let merged = leaf::merge(old, group);
    if !merged.changed {
        return Ok(());
    }
    // Only what shrank joins: a leaf that grows out of an append is thin on its way to being full.
    let rows = if merged.shrunk {
        join(tree, part, source, &key, merged.rows)?
    } else {
        Joined::Own(merged.rows)
    };
    match rows {
        Joined::Own(rows) => write(part, source, key, &rows, merged.appended),
        Joined::Right(right, rows) => {
            part.writes.insert(key, None);
            write(part, source, right, &rows, false);
        }
    }
    Ok(())
}

enum Joined {
    /// The rows belong under the leaf's own key.
    Own(Vec<Row>),
    /// The leaf goes, and its rows belong under this key of its right neighbour.
    Right(Vec<u8>, Vec<Row>),
}

/// Puts a thin leaf together with a neighbour, if the two fit: the right one, or the left one where the same part has just
/// written it. The left neighbour's entry is removed here.
fn join(
    tree: &Tree,
    part: &mut Part,
    source: SourceId,
    key: &[u8],
    mut rows: Vec<Row>,
) -> Result<Joined, StoreError> {
    let size = leaf::encode(&rows).len();
    if rows.is_empty() || size >= leaf::THIN {
        return Ok(Joined::Own(rows));
    }
    let bound = keys::leaf_bound(key);
    if let Some(right) = part.leaf_above(tree, source, bound)? {
        if size + right.value.len() <= leaf::JOINED {
            rows.extend(leaf::decode(&right.value)?);
            return Ok(Joined::Right(right.key, rows));
        }
    }
    if let Some(left) = part.leaf_below(tree, source, bound)? {
        if size + left.value.len() <= leaf::JOINED {
            let mut joined = leaf::decode(&left.value)?;
            joined.append(&mut rows);
            part.writes.insert(left.key, None);
            return Ok(Joined::Own(joined));
        }
    }
    Ok(Joined::Own(rows))
}

/// Writes rows as one leaf or more; the last one keeps the key. No rows, no leaf: its keys fall to the next one.
fn write(part: &mut Part, source: SourceId, key: Vec<u8>, rows: &[Row], appended: bool) {
    let mut pieces = leaf::partition(rows, appended).into_iter().peekable();
    if pieces.peek().is_none() {
        part.writes.insert(key, None);
        return;
    }
    while let Some(piece) = pieces.next() {
        let ends = piece
            .last()
            .zip(pieces.peek().and_then(|next| next.first()));
        let under =
            ends.map(|(last, first)| keys::leaf(source, &keys::between(&last.key, &first.key)));
        part.writes.insert(
            under.unwrap_or_else(|| key.clone()),
            Some(leaf::encode(piece)),
        );
    }
}
