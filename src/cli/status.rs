//! `gleaner status`: how sources, documents and hooks stand.

use super::exit::Exit;
use super::{output, remote};
use crate::agent::Agent;
use crate::config::Config;
use crate::desk::{Desk, SourceStatus, Status};
use crate::state::StateError;
use crate::wait::Wait;

pub(super) fn status(config: Config, wait: &Wait, json: bool) -> Exit {
    let socket = config.agent.control.clone();
    // Looking at what is not there yet must not make it.
    let exists = config.agent.state.exists();
    let mut agent = Agent::new(config, wait.clone(), Desk::default());
    // The running agent is asked first: whoever may use its socket need not be able to write its state.
    if let Ok(status) = remote::status(&socket, wait) {
        return show(&status, json);
    }
    let opened = if exists { agent.open() } else { Ok(()) };
    let status = match opened {
        Ok(()) => agent.desk().status(wait.now()),
        Err(error @ StateError::Taken { .. }) => match remote::status(&socket, wait) {
            Ok(status) => status,
            Err(cause) => {
                output::error(&remote::unreachable(&error, &socket, &cause));
                return Exit::TryAgain;
            }
        },
        Err(error) => {
            output::error(&error.to_string());
            return Exit::from(&error);
        }
    };
    show(&status, json)
}

fn show(status: &Status, json: bool) -> Exit {
    if json {
        match serde_json::to_string(status) {
            Ok(text) => output::line(&text),
            Err(error) => output::error(&error.to_string()),
        }
    } else {
        print(status);
    }
    Exit::Ok
}

fn print(status: &Status) {
    let running = status.pid.map_or("not running".to_owned(), |pid| {
        format!("running, pid {pid}")
    });
    output::line(&format!(
        "{} · gleaner {} · {running}",
        status.agent, status.version
    ));
    for alarm in &status.alarms {
        output::line(&format!("! {alarm}"));
    }
    if status.clock.state == "unsure" {
        output::line(&format!("clock unsure: {}", status.clock.reason));
    }
    if status.sources.is_empty() && status.documents.is_empty() {
        output::line("no sources: the config has no [source.NAME] yet");
        return;
    }
    if !status.sources.is_empty() {
        sources(status);
    }
    if !status.documents.is_empty() {
        documents(status);
    }
    hooks(status);
    for (name, source) in &status.sources {
        remarks(name, &source.reason, source.failures, &source.notes);
        lateness(name, source);
    }
    for (name, document) in &status.documents {
        remarks(name, &document.reason, document.failures, &document.notes);
    }
    for path in &status.leftovers {
        output::line(&format!(
            "documents/{path} belongs to no document: remove it if nobody needs it"
        ));
    }
}

fn sources(status: &Status) {
    let heads = [
        "source",
        "outcome",
        "records",
        "data",
        "last check",
        "last change",
        "next",
        "saved",
    ];
    let mut rows = vec![heads.map(str::to_owned).to_vec()];
    for (name, source) in &status.sources {
        rows.push(row(name, source));
    }
    if status.pid.is_none() {
        // What comes next and what was saved so far is known to an agent that stays.
        rows.iter_mut()
            .for_each(|row| row.truncate(heads.len() - 2));
    }
    output::print_table(&rows);
}

/// Which files are kept, whole digests included: that is what somebody compares with.
fn documents(status: &Status) {
    let heads = [
        "document",
        "outcome",
        "size",
        "file",
        "last check",
        "last change",
        "sha256",
        "next",
    ];
    let mut rows = vec![heads.map(str::to_owned).to_vec()];
    for (name, document) in &status.documents {
        let file = match (&document.sha256, document.stale) {
            (None, _) => "none",
            (Some(_), true) => "stale",
            (Some(_), false) => "fresh",
        };
        rows.push(vec![
            name.clone(),
            document.outcome.clone(),
            document.size.map_or("-".into(), output::bytes),
            file.into(),
            ago(document.checked_ago),
            document
                .last_change
                .as_deref()
                .map_or("never".into(), to_the_second),
            document.sha256.clone().unwrap_or("-".into()),
            next(
                document
                    .running
                    .map(|totals| format!("{} down", output::bytes(totals.bytes_down))),
                document.due_in,
                &document.due_why,
            ),
        ]);
    }
    if status.pid.is_none() {
        rows.iter_mut()
            .for_each(|row| row.truncate(heads.len() - 1));
    }
    output::print_table(&rows);
}

