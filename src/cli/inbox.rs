//! `gleaner inbox`: what came to the hooks. Looking reads the files; changing is done here or by the running agent.

use std::io::Write as _;

use super::exit::Exit;
use super::{InboxCommand, InboxListArguments, InboxShowArguments, output, remote};
use crate::agent::Agent;
use crate::clock::Timestamp;
use crate::config::Config;
use crate::desk::{Desk, Event, InboxWish, Wish};
use crate::hook::to_base64;
use crate::inbox::{self, Filter, InboxError, Listed, Reader, State};
use crate::state::StateError;
use crate::wait::Wait;

/// What `--state` takes.
pub(super) const STATES: [&str; 6] = ["pending", "failed", "dead", "done", "dropped", "void"];

pub(super) fn inbox(config: Config, wait: &Wait, command: InboxCommand) -> Exit {
    let reader = Reader::new(&config.agent.state.join(inbox::NAME));
    match command {
        InboxCommand::List(list) => done(self::list(&reader, list)),
        InboxCommand::Show(show) => done(self::show(&reader, &show)),
        InboxCommand::Retry(retry) if retry.all_dead => {
            change(config, wait, InboxWish::RetryDead, retry.json)
        }
        InboxCommand::Retry(retry) => change(config, wait, InboxWish::Retry(retry.ids), retry.json),
        InboxCommand::Drop(drop) => change(config, wait, InboxWish::Drop(drop.ids), drop.json),
    }
}

fn done(outcome: Result<(), InboxError>) -> Exit {
    match outcome {
        Ok(()) => Exit::Ok,
        Err(error) => {
            output::error(&error.to_string());
            if error.is_usage() {
                Exit::Usage
            } else {
                Exit::Device
            }
        }
    }
}

/// Has it done here, or by the agent that holds the state directory.
fn change(config: Config, wait: &Wait, wish: InboxWish, json: bool) -> Exit {
    let (key, verb) = match &wish {
        InboxWish::Retry(_) | InboxWish::RetryDead => ("retried", "tried again"),
        InboxWish::Drop(_) => ("dropped", "given up"),
    };
    let socket = config.agent.control.clone();
    let wish = Wish {
        inbox: Some(wish),
        ..Wish::default()
    };
    let mut exit = Exit::Ok;
    let mut take = |event| match event {
        Event::Inbox { changed } if json => {
            output::line(&serde_json::json!({ key: changed }).to_string());
        }
        Event::Inbox { changed: 1 } => output::line(&format!("1 payload is {verb}")),
        Event::Inbox { changed } => output::line(&format!("{changed} payloads are {verb}")),
        Event::Refused { usage, reason } => {
            output::error(&reason);
            exit = if usage { Exit::Usage } else { Exit::Device };
        }
        Event::Progress { .. }
        | Event::Report(_)
        | Event::Explained(_)
        | Event::State(_)
        | Event::Reset { .. }
        | Event::Done => {}
    };
    let mut agent = Agent::new(config, wait.clone(), Desk::default());
    match agent.open() {
        Ok(()) => agent.carry_out(&wish, &mut take),
        Err(error @ StateError::Taken { .. }) => {
            if let Err(cause) = remote::wish(&socket, wait, &wish, &mut take) {
                output::error(&remote::unreachable(&error, &socket, &cause));
                return Exit::TryAgain;
            }
        }
        Err(error) => {
            output::error(&error.to_string());
            return Exit::from(&error);
        }
    }
    exit
}

fn list(reader: &Reader, arguments: InboxListArguments) -> Result<(), InboxError> {
    let filter = Filter {
        hook: arguments.hook,
        state: arguments.state,
    };
    if arguments.json {
        return reader.list(&filter, |listed| output::line(&listed.json().to_string()));
    }
    let heads = ["id", "hook", "received", "state", "tries", "bytes", "type"];
    let mut rows = vec![heads.map(str::to_owned).to_vec()];
    let mut reasons = Vec::new();
    reader.list(&filter, |listed| {
        if let Some(reason) = reason(&listed.state) {
            reasons.push(format!("{}: {}", listed.stored.id, plain(reason)));
        }
        rows.push(row(&listed));
    })?;
    if rows.len() == 1 {
        output::line("no payloads");
        return Ok(());
    }
    output::print_table(&rows);
    reasons.iter().for_each(|reason| output::line(reason));
    Ok(())
}

