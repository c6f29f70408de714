//! What needs to look inside: bounds of parts, the codec against a model, entries changed behind the store's back.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::leaf::{self, Row};
use super::*;
use crate::clock::Timestamp;
use crate::record::{Digest, Fingerprint, Known, RecordKey};

fn now() -> Timestamp {
    "2026-05-01T12:00:00Z".parse().unwrap()
}

fn open(home: &std::path::Path) -> Store {
    Store::open(home, now()).unwrap().0
}

fn key(text: &str) -> RecordKey {
    RecordKey::from_canonical(text).unwrap()
}

fn known(seed: u32) -> Known {
    let byte = u8::try_from(seed % 251).unwrap();
    Known {
        digest: Digest([byte; 16]),
        fingerprint: Fingerprint(u64::from(seed).wrapping_mul(0x9E37_79B9_7F4A_7C15)),
        ordinal: seed,
        updated_ms: (seed % 3 == 0).then(|| i64::from(seed) * 1000 - 5_000_000),
    }
}

/// Gives out ordinals up to `n`, so that any record of a test may use them.
fn allot(store: &mut Store, source: SourceId, n: u32) {
    while store.next_ordinal(source).unwrap() < n {}
}

fn sound(store: &mut Store) -> bool {
    store.scan = None;
    store.verify(usize::MAX).unwrap() == Progress::Done(Verdict::Sound)
}

#[test]
fn smoke() {
    let home = tempfile::tempdir().unwrap();
    let mut store = open(home.path());
    let source = store.source("parts").unwrap();
    let mut batch = Batch::new();
    for n in 0..1000 {
        let ordinal = store.next_ordinal(source).unwrap();
        batch.set(source, &key(&format!("\"key-{n:08}\"")), known(ordinal));
    }
    batch.generation(7);
    println!("parts {}", store.commit(batch).unwrap());
    assert!(sound(&mut store));
    drop(store);
    let mut store = open(home.path());
    assert_eq!(store.generation(), 7);
    assert_eq!(store.count(source), 1000);
    assert!(sound(&mut store));
    assert_eq!(store.records(source, None).count(), 1000);
    for n in 0..1000 {
        assert_eq!(
            store
                .find(source, &key(&format!("\"key-{n:08}\"")))
                .unwrap(),
            Some(known(n))
        );
    }
}
