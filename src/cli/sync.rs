//! `gleaner sync`, `reconcile`, `replay`: one wish, carried out here or by the running agent.

use super::exit::Exit;
use super::{ReconcileArguments, ReplayArguments, SyncArguments, output, remote};
use crate::agent::Agent;
use crate::config::Config;
use crate::desk::{Desk, Event, Wish};
use crate::pull::report::{Line, Tally};
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
        full: true,
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
    if config.sources.is_empty() && config.documents.is_empty() {
        output::error("the config has no [source.NAME] yet");
        return Exit::Config;
    }
    let unknown = wish
        .sources
        .iter()
        .find(|name| !config.sources.contains_key(*name) && !config.documents.contains_key(*name));
    if let Some(name) = unknown {
        let names = config.sources.keys().chain(config.documents.keys());
        let known: Vec<&str> = names.map(String::as_str).collect();
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
    reports: Vec<Line>,
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
                self.exit = self.exit.worse(Exit::of(&report.outcome));
                if self.shape == Shape::Json {
                    // Plain data under string keys always serialises.
                    output::line(&serde_json::to_string(&report).unwrap_or_default());
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
            // Not of what is wished for here.
            Event::Inbox { .. }
            | Event::Explained(_)
            | Event::State(_)
            | Event::Reset { .. }
            | Event::Done => {}
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
            rows.push(row(report));
        }
        if self.reports.len() > 1 {
            rows.push(row(&total(&self.reports)));
        }
        rows
    }

    fn probes(&self) -> Vec<Vec<String>> {
        let heads = [
            "source", "answer", "records", "requests", "up", "down", "time",
        ];
        let mut rows = vec![heads.map(str::to_owned).to_vec()];
        for report in &self.reports {
            let answer = match Exit::of(&report.outcome) {
                Exit::Ok => "as configured",
                _ => &report.outcome,
            };
            rows.push(vec![
                report.source.clone(),
                answer.into(),
                report.tally.records().to_string(),
                report.tally.requests.to_string(),
                output::bytes(report.tally.bytes_up),
                output::bytes(report.tally.bytes_down),
                format!("{:.1} s", report.seconds),
            ]);
        }
        rows
    }

    fn explain(&self, report: &Line) {
        let source = &report.source;
        if !report.reason.is_empty() {
            output::line(&format!("{source}: {}", report.reason));
        }
        let bad = report.tally.bad;
        if bad > 0 && report.outcome != "bad-data" {
            output::line(&format!(
                "{source}: {bad} bad records were skipped; the table _bad in data.db has them and why"
            ));
        }
        for note in &report.notes {
            output::line(&format!("{source}: {note}"));
        }
    }
}

fn row(report: &Line) -> Vec<String> {
    let tally = &report.tally;
    let numbers = [
        tally.added,
        tally.changed,
        tally.deleted,
        tally.unchanged,
        tally.requests,
    ];
    let bytes = [tally.bytes_up, tally.bytes_down, tally.bytes_saved];
    let mut row = vec![report.source.clone(), report.outcome.clone()];
    row.extend(numbers.map(|number| number.to_string()));
    row.extend(bytes.map(output::bytes));
    row.push(format!("{:.1} s", report.seconds));
    row
}

fn total(reports: &[Line]) -> Line {
    let sum = |of: fn(&Tally) -> u64| reports.iter().map(|report| of(&report.tally)).sum();
    Line {
        source: "(all)".into(),
        pull: String::new(),
        outcome: String::new(),
        reason: String::new(),
        tally: Tally {
            added: sum(|tally| tally.added),
            changed: sum(|tally| tally.changed),
            deleted: sum(|tally| tally.deleted),
            unchanged: sum(|tally| tally.unchanged),
            requests: sum(|tally| tally.requests),
            bytes_up: sum(|tally| tally.bytes_up),
            bytes_down: sum(|tally| tally.bytes_down),
            bytes_saved: sum(|tally| tally.bytes_saved),
            ..Tally::default()
        },
        seconds: reports.iter().map(|report| report.seconds).sum(),
        notes: Vec::new(),
    }
}