fn row(listed: &Listed) -> Vec<String> {
    let received = &listed.stored.received;
    vec![
        listed.stored.id.to_string(),
        plain(&received.hook),
        at(received.at),
        listed.state.word().into(),
        tries(&listed.state).to_string(),
        output::bytes(listed.bytes as u64),
        received.event_type.as_deref().map_or("-".into(), plain),
    ]
}

fn show(reader: &Reader, arguments: &InboxShowArguments) -> Result<(), InboxError> {
    let listed = reader.show(arguments.id)?;
    let received = &listed.stored.received;
    if arguments.raw {
        // A reader that has gone away is no reason to complain.
        drop(std::io::stdout().write_all(&received.body));
        return Ok(());
    }
    if arguments.json {
        output::line(&whole(&listed).to_string());
        return Ok(());
    }
    let trust = if received.clock_trusted {
        ""
    } else {
        ", by a clock that was not known to be right"
    };
    output::line(&format!("id        {}", listed.stored.id));
    output::line(&format!("hook      {}", plain(&received.hook)));
    output::line(&format!("received  {}{trust}", at(received.at)));
    output::line(&format!("from      {}", plain(&received.peer)));
    output::line(&format!("state     {}", standing(&listed)));
    for (head, value) in [
        ("event id", &received.event_id),
        ("type", &received.event_type),
    ] {
        if let Some(value) = value {
            output::line(&format!("{head:8}  {}", plain(value)));
        }
    }
    output::line("");
    let target = String::from_utf8_lossy(&received.target);
    output::line(&format!(
        "{} {}",
        plain(&received.method),
        plain(&hidden_parameters(&target))
    ));
    for (name, value) in &received.headers {
        let name = String::from_utf8_lossy(name);
        output::line(&format!("{}: {}", plain(&name), header_value(&name, value)));
    }
    output::line("");
    match std::str::from_utf8(&received.body) {
        Ok(text) => output::line(&body(text)),
        Err(_) => output::line(&format!(
            "({} bytes that are no text; --raw writes them out)",
            received.body.len()
        )),
    }
    Ok(())
}

/// All of a payload for other programs, secrets hidden as they are for people.
fn whole(listed: &Listed) -> serde_json::Value {
    let received = &listed.stored.received;
    let mut object = listed.json();
    let target = String::from_utf8_lossy(&received.target);
    let headers: Vec<_> = received
        .headers
        .iter()
        .map(|(name, value)| {
            let name = String::from_utf8_lossy(name);
            let value = shown_value(&name, value);
            (name, value)
        })
        .collect();
    object["method"] = received.method.as_str().into();
    object["target"] = hidden_parameters(&target).into();
    object["headers"] = serde_json::json!(headers);
    match std::str::from_utf8(&received.body) {
        Ok(text) => object["body"] = text.into(),
        Err(_) => object["body_base64"] = to_base64(&received.body).into(),
    }
    object
}

fn standing(listed: &Listed) -> String {
    let since = listed
        .since
        .and_then(instant)
        .map_or(String::new(), |since| format!(" since {}", at(since)));
    let word = listed.state.word();
    match &listed.state {
        State::Failed {
            tries,
            next,
            reason,
        } => {
            let next = instant(*next).map_or("soon".into(), at);
            format!(
                "{word}{since}, {tries} times, next try {next}: {}",
                plain(reason)
            )
        }
        State::Dead { tries, reason } => {
            format!("{word}{since}, after {tries} tries: {}", plain(reason))
        }
        State::Pending | State::Done | State::Dropped | State::Void => format!("{word}{since}"),
    }
}

