//! What an error of the transport, of ureq or of a reader above them means.

use std::io;

use super::cause::{TransportCause, cause_in, cause_of};
use super::limit::TooLarge;
use super::outcome::{Failure, Kind};
use super::tls::TlsProblem;

/// What a failed call means.
pub(super) fn failure_of(error: &ureq::Error) -> Failure {
    if let Some(cause) = cause_of(error) {
        return failure_of_cause(cause);
    }
    match error {
        ureq::Error::Io(error) if error.kind() == io::ErrorKind::UnexpectedEof => Failure::new(
            Kind::Failing,
            "the connection was closed in the middle of the answer's head",
        ),
        ureq::Error::Io(error) => failure_of_io(error),
        ureq::Error::LargeResponseHeader(_, limit) => Failure::new(
            Kind::NotOurs,
            format!("the answer's head has more than {limit} bytes (`limits.head`)"),
        ),
        ureq::Error::Protocol(_) | ureq::Error::Http(_) => Failure::new(
            Kind::NotOurs,
            format!("the answer is no HTTP that can be trusted: {error}"),
        ),
        ureq::Error::BodyStalled => Failure::new(
            Kind::NotOurs,
            "the answer is no HTTP that can be trusted: a chunk without a readable size",
        ),
        ureq::Error::ConnectProxyFailed(reason) => Failure::new(
            Kind::Failing,
            format!("the proxy does not connect: {reason}"),
        ),
        other => Failure::new(Kind::Failing, other.to_string()),
    }
}

fn failure_of_cause(cause: &TransportCause) -> Failure {
    let kind = match cause {
        TransportCause::Stopped => Kind::Stopped,
        TransportCause::Tls(TlsProblem::ClockDoubted(_)) => Kind::Clock,
        _ => Kind::Failing,
    };
    let hint = match cause {
        TransportCause::Tls(TlsProblem::UnknownIssuer) => " (a private CA belongs into `extra_ca`)",
        TransportCause::Tls(TlsProblem::Expired { .. } | TlsProblem::NotYetValid { .. }) => {
            " (is this device's clock right?)"
        }
        TransportCause::Dns { .. } => " (is the network up?)",
        _ => "",
    };
    Failure::new(kind, format!("{cause}{hint}"))
}

/// What an error means that came while a body was read: the network, the framing, the coding, or a limit.
#[must_use]
pub fn failure_of_io(error: &io::Error) -> Failure {
    if let Some(cause) = cause_in(error) {
        return failure_of_cause(cause);
    }
    let inner = error.get_ref();
    if let Some(large) = inner.and_then(|inner| inner.downcast_ref::<TooLarge>()) {
        return Failure::new(Kind::NotOurs, large.to_string());
    }
    // Broken chunks reach a reader as ureq's own error inside of this one.
    if let Some(error) = inner.and_then(|inner| inner.downcast_ref::<ureq::Error>()) {
        return failure_of(error);
    }
    if let Some(error) = inner.and_then(|inner| inner.downcast_ref::<io::Error>()) {
        return failure_of_io(error);
    }
    match error.kind() {
        io::ErrorKind::UnexpectedEof => {
            Failure::new(Kind::Failing, "the body was cut before its end")
        }
        io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData => Failure::new(
            Kind::NotOurs,
            format!("the body cannot be decoded: {error}"),
        ),
        _ => Failure::new(Kind::Failing, format!("while the body was read: {error}")),
    }
}
