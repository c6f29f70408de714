//! Entries changed behind the store's back, newer versions, recorded crash states.

use std::fs;
use std::process::Command;

use super::*;
use crate::store::raw::Tree;

/// Writes past the sums.
fn tamper(store: &Store, change: impl FnOnce(&mut sled::Batch)) {
    let mut batch = sled::Batch::default();
    change(&mut batch);
    store.tree.write(batch).unwrap();
    store.nearby.borrow_mut().clear();
}

fn filled(home: &Path) -> (Store, SourceId) {
    let mut store = open(home);
    let source = store.source("parts").unwrap();
    let mut batch = records(&mut store, source, 0..2000);
    batch.put(Key::new(Tag::Memo, source, b"page"), b"memo");
    batch.generation(1);
    store.commit(batch).unwrap();
    (store, source)
}

fn all(store: &Store) -> Vec<(Vec<u8>, Vec<u8>)> {
    let entries = store.tree.range(Bound::Unbounded).map(Result::unwrap);
    entries
        .map(|(key, value)| (key.to_vec(), value.to_vec()))
        .collect()
}

#[test]
fn the_own_check_finds_any_entry_that_is_gone_or_other() {
    let home = tempfile::tempdir().unwrap();
    let (mut store, _) = filled(home.path());
    assert_sound(&mut store);
    for (key, value) in all(&store)
        .into_iter()
        .filter(|(key, _)| *key != keys::check())
    {
        tamper(&store, |batch| batch.remove(key.clone()));
        assert_ne!(verdict(&mut store), Verdict::Sound, "without {key:?}");
        for at in [0, value.len() / 2, value.len() - 1] {
            let mut other = value.clone();
            other[at] ^= 4;
            tamper(&store, |batch| batch.insert(key.clone(), other));
            let found = store.verify(usize::MAX);
            let newer = matches!(found, Err(StoreError::Newer { .. }));
            assert!(
                newer || matches!(found, Ok(Progress::Done(Verdict::Damaged { .. }))),
                "{key:?} flipped at {at}"
            );
        }
        tamper(&store, |batch| batch.insert(key, value));
    }
    tamper(&store, |batch| batch.insert(b"stray", b"1"));
    assert_ne!(verdict(&mut store), Verdict::Sound, "with a stray entry");
    tamper(&store, |batch| batch.remove(b"stray"));
    assert_sound(&mut store);
}

#[test]
fn damage_that_a_commit_overwrites_during_the_scan_is_still_found() {
    for budget in [1, 5, 12] {
        let home = tempfile::tempdir().unwrap();
        let (mut store, source) = filled(home.path());
        let (key, mut value) = all(&store)
            .into_iter()
            .find(|(key, _)| keys::leaf_source(key).is_some())
            .unwrap();
        let last = value.len() - 1;
        value[last] ^= 1;
        tamper(&store, |batch| batch.insert(key, value));
        assert_eq!(store.verify(budget).unwrap(), Progress::More);
        let mut batch = Batch::new();
        (0..200).for_each(|n| {
            batch.set(
                source,
                &numbered(n),
                Known {
                    digest: Digest::UNKNOWN,
                    ..known(n)
                },
            )
        });
        store.commit(batch).unwrap();
        let outcome = loop {
            if let Progress::Done(verdict) = store.verify(budget).unwrap() {
                break verdict;
            }
        };
        assert_ne!(outcome, Verdict::Sound);
    }
}

#[test]
fn a_scan_in_slices_holds_while_leaves_split_join_and_go() {
    let home = tempfile::tempdir().unwrap();
    let (mut store, source) = filled(home.path());
    for round in 0..60_u32 {
        if let Progress::Done(verdict) = store.verify(5).unwrap() {
            assert_eq!(verdict, Verdict::Sound);
        }
        let mut batch = records(
            &mut store,
            source,
            (0..40).map(|n| (n * 101 + round * 7) % 4000),
        );
        let from = round * 331 % 4000;
        (from..from + 200).for_each(|n| batch.unset(source, &numbered(n)));
        store.commit(batch).unwrap();
    }
    assert_sound(&mut store);
}

#[test]
fn a_row_count_that_disagrees_is_found() {
    let home = tempfile::tempdir().unwrap();
    let (mut store, source) = filled(home.path());
    store.sources.get_mut(&source.0).unwrap().rows += 1;
    let Verdict::Damaged { why } = verdict(&mut store) else {
        panic!("not found")
    };
    assert!(
        why.contains("parts has 2000 records instead of 2001"),
        "{why}"
    );
}

