//! gleaner keeps a local copy of upstream data.
pub mod clock;
pub mod config;
pub mod contract;
pub mod pointer;
pub mod record;
pub mod store;
