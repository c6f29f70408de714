//! What became of the records of a segment: a log beside it, to which every change is appended. The last word on a record
//! counts; a record without one waits.
//!
//! ```text
//! CRC-32C 4 · length 1 · version 1 · offset of the record 4 · when 4 · state 1 · tries 2 · next try 4 · reason
//! ```
//!
//! Only `failed` and `dead` go on after the state. The checksum starts with the segment's marker, so that no text in a reason
//! can pass for a mark. A torn tail is cut off when the log is next written; a damaged mark loses itself: the record is
//! what it was before, and is processed once more.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use super::crc::Crc;
use super::error::InboxError;
use super::frame::Marker;
use super::segment::{self, FILE_MODE};
use super::state::State;

const VERSION: u8 = 1;
const BEFORE: usize = 5;
/// Longer reasons are cut.
const MAX_REASON: usize = 200;

/// What became of the record at this offset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) offset: u32,
    /// When, in seconds since 1970.
    pub(super) at: u32,
    pub(super) state: State,
}

/// The last words of a log whose segment needs nothing any more: with them it need not be read when the inbox is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Summary {
    pub(super) records: u32,
    /// The least and the greatest request id.
    pub(super) ids: ([u8; 16], [u8; 16]),
    /// The last instant at which something was received under a trusted clock, in seconds since 1970.
    pub(super) newest: Option<u32>,
}

const SUMMARY: usize = 1 + 4 + 16 + 16 + 4;
const SUMMARY_VERSION: u8 = 0x80;

fn encode(out: &mut Vec<u8>, marker: Marker, body: &[u8]) {
    let long = u8::try_from(body.len()).unwrap_or(u8::MAX);
    let body = &body[..usize::from(long)];
    let sum = Crc::new().over(&marker).over(&[long]).over(body).sum();
    out.extend_from_slice(&sum.to_be_bytes());
    out.push(long);
    out.extend_from_slice(body);
}

fn encode_mark(out: &mut Vec<u8>, marker: Marker, mark: &Mark) {
    let mut body = vec![VERSION];
    body.extend_from_slice(&mark.offset.to_be_bytes());
    body.extend_from_slice(&mark.at.to_be_bytes());
    body.push(mark.state.code());
    if let State::Failed { tries, reason, .. } | State::Dead { tries, reason } = &mark.state {
        let next = match &mark.state {
            State::Failed { next, .. } => *next,
            _ => 0,
        };
        body.extend_from_slice(&tries.to_be_bytes());
        body.extend_from_slice(&next.to_be_bytes());
        let short = reason
            .char_indices()
            .map(|(at, _)| at)
            .chain([reason.len()])
            .take_while(|at| *at <= MAX_REASON)
            .last()
            .unwrap_or(0);
        body.extend_from_slice(&reason.as_bytes()[..short]);
    }
    encode(out, marker, &body);
}

fn encode_summary(out: &mut Vec<u8>, marker: Marker, summary: &Summary) {
    let mut body = vec![SUMMARY_VERSION];
    body.extend_from_slice(&summary.records.to_be_bytes());
    body.extend_from_slice(&summary.ids.0);
    body.extend_from_slice(&summary.ids.1);
    body.extend_from_slice(&summary.newest.unwrap_or(0).to_be_bytes());
    encode(out, marker, &body);
}

/// The body of the entry that these bytes start with, if it is whole.
fn whole(marker: Marker, bytes: &[u8]) -> Option<&[u8]> {
    let (sum, rest) = bytes.split_first_chunk::<4>()?;
    let body = rest.get(1..1 + usize::from(*rest.first()?))?;
    let said = rest.get(..=body.len())?;
    (Crc::new().over(&marker).over(said).sum().to_be_bytes() == *sum).then_some(body)
}

fn decode_mark(body: &[u8]) -> Option<Mark> {
    let (&VERSION, rest) = body.split_first()? else {
        return None;
    };
    let (offset, rest) = rest.split_first_chunk()?;
    let (at, rest) = rest.split_first_chunk()?;
    let (code, rest) = rest.split_first()?;
    Some(Mark {
        offset: u32::from_be_bytes(*offset),
        at: u32::from_be_bytes(*at),
        state: decode_state(*code, rest)?,
    })
}

