//! What a string's escapes stand for.

/// A stretch of a string's content.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Piece<'a> {
    /// Text that stands for itself.
    Plain(&'a str),
    /// A character that was escaped.
    Char(char),
    /// Half a surrogate pair without its other half.
    Lone(u16),
}

/// Walks the content of a checked string, given as it is written between its quotes.
pub(crate) fn pieces(inner: &str) -> Pieces<'_> {
    Pieces { rest: inner }
}

/// See [`pieces`].
pub(crate) struct Pieces<'a> {
    rest: &'a str,
}

impl<'a> Iterator for Pieces<'a> {
    type Item = Piece<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        let Some(escape) = self.rest.strip_prefix('\\') else {
            if self.rest.is_empty() {
                return None;
            }
            let end = self.rest.find('\\').unwrap_or(self.rest.len());
            let (plain, rest) = self.rest.split_at(end);
            self.rest = rest;
            return Some(Piece::Plain(plain));
        };
        let mut chars = escape.chars();
        let letter = chars.next()?;
        self.rest = chars.as_str();
        Some(Piece::Char(match letter {
            'b' => '\u{8}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'u' => return self.unit().map(|unit| self.with_other_half(unit)),
            itself => itself,
        }))
    }
}

impl<'a> Pieces<'a> {
    /// Takes four hexadecimal digits.
    fn unit(&mut self) -> Option<u16> {
        let (digits, rest) = self.rest.split_at_checked(4)?;
        self.rest = rest;
        u16::from_str_radix(digits, 16).ok()
    }

    /// A high surrogate takes the low one that follows it.
    fn with_other_half(&mut self, unit: u16) -> Piece<'a> {
        if let Some(char) = char::from_u32(u32::from(unit)) {
            return Piece::Char(char);
        }
        let before = self.rest;
        if let (true, Some(rest)) = (unit < 0xDC00, before.strip_prefix("\\u")) {
            self.rest = rest;
            let low = self.unit().unwrap_or(0);
            if (0xDC00..0xE000).contains(&low) {
                let code =
                    0x1_0000 + ((u32::from(unit) - 0xD800) << 10) + (u32::from(low) - 0xDC00);
                if let Some(char) = char::from_u32(code) {
                    return Piece::Char(char);
                }
            }
            self.rest = before;
        }
        Piece::Lone(unit)
    }
}

/// Appends the content of a checked string: UTF-8, and three bytes in the manner of WTF-8 for half a surrogate pair, so
/// that different contents give different bytes.
pub(crate) fn unescape(inner: &str, out: &mut Vec<u8>) {
    for piece in pieces(inner) {
        match piece {
            Piece::Plain(plain) => out.extend_from_slice(plain.as_bytes()),
            Piece::Char(char) => out.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes()),
            Piece::Lone(unit) => {
                let [high, low] = unit.to_be_bytes();
                out.push(0xE0 | high >> 4);
                out.push(0x80 | (high & 0x0F) << 2 | low >> 6);
                out.push(0x80 | low & 0x3F);
            }
        }
    }
}
