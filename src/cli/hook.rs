//! `gleaner hook check`: is a recorded request valid by this hook, and if not, why not?

use std::cell::RefCell;
use std::io::Read as _;
use std::path::Path;

use serde_json::json;

use super::exit::Exit;
use super::{HookCheckArguments, output};
use crate::clock::Timestamp;
use crate::config::{Config, Hook, SecretValue, Setup};
use crate::door::coding;
use crate::door::http::Fields;
use crate::hook::capture::Capture;
use crate::hook::challenge::{self, Unanswered};
use crate::hook::hint::{self, Basis, Hint};
use crate::hook::{EventId, Key, Verdict, verify};
use crate::inbox::{self, Filter, Reader, State};
use crate::wait::Wait;

pub(super) fn check(config: &Config, wait: &Wait, arguments: &HookCheckArguments) -> Exit {
    let now = match arguments.at.as_deref().map(instant) {
        None => wait.clock().wall(),
        Some(Some(now)) => now,
        Some(None) => {
            output::error("--at is no instant: write 2026-11-30T18:00:00Z, or seconds since 1970");
            return Exit::Usage;
        }
    };
    let Some(hook) = config.hooks.get(&arguments.name) else {
        let known: Vec<&str> = config.hooks.keys().map(String::as_str).collect();
        output::error(&match known.is_empty() {
            true => "the config has no [hook.NAME] yet".to_owned(),
            false => format!(
                "there is no hook \"{}\"; the config has: {}",
                arguments.name,
                known.join(", ")
            ),
        });
        return Exit::Usage;
    };
    let env = |name: &str| std::env::var_os(name);
    let secrets = hook
        .keys(&env)
        .and_then(|keys| Ok((keys, hook.verify_token(&env)?)));
    let (keys, token) = match secrets {
        Ok(secrets) => secrets,
        Err(error) => {
            output::error(&error.to_string());
            return Exit::Device;
        }
    };
    let capture = match recorded(&arguments.request) {
        Ok(capture) => capture,
        Err((error, exit)) => {
            output::error(&error);
            return exit;
        }
    };
    let not_looked = RefCell::new(None);
    let seen = |id: &EventId| {
        let taken = taken_before(config, hook, id);
        taken.unwrap_or_else(|why| {
            not_looked.replace(Some(format!(
                "whether the event came before was not looked at: {why}"
            )));
            None
        })
    };
    let secrets = Secrets {
        keys: &keys,
        token: token.as_ref(),
    };
    let mut findings = judge(hook, &secrets, &capture, now, &seen);
    findings.notes.extend(not_looked.take());
    if arguments.json {
        output::line(&findings.json(hook).to_string());
    } else {
        output::line(findings.text(hook, now).trim_end());
    }
    match findings.word {
        "valid" | "challenge" => Exit::Ok,
        _ => Exit::Data,
    }
}

/// Under which request id the inbox has an event of this hook; read without its lock, also while an agent runs.
fn taken_before(config: &Config, hook: &Hook, id: &EventId) -> Result<Option<String>, String> {
    let dir = config.agent.state.join(inbox::NAME);
    // A directory that may not be entered says so; one that is not there is no inbox.
    std::fs::read_dir(&dir).map_err(|error| format!("{}: {error}", dir.display()))?;
    let filter = Filter {
        hook: Some(hook.name.clone()),
        state: None,
    };
    let mut first = None;
    Reader::new(&dir)
        .list(&filter, |listed| {
            let is_it = listed.stored.received.event_id.as_deref() == Some(id.as_str());
            if is_it && listed.state != State::Void && first.is_none() {
                first = Some(listed.stored.id.to_string());
            }
        })
        .map_err(|error| error.to_string())?;
    Ok(first)
}

/// RFC 3339, or seconds since 1970.
fn instant(text: &str) -> Option<Timestamp> {
    match text.parse::<i64>() {
        Ok(second) => Timestamp::from_second(second).ok(),
        Err(_) => text.parse().ok(),
    }
}

/// The largest record that is read.
const MAX_RECORD: u64 = 80 << 20;

fn recorded(path: &Path) -> Result<Capture, (String, Exit)> {
    let mut bytes = Vec::new();
    let read = if path.as_os_str() == "-" {
        std::io::stdin().take(MAX_RECORD).read_to_end(&mut bytes)
    } else {
        std::fs::File::open(path).and_then(|file| file.take(MAX_RECORD).read_to_end(&mut bytes))
    };
    let shown = path.display();
    read.map_err(|error| (format!("{shown} can't be read: {error}"), Exit::Device))?;
    Capture::read(&bytes).map_err(|error| {
        (
            format!("{shown} is no recorded request: {error}"),
            Exit::Data,
        )
    })
}

/// What was found out about one request.
struct Findings {
    /// `valid`, `challenge`, `bad-challenge`, `duplicate`, `too-large`, `unsupported-coding`, or the word of the verdict.
    word: &'static str,
    reason: String,
    verdict: Verdict,
    basis: Option<Basis>,
    hints: Vec<Hint>,
    /// What is odd about the record itself.
    notes: Vec<String>,
    target: String,
    body: usize,
}

