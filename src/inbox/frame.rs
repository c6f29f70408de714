//! How one received payload is laid out in a segment, and how a segment is read back, whatever is in it.
//!
//! ```text
//! marker 8 · version 1 · length of the head 4 · length of the body 4 · CRC-32C 4 · head · body
//! ```
//!
//! Numbers are big-endian. The checksum goes over all but itself. The marker is random and the segment's own: reading
//! goes on at the next one behind a damaged place, and nobody outside can put one into a body to have a record of his
//! own found there.

use std::ops::Range;

use super::crc::Crc;
use super::id::RequestId;
use super::received::{Received, Stored};
use crate::clock::Timestamp;

/// What starts every frame of a segment.
pub(super) type Marker = [u8; 8];

const VERSION: u8 = 1;
/// The version of a frame that says: nothing to see here.
const FILLER: u8 = 0;
/// Bytes before the head.
pub(super) const FIXED: usize = 21;
const SUM: Range<usize> = 17..21;

/// What goes before the body: a place for the fixed part, and the head.
pub(super) fn encode(id: RequestId, received: &Received) -> Vec<u8> {
    let mut out = vec![0; FIXED];
    encode_head(&mut out, id, received);
    out
}

/// Fills in the fixed part. `None` if head or body are longer than a length can say.
pub(super) fn seal(marker: Marker, start: &mut [u8], body: &[u8]) -> Option<()> {
    let (fixed, head) = start.split_at_mut_checked(FIXED)?;
    let head_len = u32::try_from(head.len()).ok()?;
    let body_len = u32::try_from(body.len()).ok()?;
    let sealed = fixed_part(marker, VERSION, (head_len, body_len), |sum| {
        sum.over(head).over(body)
    });
    fixed.copy_from_slice(&sealed);
    Some(())
}

/// What makes a frame out of a damaged place, so that it is said once: its first bytes are replaced, all others stay for who
/// wants to look into them. `None` if it is too short or too long for a frame.
pub(super) fn filler(marker: Marker, damaged: &[u8]) -> Option<Vec<u8>> {
    let rest = damaged.get(FIXED..)?;
    let long = u32::try_from(rest.len()).ok()?;
    Some(fixed_part(marker, FILLER, (long, 0), |sum| sum.over(rest)))
}

fn fixed_part(
    marker: Marker,
    version: u8,
    (head, body): (u32, u32),
    rest: impl FnOnce(Crc) -> Crc,
) -> Vec<u8> {
    let mut out = marker.to_vec();
    out.push(version);
    out.extend_from_slice(&head.to_be_bytes());
    out.extend_from_slice(&body.to_be_bytes());
    let sum = rest(Crc::new().over(&out)).sum();
    out.extend_from_slice(&sum.to_be_bytes());
    out
}

/// A whole frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Frame<'a> {
    version: u8,
    head: &'a [u8],
    body: &'a [u8],
}

/// How long the frame is that these bytes are the start of, in bytes; `None` if they are none's.
pub(super) fn length(marker: Marker, bytes: &[u8]) -> Option<usize> {
    let number = |at: usize| {
        let four = bytes.get(at..at + 4)?.try_into().ok()?;
        usize::try_from(u32::from_be_bytes(four)).ok()
    };
    let (head, body) = (number(9)?, number(13)?);
    bytes
        .starts_with(&marker)
        .then(|| FIXED.checked_add(head)?.checked_add(body))?
}

/// The frame that these bytes start with, if it is whole.
pub(super) fn whole(marker: Marker, bytes: &[u8]) -> Option<Frame<'_>> {
    let bytes = bytes.get(..length(marker, bytes)?)?;
    let head = u32::from_be_bytes(bytes.get(9..13)?.try_into().ok()?);
    let sum = Crc::new()
        .over(bytes.get(..SUM.start)?)
        .over(bytes.get(FIXED..)?)
        .sum();
    let (head, body) = bytes
        .get(FIXED..)?
        .split_at_checked(usize::try_from(head).ok()?)?;
    (bytes.get(SUM)? == sum.to_be_bytes()).then_some(Frame {
        version: *bytes.get(8)?,
        head,
        body,
    })
}

impl Frame<'_> {
    /// Bytes that it takes.
    pub(super) fn len(&self) -> usize {
        FIXED + self.head.len() + self.body.len()
    }

    /// Whether it only covers a damaged place.
    pub(super) fn is_filler(&self) -> bool {
        self.version == FILLER
    }

    /// The version of a frame that a newer gleaner wrote.
    pub(super) fn newer(&self) -> Option<u8> {
        (self.version > VERSION).then_some(self.version)
    }

    /// What it says, without the body. `None` if a newer gleaner wrote it, or a wrong one.
    pub(super) fn head(&self) -> Option<Stored> {
        (self.version == VERSION).then(|| decode_head(self.head))?
    }

    /// All that it says.
    pub(super) fn stored(&self) -> Option<Stored> {
        let mut stored = self.head()?;
        stored.received.body = self.body.to_vec();
        Some(stored)
    }

    /// Bytes of the body.
    pub(super) fn body_len(&self) -> usize {
        self.body.len()
    }
}

