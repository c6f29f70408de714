//! `gleaner state`: what is kept of a source between passes, and forgetting what vouches for it.

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};
use std::os::fd::AsFd as _;

use super::exit::Exit;
use super::inbox::plain;
use super::{StateCommand, StateResetArguments, output, remote};
use crate::agent::Agent;
use crate::config::Config;
use crate::desk::{Course, Desk, Event, Late, StateShown, StateWish, Wish};
use crate::state::StateError;
use crate::wait::{Interest, Wait};

/// Columns of the longest bar of a histogram.
const BAR: u64 = 40;

pub(super) fn state(config: Config, wait: &Wait, command: &StateCommand) -> Exit {
    match command {
        StateCommand::Show(show) => {
            let wish = StateWish::Show {
                source: show.source.clone(),
            };
            ask(config, wait, wish, |event| {
                let Event::State(state) = event else { return };
                if show.json {
                    // Plain data under string keys always serialises.
                    output::line(&serde_json::to_string(&state).unwrap_or_default());
                } else {
                    lines(&state).iter().for_each(|line| output::line(line));
                }
            })
        }
        StateCommand::Reset(reset) => self::reset(config, wait, reset),
    }
}

/// Asks the running agent, or looks here; hands on what is told. Refusals are printed.
pub(super) fn ask(
    config: Config,
    wait: &Wait,
    wish: StateWish,
    mut each: impl FnMut(Event),
) -> Exit {
    if !config.sources.contains_key(wish.source()) {
        let known: Vec<&str> = config.sources.keys().map(String::as_str).collect();
        output::error(&format!(
            "there is no source \"{}\"; the config has: {}",
            wish.source(),
            known.join(", ")
        ));
        return Exit::Usage;
    }
    let mut exit = Exit::Ok;
    let mut take = |event| match event {
        Event::Refused { usage, reason } => {
            output::error(&plain(&reason));
            exit = if usage { Exit::Usage } else { Exit::Device };
        }
        event => each(event),
    };
    let (socket, dir) = (config.agent.control.clone(), config.agent.state.clone());
    let wish = Wish {
        state: Some(wish),
        ..Wish::default()
    };
    // The running agent first: whoever may use its socket need not be able to write its state.
    let Err(cause) = remote::wish(&socket, wait, &wish, &mut take) else {
        return exit;
    };
    // Looking at what is not there yet must not make it.
    if !dir.exists() {
        output::error(&format!(
            "{}: there is nothing yet; `gleaner sync` makes it",
            dir.display()
        ));
        return Exit::Device;
    }
    let mut agent = Agent::new(config, wait.clone(), Desk::default());
    match agent.open() {
        Ok(()) => agent.carry_out(&wish, &mut take),
        Err(error @ StateError::Taken { .. }) => {
            output::error(&remote::unreachable(&error, &socket, &cause));
            return Exit::TryAgain;
        }
        Err(error) => {
            output::error(&error.to_string());
            return Exit::from(&error);
        }
    }
    exit
}

fn reset(config: Config, wait: &Wait, arguments: &StateResetArguments) -> Exit {
    let source = &arguments.source;
    if !arguments.yes {
        if !io::stdin().is_terminal() {
            output::error(&format!(
                "nobody is there to be asked, since stdin is no terminal; if all that vouches for {source} is to be forgotten: gleaner state reset {source} --yes"
            ));
            return Exit::Usage;
        }
        let mut cost = None;
        let show = StateWish::Show {
            source: source.clone(),
        };
        let exit = ask(config.clone(), wait, show, |event| {
            if let Event::State(state) = event {
                cost = Some(costs(&state));
            }
        });
        let Some(cost) = cost else { return exit };
        cost.iter().for_each(|line| output::line(line));
        match consent(wait) {
            Ok(true) => {}
            Ok(false) => {
                output::line("nothing was changed");
                return Exit::Ok;
            }
            Err(error) => {
                output::error(&format!("nothing was changed: {error}"));
                return Exit::TryAgain;
            }
        }
    }
    let wish = StateWish::Reset {
        source: source.clone(),
    };
    ask(config, wait, wish, |event| {
        if let Event::Reset { source, records } = event {
            output::line(&format!(
                "{source} is reset: the next pass reads everything and delivers {records} records again; `gleaner sync {source}` does it now"
            ));
        }
    })
}

/// What a reset costs.
fn costs(state: &StateShown) -> Vec<String> {
    let mut lines = vec![format!(
        "Resetting {} forgets what vouches for its {} records; its rows in data.db stay. The next pass",
        state.source, state.records
    )];
    let pages = state.pages;
    let wire = if pages.wire > 0 {
        format!(" ({} when they were read last)", output::bytes(pages.wire))
    } else {
        String::new()
    };
    lines.push(format!(
        "  - fetches everything: no 304s, {} pages lose their validators{wire}",
        pages.with_validators
    ));
    lines.push(format!(
        "  - compares {} records and delivers all of them again",
        state.records
    ));
    if let Some(seconds) = state.full_took {
        lines.push(format!(
            "  - takes as long as the last full pass, {}, or longer",
            output::seconds(seconds)
        ));
    }
    if let Some(position) = &state.course {
        if position.watermark.is_some() || position.cursor.is_some() {
            lines.push("  - starts anew: watermark and cursor are forgotten".into());
        }
    }
    if let Some(interrupted) = &state.interrupted {
        lines.push(format!(
            "  - starts anew: the interrupted pass, behind page {}, is given up",
            interrupted.pages
        ));
    }
    lines
}

