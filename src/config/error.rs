//! What is wrong with a config file, said with line, column and a caret.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Everything that is wrong with one config file, in the order of its lines.
///
/// `Display` prints each problem as `path:LINE:COLUMN: what is wrong; expected …`, the line itself and a caret. Text
/// that may be a secret is shown as `…`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Errors {
    /// The file, as it was named by whoever asked for it.
    pub path: PathBuf,
    /// At least one.
    pub problems: Vec<Problem>,
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Where in the file; `None`: it is about the file itself.
    pub place: Option<Place>,
    /// What is wrong.
    pub what: String,
    /// What was expected instead, where that helps.
    pub expected: Option<String>,
}

/// A place in the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// The line, without what may be a secret, without control characters, cut to a screen's width.
    excerpt: String,
    /// Characters of the excerpt before the caret.
    indent: usize,
    /// Carets, at least one.
    carets: usize,
}

impl Errors {
    /// The file itself can't be used.
    pub(super) fn file(path: &Path, what: String) -> Self {
        Self {
            path: path.to_owned(),
            problems: vec![Problem {
                place: None,
                what,
                expected: None,
            }],
        }
    }
}

impl fmt::Display for Errors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.problems.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            write!(f, "{}:", self.path.display())?;
            problem.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for Errors {}

/// Without the path: `LINE:COLUMN: …`, then the line and the caret.
impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(place) = &self.place {
            write!(f, "{}:{}:", place.line, place.column)?;
        }
        write!(f, " {}", self.what)?;
        if let Some(expected) = &self.expected {
            write!(f, "; expected {expected}")?;
        }
        if let Some(Place {
            line,
            excerpt,
            indent,
            carets,
            ..
        }) = &self.place
        {
            write!(
                f,
                "\n{line:>5} | {excerpt}\n      | {:indent$}{:^<carets$}",
                "", ""
            )?;
        }
        Ok(())
    }
}

/// The longest excerpt in characters.
const WIDTH: usize = 120;

impl Place {
    /// The place of `span` in `text`; bytes in `hidden` are not shown.
    pub(super) fn new(text: &str, span: &Range<usize>, hidden: &[Range<usize>]) -> Self {
        let start = floor(text, span.start);
        let line_start = text[..start].rfind('\n').map_or(0, |newline| newline + 1);
        let line_end = text[start..]
            .find('\n')
            .map_or(text.len(), |newline| start + newline);
        let line = text[line_start..line_end].trim_end_matches('\r');

        let mut shown: Vec<(char, usize)> = Vec::new();
        let mut in_hidden = false;
        for (offset, letter) in line.char_indices() {
            let at = line_start + offset;
            let hide = hidden.iter().any(|range| range.contains(&at));
            if !(hide && in_hidden) {
                shown.push((if hide { '…' } else { printable(letter) }, at));
            }
            in_hidden = hide;
        }
        let indent = shown.iter().filter(|(_, at)| *at < start).count();
        let carets = shown
            .iter()
            .filter(|(_, at)| (start..span.end).contains(at))
            .count();
        let letters: Vec<char> = shown.into_iter().map(|(letter, _)| letter).collect();
        let (excerpt, indent) = cut(&letters, indent);
        Self {
            line: 1 + text[..start].matches('\n').count(),
            column: 1 + text[line_start..start].chars().count(),
            carets: carets.min((WIDTH + 1).saturating_sub(indent)).max(1),
            excerpt,
            indent,
        }
    }
}

/// At most [`WIDTH`] of the letters, around `indent`; and where that is then.
fn cut(letters: &[char], indent: usize) -> (String, usize) {
    let from = if indent > WIDTH / 2 && letters.len() > WIDTH {
        indent - WIDTH / 2
    } else {
        0
    };
    let to = letters.len().min(from + WIDTH);
    let mut excerpt: String = letters[from..to].iter().collect();
    if to < letters.len() {
        excerpt.push('…');
    }
    if from > 0 {
        excerpt.insert(0, '…');
    }
    (excerpt, indent - from + usize::from(from > 0))
}

/// Control characters could steer the terminal that shows the message.
fn printable(letter: char) -> char {
    match letter {
        '\t' => ' ',
        letter if letter.is_control() => '\u{fffd}',
        letter => letter,
    }
}

/// The next character boundary at or below `at`.
fn floor(text: &str, at: usize) -> usize {
    (0..=at.min(text.len()))
        .rev()
        .find(|at| text.is_char_boundary(*at))
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str, span: Range<usize>, hidden: &[Range<usize>]) -> String {
        let place = Some(Place::new(text, &span, hidden));
        Problem {
            place,
            what: "bad".to_owned(),
            expected: Some("good".to_owned()),
        }
        .to_string()
    }

    #[test]
    fn the_caret_stands_under_the_span() {
        assert_eq!(
            shown("a = 1\nbb = \"x\"\n", 11..14, &[]),
            "2:6: bad; expected good\n    2 | bb = \"x\"\n      |      ^^^"
        );
    }

    #[test]
    fn columns_are_characters_and_tabs_are_one() {
        assert_eq!(
            shown("\tä = 1", 6..7, &[]),
            "1:6: bad; expected good\n    1 |  ä = 1\n      |      ^"
        );
    }

    #[test]
    fn what_is_hidden_is_not_shown() {
        assert_eq!(
            shown("a = \"secret\" b", 4..12, std::slice::from_ref(&(5..11))),
            "1:5: bad; expected good\n    1 | a = \"…\" b\n      |     ^^^"
        );
    }

    #[test]
    fn an_escape_sequence_does_not_reach_the_terminal() {
        assert!(!shown("a = \u{1b}[31m", 4..5, &[]).contains('\u{1b}'));
    }

    #[test]
    fn a_long_line_is_cut_around_the_place() {
        let text = format!("{}X{}", "a".repeat(500), "b".repeat(500));
        let shown = shown(&text, 500..501, &[]);
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(
            lines[1].chars().position(|c| c == 'X'),
            lines[2].chars().position(|c| c == '^')
        );
        assert!(lines[1].chars().count() < 140);
    }

    #[test]
    fn any_span_is_survived() {
        let text = "ä\n\nb";
        for start in 0..8 {
            for end in start..8 {
                let _ = Place::new(text, &(start..end), std::slice::from_ref(&(start..end)));
            }
        }
        let _ = Place::new("", &(0..0), &[]);
    }
}
