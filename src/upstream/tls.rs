//! The rustls client config of one upstream, and what can be wrong with TLS.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fmt, fs, io};

use rustls::client::Resumption;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::{AlertDescription, CertificateError, ClientConfig, RootCertStore};

pub use super::verify::TlsClock;
use super::verify::{Doubt, Verifier};
use crate::clock::Timestamp;
use crate::config::Roots;

/// Sessions kept for resumption: an upstream has one host, sometimes two.
const SESSIONS: usize = 4;

/// What a client config is made of.
#[derive(Debug, Clone, Copy)]
pub struct TlsSetup<'a> {
    /// Which trust anchors count.
    pub roots: Roots,
    /// Further ones, PEM.
    pub extra_ca: Option<&'a Path>,
    /// Who we are, for mutual TLS.
    pub identity: Option<Identity<'a>>,
}

/// A client certificate with its key.
#[derive(Clone, Copy)]
pub struct Identity<'a> {
    /// The chain, PEM.
    pub cert: &'a Path,
    /// What to call the key in an error: its path or the name of its credential.
    pub key_name: &'a str,
    /// The private key, PEM.
    pub key: &'a [u8],
}

impl fmt::Debug for Identity<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity")
            .field("cert", &self.cert)
            .field("key", &"…")
            .finish_non_exhaustive()
    }
}

/// A TLS setup that cannot be used.
#[derive(Debug)]
pub enum TlsError {
    /// A file cannot be read.
    Unreadable {
        /// The file.
        file: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// A file that should hold certificates holds none.
    NoCertificate {
        /// The file.
        file: PathBuf,
    },
    /// A certificate in a file cannot be used.
    BadCertificate {
        /// The file.
        file: PathBuf,
        /// Why.
        reason: String,
    },
    /// A private key is none.
    NoKey {
        /// The key's name.
        key: String,
    },
    /// The private key is not the certificate's.
    WrongKey {
        /// The key's name.
        key: String,
        /// The certificate's file.
        cert: PathBuf,
    },
    /// `roots = "extra-only"` without `extra_ca`.
    NoRoots,
    /// rustls refuses for another reason.
    Refused(String),
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable { file, error } => write!(f, "{}: {error}", file.display()),
            Self::NoCertificate { file } => write!(
                f,
                "{}: expected certificates in PEM, found none",
                file.display()
            ),
            Self::BadCertificate { file, reason } => {
                write!(
                    f,
                    "{}: a certificate in it cannot be used: {reason}",
                    file.display()
                )
            }
            Self::NoKey { key } => {
                write!(
                    f,
                    "{key}: expected an unencrypted private key in PEM (PKCS #8, PKCS #1 or SEC 1)"
                )
            }
            Self::WrongKey { key, cert } => {
                write!(
                    f,
                    "{key}: this private key does not belong to the certificate in {}",
                    cert.display()
                )
            }
            Self::NoRoots => f.write_str("roots = \"extra-only\" needs extra_ca"),
            Self::Refused(reason) => f.write_str(reason),
        }
    }
}

impl std::error::Error for TlsError {}

/// Builds a client config: TLS 1.2 and 1.3 by ring, sessions resumed, `http/1.1` alone. To be kept per upstream, since
/// the sessions live in it.
///
/// # Errors
///
/// A file is missing or does not hold what it should.
pub fn client_config(
    setup: &TlsSetup<'_>,
    clock: Arc<TlsClock>,
) -> Result<Arc<ClientConfig>, TlsError> {
    let refused = |error: rustls::Error| TlsError::Refused(error.to_string());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = Verifier::new(trust_anchors(setup)?, provider.clone(), clock.clone())
        .map_err(|error| TlsError::Refused(error.to_string()))?;
    // "Dangerous" is what rustls calls any verifier that is not its own; ours is its own, asked at the right instant.
    let builder = ClientConfig::builder_with_details(provider, clock)
        .with_safe_default_protocol_versions()
        .map_err(refused)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    let mut config = match setup.identity {
        None => builder.with_no_client_auth(),
        Some(identity) => {
            let (chain, key) = read_identity(identity)?;
            builder
                .with_client_auth_cert(chain, key)
                .map_err(|error| wrong_identity(identity, &error))?
        }
    };
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    config.resumption = Resumption::in_memory_sessions(SESSIONS);
    Ok(Arc::new(config))
}

