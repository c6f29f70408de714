//! Equal values have equal digests, however they are written; different values have different ones.
//!
//! The canonical form is made of bytes that are hashed and never stored, so it need not be JSON. A value is a tag and
//! what it needs to end by itself, so that no two values share their bytes:
//!
//! | value | bytes |
//! |---|---|
//! | `null`, `true`, `false` | `n`, `t`, `f` |
//! | number | `#`, exact decimal ([`Decimal::write_canonical`]), space |
//! | string | `"`, content in UTF-8 (half a surrogate pair as in WTF-8), byte 255, which neither has |
//! | array | `[`, its items, `]` |
//! | object | `{`, each member as its name (a string) and its value, sorted by the names' bytes, `}` |
//!
//! Members of one name are all kept, in their order: readers disagree on which of them counts, so a change in any of
//! them is a change.

use sha2::{Digest as _, Sha256};

use crate::config::Ignore;
use crate::json::number::Decimal;
use crate::json::{Json, is_space, plain_run, string_end, unescape, value_end};
use crate::pointer::{Pointer, index};
use crate::record::Digest;

/// Ends a string's content.
const END: u8 = 0xFF;

/// Makes canonical forms and their digests. It keeps its buffers from one record to the next.
#[derive(Debug, Default)]
pub struct Canon {
    ignores: Ignores,
    buffers: Buffers,
}

/// What makes no difference.
#[derive(Debug, Default)]
struct Ignores {
    places: Vec<Pointer>,
    names: Vec<String>,
}

#[derive(Debug, Default)]
struct Buffers {
    out: Vec<u8>,
    /// For putting an object's members in order.
    sorted: Vec<u8>,
    /// A stack: members of the objects that are open.
    members: Vec<Member>,
    /// A stack: the ignored places that lead through the values that are open.
    active: Vec<usize>,
}

/// A member's place in the output.
#[derive(Debug, Clone, Copy)]
struct Member {
    start: usize,
    name_end: usize,
    end: usize,
}

impl Canon {
    /// Fields in `ignores` make no difference. An item of an array that is ignored is left out of it. The empty pointer
    /// ignores nothing: a record without any field would never change.
    #[must_use]
    pub fn new(ignores: &[Ignore]) -> Self {
        let mut canon = Self::default();
        for ignore in ignores {
            match ignore {
                Ignore::At(pointer) if pointer.is_root() => {}
                Ignore::At(pointer) => canon.ignores.places.push(pointer.clone()),
                Ignore::Anywhere(name) => canon.ignores.names.push(name.clone()),
            }
        }
        canon
    }

    /// The digest of a value; never [`Digest::UNKNOWN`].
    pub fn digest(&mut self, value: Json<'_>) -> Digest {
        let hash = Sha256::digest(self.canonical(value));
        let mut digest = Digest::UNKNOWN;
        digest.0.copy_from_slice(&hash[..16]);
        if digest == Digest::UNKNOWN {
            digest.0[15] = 1;
        }
        digest
    }

    /// The canonical form of a value, as this module describes it. Two values that differ only in ignored fields have
    /// the same.
    pub fn canonical(&mut self, value: Json<'_>) -> &[u8] {
        let Self { ignores, buffers } = self;
        buffers.out.clear();
        buffers.members.clear();
        buffers.active.clear();
        buffers.active.extend(0..ignores.places.len());
        let mut walk = Walk {
            text: value.as_str(),
            at: 0,
            ignores,
            buffers,
        };
        walk.value(0, 0);
        &self.buffers.out
    }
}

/// A walk over checked text, so nothing here can be out of place. It recurses no deeper than [`Json::MAX_DEPTH`].
struct Walk<'a> {
    text: &'a str,
    at: usize,
    ignores: &'a Ignores,
    buffers: &'a mut Buffers,
}

