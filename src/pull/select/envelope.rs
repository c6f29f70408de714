//! What is around the records: the way to them, and the values that are wanted beside them.

use std::io::Read;

use super::window::Window;
use super::{Layout, SelectError};
use crate::json::{Json, Kind};
use crate::pointer::{self, Pointer, index, name_is};

/// The records' place in the list of pointers; those that are wanted follow.
const RECORDS: usize = 0;

/// How many members an error lists.
const LISTED: usize = 8;

/// Where a walk stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Behind the `[` of the records.
    Records,
    /// Behind the body.
    End,
}

/// A walk over the envelope that can be left for the records and taken up again.
#[derive(Debug)]
pub(super) struct Envelope<'p> {
    pointers: Vec<&'p Pointer>,
    found: Vec<Option<Box<str>>>,
    /// Bytes of one scalar.
    max_scalar: usize,
    /// The containers that are open.
    frames: Vec<Frame>,
    /// A stack: the pointers that lead to or through the value at hand are those from `base` on.
    active: Vec<usize>,
    base: usize,
    at: At,
    /// The last value on the way to the records.
    reached: Reached,
}

#[derive(Debug)]
struct Frame {
    object: bool,
    /// The number of the next item.
    nth: usize,
    /// The pointers that lead through this container are those from here on.
    base: usize,
    /// A child on the way to the records has been met.
    taken: bool,
}

/// What comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    Value,
    /// What may follow `{` or `[`.
    Opened,
    /// What may follow a value.
    After,
}

#[derive(Debug)]
struct Reached {
    depth: usize,
    kind: Kind,
    members: Vec<String>,
}

