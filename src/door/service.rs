//! The seam between the door and whoever answers: the door frames requests and writes answers, a [`Service`] says what
//! they are.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use super::http::{Head, Response};
use crate::clock::{Mono, Timestamp};

/// Who answers the requests that come in at a [`PublicDoor`](super::PublicDoor).
///
/// In each turn of the one wait the door calls [`admit`](Self::admit) for each head that became complete,
/// [`take`](Self::take) for each request that did, and then, if any of them is pending, [`settle`](Self::settle) once for
/// all of them. None of them may block longer than a disk's sync takes.
pub trait Service: Send {
    /// A head is complete: shall the body be read, and how much of it? Called once a request, also when no body follows.
    /// A client that expects `100 Continue` gets it only after this.
    ///
    /// After an early answer the connection closes, unless the request has no body.
    fn admit(&mut self, head: &Head, peer: &Peer, now: Mono) -> Admit;

    /// A request is complete; its body is as it was received (a coded one still is).
    fn take(&mut self, request: Request, now: Mono) -> Taken;

    /// All requests of this turn were taken, and some may be pending: here is the one moment to make them durable together.
    /// Nothing was answered for them yet. The answer says what each of them gets; a pending request that is missing in it
    /// is answered with 503.
    fn settle(&mut self, now: Mono) -> Settled;
}

/// What becomes of a request whose head is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Admit {
    /// Its body is read, if it has at most `cap` bytes; else it is answered with 413. 0: it must have none.
    Body {
        /// Bytes.
        cap: u64,
    },
    /// It is answered at once.
    Answer(Response),
}

/// A complete request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Its head.
    pub head: Head,
    /// Its body, without framing, otherwise byte for byte.
    pub body: Vec<u8>,
    /// Who sent it.
    pub peer: Peer,
    /// When its last byte was read, by the machine's wall clock, which may be wrong.
    pub received: Timestamp,
}

/// What became of a complete request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Taken {
    /// It is answered.
    Answer(Response),
    /// It is answered after [`Service::settle`], under this ticket.
    Pending(Ticket),
}

/// A service's own name for a pending request, another one for each that is pending.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// How pending requests are answered.
#[derive(Debug, Default)]
pub struct Settled {
    /// What each ticket gets.
    pub answers: Vec<(Ticket, Response)>,
    /// The agent loop has something new to do: its sleep ends.
    pub nudge: bool,
}

/// The other side of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// Its address; IPv4 also where it came in at an IPv6 socket. `None`: by a Unix socket.
    pub address: Option<SocketAddr>,
    /// The connection is encrypted up to this door.
    pub tls: bool,
}

impl Peer {
    /// Connections from here are counted together: by address, IPv6 by its /64, since whoever has one of these addresses
    /// has them all. Unix sockets are not counted.
    pub(super) fn group(&self) -> Option<IpAddr> {
        self.address.map(|address| match address.ip() {
            IpAddr::V6(ip) => {
                let [a, b, c, d, ..] = ip.segments();
                IpAddr::from([a, b, c, d, 0, 0, 0, 0])
            }
            v4 @ IpAddr::V4(_) => v4,
        })
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address {
            Some(address) => write!(f, "{address}"),
            None => f.write_str("a local process"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_counted_by_who_can_have_them() {
        let group = |address: &str| {
            let address = Some(address.parse().unwrap());
            Peer {
                address,
                tls: false,
            }
            .group()
        };
        assert_eq!(group("192.0.2.1:1"), group("192.0.2.1:2"));
        assert_ne!(group("192.0.2.1:1"), group("192.0.2.2:1"));
        assert_eq!(group("[2001:db8::1]:1"), group("[2001:db8::ffff:0:0:1]:1"));
        assert_ne!(group("[2001:db8::1]:1"), group("[2001:db8:0:1::1]:1"));
        let local = Peer {
            address: None,
            tls: false,
        };
        assert_eq!(local.group(), None);
    }
}
