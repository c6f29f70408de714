//! What may be wrong with a request that is not valid: what would make it right is tried, and said if it does. For a person
//! at a terminal; nothing here decides anything about a request that came.

mod rewrite;

use std::fmt;

use self::rewrite::{Space, rewritten, with_line_ends};
use super::key::{Key, Kind};
use super::read;
use super::scheme::{Encoding, Part, Scheme, SecretForm, StampFormat};
use super::verify::{Malformed, Unproven};
use super::{Received, Rule, Tolerance, Verdict, encoding, verify};
use crate::clock::Timestamp;

/// What to look at. `Display` is a sentence's worth; no secret is in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hint {
    /// The signature is right for this other body.
    Body(OtherBody),
    /// The signature is right with the secret read so.
    Secret(OtherSecret),
    /// The signature is right by another scheme.
    Scheme(&'static str),
    /// The signature is right if it is read so.
    Encoding(Encoding),
    /// Another scheme's header is there.
    Header {
        /// The header that is there.
        found: String,
        /// The scheme that has it.
        scheme: &'static str,
    },
    /// A header that sounds like a signature's is there.
    Sounds(String),
    /// The time would be of now in this unit.
    Unit(StampFormat),
    /// It would be valid at this time.
    At(Timestamp),
    /// Nothing that was tried makes it right.
    Nothing,
}

/// A body that was changed on its way, or in the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OtherBody {
    /// Without the line break at its end.
    WithoutNewline,
    /// With a line feed at its end.
    WithNewline,
    /// With CRLF for each LF.
    Crlf,
    /// With LF for each CRLF.
    Lf,
    /// JSON without white space.
    Compact,
    /// JSON on one line with a space behind each comma and colon.
    Spaced,
    /// JSON with its lines indented by two.
    Indented,
    /// Nothing.
    Empty,
}

/// A secret that was read otherwise than the sender does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OtherSecret {
    /// Its text is the key.
    Text,
    /// It is base64, `whsec_` before it left out.
    Base64,
    /// It is hexadecimal.
    Hex,
    /// With a line feed at its end.
    WithNewline,
    /// Without white space around it.
    Trimmed,
}

impl fmt::Display for Hint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Body(other) => {
                let (what, why) = match other {
                    OtherBody::WithoutNewline => (
                        "without the line break at its end",
                        "an editor or `echo` adds one",
                    ),
                    OtherBody::WithNewline => (
                        "with a line feed at its end",
                        "something on the way, or the record, cut it off",
                    ),
                    OtherBody::Crlf => ("with CRLF line ends", "something turned them into LF"),
                    OtherBody::Lf => ("with LF line ends", "something turned them into CRLF"),
                    OtherBody::Compact => (
                        "as JSON without white space",
                        "something on the way wrote the JSON anew",
                    ),
                    OtherBody::Spaced => (
                        "as JSON with single spaces",
                        "something on the way wrote the JSON anew",
                    ),
                    OtherBody::Indented => (
                        "as indented JSON",
                        "something on the way wrote the JSON anew",
                    ),
                    OtherBody::Empty => ("if the body is empty", "the sender signs no body"),
                };
                write!(f, "the signature is right for the body {what}: {why}")
            }
            Self::Secret(other) => {
                let what = match other {
                    OtherSecret::Text => {
                        "if the secret's text is the key, not what it is base64 of"
                    }
                    OtherSecret::Base64 => {
                        "if the secret is read as base64 (without whsec_ before it), not as text"
                    }
                    OtherSecret::Hex => "if the secret is read as hexadecimal, not as text",
                    OtherSecret::WithNewline => {
                        "with a line feed at the secret's end: the sender's copy has one"
                    }
                    OtherSecret::Trimmed => "without the white space around the secret",
                };
                write!(f, "the signature is right {what}")
            }
            Self::Scheme(name) => write!(f, "the signature is right by `scheme = {name:?}`"),
            Self::Encoding(encoding) => {
                write!(f, "the signature is right if it is read as {encoding}")
            }
            Self::Header { found, scheme } => {
                write!(
                    f,
                    "there is a header {found}: is `scheme = {scheme:?}` meant?"
                )
            }
            Self::Sounds(name) => write!(f, "there is a header {name}: is the signature there?"),
            Self::Unit(format) => {
                let unit = match format {
                    StampFormat::EpochMs => "milliseconds",
                    StampFormat::EpochUs => "microseconds",
                    StampFormat::EpochS | StampFormat::Rfc3339 => "seconds",
                };
                write!(f, "the time is of now if it counts {unit}")
            }
            Self::Nothing => f.write_str(
                "no usual change of the body or the secret makes it right: compare the secret with the sender's, and record \
                 the bytes as they come, before anything reads them as JSON",
            ),
            Self::At(time) => write!(f, "it was valid at {time}: `--at {time}` judges as of then"),
        }
    }
}

