//! How senders sign: rows of one table. A new sender that signs its body with HMAC-SHA256 is a row, or spelled out in the
//! config. The algorithm is the row's, never the request's; SHA-1 is in no row.

use std::fmt;

use crate::pointer::Pointer;

/// How one kind of sender proves that a request is its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scheme {
    /// Its name in the config; [`Scheme::SPELLED_OUT`] if the config says all of it.
    pub name: &'static str,
    /// A header that holds the secret itself.
    pub token: Option<String>,
    /// A signature.
    pub seal: Option<Seal>,
    /// Where the sender writes an event's id, best place first.
    pub id: Vec<Place>,
    /// Where it writes an event's type, best place first.
    pub event: Vec<Place>,
}

/// Where a signature is and what it covers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seal {
    /// The header that holds it.
    pub header: String,
    /// How the header holds it.
    pub holds: Holds,
    /// How its bytes are written.
    pub encoding: Encoding,
    /// What is signed: these, one after the other.
    pub signed: Vec<Part>,
    /// The header that is [`Part::Id`].
    pub id: Option<String>,
    /// What is [`Part::Time`].
    pub time: Option<Stamp>,
    /// How the secret is written.
    pub secret: SecretForm,
}

/// How a header holds signatures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Holds {
    /// One, behind this prefix.
    One(String),
    /// `v1,…` (HMAC) and `v1a,…` (Ed25519), several with spaces between (Standard Webhooks).
    Versions,
    /// `name=…` with commas between; those of this name are signatures.
    Pairs(String),
}

/// How bytes are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// Lower-case hexadecimal.
    Hex,
    /// Upper-case hexadecimal.
    HexUpper,
    /// Base64 (RFC 4648 4), padded or not.
    Base64,
    /// Base64 for URLs (RFC 4648 5), padded or not.
    Base64Url,
}

impl Encoding {
    /// How the config names each.
    pub const NAMES: [(&'static str, Self); 4] = [
        ("hex", Self::Hex),
        ("hex-upper", Self::HexUpper),
        ("base64", Self::Base64),
        ("base64url", Self::Base64Url),
    ];
}

/// For messages: `lower-case hexadecimal`.
impl fmt::Display for Encoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Hex => "lower-case hexadecimal",
            Self::HexUpper => "upper-case hexadecimal",
            Self::Base64 => "base64",
            Self::Base64Url => "base64url",
        })
    }
}

/// A part of what is signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// This text.
    Text(String),
    /// The id's header, as sent.
    Id,
    /// The time, as sent.
    Time,
    /// The body's bytes.
    Body,
}

/// Where the signed time is and how it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stamp {
    /// Where.
    pub at: StampAt,
    /// How. An epoch is a whole number, sign allowed.
    pub format: StampFormat,
}

/// How the signed time is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StampFormat {
    /// Seconds since 1970.
    EpochS,
    /// Milliseconds since 1970.
    EpochMs,
    /// Microseconds since 1970.
    EpochUs,
    /// `2026-11-30T18:00:00Z` (RFC 3339).
    Rfc3339,
}

impl StampFormat {
    /// How the config names each.
    pub const NAMES: [(&'static str, Self); 4] = [
        ("epoch-s", Self::EpochS),
        ("epoch-ms", Self::EpochMs),
        ("epoch-us", Self::EpochUs),
        ("rfc3339", Self::Rfc3339),
    ];
}

/// Where the signed time is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StampAt {
    /// In a header of its own.
    Header(String),
    /// In the signature's header, as the pair of this name.
    Pair(String),
}

/// How a secret is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SecretForm {
    /// The text's bytes are the key, whatever it looks like.
    Text,
    /// Base64; what is written before its last `_` (`whsec_`) says what it is (Standard Webhooks).
    Standard,
    /// Base64.
    Base64,
    /// Hexadecimal.
    Hex,
}

/// Where a value of a request is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// A header.
    Header(String),
    /// A value in the body, which is JSON.
    Body(Pointer),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header(name) => write!(f, "the header {name}"),
            Self::Body(pointer) => write!(f, "{pointer} in the body"),
        }
    }
}

/// One row. Places are pointers if they start with a slash, else headers.
struct Row {
    name: &'static str,
    token: &'static str,
    header: &'static str,
    holds: RowHolds,
    encoding: Encoding,
    signed: &'static str,
    id: &'static str,
    time: RowTime,
    secret: SecretForm,
    event_id: &'static [&'static str],
    event: &'static [&'static str],
}