/// What a hook's requests are judged with.
struct Secrets<'a> {
    keys: &'a [Key],
    token: Option<&'a SecretValue>,
}

/// Why a request that is rightly signed would not be taken: a word and what the door would answer.
fn turned_away(hook: &Hook, capture: &Capture) -> Option<(&'static str, String)> {
    let path = capture.path();
    if !capture.is_bare && path != hook.path {
        let answer = format!(
            "rightly signed, but it was sent to {path}, and this hook is at {}: the door answers 404",
            hook.path
        );
        return Some(("malformed", answer));
    }
    if capture.method != "POST" {
        let answer = format!(
            "rightly signed, but it is a {} request, and a hook takes POST: the door answers 405",
            capture.method
        );
        return Some(("malformed", answer));
    }
    if capture.missing > 0 {
        let answer = format!(
            "rightly signed, but the body is {} bytes shorter than Content-Length says: the door waits for the rest and answers 408",
            capture.missing
        );
        return Some(("malformed", answer));
    }
    let fields: Fields = capture.headers.iter().cloned().collect();
    let error = coding::check(&fields, &capture.body, coding::most(&capture.body)).err()?;
    let answer = format!(
        "rightly signed, but {error}: the door answers {}",
        error.status()
    );
    Some((error.word(), answer))
}

/// `seen` says under which request id an event was taken before.
fn judge(
    hook: &Hook,
    secrets: &Secrets<'_>,
    capture: &Capture,
    now: Timestamp,
    seen: &dyn Fn(&EventId) -> Option<String>,
) -> Findings {
    capture.received(|request| {
        let keys = secrets.keys;
        let verdict = verify(&hook.rule, keys, request, Some(now));
        let is_valid = matches!(verdict, Verdict::Valid(_));
        let away = turned_away(hook, capture).filter(|_| is_valid);
        let before = match &verdict {
            Verdict::Valid(event) if away.is_none() => seen(&event.id),
            _ => None,
        };
        let token = secrets.token.map(|token| token.expose().as_bytes());
        let setup = hook.challenge.as_ref().map(|setup| setup.challenge());
        let answered = setup.and_then(|setup| challenge::answer(setup, token, request, &verdict));
        let failed = setup
            .filter(|_| answered.is_none() && !is_valid)
            .and_then(|setup| challenge::unanswered(setup, token, request));
        let (word, reason) = if let Some(answer) = answered {
            let text = String::from_utf8_lossy(&answer.body).into_owned();
            (
                "challenge",
                format!("a setup challenge, answered with {text}"),
            )
        } else if let Some(why) = failed {
            let reason = format!("{why}; the door answers {}", why.status());
            (Unanswered::WORD, reason)
        } else if capture.body.len() > hook.max_body {
            let reason = format!(
                "the body has {} bytes, and `max_body` is {}; its signature: {}",
                capture.body.len(),
                hook.max_body,
                verdict.word()
            );
            ("too-large", reason)
        } else if let Some(away) = away {
            away
        } else if let Some(id) = before {
            (
                "duplicate",
                format!("the same event was taken as request {id}"),
            )
        } else {
            (verdict.word(), verdict.to_string())
        };
        Findings {
            word,
            reason,
            basis: hint::basis(&hook.rule, request),
            hints: match word {
                "challenge" | Unanswered::WORD => Vec::new(),
                _ => hint::hints(&hook.rule, keys, request, &verdict, now),
            },
            verdict,
            notes: notes(hook, capture),
            target: format!("{} {}", capture.method, capture.target),
            body: capture.body.len(),
        }
    })
}

fn notes(hook: &Hook, capture: &Capture) -> Vec<String> {
    let mut notes = Vec::new();
    if capture.surplus > 0 {
        notes.push(format!(
            "the record goes on for {} bytes behind the body that Content-Length says; they are not judged",
            capture.surplus
        ));
    }
    if capture.missing > 0 {
        notes.push(format!(
            "the body is {} bytes shorter than Content-Length says: the record is cut, or its line ends were changed",
            capture.missing
        ));
    }
    let path = capture.path();
    if !capture.is_bare && path != hook.path {
        notes.push(format!(
            "it was sent to {path}, and this hook is at {}",
            hook.path
        ));
    }
    let may_get = matches!(hook.challenge, Some(Setup::Meta { .. })) && capture.method == "GET";
    if capture.method != "POST" && !may_get {
        notes.push(format!(
            "it is a {} request, and a hook takes POST",
            capture.method
        ));
    }
    notes
}