/// What was signed, as far as the request says it: for a message, so that both sides can compare lengths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Basis {
    /// What each part is and how many bytes it has, in order.
    pub parts: Vec<(String, usize)>,
    /// All of them.
    pub bytes: usize,
    /// When it says it was signed.
    pub sent_at: Option<Timestamp>,
}

/// What the signature of `request` covers; `None` if it can't be read, or nothing is signed.
#[must_use]
pub fn basis(rule: &Rule, request: &Received<'_>) -> Option<Basis> {
    let seal = rule.scheme.seal.as_ref()?;
    let claim = read::claim(seal, request).ok()?;
    let names = seal.signed.iter().map(|part| match part {
        Part::Text(text) => format!("{text:?}"),
        Part::Id => format!("the header {}", seal.id.as_deref().unwrap_or_default()),
        Part::Time => "the time".to_owned(),
        Part::Body => "the body".to_owned(),
    });
    let sizes = read::signed(seal, &claim, request.body).map(<[u8]>::len);
    let parts: Vec<(String, usize)> = names.zip(sizes).collect();
    Some(Basis {
        bytes: parts.iter().map(|(_, size)| size).sum(),
        parts,
        sent_at: claim
            .sent
            .and_then(|nanos| Timestamp::from_nanosecond(nanos).ok()),
    })
}

/// What to look at, most telling first; nothing for a valid request.
#[must_use]
pub fn hints(
    rule: &Rule,
    keys: &[Key],
    request: &Received<'_>,
    verdict: &Verdict,
    now: Timestamp,
) -> Vec<Hint> {
    match verdict {
        Verdict::Valid(_) | Verdict::ClockUntrusted => Vec::new(),
        Verdict::Stale { .. } | Verdict::Future { .. } => timely(rule, request, now),
        Verdict::Malformed(Malformed::Encoding { .. }) => encodings(rule, keys, request),
        Verdict::BadSignature(Unproven::NoMatch { .. }) => {
            let mut found = Vec::new();
            found.extend(bodies(rule, keys, request).next().map(Hint::Body));
            found.extend(secrets(rule, keys, request).map(Hint::Secret));
            if found.is_empty() {
                found.extend(schemes(rule, keys, request));
            }
            if found.is_empty() {
                found.push(Hint::Nothing);
            }
            found
        }
        Verdict::BadSignature(
            Unproven::NoSignature { .. }
            | Unproven::NoneNamed { .. }
            | Unproven::OtherAlgorithm { .. },
        )
        | Verdict::Malformed(_) => {
            let right: Vec<Hint> = schemes(rule, keys, request).collect();
            if right.is_empty() {
                headers(rule, request)
            } else {
                right
            }
        }
        Verdict::BadSignature(_) => Vec::new(),
    }
}

/// Whether the signature is right, whenever it was made.
fn is_right(rule: &Rule, keys: &[Key], request: &Received<'_>) -> bool {
    let rule = Rule {
        tolerance: Tolerance {
            past: std::time::Duration::MAX,
            future: std::time::Duration::MAX,
        },
        ..rule.clone()
    };
    let keys: Vec<Key> = keys
        .iter()
        .cloned()
        .map(|key| Key {
            not_after: None,
            ..key
        })
        .collect();
    matches!(
        verify(&rule, &keys, request, Some(Timestamp::UNIX_EPOCH)),
        Verdict::Valid(_)
    )
}

