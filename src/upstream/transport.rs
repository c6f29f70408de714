//! TCP through the wait: sockets never block, whoever would block waits in [`Wait`](crate::wait::Wait).
//!
//! Reads and writes are tried first and waited for only if the kernel has nothing; while bytes flow without a pause
//! every one of them takes a breath, so that the attendants get their turn. `is_open` and `Drop` never wait.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, sockopt};
use ureq::Error;
use ureq::http::uri::Scheme;
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, Either, LazyBuffers, NextTimeout, Transport,
};

use super::cause::TransportCause;
use super::dns::Names;
use super::line::Line;
use crate::clock::Mono;
use crate::wait::Interest;

/// Room for the largest TLS record.
const RECORD_BUFFER: usize = 18 * 1024;

/// Opens TCP connections, unless there is one in the chain already (a proxy's tunnel).
#[derive(Debug)]
pub(super) struct TcpConnector {
    line: Line,
    names: Names,
}

impl TcpConnector {
    pub(super) fn new(line: Line, names: Names) -> Self {
        Self { line, names }
    }
}

impl<In: Transport> Connector<In> for TcpConnector {
    type Out = Either<In, TcpTransport>;

    fn connect(
        &self,
        details: &ConnectionDetails<'_>,
        chained: Option<In>,
    ) -> Result<Option<Self::Out>, Error> {
        if let Some(tunnel) = chained {
            return Ok(Some(Either::A(tunnel)));
        }
        let host = details
            .uri
            .host()
            .ok_or_else(|| Error::BadUri("no host".into()))?;
        let default = if details.uri.scheme() == Some(&Scheme::HTTPS) {
            443
        } else {
            80
        };
        let port = details.uri.port_u16().unwrap_or(default);

        let addrs = self.names.lookup(&self.line, host, port)?;
        let socket = connect_to_any(&self.line, &addrs)?;
        // Below TLS a record is what is read at a time; above it, or without it, a whole head must fit.
        let input = if details.needs_tls() {
            RECORD_BUFFER
        } else {
            details.config.input_buffer_size()
        };
        let buffers = LazyBuffers::new(input, details.config.output_buffer_size());
        Ok(Some(Either::B(TcpTransport {
            socket,
            buffers,
            line: self.line.clone(),
        })))
    }
}

/// Tries one address after the other. Each may take half of the time that is left, the last one all of it: an address
/// that swallows packets leaves time for the next.
///
/// # Errors
///
/// That of the last address that was tried.
pub(super) fn connect_to_any(
    line: &Line,
    addrs: &[SocketAddr],
) -> Result<TcpStream, TransportCause> {
    let _dialling = line.dial();
    let mut failure = TransportCause::Broken("no address to connect to".into());
    for (index, addr) in addrs.iter().enumerate() {
        let (deadline, overdue) = line.deadline();
        let now = line.wait().now();
        let left = deadline.since(now);
        if left.is_zero() {
            return Err(overdue);
        }
        let is_last = index + 1 == addrs.len();
        let budget = if is_last { left } else { left / 2 };
        failure = match connect_to(line, *addr, now.after(budget)) {
            Ok(socket) => {
                line.traffic().connected();
                log::debug!("connected to {addr}");
                return Ok(socket);
            }
            Err(
                cause @ (TransportCause::Stopped
                | TransportCause::TotalTime(_)
                | TransportCause::Broken(_)),
            ) => {
                return Err(cause);
            }
            Err(cause) => cause,
        };
        log::debug!("{addr}: {failure}");
    }
    Err(failure)
}

