//! Opening the state store: what a cut, a bad card or a wrong mount makes of it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that can't go on fails"
)]

use std::fs;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use gleaner::clock::Timestamp;
use gleaner::record::{Digest, Fingerprint, Known, RecordKey};
use gleaner::store::{Batch, Key, Opening, Progress, SourceId, Store, StoreError, Tag, Verdict};

fn now() -> Timestamp {
    "2026-05-01T23:59:59Z".parse().unwrap()
}

fn key(n: u32) -> RecordKey {
    RecordKey::from_canonical(&format!("\"part-{n:09}\"")).unwrap()
}

fn known(n: u32) -> Known {
    let byte = u8::try_from(n % 255).unwrap();
    Known {
        digest: Digest([byte; 16]),
        fingerprint: Fingerprint(u64::from(n)),
        ordinal: n,
        updated_ms: Some(i64::from(n)),
    }
}

/// Records that each generation adds, in a commit of one part.
const STEP: u32 = 150;

/// Generation g holds the records below g × [`STEP`].
fn grow(store: &mut Store, source: SourceId, generations: u64) {
    for _ in 0..generations {
        let generation = store.generation() + 1;
        let mut batch = Batch::new();
        for _ in 0..STEP {
            let n = store.next_ordinal(source).unwrap();
            batch.set(source, &key(n), known(n));
        }
        batch.put(
            Key::new(Tag::Position, source, b""),
            &generation.to_be_bytes(),
        );
        batch.generation(generation);
        assert_eq!(store.commit(batch).unwrap(), 1);
    }
}

fn filled(home: &Path, generations: u64) {
    let (mut store, opening) = Store::open(home, now()).unwrap();
    assert_eq!(opening, Opening::Created);
    let source = store.source("parts").unwrap();
    grow(&mut store, source, generations);
}

fn verdict(store: &mut Store) -> Verdict {
    loop {
        if let Progress::Done(verdict) = store.verify(20).unwrap() {
            return verdict;
        }
    }
}

/// What a sound store of generation g must hold, whichever g that is.
fn assert_whole(store: &mut Store) {
    let source = store.source("parts").unwrap();
    let rows = u32::try_from(store.generation()).unwrap() * STEP;
    assert_eq!(store.count(source), u64::from(rows));
    for n in 0..rows {
        assert_eq!(store.find(source, &key(n)).unwrap(), Some(known(n)));
    }
    if rows > 0 {
        let position = store.get(&Key::new(Tag::Position, source, b"")).unwrap();
        assert_eq!(position.unwrap(), store.generation().to_be_bytes());
    }
}

