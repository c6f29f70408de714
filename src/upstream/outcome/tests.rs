use super::*;

type Fields<'a> = &'a [(&'a str, &'a str)];

fn asked(validators: Option<&Validators>) -> Asked<'_> {
    Asked {
        validators,
        rest: None,
        expect: Expect::Json,
        allow_empty: false,
        renewable: false,
        may_ask_again: true,
        now: "2026-11-30T12:00:00Z".parse().unwrap(),
    }
}

fn h(pairs: &[(&str, &str)]) -> Headers {
    pairs.iter().fold(Headers::new(), |headers, (name, value)| {
        headers.with(name, value)
    })
}

/// The table of the design, row by row: status, headers, conditional?, what it means.
#[test]
fn every_row_of_the_table() {
    let json = &[("content-type", "application/json")][..];
    let held = Validators {
        etag: Some(b"\"a\"".to_vec()),
        last_modified: None,
    };
    let table: &[(u16, Fields<'_>, bool, &str)] = &[
        (200, json, true, "body"),
        (
            200,
            &[("content-type", "application/vnd.api+json; charset=utf-8")],
            false,
            "body",
        ),
        (
            200,
            &[("content-type", "application/octet-stream")],
            false,
            "body",
        ),
        (200, &[], false, "body"),
        (200, &[("content-type", "text/html")], true, "not-ours"),
        (
            200,
            &[("content-type", "TEXT/HTML; charset=x")],
            true,
            "not-ours",
        ),
        (200, &[("content-type", "image/png")], true, "not-ours"),
        (200, &[("content-encoding", "gzip")], true, "body"),
        (
            200,
            &[("content-encoding", "X-GZip, identity")],
            true,
            "body",
        ),
        (200, &[("content-encoding", "deflate")], true, "not-ours"),
        (200, &[("content-encoding", "br")], true, "not-ours"),
        (200, &[("content-encoding", "gzip, gzip")], true, "not-ours"),
        (200, &[("content-encoding", "identity")], true, "body"),
        (200, &[("content-length", "0")], true, "not-ours"),
        (200, &[("content-range", "bytes 0-4/5")], true, "not-ours"),
        (204, &[], true, "not-ours"),
        (205, &[], true, "not-ours"),
        (206, &[("content-range", "bytes 0-4/5")], true, "not-ours"),
        (304, &[], true, "not-modified"),
        (304, &[("etag", "W/\"a\"")], true, "not-modified"),
        (304, &[("etag", "\"b\"")], true, "again"),
        (304, &[], false, "again"),
        (301, &[("location", "/x")], false, "redirect"),
        (302, &[("location", "/x")], false, "redirect"),
        (303, &[("location", "/x")], false, "redirect"),
        (307, &[("location", "/x")], false, "redirect"),
        (308, &[("location", "/x")], false, "redirect"),
        (302, &[], false, "failing"),
        (302, &[("location", "")], false, "failing"),
        (300, &[("location", "/x")], false, "not-ours"),
        (305, &[("location", "/x")], false, "not-ours"),
        (400, &[], true, "again"),
        (400, &[], false, "refused"),
        (412, &[], true, "again"),
        (401, &[], true, "denied"),
        (403, &[], true, "denied"),
        (403, &[("x-ratelimit-remaining", "0")], true, "throttled"),
        (403, &[("retry-after", "60")], true, "throttled"),
        (404, &[], true, "gone"),
        (410, &[], true, "gone"),
        (408, &[], true, "throttled"),
        (425, &[], true, "throttled"),
        (429, &[("retry-after", "7")], true, "throttled"),
        (503, &[], true, "throttled"),
        (405, &[], true, "refused"),
        (418, &[], true, "refused"),
        (451, &[], true, "refused"),
        (500, &[], true, "failing"),
        (502, &[], true, "failing"),
        (504, &[], true, "failing"),
        (511, &[], true, "not-ours"),
        (600, &[], true, "not-ours"),
        (99, &[], true, "not-ours"),
    ];
    for (status, headers, conditional, expected) in table {
        let verdict = classify(*status, &h(headers), &asked(conditional.then_some(&held)));
        assert_eq!(
            word(&verdict),
            *expected,
            "{status} {headers:?} conditional: {conditional}"
        );
    }
}

fn word(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Body => "body",
        Verdict::Empty => "empty",
        Verdict::NotModified => "not-modified",
        Verdict::Slice(_) => "slice",
        Verdict::Unsatisfied(_) => "unsatisfied",
        Verdict::Unconditionally(_) => "again",
        Verdict::Renew => "renew",
        Verdict::Redirect { .. } => "redirect",
        Verdict::Failed(failure) => failure.kind.word(),
    }
}

