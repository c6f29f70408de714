//! TLS over a transport.
//!
//! rustls is driven by hand rather than by its stream type, so that every error keeps its cause: a bad certificate, an
//! alert, a cut without `close_notify`, or what the transport below said.

use std::fmt;
use std::io::{self, Read, Write};
use std::sync::{Arc, OnceLock};

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};
use ureq::Error;
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, Either, LazyBuffers, NextTimeout, Transport,
    TransportAdapter,
};

use super::cause::TransportCause;
use super::dns::bare;
use super::tls::{TlsClock, TlsProblem, TlsSetup, client_config};
use crate::config::Roots;

/// Where an agent's TLS config comes from.
#[derive(Debug)]
pub enum Tls {
    /// It is there.
    Ready(Arc<ClientConfig>),
    /// With a client certificate, which is shown to the upstream's own origin and to nobody that it redirects to.
    Identified {
        /// Host and port of that origin.
        home: (String, u16),
        /// With the certificate.
        known: Arc<ClientConfig>,
        /// Without.
        stranger: Arc<ClientConfig>,
    },
    /// For an upstream that is `http`, and may still redirect to `https`: made of these trust anchors when that happens,
    /// since reading the system's costs memory that most such upstreams never need. Without a client certificate.
    Late(Late),
    /// There is none: an `https` URL fails.
    None,
}

/// What a TLS config can be made of when it is needed.
#[derive(Debug)]
pub struct Late {
    roots: Roots,
    clock: Arc<TlsClock>,
    made: OnceLock<Result<Arc<ClientConfig>, String>>,
}

impl Tls {
    /// See [`Tls::Late`].
    #[must_use]
    pub fn late(roots: Roots, clock: Arc<TlsClock>) -> Self {
        Self::Late(Late {
            roots,
            clock,
            made: OnceLock::new(),
        })
    }

    fn config(&self, host: &str, port: u16) -> Result<&Arc<ClientConfig>, Error> {
        match self {
            Self::Ready(config) => Ok(config),
            Self::Identified { home, known, .. }
                if home.0.eq_ignore_ascii_case(host) && home.1 == port =>
            {
                Ok(known)
            }
            Self::Identified { stranger, .. } => Ok(stranger),
            Self::None => Err(Error::TlsRequired),
            Self::Late(late) => {
                let made = late.made.get_or_init(|| {
                    let setup = TlsSetup {
                        roots: late.roots,
                        extra_ca: None,
                        identity: None,
                    };
                    client_config(&setup, Arc::clone(&late.clock))
                        .map_err(|error| error.to_string())
                });
                made.as_ref()
                    .map_err(|reason| TransportCause::Tls(TlsProblem::Other(reason.clone())).into())
            }
        }
    }
}

/// Wraps transports in TLS where the URL asks for it.
#[derive(Debug)]
pub(super) struct TlsConnector(Tls);

impl TlsConnector {
    pub(super) fn new(tls: Tls) -> Self {
        Self(tls)
    }
}

impl<In: Transport> Connector<In> for TlsConnector {
    type Out = Either<In, TlsTransport>;

    fn connect(
        &self,
        details: &ConnectionDetails<'_>,
        chained: Option<In>,
    ) -> Result<Option<Self::Out>, Error> {
        let Some(below) = chained else {
            return Ok(None);
        };
        if !details.needs_tls() || below.is_tls() {
            return Ok(Some(Either::A(below)));
        }
        let host = bare(details.uri.host().unwrap_or_default());
        let config = self.0.config(host, details.uri.port_u16().unwrap_or(443))?;
        let name = ServerName::try_from(host.to_owned()).map_err(|_| {
            TransportCause::Tls(TlsProblem::Other(format!("{host} is no host name")))
        })?;
        let tls = ClientConnection::new(Arc::clone(config), name).map_err(failed)?;
        let below = TransportAdapter::new(below.boxed(), details.current_time.clone());
        let config = details.config;
        let buffers = LazyBuffers::new(config.input_buffer_size(), config.output_buffer_size());
        let mut transport = TlsTransport {
            tls,
            below,
            buffers,
        };
        transport.handshake()?;
        Ok(Some(Either::B(transport)))
    }
}

/// One TLS connection.
pub(super) struct TlsTransport {
    tls: ClientConnection,
    below: TransportAdapter,
    buffers: LazyBuffers,
}

impl TlsTransport {
    fn handshake(&mut self) -> io::Result<()> {
        while self.tls.is_handshaking() {
            self.flush()?;
            if self.tls.is_handshaking() && !self.fill()? {
                return Err(TransportCause::Truncated.into());
            }
        }
        self.flush()
    }

    /// Sends what rustls has to send.
    fn flush(&mut self) -> io::Result<()> {
        while self.tls.wants_write() {
            self.tls
                .write_tls(&mut self.below)
                .map_err(TransportCause::keep)?;
        }
        Ok(())
    }

    /// Takes in what has come, waiting for it; `false` at the end of the connection.
    fn fill(&mut self) -> io::Result<bool> {
        let bytes = self
            .tls
            .read_tls(&mut self.below)
            .map_err(TransportCause::keep)?;
        if let Err(error) = self.tls.process_new_packets() {
            // The other side is told why, as far as it still listens.
            let _told = self.flush();
            return Err(failed(error).into());
        }
        Ok(bytes > 0)
    }

    fn read(&mut self) -> io::Result<usize> {
        loop {
            let room = self.buffers.input_append_buf();
            match self.tls.reader().read(room) {
                Ok(bytes) => return Ok(bytes),
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    return Err(TransportCause::Truncated.into());
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(TransportCause::keep(error)),
            }
            self.flush()?;
            self.fill()?;
        }
    }

    fn write(&mut self, amount: usize) -> io::Result<()> {
        let mut done = 0;
        while done < amount {
            let rest = self.buffers.output().get(done..amount).unwrap_or_default();
            done += self.tls.writer().write(rest)?;
            self.flush()?;
        }
        Ok(())
    }

    /// After a failed write: the alert that came before the reset, if one did. It says more.
    fn parting_words(&mut self, error: io::Error) -> io::Error {
        let reset = matches!(super::cause::cause_in(&error), Some(TransportCause::Reset));
        if !reset {
            return error;
        }
        loop {
            match self.fill() {
                Ok(true) => {}
                Ok(false) => return error,
                Err(last) => {
                    let told =
                        matches!(super::cause::cause_in(&last), Some(TransportCause::Tls(_)));
                    return if told { last } else { error };
                }
            }
        }
    }
}

fn failed(error: rustls::Error) -> TransportCause {
    TransportCause::Tls(error.into())
}

impl Transport for TlsTransport {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, _: NextTimeout) -> Result<(), Error> {
        Ok(self
            .write(amount)
            .map_err(|error| self.parting_words(error))?)
    }

    fn await_input(&mut self, _: NextTimeout) -> Result<bool, Error> {
        let bytes = self.read()?;
        self.buffers.input_appended(bytes);
        Ok(bytes > 0)
    }

    /// Neither TLS nor TCP may have anything to read left.
    fn is_open(&mut self) -> bool {
        let quiet = self
            .tls
            .process_new_packets()
            .is_ok_and(|state| state.plaintext_bytes_to_read() == 0 && !state.peer_has_closed());
        let below = self.below.get_mut();
        quiet && below.buffers().input().is_empty() && below.is_open()
    }

    fn is_tls(&self) -> bool {
        true
    }
}

impl fmt::Debug for TlsTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsTransport")
            .field("below", &self.below.inner())
            .finish_non_exhaustive()
    }
}
