use super::*;

type Fields<'a> = &'a [(&'a str, &'a str)];

fn h(pairs: &[(&str, &str)]) -> Headers {
    pairs.iter().fold(Headers::new(), |headers, (name, value)| {
        headers.with(name, value)
    })
}

fn now() -> Timestamp {
    "2026-11-30T12:00:00Z".parse().unwrap()
}

#[test]
fn validators_are_kept_as_they_came() {
    let table: &[(Fields<'_>, Option<&str>)] = &[
        (&[("ETag", "\"a\"")], Some("\"a\"")),
        (&[("etag", "W/\"a\"")], Some("W/\"a\"")),
        (&[("ETAG", "unquoted")], Some("unquoted")),
        (&[("etag", "  ")], None),
        (&[("etag", "\"a\""), ("etag", "\"b\"")], None),
        (&[("etag", "\"a\""), ("etag", "\"a\"")], Some("\"a\"")),
        (&[("etag", "\"\"")], Some("\"\"")),
    ];
    for (headers, expected) in table {
        assert_eq!(
            Validators::of(&h(headers)).etag.as_deref(),
            expected.map(str::as_bytes),
            "{headers:?}"
        );
    }
}

#[test]
fn a_304_without_an_etag_removes_none() {
    let ours = Validators::of(&h(&[("etag", "\"a\""), ("last-modified", "x")]));
    let after = ours.refreshed_by(&h(&[("last-modified", "y")]));
    assert_eq!(
        (after.etag.as_deref(), after.last_modified.as_deref()),
        (Some(&b"\"a\""[..]), Some(&b"y"[..]))
    );
    assert_eq!(
        ours.refreshed_by(&h(&[("etag", "")])),
        ours,
        "a blank ETag removes none either"
    );
}

#[test]
fn a_304_is_about_our_version_only() {
    let ours = Validators::of(&h(&[("etag", "\"a-gzip\"")]));
    for (theirs, same) in [
        ("\"a\"", true),
        ("W/\"a\"", true),
        ("\"a-gzip\"", true),
        ("\"b\"", false),
        ("", true),
    ] {
        assert_eq!(ours.selected_by(&h(&[("etag", theirs)])), same, "{theirs}");
    }
}

#[test]
fn freshness_is_what_the_answer_says_and_nothing_else() {
    let date = ("date", "Mon, 30 Nov 2026 12:00:00 GMT");
    let table: &[(&[(&str, &str)], u64)] = &[
        (&[], 0),
        (&[("last-modified", "Mon, 30 Nov 2020 12:00:00 GMT")], 0),
        (&[("cache-control", "max-age=60")], 60),
        (&[("cache-control", "Max-Age=\"60\"")], 60),
        (&[("cache-control", "max-age=60"), ("age", "20")], 40),
        (
            &[
                ("cache-control", "max-age=60"),
                ("age", "99999999999999999999999"),
            ],
            0,
        ),
        (&[("cache-control", "max-age=60"), ("age", "-5")], 60),
        (
            &[("cache-control", "max-age=99999999999999999999999")],
            1 << 31,
        ),
        (&[("cache-control", "max-age=-1")], 0),
        (&[("cache-control", "max-age=60, max-age=10")], 10),
        (
            &[
                ("cache-control", "max-age=60"),
                ("cache-control", "no-cache"),
            ],
            0,
        ),
        (&[("cache-control", "No-Store, max-age=60")], 0),
        (
            &[("cache-control", "no-cache=\"set-cookie\", max-age=60")],
            60,
        ),
        (&[("cache-control", "s-maxage=60")], 0),
        (&[("cache-control", "max-age=60"), ("vary", "Accept, *")], 0),
        (&[date, ("expires", "Mon, 30 Nov 2026 12:05:00 GMT")], 300),
        (&[date, ("expires", "Mon, 30 Nov 2026 11:05:00 GMT")], 0),
        (&[date, ("expires", "0")], 0),
        (
            &[
                date,
                ("expires", "Mon, 30 Nov 2026 12:05:00 GMT"),
                ("cache-control", "max-age=1"),
            ],
            1,
        ),
    ];
    for (headers, seconds) in table {
        assert_eq!(
            fresh_for(&h(headers), now()),
            Duration::from_secs(*seconds),
            "{headers:?}"
        );
    }
}

#[test]
fn retry_after_in_all_forms() {
    let table: &[(Fields<'_>, Option<u64>)] = &[
        (&[], None),
        (&[("retry-after", "120")], Some(120)),
        (&[("retry-after", "1.5")], Some(2)),
        (&[("retry-after", "0")], Some(0)),
        (&[("retry-after", "-1")], None),
        (&[("retry-after", "soon")], None),
        (&[("retry-after", "1.x")], None),
        (&[("retry-after", "999999999999999999999")], Some(86_400)),
        (
            &[("retry-after", "Mon, 30 Nov 2026 12:01:00 GMT")],
            Some(60),
        ),
        (&[("retry-after", "Mon, 30 Nov 2026 11:00:00 GMT")], Some(0)),
        // Our clock may be wrong; the answer's own Date is what the date was reckoned from.
        (
            &[
                ("retry-after", "Tue, 01 Dec 2037 00:00:30 GMT"),
                ("date", "Tue, 01 Dec 2037 00:00:00 GMT"),
            ],
            Some(30),
        ),
    ];
    for (headers, seconds) in table {
        assert_eq!(
            retry_after(&h(headers), now()),
            seconds.map(Duration::from_secs),
            "{headers:?}"
        );
    }
}

#[test]
fn a_variant_is_selected_by_the_fields_that_vary_names() {
    let sent = |language: &str, token: &str| {
        vec![
            (
                "Accept-Language".to_owned(),
                Sent::Plain(language.to_owned()),
            ),
            (
                "Authorization".to_owned(),
                if token.is_empty() {
                    Sent::Plain(String::new())
                } else {
                    Sent::Secret
                },
            ),
        ]
    };
    let stored = Variant::of(
        &h(&[("vary", "accept-language, Authorization")]),
        &sent("de, en", "one"),
    );
    assert!(
        stored.matches(&sent("de,en", "two")),
        "a rotated token is the scope's matter"
    );
    assert!(!stored.matches(&sent("fr", "one")));
    assert!(Variant::of(&Headers::new(), &sent("de", "")).matches(&sent("fr", "")));
}
