//! The room as a whole: published vectors, what went wrong elsewhere, anything at all.

mod arbitrary;
mod hints;
mod reports;
mod times;
mod vectors;

use sha2::{Digest as _, Sha256};

use super::*;
use crate::clock::Timestamp;

/// A sender of the tests: what it sends, header by header.
#[derive(Debug, Clone)]
struct Sent {
    headers: Vec<(String, Vec<u8>)>,
    body: Vec<u8>,
}

impl Sent {
    fn new(body: &[u8]) -> Self {
        Self {
            headers: Vec::new(),
            body: body.to_vec(),
        }
    }

    fn with(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.headers
            .push((name.to_owned(), value.as_ref().to_vec()));
        self
    }

    fn judged(&self, rule: &Rule, keys: &[Key], now: Option<Timestamp>) -> Verdict {
        let headers: Vec<(&str, &[u8])> = self
            .headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_slice()))
            .collect();
        let request = Received {
            method: "POST",
            target: "/hooks/h",
            headers: &headers,
            body: &self.body,
        };
        verify(rule, keys, &request, now)
    }

    /// By a named scheme and one text secret, at this second.
    fn word(&self, scheme: &str, secret: &str, now: i64) -> &'static str {
        let verdict = self.judged(&rule(scheme), &[key(scheme, secret)], Some(at(now)));
        assert!(!verdict.to_string().contains(secret), "{verdict}");
        verdict.word()
    }
}

fn rule(scheme: &str) -> Rule {
    Rule::new(Scheme::named(scheme).unwrap_or_else(|| panic!("no scheme {scheme}")))
}

fn key(scheme: &str, secret: &str) -> Key {
    Key::new(&rule(scheme).scheme, secret.as_bytes(), None).unwrap()
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

/// HMAC-SHA256 as RFC 2104 writes it, so that the crate is not its own judge.
fn hmac(key: &[u8], message: &[u8]) -> Vec<u8> {
    let mut block = [0; 64];
    if key.len() > 64 {
        block[..32].copy_from_slice(&Sha256::digest(key));
    } else {
        block[..key.len()].copy_from_slice(key);
    }
    let padded = |with: u8| block.map(|byte| byte ^ with);
    let inner = Sha256::new()
        .chain_update(padded(0x36))
        .chain_update(message);
    let outer = Sha256::new().chain_update(padded(0x5c));
    outer.chain_update(inner.finalize()).finalize().to_vec()
}

fn hex(bytes: &[u8]) -> String {
    encoding::to_hex(bytes)
}

fn base64(bytes: &[u8]) -> String {
    to_base64(bytes)
}

const NOW: i64 = 1_764_500_000;
const SECRET: &str = "plant 7's secret";
/// The same kind of secret as Standard Webhooks writes it, and its bytes.
const WHSEC: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

fn whsec() -> Vec<u8> {
    encoding::secret(WHSEC.trim_start_matches("whsec_").as_bytes()).unwrap()
}

fn github(body: &[u8]) -> Sent {
    let signature = format!("sha256={}", hex(&hmac(SECRET.as_bytes(), body)));
    Sent::new(body).with("X-Hub-Signature-256", signature)
}

fn stripe(time: &str, body: &[u8]) -> Sent {
    let signed = [time.as_bytes(), b".", body].concat();
    let signature = hex(&hmac(SECRET.as_bytes(), &signed));
    Sent::new(body).with("Stripe-Signature", format!("t={time},v1={signature}"))
}

/// What Standard Webhooks signs.
fn content(time: &str, body: &[u8]) -> Vec<u8> {
    [b"msg_1.", time.as_bytes(), b".", body].concat()
}

fn standard(time: &str, body: &[u8], signature: &str) -> Sent {
    Sent::new(body)
        .with("webhook-id", "msg_1")
        .with("webhook-timestamp", time)
        .with("webhook-signature", signature)
}

fn v1(time: &str, body: &[u8]) -> String {
    format!("v1,{}", base64(&hmac(&whsec(), &content(time, body))))
}

fn now() -> String {
    NOW.to_string()
}
