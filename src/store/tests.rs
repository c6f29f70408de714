//! What needs to look inside: bounds of parts, entries changed behind the store's back, the store against a model.

mod churn;
mod codec;
mod damage;
mod figures;
mod model;
mod parts;

use std::path::Path;

use super::*;
use crate::clock::Timestamp;
use crate::record::{Digest, Fingerprint, Known, RecordKey};

fn now() -> Timestamp {
    "2026-05-01T12:00:00Z".parse().unwrap()
}

fn open(home: &Path) -> Store {
    Store::open(home, now()).unwrap().0
}

fn key(text: &str) -> RecordKey {
    RecordKey::from_canonical(text).unwrap()
}

fn numbered(n: u32) -> RecordKey {
    key(&format!("\"key-{n:010}\""))
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

/// A batch that sets these records.
fn records(store: &mut Store, source: SourceId, numbers: impl IntoIterator<Item = u32>) -> Batch {
    let mut batch = Batch::new();
    for n in numbers {
        if n >= store.ordinals(source) {
            allot(store, source, n);
        }
        batch.set(source, &numbered(n), known(n));
    }
    batch
}

fn verdict(store: &mut Store) -> Verdict {
    store.scan = None;
    match store.verify(usize::MAX).unwrap() {
        Progress::Done(verdict) => verdict,
        Progress::More => panic!("the budget was all"),
    }
}

#[track_caller]
fn assert_sound(store: &mut Store) {
    assert_eq!(verdict(store), Verdict::Sound);
}

/// Parts aim at half a segment of log. Which of them meets a node that is due for rewriting is chance, so one in fifty
/// may take more; none may come near a whole segment, where sled begins to lose what was committed.
#[track_caller]
fn assert_bounded(store: &Store) {
    let segment = u64::try_from(raw::SEGMENT).unwrap();
    let logs = store.tree.logs.borrow();
    let wide = logs.iter().filter(|log| **log > segment / 2).count();
    assert!(
        wide * 50 <= logs.len() + 50,
        "{wide} of {} parts take over half a segment",
        logs.len()
    );
    let widest = logs.iter().copied().max().unwrap_or(0);
    assert!(widest <= segment * 3 / 4, "{widest} bytes in one part");
    println!(
        "{} parts, the widest {widest} bytes, {wide} over half a segment",
        logs.len()
    );
}
