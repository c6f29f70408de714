//! What a webhook is: who signed it, when, and which event it is. Pure: no file, no clock, no socket.
//!
//! | file | what it answers |
//! |---|---|
//! | [`scheme`] | how senders sign: rows of one table |
//! | [`key`] | a secret as the bytes that verify |
//! | [`verify`](mod@verify) | is this request the sender's, and of now? |
//! | [`event`] | which event it is, of which type |
//! | [`challenge`] | what a sender that sets the hook up is answered |
//! | [`fetch`] | the URL that an event leads to |
//! | [`capture`], [`hint`] | a recorded request, and what may be wrong with it |
//!
//! A signature is computed over the bytes that came, before anything reads them as text or JSON. Lengths are bytes.

pub mod capture;
pub mod challenge;
mod encoding;
pub mod event;
pub mod fetch;
pub mod hint;
pub mod key;
mod read;
pub mod scheme;
pub mod verify;

use std::time::Duration;

pub(crate) use self::encoding::to_base64;
pub use self::event::EventId;
pub use self::key::{Key, KeyError};
pub use self::scheme::{Place, Scheme};
pub use self::verify::{Event, Verdict, verify};

/// A request as it came: nothing decoded, nothing normalised.
#[derive(Debug, Clone, Copy)]
pub struct Received<'a> {
    /// The method, as sent.
    pub method: &'a str,
    /// The target with its query, as sent (RFC 9112 3.2.1).
    pub target: &'a str,
    /// Header fields in their order, names as sent, values as bytes.
    pub headers: &'a [(&'a str, &'a [u8])],
    /// The body's bytes.
    pub body: &'a [u8],
}

impl<'a> Received<'a> {
    /// The lines of a header, without white space around them. Names compare without case (RFC 9110 5.1).
    pub(crate) fn lines<'n>(&self, name: &'n str) -> impl Iterator<Item = &'a [u8]> + use<'a, 'n> {
        let headers = self.headers;
        headers
            .iter()
            .filter(move |(known, _)| known.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.trim_ascii())
    }

    /// The value of a query parameter, if it is there exactly once; `+` and `%xx` decoded.
    pub(crate) fn parameter(&self, name: &str) -> Option<String> {
        let query = self.target.split_once('?')?.1;
        let mut found = url::form_urlencoded::parse(query.as_bytes())
            .filter(|(key, _)| key == name)
            .map(|(_, value)| value.into_owned());
        match (found.next(), found.next()) {
            (Some(value), None) => Some(value),
            _ => None,
        }
    }
}

/// How a hook's requests are judged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// How the sender signs.
    pub scheme: Scheme,
    /// How far a signed time may be from now. Without a signed time nothing asks for it.
    pub tolerance: Tolerance,
    /// Where the event's id is: the first place that has one counts. None has: the digest of the body is the id.
    pub id: Vec<Place>,
    /// Where the event's type is: the first place that has one counts.
    pub event: Vec<Place>,
}

impl Rule {
    /// The scheme with its own places and the usual tolerance.
    #[must_use]
    pub fn new(scheme: Scheme) -> Self {
        Self {
            tolerance: Tolerance::default(),
            id: scheme.id.clone(),
            event: scheme.event.clone(),
            scheme,
        }
    }
}

/// How far a signed time may be from now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tolerance {
    /// Behind. Default 5 min.
    pub past: Duration,
    /// Ahead. Default 5 min.
    pub future: Duration,
}

impl Default for Tolerance {
    fn default() -> Self {
        Self {
            past: Duration::from_secs(300),
            future: Duration::from_secs(300),
        }
    }
}

#[cfg(test)]
mod tests;
