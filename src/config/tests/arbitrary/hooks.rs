//! Any door and any hook.

use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

use super::*;
use crate::clock::Timestamp;
use crate::hook::fetch::UrlTemplate;
use crate::hook::scheme::{Encoding, Holds, Part, Seal, SecretForm, Stamp, StampAt, StampFormat};
use crate::hook::{Place, Rule, Scheme, Tolerance};

pub(super) fn door() -> impl Strategy<Value = Door> {
    let limits = (
        1..=1024_usize,
        any::<u16>(),
        1..=1_usize << 20,
        span(1),
        span(1),
        span(1),
    )
        .prop_map(
            |(connections, per_peer, head, head_time, body_time, idle)| DoorLimits {
                connections,
                per_peer: 1 + usize::from(per_peer) % connections,
                head,
                body: 64 << 20,
                memory: (64 << 20) + head,
                head_time,
                body_time,
                idle,
            },
        );
    let address = (any::<std::net::IpAddr>(), 1..=u16::MAX)
        .prop_map(|(ip, port)| std::net::SocketAddr::new(ip, port));
    let name = option::of("[a-z.\"-]{1,9}");
    let listen = prop::collection::btree_set(address, 1..3);
    (listen, name, option::of(secret()), limits).prop_map(|(listen, name, key, limits)| Door {
        listen: listen
            .into_iter()
            .map(Listen::Address)
            .chain(name.map(Listen::Systemd))
            .collect(),
        tls: key.map(|key| DoorTls {
            cert: "/c.pem".into(),
            key,
        }),
        limits,
    })
}

fn seal() -> impl Strategy<Value = Seal> {
    let format = select(vec![
        StampFormat::Rfc3339,
        StampFormat::EpochS,
        StampFormat::EpochMs,
        StampFormat::EpochUs,
    ]);
    let forms = select(vec![
        SecretForm::Text,
        SecretForm::Base64,
        SecretForm::Hex,
        SecretForm::Standard,
    ]);
    let encoding = select(Encoding::NAMES.map(|(_, encoding)| encoding).to_vec());
    let holds = prop_oneof![
        "[!-~]{0,6}".prop_map(Holds::One),
        "[a-z0-9\"]{1,4}".prop_map(Holds::Pairs),
    ];
    (
        holds,
        encoding,
        any::<bool>(),
        option::of((any::<bool>(), format)),
        "[a-z.:\"é]{0,3}",
        forms,
    )
        .prop_map(|(holds, encoding, has_id, time, text, secret)| {
            let is_pair = matches!(holds, Holds::Pairs(_));
            let time = time.map(|(in_pair, format)| Stamp {
                at: match in_pair && is_pair {
                    true => StampAt::Pair("t".to_owned()),
                    false => StampAt::Header("X-Time".to_owned()),
                },
                format,
            });
            let mut signed = vec![Part::Body];
            signed.extend((!text.is_empty()).then_some(Part::Text(text)));
            signed.extend(time.iter().map(|_| Part::Time));
            signed.extend(has_id.then_some(Part::Id));
            Seal {
                header: "X-Sign".to_owned(),
                holds,
                encoding,
                signed,
                id: has_id.then(|| "X-Id".to_owned()),
                time,
                secret,
            }
        })
}

fn places(least: usize) -> impl Strategy<Value = Vec<Place>> {
    let place = prop_oneof![
        "X-[a-z]{1,5}".prop_map(Place::Header),
        "/[a-z \"]{0,4}".prop_map(|text| Place::Body(pointer(&text))),
    ];
    prop::collection::vec(place, least..3)
}

fn rule() -> impl Strategy<Value = Rule> {
    let named = select(Scheme::names().collect::<Vec<_>>());
    let scheme = prop_oneof![
        named.prop_map(|name| Scheme::named(name).expect("it is one of the names")),
        seal().prop_map(Scheme::spelled_out),
    ];
    (
        scheme,
        span(0),
        span(0),
        option::of(places(0)),
        option::of(places(1)),
    )
        .prop_map(|(scheme, past, future, id, event)| {
            let mut rule = Rule::new(scheme);
            if rule.scheme.has_time() {
                rule.tolerance = Tolerance { past, future };
            }
            rule.id = id.unwrap_or(rule.id);
            rule.event = event.unwrap_or(rule.event);
            rule
        })
}

pub(super) fn hook() -> impl Strategy<Value = Hook> {
    let entry =
        (secret(), option::of(-9_000_000_000..9_000_000_000_i64)).prop_map(|(secret, end)| {
            let not_after = end.map(|second| Timestamp::from_second(second).expect("in range"));
            HookSecret { secret, not_after }
        });
    let secrets = prop::collection::vec(entry, 1..3);
    let challenge = prop_oneof![
        Just(None),
        Just(Some(Setup::Slack)),
        Just(Some(Setup::Graph)),
        secret().prop_map(|verify_token| Some(Setup::Meta { verify_token })),
    ];
    let meaning = prop_oneof![
        Just((None, None)),
        Just((
            Some(Fetch {
                source: "s".to_owned(),
                url: UrlTemplate::parse("a/{/b \"}?c={/d}").expect("it is one"),
                at: Pointer::parse("/data").expect("it is one"),
                key: Vec::new(),
            }),
            None
        )),
        place().prop_map(|at| (
            None,
            Some(Carried {
                source: "s".to_owned(),
                at
            })
        )),
    ];
    let events = prop::collection::vec("[a-z./\"]{1,5}\\*?", 0..3);
    let times = (span(0), span(7 * DAY_MS), span(0));
    let sizes = (
        1..=64_usize << 20,
        1..1_u64 << 40,
        any::<bool>(),
        select(vec![200, 201, 202, 204]),
    );
    (rule(), secrets, challenge, meaning, events, times, sizes).prop_map(
        |(rule, secrets, challenge, (fetch, records), events, (keep, keep_ids, every), sizes)| {
            let (max_body, quota, wakes, ack_status) = sizes;
            Hook {
                name: "h".to_owned(),
                path: "/in/h".to_owned(),
                events: if rule.event.is_empty() {
                    Vec::new()
                } else {
                    events
                },
                rule,
                secrets,
                ack_status,
                max_body,
                wakes: wakes.then(|| "s".to_owned()).into_iter().collect(),
                fetch,
                records,
                challenge,
                keep,
                keep_ids,
                every,
                quota,
            }
        },
    )
}
