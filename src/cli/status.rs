//! `gleaner status`: how the sources stand.

use super::exit::Exit;
use super::{output, remote};
use crate::agent::Agent;
use crate::config::Config;
use crate::desk::{Desk, Status};
use crate::state::StateError;
use crate::wait::Wait;

pub(super) fn status(config: Config, wait: &Wait, json: bool) -> Exit {
    let socket = config.agent.control.clone();
    let mut agent = Agent::new(config, wait.clone(), Desk::default());
    let status = match agent.open() {
        Ok(()) => {
            let mut status = agent.desk().status();
            // Nobody waits for it: there is no due time without a running agent.
            status
                .sources
                .values_mut()
                .for_each(|source| source.due_in = None);
            status
        }
        Err(error @ StateError::Taken { .. }) => match remote::status(&socket) {
            Ok(status) => status,
            Err(cause) => {
                output::error(&format!(
                    "{error}\n  but it cannot be asked at {}: {cause}",
                    socket.display()
                ));
                return Exit::TryAgain;
            }
        },
        Err(error) => {
            output::error(&error.to_string());
            return Exit::from(&error);
        }
    };
    if json {
        match serde_json::to_string(&status) {
            Ok(text) => output::line(&text),
            Err(error) => output::error(&error.to_string()),
        }
    } else {
        print(&status);
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
    let mut rows = vec![
        [
            "source",
            "outcome",
            "records",
            "last check",
            "last change",
            "stale",
            "next",
            "saved",
        ]
        .map(str::to_owned)
        .to_vec(),
    ];
    for (name, source) in &status.sources {
        let next = match (&source.running, source.due_in) {
            (Some(totals), _) => format!(
                "running: {} records",
                totals.added + totals.changed + totals.unchanged
            ),
            (None, Some(seconds)) => {
                format!("in {} ({})", output::seconds(seconds), source.due_why)
            }
            (None, None) => "-".into(),
        };
        rows.push(vec![
            name.clone(),
            source.outcome.clone(),
            source.records.to_string(),
            source.last_check.clone().unwrap_or_else(|| "never".into()),
            source.last_change.clone().unwrap_or_else(|| "never".into()),
            if source.stale { "stale" } else { "fresh" }.into(),
            next,
            output::bytes(source.totals.bytes_saved),
        ]);
    }
    output::line(output::table(&rows).trim_end());
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
    }
}
