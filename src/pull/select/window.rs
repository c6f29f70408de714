//! A window that moves over a body: what is being looked at is in memory, in one piece, and nothing else is.

use std::io::Read;

use super::SelectError;
use crate::json::{is_space, plain_run};

/// How much is asked for at once.
const CHUNK: usize = 64 * 1024;

/// The part of a body that is in memory.
#[derive(Debug)]
pub(super) struct Window<R> {
    read: R,
    buffer: Vec<u8>,
    /// Offset in the body of the buffer's first byte.
    base: u64,
    /// What is looked at next.
    at: usize,
    /// Where what has been read ends.
    end: usize,
    /// What must stay: from here up to `mark_end`.
    mark: Option<usize>,
    mark_end: usize,
    /// The brackets that are open in the value that is being scanned, as those that will close them.
    closers: Vec<u8>,
}

/// How a line ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Line {
    Terminated,
    Unterminated,
}

impl<R: Read> Window<R> {
    pub(super) fn new(read: R) -> Self {
        Self {
            read,
            buffer: Vec::new(),
            base: 0,
            at: 0,
            end: 0,
            mark: None,
            mark_end: 0,
            closers: Vec::new(),
        }
    }

    /// Goes to the first byte that is neither white space nor a byte order mark, and sees whether it can be JSON.
    pub(super) fn start(&mut self) -> Result<(), SelectError> {
        while self.end < 3 && self.fill()? {}
        if self
            .buffer
            .get(..self.end)
            .is_some_and(|start| start.starts_with(b"\xEF\xBB\xBF"))
        {
            self.at = 3;
        }
        match self.token_or_end()? {
            None => Err(SelectError::Empty),
            Some(b'<') => Err(SelectError::Markup),
            Some(_) => Ok(()),
        }
    }

    /// The offset in the body of what is looked at next.
    pub(super) fn offset(&self) -> u64 {
        self.base + self.at as u64
    }

    /// Steps over the byte that was looked at.
    pub(super) fn advance(&mut self) {
        self.at += 1;
    }

    /// Lets go of what was marked.
    pub(super) fn unmark(&mut self) {
        self.mark = None;
    }

    /// The value or line that was scanned last.
    pub(super) fn marked(&self) -> &[u8] {
        &self.buffer[self.mark.unwrap_or(self.mark_end)..self.mark_end]
    }

    /// The offset in the body of what is marked.
    pub(super) fn marked_offset(&self) -> u64 {
        self.base + self.mark.unwrap_or(self.mark_end) as u64
    }

    /// The next byte that is not white space, without stepping over it.
    pub(super) fn token(&mut self) -> Result<u8, SelectError> {
        self.token_or_end()?.ok_or_else(|| self.truncated())
    }

    /// As [`Window::token`], but the body may end here.
    pub(super) fn token_or_end(&mut self) -> Result<Option<u8>, SelectError> {
        loop {
            let rest = &self.buffer[self.at..self.end];
            if let Some(space) = rest.iter().position(|&byte| !is_space(byte)) {
                self.at += space;
                return Ok(Some(rest[space]));
            }
            self.at = self.end;
            if !self.fill()? {
                return Ok(None);
            }
        }
    }

    /// Scans over the value that starts here, and marks it. It ends where its brackets and strings balance, or, for
    /// other values, before the next byte that can't be part of one (or, if `may_end`, the end of the body); false if
    /// that is at once.
    pub(super) fn value(
        &mut self,
        limit: usize,
        may_end: bool,
        too_long: impl Fn() -> SelectError,
    ) -> Result<bool, SelectError> {
        let start = self.at;
        self.mark = Some(start);
        match self.buffer[..self.end].get(start) {
            Some(b'{' | b'[' | b'"') => self.balanced(limit, &too_long)?,
            _ => match self.scalar(limit, &too_long) {
                Err(SelectError::Truncated { .. }) if may_end => {}
                result => result?,
            },
        }
        self.mark_end = self.at;
        let long = self.marked().len();
        if long > limit {
            return Err(too_long());
        }
        Ok(long > 0)
    }

