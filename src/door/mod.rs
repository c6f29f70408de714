//! The door: listeners and connections, served by whoever waits. It records and answers; it never pulls.
//!
//! Two doors, never one: [`PublicDoor`] is for requests from outside and hands them to a [`Service`]; [`ControlDoor`] is
//! the Unix socket that steers this agent.
//!
//! - [`http`] reads requests strictly and writes answers;
//! - [`service`] is the seam to whoever answers;
//! - [`listen`] opens listeners;
//! - `line` is one connection's bytes; `connection` one connection's requests;
//! - `public` holds them all inside their [`Settings`];

mod connection;
mod control;
pub mod http;
mod line;
pub mod listen;
mod memory;
mod public;
pub mod service;
mod settings;

pub use control::ControlDoor;
pub use listen::{Listen, Place};
pub use public::PublicDoor;
pub use service::{Admit, Peer, Request, Service, Settled, Taken, Ticket};
pub use settings::Settings;
