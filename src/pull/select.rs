//! Records out of a body, one at a time, as the body arrives. Memory is one record, not one body.
//!
//! What is around the records (the envelope) is checked strictly: a body that is cut, garbled or not what the config
//! says is an error, never an early end. A record itself need only be as long as its brackets and strings say: one bad
//! record is the caller's to judge, and the next can still be read.

use std::io::Read;

use crate::config::Format;
use crate::json::Json;
use crate::pointer::Pointer;

mod envelope;
mod error;
mod window;

pub use error::SelectError;

use envelope::{Envelope, Step};
use window::Window;

/// How a body is laid out, and what is wanted of it.
#[derive(Debug, Clone, Copy)]
pub struct Layout<'p> {
    /// One document, or one record a line.
    pub format: Format,
    /// Where the array of records is. Does not count for lines.
    pub records: &'p Pointer,
    /// Values of the envelope that are wanted beside the records, each at most [`Layout::MAX_WANTED`] bytes long. One
    /// that contains the records, or lies among them, is not found; nor is any in lines.
    pub wanted: &'p [&'p Pointer],
    /// Bytes of one record.
    pub max_record: usize,
}

impl Layout<'_> {
    /// Bytes of one wanted value.
    pub const MAX_WANTED: usize = 64 * 1024;
}

/// One record, as it came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    /// Its place among the records of this body, from 1 on.
    pub number: u64,
    /// Its text, which may yet be no JSON: see [`Json::parse`].
    pub raw: &'a [u8],
    /// It is the last line and has no line end: unless the body is known to have ended here, it may be cut.
    pub unterminated: bool,
}

/// Reads records out of a body.
///
/// Errors of the reader come through as they are, [`Interrupted`](std::io::ErrorKind::Interrupted) included. After an
/// error there is nothing but [`SelectError::Spent`].
#[derive(Debug)]
pub struct Selector<'p, R> {
    window: Window<R>,
    layout: Layout<'p>,
    envelope: Envelope<'p>,
    state: State,
    count: u64,
    unterminated: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Nothing has been read.
    Start,
    /// In the array, before its first item.
    First,
    /// In the array, behind an item.
    Item,
    /// Among lines.
    Lines,
    /// The body is at its end.
    Done,
    /// There was an error.
    Spent,
}

impl<'p, R: Read> Selector<'p, R> {
    /// Reads `read` as `layout` says; nothing is read yet.
    pub fn new(read: R, layout: Layout<'p>) -> Self {
        Self {
            window: Window::new(read),
            layout,
            envelope: Envelope::new(layout.records, layout.wanted, layout.max_record),
            state: State::Start,
            count: 0,
            unterminated: false,
        }
    }

    /// The next record; `None` once, and only when, the whole body has been read and was whole.
    ///
    /// # Errors
    ///
    /// [`SelectError`]: what is wrong with the body, or with reading it.
    #[expect(
        clippy::should_implement_trait,
        reason = "an iterator's items can't borrow from it"
    )]
    pub fn next(&mut self) -> Result<Option<Record<'_>>, SelectError> {
        let before = std::mem::replace(&mut self.state, State::Spent);
        let (state, more) = self.step(before)?;
        self.state = state;
        if !more {
            return Ok(None);
        }
        self.count += 1;
        Ok(Some(Record {
            number: self.count,
            raw: self.window.marked(),
            unterminated: self.unterminated,
        }))
    }

    /// How many records there were so far.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Whether the last line had no line end: unless the body is known to have ended there, that record may be cut.
    pub fn last_line_unterminated(&self) -> bool {
        self.unterminated
    }

    /// The wanted value of that place in [`Layout::wanted`], if the part of the body that has been read has it; final
    /// once [`Selector::next`] has returned `None`. Of members with one name the last counts.
    pub fn found(&self, wanted: usize) -> Option<Json<'_>> {
        self.envelope.found(wanted)
    }

    /// The state after the next record (true: it is what the window has marked) or after the end (false).
    fn step(&mut self, state: State) -> Result<(State, bool), SelectError> {
        match state {
            State::Start => {
                self.window.start()?;
                match self.layout.format {
                    Format::Ndjson => self.line(),
                    Format::Json => match self.envelope.walk(&mut self.window)? {
                        Step::Records => self.item(State::First),
                        Step::End => Err(self.envelope.no_records()),
                    },
                }
            }
            State::First | State::Item => self.item(state),
            State::Lines => self.line(),
            State::Done => Ok((State::Done, false)),
            State::Spent => Err(SelectError::Spent),
        }
    }

    /// An item of the array, or the array's end and with it the body's.
    fn item(&mut self, state: State) -> Result<(State, bool), SelectError> {
        self.window.unmark();
        let mut byte = self.window.token()?;
        if state == State::Item {
            if byte == b',' {
                self.window.advance();
                byte = self.window.token()?;
                if byte == b']' {
                    return Err(self.window.unexpected("a record"));
                }
            } else if byte != b']' {
                return Err(self.window.unexpected("`,` or `]` after a record"));
            }
        }
        if byte == b']' {
            self.window.advance();
            self.envelope.leave_records();
            return match self.envelope.walk(&mut self.window)? {
                Step::End => Ok((State::Done, false)),
                Step::Records => Err(self.envelope.duplicate()),
            };
        }
        let number = self.count + 1;
        let limit = self.layout.max_record;
        if !self
            .window
            .value(limit, false, || SelectError::RecordTooLong {
                number,
                limit,
            })?
        {
            return Err(self.window.unexpected("a record"));
        }
        Ok((State::Item, true))
    }

    /// The next line that is not blank.
    fn line(&mut self) -> Result<(State, bool), SelectError> {
        let number = self.count + 1;
        let limit = self.layout.max_record;
        let line = self
            .window
            .line(limit, || SelectError::RecordTooLong { number, limit })?;
        let Some(line) = line else {
            return Ok((State::Done, false));
        };
        self.unterminated = line == window::Line::Unterminated;
        Ok((State::Lines, true))
    }
}

#[cfg(test)]
mod tests;
