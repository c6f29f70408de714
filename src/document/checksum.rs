//! SHA-256 of a document: in files as `sha256sum` and BSD's `sha256` write them, and in fields of an answer (RFC 9530). Pure.

use std::fmt;

use sha2::{Digest as _, Sha256, Sha512};

use crate::config::parse_sha256;
use crate::upstream::headers::{Headers, split_outside_quotes};

/// A SHA-256.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Checksum(pub [u8; 32]);

impl fmt::Display for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl Checksum {
    /// Of these bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// What a hasher has come to.
    #[must_use]
    pub fn so_far(hasher: &Sha256) -> Self {
        Self(hasher.clone().finalize().into())
    }
}

/// The longest file of checksums that is read.
pub const MAX_SUMS: u64 = 1 << 20;

/// Why a file of checksums does not say what a document must have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoSum {
    /// No line is a checksum.
    None,
    /// There are several, and none for that name.
    NotNamed(String),
    /// Several for that name, and they differ.
    Several(String),
}

impl fmt::Display for NoSum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("no line is a SHA-256 as `sha256sum` writes it"),
            Self::NotNamed(name) => write!(f, "there is no line for {name}"),
            Self::Several(name) => write!(f, "there are several lines for {name}, and they differ"),
        }
    }
}

/// The checksum that a file states for `name`: a line `HEX  NAME` or `HEX *NAME` (GNU), `SHA256 (NAME) = HEX` (BSD), or nothing
/// but the digits. A single one counts whatever name stands beside it, since many are made from a path of the build; of several
/// the one with that name, directories left aside. Other lines (comments, a signature around it all) count for nothing.
///
/// # Errors
/// [`NoSum`].
pub fn stated(text: &str, name: &str) -> Result<Checksum, NoSum> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let entries: Vec<(Checksum, String)> = text.lines().filter_map(entry).collect();
    if let [(sum, _)] = &entries[..] {
        return Ok(*sum);
    }
    if entries.is_empty() {
        return Err(NoSum::None);
    }
    let is_named =
        |entry: &&(Checksum, String)| entry.1.rsplit('/').next().is_some_and(|last| last == name);
    let mut named = entries.iter().filter(is_named);
    let Some((first, _)) = named.next() else {
        return Err(NoSum::NotNamed(name.to_owned()));
    };
    match named.all(|(other, _)| other == first) {
        true => Ok(*first),
        false => Err(NoSum::Several(name.to_owned())),
    }
}

/// One line: the checksum and the name beside it, which may be missing.
fn entry(line: &str) -> Option<(Checksum, String)> {
    let line = line.trim();
    if let Some(rest) = line.strip_prefix("SHA256") {
        let (name, hex) = rest.trim_start().strip_prefix('(')?.rsplit_once(") = ")?;
        return Some((Checksum(parse_sha256(hex.trim())?), name.to_owned()));
    }
    // GNU puts a backslash in front of a line whose name has escapes.
    let (escaped, line) = match line.strip_prefix('\\') {
        Some(rest) => (true, rest),
        None => (false, line),
    };
    let (hex, name) = line.split_at_checked(64)?;
    let sum = Checksum(parse_sha256(hex)?);
    if !name.is_empty() && !name.starts_with([' ', '\t']) {
        return None;
    }
    let name = name.trim_start();
    let name = name.strip_prefix('*').unwrap_or(name);
    Some((
        sum,
        if escaped {
            unescaped(name)
        } else {
            name.to_owned()
        },
    ))
}

fn unescaped(name: &str) -> String {
    let mut out = String::new();
    let mut letters = name.chars();
    while let Some(letter) = letters.next() {
        match (letter, letter == '\\') {
            (_, true) => match letters.next() {
                Some('n') => out.push('\n'),
                Some('r') => out.push('\r'),
                Some(other) => out.push(other),
                None => {}
            },
            (letter, false) => out.push(letter),
        }
    }
    out
}

/// The algorithms of RFC 9530 that are computed here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Algorithm {
    /// `sha-256`
    Sha256,
    /// `sha-512`
    Sha512,
}

