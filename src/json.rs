//! JSON text (RFC 8259) that is known to be JSON, handed around and walked without building a tree.
//!
//! A record stays the bytes it came as. [`Json::parse`] checks them once; whoever takes a [`Json`] needs no error path
//! for bad text. Stricter than most readers in two ways: at most [`Json::MAX_DEPTH`] levels, and the whole text is
//! valid UTF-8. Laxer in one: an escape may name half a surrogate pair, as the grammar allows.

use std::borrow::Cow;
use std::fmt;

mod check;
mod escape;
pub mod number;
pub mod time;

pub(crate) use escape::{Piece, pieces, unescape};

/// The text of exactly one JSON value, checked, without white space around it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Json<'a>(&'a str);

impl<'a> Json<'a> {
    /// How many levels of arrays and objects a value may have.
    pub const MAX_DEPTH: usize = 128;

    /// Checks that `raw` is one JSON value, white space around it allowed, and nothing else.
    ///
    /// # Errors
    ///
    /// [`BadJson`] says at which byte of `raw` it stops being JSON, and why.
    pub fn parse(raw: &'a [u8]) -> Result<Self, BadJson> {
        check::check(raw).map(Self)
    }

    /// Takes text that was part of a [`Json`] before.
    pub(crate) fn checked(text: &'a str) -> Self {
        Self(text)
    }

    /// The text.
    #[must_use]
    pub fn as_str(self) -> &'a str {
        self.0
    }

    /// Its bytes.
    #[must_use]
    pub fn as_bytes(self) -> &'a [u8] {
        self.0.as_bytes()
    }

    /// What kind of value it is.
    #[must_use]
    pub fn kind(self) -> Kind {
        Kind::of(self.as_bytes().first().copied().unwrap_or(b'n'))
    }

    /// A string's content, escapes resolved. `None` if it is no string, or one with half a surrogate pair, which has
    /// no text.
    #[must_use]
    pub fn string(self) -> Option<Cow<'a, str>> {
        let inner = self.string_inner()?;
        if !inner.contains('\\') {
            return Some(Cow::Borrowed(inner));
        }
        let mut text = String::with_capacity(inner.len());
        for piece in pieces(inner) {
            match piece {
                Piece::Plain(plain) => text.push_str(plain),
                Piece::Char(char) => text.push(char),
                Piece::Lone(_) => return None,
            }
        }
        Some(Cow::Owned(text))
    }

    /// A string's content as it is written, between its quotes.
    pub(crate) fn string_inner(self) -> Option<&'a str> {
        self.0.strip_prefix('"')?.strip_suffix('"')
    }

    /// A value inside this one, from its first byte up to (not with) `end`.
    fn part(self, start: usize, end: usize) -> Self {
        // The ends are those of a token in checked text, thus inside it and on character boundaries.
        Self(&self.0[start..end])
    }

    /// The members of an object as (name as it is written, value); nothing for any other kind.
    pub(crate) fn members(self) -> Members<'a> {
        let at = if self.kind() == Kind::Object {
            1
        } else {
            self.0.len()
        };
        Members { json: self, at }
    }

    /// The items of an array; nothing for any other kind.
    pub(crate) fn items(self) -> Items<'a> {
        let at = if self.kind() == Kind::Array {
            1
        } else {
            self.0.len()
        };
        Items { json: self, at }
    }
}

impl fmt::Display for Json<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl fmt::Debug for Json<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Json({})", self.0)
    }
}

/// Walks an object's members.
pub(crate) struct Members<'a> {
    json: Json<'a>,
    at: usize,
}

impl<'a> Iterator for Members<'a> {
    type Item = (&'a str, Json<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let text = self.json.as_bytes();
        let name = skip_space_and(b',', text, self.at);
        if text.get(name) != Some(&b'"') {
            return None;
        }
        let name_end = string_end(text, name);
        let start = skip_space_and(b':', text, name_end);
        let end = value_end(text, start);
        self.at = end;
        let inner = self.json.0.get(name + 1..name_end - 1)?;
        Some((inner, self.json.part(start, end)))
    }
}

/// Walks an array's items.
pub(crate) struct Items<'a> {
    json: Json<'a>,
    at: usize,
}

impl<'a> Iterator for Items<'a> {
    type Item = Json<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        let text = self.json.as_bytes();
        let start = skip_space_and(b',', text, self.at);
        if matches!(text.get(start), None | Some(b']')) {
            return None;
        }
        let end = value_end(text, start);
        self.at = end;
        Some(self.json.part(start, end))
    }
}

/// What kind of value a JSON text is. Its `Display` reads like `an object`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// `null`
    Null,
    /// `true`, `false`
    Boolean,
    /// Any number.
    Number,
    /// A string.
    String,
    /// An array.
    Array,
    /// An object.
    Object,
}

