//! The leaf codec and the form of keys.

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;

use super::*;
use crate::store::leaf::{FULL, Row, Walk, decode, encode, merge, partition};

fn any_known() -> impl Strategy<Value = Known> {
    (
        any::<[u8; 16]>(),
        any::<u64>(),
        any::<u32>(),
        any::<Option<i64>>(),
    )
        .prop_map(|(digest, fingerprint, ordinal, updated_ms)| Known {
            digest: Digest(digest),
            fingerprint: Fingerprint(fingerprint),
            ordinal,
            updated_ms,
        })
}

fn any_rows(most: usize) -> impl Strategy<Value = Vec<Row>> {
    let key = prop_oneof![
        vec(b'a'..=b'c', 1..6),
        vec(any::<u8>(), 0..40),
        vec(b'x'..=b'y', 500..528)
    ];
    btree_map(key, any_known(), 0..most).prop_map(|rows| {
        rows.into_iter()
            .map(|(key, known)| Row { key, known })
            .collect()
    })
}

proptest! {
    #[test]
    fn a_leaf_reads_back_as_it_was_written(rows in any_rows(100)) {
        prop_assert_eq!(decode(&encode(&rows)).unwrap(), rows);
    }

    #[test]
    fn a_walk_finds_what_is_there_and_nothing_else(rows in any_rows(60), seeks in vec((any::<prop::sample::Index>(), any::<bool>()), 1..30)) {
        let leaf = encode(&rows);
        let mut walk = Walk::default();
        walk.start(&leaf).unwrap();
        for (index, absent) in seeks {
            let mut key = rows.get(index.index(rows.len().max(1))).map(|row| row.key.clone()).unwrap_or_default();
            if absent {
                key.push(0);
            }
            let want = rows.iter().find(|row| row.key == key).map(|row| row.known);
            prop_assert_eq!(walk.seek(&leaf, &key).unwrap(), want);
        }
    }

    #[test]
    fn pieces_hold_all_rows_and_fit(rows in any_rows(300), appended: bool) {
        let pieces = partition(&rows, appended);
        prop_assert_eq!(pieces.concat(), rows.clone());
        for piece in pieces {
            prop_assert!(!piece.is_empty());
            prop_assert!(encode(piece).len() <= FULL, "{} bytes", encode(piece).len());
        }
    }

    #[test]
    fn merging_is_what_a_map_does(rows in any_rows(40), changes in btree_map(vec(b'a'..=b'c', 1..6), proptest::option::of(any_known()), 0..40)) {
        let mut want: BTreeMap<_, _> = rows.iter().map(|row| (row.key.clone(), row.known)).collect();
        let before = want.clone();
        for (key, change) in &changes {
            match change {
                Some(known) => want.insert(key.clone(), *known),
                None => want.remove(key),
            };
        }
        let merged = merge(rows, changes.into_iter().collect());
        let have: BTreeMap<_, _> = merged.rows.iter().map(|row| (row.key.clone(), row.known)).collect();
        prop_assert_eq!(merged.changed, have != before);
        prop_assert_eq!(have.len(), merged.rows.len());
        prop_assert!(merged.rows.is_sorted_by(|a, b| a.key < b.key));
        prop_assert_eq!(have, want);
    }

    #[test]
    fn a_broken_leaf_is_an_error_or_a_leaf_but_no_panic(rows in any_rows(40), at: prop::sample::Index, byte: u8, cut: bool) {
        let mut leaf = encode(&rows);
        let at = at.index(leaf.len());
        if cut {
            leaf.truncate(at);
        } else {
            leaf[at] = byte;
        }
        if let Ok(rows) = decode(&leaf) {
            prop_assert!(rows.is_sorted_by(|a, b| a.key < b.key));
        }
    }

    #[test]
    fn a_key_comes_back_and_long_ones_differ_early(a in "[a-c\u{e9}]{1,100}", b in "[a-c]{1,100}", same in "[ab]{0,300}") {
        let (a, b) = (key(&format!("\"{same}{a}\"")), key(&format!("\"{same}{b}\"")));
        let (left, right) = (keys::stored(&a), keys::stored(&b));
        prop_assert_eq!(keys::unstored(&left).unwrap(), a.clone());
        prop_assert_eq!(left == right, a == b);
        let (low, high) = if left < right { (left, right) } else { (right, left) };
        if low != high {
            let bound = keys::between(&low, &high);
            prop_assert!(bound.len() <= 96);
            prop_assert!(*low < *bound && *bound <= *high && *bound < *keys::LAST);
        }
    }
}

/// What is written as a difference costs most where a leaf begins, and a dated row may come late in it.
#[test]
fn a_piece_fits_although_its_first_times_and_ordinals_are_far_from_zero() {
    let rows: Vec<_> = (0..200_u8)
        .map(|at| Row {
            key: vec![b'a', at],
            known: Known {
                ordinal: u32::MAX - u32::from(at),
                updated_ms: (at % 3 != 0).then_some(i64::MIN / 2 - i64::from(at)),
                ..known(1)
            },
        })
        .collect();
    for appended in [false, true] {
        for from in 0..100 {
            let rows = &rows[from..];
            for piece in partition(rows, appended) {
                assert!(encode(piece).len() <= FULL, "{}", encode(piece).len());
            }
        }
    }
}

#[test]
fn a_leaf_of_a_newer_version_says_so() {
    let mut leaf = encode(&[Row {
        key: b"1".to_vec(),
        known: known(1),
    }]);
    leaf[0] = 2;
    assert!(matches!(
        decode(&leaf),
        Err(StoreError::Newer {
            found: 2,
            known: 1,
            ..
        })
    ));
}
