//! `[door]` and `[hook.NAME]`: every form, and what is warned of.

use super::*;
use crate::clock::Timestamp;
use crate::hook::scheme::{Holds, SecretForm, StampAt, StampFormat};
use crate::hook::{Place, Scheme, Tolerance};

const SOURCE: &str = "[source.s]\nurl = \"https://h.example/api/x\"\nkey = \"/id\"\n";
const DOOR: &str = "[door]\nlisten = \"127.0.0.1:7460\"\n";

/// The hook of these lines.
fn hook(lines: &str) -> Hook {
    let text = format!("{SOURCE}{DOOR}[hook.h]\n{lines}\n");
    config(&text)
        .hooks
        .remove("h")
        .expect("it was just written")
}

/// The same of a scheme.
fn with_scheme(scheme: &str) -> Hook {
    hook(&format!("scheme = {scheme}\nsecret = {{ env = \"S\" }}"))
}

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

#[test]
fn three_lines_make_a_hook() {
    let hook = with_scheme("\"standard-webhooks\"");
    let expected = Hook {
        name: "h".to_owned(),
        path: "/hooks/h".to_owned(),
        rule: crate::hook::Rule::new(Scheme::named("standard-webhooks").unwrap()),
        secrets: vec![HookSecret {
            secret: Secret::Env("S".to_owned()),
            not_after: None,
        }],
        ack_status: 202,
        max_body: 1 << 20,
        wakes: Vec::new(),
        fetch: None,
        records: None,
        events: Vec::new(),
        challenge: None,
        keep: seconds(30 * 86_400),
        keep_ids: seconds(30 * 86_400),
        every: seconds(60),
        quota: 64 << 20,
    };
    assert_eq!(hook, expected);
}

#[test]
fn a_door_has_addresses_of_both_kinds_and_caps() {
    let door = config("[door]\nlisten = [\"0.0.0.0:7460\", \"[::1]:7461\", \"systemd:hooks\"]\ntls = { cert = \"c.pem\", key = { credential = \"k\" } }\n\
                       limits = { connections = 4, body = \"64KiB\", idle = \"5s\" }\n").door.unwrap();
    let address = |text: &str| Listen::Address(text.parse().unwrap());
    let expected = [
        address("0.0.0.0:7460"),
        address("[::1]:7461"),
        Listen::Systemd("hooks".to_owned()),
    ];
    assert_eq!(door.listen, expected);
    let tls = door.tls.unwrap();
    assert_eq!(
        (tls.cert, tls.key),
        (
            "/etc/gleaner/c.pem".into(),
            Secret::Credential("k".to_owned())
        )
    );
    let limits = DoorLimits {
        connections: 4,
        per_peer: 4,
        body: 64 << 10,
        idle: seconds(5),
        ..DoorLimits::default()
    };
    assert_eq!(door.limits, limits);
    // A hook's body follows the door's cap.
    let text = "[door]\nlisten = \"[::]:1\"\nlimits = { body = \"64KiB\" }\n[hook.h]\nscheme = \"github\"\nsecret = { env = \"S\" }\n";
    assert_eq!(config(text).hooks["h"].max_body, 64 << 10);
}

#[test]
fn secrets_are_one_or_several_each_with_its_end() {
    let hook = hook(
        "scheme = \"github\"\nsecret = [{ file = \"new\" }, { file = \"/old\", not_after = 2027-01-31T00:00:00+01:00 }, \
         { env = \"S\", not_after = \"2026-01-01T00:00:00Z\" }]",
    );
    let end = |text: &str| Some(text.parse::<Timestamp>().unwrap());
    let entry = |secret, not_after| HookSecret { secret, not_after };
    let expected = [
        entry(Secret::File("/etc/gleaner/new".into()), None),
        entry(Secret::File("/old".into()), end("2027-01-30T23:00:00Z")),
        entry(Secret::Env("S".to_owned()), end("2026-01-01T00:00:00Z")),
    ];
    assert_eq!(hook.secrets, expected);
}

