//! Promise: a disk that is full, read-only, damaged, or touched by hand costs no data: a clear error that says where and
//! what to do, damaged things kept aside with a date, and the next sync ends in the same data.
//!
//! Some of it needs root (a small tmpfs); what is left out without it is printed. More sizes of a full disk, more places of
//! damage: `GLEANER_DISK=30 cargo test --test disk -- --nocapture`.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

mod support;

use std::fs;
use std::os::unix::fs::FileExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};

use rustix::process::Signal;
use support::device::{Device, Ended, until};
use support::mount::Mount;
use support::parts::{Parts, same};

const COLUMNS: &str = "columns = { name = \"/name\", rev = \"/rev\" }";

/// How many sizes and places are tried.
fn tries(default: u64) -> u64 {
    std::env::var("GLEANER_DISK").map_or(default, |text| text.parse().unwrap())
}

fn device(parts: &Parts) -> Device {
    let device = Device::new();
    device.configure(&parts.source("kept", COLUMNS));
    device
}

/// The table is what upstream has.
fn is_equal(device: &Device, parts: &Parts) -> Result<(), String> {
    let rows = device
        .rows("kept", &[])
        .map_err(|error| error.to_string())?;
    same(&rows, &parts.expected())
}

fn assert_equal(device: &Device, parts: &Parts, story: &str) {
    if let Err(wrong) = is_equal(device, parts) {
        panic!("{wrong}\n{story}");
    }
    assert_eq!(device.integrity(), "ok", "{story}");
}

fn assert_says(ended: &Ended, code: i32, words: &[&str]) {
    let said = ended.said();
    assert_eq!(ended.code(), Some(code), "{said}");
    for word in words {
        assert!(
            said.to_lowercase().contains(&word.to_lowercase()),
            "{word:?} is not in:\n{said}"
        );
    }
    assert!(!said.contains("panicked"), "{said}");
}

fn assert_asks_for_room(ended: &Ended) {
    let said = ended.said();
    assert!(
        said.contains("make room") || said.contains("free some"),
        "{said}"
    );
}

#[test]
fn a_disk_that_fills_up_in_the_middle_of_a_sync() {
    let Some(mount) = Mount::of(48 << 20, "a full disk") else {
        return;
    };
    let mut parts = Parts::start(600, 270);
    let device = Device::with_state(&mount.state());
    device.configure(&parts.source("kept", COLUMNS));
    device.sync();
    let (sizes, mut full) = (tries(8), 0);
    for size in 0..sizes {
        parts.rewrite_all();
        let left = size * 400_000 / sizes;
        mount.leave(left);
        let ended = device.run(&["sync", "--json"]);
        let story = format!("{left} bytes left: {}", ended.said());
        if ended.code() != Some(0) {
            full += 1;
            let state = device.state().to_str().unwrap();
            assert_says(&ended, 74, &[state]);
            assert_asks_for_room(&ended);
        }
        assert_eq!(device.integrity(), "ok", "{story}");
        let rows = device.rows("kept", &[]).unwrap();
        assert_eq!(parts.half_row(&rows), None, "{story}");
        assert_eq!(rows.len(), 600, "{story}");
        mount.make_room();
        let again = device.run(&["sync", "--json"]);
        assert_eq!(again.code(), Some(0), "{story}\nthen {}", again.said());
        assert_equal(&device, &parts, &story);
        assert_eq!(
            device.kept_aside(),
            [""; 0],
            "a full disk is no damage: {story}"
        );
    }
    println!("disk: {full} of {sizes} syncs found the disk full");
    assert!(full > 0, "the disk was never full");
}

