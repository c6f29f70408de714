//! The files of documents: where they are, and how one takes another's place.
//!
//! ```text
//! STATE/documents/firmware/manifest.json    published
//! STATE/documents/.part/NAME                a download under way
//! ```

use std::fs::{self, DirBuilder, File, Metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use crate::upstream::outcome::{Failure, Kind};

/// The directory of unfinished downloads, below `documents/`.
pub const PARTS: &str = ".part";

/// So much of the disk is left alone: the store and others need to go on.
const RESERVE: u64 = 16 << 20;

/// A file as somebody left it: whoever writes to it or puts another one in its place leaves another mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// Which file.
    pub inode: u64,
    /// Bytes.
    pub size: u64,
    /// When it was written to last, in seconds since 1970 …
    pub seconds: i64,
    /// … and nanoseconds.
    pub nanos: i64,
}

impl Mark {
    /// Of the file at `path`; `None`: there is none, or it is no file.
    #[must_use]
    pub fn of(path: &Path) -> Option<Self> {
        let meta = fs::metadata(path).ok()?;
        meta.is_file().then(|| Self::from(&meta))
    }
}

impl From<&Metadata> for Mark {
    fn from(meta: &Metadata) -> Self {
        Self {
            inode: meta.ino(),
            size: meta.size(),
            seconds: meta.mtime(),
            nanos: meta.mtime_nsec(),
        }
    }
}

/// `documents/` of a state directory.
#[derive(Debug, Clone)]
pub struct Place(PathBuf);

impl Place {
    /// Below this state directory.
    #[must_use]
    pub fn of(state: &Path) -> Self {
        Self(state.join("documents"))
    }

    /// Where it is.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.0
    }

    /// Where a published file is.
    #[must_use]
    pub fn file(&self, file: &Path) -> PathBuf {
        self.0.join(file)
    }

    /// Where a document's download is.
    #[must_use]
    pub fn part(&self, name: &str) -> PathBuf {
        self.0.join(PARTS).join(name)
    }

    /// Makes the directories that a document's file and its part are to be in, names durable. Done before anything is fetched:
    /// what could not be put in its place is not worth a download.
    ///
    /// # Errors
    /// As a failure of this device, with the path.
    pub fn prepare(&self, file: &Path) -> Result<(), Failure> {
        let target = self.file(file);
        make_all(&self.0.join(PARTS))?;
        if let Some(above) = target.parent() {
            make_all(above)?;
        }
        if target.is_dir() {
            let reason = "a directory is in the way: move it away, or write another `file`";
            return Err(Failure::new(Kind::Local, reason).at(target.display()));
        }
        Ok(())
    }

    /// Puts a finished part in its place, durably. The part must have been synced.
    ///
    /// # Errors
    /// As a failure of this device; the file that was there is there.
    pub fn publish(&self, name: &str, file: &Path) -> Result<Mark, Failure> {
        let (part, target) = (self.part(name), self.file(file));
        fs::rename(&part, &target).map_err(|error| local(&target, &error))?;
        let above = target.parent().unwrap_or(&self.0);
        sync_dir(above).map_err(|error| local(above, &error))?;
        Mark::of(&target).ok_or_else(|| local(&target, &io::ErrorKind::NotFound.into()))
    }

    /// Bytes of all files here, published or not.
    #[must_use]
    pub fn used(&self) -> u64 {
        let mut sum = 0;
        self.each(&mut |_, meta| sum += meta.len());
        sum
    }

    /// Calls `each` for every file here, by its path from here.
    pub fn each(&self, each: &mut dyn FnMut(&Path, &Metadata)) {
        walk(&self.0, Path::new(""), 0, each);
    }

    /// Whether `more` bytes find room on the disk, what others need left alone; else how many are free.
    ///
    /// # Errors
    /// Bytes that are free.
    pub fn has_room(&self, more: u64) -> Result<(), u64> {
        // A file system that does not tell may have room.
        let Ok(room) = rustix::fs::statvfs(&self.0) else {
            return Ok(());
        };
        let free = room.f_bavail.saturating_mul(room.f_frsize);
        if free >= more.saturating_add(RESERVE) {
            Ok(())
        } else {
            Err(free)
        }
    }
}

/// How deep files are looked for: nobody's `file` has more slashes than fit into a path.
const DEEPEST: usize = 64;

fn walk(dir: &Path, from: &Path, depth: usize, each: &mut dyn FnMut(&Path, &Metadata)) {
    let Ok(entries) = fs::read_dir(dir) else {
        return;
    };
    for entry in entries.flatten() {
        // Not through links: what they lead to is not ours.
        let Ok(meta) = entry.metadata() else { continue };
        let path = from.join(entry.file_name());
        if meta.is_dir() && depth < DEEPEST {
            walk(&entry.path(), &path, depth + 1, each);
        } else if meta.is_file() {
            each(&path, &meta);
        }
    }
}

/// Makes a directory and those above it, each synced into the one above.
fn make_all(dir: &Path) -> Result<(), Failure> {
    if dir.is_dir() {
        return Ok(());
    }
    let above = dir.parent();
    if let Some(above) = above {
        make_all(above)?;
    }
    match DirBuilder::new().mode(0o750).create(dir) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && dir.is_dir() => {}
        Err(error) => return Err(local(dir, &error)),
    }
    match above.map(sync_dir) {
        Some(Err(error)) => Err(local(dir, &error)),
        _ => Ok(()),
    }
}

fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

/// An error of this device, with the path and what to do where we know.
pub(super) fn local(path: &Path, error: &io::Error) -> Failure {
    let hint = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "; make room, what was published is untouched"
        }
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            "; it must be writable for this user"
        }
        io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists => {
            "; a file is in the way: move it away, or write another `file`"
        }
        _ => "",
    };
    Failure::new(Kind::Local, format!("{error}{hint}")).at(path.display())
}
