//! Opening: the directory, its lock, `CURRENT`, and what to do with a store that does not open.
//!
//! ```text
//! state/
//!   LOCK                    held while the store is open
//!   CURRENT                 the name of the store in use
//!   store-000001/           a sled database
//!   new/                    one that is being made
//!   damaged-2026-05-01/     one that was put aside, for who wants to look into it
//! ```
//!
//! A directory that `CURRENT` does not name is what a cut left of a creation or a rewrite, and goes.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::check::Check;
use super::error::StoreError;
use super::keys::{self, FORMAT};
use super::raw::{self, SEGMENT, Tree};
use super::{ENTRY_VERSION, Source, Store};
use crate::clock::Timestamp;

const CURRENT: &str = "CURRENT";
const CURRENT_TMP: &str = "CURRENT.tmp";
const NEW: &str = "new";

/// How the store came to be open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Opening {
    /// There was none; this one is new and empty.
    Created,
    /// It was there.
    Opened,
    /// It was damaged, or missing though it should be there. This one is new and empty, to be filled again.
    Rebuilt {
        /// Where the old one is, or would be.
        aside: PathBuf,
        /// What was wrong with it.
        why: String,
    },
}

impl Store {
    /// Opens the store below `home`, or creates one. A damaged one is tried once more without its snapshot, then put
    /// aside under the date of `now`, and a new one takes its place. This reads and writes disk, with several syncs.
    ///
    /// # Errors
    ///
    /// The surroundings ([`StoreError::Locked`], [`StoreError::ReadOnly`], [`StoreError::Denied`],
    /// [`StoreError::Full`], [`StoreError::Io`]) and [`StoreError::Newer`]; then nothing was put aside.
    pub fn open(home: &Path, now: Timestamp) -> Result<(Self, Opening), StoreError> {
        make_home(home)?;
        let lock = raw::patiently(|| lock(home))?;
        remove(&home.join(NEW))?;
        match read_current(home)? {
            Current::Named(name) => open_named(home, &name, lock, now),
            Current::Lost(why) => open_newest(home, lock, now, why),
        }
    }

    /// Closes a store that turned out to be damaged, puts it aside under the date of `now`, and makes a new one.
    ///
    /// # Errors
    ///
    /// Those of [`Store::open`].
    pub fn put_aside(self, why: &str, now: Timestamp) -> Result<(Self, Opening), StoreError> {
        let Self {
            tree, home, lock, ..
        } = self;
        let dir = tree.dir().to_path_buf();
        drop(tree);
        replace_damaged(&home, &dir, lock, why.to_owned(), now)
    }

    /// Bytes that the store takes on disk, those put aside left out.
    ///
    /// # Errors
    ///
    /// [`StoreError::Io`] and its like.
    pub fn size(&self) -> Result<u64, StoreError> {
        size(self.tree.dir())
    }

    pub(super) fn load(tree: Tree, home: &Path, lock: File) -> Result<Self, StoreError> {
        read_format(&tree)?;
        let salt = tree
            .get(&keys::salt())?
            .and_then(|value| value.get(1..)?.try_into().ok());
        let salt = salt.ok_or_else(|| StoreError::damaged("it has no salt"))?;
        let check = tree
            .get(&keys::check())?
            .ok_or_else(|| StoreError::damaged("it has no check entry"))?;
        Ok(Self {
            check: Check::decode(&check)?,
            sources: read_sources(&tree)?,
            tree,
            home: home.to_path_buf(),
            lock,
            salt,
            nearby: RefCell::default(),
            seen: RefCell::default(),
            scan: None,
            poisoned: None,
            rider: None,
        })
    }
}

