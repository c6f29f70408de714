use super::*;

fn p(text: &str) -> Pointer {
    Pointer::parse(text).unwrap()
}

struct Page<'a> {
    asked: &'a str,
    headers: &'a [(&'a str, &'a str)],
    body: &'a str,
    records: u64,
    last: Option<&'a str>,
}

const PAGE: Page<'_> = Page {
    asked: "https://a.example/v1/parts?x=1",
    headers: &[],
    body: "{}",
    records: 2,
    last: None,
};

fn next(pages: &Pages, page: &Page<'_>) -> String {
    let headers = page
        .headers
        .iter()
        .fold(Headers::new(), |all, (name, value)| all.with(name, value));
    let body: serde_json::Value = serde_json::from_str(page.body).unwrap();
    let facts = PageFacts {
        asked: &Url::parse(page.asked).unwrap(),
        headers: &headers,
        found: &|pointer| body.pointer(&pointer.to_string()).map(ToString::to_string),
        records: page.records,
        last_key: page.last,
    };
    match pages.next(&facts) {
        Next::Page(url) => url.to_string(),
        Next::End(end) => format!("end: {end:?}"),
        Next::Broken(fault) => format!("broken: {fault}"),
    }
}

#[test]
fn link_headers_as_servers_write_them() {
    let table: &[(&[(&str, &str)], &str)] = &[
        (&[], "end: NoNext"),
        (
            &[("Link", "<https://a.example/v1/parts?page=2>; rel=\"next\"")],
            "https://a.example/v1/parts?page=2",
        ),
        (
            &[(
                "link",
                "</v1/parts?page=1>; rel=prev, </v1/parts?page=3>; rel=next",
            )],
            "https://a.example/v1/parts?page=3",
        ),
        (
            &[("link", "<?page=3>; REL=\"Prev Next\"")],
            "https://a.example/v1/parts?page=3",
        ),
        (
            &[
                ("link", "<?a=1,2>; rel=prev"),
                ("link", "<?a=3,4>;title=\"a, <b>; rel=x\";rel=next"),
            ],
            "https://a.example/v1/parts?a=3,4",
        ),
        (&[("link", "<?page=3>; rel=prev; rel=next")], "end: NoNext"),
        (
            &[("link", "<?page=3>; rel=next; anchor=\"/other\"")],
            "end: NoNext",
        ),
        (&[("link", "<?page=3>; rel=nextish")], "end: NoNext"),
        (&[("link", "<?page=3")], "end: NoNext"),
        (
            &[("link", "<https://b.example/x>; rel=next")],
            "broken: the next page would be on another origin (https://b.example), which is not followed",
        ),
        (
            &[("link", "<http://a.example/x>; rel=next")],
            "https://a.example/x",
        ),
        (
            &[("link", "<http://a.example:8080/x>; rel=next")],
            "broken: the next page would be on another origin (http://a.example:8080), which is not followed",
        ),
        (
            &[("link", "<https://u:p@a.example/x>; rel=next")],
            "broken: the next page would be on another origin (https://a.example), which is not followed",
        ),
    ];
    for (headers, expected) in table {
        assert_eq!(
            next(&Pages::Link, &Page { headers, ..PAGE }),
            *expected,
            "{headers:?}"
        );
    }
}