/// What an answer means to who asked for the rest of five bytes of ten; and when it was asked for as a whole after that.
#[test]
fn every_row_of_a_request_for_the_rest() {
    let url = url::Url::parse("https://a.example/f").unwrap();
    let rest = Rest {
        from: 5,
        validator: b"\"a\"",
        url: &url,
        total: Some(10),
        coded: false,
    };
    let slice = &[("content-range", "bytes 5-9/10")][..];
    let elsewhere = &[("content-range", "bytes 0-9/10")][..];
    let table: &[(u16, Fields<'_>, &str, &str)] = &[
        (206, slice, "slice", "not-ours"),
        (206, elsewhere, "again", "not-ours"),
        (206, &[], "again", "not-ours"),
        (200, &[], "body", "body"),
        (200, slice, "again", "not-ours"),
        (200, elsewhere, "again", "not-ours"),
        (
            416,
            &[("content-range", "bytes */5")],
            "unsatisfied",
            "refused",
        ),
        (416, &[], "unsatisfied", "refused"),
        (304, &[], "again", "failing"),
        (412, &[], "again", "refused"),
        (400, &[], "again", "refused"),
        (302, &[("location", "/b")], "redirect", "redirect"),
        (404, &[], "gone", "gone"),
        (503, &[], "throttled", "throttled"),
        (500, &[], "failing", "failing"),
    ];
    for (status, headers, first, then) in table {
        let asked = Asked {
            expect: Expect::File,
            rest: Some(&rest),
            ..asked(None)
        };
        let whole = Asked {
            rest: None,
            may_ask_again: false,
            ..asked
        };
        let found = [&asked, &whole].map(|asked| word(&classify(*status, &h(headers), asked)));
        assert_eq!(found, [*first, *then], "{status} {headers:?}");
    }
}

#[test]
fn nothing_is_asked_a_third_time() {
    let held = Validators {
        etag: Some(b"\"a\"".to_vec()),
        last_modified: None,
    };
    for (status, headers) in [(400, h(&[])), (412, h(&[])), (304, h(&[("etag", "\"b\"")]))] {
        let last = Asked {
            may_ask_again: false,
            ..asked(Some(&held))
        };
        assert!(
            matches!(classify(status, &headers, &last), Verdict::Failed(_)),
            "{status}"
        );
    }
    let last = Asked {
        may_ask_again: false,
        ..asked(None)
    };
    assert!(matches!(classify(304, &h(&[]), &last), Verdict::Failed(_)));
}

#[test]
fn every_status_is_classified_and_none_of_an_error_means_unchanged() {
    let held = Validators {
        etag: Some(b"\"a\"".to_vec()),
        last_modified: None,
    };
    for status in 0..=999u16 {
        let verdict = classify(status, &h(&[]), &asked(Some(&held)));
        assert_eq!(verdict == Verdict::NotModified, status == 304, "{status}");
        assert_eq!(
            verdict == Verdict::Body,
            status == 200 || status == 203,
            "{status}"
        );
    }
}

#[test]
fn throttling_keeps_what_the_upstream_asked_for() {
    let wait = |headers: &[(&str, &str)]| match classify(429, &h(headers), &asked(None)) {
        Verdict::Failed(failure) => failure.retry_after.map(|wait| wait.as_secs()),
        other => panic!("{other:?}"),
    };
    assert_eq!(wait(&[("retry-after", "7")]), Some(7));
    assert_eq!(wait(&[("x-ratelimit-reset", "30")]), Some(30));
    let date = ("date", "Mon, 30 Nov 2026 12:00:00 GMT");
    assert_eq!(wait(&[date, ("x-ratelimit-reset", "1796040060")]), Some(60));
    assert_eq!(wait(&[]), None);
}
