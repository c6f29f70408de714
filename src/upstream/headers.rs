//! Header fields of one answer, as the pure rooms read them.

/// Header fields in the order they came. Names compare without case; values are bytes, since not all that is sent is
/// ASCII (RFC 9110 5.5).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Headers(Vec<(String, Vec<u8>)>);

impl Headers {
    /// No fields.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a field line.
    pub fn push(&mut self, name: &str, value: &[u8]) {
        self.0.push((name.to_ascii_lowercase(), value.to_vec()));
    }

    /// Removes all lines of that name.
    pub fn remove(&mut self, name: &str) {
        self.0
            .retain(|(known, _)| !known.eq_ignore_ascii_case(name));
    }

    /// The same as [`Headers::push`], for building by chain.
    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.push(name, value.as_bytes());
        self
    }

    /// The first line of that name, as bytes without surrounding white space.
    #[must_use]
    pub fn bytes(&self, name: &str) -> Option<&[u8]> {
        self.0
            .iter()
            .find(|(known, _)| known.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.trim_ascii())
    }

    /// The first line of that name, if it is UTF-8.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        self.bytes(name)
            .and_then(|value| std::str::from_utf8(value).ok())
    }

    /// All lines of that name.
    pub fn lines<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> + 'a {
        self.0
            .iter()
            .filter(move |(known, _)| known.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.trim_ascii())
    }

    /// All lines in order: names in lower case, values as they came.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.0
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_slice()))
    }

    /// The members of a list field over all its lines: split at commas outside quoted strings, trimmed, empty ones
    /// left out (RFC 9110 5.6.1).
    #[must_use]
    pub fn list(&self, name: &str) -> Vec<String> {
        let mut members = Vec::new();
        for line in self.lines(name) {
            split_outside_quotes(&String::from_utf8_lossy(line), ',', |part| {
                let part = part.trim();
                if !part.is_empty() {
                    members.push(part.to_owned());
                }
            });
        }
        members
    }
}

/// Calls `each` for every part of `text` between separators that stand outside quoted strings.
pub fn split_outside_quotes(text: &str, separator: char, mut each: impl FnMut(&str)) {
    let (mut start, mut quoted, mut escaped) = (0, false, false);
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            c if c == separator && !quoted => {
                each(&text[start..at]);
                start = at + c.len_utf8();
            }
            _ => {}
        }
    }
    each(&text[start..]);
}

/// A parameter's value without its quotes and escapes.
#[must_use]
pub fn unquote(text: &str) -> String {
    let text = text.trim();
    let Some(inner) = text.strip_prefix('"') else {
        return text.to_owned();
    };
    let inner = inner.strip_suffix('"').unwrap_or(inner);
    let mut out = String::with_capacity(inner.len());
    let mut chars = inner.chars();
    while let Some(c) = chars.next() {
        out.extend(if c == '\\' { chars.next() } else { Some(c) });
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_spans_lines_and_respects_quotes() {
        let headers = Headers::new()
            .with("Cache-Control", "no-cache=\"a, b\" , max-age=5,,")
            .with("cache-control", " No-Store");
        assert_eq!(
            headers.list("CACHE-CONTROL"),
            ["no-cache=\"a, b\"", "max-age=5", "No-Store"]
        );
        assert_eq!(unquote(r#""a\"b""#), "a\"b");
        assert_eq!(headers.text("absent"), None);
    }
}
