//! What is wrong with a body is said, and where.

use super::super::Layout;
use super::{LIMIT, error, lines, read_pieces};
use crate::config::Format;

#[test]
fn bodies_that_are_something_else_say_so() {
    let table = [
        ("", "/items", "the body is empty"),
        (" \r\n", "/items", "the body is empty"),
        ("\u{feff}", "/items", "the body is empty"),
        (
            "<!DOCTYPE html><p>",
            "/items",
            "the body is not JSON: it starts with `<`, as HTML does",
        ),
        (
            "\u{feff} <?xml",
            "",
            "the body is not JSON: it starts with `<`, as HTML does",
        ),
        (
            "Service Unavailable",
            "/items",
            "the body is not JSON: Service is not JSON (at byte 0)",
        ),
        (
            "NaN",
            "",
            "the body is not JSON: NaN is not JSON (at byte 0)",
        ),
        (
            "nul",
            "",
            "the body is not JSON: the value is cut off (at byte 3)",
        ),
        (
            "null",
            "",
            "expected an array of records at the top, found null",
        ),
        (
            "\"x\"",
            "",
            "expected an array of records at the top, found a string",
        ),
        ("5", "/items", "no records at /items: the top is a number"),
        (
            "[1,2]",
            "/items",
            "no records at /items: the top is an array",
        ),
        (
            "{}",
            "/items",
            "no records at /items: the top is an object without members",
        ),
        (
            r#"{"error":{"items":[1]},"code":5}"#,
            "/items",
            r#"no records at /items: the top is an object with the members ["error", "code"]"#,
        ),
        (
            r#"{"m":1,"data":{"x":[1],"y":{"items":[]}},"z":1}"#,
            "/data/items",
            r#"no records at /data/items: /data is an object with the members ["x", "y"]"#,
        ),
        (
            r#"{"data":null}"#,
            "/data/items",
            "no records at /data/items: /data is null",
        ),
        (r#"[[]]"#, "/1", "no records at /1: the top is an array"),
        (
            r#"{"items":null}"#,
            "/items",
            "expected an array of records at /items, found null",
        ),
        (
            r#"{"items":"x"}"#,
            "/items",
            "expected an array of records at /items, found a string",
        ),
        (
            r#"{"items":{"7":{}}}"#,
            "/items",
            "expected an array of records at /items, found an object (records as members of an object are not supported)",
        ),
    ];
    for (body, pointer, message) in table {
        assert_eq!(error(body, pointer), message, "{body}");
    }
}

#[test]
fn the_envelope_is_checked_strictly() {
    let table = [
        (
            "[1 2]",
            "",
            "the body is not JSON: expected `,` or `]` after a record at byte 3, found `2`",
        ),
        (
            "[1,]",
            "",
            "the body is not JSON: expected a record at byte 3, found `]`",
        ),
        (
            "[,1]",
            "",
            "the body is not JSON: expected a record at byte 1, found `,`",
        ),
        (
            "[1,,2]",
            "",
            "the body is not JSON: expected a record at byte 3, found `,`",
        ),
        (
            "[{}{}]",
            "",
            "the body is not JSON: expected `,` or `]` after a record at byte 3, found `{`",
        ),
        (
            "[1:2]",
            "",
            "the body is not JSON: expected `,` or `]` after a record at byte 2, found `:`",
        ),
        (
            "[1}",
            "",
            "the body is not JSON: expected `,` or `]` after a record at byte 2, found `}`",
        ),
        (
            "[1]]",
            "",
            "the body is not JSON: expected the end of the body at byte 3, found `]`",
        ),
        (
            "[1] x",
            "",
            "the body is not JSON: expected the end of the body at byte 4, found `x`",
        ),
        (
            "[1]\0",
            "",
            "the body is not JSON: expected the end of the body at byte 3, found byte 0x00",
        ),
        (
            "[1][2]",
            "",
            "the body is not JSON: expected the end of the body at byte 3, found `[`",
        ),
        (
            "[{\"a\":[}, {}]",
            "",
            "the body is not JSON: expected the bracket that closes the innermost one at byte 7, found `}`",
        ),
        (
            "{\"i\":[1],}",
            "/i",
            "the body is not JSON: expected a member's name at byte 9, found `}`",
        ),
        (
            "{\"i\":[1]]",
            "/i",
            "the body is not JSON: expected `,` or `}` at byte 8, found `]`",
        ),
        (
            "{\"i\":[1] \"n\":1}",
            "/i",
            "the body is not JSON: expected `,` or `}` at byte 9, found `\"`",
        ),
        (
            "{\"i\":[1],\"n\" 1}",
            "/i",
            "the body is not JSON: expected `:` at byte 13, found `1`",
        ),
        (
            "{\"i\":[1],\"n\":}",
            "/i",
            "the body is not JSON: expected a value at byte 13, found `}`",
        ),
        (
            "{\"i\":[1],\"n\":[1,]}",
            "/i",
            "the body is not JSON: expected a value at byte 16, found `]`",
        ),
        (
            "{\"i\":[1],\"n\":[1 2]}",
            "/i",
            "the body is not JSON: expected `,` or `]` at byte 16, found `2`",
        ),
        (
            "{\"i\":[1],\"n\":{\"a\":01}}",
            "/i",
            "the body is not JSON: a number with a leading zero (at byte 19)",
        ),
        (
            "{\"i\":[1],\"n\":NaN}",
            "/i",
            "the body is not JSON: NaN is not JSON (at byte 13)",
        ),
        (
            "{\"i\":[1],\"n\":\"\\q\"}",
            "/i",
            "the body is not JSON: an escape that JSON does not know (at byte 14)",
        ),
        (
            "{\"i\":[1],\"\n\":1}",
            "/i",
            "the body is not JSON: control character 0x0a in a string (at byte 10)",
        ),
        (
            "{n:1,\"i\":[1]}",
            "/i",
            "the body is not JSON: expected a member's name at byte 1, found `n`",
        ),
        ("{\"i\":[1],\"i\":[2]}", "/i", "the body has /i twice"),
        (
            "{\"d\":{\"i\":[1]},\"\\u0064\":{}}",
            "/d/i",
            "the body has /d twice",
        ),
        (
            "{\"d\":5,\"d\":{\"i\":[1]}}",
            "/d/i",
            "the body has /d twice",
        ),
    ];
    for (body, pointer, message) in table {
        assert_eq!(error(body, pointer), message, "{body}");
    }
    let deep = format!("{{\"n\":{}{},\"i\":[]}}", "[".repeat(200), "]".repeat(200));
    assert!(error(&deep, "/i").contains("no more than 128 levels"));
}

#[test]
fn invalid_utf_8_in_the_envelope_is_an_error() {
    for body in [
        &b"{\"n\":\"\xff\",\"i\":[]}"[..],
        b"{\"\xff\":1,\"i\":[]}",
        b"{\"n\":[\"\xc3\"],\"i\":[]}",
    ] {
        let outcome = read_pieces(body, &[1], Format::Json, "/i", &["/n"]);
        assert!(
            outcome.message().contains("invalid UTF-8"),
            "{}",
            outcome.message()
        );
    }
}

#[test]
fn what_is_too_long_is_an_error() {
    let record = |long: usize| format!("\"{}\"", "x".repeat(long - 2));
    let body = |long: usize| format!("[1,{}]", record(long));
    assert_eq!(error(&body(LIMIT), ""), "no error");
    assert_eq!(
        error(&body(LIMIT + 1), ""),
        "record 2 is longer than 1000 bytes"
    );
    let endless = "[".repeat(10_000_000);
    assert_eq!(
        read_pieces(endless.as_bytes(), &[4096], Format::Json, "", &[]).message(),
        "record 1 is longer than 1000 bytes"
    );
    let endless = format!("[{}", "1".repeat(10_000_000));
    assert_eq!(
        read_pieces(endless.as_bytes(), &[4096], Format::Json, "", &[]).message(),
        "record 1 is longer than 1000 bytes"
    );

    let wanted = |long: usize| format!("{{\"n\":{},\"i\":[1]}}", record(long));
    let outcome =
        |long: usize| read_pieces(wanted(long).as_bytes(), &[777], Format::Json, "/i", &["/n"]);
    assert_eq!(outcome(Layout::MAX_WANTED).message(), "no error");
    assert_eq!(
        outcome(Layout::MAX_WANTED + 1).message(),
        "the value at byte 5 is longer than 65536 bytes"
    );

    assert_eq!(
        lines(&format!("1\n{}\n", record(LIMIT))).message(),
        "no error"
    );
    assert_eq!(
        lines(&format!("1\n{}\n", record(LIMIT + 1))).message(),
        "record 2 is longer than 1000 bytes"
    );
    let endless = "1".repeat(10_000_000);
    assert_eq!(
        read_pieces(endless.as_bytes(), &[4096], Format::Ndjson, "", &[]).message(),
        "record 1 is longer than 1000 bytes"
    );
}
