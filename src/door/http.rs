//! HTTP/1.1 as the door takes it: strict framing over `httparse` (RFC 9112). Pure.
//!
//! What could be read in two ways is refused: two lengths, a length beside a coding, an absent Host, a bare line feed in
//! the head. A refused request ends its connection.

use std::fmt;

/// The largest head in bytes.
pub const MAX_HEAD: usize = 8 * 1024;
/// The most header fields.
const MAX_FIELDS: usize = 64;

/// A request's head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// The method, as sent.
    pub method: String,
    /// The target's path, without query.
    pub path: String,
    /// Bytes of the body that follows.
    pub length: usize,
    /// Bytes of the head itself.
    pub size: usize,
}

/// Why a request is refused, as a status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// 400: it cannot be read, or in more than one way.
    Malformed(&'static str),
    /// 413: the body is larger than allowed.
    BodyTooLarge,
    /// 431: the head is larger than allowed.
    HeadTooLarge,
    /// 501: a transfer coding.
    Coding,
    /// 505: not HTTP/1.
    Version,
}

impl Refusal {
    /// The status to answer with.
    #[must_use]
    pub fn status(self) -> u16 {
        match self {
            Self::Malformed(_) => 400,
            Self::BodyTooLarge => 413,
            Self::HeadTooLarge => 431,
            Self::Coding => 501,
            Self::Version => 505,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Malformed(what) => what,
            Self::BodyTooLarge => "the body is too large",
            Self::HeadTooLarge => "the head is too large",
            Self::Coding => "transfer codings are not taken here; send Content-Length",
            Self::Version => "only HTTP/1.1 and HTTP/1.0 are spoken here",
        })
    }
}

/// Reads a head from what has come so far. `None`: more is needed.
///
/// # Errors
/// [`Refusal`] for everything that is not exactly one way to read it.
pub fn head(bytes: &[u8], max_body: usize) -> Result<Option<Head>, Refusal> {
    let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
    let mut request = httparse::Request::new(&mut fields);
    let size = match request.parse(bytes) {
        Ok(httparse::Status::Complete(size)) if size <= MAX_HEAD => size,
        Ok(httparse::Status::Partial) if bytes.len() <= MAX_HEAD => return Ok(None),
        Ok(_) | Err(httparse::Error::TooManyHeaders) => return Err(Refusal::HeadTooLarge),
        Err(httparse::Error::Version) => return Err(Refusal::Version),
        Err(_) => return Err(Refusal::Malformed("this is no HTTP request")),
    };
    if bytes[..size]
        .windows(2)
        .any(|pair| pair[1] == b'\n' && pair[0] != b'\r')
    {
        return Err(Refusal::Malformed("a line ends without a carriage return"));
    }
    let target = request.path.unwrap_or("");
    if !target.starts_with('/') {
        return Err(Refusal::Malformed("the target is no path"));
    }
    let length = framing(request.headers, request.version == Some(1))?;
    if length > max_body {
        return Err(Refusal::BodyTooLarge);
    }
    let path = target.split('?').next().unwrap_or("").to_owned();
    Ok(Some(Head {
        method: request.method.unwrap_or("").to_owned(),
        path,
        length,
        size,
    }))
}

fn framing(fields: &[httparse::Header<'_>], needs_host: bool) -> Result<usize, Refusal> {
    let named = |name: &'static str| {
        fields
            .iter()
            .filter(move |field| field.name.eq_ignore_ascii_case(name))
    };
    if named("transfer-encoding").next().is_some() {
        return Err(Refusal::Coding);
    }
    if needs_host && named("host").count() != 1 {
        return Err(Refusal::Malformed("exactly one Host is needed"));
    }
    let mut lengths = named("content-length");
    match (lengths.next(), lengths.next()) {
        (None, _) => Ok(0),
        (Some(length), None) => std::str::from_utf8(length.value)
            .ok()
            .filter(|text| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()))
            .and_then(|text| text.parse().ok())
            .ok_or(Refusal::Malformed("the Content-Length is no number")),
        (Some(_), Some(_)) => Err(Refusal::Malformed("more than one Content-Length")),
    }
}

/// A whole answer with its body; the connection closes behind it.
#[must_use]
pub fn answer(status: u16, media_type: &str, body: &[u8]) -> Vec<u8> {
    let mut out = format!(
        "HTTP/1.1 {status} {}\r\nContent-Type: {media_type}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        phrase(status),
        body.len()
    )
    .into_bytes();
    out.extend_from_slice(body);
    out
}

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
        400 => "Bad Request",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        413 => "Content Too Large",
        431 => "Request Header Fields Too Large",
        501 => "Not Implemented",
        503 => "Service Unavailable",
        505 => "HTTP Version Not Supported",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn one_way_to_read_it_or_none() {
        type Expected = Result<Option<(&'static str, usize)>, u16>;
        let table: &[(&str, Expected)] = &[
            (
                "GET /status HTTP/1.1\r\nHost: x\r\n\r\n",
                Ok(Some(("/status", 0))),
            ),
            (
                "GET /status?a=/b HTTP/1.1\r\nHost: x\r\n\r\n",
                Ok(Some(("/status", 0))),
            ),
            ("GET /status HTTP/1.0\r\n\r\n", Ok(Some(("/status", 0)))),
            (
                "POST /sync HTTP/1.1\r\nHost: x\r\ncontent-LENGTH: 12\r\n\r\n",
                Ok(Some(("/sync", 12))),
            ),
            ("GET /status HTTP/1.1\r\nHost", Ok(None)),
            ("GET /status HTTP/1.1\r\n\r\n", Err(400)),
            (
                "GET /status HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
                Err(400),
            ),
            ("GET status HTTP/1.1\r\nHost: x\r\n\r\n", Err(400)),
            ("GET /status HTTP/1.1\nHost: x\n\n", Err(400)),
            ("GET /status HTTP/2.0\r\nHost: x\r\n\r\n", Err(505)),
            (
                "POST /sync HTTP/1.1\r\nHost: x\r\nContent-Length: +5\r\n\r\n",
                Err(400),
            ),
            (
                "POST /sync HTTP/1.1\r\nHost: x\r\nContent-Length: 5, 5\r\n\r\n",
                Err(400),
            ),
            (
                "POST /sync HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n",
                Err(400),
            ),
            (
                "POST /sync HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999999\r\n\r\n",
                Err(400),
            ),
            (
                "POST /sync HTTP/1.1\r\nHost: x\r\nContent-Length: 5000\r\n\r\n",
                Err(413),
            ),
            (
                "POST /sync HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n",
                Err(501),
            ),
            (
                "POST /sync HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
                Err(501),
            ),
            ("\u{0}\u{1}\u{2}", Err(400)),
        ];
        for (text, expected) in table {
            let read = head(text.as_bytes(), 4096)
                .map(|head| head.map(|head| (head.path, head.length)))
                .map_err(Refusal::status);
            let expected =
                expected.map(|head| head.map(|(path, length)| (path.to_owned(), length)));
            assert_eq!(read, expected, "{text:?}");
        }
        let huge = format!("GET / HTTP/1.1\r\nHost: x\r\nX: {}", "a".repeat(MAX_HEAD));
        assert_eq!(head(huge.as_bytes(), 0).map_err(Refusal::status), Err(431));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes: Vec<u8>) {
            drop(head(&bytes, 100));
        }
    }
}
