//! A body on its way in.

use std::mem;

use super::http::{Frame, Head, Refusal};
use super::memory::Share;
use super::settings::Settings;
use crate::clock::Mono;

/// Memory for bodies is handed out in such pieces.
const BLOCK: usize = 16 * 1024;
/// One body on its way.
#[derive(Debug)]
pub(super) struct Receiving {
    pub(super) head: Head,
    pub(super) frame: Frame,
    pub(super) body: Vec<u8>,
    pub(super) memory: Share,
    /// No memory is left: nothing is read.
    pub(super) waits: bool,
    pub(super) owes_continue: bool,
    /// When the body must be complete.
    pub(super) end: Mono,
    /// When a span of progress began, and with how many bytes.
    pub(super) mark: (Mono, usize),
    /// When bytes came last.
    pub(super) moved: Mono,
}

/// How a body goes on.
pub(super) enum Progress {
    Done,
    NoMemory,
    /// More bytes. `continued`: the client waits for `100 Continue` first.
    Needs {
        continued: bool,
    },
}

impl Receiving {
    pub(super) fn take(&mut self, input: &mut Vec<u8>, now: Mono) -> Result<Progress, Refusal> {
        loop {
            if !self.has_room() {
                self.waits = true;
                return Ok(Progress::NoMemory);
            }
            if mem::take(&mut self.waits) {
                // Nobody could make progress meanwhile.
                self.mark = (now, self.body.len());
                self.moved = now;
            }
            let room = self.memory.size() - self.body.len();
            let taken = self.frame.take(input, &mut self.body, room)?;
            input.drain(..taken.used);
            if taken.done {
                return Ok(Progress::Done);
            }
            if input.is_empty() {
                let continued = mem::take(&mut self.owes_continue);
                return Ok(Progress::Needs { continued });
            }
        }
    }

    /// Whether another byte can be taken; asks for memory if need be.
    fn has_room(&mut self) -> bool {
        let at_most = usize::try_from(self.frame.at_most()).unwrap_or(usize::MAX);
        if at_most == 0 || self.body.len() < self.memory.size() {
            return true;
        }
        // Who begins could also end: else bodies would get in each other's way. Only what has come is held, though, so that
        // an announcement alone takes nothing from the others.
        if self.memory.size() == 0 && !self.memory.could_hold(at_most) {
            return false;
        }
        let more = (self.memory.size() / 2).max(BLOCK).min(at_most);
        let grown = self.memory.grow(more) || self.memory.grow(BLOCK.min(at_most));
        if grown {
            self.body
                .reserve_exact(self.memory.size() - self.body.len());
        }
        grown
    }

    pub(super) fn next_deadline(&self, settings: &Settings) -> Mono {
        self.end.min(self.mark.0.after(settings.progress))
    }

    /// Whether enough has come in the span that ends now; then another one begins.
    pub(super) fn is_fast(&mut self, now: Mono, settings: &Settings) -> bool {
        let came = (self.body.len() - self.mark.1) as u64;
        let enough = self.waits || came >= settings.progress_bytes;
        self.mark = (now, self.body.len());
        enough
    }
}
