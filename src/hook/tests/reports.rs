//! What went wrong in other receivers, by kind, and what is asked of this one.

use ring::signature::{Ed25519KeyPair, KeyPair as _};

use super::*;
use crate::hook::verify::{Malformed, Unproven};

#[test]
fn the_bytes_count_not_the_json_that_they_are() {
    let signed = github(b"{ \"b\": 1.0,\r\n \"a\": \"\\u00e9\" }");
    assert_eq!(signed.word("github", SECRET, NOW), "valid");
    for body in [
        &b"{\"b\":1.0,\"a\":\"\xc3\xa9\"}"[..],
        b"{ \"b\": 1.0,\n \"a\": \"\\u00e9\" }",
        b"{ \"b\": 1.0,\r\n \"a\": \"\\u00e9\" }\n",
        b"{ \"b\": 1.0,\r\n \"a\": \"\\u00E9\" }",
    ] {
        let mut other = signed.clone();
        other.body = body.to_vec();
        assert_eq!(other.word("github", SECRET, NOW), "bad-signature");
    }
}

#[test]
fn a_body_that_is_no_utf8_is_judged_by_its_bytes() {
    let body = b"\xff\xfe\x00{\"a\":\"\xc3\x28\"}";
    assert_eq!(github(body).word("github", SECRET, NOW), "valid");
    assert_eq!(stripe(&now(), body).word("stripe", SECRET, NOW), "valid");
    let signed = standard(&now(), body, &v1(&now(), body));
    assert_eq!(signed.word("standard-webhooks", WHSEC, NOW), "valid");
    // What reads it as text first replaces what is none, and then different bodies are the same.
    let mut lossy = github(body);
    lossy.body = String::from_utf8_lossy(body).into_owned().into_bytes();
    assert_eq!(lossy.word("github", SECRET, NOW), "bad-signature");
}

#[test]
fn lengths_are_bytes_not_characters() {
    let body = "{\"name\":\"Grüße ♥♥♥\"}".as_bytes();
    assert_eq!(github(body).word("github", SECRET, NOW), "valid");
    let mut cut = github(body);
    cut.body
        .truncate(std::str::from_utf8(body).unwrap().chars().count());
    assert_eq!(cut.word("github", SECRET, NOW), "bad-signature");
    // Secrets too.
    let secret = "Schlüssel ♥";
    let signature = format!("sha256={}", hex(&hmac(secret.as_bytes(), body)));
    let sent = Sent::new(body).with("X-Hub-Signature-256", signature);
    assert_eq!(sent.word("github", secret, NOW), "valid");
}

#[test]
fn the_algorithm_is_never_taken_from_a_header() {
    let body = b"{}";
    let right = hex(&hmac(SECRET.as_bytes(), body));
    for value in [
        // An HMAC-SHA1 of that length, and the right digest under other names.
        "sha1=0123456789abcdef0123456789abcdef01234567".to_owned(),
        format!("sha1={right}"),
        format!("sha512={right}"),
        format!("none={right}"),
        format!("md5={right}"),
    ] {
        for scheme in ["github", "bitbucket"] {
            let header = if scheme == "github" {
                "X-Hub-Signature-256"
            } else {
                "X-Hub-Signature"
            };
            let sent = Sent::new(body).with(header, &value);
            let verdict = sent.judged(&rule(scheme), &[key(scheme, SECRET)], Some(at(NOW)));
            let is_other = matches!(
                verdict,
                Verdict::BadSignature(Unproven::OtherAlgorithm { .. })
            );
            assert!(is_other, "{scheme} {value}: {verdict}");
        }
    }
    // The older header with SHA-1 is no way in.
    let sent = Sent::new(body).with("X-Hub-Signature", format!("sha256={right}"));
    assert_eq!(sent.word("github", SECRET, NOW), "bad-signature");
    // A version says which kind of key can check it, and the key's kind is the config's.
    for version in ["v0", "v2", "V1", "sha256", ""] {
        let signature = v1(&now(), body).replacen("v1", version, 1);
        let sent = standard(&now(), body, &signature);
        assert_eq!(
            sent.word("standard-webhooks", WHSEC, NOW),
            "bad-signature",
            "{version}"
        );
    }
    let sent = stripe(&now(), body);
    let (_, value) = &sent.headers[0];
    let v0 = String::from_utf8(value.clone())
        .unwrap()
        .replace("v1=", "v0=");
    let sent = Sent::new(body).with("Stripe-Signature", v0);
    assert_eq!(sent.word("stripe", SECRET, NOW), "bad-signature");
}

