//! The journal of a source: a file that gets each change as a line, for `tail -F` and for loops in a shell.
//!
//! Where its lines end that are committed is in the store ([`Mark`]), in the same commit as the digests. What is behind that is
//! a batch on its way: `data.db` holds it before a line of it is written, so after a cut or a failure the same lines are due
//! under the same numbers. What is there of them already stays; whatever else is behind is cut off. So a follower may read a
//! line twice, and never misses one, and no number ever means two changes.
//!
//! A file that would become too large is put aside under the number of its first line (`parts.ndjson.000000000001`), which no
//! later rename changes.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use super::lines::number;
use super::{Batch, Sink, SinkError};
use crate::config;

/// The directory of journals in the state directory.
const DIRECTORY: &str = "journal";

/// Digits in the name of a file that was put aside, so that names sort as numbers do.
const DIGITS: usize = 12;

/// How far the followers of a source are, as the store keeps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// The number of the next change.
    pub next: u64,
    /// The number of the first line in the journal's file.
    pub file: u64,
    /// How many bytes of that file are committed.
    pub len: u64,
}

impl Default for Mark {
    /// Nothing was told yet.
    fn default() -> Self {
        Self {
            next: 1,
            file: 0,
            len: 0,
        }
    }
}

impl Mark {
    /// As the store keeps it.
    #[must_use]
    pub fn encode(&self) -> [u8; 24] {
        let mut bytes = [0; 24];
        for (at, number) in [self.next, self.file, self.len].into_iter().enumerate() {
            bytes[at * 8..at * 8 + 8].copy_from_slice(&number.to_be_bytes());
        }
        bytes
    }

    /// Reads what [`Mark::encode`] wrote; `None` if it is anything else.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let numbers: [u8; 24] = bytes.try_into().ok()?;
        let mut each = numbers.chunks_exact(8).map(|chunk| {
            let mut number = [0; 8];
            number.copy_from_slice(chunk);
            u64::from_be_bytes(number)
        });
        Some(Self {
            next: each.next()?,
            file: each.next()?,
            len: each.next()?,
        })
    }
}

/// A source's journal, opened for one batch.
#[derive(Debug)]
pub struct Journal<'a> {
    directory: PathBuf,
    path: PathBuf,
    spec: &'a config::Journal,
    mark: Mark,
}

/// Where the next line belongs.
struct Place {
    /// Behind this many bytes.
    base: u64,
    /// The number of the last line before, if there is one.
    last: Option<u64>,
    /// The file is the one that the mark speaks of, and has all of it.
    as_marked: bool,
}

impl<'a> Journal<'a> {
    /// The journal of this config in the state directory `state`, as far as `mark` says.
    #[must_use]
    pub fn new(state: &Path, spec: &'a config::Journal, mark: Mark) -> Self {
        let directory = state.join(DIRECTORY);
        let path = directory.join(&spec.file);
        Self {
            directory,
            path,
            spec,
            mark,
        }
    }

    /// How far it is: committed with the batch that was delivered.
    #[must_use]
    pub fn mark(&self) -> Mark {
        self.mark
    }