fn copy_tree(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_tree(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

fn names(home: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(home)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn active(home: &Path) -> PathBuf {
    home.join(fs::read_to_string(home.join("CURRENT")).unwrap().trim_end())
}

#[test]
fn what_was_committed_is_there_after_reopening() {
    let home = tempfile::tempdir().unwrap();
    let state = home.path().join("var/lib/state");
    filled(&state, 5);
    for _ in 0..3 {
        let (mut store, opening) = Store::open(&state, now()).unwrap();
        assert_eq!(opening, Opening::Opened);
        assert_whole(&mut store);
        let source = store.source("parts").unwrap();
        grow(&mut store, source, 2);
    }
    let (mut store, _) = Store::open(&state, now()).unwrap();
    assert_eq!(store.generation(), 11);
    assert_eq!(verdict(&mut store), Verdict::Sound);
    assert_eq!(names(&state), ["CURRENT", "LOCK", "store-000001"]);
}

#[test]
fn each_store_has_a_salt_of_its_own_that_stays() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    filled(one.path(), 0);
    filled(two.path(), 0);
    let salt = |home: &Path| *Store::open(home, now()).unwrap().0.salt();
    assert_eq!(salt(one.path()), salt(one.path()));
    assert_ne!(salt(one.path()), salt(two.path()));
}

#[test]
fn a_second_opening_is_refused_while_the_first_lives() {
    let home = tempfile::tempdir().unwrap();
    let (store, _) = Store::open(home.path(), now()).unwrap();
    let error = Store::open(home.path(), now()).unwrap_err();
    assert!(matches!(error, StoreError::Locked { .. }), "{error:?}");
    assert!(
        error
            .to_string()
            .contains("another gleaner uses this state directory"),
        "{error}"
    );
    drop(store);
    assert_eq!(Store::open(home.path(), now()).unwrap().1, Opening::Opened);
}

/// sled's own lock alone, as a sled holds it that panicked in this process or runs in another program.
#[test]
fn a_database_that_sled_has_locked_is_no_damage() {
    let home = tempfile::tempdir().unwrap();
    filled(home.path(), 1);
    let sled = sled::Config::new()
        .path(active(home.path()))
        .segment_size(256 * 1024)
        .flush_every_ms(None)
        .open()
        .unwrap();
    let error = Store::open(home.path(), now()).unwrap_err();
    assert!(matches!(error, StoreError::Locked { .. }), "{error:?}");
    drop(sled);
    assert_eq!(Store::open(home.path(), now()).unwrap().1, Opening::Opened);
}

/// Run by the test below as a user without rights.
#[test]
#[ignore = "needs the state directory of the test that runs it"]
fn opens_without_rights() {
    let Some(home) = std::env::var_os("STORE_WITHOUT_RIGHTS") else {
        println!("left out: the test below runs this one");
        return;
    };
    match Store::open(Path::new(&home), now()) {
        Err(StoreError::Denied { path }) => println!("denied: {}", path.display()),
        other => panic!("{other:?}"),
    }
}

/// Neither a directory nor a database that may not be written is damage: the error says whose rights are missing, and
/// all stays where it is.
#[test]
fn without_rights_nothing_is_put_aside() {
    let home = tempfile::tempdir().unwrap();
    let state = home.path().join("state");
    filled(&state, 2);
    let before = names(&state);
    // Where the user `nobody` can get at it.
    let program = home.path().join("test");
    fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let database = active(&state).join("db");
    let root = rustix::process::geteuid().is_root();
    let run = || {
        let mut child = Command::new(&program);
        child
            .args([
                "--ignored",
                "--exact",
                "opens_without_rights",
                "--nocapture",
            ])
            .env("STORE_WITHOUT_RIGHTS", &state);
        if root {
            child.uid(65534).gid(65534);
        }
        let output = child.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{text}");
        text
    };
    let mode =
        |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();

    mode(&state.join("LOCK"), 0o444);
    assert!(run().contains("LOCK"));

    mode(&state.join("LOCK"), 0o666);
    mode(&database, 0o444);
    assert!(run().contains("denied"));

    mode(&state.join("LOCK"), 0o644);
    mode(&database, 0o644);
    assert_eq!(names(&state), before);
    let (mut store, opening) = Store::open(&state, now()).unwrap();
    assert_eq!(opening, Opening::Opened);
    assert_whole(&mut store);
}

#[test]
fn a_place_that_cannot_hold_a_state_directory_is_an_error_that_names_it() {
    for place in [
        "/sys/gleaner-state",
        "/proc/gleaner-state",
        "/dev/null/state",
    ] {
        let error = Store::open(Path::new(place), now()).unwrap_err();
        assert!(!error.is_damage(), "{error:?}");
        assert!(error.to_string().contains(place), "{error}");
    }
}

#[test]
#[ignore = "needs root: mounts a small file system"]
fn on_a_full_disk_nothing_is_put_aside() {
    let home = tempfile::tempdir().unwrap();
    let mount = |args: &[&str]| {
        assert!(
            Command::new("mount")
                .args(args)
                .arg(home.path())
                .status()
                .unwrap()
                .success()
        )
    };
    mount(&["-t", "tmpfs", "-o", "size=6m", "tmpfs"]);
    let state = home.path().join("state");
    filled(&state, 30);
    let before = names(&state);
    let mut ballast = fs::File::create(home.path().join("ballast")).unwrap();
    while ballast.write_all(&[1; 4096]).is_ok() {}
    for _ in 0..2 {
        let error = Store::open(&state, now()).map(|(_, opening)| opening);
        assert!(matches!(error, Err(StoreError::Full { .. })), "{error:?}");
        assert_eq!(names(&state), before);
    }
    drop(ballast);
    fs::remove_file(home.path().join("ballast")).unwrap();
    let (mut store, opening) = Store::open(&state, now()).unwrap();
    assert_eq!(opening, Opening::Opened);
    assert_whole(&mut store);

    // Full while it runs: the commit fails, and the store opens again at what was committed.
    let source = store.source("parts").unwrap();
    let mut ballast = fs::File::create(home.path().join("ballast")).unwrap();
    while ballast.write_all(&[1; 4096]).is_ok() {}
    let failed = (0..100).find_map(|round: u32| {
        let mut batch = Batch::new();
        batch.put(
            Key::new(Tag::Memo, source, &round.to_be_bytes()),
            &[7; 2500],
        );
        store.commit(batch).err()
    });
    assert!(
        matches!(failed, Some(StoreError::Full { .. })),
        "{failed:?}"
    );
    assert!(matches!(
        store.commit({
            let mut batch = Batch::new();
            batch.generation(9);
            batch
        }),
        Err(StoreError::Poisoned { .. })
    ));
    drop((store, ballast));
    fs::remove_file(home.path().join("ballast")).unwrap();
    let (mut store, opening) = Store::open(&state, now()).unwrap();
    assert_eq!(
        (opening, store.generation(), verdict(&mut store)),
        (Opening::Opened, 30, Verdict::Sound)
    );
    assert_whole(&mut store);
    drop(store);
    fs::remove_dir_all(&state).unwrap();
    assert!(
        Command::new("mount")
            .args(["-o", "remount,ro"])
            .arg(home.path())
            .status()
            .unwrap()
            .success()
    );
    assert!(matches!(
        Store::open(home.path(), now()),
        Err(StoreError::ReadOnly { .. })
    ));
    assert!(
        Command::new("umount")
            .arg(home.path())
            .status()
            .unwrap()
            .success()
    );
}

/// sled #1527, #1533: alone it makes sled fail for ever.
#[test]
fn a_snapshot_that_was_being_written_does_no_harm() {
    let home = tempfile::tempdir().unwrap();
    filled(home.path(), 3);
    let dir = active(home.path());
    let torn = dir.join("snap.00000000FFFFFFFF.generating");
    fs::write(&torn, b"").unwrap();
    let raw = sled::Config::new()
        .path(&dir)
        .segment_size(256 * 1024)
        .flush_every_ms(None)
        .open();
    assert!(raw.is_err(), "sled got over it by itself: this rail can go");
    let (mut store, opening) = Store::open(home.path(), now()).unwrap();
    assert_eq!(opening, Opening::Opened);
    assert_whole(&mut store);
    assert!(!torn.exists());
}

#[test]
fn broken_snapshots_and_settings_cost_nothing() {
    for (file, text) in [
        ("snap.", &b"garbage garbage"[..]),
        ("snap.", b""),
        ("conf", b"garbage"),
        ("conf", b""),
        (
            "conf",
            b"segment_size: 65536\nuse_compression: false\nversion: 0.34\nabcd",
        ),
    ] {
        let home = tempfile::tempdir().unwrap();
        filled(home.path(), 4);
        let dir = active(home.path());
        let mut hits = 0;
        for entry in fs::read_dir(&dir).unwrap().map(Result::unwrap) {
            if entry.file_name().to_string_lossy().starts_with(file) {
                fs::write(entry.path(), text).unwrap();
                hits += 1;
            }
        }
        if hits == 0 {
            fs::write(dir.join(format!("{file}00000000FFFFFFFF")), text).unwrap();
        }
        let (mut store, opening) = Store::open(home.path(), now()).unwrap();
        assert_eq!(opening, Opening::Opened, "{file} {text:?}");
        assert_eq!(store.generation(), 4);
        assert_eq!(verdict(&mut store), Verdict::Sound);
        assert_whole(&mut store);
        assert_eq!(names(home.path()).len(), 3, "{:?}", names(home.path()));
    }
}

#[test]
fn a_damaged_store_is_put_aside_under_its_date() {
    let home = tempfile::tempdir().unwrap();
    for aside in [
        "damaged-2026-05-01",
        "damaged-2026-05-01-2",
        "damaged-2026-05-01-3",
    ] {
        let (store, _) = Store::open(home.path(), now()).unwrap();
        drop(store);
        fs::write(active(home.path()).join("db"), vec![0; 300_000]).unwrap();
        let (mut store, opening) = Store::open(home.path(), now()).unwrap();
        let Opening::Rebuilt { aside: path, why } = opening else {
            panic!("{opening:?}")
        };
        assert_eq!(path, home.path().join(aside));
        assert!(!why.is_empty());
        assert_eq!(
            (store.generation(), verdict(&mut store)),
            (0, Verdict::Sound)
        );
    }
    assert_eq!(names(home.path()).len(), 6, "{:?}", names(home.path()));
}

#[test]
fn a_caller_that_finds_damage_puts_the_store_aside() {
    let home = tempfile::tempdir().unwrap();
    filled(home.path(), 3);
    let (store, _) = Store::open(home.path(), now()).unwrap();
    let salt = *store.salt();
    let (mut store, opening) = store.put_aside("data.db is ahead", now()).unwrap();
    let aside = home.path().join("damaged-2026-05-01");
    assert_eq!(
        opening,
        Opening::Rebuilt {
            aside: aside.clone(),
            why: "data.db is ahead".into()
        }
    );
    assert!(aside.join("db").is_file());
    assert_ne!(*store.salt(), salt);
    assert_eq!(store.generation(), 0);
    let source = store.source("parts").unwrap();
    grow(&mut store, source, 1);
    assert!(
        matches!(
            Store::open(home.path(), now()),
            Err(StoreError::Locked { .. })
        ),
        "it is still locked"
    );
    drop(store);
    assert_eq!(Store::open(home.path(), now()).unwrap().1, Opening::Opened);
}

/// A cut after the damaged store was renamed and before the new one was made.
#[test]
fn a_cut_while_putting_aside_is_told_again() {
    let home = tempfile::tempdir().unwrap();
    filled(home.path(), 3);
    let aside = home.path().join("damaged-2026-05-01");
    fs::rename(active(home.path()), &aside).unwrap();
    let (store, opening) = Store::open(home.path(), now()).unwrap();
    assert!(matches!(opening, Opening::Rebuilt { aside: path, .. } if path == aside));
    assert_eq!(store.generation(), 0);
}

#[test]
fn a_lost_current_is_found_again() {
    for text in [
        None,
        Some(&b""[..]),
        Some(b"../../etc"),
        Some(b"\xFF\xFE"),
        Some(b"store-1"),
    ] {
        let home = tempfile::tempdir().unwrap();
        filled(home.path(), 3);
        let current = home.path().join("CURRENT");
        match text {
            Some(text) => fs::write(&current, text).unwrap(),
            None => fs::remove_file(&current).unwrap(),
        }
        let (mut store, opening) = Store::open(home.path(), now()).unwrap();
        assert_eq!(opening, Opening::Opened);
        assert_whole(&mut store);
        assert_eq!(store.generation(), 3);
        assert_eq!(fs::read_to_string(current).unwrap(), "store-000001\n");
    }
}

/// Every cut of a rewrite: before `CURRENT` changes there is a copy that nobody knows, after it an old one.
#[test]
fn a_cut_rewrite_leaves_one_whole_store() {
    let home = tempfile::tempdir().unwrap();
    filled(home.path(), 10);
    let old = active(home.path());
    let spare = home.path().join("spare");
    copy_tree(&old, &spare);
    let (mut store, _) = Store::open(home.path(), now()).unwrap();
    let mut breaths = 0;
    store.compact(|| breaths += 1).unwrap();
    assert!(breaths > 0);
    assert_whole(&mut store);
    let source = store.source("parts").unwrap();
    grow(&mut store, source, 1);
    drop(store);
    let new = active(home.path());
    assert_ne!(new, old);
    assert!(!old.exists());

    // After CURRENT, before the old one is gone.
    copy_tree(&spare, &old);
    let (mut store, opening) = Store::open(home.path(), now()).unwrap();
    assert_eq!((opening, store.generation()), (Opening::Opened, 11));
    assert_whole(&mut store);
    drop(store);
    assert!(!old.exists());

    // Before CURRENT: an unfinished copy under the next number, and a CURRENT that was being written.
    let half = home.path().join("store-000003");
    fs::create_dir(&half).unwrap();
    fs::write(half.join("db"), b"half").unwrap();
    fs::write(home.path().join("CURRENT.tmp"), b"store-0000").unwrap();
    let (mut store, opening) = Store::open(home.path(), now()).unwrap();
    assert_eq!((opening, store.generation()), (Opening::Opened, 11));
    assert_whole(&mut store);
    assert!(!half.exists());
}

#[test]
fn a_store_that_grew_by_churn_is_rewritten_small() {
    let home = tempfile::tempdir().unwrap();
    let (mut store, _) = Store::open(home.path(), now()).unwrap();
    let source = store.source("parts").unwrap();
    grow(&mut store, source, 20);
    assert!(!store.wants_compaction().unwrap());
    let mut round = 0_u32;
    while !store.wants_compaction().unwrap() {
        round += 1;
        assert!(round < 3000, "{} bytes", store.size().unwrap());
        let mut batch = Batch::new();
        for page in 0..20_u32 {
            let name = [round, page].map(u32::to_be_bytes).concat();
            batch.put(Key::new(Tag::Memo, source, &name), &[7; 2500]);
        }
        store.commit(batch).unwrap();
        if round % 100 == 0 {
            let mut batch = Batch::new();
            batch.remove_prefix(Key::new(Tag::Memo, source, b""));
            store.commit(batch).unwrap();
        }
    }
    let mut batch = Batch::new();
    batch.remove_prefix(Key::new(Tag::Memo, source, b""));
    store.commit(batch).unwrap();
    let before = store.size().unwrap();
    store.compact(|| ()).unwrap();
    assert!(
        store.size().unwrap() * 4 < before,
        "{} of {before}",
        store.size().unwrap()
    );
    assert!(!store.wants_compaction().unwrap());
    assert_whole(&mut store);
}

#[derive(Debug, Clone, Copy)]
enum Harm {
    Cut,
    Flip,
    Zero,
}

fn harm(path: &Path, at: u64, kind: Harm) {
    let mut file = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .unwrap();
    let len = file.metadata().unwrap().len();
    match kind {
        Harm::Cut => file.set_len(at).unwrap(),
        Harm::Flip => {
            let mut byte = [0];
            file.seek(SeekFrom::Start(at)).unwrap();
            file.read_exact(&mut byte).unwrap();
            byte[0] ^= 1 << (at % 8);
            file.seek(SeekFrom::Start(at)).unwrap();
            file.write_all(&byte).unwrap();
        }
        Harm::Zero => {
            file.seek(SeekFrom::Start(at)).unwrap();
            file.write_all(&vec![0; usize::try_from((len - at).min(4096)).unwrap()])
                .unwrap();
        }
    }
}

/// Whatever a card does to a file: opening ends in a store, and a store whose own check passes holds exactly what one
/// of its generations held.
#[test]
fn harmed_files_end_in_a_sound_store_or_a_new_one() {
    let home = tempfile::tempdir().unwrap();
    let origin = home.path().join("origin");
    filled(&origin, 60);
    // Once more, so that there is a snapshot.
    drop(Store::open(&origin, now()).unwrap());
    let dir = active(&origin);
    let files: Vec<_> = fs::read_dir(&dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_file())
        .collect();
    assert!(files.iter().any(|path| {
        path.file_name()
            .unwrap()
            .to_string_lossy()
            .starts_with("snap.")
    }));
    let (mut opened, mut found, mut rebuilt, mut back) = (0, 0, 0, 0);
    for file in &files {
        let len = fs::metadata(file).unwrap().len();
        let trials = if file.ends_with("db") { 36 } else { 4 };
        for trial in 0..trials {
            for kind in [Harm::Cut, Harm::Flip, Harm::Zero] {
                // Spread over the file, off any boundary.
                let at = (len * trial / trials + trial * 97) % len;
                let state = home.path().join("trial");
                copy_tree(&origin, &state);
                harm(&active(&state).join(file.file_name().unwrap()), at, kind);
                let (mut store, opening) = Store::open(&state, now())
                    .unwrap_or_else(|error| panic!("{kind:?} of {file:?} at {at}: {error}"));
                match opening {
                    Opening::Created => {
                        panic!("{kind:?} of {file:?} at {at} made it forget that there was a store")
                    }
                    Opening::Rebuilt { .. } => rebuilt += 1,
                    Opening::Opened => match verdict(&mut store) {
                        Verdict::Sound => {
                            assert_whole(&mut store);
                            opened += 1;
                            back += usize::from(store.generation() < 60);
                        }
                        Verdict::Damaged { why } => {
                            found += 1;
                            store = store.put_aside(&why, now()).unwrap().0;
                        }
                    },
                }
                let source = store.source("parts").unwrap();
                grow(&mut store, source, 1);
                assert_eq!(verdict(&mut store), Verdict::Sound);
                assert_whole(&mut store);
                drop(store);
                fs::remove_dir_all(&state).unwrap();
            }
        }
    }
    println!(
        "{opened} sound ({back} of them at an older generation), {found} found by the own check, {rebuilt} rebuilt at once"
    );
    assert!(
        opened > 0 && found > 0 && rebuilt > 0,
        "the harm is too tame to show anything"
    );
}