#[test]
fn keys_are_read_when_they_are_used() {
    let hook = with_scheme("\"svix\"");
    let keys = |value: Option<&'static str>| hook.keys(&move |_| value.map(OsString::from));
    assert_eq!(
        keys(Some("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n"))
            .unwrap()
            .len(),
        1
    );
    for (value, why) in [
        (
            None,
            "hook.h: secret { env = \"S\" }: the environment variable is not set: set it where the agent is started",
        ),
        (
            Some("whsec_"),
            "hook.h: secret { env = \"S\" }: the secret is empty: anybody could sign with it",
        ),
        (
            Some(""),
            "hook.h: secret { env = \"S\" }: it is empty: an empty secret would be sent as no secret",
        ),
        (
            Some("whsk_AAAA"),
            "hook.h: secret { env = \"S\" }: this is the sender's private key (whsk_); a receiver has the public one (whpk_)",
        ),
    ] {
        assert_eq!(keys(value).unwrap_err().to_string(), why);
    }
    let error = keys(Some("hunter2 hunter2")).unwrap_err();
    assert!(!format!("{error} {error:?}").contains("hunter2"));
}

#[test]
fn a_tolerance_has_one_side_or_two() {
    for (text, past, future) in [
        ("\"1h\"", 3600, 3600),
        ("{ past = \"1h\" }", 3600, 300),
        ("{ future = \"0s\" }", 300, 0),
        ("{ past = \"1h\", future = \"1m\" }", 3600, 60),
    ] {
        let hook = hook(&format!(
            "scheme = \"slack\"\nsecret = {{ env = \"S\" }}\ntolerance = {text}"
        ));
        let expected = Tolerance {
            past: seconds(past),
            future: seconds(future),
        };
        assert_eq!(hook.rule.tolerance, expected, "{text}");
    }
}

#[test]
fn a_scheme_may_be_spelled_out() {
    let hook = with_scheme(
        "{ hmac-sha256 = { header = \"X-Sign\", pair = \"v1\", encoding = \"base64url\", signed = \"{id}|{time}|{body}\", \
         id = \"X-Id\", time = { pair = \"t\", format = \"epoch-ms\" }, secret_as = \"hex\" } }",
    );
    let seal = hook.rule.scheme.seal.unwrap();
    assert_eq!(seal.holds, Holds::Pairs("v1".to_owned()));
    assert_eq!(
        crate::hook::scheme::template(&seal.signed),
        "{id}|{time}|{body}"
    );
    let stamp = seal.time.unwrap();
    assert_eq!(
        (stamp.at, stamp.format),
        (StampAt::Pair("t".to_owned()), StampFormat::EpochMs)
    );
    assert_eq!(seal.secret, SecretForm::Hex);
    // The id that is signed is the event's.
    assert_eq!(hook.rule.id, [Place::Header("X-Id".to_owned())]);
    let plain = with_scheme(
        "{ hmac-sha256 = { header = \"X-Sign\", encoding = \"hex\", signed = \"{time}.{body}\", time = \"X-Time\" } }",
    );
    let stamp = plain.rule.scheme.seal.unwrap().time.unwrap();
    assert_eq!(
        (stamp.at, stamp.format),
        (StampAt::Header("X-Time".to_owned()), StampFormat::EpochS)
    );
}

#[test]
fn ids_and_types_have_places() {
    let places = |key: &str, value: &str| {
        let hook = hook(&format!(
            "scheme = \"github\"\nsecret = {{ env = \"S\" }}\n{key} = {value}"
        ));
        if key == "id" {
            hook.rule.id
        } else {
            hook.rule.event
        }
    };
    let header = Place::Header("X-Id".to_owned());
    let body = Place::Body(pointer("/id"));
    assert_eq!(
        places("event_type", "\"/id\""),
        [Place::Body(pointer("/id"))]
    );
    assert_eq!(places("id", "\"/id\""), [Place::Body(pointer("/id"))]);
    let only = places("id", "{ header = \"X-Id\" }");
    assert_eq!(only, std::slice::from_ref(&header));
    assert_eq!(
        places("id", "[{ header = \"X-Id\" }, \"/id\"]"),
        [header, body]
    );
    assert_eq!(places("id", "\"body\""), []);
}

