//! Certificates for tests: a private CA and what it signs.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, date_time_ymd,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};

/// A private CA in a directory of its own.
pub struct Pki {
    ca: CertifiedIssuer<'static, KeyPair>,
    dir: tempfile::TempDir,
}

/// A certificate with its key, both PEM.
pub struct Leaf {
    pub cert: String,
    pub key: String,
}

impl Pki {
    pub fn new() -> Self {
        // Issuers are told apart by name before anything else.
        static NUMBER: AtomicUsize = AtomicUsize::new(1);
        let number = NUMBER.fetch_add(1, Ordering::SeqCst);
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params
            .distinguished_name
            .push(DnType::CommonName, format!("private CA {number}"));
        (params.not_before, params.not_after) =
            (date_time_ymd(1990, 1, 1), date_time_ymd(2190, 1, 1));
        let ca = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        Self {
            ca,
            dir: tempfile::tempdir().unwrap(),
        }
    }

    /// A leaf for these names, valid from the start of one year to the start of another.
    pub fn leaf_between(&self, names: &[&str], from_year: i32, to_year: i32) -> Leaf {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        (params.not_before, params.not_after) =
            (date_time_ymd(from_year, 1, 1), date_time_ymd(to_year, 1, 1));
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        let key = KeyPair::generate().unwrap();
        let cert = params.signed_by(&key, &self.ca).unwrap();
        Leaf {
            cert: cert.pem(),
            key: key.serialize_pem(),
        }
    }

    /// A leaf for these names, valid for two centuries.
    pub fn leaf(&self, names: &[&str]) -> Leaf {
        self.leaf_between(names, 1990, 2190)
    }

    /// The CA's certificate as a file.
    pub fn ca_file(&self) -> PathBuf {
        self.file("ca.pem", &self.ca.pem())
    }

    /// A file in this PKI's directory.
    pub fn file(&self, name: &str, content: &str) -> PathBuf {
        let path = self.dir.path().join(name);
        std::fs::write(&path, content).unwrap();
        path
    }

    /// A server that shows this leaf.
    pub fn server(&self, leaf: &Leaf) -> Arc<ServerConfig> {
        self.server_config(leaf, false)
    }

    /// A server that shows this leaf and insists on a client certificate from this CA.
    pub fn server_for_clients(&self, leaf: &Leaf) -> Arc<ServerConfig> {
        self.server_config(leaf, true)
    }

    fn server_config(&self, leaf: &Leaf, ask_clients: bool) -> Arc<ServerConfig> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .unwrap();
        let builder = if ask_clients {
            let mut roots = RootCertStore::empty();
            roots.add(self.ca.der().clone()).unwrap();
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            builder.with_client_cert_verifier(verifier.build().unwrap())
        } else {
            builder.with_no_client_auth()
        };
        let chain = CertificateDer::pem_slice_iter(leaf.cert.as_bytes())
            .collect::<Result<_, _>>()
            .unwrap();
        let key = PrivateKeyDer::from_pem_slice(leaf.key.as_bytes()).unwrap();
        let mut config = builder.with_single_cert(chain, key).unwrap();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Arc::new(config)
    }
}