#[test]
fn a_disk_that_is_full_at_the_first_start() {
    let Some(mount) = Mount::of(8 << 20, "a full disk at the first start") else {
        return;
    };
    let parts = Parts::start(300, 270);
    for left in (0..tries(6)).map(|n| n * 150_000) {
        let device = Device::with_state(&mount.state());
        device.configure(&parts.source("kept", COLUMNS));
        mount.leave(left);
        let ended = device.run(&["sync", "--json"]);
        if ended.code() != Some(0) {
            assert_says(&ended, 74, &[device.state().to_str().unwrap()]);
            assert_asks_for_room(&ended);
        }
        mount.make_room();
        let again = device.run(&["sync", "--json"]);
        let story = format!("{left} bytes left: {}\nthen {}", ended.said(), again.said());
        assert_eq!(again.code(), Some(0), "{story}");
        assert_equal(&device, &parts, &story);
        assert_eq!(device.kept_aside(), [""; 0], "{story}");
        fs::remove_dir_all(device.state()).unwrap();
    }
}

#[test]
fn a_running_agent_recovers_by_itself_when_there_is_room_again() {
    let Some(mount) = Mount::of(32 << 20, "a running agent on a full disk") else {
        return;
    };
    let mut parts = Parts::start(600, 270);
    let device = Device::with_state(&mount.state());
    device.configure(&parts.source("kept", &format!("every = \"1s\"\n{COLUMNS}")));
    let running = device.start(&[], &["run"]);
    running.until("first pass", || is_equal(&device, &parts).is_ok());
    mount.leave(0);
    parts.rewrite_all();
    running.until("it says so", || running.log().contains("room"));
    let status = device.run(&["status"]);
    assert_says(&status, 0, &["local"]);
    mount.make_room();
    running.until("it recovers", || is_equal(&device, &parts).is_ok());
    assert_eq!(device.kept_aside(), [""; 0], "{}", running.log());
    running.signal(Signal::TERM);
    assert_eq!(running.wait().code(), Some(0));
}

#[test]
fn a_read_only_file_system() {
    let Some(mount) = Mount::of(32 << 20, "a read-only file system") else {
        return;
    };
    let mut parts = Parts::start(300, 270);
    let device = Device::with_state(&mount.state());
    let every = format!("every = \"1s\"\n{COLUMNS}");
    device.configure(&parts.source("kept", &every));
    mount.writable(false);
    let state = mount.path().to_str().unwrap();
    assert_says(&device.run(&["sync"]), 74, &[state, "read-only"]);
    mount.writable(true);
    device.sync();
    assert_equal(&device, &parts, "first");
    let before = device.rows("kept", &[]).unwrap();
    parts.rewrite_all();
    mount.writable(false);
    assert_says(&device.run(&["sync"]), 74, &[state, "read-only"]);
    // An agent that stays goes on by itself when the cause is gone.
    let running = device.start(&[], &["run"]);
    running.until("it says so", || {
        running.log().to_lowercase().contains("read-only")
    });
    mount.writable(true);
    assert!(
        device.rows("kept", &[]).unwrap() == before,
        "data is as it was"
    );
    running.until("it recovers", || is_equal(&device, &parts).is_ok());
    assert_eq!(device.kept_aside(), [""; 0]);
}

#[test]
fn paths_that_are_something_else() {
    let parts = Parts::start(30, 270);
    let device = Device::new();
    device.configure(&parts.source("kept", COLUMNS));
    let state = device.state().to_owned();
    fs::write(&state, "x").unwrap();
    assert_says(
        &device.run(&["sync"]),
        74,
        &[state.to_str().unwrap(), "not a directory"],
    );
    fs::remove_file(&state).unwrap();
    fs::create_dir(&state).unwrap();
    for name in ["lock", "data.db"] {
        let path = state.join(name);
        fs::create_dir(&path).unwrap();
        assert_says(
            &device.run(&["sync"]),
            74,
            &[path.to_str().unwrap(), "directory"],
        );
        fs::remove_dir(&path).unwrap();
    }
    fs::remove_dir_all(state.join("state")).unwrap_or(());
    fs::write(state.join("state"), "x").unwrap();
    assert_says(
        &device.run(&["sync"]),
        74,
        &[state.join("state").to_str().unwrap(), "not a directory"],
    );
    fs::remove_file(state.join("state")).unwrap();
    device.sync();
    assert_equal(&device, &parts, "in the end");
    // Parents that are not there are made.
    let deep = Device::with_state(&device.beside("a/b/state"));
    deep.configure(&parts.source("kept", COLUMNS));
    deep.sync();
    assert_equal(&deep, &parts, "deep");
}