/// A digest that a field states: which algorithm, and its value in base64 as it stands there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stated {
    /// Which.
    pub algorithm: Algorithm,
    base64: String,
}

impl Stated {
    /// The one that is checked of those in a field such as `Repr-Digest: sha-256=:…:` (RFC 9530 2, 3): SHA-256 before SHA-512.
    /// Members that are no byte sequence (RFC 9651 3.3.5) or of another algorithm count for nothing.
    #[must_use]
    pub fn of(headers: &Headers, field: &str) -> Option<Self> {
        let mut found: Option<Self> = None;
        for line in headers.lines(field) {
            split_outside_quotes(&String::from_utf8_lossy(line), ',', |member| {
                let Some((key, value)) = member.trim().split_once('=') else {
                    return;
                };
                let algorithm = match key {
                    "sha-256" => Algorithm::Sha256,
                    "sha-512" => Algorithm::Sha512,
                    _ => return,
                };
                let value = value
                    .strip_prefix(':')
                    .and_then(|rest| rest.split_once(':'));
                let better = found.as_ref().is_none_or(|known| {
                    known.algorithm == Algorithm::Sha512 && algorithm == Algorithm::Sha256
                });
                if let (Some((base64, _)), true) = (value, better) {
                    let base64 = base64.to_owned();
                    found = Some(Self { algorithm, base64 });
                }
            });
        }
        found
    }

    /// Whether that is this digest. Padding may be missing.
    #[must_use]
    pub fn is(&self, digest: &[u8]) -> bool {
        self.base64.trim_end_matches('=') == base64(digest)
    }
}

/// A hasher for what a field states.
#[derive(Debug, Clone)]
pub enum Hasher {
    /// SHA-256.
    Sha256(Sha256),
    /// SHA-512.
    Sha512(Box<Sha512>),
}

impl Hasher {
    /// An empty one.
    #[must_use]
    pub fn new(algorithm: Algorithm) -> Self {
        match algorithm {
            Algorithm::Sha256 => Self::Sha256(Sha256::new()),
            Algorithm::Sha512 => Self::Sha512(Box::new(Sha512::new())),
        }
    }

    /// More bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Sha256(hasher) => hasher.update(bytes),
            Self::Sha512(hasher) => hasher.update(bytes),
        }
    }

    /// The digest.
    #[must_use]
    pub fn finish(self) -> Vec<u8> {
        match self {
            Self::Sha256(hasher) => hasher.finalize().to_vec(),
            Self::Sha512(hasher) => hasher.finalize().to_vec(),
        }
    }
}

