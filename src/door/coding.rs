//! Content codings of a request's body (RFC 9110 8.4), decoded within a limit.
//!
//! The door hands bodies on as they were received, since signatures are over these bytes. Whoever needs the content
//! decodes it behind that.

use std::borrow::Cow;
use std::fmt;
use std::io::{Read as _, Write};

use flate2::bufread::GzDecoder;

use super::http::Fields;

/// A body whose content cannot be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CodingError {
    /// Another coding than gzip, or several: 415.
    Unknown,
    /// It is not gzip, cut, or followed by something else: 400.
    Broken,
    /// The content is larger than allowed: 413.
    TooLarge,
}

impl CodingError {
    /// One word for people and programs: `unsupported-coding`, `malformed` or `too-large`.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Unknown => "unsupported-coding",
            Self::Broken => "malformed",
            Self::TooLarge => "too-large",
        }
    }

    /// The status to answer with.
    #[must_use]
    pub fn status(self) -> u16 {
        match self {
            Self::Unknown => 415,
            Self::Broken => 400,
            Self::TooLarge => 413,
        }
    }
}

impl fmt::Display for CodingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unknown => "only gzip is taken as Content-Encoding",
            Self::Broken => "the body is not the gzip that its Content-Encoding says",
            Self::TooLarge => "the decoded body is too large",
        })
    }
}

impl std::error::Error for CodingError {}

/// A decoded body may be so many times as large as it came …
const SWELL: usize = 20;
/// … or this large.
const SMALL: usize = 64 * 1024;

/// How large the content of this body may be.
#[must_use]
pub fn most(body: &[u8]) -> usize {
    body.len().saturating_mul(SWELL).max(SMALL)
}

/// Whether [`content`] would be had, without keeping any of it.
///
/// # Errors
/// [`CodingError`].
pub fn check(fields: &Fields, body: &[u8], limit: usize) -> Result<(), CodingError> {
    match coding(fields)? {
        Coding::Identity if body.len() <= limit => Ok(()),
        Coding::Identity => Err(CodingError::TooLarge),
        Coding::Gzip => gunzip(body, limit, &mut std::io::sink()),
    }
}

enum Coding {
    Identity,
    Gzip,
}

fn coding(fields: &Fields) -> Result<Coding, CodingError> {
    let coding = fields
        .one("content-encoding")
        .map_err(|_| CodingError::Unknown)?
        .unwrap_or(b"identity");
    let is = |name: &str| coding.eq_ignore_ascii_case(name.as_bytes());
    if is("identity") {
        Ok(Coding::Identity)
    } else if is("gzip") || is("x-gzip") {
        Ok(Coding::Gzip)
    } else {
        Err(CodingError::Unknown)
    }
}

/// The content of a body: decoded if a Content-Encoding says that it is coded, of at most `limit` bytes. Memory never
/// grows beyond that, whatever the body claims.
///
/// # Errors
/// [`CodingError`]; there is no partial content.
pub fn content<'a>(
    fields: &Fields,
    body: &'a [u8],
    limit: usize,
) -> Result<Cow<'a, [u8]>, CodingError> {
    match coding(fields)? {
        Coding::Identity if body.len() <= limit => Ok(Cow::Borrowed(body)),
        Coding::Identity => Err(CodingError::TooLarge),
        Coding::Gzip => {
            let mut out = Vec::new();
            gunzip(body, limit, &mut out)?;
            Ok(Cow::Owned(out))
        }
    }
}

/// One gzip member (RFC 1952) and nothing behind it.
fn gunzip(body: &[u8], limit: usize, into: &mut dyn Write) -> Result<(), CodingError> {
    let mut decoder = GzDecoder::new(body);
    // One more than allowed tells that it is too large, and else makes the trailer be read.
    let most = (limit as u64).saturating_add(1);
    let copied = std::io::copy(&mut decoder.by_ref().take(most), into);
    match copied {
        Ok(size) if size == most => Err(CodingError::TooLarge),
        Ok(_) if decoder.into_inner().is_empty() => Ok(()),
        Ok(_) | Err(_) => Err(CodingError::Broken),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn gzip(content: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(content).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn content_is_whole_and_within_its_limit() {
        let hello = gzip(b"hello");
        let bomb = gzip(&vec![0; 10_000_000]);
        let behind = [hello.clone(), b"x".to_vec()].concat();
        let twice = [hello.clone(), hello.clone()].concat();
        let mut flipped = hello.clone();
        let last = flipped.len() - 6;
        flipped[last] ^= 1;
        type Expected = Result<&'static [u8], CodingError>;
        let table: &[(&str, &[u8], Expected)] = &[
            ("identity", b"hello", Ok(b"hello")),
            ("identity", b"hello!", Err(CodingError::TooLarge)),
            ("gzip", &hello, Ok(b"hello")),
            ("X-GZIP", &hello, Ok(b"hello")),
            ("gzip", &gzip(b""), Ok(b"")),
            ("gzip", &gzip(b"hello!"), Err(CodingError::TooLarge)),
            ("gzip", &bomb, Err(CodingError::TooLarge)),
            ("gzip", b"hello", Err(CodingError::Broken)),
            ("gzip", b"", Err(CodingError::Broken)),
            ("gzip", &hello[..hello.len() - 1], Err(CodingError::Broken)),
            ("gzip", &flipped, Err(CodingError::Broken)),
            ("gzip", &behind, Err(CodingError::Broken)),
            ("gzip", &twice, Err(CodingError::Broken)),
            ("deflate", &hello, Err(CodingError::Unknown)),
            ("gzip, gzip", &hello, Err(CodingError::Unknown)),
            ("", &hello, Err(CodingError::Unknown)),
        ];
        for (number, (coding, body, expected)) in table.iter().enumerate() {
            let fields: Fields = [("Content-Encoding", *coding)].into_iter().collect();
            let content = content(&fields, body, 5).map(Cow::into_owned);
            assert_eq!(content, expected.map(<[u8]>::to_vec), "{number}: {coding}");
            assert_eq!(
                check(&fields, body, 5),
                expected.map(drop),
                "{number}: {coding}"
            );
        }
        let none = Fields::default();
        assert_eq!(
            content(&none, b"hello", 5).as_deref(),
            Ok(b"hello".as_slice())
        );
    }
}
