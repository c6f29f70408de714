//! What one check has found so far.

use std::ops::Range;
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::DeValue;

use super::error::{Errors, Place, Problem};
use super::raw::{AGENT, DOOR, DOOR_LIMITS, HOOK, LIMITS, SOURCE, UPSTREAM};

/// What a line that holds a secret is likely to have in it.
const SECRET_WORDS: [&str; 12] = [
    "bearer", "password", "secret", "token", "value", "auth", "://", "_key", "-key", "apikey",
    "tls", "cert",
];

/// Keys whose values may hold a secret, if someone puts one there.
const SECRET_KEYS: [&str; 12] = [
    "auth",
    "headers",
    "url",
    "params",
    "proxy",
    "base",
    "path",
    "client_cert",
    "tls",
    "secret",
    "challenge",
    "fetch",
];

/// One check of one file: where its relative paths start, and what was found so far.
#[derive(Debug)]
pub(super) struct Check {
    /// The directory that relative paths are relative to, absolute.
    pub(super) dir: PathBuf,
    /// What deserves a word but is no error.
    pub(super) warnings: Vec<String>,
    found: Vec<(Range<usize>, String, Option<String>)>,
    hidden: Vec<Range<usize>>,
}

impl Check {
    pub(super) fn new(dir: PathBuf) -> Self {
        Self {
            dir,
            warnings: Vec::new(),
            found: Vec::new(),
            hidden: Vec::new(),
        }
    }

    /// Notes an error at `span`.
    pub(super) fn error(
        &mut self,
        span: &Range<usize>,
        what: impl Into<String>,
        expected: impl Into<String>,
    ) {
        self.found
            .push((span.clone(), what.into(), Some(expected.into())));
    }

    /// Notes an error that says by itself what to do.
    pub(super) fn refuse(&mut self, span: &Range<usize>, what: impl Into<String>) {
        self.found.push((span.clone(), what.into(), None));
    }

    /// Never shows the text at `span` in an excerpt: it may be a secret.
    pub(super) fn hide(&mut self, span: &Range<usize>) {
        self.hidden.push(span.clone());
    }

    /// Never shows any text in `value`, whatever its form.
    pub(super) fn hide_all(&mut self, value: &Spanned<DeValue<'_>>) {
        match value.get_ref() {
            DeValue::Array(list) => list.iter().for_each(|item| self.hide_all(item)),
            DeValue::Table(table) => table.iter().for_each(|(_, item)| self.hide_all(item)),
            _ => self.hide(&value.span()),
        }
    }

    /// Notes what the TOML parser found. Where the syntax is wrong nothing tells what is a secret, so a line is only
    /// shown as far as it is known to be none.
    pub(super) fn syntax(&mut self, text: &str, error: &toml::de::Error) {
        let (mut start, mut multiline) = (0, false);
        for line in text.split_inclusive('\n') {
            multiline |= line.contains("\"\"\"") || line.contains("'''");
            let from = if multiline { 0 } else { harmless_part(line) };
            self.hide(&(start + from..start + line.trim_end().len()));
            start += line.len();
        }
        let span = error.span().unwrap_or(0..0);
        match error.message() {
            "string values must be quoted, expected literal string" => {
                let value = text.get(span.clone()).unwrap_or_default().trim();
                let what = if value.is_empty() {
                    "there is no value"
                } else {
                    "this is no value"
                };
                self.error(
                    &span,
                    what,
                    "a string in quotes, a number, true, false, a list or a table",
                );
            }
            message => match message.split_once(", expected ") {
                Some((what, expected)) => self.error(&span, what, expected),
                None => self.refuse(&span, message),
            },
        }
    }

    /// Whether nothing was wrong.
    pub(super) fn is_clean(&self) -> bool {
        self.found.is_empty()
    }

    /// All that was wrong, by line.
    pub(super) fn into_errors(mut self, path: &Path, text: &str) -> Errors {
        self.found.sort_by_key(|(span, ..)| span.start);
        let hidden = self.hidden;
        let problem = |(span, what, expected): (Range<usize>, _, _)| {
            let place = Some(Place::new(text, &span, &hidden));
            Problem {
                place,
                what,
                expected,
            }
        };
        Errors {
            path: path.to_owned(),
            problems: self.found.into_iter().map(problem).collect(),
        }
    }
}

/// How many bytes of a line of a broken file hold no secret for sure: a section's name, or a known key and its value.
fn harmless_part(line: &str) -> usize {
    let lower = line.to_ascii_lowercase();
    let suspicious = SECRET_WORDS.iter().any(|word| lower.contains(word));
    let section = line
        .strip_prefix('[')
        .is_some_and(|name| name.starts_with(|letter: char| letter.is_ascii_alphabetic()));
    let key = line.split('=').next().unwrap_or_default();
    let known = [
        &AGENT,
        &UPSTREAM,
        &LIMITS,
        &SOURCE,
        &DOOR,
        &DOOR_LIMITS,
        &HOOK,
    ]
    .iter()
    .any(|keys| keys.known.contains(&key.trim()));
    match (
        section || known,
        suspicious || SECRET_KEYS.contains(&key.trim()),
    ) {
        (true, false) => line.len(),
        (true, true) if known => line.len().min(key.len() + 1),
        _ => 0,
    }
}
