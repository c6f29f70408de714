//! Why a transport failed, as a type that survives its way through ureq.
//!
//! ureq hands errors of a transport on inside an [`io::Error`], both from a call and from reading a body. The kind of
//! that error is `TimedOut` or `Other`, never one of those that ureq takes for the end of a body (`UnexpectedEof`,
//! `ConnectionReset`, `ConnectionAborted`): a body cut short by a reset or without TLS' `close_notify` must not pass
//! for a whole one, whatever its framing.

use std::net::SocketAddr;
use std::time::Duration;
use std::{error, fmt, io};

use super::tls::TlsProblem;
use crate::wait;

/// Why a transport failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TransportCause {
    /// The process shall end.
    Stopped,
    /// Not one byte moved for this long.
    Stalled(Duration),
    /// The request, its body included, took longer than this.
    TotalTime(Duration),
    /// Looking up, connecting, the proxy and the TLS handshake together took longer than this.
    ConnectTimeout(Duration),
    /// The name was not resolved.
    Dns {
        /// The name that was asked for.
        host: String,
        /// Why not, in the resolver's words.
        reason: String,
    },
    /// Nobody listens there.
    Refused(SocketAddr),
    /// There is no way there.
    Unreachable {
        /// The address that was tried last.
        addr: SocketAddr,
        /// Why not, in the kernel's words.
        reason: String,
    },
    /// The connection was reset, or written to after the other side had closed it.
    Reset,
    /// The connection was closed before the first byte of an answer: nothing tells whether the request was seen.
    ClosedUnanswered,
    /// TLS: the connection was closed without `close_notify`; what came may have been cut (RFC 8446 6.1).
    Truncated,
    /// TLS failed.
    Tls(TlsProblem),
    /// The socket failed in some other way, in the kernel's words.
    Broken(String),
}

impl fmt::Display for TransportCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stopped => f.write_str("stopped"),
            Self::Stalled(span) => write!(f, "no byte for {span:?}"),
            Self::TotalTime(span) => write!(f, "not done within {span:?}"),
            Self::ConnectTimeout(span) => write!(f, "not connected within {span:?}"),
            Self::Dns { host, reason } => write!(f, "{host} does not resolve: {reason}"),
            Self::Refused(addr) => write!(f, "{addr} refuses connections"),
            Self::Unreachable { addr, reason } => write!(f, "{addr} cannot be reached: {reason}"),
            Self::Reset => f.write_str("connection reset"),
            Self::ClosedUnanswered => f.write_str("connection closed before an answer"),
            Self::Truncated => f.write_str("connection cut: TLS ended without close_notify"),
            Self::Tls(problem) => write!(f, "TLS: {problem}"),
            Self::Broken(reason) => f.write_str(reason),
        }
    }
}

impl error::Error for TransportCause {}

impl From<TransportCause> for io::Error {
    fn from(cause: TransportCause) -> Self {
        let kind = match cause {
            TransportCause::Stalled(_)
            | TransportCause::TotalTime(_)
            | TransportCause::ConnectTimeout(_) => io::ErrorKind::TimedOut,
            _ => io::ErrorKind::Other,
        };
        Self::new(kind, cause)
    }
}

impl From<TransportCause> for ureq::Error {
    fn from(cause: TransportCause) -> Self {
        Self::Io(cause.into())
    }
}

impl TransportCause {
    /// What reading, writing or waiting said about a connection that was up.
    pub(super) fn of_socket(error: &io::Error) -> Self {
        match error.kind() {
            _ if wait::is_stop(error) => Self::Stopped,
            io::ErrorKind::ConnectionReset
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::ConnectionAborted => Self::Reset,
            _ => Self::Broken(error.to_string()),
        }
    }

    /// An error back from a layer of ureq's or rustls' own, with the cause kept if it was one of ours.
    pub(super) fn keep(error: io::Error) -> io::Error {
        if cause_in(&error).is_some() {
            error
        } else {
            Self::of_socket(&error).into()
        }
    }
}

/// The cause of a failed call, if the transport was it. `None`: ureq itself objected, for example to what came.
#[must_use]
pub fn cause_of(error: &ureq::Error) -> Option<&TransportCause> {
    match error {
        ureq::Error::Io(error) => cause_in(error),
        _ => None,
    }
}

/// The same for an error that reading a body gave. A JSON error is turned into an [`io::Error`] first
/// (`io::Error::from`), since its `source()` leaves out just this layer.
#[must_use]
pub fn cause_in(error: &io::Error) -> Option<&TransportCause> {
    let inner = error.get_ref()?;
    if let Some(cause) = inner.downcast_ref::<TransportCause>() {
        return Some(cause);
    }
    if let Some(error) = inner.downcast_ref::<ureq::Error>() {
        return cause_of(error);
    }
    inner.downcast_ref::<io::Error>().and_then(cause_in)
}

/// Whether a call or a body ended because the process shall end.
#[must_use]
pub fn is_stop(error: &ureq::Error) -> bool {
    matches!(cause_of(error), Some(TransportCause::Stopped))
}

/// The problem with TLS, if that was the cause.
#[must_use]
pub fn tls_problem(error: &ureq::Error) -> Option<&TlsProblem> {
    match cause_of(error) {
        Some(TransportCause::Tls(problem)) => Some(problem),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_found_through_every_wrapping() {
        let cause = TransportCause::Stalled(Duration::from_secs(60));
        let plain = io::Error::from(cause.clone());
        assert_eq!(cause_in(&plain), Some(&cause));
        let call = ureq::Error::from(cause.clone());
        assert_eq!(cause_of(&call), Some(&cause));
        assert_eq!(cause_in(&io::Error::other(call)), Some(&cause));
        assert_eq!(
            cause_in(&io::Error::other(io::Error::from(cause.clone()))),
            Some(&cause)
        );
        assert_eq!(cause_in(&io::Error::other("else")), None);
    }

    #[test]
    fn a_cause_survives_a_json_reader() {
        struct Cut;
        impl io::Read for Cut {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(TransportCause::Reset.into())
            }
        }
        let error = serde_json::from_reader::<_, serde_json::Value>(Cut).unwrap_err();
        assert_eq!(
            cause_in(&io::Error::from(error)),
            Some(&TransportCause::Reset)
        );
    }

    #[test]
    fn no_cause_looks_like_the_end_of_a_body() {
        for cause in [
            TransportCause::Reset,
            TransportCause::Truncated,
            TransportCause::ClosedUnanswered,
        ] {
            assert_eq!(io::Error::from(cause).kind(), io::ErrorKind::Other);
        }
    }
}
