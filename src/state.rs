//! The state directory: one owner, a store and a sink that agree, and a reserve for a full disk.

mod ballast;

use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::{fmt, io};

use rustix::fs::{FlockOperation, flock};

use self::ballast::Ballast;
use crate::clock::Timestamp;
use crate::config::Config;
use crate::pull::repair::{self, RepairError};
use crate::sink::sqlite::{self, SqliteSink};
use crate::sink::{SinkError, SinkTrouble};
use crate::store::{self, Store, StoreError};

/// An open state directory. Nobody else has it open while this lives.
#[derive(Debug)]
pub struct State {
    /// What is known.
    pub store: Store,
    /// `data.db`.
    pub sink: SqliteSink,
    /// What happened while opening, for `status`: something was damaged and is kept aside.
    pub alarms: Vec<String>,
    dir: PathBuf,
    ballast: Ballast,
    _lock: Lock,
}

/// Why the state directory could not be opened.
#[derive(Debug)]
pub enum StateError {
    /// Another process has it.
    Taken {
        /// The directory.
        dir: PathBuf,
        /// The other process, if it said.
        pid: String,
    },
    /// It belongs to another user than root, as whom we run.
    Foreign {
        /// The directory.
        dir: PathBuf,
        /// Whose it is, as a number.
        owner: u32,
    },
    /// The directory itself.
    Directory {
        /// Which path.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// The store.
    Store(StoreError),
    /// The sink.
    Sink(SinkError),
}

impl fmt::Display for StateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Taken { dir, pid } => write!(
                f,
                "{}: another gleaner uses this state directory (pid {pid})",
                dir.display()
            ),
            Self::Foreign { dir, owner } => write!(
                f,
                "{}: belongs to user {owner}, and files that root makes there would lock that user out: sudo -u '#{owner}' gleaner …",
                dir.display()
            ),
            Self::Directory { path, error } => {
                write!(f, "{}: {error}", path.display())?;
                match error.kind() {
                    io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                        f.write_str("; the state directory must be writable for this user (`[agent] state = …`)")
                    }
                    io::ErrorKind::NotADirectory => f.write_str("; the state directory is `[agent] state = …`"),
                    io::ErrorKind::StorageFull => f.write_str("; make room, nothing was lost"),
                    _ => Ok(()),
                }
            }
            Self::Store(error) => error.fmt(f),
            Self::Sink(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for StateError {}

impl StateError {
    /// Whether a full disk is what is in the way.
    fn is_full(&self) -> bool {
        match self {
            Self::Directory { error, .. } => matches!(
                error.kind(),
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
            ),
            Self::Store(error) => matches!(error, StoreError::Full { .. }),
            Self::Sink(error) => error.kind == SinkTrouble::Full,
            Self::Taken { .. } | Self::Foreign { .. } => false,
        }
    }

    /// Whether it may be another error of a full disk: SQLite has several names for it.
    fn is_vague(&self) -> bool {
        match self {
            Self::Store(error) => matches!(error, StoreError::Io { .. }),
            Self::Sink(error) => error.kind == SinkTrouble::Other,
            _ => false,
        }
    }
}

impl From<RepairError> for StateError {
    fn from(error: RepairError) -> Self {
        match error {
            RepairError::Store(error) => Self::Store(error),
            RepairError::Sink(error) => Self::Sink(error),
        }
    }
}

impl State {
    /// Opens the directory, making what is missing, and makes store and sink agree. Where a full disk prevents that, the
    /// reserve is given up for it: see [`State::is_short`].
    ///
    /// # Errors
    /// [`StateError`] says what is in the way; nothing was changed that a later try could miss.
    pub fn open(config: &Config, now: Timestamp) -> Result<Self, StateError> {
        let dir = &config.agent.state;
        match Self::try_open(config, now) {
            Err(error)
                if (error.is_full() || error.is_vague() && ballast::is_full(dir))
                    && Ballast::give_up(dir) =>
            {
                log::warn!(
                    "{error}: the reserve in {} was given up, and it is tried again",
                    dir.display()
                );
                Self::try_open(config, now)
            }
            other => other,
        }
    }

    fn try_open(config: &Config, now: Timestamp) -> Result<Self, StateError> {
        let dir = config.agent.state.clone();
        make(&dir, 0o750)?;
        // Whoever made it may have been killed before this: asked is what is only there afterwards.
        if !dir.join("data.db").exists() {
            sync_names(&dir)?;
        }
        let foreign = foreign_owner(&dir);
        if let (Some(owner), false) = (foreign, dir.join("lock").exists()) {
            return Err(StateError::Foreign { dir, owner });
        }
        // If it is taken, its owner is asked instead: for that root is as good as any.
        let lock = Lock::take(&dir)?;
        if let Some(owner) = foreign {
            return Err(StateError::Foreign { dir, owner });
        }
        let mut alarms = Vec::new();
        let (mut sink, opening) =
            SqliteSink::open(&dir.join("data.db"), now).map_err(StateError::Sink)?;
        alarms.extend(sink_alarm(&opening));
        let (mut store, opening) =
            Store::open(&dir.join("state"), now).map_err(StateError::Store)?;
        alarms.extend(store_alarm(&opening));
        // Making them agree reads more than opening does, and may find more damage: once in each.
        let mut chances = 2;
        let repair = loop {
            chances -= 1;
            match repair::agree(&mut store, &mut sink, config.sources.values()) {
                Ok(repair) => break repair,
                Err(RepairError::Sink(error))
                    if error.kind == SinkTrouble::Damaged && chances >= 0 =>
                {
                    let opening;
                    (sink, opening) = sink
                        .put_aside(&error.message, now)
                        .map_err(StateError::Sink)?;
                    alarms.extend(sink_alarm(&opening));
                }
                Err(RepairError::Store(error)) if error.is_damage() && chances >= 0 => {
                    let opening;
                    (store, opening) = store
                        .put_aside(&error.to_string(), now)
                        .map_err(StateError::Store)?;
                    alarms.extend(store_alarm(&opening));
                }
                Err(error) => return Err(error.into()),
            }
        };
        if let repair::Repair::Relearn(reason) = repair {
            if reason != repair::Reason::NewStore || !alarms.is_empty() {
                log::warn!("what is known was learnt again from data.db: {reason}");
            }
        }
        let mut ballast = Ballast::of(&dir);
        ballast.keep();
        Ok(Self {
            store,
            sink,
            alarms,
            dir,
            ballast,
            _lock: lock,
        })
    }

    /// Closes the directory, with a `data.db` that turned out to be damaged put aside, and says so. Opened again it gets a
    /// new one, to be filled from upstream.
    ///
    /// # Errors
    /// When it cannot be put aside.
    pub fn without_sink(self, now: Timestamp) -> Result<Option<String>, StateError> {
        let why = "found while it was read or written";
        let (_, opening) = self.sink.put_aside(why, now).map_err(StateError::Sink)?;
        Ok(sink_alarm(&opening))
    }

    /// Closes the directory, with a store that turned out to be damaged put aside, and says so. Opened again it has a new one,
    /// to be filled from `data.db` and from upstream.
    ///
    /// # Errors
    /// When it cannot be put aside.
    pub fn without_store(self, why: &str, now: Timestamp) -> Result<Option<String>, StateError> {
        let (_, opening) = self.store.put_aside(why, now).map_err(StateError::Store)?;
        Ok(store_alarm(&opening))
    }

    /// Whether the disk is so full that nothing new is to be taken: the reserve is not there, and there is no room to make it
    /// again. What is left would go to data, and the next start would fail.
    pub fn is_short(&mut self) -> bool {
        !self.ballast.keep()
    }

    /// Where it is.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }
}

/// Whose directory it is, if we are root and somebody else owns it.
fn foreign_owner(dir: &Path) -> Option<u32> {
    let owner = fs::metadata(dir).ok()?.uid();
    (rustix::process::geteuid().is_root() && owner != 0).then_some(owner)
}

/// Says it at once: what comes after may fail.
fn sink_alarm(opening: &sqlite::Opening) -> Option<String> {
    let sqlite::Opening::Replaced { aside, why } = opening else {
        return None;
    };
    let alarm = format!(
        "data.db was damaged ({why}): it is kept as {}, and all is delivered again",
        aside.display()
    );
    log::error!("{alarm}");
    Some(alarm)
}

fn store_alarm(opening: &store::Opening) -> Option<String> {
    let store::Opening::Rebuilt { aside, why } = opening else {
        return None;
    };
    let alarm = format!(
        "the store was damaged ({why}): it is kept as {}, and all is compared again",
        aside.display()
    );
    log::error!("{alarm}");
    Some(alarm)
}

fn make(dir: &Path, mode: u32) -> Result<(), StateError> {
    let failed = |error| StateError::Directory {
        path: dir.to_owned(),
        error,
    };
    match fs::DirBuilder::new().recursive(true).mode(mode).create(dir) {
        Ok(()) => Ok(()),
        // What `mkdir` says of a file that is in the way would only puzzle.
        Err(_) if dir.exists() && !dir.is_dir() => Err(failed(io::ErrorKind::NotADirectory.into())),
        Err(error) => Err(failed(error)),
    }
}

/// Makes the name of a new directory durable, and those of the directories that were made for it.
fn sync_names(dir: &Path) -> Result<(), StateError> {
    for above in dir.ancestors().skip(1) {
        let above = if above.as_os_str().is_empty() {
            Path::new(".")
        } else {
            above
        };
        match File::open(above).and_then(|opened| opened.sync_all()) {
            Ok(()) => {}
            // Made by somebody else: it may not be read, or its file system is read-only or has no syncs.
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::PermissionDenied
                        | io::ErrorKind::ReadOnlyFilesystem
                        | io::ErrorKind::InvalidInput
                ) =>
            {
                log::debug!("{}: cannot be synced: {error}", above.display());
            }
            Err(error) => {
                return Err(StateError::Directory {
                    path: above.to_owned(),
                    error,
                });
            }
        }
    }
    Ok(())
}

/// The lock of a state directory: a file that is locked for as long as its owner lives, with the owner's pid in it.
#[derive(Debug)]
struct Lock {
    _file: File,
}

impl Lock {
    fn take(dir: &Path) -> Result<Self, StateError> {
        let path = dir.join("lock");
        let failed = |error| StateError::Directory {
            path: path.clone(),
            error,
        };
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o640)
            .open(&path)
            .map_err(failed)?;
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            let mut pid = String::new();
            file.read_to_string(&mut pid).map_err(failed)?;
            return Err(StateError::Taken {
                dir: dir.to_owned(),
                pid: pid.trim().to_owned(),
            });
        }
        // Only for the message above: a full disk must not keep the agent from starting.
        let written = file
            .set_len(0)
            .and_then(|()| writeln!(file, "{}", std::process::id()));
        if let Err(error) = written {
            log::debug!("{}: {error}", path.display());
        }
        Ok(Self { _file: file })
    }
}