/// Does something to a copy of a good state, syncs until that succeeds (at most twice), and compares.
struct Damage {
    device: Device,
    base: PathBuf,
    parts: Parts,
}

impl Damage {
    fn new(count: u64) -> Self {
        let parts = Parts::start(count, 270);
        let device = device(&parts);
        device.sync();
        device.sync();
        let base = device.beside("base");
        copy_all(device.state(), &base);
        Self {
            device,
            base,
            parts,
        }
    }

    /// How the syncs ended, and what was kept aside.
    fn trial(&self, name: &str, harm: impl FnOnce(&Path)) -> (String, Vec<String>) {
        copy_all(&self.base, self.device.state());
        harm(self.device.state());
        let mut said = String::new();
        let mut tries = 0;
        loop {
            let ended = self.device.run(&["sync", "--json"]);
            tries += 1;
            said.push_str(&format!("{name}, try {tries}: {}", ended.said()));
            assert!(!said.contains("panicked"), "{said}");
            if ended.code() == Some(0) {
                break;
            }
            assert!(ended.code() == Some(74) && tries < 2, "{said}");
        }
        if self.device.integrity() != "ok" {
            // Nobody has read the damaged page yet. Who reads all of them finds it.
            let ended = self.device.run(&["replay", "kept", "--json"]);
            said.push_str(&format!("{name}, replay: {}", ended.said()));
            self.device.sync();
        }
        assert_equal(&self.device, &self.parts, &said);
        (said, self.device.kept_aside())
    }
}

fn copy_all(from: &Path, to: &Path) {
    if to.exists() {
        fs::remove_dir_all(to).unwrap();
    }
    support::device::system("cp", &[Path::new("-a"), from, to]);
}

fn flip(path: &Path, at: u64, bytes: usize) {
    let file = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .unwrap();
    let mut buffer = vec![0; bytes];
    file.read_exact_at(&mut buffer, at).unwrap();
    buffer.iter_mut().for_each(|byte| *byte ^= 0xff);
    file.write_all_at(&buffer, at).unwrap();
}

fn shorten(path: &Path, share: f64) {
    let length = fs::metadata(path).unwrap().len();
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a share of a small file"
    )]
    let short = (length as f64 * share) as u64;
    fs::OpenOptions::new()
        .write(true)
        .open(path)
        .unwrap()
        .set_len(short)
        .unwrap();
}

/// All changes in the file itself, none in its log.
fn checkpoint(state: &Path) {
    let db = rusqlite::Connection::open(state.join("data.db")).unwrap();
    db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
        .unwrap();
}

#[test]
fn a_table_file_that_is_damaged_is_kept_aside_and_filled_again() {
    let damage = Damage::new(600);
    let aside = |name: &str, harm: &dyn Fn(&Path)| {
        let (said, kept) = damage.trial(name, |state| {
            checkpoint(state);
            harm(&state.join("data.db"));
        });
        assert!(
            kept.iter()
                .any(|name| name.starts_with("data.db.damaged-20")),
            "{kept:?}\n{said}"
        );
        assert!(said.contains("it is kept as"), "{said}");
    };
    aside("text", &|db| {
        fs::write(db, "this is no database\n".repeat(2000)).unwrap()
    });
    aside("half", &|db| shorten(db, 0.5));
    aside("flipped head", &|db| flip(db, 0, 100));
    let pages = fs::metadata(damage.base.join("data.db")).unwrap().len() / 4096;
    for page in (2..pages.max(3)).step_by(usize::try_from((pages / tries(4)).max(1)).unwrap()) {
        // The head of a page: what SQLite needs to read it.
        aside(&format!("flipped page {page} of {pages}"), &|db| {
            flip(db, page * 4096, 12)
        });
    }
    let (_, kept) = damage.trial("empty", |state| {
        for name in ["data.db-wal", "data.db-shm"] {
            fs::remove_file(state.join(name)).unwrap();
        }
        fs::write(state.join("data.db"), "").unwrap();
    });
    assert_eq!(kept, [""; 0], "an empty file is a new one");
}

