//! Is this request the sender's, and of now?

use std::fmt;
use std::time::Duration;

use hmac::Mac as _;

use super::event::{self, EventId};
use super::key::{self, Key, Kind};
use super::read::{self, Claim, NoClaim, Signature};
use super::scheme::{Encoding, Seal, StampFormat};
use super::{Received, Rule};
use crate::clock::Timestamp;

/// What a request is, and why. `Display` is the reason in words; no secret is in any of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The sender's, and of now as far as it says when.
    Valid(Event),
    /// Not the sender's, as far as anybody can tell.
    BadSignature(Unproven),
    /// The sender's, but signed too long ago: somebody may have kept it.
    Stale {
        /// How long ago.
        age: Duration,
        /// How long ago it may have been.
        limit: Duration,
    },
    /// The sender's, but signed in the future: one of the two clocks is wrong.
    Future {
        /// How far ahead.
        ahead: Duration,
        /// How far ahead it may be.
        limit: Duration,
    },
    /// It can't be read, or in more than one way.
    Malformed(Malformed),
    /// The sender's; whether of now nobody can tell before this device's clock is trusted.
    ClockUntrusted,
}

/// A request that is the sender's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Which event it is: equal for every delivery of it.
    pub id: EventId,
    /// Its type, where the scheme or the config says where that is.
    pub kind: Option<String>,
    /// When it was signed, where the sender signs that.
    pub sent_at: Option<Timestamp>,
    /// Which of the hook's secrets it was signed with, from 0.
    pub secret: usize,
}

/// Why a request is not the sender's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unproven {
    /// The hook has no secret.
    NoSecret,
    /// The header that holds the signature is not there.
    NoSignature {
        /// Its name.
        header: String,
    },
    /// The header holds signatures, but none of the name that counts.
    NoneNamed {
        /// Its name.
        header: String,
        /// The name that counts.
        name: String,
    },
    /// Another algorithm's signature. It is never taken instead.
    OtherAlgorithm {
        /// The header.
        header: String,
        /// What it names.
        found: String,
        /// What counts.
        taken: String,
    },
    /// Of these signatures none is one of these secrets'.
    NoMatch {
        /// The header.
        header: String,
        /// How many signatures it holds.
        signatures: usize,
        /// How many secrets were tried.
        secrets: usize,
    },
    /// Signed with a secret that has ended.
    Ended {
        /// Which, from 0.
        secret: usize,
        /// When it ended.
        at: Timestamp,
    },
    /// The token is none of these secrets.
    OtherToken {
        /// The header.
        header: String,
        /// How many secrets were tried.
        secrets: usize,
    },
}

/// Why a request can't be judged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Malformed {
    /// A header that is signed is not there.
    Missing(String),
    /// A header, or a part of one, is there twice.
    Twice(String),
    /// A header is empty.
    Empty(String),
    /// More signatures than any rotation needs.
    TooMany(String),
    /// The header does not start as it must.
    Prefix {
        /// Its name.
        header: String,
        /// How it must start.
        prefix: String,
    },
    /// The header has no `version,signature`.
    NoVersion(String),
    /// The header has no `name=…`.
    NoPair {
        /// Its name.
        header: String,
        /// The name.
        name: String,
    },
    /// The signature is not written as it must be.
    Encoding {
        /// The header.
        header: String,
        /// How it must be written.
        encoding: Encoding,
    },
    /// The time is none.
    Time {
        /// Where.
        place: String,
        /// How it must be written.
        format: StampFormat,
    },
}

/// Judges a request by the bytes that came. Any signature that it carries may be any active secret's.
///
/// `now`: `None` where the clock is not trusted. Then what needs the time is [`Verdict::ClockUntrusted`], but only once
/// the signature is right: strangers learn nothing.
#[must_use]
pub fn verify(
    rule: &Rule,
    keys: &[Key],
    request: &Received<'_>,
    now: Option<Timestamp>,
) -> Verdict {
    let by_token = by_token(rule, keys, request, now);
    let by_seal = by_seal(rule, keys, request, now);
    let proof = match (by_token, by_seal) {
        (Some(Ok(proof)), _) | (_, Some(Ok(proof))) => proof,
        (Some(Err(by_token)), Some(Err(by_seal))) => return more_telling(by_token, by_seal),
        (Some(Err(verdict)), None) | (None, Some(Err(verdict))) => return verdict,
        (None, None) => return Verdict::BadSignature(Unproven::NoSecret),
    };
    let told =
        event::id(&rule.id, request).and_then(|id| Ok((id, event::kind(&rule.event, request)?)));
    let (id, kind) = match told {
        Ok(told) => told,
        Err(why) => return Verdict::Malformed(why),
    };
    Verdict::Valid(Event {
        id,
        kind,
        sent_at: proof
            .sent
            .and_then(|nanos| Timestamp::from_nanosecond(nanos).ok()),
        secret: proof.secret,
    })
}

