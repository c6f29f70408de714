//! Names into addresses.
//!
//! `getaddrinfo` cannot be polled, so each lookup runs in a short-lived helper thread that tells the wait through a
//! pipe. One that takes too long is abandoned, not joined; at most four may be out at a time.
//!
//! ureq asks its resolver before each request, also when the connection from the last one is used again. Ours answers
//! nothing then (`Unasked`), and the connector looks up when it really connects: an idle poll costs no DNS.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

use ureq::http::Uri;
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::NextTimeout;

use super::cause::TransportCause;
use super::line::Line;
use crate::wait::Interest;

/// Lookups that may be out at a time, abandoned ones included.
const MOST_LOOKUPS: usize = 4;

/// Addresses of one name that are tried at most.
const MOST_ADDRESSES: usize = 16;

/// What answers a name and a port with addresses, blocking.
type Ask = dyn Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + Sync;

/// The resolver of the whole process; a handle, cheap to clone.
#[derive(Clone)]
pub struct Names {
    ask: Arc<Ask>,
    out: Arc<AtomicUsize>,
}

impl Names {
    /// Names as the system resolves them.
    #[must_use]
    pub fn system() -> Self {
        Self::answered_by(|host, port| (host, port).to_socket_addrs().map(Iterator::collect))
    }

    /// Names as `ask` resolves them: the seam for tests. It may block.
    #[must_use]
    pub fn answered_by(
        ask: impl Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + Sync + 'static,
    ) -> Self {
        Self {
            ask: Arc::new(ask),
            out: Arc::default(),
        }
    }

    /// The addresses of `host`, at most 16, in the order to try them: the resolver's first one first, then the families
    /// in turn. An IP address (`[::1]` too) is its own.
    ///
    /// # Errors
    ///
    /// [`TransportCause::Dns`], also when too many lookups are out; the line's deadline; stopped.
    pub fn lookup(
        &self,
        line: &Line,
        host: &str,
        port: u16,
    ) -> Result<Vec<SocketAddr>, TransportCause> {
        if let Some(ip) = literal(host) {
            return Ok(vec![SocketAddr::new(ip, port)]);
        }
        let failed = |reason: String| TransportCause::Dns {
            host: host.to_owned(),
            reason,
        };
        let broken = |error: io::Error| failed(error.to_string());

        let ticket = Ticket::take(&self.out)
            .ok_or_else(|| failed(format!("{MOST_LOOKUPS} lookups hang already")))?;
        let (done, doorbell) = UnixStream::pair().map_err(broken)?;
        let (answer, answers) = mpsc::channel();
        let (ask, asked) = (Arc::clone(&self.ask), host.to_owned());
        let lookup = move || {
            let _ticket = ticket;
            let _ring_when_dropped = doorbell;
            let _nobody_waits_any_more = answer.send(ask(&asked, port));
        };
        thread::Builder::new()
            .name("dns".into())
            .spawn(lookup)
            .map_err(broken)?;

        line.fd_ready(done.as_fd(), Interest::Read, None)?;
        let found = answers
            .recv()
            .map_err(|_| failed("the lookup crashed".into()))?
            .map_err(broken)?;
        if found.is_empty() {
            return Err(failed("no address".into()));
        }
        Ok(interleave(&found))
    }
}

impl fmt::Debug for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Names")
            .field("out", &self.out)
            .finish_non_exhaustive()
    }
}

/// A lookup that is out. Given back when its thread ends, however late.
struct Ticket(Arc<AtomicUsize>);

