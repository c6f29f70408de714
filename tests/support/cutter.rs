//! A line that can be cut: it forwards bytes to a server, and resets the connection when so many have come down.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// A forwarder on loopback.
pub struct Cutter {
    addr: SocketAddr,
    left: Arc<AtomicU64>,
    down: Arc<AtomicU64>,
}

impl Cutter {
    /// To that server, without a cut.
    pub fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let (left, down) = (
            Arc::new(AtomicU64::new(u64::MAX)),
            Arc::new(AtomicU64::new(0)),
        );
        let (rest, count) = (Arc::clone(&left), Arc::clone(&down));
        thread::spawn(move || {
            while let Ok((client, _)) = listener.accept() {
                let (rest, count) = (Arc::clone(&rest), Arc::clone(&count));
                thread::spawn(move || {
                    let _over = forward(client, server, &rest, &count);
                });
            }
        });
        Self { addr, left, down }
    }

    pub fn port(&self) -> u16 {
        self.addr.port()
    }

    /// Lets so many bytes come down from now on, over all connections, and then cuts.
    pub fn after(&self, bytes: u64) {
        self.left.store(bytes, Ordering::SeqCst);
    }

    /// Cuts nothing.
    pub fn mend(&self) {
        self.after(u64::MAX);
    }

    /// Bytes that came down so far.
    pub fn down(&self) -> u64 {
        self.down.load(Ordering::SeqCst)
    }
}

fn forward(
    mut client: TcpStream,
    server: SocketAddr,
    left: &AtomicU64,
    down: &AtomicU64,
) -> io::Result<()> {
    let mut server = TcpStream::connect(server)?;
    let (mut upwards, mut to_server) = (client.try_clone()?, server.try_clone()?);
    thread::spawn(move || {
        let _over = io::copy(&mut upwards, &mut to_server);
        let _closed = to_server.shutdown(Shutdown::Write);
    });
    let mut buffer = [0; 16 * 1024];
    loop {
        let read = server.read(&mut buffer)?;
        if read == 0 {
            return client.shutdown(Shutdown::Both);
        }
        let allowed = left.load(Ordering::SeqCst);
        let pass = usize::try_from(allowed).map_or(read, |allowed| allowed.min(read));
        client.write_all(&buffer[..pass])?;
        down.fetch_add(pass as u64, Ordering::SeqCst);
        if allowed != u64::MAX {
            left.fetch_sub(pass as u64, Ordering::SeqCst);
        }
        if pass < read {
            // What was passed on is read before the end is noticed.
            client.flush()?;
            let _closed = client.shutdown(Shutdown::Write);
            let _gone = server.shutdown(Shutdown::Both);
            rustix::net::sockopt::set_socket_linger(&client, Some(Duration::from_secs(5)))?;
            return Ok(());
        }
    }
}
