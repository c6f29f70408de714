//! Listeners: TCP over IPv4 and IPv6, and Unix sockets.

use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::{fmt, fs, io};

use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, sockopt};

use super::activation::{self, ActivationError, Passed};
use super::line::{Line, Socket};
use super::service::Peer;
use super::tls::Certificate;

/// Connections that wait in the kernel until they are accepted.
const BACKLOG: i32 = 128;

/// One listener to open.
#[derive(Debug, Clone)]
pub struct Listen {
    /// Where.
    pub place: Place,
    /// With TLS under this certificate; without if there is none.
    pub tls: Option<Certificate>,
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
    /// Every socket that systemd opened under this name: `FileDescriptorName=` of the socket unit, or the unit's own.
    Systemd {
        /// The name.
        name: String,
    },
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "{address}"),
            Self::Unix { path, .. } => write!(f, "{}", path.display()),
            Self::Systemd { name } => write!(f, "the socket {name} of systemd"),
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
    /// What systemd passed cannot be used.
    Activation(ActivationError),
    /// There is nowhere to listen.
    Nowhere,
}

impl fmt::Display for ListenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused { place, error } => write!(f, "cannot listen at {place}: {error}"),
            Self::Activation(error) => error.fmt(f),
            Self::Nowhere => f.write_str("the door has no place to listen at"),
        }
    }
}

impl std::error::Error for ListenError {}

impl From<ActivationError> for ListenError {
    fn from(error: ActivationError) -> Self {
        Self::Activation(error)
    }
}

/// An open listener.
#[derive(Debug)]
pub(super) struct Listener {
    socket: Listening,
    tls: Option<Certificate>,
}

#[derive(Debug)]
enum Listening {
    Tcp(TcpListener),
    /// Opened here, and taken away again.
    Unix(UnixPlace),
    /// Opened by somebody else.
    PassedUnix(UnixListener),
}

impl Listener {
    /// Opens all of them, or none.
    pub(super) fn open(places: &[Listen]) -> Result<Vec<Self>, ListenError> {
        let all: Vec<&Place> = places.iter().map(|one| &one.place).collect();
        let mut open = Vec::new();
        for Listen { place, tls } in places {
            let refused = |error| ListenError::Refused {
                place: place.to_string(),
                error,
            };
            let sockets = match place {
                Place::Tcp(address) => tcp(*address, v6_only(*address, &all))
                    .map(|listener| vec![Listening::Tcp(listener)])
                    .map_err(refused)?,
                Place::Unix { path, mode } => UnixPlace::bind(path, *mode)
                    .map(|place| vec![Listening::Unix(place)])
                    .map_err(refused)?,
                Place::Systemd { name } => Listening::passed(name)?,
            };
            open.extend(sockets.into_iter().map(|socket| Self {
                socket,
                tls: tls.clone(),
            }));
        }
        if open.is_empty() {
            return Err(ListenError::Nowhere);
        }
        Ok(open)
    }

    /// The next connection, without waiting. `None`: it was gone before it could be served.
    pub(super) fn accept(&self) -> io::Result<Option<(Line, Peer)>> {
        let (socket, address) = self.socket.accept()?;
        let peer = Peer {
            address,
            tls: self.tls.is_some(),
        };
        let line = match &self.tls {
            None => Some(Line::plain(socket)),
            Some(certificate) => Line::tls(socket, certificate.config()),
        };
        Ok(line.map(|line| (line, peer)))
    }

    /// Where a TCP listener is.
    pub(super) fn address(&self) -> Option<SocketAddr> {
        match &self.socket {
            Listening::Tcp(listener) => listener.local_addr().ok(),
            Listening::Unix(_) | Listening::PassedUnix(_) => None,
        }
    }
}

impl Listening {
    /// What systemd passed under this name.
    fn passed(name: &str) -> Result<Vec<Self>, ActivationError> {
        let mut passed = activation::passed_here()?;
        passed.retain(|one| one.name == name);
        if passed.is_empty() {
            return Err(ActivationError::Missing {
                name: name.to_owned(),
            });
        }
        passed.iter().map(Self::take_over).collect()
    }

    fn take_over(passed: &Passed) -> Result<Self, ActivationError> {
        let socket = activation::take(passed)?;
        let no_listener = || ActivationError::NoListener {
            name: passed.name.clone(),
        };
        let is_stream = sockopt::socket_type(&socket).is_ok_and(|kind| kind == SocketType::STREAM);
        if !is_stream || !sockopt::socket_acceptconn(&socket).unwrap_or(false) {
            return Err(no_listener());
        }
        rustix::io::ioctl_fionbio(&socket, true).map_err(|_| no_listener())?;
        match sockopt::socket_domain(&socket) {
            Ok(AddressFamily::INET | AddressFamily::INET6) => {
                Ok(Self::Tcp(TcpListener::from(socket)))
            }
            Ok(AddressFamily::UNIX) => Ok(Self::PassedUnix(UnixListener::from(socket))),
            _ => Err(no_listener()),
        }
    }

    fn accept(&self) -> io::Result<(Socket, Option<SocketAddr>)> {
        let stream = match self {
            Self::Tcp(listener) => {
                let (stream, address) = listener.accept()?;
                stream.set_nonblocking(true)?;
                // Answers are written in one piece: there is nothing to collect.
                let _only_slower = stream.set_nodelay(true);
                let ip = address.ip().to_canonical();
                return Ok((
                    Socket::Tcp(stream),
                    Some(SocketAddr::new(ip, address.port())),
                ));
            }
            Self::Unix(place) => place.listener.accept()?.0,
            Self::PassedUnix(listener) => listener.accept()?.0,
        };
        stream.set_nonblocking(true)?;
        Ok((Socket::Unix(stream), None))
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.socket {
            Listening::Tcp(listener) => listener.as_fd(),
            Listening::Unix(place) => place.listener.as_fd(),
            Listening::PassedUnix(listener) => listener.as_fd(),
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
