//! A body as something on its way may have written it anew.

/// The text with each line end written so.
pub(super) fn with_line_ends(body: &[u8], end: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(body.len());
    for line in body.split_inclusive(|byte| *byte == b'\n') {
        match line.strip_suffix(b"\n") {
            Some(line) => {
                out.extend_from_slice(line.strip_suffix(b"\r").unwrap_or(line));
                out.extend_from_slice(end);
            }
            None => out.extend_from_slice(line),
        }
    }
    out
}

/// The white space that libraries write JSON with.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Space {
    None,
    Single,
    Lines,
}

/// JSON text with its tokens as they are and other white space.
pub(super) fn rewritten(json: &str, space: Space) -> Vec<u8> {
    let mut out = Vec::with_capacity(json.len());
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    let mut bytes = json.bytes().filter_map(move |byte| {
        let is_space = !in_string && byte.is_ascii_whitespace();
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            _ => {}
        }
        (!is_space).then_some((byte, in_string))
    });
    let line = |out: &mut Vec<u8>, depth: usize| {
        if space == Space::Lines {
            out.push(b'\n');
            out.extend(std::iter::repeat_n(b' ', 2 * depth));
        }
    };
    let mut opened = false;
    for (byte, in_string) in &mut bytes {
        let closes = !in_string && matches!(byte, b'}' | b']');
        if closes {
            depth = depth.saturating_sub(1);
        }
        // What is empty stays on its line.
        if opened != closes {
            line(&mut out, depth);
        }
        out.push(byte);
        opened = !in_string && matches!(byte, b'{' | b'[');
        depth += usize::from(opened);
        if !in_string && byte == b',' {
            line(&mut out, depth);
        }
        let is_spaced =
            byte == b':' && space != Space::None || byte == b',' && space == Space::Single;
        if !in_string && is_spaced {
            out.push(b' ');
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_written_as_libraries_do() {
        let json = "{ \"a\" : [ ],\n\"b, {\": [1 ,{\"c\":\"\\\"\"}] , \"d\":{}}";
        let text = |space| String::from_utf8(rewritten(json, space)).unwrap();
        assert_eq!(
            text(Space::None),
            r#"{"a":[],"b, {":[1,{"c":"\""}],"d":{}}"#
        );
        assert_eq!(
            text(Space::Single),
            r#"{"a": [], "b, {": [1, {"c": "\""}], "d": {}}"#
        );
        let value: serde_json::Value = serde_json::from_str(json).unwrap();
        assert_eq!(
            text(Space::Lines),
            serde_json::to_string_pretty(&value).unwrap()
        );
    }

    #[test]
    fn line_ends_change_and_nothing_else() {
        assert_eq!(with_line_ends(b"a\nb\r\nc", b"\r\n"), b"a\r\nb\r\nc");
        assert_eq!(with_line_ends(b"a\nb\r\nc\n", b"\n"), b"a\nb\nc\n");
    }
}
