//! What people and other programs see: the log, tables, progress.

use std::io::{IsTerminal as _, Write as _};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use log::LevelFilter;

use crate::clock::Mono;
use crate::desk::Totals;

/// The moving line, so that log lines and results are not written into it.
static BAR: Mutex<Option<ProgressBar>> = Mutex::new(None);

/// Starts the log on stderr. `GLEANER_LOG` is `off`, `error`, `warn`, `info` or `debug`; without it `usual` counts. Under
/// journald each line starts with its priority and has no time of its own. Other crates are heard from `warn` on: ureq
/// would log header fields at `debug`.
pub(super) fn start_log(usual: LevelFilter) {
    let asked = std::env::var_os("GLEANER_LOG").filter(|level| !level.is_empty());
    let parsed = asked
        .as_ref()
        .and_then(|level| level.to_str())
        .map(|level| level.parse().ok());
    let level = parsed.flatten().unwrap_or(usual);
    let mut builder = env_logger::Builder::new();
    builder
        .filter_level(LevelFilter::Warn.min(level))
        .filter_module("gleaner", level);
    if is_journal(std::env::var("JOURNAL_STREAM").ok().as_deref()) {
        builder.format(|out, record| {
            let priority = match record.level() {
                log::Level::Error => 3,
                log::Level::Warn => 4,
                log::Level::Info => 6,
                log::Level::Debug | log::Level::Trace => 7,
            };
            // Each line is an entry of its own there.
            for line in record.args().to_string().lines() {
                writeln!(out, "<{priority}>{line}")?;
            }
            Ok(())
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
    let logger = builder.build();
    let most = logger.filter();
    if log::set_boxed_logger(Box::new(BesideTheBar(logger))).is_ok() {
        log::set_max_level(most);
    }
    if let (Some(asked), None) = (asked, parsed.flatten()) {
        log::warn!(
            "GLEANER_LOG={} is none of off, error, warn, info, debug; {level} is taken",
            asked.to_string_lossy()
        );
    }
}

/// Whether stderr is what `$JOURNAL_STREAM` names as device and inode (systemd.exec(5)): the variable is inherited by
/// programs whose stderr goes elsewhere.
fn is_journal(stream: Option<&str>) -> bool {
    let named = stream
        .and_then(|stream| stream.split_once(':'))
        .and_then(|(device, inode)| Some((device.parse().ok()?, inode.parse().ok()?)));
    let ours = rustix::fs::fstat(std::io::stderr())
        .ok()
        .map(|stat| (stat.st_dev, stat.st_ino));
    named.is_some() && named == ours
}

/// A logger that takes the moving line away while it writes.
struct BesideTheBar(env_logger::Logger);

impl log::Log for BesideTheBar {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        self.0.enabled(metadata)
    }

    fn log(&self, record: &log::Record<'_>) {
        if self.0.matches(record) {
            beside_the_bar(|| self.0.log(record));
        }
    }

    fn flush(&self) {
        self.0.flush();
    }
}

fn beside_the_bar(write: impl FnOnce()) {
    let bar = BAR.lock().unwrap_or_else(PoisonError::into_inner).clone();
    match bar {
        Some(bar) => bar.suspend(write),
        None => write(),
    }
}

/// An error that ends the command.
pub(super) fn error(text: &str) {
    // Nobody is left to tell if this fails.
    let text = if is_journal(std::env::var("JOURNAL_STREAM").ok().as_deref()) {
        format!("<3>{}", text.replace('\n', "\n<3>"))
    } else {
        format!("gleaner: {text}")
    };
    beside_the_bar(|| drop(writeln!(std::io::stderr(), "{text}")));
}

/// A line on stdout. A reader that has gone away is no reason to stop working.
pub(super) fn line(text: &str) {
    beside_the_bar(|| drop(writeln!(std::io::stdout(), "{text}")));
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

/// Prints rows under their heads, so that they fit the terminal, if it is one.
pub(super) fn print_table(rows: &[Vec<String>]) {
    line(fitting(rows, terminal_width()).trim_end());
}

/// Rows as a table; if that is too wide, without the columns that say nothing, or else one row after the other.
fn fitting(rows: &[Vec<String>], width: Option<usize>) -> String {
    let fits = |text: &String| {
        width.is_none_or(|width| text.lines().all(|line| line.chars().count() <= width))
    };
    let full = table(rows);
    if fits(&full) {
        return full;
    }
    let short = table(&telling(rows));
    if fits(&short) {
        return short;
    }
    stacked(rows, width.unwrap_or(usize::MAX))
}

/// Without the columns in which nothing but zeros is.
fn telling(rows: &[Vec<String>]) -> Vec<Vec<String>> {
    let tells = |column: usize| {
        rows.iter()
            .skip(1)
            .filter_map(|row| row.get(column))
            .any(|cell| !matches!(cell.as_str(), "" | "0" | "0 B" | "-"))
    };
    let pick = |row: &Vec<String>| {
        let cells = row.iter().enumerate().filter(|(column, _)| tells(*column));
        cells.map(|(_, cell)| cell.clone()).collect()
    };
    rows.iter().map(pick).collect()
}

/// Columns of the terminal that stdout is.
fn terminal_width() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok()?;
    (size.ws_col > 0).then_some(usize::from(size.ws_col))
}

/// Rows as a table: columns of numbers to the right, words to the left.
fn table(rows: &[Vec<String>]) -> String {
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
        column > 0
            && rows
                .iter()
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

/// The same, a row in several lines: its first two cells, then the others with their heads.
fn stacked(rows: &[Vec<String>], width: usize) -> String {
    let Some((heads, rows)) = rows.split_first() else {
        return String::new();
    };
    let mut out = String::new();
    for row in rows {
        let first: Vec<&str> = row
            .iter()
            .take(2)
            .map(String::as_str)
            .filter(|cell| !cell.is_empty())
            .collect();
        let mut text = first.join(": ");
        for (head, cell) in heads.iter().zip(row).skip(2) {
            let piece = format!("  {head} {cell}");
            if text.chars().count() + piece.chars().count() > width {
                out.push_str(&text);
                out.push_str("\n  ");
                text.clear();
            }
            text.push_str(&piece);
        }
        out.push_str(&text);
        out.push('\n');
    }
    out
}

/// How far a pull is: a moving line on a terminal, elsewhere a line now and then.
pub(super) struct Progress {
    shape: Moving,
}

enum Moving {
    Quiet,
    Bar(ProgressBar),
    NowAndThen(Option<Mono>),
}

/// How often a line is written where there is no terminal.
const NOW_AND_THEN: Duration = Duration::from_secs(30);

impl Progress {
    /// On stderr, unless `quiet`.
    pub(super) fn new(quiet: bool) -> Self {
        let shape = if quiet {
            Moving::Quiet
        } else if std::io::stderr().is_terminal() {
            let bar = ProgressBar::new_spinner();
            bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(10));
            if let Ok(style) = ProgressStyle::with_template("{spinner} {wide_msg}") {
                bar.set_style(style);
            }
            *BAR.lock().unwrap_or_else(PoisonError::into_inner) = Some(bar.clone());
            Moving::Bar(bar)
        } else {
            Moving::NowAndThen(None)
        };
        Self { shape }
    }

    /// Shows how far `source` is.
    pub(super) fn show(&mut self, source: &str, totals: &Totals, now: Mono) {
        let text = format!("{source}: {}", far(totals));
        match &mut self.shape {
            Moving::Quiet => {}
            Moving::Bar(bar) => {
                if bar.is_finished() {
                    bar.reset();
                }
                bar.set_message(text);
                bar.tick();
            }
            Moving::NowAndThen(said) => {
                let since = *said.get_or_insert(now);
                if now.since(since) >= NOW_AND_THEN {
                    *said = Some(now);
                    drop(writeln!(std::io::stderr(), "{text}"));
                }
            }
        }
    }

    /// Takes the moving line away.
    pub(super) fn clear(&mut self) {
        if let Moving::Bar(bar) = &self.shape {
            bar.finish_and_clear();
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
        *BAR.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// How far a pass is, in words.
pub(super) fn far(totals: &Totals) -> String {
    if totals.bytes_down == 0 {
        return "asking".into();
    }
    format!(
        "{} records, {} added, {} changed, {} down",
        totals.added + totals.changed + totals.unchanged,
        totals.added,
        totals.changed,
        bytes(totals.bytes_down)
    )
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

    #[test]
    fn columns_that_say_nothing_give_way_first() {
        let rows = [
            vec!["source".to_owned(), "added".into(), "deleted".into()],
            vec!["parts".into(), "12".into(), "0".into()],
        ];
        assert_eq!(
            fitting(&rows, Some(22)),
            "source  added  deleted\nparts      12        0\n"
        );
        assert_eq!(fitting(&rows, Some(21)), "source  added\nparts      12\n");
        assert_eq!(fitting(&rows, Some(12)), "parts: 12\n    deleted 0\n");
    }

    #[test]
    fn a_narrow_terminal_gets_a_row_in_several_lines() {
        let rows = [
            vec![
                "source".to_owned(),
                "outcome".into(),
                "added".into(),
                "changed".into(),
            ],
            vec!["parts".into(), "changed".into(), "12".into(), "3".into()],
        ];
        assert_eq!(stacked(&rows, 80), "parts: changed  added 12  changed 3\n");
        assert_eq!(
            stacked(&rows, 30),
            "parts: changed  added 12\n    changed 3\n"
        );
    }

    #[test]
    fn the_journal_is_known_by_device_and_inode() {
        let stat = rustix::fs::fstat(std::io::stderr()).unwrap();
        let ours = format!("{}:{}", stat.st_dev, stat.st_ino);
        assert!(is_journal(Some(&ours)));
        let other = format!("{}:{}", stat.st_dev, stat.st_ino + 1);
        for stream in [None, Some(""), Some("1"), Some("a:b"), Some(other.as_str())] {
            assert!(!is_journal(stream), "{stream:?}");
        }
    }
}