impl<'p> Envelope<'p> {
    pub(super) fn new(records: &'p Pointer, wanted: &[&'p Pointer], max_record: usize) -> Self {
        let pointers: Vec<_> = std::iter::once(records)
            .chain(wanted.iter().copied())
            .collect();
        Self {
            found: vec![None; wanted.len()],
            max_scalar: max_record.max(Layout::MAX_WANTED),
            frames: Vec::new(),
            active: (0..pointers.len()).collect(),
            pointers,
            base: 0,
            at: At::Value,
            reached: Reached {
                depth: 0,
                kind: Kind::Null,
                members: Vec::new(),
            },
        }
    }

    /// The wanted value of that number.
    pub(super) fn found(&self, wanted: usize) -> Option<Json<'_>> {
        // What is kept was checked when it was found.
        self.found.get(wanted)?.as_deref().map(Json::checked)
    }

    /// Walks up to the records, or to the end of the body.
    pub(super) fn walk<R: Read>(&mut self, window: &mut Window<R>) -> Result<Step, SelectError> {
        loop {
            match self.at {
                At::Value => {
                    if self.value(window)? {
                        return Ok(Step::Records);
                    }
                }
                At::Opened => self.opened(window)?,
                At::After => {
                    if self.frames.is_empty() {
                        return match window.token_or_end()? {
                            None => Ok(Step::End),
                            Some(_) => Err(window.unexpected("the end of the body")),
                        };
                    }
                    self.after(window)?;
                }
            }
        }
    }

    /// The array of records is behind.
    pub(super) fn leave_records(&mut self) {
        self.leave_value();
    }

    fn leave_value(&mut self) {
        self.active.truncate(self.base);
        self.at = At::After;
    }

    fn depth(&self) -> usize {
        self.frames.len()
    }

    /// Whether the way to the records leads to or through the value at hand.
    fn on_the_way(&self) -> bool {
        // The lowest number is pushed first.
        self.active.get(self.base) == Some(&RECORDS)
    }

    /// A value; true if it is the records and the walk is now inside them.
    fn value<R: Read>(&mut self, window: &mut Window<R>) -> Result<bool, SelectError> {
        let first = window.token()?;
        let kind = Kind::of(first);
        let container = matches!(kind, Kind::Array | Kind::Object);
        for &id in self.active[self.base..].iter().filter(|&&id| id != RECORDS) {
            // Of an earlier member with the same name.
            self.found[id - 1] = None;
        }
        if self.on_the_way() {
            if self.depth() == self.pointers[RECORDS].tokens().len() {
                if kind == Kind::Array {
                    window.advance();
                    return Ok(true);
                }
                // Whether it is JSON at all is the better thing to say.
                if !container {
                    self.scan(window)?;
                }
                return Err(SelectError::NotAnArray {
                    pointer: self.pointers[RECORDS].clone(),
                    found: kind,
                });
            }
            self.reached = Reached {
                depth: self.depth(),
                kind,
                members: Vec::new(),
            };
        } else if self.ends_here() {
            self.capture(window)?;
            self.leave_value();
            return Ok(false);
        }
        if container {
            return self.open(window, kind).map(|()| false);
        }
        self.scan(window)?;
        self.leave_value();
        Ok(false)
    }

    /// Whether a wanted pointer leads to the value at hand.
    fn ends_here(&self) -> bool {
        let ends = |&id: &usize| self.pointers[id].tokens().len() == self.depth();
        self.active[self.base..].iter().any(ends)
    }

    /// Keeps the value at hand, and what is wanted inside it.
    fn capture<R: Read>(&mut self, window: &mut Window<R>) -> Result<(), SelectError> {
        let depth = self.depth();
        let value = Self::scan_value(window, Layout::MAX_WANTED, false)?;
        for &id in &self.active[self.base..] {
            let rest = &self.pointers[id].tokens()[depth..];
            self.found[id - 1] = pointer::find(rest, value).map(|value| value.as_str().into());
        }
        window.unmark();
        Ok(())
    }

    /// Checks a scalar and goes behind it.
    fn scan<R: Read>(&self, window: &mut Window<R>) -> Result<(), SelectError> {
        Self::scan_value(window, self.max_scalar, self.frames.is_empty())?;
        window.unmark();
        Ok(())
    }

    /// Reads a whole value and checks it. At the top a scalar may end with the body.
    fn scan_value<R: Read>(
        window: &mut Window<R>,
        limit: usize,
        top: bool,
    ) -> Result<Json<'_>, SelectError> {
        let offset = window.offset();
        if !window.value(limit, top, || SelectError::ValueTooLong { offset, limit })? {
            return Err(window.unexpected("a value"));
        }
        let offset = window.marked_offset();
        Json::parse(window.marked()).map_err(|bad| SelectError::BadValue { offset, bad })
    }

    fn open<R: Read>(&mut self, window: &mut Window<R>, kind: Kind) -> Result<(), SelectError> {
        if self.depth() == Json::MAX_DEPTH {
            return Err(window.unexpected("no more than 128 levels"));
        }
        self.frames.push(Frame {
            object: kind == Kind::Object,
            nth: 0,
            base: self.base,
            taken: false,
        });
        window.advance();
        self.at = At::Opened;
        Ok(())
    }

    fn opened<R: Read>(&mut self, window: &mut Window<R>) -> Result<(), SelectError> {
        let object = self.frames.last().is_some_and(|frame| frame.object);
        match (window.token()?, object) {
            (b'}', true) | (b']', false) => {
                self.close(window);
                Ok(())
            }
            (_, true) => self.member(window),
            (_, false) => self.item(),
        }
    }

    fn after<R: Read>(&mut self, window: &mut Window<R>) -> Result<(), SelectError> {
        let object = self.frames.last().is_some_and(|frame| frame.object);
        match (window.token()?, object) {
            (b',', true) => {
                window.advance();
                window.token()?;
                self.member(window)
            }
            (b',', false) => {
                window.advance();
                self.item()
            }
            (b'}', true) | (b']', false) => {
                self.close(window);
                Ok(())
            }
            (_, true) => Err(window.unexpected("`,` or `}`")),
            (_, false) => Err(window.unexpected("`,` or `]`")),
        }
    }

    fn close<R: Read>(&mut self, window: &mut Window<R>) {
        window.advance();
        if let Some(frame) = self.frames.pop() {
            self.base = frame.base;
        }
        self.leave_value();
    }

    /// A member's name and colon; its value is next.
    fn member<R: Read>(&mut self, window: &mut Window<R>) -> Result<(), SelectError> {
        if window.token()? != b'"' {
            return Err(window.unexpected("a member's name"));
        }
        let name = Self::scan_value(window, self.max_scalar, false)?;
        let inner = name.string_inner().unwrap_or_default();
        self.descend(|token| name_is(inner, token))?;
        let frame_base = self.frames.last().map_or(0, |frame| frame.base);
        let passed =
            self.active.get(frame_base) == Some(&RECORDS) && self.reached.members.len() < LISTED;
        if passed && self.depth() == self.reached.depth + 1 {
            let name = name.string().unwrap_or_default();
            self.reached.members.push(name.chars().take(40).collect());
        }
        window.unmark();
        if window.token()? != b':' {
            return Err(window.unexpected("`:`"));
        }
        window.advance();
        Ok(())
    }

    fn item(&mut self) -> Result<(), SelectError> {
        let Some(frame) = self.frames.last_mut() else {
            return Ok(());
        };
        let nth = frame.nth;
        frame.nth += 1;
        self.descend(|token| index(token) == Some(nth))
    }

    /// Goes to the child that `is` tells: the pointers that lead to it are put on the stack.
    fn descend(&mut self, is: impl Fn(&str) -> bool) -> Result<(), SelectError> {
        let end = self.active.len();
        let start = self.frames.last().map_or(end, |frame| frame.base);
        let depth = self.depth().saturating_sub(1);
        for at in start..end {
            let id = self.active[at];
            let token = self.pointers[id].tokens().get(depth);
            if token.is_some_and(|token| is(token)) {
                self.active.push(id);
            }
        }
        self.base = end;
        self.at = At::Value;
        let again = self.on_the_way()
            && self
                .frames
                .last_mut()
                .is_some_and(|frame| std::mem::replace(&mut frame.taken, true));
        if again { Err(self.duplicate()) } else { Ok(()) }
    }

    pub(super) fn duplicate(&self) -> SelectError {
        let depth = self.depth().min(self.pointers[RECORDS].tokens().len());
        SelectError::Duplicate {
            pointer: self.pointers[RECORDS].up_to(depth),
        }
    }

    /// The body is at its end and there were none.
    pub(super) fn no_records(&self) -> SelectError {
        let pointer = self.pointers[RECORDS];
        SelectError::NoRecords {
            pointer: pointer.clone(),
            reached: pointer.up_to(self.reached.depth),
            found: self.reached.kind,
            members: self.reached.members.clone(),
        }
    }
}
