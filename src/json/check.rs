//! The grammar of RFC 8259, checked in one pass without recursion.

use super::{BadJson, Json, Reason, is_space, plain_run};

/// The text of the one value in `raw`, or where it stops being one.
pub(super) fn check(raw: &[u8]) -> Result<&str, BadJson> {
    let text = std::str::from_utf8(raw).map_err(|error| BadJson {
        offset: error.valid_up_to(),
        reason: Reason::Utf8,
    })?;
    let mut check = Check {
        text: raw,
        at: 0,
        depth: 0,
        objects: 0,
    };
    if check.token().is_none() {
        return Err(check.bad(Reason::Empty));
    }
    let start = check.at;
    check.value()?;
    let end = check.at;
    if check.token().is_some() {
        return Err(check.bad(Reason::Trailing));
    }
    // Inside the text, and on character boundaries: tokens start and end with ASCII.
    Ok(&text[start..end])
}

struct Check<'a> {
    text: &'a [u8],
    at: usize,
    depth: usize,
    /// A bit for each level, the innermost lowest: whether it is an object.
    objects: u128,
}

impl Check<'_> {
    fn bad(&self, reason: Reason) -> BadJson {
        BadJson {
            offset: self.at,
            reason,
        }
    }

    #[inline]
    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    /// The next byte that is not white space; stays before it.
    #[inline]
    fn token(&mut self) -> Option<u8> {
        while let Some(byte) = self.peek() {
            if !is_space(byte) {
                return Some(byte);
            }
            self.at += 1;
        }
        None
    }

    fn in_object(&self) -> bool {
        self.objects & 1 == 1
    }

    fn value(&mut self) -> Result<(), BadJson> {
        loop {
            match self.token() {
                Some(b'"') => self.string()?,
                Some(b'{') => {
                    self.open(true)?;
                    if self.token() != Some(b'}') {
                        self.name("a member's name or `}`")?;
                        continue;
                    }
                    self.close();
                }
                Some(b'[') => {
                    self.open(false)?;
                    if self.token() != Some(b']') {
                        continue;
                    }
                    self.close();
                }
                Some(b'-' | b'0'..=b'9') => self.number()?,
                Some(_) => self.word()?,
                None => return Err(self.bad(Reason::Cut)),
            }
            if self.after()? {
                return Ok(());
            }
        }
    }

    /// What follows a value; true at the end of the outermost, false before another value.
    fn after(&mut self) -> Result<bool, BadJson> {
        while self.depth > 0 {
            match (self.token(), self.in_object()) {
                (Some(b','), true) => {
                    self.at += 1;
                    self.token();
                    self.name("a member's name")?;
                    return Ok(false);
                }
                (Some(b','), false) => {
                    self.at += 1;
                    return Ok(false);
                }
                (Some(b'}'), true) | (Some(b']'), false) => self.close(),
                (_, true) => return Err(self.expected("`,` or `}`")),
                (_, false) => return Err(self.expected("`,` or `]`")),
            }
        }
        Ok(true)
    }

    fn open(&mut self, object: bool) -> Result<(), BadJson> {
        if self.depth == Json::MAX_DEPTH {
            return Err(self.bad(Reason::TooDeep));
        }
        self.depth += 1;
        self.objects = self.objects << 1 | u128::from(object);
        self.at += 1;
        Ok(())
    }

    fn close(&mut self) {
        self.depth -= 1;
        self.objects >>= 1;
        self.at += 1;
    }

    fn name(&mut self, what: &'static str) -> Result<(), BadJson> {
        if self.peek() != Some(b'"') {
            return Err(self.expected(what));
        }
        self.string()?;
        if self.token() != Some(b':') {
            return Err(self.expected("`:`"));
        }
        self.at += 1;
        Ok(())
    }

    fn string(&mut self) -> Result<(), BadJson> {
        self.at += 1;
        loop {
            self.at += plain_run(self.text.get(self.at..).unwrap_or_default());
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(());
                }
                Some(b'\\') => self.escape()?,
                Some(control) => return Err(self.bad(Reason::Control(control))),
                None => return Err(self.bad(Reason::Cut)),
            }
        }
    }

    fn escape(&mut self) -> Result<(), BadJson> {
        let rest = self.text.get(self.at + 1..).unwrap_or_default();
        let long = match rest.first() {
            None => return Err(self.bad(Reason::Cut)),
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => 2,
            Some(b'u') => match rest.get(1..5) {
                None => return Err(self.bad(Reason::Cut)),
                Some(digits) if digits.iter().all(u8::is_ascii_hexdigit) => 6,
                Some(_) => return Err(self.bad(Reason::Escape)),
            },
            Some(_) => return Err(self.bad(Reason::Escape)),
        };
        self.at += long;
        Ok(())
    }

    fn number(&mut self) -> Result<(), BadJson> {
        let start = self.at;
        if self.peek() == Some(b'-') {
            self.at += 1;
            if self.peek() == Some(b'I') {
                self.at = start;
                return self.word();
            }
        }
        if self.peek() == Some(b'0') {
            self.at += 1;
            if self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
                return Err(self.bad(Reason::Number("with a leading zero")));
            }
        } else {
            self.digits("without digits")?;
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits("without digits after its point")?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digits("without digits in its exponent")?;
        }
        Ok(())
    }

    fn digits(&mut self, none: &'static str) -> Result<(), BadJson> {
        let start = self.at;
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        match self.peek() {
            _ if self.at > start => Ok(()),
            None => Err(self.bad(Reason::Cut)),
            Some(_) => Err(self.bad(Reason::Number(none))),
        }
    }

    /// `true`, `false`, `null`, or an error that names what is there.
    fn word(&mut self) -> Result<(), BadJson> {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let long = rest
            .iter()
            .skip(1)
            .position(|byte| !byte.is_ascii_alphanumeric())
            .map_or(rest.len(), |end| end + 1);
        let word = rest.get(..long).unwrap_or_default();
        if matches!(word, b"true" | b"false" | b"null") {
            self.at += long;
            return Ok(());
        }
        if long == rest.len()
            && [&b"true"[..], b"false", b"null"]
                .iter()
                .any(|whole| whole.starts_with(word))
        {
            self.at = self.text.len();
            return Err(self.bad(Reason::Cut));
        }
        let letters = word
            .get(usize::from(word.first() == Some(&b'-'))..)
            .unwrap_or_default();
        match std::str::from_utf8(word) {
            Ok(word) if letters.first().is_some_and(u8::is_ascii_alphabetic) => {
                Err(self.bad(Reason::Word(word.chars().take(20).collect())))
            }
            _ => Err(self.expected("a value")),
        }
    }

    /// An error that says what should be here, or that the text is cut.
    fn expected(&self, what: &'static str) -> BadJson {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let rest = std::str::from_utf8(rest).unwrap_or_default();
        match rest.chars().next() {
            Some(found) => self.bad(Reason::Expected { what, found }),
            None => self.bad(Reason::Cut),
        }
    }
}
