//! gleaner keeps a local copy of upstream data.
pub mod clock;
pub mod config;
pub mod contract;
pub mod json;
pub mod pointer;
pub mod pull;
pub mod record;
pub mod upstream;
pub mod wait;
