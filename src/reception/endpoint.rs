//! One hook as the door knows it: its path, its rule, its secrets.

use std::fmt;

use super::{Asked, judged};
use crate::clock::Timestamp;
use crate::config::{Env, Hook, SecretValue};
use crate::door::Request;
use crate::hook::challenge::Challenge;
use crate::hook::{Key, Rule, Verdict};

/// A hook that cannot be used now, and why; never its secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unusable(String);

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: it is answered with 503 until that is mended and the config is read again",
            self.0
        )
    }
}

/// A hook at the door.
#[derive(Debug)]
pub(super) struct Endpoint {
    pub(super) name: String,
    pub(super) path: String,
    pub(super) rule: Rule,
    /// `None`: its secrets cannot be used.
    pub(super) keys: Option<Vec<Key>>,
    pub(super) token: Option<SecretValue>,
    pub(super) challenge: Option<Challenge>,
    pub(super) ack: u16,
    pub(super) max_body: u64,
}

impl Endpoint {
    /// Every hook, and which of them cannot be used.
    pub(super) fn all<'a>(
        hooks: impl Iterator<Item = &'a Hook>,
        most: Option<usize>,
        env: Env<'_>,
    ) -> (Vec<Self>, Vec<Unusable>) {
        let mut unusable = Vec::new();
        let endpoints = hooks
            .map(|hook| {
                let secrets = hook
                    .keys(env)
                    .and_then(|keys| Ok((keys, hook.verify_token(env)?)));
                let (keys, token) = match secrets {
                    Ok((keys, token)) => (Some(keys), token),
                    Err(error) => {
                        unusable.push(Unusable(error.to_string()));
                        (None, None)
                    }
                };
                Self {
                    name: hook.name.clone(),
                    path: hook.path.clone(),
                    rule: hook.rule.clone(),
                    keys,
                    token,
                    challenge: hook.challenge.as_ref().map(|setup| setup.challenge()),
                    ack: hook.ack_status,
                    max_body: hook.max_body.min(most.unwrap_or(usize::MAX)) as u64,
                }
            })
            .collect();
        (endpoints, unusable)
    }

    /// Meta asks by GET.
    pub(super) fn answers_get(&self) -> bool {
        self.challenge == Some(Challenge::Meta)
    }

    pub(super) fn allowed(&self) -> &'static str {
        if self.answers_get() {
            "GET, POST"
        } else {
            "POST"
        }
    }

    pub(super) fn judge(&self, request: &Request, now: Option<Timestamp>) -> (Verdict, Asked) {
        judged(self, request, now)
    }
}
