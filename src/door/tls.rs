//! The door's certificate.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::{fmt, fs};

use rustls::ServerConfig;
use rustls::server::NoServerSessionStorage;

use crate::upstream::tls::{Identity, TlsError, read_identity, wrong_identity};

/// A certificate with its key, both files, as they were when they were read last. A handle, cheap to clone: what
/// [`reload`](Self::reload) reads is shown by every door that has it, to connections from then on.
#[derive(Clone)]
pub struct Certificate(Arc<Inner>);

struct Inner {
    chain: PathBuf,
    key: PathBuf,
    config: Mutex<Arc<ServerConfig>>,
}

impl Certificate {
    /// Reads the chain (PEM, the leaf first) and its unencrypted private key (PEM).
    ///
    /// # Errors
    /// A file is missing or does not hold what it should.
    pub fn read(chain: &Path, key: &Path) -> Result<Self, TlsError> {
        Ok(Self(Arc::new(Inner {
            config: Mutex::new(server_config(chain, key)?),
            chain: chain.to_owned(),
            key: key.to_owned(),
        })))
    }

    /// Reads both files again: they may have been renewed. Connections that are open keep what they were shown.
    ///
    /// # Errors
    /// As for [`read`](Self::read); the certificate in use stays in use then, and whoever asked for another one should be
    /// told so.
    pub fn reload(&self) -> Result<(), TlsError> {
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

fn server_config(chain: &Path, key: &Path) -> Result<Arc<ServerConfig>, TlsError> {
    let pem = fs::read(key).map_err(|error| TlsError::Unreadable {
        file: key.to_owned(),
        error,
    })?;
    let identity = Identity {
        cert: chain,
        key_name: &key.display().to_string(),
        key: &pem,
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