    fn balanced(
        &mut self,
        limit: usize,
        too_long: &impl Fn() -> SelectError,
    ) -> Result<(), SelectError> {
        self.closers.clear();
        let mut in_string = false;
        loop {
            let bytes = &self.buffer[..self.end];
            let mut at = self.at;
            while let Some(&byte) = bytes.get(at) {
                if in_string {
                    match byte {
                        b'"' => in_string = false,
                        b'\\' => {
                            // The escaped byte must be here too; it is never the string's end.
                            if at + 1 == bytes.len() {
                                break;
                            }
                            at += 1;
                        }
                        // Control characters are no business of ours.
                        _ => at += plain_run(&bytes[at + 1..]),
                    }
                } else {
                    match byte {
                        b'"' => in_string = true,
                        b'{' => self.closers.push(b'}'),
                        b'[' => self.closers.push(b']'),
                        b'}' | b']' => {
                            if self.closers.last() != Some(&byte) {
                                self.at = at;
                                return Err(
                                    self.unexpected("the bracket that closes the innermost one")
                                );
                            }
                            self.closers.pop();
                        }
                        _ => {
                            at += 1;
                            continue;
                        }
                    }
                }
                at += 1;
                if !in_string && self.closers.is_empty() {
                    self.at = at;
                    return Ok(());
                }
            }
            self.at = at;
            self.more(limit, too_long)?;
        }
    }

    fn scalar(
        &mut self,
        limit: usize,
        too_long: &impl Fn() -> SelectError,
    ) -> Result<(), SelectError> {
        loop {
            let rest = &self.buffer[self.at..self.end];
            let ends = |byte: &u8| {
                is_space(*byte) || matches!(byte, b',' | b'"' | b'[' | b']' | b'{' | b'}' | b':')
            };
            if let Some(end) = rest.iter().position(ends) {
                self.at += end;
                return Ok(());
            }
            self.at = self.end;
            self.more(limit, too_long)?;
        }
    }

    /// Reads on inside a value.
    fn more(
        &mut self,
        limit: usize,
        too_long: &impl Fn() -> SelectError,
    ) -> Result<(), SelectError> {
        if self.at - self.mark.unwrap_or(self.at) > limit {
            return Err(too_long());
        }
        if self.fill()? {
            Ok(())
        } else {
            Err(self.truncated())
        }
    }

    /// Marks the next line that is not blank, without the white space around it; `None` at the end of the body.
    pub(super) fn line(
        &mut self,
        limit: usize,
        too_long: impl Fn() -> SelectError,
    ) -> Result<Option<Line>, SelectError> {
        self.unmark();
        if self.token_or_end()?.is_none() {
            return Ok(None);
        }
        self.mark = Some(self.at);
        let line = loop {
            let rest = &self.buffer[self.at..self.end];
            if let Some(end) = rest.iter().position(|&byte| byte == b'\n') {
                self.at += end;
                break Line::Terminated;
            }
            self.at = self.end;
            if self.at - self.mark.unwrap_or(self.at) > limit {
                return Err(too_long());
            }
            if !self.fill()? {
                break Line::Unterminated;
            }
        };
        self.mark_end = self.at;
        self.mark_end -= self
            .marked()
            .iter()
            .rev()
            .take_while(|&&byte| is_space(byte))
            .count();
        if self.marked().len() > limit {
            return Err(too_long());
        }
        Ok(Some(line))
    }

    /// An error that says what should be here, or that the body is cut.
    pub(super) fn unexpected(&self, expected: &'static str) -> SelectError {
        match self.buffer[..self.end].get(self.at) {
            None => self.truncated(),
            Some(&found) => SelectError::Syntax {
                offset: self.offset(),
                expected,
                found,
            },
        }
    }

    fn truncated(&self) -> SelectError {
        SelectError::Truncated {
            length: self.base + self.end as u64,
        }
    }

    /// Reads some more of the body behind what is there; false at its end. What is behind the mark, or behind what is
    /// looked at next, is given up for it.
    fn fill(&mut self) -> Result<bool, SelectError> {
        if self.end == self.buffer.len() {
            let keep = self.mark.unwrap_or(self.at);
            self.buffer.copy_within(keep..self.end, 0);
            self.base += keep as u64;
            self.at -= keep;
            self.end -= keep;
            self.mark = self.mark.map(|mark| mark - keep);
            if self.end == self.buffer.len() {
                let long = self.buffer.len() + self.buffer.len().max(CHUNK);
                self.buffer.resize(long, 0);
            }
        }
        let read = self.read.read(&mut self.buffer[self.end..])?;
        self.end += read;
        Ok(read > 0)
    }
}
