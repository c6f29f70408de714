//! Hexadecimal and base64 (RFC 4648), as signatures and secrets are written.

use super::scheme::Encoding;

/// The bytes that `text` stands for. Exactly one text stands for given bytes, padding aside: a signature that was touched
/// in any bit is another one.
pub(super) fn decode(text: &[u8], encoding: Encoding) -> Option<Vec<u8>> {
    match encoding {
        Encoding::Hex => hex(text, b'a'),
        Encoding::HexUpper => hex(text, b'A'),
        Encoding::Base64 => base64(text, [b'+', b'/'], true),
        Encoding::Base64Url => base64(text, [b'-', b'_'], true),
    }
}

/// A secret's bytes: padded or not, and what the last character holds beyond the last byte does not count, since senders'
/// own libraries read secrets so.
pub(super) fn secret(text: &[u8]) -> Option<Vec<u8>> {
    base64(text, [b'+', b'/'], false)
}

/// The bytes as lower-case hexadecimal.
pub(super) fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The bytes as base64, padded.
pub(crate) fn to_base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let byte = |index: usize| u32::from(chunk.get(index).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for place in 0..4 {
            let letter = LETTERS[(bits >> (18 - 6 * place) & 63) as usize];
            text.push(if place <= chunk.len() {
                char::from(letter)
            } else {
                '='
            });
        }
    }
    text
}

fn hex(text: &[u8], ten: u8) -> Option<Vec<u8>> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        _ if (ten..ten + 6).contains(&byte) => Some(byte - ten + 10),
        _ => None,
    };
    if text.len() % 2 != 0 {
        return None;
    }
    text.chunks_exact(2)
        .map(|pair| Some(digit(pair[0])? << 4 | digit(pair[1])?))
        .collect()
}

fn base64(text: &[u8], last: [u8; 2], canonical: bool) -> Option<Vec<u8>> {
    let bare = match text {
        [bare @ .., b'=', b'='] if text.len() % 4 == 0 => bare,
        [bare @ .., b'='] if text.len() % 4 == 0 => bare,
        _ => text,
    };
    if bare.len() % 4 == 1 {
        return None;
    }
    let mut bytes = Vec::with_capacity(bare.len() / 4 * 3 + 2);
    let (mut held, mut bits) = (0_u32, 0_u32);
    for &letter in bare {
        held = held << 6 | u32::from(sextet(letter, last)?);
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.push(u8::try_from(held >> bits & 0xff).ok()?);
            held &= (1 << bits) - 1;
        }
    }
    (!canonical || held == 0).then_some(bytes)
}

fn sextet(letter: u8, last: [u8; 2]) -> Option<u8> {
    match letter {
        b'A'..=b'Z' => Some(letter - b'A'),
        b'a'..=b'z' => Some(letter - b'a' + 26),
        b'0'..=b'9' => Some(letter - b'0' + 52),
        _ if letter == last[0] => Some(62),
        _ if letter == last[1] => Some(63),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_as_the_rfc_spells_it() {
        for (text, plain) in [
            ("", ""),
            ("Zg==", "f"),
            ("Zg", "f"),
            ("Zm8=", "fo"),
            ("Zm9v", "foo"),
            ("Zm9vYg==", "foob"),
            ("Zm9vYmE", "fooba"),
        ] {
            let bytes = decode(text.as_bytes(), Encoding::Base64);
            assert_eq!(bytes.as_deref(), Some(plain.as_bytes()), "{text}");
        }
        assert_eq!(
            decode(b"-_-_", Encoding::Base64Url),
            decode(b"+/+/", Encoding::Base64)
        );
    }

    #[test]
    fn what_is_written_otherwise_is_nothing() {
        for text in [
            "Z", "Zg=", "Z===", "====", "Zh==", "Zm9=", "Zg==\n", "Z g=", "-_-_", "Zm9v=", "é",
        ] {
            assert_eq!(decode(text.as_bytes(), Encoding::Base64), None, "{text:?}");
        }
        for text in ["0", "0g", "AB", " 00", "é"] {
            assert_eq!(decode(text.as_bytes(), Encoding::Hex), None, "{text:?}");
        }
        assert_eq!(decode(b"0aF0", Encoding::HexUpper), None);
        assert_eq!(decode(b"00af", Encoding::Hex), Some(vec![0, 0xaf]));
        assert_eq!(decode(b"00AF", Encoding::HexUpper), Some(vec![0, 0xaf]));
    }

    #[test]
    fn a_secret_may_be_written_carelessly() {
        assert_eq!(secret(b"Zh=="), Some(vec![b'f']));
        assert_eq!(secret(b"Zh"), Some(vec![b'f']));
        assert_eq!(secret(b"Z"), None);
    }
}