fn trust_anchors(setup: &TlsSetup<'_>) -> Result<RootCertStore, TlsError> {
    let mut anchors = match setup.roots {
        Roots::System => system_anchors(),
        Roots::Bundled => bundled_anchors(),
        Roots::ExtraOnly => RootCertStore::empty(),
    };
    if let Some(file) = setup.extra_ca {
        for certificate in read_certificates(file)? {
            anchors
                .add(certificate)
                .map_err(|error| TlsError::BadCertificate {
                    file: file.to_owned(),
                    reason: error.to_string(),
                })?;
        }
    }
    if anchors.is_empty() {
        Err(TlsError::NoRoots)
    } else {
        Ok(anchors)
    }
}

/// The system's anchors, or the bundled ones if it has none.
fn system_anchors() -> RootCertStore {
    let found = rustls_native_certs::load_native_certs(); // honours SSL_CERT_FILE and SSL_CERT_DIR
    for error in &found.errors {
        log::warn!("system certificates: {error}");
    }
    let mut anchors = RootCertStore::empty();
    // Systems carry certificates that no verifier takes any more: those are left out.
    anchors.add_parsable_certificates(found.certs);
    if anchors.is_empty() {
        log::info!("no system certificates: using the bundled ones");
        return bundled_anchors();
    }
    anchors
}

fn bundled_anchors() -> RootCertStore {
    RootCertStore {
        roots: webpki_roots::TLS_SERVER_ROOTS.to_vec(),
    }
}

/// Chain and key of a certificate of ours.
pub(crate) fn read_identity(
    identity: Identity<'_>,
) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), TlsError> {
    let chain = read_certificates(identity.cert)?;
    let no_key = |_| TlsError::NoKey {
        key: identity.key_name.to_owned(),
    };
    let key = PrivateKeyDer::from_pem_slice(identity.key).map_err(no_key)?;
    Ok((chain, key))
}

/// What rustls had against a certificate of ours.
pub(crate) fn wrong_identity(identity: Identity<'_>, error: &rustls::Error) -> TlsError {
    match error {
        rustls::Error::InconsistentKeys(_) => TlsError::WrongKey {
            key: identity.key_name.to_owned(),
            cert: identity.cert.to_owned(),
        },
        rustls::Error::InvalidCertificate(reason) => TlsError::BadCertificate {
            file: identity.cert.to_owned(),
            reason: reason.to_string(),
        },
        _ => TlsError::NoKey {
            key: identity.key_name.to_owned(),
        },
    }
}

fn read_certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let pem = fs::read(file).map_err(|error| TlsError::Unreadable {
        file: file.to_owned(),
        error,
    })?;
    let bad = |reason: String| TlsError::BadCertificate {
        file: file.to_owned(),
        reason,
    };
    let certificates: Vec<_> = CertificateDer::pem_slice_iter(&pem)
        .collect::<Result<_, _>>()
        .map_err(|error| bad(error.to_string()))?;
    if certificates.is_empty() {
        return Err(TlsError::NoCertificate {
            file: file.to_owned(),
        });
    }
    Ok(certificates)
}

/// What went wrong with TLS itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TlsProblem {
    /// No trust anchor of ours signed this.
    UnknownIssuer,
    /// The certificate is for other names.
    WrongName {
        /// Those it is for, as far as they are known.
        presented: Vec<String>,
    },
    /// The certificate has expired, by our clock.
    Expired {
        /// When, if that is known.
        not_after: Option<Timestamp>,
    },
    /// The certificate is not valid yet, by our clock: a clock in the past?
    NotYetValid {
        /// From when on it is, if that is known.
        not_before: Option<Timestamp>,
    },
    /// The certificate has expired by our clock, which nobody vouches for: it or the certificate is wrong.
    ClockDoubted(Doubt),
    /// The certificate was revoked.
    Revoked,
    /// The upstream does not take our client certificate, or misses one.
    ClientRefused(String),
    /// Anything else.
    Other(String),
}

