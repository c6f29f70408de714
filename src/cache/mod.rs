//! The memory of `get`: a private HTTP cache (RFC 9111) without heuristic freshness.
//!
//! | module | what it does |
//! |---|---|
//! | [`directives`] | `Cache-Control` of requests and of answers (pure) |
//! | [`freshness`] | how old an answer is, and how long it counts (pure) |
//! | [`storable`] | whether an answer may be kept (pure) |
//! | [`select`] | which kept answer a request selects (pure) |
//! | [`reuse`] | whether a kept answer may be used without asking (pure) |
//! | [`update`] | what a 304 changes in a kept answer (pure) |
//! | [`stale`] | whether a kept answer may stand in for one that did not come (pure) |
//! | [`entry`](mod@entry) | what is kept of a URL's answers, as a small file |
//! | [`memory`] | the directory: entries, bodies by their digest, the bound |
//! | [`fetch`] | asks through the memory |
//!
//! Nothing here is synced to the card: a file is written beside its place and renamed, an entry that cannot be read and a
//! body that is not what its length and digest say are misses. A power cut costs what would have been kept, never more.

pub mod directives;
pub mod entry;
pub mod fetch;
pub mod freshness;
pub mod memory;
pub mod reuse;
pub mod select;
pub mod stale;
pub mod storable;
pub mod update;

mod hop;
mod keeping;
mod sweep;
