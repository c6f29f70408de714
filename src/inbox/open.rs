//! Opening: what a cut left is tidied up, and what waits is found again.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use super::error::InboxError;
use super::frame::{self, Marker};
use super::index::{self, Entry, Segment, Standing};
use super::marks::{self, Log};
use super::segment::{self, FILE_MODE, Header, START};
use super::state::State;
use super::{Active, Inbox, Limits, id, seconds};

/// Something in the inbox that is not what was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finding {
    /// The end of a segment is no record, as a power cut leaves it: it was never acknowledged, and is cut off.
    Torn {
        /// The segment.
        path: PathBuf,
        /// Where, in bytes.
        offset: usize,
        /// How many bytes.
        bytes: usize,
    },
    /// There is something between records that is none: damage, or what a power cut left of several that were being
    /// written. Those before and behind it are whole.
    Lost {
        /// The segment.
        path: PathBuf,
        /// Where, in bytes.
        offset: usize,
        /// How many bytes.
        bytes: usize,
    },
    /// What became of some records is not known any more: they are processed again.
    LostMarks {
        /// The log.
        path: PathBuf,
        /// How many bytes.
        bytes: usize,
    },
    /// Nothing of a segment can be read: it was put aside.
    Aside {
        /// Where it is now.
        path: PathBuf,
    },
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Torn {
                path,
                offset,
                bytes,
            } => write!(
                f,
                "{}: {bytes} bytes at byte {offset} were being written when the power was cut; they were never acknowledged, and are cut off",
                path.display()
            ),
            Self::Lost {
                path,
                offset,
                bytes,
            } => write!(
                f,
                "{}: {bytes} bytes at byte {offset} cannot be read: a payload is lost, or was being written when the power was cut; all others are whole",
                path.display()
            ),
            Self::LostMarks { path, bytes } => write!(
                f,
                "{}: {bytes} bytes are damaged; what became of some payloads is not known, and they are processed again",
                path.display()
            ),
            Self::Aside { path } => write!(
                f,
                "a segment of the inbox cannot be read at all; it is kept as {}",
                path.display()
            ),
        }
    }
}

/// How the inbox came to be open.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Opening {
    /// What is not as it was written. [`Finding::Torn`] is what a power cut leaves; the others are damage.
    pub findings: Vec<Finding>,
}

impl Inbox {
    /// Opens the inbox in `dir`, making it if it is missing. Segments with records that are not settled are read whole.
    ///
    /// # Errors
    /// [`InboxError::Locked`], [`InboxError::Newer`], and what the system says; a later try misses nothing.
    pub fn open(dir: &Path, limits: Limits) -> Result<(Self, Opening), InboxError> {
        make(dir)?;
        let lock = lock(dir)?;
        for left in ["new.seg", "new.marks"] {
            segment::remove(&dir.join(left))?;
        }
        let mut inbox = Self {
            dir: dir.to_path_buf(),
            limits,
            _lock: lock,
            segments: BTreeMap::new(),
            last: 0,
            active: None,
            filled: Vec::new(),
            spare: None,
            unsynced: Vec::new(),
            outstanding: 0,
            unmarked: super::seen::Unmarked::default(),
            hooks: Vec::new(),
            ids: id::Counter::default(),
        };
        let mut opening = Opening::default();
        let files = segment::list(dir)?;
        let numbers: BTreeSet<u32> = files.iter().map(|(number, _)| *number).collect();
        inbox.last = numbers.last().copied().unwrap_or(0);
        for number in numbers {
            let has = |kind: &str| {
                files
                    .iter()
                    .any(|(of, named)| *of == number && named == kind)
            };
            if has("seg") {
                let newest = number == inbox.last;
                inbox.load(number, has("done"), newest, &mut opening.findings)?;
            } else if !has("damaged") {
                // A removal was cut: the payloads are gone already.
                segment::remove(&segment::named(dir, number, "marks"))?;
                segment::remove(&segment::named(dir, number, "done"))?;
            }
        }
        inbox.outstanding = inbox
            .segments
            .values()
            .map(|segment| segment.entries.len())
            .sum();
        Ok((inbox, opening))
    }

