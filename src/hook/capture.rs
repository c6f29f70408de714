//! A recorded request, as tools write it down: raw HTTP, or the lines that `curl -v` marks with `>`. The body's bytes stay
//! as they are.

use std::fmt;

use super::Received;

/// A recorded request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capture {
    /// The method; `POST` if the record has no request line.
    pub method: String,
    /// The target; `/` if the record has no request line.
    pub target: String,
    /// The record has no request line: nobody knows method and target.
    pub is_bare: bool,
    /// Header fields in their order.
    pub headers: Vec<(String, Vec<u8>)>,
    /// The body.
    pub body: Vec<u8>,
    /// Bytes behind the body: more than the request's length says.
    pub surplus: usize,
    /// Bytes that its length says and that are not there.
    pub missing: usize,
}

/// Why a text is no recorded request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BadCapture {
    /// Nothing is in it.
    Empty,
    /// This line, from 1, is neither a request line nor a header.
    Line(usize),
    /// Neither is any other.
    NoHeader,
}

impl fmt::Display for BadCapture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("there is nothing in it"),
            Self::Line(line) => write!(
                f,
                "line {line} is no header; expected a request line such as `POST /hooks/erp HTTP/1.1`, headers, an empty \
                 line and the body"
            ),
            Self::NoHeader => f.write_str("there is no header in it"),
        }
    }
}

impl std::error::Error for BadCapture {}

impl Capture {
    /// Reads a record. Lines of the head end in LF or CRLF and may start with `> `; what curl says beside them (`* …`,
    /// `< …`) is passed over. The body is what `Content-Length` says, or else all that follows the empty line; one in
    /// chunks is put together.
    ///
    /// # Errors
    /// [`BadCapture`].
    pub fn read(bytes: &[u8]) -> Result<Self, BadCapture> {
        let mut lines = Lines { bytes, number: 0 };
        let (mut request, mut headers) = (None, Vec::new());
        let mut is_marked = false;
        while let Some(line) = lines.next() {
            let line = match line.strip_prefix(b">") {
                Some(line) => {
                    is_marked = true;
                    line.strip_prefix(b" ").unwrap_or(line)
                }
                None if is_remark(line) => continue,
                None => line,
            };
            match line {
                [] if request.is_none() && headers.is_empty() => {}
                [] => break,
                line if request.is_none() && headers.is_empty() => match request_line(line) {
                    Some(found) => request = Some(found),
                    None => headers.push(header(line, lines.number)?),
                },
                line => headers.push(header(line, lines.number)?),
            }
        }
        if headers.is_empty() {
            let is_empty = bytes.trim_ascii().is_empty();
            return Err(if is_empty {
                BadCapture::Empty
            } else {
                BadCapture::NoHeader
            });
        }
        if is_marked {
            lines.skip_remarks();
        }
        let is_bare = request.is_none();
        let (method, target) = request.unwrap_or(("POST".to_owned(), "/".to_owned()));
        Ok(Self {
            is_bare,
            ..Self::with_body(method, target, headers, lines.bytes)
        })
    }

    fn with_body(
        method: String,
        target: String,
        headers: Vec<(String, Vec<u8>)>,
        rest: &[u8],
    ) -> Self {
        let value = |name: &str| {
            let line = headers
                .iter()
                .find(|(known, _)| known.eq_ignore_ascii_case(name));
            line.map(|(_, value)| value.as_slice())
        };
        let chunks = value("transfer-encoding")
            .filter(|coding| coding.eq_ignore_ascii_case(b"chunked"))
            .and_then(|_| joined(rest));
        let length: Option<usize> =
            value("content-length").and_then(|text| std::str::from_utf8(text).ok()?.parse().ok());
        let (body, surplus, missing) = match (chunks, length) {
            (Some(body), _) => (body, 0, 0),
            (None, Some(length)) => (
                rest[..length.min(rest.len())].to_vec(),
                rest.len().saturating_sub(length),
                length.saturating_sub(rest.len()),
            ),
            (None, None) => (rest.to_vec(), 0, 0),
        };
        Self {
            method,
            target,
            is_bare: false,
            headers,
            body,
            surplus,
            missing,
        }
    }

