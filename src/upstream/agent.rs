//! One ureq agent per upstream.
//!
//! Its pool keys by scheme, host and proxy alone, so agents are not shared: one upstream's connection must not carry
//! another's client certificate.

use std::time::Duration;

use ureq::Agent;
use ureq::unversioned::transport::{
    Buffers, ConnectProxyConnector, ConnectionDetails, Connector, NextTimeout, Transport,
};

use super::cause::TransportCause;
use super::dns::{Names, Unasked};
use super::line::Line;
pub use super::secure::Tls;
use super::secure::TlsConnector;
use super::transport::TcpConnector;

/// How long an idle connection is kept unless the polling interval asks for more.
pub const IDLE: Duration = Duration::from_secs(600);

/// A request is small, and what ureq writes at a time need not be larger.
const OUTPUT_BUFFER: usize = 16 * 1024;

/// What is read at a time, beyond the longest head.
const INPUT_BUFFER: usize = 16 * 1024;

/// What an agent is made of.
#[derive(Debug)]
pub struct AgentParts {
    /// The upstream's line.
    pub line: Line,
    /// Who resolves names; one for the whole process.
    pub names: Names,
    /// TLS.
    pub tls: Tls,
    /// The proxy to go through.
    pub proxy: Option<ureq::Proxy>,
    /// Bytes of an answer's head, at most.
    pub head: usize,
    /// The `User-Agent`.
    pub user_agent: String,
    /// How long an idle connection is kept; at least the polling interval, so that a poll finds it. See [`IDLE`].
    pub idle: Duration,
}

/// An agent that waits in the line's wait, follows no redirects, takes no status for an error and has no timers of its
/// own. [`Line::begin_request`] is to be called before each request.
#[must_use]
pub fn agent(parts: AgentParts) -> Agent {
    let config = Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .proxy(parts.proxy)
        .user_agent(parts.user_agent)
        .max_response_header_size(parts.head)
        // A head that does not fit into the buffer would look like the end of the connection.
        .input_buffer_size(parts.head.saturating_add(INPUT_BUFFER))
        .output_buffer_size(OUTPUT_BUFFER)
        .max_idle_connections(2)
        .max_idle_connections_per_host(1)
        .max_idle_age(parts.idle)
        .build();
    let chain =
        ().chain(ConnectProxyConnector::default())
            .chain(TcpConnector::new(parts.line.clone(), parts.names))
            .chain(TlsConnector::new(parts.tls));
    Agent::with_parts(
        config,
        Whole {
            chain,
            line: parts.line,
        },
        Unasked,
    )
}

/// The whole chain: one connect deadline over all of it, and the answer's bytes counted at its end.
#[derive(Debug)]
struct Whole<C> {
    chain: C,
    line: Line,
}

impl<C: Connector> Connector for Whole<C> {
    type Out = Watched<C::Out>;

    fn connect(
        &self,
        details: &ConnectionDetails<'_>,
        chained: Option<()>,
    ) -> Result<Option<Self::Out>, ureq::Error> {
        let dialling = self.line.dial();
        let made = self.chain.connect(details, chained)?;
        let line = dialling.is_outermost().then(|| self.line.clone());
        Ok(made.map(|transport| Watched { transport, line }))
    }
}

/// A connection as ureq sees it.
#[derive(Debug)]
struct Watched<T> {
    transport: T,
    /// Where the answer's bytes are noted; `None` below a proxy's tunnel, where they are no answer yet.
    line: Option<Line>,
}

impl<T: Transport> Transport for Watched<T> {
    fn buffers(&mut self) -> &mut dyn Buffers {
        self.transport.buffers()
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), ureq::Error> {
        self.transport.transmit_output(amount, timeout)
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, ureq::Error> {
        let before = self.transport.buffers().input().len();
        let progress = self.transport.await_input(timeout)?;
        let Some(line) = &self.line else {
            return Ok(progress);
        };
        let after = self.transport.buffers().input().len();
        let answered = line.answered(after.saturating_sub(before));
        if !progress && answered == 0 {
            return Err(TransportCause::ClosedUnanswered.into());
        }
        Ok(progress)
    }

    fn is_open(&mut self) -> bool {
        self.transport.is_open()
    }

    fn is_tls(&self) -> bool {
        self.transport.is_tls()
    }
}
