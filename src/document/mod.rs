//! Documents: one HTTP representation each, kept as a file, byte for byte as it was sent.
//!
//! ```text
//! what is known → question → answer → .part, hashed while it grows → verified → renamed → what is known
//! ```
//!
//! | module | what it does |
//! |---|---|
//! | [`decide`] | what to ask, and what an answer may be (pure) |
//! | [`checksum`] | digests: read out of files and fields, compared (pure) |
//! | [`kept`] | what is known of a document and of its part, as the store keeps it |
//! | [`place`] | the files: where they are, how one takes another's place |
//! | [`part`] | a download under way |
//! | [`fetch`] | one turn of one document |
//! | [`spool`] | a page of a collection, downloaded the same way and read from disk |
//! | [`tend`] | what nobody needs any more |
//!
//! A document is the representation *as sent*: validators, lengths, ranges and published checksums are all about those bytes.
//! So it is asked for with `Accept-Encoding: identity`, and one that comes coded all the same is taken only where its name says
//! that a compressed file is meant.

pub mod checksum;
pub mod decide;
pub mod fetch;
pub mod kept;
pub mod part;
pub mod place;
mod publish;
mod receive;
pub mod spool;
pub mod tend;
