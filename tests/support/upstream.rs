//! A scripted upstream: an HTTP/1.1 server on loopback whose every answer a test states.
//!
//! ```ignore
//! let upstream = Upstream::start();
//! upstream.queue(Answer::ok().json("[]").etag("\"1\""));      // answers in order …
//! upstream.answer(|request| match request.path() {            // … then this for all others
//!     "/items" => Answer::ok().json("[1]"),
//!     _ => Answer::status(404),
//! });
//! let url = upstream.url("/items");
//! assert_eq!(upstream.requests()[0].header("if-none-match"), Some("\"1\""));
//! ```
//!
//! There are no clocks: an answer that shall pause waits at a [`Gate`] until the test opens it.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use rustix::net::{AddressFamily, SocketType};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

#[allow(unused_imports, reason = "each test file uses a part")]
pub use super::answer::{Answer, Gate, Request};
use super::answer::{Content, Ending};

/// An address where nobody listens while the socket is held: bound, so that nobody else gets it.
pub fn closed() -> (SocketAddr, OwnedFd) {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    rustix::net::bind(&socket, &SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let addr = rustix::net::getsockname(&socket)
        .unwrap()
        .try_into()
        .unwrap();
    (addr, socket)
}

type Handler = dyn Fn(&Request) -> Answer + Send + Sync;

#[derive(Default)]
struct Shared {
    queue: Mutex<VecDeque<Answer>>,
    handler: Mutex<Option<Arc<Handler>>>,
    requests: Mutex<Vec<Request>>,
    connections: Mutex<Vec<TcpStream>>,
    received: AtomicU64,
    sent: AtomicU64,
    /// Connections that are served now.
    open: AtomicUsize,
    over: AtomicBool,
}

/// The scripted upstream. Gone when dropped.
pub struct Upstream {
    addr: SocketAddr,
    scheme: &'static str,
    host: String,
    shared: Arc<Shared>,
}

impl Upstream {
    /// Plain HTTP.
    pub fn start() -> Self {
        Self::listen(None)
    }

    /// HTTPS; see [`super::pki::Pki::server`].
    pub fn start_tls(config: Arc<ServerConfig>) -> Self {
        Self::listen(Some(config))
    }

    fn listen(tls: Option<Arc<ServerConfig>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let scheme = if tls.is_some() { "https" } else { "http" };
        let shared = Arc::new(Shared::default());
        let serving = Arc::clone(&shared);
        thread::spawn(move || accept(&listener, tls.as_ref(), &serving));
        Self {
            addr,
            scheme,
            host: addr.ip().to_string(),
            shared,
        }
    }

    /// URLs name this host instead of the address.
    pub fn called(mut self, host: &str) -> Self {
        self.host = host.to_owned();
        self
    }

    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    pub fn url(&self, target: &str) -> String {
        format!(
            "{}://{}:{}{target}",
            self.scheme,
            self.host,
            self.addr.port()
        )
    }

    /// Answers one request like this; those queued first come first.
    pub fn queue(&self, answer: Answer) {
        self.shared.queue.lock().unwrap().push_back(answer);
    }

    /// Answers whatever the queue has no answer for.
    pub fn answer(&self, handler: impl Fn(&Request) -> Answer + Send + Sync + 'static) {
        *self.shared.handler.lock().unwrap() = Some(Arc::new(handler));
    }

    /// Forgets the requests so far: a long test would drown in them.
    pub fn forget(&self) {
        self.shared.requests.lock().unwrap().clear();
    }

    /// All requests so far.
    pub fn requests(&self) -> Vec<Request> {
        self.shared.requests.lock().unwrap().clone()
    }

    /// Connections so far.
    pub fn connections(&self) -> usize {
        self.shared.connections.lock().unwrap().len()
    }

    /// Bytes that this side's sockets have received, TLS included.
    pub fn received(&self) -> u64 {
        self.shared.received.load(Ordering::SeqCst)
    }

    /// Bytes that this side's sockets have sent, TLS included.
    pub fn sent(&self) -> u64 {
        self.shared.sent.load(Ordering::SeqCst)
    }

    /// Waits until the last connection has ended: then all counts are final. The answers must have closed them.
    pub fn settle(&self) {
        while self.shared.open.load(Ordering::SeqCst) > 0 {
            thread::yield_now();
        }
    }

    /// Closes every connection that is open, as a server does with idle ones.
    pub fn hang_up(&self) {
        for connection in self.shared.connections.lock().unwrap().iter() {
            let _closed_already = connection.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::SeqCst);
        let _wakes_the_listener = TcpStream::connect(self.addr);
        self.hang_up();
    }
}

fn accept(listener: &TcpListener, tls: Option<&Arc<ServerConfig>>, shared: &Arc<Shared>) {
    for number in 0.. {
        let Ok((socket, _)) = listener.accept() else {
            return;
        };
        if shared.over.load(Ordering::SeqCst) {
            return;
        }
        shared
            .connections
            .lock()
            .unwrap()
            .push(socket.try_clone().unwrap());
        shared.open.fetch_add(1, Ordering::SeqCst);
        let (tls, shared) = (tls.cloned(), Arc::clone(shared));
        thread::spawn(move || {
            let counted = Counted {
                socket,
                shared: Arc::clone(&shared),
            };
            let stream = match tls {
                None => Stream::Plain(counted),
                Some(config) => Stream::Tls(Box::new(StreamOwned::new(
                    ServerConnection::new(config).unwrap(),
                    counted,
                ))),
            };
            // A client that goes away ends its connection; what it meant is the test's matter.
            let _over = Connection {
                stream,
                number,
                ahead: Vec::new(),
            }
            .serve(&shared);
            shared.open.fetch_sub(1, Ordering::SeqCst);
        });
    }
}

/// A socket that counts.
struct Counted {
    socket: TcpStream,
    shared: Arc<Shared>,
}

impl Read for Counted {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let bytes = self.socket.read(buf)?;
        self.shared
            .received
            .fetch_add(bytes as u64, Ordering::SeqCst);
        Ok(bytes)
    }
}