#[test]
fn a_store_that_is_damaged_is_kept_aside_and_learnt_again() {
    let damage = Damage::new(600);
    let mut files = Vec::new();
    walk(&damage.base.join("state"), &mut files);
    assert!(files.len() >= 4, "{files:?}");
    for file in files {
        let file = file.strip_prefix(&damage.base).unwrap();
        let length = fs::metadata(damage.base.join(file)).unwrap().len();
        let name = |what: &str| format!("{} {what}", file.display());
        damage.trial(&name("missing"), |state| {
            fs::remove_file(state.join(file)).unwrap()
        });
        if length == 0 {
            continue;
        }
        damage.trial(&name("half"), |state| shorten(&state.join(file), 0.5));
        damage.trial(&name("empty"), |state| shorten(&state.join(file), 0.0));
        damage.trial(&name("zeros"), |state| {
            fs::write(state.join(file), vec![0; usize::try_from(length).unwrap()]).unwrap();
        });
        for n in 0..tries(4) {
            let at = (length - 1) * (2 * n + 1) / (2 * tries(4));
            damage.trial(&name(&format!("flipped at {at} of {length}")), |state| {
                flip(&state.join(file), at, 1)
            });
        }
    }
    let (said, kept) = damage.trial("db gone bad", |state| {
        let store = fs::read_to_string(state.join("state/CURRENT")).unwrap();
        fs::write(
            state.join("state").join(store.trim()).join("db"),
            "no log\n".repeat(9000),
        )
        .unwrap();
    });
    assert!(
        kept.iter().any(|name| name.starts_with("damaged-20")),
        "{kept:?}\n{said}"
    );
    assert!(said.contains("kept as"), "{said}");
}

fn walk(dir: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            walk(&path, files);
        } else if path.file_name().unwrap() != "LOCK" {
            files.push(path);
        }
    }
}