#[test]
fn a_newer_store_is_refused_and_left_alone() {
    let home = tempfile::tempdir().unwrap();
    let (store, _) = filled(home.path());
    tamper(&store, |batch| {
        batch.insert(keys::format(), &[ENTRY_VERSION, keys::FORMAT + 1])
    });
    let dir = store.tree.dir().to_path_buf();
    drop(store);
    let error = Store::open(home.path(), now()).unwrap_err();
    assert!(
        matches!(
            error,
            StoreError::Newer {
                found: 2,
                known: 1,
                ..
            }
        ),
        "{error}"
    );
    assert!(
        error.to_string().contains("a newer one wrote it"),
        "{error}"
    );
    assert!(dir.is_dir());
}

#[test]
fn a_newer_entry_is_no_damage() {
    let home = tempfile::tempdir().unwrap();
    let (store, source) = filled(home.path());
    let memo = Key::new(Tag::Memo, source, b"page");
    tamper(&store, |batch| batch.insert(memo.bytes(), &[9, 1, 2]));
    assert!(matches!(
        store.get(&memo),
        Err(StoreError::Newer {
            what: "a page memo",
            found: 9,
            known: 1
        })
    ));
    tamper(&store, |batch| batch.insert(memo.bytes(), &[]));
    assert!(store.get(&memo).unwrap_err().is_damage());
}

#[test]
fn a_store_whose_check_entry_is_broken_is_put_aside() {
    let home = tempfile::tempdir().unwrap();
    let (store, _) = filled(home.path());
    let mut check = store.check.encode();
    check[3] ^= 1;
    tamper(&store, |batch| batch.insert(keys::check(), check));
    drop(store);
    let (_, opening) = Store::open(home.path(), now()).unwrap();
    assert!(matches!(opening, Opening::Rebuilt { why, .. } if why.contains("check entry")));
}

#[test]
fn a_rewrite_refuses_to_hide_damage() {
    let home = tempfile::tempdir().unwrap();
    let (mut store, _) = filled(home.path());
    let (key, _) = all(&store).pop().unwrap();
    tamper(&store, |batch| batch.remove(key));
    let before = store.tree.dir().to_path_buf();
    assert!(store.compact(|| ()).unwrap_err().is_damage());
    assert_eq!(store.tree.dir(), before);
    assert!(!home.path().join("store-000002").exists());
}

/// The four recorded states, opened with the segment size that they were made with: each opens or is damage, and none
/// takes the process along.
#[test]
fn recorded_crash_states_open_or_are_damage() {
    let home = tempfile::tempdir().unwrap();
    let archive = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/sled-crash-states.tar.xz");
    let unpacked = Command::new("tar")
        .arg("-xJf")
        .arg(archive)
        .arg("-C")
        .arg(home.path())
        .status();
    assert!(
        unpacked
            .expect("tar and xz unpack the recorded states")
            .success()
    );
    let states = [
        ("stale_snap_generating", 64 * 1024),
        ("plain_flush", 64 * 1024),
        ("batch_over_one_segment", 64 * 1024),
        ("unsynced_blob", 8 * 1024),
    ];
    for (state, segment) in states {
        let dir = home.path().join(state);
        let outcome = Tree::open(&dir, segment).and_then(|tree| tree.all_entries());
        println!("{state}: {outcome:?}");
        match outcome {
            Ok(entries) => assert!(
                state != "stale_snap_generating" || entries > 0,
                "{state} opened empty"
            ),
            Err(error) => assert!(error.is_damage(), "{state}: {error}"),
        }
        assert!(!fs::read_dir(&dir).unwrap().any(|entry| {
            entry
                .unwrap()
                .file_name()
                .to_string_lossy()
                .ends_with(".generating")
        }));
    }
}

/// The same four in the place of a store of ours: put aside, with a new one in their place.
#[test]
fn recorded_crash_states_in_the_place_of_a_store_are_put_aside() {
    for state in [
        "stale_snap_generating",
        "plain_flush",
        "batch_over_one_segment",
        "unsynced_blob",
    ] {
        let home = tempfile::tempdir().unwrap();
        let archive =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/sled-crash-states.tar.xz");
        let unpacked = Command::new("tar")
            .arg("-xJf")
            .arg(archive)
            .arg("-C")
            .arg(home.path())
            .status();
        assert!(
            unpacked
                .expect("tar and xz unpack the recorded states")
                .success()
        );
        fs::rename(home.path().join(state), home.path().join("store-000001")).unwrap();
        fs::write(home.path().join("CURRENT"), "store-000001\n").unwrap();
        let (mut store, opening) = Store::open(home.path(), now()).unwrap();
        let Opening::Rebuilt { aside, why } = opening else {
            panic!("{state}: {opening:?}")
        };
        println!("{state}: {why}");
        assert_eq!(aside, home.path().join("damaged-2026-05-01"));
        assert!(aside.join("db").is_file());
        assert_sound(&mut store);
    }
}