impl fmt::Display for TlsProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownIssuer => f.write_str("the certificate's issuer is not trusted"),
            Self::WrongName { presented } if presented.is_empty() => {
                f.write_str("the certificate is for another name")
            }
            Self::WrongName { presented } => {
                let names = presented.join(", ");
                write!(f, "the certificate is for {names}, not for this host")
            }
            Self::Expired {
                not_after: Some(end),
            } => write!(f, "the certificate expired at {end}"),
            Self::Expired { not_after: None } => f.write_str("the certificate has expired"),
            Self::NotYetValid {
                not_before: Some(start),
            } => write!(f, "the certificate is not valid before {start}"),
            Self::NotYetValid { not_before: None } => {
                f.write_str("the certificate is not valid yet")
            }
            Self::ClockDoubted(doubt) => doubt.fmt(f),
            Self::Revoked => f.write_str("the certificate was revoked"),
            Self::ClientRefused(alert) => write!(f, "our client certificate was refused: {alert}"),
            Self::Other(reason) => f.write_str(reason),
        }
    }
}

impl From<rustls::Error> for TlsProblem {
    fn from(error: rustls::Error) -> Self {
        match error {
            rustls::Error::InvalidCertificate(certificate) => of_certificate(certificate),
            rustls::Error::AlertReceived(alert) if is_about_our_certificate(alert) => {
                Self::ClientRefused(format!("{alert:?}"))
            }
            rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType) => {
                Self::Other("what came is no TLS: plain HTTP at this port?".into())
            }
            other => Self::Other(other.to_string()),
        }
    }
}

fn of_certificate(error: CertificateError) -> TlsProblem {
    match error {
        CertificateError::UnknownIssuer => TlsProblem::UnknownIssuer,
        CertificateError::NotValidForName => TlsProblem::WrongName {
            presented: Vec::new(),
        },
        CertificateError::NotValidForNameContext { presented, .. } => {
            let presented = presented.iter().map(|name| bare_name(name)).collect();
            TlsProblem::WrongName { presented }
        }
        CertificateError::Expired => TlsProblem::Expired { not_after: None },
        CertificateError::ExpiredContext { not_after, .. } => TlsProblem::Expired {
            not_after: instant(not_after),
        },
        CertificateError::NotValidYet => TlsProblem::NotYetValid { not_before: None },
        CertificateError::NotValidYetContext { not_before, .. } => TlsProblem::NotYetValid {
            not_before: instant(not_before),
        },
        CertificateError::Revoked => TlsProblem::Revoked,
        CertificateError::Other(other) if other.0.is::<Doubt>() => match other.0.downcast_ref() {
            Some(doubt) => TlsProblem::ClockDoubted(*doubt),
            None => TlsProblem::Other(other.to_string()),
        },
        other => TlsProblem::Other(other.to_string()),
    }
}

fn is_about_our_certificate(alert: AlertDescription) -> bool {
    matches!(
        alert,
        AlertDescription::NoCertificate
            | AlertDescription::BadCertificate
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnknownCA
            | AlertDescription::AccessDenied
            | AlertDescription::CertificateRequired
    )
}

pub(super) fn instant(time: UnixTime) -> Option<Timestamp> {
    Timestamp::from_second(i64::try_from(time.as_secs()).ok()?).ok()
}

/// A name as people write it; rustls tells `DnsName("db.example")` or `IpAddress(192.0.2.1)`.
fn bare_name(told: &str) -> String {
    let inner = told
        .split_once('(')
        .and_then(|(_, rest)| rest.strip_suffix(')'))
        .unwrap_or(told);
    inner.trim_matches('"').to_owned()
}
