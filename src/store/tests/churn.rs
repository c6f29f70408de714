//! The store's size is bounded however long it is written to. A year of churn on 100,000 records takes minutes:
//! `cargo test --lib store::tests::churn -- --ignored --nocapture`.

use super::*;

/// So many records, a twentieth of which changes each day, and a hundredth of which goes and comes back; it is looked
/// each day whether the store wants to be rewritten. The largest size and how often it was.
fn churn(records_known: u32, days: u32) -> (u64, u32, u64) {
    let home = tempfile::tempdir().unwrap();
    let mut store = open(home.path());
    let source = store.source("parts").unwrap();
    let all: Vec<u32> = (0..records_known).collect();
    for page in all.chunks(250) {
        let batch = records(&mut store, source, page.iter().copied());
        store.commit(batch).unwrap();
    }
    let (mut largest, mut rewrites) = (store.size().unwrap(), 0);
    // Steps without a common divisor come to every record sooner or later.
    let mut at = 0_u32;
    for day in 0..days {
        let changed: Vec<u32> = (0..records_known / 20)
            .map(|_| {
                at = (at + 7919) % records_known;
                at
            })
            .collect();
        for page in changed.chunks(250) {
            let mut batch = Batch::new();
            for n in page {
                let now = Known {
                    digest: Digest([u8::try_from(day % 251).unwrap() + 1; 16]),
                    ordinal: *n,
                    ..known(*n)
                };
                batch.set(source, &numbered(*n), now);
            }
            store.commit(batch).unwrap();
        }
        let gone = (0..records_known / 100).map(|n| (day * 31 + n * 97) % records_known);
        let gone: Vec<u32> = gone.collect();
        let mut batch = Batch::new();
        gone.iter().for_each(|n| batch.unset(source, &numbered(*n)));
        store.commit(batch).unwrap();
        let batch = records(&mut store, source, gone);
        store.commit(batch).unwrap();
        largest = largest.max(store.size().unwrap());
        if store.wants_compaction().unwrap() {
            store.compact(|| ()).unwrap();
            rewrites += 1;
        }
    }
    assert_eq!(store.count(source), u64::from(records_known));
    assert_sound(&mut store);
    let live = store.check.totals.bytes;
    println!(
        "{records_known} records, {days} days: largest {largest} B, {live} B live, {rewrites} rewrites, {} B in the end",
        store.size().unwrap()
    );
    (largest, rewrites, live)
}

/// A day's worth may come on top before it is looked again.
fn assert_is_bounded((largest, _, live): (u64, u32, u64)) {
    let bound = (4 * 1024 * 1024).max(4 * live);
    assert!(largest <= bound * 2, "{largest} B with {live} B live");
}

#[test]
fn a_store_that_changes_for_months_stays_small() {
    assert_is_bounded(churn(2_000, 60));
}

#[test]
#[ignore = "minutes"]
fn a_year_of_churn_on_100_000_records() {
    assert_is_bounded(churn(100_000, 365));
}
