//! sled inside its rails: how it is opened, read, written and kept from taking the process down.

use std::cell::Cell;
use std::fs::{self, File};
use std::io;
use std::ops::Bound;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Once;

use super::error::StoreError;

/// A key or value as the tree hands it out: cheap to clone.
pub(super) type Bytes = sled::IVec;

/// Fixed when a store is created. sled moves nodes over a quarter of it to `blobs/`, which it never syncs; a leaf node
/// of 17 values of 3 kB stays below that quarter.
pub(super) const SEGMENT: usize = 256 * 1024;

/// Holds 256 nodes whatever it says, since each of sled's 256 cache shards keeps one.
const CACHE: u64 = 1024 * 1024;

/// sled notes accesses to pages and evicts only when a shard has 64 of them. A scan that comes to each page once would
/// keep all of them in memory: 40 MB for a million records. So each entry that is read is read so many times more, which
/// costs little while its page is there, and a walk over a page's eight to sixteen entries makes the 64.
const TOUCHES: usize = 8;

/// Less free space than this, and a failure is put down to a full disk: sled hides the reason in a panic.
const LOW_WATER: u64 = 1024 * 1024;

/// sled's one tree in a directory of its own.
#[derive(Debug)]
pub(super) struct Tree {
    db: Db,
    /// Our own handle of `db`, for the sync that sled's flush does not do.
    pub(super) file: File,
    dir: PathBuf,
    /// How much log each write made, in bytes.
    #[cfg(test)]
    pub(super) logs: std::cell::RefCell<Vec<u64>>,
}

/// sled's handle, closed quietly: closing syncs, and panics where that fails. What was committed is on disk before.
#[derive(Debug)]
struct Db(Option<sled::Db>);

impl std::ops::Deref for Db {
    type Target = sled::Db;

    #[expect(clippy::expect_used, reason = "only drop takes it out")]
    fn deref(&self) -> &sled::Db {
        self.0.as_ref().expect("it is there until it is dropped")
    }
}

impl Drop for Db {
    fn drop(&mut self) {
        let db = self.0.take();
        if quietly(|| drop(db)).is_err() {
            log::warn!("sled could not close its files; what was committed is on disk");
        }
    }
}

impl Tree {
    /// Opens the database in `dir`, or creates one there and makes the creation durable.
    pub(super) fn open(dir: &Path, segment: usize) -> Result<Self, StoreError> {
        let existed = dir.join("db").exists();
        if existed {
            remove_snapshots(dir, |name| name.ends_with(".generating"))?;
        }
        let config = sled::Config::new()
            .path(dir)
            .segment_size(segment)
            .mode(sled::Mode::LowSpace)
            .cache_capacity(CACHE)
            .use_compression(false)
            .flush_every_ms(None);
        let db = patiently(|| guarded(dir, || config.open()))?;
        let file = open_file(&dir.join("db"))?;
        let tree = Self {
            db: Db(Some(db)),
            file,
            dir: dir.to_path_buf(),
            #[cfg(test)]
            logs: std::cell::RefCell::default(),
        };
        if !existed {
            tree.sync_creation()?;
        }
        if tree.blobs()? > 0 {
            log::warn!(
                "{} is not empty: an entry is too large, and would not survive a power cut",
                dir.join("blobs").display()
            );
        }
        Ok(tree)
    }

    fn sync_creation(&self) -> Result<(), StoreError> {
        sync(&self.dir.join("conf"))?;
        sync(&self.dir.join("db"))?;
        sync(&self.dir.join("blobs"))?;
        sync(&self.dir)?;
        self.dir.parent().map_or(Ok(()), sync)
    }

    /// Files in `blobs/`; none is right.
    pub(super) fn blobs(&self) -> Result<usize, StoreError> {
        Ok(list(&self.dir.join("blobs"))?.len())
    }

    /// The directory of this database.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// The value of `key`.
    pub(super) fn get(&self, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        guarded(&self.dir, || self.db.get(key))
    }

    /// The first entry whose key is greater than `key`.
    pub(super) fn after(&self, key: &[u8]) -> Result<Option<(Bytes, Bytes)>, StoreError> {
        self.range(Bound::Excluded(key)).next().transpose()
    }

    /// See [`TOUCHES`].
    fn touch(&self, key: &[u8]) -> Result<(), sled::Error> {
        (0..TOUCHES).try_for_each(|_| self.db.contains_key(key).map(drop))
    }

    /// All entries from `from` on, in the order of their keys.
    pub(super) fn range(&self, from: Bound<&[u8]>) -> Entries<'_> {
        Entries {
            tree: self,
            iter: self.db.range::<&[u8], _>((from, Bound::Unbounded)),
            failed: false,
        }
    }

    /// Applies the batch as one and returns when the medium has it. After an error nobody knows what is on disk.
    pub(super) fn write(&self, batch: sled::Batch) -> Result<(), StoreError> {
        #[cfg(test)]
        let before = self.log_bytes();
        guarded(&self.dir, || self.db.apply_batch(batch))?;
        guarded(&self.dir, || self.db.flush())?;
        #[cfg(test)]
        self.logs.borrow_mut().push(self.log_bytes() - before);
        self.file
            .sync_data()
            .map_err(|error| StoreError::io(&self.dir.join("db"), error))
    }

    /// Counts the entries of all trees: the recorded states have others than ours.
    #[cfg(test)]
    pub(super) fn all_entries(&self) -> Result<usize, StoreError> {
        let trees = self.db.tree_names();
        let count = |name| {
            guarded(&self.dir, || {
                self.db
                    .open_tree(name)?
                    .iter()
                    .try_fold(0, |n, entry| entry.map(|_| n + 1))
            })
        };
        trees.iter().map(count).sum()
    }

    /// How far the log has come, in bytes ever written.
    #[cfg(test)]
    pub(super) fn log_bytes(&self) -> u64 {
        u64::try_from(self.db.context.pagecache.log.stable_offset()).unwrap_or(0)
    }
}