impl Ticket {
    fn take(out: &Arc<AtomicUsize>) -> Option<Self> {
        let more = |now: usize| (now < MOST_LOOKUPS).then_some(now + 1);
        out.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more)
            .ok()
            .map(|_| Self(Arc::clone(out)))
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// ureq's resolver: leaves it to the connector.
#[derive(Debug)]
pub(super) struct Unasked;

impl Resolver for Unasked {
    fn resolve(
        &self,
        _: &Uri,
        _: &ureq::config::Config,
        _: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        Ok(self.empty())
    }
}

/// The address that a host of a URL is, if it is one: `192.0.2.1`, `[2001:db8::1]`.
pub(super) fn literal(host: &str) -> Option<IpAddr> {
    bare(host).parse().ok()
}

/// A host of a URL without the brackets of an IPv6 address.
pub(super) fn bare(host: &str) -> &str {
    host.strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
        .unwrap_or(host)
}

/// Families in turn, beginning with the resolver's favourite (RFC 8305 4), so that a device without a way to one of
/// them soon tries the other.
fn interleave(found: &[SocketAddr]) -> Vec<SocketAddr> {
    let favourite = found.first().is_some_and(SocketAddr::is_ipv6);
    let mut this = found.iter().filter(|addr| addr.is_ipv6() == favourite);
    let mut other = found.iter().filter(|addr| addr.is_ipv6() != favourite);
    let mut order = Vec::with_capacity(found.len());
    loop {
        let pair = (this.next(), other.next());
        order.extend(pair.0.into_iter().chain(pair.1));
        if pair == (None, None) {
            break;
        }
    }
    order.truncate(MOST_ADDRESSES);
    order
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::clock::SystemClock;
    use crate::upstream::line::Patience;
    use crate::wait::Wait;

    fn line(connect: Duration) -> Line {
        let patience = Patience {
            connect,
            stall: connect,
            total: connect,
        };
        Line::new(Wait::new(Arc::new(SystemClock)).unwrap(), patience)
    }

    fn addrs(list: &[&str]) -> Vec<SocketAddr> {
        list.iter().map(|addr| addr.parse().unwrap()).collect()
    }

    #[test]
    fn families_take_turns_and_the_favourite_stays_first() {
        let found = addrs(&["[::1]:1", "[::2]:1", "[::3]:1", "1.1.1.1:1", "2.2.2.2:1"]);
        let order = addrs(&["[::1]:1", "1.1.1.1:1", "[::2]:1", "2.2.2.2:1", "[::3]:1"]);
        assert_eq!(interleave(&found), order);
        let one_family = addrs(&["1.1.1.1:1", "2.2.2.2:1"]);
        assert_eq!(interleave(&one_family), one_family);
        assert_eq!(interleave(&found.repeat(9)).len(), MOST_ADDRESSES);
    }

    #[test]
    fn an_address_needs_no_lookup() {
        let names = Names::answered_by(|_, _| panic!("asked"));
        let line = line(Duration::from_secs(30));
        assert_eq!(
            names.lookup(&line, "192.0.2.7", 80).unwrap(),
            addrs(&["192.0.2.7:80"])
        );
        assert_eq!(
            names.lookup(&line, "[2001:db8::7]", 443).unwrap(),
            addrs(&["[2001:db8::7]:443"])
        );
    }

    #[test]
    fn a_name_is_asked_for_in_another_thread() {
        let names = Names::answered_by(|host, port| {
            assert_eq!(
                (host, port, thread::current().name()),
                ("db.example", 5, Some("dns"))
            );
            Ok(addrs(&["192.0.2.7:5"]))
        });
        let line = line(Duration::from_secs(30));
        assert_eq!(
            names.lookup(&line, "db.example", 5).unwrap(),
            addrs(&["192.0.2.7:5"])
        );
    }

    #[test]
    fn failures_name_the_host() {
        let line = line(Duration::from_secs(30));
        let dns = |reason: &str| TransportCause::Dns {
            host: "db.example".into(),
            reason: reason.into(),
        };
        let unknown = Names::answered_by(|_, _| Err(io::Error::other("unknown")));
        assert_eq!(unknown.lookup(&line, "db.example", 5), Err(dns("unknown")));
        let nothing = Names::answered_by(|_, _| Ok(vec![]));
        assert_eq!(
            nothing.lookup(&line, "db.example", 5),
            Err(dns("no address"))
        );
    }

    #[test]
    fn four_hanging_lookups_are_enough_and_come_back_when_they_end() {
        let (release, gate) = mpsc::channel::<()>();
        let gate = std::sync::Mutex::new(gate);
        let names = Names::answered_by(move |_, _| {
            let _ended = gate.lock().unwrap().recv();
            Ok(addrs(&["192.0.2.7:5"]))
        });
        let hasty = line(Duration::from_millis(1));
        let timeout = TransportCause::ConnectTimeout(Duration::from_millis(1));
        for _ in 0..MOST_LOOKUPS {
            let _connecting = hasty.dial();
            assert_eq!(names.lookup(&hasty, "db.example", 5), Err(timeout.clone()));
        }
        let one_too_many = names.lookup(&hasty, "db.example", 5);
        assert!(
            matches!(&one_too_many, Err(TransportCause::Dns { reason, .. }) if reason.contains("hang already"))
        );

        drop(release);
        while names.out.load(Ordering::SeqCst) > 0 {
            thread::yield_now();
        }
        let patient = line(Duration::from_secs(30));
        assert_eq!(
            names.lookup(&patient, "db.example", 5).unwrap(),
            addrs(&["192.0.2.7:5"])
        );
    }
}