#[test]
fn files_that_somebody_deleted_or_brought_back() {
    let mut parts = Parts::start(300, 270);
    let device = device(&parts);
    device.sync();
    let older = device.beside("older");
    copy_all(device.state(), &older);
    // The older copy is some batches behind, and upstream does not have it any more.
    for _ in 0..3 {
        parts.rewrite_all();
        device.sync();
    }
    let newer = device.beside("newer");
    copy_all(device.state(), &newer);
    let databases = ["data.db", "data.db-wal", "data.db-shm"];
    let back = |state: &Path| {
        databases
            .iter()
            .for_each(|name| assert!(fs::copy(older.join(name), state.join(name)).is_ok()))
    };
    let sql = |state: &Path, sql: &str| {
        rusqlite::Connection::open(state.join("data.db"))
            .unwrap()
            .execute_batch(sql)
            .unwrap()
    };
    type Harm<'a> = &'a dyn Fn(&Path);
    let trials: [(&str, Harm<'_>); 9] = [
        ("table file deleted", &|state| {
            databases
                .iter()
                .for_each(|name| fs::remove_file(state.join(name)).unwrap())
        }),
        ("table file deleted, its log not", &|state| {
            fs::remove_file(state.join("data.db")).unwrap()
        }),
        ("table file from an older copy", &|state| back(state)),
        ("rows deleted", &|state| {
            sql(state, "DELETE FROM kept WHERE key % 7 = 3")
        }),
        ("table dropped", &|state| sql(state, "DROP TABLE kept")),
        ("store deleted", &|state| {
            fs::remove_dir_all(state.join("state")).unwrap()
        }),
        ("store from an older copy", &|state| {
            copy_all(&older.join("state"), &state.join("state"))
        }),
        ("store deleted, table file from an older copy", &|state| {
            fs::remove_dir_all(state.join("state")).unwrap();
            back(state);
        }),
        ("all from an older copy", &|state| copy_all(&older, state)),
    ];
    for (name, harm) in trials {
        copy_all(&newer, device.state());
        harm(device.state());
        let ended = device.run(&["sync", "--json"]);
        assert_eq!(ended.code(), Some(0), "{name}: {}", ended.said());
        assert_equal(&device, &parts, &format!("{name}: {}", ended.said()));
        assert_eq!(device.kept_aside(), [""; 0], "{name}");
    }
}

#[test]
fn two_agents_on_one_state_directory() {
    let mut parts = Parts::start(30, 270);
    let device = device(&parts);
    let running = device.start(&[], &["run"]);
    running.until("first pass", || is_equal(&device, &parts).is_ok());
    let pid = running.pid().as_raw_nonzero().to_string();
    assert_says(
        &device.run(&["run"]),
        75,
        &[device.state().to_str().unwrap(), &pid, "another gleaner"],
    );
    // A sync asks the one that runs.
    parts.rewrite_all();
    let reports = device.sync();
    assert_eq!(reports[0]["changed"], 30);
    assert_equal(&device, &parts, "over the control socket");
    // Without the socket it says why it cannot.
    fs::remove_file(device.control()).unwrap();
    assert_says(
        &device.run(&["sync"]),
        75,
        &[&pid, device.control().to_str().unwrap()],
    );
    // What a dead one leaves is no obstacle.
    running.signal(Signal::KILL);
    assert_eq!(running.wait().status.signal(), Some(9));
    parts.rewrite_all();
    device.sync();
    assert_equal(&device, &parts, "after the death of the first");
}

#[test]
fn readers_and_writers_beside_us() {
    let mut parts = Parts::start(300, 270);
    let device = device(&parts);
    device.sync();
    // A reader in a long transaction sees what it saw, and holds nobody up.
    let reader = device.reader().unwrap();
    reader.execute_batch("BEGIN").unwrap();
    let revisions = || {
        reader
            .query_row("SELECT sum(rev) FROM kept", [], |row| row.get::<_, i64>(0))
            .unwrap()
    };
    let before = revisions();
    for _ in 0..3 {
        parts.rewrite_all();
        device.sync();
        assert_equal(&device, &parts, "beside a reader");
    }
    assert_eq!(revisions(), before);
    drop(reader);
    // A writer is waited for: with nothing to write it is not even noticed.
    let writer = rusqlite::Connection::open(device.state().join("data.db")).unwrap();
    writer.execute_batch("BEGIN IMMEDIATE").unwrap();
    device.sync();
    parts.rewrite_all();
    assert_says(
        &device.run(&["sync", "--json"]),
        74,
        &["data.db", "another program holds a write lock"],
    );
    let asked = parts.upstream.requests().len();
    let waiting = device.start(&[], &["sync", "--json"]);
    until("it asks upstream", || {
        parts.upstream.requests().len() > asked
    });
    writer.execute_batch("COMMIT").unwrap();
    let ended = waiting.wait();
    assert_eq!(ended.code(), Some(0), "{}", ended.said());
    assert_equal(&device, &parts, "after a writer");
    // Also where a table has to be made or changed.
    writer.execute_batch("BEGIN IMMEDIATE").unwrap();
    device.configure(&parts.source(
        "kept",
        "columns = { name = \"/name\", rev = \"/rev\", pad = \"/pad\" }",
    ));
    assert_says(
        &device.run(&["sync"]),
        74,
        &["data.db", "another program holds a write lock"],
    );
    writer.execute_batch("COMMIT").unwrap();
    device.sync();
    assert_equal(&device, &parts, "after a writer was there at the start");
}