    /// The path of its target: without the origin that a proxy's form has (RFC 9112 3.2.2), and without the query.
    #[must_use]
    pub fn path(&self) -> &str {
        let whole = self.target.split('?').next().unwrap_or_default();
        match whole.split_once("://") {
            Some((_, rest)) if !whole.starts_with('/') => {
                rest.find('/').map_or("/", |at| &rest[at..])
            }
            _ => whole,
        }
    }

    /// Hands the request on as one that came.
    pub fn received<T>(&self, judge: impl FnOnce(&Received<'_>) -> T) -> T {
        let headers: Vec<(&str, &[u8])> = self
            .headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_slice()))
            .collect();
        judge(&Received {
            method: &self.method,
            target: &self.target,
            headers: &headers,
            body: &self.body,
        })
    }
}

struct Lines<'a> {
    /// What follows the last line that was given.
    bytes: &'a [u8],
    number: usize,
}

impl<'a> Lines<'a> {
    fn next(&mut self) -> Option<&'a [u8]> {
        if self.bytes.is_empty() {
            return None;
        }
        let end = self.bytes.iter().position(|byte| *byte == b'\n');
        let (line, rest) = match end {
            Some(end) => (&self.bytes[..end], &self.bytes[end + 1..]),
            None => (self.bytes, &self.bytes[self.bytes.len()..]),
        };
        self.bytes = rest;
        self.number += 1;
        Some(line.strip_suffix(b"\r").unwrap_or(line))
    }

    /// Passes over what curl says between the head and what follows it.
    fn skip_remarks(&mut self) {
        loop {
            let before = (self.bytes, self.number);
            match self.next() {
                Some(line) if is_remark(line) => {}
                _ => {
                    (self.bytes, self.number) = before;
                    return;
                }
            }
        }
    }
}

/// What curl says itself, and the answer's head.
fn is_remark(line: &[u8]) -> bool {
    line == b"<"
        || [&b"* "[..], b"< ", b"{ [", b"} ["]
            .iter()
            .any(|mark| line.starts_with(mark))
}

/// Method and target of `POST /path HTTP/1.1`.
fn request_line(line: &[u8]) -> Option<(String, String)> {
    let text = std::str::from_utf8(line).ok()?;
    let mut words = text.split(' ');
    let (method, target) = (words.next()?, words.next()?);
    let is_method = !method.is_empty() && method.bytes().all(|byte| byte.is_ascii_uppercase());
    let is_target = target.starts_with('/') || target.contains("://");
    let is_version = words.next().is_none_or(|word| word.starts_with("HTTP/"));
    (is_method && is_target && is_version && words.next().is_none())
        .then(|| (method.to_owned(), target.to_owned()))
}

fn header(line: &[u8], number: usize) -> Result<(String, Vec<u8>), BadCapture> {
    let bad = BadCapture::Line(number);
    let at = line
        .iter()
        .position(|byte| *byte == b':')
        .ok_or(bad.clone())?;
    let name = std::str::from_utf8(&line[..at]).map_err(|_| bad.clone())?;
    // A token of RFC 9110 5.6.2.
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    let is_name = !name.is_empty() && name.bytes().all(is_token);
    if !is_name {
        return Err(bad);
    }
    Ok((name.to_owned(), line[at + 1..].trim_ascii().to_vec()))
}

