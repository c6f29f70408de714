//! The reserve: a megabyte that is really allocated, and is given up when a full disk keeps the state directory from being
//! opened. Opening writes, in the store and in SQLite; without it an agent that is started again on a full disk could
//! neither say so in `status` nor go on by itself when there is room.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, fallocate};

/// What is kept in reserve, in bytes.
const RESERVE: u64 = 1024 * 1024;

/// So many bytes have to be free for the reserve to be made: as many are left for the data.
const ENOUGH: u64 = 2 * RESERVE;

const NAME: &str = "ballast";

/// The reserve of a state directory.
#[derive(Debug)]
pub(super) struct Ballast {
    path: PathBuf,
    whole: bool,
}

impl Ballast {
    /// As it is in that directory.
    pub(super) fn of(dir: &Path) -> Self {
        let path = dir.join(NAME);
        let whole = fs::metadata(&path).is_ok_and(|meta| meta.blocks() * 512 >= RESERVE);
        Self { path, whole }
    }

    /// Makes it if it is not there and the disk has room for it and for more. Whether it is there then.
    pub(super) fn keep(&mut self) -> bool {
        if self.whole {
            return true;
        }
        let dir = self.path.parent().unwrap_or(Path::new("."));
        // A file system that does not tell what is free is taken to have room.
        if free(dir).is_some_and(|free| free < ENOUGH) {
            return false;
        }
        match make(&self.path) {
            Ok(()) => self.whole = true,
            Err(error) => {
                log::debug!("{}: {error}", self.path.display());
                let _nothing_to_remove = fs::remove_file(&self.path);
            }
        }
        self.whole
    }

    /// Gives it up; whether there was something to give.
    pub(super) fn give_up(dir: &Path) -> bool {
        let path = dir.join(NAME);
        let some = fs::metadata(&path).is_ok_and(|meta| meta.blocks() > 0);
        some && fs::remove_file(&path).is_ok()
    }
}

/// Whether the disk is so full that this explains any failure.
pub(super) fn is_full(dir: &Path) -> bool {
    free(dir).is_some_and(|free| free < RESERVE)
}

fn free(dir: &Path) -> Option<u64> {
    let disk = rustix::fs::statvfs(dir).ok()?;
    Some(disk.f_bavail.saturating_mul(disk.f_frsize))
}

/// Not synced: after a cut it is looked at again.
fn make(path: &Path) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)?;
    match fallocate(&file, FallocateFlags::empty(), 0, RESERVE) {
        Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => write_out(&mut file),
        other => Ok(other?),
    }
}

/// For file systems that cannot allocate without writing.
fn write_out(file: &mut File) -> io::Result<()> {
    let block = [0x55; 4096];
    for _ in 0..RESERVE / 4096 {
        file.write_all(&block)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_made_once_whole_and_made_again_when_it_was_given_up() {
        let dir = tempfile::tempdir().unwrap();
        assert!(!Ballast::give_up(dir.path()), "there was none");
        assert!(Ballast::of(dir.path()).keep());
        let path = dir.path().join(NAME);
        let made = fs::metadata(&path).unwrap();
        assert!(made.blocks() * 512 >= RESERVE, "it is not really there");
        assert!(Ballast::of(dir.path()).keep());
        assert_eq!(fs::metadata(&path).unwrap().ino(), made.ino());
        // What a cut left of it is none.
        File::create(&path).unwrap();
        assert!(!Ballast::of(dir.path()).whole);
        assert!(Ballast::of(dir.path()).keep());
        assert!(Ballast::give_up(dir.path()));
        assert!(!path.exists());
        write_out(&mut File::create(&path).unwrap()).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), RESERVE);
    }
}
