//! Answers, written out (RFC 9110 15, RFC 9112 4).

use std::time::Duration;

use super::Refusal;

/// What a request is answered with. The door adds Content-Length and Connection; there is no Date, as for any server
/// without a clock that it trusts (RFC 9110 6.6.1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    status: u16,
    fields: Vec<(&'static str, String)>,
    body: Vec<u8>,
}

impl Response {
    /// A final status (200 and up), without a body.
    #[must_use]
    pub fn new(status: u16) -> Self {
        Self {
            status,
            fields: Vec::new(),
            body: Vec::new(),
        }
    }

    /// A line of words for people.
    #[must_use]
    pub fn text(status: u16, words: &str) -> Self {
        let body = format!("{words}\n").into_bytes();
        Self::new(status).with_body("text/plain; charset=utf-8", body)
    }

    /// JSON, already written.
    #[must_use]
    pub fn json(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self::new(status).with_body("application/json", body.into())
    }

    /// 405 with the methods that are allowed, `GET, HEAD` for example.
    #[must_use]
    pub fn method_not_allowed(allowed: &str) -> Self {
        Self::text(405, &format!("allowed here: {allowed}")).with_field("Allow", allowed)
    }

    /// 503: come again after so long (whole seconds, at least one).
    #[must_use]
    pub fn unavailable(why: &str, after: Duration) -> Self {
        Self::text(503, why).with_field("Retry-After", after.as_secs().max(1).to_string())
    }

    /// With a body of a media type.
    #[must_use]
    pub fn with_body(mut self, media_type: &str, body: Vec<u8>) -> Self {
        self.body = body;
        self.with_field("Content-Type", media_type)
    }

    /// With one more field. Bytes that no field may hold (line breaks among them) are left out of the value.
    #[must_use]
    pub fn with_field(mut self, name: &'static str, value: impl Into<String>) -> Self {
        let mut value: String = value.into();
        value.retain(|one| matches!(one, ' '..='~'));
        self.fields.push((name, value));
        self
    }

    /// The status.
    #[must_use]
    pub fn status(&self) -> u16 {
        self.status
    }

    /// The body.
    #[must_use]
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    /// A field's value, by its name as it was given.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&str> {
        let mut fields = self.fields.iter();
        fields
            .find(|(other, _)| other.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }

    /// The bytes on the wire. To a HEAD request the head alone is sent, with the length that a GET would have had. After a
    /// status that has no body (204, 304) none is sent.
    #[must_use]
    pub fn to_bytes(&self, to_head: bool, keep_alive: bool) -> Vec<u8> {
        let mut out = format!("HTTP/1.1 {} {}\r\n", self.status, phrase(self.status));
        for (name, value) in &self.fields {
            out.push_str(&format!("{name}: {value}\r\n"));
        }
        let bodyless = matches!(self.status, 204 | 304);
        if !bodyless {
            out.push_str(&format!("Content-Length: {}\r\n", self.body.len()));
        }
        if !keep_alive {
            out.push_str("Connection: close\r\n");
        }
        out.push_str("\r\n");
        let mut out = out.into_bytes();
        if !bodyless && !to_head {
            out.extend_from_slice(&self.body);
        }
        out
    }
}

impl From<Refusal> for Response {
    fn from(refusal: Refusal) -> Self {
        Self::text(refusal.status(), &refusal.to_string())
    }
}

/// What a client waits for that sent `Expect: 100-continue`.
pub const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// The head of an answer whose body comes in chunks.
#[must_use]
pub fn chunked(media_type: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\nContent-Type: {media_type}\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n").into_bytes()
}

/// One chunk; an empty one ends the body.
#[must_use]
pub fn chunk(bytes: &[u8]) -> Vec<u8> {
    let mut out = format!("{:x}\r\n", bytes.len()).into_bytes();
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
    out
}

fn phrase(status: u16) -> &'static str {
    match status {
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        204 => "No Content",
        304 => "Not Modified",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        409 => "Conflict",
        410 => "Gone",
        411 => "Length Required",
        413 => "Content Too Large",
        415 => "Unsupported Media Type",
        417 => "Expectation Failed",
        422 => "Unprocessable Content",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        503 => "Service Unavailable",
        505 => "HTTP Version Not Supported",
        507 => "Insufficient Storage",
        _ => "",
    }
}