fn tries(state: &State) -> u16 {
    match state {
        State::Failed { tries, .. } | State::Dead { tries, .. } => *tries,
        _ => 0,
    }
}

fn reason(state: &State) -> Option<&str> {
    match state {
        State::Failed { reason, .. } | State::Dead { reason, .. } => Some(reason),
        _ => None,
    }
}

fn instant(seconds: u32) -> Option<Timestamp> {
    Timestamp::from_second(i64::from(seconds)).ok()
}

fn at(instant: Timestamp) -> String {
    instant.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// A field or parameter of this name holds a secret, not what was computed with one.
pub(super) fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let whole = [
        "authorization",
        "proxy-authorization",
        "cookie",
        "key",
        "auth",
    ];
    let parts = [
        "token", "secret", "password", "api-key", "api_key", "apikey",
    ];
    whole.contains(&name.as_str()) || parts.iter().any(|part| name.contains(part))
}

/// A field's value as text, hidden where it is a secret. What was not even saved says so itself.
fn shown_value(name: &str, value: &[u8]) -> String {
    if is_secret(name) && !value.starts_with(inbox::NOT_SAVED.as_bytes()) {
        format!("(hidden, {} bytes)", value.len())
    } else {
        String::from_utf8_lossy(value).into_owned()
    }
}

fn header_value(name: &str, value: &[u8]) -> String {
    plain(&shown_value(name, value))
}

/// A target whose parameters' values are hidden where they are secret.
fn hidden_parameters(target: &str) -> String {
    let Some((path, query)) = target.split_once('?') else {
        return target.to_owned();
    };
    let parameters: Vec<String> = query
        .split('&')
        .map(|parameter| match parameter.split_once('=') {
            Some((name, _)) if is_secret(name) => format!("{name}=(hidden)"),
            _ => parameter.to_owned(),
        })
        .collect();
    format!("{path}?{}", parameters.join("&"))
}

/// Text of a stranger's, on one line: what would steer a terminal is spelled out.
pub(super) fn plain(text: &str) -> String {
    text.chars()
        .map(|c| {
            if c.is_control() {
                c.escape_default().to_string()
            } else {
                c.to_string()
            }
        })
        .collect()
}

/// The same with the lines that it has.
fn body(text: &str) -> String {
    let lines: Vec<String> = text
        .lines()
        .map(|line| line.split('\t').map(plain).collect::<Vec<_>>().join("\t"))
        .collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_hidden_and_signatures_shown() {
        for (name, secret) in [
            ("Authorization", true),
            ("cookie", true),
            ("X-Gitlab-Token", true),
            ("X-Api-Key", true),
            ("X-Hub-Signature-256", false),
            ("webhook-signature", false),
            ("Idempotency-Key", false),
            ("X-Event-Key", false),
            ("Content-Type", false),
        ] {
            assert_eq!(is_secret(name), secret, "{name}");
        }
        assert_eq!(header_value("Cookie", b"a=b"), "(hidden, 3 bytes)");
        let not_saved = b"(not saved: 28 bytes)";
        assert_eq!(
            header_value("X-Gitlab-Token", not_saved),
            "(not saved: 28 bytes)"
        );
        assert_eq!(
            hidden_parameters("/hooks/erp?id=1&token=abc&b"),
            "/hooks/erp?id=1&token=(hidden)&b"
        );
    }

    #[test]
    fn nothing_of_a_payload_steers_the_terminal() {
        assert_eq!(plain("a\x1b[2Jb\n"), "a\\u{1b}[2Jb\\n");
        assert_eq!(
            body("{\n\t\"a\": \"\x07\"\r\n}"),
            "{\n\t\"a\": \"\\u{7}\"\n}"
        );
        assert_eq!(header_value("X-A", &[b'a', 0xFF]), "a\u{FFFD}");
    }
}
