//! What is kept of a page instead of its body: validators, the way on, and which records it had. Pure.
//!
//! So a 304 costs nothing, still counts the page's records as met, and still knows where the next page is.

use sha2::{Digest as _, Sha256};
use url::Url;

use super::codec::{Reader, Writer};
use crate::record::Ordinal;
use crate::upstream::conditional::{Validators, Variant};

/// The most bytes of ordinals in one stored part.
const PART: usize = 2200;

/// A page's memo.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Memo {
    /// Which config read the page: another one reads it again.
    pub config: [u8; 8],
    /// Which URL gave it, behind redirects.
    pub url: Url,
    /// What to ask with.
    pub validators: Validators,
    /// Which variant it is.
    pub variant: Variant,
    /// The next page, or none: the end.
    pub next: Option<Url>,
    /// Records that it had, tombstones and bad ones included.
    pub records: u64,
    /// Of them, those that were skipped as bad.
    pub bad: u64,
    /// Whether one of those could not be told by its key, so that an absence proves nothing.
    pub blind: bool,
    /// Bytes that fetching it took.
    pub wire: u64,
    /// When it was fetched in full, in seconds since 1970.
    pub fetched: i64,
    /// The cursor that it gave, as it came.
    pub cursor: Option<String>,
    /// The records that it had.
    pub ordinals: Ordinals,
}

/// A page is told by the URL that asks for it: half a SHA-256 of it is what it is called in the store.
#[must_use]
pub fn page_id(asked: &Url) -> [u8; 8] {
    let hash = Sha256::digest(asked.as_str().as_bytes());
    let mut id = [0; 8];
    id.copy_from_slice(&hash[..8]);
    id
}

impl Memo {
    /// The entries that it is stored as, in order; each small enough for a leaf.
    #[must_use]
    pub fn encode(&self) -> Vec<Vec<u8>> {
        let mut head = Writer::default();
        head.bytes(&self.config)
            .bytes(self.url.as_str().as_bytes())
            .optional(self.validators.etag.as_deref())
            .optional(self.validators.last_modified.as_deref())
            .bytes(self.variant.names.join(",").as_bytes())
            .number(self.variant.values)
            .optional(self.next.as_ref().map(|url| url.as_str().as_bytes()))
            .number(self.records)
            .number(self.bad)
            .number(u64::from(self.blind))
            .number(self.wire)
            .signed(self.fetched);
        let parts = self.ordinals.encode();
        head.number(parts.len() as u64);
        if let Some(cursor) = &self.cursor {
            head.bytes(cursor.as_bytes());
        }
        std::iter::once(head.finish()).chain(parts).collect()
    }

    /// Reads its entries back. `None`: they are not whole, so the page has no memo.
    #[must_use]
    pub fn decode(entries: &[Vec<u8>]) -> Option<Self> {
        let (head, parts) = entries.split_first()?;
        let mut head = Reader::new(head);
        let mut memo = Self {
            config: head.bytes()?.try_into().ok()?,
            url: Url::parse(head.text()?).ok()?,
            validators: Validators {
                etag: head.optional()?.map(<[u8]>::to_vec),
                last_modified: head.optional()?.map(<[u8]>::to_vec),
            },
            variant: Variant {
                names: head
                    .text()?
                    .split(',')
                    .filter(|name| !name.is_empty())
                    .map(str::to_owned)
                    .collect(),
                values: head.number()?,
            },
            next: match head.optional()? {
                None => None,
                Some(url) => Some(Url::parse(std::str::from_utf8(url).ok()?).ok()?),
            },
            records: head.number()?,
            bad: head.number()?,
            blind: head.number()? != 0,
            wire: head.number()?,
            fetched: head.signed()?,
            cursor: None,
            ordinals: Ordinals::decode(parts)?,
        };
        let is_whole = head.number()? == parts.len() as u64;
        if !head.is_empty() {
            memo.cursor = Some(head.text()?.to_owned());
        }
        (is_whole && head.is_empty()).then_some(memo)
    }

    /// Whether storing `self` over `stored` would say anything new. When it was fetched alone is not news: an upstream
    /// that never answers 304 must not wear the card.
    #[must_use]
    pub fn says_more_than(&self, stored: Option<&Self>) -> bool {
        stored.is_none_or(|stored| {
            let mut same = self.clone();
            same.fetched = stored.fetched;
            same.wire = stored.wire;
            same != *stored
        })
    }
}

/// A set of ordinals as runs: a page whose records came to us in its own order is one run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ordinals(Vec<(Ordinal, u32)>);

