//! `[door]` and `[hook.NAME]`: where webhooks come in, who signs them, and what they mean.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::{Env, Secret, SecretError, SecretValue};
use crate::clock::Timestamp;
use crate::hook::fetch::UrlTemplate;
use crate::hook::{Key, KeyError, Rule, event};
use crate::pointer::Pointer;

/// `[door]`: the public listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Door {
    /// Where it listens; at least one.
    pub listen: Vec<Listen>,
    /// Its certificate; `None`: plain HTTP.
    pub tls: Option<DoorTls>,
    /// Caps and deadlines.
    pub limits: DoorLimits,
}

/// Where the door listens. `Display` is as the config writes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listen {
    /// At this address.
    Address(SocketAddr),
    /// At every socket that systemd opened under this name (`FileDescriptorName=` of the socket unit).
    Systemd(String),
}

impl Listen {
    /// Before a name of systemd's.
    pub const SYSTEMD: &'static str = "systemd:";
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::Systemd(name) => write!(f, "{}{name}", Self::SYSTEMD),
        }
    }
}

/// The door's certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DoorTls {
    /// The chain, PEM. Absolute.
    pub cert: PathBuf,
    /// The private key, PEM.
    pub key: Secret,
}

/// What strangers may take of this device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DoorLimits {
    /// Connections at once. Default 256.
    pub connections: usize,
    /// … of one peer's address. Default 64, or `connections` if that is less.
    pub per_peer: usize,
    /// Bytes of a request's head. Default 16 KiB.
    pub head: usize,
    /// Bytes of a request's body, whatever the hook says. Default 1 MiB.
    pub body: usize,
    /// Bytes of all bodies that are in memory at once; beyond it they wait. Default 16 MiB, at least 16 KiB.
    pub memory: usize,
    /// For a whole head, from its first byte (or the connection's start). Default 10 s.
    pub head_time: Duration,
    /// For a whole body. Default 2 min.
    pub body_time: Duration,
    /// Of a connection between two requests. Default 30 s.
    pub idle: Duration,
}

/// `[hook.NAME]`: one webhook endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hook {
    /// Its name.
    pub name: String,
    /// The path that it answers at, exactly. Default `/hooks/NAME`. No two hooks have the same.
    pub path: String,
    /// How its requests are judged.
    pub rule: Rule,
    /// Its secrets, at least one: any of them may have signed.
    pub secrets: Vec<HookSecret>,
    /// The status of an acknowledgement: 200, 201, 202 or 204. Default 202.
    pub ack_status: u16,
    /// Bytes of a body. Default 1 MiB, or the door's cap if that is less; never more than that.
    pub max_body: usize,
    /// Sources that an event wakes; keys into [`super::Config::sources`].
    pub wakes: Vec<String>,
    /// An event leads to one record, which is fetched.
    pub fetch: Option<Fetch>,
    /// An event carries records.
    pub records: Option<Carried>,
    /// Types of events that are asked for: exact, or their start before a `*`. Empty: all. See [`Hook::wants`].
    pub events: Vec<String>,
    /// The setup challenge that is answered.
    pub challenge: Option<Setup>,
    /// How long a payload is kept as evidence. Default 30 d.
    pub keep: Duration,
    /// How long an event's id is known. Default: `keep`, at least 7 d.
    pub keep_ids: Duration,
    /// How often payloads are processed; zero: as soon as nothing else is to do. Default 60 s.
    pub every: Duration,
    /// Bytes of payloads that are kept; unprocessed ones are never dropped for it. Default 64 MiB.
    pub quota: u64,
}

/// One of a hook's secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HookSecret {
    /// Where it is.
    pub secret: Secret,
    /// From here on it does not count any more; `None`: for ever.
    pub not_after: Option<Timestamp>,
}