#[test]
fn a_public_key_is_no_hmac_secret() {
    let pair = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap();
    let public = pair.public_key().as_ref();
    let whpk = format!("whpk_{}", base64(public));
    let body = b"{\"type\":\"part.changed\"}";
    let signature = base64(pair.sign(&content(&now(), body)).as_ref());
    let good = standard(&now(), body, &format!("v1a,{signature}"));
    for scheme in ["standard-webhooks", "gitlab"] {
        // GitLab knows no public keys: there it is a token that nobody sent.
        let expected = if scheme == "gitlab" {
            "bad-signature"
        } else {
            "valid"
        };
        assert_eq!(good.word(scheme, &whpk, NOW), expected, "{scheme}");
    }
    // Everybody knows the public key, so everybody could make this HMAC.
    let forged = base64(&hmac(public, &content(&now(), body)));
    for version in ["v1", "v1a"] {
        let sent = standard(&now(), body, &format!("{version},{forged}"));
        assert_eq!(
            sent.word("standard-webhooks", &whpk, NOW),
            "bad-signature",
            "{version}"
        );
    }
    let renamed = standard(&now(), body, &format!("v1,{signature}"));
    assert_eq!(
        renamed.word("standard-webhooks", &whpk, NOW),
        "bad-signature"
    );
    let mut other = good.clone();
    other.body.push(b' ');
    assert_eq!(other.word("standard-webhooks", &whpk, NOW), "bad-signature");
    // Both kinds may be configured while the sender changes over.
    let keys = [
        key("standard-webhooks", WHSEC),
        key("standard-webhooks", &whpk),
    ];
    let Verdict::Valid(event) = good.judged(&rule("standard-webhooks"), &keys, Some(at(NOW)))
    else {
        panic!("it is signed");
    };
    assert_eq!(
        (event.secret, event.kind.as_deref()),
        (1, Some("part.changed"))
    );
}

#[test]
fn an_empty_secret_is_refused_before_any_request() {
    let scheme = rule("github").scheme;
    assert_eq!(Key::new(&scheme, b"", None), Err(KeyError::Empty));
    let verdict = github(b"{}").judged(&rule("github"), &[], Some(at(NOW)));
    assert_eq!(verdict, Verdict::BadSignature(Unproven::NoSecret));
}

#[test]
fn the_newline_at_the_end_of_a_secret_file_is_no_part_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("secret");
    for (ending, is_secret) in [
        ("", true),
        ("\n", true),
        ("\r\n", true),
        ("\n\n", false),
        (" ", false),
    ] {
        std::fs::write(&path, format!("{SECRET}{ending}")).unwrap();
        let read = crate::config::Secret::File(path.clone()).resolve(&|_| None);
        let word = read.map_or("config-error", |secret| {
            let key = key("github", secret.expose());
            github(b"{}").judged(&rule("github"), &[key], None).word()
        });
        assert_eq!(word == "valid", is_secret, "{ending:?}: {word}");
    }
}

