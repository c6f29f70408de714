//! Changes as followers read them: one JSON object a line. Pure.

use crate::clock::Timestamp;
use crate::record::Change;
use crate::sink::sqlite::rfc3339;

/// The start of every line; the number follows.
const START: &str = "{\"seq\":";

/// The lines of a batch whose first change has the number `seq`:
///
/// ```text
/// {"seq":7,"at":"2026-12-01T10:00:00Z","source":"parts","op":"upsert","key":"P-1","body":{…}}
/// {"seq":8,"at":"2026-12-01T10:00:00Z","source":"parts","op":"delete","key":"P-2","why":"missing"}
/// ```
///
/// The body is the record's text as it came; only line ends between its tokens become spaces. The same changes give the same
/// bytes, so a batch that is told again reads the same.
#[must_use]
pub fn lines(source: &str, seq: u64, at: Timestamp, changes: &[Change]) -> Vec<u8> {
    let mut out = Vec::new();
    let source = serde_json::Value::from(source);
    let at = rfc3339(at);
    for (change, seq) in changes.iter().zip(seq..) {
        let key = change.key();
        let head = format!("{START}{seq},\"at\":\"{at}\",\"source\":{source},\"op\":");
        out.extend_from_slice(head.as_bytes());
        match change {
            Change::Upsert { body, .. } => {
                out.extend_from_slice(format!("\"upsert\",\"key\":{key},\"body\":").as_bytes());
                // Within a JSON string there is no raw line end.
                let flat = |byte| {
                    if matches!(byte, b'\n' | b'\r') {
                        b' '
                    } else {
                        byte
                    }
                };
                out.extend(body.bytes().map(flat));
            }
            Change::Delete { why, .. } => {
                let why = why.word();
                out.extend_from_slice(
                    format!("\"delete\",\"key\":{key},\"why\":\"{why}\"").as_bytes(),
                );
            }
        }
        out.extend_from_slice(b"}\n");
    }
    out
}

/// The number of a line, if it starts like one of ours.
#[must_use]
pub fn number(line: &[u8]) -> Option<u64> {
    let rest = line.strip_prefix(START.as_bytes())?;
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (number, rest) = rest.split_at(digits);
    if rest.first() != Some(&b',') {
        return None;
    }
    std::str::from_utf8(number).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Digest, Gone, RecordKey};

    fn key(text: &str) -> RecordKey {
        RecordKey::from_canonical(text).unwrap()
    }

    #[test]
    fn a_change_is_a_line_with_the_text_as_it_came() {
        let body = "{ \"id\": 1.0,\r\n  \"name\":\"a\\nb\",\n \"n\":9007199254740993 }";
        let changes = [
            Change::Upsert {
                key: key("1"),
                body: body.into(),
                digest: Digest([1; 16]),
                updated: None,
            },
            Change::Delete {
                key: key("[\"x\",2]"),
                why: Gone::Tombstone,
            },
        ];
        let at = "2026-12-01T10:00:00.5Z".parse().unwrap();
        let out = String::from_utf8(lines("pa\"rts", 41, at, &changes)).unwrap();
        assert_eq!(
            out,
            "{\"seq\":41,\"at\":\"2026-12-01T10:00:00.500Z\",\"source\":\"pa\\\"rts\",\"op\":\"upsert\",\"key\":1,\"body\":{ \"id\": 1.0,    \"name\":\"a\\nb\",  \"n\":9007199254740993 }}\n\
             {\"seq\":42,\"at\":\"2026-12-01T10:00:00.500Z\",\"source\":\"pa\\\"rts\",\"op\":\"delete\",\"key\":[\"x\",2],\"why\":\"tombstone\"}\n"
        );
        for (line, seq) in out.lines().zip(41..) {
            assert_eq!(number(line.as_bytes()), Some(seq));
            serde_json::from_str::<serde_json::Value>(line).unwrap();
        }
    }

    #[test]
    fn other_lines_have_no_number() {
        for line in [
            "",
            "{\"seq\":",
            "{\"seq\":1",
            "{\"seq\":1}",
            "{\"seq\":-1,",
            "{\"seq\": 1,",
            "{\"seq\":99999999999999999999,",
            "\0\0\0\0",
        ] {
            assert_eq!(number(line.as_bytes()), None, "{line}");
        }
    }
}
