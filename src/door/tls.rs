//! The door's certificate.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustls::ServerConfig;
use rustls::server::NoServerSessionStorage;

use crate::config::{Secret, SecretError};
use crate::upstream::tls::{Identity, TlsError, read_identity, wrong_identity};

/// A certificate with its key, as they were when they were read last. A handle, cheap to clone: what
/// [`reload`](Self::reload) reads is shown by every door that has it, to connections from then on.
#[derive(Clone)]
pub struct Certificate(Arc<Inner>);

struct Inner {
    chain: PathBuf,
    key: Secret,
    config: Mutex<Arc<ServerConfig>>,
}

impl Certificate {
    /// Reads the chain (PEM, the leaf first) and its unencrypted private key (PEM).
    ///
    /// # Errors
    /// One of them cannot be read or is not what it should be.
    pub fn read(chain: &Path, key: &Secret) -> Result<Self, CertificateError> {
        Ok(Self(Arc::new(Inner {
            config: Mutex::new(server_config(chain, key)?),
            chain: chain.to_owned(),
            key: key.clone(),
        })))
    }

    /// Reads both again: they may have been renewed. Connections that are open keep what they were shown.
    ///
    /// # Errors
    /// As for [`read`](Self::read); the certificate in use stays in use then, and whoever asked for another one should be
    /// told so.
    pub fn reload(&self) -> Result<(), CertificateError> {
        let fresh = server_config(&self.0.chain, &self.0.key)?;
        *self.0.config.lock().unwrap_or_else(PoisonError::into_inner) = fresh;
        Ok(())
    }

    pub(super) fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.0.config.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificate")
            .field("chain", &self.0.chain)
            .finish_non_exhaustive()
    }
}

/// A certificate that cannot be shown.
#[derive(Debug)]
pub enum CertificateError {
    /// The key cannot be read.
    Key(SecretError),
    /// One of them is not what it should be.
    Tls(TlsError),
}

impl fmt::Display for CertificateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key(error) => error.fmt(f),
            Self::Tls(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for CertificateError {}

impl From<TlsError> for CertificateError {
    fn from(error: TlsError) -> Self {
        Self::Tls(error)
    }
}

fn server_config(chain: &Path, key: &Secret) -> Result<Arc<ServerConfig>, CertificateError> {
    let pem = key
        .resolve_pem(&|name| std::env::var_os(name))
        .map_err(CertificateError::Key)?;
    let identity = Identity {
        cert: chain,
        key_name: &key.to_string(),
        key: pem.expose().as_bytes(),
    };
    let (chain, key) = read_identity(identity)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| TlsError::Refused(error.to_string()))?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(|error| wrong_identity(identity, &error))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    // Senders of webhooks keep their connections or never resume: tickets would be bytes for nothing, and need a clock.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}