/// Of two reasons against a request the one that says more: it was signed by the sender, or it has a token at all.
fn more_telling(by_token: Verdict, by_seal: Verdict) -> Verdict {
    let is_unproven = matches!(by_seal, Verdict::BadSignature(_) | Verdict::Malformed(_));
    match by_token {
        Verdict::BadSignature(Unproven::NoSignature { .. }) => by_seal,
        by_token if is_unproven => by_token,
        _ => by_seal,
    }
}

struct Proof {
    secret: usize,
    sent: Option<i128>,
}

/// By the header that holds the secret itself; `None` if no secret is of that kind.
fn by_token(
    rule: &Rule,
    keys: &[Key],
    request: &Received<'_>,
    now: Option<Timestamp>,
) -> Option<Result<Proof, Verdict>> {
    let header = rule.scheme.token.as_ref()?;
    let secrets = keys
        .iter()
        .filter(|key| matches!(key.kind, Kind::Token(_)))
        .count();
    if secrets == 0 {
        return None;
    }
    let mut lines = request.lines(header);
    let value = match (lines.next(), lines.next()) {
        (None, _) => {
            let header = header.clone();
            return Some(Err(Verdict::BadSignature(Unproven::NoSignature { header })));
        }
        (Some(_), Some(_)) => {
            return Some(Err(Verdict::Malformed(Malformed::Twice(header.clone()))));
        }
        (Some(value), None) => value,
    };
    let matching = matching(keys, |key| key.is_token(value));
    let none = Unproven::OtherToken {
        header: header.clone(),
        secrets,
    };
    Some(active(keys, &matching, now, none).map(|secret| Proof { secret, sent: None }))
}

/// By a signature; `None` if no secret can check one.
fn by_seal(
    rule: &Rule,
    keys: &[Key],
    request: &Received<'_>,
    now: Option<Timestamp>,
) -> Option<Result<Proof, Verdict>> {
    let seal = rule.scheme.seal.as_ref()?;
    let secrets = keys
        .iter()
        .filter(|key| !matches!(key.kind, Kind::Token(_)))
        .count();
    if secrets == 0 {
        return None;
    }
    let claim = match read::claim(seal, request) {
        Ok(claim) => claim,
        Err(NoClaim::Unproven(why)) => return Some(Err(Verdict::BadSignature(why))),
        Err(NoClaim::Malformed(why)) => return Some(Err(Verdict::Malformed(why))),
    };
    let matching = matching(keys, |key| is_signed(seal, &claim, request.body, key));
    let none = Unproven::NoMatch {
        header: seal.header.clone(),
        signatures: claim.signatures.len(),
        secrets,
    };
    let secret = match active(keys, &matching, now, none) {
        Ok(secret) => secret,
        Err(verdict) => return Some(Err(verdict)),
    };
    let timely = claim.sent.map_or(Ok(()), |sent| timely(rule, sent, now));
    Some(timely.map(|()| Proof {
        secret,
        sent: claim.sent,
    }))
}

/// Which keys fit. All are tried, so that how long it takes says nothing about which did.
fn matching(keys: &[Key], mut fits: impl FnMut(&Key) -> bool) -> Vec<usize> {
    (0..keys.len())
        .filter(|index| fits(&keys[*index]))
        .collect()
}

/// Whether one of the signatures is this key's over what is signed.
fn is_signed(seal: &Seal, claim: &Claim<'_>, body: &[u8], key: &Key) -> bool {
    let of = |is_edwards: bool| {
        let fits = move |signature: &&Signature| signature.is_edwards == is_edwards;
        claim
            .signatures
            .iter()
            .filter(fits)
            .filter_map(|signature| signature.bytes.as_deref())
    };
    match &key.kind {
        Kind::Mac(secret) => {
            let mut mac = key::mac(secret);
            read::signed(seal, claim, body).for_each(|piece| mac.update(piece));
            of(false).any(|bytes| mac.clone().verify_slice(bytes).is_ok())
        }
        Kind::Edwards(public) => {
            let message: Vec<u8> = read::signed(seal, claim, body).flatten().copied().collect();
            of(true).any(|bytes| key::is_signed(public, &message, bytes))
        }
        Kind::Token(_) => false,
    }
}

/// The first of the keys that fit and have not ended.
fn active(
    keys: &[Key],
    matching: &[usize],
    now: Option<Timestamp>,
    none: Unproven,
) -> Result<usize, Verdict> {
    let for_ever = |index: &&usize| keys[**index].not_after.is_none();
    let lasting = matching.iter().find(for_ever);
    let usable = lasting.or_else(|| matching.iter().find(|index| keys[**index].is_active(now)));
    match (usable, matching.first()) {
        (Some(_), _) if lasting.is_none() && now.is_none() => Err(Verdict::ClockUntrusted),
        (Some(index), _) => Ok(*index),
        (None, Some(index)) => Err(Verdict::BadSignature(Unproven::Ended {
            secret: *index,
            at: keys[*index].not_after.unwrap_or(Timestamp::MIN),
        })),
        (None, None) => Err(Verdict::BadSignature(none)),
    }
}

