//! A request's head (RFC 9112 2, 3, 5, 6).

use super::{MAX_FIELDS, Refusal};

/// A request's head, as sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// The method. Methods are case-sensitive.
    pub method: String,
    /// The target's path, without query, exactly as sent: `/hooks/%67ithub` and `/hooks/github/` are other paths than
    /// `/hooks/github`. Begins with `/`.
    pub path: String,
    /// What stands behind the target's `?`, if there is one.
    pub query: Option<String>,
    /// The version.
    pub version: Version,
    /// The header fields, in order.
    pub fields: Fields,
    /// How the body is framed.
    pub framing: Framing,
    /// The client waits for `100 Continue` before it sends the body.
    pub expects_continue: bool,
    /// The connection may carry another request behind this one.
    pub keep_alive: bool,
    /// Bytes of the head itself.
    pub size: usize,
}

/// A version of HTTP/1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// HTTP/1.0: no chunks, no `100 Continue`; its connections close behind the answer.
    Http10,
    /// HTTP/1.1
    Http11,
}

/// How a body is framed (RFC 9112 6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// So many bytes follow; none without a Content-Length.
    Length(u64),
    /// Chunks follow.
    Chunked,
}

impl Framing {
    /// Whether no body follows.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self == Self::Length(0)
    }
}

/// The header fields of a request.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Fields(Vec<(String, Vec<u8>)>);

/// A field that must stand once stands more often.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Repeated;

impl Fields {
    /// All values under a name (in any letter case), without the white space around them, in order.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        self.0
            .iter()
            .filter(move |(other, _)| other.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_slice())
    }

    /// The one value under a name.
    ///
    /// # Errors
    /// [`Repeated`]: which of them would count?
    pub fn one<'a>(&'a self, name: &'a str) -> Result<Option<&'a [u8]>, Repeated> {
        let mut all = self.all(name);
        match (all.next(), all.next()) {
            (_, Some(_)) => Err(Repeated),
            (first, None) => Ok(first),
        }
    }

    /// Every field: name and value as sent, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.0
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_slice()))
    }

    /// Whether a field's list (RFC 9110 5.6.1) has this member, in any letter case.
    #[must_use]
    pub fn lists(&self, name: &str, member: &str) -> bool {
        self.all(name)
            .flat_map(|value| value.split(|byte| *byte == b','))
            .any(|one| one.trim_ascii().eq_ignore_ascii_case(member.as_bytes()))
    }
}

impl<N: Into<String>, V: Into<Vec<u8>>> FromIterator<(N, V)> for Fields {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(fields: I) -> Self {
        Self(
            fields
                .into_iter()
                .map(|(name, value)| (name.into(), value.into()))
                .collect(),
        )
    }
}

/// Reads a head of at most `max` bytes, empty lines before it included, from what has come so far. `None`: more is needed.
///
/// # Errors
/// [`Refusal`] for everything that is not exactly one way to read it.
pub fn head(bytes: &[u8], max: usize) -> Result<Option<Head>, Refusal> {
    // The parser would take any line feed for an empty line.
    if bytes.first() == Some(&b'\n') {
        return Err(Refusal::Malformed("a line ends without a carriage return"));
    }
    let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
    let mut request = httparse::Request::new(&mut fields);
    let size = match request.parse(bytes) {
        Ok(httparse::Status::Complete(size)) if size <= max => size,
        Ok(httparse::Status::Partial) if bytes.len() <= max => return Ok(None),
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
    let version = match request.version {
        Some(1) => Version::Http11,
        _ => Version::Http10,
    };
    let (path, query) = target(request.path.unwrap_or(""))?;
    let method = request.method.unwrap_or("").to_owned();
    let fields: Fields = request
        .headers
        .iter()
        .map(|field| (field.name, field.value))
        .collect();
    host(&fields, version)?;
    Ok(Some(Head {
        framing: framing(&fields, version)?,
        expects_continue: expects_continue(&fields, version)?,
        // HTTP/1.0 has its own ways of keeping a connection; nobody needs them any more.
        keep_alive: version == Version::Http11 && !fields.lists("connection", "close"),
        method,
        path,
        query,
        version,
        fields,
        size,
    }))
}

/// Path and query. Only the origin form (RFC 9112 3.2.1) is taken: the others are for proxies and for `OPTIONS *`.
fn target(target: &str) -> Result<(String, Option<String>), Refusal> {
    if !target.starts_with('/') {
        return Err(Refusal::Malformed("the target is no path"));
    }
    if !target
        .bytes()
        .all(|byte| byte.is_ascii_graphic() && byte != b'#')
    {
        return Err(Refusal::Malformed(
            "the target holds what must be percent-encoded",
        ));
    }
    Ok(match target.split_once('?') {
        Some((path, query)) => (path.to_owned(), Some(query.to_owned())),
        None => (target.to_owned(), None),
    })
}

/// RFC 9112 3.2: exactly one, and one that can be a host.
fn host(fields: &Fields, version: Version) -> Result<(), Refusal> {
    match fields.one("host") {
        Ok(None) if version == Version::Http10 => Ok(()),
        Ok(Some(host)) if host.iter().all(|byte| is_of_host(*byte)) => Ok(()),
        Ok(Some(_)) => Err(Refusal::Malformed("the Host is no host")),
        Ok(None) | Err(Repeated) => Err(Refusal::Malformed("exactly one Host is needed")),
    }
}

/// Unreserved characters, brackets and colons of addresses, percent-encoding (RFC 3986 3.2.2).
fn is_of_host(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~:[]%!$&'()*+;=".contains(&byte)
}

fn framing(fields: &Fields, version: Version) -> Result<Framing, Refusal> {
    let length = fields
        .one("content-length")
        .map_err(|Repeated| Refusal::Malformed("more than one Content-Length"))?;
    let mut codings = fields.all("transfer-encoding");
    match (codings.next(), length) {
        (None, None) => Ok(Framing::Length(0)),
        (None, Some(length)) => number(length).map(Framing::Length),
        (Some(_), Some(_)) => Err(Refusal::Malformed(
            "Content-Length and Transfer-Encoding together",
        )),
        (Some(_), None) if version == Version::Http10 => Err(Refusal::Malformed(
            "HTTP/1.0 knows no Transfer-Encoding (RFC 9112 6.1)",
        )),
        (Some(_), None) if codings.next().is_some() => {
            Err(Refusal::Malformed("more than one Transfer-Encoding"))
        }
        (Some(coding), None) if coding.eq_ignore_ascii_case(b"chunked") => Ok(Framing::Chunked),
        (Some(_), None) => Err(Refusal::Coding),
    }
}

fn number(digits: &[u8]) -> Result<u64, Refusal> {
    std::str::from_utf8(digits)
        .ok()
        .filter(|text| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()))
        .and_then(|text| text.parse().ok())
        .ok_or(Refusal::Malformed("the Content-Length is no number"))
}

/// RFC 9110 10.1.1: an expectation of HTTP/1.0 is ignored, one that we do not know is refused.
fn expects_continue(fields: &Fields, version: Version) -> Result<bool, Refusal> {
    let mut expectations = fields.all("expect").peekable();
    if version == Version::Http10 || expectations.peek().is_none() {
        return Ok(false);
    }
    if expectations.all(|value| value.eq_ignore_ascii_case(b"100-continue")) {
        Ok(true)
    } else {
        Err(Refusal::Expectation)
    }
}