/// Asks a person. A signal ends the question.
fn consent(wait: &Wait) -> io::Result<bool> {
    let mut out = io::stdout();
    write!(out, "Reset it? [y/N] ")?;
    out.flush()?;
    let stdin = io::stdin();
    wait.fd_ready(stdin.as_fd(), Interest::Read, None)?;
    let mut answer = String::new();
    stdin.lock().read_line(&mut answer)?;
    Ok(is_yes(&answer))
}

/// Nothing but a clear yes is one.
fn is_yes(answer: &str) -> bool {
    matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes")
}

fn lines(state: &StateShown) -> Vec<String> {
    let mut lines = vec![format!("{} ({})", state.source, state.pull)];
    let mut line = |head: &str, text: String| lines.push(format!("  {head:12} {text}"));
    let doubt = match state.in_doubt {
        0 => String::new(),
        count => format!(", {count} of them in doubt: they are delivered again"),
    };
    line("records", format!("{}{doubt}", state.records));
    line(
        "last check",
        format!(
            "{}, {}",
            state.last_check.as_deref().unwrap_or("never"),
            state.outcome
        ),
    );
    if let Some(course) = &state.course {
        course_lines(course, &mut line);
    }
    if let Some(owed) = &state.owed {
        line("owed", format!("a full pass: {owed}"));
    }
    if let Some(took) = state.full_took {
        line("full pass", format!("took {}", output::seconds(took)));
    }
    line(
        "interrupted",
        state.interrupted.as_ref().map_or("no pass".into(), |pass| {
            format!(
                "a {} pass that started {}: {} pages and {} records are done, next is {}",
                pass.pass,
                pass.started.as_deref().unwrap_or("at an unknown time"),
                pass.pages,
                pass.records,
                plain(&pass.next)
            )
        }),
    );
    let pages = state.pages;
    line(
        "pages",
        format!(
            "{} remembered, {} with validators, {} records on them; {} in the store, fetching them took {}",
            pages.count,
            pages.with_validators,
            pages.records,
            output::bytes(pages.bytes),
            output::bytes(pages.wire)
        ),
    );
    let config = match (state.config.as_str(), state.config_current) {
        ("", _) => "none: the next pass reads everything".to_owned(),
        (config, true) => format!("{config}, that in effect"),
        (config, false) => {
            format!("{config}, not that in effect: the next pass reads everything")
        }
    };
    line("config", config);
    let generation = if state.generation == state.data_generation {
        state.generation.to_string()
    } else {
        format!(
            "{}, data.db {}: made to agree at the next start",
            state.generation, state.data_generation
        )
    };
    line("generation", generation);
    line("ordinals", format!("{} given out", state.ordinals));
    let since = state.gone_since.as_deref();
    let since = since.map_or(String::new(), |since| format!(", since {since}"));
    line("deletions", format!("{} remembered{since}", state.gone));
    lines.extend(histogram(&state.lateness));
    lines
}

fn course_lines(course: &Course, line: &mut impl FnMut(&str, String)) {
    if let Some(watermark) = &course.watermark {
        let lateness = course.lateness.map_or(String::new(), |lateness| {
            format!(", windows start {} before it", output::seconds(lateness))
        });
        line("watermark", format!("{watermark}{lateness}"));
    }
    if let Some(cursor) = &course.cursor {
        line("cursor", plain(cursor));
    }
    let due = course.full_due.as_deref();
    let due = due.map_or(String::new(), |due| format!(", the next one is due {due}"));
    line(
        "last full",
        format!("{}{due}", course.full_at.as_deref().unwrap_or("none")),
    );
    for drift in &course.drift {
        line(
            "drift",
            format!(
                "{}: {} new, {} changed, {} gone had been missed",
                drift.at, drift.added, drift.changed, drift.deleted
            ),
        );
    }
}

/// Bars, one for each power of two of seconds.
fn histogram(late: &[Late]) -> Vec<String> {
    let most = late.iter().map(|late| late.records).max().unwrap_or(0);
    if most == 0 {
        return Vec::new();
    }
    let mut lines =
        vec!["  records became visible so late after their update time, at least:".into()];
    for late in late {
        let head = match late.below {
            0 => "not late".to_owned(),
            below => format!("< {}", output::seconds(below)),
        };
        // What is there at all is seen.
        let columns = late.records.saturating_mul(BAR).div_ceil(most);
        let bar = "#".repeat(usize::try_from(columns).unwrap_or(0));
        let line = format!("  {head:>12} {:>8} {bar}", late.records);
        lines.push(line.trim_end().into());
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_clear_yes_is_one() {
        for (answer, yes) in [
            ("y\n", true),
            ("Yes\n", true),
            (" y ", true),
            ("\n", false),
            ("", false),
            ("n\n", false),
            ("yo\n", false),
        ] {
            assert_eq!(is_yes(answer), yes, "{answer:?}");
        }
    }

    #[test]
    fn a_histogram_shows_whatever_is_there() {
        let late = |below, records| Late { below, records };
        let lines = histogram(&[late(0, 1000), late(2, 0), late(4, 1), late(4096, 500)]);
        assert_eq!(
            lines[1..],
            [
                format!("      not late     1000 {}", "#".repeat(40)),
                "         < 2 s        0".into(),
                "         < 4 s        1 #".into(),
                format!("      < 68 min      500 {}", "#".repeat(20)),
            ]
        );
        assert!(histogram(&[]).is_empty() && histogram(&[late(0, 0)]).is_empty());
    }

    #[test]
    fn what_a_reset_costs_is_said() {
        let mut state = StateShown {
            source: "parts".into(),
            records: 1200,
            full_took: Some(300),
            ..StateShown::default()
        };
        state.pages.with_validators = 12;
        state.pages.wire = 3_400_000;
        let text = costs(&state).join("\n");
        for part in ["1200 records", "12 pages lose", "3.4 MB", "5 min"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
