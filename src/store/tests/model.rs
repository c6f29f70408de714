//! The store against a map.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

#[derive(Debug, Clone)]
enum Step {
    /// A run of records in key order.
    Load {
        source: usize,
        from: u32,
        len: u32,
    },
    /// Scattered changes; the odd ones remove.
    Scatter {
        source: usize,
        numbers: Vec<u32>,
    },
    /// Removes a run.
    Drop {
        source: usize,
        from: u32,
        len: u32,
    },
    Forget {
        source: usize,
    },
    Reopen,
    Compact,
    /// Some entries of the own check.
    Check {
        budget: usize,
    },
}

fn any_step() -> impl Strategy<Value = Step> {
    let source = || 0_usize..3;
    prop_oneof![
        4 => (source(), 0..3000_u32, 1..400_u32).prop_map(|(source, from, len)| Step::Load { source, from, len }),
        4 => (source(), vec(0..3000_u32, 1..120)).prop_map(|(source, numbers)| Step::Scatter { source, numbers }),
        3 => (source(), 0..3000_u32, 1..900_u32).prop_map(|(source, from, len)| Step::Drop { source, from, len }),
        1 => source().prop_map(|source| Step::Forget { source }),
        1 => Just(Step::Reopen),
        1 => Just(Step::Compact),
        3 => (1..40_usize).prop_map(|budget| Step::Check { budget }),
    ]
}

/// Keys of a source: short ones, long ones with much in common, or both.
fn key_of(source: usize, n: u32) -> RecordKey {
    match (source, n % 3) {
        (0, _) | (2, 0) => numbered(n),
        (1, _) => key(&format!("\"{}{n:05}\"", "prefix-".repeat(30))),
        _ => key(&format!(
            "[\"{n:04}\",\"{}\"]",
            "tail".repeat(usize::try_from(n % 90).unwrap())
        )),
    }
}

type Model = BTreeMap<RecordKey, Known>;

fn run(steps: Vec<Step>) {
    let home = tempfile::tempdir().unwrap();
    let mut store = open(home.path());
    let ids: Vec<_> = ["one", "two", "three"]
        .iter()
        .map(|name| store.source(name).unwrap())
        .collect();
    let mut models = vec![Model::new(); 3];
    for (round, step) in (1..).zip(steps) {
        let mut batch = Batch::new();
        let mut set = |store: &mut Store, source: usize, n: u32, on: bool| {
            let record = key_of(source, n);
            if on {
                let known = Known {
                    ordinal: store.next_ordinal(ids[source]).unwrap(),
                    ..known(n + round)
                };
                batch.set(ids[source], &record, known);
                models[source].insert(record, known);
            } else {
                batch.unset(ids[source], &record);
                models[source].remove(&record);
            }
        };
        match step {
            Step::Load { source, from, len } => {
                (from..from + len).for_each(|n| set(&mut store, source, n, true))
            }
            Step::Scatter { source, numbers } => {
                numbers
                    .into_iter()
                    .for_each(|n| set(&mut store, source, n, n % 2 == 0));
            }
            Step::Drop { source, from, len } => {
                (from..from + len).for_each(|n| set(&mut store, source, n, false))
            }
            Step::Forget { source } => {
                store.forget(ids[source]).unwrap();
                models[source].clear();
            }
            Step::Reopen => {
                drop(store);
                let (again, opening) = Store::open(home.path(), now()).unwrap();
                assert_eq!(opening, Opening::Opened);
                store = again;
            }
            Step::Compact => store.compact(|| ()).unwrap(),
            Step::Check { budget } => {
                if let Progress::Done(verdict) = store.verify(budget).unwrap() {
                    assert_eq!(verdict, Verdict::Sound);
                }
            }
        }
        batch.generation(u64::from(round));
        store.commit(batch).unwrap();
    }
    for (source, model) in ids.iter().zip(&models) {
        compare(&store, *source, model);
    }
    // The scan that was under way while all that was committed, then a whole one.
    let verdict = loop {
        if let Progress::Done(verdict) = store.verify(7).unwrap() {
            break verdict;
        }
    };
    assert_eq!(verdict, Verdict::Sound);
    assert_sound(&mut store);
    assert_bounded(&store);
    assert_eq!(store.tree.blobs().unwrap(), 0);
}

