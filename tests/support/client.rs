//! The client side put together: a wait, a line, an agent.

use std::io::{self, Read};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use gleaner::clock::{Clock, Sure, SystemClock, Timestamp, Trust};
use gleaner::config::Roots;
use gleaner::upstream::agent::{AgentParts, IDLE, Tls, agent};
use gleaner::upstream::dns::Names;
use gleaner::upstream::line::{Line, Patience};
use gleaner::upstream::tls::{Identity, TlsClock, TlsSetup, client_config};
use gleaner::wait::Wait;

use super::pki::Leaf;

/// Longer than any test takes: a deadline that never comes.
pub const LONG: Duration = Duration::from_secs(3600);

/// What a test says about its client; the rest is usual.
pub struct Setup {
    pub clock: Arc<dyn Clock>,
    pub patience: Patience,
    pub names: Names,
    /// A CA file and, for mutual TLS, a certificate file with its key.
    pub ca: Option<PathBuf>,
    pub identity: Option<(PathBuf, Leaf)>,
    pub proxy: Option<SocketAddr>,
    /// What the clock is worth.
    pub trust: Trust,
    pub floor: Option<Timestamp>,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            clock: Arc::new(SystemClock),
            patience: Patience {
                connect: LONG,
                stall: LONG,
                total: LONG,
            },
            names: Names::system(),
            ca: None,
            identity: None,
            proxy: None,
            trust: Trust::Sure(Sure::Ntp),
            floor: None,
        }
    }
}

/// A client of one upstream.
pub struct Client {
    pub wait: Wait,
    pub line: Line,
    pub agent: ureq::Agent,
}

impl Client {
    pub fn new() -> Self {
        Setup::default().build()
    }

    /// One GET, its body read to the end.
    pub fn get(&self, url: &str) -> Result<(u16, Vec<u8>), ureq::Error> {
        self.line.begin_request();
        let answer = self.agent.get(url).call()?;
        let status = answer.status().as_u16();
        let mut body = Vec::new();
        answer.into_body().into_reader().read_to_end(&mut body)?;
        Ok((status, body))
    }

    /// One GET whose body is only counted.
    pub fn get_and_count(&self, url: &str) -> Result<u64, ureq::Error> {
        self.line.begin_request();
        let answer = self.agent.get(url).call()?;
        Ok(io::copy(
            &mut answer.into_body().into_reader(),
            &mut io::sink(),
        )?)
    }
}

impl Setup {
    pub fn build(self) -> Client {
        let wait = Wait::new(Arc::clone(&self.clock)).unwrap();
        let line = Line::new(wait.clone(), self.patience);
        let tls = self.ca.as_deref().map(|ca| {
            let identity = self.identity.as_ref().map(|(cert, leaf)| Identity {
                cert,
                key_name: "key.pem",
                key: leaf.key.as_bytes(),
            });
            let setup = TlsSetup {
                roots: Roots::ExtraOnly,
                extra_ca: Some(ca),
                identity,
            };
            let clock = TlsClock::new(Arc::clone(&self.clock));
            clock.believe(self.trust);
            self.floor
                .iter()
                .for_each(|floor| clock.raise_floor(*floor));
            client_config(&setup, Arc::new(clock)).unwrap()
        });
        let agent = agent(AgentParts {
            line: line.clone(),
            names: self.names,
            tls: tls.map_or(Tls::None, Tls::Ready),
            proxy: self
                .proxy
                .map(|addr| ureq::Proxy::new(&format!("http://u:p@{addr}")).unwrap()),
            head: 64 * 1024,
            user_agent: "gleaner/test".into(),
            idle: IDLE,
        });
        Client { wait, line, agent }
    }
}