/// `fetch`: the one record that an event leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fetch {
    /// The source that it is one of.
    pub source: String,
    /// Its URL, below the base of the source's upstream.
    pub url: UrlTemplate,
    /// Where in the answer the record is. Default: the whole of it.
    pub at: Pointer,
    /// Where in the event the record's key is: then a 404 or 410 deletes that record. Empty: it only wakes the source.
    pub key: Vec<Pointer>,
}

/// `records`: the records that an event carries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Carried {
    /// The source that they are of.
    pub source: String,
    /// Where in the event they are: an array of records, or one record.
    pub at: Pointer,
}

/// `challenge`: which sender's setup is answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Setup {
    /// Slack's `url_verification`.
    Slack,
    /// Meta's `hub.challenge`.
    Meta {
        /// What `hub.verify_token` must be.
        verify_token: Secret,
    },
    /// Microsoft Graph's `validationToken`.
    Graph,
}

/// A hook's secret that can't be used. `Display` names the hook and the reference, never the secret.
#[derive(Debug)]
pub struct HookSecretError {
    /// The hook's name.
    pub hook: String,
    /// Why.
    pub reason: HookSecretReason,
}

/// Why a hook's secret can't be used.
#[derive(Debug)]
pub enum HookSecretReason {
    /// It can't be read.
    Secret(SecretError),
    /// It is none of the hook's scheme.
    Key(Secret, KeyError),
}

impl fmt::Display for HookSecretError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "hook.{}: ", self.hook)?;
        match &self.reason {
            HookSecretReason::Secret(error) => error.fmt(f),
            HookSecretReason::Key(secret, error) => write!(f, "secret {secret}: {error}"),
        }
    }
}

impl std::error::Error for HookSecretError {}

impl Hook {
    /// Reads the secrets, in their order, those that have ended included.
    ///
    /// # Errors
    /// [`HookSecretError`] for the first that can't be used.
    pub fn keys(&self, env: Env<'_>) -> Result<Vec<Key>, HookSecretError> {
        let scheme = &self.rule.scheme;
        let key = |entry: &HookSecret| {
            let text = self.resolved(&entry.secret, env)?;
            Key::new(scheme, text.expose().as_bytes(), entry.not_after).map_err(|error| {
                HookSecretError {
                    hook: self.name.clone(),
                    reason: HookSecretReason::Key(entry.secret.clone(), error),
                }
            })
        };
        self.secrets.iter().map(key).collect()
    }

    /// Reads Meta's verify token, if this hook answers Meta.
    ///
    /// # Errors
    /// [`HookSecretError`]: it can't be read, or is empty.
    pub fn verify_token(&self, env: Env<'_>) -> Result<Option<SecretValue>, HookSecretError> {
        match &self.challenge {
            Some(Setup::Meta { verify_token }) => self.resolved(verify_token, env).map(Some),
            _ => Ok(None),
        }
    }

    /// Whether an event of this type is asked for. One that is not is answered and stored like any other, and nothing is
    /// done about it.
    #[must_use]
    pub fn wants(&self, kind: Option<&str>) -> bool {
        event::is_wanted(&self.events, kind)
    }

    /// Every secret that this hook needs.
    pub fn all_secrets(&self) -> impl Iterator<Item = &Secret> {
        let token = match &self.challenge {
            Some(Setup::Meta { verify_token }) => Some(verify_token),
            _ => None,
        };
        self.secrets.iter().map(|entry| &entry.secret).chain(token)
    }

    fn resolved(&self, secret: &Secret, env: Env<'_>) -> Result<SecretValue, HookSecretError> {
        secret.resolve(env).map_err(|error| HookSecretError {
            hook: self.name.clone(),
            reason: HookSecretReason::Secret(error),
        })
    }
}

impl Setup {
    /// The shape that is answered.
    #[must_use]
    pub fn challenge(&self) -> crate::hook::challenge::Challenge {
        use crate::hook::challenge::Challenge;
        match self {
            Self::Slack => Challenge::Slack,
            Self::Meta { .. } => Challenge::Meta,
            Self::Graph => Challenge::Graph,
        }
    }
}