#[derive(Clone, Copy)]
enum RowHolds {
    One(&'static str),
    Versions,
    Pairs(&'static str),
}

#[derive(Clone, Copy)]
enum RowTime {
    No,
    Header(&'static str, StampFormat),
    Pair(&'static str, StampFormat),
}

/// What most have in common: one hexadecimal HMAC of the body.
const PLAIN: Row = Row {
    name: "",
    token: "",
    header: "",
    holds: RowHolds::One(""),
    encoding: Encoding::Hex,
    signed: "{body}",
    id: "",
    time: RowTime::No,
    secret: SecretForm::Text,
    event_id: &[],
    event: &[],
};

/// Standard Webhooks, and whoever took it over.
const STANDARD: Row = Row {
    name: "standard-webhooks",
    header: "webhook-signature",
    holds: RowHolds::Versions,
    encoding: Encoding::Base64,
    signed: "{id}.{time}.{body}",
    id: "webhook-id",
    time: RowTime::Header("webhook-timestamp", StampFormat::EpochS),
    secret: SecretForm::Standard,
    event_id: &["webhook-id"],
    event: &["/type"],
    ..PLAIN
};

const ROWS: [Row; 14] = [
    STANDARD,
    Row {
        name: "svix",
        header: "svix-signature",
        id: "svix-id",
        time: RowTime::Header("svix-timestamp", StampFormat::EpochS),
        event_id: &["svix-id"],
        event: &["/type", "/event_type"],
        ..STANDARD
    },
    Row {
        name: "github",
        header: "X-Hub-Signature-256",
        holds: RowHolds::One("sha256="),
        event_id: &["X-GitHub-Delivery"],
        event: &["X-GitHub-Event"],
        ..PLAIN
    },
    // The token is older; a secret that starts with whsec_ is a signing token. X-Gitlab-Event-UUID is no id: events that an
    // event caused share it.
    Row {
        name: "gitlab",
        token: "X-Gitlab-Token",
        event_id: &["webhook-id", "Idempotency-Key"],
        event: &["X-Gitlab-Event"],
        ..STANDARD
    },
    Row {
        name: "gitea",
        header: "X-Gitea-Signature",
        event_id: &["X-Gitea-Delivery"],
        event: &["X-Gitea-Event"],
        ..PLAIN
    },
    Row {
        name: "gogs",
        header: "X-Gogs-Signature",
        event_id: &["X-Gogs-Delivery"],
        event: &["X-Gogs-Event"],
        ..PLAIN
    },
    // X-Request-UUID is the cloud's, X-Request-Id the data centre's.
    Row {
        name: "bitbucket",
        header: "X-Hub-Signature",
        holds: RowHolds::One("sha256="),
        event_id: &["X-Request-UUID", "X-Request-Id"],
        event: &["X-Event-Key"],
        ..PLAIN
    },
    // Its whsec_ secrets are text.
    Row {
        name: "stripe",
        header: "Stripe-Signature",
        holds: RowHolds::Pairs("v1"),
        signed: "{time}.{body}",
        time: RowTime::Pair("t", StampFormat::EpochS),
        event_id: &["/id"],
        event: &["/type"],
        ..PLAIN
    },
    Row {
        name: "slack",
        header: "X-Slack-Signature",
        holds: RowHolds::One("v0="),
        signed: "v0:{time}:{body}",
        time: RowTime::Header("X-Slack-Request-Timestamp", StampFormat::EpochS),
        event_id: &["/event_id"],
        event: &["/event/type", "/type"],
        ..PLAIN
    },
    Row {
        name: "shopify",
        header: "X-Shopify-Hmac-SHA256",
        encoding: Encoding::Base64,
        event_id: &["X-Shopify-Webhook-Id"],
        event: &["X-Shopify-Topic"],
        ..PLAIN
    },
    Row {
        name: "pagerduty",
        header: "X-PagerDuty-Signature",
        holds: RowHolds::Pairs("v1"),
        event_id: &["/event/id"],
        event: &["/event/event_type"],
        ..PLAIN
    },
    Row {
        name: "zendesk",
        header: "X-Zendesk-Webhook-Signature",
        encoding: Encoding::Base64,
        signed: "{time}{body}",
        time: RowTime::Header(
            "X-Zendesk-Webhook-Signature-Timestamp",
            StampFormat::Rfc3339,
        ),
        event_id: &["X-Zendesk-Webhook-Invocation-Id"],
        event: &["/type"],
        ..PLAIN
    },
    // Its Sentry-Hook-Timestamp is not signed, so it proves nothing.
    Row {
        name: "sentry",
        header: "Sentry-Hook-Signature",
        event_id: &["Request-ID"],
        event: &["Sentry-Hook-Resource"],
        ..PLAIN
    },
    // Meta's graph API signs as GitHub does, and names neither id nor type outside the body.
    Row {
        name: "meta",
        header: "X-Hub-Signature-256",
        holds: RowHolds::One("sha256="),
        event: &["/object"],
        ..PLAIN
    },
];

impl Scheme {
    /// The name of a scheme that the config spells out.
    pub const SPELLED_OUT: &'static str = "hmac-sha256";

    /// The scheme of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        ROWS.iter().find(|row| row.name == name).map(Row::scheme)
    }

    /// The names of all, in the table's order.
    pub fn names() -> impl Iterator<Item = &'static str> {
        ROWS.iter().map(|row| row.name)
    }

    /// A scheme that the config spells out.
    #[must_use]
    pub fn spelled_out(seal: Seal) -> Self {
        Self {
            name: Self::SPELLED_OUT,
            token: None,
            id: seal.id.iter().cloned().map(Place::Header).collect(),
            seal: Some(seal),
            event: Vec::new(),
        }
    }

    /// Whether the sender signs the time.
    #[must_use]
    pub fn has_time(&self) -> bool {
        self.seal.as_ref().is_some_and(|seal| seal.time.is_some())
    }
}

impl Row {
    fn scheme(&self) -> Scheme {
        let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let place = |text: &&str| match Pointer::parse(text) {
            Ok(pointer) => Place::Body(pointer),
            Err(_) => Place::Header((*text).to_owned()),
        };
        let stamp = |at, format| Some(Stamp { at, format });
        Scheme {
            name: self.name,
            token: some(self.token),
            seal: Some(Seal {
                header: self.header.to_owned(),
                holds: match self.holds {
                    RowHolds::One(prefix) => Holds::One(prefix.to_owned()),
                    RowHolds::Versions => Holds::Versions,
                    RowHolds::Pairs(name) => Holds::Pairs(name.to_owned()),
                },
                encoding: self.encoding,
                signed: parts(self.signed).unwrap_or_default(),
                id: some(self.id),
                time: match self.time {
                    RowTime::No => None,
                    RowTime::Header(name, format) => stamp(StampAt::Header(name.into()), format),
                    RowTime::Pair(name, format) => stamp(StampAt::Pair(name.into()), format),
                },
                secret: self.secret,
            }),
            id: self.event_id.iter().map(place).collect(),
            event: self.event.iter().map(place).collect(),
        }
    }
}

/// Reads what is signed: text with `{id}`, `{time}` and `{body}` in it. `None`: something else is in braces.
#[must_use]
pub fn parts(template: &str) -> Option<Vec<Part>> {
    let mut parts = Vec::new();
    let mut rest = template;
    while let Some((text, behind)) = rest.split_once('{') {
        let (name, behind) = behind.split_once('}')?;
        if !text.is_empty() {
            parts.push(Part::Text(text.to_owned()));
        }
        parts.push(match name {
            "id" => Part::Id,
            "time" => Part::Time,
            "body" => Part::Body,
            _ => return None,
        });
        rest = behind;
    }
    if !rest.is_empty() {
        parts.push(Part::Text(rest.to_owned()));
    }
    Some(parts)
}

/// Writes what [`parts`] reads.
#[must_use]
pub fn template(parts: &[Part]) -> String {
    parts
        .iter()
        .map(|part| match part {
            Part::Text(text) => text.as_str(),
            Part::Id => "{id}",
            Part::Time => "{time}",
            Part::Body => "{body}",
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_signs_its_body_and_the_time_that_it_has() {
        for name in Scheme::names() {
            let scheme = Scheme::named(name).unwrap();
            let seal = scheme.seal.unwrap();
            let has = |part: Part| seal.signed.iter().filter(|own| **own == part).count();
            assert_eq!(has(Part::Body), 1, "{name}");
            assert_eq!(has(Part::Time), usize::from(seal.time.is_some()), "{name}");
            assert_eq!(has(Part::Id), usize::from(seal.id.is_some()), "{name}");
            assert!(!seal.header.is_empty(), "{name}");
        }
        assert_eq!(Scheme::named("Github"), None);
        assert_eq!(Scheme::named(""), None);
    }

    #[test]
    fn what_is_signed_reads_and_writes_the_same() {
        for text in [
            "{body}",
            "v0:{time}:{body}",
            "{id}.{time}.{body}",
            "a{body}b",
            "}",
        ] {
            assert_eq!(
                parts(text).map(|parts| template(&parts)).as_deref(),
                Some(text)
            );
        }
        for text in ["{", "{body", "{url}", "{}", "{{body}}"] {
            assert_eq!(parts(text), None, "{text}");
        }
    }
}
