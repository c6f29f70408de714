//! What people and other programs see: the log, tables, progress.

use std::io::{IsTerminal as _, Write as _};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget};

use crate::clock::Mono;
use crate::desk::Totals;

/// Starts the log on stderr. `GLEANER_LOG` is `error`, `warn`, `info` or `debug`. Under journald each line starts with its
/// priority and has no time of its own. Other crates are heard from `warn` on: ureq would log header fields at `debug`.
pub(super) fn start_log(verbose: bool) {
    let asked = std::env::var("GLEANER_LOG")
        .ok()
        .and_then(|level| level.parse().ok());
    let level = asked.unwrap_or(if verbose {
        log::LevelFilter::Debug
    } else {
        log::LevelFilter::Info
    });
    let mut builder = env_logger::Builder::new();
    builder
        .filter_level(log::LevelFilter::Warn.min(level))
        .filter_module("gleaner", level);
    if std::env::var_os("JOURNAL_STREAM").is_some() {
        builder.format(|out, record| {
            let priority = match record.level() {
                log::Level::Error => 3,
                log::Level::Warn => 4,
                log::Level::Info => 6,
                log::Level::Debug | log::Level::Trace => 7,
            };
            writeln!(out, "<{priority}>{}", record.args())
        });
    } else {
        builder.format(|out, record| {
            let style = out.default_level_style(record.level());
            writeln!(
                out,
                "{style}{:5}{style:#} {}",
                record.level(),
                record.args()
            )
        });
    }
    builder.init();
}

/// An error that ends the command.
pub(super) fn error(text: &str) {
    // Nobody is left to tell if this fails.
    drop(writeln!(std::io::stderr(), "gleaner: {text}"));
}

/// A line on stdout. A reader that has gone away is no reason to stop working.
pub(super) fn line(text: &str) {
    drop(writeln!(std::io::stdout(), "{text}"));
}

/// Bytes as people read them.
pub(super) fn bytes(count: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
    let value = count as f64;
    match count {
        0..1_000 => format!("{count} B"),
        1_000..1_000_000 => format!("{:.1} kB", value / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", value / 1e6),
        _ => format!("{:.1} GB", value / 1e9),
    }
}

/// Seconds as people read them.
pub(super) fn seconds(count: u64) -> String {
    match count {
        0..120 => format!("{count} s"),
        120..7200 => format!("{} min", count / 60),
        7200..172_800 => format!("{} h", count / 3600),
        _ => format!("{} d", count / 86_400),
    }
}

/// Rows as a table: the first column to the left, the others to the right unless they are words.
pub(super) fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter()
            .filter_map(|row| row.get(column))
            .map(|cell| cell.chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let numeric = |column: usize| {
        rows.iter()
            .skip(1)
            .filter_map(|row| row.get(column))
            .any(|cell| cell.starts_with(|c: char| c.is_ascii_digit()))
    };
    let right: Vec<bool> = (0..columns).map(numeric).collect();
    let mut out = String::new();
    for row in rows {
        let mut text = String::new();
        for (column, cell) in row.iter().enumerate() {
            let pad = " ".repeat(widths[column] - cell.chars().count());
            if right[column] {
                text.push_str(&pad);
                text.push_str(cell);
            } else {
                text.push_str(cell);
                text.push_str(&pad);
            }
            text.push_str("  ");
        }
        out.push_str(text.trim_end());
        out.push('\n');
    }
    out
}

/// How far a pull is: a moving line on a terminal, elsewhere a line now and then.
pub(super) struct Progress {
    bar: Option<ProgressBar>,
    said: Option<Mono>,
}

/// How often a line is written where there is no terminal.
const NOW_AND_THEN: Duration = Duration::from_secs(30);

impl Progress {
    /// On stderr, unless `quiet`.
    pub(super) fn new(quiet: bool) -> Self {
        let bar = (!quiet && std::io::stderr().is_terminal()).then(|| {
            let bar = ProgressBar::new_spinner();
            bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(10));
            bar
        });
        Self { bar, said: None }
    }

    /// Shows how far `source` is.
    pub(super) fn show(&mut self, source: &str, totals: &Totals, now: Mono) {
        let records = totals.added + totals.changed + totals.unchanged;
        let text = format!(
            "{source}: {records} records, {} new, {} changed",
            totals.added, totals.changed
        );
        match &self.bar {
            Some(bar) => {
                bar.set_message(text);
                bar.tick();
            }
            None => {
                let since = *self.said.get_or_insert(now);
                if now.since(since) >= NOW_AND_THEN {
                    self.said = Some(now);
                    log::info!("{text}");
                }
            }
        }
    }

    /// Takes the moving line away.
    pub(super) fn clear(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_line_up() {
        let rows = [
            vec!["source".to_owned(), "added".into(), "bytes".into()],
            vec!["a".into(), "12".into(), "1.2 kB".into()],
        ];
        assert_eq!(
            table(&rows),
            "source  added   bytes\na          12  1.2 kB\n"
        );
    }

    #[test]
    fn amounts_as_people_read_them() {
        assert_eq!(
            [bytes(999), bytes(1234), bytes(12_345_678)],
            ["999 B", "1.2 kB", "12.3 MB"]
        );
        assert_eq!(
            [seconds(90), seconds(600), seconds(86_400 * 3)],
            ["90 s", "10 min", "3 d"]
        );
    }
}