fn compare(store: &Store, source: SourceId, model: &Model) {
    assert_eq!(store.count(source), u64::try_from(model.len()).unwrap());
    let have: Vec<_> = store.records(source, None).map(Result::unwrap).collect();
    assert!(have.is_sorted_by(|a, b| keys::stored(&a.0) < keys::stored(&b.0)));
    assert_eq!(have.iter().cloned().collect::<Model>(), *model);
    if let Some((middle, _)) = have.get(have.len() / 2) {
        let rest: Vec<_> = store
            .records(source, Some(middle))
            .map(Result::unwrap)
            .collect();
        assert_eq!(rest, have[have.len() / 2 + 1..]);
    }
    for n in (0..3000).chain((0..3000).rev().step_by(7)) {
        for number in 0..3 {
            let record = key_of(number, n);
            assert_eq!(
                store.find(source, &record).unwrap(),
                model.get(&record).copied()
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, max_shrink_iters: 40, ..ProptestConfig::default() })]
    #[test]
    fn it_does_what_a_map_does(steps in vec(any_step(), 1..14)) {
        run(steps);
    }
}

/// Sizes of a source's leaves, in order.
fn leaves(store: &Store, source: SourceId) -> Vec<usize> {
    let prefix = keys::leaf_prefix(source);
    let entries = store
        .tree
        .range(Bound::Included(&prefix[..]))
        .map(Result::unwrap);
    entries
        .take_while(|(key, _)| key.starts_with(&prefix))
        .map(|(_, value)| value.len())
        .collect()
}

#[test]
fn a_load_in_order_leaves_full_leaves() {
    let home = tempfile::tempdir().unwrap();
    let mut store = open(home.path());
    let source = store.source("parts").unwrap();
    for page in 0..20 {
        let batch = records(&mut store, source, page * 250..(page + 1) * 250);
        store.commit(batch).unwrap();
    }
    let sizes = leaves(&store, source);
    let (_, filled) = sizes.split_last().unwrap();
    assert!(
        filled.iter().all(|size| *size > leaf::FULL - 64),
        "{sizes:?}"
    );
}

#[test]
fn a_page_in_key_order_writes_each_leaf_once_and_in_one_part() {
    let home = tempfile::tempdir().unwrap();
    let mut store = open(home.path());
    let source = store.source("parts").unwrap();
    for page in 0..8 {
        let batch = records(&mut store, source, page * 250..(page + 1) * 250);
        assert_eq!(store.commit(batch).unwrap(), 1);
    }
    let before = store.tree.log_bytes();
    let mut batch = Batch::new();
    for n in 500..750 {
        batch.set(
            source,
            &numbered(n),
            Known {
                digest: Digest([7; 16]),
                ..known(n)
            },
        );
    }
    assert_eq!(store.commit(batch).unwrap(), 1);
    let log = store.tree.log_bytes() - before;
    assert!(log < 64 * 1024, "{log} bytes for 250 records");
    assert_sound(&mut store);
}

#[test]
fn what_is_removed_in_order_leaves_few_leaves() {
    let home = tempfile::tempdir().unwrap();
    let mut store = open(home.path());
    let source = store.source("parts").unwrap();
    let batch = records(&mut store, source, 0..6000);
    store.commit(batch).unwrap();
    let before = leaves(&store, source).len();
    for page in 0..24 {
        let mut batch = Batch::new();
        (page * 250..(page + 1) * 250)
            .filter(|n| n % 10 != 0)
            .for_each(|n| batch.unset(source, &numbered(n)));
        store.commit(batch).unwrap();
    }
    let sizes = leaves(&store, source);
    assert!(
        sizes.len() * 5 < before,
        "{before} leaves became {}: {sizes:?}",
        sizes.len()
    );
    assert_eq!(store.count(source), 600);
    assert_sound(&mut store);
}

#[test]
fn ordinals_are_never_given_out_twice() {
    let home = tempfile::tempdir().unwrap();
    let mut store = open(home.path());
    let source = store.source("parts").unwrap();
    let other = store.source("others").unwrap();
    let batch = records(&mut store, source, 0..100);
    store.commit(batch).unwrap();
    let mut batch = Batch::new();
    (0..100).for_each(|n| batch.unset(source, &numbered(n)));
    store.commit(batch).unwrap();
    let next = store.ordinals(source);
    assert!(next >= 100);
    drop(store);

    let mut store = open(home.path());
    assert_eq!(store.next_ordinal(source).unwrap(), next);
    let batch = records(&mut store, source, [next]);
    store.commit(batch).unwrap();
    let next = store.ordinals(source);
    store.forget(source).unwrap();
    store.compact(|| ()).unwrap();
    drop(store);

    let mut store = open(home.path());
    assert_eq!(store.source("parts").unwrap(), source);
    assert_eq!(store.next_ordinal(source).unwrap(), next);
    assert_eq!(
        store.next_ordinal(other).unwrap(),
        0,
        "each source counts for itself"
    );
}