#[test]
fn any_signature_may_be_any_secrets() {
    let body = b"{}";
    let old = hex(&hmac(b"old", &[now().as_bytes(), b".{}"].concat()));
    let new = hex(&hmac(b"new", &[now().as_bytes(), b".{}"].concat()));
    let none = "0".repeat(64);
    let keys = |names: &[&str]| {
        names
            .iter()
            .map(|name| key("stripe", name))
            .collect::<Vec<_>>()
    };
    for (header, secrets, word) in [
        (format!("t={NOW},v1={old},v1={new}"), &["new"][..], "valid"),
        (format!("t={NOW},v1={new},v1={old}"), &["new"], "valid"),
        (format!("v1={none},t={NOW}, v1={new}"), &["new"], "valid"),
        (format!("t={NOW},v1={old}"), &["new", "old"], "valid"),
        (
            format!("t={NOW},v1={none},v0={new}"),
            &["new", "old"],
            "bad-signature",
        ),
        (
            format!("t={NOW},v1=bad_signature"),
            &["new"],
            "bad-signature",
        ),
        (format!("t={NOW},v1=,v1={new}"), &["new"], "valid"),
        (format!("t={NOW},scheme={new}"), &["new"], "bad-signature"),
    ] {
        let sent = Sent::new(body).with("Stripe-Signature", &header);
        let verdict = sent.judged(&rule("stripe"), &keys(secrets), Some(at(NOW)));
        assert_eq!(verdict.word(), word, "{header}: {verdict}");
    }
    let wrong = format!("v1,{}", base64(&[1; 32]));
    let good = v1(&now(), body);
    for signature in [
        format!("{wrong} {good}"),
        format!("{good} {wrong}"),
        format!("v1a,x v2,y {good}"),
    ] {
        let sent = standard(&now(), body, &signature);
        assert_eq!(
            sent.word("standard-webhooks", WHSEC, NOW),
            "valid",
            "{signature}"
        );
    }
}

#[test]
fn a_token_without_a_comma_is_no_reason_to_fall_over() {
    let body = b"{}";
    let good = v1(&now(), body);
    for (signature, word) in [
        (format!("v1 {good}"), "valid"),
        (format!("{good} v1"), "valid"),
        (format!("  {good}  "), "valid"),
        ("v1".to_owned(), "malformed"),
        (good.replace(',', ""), "malformed"),
        (good.replace(',', "="), "malformed"),
        (" ".to_owned(), "malformed"),
        (String::new(), "malformed"),
        (",".to_owned(), "bad-signature"),
        ("v1,".to_owned(), "bad-signature"),
        ("v1,g0hM9".to_owned(), "bad-signature"),
        ("v1,é".to_owned(), "bad-signature"),
        (good[..good.len() - 4].to_owned(), "bad-signature"),
    ] {
        let sent = standard(&now(), body, &signature);
        assert_eq!(
            sent.word("standard-webhooks", WHSEC, NOW),
            word,
            "{signature:?}"
        );
    }
    for (header, word) in [
        ("i'm not even a real signature header", "malformed"),
        ("", "malformed"),
        ("v1=00", "malformed"),
        ("t=,v1=00", "malformed"),
        ("t=1,t=1,v1=00", "malformed"),
        ("t=1", "bad-signature"),
    ] {
        let sent = Sent::new(body).with("Stripe-Signature", header);
        assert_eq!(sent.word("stripe", SECRET, 1), word, "{header:?}");
    }
}

