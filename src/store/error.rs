//! What can go wrong in the store, told so that the reader knows what to do.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Why the store could not do what it was asked.
///
/// Only [`StoreError::Damaged`] speaks of the data. The others speak of the surroundings: nothing was put aside, and
/// once the cause is gone the same store opens again.
#[derive(Debug)]
pub enum StoreError {
    /// Another process has the store open.
    Locked {
        /// The lock file.
        path: PathBuf,
    },
    /// The file system is mounted read-only.
    ReadOnly {
        /// What could not be written.
        path: PathBuf,
    },
    /// The user that we run as may not write there.
    Denied {
        /// What could not be opened or written.
        path: PathBuf,
    },
    /// No space left, or a quota is used up.
    Full {
        /// What could not be written.
        path: PathBuf,
    },
    /// Any other failure of the system: no memory, no file handles, a path that is no directory.
    Io {
        /// What could not be opened, read or written.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A newer gleaner wrote this; this one would misread it.
    Newer {
        /// What is newer: the store's format, or one kind of entry.
        what: &'static str,
        /// The version found.
        found: u8,
        /// The highest that this binary knows.
        known: u8,
    },
    /// What is stored is not what was written.
    Damaged {
        /// How that is known.
        why: String,
    },
    /// A key or value is too large for the store; it has to be split or kept elsewhere.
    TooLarge {
        /// Which of the two.
        what: &'static str,
        /// Its length in bytes.
        len: usize,
        /// The limit in bytes.
        max: usize,
    },
    /// All numbers of a kind are used up.
    Exhausted {
        /// Numbers of what.
        what: &'static str,
    },
    /// A source or an ordinal that the store did not give out.
    Unknown {
        /// Which.
        what: String,
    },
    /// A commit failed before; what is on disk is not known. The process has to end and open the store again.
    Poisoned {
        /// The failure.
        why: String,
    },
}

impl StoreError {
    pub(super) fn damaged(why: impl Into<String>) -> Self {
        Self::Damaged { why: why.into() }
    }

    /// Whether the data is at fault, not the surroundings: then [`super::Store::put_aside`] is the way on.
    #[must_use]
    pub fn is_damage(&self) -> bool {
        matches!(self, Self::Damaged { .. })
    }

    /// Sorts an error of the system by what the reader has to do about it.
    pub(super) fn io(path: &Path, source: io::Error) -> Self {
        let path = path.to_path_buf();
        match source.kind() {
            io::ErrorKind::ReadOnlyFilesystem => Self::ReadOnly { path },
            io::ErrorKind::PermissionDenied => Self::Denied { path },
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::Full { path },
            _ => Self::Io { path, source },
        }
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Locked { path } => {
                write!(
                    f,
                    "{} is locked: another gleaner uses this state directory; stop it first",
                    path.display()
                )
            }
            Self::ReadOnly { path } => {
                write!(
                    f,
                    "{} is on a read-only file system; remount it, or set another state directory",
                    path.display()
                )
            }
            Self::Denied { path } => {
                write!(
                    f,
                    "no permission to use {}; give it to the user that gleaner runs as",
                    path.display()
                )
            }
            Self::Full { path } => write!(
                f,
                "no space left for {}; free some and start again",
                path.display()
            ),
            Self::Io { path, source } => write!(f, "{}: {source}", path.display()),
            Self::Newer { what, found, known } => write!(
                f,
                "{what} has version {found}, but this gleaner knows only {known}: a newer one wrote it; install that again"
            ),
            Self::Damaged { why } => write!(f, "the store is damaged: {why}"),
            Self::TooLarge { what, len, max } => {
                write!(f, "{what} of {len} bytes, but the store takes only {max}")
            }
            Self::Exhausted { what } => write!(f, "no more {what} are left"),
            Self::Unknown { what } => write!(f, "{what} is not known to the store"),
            Self::Poisoned { why } => write!(
                f,
                "a commit failed before ({why}); the store has to be opened again"
            ),
        }
    }
}

impl std::error::Error for StoreError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers are Linux' own.
    #[test]
    fn an_error_of_the_system_says_what_to_do() {
        for (number, says) in [
            (30, "read-only file system; remount it"),
            (13, "give it to the user that gleaner runs as"),
            (1, "give it to the user that gleaner runs as"),
            (28, "no space left for /state; free some"),
            (122, "no space left for /state; free some"),
            (24, "/state: Too many open files"),
        ] {
            let error = StoreError::io(Path::new("/state"), io::Error::from_raw_os_error(number));
            assert!(error.to_string().contains(says), "{error}");
            assert!(!error.is_damage());
        }
    }
}
