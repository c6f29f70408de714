//! From an upstream's config to a client that can ask it.

use std::sync::Arc;
use std::time::Duration;

use super::agent::{self, AgentParts, Tls};
use super::auth::process_env;
use super::client::Client;
use super::dns::Names;
use super::line::{Line, Patience};
use super::outcome::{Failure, Kind};
use super::plain::Plain;
use super::proxy::proxy_for;
use super::tls::{Identity, TlsClock, TlsSetup, client_config};
use crate::config::Upstream;
use crate::wait::Wait;

/// What all upstreams of a process share.
#[derive(Debug, Clone)]
pub struct Shared {
    /// The one wait.
    pub wait: Wait,
    /// Who resolves names.
    pub names: Names,
    /// What certificates are checked against.
    pub tls_clock: Arc<TlsClock>,
    /// `User-Agent`.
    pub user_agent: String,
}

impl Shared {
    /// For a process that waits in `wait` and is called `id`.
    #[must_use]
    pub fn new(wait: Wait) -> Self {
        let tls_clock = Arc::new(TlsClock::new(wait.clock().clone()));
        Self {
            wait,
            names: Names::system(),
            tls_clock,
            user_agent: format!("gleaner/{}", env!("CARGO_PKG_VERSION")),
        }
    }

    /// A client for `upstream`, whose sources are asked at most every `idle`.
    ///
    /// # Errors
    /// A certificate, key or proxy cannot be used.
    pub fn client(&self, upstream: &Upstream, idle: Duration) -> Result<Client, Failure> {
        let (agent, line) = self.agent(upstream, idle)?;
        Ok(Client::new(upstream, agent, line, self.tls_clock.clone()))
    }

    /// For single exchanges with `upstream`.
    ///
    /// # Errors
    /// A certificate, key or proxy cannot be used.
    pub fn plain(&self, upstream: &Upstream) -> Result<Plain, Failure> {
        let (agent, line) = self.agent(upstream, agent::IDLE)?;
        Ok(Plain::new(upstream, agent, line))
    }

    fn agent(&self, upstream: &Upstream, idle: Duration) -> Result<(ureq::Agent, Line), Failure> {
        let proxy = proxy_for(&upstream.proxy, &upstream.base, |name| {
            std::env::var(name).ok()
        })
        .map_err(|error| local(error.to_string()))?;
        let tls = self.tls(upstream)?;
        let line = Line::new(self.wait.clone(), Patience::from(&upstream.limits));
        let agent = agent::agent(AgentParts {
            line: line.clone(),
            names: self.names.clone(),
            tls,
            proxy,
            head: upstream.limits.head,
            user_agent: self.user_agent.clone(),
            idle,
        });
        Ok((agent, line))
    }

    fn tls(&self, upstream: &Upstream) -> Result<Tls, Failure> {
        let config = |identity: Option<Identity<'_>>| {
            let setup = TlsSetup {
                roots: upstream.roots,
                extra_ca: upstream.extra_ca.as_deref(),
                identity,
            };
            client_config(&setup, self.tls_clock.clone()).map_err(|error| local(error.to_string()))
        };
        if let Some(cert) = &upstream.client_cert {
            let key = cert
                .key
                .resolve_pem(&process_env)
                .map_err(|error| local(error.to_string()))?;
            let key_name = cert.key.to_string();
            let identity = Identity {
                cert: &cert.cert,
                key: key.expose().as_bytes(),
                key_name: &key_name,
            };
            let host = upstream.base.host_str().unwrap_or_default();
            let host = host
                .trim_start_matches('[')
                .trim_end_matches(']')
                .to_owned();
            let home = (host, upstream.base.port_or_known_default().unwrap_or(443));
            return Ok(Tls::Identified {
                home,
                known: config(Some(identity))?,
                stranger: config(None)?,
            });
        }
        if upstream.base.scheme() == "https" || upstream.extra_ca.is_some() {
            return config(None).map(Tls::Ready);
        }
        Ok(Tls::late(upstream.roots, self.tls_clock.clone()))
    }
}

fn local(reason: String) -> Failure {
    Failure::new(Kind::Local, reason)
}