impl Ordinals {
    /// From ordinals in ascending order.
    #[must_use]
    pub fn collect(ordinals: impl Iterator<Item = Ordinal>) -> Self {
        let mut runs: Vec<(Ordinal, u32)> = Vec::new();
        for ordinal in ordinals {
            match runs.last_mut() {
                Some((start, length)) if start.checked_add(*length) == Some(ordinal) => {
                    *length += 1
                }
                _ => runs.push((ordinal, 1)),
            }
        }
        Self(runs)
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All of them, ascending.
    pub fn iter(&self) -> impl Iterator<Item = Ordinal> + '_ {
        self.0
            .iter()
            .flat_map(|(start, length)| (0..*length).map(move |n| start.saturating_add(n)))
    }

    fn encode(&self) -> Vec<Vec<u8>> {
        let (mut parts, mut part, mut last) = (Vec::new(), Writer::default(), 0u32);
        for (start, length) in &self.0 {
            if part.len() > PART {
                parts.push(std::mem::take(&mut part).finish());
                last = 0;
            }
            part.number(u64::from(start - last))
                .number(u64::from(*length));
            last = start.saturating_add(*length);
        }
        if part.len() > 0 {
            parts.push(part.finish());
        }
        parts
    }

    /// Whether one of these, in ascending order, is in it.
    #[must_use]
    pub fn has_any(&self, ordinals: &[Ordinal]) -> bool {
        self.0.iter().any(|(start, length)| {
            let at = ordinals.partition_point(|ordinal| ordinal < start);
            ordinals
                .get(at)
                .is_some_and(|ordinal| ordinal - start < *length)
        })
    }

    /// From stored parts, all or some.
    pub(super) fn decode(parts: &[impl AsRef<[u8]>]) -> Option<Self> {
        let mut runs = Vec::new();
        for part in parts {
            let (mut reader, mut last) = (Reader::new(part.as_ref()), 0u32);
            while !reader.is_empty() {
                let start = last.checked_add(u32::try_from(reader.number()?).ok()?)?;
                let length = u32::try_from(reader.number()?).ok()?;
                last = start.checked_add(length)?;
                runs.push((start, length));
            }
        }
        Some(Self(runs))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn memo(ordinals: impl IntoIterator<Item = Ordinal>) -> Memo {
        Memo {
            config: [7; 8],
            url: Url::parse("https://a.example/p?page=2").unwrap(),
            validators: Validators {
                etag: Some(b"\"caf\xe9\"".to_vec()),
                last_modified: None,
            },
            variant: Variant {
                names: vec!["accept".into(), "cookie".into()],
                values: 9,
            },
            next: Some(Url::parse("https://a.example/p?page=3").unwrap()),
            records: 10,
            bad: 1,
            blind: false,
            wire: 1234,
            fetched: -5,
            cursor: Some("\"1\"".into()),
            ordinals: Ordinals::collect(ordinals.into_iter()),
        }
    }

    proptest! {
        #[test]
        fn a_memo_survives_storing_in_parts_that_fit(ordinals in proptest::collection::btree_set(0u32..3_000_000, 0..5000)) {
            let memo = memo(ordinals);
            let entries = memo.encode();
            prop_assert!(entries.iter().all(|entry| entry.len() < 2900));
            prop_assert_eq!(Memo::decode(&entries), Some(memo.clone()));
            let plain = Memo { cursor: None, ..memo };
            prop_assert_eq!(Memo::decode(&plain.encode()), Some(plain));
            prop_assert_eq!(Memo::decode(&entries[..entries.len() - 1]), None, "a part is missing");
        }

        #[test]
        fn garbage_is_no_memo(entries: Vec<Vec<u8>>) {
            prop_assert_eq!(Memo::decode(&entries), None);
        }
    }

    #[test]
    fn a_page_in_its_own_order_is_one_run() {
        let memo = memo(1000..2_001_000);
        assert!(memo.encode().iter().map(Vec::len).sum::<usize>() < 200);
        assert_eq!(memo.ordinals.iter().count(), 2_000_000);
    }

    proptest! {
        #[test]
        fn one_of_them_is_found_in_its_runs(ordinals: BTreeSet<u8>, mut asked: Vec<u8>) {
            asked.sort_unstable();
            let ordinals: Vec<u8> = ordinals.into_iter().collect();
            let wide = |all: &[u8]| all.iter().map(|ordinal| u32::from(*ordinal)).collect::<Vec<_>>();
            let has = asked.iter().any(|ordinal| ordinals.contains(ordinal));
            prop_assert_eq!(Ordinals::collect(wide(&ordinals).into_iter()).has_any(&wide(&asked)), has);
        }
    }

    #[test]
    fn when_it_was_fetched_is_no_news() {
        let stored = memo(vec![1, 2]);
        assert!(
            !Memo {
                fetched: 99,
                wire: 1,
                ..stored.clone()
            }
            .says_more_than(Some(&stored))
        );
        assert!(memo(vec![1]).says_more_than(Some(&stored)));
        assert!(stored.says_more_than(None));
    }
}
