use proptest::prelude::*;

use super::*;

type Fields<'a> = &'a [(&'a str, &'a str)];

const ETAG: &[u8] = b"\"v1\"";
const OLD: &str = "Mon, 01 Jan 2024 00:00:00 GMT";

fn h(pairs: &[(&str, &str)]) -> Headers {
    pairs.iter().fold(Headers::new(), |headers, (name, value)| {
        headers.with(name, value)
    })
}

#[test]
fn only_a_strong_validator_is_one() {
    let date = ("date", "Mon, 01 Jan 2024 00:01:00 GMT");
    let soon = ("date", "Mon, 01 Jan 2024 00:00:59 GMT");
    let table: &[(Fields<'_>, Option<&str>)] = &[
        (&[("etag", "\"a\"")], Some("\"a\"")),
        (&[("etag", "\"a-gzip\"")], Some("\"a-gzip\"")),
        (&[("etag", "\"\"")], Some("\"\"")),
        (&[("etag", "W/\"a\"")], None),
        (&[("etag", "w/\"a\"")], None),
        (&[("etag", "a")], None),
        (&[("etag", "\"a")], None),
        (&[("etag", "\"")], None),
        (&[("etag", "\"a\", \"b\"")], None),
        (&[("etag", "")], None),
        (&[("etag", "\"a\""), ("etag", "\"b\"")], None),
        (&[("last-modified", OLD), date], Some(OLD)),
        (&[("last-modified", OLD), soon], None),
        (&[("last-modified", OLD)], None),
        (
            &[("last-modified", "Tue, 01 Jan 2041 00:00:00 GMT"), date],
            None,
        ),
        (&[("last-modified", "yesterday"), date], None),
        // Whoever has an entity tag must not send a date (RFC 9110 13.1.5).
        (&[("etag", "W/\"a\""), ("last-modified", OLD), date], None),
        (
            &[("etag", "\"a\""), ("last-modified", OLD), date],
            Some("\"a\""),
        ),
        (&[("etag", ""), ("last-modified", OLD), date], Some(OLD)),
    ];
    for (fields, expected) in table {
        let found = strong(&h(fields));
        assert_eq!(found.as_deref(), expected.map(str::as_bytes), "{fields:?}");
    }
}

#[test]
fn content_range_as_it_may_be_written() {
    let table = [
        ("bytes 5-9/10", Some(ContentRange::Slice(5, 9, Some(10)))),
        ("Bytes 0-0/1", Some(ContentRange::Slice(0, 0, Some(1)))),
        ("bytes 5-9/*", Some(ContentRange::Slice(5, 9, None))),
        ("bytes */10", Some(ContentRange::Unsatisfied(10))),
        ("bytes */*", None),
        ("bytes 9-5/10", None),
        ("bytes 5-10/10", None),
        ("bytes 5-9", None),
        ("bytes=5-9/10", None),
        ("bytes +5-9/10", None),
        ("bytes 5-9/-1", None),
        ("bytes 5-9/99999999999999999999999", None),
        ("items 5-9/10", None),
        ("", None),
    ];
    for (text, expected) in table {
        assert_eq!(
            content_range(&h(&[("content-range", text)])),
            expected,
            "{text}"
        );
    }
    let twice = h(&[
        ("content-range", "bytes 5-9/10"),
        ("content-range", "bytes 5-9/10"),
    ]);
    assert_eq!(content_range(&twice), None);
}

fn rest(url: &Url) -> Rest<'_> {
    Rest {
        from: 5,
        validator: ETAG,
        url,
        total: Some(10),
        coded: false,
    }
}

