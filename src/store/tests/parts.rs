//! Commits in parts, and what a cut between them leaves.

use std::ops::Bound;

use super::*;
use crate::store::plan::{self, Part};

/// A fixed permutation of 0..n.
fn scattered(n: u32) -> Vec<u32> {
    let mut numbers: Vec<_> = (0..n).collect();
    numbers.sort_by_key(|n| n.wrapping_mul(0x9E37_79B1));
    numbers
}

#[test]
fn parts_stay_far_from_a_segment_of_log() {
    let home = tempfile::tempdir().unwrap();
    let mut store = open(home.path());
    let source = store.source("parts").unwrap();
    // A rebuild: all in one batch; then scattered pages, scattered removals, and all at once again.
    let batch = records(&mut store, source, (0..20_000).filter(|n| n % 2 == 0));
    assert!(store.commit(batch).unwrap() > 5);
    for page in scattered(20_000).chunks(250).take(12) {
        let batch = records(&mut store, source, page.iter().copied());
        store.commit(batch).unwrap();
    }
    for page in scattered(20_000).chunks(1000).take(4) {
        let mut batch = Batch::new();
        page.iter().for_each(|n| batch.unset(source, &numbered(*n)));
        store.commit(batch).unwrap();
    }
    let mut batch = Batch::new();
    for n in 0..400_u32 {
        batch.put(
            Key::new(Tag::Memo, source, &n.to_be_bytes()),
            &[1; MAX_VALUE - 1],
        );
        batch.put(Key::new(Tag::Bitmap, source, &n.to_be_bytes()), &[1; 1024]);
    }
    store.commit(batch).unwrap();
    let mut batch = Batch::new();
    batch.remove_prefix(Key::new(Tag::Memo, source, &[]));
    store.commit(batch).unwrap();
    assert_bounded(&store);
    store.forget(source).unwrap();
    store.compact(|| ()).unwrap();
    assert_bounded(&store);
    assert_sound(&mut store);
}

#[test]
fn long_keys_stay_out_of_blobs() {
    let home = tempfile::tempdir().unwrap();
    let mut store = open(home.path());
    let source = store.source("urls").unwrap();
    allot(&mut store, source, 6000);
    // The longest keys, alike in groups up to their last bytes: the worst for bounds between leaves.
    let long = |n: u32| key(&format!("\"{:0>480}{:0>26}\"", n / 40 * 7919 % 1000, n));
    for page in 0..24 {
        let mut batch = Batch::new();
        (page * 250..(page + 1) * 250).for_each(|n| batch.set(source, &long(n), known(n)));
        store.commit(batch).unwrap();
    }
    assert_eq!(store.tree.blobs().unwrap(), 0);
    assert_bounded(&store);
    assert!((0..6000).all(|n| store.find(source, &long(n)).unwrap() == Some(known(n))));
    assert_sound(&mut store);
}

/// The generation says that all of a batch is there: a cut before its last part leaves the old one, over sound data.
#[test]
fn a_cut_between_two_parts_leaves_the_old_generation_and_a_sound_store() {
    let home = tempfile::tempdir().unwrap();
    let mut store = open(home.path());
    let source = store.source("parts").unwrap();
    let mut batch = records(&mut store, source, 0..1000);
    batch.generation(4);
    store.commit(batch).unwrap();

    let changes: plan::Changes = (990..3000)
        .map(|n| {
            (
                (source, keys::stored(&numbered(n)).into_owned()),
                Some(known(n + 1)),
            )
        })
        .collect();
    allot(&mut store, source, 3001);
    let mut part = Part::default();
    let mut changes = changes.into_iter().peekable();
    while part.cost() < commit::BUDGET {
        plan::plan_leaf(&store.tree, &mut part, &mut changes).unwrap();
    }
    assert!(
        changes.peek().is_some(),
        "there is a second part, which the cut prevents"
    );
    store.write_part(part, None).unwrap();
    drop(store);

    let (mut store, opening) = Store::open(home.path(), now()).unwrap();
    assert_eq!(opening, Opening::Opened);
    assert_eq!(store.generation(), 4);
    assert!(store.count(source) > 1000);
    assert_eq!(store.ordinals(source), 3002);
    assert_sound(&mut store);
}

