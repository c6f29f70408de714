//! A secret as the bytes that verify.

use std::fmt;

use hmac::{Hmac, KeyInit as _, Mac as _};
use ring::signature::{ED25519, UnparsedPublicKey};
use sha2::Sha256;

use super::encoding;
use super::scheme::{Encoding, Scheme, SecretForm};
use crate::clock::Timestamp;

/// A secret that was read, ready to verify with. `Debug` prints `…`.
#[derive(Clone, PartialEq, Eq)]
pub struct Key {
    pub(super) kind: Kind,
    /// From here on it verifies nothing any more; `None`: for ever.
    pub not_after: Option<Timestamp>,
}

/// What a key can check. A signature never chooses: the secret says what it is.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Kind {
    /// HMAC-SHA256 (RFC 2104).
    Mac(Vec<u8>),
    /// An Ed25519 public key (RFC 8032).
    Edwards([u8; 32]),
    /// The secret itself is sent.
    Token(Vec<u8>),
}

/// Why a secret is no key of its scheme. Never shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyError {
    /// Nothing in it, or nothing behind its prefix: anybody could sign.
    Empty,
    /// It must be base64 and is not.
    NotBase64,
    /// It must be hexadecimal and is not.
    NotHex,
    /// It is the sender's private key.
    Private,
    /// A public key that is not 32 bytes.
    NotEdwards,
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "the secret is empty: anybody could sign with it",
            Self::NotBase64 => {
                "the secret is no base64 (A–Z, a–z, 0–9, +, /), with whsec_ or whpk_ before it or nothing; \
                 a secret that is plain text needs a scheme that says so"
            }
            Self::NotHex => "the secret is no hexadecimal",
            Self::Private => {
                "this is the sender's private key (whsk_); a receiver has the public one (whpk_)"
            }
            Self::NotEdwards => "the public key (whpk_) is not 32 bytes long",
        })
    }
}

impl std::error::Error for KeyError {}

impl Key {
    /// Reads a secret as `scheme` writes it.
    ///
    /// # Errors
    /// [`KeyError`]: it can't be one of this scheme.
    pub fn new(
        scheme: &Scheme,
        secret: &[u8],
        not_after: Option<Timestamp>,
    ) -> Result<Self, KeyError> {
        let form = scheme.seal.as_ref().map(|seal| seal.secret);
        let is_token = scheme.token.is_some() && !secret.starts_with(b"whsec_");
        let kind = match form {
            _ if secret.is_empty() => return Err(KeyError::Empty),
            _ if is_token => Kind::Token(secret.to_vec()),
            None | Some(SecretForm::Text) => Kind::Mac(secret.to_vec()),
            Some(SecretForm::Standard) => standard(secret)?,
            Some(SecretForm::Base64) => {
                Kind::Mac(encoding::secret(secret).ok_or(KeyError::NotBase64)?)
            }
            Some(SecretForm::Hex) => {
                let lower = secret.to_ascii_lowercase();
                Kind::Mac(encoding::decode(&lower, Encoding::Hex).ok_or(KeyError::NotHex)?)
            }
        };
        match kind {
            Kind::Mac(bytes) if bytes.is_empty() => Err(KeyError::Empty),
            kind => Ok(Self { kind, not_after }),
        }
    }

    /// Whether it verifies at `now`. Where nobody knows the time it may.
    pub(super) fn is_active(&self, now: Option<Timestamp>) -> bool {
        match (self.not_after, now) {
            (Some(end), Some(now)) => now < end,
            _ => true,
        }
    }

    /// Whether `value` is this secret, in a time that does not depend on where they differ.
    pub(super) fn is_token(&self, value: &[u8]) -> bool {
        matches!(&self.kind, Kind::Token(secret) if same(secret, value))
    }
}

/// `whsec_` and base64, or base64 alone; `whpk_` and base64.
fn standard(secret: &[u8]) -> Result<Kind, KeyError> {
    if secret.starts_with(b"whsk_") {
        return Err(KeyError::Private);
    }
    let decoded = |text: &[u8]| encoding::secret(text).ok_or(KeyError::NotBase64);
    if let Some(public) = secret.strip_prefix(b"whpk_") {
        let bytes = <[u8; 32]>::try_from(decoded(public)?).map_err(|_| KeyError::NotEdwards)?;
        return Ok(Kind::Edwards(bytes));
    }
    decoded(secret.strip_prefix(b"whsec_").unwrap_or(secret)).map(Kind::Mac)
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

/// HMAC-SHA256 with this key.
pub(super) fn mac(key: &[u8]) -> Hmac<Sha256> {
    #[expect(
        clippy::expect_used,
        reason = "HMAC takes a key of any length (RFC 2104 2); the error is for other MACs"
    )]
    Hmac::new_from_slice(key).expect("any length will do")
}

/// Whether an Ed25519 signature is the message's.
pub(super) fn is_signed(public: &[u8; 32], message: &[u8], signature: &[u8]) -> bool {
    UnparsedPublicKey::new(&ED25519, public)
        .verify(message, signature)
        .is_ok()
}

/// Whether two secrets are the same, in a time that does not depend on where they differ: their MACs are compared.
pub(super) fn same(one: &[u8], other: &[u8]) -> bool {
    let of = |bytes: &[u8]| mac(b"gleaner compares").chain_update(bytes);
    of(one)
        .verify_slice(&of(other).finalize().into_bytes())
        .is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(scheme: &str, secret: &str) -> Result<Key, KeyError> {
        Key::new(&Scheme::named(scheme).unwrap(), secret.as_bytes(), None)
    }

    #[test]
    fn an_empty_secret_is_an_error_in_every_scheme() {
        for scheme in Scheme::names() {
            assert_eq!(key(scheme, ""), Err(KeyError::Empty), "{scheme}");
        }
        for scheme in ["standard-webhooks", "svix", "gitlab"] {
            assert_eq!(key(scheme, "whsec_"), Err(KeyError::Empty), "{scheme}");
        }
        // For Stripe the prefix is text, as all of the secret is.
        assert!(key("stripe", "whsec_").is_ok());
    }

    #[test]
    fn a_standard_secret_is_base64_with_or_without_its_prefix() {
        let with = key("svix", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        assert_eq!(key("svix", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"), Ok(with));
        assert_eq!(key("svix", "plain text"), Err(KeyError::NotBase64));
        assert_eq!(key("svix", "ab-_"), Err(KeyError::NotBase64));
        assert_eq!(key("svix", "whsk_AAAA"), Err(KeyError::Private));
        assert_eq!(key("svix", "whpk_AAAA"), Err(KeyError::NotEdwards));
        assert_eq!(key("svix", "whpk_"), Err(KeyError::NotEdwards));
    }

    #[test]
    fn nothing_prints_a_secret() {
        let key = key("github", "hunter2").unwrap();
        assert_eq!(format!("{key:?}"), "…");
    }

    #[test]
    fn secrets_are_compared_whole() {
        assert!(same(b"", b"") && same(b"a\0", b"a\0"));
        assert!(!same(b"a", b"a\0") && !same(b"a", b"b") && !same(b"", b"a"));
    }
}
