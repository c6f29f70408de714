//! Fingerprints of raw text: 64 bits, keyed, the same in every release and on every machine.

use std::hash::Hasher;

use crate::record::Fingerprint;

/// The fingerprint of a record's text as it came. Equal texts have equal ones; for others, who does not know the salt
/// can't do better than chance (2⁻⁶⁴). SipHash-2-4, many times cheaper than making the text canonical.
#[must_use]
pub fn fingerprint(salt: &[u8; 16], text: &[u8]) -> Fingerprint {
    let [a, b, c, d, e, f, g, h, rest @ ..] = *salt;
    let (low, high) = (
        u64::from_le_bytes([a, b, c, d, e, f, g, h]),
        u64::from_le_bytes(rest),
    );
    #[expect(
        deprecated,
        reason = "the one hash of std whose algorithm is stated; a test holds it to its reference"
    )]
    let mut hasher = std::hash::SipHasher::new_with_keys(low, high);
    hasher.write(text);
    Fingerprint(hasher.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From the reference implementation by Aumasson and Bernstein: key 00 01 … 0f, text 00 01 02 …
    #[test]
    fn is_siphash_2_4() {
        let salt: [u8; 16] = std::array::from_fn(|at| u8::try_from(at).unwrap());
        let text: Vec<u8> = (0..15).collect();
        assert_eq!(
            fingerprint(&salt, &text),
            Fingerprint(0xa129_ca61_49be_45e5)
        );
        assert_eq!(fingerprint(&salt, &[]), Fingerprint(0x726f_db47_dd0e_0e31));
    }

    #[test]
    fn depends_on_salt_and_text() {
        let one = fingerprint(&[1; 16], b"{}");
        assert_ne!(one, fingerprint(&[2; 16], b"{}"));
        assert_ne!(one, fingerprint(&[1; 16], b"{ }"));
        assert_eq!(one, fingerprint(&[1; 16], b"{}"));
    }
}