impl Kind {
    /// By a value's first byte, which in JSON is enough.
    pub(crate) fn of(first: u8) -> Self {
        match first {
            b'{' => Self::Object,
            b'[' => Self::Array,
            b'"' => Self::String,
            b't' | b'f' => Self::Boolean,
            b'n' => Self::Null,
            _ => Self::Number,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Null => "null",
            Self::Boolean => "a boolean",
            Self::Number => "a number",
            Self::String => "a string",
            Self::Array => "an array",
            Self::Object => "an object",
        })
    }
}

/// Where a text stops being JSON.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BadJson {
    /// Byte offset in the text that was given.
    pub offset: usize,
    /// Why.
    pub reason: Reason,
}

impl fmt::Display for BadJson {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (at byte {})", self.reason, self.offset)
    }
}

impl std::error::Error for BadJson {}

/// Why a text is not JSON.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reason {
    /// Not UTF-8.
    Utf8,
    /// Nothing but white space.
    Empty,
    /// It ends in the middle of a value.
    Cut,
    /// More than [`Json::MAX_DEPTH`] levels.
    TooDeep,
    /// A word that other languages know, such as `NaN`.
    Word(Box<str>),
    /// Something else should be here.
    Expected {
        /// What should.
        what: &'static str,
        /// What is.
        found: char,
    },
    /// A control character in a string that is not escaped.
    Control(u8),
    /// An escape that JSON does not know.
    Escape,
    /// A number written as JSON does not write it.
    Number(&'static str),
    /// More text after the value.
    Trailing,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Utf8 => f.write_str("invalid UTF-8"),
            Self::Empty => f.write_str("no value at all"),
            Self::Cut => f.write_str("the value is cut off"),
            Self::TooDeep => write!(f, "nested deeper than {}", Json::MAX_DEPTH),
            Self::Word(word) => write!(f, "{word} is not JSON"),
            Self::Expected { what, found } => write!(f, "expected {what}, found {found:?}"),
            Self::Control(byte) => write!(f, "control character {byte:#04x} in a string"),
            Self::Escape => f.write_str("an escape that JSON does not know"),
            Self::Number(why) => write!(f, "a number {why}"),
            Self::Trailing => f.write_str("text after the value"),
        }
    }
}

/// Whether JSON counts `byte` as white space.
#[inline]
pub(crate) fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\n' | b'\r' | b'\t')
}

/// The first place from `at` on that is neither white space nor `mark`.
#[inline]
pub(crate) fn skip_space_and(mark: u8, text: &[u8], mut at: usize) -> usize {
    while let Some(&byte) = text.get(at) {
        if byte != mark && !is_space(byte) {
            break;
        }
        at += 1;
    }
    at
}

/// How many bytes from the start are plain content of a string: neither `"` nor `\` nor a control character.
#[inline]
pub(crate) fn plain_run(bytes: &[u8]) -> usize {
    const ONES: u64 = u64::from_le_bytes([1; 8]);
    const TOPS: u64 = u64::from_le_bytes([0x80; 8]);
    // Eight bytes at once. The top bit of each byte of `less(word, n)` says whether that byte was less than `n`; above
    // the first such byte it may be wrong, which does not matter here.
    let less = |word: u64, limit: u8| word.wrapping_sub(ONES * u64::from(limit)) & !word & TOPS;
    let mut run = 0;
    let mut rest = bytes;
    while let Some((chunk, behind)) = rest.split_first_chunk::<8>() {
        let word = u64::from_le_bytes(*chunk);
        let quote = word ^ (ONES * u64::from(b'"'));
        let backslash = word ^ (ONES * u64::from(b'\\'));
        let stops = less(quote, 1) | less(backslash, 1) | less(word, 0x20);
        if stops != 0 {
            return run + (stops.trailing_zeros() / 8) as usize;
        }
        run += 8;
        rest = behind;
    }
    let stops = |byte: &u8| matches!(byte, b'"' | b'\\' | 0..0x20);
    run + rest.iter().position(stops).unwrap_or(rest.len())
}

/// The place behind the string that starts at `at` in checked text.
#[inline]
pub(crate) fn string_end(text: &[u8], at: usize) -> usize {
    let mut at = at + 1;
    loop {
        at += plain_run(text.get(at..).unwrap_or_default());
        match text.get(at) {
            None => return text.len(),
            Some(b'"') => return at + 1,
            Some(_) => at += 2,
        }
    }
}

/// The place behind the value that starts at `at` in checked text.
pub(crate) fn value_end(text: &[u8], mut at: usize) -> usize {
    let mut depth = 0usize;
    while let Some(&byte) = text.get(at) {
        match byte {
            b'"' => {
                at = string_end(text, at);
                if depth == 0 {
                    return at;
                }
                continue;
            }
            b'{' | b'[' => depth += 1,
            b'}' | b']' | b',' | b' ' | b'\n' | b'\r' | b'\t' if depth == 0 => return at,
            b'}' | b']' => {
                depth -= 1;
                if depth == 0 {
                    return at + 1;
                }
            }
            _ => {}
        }
        at += 1;
    }
    text.len()
}

#[cfg(test)]
mod tests;
