use super::*;

#[test]
fn what_is_kept() {
    let lives = ("cache-control", "max-age=9");
    type Row<'a> = (u16, &'a [(&'a str, &'a str)], Storable);
    let table: &[Row<'_>] = &[
        (200, &[lives], Storable::Yes),
        (200, &[("etag", "\"1\"")], Storable::Yes),
        (
            200,
            &[("cache-control", "private, max-age=9")],
            Storable::Yes,
        ),
        (404, &[lives], Storable::Yes),
        (404, &[("etag", "\"1\"")], Storable::No(Why::Useless)),
        (301, &[lives], Storable::Yes),
        (200, &[], Storable::No(Why::Useless)),
        (
            200,
            &[("cache-control", "max-age=0"), ("expires", "x")],
            Storable::No(Why::Useless),
        ),
        (
            200,
            &[lives, ("cache-control", "NO-Store")],
            Storable::No(Why::NoStore),
        ),
        (
            200,
            &[("cache-control", "must-understand, no-store, max-age=9")],
            Storable::No(Why::NoStore),
        ),
        (206, &[lives], Storable::No(Why::NotWhole)),
        (304, &[lives], Storable::No(Why::NotWhole)),
        (
            299,
            &[lives, ("cache-control", "must-understand")],
            Storable::No(Why::NotUnderstood),
        ),
        (299, &[lives], Storable::Yes),
        (999, &[lives], Storable::No(Why::NotUnderstood)),
        (
            200,
            &[lives, ("vary", "accept, *")],
            Storable::No(Why::VaryStar),
        ),
    ];
    for (status, fields, expected) in table {
        let add = |headers: Headers, (name, value): &(&str, &str)| headers.with(name, value);
        let headers = fields.iter().fold(Headers::new(), add);
        let found = storable(*status, &headers, &Wanted::default());
        assert_eq!(found, *expected, "{status} {fields:?}");
    }
    let wanted = Wanted {
        no_store: true,
        ..Wanted::default()
    };
    let headers = Headers::new().with("etag", "\"1\"");
    assert_eq!(
        storable(200, &headers, &wanted),
        Storable::No(Why::Unwanted)
    );
}

#[test]
fn neither_cookies_nor_fields_of_the_connection_are_kept() {
    let headers = Headers::new()
        .with("Set-Cookie", "session=1")
        .with("Connection", "close, X-Hop")
        .with("X-Hop", "1")
        .with("Transfer-Encoding", "chunked")
        .with("ETag", "\"1\"");
    assert_eq!(kept(&headers), Headers::new().with("etag", "\"1\""));
}
