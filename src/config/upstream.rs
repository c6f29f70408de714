//! Upstreams as the config states them.

use std::path::PathBuf;
use std::time::Duration;

/// `[upstream.NAME]`: one API host, and whose view of it this is.
#[derive(Debug, Clone, PartialEq)]
pub struct Upstream {
    /// Where paths of sources are resolved; `http` or `https`, no credentials, no query, no fragment; ends in `/`.
    pub base: url::Url,
    /// How requests are authorised. Default: not at all.
    pub auth: Auth,
    /// Whose view of the data this is: part of every cache key. A changed scope is a new dataset. Default "".
    pub scope: String,
    /// Further request headers, sent to this origin alone.
    pub headers: Vec<(String, Secret)>,
    /// Certificates to trust beside (or, with `roots = "extra-only"`, instead of) the system's, PEM. Absolute.
    pub extra_ca: Option<PathBuf>,
    /// Which trust anchors count. Default `system`, with the bundled set if the system has none.
    pub roots: Roots,
    /// Mutual TLS.
    pub client_cert: Option<ClientCert>,
    /// Proxy URL; `None`: from the environment (`HTTPS_PROXY`, `NO_PROXY`); an empty string in the file means none.
    pub proxy: Proxy,
    /// Credentials may cross the network in the clear: `http` to another host than this one. Default false.
    pub insecure_http: bool,
    /// From the start of one request to the start of the next at least. Default 0.
    pub min_interval: Duration,
    /// Deadlines and sizes.
    pub limits: Limits,
}

impl Upstream {
    /// Every secret that this upstream needs, literal headers included.
    pub fn secrets(&self) -> impl Iterator<Item = &Secret> {
        let auth = match &self.auth {
            Auth::None => None,
            Auth::Bearer(secret)
            | Auth::Basic {
                password: secret, ..
            }
            | Auth::Header { value: secret, .. }
            | Auth::OAuth2 {
                client_secret: secret,
                ..
            } => Some(secret),
        };
        let client = self.client_cert.as_ref().map(|client| &client.key);
        auth.into_iter()
            .chain(client)
            .chain(self.headers.iter().map(|(_, value)| value))
    }
}

/// Which trust anchors count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Roots {
    /// The system's, and the bundled set if the system has none.
    System,
    /// Those compiled in.
    Bundled,
    /// Only `extra_ca`.
    ExtraOnly,
}

/// Which proxy to use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Proxy {
    /// What the environment says.
    Environment,
    /// None, whatever the environment says.
    Direct,
    /// This one (`http://host:port`). One that needs a password comes from the environment, so that no secret is here.
    Url(String),
}

/// A client certificate for mutual TLS.
#[derive(Debug, Clone, PartialEq)]
pub struct ClientCert {
    /// The chain, PEM.
    pub cert: PathBuf,
    /// The private key, PEM.
    pub key: Secret,
}

/// How requests are authorised.
#[derive(Debug, Clone, PartialEq)]
pub enum Auth {
    /// Not at all.
    None,
    /// `Authorization: Bearer …` (RFC 6750).
    Bearer(Secret),
    /// `Authorization: Basic …` (RFC 7617).
    Basic {
        /// User name.
        user: String,
        /// Its password.
        password: Secret,
    },
    /// Any other header.
    Header {
        /// Its name.
        name: String,
        /// Its value.
        value: Secret,
    },
    /// OAuth 2.0 client credentials (RFC 6749 4.4).
    OAuth2 {
        /// The token endpoint.
        token_url: url::Url,
        /// Client id.
        client_id: String,
        /// Client secret.
        client_secret: Secret,
        /// Requested scopes.
        scopes: Vec<String>,
    },
}

/// A secret by reference. It is read when it is used; `Debug` and `Display` never print a value.
#[derive(Clone, PartialEq, Eq)]
pub enum Secret {
    /// A file of that name in `$CREDENTIALS_DIRECTORY` (systemd's `LoadCredential=`).
    Credential(String),
    /// A file. In the config it may be relative to the config file; here it is absolute.
    File(PathBuf),
    /// An environment variable.
    Env(String),
    /// Not a secret at all: a literal, for headers such as `Accept` only.
    Literal(String),
}

/// Deadlines and sizes of one upstream's answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// To connect, TLS included. Default 30 s.
    pub connect: Duration,
    /// Without a single byte of progress. Default 60 s.
    pub stall: Duration,
    /// For one request with its body. Default 1 h.
    pub total: Duration,
    /// Decoded bytes of one body. Default 1 GiB.
    pub body: u64,
    /// Bytes of an answer's head. Default 64 KiB.
    pub head: usize,
    /// Bytes of one record. Default 1 MiB.
    pub record: usize,
    /// Pages of one pass. Default 10,000.
    pub pages: u32,
}