fn hooks(status: &Status) {
    if !status.hooks.is_empty() {
        output::line("");
        let heads = ["hook", "saved", "known", "refused", "waiting", "last event"];
        let mut rows = vec![heads.map(str::to_owned).to_vec()];
        for (name, hook) in &status.hooks {
            rows.push(vec![
                name.clone(),
                hook.saved.to_string(),
                hook.duplicates.to_string(),
                hook.refused.values().sum::<u64>().to_string(),
                hook.waiting.to_string(),
                hook.last
                    .as_deref()
                    .map_or("none known".into(), to_the_second),
            ]);
        }
        output::print_table(&rows);
        output::line("saved, known and refused count since the agent started");
        for (name, hook) in &status.hooks {
            for (why, count) in &hook.refused {
                output::line(&format!(
                    "{name}: {count} refused as {why}: {}",
                    advice(why)
                ));
            }
            for note in &hook.notes {
                output::line(&format!("{name}: {note}"));
            }
        }
        output::line("");
    }
}

/// What to look at where requests are refused for this.
fn advice(why: &str) -> &'static str {
    match why {
        "clock-untrusted" => {
            "rightly signed, but this device does not know the time yet; the clock's line above says why, and `[agent] time_sync` who may vouch for it"
        }
        "disk-low" | "inbox-full" | "not-saved" | "inbox-shut" => {
            "they could not be saved, and their senders try again; as long as it is so an alarm above says why"
        }
        "no-secret" => "the hook's secret cannot be read; the alarm above says why",
        "bad-challenge" => {
            "a setup challenge failed; is `verify_token` what was entered at the sender?"
        }
        "unsupported-coding" => "only gzip is taken as Content-Encoding",
        "too-large" => "the payload, or what it unpacks to, is larger than is taken",
        _ => "`gleaner hook check` says why of a recorded request",
    }
}

/// Why it is so, and what else there is to know.
fn remarks(name: &str, reason: &str, failures: u32, notes: &[String]) {
    if !reason.is_empty() {
        let tries = if failures > 1 {
            format!(" ({failures} times in a row)")
        } else {
            String::new()
        };
        output::line(&format!("{name}: {reason}{tries}"));
    }
    for note in notes {
        output::line(&format!("{name}: {note}"));
    }
}

fn lateness(name: &str, source: &SourceStatus) {
    let Some(course) = source.course.as_ref().filter(|course| course.observed > 0) else {
        return;
    };
    let configured = course.lateness.map_or(String::new(), |lateness| {
        format!("; `lateness` is {}", output::seconds(lateness))
    });
    output::line(&format!(
        "{name}: of {} records 99 % were visible within {} of their update time, all within {}{configured}",
        course.observed,
        output::seconds(course.late_p99),
        output::seconds(course.late_max)
    ));
}

fn next(running: Option<String>, due_in: Option<u64>, why: &str) -> String {
    match (running, due_in) {
        (Some(far), _) => format!("now: {far}"),
        (None, Some(0)) => "now".into(),
        (None, Some(seconds)) if why.is_empty() => format!("in {}", output::seconds(seconds)),
        (None, Some(seconds)) => format!("in {}, {why}", output::seconds(seconds)),
        (None, None) => "-".into(),
    }
}

fn ago(seconds: Option<u64>) -> String {
    seconds.map_or("never".into(), |ago| {
        format!("{} ago", output::seconds(ago))
    })
}

/// An instant without its fraction.
fn to_the_second(instant: &str) -> String {
    match instant.split_once('.') {
        Some((seconds, _)) => format!("{seconds}Z"),
        None => instant.to_owned(),
    }
}

fn row(name: &str, source: &SourceStatus) -> Vec<String> {
    let data = match (&source.last_check, source.stale) {
        (None, _) => "none",
        (Some(_), true) => "stale",
        (Some(_), false) => "fresh",
    };
    vec![
        name.to_owned(),
        source.outcome.clone(),
        source.records.to_string(),
        data.into(),
        ago(source.checked_ago),
        source
            .last_change
            .as_deref()
            .map_or("never".into(), to_the_second),
        next(
            source.running.as_ref().map(output::far),
            source.due_in,
            &source.due_why,
        ),
        output::bytes(source.totals.bytes_saved),
    ]
}
