//! `gleaner status`: how the sources stand.

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
    if status.sources.is_empty() {
        output::line("no sources: the config has no [source.NAME] yet");
        return;
    }
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
                hook.last.as_deref().map_or("never".into(), to_the_second),
            ]);
        }
        output::print_table(&rows);
        for (name, hook) in &status.hooks {
            for (why, count) in &hook.refused {
                output::line(&format!(
                    "{name}: {count} refused as {why}; `gleaner hook check` says why of a recorded request"
                ));
            }
            for note in &hook.notes {
                output::line(&format!("{name}: {note}"));
            }
        }
        output::line("");
    }
    for (name, source) in &status.sources {
        if !source.reason.is_empty() {
            let tries = if source.failures > 1 {
                format!(" ({} times in a row)", source.failures)
            } else {
                String::new()
            };
            output::line(&format!("{name}: {}{tries}", source.reason));
        }
        for note in &source.notes {
            output::line(&format!("{name}: {note}"));
        }
        if let Some(course) = source.course.as_ref().filter(|course| course.observed > 0) {
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
    }
}

/// An instant without its fraction.
fn to_the_second(instant: &str) -> String {
    match instant.split_once('.') {
        Some((seconds, _)) => format!("{seconds}Z"),
        None => instant.to_owned(),
    }
}

fn row(name: &str, source: &SourceStatus) -> Vec<String> {
    let next = match (&source.running, source.due_in) {
        (Some(totals), _) => format!("now: {}", output::far(totals)),
        (None, Some(0)) => "now".into(),
        (None, Some(seconds)) if source.due_why.is_empty() => {
            format!("in {}", output::seconds(seconds))
        }
        (None, Some(seconds)) => format!("in {}, {}", output::seconds(seconds), source.due_why),
        (None, None) => "-".into(),
    };
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
        source.checked_ago.map_or("never".into(), |ago| {
            format!("{} ago", output::seconds(ago))
        }),
        source
            .last_change
            .as_deref()
            .map_or("never".into(), to_the_second),
        next,
        output::bytes(source.totals.bytes_saved),
    ]
}