#[test]
fn a_signature_that_cannot_be_one_is_malformed() {
    let right = hex(&hmac(SECRET.as_bytes(), b"{}"));
    for (scheme, header, value, word) in [
        ("github", "X-Hub-Signature-256", right.clone(), "malformed"),
        (
            "github",
            "X-Hub-Signature-256",
            "sha256=".to_owned(),
            "malformed",
        ),
        (
            "github",
            "X-Hub-Signature-256",
            "sha256=xyz".to_owned(),
            "malformed",
        ),
        (
            "github",
            "X-Hub-Signature-256",
            format!("sha256={}", &right[1..]),
            "malformed",
        ),
        (
            "github",
            "X-Hub-Signature-256",
            format!("sha256={}", &right[2..]),
            "bad-signature",
        ),
        (
            "github",
            "X-Hub-Signature-256",
            format!("sha256={right}00"),
            "bad-signature",
        ),
        (
            "github",
            "X-Hub-Signature-256",
            format!("SHA256={right}"),
            "bad-signature",
        ),
        (
            "github",
            "X-Hub-Signature-256",
            format!("sha256={}", right.to_uppercase()),
            "malformed",
        ),
        (
            "github",
            "X-Hub-Signature-256",
            format!("sha256={right},sha256={right}"),
            "malformed",
        ),
        (
            "github",
            "X-Hub-Signature-256",
            format!("\t sha256={right} "),
            "valid",
        ),
        (
            "gitea",
            "X-Gitea-Signature",
            "not hex".to_owned(),
            "malformed",
        ),
        ("gitea", "X-Gitea-Signature", right.clone(), "valid"),
        (
            "shopify",
            "X-Shopify-Hmac-SHA256",
            "?".to_owned(),
            "malformed",
        ),
        (
            "slack",
            "X-Slack-Signature",
            format!("v1={right}"),
            "bad-signature",
        ),
        (
            "pagerduty",
            "X-PagerDuty-Signature",
            format!("v1={right}"),
            "valid",
        ),
        (
            "pagerduty",
            "X-PagerDuty-Signature",
            right.clone(),
            "malformed",
        ),
        ("sentry", "Sentry-Hook-Signature", right.clone(), "valid"),
        ("gogs", "X-Gogs-Signature", right.clone(), "valid"),
        (
            "meta",
            "X-Hub-Signature-256",
            format!("sha256={right}"),
            "valid",
        ),
    ] {
        let sent = Sent::new(b"{}").with(header, &value);
        assert_eq!(sent.word(scheme, SECRET, NOW), word, "{scheme} {value}");
    }
}

#[test]
fn a_header_that_is_there_twice_is_read_in_no_way() {
    let twice = |sent: Sent| {
        let all: Vec<Sent> = (0..sent.headers.len())
            .map(|index| {
                let mut sent = sent.clone();
                let (name, value) = sent.headers[index].clone();
                // Another case is the same name.
                sent.headers.push((name.to_uppercase(), value));
                sent
            })
            .collect();
        all
    };
    for sent in twice(github(b"{}")) {
        assert_eq!(sent.word("github", SECRET, NOW), "malformed");
    }
    for sent in twice(standard(&now(), b"{}", &v1(&now(), b"{}"))) {
        assert_eq!(sent.word("standard-webhooks", WHSEC, NOW), "malformed");
    }
    for sent in twice(Sent::new(b"{}").with("X-Gitlab-Token", SECRET)) {
        assert_eq!(sent.word("gitlab", SECRET, NOW), "malformed");
    }
    // What says which event it is, or of which type, though nobody signs it.
    let told = github(b"{}")
        .with("X-GitHub-Delivery", "d1")
        .with("X-GitHub-Event", "push");
    assert_eq!(told.word("github", SECRET, NOW), "valid");
    for sent in twice(told) {
        assert_eq!(sent.word("github", SECRET, NOW), "malformed");
    }
}

#[test]
fn what_is_signed_must_be_there() {
    let whole = standard(&now(), b"{}", &v1(&now(), b"{}"));
    for (missing, word) in [
        ("webhook-id", "malformed"),
        ("webhook-timestamp", "malformed"),
        ("webhook-signature", "bad-signature"),
    ] {
        let mut sent = whole.clone();
        sent.headers.retain(|(name, _)| name != missing);
        let verdict = sent.judged(
            &rule("standard-webhooks"),
            &[key("standard-webhooks", WHSEC)],
            Some(at(NOW)),
        );
        assert_eq!(verdict.word(), word, "{missing}");
        assert!(verdict.to_string().contains(missing), "{verdict}");
    }
    // Of another event's.
    let mut sent = whole;
    sent.headers[0].1 = b"msg_2".to_vec();
    assert_eq!(sent.word("standard-webhooks", WHSEC, NOW), "bad-signature");
}

