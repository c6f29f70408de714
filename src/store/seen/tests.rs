use std::path::Path;

use proptest::prelude::*;

use super::*;
use crate::store::{Progress, Verdict, raw};

fn at(hour: i64) -> Timestamp {
    Timestamp::from_second(hour * 3600 + 1800).unwrap()
}

fn open(home: &Path) -> Store {
    Store::open(home, at(500_000)).unwrap().0
}

fn event(n: u32) -> EventKey {
    EventKey::new("erp", &format!("evt-{n}"))
}

fn request(n: u32) -> [u8; 16] {
    u128::from(n).to_be_bytes()
}

fn see(store: &mut Store, numbers: impl IntoIterator<Item = u32>, hour: Option<i64>) {
    let mut batch = Batch::new();
    for n in numbers {
        batch.see(event(n), request(n), hour.map(at));
        batch.seen_up_to(n, 7);
    }
    store.commit(batch).unwrap();
}

fn known(store: &Store, numbers: impl IntoIterator<Item = u32>) -> Vec<u32> {
    let known = |n: &u32| store.seen(event(*n)).unwrap().is_some();
    numbers.into_iter().filter(known).collect()
}

fn all(store: &mut Store, now: Option<i64>, most: usize) -> usize {
    let mut calls = 0;
    while store.expire_seen(now.map(at), DAY, most, 3).unwrap() > 0 {
        calls += 1;
    }
    calls
}

const DAY: Duration = Duration::from_secs(24 * 3600);

fn assert_sound(store: &mut Store) {
    assert_eq!(
        store.verify(usize::MAX).unwrap(),
        Progress::Done(Verdict::Sound)
    );
}

#[test]
fn an_id_keeps_its_first_request_and_belongs_to_its_hook() {
    let home = tempfile::tempdir().unwrap();
    let mut store = open(home.path());
    assert_eq!(store.seen_position().unwrap(), None);
    see(&mut store, [1, 2], Some(10));
    let mut batch = Batch::new();
    batch.see(event(1), request(9), Some(at(10)));
    batch.see(event(3), request(3), Some(at(10)));
    batch.see(event(3), request(4), Some(at(10)));
    store.commit(batch).unwrap();
    for _ in 0..2 {
        for n in 1..=3 {
            assert_eq!(store.seen(event(n)).unwrap(), Some(request(n)));
        }
        for other in [
            EventKey::new("er", "pevt-1"),
            EventKey::new("", "erpevt-1"),
            event(4),
        ] {
            assert_eq!(store.seen(other).unwrap(), None);
        }
        assert_eq!(
            (store.seen_count().unwrap(), store.seen_position().unwrap()),
            (3, Some((2, 7)))
        );
        assert_sound(&mut store);
        drop(store);
        store = open(home.path());
    }
}

/// A batch of ids costs a leaf, however many are known; and parts of a commit stay in their bounds.
#[test]
fn marking_and_expiring_write_little() {
    let home = tempfile::tempdir().unwrap();
    let mut store = open(home.path());
    for n in 0..40 {
        see(&mut store, n * 250..(n + 1) * 250, Some(100 + i64::from(n)));
    }
    assert_eq!(store.seen_count().unwrap(), 10_000);
    let before = store.tree.log_bytes();
    see(&mut store, [10_000], Some(140));
    let one = store.tree.log_bytes() - before;
    assert!(one < 24 * 1024, "{one} bytes of log for one id");
    let segment = u64::try_from(raw::SEGMENT).unwrap();
    let calls = all(&mut store, Some(131), 100_000);
    assert!(calls > 5, "in slices: {calls}");
    assert_eq!(known(&store, [0, 1499, 1800, 10_000]), [1800, 10_000]);
    all(&mut store, None, 500);
    assert!(store.seen_count().unwrap() <= 500 && store.seen_count().unwrap() > 450);
    assert_eq!(known(&store, [9000, 9999, 10_000]), [9999, 10_000]);
    let widest = store.tree.logs.borrow().iter().copied().max().unwrap();
    assert!(widest <= segment * 3 / 4, "{widest}");
    assert_eq!(store.tree.blobs().unwrap(), 0);
    assert_sound(&mut store);
    let count = store.seen_count().unwrap();
    drop(store);
    assert_eq!(open(home.path()).seen_count().unwrap(), count);
}

#[test]
fn ids_of_an_unsure_clock_are_kept_from_when_it_is_sure() {
    let home = tempfile::tempdir().unwrap();
    let mut store = open(home.path());
    see(&mut store, 0..45, Some(100));
    see(&mut store, 45..60, Some(101));
    see(&mut store, 60..61, None);
    all(&mut store, None, 1000);
    assert_eq!(store.seen_count().unwrap(), 61);
    // The clock turns out to be days later.
    all(&mut store, Some(300), 1000);
    assert_eq!(known(&store, [0, 44, 45, 60]), [45, 60]);
    all(&mut store, Some(324), 1000);
    assert_eq!(known(&store, [45, 60]), [45, 60]);
    all(&mut store, Some(325), 1000);
    assert_eq!(store.seen_count().unwrap(), 0);
    see(&mut store, [5], Some(325));
    assert_eq!(known(&store, [4, 5]), [5]);
    assert_sound(&mut store);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    /// Nothing is forgotten early, nothing is remembered that was not seen.
    #[test]
    fn ids_are_known_at_least_as_long_as_is_said(
        steps in prop::collection::vec((1..60_u32, 0..10_i64, any::<bool>()), 1..12),
    ) {
        let home = tempfile::tempdir().unwrap();
        let mut store = open(home.path());
        let (mut next, mut hour, mut seen) = (0, 1000, Vec::new());
        for (many, later, reopen) in steps {
            hour += later;
            see(&mut store, next..next + many, Some(hour));
            seen.push((next..next + many, hour));
            next += many;
            all(&mut store, Some(hour), 100_000);
            if reopen {
                drop(store);
                store = open(home.path());
            }
            for (numbers, then) in &seen {
                if hour - then <= 24 {
                    prop_assert_eq!(known(&store, numbers.clone()).len(), numbers.len());
                }
            }
            prop_assert_eq!(known(&store, next..next + 50).len(), 0);
        }
        prop_assert!(all(&mut store, Some(hour + 26), 100_000) > 0);
        prop_assert_eq!(store.seen_count().unwrap(), 0);
    }
}