    /// The number of the last line that is there, committed or not; `None` where there is none behind what the mark speaks of.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn last(&self) -> Result<Option<u64>, SinkError> {
        let file = match File::open(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other.map_err(|error| SinkError::io(&self.path, &error))?,
        };
        let place = self.place(&file, u64::MAX);
        Ok(place
            .map_err(|error| SinkError::io(&self.path, &error))?
            .last)
    }

    fn aside(&self, first: u64) -> PathBuf {
        let name = format!("{}.{first:0DIGITS$}", self.spec.file);
        self.directory.join(name)
    }

    /// Where lines from the number `seq` on belong: behind the last whole line of a lower number.
    fn place(&self, file: &File, seq: u64) -> io::Result<Place> {
        let len = file.metadata()?.len();
        let mut start = [0; 40];
        let read = file.read_at(&mut start, 0)?;
        let first = number(&start[..read]);
        let known = self.mark.len > 0 && first == Some(self.mark.file);
        let from = if known && len >= self.mark.len {
            self.mark.len
        } else {
            0
        };
        let mut place = Place {
            base: from,
            last: None,
            as_marked: from > 0 || self.mark.len == 0,
        };
        let mut file = file;
        file.seek(SeekFrom::Start(from))?;
        let mut lines = BufReader::new(file);
        let mut line = Vec::new();
        loop {
            line.clear();
            let bytes = lines.read_until(b'\n', &mut line)?;
            match number(&line) {
                Some(number) if line.ends_with(b"\n") && number < seq => {
                    place.base += bytes as u64;
                    place.last = Some(number);
                }
                _ => return Ok(place),
            }
        }
    }

    /// Says what somebody else did to the file. What is committed is told already, so nothing is lost by it for us.
    fn complain(&self, len: u64, place: &Place, seq: u64) {
        // Put aside just before a cut: the file is a new one.
        if place.as_marked || self.aside(self.mark.file).exists() {
            return;
        }
        let what = if len == 0 {
            "it is gone, or empty".to_owned()
        } else {
            format!(
                "{} bytes were committed, it has {len} or begins otherwise",
                self.mark.len
            )
        };
        log::warn!(
            "{}: the journal is not as it was left: {what}. It goes on with the number {seq}; `gleaner replay` tells everything again",
            self.path.display()
        );
    }

    fn append(&mut self, seq: u64, lines: &[u8], changes: u64) -> io::Result<()> {
        let mut file = self.open()?;
        let len = file.metadata()?.len();
        let mut place = self.place(&file, seq)?;
        self.complain(len, &place, seq);
        let mut there = agreeing(&file, place.base, lines)?;
        let begun = there == 0 && place.base > 0;
        if begun && place.base + lines.len() as u64 > self.spec.rotate {
            cut(&file, len, place.base)?;
            file = self.put_aside(&file)?;
            (place.base, there) = (0, 0);
        } else {
            cut(&file, len, place.base + there as u64)?;
        }
        file.seek(SeekFrom::Start(place.base + there as u64))?;
        file.write_all(&lines[there..])?;
        if let Err(error) = file.sync_data() {
            // Linux tells of a failed sync once: a second one would promise what is not there. It is written anew.
            file.set_len(place.base)?;
            return Err(error);
        }
        if place.base == 0 {
            File::open(&self.directory)?.sync_all()?;
            self.prune()?;
        }
        let first = if place.base == 0 {
            seq
        } else {
            first_number(&file)?.unwrap_or(seq)
        };
        self.mark = Mark {
            next: seq + changes,
            file: first,
            len: place.base + lines.len() as u64,
        };
        Ok(())
    }

    fn open(&self) -> io::Result<File> {
        let open = || {
            OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o640)
                .open(&self.path)
        };
        match open() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                std::fs::DirBuilder::new()
                    .recursive(true)
                    .mode(0o750)
                    .create(&self.directory)?;
                if let Some(above) = self.directory.parent() {
                    File::open(above)?.sync_all()?;
                }
                open()
            }
            other => other,
        }
    }

    /// Puts the file aside, and begins a new one.
    fn put_aside(&self, file: &File) -> io::Result<File> {
        file.sync_all()?;
        let first = first_number(file)?.unwrap_or(self.mark.file);
        std::fs::rename(&self.path, self.aside(first))?;
        self.open()
    }

    /// Of the files that were put aside the latest are kept.
    fn prune(&self) -> io::Result<()> {
        let mut aside = Vec::new();
        for entry in std::fs::read_dir(&self.directory)? {
            let name = entry?.file_name();
            let number = name
                .to_str()
                .and_then(|name| name.strip_prefix(&self.spec.file)?.strip_prefix('.'))
                .filter(|rest| rest.len() >= DIGITS)
                .and_then(|rest| rest.parse::<u64>().ok());
            aside.extend(number);
        }
        aside.sort_unstable();
        let surplus = aside.len().saturating_sub(self.spec.keep as usize);
        for first in &aside[..surplus] {
            std::fs::remove_file(self.aside(*first))?;
        }
        Ok(())
    }
}

impl Sink for Journal<'_> {
    /// The lines are in the file, durably, when this returns; the mark says so once the store has it.
    fn deliver(&mut self, batch: &Batch<'_>) -> Result<(), SinkError> {
        let Some(told) = batch.told else {
            return Ok(());
        };
        self.append(told.seq, told.lines, batch.changes.len() as u64)
            .map_err(|error| SinkError::io(&self.path, &error))
    }
}

fn first_number(file: &File) -> io::Result<Option<u64>> {
    let mut start = [0; 40];
    let read = file.read_at(&mut start, 0)?;
    Ok(number(&start[..read]))
}

/// How many bytes of whole lines of `lines` are in the file behind `base` already.
fn agreeing(file: &File, base: u64, lines: &[u8]) -> io::Result<usize> {
    let mut file = file;
    file.seek(SeekFrom::Start(base))?;
    let mut there = Vec::new();
    file.take(lines.len() as u64).read_to_end(&mut there)?;
    let same = there.iter().zip(lines).take_while(|(a, b)| a == b).count();
    let whole = lines[..same].iter().rposition(|byte| *byte == b'\n');
    Ok(whole.map_or(0, |end| end + 1))
}

/// Cuts off what is behind `end`.
fn cut(file: &File, len: u64, end: u64) -> io::Result<()> {
    if len > end {
        file.set_len(end)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
