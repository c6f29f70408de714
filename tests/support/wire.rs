//! A wire between client and upstream that does what wires do: it delays, throttles, drips, falls silent, cuts, resets, closes
//! half, and flips bits.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// What happens to the bytes towards the client; places count on each connection from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// They arrive.
    None,
    /// Each read of the server's bytes arrives this much later.
    Delay(Duration),
    /// So many at a time, and then this pause.
    Throttle(usize, Duration),
    /// From this place on none arrive, and the connection stays.
    SilentAt(usize),
    /// At this place the connection is closed.
    CloseAt(usize),
    /// At this place it is reset.
    ResetAt(usize),
    /// At this place the side towards the client is closed, and the other one stays.
    HalfCloseAt(usize),
    /// The byte at this place arrives changed.
    FlipAt(usize),
}

/// A wire to one upstream.
pub struct Wire {
    addr: SocketAddr,
    fault: Arc<Mutex<Fault>>,
}

impl Wire {
    /// To this address; nothing is wrong with it yet.
    pub fn to(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let fault = Arc::new(Mutex::new(Fault::None));
        let current = Arc::clone(&fault);
        thread::spawn(move || {
            while let Ok((client, _)) = listener.accept() {
                let fault = *current.lock().unwrap();
                thread::spawn(move || carry(client, target, fault));
            }
        });
        Self { addr, fault }
    }

    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// What happens to connections from now on.
    pub fn suffers(&self, fault: Fault) {
        *self.fault.lock().unwrap() = fault;
    }
}

/// Between a client and its server, until one of them leaves.
fn carry(client: TcpStream, target: SocketAddr, fault: Fault) {
    let Ok(server) = TcpStream::connect(target) else {
        return;
    };
    for stream in [&client, &server] {
        stream.set_nodelay(true).unwrap();
    }
    let (mut from_client, mut to_server) =
        (client.try_clone().unwrap(), server.try_clone().unwrap());
    let upwards = thread::spawn(move || {
        let _over = std::io::copy(&mut from_client, &mut to_server);
        let _closed = to_server.shutdown(Shutdown::Write);
    });
    downwards(server, client, fault);
    let _carried = upwards.join();
}

fn downwards(mut server: TcpStream, mut client: TcpStream, fault: Fault) {
    let (mut buffer, mut place) = ([0; 4096], 0);
    loop {
        if place_of(fault) == Some(place) && end(&server, &client, fault) {
            return;
        }
        let most = match fault {
            Fault::Throttle(bytes, _) => bytes,
            // Up to the place, so that it is met exactly.
            _ => place_of(fault).map_or(buffer.len(), |at| {
                if place < at {
                    (at - place).min(buffer.len())
                } else {
                    buffer.len()
                }
            }),
        };
        let Ok(read @ 1..) = server.read(&mut buffer[..most]) else {
            let _closed = client.shutdown(Shutdown::Write);
            return;
        };
        match fault {
            Fault::Delay(span) | Fault::Throttle(_, span) => pause(span),
            Fault::FlipAt(at) if place == at => buffer[0] ^= 0x10,
            _ => {}
        }
        if client.write_all(&buffer[..read]).is_err() {
            let _closed = server.shutdown(Shutdown::Both);
            return;
        }
        place += read;
    }
}

fn place_of(fault: Fault) -> Option<usize> {
    match fault {
        Fault::SilentAt(at)
        | Fault::CloseAt(at)
        | Fault::ResetAt(at)
        | Fault::HalfCloseAt(at)
        | Fault::FlipAt(at) => Some(at),
        Fault::None | Fault::Delay(_) | Fault::Throttle(..) => None,
    }
}

/// What happens at the place; whether that was the end.
fn end(server: &TcpStream, client: &TcpStream, fault: Fault) -> bool {
    match fault {
        Fault::SilentAt(_) => await_leave(client),
        Fault::CloseAt(_) => {
            let _closed = client.shutdown(Shutdown::Both);
        }
        Fault::ResetAt(_) => {
            // With this option its last close is a reset; the other direction lets go of it when it reads an end.
            rustix::net::sockopt::set_socket_linger(client, Some(Duration::ZERO)).unwrap();
            let _ended = client.shutdown(Shutdown::Read);
        }
        Fault::HalfCloseAt(_) => {
            let _closed = client.shutdown(Shutdown::Write);
            await_leave(client);
        }
        _ => return false,
    }
    let _closed = server.shutdown(Shutdown::Both);
    true
}

/// Until the client is gone; what it still says is read by the other direction.
fn await_leave(client: &TcpStream) {
    let mut byte = [0];
    while let Ok(1..) = client.peek(&mut byte) {
        thread::yield_now();
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a wire's slowness is real time; what is measured by it is not"
)]
fn pause(span: Duration) {
    thread::sleep(span);
}