#[test]
fn an_ordinal_that_was_not_given_out_is_refused_before_anything_is_written() {
    let home = tempfile::tempdir().unwrap();
    let mut store = open(home.path());
    let source = store.source("parts").unwrap();
    let mut batch = Batch::new();
    batch.set(source, &numbered(1), known(1));
    assert!(matches!(
        store.commit(batch),
        Err(StoreError::Unknown { .. })
    ));
    let batch = records(&mut store, source, [1]);
    store.commit(batch).unwrap();
}

#[test]
fn small_entries_come_back_under_their_prefix() {
    let home = tempfile::tempdir().unwrap();
    let mut store = open(home.path());
    let (one, two) = (store.source("one").unwrap(), store.source("two").unwrap());
    let mut batch = Batch::new();
    for source in [one, two] {
        for page in 0..30_u8 {
            batch.put(Key::new(Tag::Memo, source, &[b'p', page]), &[page; 2000]);
        }
        batch.put(Key::new(Tag::Memo, source, b"q"), b"q");
        batch.put(Key::new(Tag::Counter, source, b"seen"), b"7");
        batch.put(Key::new(Tag::Position, source, b""), b"here");
    }
    assert!(
        store.commit(batch).unwrap() > 1,
        "120 kB are more than one part"
    );

    let mut batch = Batch::new();
    batch.put(Key::new(Tag::Memo, one, b"pz"), b"goes");
    batch.remove_prefix(Key::new(Tag::Memo, one, b"p"));
    batch.put(Key::new(Tag::Memo, one, b"pa"), b"stays");
    batch.remove(Key::new(Tag::Counter, two, b"seen"));
    store.commit(batch).unwrap();

    let prefix = Key::new(Tag::Memo, one, b"");
    let memos: Vec<_> = store.scan(&prefix).map(Result::unwrap).collect();
    assert_eq!(
        memos,
        [
            (b"pa".to_vec(), b"stays".to_vec()),
            (b"q".to_vec(), b"q".to_vec())
        ]
    );
    assert_eq!(store.scan(&Key::new(Tag::Memo, two, b"p")).count(), 30);
    assert_eq!(
        store
            .get(&Key::new(Tag::Counter, one, b"seen"))
            .unwrap()
            .unwrap(),
        b"7"
    );
    assert_eq!(
        store.get(&Key::new(Tag::Counter, two, b"seen")).unwrap(),
        None
    );
    assert_eq!(
        store.scan(&Key::new(Tag::Counter, one, b"")).count(),
        1,
        "our own entries are not among them"
    );
    assert_sound(&mut store);
}

#[test]
fn what_does_not_fit_is_refused_before_anything_is_written() {
    let home = tempfile::tempdir().unwrap();
    let mut store = open(home.path());
    let source = store.source("parts").unwrap();
    for (rest, value) in [
        (vec![1; MAX_REST + 1], vec![]),
        (vec![1; MAX_REST], vec![0; MAX_VALUE]),
    ] {
        let mut batch = records(&mut store, source, 0..10);
        batch.put(Key::new(Tag::Memo, source, &rest), &value);
        batch.generation(3);
        assert!(matches!(
            store.commit(batch),
            Err(StoreError::TooLarge { .. })
        ));
    }
    assert_eq!((store.generation(), store.count(source)), (0, 0));
    let mut batch = Batch::new();
    batch.put(
        Key::new(Tag::Memo, source, &[1; MAX_REST]),
        &[0; MAX_VALUE - 1],
    );
    store.commit(batch).unwrap();
    assert_eq!(store.tree.blobs().unwrap(), 0);
}

#[test]
fn a_batch_that_changes_nothing_writes_nothing() {
    let home = tempfile::tempdir().unwrap();
    let mut store = open(home.path());
    let source = store.source("parts").unwrap();
    let batch = records(&mut store, source, 0..500);
    store.commit(batch).unwrap();
    let before = store.tree.log_bytes();
    let batch = records(&mut store, source, 0..500);
    assert_eq!(store.commit(batch).unwrap(), 0);
    assert_eq!(store.commit(Batch::new()).unwrap(), 0);
    assert_eq!(store.tree.log_bytes(), before);
}
