//! The directory: entries by what was asked, bodies by their digest, and a key that seals what must not be read.
//!
//! Several processes use it at once. A file is written under a name of its own and renamed, so each sees whole files; of
//! two that write the same entry the last one wins, and the other's answer is a miss later.

use std::fmt;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sha2::{Digest as _, Sha256};

use super::entry::{Body, Entry};
use super::select::Seal;
use super::sweep;
use crate::clock::Timestamp;

/// An entry's file is not longer than this: what is longer was not written here.
const LONGEST_ENTRY: u64 = 4 << 20;
/// How exactly the memory knows when a body was last used: noting it is a write.
const USED_EXACTLY: Duration = Duration::from_secs(3600);

/// The memory. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Memory {
    dir: Arc<PathBuf>,
    seal: Seal,
    bound: u64,
}

/// The memory cannot be used.
#[derive(Debug)]
pub enum MemoryError {
    /// A file or directory cannot be read or written.
    Io {
        /// Which one.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The directory belongs to somebody else, or others may write to it: what is in it could be anybody's.
    NotOurs {
        /// The directory.
        path: PathBuf,
    },
}

impl MemoryError {
    fn io(path: &Path, error: io::Error) -> Self {
        Self::Io {
            path: path.to_owned(),
            error,
        }
    }
}

impl fmt::Display for MemoryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { path, error } => write!(f, "{}: {error}", path.display()),
            Self::NotOurs { path } => write!(
                f,
                "{} is another user's, or others may write to it: chmod go-w, or name another one with --cache",
                path.display()
            ),
        }
    }
}

impl std::error::Error for MemoryError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { error, .. } => Some(error),
            Self::NotOurs { .. } => None,
        }
    }
}

/// Where the answers to one question are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Id(String);

impl Memory {
    /// Opens the memory in `dir`, and makes it if it is not there. Bodies and entries together take `bound` bytes at most.
    ///
    /// # Errors
    /// [`MemoryError`].
    pub fn open(dir: &Path, bound: u64) -> Result<Self, MemoryError> {
        for path in [dir.to_owned(), dir.join(BODIES), dir.join(ENTRIES)] {
            let mut builder = DirBuilder::new();
            builder
                .recursive(true)
                .mode(0o700)
                .create(&path)
                .map_err(|error| MemoryError::io(&path, error))?;
            let about = fs::metadata(&path).map_err(|error| MemoryError::io(&path, error))?;
            let us = rustix::process::geteuid().as_raw();
            if about.uid() != us || about.mode() & 0o022 != 0 {
                return Err(MemoryError::NotOurs { path });
            }
        }
        let key = key(dir)?;
        Ok(Self {
            dir: Arc::new(dir.to_owned()),
            seal: Seal::new(&key),
            bound,
        })
    }

    /// What is sealed here.
    #[must_use]
    pub fn seal(&self) -> &Seal {
        &self.seal
    }

    /// Where the answers to a GET of `url` are kept, in one view of it. The URL itself stands nowhere, since a query
    /// may hold a secret.
    #[must_use]
    pub fn id(&self, url: &str, view: &str) -> Id {
        Id(self.seal.over(&[b"GET", url.as_bytes(), view.as_bytes()]))
    }

    /// What is kept of it; nothing if there is no file, or none that can be read.
    #[must_use]
    pub fn entry(&self, id: &Id) -> Entry {
        let read = || -> io::Result<Vec<u8>> {
            let mut bytes = Vec::new();
            let file = File::open(self.entry_path(id))?;
            file.take(LONGEST_ENTRY).read_to_end(&mut bytes)?;
            Ok(bytes)
        };
        let parsed = read().ok().and_then(|bytes| Entry::parse(&bytes));
        parsed.unwrap_or_default()
    }

    /// Writes what is kept of it; an empty entry is removed.
    ///
    /// # Errors
    /// The directory cannot be written.
    pub fn write(&self, id: &Id, entry: &Entry) -> Result<(), MemoryError> {
        let path = self.entry_path(id);
        if entry.kept.is_empty() {
            return match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    Err(MemoryError::io(&path, error))
                }
                _ => Ok(()),
            };
        }
        let bytes = entry
            .print()
            .map_err(|error| MemoryError::io(&path, error.into()))?;
        let mut new = New::create(&self.dir.join(ENTRIES))?;
        new.write(&bytes)?;
        new.rename(&path)
    }

    /// A kept body, at its start: only if its length and its digest are right. One that is not is removed.
    #[must_use]
    pub fn body(&self, body: &Body, now: Timestamp) -> Option<File> {
        // What a file says is not taken for a path unless it can only be one of ours.
        let is_digest =
            body.sha256.len() == 64 && body.sha256.bytes().all(|b| b.is_ascii_hexdigit());
        if !is_digest {
            return None;
        }
        let path = self.dir.join(BODIES).join(&body.sha256);
        let mut file = File::open(&path).ok()?;
        let verified = verify(&mut file, body).unwrap_or(false);
        if !verified {
            log::debug!("{}: not what was written, removed", path.display());
            // Another process may have done so.
            drop(fs::remove_file(&path));
            return None;
        }
        note_use(&file, now);
        Some(file)
    }

    /// A place for a body that is about to come.
    ///
    /// # Errors
    /// The directory cannot be written.
    pub fn begin(&self) -> Result<Incoming, MemoryError> {
        Ok(Incoming {
            new: New::create(&self.dir.join(BODIES))?,
            hash: Sha256::new(),
            length: 0,
        })
    }

    /// Keeps a body that has come whole.
    ///
    /// # Errors
    /// The directory cannot be written.
    pub fn keep(&self, incoming: Incoming) -> Result<Body, MemoryError> {
        let sha256 = hex(&incoming.hash.finalize());
        incoming.new.rename(&self.dir.join(BODIES).join(&sha256))?;
        Ok(Body {
            sha256,
            length: incoming.length,
        })
    }

    /// The bound in bytes: no larger body is kept.
    #[must_use]
    pub fn bound(&self) -> u64 {
        self.bound
    }

    /// Makes room: what was not used for longest goes, until the bound is kept.
    pub fn sweep(&self, now: Timestamp) {
        let dirs = [self.dir.join(BODIES), self.dir.join(ENTRIES)];
        sweep::sweep(&dirs, self.bound, now);
    }

    fn entry_path(&self, id: &Id) -> PathBuf {
        self.dir.join(ENTRIES).join(&id.0)
    }
}