fn decode_state(code: u8, rest: &[u8]) -> Option<State> {
    let simple = [State::Pending, State::Done, State::Dropped, State::Void];
    if let Some(state) = simple.into_iter().find(|state| state.code() == code) {
        return rest.is_empty().then_some(state);
    }
    let (tries, rest) = rest.split_first_chunk()?;
    let (next, reason) = rest.split_first_chunk()?;
    let tries = u16::from_be_bytes(*tries);
    let next = u32::from_be_bytes(*next);
    let reason = String::from_utf8(reason.to_vec()).ok()?;
    let states = [
        State::Failed {
            tries,
            next,
            reason: reason.clone(),
        },
        State::Dead { tries, reason },
    ];
    states.into_iter().find(|state| state.code() == code)
}

fn decode_summary(body: &[u8]) -> Option<Summary> {
    let (&SUMMARY_VERSION, rest) = body.split_first()? else {
        return None;
    };
    let (records, rest) = rest.split_first_chunk()?;
    let (first, rest) = rest.split_first_chunk()?;
    let (last, rest) = rest.split_first_chunk()?;
    let newest = u32::from_be_bytes(rest.try_into().ok()?);
    Some(Summary {
        records: u32::from_be_bytes(*records),
        ids: (*first, *last),
        newest: (newest > 0).then_some(newest),
    })
}

/// The marks in a log, in order. Returns behind which byte nothing whole follows, and how many bytes before that are no
/// marks.
pub(super) fn scan(marker: Marker, bytes: &[u8], mut each: impl FnMut(Mark)) -> (usize, usize) {
    let (mut at, mut end, mut lost) = (0, 0, 0);
    while at < bytes.len() {
        let Some(body) = whole(marker, bytes.get(at..).unwrap_or_default()) else {
            at += 1;
            continue;
        };
        lost += at - end;
        at += BEFORE + body.len();
        end = at;
        if let Some(mark) = decode_mark(body) {
            each(mark);
        }
    }
    (end, lost)
}

/// The summary at the end of a log, if it is there.
pub(super) fn read_summary(marker: Marker, bytes: &[u8]) -> Option<Summary> {
    let last = bytes.get(bytes.len().checked_sub(BEFORE + SUMMARY)?..)?;
    decode_summary(whole(marker, last)?)
}

/// The log of one segment.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Log {
    /// Bytes of it that are known to be whole and durable; `None`: it has to be written anew, since it does not exist yet,
    /// has a torn tail, or could not be synced.
    end: Option<u64>,
}

impl Log {
    /// A log that was read and is whole.
    pub(super) fn whole(long: u64) -> Self {
        Self { end: Some(long) }
    }

    /// Appends marks; when this returns, they survive a power cut.
    pub(super) fn append(
        &mut self,
        (dir, number): (&Path, u32),
        marker: Marker,
        marks: &[Mark],
        summary: Option<&Summary>,
    ) -> Result<(), InboxError> {
        let path = segment::named(dir, number, "marks");
        let mut more = Vec::new();
        for mark in marks {
            encode_mark(&mut more, marker, mark);
        }
        if let Some(summary) = summary {
            encode_summary(&mut more, marker, summary);
        }
        // Whatever goes wrong from here on, what is behind the last good sync is not known.
        let written = match self.end.take() {
            Some(end) => append(&path, end, &more).map(|()| end),
            None => rewrite(dir, &path, marker, &more),
        };
        let before = written.map_err(|error| InboxError::io(&path, error))?;
        self.end = Some(before + more.len() as u64);
        Ok(())
    }
}

/// Gives a log that ends with a summary the name that says so.
pub(super) fn finish(dir: &Path, number: u32) -> Result<(), InboxError> {
    let done = segment::named(dir, number, "done");
    fs::rename(segment::named(dir, number, "marks"), &done)
        .map_err(|error| InboxError::io(&done, error))?;
    segment::sync_names(dir)
}

fn append(path: &Path, end: u64, more: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().append(true).open(path)?;
    if file.metadata()?.len() != end {
        return Err(io::Error::other("somebody else has written to it"));
    }
    file.write_all(more)?;
    file.sync_data()
}

/// Writes what is whole of a log, and more, as a new one. Returns how long the old part is.
fn rewrite(dir: &Path, path: &Path, marker: Marker, more: &[u8]) -> io::Result<u64> {
    let mut bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(error),
    };
    let (end, _) = scan(marker, &bytes, |_| ());
    bytes.truncate(end);
    bytes.extend_from_slice(more);
    let new = dir.join("new.marks");
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(FILE_MODE)
        .open(&new)?;
    file.write_all(&bytes)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    File::open(dir)?.sync_all()?;
    Ok(end as u64)
}

#[cfg(test)]
mod tests;
