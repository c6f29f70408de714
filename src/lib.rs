//! gleaner keeps a local copy of upstream data: incrementally, conditionally, and through power cuts.
//!
//! One thread, one place where it waits, and three kinds of room. Arrows run downwards: a room names only rooms below it.
//!
//! | room | what happens there |
//! |---|---|
//! | [`cli`] | one file a command: arguments in, exit code out |
//! | [`agent`] | the loop: what is due, do one step, wait |
//! | [`door`], [`desk`] | requests from outside and the control socket; what the agent publishes and what is asked of it |
//! | [`pull`] | one pass over a collection: fetch → select → compare → deliver → commit |
//! | [`document`] | one document: ask → receive → verify → publish |
//! | [`state`] | the state directory: one owner, a store and a sink that agree |
//! | [`cache`] | the memory of `get`: what may be kept of an answer, and used again (RFC 9111) |
//! | [`upstream`] | asks an upstream and says what the answer means |
//! | [`store`] | what is known, in sled; nobody else names it |
//! | [`sink`] | where changes go: SQLite, a journal, a program |
//! | [`inbox`] | payloads of hooks, saved before they are answered |
//! | [`schedule`] | when a source is due |
//! | [`wait`](mod@wait) | the one place that ever blocks |
//! | [`config`] | the file as written, checked |
//! | [`hook`] | what a webhook is: who signed it, when, which event; pure |
//! | [`record`], [`json`], [`pointer`](mod@pointer), [`contract`], [`clock`] | the words that every room uses |
//!
//! Rooms that decide are pure: they take state, an answer and *now* as values and return a decision with its reason
//! ([`upstream::outcome`], [`upstream::conditional`], [`pull::pages`], [`pull::absence`], [`pull::repair::decide`],
//! [`document::decide`], [`schedule`], [`cache::reuse`]). Rooms that act do what they were told.

pub mod agent;
pub mod cache;
pub mod cli;
pub mod clock;
pub mod config;
pub mod contract;
pub mod desk;
pub mod document;
pub mod door;
pub mod hook;
pub mod inbox;
pub mod json;
pub mod pointer;
pub mod pull;
pub mod reception;
pub mod record;
pub mod schedule;
pub mod sink;
pub mod state;
pub mod store;
pub mod upstream;
pub mod wait;