fn read_format(tree: &Tree) -> Result<(), StoreError> {
    match tree.get(&keys::format())?.as_deref() {
        Some(&[ENTRY_VERSION, FORMAT]) => Ok(()),
        Some(&[ENTRY_VERSION, found]) if found > FORMAT => Err(StoreError::Newer {
            what: "the store",
            found,
            known: FORMAT,
        }),
        Some(&[found, ..]) if found > ENTRY_VERSION => Err(StoreError::Newer {
            what: "the store's format entry",
            found,
            known: ENTRY_VERSION,
        }),
        Some(_) => Err(StoreError::damaged("its format entry cannot be read")),
        // Written with the creation: whoever finds it missing has lost everything.
        None => Err(StoreError::damaged(
            "it is empty, without even a format entry",
        )),
    }
}

fn read_sources(tree: &Tree) -> Result<BTreeMap<u16, Source>, StoreError> {
    let mut sources = BTreeMap::new();
    for entry in tree.range(std::ops::Bound::Included(&keys::COUNTERS)) {
        let (key, name) = entry?;
        if !key.starts_with(&keys::COUNTERS) {
            break;
        }
        if let Some(id) = keys::parse_source_name(&key) {
            let rows = tree.get(&keys::source_rows(id))?;
            let source = Source::decode(&name, rows.as_deref());
            let source = source.ok_or_else(|| {
                StoreError::damaged(format!("source number {} cannot be read", id.0))
            })?;
            sources.insert(id.0, source);
        }
    }
    Ok(sources)
}

fn open_named(
    home: &Path,
    name: &str,
    lock: File,
    now: Timestamp,
) -> Result<(Store, Opening), StoreError> {
    let dir = home.join(name);
    if !dir.is_dir() {
        let why = format!(
            "{} names {name}, which is not there",
            home.join(CURRENT).display()
        );
        let aside = newest_damaged(home)?.unwrap_or(dir);
        return Ok((create(home, lock)?, Opening::Rebuilt { aside, why }));
    }
    let why = match open_tree(&dir, home, &lock) {
        Ok(store) => {
            remove_others(home, &dir)?;
            return Ok((store, Opening::Opened));
        }
        Err(StoreError::Damaged { why }) => why,
        Err(error) => return Err(error),
    };
    log::warn!(
        "{} does not open ({why}); trying a copy without its snapshot",
        dir.display()
    );
    match open_copy(home, &dir, &lock) {
        Ok(store) => Ok((store, Opening::Opened)),
        Err(StoreError::Damaged { .. }) => replace_damaged(home, &dir, lock, why, now),
        Err(error) => Err(error),
    }
}

fn open_tree(dir: &Path, home: &Path, lock: &File) -> Result<Store, StoreError> {
    let lock = lock
        .try_clone()
        .map_err(|error| StoreError::io(home, error))?;
    Store::load(Tree::open(dir, SEGMENT)?, home, lock)
}

/// Tries a copy of the log alone: sled then reads all of it. Not the same files, since a sled that panicked may have
/// kept its lock on them.
fn open_copy(home: &Path, dir: &Path, lock: &File) -> Result<Store, StoreError> {
    let copy = next_dir(home)?;
    let outcome = copy_log(dir, &copy).and_then(|()| open_tree(&copy, home, lock));
    match outcome {
        Ok(store) => {
            raw::sync(&copy.join("conf"))?;
            raw::sync(&copy)?;
            write_current(home, &copy)?;
            remove_others(home, &copy)?;
            Ok(store)
        }
        Err(error) => {
            remove(&copy)?;
            Err(error)
        }
    }
}

fn copy_log(dir: &Path, copy: &Path) -> Result<(), StoreError> {
    let log = dir.join("db");
    fs::create_dir(copy).map_err(|error| StoreError::io(copy, error))?;
    match fs::copy(&log, copy.join("db")) {
        Ok(_) => raw::sync(&copy.join("db")),
        Err(error) => match StoreError::io(copy, error) {
            // A log that can't be read through is no surrounding that a person could mend.
            StoreError::Io { source, .. } => {
                Err(StoreError::damaged(format!("{}: {source}", log.display())))
            }
            other => Err(other),
        },
    }
}