#[test]
fn what_a_206_may_be() {
    let url = Url::parse("https://a.example/f").unwrap();
    let right = ("content-range", "bytes 5-9/10");
    let good = Ok(Slice {
        length: 5,
        total: 10,
    });
    let table: &[(Fields<'_>, Result<Slice, &str>)] = &[
        (&[right], good),
        (&[right, ("etag", "\"v1\""), ("content-length", "5")], good),
        (&[("content-range", "bytes 5-9/*")], good),
        (
            &[("content-range", "bytes 5-7/10")],
            Ok(Slice {
                length: 3,
                total: 10,
            }),
        ),
        (&[], Err("without")),
        (&[("content-range", "bytes 0-9/10")], Err("another byte")),
        (&[("content-range", "bytes 6-9/10")], Err("another byte")),
        (&[("content-range", "bytes 5-10/11")], Err("another length")),
        (&[("content-range", "bytes */10")], Err("without")),
        (&[right, right], Err("without")),
        (&[right, ("content-length", "4")], Err("whose length")),
        (&[right, ("content-length", "x")], Err("whose length")),
        (&[right, ("etag", "\"v2\"")], Err("another version")),
        (&[right, ("etag", "W/\"v1\"")], Err("another version")),
        (
            &[right, ("etag", "\"v1\""), ("etag", "\"v2\"")],
            Err("another version"),
        ),
        (&[right, ("content-encoding", "gzip")], Err("coding")),
        (&[right, ("content-encoding", "identity")], good),
        (
            &[right, ("content-type", "multipart/byteranges; boundary=x")],
            Err("several parts"),
        ),
        (
            &[("content-type", "Multipart/ByteRanges; boundary=x")],
            Err("several parts"),
        ),
    ];
    for (fields, expected) in table {
        let found = slice(&h(fields), &rest(&url));
        match (&found, expected) {
            (Ok(found), Ok(expected)) => assert_eq!(found, expected, "{fields:?}"),
            (Err(why), Err(part)) => assert!(why.contains(part), "{fields:?}: {why}"),
            _ => panic!("{fields:?}: {found:?}"),
        }
    }
    let unknown = Rest {
        total: None,
        ..rest(&url)
    };
    assert!(slice(&h(&[("content-range", "bytes 5-9/*")]), &unknown).is_err());
    assert_eq!(slice(&h(&[right]), &unknown), good);
    let dated = Rest {
        validator: OLD.as_bytes(),
        ..rest(&url)
    };
    assert_eq!(
        slice(
            &h(&[right, ("last-modified", OLD), ("etag", "\"x\"")]),
            &dated
        ),
        good
    );
    let other = "Mon, 01 Jan 2024 00:00:01 GMT";
    assert!(slice(&h(&[right, ("last-modified", other)]), &dated).is_err());
}

proptest! {
    /// Whatever a 206 says: what is taken starts at our byte, ends within the whole, and the whole has the length we know.
    #[test]
    fn what_is_taken_fits(
        from in 0u64..30, known in proptest::option::of(1u64..40), first in 0u64..40, last in 0u64..40,
        total in proptest::option::of(0u64..40), tag in proptest::option::of("(W/)?\"v[12]\""),
    ) {
        let url = Url::parse("https://a.example/f").unwrap();
        let stated = total.map_or("*".to_owned(), |total| total.to_string());
        let mut headers = Headers::new().with("Content-Range", &format!("bytes {first}-{last}/{stated}"));
        if let Some(tag) = &tag {
            headers = headers.with("ETag", tag);
        }
        let rest = Rest { from, total: known, ..rest(&url) };
        if let Ok(slice) = slice(&headers, &rest) {
            prop_assert_eq!(first, from);
            prop_assert_eq!(slice.length, last - first + 1);
            prop_assert!(from + slice.length <= slice.total);
            prop_assert!(known.is_none_or(|known| known == slice.total));
            prop_assert!(total.is_none_or(|total| total == slice.total));
            prop_assert!(tag.is_none_or(|tag| tag.as_bytes() == ETAG));
        }
    }

    #[test]
    fn no_field_is_too_odd(text in "\\PC{0,40}") {
        let headers = Headers::new().with("content-range", &text).with("etag", &text);
        let _ = content_range(&headers);
        let _ = strong(&headers);
    }
}