fn connect_to(line: &Line, addr: SocketAddr, until: Mono) -> Result<TcpStream, TransportCause> {
    let broken = |errno: Errno| TransportCause::Broken(io::Error::from(errno).to_string());
    let family = if addr.is_ipv6() {
        AddressFamily::INET6
    } else {
        AddressFamily::INET
    };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket =
        match rustix::net::socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP)) {
            Ok(socket) => socket,
            Err(Errno::AFNOSUPPORT) => return Err(unreachable_at(addr, Errno::AFNOSUPPORT)),
            Err(errno) => return Err(broken(errno)),
        };
    match rustix::net::connect(&socket, &addr) {
        // An interrupted connect goes on by itself (POSIX).
        Ok(()) | Err(Errno::INPROGRESS | Errno::INTR) => {}
        Err(errno) => return Err(unreachable_at(addr, errno)),
    }
    line.fd_ready(socket.as_fd(), Interest::Write, Some(until))?;
    sockopt::socket_error(&socket)
        .map_err(broken)?
        .map_err(|errno| unreachable_at(addr, errno))?;
    sockopt::set_tcp_nodelay(&socket, true).map_err(broken)?;
    Ok(socket.into())
}

fn unreachable_at(addr: SocketAddr, errno: Errno) -> TransportCause {
    match errno {
        Errno::CONNREFUSED => TransportCause::Refused(addr),
        other => TransportCause::Unreachable {
            addr,
            reason: io::Error::from(other).to_string(),
        },
    }
}

/// One TCP connection.
pub(super) struct TcpTransport {
    socket: TcpStream,
    buffers: LazyBuffers,
    line: Line,
}

impl TcpTransport {
    fn read(&mut self) -> Result<usize, TransportCause> {
        let room = self.buffers.input_append_buf();
        loop {
            match self.socket.read(room) {
                Ok(bytes) => {
                    self.line.traffic().received(bytes);
                    self.line.breathe()?;
                    return Ok(bytes);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.line
                        .fd_ready(self.socket.as_fd(), Interest::Read, None)?;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(TransportCause::of_socket(&error)),
            }
        }
    }

    fn write(&mut self, amount: usize) -> Result<(), TransportCause> {
        let mut rest = self.buffers.output().get(..amount).unwrap_or_default();
        while !rest.is_empty() {
            match self.socket.write(rest) {
                Ok(bytes) => {
                    self.line.traffic().sent(bytes);
                    rest = rest.get(bytes..).unwrap_or_default();
                    self.line.breathe()?;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.line
                        .fd_ready(self.socket.as_fd(), Interest::Write, None)?;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(TransportCause::of_socket(&error)),
            }
        }
        Ok(())
    }
}

impl Transport for TcpTransport {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, _: NextTimeout) -> Result<(), Error> {
        Ok(self.write(amount)?)
    }

    fn await_input(&mut self, _: NextTimeout) -> Result<bool, Error> {
        let bytes = self.read()?;
        self.buffers.input_appended(bytes);
        Ok(bytes > 0)
    }

    /// An idle connection with something to read has ended, or is out of step.
    fn is_open(&mut self) -> bool {
        matches!(self.socket.peek(&mut [0]), Err(error) if error.kind() == io::ErrorKind::WouldBlock)
    }
}

impl fmt::Debug for TcpTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TcpTransport")
            .field("peer", &self.socket.peer_addr().ok())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;
    use std::sync::{Arc, mpsc};
    use std::thread;
    use std::time::Duration;

    use super::*;
    use crate::clock::SystemClock;
    use crate::upstream::line::Patience;
    use crate::wait::{Attendant, Interests, Ready, Wait};

    fn line(connect: Duration) -> Line {
        let long = Duration::from_secs(30);
        let patience = Patience {
            connect,
            stall: long,
            total: long,
        };
        Line::new(Wait::new(Arc::new(SystemClock)).unwrap(), patience)
    }

    /// An address where nobody listens while the socket is held: bound, so that nobody else gets it.
    fn closed(host: &str) -> Option<(SocketAddr, OwnedFd)> {
        let addr = SocketAddr::new(host.parse().unwrap(), 0);
        let family = if addr.is_ipv6() {
            AddressFamily::INET6
        } else {
            AddressFamily::INET
        };
        let socket = rustix::net::socket(family, SocketType::STREAM, None).ok()?;
        rustix::net::bind(&socket, &addr).ok()?;
        let addr = rustix::net::getsockname(&socket).ok()?.try_into().ok()?;
        Some((addr, socket))
    }

