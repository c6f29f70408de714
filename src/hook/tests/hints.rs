//! What a person is told to look at.

use super::*;
use crate::hook::hint::{Hint, OtherBody, OtherSecret, basis, hints};
use crate::hook::scheme::{Encoding, StampFormat};

const SECRET: &str = "c2VjcmV0IG9mIHBsYW50IDc=";

/// What is said of a request, and every sentence without the secret.
fn said(sent: &Sent, scheme: &str, secret: &str) -> Vec<Hint> {
    let (rule, keys) = (rule(scheme), [key(scheme, secret)]);
    let verdict = sent.judged(&rule, &keys, Some(at(NOW)));
    let headers: Vec<(&str, &[u8])> = sent
        .headers
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_slice()))
        .collect();
    let request = Received {
        method: "POST",
        target: "/",
        headers: &headers,
        body: &sent.body,
    };
    let hints = hints(&rule, &keys, &request, &verdict, at(NOW));
    for hint in &hints {
        assert!(!hint.to_string().contains(secret), "{hint}");
    }
    hints
}

fn github(secret: &[u8], signed: &[u8], body: &[u8]) -> Sent {
    let signature = format!("sha256={}", hex(&hmac(secret, signed)));
    Sent::new(body).with("X-Hub-Signature-256", signature)
}

#[test]
fn a_body_that_was_changed_on_its_way() {
    for (signed, body, other) in [
        ("{}", "{}\n", OtherBody::WithoutNewline),
        ("{}", "{}\r\n", OtherBody::WithoutNewline),
        ("{}\n", "{}", OtherBody::WithNewline),
        ("a\r\nb", "a\nb", OtherBody::Crlf),
        ("a\nb", "a\r\nb", OtherBody::Lf),
        (
            "{\"a\":[1,2]}",
            "{\n  \"a\": [\n 1, 2 ]}",
            OtherBody::Compact,
        ),
        ("{\"a\": [1, 2]}", "{\"a\":[1,2]}", OtherBody::Spaced),
        ("{\n  \"a\": 1\n}", "{\"a\":1}", OtherBody::Indented),
        ("", "{\"a\":1}", OtherBody::Empty),
    ] {
        let sent = github(SECRET.as_bytes(), signed.as_bytes(), body.as_bytes());
        assert_eq!(
            said(&sent, "github", SECRET),
            [Hint::Body(other)],
            "{body:?}"
        );
    }
}

#[test]
fn a_secret_that_the_sender_reads_otherwise() {
    let body = b"{\"a\":1}";
    let bytes = encoding::secret(SECRET.as_bytes()).unwrap();
    for (signed_with, secret, other) in [
        (bytes.clone(), SECRET, OtherSecret::Base64),
        (
            bytes.clone(),
            "whsec_c2VjcmV0IG9mIHBsYW50IDc=",
            OtherSecret::Base64,
        ),
        (vec![0xab, 0xcd, 0xef], "abCDef", OtherSecret::Hex),
        (
            format!("{SECRET}\n").into_bytes(),
            SECRET,
            OtherSecret::WithNewline,
        ),
        (b"key".to_vec(), " key", OtherSecret::Trimmed),
    ] {
        let sent = github(&signed_with, body, body);
        assert_eq!(
            said(&sent, "github", secret),
            [Hint::Secret(other)],
            "{secret:?}"
        );
    }
    for text in [SECRET.to_owned(), format!("whsec_{SECRET}")] {
        let signed = [b"m.", NOW.to_string().as_bytes(), b".{}"].concat();
        let sent = Sent::new(b"{}")
            .with("webhook-id", "m")
            .with("webhook-timestamp", NOW.to_string())
            .with(
                "webhook-signature",
                format!("v1,{}", base64(&hmac(text.as_bytes(), &signed))),
            );
        let said = said(&sent, "standard-webhooks", SECRET);
        assert_eq!(said, [Hint::Secret(OtherSecret::Text)]);
    }
}

#[test]
fn a_scheme_that_is_another() {
    let right = hex(&hmac(SECRET.as_bytes(), b"{}"));
    // The same header with another meaning, the same meaning under another header.
    let gitea = Sent::new(b"{}").with("X-Gitea-Signature", &right);
    assert_eq!(said(&gitea, "github", SECRET), [Hint::Scheme("gitea")]);
    let token = Sent::new(b"{}").with("X-Gitlab-Token", SECRET);
    assert_eq!(said(&token, "github", SECRET), [Hint::Scheme("gitlab")]);
    let wrong = Sent::new(b"{}").with("X-Gitea-Signature", "0".repeat(64));
    let header = Hint::Header {
        found: "X-Gitea-Signature".to_owned(),
        scheme: "gitea",
    };
    assert_eq!(said(&wrong, "github", SECRET), [header]);
    let strange = Sent::new(b"{}")
        .with("X-Acme-Signature", &right)
        .with("Accept", "*/*");
    assert_eq!(
        said(&strange, "github", SECRET),
        [Hint::Sounds("X-Acme-Signature".to_owned())]
    );
}

#[test]
fn a_signature_that_is_written_otherwise() {
    let right = hmac(SECRET.as_bytes(), b"{}");
    for (value, other) in [
        (hex(&right).to_uppercase(), Encoding::HexUpper),
        (base64(&right), Encoding::Base64),
    ] {
        let sent = Sent::new(b"{}").with("X-Gitea-Signature", value);
        assert_eq!(said(&sent, "gitea", SECRET), [Hint::Encoding(other)]);
    }
}

#[test]
fn a_time_that_is_not_now() {
    let stripe = |time: String| {
        let signed = [time.as_bytes(), b".{}"].concat();
        let signature = hex(&hmac(SECRET.as_bytes(), &signed));
        Sent::new(b"{}").with("Stripe-Signature", format!("t={time},v1={signature}"))
    };
    let old = stripe((NOW - 7200).to_string());
    assert_eq!(said(&old, "stripe", SECRET), [Hint::At(at(NOW - 7200))]);
    let millis = stripe(format!("{NOW}123"));
    assert_eq!(
        said(&millis, "stripe", SECRET),
        [Hint::Unit(StampFormat::EpochMs)]
    );
    assert_eq!(said(&stripe(NOW.to_string()), "stripe", SECRET), []);
}

#[test]
fn where_nothing_helps_that_is_said() {
    let sent = github(b"another secret", b"{}", b"{}");
    assert_eq!(said(&sent, "github", SECRET), [Hint::Nothing]);
}

#[test]
fn both_sides_can_compare_what_is_signed() {
    let sent = Sent::new("{\"a\":\"ü\"}".as_bytes())
        .with("X-Slack-Request-Timestamp", NOW.to_string())
        .with("X-Slack-Signature", "v0=00");
    let headers: Vec<(&str, &[u8])> = sent
        .headers
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_slice()))
        .collect();
    let request = Received {
        method: "POST",
        target: "/",
        headers: &headers,
        body: &sent.body,
    };
    let basis = basis(&rule("slack"), &request).unwrap();
    let parts: Vec<(&str, usize)> = basis
        .parts
        .iter()
        .map(|(what, size)| (what.as_str(), *size))
        .collect();
    assert_eq!(
        parts,
        [
            ("\"v0:\"", 3),
            ("the time", 10),
            ("\":\"", 1),
            ("the body", 10)
        ]
    );
    assert_eq!((basis.bytes, basis.sent_at), (24, Some(at(NOW))));
}