/// What is in a segment besides its frames.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Scan {
    /// Behind the last frame: where the next one goes.
    pub(super) end: usize,
    /// Places between frames where something is that is none.
    pub(super) lost: Vec<Range<usize>>,
    /// What is behind the last frame and not zero.
    pub(super) torn: Option<Range<usize>>,
}

/// Reads a segment's bytes from `start` on, frame by frame, fillers left out.
pub(super) fn scan<'a>(
    marker: Marker,
    bytes: &'a [u8],
    start: usize,
    mut each: impl FnMut(usize, Frame<'a>),
) -> Scan {
    let used = bytes
        .iter()
        .rposition(|byte| *byte != 0)
        .map_or(0, |last| last + 1);
    let mut scan = Scan {
        end: start,
        ..Scan::default()
    };
    let mut at = start;
    while at < used {
        let Some((found, frame)) = next(marker, bytes, at..used) else {
            scan.torn = Some(scan.end..used);
            break;
        };
        if found > scan.end {
            scan.lost.push(scan.end..found);
        }
        at = found + frame.len();
        scan.end = at;
        if !frame.is_filler() {
            each(found, frame);
        }
    }
    scan
}

/// The first whole frame that starts within `range`.
fn next(marker: Marker, bytes: &[u8], range: Range<usize>) -> Option<(usize, Frame<'_>)> {
    let mut at = range.start;
    while at < range.end {
        let rest = bytes.get(at..)?;
        if let Some(frame) = whole(marker, rest) {
            return Some((at, frame));
        }
        let ahead = rest.get(1..)?;
        at += 1 + ahead
            .windows(marker.len())
            .position(|window| window == marker)?;
    }
    None
}

const TRUSTED: u8 = 1;
const HAS_ID: u8 = 2;
const HAS_TYPE: u8 = 4;

fn encode_head(out: &mut Vec<u8>, id: RequestId, received: &Received) {
    let mut flags = 0;
    for (flag, set) in [
        (TRUSTED, received.clock_trusted),
        (HAS_ID, received.event_id.is_some()),
        (HAS_TYPE, received.event_type.is_some()),
    ] {
        if set {
            flags |= flag;
        }
    }
    out.extend_from_slice(&id.0);
    out.extend_from_slice(&received.at.as_microsecond().to_be_bytes());
    out.push(flags);
    put(out, received.hook.as_bytes());
    put(out, received.peer.as_bytes());
    put(out, received.method.as_bytes());
    put(out, &received.target);
    let texts = [&received.event_id, &received.event_type];
    for text in texts.into_iter().flatten() {
        put(out, text.as_bytes());
    }
    put_number(out, received.headers.len());
    for (name, value) in &received.headers {
        put(out, name);
        put(out, value);
    }
}

fn decode_head(head: &[u8]) -> Option<Stored> {
    let mut left = head;
    let id = RequestId(take(&mut left, 16)?.try_into().ok()?);
    let at = i64::from_be_bytes(take(&mut left, 8)?.try_into().ok()?);
    let flags = *take(&mut left, 1)?.first()?;
    let mut piece = || {
        let long = take_number(&mut left)?;
        take(&mut left, long).map(<[u8]>::to_vec)
    };
    let mut text = || String::from_utf8(piece()?).ok();
    let (hook, peer, method) = (text()?, text()?, text()?);
    let target = piece()?;
    let mut maybe = |flag| -> Option<Option<String>> {
        if flags & flag == 0 {
            return Some(None);
        }
        String::from_utf8(piece()?).ok().map(Some)
    };
    let (event_id, event_type) = (maybe(HAS_ID)?, maybe(HAS_TYPE)?);
    let count = take_number(&mut left)?;
    let mut headers = Vec::new();
    for _ in 0..count {
        let mut piece = || {
            let long = take_number(&mut left)?;
            take(&mut left, long).map(<[u8]>::to_vec)
        };
        headers.push((piece()?, piece()?));
    }
    let received = Received {
        hook,
        at: Timestamp::from_microsecond(at).ok()?,
        clock_trusted: flags & TRUSTED != 0,
        peer,
        method,
        target,
        headers,
        body: Vec::new(),
        event_id,
        event_type,
    };
    left.is_empty().then_some(Stored { id, received })
}

fn put(out: &mut Vec<u8>, bytes: &[u8]) {
    put_number(out, bytes.len());
    out.extend_from_slice(bytes);
}

/// Seven bits a byte, the lowest first; the top bit says that more follow.
fn put_number(out: &mut Vec<u8>, mut number: usize) {
    loop {
        let low = number.to_le_bytes()[0] & 0x7F;
        number >>= 7;
        if number == 0 {
            return out.push(low);
        }
        out.push(low | 0x80);
    }
}

fn take<'a>(left: &mut &'a [u8], long: usize) -> Option<&'a [u8]> {
    let (taken, rest) = left.split_at_checked(long)?;
    *left = rest;
    Some(taken)
}

fn take_number(left: &mut &[u8]) -> Option<usize> {
    let mut number: u32 = 0;
    for shift in [0, 7, 14, 21, 28] {
        let byte = *take(left, 1)?.first()?;
        number |= u32::from(byte & 0x7F).checked_shl(shift)?;
        if byte & 0x80 == 0 {
            return usize::try_from(number).ok();
        }
    }
    None
}

#[cfg(test)]
mod tests;
