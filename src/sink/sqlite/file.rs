//! The file itself: how it is made, kept readable, put aside, and what its errors mean.

use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, ErrorCode};

use crate::clock::Timestamp;
use crate::sink::{SinkError, SinkTrouble};

/// Keeps `-wal` and `-shm` when the last connection closes: without them a reader that may not write the directory
/// could not open the file.
#[expect(
    unsafe_code,
    reason = "rusqlite has no safe call for SQLITE_FCNTL_PERSIST_WAL"
)]
pub(super) fn keep_wal(db: &Connection) -> rusqlite::Result<()> {
    let mut on: std::os::raw::c_int = 1;
    // SAFETY: the handle is open for as long as `db` is borrowed; the call reads and writes one int through the pointer,
    // which outlives it; "main" is a C string.
    let code = unsafe {
        rusqlite::ffi::sqlite3_file_control(
            db.handle(),
            c"main".as_ptr(),
            rusqlite::ffi::SQLITE_FCNTL_PERSIST_WAL,
            std::ptr::from_mut(&mut on).cast(),
        )
    };
    if code == rusqlite::ffi::SQLITE_OK {
        Ok(())
    } else {
        Err(rusqlite::Error::SqliteFailure(
            rusqlite::ffi::Error::new(code),
            None,
        ))
    }
}

/// Makes the file readable for the group before SQLite does; its log files take the same mode.
pub(super) fn create_readable(path: &Path) -> Result<(), SinkError> {
    let made = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o640)
        .open(path);
    made.map(drop).map_err(|error| SinkError::io(path, &error))
}

pub(super) fn sync_directory(path: &Path) -> Result<(), SinkError> {
    let directory = path.parent().unwrap_or(Path::new("."));
    std::fs::File::open(directory)
        .and_then(|dir| dir.sync_all())
        .map_err(|error| SinkError::io(directory, &error))
}

pub(super) fn put_aside(path: &Path, now: Timestamp) -> Result<PathBuf, SinkError> {
    let day = now.strftime("%Y-%m-%d").to_string();
    let named = |n: u32| {
        let suffix = if n == 0 {
            String::new()
        } else {
            format!("-{n}")
        };
        PathBuf::from(format!("{}.damaged-{day}{suffix}", path.display()))
    };
    let aside = (0..1000)
        .map(named)
        .find(|candidate| !candidate.exists())
        .unwrap_or_else(|| named(1000));
    std::fs::rename(path, &aside).map_err(|error| SinkError::io(path, &error))?;
    for log in ["-wal", "-shm"] {
        let from = PathBuf::from(format!("{}{log}", path.display()));
        if from.exists() {
            let to = PathBuf::from(format!("{}{log}", aside.display()));
            std::fs::rename(&from, &to).map_err(|error| SinkError::io(&from, &error))?;
        }
    }
    sync_directory(path)?;
    Ok(aside)
}

pub(super) fn explain(path: &Path, error: &rusqlite::Error) -> SinkError {
    let (kind, hint) = match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => (SinkTrouble::Full, "; make room, nothing was lost"),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => (
            SinkTrouble::Busy,
            "; another program holds a write lock: this file is for reading",
        ),
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => (SinkTrouble::Damaged, ""),
        Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => (
            SinkTrouble::ReadOnly,
            "; is the directory writable for this user?",
        ),
        Some(ErrorCode::SystemIoFailure) => (SinkTrouble::Other, "; is the disk full, or failing?"),
        _ => (SinkTrouble::Other, ""),
    };
    SinkError {
        kind,
        message: format!("{}: {error}{hint}", path.display()),
    }
}
