//! Certificates, checked at an instant that a wrong clock does not spoil.
//!
//! Issuer, name and dates are checked always, by rustls' own verifier. What is ours is only *when* it is supposed to be:
//! at the wall clock or the floor, whichever is later; and while nobody vouches for the clock, a certificate that is not
//! valid yet then is checked as of its own first moment. A device that woke in the past gets through like that; an
//! expired certificate, another issuer or another name does not.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::VerifierBuilderError;
use rustls::time_provider::TimeProvider;
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError, RootCertStore,
    SignatureScheme,
};

use super::tls::instant;
use crate::clock::{Clock, Reading, Timestamp, Trust, Unsure};

/// How often a chain is checked again: at the first moment of its leaf, and of issuers that are younger than that.
const TRIES: usize = 3;

/// The clock that certificates are checked against: the wall clock, but never earlier than a floor. What it is told of its
/// worth, all upstreams of a process go by.
#[derive(Debug)]
pub struct TlsClock {
    clock: Arc<dyn Clock>,
    worth: Mutex<(Trust, Timestamp)>,
}

impl TlsClock {
    /// The wall clock, without a floor yet, and nobody vouches for it.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        let worth = (Trust::Unsure(Unsure::Unvouched), Timestamp::MIN);
        Self {
            clock,
            worth: Mutex::new(worth),
        }
    }

    /// From now on never tells an earlier time than `floor`; a floor never sinks.
    pub fn raise_floor(&self, floor: Timestamp) {
        let mut worth = self.worth.lock().unwrap_or_else(PoisonError::into_inner);
        worth.1 = worth.1.max(floor);
    }

    /// Whether the wall clock can be believed from now on.
    pub fn believe(&self, trust: Trust) {
        let mut worth = self.worth.lock().unwrap_or_else(PoisonError::into_inner);
        worth.0 = trust;
    }

    /// What it shows, and what that is worth.
    #[must_use]
    pub fn reading(&self) -> Reading {
        let (trust, floor) = *self.worth.lock().unwrap_or_else(PoisonError::into_inner);
        Reading {
            wall: self.clock.wall(),
            trust,
            floor,
        }
    }
}

impl TimeProvider for TlsClock {
    fn current_time(&self) -> Option<UnixTime> {
        let seconds = self.reading().not_before_floor().as_second();
        let since_epoch = Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
        Some(UnixTime::since_unix_epoch(since_epoch))
    }
}

/// A certificate has expired by a clock that nobody vouches for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Doubt {
    /// When it expired.
    pub not_after: Option<Timestamp>,
    /// What our clock shows.
    pub wall: Timestamp,
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the certificate expired")?;
        if let Some(end) = self.not_after {
            write!(f, " at {end}")?;
        }
        write!(
            f,
            " by this device's clock, which shows {} and nobody vouches for: set the clock or let a time daemon do it; if it is right, the upstream needs a new certificate",
            self.wall
        )
    }
}

impl std::error::Error for Doubt {}

/// rustls' verifier, asked at the right instant.
#[derive(Debug)]
pub(super) struct Verifier {
    webpki: Arc<WebPkiServerVerifier>,
    clock: Arc<TlsClock>,
}

impl Verifier {
    pub(super) fn new(
        anchors: RootCertStore,
        provider: Arc<CryptoProvider>,
        clock: Arc<TlsClock>,
    ) -> Result<Self, VerifierBuilderError> {
        let webpki =
            WebPkiServerVerifier::builder_with_provider(Arc::new(anchors), provider).build()?;
        Ok(Self { webpki, clock })
    }
}

/// When a certificate becomes valid, if that it is not yet is all that is wrong.
fn becomes_valid(error: &Error) -> Option<UnixTime> {
    match error {
        Error::InvalidCertificate(CertificateError::NotValidYetContext { not_before, .. }) => {
            Some(*not_before)
        }
        _ => None,
    }
}

/// Whether it has expired, and when.
fn expired(error: &Error) -> Option<Option<Timestamp>> {
    match error {
        Error::InvalidCertificate(CertificateError::ExpiredContext { not_after, .. }) => {
            Some(instant(*not_after))
        }
        Error::InvalidCertificate(CertificateError::Expired) => Some(None),
        _ => None,
    }
}

/// What an error at the clock's own time means while nobody vouches for the clock. Only time can be in doubt, and a
/// certificate that had ended before the floor has expired whatever the clock shows.
fn doubted(error: Error, ours: Reading) -> Error {
    match expired(&error) {
        Some(not_after) if not_after.is_none_or(|end| end >= ours.floor) => {
            let doubt = Doubt {
                not_after,
                wall: ours.wall,
            };
            CertificateError::Other(OtherError(Arc::new(doubt))).into()
        }
        _ => error,
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let check = |now| {
            let webpki = &self.webpki;
            webpki.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
        };
        let ours = self.clock.reading();
        let mut checked = check(now);
        if ours.trust.is_sure() {
            return checked;
        }
        // `now` is at least the floor, and what is not valid yet begins after it: it never goes back behind the floor.
        let mut last = now;
        for _ in 0..TRIES {
            let later = checked.as_ref().err().and_then(becomes_valid);
            match later.filter(|later| *later > last) {
                Some(later) => {
                    checked = check(later);
                    last = later;
                }
                None => break,
            }
        }
        checked.map_err(|error| {
            // What is expired in the moment when another part of its chain begins, never was valid.
            if last == now {
                doubted(error, ours)
            } else {
                error
            }
        })
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.webpki.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.webpki.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.webpki.supported_verify_schemes()
    }

    fn root_hint_subjects(&self) -> Option<&[DistinguishedName]> {
        self.webpki.root_hint_subjects()
    }
}
