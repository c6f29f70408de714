//! One connection's bytes, without waiting.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

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

/// A connection's bytes.
#[derive(Debug)]
pub(super) struct Line {
    socket: Socket,
}

impl Line {
    pub(super) fn plain(socket: Socket) -> Self {
        Self { socket }
    }

    /// Reads what is there.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> io::Result<Heard> {
        hear(&mut self.socket, buffer)
    }

    /// Writes as much as goes; 0 when nothing does now.
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        say(&mut self.socket, bytes)
    }

    /// Says that nothing more will be sent.
    pub(super) fn shut(&mut self) {
        self.socket.shut();
    }
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
