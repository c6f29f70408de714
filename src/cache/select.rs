//! Which kept answer a request selects (RFC 9111 4.1). Pure.
//!
//! What a request's fields were is kept as a hash over their values (see [`Variant`](crate::upstream::conditional::Variant)), and the values that the asker gave go
//! into it only as keyed hashes ([`Seal`]): a token that a `Vary` names stands in no file, nor anything that a list of
//! likely tokens could be tried on without the key.

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

use super::entry::Kept;
use crate::clock::Timestamp;
use crate::upstream::conditional::{Sent, http_date};
use crate::upstream::headers::Headers;
use crate::upstream::plain::Field;

/// A key of the memory's own: what was sealed can be compared, and not be read.
#[derive(Clone)]
pub struct Seal(Hmac<Sha256>);

impl std::fmt::Debug for Seal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Seal(…)")
    }
}

impl Seal {
    /// With this key.
    #[must_use]
    #[expect(
        clippy::expect_used,
        reason = "HMAC takes keys of any length (RFC 2104 2)"
    )]
    pub fn new(key: &[u8; 32]) -> Self {
        Self(Hmac::new_from_slice(key).expect("any length"))
    }

    /// A name for `parts`, 64 hexadecimal digits: the same for the same, and nothing that tells what they were.
    #[must_use]
    pub fn over(&self, parts: &[&[u8]]) -> String {
        let mut hash = self.0.clone();
        for part in parts {
            hash.update(&(part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        super::memory::hex(&hash.finalize().into_bytes())
    }
}

/// The asker's fields as a variant may know them: lines of one name combined (RFC 9110 5.3), white space and the layout of
/// lists evened out, sealed.
#[must_use]
pub fn sealed(fields: &[Field], seal: &Seal) -> Vec<(String, Sent)> {
    let mut lines = Headers::new();
    for field in fields {
        lines.push(&field.name, &field.value);
    }
    let mut names: Vec<&str> = fields.iter().map(|field| field.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    let seal = |name: &&str| {
        let members = lines.list(name).join(",");
        let value = seal.over(&[name.as_bytes(), members.as_bytes()]);
        ((*name).to_owned(), Sent::Plain(value))
    };
    names.iter().map(seal).collect()
}

/// Whose view of the data a request asks for: the upstream's `scope` by its name, and the credentials that the asker gave as
/// a seal over them. Two users' answers are never mixed, and neither a token nor what it could be guessed from is kept.
#[must_use]
pub fn view(scope: Option<&str>, credentials: &[Field], seal: &Seal) -> String {
    let scope = scope.map(|scope| format!("scope {scope}"));
    let mut parts: Vec<&[u8]> = Vec::new();
    for field in credentials {
        parts.extend([field.name.as_bytes(), field.value.as_slice()]);
    }
    let sealed = (!parts.is_empty()).then(|| format!("seal {}", seal.over(&parts)));
    let view: Vec<String> = scope.into_iter().chain(sealed).collect();
    view.join("\n")
}

/// The kept answer that a request with `sent` selects: of several the one with the latest `Date`, and of those the one
/// that came last.
#[must_use]
pub fn select<'a>(kept: &'a [Kept], sent: &[(String, Sent)]) -> Option<&'a Kept> {
    let told = |kept: &Kept| {
        let date = kept.headers.text("date").and_then(http_date);
        (date.unwrap_or(Timestamp::MIN), kept.times.answered)
    };
    kept.iter()
        .filter(|kept| kept.variant.matches(sent))
        .max_by_key(|kept| told(kept))
}

#[cfg(test)]
mod tests;
