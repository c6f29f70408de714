//! Published signatures: `tests/data/webhook-vectors.json`.

use std::path::Path;

use serde_json::Value;

use super::*;
use crate::hook::scheme::{Encoding, Holds, Part, Seal, SecretForm};

const VECTORS: &str = include_str!("../../../tests/data/webhook-vectors.json");

/// They sign the URL as well, which no row does.
const SIGN_THE_URL: [&str; 6] = [
    "square-1",
    "square-docs",
    "square-escaped",
    "twilio-1",
    "twilio-json",
    "twilio-port443",
];

fn text<'v>(vector: &'v Value, key: &str) -> &'v str {
    vector[key]
        .as_str()
        .unwrap_or_else(|| panic!("{key} of {vector}"))
}

fn secret(vector: &Value) -> String {
    match &vector["secret"] {
        Value::String(secret) => secret.clone(),
        parts => format!("{}{}", text(parts, "prefix"), text(parts, "rest")),
    }
}

fn sent(vector: &Value, body: &[u8]) -> Sent {
    let headers = vector["headers"].as_object().unwrap();
    headers.iter().fold(Sent::new(body), |sent, (name, value)| {
        sent.with(name, value.as_str().unwrap())
    })
}

/// The word that this vector gets.
fn word(vector: &Value, body: &[u8]) -> &'static str {
    let name = match text(vector, "scheme") {
        "github-sha256" => "github",
        name => name,
    };
    let rule = rule(name);
    // Those without a clock do not sign a time.
    let now = vector["now"].as_i64().map(at);
    match Key::new(&rule.scheme, secret(vector).as_bytes(), None) {
        Ok(key) => sent(vector, body).judged(&rule, &[key], now).word(),
        Err(_) => "config-error",
    }
}

/// The body that a vector names, from the directory that was given, if one was.
fn body_elsewhere(vector: &Value) -> Option<Vec<u8>> {
    let dir = std::env::var_os("GLEANER_WEBHOOK_BODIES")?;
    let named = &vector["body_ref"];
    let path = Path::new(&dir)
        .join(text(named, "repo"))
        .join(text(named, "path"));
    let body = std::fs::read(&path).ok()?;
    let digest = hex(&Sha256::digest(&body));
    assert_eq!(
        digest,
        text(named, "sha256"),
        "{} is another file",
        path.display()
    );
    Some(body)
}

#[test]
fn every_published_vector_gets_its_verdict() {
    let all: Value = serde_json::from_str(VECTORS).unwrap();
    let (mut whole, mut without_body, mut left_out) = (0, 0, Vec::new());
    for vector in all["vectors"].as_array().unwrap() {
        let (id, expected) = (text(vector, "id"), text(vector, "expect"));
        if SIGN_THE_URL.contains(&id) {
            left_out.push(id);
            continue;
        }
        let body = match vector["body"].as_str() {
            Some(body) => Some(body.as_bytes().to_vec()),
            None => body_elsewhere(vector),
        };
        match body {
            Some(body) => {
                assert_eq!(word(vector, &body), expected, "{id}");
                whole += 1;
            }
            None => {
                // Its header is read, and is no other body's signature.
                assert_eq!(word(vector, b"{}"), "bad-signature", "{id}");
                without_body += 1;
            }
        }
    }
    left_out.sort_unstable();
    assert_eq!(left_out, SIGN_THE_URL);
    assert!(whole >= 26, "{whole}");
    assert_eq!(whole + without_body, 55);
    println!("{whole} verdicts, {without_body} more without the body that was signed");
}

/// What a vector's sender signs can be spelled out instead of named.
#[test]
fn a_scheme_that_is_spelled_out_judges_as_the_row_does() {
    let all: Value = serde_json::from_str(VECTORS).unwrap();
    let vector = |id: &str| {
        let vectors = all["vectors"].as_array().unwrap();
        vectors
            .iter()
            .find(|vector| vector["id"] == id)
            .unwrap()
            .clone()
    };
    let github = vector("octokit-71-unicode");
    let rule = Rule::new(Scheme::spelled_out(Seal {
        header: "x-hub-signature-256".to_owned(),
        holds: Holds::One("sha256=".to_owned()),
        encoding: Encoding::Hex,
        signed: vec![Part::Body],
        id: None,
        time: None,
        secret: SecretForm::Text,
    }));
    let key = Key::new(&rule.scheme, secret(&github).as_bytes(), None).unwrap();
    let verdict = sent(&github, text(&github, "body").as_bytes()).judged(&rule, &[key], None);
    assert_eq!(verdict.word(), "valid", "{verdict}");
}
