use proptest::prelude::*;

use super::*;

fn bad(raw: &[u8]) -> String {
    match Json::parse(raw) {
        Ok(json) => panic!("{json} is taken for JSON"),
        Err(bad) => bad.to_string(),
    }
}

#[test]
fn takes_every_form_of_value() {
    let table = [
        "null",
        "true",
        "false",
        "0",
        "-0",
        "-0.0e-0",
        "1E+2",
        "12.50",
        "\"\"",
        "\"\\u0000\\/\\b\\f\\n\\r\\t\\\"\\\\\"",
        "\"\\ud800\"",
        "\"\\uDC00\\uD800\"",
        "\"\u{7f}\u{2028}\u{10ffff}\u{0085}\"",
        "[]",
        "{}",
        "[ ]",
        "{\n}",
        "[[],{}]",
        "{\"\":{\"\":0}}",
        "{\"a\":1,\"a\":2}",
        "[1 , 2\t,\r\n3]",
        "1e99999999999999999999999",
        "[1,\"]\",{\"}\":\"{\"}]",
    ];
    for text in table {
        let padded = format!(" \t\r\n{text} \n");
        assert_eq!(Json::parse(padded.as_bytes()).map(Json::as_str), Ok(text));
    }
}

#[test]
fn errors_say_where_and_why() {
    let table: &[(&[u8], &str)] = &[
        (b"", "no value at all (at byte 0)"),
        (b" \n", "no value at all (at byte 2)"),
        (b"NaN", "NaN is not JSON (at byte 0)"),
        (b"[1,NaN]", "NaN is not JSON (at byte 3)"),
        (b"{\"a\":Infinity}", "Infinity is not JSON (at byte 5)"),
        (b"{\"a\":-Infinity}", "-Infinity is not JSON (at byte 5)"),
        (b"undefined", "undefined is not JSON (at byte 0)"),
        (b"[True]", "True is not JSON (at byte 1)"),
        (b"[nul]", "nul is not JSON (at byte 1)"),
        (b"nulls", "nulls is not JSON (at byte 0)"),
        (
            b"{a:1}",
            "expected a member's name or `}`, found 'a' (at byte 1)",
        ),
        (
            b"{'a':1}",
            "expected a member's name or `}`, found '\\'' (at byte 1)",
        ),
        (b"['a']", "expected a value, found '\\'' (at byte 1)"),
        (b"[1,]", "expected a value, found ']' (at byte 3)"),
        (b"[,1]", "expected a value, found ',' (at byte 1)"),
        (
            b"{\"a\":1,}",
            "expected a member's name, found '}' (at byte 7)",
        ),
        (b"{\"a\":}", "expected a value, found '}' (at byte 5)"),
        (b"{\"a\" 1}", "expected `:`, found '1' (at byte 5)"),
        (
            b"{\"a\":1 \"b\":2}",
            "expected `,` or `}`, found '\"' (at byte 7)",
        ),
        (b"[1 2]", "expected `,` or `]`, found '2' (at byte 3)"),
        (b"[1}", "expected `,` or `]`, found '}' (at byte 2)"),
        (b"{\"a\":1]", "expected `,` or `}`, found ']' (at byte 6)"),
        (b"[1/*x*/]", "expected `,` or `]`, found '/' (at byte 2)"),
        (b"//x", "expected a value, found '/' (at byte 0)"),
        (b"]", "expected a value, found ']' (at byte 0)"),
        ("[é]".as_bytes(), "expected a value, found 'é' (at byte 1)"),
        (
            "\u{feff}1".as_bytes(),
            "expected a value, found '\\u{feff}' (at byte 0)",
        ),
        (
            "[1,\u{a0}2]".as_bytes(),
            "expected a value, found '\\u{a0}' (at byte 3)",
        ),
        (b"1 2", "text after the value (at byte 2)"),
        (b"{} }", "text after the value (at byte 3)"),
        (b"01", "a number with a leading zero (at byte 1)"),
        (b"-01", "a number with a leading zero (at byte 2)"),
        (b"[-]", "a number without digits (at byte 2)"),
        (
            b"[1.]",
            "a number without digits after its point (at byte 3)",
        ),
        (
            b"[1.e5]",
            "a number without digits after its point (at byte 3)",
        ),
        (
            b"[1e]",
            "a number without digits in its exponent (at byte 3)",
        ),
        (
            b"[1e+]",
            "a number without digits in its exponent (at byte 4)",
        ),
        (b"+1", "expected a value, found '+' (at byte 0)"),
        (b".5", "expected a value, found '.' (at byte 0)"),
        (b"0x10", "text after the value (at byte 1)"),
        (
            b"\"a\nb\"",
            "control character 0x0a in a string (at byte 2)",
        ),
        (b"\"\0\"", "control character 0x00 in a string (at byte 1)"),
        (
            b"\"\\x41\"",
            "an escape that JSON does not know (at byte 1)",
        ),
        (
            b"\"\\u12g4\"",
            "an escape that JSON does not know (at byte 1)",
        ),
        (
            b"\"\\u12\"}",
            "an escape that JSON does not know (at byte 1)",
        ),
        (b"\"\\'\"", "an escape that JSON does not know (at byte 1)"),
        (b"\"\xff\"", "invalid UTF-8 (at byte 1)"),
        (b"\"\xc0\xaf\"", "invalid UTF-8 (at byte 1)"),
        (b"\"\xed\xa0\x80\"", "invalid UTF-8 (at byte 1)"),
        (b"\"ab\xe2\x82\"", "invalid UTF-8 (at byte 3)"),
    ];
    for (raw, message) in table {
        assert_eq!(bad(raw), *message, "{}", raw.escape_ascii());
    }
}