impl Findings {
    fn text(&self, hook: &Hook, now: Timestamp) -> String {
        let mut rows = vec![
            (
                "request",
                format!("{}, {} bytes of body", self.target, self.body),
            ),
            (
                "scheme",
                format!("{}, judged as of {now}", hook.rule.scheme.name),
            ),
        ];
        if let Some(basis) = &self.basis {
            let parts: Vec<String> = basis
                .parts
                .iter()
                .map(|(what, size)| format!("{what} ({size})"))
                .collect();
            rows.push((
                "signed",
                format!("{} bytes: {}", basis.bytes, parts.join(", ")),
            ));
            rows.extend(basis.sent_at.map(|time| ("signed at", time.to_string())));
        }
        if let Verdict::Valid(event) = &self.verdict {
            let kind = event.kind.as_deref();
            let asked = match (hook.wants(kind), kind) {
                (true, Some(kind)) => format!(", type {kind}"),
                (true, None) => String::new(),
                (false, kind) => format!(
                    ", type {}: not among `events`, so nothing is done",
                    kind.unwrap_or("unknown")
                ),
            };
            rows.push(("event", format!("{}{asked}", event.id)));
            let (which, of) = (event.secret + 1, hook.secrets.len());
            rows.push(("secret", format!("number {which} of {of}")));
        }
        rows.extend(self.notes.iter().map(|note| ("note", note.clone())));
        rows.extend(self.hints.iter().map(|hint| ("look at", hint.to_string())));
        let mut text = format!("{}: {}\n", self.word, printable(&self.reason));
        for (head, what) in rows {
            text.push_str(&format!("  {head:9}  {}\n", printable(&what)));
        }
        text
    }

    fn json(&self, hook: &Hook) -> serde_json::Value {
        let signed = self.basis.as_ref().map(|basis| {
            let parts: Vec<_> = basis
                .parts
                .iter()
                .map(|(what, size)| json!({ "what": what, "bytes": size }))
                .collect();
            json!({
                "bytes": basis.bytes,
                "parts": parts,
                "at": basis.sent_at.map(|time| time.to_string()),
            })
        });
        let event = match &self.verdict {
            Verdict::Valid(event) => json!({
                "id": event.id.as_str(),
                "type": event.kind,
                "wanted": hook.wants(event.kind.as_deref()),
                "secret": event.secret + 1,
            }),
            _ => serde_json::Value::Null,
        };
        let hints: Vec<String> = self.hints.iter().map(ToString::to_string).collect();
        json!({
            "hook": hook.name,
            "verdict": self.word,
            "reason": self.reason,
            "scheme": hook.rule.scheme.name,
            "body_bytes": self.body,
            "signed": signed,
            "event": event,
            "hints": hints,
            "notes": self.notes,
        })
    }
}

/// What a stranger sent must not steer the terminal.
fn printable(text: &str) -> String {
    text.chars()
        .map(|letter| {
            if letter.is_control() {
                '\u{fffd}'
            } else {
                letter
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "[source.s]\nurl = \"https://h.example/x\"\nkey = \"/id\"\n[door]\nlisten = \"127.0.0.1:1\"\n\
         [hook.h]\nscheme = \"github\"\nsecret = { env = \"S\" }\nwakes = \"s\"\nmax_body = \"13B\"\n";

    fn findings(record: &str, seen: &dyn Fn(&EventId) -> Option<String>) -> Findings {
        let env = |name: &str| (name == "S").then(|| "It's a Secret to Everybody".into());
        let mut config = crate::config::parse(FILE, Path::new("/f.toml"), &env).unwrap();
        let hook = config.hooks.remove("h").unwrap();
        let keys = hook.keys(&env).unwrap();
        let capture = Capture::read(record.as_bytes()).unwrap();
        let secrets = Secrets {
            keys: &keys,
            token: None,
        };
        judge(&hook, &secrets, &capture, Timestamp::UNIX_EPOCH, seen)
    }

    const SIGNED: &str = "POST /hooks/h HTTP/1.1\n\
         X-Hub-Signature-256: sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17\n\
         X-GitHub-Delivery: d1\n\nHello, World!";

    #[test]
    fn an_event_that_was_taken_before_is_a_duplicate() {
        assert_eq!(findings(SIGNED, &|_| None).word, "valid");
        let seen = |id: &EventId| (id.as_str() == "d1").then(|| "0199".to_owned());
        let found = findings(SIGNED, &seen);
        assert_eq!(found.word, "duplicate");
        assert_eq!(found.reason, "the same event was taken as request 0199");
        // A stranger does not learn that.
        let touched = SIGNED.replace("World", "Earth");
        assert_eq!(
            findings(&touched, &|_| panic!("nobody asks")).word,
            "bad-signature"
        );
    }

    #[test]
    fn a_body_over_the_cap_is_too_large_whoever_signed_it() {
        let found = findings(&format!("{SIGNED}\n"), &|_| None);
        assert_eq!(found.word, "too-large");
        assert_eq!(
            found.reason,
            "the body has 14 bytes, and `max_body` is 13; its signature: bad-signature"
        );
    }

    #[test]
    fn a_stranger_does_not_steer_the_terminal() {
        assert_eq!(
            printable("a\u{1b}[2Jb\r\u{7}"),
            "a\u{fffd}[2Jb\u{fffd}\u{fffd}"
        );
    }
}