impl Write for Counted {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let bytes = self.socket.write(buf)?;
        self.shared.sent.fetch_add(bytes as u64, Ordering::SeqCst);
        Ok(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

enum Stream {
    Plain(Counted),
    Tls(Box<StreamOwned<ServerConnection, Counted>>),
}

impl Stream {
    fn counted(&self) -> &Counted {
        match self {
            Self::Plain(counted) => counted,
            Self::Tls(stream) => &stream.sock,
        }
    }

    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.read(buf),
            Self::Tls(stream) => stream.read(buf),
        }
    }

    fn write_all(&mut self, buf: &[u8]) -> io::Result<()> {
        match self {
            Self::Plain(stream) => stream.write_all(buf),
            Self::Tls(stream) => stream.write_all(buf).and_then(|()| stream.flush()),
        }
    }

    fn end(mut self, ending: Ending) -> io::Result<()> {
        if let (Self::Tls(stream), Ending::Close) = (&mut self, ending) {
            stream.conn.send_close_notify();
            stream.conn.write_tls(&mut stream.sock)?;
        }
        let socket = &self.counted().socket;
        if ending == Ending::Reset {
            rustix::net::sockopt::set_socket_linger(socket, Some(Duration::ZERO))?;
            // The list of connections holds a duplicate: only disconnecting resets at once.
            rustix::net::connect_unspec(socket)?;
            return Ok(());
        }
        socket.shutdown(Shutdown::Write)
    }
}

struct Connection {
    stream: Stream,
    number: usize,
    /// Read, but not part of a request yet.
    ahead: Vec<u8>,
}

