//! Anything at all: nothing panics, what is signed is taken, and what is touched is not.
//!
//! `PROPTEST_CASES=1000000 cargo test --lib hook::tests::arbitrary` tries a million of each.

use proptest::prelude::*;
use proptest::sample::{Index, select};

use super::*;
use crate::hook::scheme::{Encoding, Holds, Part, SecretForm, StampAt, StampFormat};

fn any_scheme() -> impl Strategy<Value = &'static str> {
    select(Scheme::names().collect::<Vec<_>>())
}

/// A header's value as anybody may send it, or nearly as a sender does.
fn any_value() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..80),
        "(v1|v1a|v0|t|sha256|sha1|)[,=](-?[0-9]{0,20}|[0-9a-f]{62,66}|[A-Za-z0-9+/]{40,44}=?)[ ,]?(v1[,=][0-9a-f]{0,64})?"
            .prop_map(String::into_bytes),
        "-?[0-9]{1,20}".prop_map(String::into_bytes),
        "[0-9]{4}-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-6][0-9](Z|[+-][0-2][0-9]:00)".prop_map(String::into_bytes),
    ]
}

/// The headers that the schemes look at, and one that none does.
fn any_header(scheme: &str) -> impl Strategy<Value = (String, Vec<u8>)> + use<> {
    let rule = rule(scheme);
    let seal = rule.scheme.seal.unwrap();
    let mut names = vec![seal.header, "X-Other".to_owned()];
    names.extend(seal.id);
    names.extend(rule.scheme.token);
    if let Some(StampAt::Header(name)) = seal.time.map(|stamp| stamp.at) {
        names.push(name);
    }
    for place in rule.id.iter().chain(&rule.event) {
        if let Place::Header(name) = place {
            names.push(name.clone());
        }
    }
    (select(names), any_value())
}

/// What a sender of `scheme` sends.
fn signed(scheme: &str, secret: &[u8], id: &str, body: &[u8]) -> Sent {
    let rule = rule(scheme);
    let seal = rule.scheme.seal.as_ref().unwrap();
    let time = match seal.time.as_ref().map(|stamp| stamp.format) {
        Some(StampFormat::Rfc3339) => at(NOW).to_string(),
        _ => NOW.to_string(),
    };
    let mut message = Vec::new();
    for part in &seal.signed {
        message.extend_from_slice(match part {
            Part::Text(text) => text.as_bytes(),
            Part::Id => id.as_bytes(),
            Part::Time => time.as_bytes(),
            Part::Body => body,
        });
    }
    let mac = hmac(secret, &message);
    let written = match seal.encoding {
        Encoding::Hex => hex(&mac),
        _ => base64(&mac),
    };
    let mut value = match &seal.holds {
        Holds::One(prefix) => format!("{prefix}{written}"),
        Holds::Versions => format!("v1,{written}"),
        Holds::Pairs(name) => format!("{name}={written}"),
    };
    let mut sent = Sent::new(body);
    if let Some(name) = &seal.id {
        sent = sent.with(name, id);
    }
    match seal.time.as_ref().map(|stamp| &stamp.at) {
        Some(StampAt::Header(name)) => sent = sent.with(name, &time),
        Some(StampAt::Pair(name)) => value = format!("{name}={time},{value}"),
        None => {}
    }
    sent.with(&seal.header, value)
}

/// A key of these bytes, as the scheme's secret is written.
fn key_of(scheme: &str, secret: &[u8]) -> Key {
    let rule = rule(scheme);
    let text = match rule.scheme.seal.as_ref().unwrap().secret {
        SecretForm::Standard => format!("whsec_{}", base64(secret)).into_bytes(),
        _ => secret.to_vec(),
    };
    Key::new(&rule.scheme, &text, None).unwrap()
}

proptest! {
    #[test]
    fn no_header_makes_a_parser_panic(
        (scheme, headers) in any_scheme().prop_flat_map(|scheme| {
            (Just(scheme), prop::collection::vec(any_header(scheme), 0..6))
        }),
        body in prop::collection::vec(any::<u8>(), 0..64),
        now in prop::option::of(any::<i64>()),
    ) {
        let keys = [key_of(scheme, b"k"), key_of(scheme, b"another")];
        let mut sent = Sent::new(&body);
        sent.headers = headers;
        let now = now.map(|second| Timestamp::from_second(second).unwrap_or(Timestamp::MAX));
        let verdict = sent.judged(&rule(scheme), &keys, now);
        prop_assert_ne!(verdict.word(), "valid");
        prop_assert!(!verdict.to_string().is_empty());
    }

    #[test]
    fn what_is_signed_is_taken_and_what_is_touched_in_one_bit_is_not(
        scheme in any_scheme(),
        secret in prop::collection::vec(any::<u8>(), 1..90),
        id in "[a-z0-9_-]{1,20}",
        body in prop::collection::vec(any::<u8>(), 0..64),
        touch: Index,
        bit in 0..8_u8,
    ) {
        let good = signed(scheme, &secret, &id, &body);
        let (rule, keys) = (rule(scheme), [key_of(scheme, &secret)]);
        let judged = |sent: &Sent| sent.judged(&rule, &keys, Some(at(NOW)));
        let verdict = judged(&good);
        prop_assert_eq!(verdict.word(), "valid", "{}", verdict);

        let sizes: Vec<usize> = good.headers.iter().map(|(_, value)| value.len()).chain([body.len()]).collect();
        let mut place = touch.index(sizes.iter().sum());
        let mut touched = good.clone();
        for (index, size) in sizes.into_iter().enumerate() {
            if place < size {
                let bytes = match touched.headers.get_mut(index) {
                    Some((_, value)) => value,
                    None => &mut touched.body,
                };
                bytes[place] ^= 1 << bit;
                break;
            }
            place -= size;
        }
        let verdict = judged(&touched);
        prop_assert_ne!(verdict.word(), "valid", "{:?}", touched);
        // Another secret's.
        let mut other = secret.clone();
        other[0] ^= 1 << bit;
        let verdict = good.judged(&rule, &[key_of(scheme, &other)], Some(at(NOW)));
        prop_assert_eq!(verdict.word(), "bad-signature");
    }

    #[test]
    fn no_secret_makes_a_key_panic(scheme in any_scheme(), secret in prop::collection::vec(any::<u8>(), 0..40), prefix in select(vec!["", "whsec_", "whpk_", "whsk_"])) {
        let secret = [prefix.as_bytes(), &secret].concat();
        if let Err(error) = Key::new(&rule(scheme).scheme, &secret, None) {
            prop_assert!(!error.to_string().is_empty());
        }
    }
}
