//! Listeners: TCP over IPv4 and IPv6, and Unix sockets.

use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::{fmt, fs, io};

use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, sockopt};

use super::line::Socket;
use super::service::Peer;

/// Connections that wait in the kernel until they are accepted.
const BACKLOG: i32 = 128;

/// One listener to open.
#[derive(Debug, Clone)]
pub struct Listen {
    /// Where.
    pub place: Place,
}

/// Where to listen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// A TCP address. `[::]` takes IPv4 as well, unless an IPv4 address is listened at on the same port.
    Tcp(SocketAddr),
    /// A Unix socket.
    Unix {
        /// Its path; a socket that a dead process left there is replaced.
        path: PathBuf,
        /// Its permissions, `0o660` for example.
        mode: u32,
    },
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "{address}"),
            Self::Unix { path, .. } => write!(f, "{}", path.display()),
        }
    }
}

/// A listener that cannot be opened.
#[derive(Debug)]
pub enum ListenError {
    /// The kernel refuses.
    Refused {
        /// Where.
        place: String,
        /// Why.
        error: io::Error,
    },
}

impl fmt::Display for ListenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused { place, error } => write!(f, "cannot listen at {place}: {error}"),
        }
    }
}

impl std::error::Error for ListenError {}

/// An open listener.
#[derive(Debug)]
pub(super) enum Listener {
    Tcp(TcpListener),
    Unix(UnixPlace),
}

impl Listener {
    /// Opens all of them, or none.
    pub(super) fn open(places: &[Listen]) -> Result<Vec<Self>, ListenError> {
        let all: Vec<&Place> = places.iter().map(|one| &one.place).collect();
        places
            .iter()
            .map(|one| {
                Self::open_one(&one.place, &all).map_err(|error| ListenError::Refused {
                    place: one.place.to_string(),
                    error,
                })
            })
            .collect()
    }

    fn open_one(place: &Place, all: &[&Place]) -> io::Result<Self> {
        match place {
            Place::Tcp(address) => tcp(*address, v6_only(*address, all)).map(Self::Tcp),
            Place::Unix { path, mode } => UnixPlace::bind(path, *mode).map(Self::Unix),
        }
    }

    /// The next connection, without waiting.
    pub(super) fn accept(&self) -> io::Result<(Socket, Peer)> {
        match self {
            Self::Tcp(listener) => {
                let (stream, address) = listener.accept()?;
                stream.set_nonblocking(true)?;
                // Answers are written in one piece: there is nothing to collect.
                let _only_slower = stream.set_nodelay(true);
                let peer = Peer {
                    address: Some(SocketAddr::new(address.ip().to_canonical(), address.port())),
                    tls: false,
                };
                Ok((Socket::Tcp(stream), peer))
            }
            Self::Unix(place) => {
                let (stream, _) = place.listener.accept()?;
                stream.set_nonblocking(true)?;
                let peer = Peer {
                    address: None,
                    tls: false,
                };
                Ok((Socket::Unix(stream), peer))
            }
        }
    }

    /// Where a TCP listener is.
    pub(super) fn address(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(listener) => listener.local_addr().ok(),
            Self::Unix(_) => None,
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(listener) => listener.as_fd(),
            Self::Unix(place) => place.listener.as_fd(),
        }
    }
}

/// Whether an IPv6 listener must leave IPv4 to another one of ours.
fn v6_only(address: SocketAddr, all: &[&Place]) -> bool {
    all.iter().any(|other| {
        matches!(other, Place::Tcp(other) if other.is_ipv4() && other.port() == address.port())
    })
}

fn tcp(address: SocketAddr, v6_only: bool) -> io::Result<TcpListener> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?;
    // A restart need not wait for connections of the process before.
    sockopt::set_socket_reuseaddr(&socket, true)?;
    if address.is_ipv6() {
        // Said either way, so that the system's default does not matter.
        sockopt::set_ipv6_v6only(&socket, v6_only)?;
    }
    rustix::net::bind(&socket, &address)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(TcpListener::from(socket))
}

/// A Unix socket's listener; the socket goes when it is dropped.
#[derive(Debug)]
pub(super) struct UnixPlace {
    pub(super) listener: UnixListener,
    path: PathBuf,
    /// Device and inode of the socket: what is at `path` may be somebody else's by now.
    identity: Option<(u64, u64)>,
}

impl UnixPlace {
    /// Listens at `path`, in place of a socket that a dead process left there, with these permissions.
    pub(super) fn bind(path: &Path, mode: u32) -> io::Result<Self> {
        clear_the_way(path)?;
        let listener = UnixListener::bind(path)?;
        fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
        listener.set_nonblocking(true)?;
        Ok(Self {
            listener,
            path: path.to_owned(),
            identity: identity(path),
        })
    }
}

impl Drop for UnixPlace {
    fn drop(&mut self) {
        // A socket that nobody listens at would only make callers wonder. If it cannot go, the next start takes it away.
        if self.identity.is_some() && identity(&self.path) == self.identity {
            drop(fs::remove_file(&self.path));
        }
    }
}

/// Takes away a socket that nobody listens at any more.
fn clear_the_way(path: &Path) -> io::Result<()> {
    let in_the_way = |kind, what: &str| Err(io::Error::new(kind, what.to_owned()));
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
        Ok(meta) if !meta.file_type().is_socket() => {
            return in_the_way(
                io::ErrorKind::AlreadyExists,
                "something that is no socket is in the way",
            );
        }
        Ok(_) => {}
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path),
        Err(error) => Err(error),
        Ok(_) => in_the_way(
            io::ErrorKind::AddrInUse,
            "another process listens there (two agents need two `[agent] control`)",
        ),
    }
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    fs::symlink_metadata(path)
        .ok()
        .map(|meta| (meta.dev(), meta.ino()))
}
