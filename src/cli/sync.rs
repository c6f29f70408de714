//! `gleaner sync`, `reconcile`, `replay`: one wish, carried out here or by the running agent.

use serde_json::Value;

use super::exit::Exit;
use super::{ReconcileArguments, ReplayArguments, SyncArguments, output, remote};
use crate::agent::Agent;
use crate::config::Config;
use crate::desk::{Desk, Event, Wish};
use crate::state::StateError;
use crate::wait::Wait;

pub(super) fn sync(config: Config, wait: &Wait, arguments: &SyncArguments) -> Exit {
    let wish = Wish {
        sources: arguments.sources.clone(),
        dry_run: arguments.dry_run,
        ..Wish::default()
    };
    grant(
        config,
        wait,
        &wish,
        Shape::of(arguments.json, arguments.dry_run),
    )
}

pub(super) fn reconcile(config: Config, wait: &Wait, arguments: &ReconcileArguments) -> Exit {
    let wish = Wish {
        sources: vec![arguments.source.clone()],
        confirm: arguments.confirm,
        ..Wish::default()
    };
    grant(config, wait, &wish, Shape::of(arguments.json, false))
}

pub(super) fn replay(config: Config, wait: &Wait, arguments: &ReplayArguments) -> Exit {
    let wish = Wish {
        sources: vec![arguments.source.clone()],
        replay: true,
        ..Wish::default()
    };
    grant(config, wait, &wish, Shape::of(arguments.json, false))
}

/// How results are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// One JSON object a line, as they come.
    Json,
    /// A table at the end.
    Table,
    /// The same, of what would change.
    DryTable,
}

impl Shape {
    fn of(json: bool, dry_run: bool) -> Self {
        match (json, dry_run) {
            (true, _) => Self::Json,
            (false, true) => Self::DryTable,
            (false, false) => Self::Table,
        }
    }
}

/// Carries a wish out: here, or by the agent that holds the state directory.
pub(super) fn grant(config: Config, wait: &Wait, wish: &Wish, shape: Shape) -> Exit {
    let socket = config.agent.control.clone();
    let unknown = wish
        .sources
        .iter()
        .find(|name| !config.sources.contains_key(*name));
    if let Some(name) = unknown {
        let known: Vec<&str> = config.sources.keys().map(String::as_str).collect();
        output::error(&format!(
            "there is no source \"{name}\"; the config has: {}",
            known.join(", ")
        ));
        return Exit::Usage;
    }
    if config.sources.is_empty() {
        output::error("the config has no [source.NAME] yet");
        return Exit::Config;
    }
    let mut results = Results::new(shape);
    let mut agent = Agent::new(config, wait.clone(), Desk::default());
    match agent.open() {
        Ok(()) => {
            agent.verify();
            agent.desk().wish(wish.clone());
            agent.grant_all(&mut |event| results.take(event, wait));
            agent.tidy();
        }
        Err(error @ StateError::Taken { .. }) => {
            let told = remote::wish(&socket, wish, |event| results.take(event, wait));
            if let Err(cause) = told {
                results.progress.clear();
                output::error(&format!(
                    "{error}\n  but it cannot be asked at {}: {cause}",
                    socket.display()
                ));
                return Exit::TryAgain;
            }
        }
        Err(error) => {
            output::error(&error.to_string());
            return Exit::from(&error);
        }
    }
    results.finish()
}

struct Results {
    shape: Shape,
    progress: output::Progress,
    reports: Vec<Value>,
    exit: Exit,
}

impl Results {
    fn new(shape: Shape) -> Self {
        Self {
            shape,
            progress: output::Progress::new(shape == Shape::Json),
            reports: Vec::new(),
            exit: Exit::Ok,
        }
    }

    fn take(&mut self, event: Event, wait: &Wait) {
        match event {
            Event::Progress { source, tally } => self.progress.show(&source, &tally, wait.now()),
            Event::Report(report) => {
                self.progress.clear();
                self.exit = self
                    .exit
                    .worse(Exit::of(report["outcome"].as_str().unwrap_or("")));
                if self.shape == Shape::Json {
                    output::line(&report.to_string());
                } else {
                    self.reports.push(report);
                }
            }
            Event::Refused(reason) => {
                self.progress.clear();
                output::error(&reason);
                self.exit = self.exit.worse(Exit::Usage);
            }
            Event::Done => {}
        }
    }

    fn finish(mut self) -> Exit {
        self.progress.clear();
        if self.shape == Shape::Json || self.reports.is_empty() {
            return self.exit;
        }
        let mut rows = vec![
            [
                "source",
                "outcome",
                "added",
                "changed",
                "deleted",
                "unchanged",
                "requests",
                "up",
                "down",
                "saved",
                "seconds",
            ]
            .map(str::to_owned)
            .to_vec(),
        ];
        for report in &self.reports {
            let number = |name: &str| report[name].as_u64().unwrap_or(0);
            let text = |name: &str| report[name].as_str().unwrap_or("").to_owned();
            rows.push(vec![
                text("source"),
                text("outcome"),
                number("added").to_string(),
                number("changed").to_string(),
                number("deleted").to_string(),
                number("unchanged").to_string(),
                number("requests").to_string(),
                output::bytes(number("bytes_up")),
                output::bytes(number("bytes_down")),
                output::bytes(number("bytes_saved")),
                format!("{:.1}", report["seconds"].as_f64().unwrap_or(0.0)),
            ]);
        }
        output::line(output::table(&rows).trim_end());
        for report in &self.reports {
            self.explain(report);
        }
        if self.shape == Shape::DryTable {
            output::line("nothing was changed (--dry-run)");
        }
        self.exit
    }

    fn explain(&self, report: &Value) {
        let source = report["source"].as_str().unwrap_or("");
        let reason = report["reason"].as_str().unwrap_or("");
        if !reason.is_empty() {
            output::line(&format!("{source}: {reason}"));
        }
        let bad = report["bad"].as_u64().unwrap_or(0);
        if bad > 0 {
            output::line(&format!(
                "{source}: {bad} bad records were skipped; the table _bad in data.db has them and why"
            ));
        }
        for note in report["notes"].as_array().into_iter().flatten() {
            output::line(&format!("{source}: {}", note.as_str().unwrap_or("")));
        }
    }
}
