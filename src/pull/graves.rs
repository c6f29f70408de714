//! Records that a pass met as tombstones: an older form of one that comes later in the listing does not bring it back.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};

use crate::record::RecordKey;

/// Tombstones by their keys' hashes, 16 bytes each. The hash is keyed anew in each process: that two keys share one is a
/// matter of chance, and no more likely than one in 2⁶⁴ for a pair.
#[derive(Debug, Default)]
pub struct Graves {
    hasher: RandomState,
    /// Update times, in milliseconds since 1970.
    latest: HashMap<u64, i64>,
}

impl Graves {
    /// A tombstone of that update time. One without says nothing of what is older.
    pub fn dig(&mut self, key: &RecordKey, updated_ms: Option<i64>) {
        if let Some(updated_ms) = updated_ms {
            let latest = self
                .latest
                .entry(self.hasher.hash_one(key))
                .or_insert(updated_ms);
            *latest = updated_ms.max(*latest);
        }
    }

    /// Whether there is a tombstone later than a record of that update time.
    #[must_use]
    pub fn is_later(&self, key: &RecordKey, updated_ms: Option<i64>) -> bool {
        if self.latest.is_empty() {
            return false;
        }
        let latest = self.latest.get(&self.hasher.hash_one(key)).copied();
        latest
            .zip(updated_ms)
            .is_some_and(|(grave, record)| grave > record)
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.latest.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_later_tombstone_counts() {
        let key = |text: &str| RecordKey::from_canonical(text).unwrap();
        let mut graves = Graves::default();
        assert!(!graves.is_later(&key("1"), Some(0)));
        graves.dig(&key("1"), Some(5));
        graves.dig(&key("1"), Some(3));
        graves.dig(&key("2"), None);
        let table = [
            ("1", Some(4), true),
            ("1", Some(5), false),
            ("1", None, false),
            ("2", Some(1), false),
            ("3", Some(1), false),
        ];
        for (text, updated_ms, expected) in table {
            assert_eq!(
                graves.is_later(&key(text), updated_ms),
                expected,
                "{text} {updated_ms:?}"
            );
        }
        graves.clear();
        assert!(!graves.is_later(&key("1"), Some(4)));
    }
}