/// `CURRENT` is missing or says nothing: the newest store that opens whole is it. A rewrite removes the older one
/// before the next commit, and one that was cut lacks its format entry, so the newest is never behind.
fn open_newest(
    home: &Path,
    lock: File,
    now: Timestamp,
    why: String,
) -> Result<(Store, Opening), StoreError> {
    let mut dirs = store_dirs(home)?;
    dirs.reverse();
    let mut unopened = None;
    for dir in dirs {
        match open_tree(&dir, home, &lock) {
            Ok(store) => {
                write_current(home, &dir)?;
                remove_others(home, &dir)?;
                return Ok((store, Opening::Opened));
            }
            Err(StoreError::Damaged { why }) => {
                unopened.get_or_insert((dir, why));
            }
            Err(error) => return Err(error),
        }
    }
    match unopened {
        Some((dir, what)) => replace_damaged(home, &dir, lock, format!("{why}, and {what}"), now),
        None => Ok((create(home, lock)?, Opening::Created)),
    }
}

/// Renames the damaged store first and makes the new one then. After a cut in between, `CURRENT` names one that is not
/// there, and the next opening says so.
fn replace_damaged(
    home: &Path,
    dir: &Path,
    lock: File,
    why: String,
    now: Timestamp,
) -> Result<(Store, Opening), StoreError> {
    let aside = free_name(home, &format!("damaged-{}", now.strftime("%Y-%m-%d")));
    fs::rename(dir, &aside).map_err(|error| StoreError::io(dir, error))?;
    raw::sync(home)?;
    log::error!("put the damaged store aside as {}: {why}", aside.display());
    Ok((create(home, lock)?, Opening::Rebuilt { aside, why }))
}

/// Makes a new store, gives it its name, and then makes `CURRENT`: what has a name was once whole on disk, so that a
/// creation that was cut is not taken for damage.
fn create(home: &Path, lock: File) -> Result<Store, StoreError> {
    let new = home.join(NEW);
    remove(&new)?;
    let tree = Tree::open(&new, SEGMENT)?;
    let mut salt = [0; 16];
    let mut filled = 0;
    while let Some(rest) = salt.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        filled += rustix::rand::getrandom(rest, rustix::rand::GetRandomFlags::empty())
            .map_err(|error| StoreError::io(home, error.into()))?;
    }
    let entries = [
        (keys::format(), vec![ENTRY_VERSION, FORMAT]),
        (keys::salt(), [&[ENTRY_VERSION], &salt[..]].concat()),
    ];
    let mut check = Check::default();
    let mut batch = sled::Batch::default();
    for (key, value) in entries {
        check.totals.add(&key, &value);
        batch.insert(key, value);
    }
    batch.insert(keys::check(), check.encode());
    tree.write(batch)?;
    drop(tree);
    raw::sync(&new)?;
    let dir = next_dir(home)?;
    fs::rename(&new, &dir).map_err(|error| StoreError::io(&new, error))?;
    raw::sync(home)?;
    write_current(home, &dir)?;
    remove_others(home, &dir)?;
    Store::load(Tree::open(&dir, SEGMENT)?, home, lock)
}

fn make_home(home: &Path) -> Result<(), StoreError> {
    if home.is_dir() {
        return Ok(());
    }
    fs::create_dir_all(home).map_err(|error| {
        // What `mkdir` says of a file that is in the way would only puzzle.
        let in_the_way = home.exists();
        let not_ours = io::ErrorKind::NotADirectory.into();
        StoreError::io(home, if in_the_way { not_ours } else { error })
    })?;
    raw::sync(home)?;
    home.parent()
        .filter(|parent| !parent.as_os_str().is_empty())
        .map_or(Ok(()), raw::sync)
}

/// Our own lock beside sled's: this one is never leaked, so it tells another process from a sled that panicked.
fn lock(home: &Path) -> Result<File, StoreError> {
    let path = home.join("LOCK");
    let file = fs::OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path);
    let file = file.map_err(|error| StoreError::io(&path, error))?;
    match rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(StoreError::Locked { path }),
        Err(error) => Err(StoreError::io(&path, error.into())),
    }
}

