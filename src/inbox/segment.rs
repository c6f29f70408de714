//! Segment files: how they are named, made and read.
//!
//! ```text
//! inbox/
//!   lock                 held while the inbox is open
//!   0000000007.seg       header, frames, zeros up to its size
//!   0000000007.marks     what became of its records
//!   0000000006.seg
//!   0000000006.done      the same, all of whose records need nothing any more
//!   new.seg, new.marks   one that is being made; means nothing
//! ```
//!
//! A segment is written out with zeros under the name `new.seg`, synced, renamed, and its directory synced: what has a
//! number is whole. Filling it then changes no metadata, so a sync costs less and cannot fail for want of space.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use super::crc::Crc;
use super::error::InboxError;
use super::frame::Marker;

/// The usual size of a segment in bytes.
pub(super) const SIZE: u32 = 4 * 1024 * 1024;
/// Where the first frame goes: behind two copies of the header, in sectors of their own.
pub(super) const START: u32 = 1024;
const COPY: usize = 512;

const MAGIC: [u8; 14] = *b"gleaner inbox\n";
const VERSION: u8 = 1;
const HEADER: usize = 14 + 1 + 4 + 8 + 4;

/// Payloads may hold secrets.
pub(super) const FILE_MODE: u32 = 0o600;

/// The path of a segment.
pub(super) fn path(dir: &Path, number: u32) -> PathBuf {
    named(dir, number, "seg")
}

/// The path of a file beside a segment.
pub(super) fn named(dir: &Path, number: u32, kind: &str) -> PathBuf {
    dir.join(format!("{number:010}.{kind}"))
}

/// Number and kind of the files in an inbox; others are left out.
pub(super) fn list(dir: &Path) -> Result<Vec<(u32, String)>, InboxError> {
    let failed = |error| InboxError::io(dir, error);
    let mut files = Vec::new();
    for entry in fs::read_dir(dir).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        let parts = name.to_str().and_then(|name| name.split_once('.'));
        if let Some((number, kind)) = parts.filter(|(number, _)| {
            number.len() == 10 && number.bytes().all(|byte| byte.is_ascii_digit())
        }) {
            if let Ok(number) = number.parse() {
                files.push((number, kind.to_owned()));
            }
        }
    }
    files.sort();
    Ok(files)
}

fn header(number: u32, marker: Marker) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    out.push(VERSION);
    out.extend_from_slice(&number.to_be_bytes());
    out.extend_from_slice(&marker);
    let sum = Crc::new().over(&out).sum();
    out.extend_from_slice(&sum.to_be_bytes());
    out
}

/// What a segment's header says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Header {
    /// The marker of its frames.
    Known(Marker),
    /// A newer gleaner wrote it.
    Newer(u8),
    /// Neither copy can be read.
    Damaged,
}

/// Reads the header out of a segment's first bytes: of two copies the one that is whole.
pub(super) fn read_header(bytes: &[u8]) -> Header {
    [0, COPY]
        .iter()
        .find_map(|at| read_copy(bytes.get(*at..at + HEADER)?))
        .unwrap_or(Header::Damaged)
}

fn read_copy(copy: &[u8]) -> Option<Header> {
    let (said, sum) = copy.split_last_chunk::<4>()?;
    if Crc::new().over(said).sum().to_be_bytes() != *sum {
        return None;
    }
    let rest = said.strip_prefix(&MAGIC)?;
    match rest.first()? {
        &VERSION => Some(Header::Known(rest.get(5..)?.try_into().ok()?)),
        found => (*found > VERSION).then_some(Header::Newer(*found)),
    }
}

/// Makes a segment of this size and opens it.
pub(super) fn create(
    dir: &Path,
    number: u32,
    size: u32,
    marker: Marker,
) -> Result<File, InboxError> {
    let new = dir.join("new.seg");
    let made = write_out(&new, number, size, marker);
    let file = made.map_err(|error| {
        // Half of one only takes room.
        drop(fs::remove_file(&new));
        InboxError::io(&new, error)
    })?;
    let path = path(dir, number);
    fs::rename(&new, &path).map_err(|error| InboxError::io(&path, error))?;
    sync_names(dir)?;
    Ok(file)
}

fn write_out(new: &Path, number: u32, size: u32, marker: Marker) -> io::Result<File> {
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .mode(FILE_MODE)
        .open(new)?;
    let mut start = header(number, marker);
    start.resize(COPY, 0);
    start.extend_from_slice(&header(number, marker));
    start.resize(64 * 1024, 0);
    let zeros = vec![0; start.len()];
    let mut left = usize::try_from(size).unwrap_or(usize::MAX);
    let mut piece = &start;
    while left > 0 {
        let long = piece.len().min(left);
        file.write_all(&piece[..long])?;
        left -= long;
        piece = &zeros;
    }
    file.sync_all()?;
    Ok(file)
}

/// Reads all of a file. A segment is some MiB long, and in memory only while it is looked through.
pub(super) fn read(path: &Path) -> Result<Vec<u8>, InboxError> {
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|mut file| file.read_to_end(&mut bytes))
        .map_err(|error| InboxError::io(path, error))?;
    Ok(bytes)
}

/// Makes the names in a directory durable.
pub(super) fn sync_names(dir: &Path) -> Result<(), InboxError> {
    File::open(dir)
        .and_then(|dir| dir.sync_all())
        .map_err(|error| InboxError::io(dir, error))
}

/// Removes a file that may be gone already.
pub(super) fn remove(path: &Path) -> Result<(), InboxError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(InboxError::io(path, error)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn either_copy_of_the_header_will_do() {
        let dir = tempfile::tempdir().unwrap();
        create(dir.path(), 3, 100_000, [7; 8]).unwrap();
        let whole = read(&path(dir.path(), 3)).unwrap();
        assert_eq!(whole.len(), 100_000);
        for byte in 0..usize::try_from(START).unwrap() {
            let mut flipped = whole.clone();
            flipped[byte] ^= 0x10;
            assert_eq!(read_header(&flipped), Header::Known([7; 8]));
        }
        assert_eq!(read_header(&whole[COPY..]), Header::Known([7; 8]));
        assert_eq!(read_header(&whole[1..]), Header::Damaged);
        assert_eq!(read_header(b""), Header::Damaged);
        let mut newer = header(3, [7; 8]);
        newer[MAGIC.len()] = 2;
        let sum = Crc::new().over(&newer[..HEADER - 4]).sum();
        newer[HEADER - 4..].copy_from_slice(&sum.to_be_bytes());
        assert_eq!(read_header(&newer), Header::Newer(2));
    }

    #[test]
    fn only_files_of_ours_are_listed() {
        let dir = tempfile::tempdir().unwrap();
        for name in [
            "0000000002.seg",
            "0000000001.marks",
            "lock",
            "new.seg",
            "1.seg",
            "+000000001.seg",
        ] {
            fs::write(dir.path().join(name), "").unwrap();
        }
        let files: Vec<_> = list(dir.path()).unwrap();
        assert_eq!(files, [(1, "marks".to_owned()), (2, "seg".to_owned())]);
    }
}