fn bodies<'a>(
    rule: &'a Rule,
    keys: &'a [Key],
    request: &'a Received<'_>,
) -> impl Iterator<Item = OtherBody> + 'a {
    let body = request.body;
    let shorter = body
        .strip_suffix(b"\n")
        .map(|body| body.strip_suffix(b"\r").unwrap_or(body).to_vec());
    let json = || serde_json::from_slice::<Box<serde_json::value::RawValue>>(body).ok();
    let others = [
        (OtherBody::WithoutNewline, shorter),
        (OtherBody::WithNewline, Some([body, b"\n"].concat())),
        (OtherBody::Crlf, Some(with_line_ends(body, b"\r\n"))),
        (OtherBody::Lf, Some(with_line_ends(body, b"\n"))),
        (
            OtherBody::Compact,
            json().map(|json| rewritten(json.get(), Space::None)),
        ),
        (
            OtherBody::Spaced,
            json().map(|json| rewritten(json.get(), Space::Single)),
        ),
        (
            OtherBody::Indented,
            json().map(|json| rewritten(json.get(), Space::Lines)),
        ),
        (OtherBody::Empty, Some(Vec::new())),
    ];
    let differs =
        move |body: &Option<Vec<u8>>| body.as_deref().is_some_and(|other| other != request.body);
    others
        .into_iter()
        .filter(move |(_, other)| differs(other))
        .filter(move |(_, other)| {
            let body = other.as_deref().unwrap_or_default();
            is_right(rule, keys, &Received { body, ..*request })
        })
        .map(|(what, _)| what)
}

fn secrets<'a>(
    rule: &'a Rule,
    keys: &'a [Key],
    request: &'a Received<'_>,
) -> impl Iterator<Item = OtherSecret> + 'a {
    let form = rule.scheme.seal.as_ref().map(|seal| seal.secret);
    [
        OtherSecret::Text,
        OtherSecret::Base64,
        OtherSecret::Hex,
        OtherSecret::WithNewline,
        OtherSecret::Trimmed,
    ]
    .into_iter()
    .filter(move |what| {
        let others: Vec<Key> = keys
            .iter()
            .flat_map(|key| match &key.kind {
                Kind::Mac(bytes) => other(*what, form, bytes),
                Kind::Edwards(_) | Kind::Token(_) => Vec::new(),
            })
            .filter(|bytes| !bytes.is_empty())
            .map(|bytes| Key {
                kind: Kind::Mac(bytes),
                not_after: None,
            })
            .collect();
        !others.is_empty() && is_right(rule, &others, request)
    })
}

/// The keys that a secret could be, read otherwise.
fn other(what: OtherSecret, form: Option<SecretForm>, key: &[u8]) -> Vec<Vec<u8>> {
    let is_text = form == Some(SecretForm::Text);
    let bare = key.strip_prefix(b"whsec_").unwrap_or(key);
    match what {
        // What it was written as is known from what it means, apart from the padding.
        OtherSecret::Text if !is_text => {
            let text = encoding::to_base64(key);
            let short = text.trim_end_matches('=').to_owned();
            [text, short]
                .iter()
                .flat_map(|text| {
                    [
                        text.clone().into_bytes(),
                        format!("whsec_{text}").into_bytes(),
                    ]
                })
                .chain([encoding::to_hex(key).into_bytes()])
                .collect()
        }
        OtherSecret::Base64 if is_text => encoding::secret(bare).into_iter().collect(),
        OtherSecret::Hex if is_text => encoding::decode(&key.to_ascii_lowercase(), Encoding::Hex)
            .into_iter()
            .collect(),
        OtherSecret::WithNewline if is_text => vec![[key, b"\n"].concat()],
        OtherSecret::Trimmed if is_text && key.trim_ascii() != key => {
            vec![key.trim_ascii().to_vec()]
        }
        _ => Vec::new(),
    }
}

