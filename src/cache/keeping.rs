//! A body that is kept while somebody reads it.

use std::io::{self, Read};

use super::entry::Kept;
use super::memory::{Id, Incoming, Memory, MemoryError};
use crate::clock::Timestamp;

/// Hands a body on and keeps it beside that. The answer is kept when the body has ended without error, and not before. That
/// it cannot be kept is said once and changes nothing for the reader.
pub(super) struct Keeping {
    body: Box<dyn Read>,
    keeper: Option<Keeper>,
}

/// What is needed to keep it.
pub(super) struct Keeper {
    pub(super) memory: Memory,
    pub(super) id: Id,
    /// The answer; its body is filled in.
    pub(super) kept: Kept,
    pub(super) incoming: Incoming,
    pub(super) now: Timestamp,
}

impl Keeping {
    pub(super) fn new(body: Box<dyn Read>, keeper: Keeper) -> Self {
        Self {
            body,
            keeper: Some(keeper),
        }
    }
}

impl Read for Keeping {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.body.read(buffer);
        match &read {
            Ok(0) if buffer.is_empty() => {}
            Ok(0) => {
                if let Some(keeper) = self.keeper.take() {
                    keeper.finish().unwrap_or_else(|error| not_kept(&error));
                }
            }
            Ok(bytes) => self.add(buffer.get(..*bytes).unwrap_or_default()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => self.keeper = None,
        }
        read
    }
}

impl Keeping {
    fn add(&mut self, bytes: &[u8]) {
        let Some(keeper) = &mut self.keeper else {
            return;
        };
        let total = keeper.incoming.len().saturating_add(bytes.len() as u64);
        if total > keeper.memory.bound() {
            log::debug!("the body is larger than the whole cache, not kept");
            self.keeper = None;
        } else if let Err(error) = keeper.incoming.write(bytes) {
            not_kept(&error);
            self.keeper = None;
        }
    }
}

impl Keeper {
    fn finish(self) -> Result<(), MemoryError> {
        let mut kept = self.kept;
        kept.body = self.memory.keep(self.incoming)?;
        let mut entry = self.memory.entry(&self.id);
        entry.put(kept);
        self.memory.write(&self.id, &entry)?;
        self.memory.sweep(self.now);
        Ok(())
    }
}

/// Says that an answer is not kept.
pub(super) fn not_kept(error: &MemoryError) {
    log::warn!("the answer is not kept: {error}");
}