#[test]
fn after_a_failed_sync_every_commit_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let mut store = open(home.path());
    let source = store.source("parts").unwrap();
    // A device that can't be synced.
    store.tree.file = File::open("/dev/null").unwrap();
    let batch = records(&mut store, source, 0..10);
    assert!(matches!(store.commit(batch), Err(StoreError::Io { .. })));
    let batch = records(&mut store, source, 0..10);
    assert!(matches!(
        store.commit(batch),
        Err(StoreError::Poisoned { .. })
    ));
    assert!(matches!(
        store.forget(source),
        Err(StoreError::Poisoned { .. })
    ));
    assert!(matches!(
        store.source("another"),
        Err(StoreError::Poisoned { .. })
    ));
    assert!(matches!(
        store.compact(|| ()),
        Err(StoreError::Poisoned { .. })
    ));
    drop(store);

    let mut store = open(home.path());
    let batch = records(&mut store, source, 0..20);
    store.commit(batch).unwrap();
    assert_eq!(store.count(source), 20);
    assert_sound(&mut store);
}

#[test]
fn what_rides_along_costs_no_write_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path().join("state");
    let mut store = open(&home);
    let source = store.source("s").unwrap();
    let rider = Key::new(Tag::Counter, SourceId::NONE, b"rider");
    let kept = |store: &Store| store.get(&rider).unwrap();
    let commit = |store: &mut Store, value: &[u8]| {
        let mut batch = Batch::new();
        batch.put(Key::new(Tag::Position, source, b""), value);
        store.commit(batch).unwrap();
    };
    commit(&mut store, b"one");
    let before = store.size().unwrap();
    store.ride_along(&rider, b"first").unwrap();
    store.ride_along(&rider, b"second").unwrap();
    commit(&mut store, b"one");
    store.commit(Batch::new()).unwrap();
    assert_eq!(kept(&store), None, "nothing else was written");
    assert_eq!(store.size().unwrap(), before);
    commit(&mut store, b"two");
    assert_eq!(kept(&store).as_deref(), Some(&b"second"[..]));
    assert!(store.ride_along(&rider, &[0; MAX_VALUE]).is_err());
    assert_sound(&mut store);
    drop(store);
    let mut store = open(&home);
    assert_eq!(kept(&store).as_deref(), Some(&b"second"[..]));
    assert_sound(&mut store);
}

/// The leaves of a source.
fn leaves(store: &Store, source: SourceId) -> usize {
    let entries = store.tree.range(Bound::Unbounded).map(Result::unwrap);
    entries
        .filter(|(key, _)| keys::leaf_source(key) == Some(source))
        .count()
}

/// What deletions leave behind takes no more leaves than a few times what it needs, in whatever order they come.
#[test]
fn thin_leaves_join_whatever_the_order_of_deletions() {
    const MANY: u32 = 20_000;
    let some = |n: &u32| n % 10 != 0;
    let up: Vec<u32> = (0..MANY).filter(some).collect();
    let down: Vec<u32> = up.iter().rev().copied().collect();
    let mut scattered = up.clone();
    scattered.sort_by_key(|n| n.wrapping_mul(0x9E37_79B1));
    for (order, gone) in [("up", &up), ("down", &down), ("scattered", &scattered)] {
        let home = tempfile::tempdir().unwrap();
        let mut store = open(home.path());
        let source = store.source("parts").unwrap();
        for first in (0..MANY).step_by(1000) {
            let batch = records(&mut store, source, first..first + 1000);
            store.commit(batch).unwrap();
        }
        let full = leaves(&store, source);
        for numbers in gone.chunks(250) {
            let mut batch = Batch::new();
            numbers
                .iter()
                .for_each(|n| batch.unset(source, &numbered(*n)));
            store.commit(batch).unwrap();
        }
        assert_sound(&mut store);
        let left = leaves(&store, source);
        let rows = MANY as usize - gone.len();
        let needed = full * rows / MANY as usize;
        println!("{order}: {full} leaves for {MANY} records, {left} for {rows}");
        assert!(
            left <= 3 * needed + 2,
            "{order}: {left} leaves, {needed} needed"
        );
    }
}