/// Entries in the order of their keys. Ends after the first error.
pub(super) struct Entries<'a> {
    tree: &'a Tree,
    iter: sled::Iter,
    failed: bool,
}

impl Iterator for Entries<'_> {
    type Item = Result<(Bytes, Bytes), StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let next = || {
            let entry = self.iter.next().transpose()?;
            if let Some((key, _)) = &entry {
                self.tree.touch(key)?;
            }
            Ok(entry)
        };
        let entry = guarded(&self.tree.dir, next).transpose();
        self.failed = matches!(entry, Some(Err(_)));
        entry
    }
}

thread_local! {
    /// Set while a panic of this thread is expected and caught.
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Runs a call into sled. A panic in there is damage, and is not printed as a crash of ours.
fn guarded<T>(dir: &Path, call: impl FnOnce() -> Result<T, sled::Error>) -> Result<T, StoreError> {
    match quietly(call) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(sled::Error::Io(error))) => Err(of_io(dir, error)),
        Ok(Err(error)) => Err(blame(dir, error.to_string())),
        Err(payload) => {
            let why = payload
                .downcast_ref::<String>()
                .map(String::as_str)
                .or_else(|| payload.downcast_ref::<&str>().copied())
                .unwrap_or("no message");
            Err(blame(dir, format!("sled panicked: {why}")))
        }
    }
}

fn quietly<T>(call: impl FnOnce() -> T) -> std::thread::Result<T> {
    hush();
    let before = QUIET.replace(true);
    let outcome = catch_unwind(AssertUnwindSafe(call));
    QUIET.set(before);
    outcome
}

/// Sends panics that are caught here, and those of sled's own threads, to the log. Installed once: taking the hook and
/// putting it back around each call would race with other threads.
fn hush() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let of_sled = std::thread::current()
                .name()
                .is_some_and(|name| name.starts_with("sled-io-"));
            if of_sled || QUIET.get() {
                log::debug!("caught in sled: {info}");
            } else {
                before(info);
            }
        }));
    });
}

/// How long a lock that is about to be given up is waited for, and in which steps.
const LOCK_STEP: std::time::Duration = std::time::Duration::from_millis(5);
const LOCK_STEPS: u32 = 200;

/// Tries again while something is locked, for at most a second. A lock outlives its store by a moment: sled's threads
/// still hold the file, or a child process that is being started holds it until it has become its program. Two agents are
/// kept apart before this, by the state directory's own lock.
#[expect(
    clippy::disallowed_methods,
    reason = "short, bounded, and met only when a store is opened anew"
)]
pub(super) fn patiently<T>(
    mut open: impl FnMut() -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    for _ in 0..LOCK_STEPS {
        match open() {
            Err(StoreError::Locked { .. }) => std::thread::sleep(LOCK_STEP),
            other => return other,
        }
    }
    open()
}

/// An error of the system met inside sled: environment if it is one that a person can mend, else damage.
fn of_io(dir: &Path, error: io::Error) -> StoreError {
    if error.to_string().contains("could not acquire lock") {
        return StoreError::Locked {
            path: dir.join("db"),
        };
    }
    // ENOMEM, ENFILE and EMFILE say nothing of the data.
    let scarce = matches!(error.raw_os_error(), Some(12 | 23 | 24))
        || error.kind() == io::ErrorKind::OutOfMemory;
    match StoreError::io(dir, error) {
        StoreError::Io { source, .. } if !scarce => blame(dir, source.to_string()),
        other => other,
    }
}

/// Damage, unless the disk is so full that this explains it.
fn blame(dir: &Path, why: String) -> StoreError {
    match rustix::fs::statvfs(dir) {
        Ok(free) if free.f_bavail.saturating_mul(free.f_frsize) < LOW_WATER => {
            StoreError::Full { path: dir.into() }
        }
        _ => StoreError::Damaged { why },
    }
}

/// Removes the snapshots whose name passes `which`. A snapshot only makes opening faster; a torn one prevents it.
pub(super) fn remove_snapshots(dir: &Path, which: impl Fn(&str) -> bool) -> Result<(), StoreError> {
    for path in list(dir)? {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with("snap.") && which(&name) {
            fs::remove_file(&path).map_err(|error| StoreError::io(&path, error))?;
        }
    }
    Ok(())
}

/// The paths in a directory; none if there is no directory.
pub(super) fn list(dir: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(StoreError::io(dir, error)),
    };
    let mut paths = entries
        .map(|entry| {
            entry
                .map(|entry| entry.path())
                .map_err(|error| StoreError::io(dir, error))
        })
        .collect::<Result<Vec<_>, _>>()?;
    paths.sort();
    Ok(paths)
}

/// Makes a file, or the names in a directory, durable.
pub(super) fn sync(path: &Path) -> Result<(), StoreError> {
    open_file(path)?
        .sync_all()
        .map_err(|error| StoreError::io(path, error))
}

fn open_file(path: &Path) -> Result<File, StoreError> {
    File::open(path).map_err(|error| StoreError::io(path, error))
}