#[test]
fn slack_is_answered_unless_the_config_says_no() {
    let challenge = |scheme: &str, line: &str| {
        hook(&format!(
            "scheme = \"{scheme}\"\nsecret = {{ env = \"S\" }}\n{line}"
        ))
        .challenge
    };
    assert_eq!(challenge("slack", ""), Some(Setup::Slack));
    assert_eq!(challenge("slack", "challenge = \"none\""), None);
    assert_eq!(challenge("github", ""), None);
    assert_eq!(
        challenge("github", "challenge = \"graph\""),
        Some(Setup::Graph)
    );
    let verify_token = Secret::Env("V".to_owned());
    let line = "challenge = { meta = { verify_token = { env = \"V\" } } }";
    assert_eq!(challenge("meta", line), Some(Setup::Meta { verify_token }));
}

#[test]
fn events_mean_something() {
    let hook = hook(
        "scheme = \"stripe\"\nsecret = { env = \"S\" }\nwakes = \"s\"\nfetch = { source = \"s\", url = \"parts/{/data/id}\" }\n\
         events = [\"part.*\", \"ping\"]\nkeep = \"1d\"\nevery = \"0s\"",
    );
    assert_eq!(hook.wakes, ["s"]);
    let fetch = hook.fetch.as_ref().unwrap();
    assert_eq!(
        (fetch.source.as_str(), fetch.url.to_string().as_str()),
        ("s", "parts/{/data/id}")
    );
    assert!(hook.wants(Some("part.changed")) && hook.wants(Some("ping")));
    assert!(!hook.wants(Some("pong")) && !hook.wants(None));
    assert_eq!(
        (hook.keep, hook.keep_ids),
        (seconds(86_400), seconds(7 * 86_400))
    );
    assert_eq!(hook.every, Duration::ZERO);
}

#[test]
fn what_deserves_a_word() {
    let warnings = |text: &str| config(&format!("{SOURCE}{text}")).warnings;
    assert_eq!(
        warnings(DOOR),
        ["door: there is no [hook.NAME]: whoever knocks finds nothing"]
    );
    let idle = format!("{DOOR}[hook.h]\nscheme = \"github\"\nsecret = {{ env = \"S\" }}\n");
    assert_eq!(
        warnings(&idle),
        [
            "hook.h: without `wakes`, `fetch` and `records` its events are stored and nothing is done"
        ]
    );
    let token = "[hook.h]\nscheme = \"gitlab\"\nsecret = { env = \"S\" }\nwakes = \"s\"\n";
    let open = "[door]\nlisten = \"[::]:1\"\n";
    assert_eq!(
        warnings(&format!("{open}{token}")),
        [
            "hook.h: its scheme may send the secret itself, and [door] has no `tls`: whoever is on the way can read it"
        ]
    );
    assert_eq!(warnings(&format!("{DOOR}{token}")), Vec::<String>::new());
}

#[test]
fn a_secret_that_everybody_may_read_is_named() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = tempfile::tempdir().unwrap();
    for name in ["s", "k"] {
        std::fs::write(dir.path().join(name), "x").unwrap();
        std::fs::set_permissions(
            dir.path().join(name),
            std::fs::Permissions::from_mode(0o644),
        )
        .unwrap();
    }
    let path = dir.path().join("gleaner.toml");
    let text = format!(
        "{SOURCE}{DOOR}tls = {{ cert = \"c\", key = {{ file = \"k\" }} }}\n\
         [hook.h]\nscheme = \"github\"\nsecret = {{ file = \"s\" }}\nwakes = \"s\"\n"
    );
    std::fs::write(&path, text).unwrap();
    let warnings = load(&path, &no_env).unwrap().warnings;
    let [hook, door] = &warnings[..] else {
        panic!("{warnings:?}")
    };
    assert!(hook.starts_with("hook.h: every user may read"), "{hook}");
    assert!(door.starts_with("door: every user may read"), "{door}");
}