/// Other rows of the table by which the same keys are right.
fn schemes<'a>(
    rule: &'a Rule,
    keys: &'a [Key],
    request: &'a Received<'_>,
) -> impl Iterator<Item = Hint> + 'a {
    Scheme::names()
        .filter(|name| *name != rule.scheme.name)
        .filter_map(Scheme::named)
        .filter(|scheme| {
            let keys: Vec<Key> = keys
                .iter()
                .cloned()
                .map(|key| as_token(key, scheme))
                .collect();
            is_right(&Rule::new(scheme.clone()), &keys, request)
        })
        .map(|scheme| Hint::Scheme(scheme.name))
}

/// A text secret is what a scheme with a token sends.
fn as_token(key: Key, scheme: &Scheme) -> Key {
    match (key.kind, &scheme.token) {
        (Kind::Mac(bytes), Some(_)) => Key {
            kind: Kind::Token(bytes),
            ..key
        },
        (kind, _) => Key { kind, ..key },
    }
}

/// How else the signature may be written.
fn encodings(rule: &Rule, keys: &[Key], request: &Received<'_>) -> Vec<Hint> {
    let right = |encoding: &Encoding| {
        let mut rule = rule.clone();
        if let Some(seal) = &mut rule.scheme.seal {
            seal.encoding = *encoding;
        }
        is_right(&rule, keys, request)
    };
    let others = Encoding::NAMES.iter().map(|(_, encoding)| *encoding);
    others.filter(right).map(Hint::Encoding).collect()
}

/// Headers of other schemes, or such as sound like one.
fn headers(rule: &Rule, request: &Received<'_>) -> Vec<Hint> {
    let own = rule
        .scheme
        .seal
        .as_ref()
        .map_or("", |seal| seal.header.as_str());
    let is_there = |name: &str| request.lines(name).next().is_some();
    let mut found: Vec<Hint> = Scheme::names()
        .filter_map(Scheme::named)
        .filter(|scheme| scheme.name != rule.scheme.name)
        .filter_map(|scheme| {
            let seal = scheme.seal.map(|seal| seal.header);
            let header = [seal, scheme.token].into_iter().flatten();
            let found = header
                .into_iter()
                .find(|header| !header.eq_ignore_ascii_case(own) && is_there(header))?;
            Some(Hint::Header {
                found,
                scheme: scheme.name,
            })
        })
        .collect();
    if found.is_empty() {
        let sounds = |name: &str| {
            let lower = name.to_ascii_lowercase();
            ["signature", "hmac", "digest", "-sign", "token"]
                .iter()
                .any(|word| lower.contains(word))
        };
        let names = request.headers.iter().map(|(name, _)| *name);
        found.extend(
            names
                .filter(|name| !name.eq_ignore_ascii_case(own) && sounds(name))
                .map(|name| Hint::Sounds(name.to_owned())),
        );
    }
    found
}

/// The signature is right and the time is not.
fn timely(rule: &Rule, request: &Received<'_>, now: Timestamp) -> Vec<Hint> {
    let units = [
        StampFormat::EpochMs,
        StampFormat::EpochUs,
        StampFormat::EpochS,
    ];
    let of = |format: StampFormat| {
        let mut rule = rule.clone();
        let stamp = rule
            .scheme
            .seal
            .as_mut()
            .and_then(|seal| seal.time.as_mut())?;
        if stamp.format == StampFormat::Rfc3339 || stamp.format == format {
            return None;
        }
        stamp.format = format;
        let sent = basis(&rule, request)?.sent_at?;
        let age = now.duration_since(sent).unsigned_abs();
        (age <= rule.tolerance.past.max(rule.tolerance.future)).then_some(Hint::Unit(format))
    };
    let mut found: Vec<Hint> = units.into_iter().filter_map(of).collect();
    if found.is_empty() {
        let sent = basis(rule, request).and_then(|basis| basis.sent_at);
        found.extend(sent.map(Hint::At));
    }
    found
}
