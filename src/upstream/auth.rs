//! What authorises a request. A credential is read when it is used, so that a rotated one counts from the next request
//! on, and is put on requests to the upstream's own origin alone.

use std::time::Duration;

use serde::Deserialize;
use ureq::http::HeaderValue;

use super::outcome::{Failure, Kind};
use crate::clock::Mono;
use crate::config::{Auth, Secret, SecretValue};

/// An OAuth 2.0 access token as far as it is needed.
#[derive(Debug)]
struct Token {
    value: SecretValue,
    until: Mono,
}

/// The credential of one upstream.
#[derive(Debug)]
pub(super) struct Credential {
    auth: Auth,
    token: Option<Token>,
}

/// A token answer (RFC 6749 5.1).
#[derive(Deserialize)]
struct TokenAnswer {
    access_token: String,
    #[serde(default)]
    expires_in: Option<serde_json::Value>,
}

/// What a token is assumed to be good for when its answer does not say.
const DEFAULT_LIFETIME: Duration = Duration::from_secs(600);
/// A token is renewed this much before its end.
const MARGIN: Duration = Duration::from_secs(30);

impl Credential {
    pub(super) fn new(auth: Auth) -> Self {
        Self { auth, token: None }
    }

    /// Whether a 401 may be answered with a new token.
    pub(super) fn renewable(&self) -> bool {
        self.token.is_some()
    }

    /// Forgets the token, so that the next request fetches a new one.
    pub(super) fn forget(&mut self) {
        self.token = None;
    }

    /// The header field to send, if any. `fetch` asks the token endpoint: form body and Basic credential in, body out.
    pub(super) fn field(
        &mut self,
        now: Mono,
        fetch: impl FnOnce(&url::Url, &HeaderValue, String) -> Result<Vec<u8>, Failure>,
    ) -> Result<Option<(String, HeaderValue)>, Failure> {
        let authorization = "authorization".to_owned();
        Ok(match &self.auth {
            Auth::None => None,
            Auth::Bearer(secret) => {
                let token = resolve(secret)?;
                Some((
                    authorization,
                    sensitive(&format!("Bearer {}", token.expose()))?,
                ))
            }
            Auth::Basic { user, password } => {
                let password = resolve(password)?;
                Some((authorization, basic(user, password.expose())?))
            }
            Auth::Header { name, value } => {
                let value = resolve(value)?;
                Some((name.to_ascii_lowercase(), sensitive(value.expose())?))
            }
            Auth::OAuth2 {
                token_url,
                client_id,
                client_secret,
                scopes,
            } => {
                if self.token.as_ref().is_none_or(|token| token.until <= now) {
                    let secret = resolve(client_secret)?;
                    let mut form = url::form_urlencoded::Serializer::new(String::new());
                    form.append_pair("grant_type", "client_credentials");
                    if !scopes.is_empty() {
                        form.append_pair("scope", &scopes.join(" "));
                    }
                    // RFC 6749 2.3.1: id and secret are form-encoded before they become a Basic credential.
                    let credential =
                        basic(&form_encoded(client_id), &form_encoded(secret.expose()))?;
                    let answer = fetch(token_url, &credential, form.finish())?;
                    self.token = Some(read_token(&answer, now)?);
                }
                match &self.token {
                    Some(token) => Some((
                        authorization,
                        sensitive(&format!("Bearer {}", token.value.expose()))?,
                    )),
                    None => None,
                }
            }
        })
    }
}

fn read_token(answer: &[u8], now: Mono) -> Result<Token, Failure> {
    let answer: TokenAnswer = serde_json::from_slice(answer).map_err(|_| {
        Failure::new(
            Kind::Denied,
            "the token endpoint's answer has no access_token",
        )
    })?;
    // Some servers send the seconds as text.
    let seconds = match answer.expires_in {
        Some(serde_json::Value::Number(number)) => number.as_u64(),
        Some(serde_json::Value::String(text)) => text.parse().ok(),
        _ => None,
    };
    let lifetime = seconds.map_or(DEFAULT_LIFETIME, Duration::from_secs);
    Ok(Token {
        value: SecretValue::new(answer.access_token),
        until: now.after(lifetime.saturating_sub(MARGIN)),
    })
}

/// Reads a secret, with a failure that says what to do.
pub(super) fn resolve(secret: &Secret) -> Result<SecretValue, Failure> {
    secret
        .resolve(&process_env)
        .map_err(|error| Failure::new(Kind::Local, error.to_string()))
}

/// The environment of this process.
pub(super) fn process_env(name: &str) -> Option<std::ffi::OsString> {
    std::env::var_os(name)
}

fn basic(user: &str, password: &str) -> Result<HeaderValue, Failure> {
    sensitive(&format!(
        "Basic {}",
        base64(format!("{user}:{password}").as_bytes())
    ))
}

/// A field value that debug output never shows.
pub(super) fn sensitive(text: &str) -> Result<HeaderValue, Failure> {
    let mut value = HeaderValue::from_str(text).map_err(|_| {
        Failure::new(
            Kind::Local,
            "a credential has characters that no header field can carry",
        )
    })?;
    value.set_sensitive(true);
    Ok(value)
}

fn form_encoded(text: &str) -> String {
    url::form_urlencoded::byte_serialize(text.as_bytes()).collect()
}

/// Base64 with padding (RFC 4648 4): twenty lines instead of a dependency.
fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let group = chunk
            .iter()
            .fold(0u32, |sum, byte| sum << 8 | u32::from(*byte))
            << (8 * (3 - chunk.len()));
        for place in 0..4 {
            let index = (group >> (18 - 6 * place)) & 63;
            out.push(if place <= chunk.len() {
                char::from(ALPHABET[index as usize])
            } else {
                '='
            });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_as_the_rfc_spells_it() {
        for (plain, coded) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(base64(plain.as_bytes()), coded);
        }
    }

    #[test]
    fn token_answers_as_servers_write_them() {
        let now = Mono(Duration::from_secs(100));
        for (answer, until) in [
            (r#"{"access_token":"t","expires_in":3600}"#, 3670),
            (r#"{"access_token":"t","expires_in":"3600"}"#, 3670),
            (r#"{"access_token":"t","token_type":"Bearer"}"#, 670),
            (r#"{"access_token":"t","expires_in":0}"#, 100),
        ] {
            assert_eq!(
                read_token(answer.as_bytes(), now).unwrap().until,
                Mono(Duration::from_secs(until)),
                "{answer}"
            );
        }
        let error = read_token(br#"{"error":"invalid_client"}"#, now).unwrap_err();
        assert_eq!(error.kind, Kind::Denied);
    }
}