/// Base64 (RFC 4648 4) without padding.
fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for chunk in bytes.chunks(3) {
        let mut group = [0; 3];
        group[..chunk.len()].copy_from_slice(chunk);
        let bits = u32::from_be_bytes([0, group[0], group[1], group[2]]);
        for place in 0..=chunk.len() {
            let index = bits >> (18 - 6 * place) & 63;
            out.push(char::from(ALPHABET[index as usize]));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    const OTHER: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    #[test]
    fn files_of_checksums_as_they_are_written() {
        let upper = ABC.to_uppercase();
        let right = [
            format!("{ABC}  fw.bin\n"),
            format!("{ABC} *fw.bin\r\n"),
            format!("{ABC}\n"),
            ABC.to_owned(),
            format!("{upper}  fw.bin"),
            format!("SHA256 (fw.bin) = {ABC}\n"),
            format!("SHA256(fw.bin) = {ABC}\n"),
            format!("\u{feff}{ABC}  fw.bin\n"),
            // One line counts whatever it is called.
            format!("{ABC}  build/out/image-1.2.3.bin\n"),
            // Of several the one with the name, directories left aside.
            format!("{OTHER}  other.bin\n{ABC}  ./dist/fw.bin\n"),
            format!("# sums\n\n{OTHER}  fw.bin.old\n{ABC} *fw.bin\n"),
            format!("SHA256 (a) = {OTHER}\nSHA256 (x/fw.bin) = {ABC}\n"),
            format!("{ABC}  fw.bin\n{ABC}  fw.bin\n"),
            format!(
                "-----BEGIN PGP SIGNED MESSAGE-----\nHash: SHA256\n\n{ABC}  fw.bin\n-----BEGIN PGP SIGNATURE-----\n\niQ\n"
            ),
            format!("\\{ABC}  fw.bin\n"),
        ];
        for text in &right {
            let sum = stated(text, "fw.bin").map(|sum| sum.to_string());
            assert_eq!(sum.as_deref(), Ok(ABC), "{text}");
        }
        let wrong = [
            (String::new(), NoSum::None),
            ("<html>please log in".to_owned(), NoSum::None),
            (ABC[1..].to_owned(), NoSum::None),
            (format!("{ABC}{ABC}  fw.bin"), NoSum::None),
            (format!("SHA1 (fw.bin) = {ABC}"), NoSum::None),
            (
                format!("{ABC}  a\n{OTHER}  b\n"),
                NoSum::NotNamed("fw.bin".into()),
            ),
            (
                format!("{ABC}  fw.bin\n{OTHER}  fw.bin\n"),
                NoSum::Several("fw.bin".into()),
            ),
        ];
        for (text, why) in wrong {
            assert_eq!(stated(&text, "fw.bin"), Err(why), "{text}");
        }
        let escaped = format!("\\{OTHER}  a\\\\b\\nc\n{ABC}  d\n");
        assert_eq!(
            stated(&escaped, "a\\b\nc")
                .map(|sum| sum.to_string())
                .as_deref(),
            Ok(OTHER)
        );
    }

    #[test]
    fn digests_in_fields() {
        // `printf abc | openssl dgst -sha256 -binary | base64`, and with -sha512.
        let short = "ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0=";
        let long = "3a81oZNherrMQXNJriBBMRLm+k6JqX6iCp7u5ktV05ohkpkqJ0/BqDa6PCOj/uu9RU1EI2Q86A4qmslPpUyknw==";
        let is_abc = |value: &str| {
            let headers = Headers::new().with("Repr-Digest", value);
            Stated::of(&headers, "repr-digest").map(|stated| {
                let mut hasher = Hasher::new(stated.algorithm);
                hasher.update(b"ab");
                hasher.update(b"c");
                stated.is(&hasher.finish())
            })
        };
        let table = [
            (format!("sha-256=:{short}:"), Some(true)),
            (format!("sha-512=:{long}:"), Some(true)),
            (
                format!("md5=:x:, sha-512=:{long}:, sha-256=:{short}:"),
                Some(true),
            ),
            (format!("sha-512=:{short}:, sha-256=:{short}:"), Some(true)),
            (
                format!("sha-256=:{}:", short.trim_end_matches('=')),
                Some(true),
            ),
            (format!("sha-256=:{long}:"), Some(false)),
            (format!("sha-256=:{short}:;q=1"), Some(true)),
            ("sha-256=::".to_owned(), Some(false)),
            (format!("sha-256={short}"), None),
            (format!("sha-256=\"{short}\""), None),
            ("md5=:x:".to_owned(), None),
            ("?!,=,".to_owned(), None),
        ];
        for (value, expected) in table {
            assert_eq!(is_abc(&value), expected, "{value}");
        }
    }

    proptest! {
        #[test]
        fn no_file_is_too_odd(text in "\\PC{0,200}", name in "\\PC{0,9}") {
            let _ = stated(&text, &name);
            let headers = Headers::new().with("repr-digest", &text);
            let _ = Stated::of(&headers, "repr-digest");
        }

        #[test]
        fn what_sha256sum_writes_is_read(bytes: Vec<u8>, name in "[a-zA-Z0-9._ -]{1,12}", others in 0usize..3) {
            prop_assume!(name.trim() == name && !name.starts_with('*'));
            let sum = Checksum::of(&bytes);
            let mut text: String = (0..others).map(|at| format!("{OTHER}  x{at}/y\n")).collect();
            text.push_str(&format!("{sum}  {name}\n"));
            prop_assume!(name != "y");
            prop_assert_eq!(stated(&text, &name), Ok(sum));
        }
    }
}