    fn load(
        &mut self,
        number: u32,
        done: bool,
        newest: bool,
        findings: &mut Vec<Finding>,
    ) -> Result<(), InboxError> {
        let path = segment::path(&self.dir, number);
        let failed = |error| InboxError::io(&path, error);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(&path)
            .map_err(failed)?;
        let mut start = vec![0; 1024];
        let read = read_start(&file, &mut start).map_err(failed)?;
        let long = file.metadata().map_err(failed)?.len();
        let marker = match segment::read_header(start.get(..read).unwrap_or_default()) {
            Header::Known(marker) => marker,
            Header::Newer(found) => return Err(InboxError::Newer { path, found }),
            Header::Damaged => return self.put_aside(number, findings),
        };
        let mut loaded = Segment::new(marker, long);
        if done && self.load_done(number, &mut loaded)? {
            self.segments.insert(number, loaded);
            return Ok(());
        }
        let (scan, stale) = self.load_records(number, done, &mut loaded, findings)?;
        self.mend(number, &file, marker, &scan, findings)?;
        if newest && !stale {
            let size = u32::try_from(long).unwrap_or(u32::MAX);
            let end = u32::try_from(scan.end).unwrap_or(u32::MAX);
            self.active = Some(Active {
                number,
                file,
                end,
                size,
            });
        } else {
            loaded.finish(&self.dir, number);
        }
        self.segments.insert(number, loaded);
        Ok(())
    }

    /// Takes the last words of a log for all of it. `false`: they are not there.
    fn load_done(&self, number: u32, loaded: &mut Segment) -> Result<bool, InboxError> {
        let bytes = segment::read(&segment::named(&self.dir, number, "done"))?;
        let Some(summary) = marks::read_summary(loaded.marker, &bytes) else {
            return Ok(false);
        };
        loaded.summary = summary;
        loaded.done = true;
        Ok(true)
    }

    /// What is in the segment, and whether its log speaks of records behind that: a new one in their place would be taken
    /// for one of them.
    fn load_records(
        &mut self,
        number: u32,
        done: bool,
        loaded: &mut Segment,
        findings: &mut Vec<Finding>,
    ) -> Result<(frame::Scan, bool), InboxError> {
        let dir = self.dir.clone();
        let log = segment::named(&dir, number, "marks");
        if done {
            // Its last words are damaged: it is a log like others then.
            let from = segment::named(&dir, number, "done");
            fs::rename(&from, &log).map_err(|error| InboxError::io(&from, error))?;
            segment::sync_names(&dir)?;
        }
        let states = load_marks(&log, loaded, findings)?;
        let path = segment::path(&dir, number);
        let bytes = segment::read(&path)?;
        let mut newer = None;
        let mut unreadable = Vec::new();
        let scan = frame::scan(
            loaded.marker,
            &bytes,
            usize::try_from(START).unwrap_or(0),
            |at, frame| {
                let offset = u32::try_from(at).unwrap_or(u32::MAX);
                let Some(stored) = frame.head() else {
                    newer = newer.or(frame.newer());
                    unreadable.push(at..at + frame.len());
                    return;
                };
                let received = &stored.received;
                let mut entry = Entry {
                    id: stored.id,
                    offset,
                    next: 0,
                    hook: index::intern(&mut self.hooks, &received.hook),
                    tries: 0,
                    standing: Standing::Pending,
                };
                loaded.count(
                    stored.id,
                    received.clock_trusted.then(|| seconds(received.at)),
                );
                if states.get(&offset).is_none_or(|state| entry.take(state)) {
                    loaded.entries.push(entry);
                }
            },
        );
        if let Some(found) = newer {
            return Err(InboxError::Newer { path, found });
        }
        let behind = |offset: &u32| usize::try_from(*offset).is_ok_and(|at| at >= scan.end);
        let stale = states.keys().any(behind);
        let scan = frame::Scan {
            lost: [scan.lost, unreadable].concat(),
            ..scan
        };
        Ok((scan, stale))
    }

