//! What a scripted upstream is asked, and what it answers.

use std::sync::Mutex;
use std::sync::mpsc::{self, Receiver, Sender};

/// A request as it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    pub method: String,
    /// As on the request line: path and query.
    pub target: String,
    /// In order, names as they were sent.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// Which connection it came on, from 0.
    pub connection: usize,
}

impl Request {
    /// The first header of that name, in any letter case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(key, _)| key.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }

    /// The target without its query.
    pub fn path(&self) -> &str {
        self.target.split('?').next().unwrap_or_default()
    }

    /// A parameter of the query, not decoded.
    pub fn param(&self, name: &str) -> Option<&str> {
        let query = self.target.split_once('?')?.1;
        query
            .split('&')
            .find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
    }
}

/// Holds an answer back until it is opened; dropping it opens it too.
pub struct Gate(Sender<()>);

impl Gate {
    pub fn new() -> (Self, Receiver<()>) {
        let (sender, receiver) = mpsc::channel();
        (Self(sender), receiver)
    }

    pub fn open(&self) {
        let _nobody_waits = self.0.send(());
    }
}

#[derive(Clone, Copy)]
pub(super) enum Framing {
    Length,
    Chunked,
    Close,
}

pub(super) enum Content {
    Bytes(Vec<u8>),
    /// That many bytes without a pause, and on while this says so.
    Stream(u64, Box<dyn Fn() -> bool + Send>),
    /// Chunks, made as they are sent, until there are no more.
    Made(Mutex<Box<dyn FnMut() -> Option<Vec<u8>> + Send>>),
    /// The whole answer, head included, as it stands.
    Raw(Vec<u8>),
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    KeepAlive,
    /// With TLS' `close_notify`.
    Close,
    /// Without it.
    Cut,
    Reset,
}

/// What the upstream answers.
pub struct Answer {
    status: u16,
    headers: Vec<(String, String)>,
    pub(super) content: Content,
    framing: Framing,
    pub(super) ending: Ending,
    /// Only so many bytes of the answer, head included, are sent.
    pub(super) limit: usize,
    /// Before the byte at this place.
    pub(super) gates: Vec<(usize, Receiver<()>)>,
}

impl Answer {
    pub fn status(status: u16) -> Self {
        Self {
            status,
            headers: Vec::new(),
            content: Content::Bytes(Vec::new()),
            framing: Framing::Length,
            ending: Ending::KeepAlive,
            limit: usize::MAX,
            gates: Vec::new(),
        }
    }

    pub fn ok() -> Self {
        Self::status(200)
    }

    pub fn not_modified() -> Self {
        Self::status(304)
    }

    pub fn redirect(status: u16, location: &str) -> Self {
        Self::status(status).header("Location", location)
    }

    /// The whole answer, head included, as it stands.
    pub fn raw(bytes: impl Into<Vec<u8>>) -> Self {
        let mut answer = Self::ok();
        answer.content = Content::Raw(bytes.into());
        answer
    }

    /// 200 with `bytes` bytes of body that come without a pause.
    pub fn streaming(bytes: u64) -> Self {
        let mut answer = Self::ok();
        answer.content = Content::Stream(bytes, Box::new(|| false));
        answer
    }

    /// 200 with a body without a length that comes without a pause for as long as `more` says.
    pub fn streaming_while(more: impl Fn() -> bool + Send + 'static) -> Self {
        let mut answer = Self::ok().close_delimited();
        answer.content = Content::Stream(0, Box::new(more));
        answer
    }

    /// 200 with JSON in chunks that are made as they are sent, without a pause, until there are no more.
    pub fn making(next: impl FnMut() -> Option<Vec<u8>> + Send + 'static) -> Self {
        let mut answer = Self::ok().header("Content-Type", "application/json");
        answer.framing = Framing::Chunked;
        answer.content = Content::Made(Mutex::new(Box::new(next)));
        answer
    }

    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub fn body(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.content = Content::Bytes(bytes.into());
        self
    }

    pub fn json(self, text: impl AsRef<str>) -> Self {
        self.header("Content-Type", "application/json")
            .body(text.as_ref())
    }

    pub fn etag(self, tag: &str) -> Self {
        self.header("ETag", tag)
    }

    /// `Transfer-Encoding: chunked`, in chunks of 1000 bytes.
    pub fn chunked(mut self) -> Self {
        self.framing = Framing::Chunked;
        self
    }

    /// Neither length nor chunks: the body ends with the connection.
    pub fn close_delimited(mut self) -> Self {
        (self.framing, self.ending) = (Framing::Close, Ending::Close);
        self
    }

    /// Closes the connection after the answer, properly.
    pub fn then_close(mut self) -> Self {
        self.ending = Ending::Close;
        self
    }

    /// Ends the connection after the answer; TLS without `close_notify`.
    pub fn then_cut(mut self) -> Self {
        self.ending = Ending::Cut;
        self
    }

    /// Resets the connection after the answer.
    pub fn then_reset(mut self) -> Self {
        self.ending = Ending::Reset;
        self
    }

    /// Sends only this many bytes of the answer, head included, and closes unless another end is stated.
    pub fn only(mut self, bytes: usize) -> Self {
        self.limit = bytes;
        if self.ending == Ending::KeepAlive {
            self.ending = Ending::Close;
        }
        self
    }

    /// Waits for the gate before the first byte.
    pub fn gate(self, gate: Receiver<()>) -> Self {
        self.gate_at(0, gate)
    }

    /// Waits for the gate before the byte at this place of the answer, head included. Gates are stated in order.
    pub fn gate_at(mut self, place: usize, gate: Receiver<()>) -> Self {
        self.gates.push((place, gate));
        self
    }

    /// Head and body as bytes; a stream is left out.
    pub(super) fn rendered(&self, is_head: bool) -> Vec<u8> {
        let (body, length) = match &self.content {
            Content::Raw(bytes) => return bytes.clone(),
            Content::Bytes(bytes) => (bytes.as_slice(), bytes.len() as u64),
            Content::Stream(length, _) => (&[][..], *length),
            Content::Made(_) => (&[][..], 0),
        };
        let mut out = format!("HTTP/1.1 {} Scripted\r\n", self.status).into_bytes();
        for (name, value) in &self.headers {
            out.extend(format!("{name}: {value}\r\n").bytes());
        }
        let bodyless = matches!(self.status, 100..=199 | 204 | 304);
        match self.framing {
            _ if bodyless => {}
            Framing::Length => out.extend(format!("Content-Length: {length}\r\n").bytes()),
            Framing::Chunked => out.extend(b"Transfer-Encoding: chunked\r\n"),
            Framing::Close => {}
        }
        if self.ending != Ending::KeepAlive {
            out.extend(b"Connection: close\r\n");
        }
        out.extend(b"\r\n");
        if bodyless || is_head || matches!(self.content, Content::Made(_)) {
            return out;
        }
        if matches!(self.framing, Framing::Chunked) {
            for chunk in body.chunks(1000) {
                out.extend(
                    format!("{:x}\r\n", chunk.len())
                        .bytes()
                        .chain(chunk.iter().copied())
                        .chain(*b"\r\n"),
                );
            }
            out.extend(b"0\r\n\r\n");
        } else {
            out.extend(body);
        }
        out
    }
}
