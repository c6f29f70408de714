use std::io;

use super::*;

mod errors;
mod model;

/// Gives a body in pieces of the given lengths, over and over, and then ends, or fails.
struct Pieces<'a> {
    body: &'a [u8],
    lengths: Vec<usize>,
    turn: usize,
    fails: bool,
}

impl<'a> Pieces<'a> {
    fn new(body: &'a [u8], lengths: &[usize]) -> Self {
        Self {
            body,
            lengths: lengths.to_vec(),
            turn: 0,
            fails: false,
        }
    }
}

impl Read for Pieces<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.body.is_empty() && self.fails {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "stalled"));
        }
        let piece = self.lengths[self.turn % self.lengths.len()];
        self.turn += 1;
        let long = piece.min(self.body.len()).min(buffer.len());
        let (now, later) = self.body.split_at(long);
        buffer[..long].copy_from_slice(now);
        self.body = later;
        Ok(long)
    }
}

/// What a body gave: its records, the wanted values, and how it ended.
#[derive(Debug)]
struct Outcome {
    records: Vec<String>,
    found: Vec<Option<String>>,
    end: Result<(), SelectError>,
}

impl Outcome {
    fn message(&self) -> String {
        match &self.end {
            Ok(()) => "no error".to_owned(),
            Err(error) => error.to_string(),
        }
    }
}

const LIMIT: usize = 1000;

fn read_pieces(
    body: &[u8],
    lengths: &[usize],
    format: Format,
    records: &str,
    wanted: &[&str],
) -> Outcome {
    let pointer = |text: &&str| Pointer::parse(text).unwrap();
    let records = pointer(&records);
    let wanted: Vec<_> = wanted.iter().map(pointer).collect();
    let wanted: Vec<_> = wanted.iter().collect();
    let layout = Layout {
        format,
        records: &records,
        wanted: &wanted,
        max_record: LIMIT,
    };
    let mut selector = Selector::new(Pieces::new(body, lengths), layout);
    let mut records = Vec::new();
    let end = loop {
        match selector.next() {
            Ok(Some(record)) => {
                records.push(String::from_utf8_lossy(record.raw).into_owned());
                assert_eq!(record.number, records.len() as u64);
                assert_eq!(selector.count(), records.len() as u64);
            }
            Ok(None) => {
                assert!(matches!(selector.next(), Ok(None)));
                break Ok(());
            }
            Err(error) => {
                assert!(matches!(selector.next(), Err(SelectError::Spent)));
                break Err(error);
            }
        }
    };
    let found = (0..wanted.len())
        .map(|nth| selector.found(nth).map(|json| json.to_string()))
        .collect();
    Outcome {
        records,
        found,
        end,
    }
}

fn read(body: &str, records: &str, wanted: &[&str]) -> Outcome {
    let whole = read_pieces(
        body.as_bytes(),
        &[usize::MAX],
        Format::Json,
        records,
        wanted,
    );
    let bytes = read_pieces(body.as_bytes(), &[1], Format::Json, records, wanted);
    assert_eq!(
        format!("{whole:?}"),
        format!("{bytes:?}"),
        "read byte by byte"
    );
    whole
}

fn lines(body: &str) -> Outcome {
    let whole = read_pieces(body.as_bytes(), &[usize::MAX], Format::Ndjson, "", &["/a"]);
    let bytes = read_pieces(body.as_bytes(), &[1], Format::Ndjson, "", &["/a"]);
    assert_eq!(
        format!("{whole:?}"),
        format!("{bytes:?}"),
        "read byte by byte"
    );
    whole
}

fn error(body: &str, records: &str) -> String {
    read(body, records, &[]).message()
}

