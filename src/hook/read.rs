//! What a request says about its signature, before anything is believed: signatures, id and time as sent.

use super::Received;
use super::encoding;
use super::scheme::{Encoding, Holds, Part, Seal, Stamp, StampAt, StampFormat};
use super::verify::{Malformed, Unproven};
use crate::json::Json;
use crate::json::time::{self, TimeFormat};

/// More signatures than this are no rotation.
pub(super) const MAX_SIGNATURES: usize = 16;

/// What was found.
pub(super) struct Claim<'a> {
    pub(super) signatures: Vec<Signature>,
    /// The id as sent.
    pub(super) id: Option<&'a [u8]>,
    /// The time as sent.
    pub(super) time: Option<&'a [u8]>,
    /// The same in nanoseconds since 1970.
    pub(super) sent: Option<i128>,
}

/// One signature.
pub(super) struct Signature {
    /// Ed25519 rather than HMAC.
    pub(super) is_edwards: bool,
    /// `None`: it can't be decoded, so it is nobody's.
    pub(super) bytes: Option<Vec<u8>>,
}

/// Why there is no claim.
#[derive(Debug)]
pub(super) enum NoClaim {
    Unproven(Unproven),
    Malformed(Malformed),
}

impl From<Malformed> for NoClaim {
    fn from(why: Malformed) -> Self {
        Self::Malformed(why)
    }
}

impl From<Unproven> for NoClaim {
    fn from(why: Unproven) -> Self {
        Self::Unproven(why)
    }
}

/// Reads the claim of `request`.
pub(super) fn claim<'a>(seal: &Seal, request: &Received<'a>) -> Result<Claim<'a>, NoClaim> {
    let header = seal.header.as_str();
    let value = only(request, header)?.ok_or_else(|| Unproven::NoSignature {
        header: header.to_owned(),
    })?;
    if value.is_empty() {
        return Err(Malformed::Empty(header.to_owned()).into());
    }
    let pairs = pairs(value);
    let signatures = match &seal.holds {
        Holds::One(prefix) => vec![one(seal, prefix, value)?],
        Holds::Versions => versions(seal, value)?,
        Holds::Pairs(name) => of_name(seal, name, &pairs)?,
    };
    if signatures.len() > MAX_SIGNATURES {
        return Err(Malformed::TooMany(header.to_owned()).into());
    }
    let id = match &seal.id {
        Some(name) => Some(needed(request, name)?),
        None => None,
    };
    let time = match &seal.time {
        Some(stamp) => Some((stamp, stamped(seal, stamp, request, &pairs)?)),
        None => None,
    };
    let sent = match time {
        Some((stamp, text)) => {
            Some(instant(text, stamp.format).ok_or_else(|| Malformed::Time {
                place: place(seal, stamp),
                format: stamp.format,
            })?)
        }
        None => None,
    };
    Ok(Claim {
        signatures,
        id,
        time: time.map(|(_, text)| text),
        sent,
    })
}

/// Hands out what is signed, piece by piece.
pub(super) fn signed<'a>(
    seal: &'a Seal,
    claim: &Claim<'a>,
    body: &'a [u8],
) -> impl Iterator<Item = &'a [u8]> {
    let (id, time) = (claim.id.unwrap_or_default(), claim.time.unwrap_or_default());
    seal.signed.iter().map(move |part| match part {
        Part::Text(text) => text.as_bytes(),
        Part::Id => id,
        Part::Time => time,
        Part::Body => body,
    })
}

/// The only line of a header; `None` without one. Of two nobody knows which the sender signed, and which the next reader
/// takes.
fn only<'a>(request: &Received<'a>, name: &str) -> Result<Option<&'a [u8]>, Malformed> {
    let mut lines = request.lines(name);
    match (lines.next(), lines.next()) {
        (line, None) => Ok(line),
        _ => Err(Malformed::Twice(name.to_owned())),
    }
}

/// The only line of a header that is signed.
fn needed<'a>(request: &Received<'a>, name: &str) -> Result<&'a [u8], Malformed> {
    match only(request, name)? {
        None => Err(Malformed::Missing(name.to_owned())),
        Some([]) => Err(Malformed::Empty(name.to_owned())),
        Some(value) => Ok(value),
    }
}

fn one(seal: &Seal, prefix: &str, value: &[u8]) -> Result<Signature, NoClaim> {
    let Some(text) = value.strip_prefix(prefix.as_bytes()) else {
        return Err(match algorithm(value).filter(|_| prefix.ends_with('=')) {
            Some(found) => Unproven::OtherAlgorithm {
                header: seal.header.clone(),
                found,
                taken: prefix.trim_end_matches('=').to_owned(),
            }
            .into(),
            None => Malformed::Prefix {
                header: seal.header.clone(),
                prefix: prefix.to_owned(),
            }
            .into(),
        });
    };
    let bytes = encoding::decode(text, seal.encoding).filter(|bytes| !bytes.is_empty());
    if bytes.is_none() {
        return Err(Malformed::Encoding {
            header: seal.header.clone(),
            encoding: seal.encoding,
        }
        .into());
    }
    Ok(Signature {
        is_edwards: false,
        bytes,
    })
}