#[test]
fn every_cut_is_an_error() {
    let text = r#"{"a":[true,false,null,-1.5e+3,"x\u00e9\n"],"b":{"c":[{}]},"d":""}"#;
    for end in 0..text.len() {
        let error = Json::parse(&text.as_bytes()[..end]).unwrap_err();
        let cut = if end == 0 { Reason::Empty } else { Reason::Cut };
        assert_eq!(error.reason, cut, "{}", &text[..end]);
        assert!(error.offset <= end);
    }
}

#[test]
fn depth_has_a_limit() {
    for (open, close) in [("[", "]"), ("{\"a\":", "}"), ("[{\"a\":", "}]")] {
        let levels = |count: usize| {
            let count = count / if open.len() > 5 { 2 } else { 1 };
            format!("{}1{}", open.repeat(count), close.repeat(count))
        };
        assert!(Json::parse(levels(128).as_bytes()).is_ok());
        assert!(bad(levels(130).as_bytes()).starts_with("nested deeper than 128"));
    }
    assert!(bad("[".repeat(10_000_000).as_bytes()).starts_with("nested deeper than 128"));
    let wide = format!("[{}]", vec!["[]"; 1000].join(","));
    assert!(Json::parse(wide.as_bytes()).is_ok());
}

#[test]
fn strings_have_content() {
    let table = [
        (r#""a""#, Some("a")),
        (r#""\u0041\u00e9\uD83D\uDE00\/""#, Some("Aé😀/")),
        (r#""\uD83Dx""#, None),
        (r#""\uDE00""#, None),
        (r#""\uD83D\uD83D\uDE00""#, None),
        ("5", None),
        ("[\"\"]", None),
    ];
    for (text, content) in table {
        assert_eq!(
            Json::parse(text.as_bytes()).unwrap().string().as_deref(),
            content,
            "{text}"
        );
    }
}

#[test]
fn halves_of_surrogates_stay_apart() {
    let bytes = |inner: &str| {
        let mut out = Vec::new();
        unescape(inner, &mut out);
        out
    };
    assert_eq!(bytes("\\ud800"), [0xED, 0xA0, 0x80]);
    assert_eq!(bytes("\\udfff"), [0xED, 0xBF, 0xBF]);
    assert_eq!(bytes("\\ud83d\\ude00"), "😀".as_bytes());
    assert_eq!(bytes("\\ud83d\\u0041"), [0xED, 0xA0, 0xBD, b'A']);
    assert_eq!(bytes("\\ufffd"), "\u{fffd}".as_bytes());
}

proptest! {
    /// Text that is nearly JSON: serde_json is the judge, but for what this room is stricter or laxer about.
    #[test]
    fn agrees_with_serde_json(text in r#"([\[\]{},: ]|"a"|"\\[nu]"|-|0|1|\.5|e1|true|null|nul|"\\u00e9"|\n){0,12}"#) {
        let model = serde_json::from_str::<&serde_json::value::RawValue>(&text).is_ok();
        prop_assert_eq!(Json::parse(text.as_bytes()).is_ok(), model, "{}", text);
    }

    /// Eight bytes at a time as well as one by one, wherever the first stop is.
    #[test]
    fn a_plain_run_ends_at_the_first_stop(bytes in "[a-c \u{7f}\u{80}\u{a0}!#\\[\\]\u{10ffff}]{0,20}[\"\\\\\u{0}\u{1f}\n]?[!-~\u{0}]{0,20}") {
        let stops = |byte: u8| byte == b'"' || byte == b'\\' || byte < 0x20;
        let model = bytes.bytes().position(stops).unwrap_or(bytes.len());
        prop_assert_eq!(plain_run(bytes.as_bytes()), model);
    }

    #[test]
    fn any_string_that_serde_json_writes_is_read_back(content: String) {
        let text = serde_json::to_string(&content).unwrap();
        let read = Json::parse(text.as_bytes()).unwrap().string();
        prop_assert_eq!(read.as_deref(), Some(content.as_str()));
    }

    #[test]
    fn no_bytes_make_it_panic(raw: Vec<u8>) {
        if let Ok(json) = Json::parse(&raw) {
            prop_assert!(serde_json::from_slice::<serde_json::Value>(json.as_bytes()).is_ok() || raw.contains(&b'\\'));
        }
    }
}
