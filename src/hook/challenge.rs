//! What a sender that sets a hook up is answered. Each answer is tightly shaped, plain text, and never signed: whoever asks
//! gets back at most what he sent.

use std::fmt;

use super::{Received, Verdict, key};
use crate::json::{Json, Kind};

/// Who asks, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Challenge {
    /// A signed body of `type` (`url_verification`), `challenge` and `token`.
    Slack,
    /// `GET` with `hub.mode=subscribe`, `hub.verify_token` and `hub.challenge`.
    Meta,
    /// `POST` with `validationToken` and without a body.
    Graph,
}

/// An answer of status 200.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The body.
    pub body: Vec<u8>,
    /// Its media type.
    pub media_type: &'static str,
}

/// The answer to a challenge; `None`: it is none, or not shaped as it must be, and the request is treated as any other.
///
/// `token` is Meta's verify token as configured; `verdict` is what [`super::verify()`] said of this request.
#[must_use]
pub fn answer(
    challenge: Challenge,
    token: Option<&[u8]>,
    request: &Received<'_>,
    verdict: &Verdict,
) -> Option<Answer> {
    let text = match challenge {
        Challenge::Slack => slack(request, verdict),
        Challenge::Meta => meta(request, token?),
        Challenge::Graph => graph(request),
    }?;
    Some(Answer {
        body: text.into_bytes(),
        media_type: "text/plain",
    })
}

/// Why a sender that sets the hook up is not answered. Counted and told apart from bad signatures: no signature is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unanswered {
    /// The verify token is another one.
    Token,
    /// It is not shaped as that sender's challenges are.
    Shape,
}

impl Unanswered {
    /// What such requests are counted as.
    pub const WORD: &'static str = "bad-challenge";

    /// The status: 403 for a wrong token, as Meta's own examples answer, else 400.
    #[must_use]
    pub fn status(self) -> u16 {
        match self {
            Self::Token => 403,
            Self::Shape => 400,
        }
    }
}

impl fmt::Display for Unanswered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Token => {
                "hub.verify_token is not the configured `verify_token`: enter the same at the sender"
            }
            Self::Shape => "it is not shaped as this sender's setup challenge",
        })
    }
}

/// Why a request that [`answer`] does not answer is a challenge that failed; `None`: it is no challenge.
#[must_use]
pub fn unanswered(
    challenge: Challenge,
    token: Option<&[u8]>,
    request: &Received<'_>,
) -> Option<Unanswered> {
    match challenge {
        // It is signed, so its signature says what is wrong.
        Challenge::Slack => None,
        Challenge::Meta if request.method != "GET" => None,
        Challenge::Meta => {
            let sent = request.parameter("hub.verify_token");
            let is_token =
                |sent: String| token.is_some_and(|token| key::same(token, sent.as_bytes()));
            Some(match sent.map(is_token) {
                Some(false) => Unanswered::Token,
                Some(true) | None => Unanswered::Shape,
            })
        }
        Challenge::Graph => {
            let asks = request.target.contains("validationToken=");
            (request.method == "POST" && request.body.is_empty() && asks)
                .then_some(Unanswered::Shape)
        }
    }
}

fn slack(request: &Received<'_>, verdict: &Verdict) -> Option<String> {
    if request.method != "POST" || !matches!(verdict, Verdict::Valid(_)) {
        return None;
    }
    let body = Json::parse(request.body).ok()?;
    if body.kind() != Kind::Object {
        return None;
    }
    let (mut kind, mut challenge, mut token) = (None, None, None);
    for (name, value) in body.members() {
        let place = match name {
            "type" => &mut kind,
            "challenge" => &mut challenge,
            "token" => &mut token,
            _ => return None,
        };
        // One that is there twice could be read in two ways.
        if place.replace(value.string()?.into_owned()).is_some() {
            return None;
        }
    }
    let is_asked = kind.as_deref() == Some("url_verification") && token.is_some();
    challenge.filter(|challenge| is_asked && is_plain(challenge, b"-_.~", 256))
}