impl Walk<'_> {
    #[inline]
    fn peek(&self) -> u8 {
        self.text.as_bytes().get(self.at).copied().unwrap_or(0)
    }

    /// The next byte that is not white space; stays before it.
    #[inline]
    fn token(&mut self) -> u8 {
        while is_space(self.peek()) {
            self.at += 1;
        }
        self.peek()
    }

    /// Writes the value at hand. The ignored places that lead through it are those on the stack from `base` on, `depth`
    /// tokens of which are behind.
    fn value(&mut self, depth: usize, base: usize) {
        match self.peek() {
            b'{' => self.object(depth, base),
            b'[' => self.array(depth, base),
            b'"' => self.string(),
            word @ (b't' | b'n' | b'f') => {
                self.buffers.out.push(word);
                self.at += if word == b'f' { 5 } else { 4 };
            }
            _ => self.number(),
        }
    }

    fn object(&mut self, depth: usize, base: usize) {
        self.buffers.out.push(b'{');
        self.at += 1;
        let first = self.buffers.members.len();
        loop {
            match self.token() {
                b'"' => self.member(depth, base),
                b',' => self.at += 1,
                _ => break,
            }
        }
        self.at += 1;
        self.buffers.sort_members(first);
        self.buffers.out.push(b'}');
    }

    fn member(&mut self, depth: usize, base: usize) {
        let start = self.buffers.out.len();
        self.string();
        self.token();
        self.at += 1;
        self.token();
        let end = self.buffers.active.len();
        let name_end = self.buffers.out.len();
        if self.skips_member(start, depth, base) {
            self.buffers.out.truncate(start);
            self.at = value_end(self.text.as_bytes(), self.at);
        } else {
            self.value(depth + 1, end);
            self.buffers.members.push(Member {
                start,
                name_end,
                end: self.buffers.out.len(),
            });
        }
        self.buffers.active.truncate(end);
    }

    /// Whether the member whose name was just written is ignored; if not, the ignored places inside it are on the stack.
    fn skips_member(&mut self, start: usize, depth: usize, base: usize) -> bool {
        let Buffers { out, active, .. } = &mut *self.buffers;
        let name = &out[start + 1..out.len() - 1];
        self.ignores
            .names
            .iter()
            .any(|ignored| ignored.as_bytes() == name)
            || self
                .ignores
                .descend(active, depth, base, |token| token.as_bytes() == name)
    }

    fn array(&mut self, depth: usize, base: usize) {
        self.buffers.out.push(b'[');
        self.at += 1;
        let mut nth = 0;
        loop {
            match self.token() {
                b']' | 0 => break,
                b',' => self.at += 1,
                _ => {
                    self.item(nth, depth, base);
                    nth += 1;
                }
            }
        }
        self.at += 1;
        self.buffers.out.push(b']');
    }

    fn item(&mut self, nth: usize, depth: usize, base: usize) {
        let end = self.buffers.active.len();
        let is = |token: &str| token == "*" || index(token) == Some(nth);
        if self
            .ignores
            .descend(&mut self.buffers.active, depth, base, is)
        {
            self.at = value_end(self.text.as_bytes(), self.at);
        } else {
            self.value(depth + 1, end);
        }
        self.buffers.active.truncate(end);
    }

    fn string(&mut self) {
        let text = self.text.as_bytes();
        let start = self.at + 1;
        let end = start + plain_run(&text[start..]);
        let out = &mut self.buffers.out;
        out.push(b'"');
        if text[end] == b'"' {
            out.extend_from_slice(&text[start..end]);
            self.at = end + 1;
        } else {
            self.at = string_end(text, end - 1);
            unescape(&self.text[start..self.at - 1], out);
        }
        out.push(END);
    }

    fn number(&mut self) {
        let text = self.text.as_bytes();
        let start = self.at;
        // The last digit that is not zero, and whether there is anything but digits and a minus.
        let mut last = start;
        let mut plain = true;
        while let Some(&byte) = text.get(self.at) {
            match byte {
                b'0' => {}
                b'1'..=b'9' => last = self.at,
                b'-' => {}
                b'+' | b'.' | b'e' | b'E' => plain = false,
                _ => break,
            }
            self.at += 1;
        }
        let out = &mut self.buffers.out;
        out.push(b'#');
        // The same as `write_canonical` does, for most integers.
        if plain && self.at - last <= 10 && matches!(text[last], b'1'..=b'9') {
            out.extend_from_slice(&text[start..=last]);
            out.push(b'e');
            out.push(b"0123456789"[self.at - last - 1]);
        } else if let Some(number) = Decimal::parse(&self.text[start..self.at]) {
            number.write_canonical(out);
        }
        out.push(b' ');
    }
}

impl Ignores {
    /// Whether a place ends at the child that `is` tells; puts the places that go on inside it on the stack.
    fn descend(
        &self,
        active: &mut Vec<usize>,
        depth: usize,
        base: usize,
        is: impl Fn(&str) -> bool,
    ) -> bool {
        for at in base..active.len() {
            let place = active[at];
            let tokens = self.places[place].tokens();
            if tokens.get(depth).is_some_and(|token| is(token)) {
                if tokens.len() == depth + 1 {
                    return true;
                }
                active.push(place);
            }
        }
        false
    }
}

impl Buffers {
    /// Puts the members from `first` on in the order of their names, which is stable, and takes them off the stack.
    fn sort_members(&mut self, first: usize) {
        let Self {
            out,
            sorted,
            members,
            ..
        } = self;
        let name = |member: &Member| &out[member.start..member.name_end];
        let ours = &mut members[first..];
        if !ours.is_sorted_by(|one, two| name(one) <= name(two)) {
            ours.sort_by(|one, two| name(one).cmp(name(two)));
            sorted.clear();
            let mut start = usize::MAX;
            for member in &*ours {
                sorted.extend_from_slice(&out[member.start..member.end]);
                start = start.min(member.start);
            }
            out.truncate(start);
            out.extend_from_slice(sorted);
        }
        members.truncate(first);
    }
}

#[cfg(test)]
mod tests;