    #[test]
    fn addresses_are_tried_in_turn() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let open = listener.local_addr().unwrap();
        let closed: Vec<_> = [closed("::1"), closed("127.0.0.1")]
            .into_iter()
            .flatten()
            .collect();
        let mut addrs: Vec<SocketAddr> = closed.iter().map(|(addr, _)| *addr).collect();
        addrs.push(open);
        let line = line(Duration::from_secs(30));
        let socket = connect_to_any(&line, &addrs).unwrap();
        assert_eq!(socket.peer_addr().unwrap(), open);
        assert_eq!(line.traffic().connections(), 1);
    }

    #[test]
    fn the_last_address_says_why() {
        let (addr, _held) = closed("127.0.0.1").unwrap();
        let line = line(Duration::from_secs(30));
        assert_eq!(
            connect_to_any(&line, &[addr]).unwrap_err(),
            TransportCause::Refused(addr)
        );
        let no_port = "255.255.255.255:9".parse().unwrap();
        let cause = connect_to_any(&line, &[addr, no_port]).unwrap_err();
        assert!(
            matches!(cause, TransportCause::Unreachable { addr, .. } if addr == no_port),
            "{cause:?}"
        );
    }

    #[test]
    fn an_address_that_swallows_packets_leaves_time_for_the_next() {
        // A listener whose queue is full lets further connects hang, as a firewall does.
        let full = TcpListener::bind("127.0.0.1:0").unwrap();
        rustix::net::listen(&full, 0).unwrap();
        let deaf = full.local_addr().unwrap();
        let quick = line(Duration::from_millis(20));
        let mut held = Vec::new();
        let timeout = loop {
            match connect_to_any(&quick, &[deaf]) {
                Ok(socket) => held.push(socket),
                Err(cause) => break cause,
            }
        };
        assert_eq!(
            timeout,
            TransportCause::ConnectTimeout(Duration::from_millis(20))
        );

        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let open = listener.local_addr().unwrap();
        let socket = connect_to_any(&line(Duration::from_millis(600)), &[deaf, open]).unwrap();
        assert_eq!(socket.peer_addr().unwrap(), open);
    }

    /// Answers each byte with itself.
    struct Echo(UnixStream);

    impl Attendant for Echo {
        fn interests<'a>(&'a self, into: &mut Interests<'a>) {
            into.add(self.0.as_fd(), 0, Interest::Read);
        }

        fn attend(&mut self, ready: &[Ready], _: Mono, _: &Wait) -> Option<Mono> {
            if !ready.is_empty() {
                let mut byte = [0];
                self.0.read_exact(&mut byte).unwrap();
                self.0.write_all(&byte).unwrap();
            }
            None
        }
    }

    #[test]
    fn while_the_kernel_always_has_more_the_attendant_is_served() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let line = line(Duration::from_secs(30));
        let socket = connect_to_any(&line, &[listener.local_addr().unwrap()]).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        let streaming =
            thread::spawn(move || while server.write_all(&[b'x'; 64 * 1024]).is_ok() {});

        let (ours, mut theirs) = UnixStream::pair().unwrap();
        line.wait().attend(Box::new(Echo(ours)));
        let (done, is_done) = mpsc::channel();
        let asking = thread::spawn(move || {
            for byte in 0..10 {
                theirs.write_all(&[byte]).unwrap();
                theirs.read_exact(&mut [0]).unwrap();
            }
            done.send(()).unwrap();
        });

        let mut transport = TcpTransport {
            socket,
            buffers: LazyBuffers::new(16 * 1024, 1),
            line,
        };
        while is_done.try_recv().is_err() {
            // No read finds the socket empty, so none of them waits.
            while rustix::io::ioctl_fionread(&transport.socket).unwrap() == 0 {
                thread::yield_now();
            }
            assert!(transport.await_input(NextTimeout::default()).unwrap());
            let bytes = transport.buffers().input().len();
            transport.buffers().input_consume(bytes);
        }
        drop(transport);
        asking.join().unwrap();
        streaming.join().unwrap();
    }
}
