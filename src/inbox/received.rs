//! What came to a hook.

use super::id::RequestId;
use crate::clock::Timestamp;

/// How the value of a field starts that was not saved, since it is a secret; its length follows.
pub const NOT_SAVED: &str = "(not saved: ";

/// A payload as it came, with what is known of how it came.
#[derive(Clone, PartialEq, Eq)]
pub struct Received {
    /// The name of the hook.
    pub hook: String,
    /// When, by the wall clock. Kept to the microsecond.
    pub at: Timestamp,
    /// Whether the clock was known to be right then.
    pub clock_trusted: bool,
    /// From where, as an address.
    pub peer: String,
    /// The request's method.
    pub method: String,
    /// The request's target, as it came.
    pub target: Vec<u8>,
    /// The request's fields by name and value, as they came and in that order; a secret's value is [`NOT_SAVED`] and its
    /// length.
    pub headers: Vec<(Vec<u8>, Vec<u8>)>,
    /// The body, as it came.
    pub body: Vec<u8>,
    /// What the sender calls the event; by this a second delivery is known.
    pub event_id: Option<String>,
    /// What kind of event the sender says that it is.
    pub event_type: Option<String>,
}

/// Without header values and body: they may hold secrets.
impl std::fmt::Debug for Received {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Received")
            .field("hook", &self.hook)
            .field("at", &self.at)
            .field("clock_trusted", &self.clock_trusted)
            .field("peer", &self.peer)
            .field("headers", &self.headers.len())
            .field("body", &self.body.len())
            .field("event_id", &self.event_id)
            .field("event_type", &self.event_type)
            .finish_non_exhaustive()
    }
}

/// A payload under its id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// What it is called.
    pub id: RequestId,
    /// What it is.
    pub received: Received,
}