#[test]
fn too_many_signatures_are_not_tried() {
    let many = vec![v1(&now(), b"{}"); 17].join(" ");
    let verdict = standard(&now(), b"{}", &many).judged(
        &rule("standard-webhooks"),
        &[key("standard-webhooks", WHSEC)],
        Some(at(NOW)),
    );
    assert!(matches!(verdict, Verdict::Malformed(Malformed::TooMany(_))));
}

#[test]
fn gitlab_sends_its_token_or_signs() {
    let body = b"{\"object_kind\":\"push\"}";
    let token = Sent::new(body)
        .with("X-Gitlab-Token", SECRET)
        .with("X-Gitlab-Event", "Push Hook")
        .with("Idempotency-Key", "7f1a");
    let Verdict::Valid(event) = token.judged(&rule("gitlab"), &[key("gitlab", SECRET)], None)
    else {
        panic!("that is the token");
    };
    assert_eq!(
        (event.id.as_str(), event.kind.as_deref()),
        ("7f1a", Some("Push Hook"))
    );
    for value in ["", "other", &SECRET[1..], &format!("{SECRET}x")] {
        let sent = Sent::new(body).with("X-Gitlab-Token", value);
        assert_eq!(sent.word("gitlab", SECRET, NOW), "bad-signature", "{value}");
    }
    assert_eq!(Sent::new(body).word("gitlab", SECRET, NOW), "bad-signature");
    // With a signing token the plain one proves nothing.
    let signed = standard(&now(), body, &v1(&now(), body));
    assert_eq!(signed.word("gitlab", WHSEC, NOW), "valid");
    assert_eq!(signed.word("gitlab", WHSEC, NOW + 301), "stale");
    let plain = Sent::new(body).with("X-Gitlab-Token", WHSEC);
    assert_eq!(plain.word("gitlab", WHSEC, NOW), "bad-signature");
    // Both may be configured while the sender changes over; the reason is that of what was tried.
    let keys = [key("gitlab", SECRET), key("gitlab", WHSEC)];
    let judged = |sent: &Sent| {
        sent.judged(&rule("gitlab"), &keys, Some(at(NOW + 301)))
            .word()
    };
    assert_eq!((judged(&token), judged(&signed)), ("valid", "stale"));
    let both = signed.with("X-Gitlab-Token", "other");
    assert_eq!(judged(&both), "stale");
    let neither = Sent::new(body).with("X-Gitlab-Token", "other");
    assert_eq!(judged(&neither), "bad-signature");
}

#[test]
fn each_sender_names_its_event() {
    let right = hex(&hmac(
        SECRET.as_bytes(),
        b"{\"id\":\"evt_1\",\"type\":\"a.b\"}",
    ));
    let sent = stripe(&now(), b"{\"id\":\"evt_1\",\"type\":\"a.b\"}");
    let Verdict::Valid(event) =
        sent.judged(&rule("stripe"), &[key("stripe", SECRET)], Some(at(NOW)))
    else {
        panic!("it is signed");
    };
    assert_eq!(
        (event.id.as_str(), event.kind.as_deref()),
        ("evt_1", Some("a.b"))
    );
    assert_eq!(event.sent_at, Some(at(NOW)));
    let sent = github(b"{}")
        .with("X-GitHub-Delivery", "72d3162e-cc78-11e3-81ab-4c9367dc0958")
        .with("X-GitHub-Event", "push");
    let Verdict::Valid(event) = sent.judged(&rule("github"), &[key("github", SECRET)], None) else {
        panic!("it is signed");
    };
    assert_eq!(event.id.as_str(), "72d3162e-cc78-11e3-81ab-4c9367dc0958");
    assert_eq!(event.kind.as_deref(), Some("push"));
    // A row without a place for the id: the body is one.
    let sent = Sent::new(b"{\"id\":\"evt_1\",\"type\":\"a.b\"}")
        .with("X-Hub-Signature-256", format!("sha256={right}"));
    let Verdict::Valid(event) = sent.judged(&rule("meta"), &[key("meta", SECRET)], None) else {
        panic!("it is signed");
    };
    assert!(event.id.as_str().starts_with("sha256:body:"));
}