impl Connection {
    fn serve(mut self, shared: &Shared) -> io::Result<()> {
        while let Some(request) = self.request()? {
            shared.requests.lock().unwrap().push(request.clone());
            let queued = shared.queue.lock().unwrap().pop_front();
            let handler = shared.handler.lock().unwrap().clone();
            let answer = queued
                .or_else(|| handler.map(|handler| handler(&request)))
                .unwrap_or_else(|| Answer::status(500).body("no answer was scripted"));
            self.send(&answer, request.method == "HEAD")?;
            if answer.ending != Ending::KeepAlive {
                return self.stream.end(answer.ending);
            }
        }
        Ok(())
    }

    /// The next request, or `None` when the client is gone.
    fn request(&mut self) -> io::Result<Option<Request>> {
        let end_of_head = loop {
            if let Some(at) = self
                .ahead
                .windows(4)
                .position(|window| window == b"\r\n\r\n")
            {
                break at;
            }
            if !self.more()? {
                return Ok(None);
            }
        };
        let head = String::from_utf8_lossy(&self.ahead[..end_of_head]).into_owned();
        self.ahead.drain(..end_of_head + 4);
        let mut lines = head.split("\r\n");
        let mut first = lines.next().unwrap_or_default().split(' ');
        let mut request = Request {
            method: first.next().unwrap_or_default().to_owned(),
            target: first.next().unwrap_or_default().to_owned(),
            headers: lines
                .filter_map(|line| line.split_once(':'))
                .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
                .collect(),
            body: Vec::new(),
            connection: self.number,
        };
        if request.header("transfer-encoding").is_some() {
            request.body = self.chunks()?;
        } else if let Some(length) = request.header("content-length") {
            request.body = self.exactly(length.parse().unwrap())?;
        }
        Ok(Some(request))
    }

    fn chunks(&mut self) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let line = loop {
                if let Some(at) = self.ahead.windows(2).position(|window| window == b"\r\n") {
                    break self.exactly(at + 2)?;
                }
                self.need_more()?;
            };
            let size = usize::from_str_radix(String::from_utf8_lossy(&line).trim(), 16).unwrap();
            let chunk = self.exactly(size + 2)?;
            body.extend(&chunk[..size]);
            if size == 0 {
                return Ok(body);
            }
        }
    }

    fn exactly(&mut self, length: usize) -> io::Result<Vec<u8>> {
        while self.ahead.len() < length {
            self.need_more()?;
        }
        Ok(self.ahead.drain(..length).collect())
    }

    fn need_more(&mut self) -> io::Result<()> {
        if self.more()? {
            Ok(())
        } else {
            Err(io::ErrorKind::UnexpectedEof.into())
        }
    }

    fn more(&mut self) -> io::Result<bool> {
        let mut buf = [0; 4096];
        let bytes = self.stream.read(&mut buf)?;
        self.ahead.extend(&buf[..bytes]);
        Ok(bytes > 0)
    }

    fn send(&mut self, answer: &Answer, is_head: bool) -> io::Result<()> {
        let rendered = answer.rendered(is_head);
        let end = rendered.len().min(answer.limit);
        let mut from = 0;
        for (place, gate) in &answer.gates {
            let to = (*place).min(end);
            self.stream.write_all(&rendered[from..to])?;
            from = to;
            let _opened_or_dropped = gate.recv();
        }
        self.stream.write_all(&rendered[from..end])?;
        if let Content::Stream(length, more) = &answer.content {
            let mut left = *length;
            let block = [b'x'; 64 * 1024];
            while left > 0 || more() {
                let now = usize::try_from(left).map_or(block.len(), |left| left.min(block.len()));
                let now = if now == 0 { block.len() } else { now };
                self.stream.write_all(&block[..now])?;
                left = left.saturating_sub(now as u64);
            }
        }
        if let Content::Made(next) = &answer.content {
            let mut next = next.lock().unwrap();
            while let Some(chunk) = next() {
                self.stream
                    .write_all(format!("{:x}\r\n", chunk.len()).as_bytes())?;
                self.stream.write_all(&chunk)?;
                self.stream.write_all(b"\r\n")?;
            }
            self.stream.write_all(b"0\r\n\r\n")?;
        }
        Ok(())
    }
}
