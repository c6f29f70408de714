//! The door: listeners and connections, served by whoever waits. It records and answers; it never pulls.
//!
//! Two doors, never one: [`PublicDoor`] is for requests from outside and hands them to a [`Service`]; [`ControlDoor`] is
//! the Unix socket that steers this agent.
//!
//! - [`http`] reads requests strictly and writes answers;
//! - [`service`] is the seam to whoever answers;
//! - [`listen`] opens listeners, [`activation`] takes over those that systemd opened, [`tls`] has their certificate;
//! - `line` is one connection's bytes, plain or by TLS; `connection` its requests and answers,
//!   `receiving` the body that is on its way;
//! - `public` holds all of them inside their [`Settings`], `memory` what their bodies share, `files` the limit of open files;
//! - [`coding`] decodes a body within a limit.

pub mod activation;
pub mod coding;
mod connection;
mod control;
mod files;
pub mod http;
mod line;
pub mod listen;
mod memory;
mod public;
mod receiving;
pub mod service;
mod settings;
pub mod tls;

pub use control::ControlDoor;
pub use listen::{Listen, ListenError, Place};
pub use public::PublicDoor;
pub use service::{Admit, Peer, Request, Service, Settled, Taken, Ticket};
pub use settings::Settings;
pub use tls::{Certificate, CertificateError};