fn meta(request: &Received<'_>, token: &[u8]) -> Option<String> {
    if request.method != "GET" || token.is_empty() {
        return None;
    }
    let sent = request.parameter("hub.verify_token")?;
    if request.parameter("hub.mode")? != "subscribe" || !key::same(token, sent.as_bytes()) {
        return None;
    }
    request
        .parameter("hub.challenge")
        .filter(|challenge| is_plain(challenge, b"-_", 128))
}

fn graph(request: &Received<'_>) -> Option<String> {
    if request.method != "POST" || !request.body.is_empty() {
        return None;
    }
    request
        .parameter("validationToken")
        .filter(|token| is_plain(token, b"-_.~:=+/ ", 1024))
}

/// Letters, digits and a few signs, so that no reader takes it for markup or a header.
fn is_plain(text: &str, signs: &[u8], longest: usize) -> bool {
    (1..=longest).contains(&text.len())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || signs.contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hook::verify::Unproven;
    use crate::hook::{Event, EventId};

    fn asked(
        challenge: Challenge,
        method: &str,
        target: &str,
        body: &str,
        verdict: &Verdict,
    ) -> Option<String> {
        let request = Received {
            method,
            target,
            headers: &[],
            body: body.as_bytes(),
        };
        let answer = answer(challenge, Some(b"verify me"), &request, verdict)?;
        assert_eq!(answer.media_type, "text/plain");
        Some(String::from_utf8(answer.body).unwrap())
    }

    fn valid() -> Verdict {
        Verdict::Valid(Event {
            id: EventId::given(b"e"),
            kind: None,
            sent_at: None,
            secret: 0,
        })
    }

    #[test]
    fn slack_is_answered_only_if_slack_signed() {
        let body = r#"{"token":"Jhj5dZrVaK7ZwHHjRyZWjbDl","challenge":"3eZbrw1aBm2rZgRNFdxV2595E9CY3gmdALWMmHkvFXO7tYXAYM8P","type":"url_verification"}"#;
        let ask =
            |body: &str, verdict: &Verdict| asked(Challenge::Slack, "POST", "/", body, verdict);
        assert_eq!(
            ask(body, &valid()).as_deref(),
            Some("3eZbrw1aBm2rZgRNFdxV2595E9CY3gmdALWMmHkvFXO7tYXAYM8P")
        );
        let bad = Verdict::BadSignature(Unproven::NoSecret);
        for verdict in [bad, Verdict::ClockUntrusted] {
            assert_eq!(ask(body, &verdict), None);
        }
        for body in [
            r#"{"token":"t","challenge":"c","type":"event_callback"}"#,
            r#"{"challenge":"c","type":"url_verification"}"#,
            r#"{"token":"t","challenge":"c","type":"url_verification","more":1}"#,
            r#"{"token":"t","challenge":"c","challenge":"d","type":"url_verification"}"#,
            r#"{"token":"t","challenge":"<script>","type":"url_verification"}"#,
            r#"{"token":"t","challenge":"","type":"url_verification"}"#,
            r#"{"token":"t","challenge":7,"type":"url_verification"}"#,
            r#"["url_verification"]"#,
            "",
        ] {
            assert_eq!(ask(body, &valid()), None, "{body}");
        }
        let long = format!(
            r#"{{"token":"t","challenge":"{}","type":"url_verification"}}"#,
            "c".repeat(257)
        );
        assert_eq!(ask(&long, &valid()), None);
    }

    #[test]
    fn meta_is_answered_only_with_the_verify_token() {
        let bad = Verdict::BadSignature(Unproven::NoSecret);
        let ask = |method: &str, query: &str| {
            asked(
                Challenge::Meta,
                method,
                &format!("/hooks/m?{query}"),
                "",
                &bad,
            )
        };
        let good = "hub.mode=subscribe&hub.challenge=1158201444&hub.verify_token=verify+me";
        assert_eq!(ask("GET", good).as_deref(), Some("1158201444"));
        assert_eq!(ask("POST", good), None);
        for query in [
            "hub.mode=subscribe&hub.challenge=1158201444",
            "hub.mode=subscribe&hub.challenge=1158201444&hub.verify_token=other",
            "hub.mode=unsubscribe&hub.challenge=1158201444&hub.verify_token=verify+me",
            "hub.mode=subscribe&hub.verify_token=verify+me",
            "hub.mode=subscribe&hub.challenge=%3Cb%3E&hub.verify_token=verify+me",
            "hub.mode=subscribe&hub.challenge=1%0d%0aX:&hub.verify_token=verify+me",
            "hub.mode=subscribe&hub.challenge=1&hub.challenge=2&hub.verify_token=verify+me",
            "hub.mode=subscribe&hub.challenge=&hub.verify_token=verify+me",
            "",
        ] {
            assert_eq!(ask("GET", query), None, "{query}");
        }
        let request = Received {
            method: "GET",
            target: "/?hub.mode=subscribe&hub.challenge=1&hub.verify_token=",
            headers: &[],
            body: b"",
        };
        for token in [None, Some(&b""[..])] {
            assert_eq!(answer(Challenge::Meta, token, &request, &bad), None);
        }
    }

    #[test]
    fn a_challenge_that_fails_is_no_bad_signature() {
        let why = |challenge: Challenge, method: &str, query: &str, body: &str| {
            let target = format!("/h?{query}");
            let request = Received {
                method,
                target: &target,
                headers: &[],
                body: body.as_bytes(),
            };
            unanswered(challenge, Some(b"verify me"), &request)
        };
        use Challenge::{Graph, Meta, Slack};
        for (challenge, method, query, body, expected) in [
            (
                Meta,
                "GET",
                "hub.verify_token=other",
                "",
                Some(Unanswered::Token),
            ),
            (
                Meta,
                "GET",
                "hub.verify_token=",
                "",
                Some(Unanswered::Token),
            ),
            (
                Meta,
                "GET",
                "hub.verify_token=verify+me",
                "",
                Some(Unanswered::Shape),
            ),
            (Meta, "GET", "", "", Some(Unanswered::Shape)),
            (Meta, "POST", "hub.verify_token=other", "", None),
            (
                Graph,
                "POST",
                "validationToken=%3Cb%3E",
                "",
                Some(Unanswered::Shape),
            ),
            (Graph, "POST", "validationToken=x", "{}", None),
            (Graph, "POST", "", "", None),
            (Slack, "POST", "", "{}", None),
        ] {
            assert_eq!(
                why(challenge, method, query, body),
                expected,
                "{method} {query}"
            );
        }
    }

    #[test]
    fn graph_gets_its_token_back_decoded() {
        let bad = Verdict::BadSignature(Unproven::NoSecret);
        let ask = |method: &str, query: &str, body: &str| {
            asked(Challenge::Graph, method, &format!("/g?{query}"), body, &bad)
        };
        let token = "validationToken=Validation%3a+Testing+client+application+reachability+for+subscription+Request-Id%3a+7c2f";
        assert_eq!(
            ask("POST", token, "").as_deref(),
            Some(
                "Validation: Testing client application reachability for subscription Request-Id: 7c2f"
            )
        );
        assert_eq!(ask("GET", token, ""), None);
        assert_eq!(ask("POST", token, "{}"), None);
        for query in [
            "validationToken=%3Cscript%3E",
            "validationToken=",
            "validationToken=a%0ab",
            "validationToken=%ff",
            "",
        ] {
            assert_eq!(ask("POST", query, ""), None, "{query}");
        }
        let long = format!("validationToken={}", "a".repeat(1025));
        assert_eq!(ask("POST", &long, ""), None);
    }
}