/// Whether what was signed at `sent` is of now.
fn timely(rule: &Rule, sent: i128, now: Option<Timestamp>) -> Result<(), Verdict> {
    let now = now.ok_or(Verdict::ClockUntrusted)?.as_nanosecond();
    let nanos = |span: Duration| i128::try_from(span.as_nanos()).unwrap_or(i128::MAX);
    // Both are below 2^94 in size, so the difference is far from any overflow.
    let age = now - sent;
    let (past, future) = (rule.tolerance.past, rule.tolerance.future);
    if age > nanos(past) {
        return Err(Verdict::Stale {
            age: span(age),
            limit: past,
        });
    }
    if -age > nanos(future) {
        return Err(Verdict::Future {
            ahead: span(-age),
            limit: future,
        });
    }
    Ok(())
}

/// Whole seconds of a positive number of nanoseconds.
fn span(nanos: i128) -> Duration {
    Duration::from_secs(u64::try_from(nanos / 1_000_000_000).unwrap_or(u64::MAX))
}

impl Verdict {
    /// One word for people and programs: `valid`, `bad-signature`, `stale`, `future`, `malformed`, `clock-untrusted`.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Valid(_) => "valid",
            Self::BadSignature(_) => "bad-signature",
            Self::Stale { .. } => "stale",
            Self::Future { .. } => "future",
            Self::Malformed(_) => "malformed",
            Self::ClockUntrusted => "clock-untrusted",
        }
    }

    /// The status that refuses such a request; `None` if nothing is to be refused. 401 for what is not proven to be the
    /// sender's and of now, 400 for what can't be read, 503 for what the sender shall send again later.
    #[must_use]
    pub fn refusal(&self) -> Option<u16> {
        match self {
            Self::Valid(_) => None,
            Self::BadSignature(_) | Self::Stale { .. } | Self::Future { .. } => Some(401),
            Self::Malformed(_) => Some(400),
            Self::ClockUntrusted => Some(503),
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Valid(_) => f.write_str("signed by the sender"),
            Self::BadSignature(why) => why.fmt(f),
            Self::Stale { age, limit } => write!(
                f,
                "rightly signed, but {} s ago; at most {} s are taken",
                age.as_secs(),
                limit.as_secs()
            ),
            Self::Future { ahead, limit } => write!(
                f,
                "rightly signed, but {} s ahead of this clock; at most {} s are taken",
                ahead.as_secs(),
                limit.as_secs()
            ),
            Self::Malformed(why) => why.fmt(f),
            Self::ClockUntrusted => f.write_str(
                "rightly signed, but this device does not know the time yet, and so not whether that is recent",
            ),
        }
    }
}

impl fmt::Display for Unproven {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSecret => f.write_str("the hook has no secret to verify with"),
            Self::NoSignature { header } => write!(f, "there is no header {header}"),
            Self::NoneNamed { header, name } => {
                write!(f, "{header} holds signatures, but none that is {name}")
            }
            Self::OtherAlgorithm {
                header,
                found,
                taken,
            } => write!(f, "{header} holds {found}, and only {taken} is taken"),
            Self::NoMatch {
                header,
                signatures,
                secrets,
            } => write!(
                f,
                "{header} holds {}, made with none of {}",
                count(*signatures, "signature"),
                count(*secrets, "secret")
            ),
            Self::Ended { secret, at } => {
                write!(f, "signed with secret {}, which ended {at}", secret + 1)
            }
            Self::OtherToken { header, secrets } => {
                write!(f, "{header} is none of {}", count(*secrets, "secret"))
            }
        }
    }
}

fn count(number: usize, what: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {what}{plural}")
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(header) => {
                write!(f, "there is no header {header}, which the signature covers")
            }
            Self::Twice(place) => write!(
                f,
                "{place} is there twice, and nobody knows which one counts"
            ),
            Self::Empty(header) => write!(f, "the header {header} is empty"),
            Self::TooMany(header) => write!(
                f,
                "{header} holds more than {} signatures",
                read::MAX_SIGNATURES
            ),
            Self::Prefix { header, prefix } => write!(f, "{header} does not start with {prefix}"),
            Self::NoVersion(header) => write!(
                f,
                "{header} holds no signature: each is a version, a comma and base64, such as v1,…"
            ),
            Self::NoPair { header, name } => write!(f, "{header} has no {name}=…"),
            Self::Encoding { header, encoding } => {
                write!(f, "the signature in {header} is no {encoding}")
            }
            Self::Time { place, format } => {
                let expected = match format {
                    StampFormat::Rfc3339 => "a time as in RFC 3339",
                    StampFormat::EpochS => "whole seconds since 1970",
                    StampFormat::EpochMs => "whole milliseconds since 1970",
                    StampFormat::EpochUs => "whole microseconds since 1970",
                };
                write!(f, "{place} is not {expected}")
            }
        }
    }
}
