//! One pass over a source: reading its records out of a body, and telling which of them changed.
//!
//! - [`select`] streams records out of a body, one at a time, however large the body is;
//! - [`key`] says which record it is, [`time`] when it was changed upstream;
//! - [`digest`] gives equal digests to equal values, however they are written; [`number`] does so for numbers.

pub mod digest;
pub mod key;
pub mod number;
pub mod select;
pub mod time;
