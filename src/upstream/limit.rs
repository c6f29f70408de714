//! A body that is not larger than it may be, nor cut: limits as a `Read` adapter, so that no caller can forget them.

use std::fmt;
use std::io::{self, Read};

/// A body had more decoded bytes than allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooLarge {
    /// The limit in bytes.
    pub limit: u64,
}

impl fmt::Display for TooLarge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the body has more than {} bytes (`limits.body` sets how many are allowed)",
            self.limit
        )
    }
}

impl std::error::Error for TooLarge {}

/// Reads at most `limit` bytes; one more is the error [`TooLarge`], never a silent end.
#[derive(Debug)]
pub struct Limited<R> {
    inner: R,
    limit: u64,
    seen: u64,
}

impl<R: Read> Limited<R> {
    /// Wraps a body.
    pub fn new(inner: R, limit: u64) -> Self {
        Self {
            inner,
            limit,
            seen: 0,
        }
    }
}

impl<R: Read> Read for Limited<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.seen = self.seen.saturating_add(read as u64);
        if self.seen > self.limit {
            return Err(io::Error::other(TooLarge { limit: self.limit }));
        }
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_byte_too_many_is_an_error_and_never_an_end() {
        let read = |limit| {
            let mut out = Vec::new();
            Limited::new(&b"hello"[..], limit)
                .read_to_end(&mut out)
                .map(|_| out)
        };
        assert_eq!(read(5).unwrap(), b"hello");
        let error = read(4).unwrap_err();
        assert!(error.get_ref().is_some_and(|inner| inner.is::<TooLarge>()));
    }
}
