//! `gleaner sync`, `reconcile`, `replay`: one wish, carried out here or by the running agent.

use serde_json::Value;

use super::exit::Exit;
use super::{ReconcileArguments, ReplayArguments, SyncArguments, output, remote};
use crate::agent::Agent;
use crate::config::Config;
use crate::desk::{Desk, Event, Wish};
use crate::state::StateError;
use crate::wait::{Wait, is_stop};

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
    /// Whether each source answers.
    Probe,
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
    if config.sources.is_empty() {
        output::error("the config has no [source.NAME] yet");
        return Exit::Config;
    }
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
    let mut results = Results::new(shape);
    let mut agent = Agent::new(config, wait.clone(), Desk::default());
    match agent.open() {
        Ok(()) => {
            agent.verify();
            agent.carry_out(wish, &mut |event| results.take(event, wait));
            agent.tidy();
        }
        Err(error @ StateError::Taken { .. }) => {
            let told = remote::wish(&socket, wait, wish, |event| results.take(event, wait));
            if let Err(cause) = told {
                let why = if is_stop(&cause) {
                    "stopped; the running agent carries on with what it was asked".to_owned()
                } else {
                    remote::unreachable(&error, &socket, &cause)
                };
                results.finish();
                output::error(&why);
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
            Event::Refused { usage, reason } => {
                self.progress.clear();
                output::error(&reason);
                let exit = if usage { Exit::Usage } else { Exit::Device };
                self.exit = self.exit.worse(exit);
            }
            Event::Done => {}
        }
    }

    fn finish(mut self) -> Exit {
        self.progress.clear();
        if self.shape == Shape::Json || self.reports.is_empty() {
            return self.exit;
        }
        if self.shape == Shape::Probe {
            output::print_table(&self.probes());
        } else {
            output::print_table(&self.passes());
        }
        for report in &self.reports {
            self.explain(report);
        }
        match self.shape {
            Shape::DryTable => output::line("nothing was changed (--dry-run)"),
            Shape::Probe => output::line("only first pages were asked for; nothing was changed"),
            Shape::Json | Shape::Table => {}
        }
        self.exit
    }

    fn passes(&self) -> Vec<Vec<String>> {
        let heads = [
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
            "time",
        ];
        let mut rows = vec![heads.map(str::to_owned).to_vec()];
        for report in &self.reports {
            rows.push(pass_row(
                word(report, "source"),
                word(report, "outcome"),
                |name| number(report, name),
                seconds(report),
            ));
        }
        if self.reports.len() > 1 {
            let sum = |name: &str| self.reports.iter().map(|report| number(report, name)).sum();
            let time = self.reports.iter().map(seconds).sum();
            rows.push(pass_row("(all)", "", sum, time));
        }
        rows
    }

    fn probes(&self) -> Vec<Vec<String>> {
        let heads = [
            "source", "answer", "records", "requests", "up", "down", "time",
        ];
        let mut rows = vec![heads.map(str::to_owned).to_vec()];
        for report in &self.reports {
            let records: u64 = ["added", "changed", "unchanged", "bad"]
                .iter()
                .map(|name| number(report, name))
                .sum();
            let outcome = word(report, "outcome");
            let answer = match Exit::of(outcome) {
                Exit::Ok => "as configured",
                _ => outcome,
            };
            rows.push(vec![
                word(report, "source").into(),
                answer.into(),
                records.to_string(),
                number(report, "requests").to_string(),
                output::bytes(number(report, "bytes_up")),
                output::bytes(number(report, "bytes_down")),
                format!("{:.1} s", seconds(report)),
            ]);
        }
        rows
    }

    fn explain(&self, report: &Value) {
        let source = word(report, "source");
        let reason = word(report, "reason");
        if !reason.is_empty() {
            output::line(&format!("{source}: {reason}"));
        }
        let bad = number(report, "bad");
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

fn number(report: &Value, name: &str) -> u64 {
    report[name].as_u64().unwrap_or(0)
}

fn word<'r>(report: &'r Value, name: &str) -> &'r str {
    report[name].as_str().unwrap_or("")
}

fn seconds(report: &Value) -> f64 {
    report["seconds"].as_f64().unwrap_or(0.0)
}

fn pass_row(
    source: &str,
    outcome: &str,
    number: impl Fn(&str) -> u64,
    seconds: f64,
) -> Vec<String> {
    let mut row = vec![source.to_owned(), outcome.to_owned()];
    row.extend(
        ["added", "changed", "deleted", "unchanged", "requests"]
            .iter()
            .map(|name| number(name).to_string()),
    );
    row.extend(
        ["bytes_up", "bytes_down", "bytes_saved"]
            .iter()
            .map(|name| output::bytes(number(name))),
    );
    row.push(format!("{seconds:.1} s"));
    row
}