enum Current {
    Named(String),
    Lost(String),
}

fn read_current(home: &Path) -> Result<Current, StoreError> {
    let path = home.join(CURRENT);
    match fs::read(&path) {
        Ok(text) => match std::str::from_utf8(&text).map(str::trim_end) {
            Ok(name) if is_store(name) => Ok(Current::Named(name.to_owned())),
            _ => Ok(Current::Lost(format!("{} names no store", path.display()))),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Ok(Current::Lost(format!("{} is missing", path.display())))
        }
        Err(error) => Err(StoreError::io(&path, error)),
    }
}

/// Points `CURRENT` at a store, all or nothing.
pub(super) fn write_current(home: &Path, dir: &Path) -> Result<(), StoreError> {
    let tmp = home.join(CURRENT_TMP);
    let name = dir.file_name().unwrap_or_default().to_string_lossy();
    let write = || {
        let mut file = File::create(&tmp)?;
        file.write_all(format!("{name}\n").as_bytes())?;
        file.sync_all()?;
        fs::rename(&tmp, home.join(CURRENT))
    };
    write().map_err(|error| StoreError::io(&tmp, error))?;
    raw::sync(home)
}

fn is_store(name: &str) -> bool {
    number(name).is_some()
}

fn number(name: &str) -> Option<u32> {
    let digits = name.strip_prefix("store-")?;
    (digits.len() >= 6 && digits.bytes().all(|byte| byte.is_ascii_digit()))
        .then(|| digits.parse().ok())?
}

fn store_dirs(home: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let mut dirs: Vec<_> = raw::list(home)?
        .into_iter()
        .filter_map(|path| Some((number(path.file_name()?.to_str()?)?, path)))
        .collect();
    dirs.sort();
    Ok(dirs.into_iter().map(|(_, path)| path).collect())
}

/// A name that no store has, above all others.
pub(super) fn next_dir(home: &Path) -> Result<PathBuf, StoreError> {
    let named = |path: &PathBuf| number(path.file_name()?.to_str()?);
    let last = store_dirs(home)?.last().and_then(named).unwrap_or(0);
    Ok(home.join(format!("store-{:06}", last.saturating_add(1))))
}

fn free_name(home: &Path, name: &str) -> PathBuf {
    let numbered = (2_u32..).map(|n| home.join(format!("{name}-{n}")));
    let mut names = std::iter::once(home.join(name)).chain(numbered);
    names
        .find(|path| !path.exists())
        .unwrap_or_else(|| home.join(name))
}

fn newest_damaged(home: &Path) -> Result<Option<PathBuf>, StoreError> {
    let damaged = |path: &PathBuf| {
        path.file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with("damaged-"))
    };
    Ok(raw::list(home)?.into_iter().rfind(damaged))
}

/// Removes every store but this one.
pub(super) fn remove_others(home: &Path, dir: &Path) -> Result<(), StoreError> {
    store_dirs(home)?
        .iter()
        .filter(|other| *other != dir)
        .try_for_each(|other| remove(other))
}

/// Removes a store that nothing refers to.
pub(super) fn remove(dir: &Path) -> Result<(), StoreError> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(StoreError::io(dir, error)),
        _ => Ok(()),
    }
}

fn size(dir: &Path) -> Result<u64, StoreError> {
    use std::os::unix::fs::MetadataExt;
    raw::list(dir)?
        .iter()
        .try_fold(0, |sum, path| match fs::metadata(path) {
            Ok(meta) if meta.is_dir() => Ok(sum + size(path)?),
            Ok(meta) => Ok(sum + meta.blocks() * 512),
            // sled removes its old snapshots whenever it likes.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(sum),
            Err(error) => Err(StoreError::io(path, error)),
        })
}
