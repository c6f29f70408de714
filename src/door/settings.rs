//! What the public door allows.

use std::time::Duration;

/// What a [`PublicDoor`](super::PublicDoor) allows its clients. `Settings::default()` suits a gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Connections at a time. Beyond it room is made, see [`PublicDoor`](super::PublicDoor). Default: 256.
    pub connections: usize,
    /// Connections at a time from one address (IPv6: from one /64); not counted at Unix sockets. Default: 64.
    pub per_peer: usize,
    /// Bytes of a head, empty lines before it included; more is answered with 431. Default: 16 KiB.
    pub head_bytes: usize,
    /// Bytes of all bodies together that are in memory; when they are used up, bodies wait. At least one block of 16 KiB.
    /// Default: 16 MiB.
    pub bodies: usize,
    /// A TLS handshake must be done within this time. Default: 10 s.
    pub handshake: Duration,
    /// A head must have come within this time, counted from its first byte, or from the first connection. Default: 10 s.
    pub head: Duration,
    /// A body must have come within this time, counted from its head. Default: 2 min.
    pub body: Duration,
    /// Within each such span of a body [`Self::progress_bytes`] must come. Default: 10 s.
    pub progress: Duration,
    /// See [`Self::progress`]. Default: 1 KiB.
    pub progress_bytes: u64,
    /// A connection without a request is kept for so long. Default: 30 s.
    pub idle: Duration,
    /// An answer must be taken within this time. Default: 30 s.
    pub write: Duration,
    /// After the last answer of a connection, what still comes is read and dropped for so long at most, so that the answer
    /// is not lost in a reset. Default: 5 s.
    pub drain: Duration,
    /// … and so many bytes at most. Default: 1 MiB.
    pub drain_bytes: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            connections: 256,
            per_peer: 64,
            head_bytes: 16 * 1024,
            bodies: 16 * 1024 * 1024,
            handshake: Duration::from_secs(10),
            head: Duration::from_secs(10),
            body: Duration::from_secs(120),
            progress: Duration::from_secs(10),
            progress_bytes: 1024,
            idle: Duration::from_secs(30),
            write: Duration::from_secs(30),
            drain: Duration::from_secs(5),
            drain_bytes: 1024 * 1024,
        }
    }
}
