//! Keeps the bound: what was not used for longest goes.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::memory::UNFINISHED;
use crate::clock::Timestamp;

/// What a file takes at least: file systems give space out in blocks.
const BLOCK: u64 = 4096;
/// A file that is still unfinished after this long was left by a process that ended.
const ABANDONED: Duration = Duration::from_secs(24 * 3600);

/// A file as far as it decides what goes.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Known {
    path: PathBuf,
    bytes: u64,
    used: SystemTime,
}

/// An instant as files have it.
pub(super) fn system(now: Timestamp) -> SystemTime {
    let millis = u64::try_from(now.as_millisecond()).unwrap_or(0);
    SystemTime::UNIX_EPOCH + Duration::from_millis(millis)
}

/// Removes files of `dirs` until they take no more than `bound` bytes.
pub(super) fn sweep(dirs: &[PathBuf], bound: u64, now: Timestamp) {
    let now = system(now);
    let mut known = Vec::new();
    for dir in dirs {
        look(dir, now, &mut known);
    }
    for path in surplus(known, bound) {
        // Another process may have done so.
        drop(fs::remove_file(path));
    }
}

fn look(dir: &Path, now: SystemTime, known: &mut Vec<Known>) {
    let Ok(files) = fs::read_dir(dir) else {
        return;
    };
    for file in files.flatten() {
        let Ok(about) = file.metadata() else {
            continue;
        };
        let used = about.modified().unwrap_or(SystemTime::UNIX_EPOCH);
        let path = file.path();
        if file
            .file_name()
            .as_encoded_bytes()
            .starts_with(UNFINISHED.as_bytes())
        {
            // One from the future was written under another clock.
            let idle = now.duration_since(used).unwrap_or(Duration::MAX);
            if idle >= ABANDONED {
                drop(fs::remove_file(path));
            }
            continue;
        }
        known.push(Known {
            path,
            bytes: about.len().div_ceil(BLOCK).max(1).saturating_mul(BLOCK),
            used,
        });
    }
}

/// Which files go, oldest use first, so that the others take no more than `bound`.
fn surplus(mut known: Vec<Known>, bound: u64) -> Vec<PathBuf> {
    let mut total: u64 = known
        .iter()
        .fold(0, |sum, file| sum.saturating_add(file.bytes));
    if total <= bound {
        return Vec::new();
    }
    known.sort_by(|a, b| (a.used, &a.path).cmp(&(b.used, &b.path)));
    let mut going = Vec::new();
    for file in known {
        if total <= bound {
            break;
        }
        total = total.saturating_sub(file.bytes);
        going.push(file.path);
    }
    going
}

#[cfg(test)]
mod tests;
