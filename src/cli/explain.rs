//! `gleaner explain`: what is known of one record, and why it is here or not.

use super::exit::Exit;
use super::inbox::plain;
use super::state::ask;
use super::{ExplainArguments, output};
use crate::config::Config;
use crate::desk::{Event, Explained, RecordShown, StateWish};
use crate::wait::Wait;

pub(super) fn explain(config: Config, wait: &Wait, arguments: &ExplainArguments) -> Exit {
    let wish = StateWish::Explain {
        source: arguments.source.clone(),
        key: arguments.key.clone(),
    };
    ask(config, wait, wish, |event| {
        let Event::Explained(explained) = event else {
            return;
        };
        if arguments.json {
            // Plain data under string keys always serialises.
            output::line(&serde_json::to_string(&explained).unwrap_or_default());
        } else {
            lines(&explained)
                .iter()
                .for_each(|line| output::line(line.trim_end()));
        }
    })
}

fn lines(explained: &Explained) -> Vec<String> {
    let known = |record: &&RecordShown| record.state != "never-seen";
    let (known, unknown): (Vec<_>, Vec<_>) = explained.records.iter().partition(known);
    let mut lines = Vec::new();
    let told = if known.is_empty() { &unknown } else { &known };
    for record in told {
        if !lines.is_empty() {
            lines.push(String::new());
        }
        lines.extend(about(explained, record));
    }
    for record in unknown.iter().filter(|_| !known.is_empty()) {
        lines.push(format!(
            "{} would be another key ({}): never seen",
            plain(&record.key),
            kind(&record.key)
        ));
    }
    for note in &explained.notes {
        lines.push(format!("note: {}", plain(note)));
    }
    lines
}

/// What a key in canonical JSON is.
fn kind(key: &str) -> &'static str {
    match key.as_bytes().first() {
        Some(b'"') => "a text",
        Some(b'[') => "parts",
        _ => "a number",
    }
}

fn about(explained: &Explained, record: &RecordShown) -> Vec<String> {
    let why = if record.why.is_empty() {
        &record.state
    } else {
        &record.why
    };
    let mut lines = vec![format!(
        "{} {} ({}): {}",
        explained.source,
        plain(&record.key),
        kind(&record.key),
        plain(why)
    )];
    let mut line = |head: &str, text: String| lines.push(format!("  {head:11} {text}"));
    let known = record.ordinal.is_some() || record.table.is_some();
    if known {
        let first = record.first_seen.clone();
        line(
            "first seen",
            first.unwrap_or("not noted: an earlier version of gleaner wrote the row".into()),
        );
    }
    if let Some(changed) = &record.changed {
        line("changed", format!("{changed} (fetched and delivered)"));
    }
    if let Some(met) = &record.met {
        let pass = match met.pass.as_str() {
            "unknown" => "a pass or an event".to_owned(),
            "hook" => "a hook".to_owned(),
            pass => format!("a {pass} pass"),
        };
        line("last met", format!("{} by {pass}", met.at));
    }
    if let Some(page) = &record.page {
        let read = page.read.as_deref();
        let read = read.map_or(String::new(), |read| format!(", read in full {read}"));
        line(
            "on page",
            format!("{} of {}{read}", page.number, plain(&page.url)),
        );
    }
    if let Some(updated) = &record.updated {
        line("updated", format!("{updated} (its own update time)"));
    }
    match (&record.digest, record.in_doubt) {
        (_, true) => line(
            "digest",
            "in doubt: the next pass that meets it delivers it again".into(),
        ),
        (Some(digest), false) => line("digest", digest.clone()),
        (None, false) => {}
    }
    if let Some(ordinal) = record.ordinal {
        line("ordinal", ordinal.to_string());
    }
    if let Some(table) = &record.table {
        let generation = record.generation.unwrap_or_default();
        let bytes = output::bytes(record.bytes.unwrap_or_default());
        line(
            "delivered",
            format!("data.db, table {table}: generation {generation}, a body of {bytes}"),
        );
    }
    for gone in &record.gone {
        let at = gone.at.as_deref().unwrap_or("at an unknown time");
        line("gone", format!("{at}, {}", plain(&gone.why)));
    }
    if let Some(bad) = &record.bad {
        line(
            "bad",
            format!(
                "record {} of {}: {}",
                bad.number,
                plain(&bad.page),
                plain(&bad.reason)
            ),
        );
    }
    lines
}