#[test]
fn next_urls_and_tokens_in_the_body() {
    let url = Pages::Next {
        next: p("/links/next"),
        more: None,
    };
    for (body, expected) in [
        (
            r#"{"links":{"next":"/v1/parts?c=2"}}"#,
            "https://a.example/v1/parts?c=2",
        ),
        (
            r#"{"links":{"next":"?filter[x]=a|b c"}}"#,
            "https://a.example/v1/parts?filter[x]=a|b%20c",
        ),
        (r#"{"links":{"next":null}}"#, "end: NoNext"),
        (r#"{"links":{"next":""}}"#, "end: NoNext"),
        (r#"{"links":{"next":false}}"#, "end: NoNext"),
        (r#"{"links":{}}"#, "end: NoNext"),
        (
            r#"{"links":{"next":{"href":"x"}}}"#,
            "broken: the next page's token is neither text nor a number: {\"href\":\"x\"}",
        ),
        (
            r#"{"links":{"next":"https://"}}"#,
            "broken: what should be the next page's URL is none",
        ),
    ] {
        assert_eq!(next(&url, &Page { body, ..PAGE }), expected, "{body}");
    }
    let token = Pages::Token {
        token: p("/next"),
        param: "cursor".into(),
        more: Some(More {
            at: p("/more"),
            says_end: false,
        }),
    };
    for (body, expected) in [
        (
            r#"{"next":"a b&c=1"}"#,
            "https://a.example/v1/parts?x=1&cursor=a+b%26c%3D1",
        ),
        (
            r#"{"next":9007199254740993}"#,
            "https://a.example/v1/parts?x=1&cursor=9007199254740993",
        ),
        (r#"{"next":0}"#, "https://a.example/v1/parts?x=1&cursor=0"),
        (r#"{"next":"a","more":false}"#, "end: NoMore"),
        (
            r#"{"next":null,"more":true}"#,
            "broken: the upstream says that there is more, but not where",
        ),
        (r#"{"next":null}"#, "end: NoNext"),
    ] {
        assert_eq!(next(&token, &Page { body, ..PAGE }), expected, "{body}");
    }
    let asked = "https://a.example/v1/parts?cursor=a&x=1";
    assert_eq!(
        next(
            &token,
            &Page {
                asked,
                body: r#"{"next":"b"}"#,
                ..PAGE
            }
        ),
        "https://a.example/v1/parts?x=1&cursor=b"
    );
    // An empty page in the middle that names its next one is no end.
    assert_eq!(
        next(
            &token,
            &Page {
                records: 0,
                body: r#"{"next":"b"}"#,
                ..PAGE
            }
        ),
        "https://a.example/v1/parts?x=1&cursor=b"
    );
}

#[test]
fn tokens_and_urls_in_headers() {
    let token = Pages::TokenHeader {
        header: "X-Next".into(),
        param: "cursor".into(),
    };
    assert_eq!(
        next(
            &token,
            &Page {
                headers: &[("x-next", "q")],
                ..PAGE
            }
        ),
        "https://a.example/v1/parts?x=1&cursor=q"
    );
    assert_eq!(next(&token, &PAGE), "end: NoNext");
    let url = Pages::NextHeader("Next-Page".into());
    assert_eq!(
        next(
            &url,
            &Page {
                headers: &[("next-page", "/v1/parts?_token=9")],
                ..PAGE
            }
        ),
        "https://a.example/v1/parts?_token=9"
    );
    assert_eq!(
        next(
            &url,
            &Page {
                headers: &[("next-page", "")],
                ..PAGE
            }
        ),
        "end: NoNext"
    );
}

#[test]
fn an_array_of_links_as_servers_write_them() {
    let links = Pages::Links(p("/links"));
    let table = [
        ("{}", "end: NoNext"),
        (r#"{"links":null}"#, "end: NoNext"),
        (r#"{"links":[]}"#, "end: NoNext"),
        (r#"{"links":[{"rel":"self","href":"/a"}]}"#, "end: NoNext"),
        (
            r#"{"links":[{"rel":"prev","href":"/a"},{"rel":"next","href":"https://a.example/b?offset=2","type":"application/geo+json"}]}"#,
            "https://a.example/b?offset=2",
        ),
        // The page for people comes first.
        (
            r#"{"links":[{"rel":"next","href":"/html","type":"text/html"},{"rel":"next","href":"/json","type":"application/json"}]}"#,
            "https://a.example/json",
        ),
        (
            r#"{"links":[{"rel":"next","href":"/html","type":"text/html"}]}"#,
            "https://a.example/html",
        ),
        // FHIR's names.
        (
            r#"{"links":[{"relation":"next","url":"?page=2"}]}"#,
            "https://a.example/v1/parts?page=2",
        ),
        (r#"{"links":[{"rel":"next"}]}"#, "end: NoNext"),
        (r#"{"links":[{"rel":"next","href":""}]}"#, "end: NoNext"),
        (
            r#"{"links":{"next":"/a"}}"#,
            r#"broken: what should be an array of links is none: {"next":"/a"}"#,
        ),
        (
            r#"{"links":[{"rel":"next","href":"https://b.example/"}]}"#,
            "broken: the next page would be on another origin (https://b.example), which is not followed",
        ),
    ];
    for (body, expected) in table {
        assert_eq!(next(&links, &Page { body, ..PAGE }), expected, "{body}");
    }
}

#[test]
fn counted_pages_end_with_an_empty_one_not_with_a_short_one() {
    let size = PageSize {
        param: "per_page".into(),
        value: 100,
    };
    let pages = Pages::Page {
        param: "page".into(),
        first: 1,
        size: Some(size.clone()),
        more: None,
    };
    assert_eq!(
        pages
            .first(&Url::parse("https://a.example/p?x=1").unwrap())
            .as_str(),
        "https://a.example/p?x=1&page=1&per_page=100"
    );
    let asked = "https://a.example/p?x=1&page=1&per_page=100";
    assert_eq!(
        next(
            &pages,
            &Page {
                asked,
                records: 30,
                ..PAGE
            }
        ),
        "https://a.example/p?x=1&per_page=100&page=2"
    );
    assert_eq!(
        next(
            &pages,
            &Page {
                asked,
                records: 0,
                ..PAGE
            }
        ),
        "end: EmptyPage"
    );

    let offset = Pages::Offset {
        param: "offset".into(),
        size,
        more: Some(More {
            at: p("/more"),
            says_end: false,
        }),
    };
    let asked = "https://a.example/p?per_page=100&offset=60";
    // The server gave 30 where 100 were asked for: the offset goes by what came.
    assert_eq!(
        next(
            &offset,
            &Page {
                asked,
                records: 30,
                ..PAGE
            }
        ),
        "https://a.example/p?per_page=100&offset=90"
    );
    assert_eq!(
        next(
            &offset,
            &Page {
                asked,
                records: 30,
                body: r#"{"more":false}"#,
                ..PAGE
            }
        ),
        "end: NoMore"
    );
    assert_eq!(
        next(
            &offset,
            &Page {
                asked,
                records: 0,
                body: r#"{"more":true}"#,
                ..PAGE
            }
        ),
        "broken: the upstream says that there is more, but not where"
    );
}

#[test]
fn the_last_key_starts_the_next_page() {
    let pages = Pages::LastKey {
        key: p("/id"),
        param: "starting_after".into(),
        more: Some(More {
            at: p("/has_more"),
            says_end: false,
        }),
    };
    let more = r#"{"has_more":true}"#;
    assert_eq!(
        next(
            &pages,
            &Page {
                last: Some("\"ev_1\""),
                body: more,
                ..PAGE
            }
        ),
        "https://a.example/v1/parts?x=1&starting_after=ev_1"
    );
    assert_eq!(
        next(
            &pages,
            &Page {
                last: Some("7"),
                ..PAGE
            }
        ),
        "https://a.example/v1/parts?x=1&starting_after=7"
    );
    assert_eq!(
        next(
            &pages,
            &Page {
                last: Some("7"),
                body: r#"{"has_more":false}"#,
                ..PAGE
            }
        ),
        "end: NoMore"
    );
    assert_eq!(next(&pages, &Page { records: 0, ..PAGE }), "end: EmptyPage");
    assert_eq!(
        next(
            &pages,
            &Page {
                records: 0,
                body: more,
                ..PAGE
            }
        ),
        "broken: the upstream says that there is more, but not where"
    );
}

#[test]
fn a_count_behind_a_link_is_seen() {
    let table = [
        ("?page=1", "?page=2", 100, true),
        ("", "?per_page=100&page=2", 100, true),
        ("?per_page=100", "?per_page=100&page=2", 30, true),
        ("?offset=0", "?offset=100", 100, true),
        ("", "?startAt=50", 50, true),
        ("?offset=100", "?offset=130", 30, true),
        ("?after=100", "?after=181", 80, false),
        ("?start_time=0", "?start_time=1700000000", 1000, false),
        ("", "?cursor=2", 100, false),
        ("?cursor=abc", "?cursor=abd", 100, false),
        ("?page=2", "?page=2&x=1", 100, false),
        (
            "?since=9007199254740993",
            "?since=9007199254740993&t=a",
            1,
            false,
        ),
    ];
    for (page, next, records, expected) in table {
        let url = |query: &str| Url::parse(&format!("https://a.example/p{query}")).unwrap();
        assert_eq!(
            looks_counted(&url(page), &url(next), records),
            expected,
            "{page} {next}"
        );
    }
}
