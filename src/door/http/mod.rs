//! HTTP/1.1 as the door takes it: strict framing over `httparse` (RFC 9110, RFC 9112). Pure.
//!
//! What could be read in two ways is refused: two lengths, a length beside a coding, an absent Host, a bare line feed,
//! a chunk size with a sign. A refused request ends its connection, since nobody knows where the next one would begin.
//!
//! - [`head`](mod@head) reads a request's head: [`Head`], [`Fields`], [`Framing`];
//! - [`body`] takes a body out of what follows it: [`Frame`];
//! - [`answer`](mod@answer) writes answers: [`Response`].
//!
//! All of them take bytes as they come: wherever a stream is cut into reads, the same requests come out.

use std::fmt;

pub mod answer;
pub mod body;
pub mod head;

pub use answer::Response;
pub use body::Frame;
pub use head::{Fields, Framing, Head, Version, head};

/// The most header fields of a request.
pub const MAX_FIELDS: usize = 64;

/// Why a request is refused, as a status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// 400: it cannot be read, or in more than one way.
    Malformed(&'static str),
    /// 413: the body is larger than allowed.
    BodyTooLarge,
    /// 417: another expectation than `100-continue`.
    Expectation,
    /// 431: the head is larger than allowed.
    HeadTooLarge,
    /// 501: a transfer coding that is not spoken here.
    Coding,
    /// 505: not HTTP/1.
    Version,
}

impl Refusal {
    /// The status to answer with.
    #[must_use]
    pub fn status(self) -> u16 {
        match self {
            Self::Malformed(_) => 400,
            Self::BodyTooLarge => 413,
            Self::Expectation => 417,
            Self::HeadTooLarge => 431,
            Self::Coding => 501,
            Self::Version => 505,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Malformed(what) => what,
            Self::BodyTooLarge => "the body is too large",
            Self::Expectation => "only 100-continue can be expected here",
            Self::HeadTooLarge => "the head is too large",
            Self::Coding => "this transfer coding is not taken here; send Content-Length",
            Self::Version => "only HTTP/1.1 and HTTP/1.0 are spoken here",
        })
    }
}

#[cfg(test)]
mod tests;
