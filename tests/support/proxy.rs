//! A CONNECT proxy that records what it was asked.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

/// A proxy on loopback. Every tunnel goes to one target, whatever name was asked for.
pub struct ConnectProxy {
    addr: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
}

impl ConnectProxy {
    /// Tunnels to `target`.
    pub fn to(target: SocketAddr) -> Self {
        Self::answering("HTTP/1.1 200 Connected\r\n\r\n", Some(target))
    }

    /// Answers like this and tunnels nothing.
    pub fn refusing(answer: &'static str) -> Self {
        Self::answering(answer, None)
    }

    fn answering(answer: &'static str, target: Option<SocketAddr>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let record = Arc::clone(&asked);
        thread::spawn(move || {
            while let Ok((client, _)) = listener.accept() {
                let record = Arc::clone(&record);
                thread::spawn(move || {
                    let _over = tunnel(client, answer, target, &record);
                });
            }
        });
        Self { addr, asked }
    }

    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The heads of the requests so far.
    pub fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

fn tunnel(
    mut client: TcpStream,
    answer: &str,
    target: Option<SocketAddr>,
    asked: &Mutex<Vec<String>>,
) -> io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        client.read_exact(&mut byte)?;
        head.extend(byte);
    }
    asked
        .lock()
        .unwrap()
        .push(String::from_utf8_lossy(&head).into_owned());
    client.write_all(answer.as_bytes())?;
    let Some(target) = target else { return Ok(()) };
    let mut server = TcpStream::connect(target)?;
    let (mut upwards, mut to_server) = (client.try_clone()?, server.try_clone()?);
    thread::spawn(move || {
        let _over = io::copy(&mut upwards, &mut to_server);
        let _closed = to_server.shutdown(Shutdown::Write);
    });
    io::copy(&mut server, &mut client)?;
    client.shutdown(Shutdown::Write)
}