const BODIES: &str = "bodies";
const ENTRIES: &str = "entries";

/// What a file is called while it is written.
pub(super) const UNFINISHED: &str = "new-";

/// The memory's key; made when there is none. Of two processes that make one, one wins and both take the winner's.
fn key(dir: &Path) -> Result<[u8; 32], MemoryError> {
    let path = dir.join("key");
    let read = || -> Option<[u8; 32]> { fs::read(&path).ok()?.try_into().ok() };
    if let Some(key) = read() {
        return Ok(key);
    }
    let mut key = [0; 32];
    random(&mut key).map_err(|error| MemoryError::io(&path, error))?;
    let mut new = New::create(dir)?;
    new.write(&key)?;
    match fs::symlink_metadata(&path) {
        // It is there and is none: everything kept under it is lost anyway.
        Ok(_) => new.rename(&path)?,
        Err(_) => match fs::hard_link(&new.path, &path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => new.rename(&path)?,
            _ => {}
        },
    }
    read().ok_or_else(|| MemoryError::io(&path, io::Error::other("it is no key: remove it")))
}

fn random(bytes: &mut [u8]) -> io::Result<()> {
    let mut filled = 0;
    while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        filled += rustix::rand::getrandom(rest, rustix::rand::GetRandomFlags::empty())?;
    }
    Ok(())
}

fn verify(file: &mut File, body: &Body) -> io::Result<bool> {
    if file.metadata()?.len() != body.length {
        return Ok(false);
    }
    let mut hash = Sha256::new();
    let mut buffer = [0; 16 * 1024];
    loop {
        match file.read(&mut buffer)? {
            0 => break,
            bytes => hash.update(buffer.get(..bytes).unwrap_or_default()),
        }
    }
    file.rewind()?;
    Ok(hex(&hash.finalize()) == body.sha256)
}

/// Notes that a body was used, if that is news.
fn note_use(file: &File, now: Timestamp) {
    let now = sweep::system(now);
    let known = file.metadata().and_then(|about| about.modified());
    let is_known = known.is_ok_and(|known| {
        now.duration_since(known)
            .is_ok_and(|span| span < USED_EXACTLY)
    });
    if !is_known {
        // Else it goes a little earlier than it had to.
        drop(file.set_modified(now));
    }
}

/// Bytes as lower-case hexadecimal digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A body that is coming. Gone if it is dropped.
#[derive(Debug)]
pub struct Incoming {
    new: New,
    hash: Sha256,
    length: u64,
}

impl Incoming {
    /// Adds what has come.
    ///
    /// # Errors
    /// The disk is full, or fails.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), MemoryError> {
        self.new.write(bytes)?;
        self.hash.update(bytes);
        self.length = self.length.saturating_add(bytes.len() as u64);
        Ok(())
    }

    /// Bytes so far.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.length
    }

    /// Nothing so far.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }
}

/// A file that is being written under a name of its own. Removed if it is dropped before it is renamed.
#[derive(Debug)]
struct New {
    path: PathBuf,
    file: File,
    renamed: bool,
}

impl New {
    fn create(dir: &Path) -> Result<Self, MemoryError> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        let mut bits = [0; 8];
        random(&mut bits).map_err(|error| MemoryError::io(dir, error))?;
        let name = format!("{UNFINISHED}{}-{next}-{}", std::process::id(), hex(&bits));
        let path = dir.join(name);
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
            .map_err(|error| MemoryError::io(&path, error))?;
        Ok(Self {
            path,
            file,
            renamed: false,
        })
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), MemoryError> {
        let written = self.file.write_all(bytes);
        written.map_err(|error| MemoryError::io(&self.path, error))
    }

    fn rename(mut self, to: &Path) -> Result<(), MemoryError> {
        fs::rename(&self.path, to).map_err(|error| MemoryError::io(to, error))?;
        self.renamed = true;
        Ok(())
    }
}

impl Drop for New {
    fn drop(&mut self) {
        if !self.renamed {
            // A sweep does it later.
            drop(fs::remove_file(&self.path));
        }
    }
}

#[cfg(test)]
mod tests;
