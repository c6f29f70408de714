//! One connection's bytes, without waiting.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use rustls::{ServerConfig, ServerConnection};

/// Bytes that may wait inside TLS for the socket.
const TLS_BUFFER: usize = 16 * 1024;

/// A connected socket.
#[derive(Debug)]
pub(super) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    fn shut(&self) {
        // Whoever is gone already needs no farewell.
        let _gone = match self {
            Self::Tcp(stream) => stream.shutdown(Shutdown::Write),
            Self::Unix(stream) => stream.shutdown(Shutdown::Write),
        };
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(stream) => stream.as_fd(),
            Self::Unix(stream) => stream.as_fd(),
        }
    }
}

impl Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(buffer),
            Self::Unix(stream) => stream.read(buffer),
        }
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write(bytes),
            Self::Unix(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What a read found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Heard {
    /// So many bytes, at least one.
    Bytes(usize),
    /// Nothing yet.
    Nothing,
    /// The other side sends no more.
    End,
}

/// A connection's bytes, plain or by TLS. A handshake goes on with every read.
#[derive(Debug)]
pub(super) struct Line {
    socket: Socket,
    tls: Option<Box<ServerConnection>>,
}

impl Line {
    pub(super) fn plain(socket: Socket) -> Self {
        Self { socket, tls: None }
    }

    /// `None`: rustls refuses its config.
    pub(super) fn tls(socket: Socket, config: Arc<ServerConfig>) -> Option<Self> {
        match ServerConnection::new(config) {
            Ok(mut tls) => {
                tls.set_buffer_limit(Some(TLS_BUFFER));
                Some(Self {
                    socket,
                    tls: Some(Box::new(tls)),
                })
            }
            Err(error) => {
                log::error!("door: TLS: {error}");
                None
            }
        }
    }

    /// Whether the handshake is still going on.
    pub(super) fn is_handshaking(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.is_handshaking())
    }

    /// Reads what is there.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> io::Result<Heard> {
        let Self { socket, tls } = self;
        let Some(tls) = tls else {
            return hear(socket, buffer);
        };
        loop {
            match hear(&mut tls.reader(), buffer) {
                Ok(Heard::Nothing) => {}
                // A cut instead of a farewell: what came before it is framed, so nothing can be missing unseen.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    return Ok(Heard::End);
                }
                heard => return heard,
            }
            flush(tls, socket)?;
            match tls.read_tls(socket) {
                Ok(0) => return Ok(Heard::End),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Ok(Heard::Nothing);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            if let Err(error) = tls.process_new_packets() {
                // The other side is told why, as far as it still listens.
                let _told = flush(tls, socket);
                return Err(io::Error::other(error));
            }
        }
    }

    /// Whether there is more to read that no readiness of the socket tells of.
    pub(super) fn has_more(&mut self) -> bool {
        self.tls.as_mut().is_some_and(|tls| {
            tls.process_new_packets()
                .is_ok_and(|state| state.plaintext_bytes_to_read() > 0)
        })
    }

    /// Reads and drops, without a look at what it is.
    pub(super) fn skim(&mut self, buffer: &mut [u8]) -> io::Result<Heard> {
        hear(&mut self.socket, buffer)
    }

    /// Writes as much as goes; 0 when nothing does now.
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Self { socket, tls } = self;
        let Some(tls) = tls else {
            return say(socket, bytes);
        };
        let written = tls.writer().write(bytes)?;
        flush(tls, socket)?;
        Ok(written)
    }

    /// Whether something was written that has not gone out yet.
    pub(super) fn owes(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.wants_write())
    }

    /// Sends what is owed, as much as goes.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        let Self { socket, tls } = self;
        tls.as_mut().map_or(Ok(()), |tls| flush(tls, socket))
    }

    /// Says that nothing more will be sent.
    pub(super) fn shut(&mut self) {
        if let Some(tls) = &mut self.tls {
            tls.send_close_notify();
            let _gone = flush(tls, &mut self.socket);
        }
        self.socket.shut();
    }
}

fn flush(tls: &mut ServerConnection, socket: &mut Socket) -> io::Result<()> {
    while tls.wants_write() {
        match tls.write_tls(socket) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

impl AsFd for Line {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn hear(from: &mut impl Read, buffer: &mut [u8]) -> io::Result<Heard> {
    loop {
        return match from.read(buffer) {
            Ok(0) => Ok(Heard::End),
            Ok(read) => Ok(Heard::Bytes(read)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Heard::Nothing),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => Err(error),
        };
    }
}

fn say(to: &mut impl Write, bytes: &[u8]) -> io::Result<usize> {
    loop {
        return match to.write(bytes) {
            Ok(0) if !bytes.is_empty() => Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => Ok(written),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => Err(error),
        };
    }
}