/// `sha1` of `sha1=…`, for the message alone.
fn algorithm(value: &[u8]) -> Option<String> {
    let end = value.iter().position(|byte| *byte == b'=')?;
    let name = std::str::from_utf8(&value[..end]).ok()?;
    let is_name = (1..=16).contains(&name.len())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
    (is_name && end + 1 < value.len()).then(|| name.to_owned())
}

/// `v1,…` and `v1a,…` between spaces. What has no comma is passed over as long as another token has one.
fn versions(seal: &Seal, value: &[u8]) -> Result<Vec<Signature>, NoClaim> {
    let mut signatures = Vec::new();
    let mut has_comma = false;
    for token in value
        .split(u8::is_ascii_whitespace)
        .filter(|token| !token.is_empty())
    {
        let Some(comma) = token.iter().position(|byte| *byte == b',') else {
            continue;
        };
        has_comma = true;
        let is_edwards = match &token[..comma] {
            b"v1" => false,
            b"v1a" => true,
            _ => continue,
        };
        signatures.push(Signature {
            is_edwards,
            bytes: encoding::decode(&token[comma + 1..], Encoding::Base64),
        });
    }
    match (has_comma, signatures.is_empty()) {
        (false, _) => Err(Malformed::NoVersion(seal.header.clone()).into()),
        (true, true) => Err(Unproven::NoneNamed {
            header: seal.header.clone(),
            name: "v1".to_owned(),
        }
        .into()),
        (true, false) => Ok(signatures),
    }
}

/// The `name=value` of a header, commas between; what has no `=` is passed over.
fn pairs(value: &[u8]) -> Vec<(&[u8], &[u8])> {
    value
        .split(|byte| *byte == b',')
        .filter_map(|pair| {
            let at = pair.iter().position(|byte| *byte == b'=')?;
            Some((pair[..at].trim_ascii(), pair[at + 1..].trim_ascii()))
        })
        .collect()
}

fn of_name(seal: &Seal, name: &str, pairs: &[(&[u8], &[u8])]) -> Result<Vec<Signature>, NoClaim> {
    if pairs.is_empty() {
        return Err(Malformed::NoPair {
            header: seal.header.clone(),
            name: name.to_owned(),
        }
        .into());
    }
    let signatures: Vec<Signature> = pairs
        .iter()
        .filter(|(key, _)| *key == name.as_bytes())
        .map(|(_, value)| Signature {
            is_edwards: false,
            bytes: encoding::decode(value, seal.encoding),
        })
        .collect();
    if signatures.is_empty() {
        return Err(Unproven::NoneNamed {
            header: seal.header.clone(),
            name: name.to_owned(),
        }
        .into());
    }
    Ok(signatures)
}

fn stamped<'a>(
    seal: &Seal,
    stamp: &Stamp,
    request: &Received<'a>,
    pairs: &[(&'a [u8], &'a [u8])],
) -> Result<&'a [u8], Malformed> {
    match &stamp.at {
        StampAt::Header(name) => needed(request, name),
        StampAt::Pair(name) => {
            let mut found = pairs.iter().filter(|(key, _)| *key == name.as_bytes());
            match (found.next(), found.next()) {
                (Some((_, value)), None) => Ok(value),
                (None, _) => Err(Malformed::NoPair {
                    header: seal.header.clone(),
                    name: name.clone(),
                }),
                (Some(_), Some(_)) => Err(Malformed::Twice(place(seal, stamp))),
            }
        }
    }
}

/// How messages call the time's place.
fn place(seal: &Seal, stamp: &Stamp) -> String {
    match &stamp.at {
        StampAt::Header(name) => name.clone(),
        StampAt::Pair(name) => format!("{name}= in {}", seal.header),
    }
}

/// Nanoseconds since 1970. Epochs are whole numbers of 64 bits, so nothing here can overflow.
fn instant(text: &[u8], format: StampFormat) -> Option<i128> {
    let text = std::str::from_utf8(text).ok()?;
    let unit: i128 = match format {
        StampFormat::Rfc3339 => return rfc3339(text),
        StampFormat::EpochS => 1_000_000_000,
        StampFormat::EpochMs => 1_000_000,
        StampFormat::EpochUs => 1000,
    };
    let digits = text.strip_prefix('-').unwrap_or(text);
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let number: i64 = is_number.then(|| text.parse().ok()).flatten()?;
    Some(i128::from(number) * unit)
}

fn rfc3339(text: &str) -> Option<i128> {
    // Neither is in a time, and in a JSON string both mean something.
    if text.contains(['"', '\\']) {
        return None;
    }
    let quoted = format!("\"{text}\"");
    let json = Json::parse(quoted.as_bytes()).ok()?;
    let time = time::parse(json, &TimeFormat::Rfc3339).ok()?;
    Some(time.as_nanosecond())
}
