//! What can go wrong in the inbox, told so that the reader knows what to do.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use super::id::RequestId;

/// Why the inbox could not do what it was asked.
#[derive(Debug)]
pub enum InboxError {
    /// There is no room for another payload: see [`InboxError::is_full`].
    Full(Full),
    /// A payload longer than a segment can be.
    TooLarge {
        /// Its length in bytes.
        len: usize,
    },
    /// Nothing that was appended since the last sync that held may be acknowledged: it may not be on disk. The inbox goes
    /// on in a new segment.
    Unsynced {
        /// The segment.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Another process has the inbox open.
    Locked {
        /// The lock file.
        path: PathBuf,
    },
    /// A newer gleaner wrote a record; this one would misread it.
    Newer {
        /// The segment.
        path: PathBuf,
        /// The version found.
        found: u8,
    },
    /// There is no such payload.
    Unknown {
        /// What was asked for.
        id: RequestId,
    },
    /// A payload is not in a state in which that can be done.
    Unfit {
        /// Which payload.
        id: RequestId,
        /// What it is instead.
        is: &'static str,
    },
    /// A payload cannot be read back as it was written.
    Damaged {
        /// The segment.
        path: PathBuf,
        /// Where in it, in bytes.
        offset: u32,
    },
    /// Any other failure of the system.
    Io {
        /// What could not be opened, read or written.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
}

/// What there is too little of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Full {
    /// The inbox's quota is used up by payloads that must be kept.
    Quota {
        /// Bytes that its segments take.
        used: u64,
        /// Bytes that they may take.
        quota: u64,
        /// Bytes that are needed.
        need: u64,
    },
    /// The file system has less free space than is to be left.
    LowWater {
        /// What lies on it.
        path: PathBuf,
        /// Free bytes.
        free: u64,
        /// Bytes to be left.
        low_water: u64,
    },
    /// The file system is full.
    Disk {
        /// What could not be written.
        path: PathBuf,
    },
    /// So many payloads wait already that no more are taken.
    Backlog {
        /// How many.
        outstanding: usize,
    },
}

impl InboxError {
    /// Whether room is what is missing: the sender is to try again later (503 with `Retry-After`).
    #[must_use]
    pub fn is_full(&self) -> bool {
        matches!(self, Self::Full(_))
    }

    /// One word for why a payload was not saved: `disk-low`, `inbox-full`, `too-large` or `not-saved`.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Full(Full::LowWater { .. } | Full::Disk { .. }) => "disk-low",
            Self::Full(Full::Quota { .. } | Full::Backlog { .. }) => "inbox-full",
            Self::TooLarge { .. } => "too-large",
            _ => "not-saved",
        }
    }

    /// Whether the one who asked can put it right.
    #[must_use]
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::Unknown { .. } | Self::Unfit { .. })
    }

    pub(super) fn io(path: &Path, source: io::Error) -> Self {
        let path = path.to_path_buf();
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                Self::Full(Full::Disk { path })
            }
            _ => Self::Io { path, source },
        }
    }
}

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Quota { used, quota, need } => write!(
                f,
                "the inbox is full: {} of {} are taken by payloads that are not processed yet, and {} more are needed; see `gleaner inbox list`, or raise its quota",
                Size(*used),
                Size(*quota),
                Size(*need)
            ),
            Self::LowWater {
                path,
                free,
                low_water,
            } => write!(
                f,
                "only {} are free on the file system of {}, and {} are to be left; make room",
                Size(*free),
                path.display(),
                Size(*low_water)
            ),
            Self::Disk { path } => {
                write!(f, "no space left for {}; make room", path.display())
            }
            Self::Backlog { outstanding } => write!(
                f,
                "{outstanding} payloads wait in the inbox, and no more are taken; see `gleaner inbox list`"
            ),
        }
    }
}

/// Bytes as people read them, in the units that sizes are configured in.
struct Size(u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [("GiB", 1_u64 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
        let Some((unit, size)) = units.into_iter().find(|(_, size)| self.0 >= *size) else {
            return write!(f, "{} B", self.0);
        };
        // Rounded down: what is left must not look like what is needed.
        match (self.0 % size).saturating_mul(10) / size {
            0 => write!(f, "{} {unit}", self.0 / size),
            tenths => write!(f, "{}.{tenths} {unit}", self.0 / size),
        }
    }
}

impl fmt::Display for InboxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full(full) => full.fmt(f),
            Self::TooLarge { len } => {
                write!(f, "a payload of {len} bytes is more than the inbox takes")
            }
            Self::Unsynced { path, source } => write!(
                f,
                "{}: cannot be made durable: {source}; what came since is not acknowledged, and a new segment is used",
                path.display()
            ),
            Self::Locked { path } => write!(
                f,
                "{} is locked: another gleaner uses this inbox; stop it first",
                path.display()
            ),
            Self::Newer { path, found } => write!(
                f,
                "{} holds a record of version {found}: a newer gleaner wrote it; install that again",
                path.display()
            ),
            Self::Unknown { id } => write!(
                f,
                "there is no payload {id} in the inbox; `gleaner inbox list` shows those that are"
            ),
            Self::Unfit { id, is } => write!(f, "payload {id} is {is}"),
            Self::Damaged { path, offset } => write!(
                f,
                "{}: the record at byte {offset} is not what was written",
                path.display()
            ),
            Self::Io { path, source } => {
                write!(f, "{}: {source}", path.display())?;
                match source.kind() {
                    io::ErrorKind::PermissionDenied => {
                        f.write_str("; payloads may hold secrets, so only the user that gleaner runs as may read them")
                    }
                    io::ErrorKind::ReadOnlyFilesystem => f.write_str("; remount it"),
                    _ => Ok(()),
                }
            }
        }
    }
}

impl std::error::Error for InboxError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } | Self::Unsynced { source, .. } => Some(source),
            _ => None,
        }
    }
}
