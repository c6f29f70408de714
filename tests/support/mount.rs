//! A small file system of its own, to fill and to close. Needs root.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::device::{ended, system};

/// A mounted tmpfs. Unmounted when dropped.
pub struct Mount {
    dir: tempfile::TempDir,
}

impl Mount {
    /// Of so many bytes; `None`, said on standard output with what is left out, where this user may not mount.
    pub fn of(bytes: u64, left_out: &str) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let size = format!("size={bytes}");
        let mut mount = Command::new("mount");
        mount
            .args(["-t", "tmpfs", "-o", &size, "tmpfs"])
            .arg(dir.path());
        let is_root = rustix::process::geteuid().is_root();
        if !is_root || !ended(&mut mount).status.success() {
            println!("left out: {left_out} (mounting a tmpfs needs root)");
            return None;
        }
        Some(Self { dir })
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// What to call a state directory on it.
    pub fn state(&self) -> PathBuf {
        self.path().join("state")
    }

    /// Fills it until about so many bytes are left.
    pub fn leave(&self, bytes: u64) {
        let free = rustix::fs::statvfs(self.path()).unwrap();
        let free = free.f_bavail * free.f_frsize;
        let mut ballast = std::fs::File::create(self.path().join("ballast")).unwrap();
        let block = vec![0x55; 4096];
        for _ in 0..free.saturating_sub(bytes) / 4096 {
            if ballast.write_all(&block).is_err() {
                break;
            }
        }
    }

    /// Gives the space back.
    pub fn make_room(&self) {
        std::fs::remove_file(self.path().join("ballast")).unwrap();
    }

    /// Read-only, or writable again. Nothing may be open for writing.
    pub fn writable(&self, writable: bool) {
        let mode = if writable { "remount,rw" } else { "remount,ro" };
        system("mount", &["-o", mode, &self.path().to_string_lossy()]);
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // Lazily: a process that still has something open must not leave it mounted.
        let _gone_with_the_process = ended(Command::new("umount").arg("-l").arg(self.path()));
    }
}
