//! Senders of webhooks, with a signature of this test's own, and what a hook's config says.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU32, Ordering};

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// What the hooks of these tests sign with.
pub const SECRET: &str = "a secret that nobody guesses";

/// The same for the scheme `standard-webhooks`: 24 bytes.
pub const WHSEC: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// An address of this test's own: every address of 127/8 is this host's.
pub fn address() -> SocketAddr {
    // From 1 on: no address of this process ends in 0, and none is given twice.
    static LAST: AtomicU32 = AtomicU32::new(1);
    let number = std::process::id()
        .wrapping_mul(64)
        .wrapping_add(LAST.fetch_add(1, Ordering::SeqCst));
    let [_, a, b, c] = number.to_be_bytes();
    SocketAddr::from(([127, a | 128, b, c], 7460))
}

/// `[door]` at `address`, with one hook of GitHub's scheme that is processed at once; the secret is in the file `secret`.
pub fn erp(address: SocketAddr, lines: &str) -> String {
    format!(
        "[door]\nlisten = \"{address}\"\n[hook.erp]\nscheme = \"github\"\nsecret = {{ file = \"secret\" }}\nevery = \"0s\"\n{lines}\n"
    )
}

/// Where the door listens, as a log tells it.
pub fn door_told(log: &str) -> Option<SocketAddr> {
    let (_, rest) = log.split_once("the door listens at ")?;
    rest.split_whitespace()
        .next()
        .map(|word| word.trim_end_matches(',').parse().unwrap())
}

const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

fn to_base64(bytes: &[u8]) -> String {
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let byte = |at: usize| usize::from(three.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for nth in 0..4 {
            text.push(if nth <= three.len() {
                char::from(BASE64[bits >> (18 - 6 * nth) & 63])
            } else {
                '='
            });
        }
    }
    text
}

/// With padding or without.
pub fn from_base64(text: &str) -> Vec<u8> {
    let (mut bytes, mut bits, mut count) = (Vec::new(), 0_u32, 0);
    for letter in text.trim_end_matches('=').bytes() {
        let value = BASE64.iter().position(|known| *known == letter).unwrap();
        bits = (bits << 6 | u32::try_from(value).unwrap()) & 0xffff;
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push(u8::try_from(bits >> count & 0xff).unwrap());
        }
    }
    bytes
}

fn hmac(secret: &[u8], parts: &[&[u8]]) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret).unwrap();
    parts.iter().for_each(|part| mac.update(part));
    mac.finalize().into_bytes().to_vec()
}

/// GitHub's, of bytes as they go over the wire.
pub fn github_signature(body: &[u8]) -> String {
    let bytes = hmac(SECRET.as_bytes(), &[body]);
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256={hex}")
}

/// That of standardwebhooks.com.
pub fn standard_signature(id: &str, second: i64, body: &[u8]) -> String {
    let key = from_base64(WHSEC.trim_start_matches("whsec_"));
    let signed = format!("{id}.{second}.");
    format!("v1,{}", to_base64(&hmac(&key, &[signed.as_bytes(), body])))
}

/// A request with a length.
pub fn post(path: &str, headers: &[(String, String)], body: &[u8]) -> Vec<u8> {
    let mut bytes = format!("POST {path} HTTP/1.1\r\nHost: gw\r\n").into_bytes();
    for (name, value) in headers {
        bytes.extend(format!("{name}: {value}\r\n").bytes());
    }
    bytes.extend(format!("Content-Length: {}\r\n\r\n", body.len()).bytes());
    bytes.extend(body);
    bytes
}

/// What GitHub sends beside a body.
pub fn github_headers(id: &str, body: &[u8]) -> Vec<(String, String)> {
    let own = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    vec![
        own("Content-Type", "application/json"),
        own("X-GitHub-Event", "push"),
        own("X-GitHub-Delivery", id),
        own("X-Hub-Signature-256", &github_signature(body)),
    ]
}

/// What a sender of standard webhooks sends beside a body.
pub fn standard_headers(id: &str, second: i64, body: &[u8]) -> Vec<(String, String)> {
    vec![
        ("Content-Type".into(), "application/json".into()),
        ("webhook-id".into(), id.into()),
        ("webhook-timestamp".into(), second.to_string()),
        (
            "webhook-signature".into(),
            standard_signature(id, second, body),
        ),
    ]
}

/// A delivery to the hook `erp` as GitHub sends it.
pub fn delivery(id: &str, body: &str) -> Vec<u8> {
    post(
        "/hooks/erp",
        &github_headers(id, body.as_bytes()),
        body.as_bytes(),
    )
}

/// An answer as a sender sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Reply {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (key, value) = line.split_once(": ")?;
            key.eq_ignore_ascii_case(name).then_some(value)
        })
    }

    pub fn request_id(&self) -> String {
        let body: serde_json::Value = serde_json::from_str(&self.body).unwrap();
        body["request_id"].as_str().unwrap().to_owned()
    }

    pub fn is_duplicate(&self) -> bool {
        self.body.contains("\"duplicate\":true")
    }
}

/// A sender with a connection that it keeps.
pub struct Sender<S> {
    stream: S,
    ahead: Vec<u8>,
}

impl Sender<TcpStream> {
    pub fn connect(door: SocketAddr) -> Self {
        Self::over(TcpStream::connect(door).unwrap())
    }
}

impl<S: Read + Write> Sender<S> {
    pub fn over(stream: S) -> Self {
        Self {
            stream,
            ahead: Vec::new(),
        }
    }

    pub fn stream(&self) -> &S {
        &self.stream
    }

    /// Sends a request and reads its answer.
    pub fn ask(&mut self, request: &[u8]) -> Reply {
        // It may have been answered before all is written.
        let _refused_early = self.stream.write_all(request);
        let _as_above = self.stream.flush();
        self.reply(request.starts_with(b"HEAD "))
    }

    /// The next answer.
    pub fn reply(&mut self, is_head: bool) -> Reply {
        let mut buffer = [0; 4096];
        loop {
            let end = self.ahead.windows(4).position(|four| four == b"\r\n\r\n");
            if let Some(end) = end {
                let head = String::from_utf8(self.ahead[..end].to_vec()).unwrap();
                let mut reply = Reply {
                    status: head.split(' ').nth(1).unwrap().parse().unwrap(),
                    head,
                    body: String::new(),
                };
                let length = reply
                    .header("Content-Length")
                    .filter(|_| !is_head)
                    .map_or(0, |length| length.parse().unwrap());
                if self.ahead.len() >= end + 4 + length {
                    let rest = self.ahead.split_off(end + 4 + length);
                    reply.body = String::from_utf8(self.ahead.split_off(end + 4)).unwrap();
                    self.ahead = rest;
                    return reply;
                }
            }
            let read = self.stream.read(&mut buffer).unwrap();
            assert!(
                read > 0,
                "closed after {:?}",
                String::from_utf8_lossy(&self.ahead)
            );
            self.ahead.extend_from_slice(&buffer[..read]);
        }
    }
}

/// Sends one request on a connection of its own.
pub fn send(door: SocketAddr, request: &[u8]) -> Reply {
    Sender::connect(door).ask(request)
}