#[test]
fn records_come_as_they_are_written() {
    let table: &[(&str, &str, &[&str])] = &[
        ("[]", "", &[]),
        (" [ ] ", "", &[]),
        ("[1]", "", &["1"]),
        ("\u{feff}[1]", "", &["1"]),
        (
            "[ {\"a\" : [1, 2]} ,\n\"x\\\"]\" , -1.5e3,null\t]\r\n",
            "",
            &["{\"a\" : [1, 2]}", "\"x\\\"]\"", "-1.5e3", "null"],
        ),
        ("[[],[[]],{}]", "", &["[]", "[[]]", "{}"]),
        (
            r#"{"items":[{"id":1},{"id":2}]}"#,
            "/items",
            &[r#"{"id":1}"#, r#"{"id":2}"#],
        ),
        (r#"{"a":{"x":[9],"b":[1]},"b":[2]}"#, "/a/b", &["1"]),
        (r#"{"it\u0065ms":[1]}"#, "/items", &["1"]),
        (r#"{"a/b":{"~":[1]}}"#, "/a~1b/~0", &["1"]),
        (r#"{"":[1]}"#, "/", &["1"]),
        (r#"[{"no":[1]},[2],{"yes":[3]}]"#, "/2/yes", &["3"]),
        (
            r#"{"s":"{\"items\":[1]}","items":[2],"t":"]}"}"#,
            "/items",
            &["2"],
        ),
        (r#"{"items":[],"more":[1]}"#, "/items", &[]),
        (
            r#"[{"a":"}]","b":"\\"},{"c":"\\\""}]"#,
            "",
            &[r#"{"a":"}]","b":"\\"}"#, r#"{"c":"\\\""}"#],
        ),
    ];
    for (body, pointer, records) in table {
        let outcome = read(body, pointer, &[]);
        assert_eq!(outcome.records, *records, "{body}");
        assert_eq!(outcome.message(), "no error", "{body}");
    }
}

#[test]
fn a_bad_record_does_not_hide_the_next() {
    let deep = format!("{}{}", "[".repeat(300), "]".repeat(300));
    let bodies: [(&[u8], &str); 9] = [
        (b"NaN", "NaN"),
        (b"{\"a\":NaN,}", "{\"a\":NaN,}"),
        (b"\"\xff\xfe\"", "\"\u{fffd}\u{fffd}\""),
        (b"{\"\xc3\":1}", "{\"\u{fffd}\":1}"),
        (b"\"\x01\n\"", "\"\u{1}\n\""),
        (b"\"\\x\"", "\"\\x\""),
        (b"{1 2 : , }", "{1 2 : , }"),
        (b"tru", "tru"),
        (deep.as_bytes(), &deep),
    ];
    for (bad, shown) in bodies {
        let body = [b"{\"items\":[{\"id\":1},", bad, b", {\"id\":2}]}"].concat();
        for lengths in [&[usize::MAX][..], &[1], &[2, 3]] {
            let outcome = read_pieces(&body, lengths, Format::Json, "/items", &[]);
            assert_eq!(outcome.records, ["{\"id\":1}", shown, "{\"id\":2}"]);
            assert_eq!(outcome.message(), "no error");
        }
        assert!(Json::parse(bad).is_err());
    }
}

#[test]
fn wanted_values_are_found_before_and_behind_the_records() {
    let body = r#"{"next":"/p\u0032","meta":{"total":1.50,"links":[{"u":1},{"u":[2]}]},"data":{"items":[{"next":0}],"n":null},"more":false}"#;
    let wanted = [
        "/next",
        "/meta/total",
        "/meta/links/1/u/0",
        "/meta/links/1",
        "/data/n",
        "/more",
        "/meta",
        "/none",
        "/meta/none/x",
        "/more/x",
    ];
    let outcome = read(body, "/data/items", &wanted);
    assert_eq!(outcome.message(), "no error");
    let found: Vec<_> = outcome.found.iter().map(Option::as_deref).collect();
    let expected = [
        Some(r#""/p\u0032""#),
        Some("1.50"),
        Some("2"),
        Some(r#"{"u":[2]}"#),
        Some("null"),
        Some("false"),
        Some(r#"{"total":1.50,"links":[{"u":1},{"u":[2]}]}"#),
        None,
        None,
        None,
    ];
    assert_eq!(found, expected);
}

#[test]
fn wanted_values_around_or_among_the_records_are_not_found() {
    let outcome = read(
        r#"{"a":{"b":[{"c":1}]}}"#,
        "/a/b",
        &["", "/a", "/a/b", "/a/b/0", "/a/b/0/c", "/a/b/-"],
    );
    assert_eq!(outcome.message(), "no error");
    assert!(outcome.found.iter().all(Option::is_none));
}

#[test]
fn the_last_of_two_wanted_members_counts() {
    let table = [
        (r#"{"n":1,"i":[],"n":2}"#, "/n", Some("2")),
        (r#"{"m":{"n":1},"i":[],"m":{}}"#, "/m/n", None),
        (r#"{"m":{"n":1},"i":[],"m":5}"#, "/m/n", None),
        (r#"{"m":{"n":1},"i":[],"m":{"n":3}}"#, "/m/n", Some("3")),
        (r#"{"m":{"n":1,"n":2},"i":[]}"#, "/m/n", Some("2")),
    ];
    for (body, wanted, value) in table {
        let outcome = read(body, "/i", &[wanted]);
        assert_eq!(outcome.found[0].as_deref(), value, "{body}");
        // The same if the pointer's value lies inside one that is kept whole.
        let outcome = read(body, "/i", &[wanted, "/m"]);
        assert_eq!(outcome.found[0].as_deref(), value, "{body}");
    }
}

#[test]
fn a_reader_s_error_comes_through() {
    for body in [&b""[..], b"[", b"[1,", b"[1", b"[1]"] {
        let root = Pointer::root();
        let layout = Layout {
            format: Format::Json,
            records: &root,
            wanted: &[],
            max_record: LIMIT,
        };
        let mut reader = Pieces::new(body, &[1]);
        reader.fails = true;
        let mut selector = Selector::new(reader, layout);
        let error = loop {
            match selector.next() {
                Ok(Some(_)) => {}
                Ok(None) => panic!("a silent end"),
                Err(error) => break error,
            }
        };
        match error {
            SelectError::Io(error) => assert_eq!(error.kind(), io::ErrorKind::TimedOut),
            other => panic!("{other}"),
        }
    }
}

#[test]
fn lines_are_records() {
    let table: &[(&str, &[&str])] = &[
        ("1\n2\n", &["1", "2"]),
        ("1\n2", &["1", "2"]),
        ("\n\n {\"a\":1} \r\n\t\n2\r\n\r\n", &["{\"a\":1}", "2"]),
        ("\u{feff}1\n", &["1"]),
        ("{\"a\":\n}\n", &["{\"a\":", "}"]),
        ("NaN\n\u{feff}\n1\n", &["NaN", "\u{feff}", "1"]),
    ];
    for (body, records) in table {
        let outcome = lines(body);
        assert_eq!(outcome.records, *records, "{body}");
        assert_eq!(outcome.message(), "no error");
        assert_eq!(outcome.found, [None]);
    }
    assert_eq!(lines("\n \n").message(), "the body is empty");
    assert_eq!(
        lines("<html>\n").message(),
        "the body is not JSON: it starts with `<`, as HTML does"
    );
}

#[test]
fn a_last_line_without_end_is_told() {
    for (body, unterminated) in [
        ("1\n2", true),
        ("1\n2\n", false),
        ("1\n2 ", true),
        ("1\n2\n ", false),
        ("2", true),
    ] {
        let root = Pointer::root();
        let layout = Layout {
            format: Format::Ndjson,
            records: &root,
            wanted: &[],
            max_record: LIMIT,
        };
        let mut selector = Selector::new(body.as_bytes(), layout);
        let mut last = false;
        while let Some(record) = selector.next().unwrap() {
            assert!(!last);
            last = record.unterminated;
        }
        assert_eq!(last, unterminated, "{body:?}");
        assert_eq!(selector.last_line_unterminated(), unterminated, "{body:?}");
    }
}

#[test]
fn no_cut_is_a_silent_end() {
    let body = r#"{"a":[true,{"x":"\u00e9é"}],"next":"p2","data":{"items":[{"id":1,"s":"a]\\"},-12.5e1,[[]],"t",true]},"n":12}"#;
    let end = body.len();
    for cut in 0..end {
        let outcome = read_pieces(
            &body.as_bytes()[..cut],
            &[7, 1],
            Format::Json,
            "/data/items",
            &["/next", "/n"],
        );
        match outcome.end {
            Err(SelectError::Truncated { length }) => assert_eq!(length, cut as u64),
            Err(SelectError::Empty) => assert_eq!(cut, 0),
            other => panic!(
                "{}: {other:?}",
                String::from_utf8_lossy(&body.as_bytes()[..cut])
            ),
        }
        // No part of a record is ever taken for one.
        let whole = [
            "{\"id\":1,\"s\":\"a]\\\\\"}",
            "-12.5e1",
            "[[]]",
            "\"t\"",
            "true",
        ];
        assert_eq!(outcome.records, whole[..outcome.records.len()]);
    }
    assert_eq!(error(body, "/data/items"), "no error");
}