    /// Covers what was lost, so that it is said once, and cuts off what was torn.
    fn mend(
        &self,
        number: u32,
        file: &File,
        marker: Marker,
        scan: &frame::Scan,
        findings: &mut Vec<Finding>,
    ) -> Result<(), InboxError> {
        if scan.lost.is_empty() && scan.torn.is_none() {
            return Ok(());
        }
        let path = segment::path(&self.dir, number);
        let failed = |error| InboxError::io(&path, error);
        for lost in &scan.lost {
            let mut damaged = vec![0; lost.len()];
            file.read_exact_at(&mut damaged, lost.start as u64)
                .map_err(failed)?;
            if let Some(filler) = frame::filler(marker, &damaged) {
                file.write_all_at(&filler, lost.start as u64)
                    .map_err(failed)?;
            }
            findings.push(Finding::Lost {
                path: path.clone(),
                offset: lost.start,
                bytes: lost.len(),
            });
        }
        if let Some(torn) = &scan.torn {
            file.write_all_at(&vec![0; torn.len()], torn.start as u64)
                .map_err(failed)?;
            findings.push(Finding::Torn {
                path: path.clone(),
                offset: torn.start,
                bytes: torn.len(),
            });
        }
        file.sync_data().map_err(failed)
    }

    /// Without its header nothing vouches for what is in a segment.
    fn put_aside(&self, number: u32, findings: &mut Vec<Finding>) -> Result<(), InboxError> {
        let from = segment::path(&self.dir, number);
        let path = segment::named(&self.dir, number, "damaged");
        fs::rename(&from, &path).map_err(|error| InboxError::io(&from, error))?;
        segment::sync_names(&self.dir)?;
        findings.push(Finding::Aside { path });
        Ok(())
    }
}

fn load_marks(
    log: &Path,
    loaded: &mut Segment,
    findings: &mut Vec<Finding>,
) -> Result<BTreeMap<u32, State>, InboxError> {
    let mut states = BTreeMap::new();
    if !log.exists() {
        return Ok(states);
    }
    let bytes = segment::read(log)?;
    let (end, lost) = marks::scan(loaded.marker, &bytes, |mark| {
        states.insert(mark.offset, mark.state);
    });
    if lost > 0 {
        findings.push(Finding::LostMarks {
            path: log.to_path_buf(),
            bytes: lost,
        });
    }
    if end == bytes.len() {
        loaded.log = Log::whole(end as u64);
    }
    Ok(states)
}

fn read_start(file: &File, buffer: &mut [u8]) -> std::io::Result<usize> {
    let mut filled = 0;
    while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, filled as u64)? {
            0 => break,
            more => filled += more,
        }
    }
    Ok(filled)
}

fn make(dir: &Path) -> Result<(), InboxError> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .map_err(|error| InboxError::io(dir, error))?;
    // Whoever made it may have been killed before this: asked is what is only there afterwards.
    match dir.parent() {
        Some(above) if !dir.join("lock").exists() => segment::sync_names(above),
        _ => Ok(()),
    }
}

fn lock(dir: &Path) -> Result<File, InboxError> {
    let path = dir.join("lock");
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(FILE_MODE)
        .open(&path)
        .map_err(|error| InboxError::io(&path, error))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(InboxError::Locked { path }),
        Err(error) => Err(InboxError::io(&path, error.into())),
    }
}

/// Random bits of the system's.
pub(super) fn random(dir: &Path) -> Result<u64, InboxError> {
    let mut bytes = [0; 8];
    let mut filled = 0;
    while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        filled += rustix::rand::getrandom(rest, rustix::rand::GetRandomFlags::empty())
            .map_err(|error| InboxError::io(dir, error.into()))?;
    }
    Ok(u64::from_be_bytes(bytes))
}