/// The chunks of a body put together (RFC 9112 7.1); `None` if they are not whole.
fn joined(mut rest: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let end = rest.windows(2).position(|pair| pair == b"\r\n")?;
        let size = std::str::from_utf8(&rest[..end]).ok()?;
        let size = size.split(';').next()?.trim();
        if size.is_empty() || !size.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        let size = usize::from_str_radix(size, 16).ok()?;
        rest = &rest[end + 2..];
        if size == 0 {
            return Some(body);
        }
        body.extend_from_slice(rest.get(..size)?);
        rest = rest.get(size..)?.strip_prefix(b"\r\n")?;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str) -> Capture {
        Capture::read(text.as_bytes()).unwrap_or_else(|error| panic!("{error}: {text:?}"))
    }

    #[test]
    fn the_forms_in_which_requests_are_recorded() {
        for (text, body) in [
            (
                "POST /h?x=1 HTTP/1.1\r\nHost: h\r\nX-A: b\r\n\r\n{}\r\n",
                "{}\r\n",
            ),
            ("POST /h?x=1 HTTP/1.1\nHost: h\nX-A:b\n\n{}", "{}"),
            ("POST /h?x=1\nHost: h\nX-A: b\n\n", ""),
            (
                "\n\nPOST /h?x=1 HTTP/2\nHost: h\nX-A:  b \n\n\n{}\n",
                "\n{}\n",
            ),
            ("POST /h?x=1 HTTP/1.1\nHost: h\nX-A: b", ""),
            (
                "*   Trying [::1]:7460...\n* Connected to h\n> POST /h?x=1 HTTP/1.1\n> Host: h\n> X-A: b\n> \n> is the body\n",
                "> is the body\n",
            ),
            (
                "> POST /h?x=1 HTTP/1.1\r\n> Host: h\r\n> X-A: b\r\n>\r\n} [2 bytes data]\r\n* upload completely sent off\r\n< HTTP/1.1 401\r\n<\r\n{}",
                "{}",
            ),
            (
                "POST /h?x=1 HTTP/1.1\nHost: h\nX-A: b\n\n* no remark\n",
                "* no remark\n",
            ),
        ] {
            let capture = read(text);
            assert_eq!(
                (capture.method.as_str(), capture.target.as_str()),
                ("POST", "/h?x=1"),
                "{text}"
            );
            let headers = [
                ("Host".to_owned(), b"h".to_vec()),
                ("X-A".to_owned(), b"b".to_vec()),
            ];
            assert_eq!(capture.headers, headers, "{text}");
            assert_eq!(capture.body, body.as_bytes(), "{text}");
        }
        let bare = read("X-Hub-Signature-256: sha256=0\n\nbody");
        assert_eq!((bare.method.as_str(), bare.target.as_str()), ("POST", "/"));
        assert_eq!(bare.body, b"body");
    }

    #[test]
    fn the_length_says_where_the_body_ends() {
        let of = |length: &str, body: &str| {
            let capture = read(&format!(
                "POST / HTTP/1.1\nContent-Length: {length}\n\n{body}"
            ));
            (
                String::from_utf8(capture.body).unwrap(),
                capture.surplus,
                capture.missing,
            )
        };
        assert_eq!(of("2", "{}"), ("{}".to_owned(), 0, 0));
        assert_eq!(of("2", "{}\n"), ("{}".to_owned(), 1, 0));
        assert_eq!(of("3", "{}"), ("{}".to_owned(), 0, 1));
        assert_eq!(of("many", "{}\n"), ("{}\n".to_owned(), 0, 0));
    }

    #[test]
    fn chunks_are_put_together() {
        let of = |body: &str| {
            read(&format!(
                "POST / HTTP/1.1\nTransfer-Encoding: chunked\n\n{body}"
            ))
            .body
        };
        assert_eq!(of("2\r\n{}\r\n1;x=y\r\n\n\r\n0\r\n\r\n"), b"{}\n");
        // As curl and proxies record it: put together already.
        for body in [
            "{}",
            "2\r\n{}",
            "+2\r\n{}\r\n0\r\n\r\n",
            "ffffffffffffffffff\r\n",
        ] {
            assert_eq!(of(body), body.as_bytes());
        }
    }

    #[test]
    fn what_is_no_record_says_where() {
        for (text, why) in [
            ("", BadCapture::Empty),
            (" \n\n", BadCapture::Line(1)),
            ("\r\n\r\n", BadCapture::Empty),
            ("POST / HTTP/1.1\n\nbody", BadCapture::NoHeader),
            ("{\"a\":1", BadCapture::Line(1)),
            ("POST / HTTP/1.1\nHost: h\nfolded\n\n", BadCapture::Line(3)),
            ("POST / HTTP/1.1\nHost : h\n\n", BadCapture::Line(2)),
        ] {
            let read = Capture::read(text.as_bytes());
            assert_eq!(read, Err(why), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..80), text in "[>*<{ A-Z/:\r\n0-9a-f;-]{0,60}") {
            let _ = Capture::read(&bytes);
            let _ = Capture::read(text.as_bytes());
            let _ = Capture::read(format!("A: b\nTransfer-Encoding: chunked\n\n{text}").as_bytes());
        }

        #[test]
        fn the_body_stays_as_it_is(body in prop::collection::vec(any::<u8>(), 0..80)) {
            let mut bytes = b"POST / HTTP/1.1\r\nHost: h\r\n\r\n".to_vec();
            bytes.extend_from_slice(&body);
            prop_assert_eq!(Capture::read(&bytes).map(|capture| capture.body), Ok(body));
        }
    }
}
