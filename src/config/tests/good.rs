//! Files that are right, and what they come to.

use std::os::unix::fs::PermissionsExt;

use super::*;

fn minutes(count: u64) -> Duration {
    Duration::from_secs(60 * count)
}

#[test]
fn six_lines_are_a_working_config() {
    let config = config(include_str!("../../../examples/six-lines.toml"));
    assert_eq!(config.warnings, Vec::<String>::new());
    let upstream = &config.upstreams["quakes"];
    assert_eq!(upstream.base.as_str(), "https://earthquake.usgs.gov/");
    assert_eq!(
        (&upstream.auth, &upstream.proxy),
        (&Auth::None, &Proxy::Environment)
    );
    let source = &config.sources["quakes"];
    assert_eq!(source.upstream, "quakes");
    assert_eq!(
        source.url.as_str(),
        "https://earthquake.usgs.gov/earthquakes/feed/v1.0/summary/all_week.geojson"
    );
    assert_eq!(source.records, pointer("/features"));
    assert_eq!(source.key, [pointer("/id")]);
    assert_eq!(
        (source.every, source.stale_after),
        (minutes(5), minutes(15))
    );
    assert_eq!(source.jitter, Duration::from_secs(30));
    let columns = [("mag", "/properties/mag"), ("place", "/properties/place")];
    assert_eq!(
        source.columns,
        columns.map(|(name, place)| (name.to_owned(), pointer(place)))
    );
}

#[test]
fn defaults_are_those_that_the_types_promise() {
    let config = config("");
    assert_eq!(config.agent.state, Path::new("/var/lib/gleaner"));
    assert_eq!(
        config.agent.control,
        Path::new("/var/lib/gleaner/control.sock")
    );
    assert_eq!(config.agent.checkpoint, minutes(15));
    assert!(!config.agent.id.is_empty());
    assert_eq!(
        config.warnings,
        ["there is no [source.NAME]: nothing will be pulled"]
    );
    let source = source("");
    assert_eq!(
        (source.every, source.jitter, source.stale_after),
        (minutes(15), Duration::from_secs(90), minutes(45))
    );
    assert_eq!(
        (source.max_skip, source.recheck),
        (minutes(1440), minutes(43_200))
    );
    assert_eq!(
        (source.format, source.records),
        (Format::Json, Pointer::default())
    );
    assert_eq!((source.pull, source.pages), (Pull::Snapshot, Pages::Single));
    assert_eq!(
        (source.on_bad_record, source.max_loss),
        (OnBad::Fail, MaxLoss::Share(0.1))
    );
    assert_eq!(
        (
            source.deletes,
            source.schema_version,
            source.reconcile_every
        ),
        (Deletes::Remove, 0, None)
    );
    assert!(!source.allow_empty && !source.ignore_no_store);
    assert_eq!((source.deleted, source.updated), (None, None));
    let upstream = upstream("");
    assert_eq!(upstream.limits, Limits::default());
    assert_eq!(
        (
            upstream.roots,
            upstream.insecure_http,
            upstream.scope.as_str()
        ),
        (Roots::System, false, "")
    );
}

#[test]
fn systemd_says_where_state_and_socket_are() {
    let env = |name: &str| match name {
        "STATE_DIRECTORY" => Some(OsString::from("/var/lib/a:/var/lib/b")),
        "RUNTIME_DIRECTORY" => Some(OsString::from("/run/g")),
        _ => None,
    };
    let agent = parse("", Path::new("x.toml"), &env).unwrap().agent;
    assert_eq!(
        (agent.state.as_path(), agent.control.as_path()),
        (Path::new("/var/lib/a"), Path::new("/run/g/control.sock"))
    );
    let written = parse(
        "[agent]\nstate = \"here\"\n",
        Path::new("/etc/g/x.toml"),
        &env,
    )
    .unwrap()
    .agent;
    assert_eq!(written.state, Path::new("/etc/g/here"));
}

#[test]
fn every_form_of_pages() {
    let param = || "p".to_owned();
    let size = PageSize {
        param: "n".to_owned(),
        value: 100,
    };
    let flag = |at: &str, says_end| {
        Some(More {
            at: pointer(at),
            says_end,
        })
    };
    let more = || flag("/more", false);
    for (text, pages) in [
        ("\"single\"", Pages::Single),
        ("\"link\"", Pages::Link),
        (
            "{ next = \"/links/next\" }",
            Pages::Next {
                next: pointer("/links/next"),
                more: None,
            },
        ),
        (
            "{ next = \"/next_page\", end = \"/end_of_stream\" }",
            Pages::Next {
                next: pointer("/next_page"),
                more: flag("/end_of_stream", true),
            },
        ),
        ("{ links = \"/links\" }", Pages::Links(pointer("/links"))),
        (
            "{ next_header = \"Next-Page\" }",
            Pages::NextHeader("Next-Page".to_owned()),
        ),
        (
            "{ token = \"/t\", param = \"p\" }",
            Pages::Token {
                token: pointer("/t"),
                param: param(),
                more: None,
            },
        ),
        (
            "{ token = \"/t\", param = \"p\", more = \"/more\" }",
            Pages::Token {
                token: pointer("/t"),
                param: param(),
                more: more(),
            },
        ),
        (
            "{ token_header = \"X-Next\", param = \"p\" }",
            Pages::TokenHeader {
                header: "X-Next".to_owned(),
                param: param(),
            },
        ),
        (
            "{ page = \"p\" }",
            Pages::Page {
                param: param(),
                first: 1,
                size: None,
                more: None,
            },
        ),
        (
            "{ page = \"p\", first = 0, size = { param = \"n\", value = 100 }, more = \"/more\" }",
            Pages::Page {
                param: param(),
                first: 0,
                size: Some(size.clone()),
                more: more(),
            },
        ),
        (
            "{ offset = \"p\", size = { param = \"n\", value = 100 } }",
            Pages::Offset {
                param: param(),
                size,
                more: None,
            },
        ),
        (
            "{ last_key = \"/id\", param = \"p\", more = \"/more\" }",
            Pages::LastKey {
                key: pointer("/id"),
                param: param(),
                more: more(),
            },
        ),
    ] {
        assert_eq!(source(&format!("pages = {text}")).pages, pages);
    }
}

#[test]
fn every_form_of_pull() {
    let since = |name: &str, template: &str, format| TimeParam {
        param: Param {
            name: name.to_owned(),
            template: template.to_owned(),
        },
        format,
    };
    let short = source("pull = { window = { field = \"/u\", since = \"since\" } }");
    let window = Window {
        since: since("since", "{}", TimeFormat::Rfc3339),
        until: None,
        lateness: Duration::from_secs(6 * 3600),
        first: None,
        step: None,
    };
    assert_eq!(short.pull, Pull::Window(window));
    assert_eq!(short.updated.unwrap().field, pointer("/u"));
    assert_eq!(
        short.reconcile_every,
        Some(Duration::from_secs(30 * 86_400))
    );

    let long = source(
        "pull = { window = { field = \"/u\", format = \"epoch-ms\", since = { param = \"_since\", template = \"'{}'\" }, \
         until = \"_before\", lateness = \"1d\", first = \"365d\", step = \"7d\" } }\n\
         reconcile = { every = \"7d\", at = \"03:30\" }\nkeep_upstream = \"60d\"",
    );
    let day = Duration::from_secs(86_400);
    let window = Window {
        since: since("_since", "'{}'", TimeFormat::EpochMs),
        until: Some(since("_before", "{}", TimeFormat::EpochMs)),
        lateness: day,
        first: Some(365 * day),
        step: Some(7 * day),
    };
    assert_eq!(long.pull, Pull::Window(window));
    assert_eq!(
        (long.reconcile_every, long.reconcile_at, long.keep_upstream),
        (Some(7 * day), Some(TimeOfDay(210)), Some(60 * day))
    );

    for (text, from, first) in [
        (
            "header = \"ETag\"",
            CursorFrom::Header("ETag".to_owned()),
            None,
        ),
        (
            "pointer = \"/end_time\", first = \"0\"",
            CursorFrom::Pointer(pointer("/end_time")),
            Some("0".to_owned()),
        ),
        ("field = \"/seq\"", CursorFrom::Field(pointer("/seq")), None),
    ] {
        let param = Param {
            name: "after".to_owned(),
            template: "{}".to_owned(),
        };
        let cursor = Cursor { from, param, first };
        let text = format!("pull = {{ cursor = {{ {text}, param = \"after\" }} }}");
        assert_eq!(source(&text).pull, Pull::Cursor(cursor));
    }
    let never = source(
        "pull = { cursor = { field = \"/seq\", param = \"after\" } }\nreconcile = { every = \"never\" }",
    );
    assert_eq!(never.reconcile_every, None);

    let hooked = config("[source.s]\nkey = \"/id\"\npull = \"none\"\n");
    assert_eq!(hooked.sources["s"].pull, Pull::None);
    assert_eq!(parsed(&print(&hooked)), Ok(hooked.clone()));
}

#[test]
fn every_form_of_auth_and_of_a_secret() {
    let env = || Secret::Env("T".to_owned());
    for (text, auth) in [
        (
            "{ bearer = { credential = \"erp\" } }",
            Auth::Bearer(Secret::Credential("erp".to_owned())),
        ),
        (
            "{ bearer = { file = \"t\" } }",
            Auth::Bearer(Secret::File("/etc/gleaner/t".into())),
        ),
        (
            "{ bearer = { file = \"/t\" } }",
            Auth::Bearer(Secret::File("/t".into())),
        ),
        ("{ bearer = { env = \"T\" } }", Auth::Bearer(env())),
        (
            "{ basic = { user = \"gw\", password = { env = \"T\" } } }",
            Auth::Basic {
                user: "gw".to_owned(),
                password: env(),
            },
        ),
        (
            "{ header = { name = \"X-Api-Key\", value = { env = \"T\" } } }",
            Auth::Header {
                name: "X-Api-Key".to_owned(),
                value: env(),
            },
        ),
        (
            "{ oauth2 = { token_url = \"https://h.example/t\", client_id = \"c\", client_secret = { env = \"T\" }, scopes = [\"r\", \"w:x\"] } }",
            Auth::OAuth2 {
                token_url: url::Url::parse("https://h.example/t").unwrap(),
                client_id: "c".to_owned(),
                client_secret: env(),
                scopes: vec!["r".to_owned(), "w:x".to_owned()],
            },
        ),
    ] {
        assert_eq!(upstream(&format!("auth = {text}")).auth, auth);
    }
    let client =
        upstream("client_cert = { cert = \"c.pem\", key = { file = \"k.pem\" } }").client_cert;
    let key = Secret::File("/etc/gleaner/k.pem".into());
    assert_eq!(
        client,
        Some(ClientCert {
            cert: "/etc/gleaner/c.pem".into(),
            key
        })
    );
}

#[test]
fn forms_of_what_a_record_is() {
    let source = source(
        "ignore = [\"/a/*/b\", \"etag\"]\ndeleted = { pointer = \"/s\", equals = \"gone\" }\n\
         updated = { field = \"/u\", format = \"epoch-ms\" }\nrequire = { \"/z\" = \"string\", \"/a\" = \"number\" }\n\
         reconcile = { max_loss = 7 }\nschema_version = 3",
    );
    assert_eq!(
        source.ignore,
        [
            Ignore::At(pointer("/a/*/b")),
            Ignore::Anywhere("etag".to_owned())
        ]
    );
    assert_eq!(
        source.deleted,
        Some(Deleted {
            pointer: pointer("/s"),
            equals: Some("gone".into())
        })
    );
    assert_eq!(
        source.updated,
        Some(Updated {
            field: pointer("/u"),
            format: TimeFormat::EpochMs
        })
    );
    let required: Vec<String> = source
        .require
        .iter()
        .map(|(place, _)| place.to_string())
        .collect();
    assert_eq!(required, ["/z", "/a"], "in the file's order");
    assert_eq!(
        (source.max_loss, source.schema_version),
        (MaxLoss::Count(7), 3)
    );
    let short = super::source(
        "deleted = \"/gone\"\nupdated = \"/u\"\nignore = \"etag\"\nreconcile = { max_loss = \"0%\" }",
    );
    assert_eq!(
        short.deleted,
        Some(Deleted {
            pointer: pointer("/gone"),
            equals: None
        })
    );
    assert_eq!(
        short.updated,
        Some(Updated {
            field: pointer("/u"),
            format: TimeFormat::Rfc3339
        })
    );
    assert_eq!(
        (short.ignore, short.max_loss),
        (
            vec![Ignore::Anywhere("etag".to_owned())],
            MaxLoss::Share(0.0)
        )
    );
    let two = config("[source.s]\nurl = \"https://h.example/\"\nkey = [\"/a\", \"/b\"]\n");
    assert_eq!(two.sources["s"].key, [pointer("/a"), pointer("/b")]);
}

#[test]
fn a_path_is_resolved_below_its_base() {
    for (base, path, url) in [
        (
            "https://h.example/api",
            "parts",
            "https://h.example/api/parts",
        ),
        (
            "https://h.example/api/",
            "a/b?x=1",
            "https://h.example/api/a/b?x=1",
        ),
        ("https://h.example/api/", "", "https://h.example/api/"),
        (
            "https://h.example/api/",
            "?all=1",
            "https://h.example/api/?all=1",
        ),
        (
            "https://h.example/api/",
            "https://h.example/v2/x",
            "https://h.example/v2/x",
        ),
        ("https://h.example", "/parts", "https://h.example/parts"),
    ] {
        let text = format!(
            "[upstream.u]\nbase = \"{base}\"\n[source.s]\nupstream = \"u\"\npath = \"{path}\"\nkey = \"/id\"\n"
        );
        assert_eq!(config(&text).sources["s"].url.as_str(), url);
    }
    for path in [
        "\\\\\\\\evil.example/x",
        "http://h.example/x",
        "https://h.example:8443/x",
        "data:,x",
        "//evil.example",
    ] {
        let text = format!(
            "[upstream.u]\nbase = \"https://h.example/\"\n[source.s]\nupstream = \"u\"\npath = \"{path}\"\nkey = \"/id\"\n"
        );
        let errors = parsed(&text).expect_err(path).to_string();
        assert!(
            errors.contains("`path` leads away from its upstream"),
            "{errors}"
        );
    }
}

#[test]
fn params_are_added_encoded_and_in_order() {
    let with = source("params = { z = \"a b&c=ü\", limit = 0x10, all = true }");
    assert_eq!(
        with.url.as_str(),
        "https://h.example/x?z=a+b%26c%3D%C3%BC&limit=16&all=true"
    );
}

#[test]
fn http_with_credentials_is_for_this_host_or_those_who_say_so() {
    for (base, more) in [
        ("http://localhost:8080/", ""),
        ("http://127.0.0.2/", ""),
        ("http://[::1]/", ""),
        ("http://h.example/", "insecure_http = true"),
    ] {
        config(&format!(
            "[upstream.u]\nbase = \"{base}\"\nauth = {{ bearer = {{ env = \"T\" }} }}\n{more}\n"
        ));
    }
    config(
        "[upstream.u]\nbase = \"http://h.example/\"\nheaders = { Accept = \"application/json\" }\n",
    );
}

#[test]
fn what_is_odd_but_allowed_is_a_warning_without_the_value() {
    let text = "[upstream.u]\nbase = \"https://h.example/\"\nheaders = { X-Api-Key = \"hunter2\" }\n\
                [source.s]\nurl = \"https://h.example/?Token=hunter2\"\nkey = \"/id\"\nparams = { sig = \"hunter2\" }\n\
                reconcile = { every = \"30d\" }\n";
    let config = config(text);
    assert_eq!(config.warnings.len(), 5, "{:?}", config.warnings);
    for part in [
        "no source uses it",
        "X-Api-Key is written out",
        "\"Token\" looks like",
        "\"sig\" looks like",
        "reconcile.every",
    ] {
        assert!(
            config.warnings.iter().any(|warning| warning.contains(part)),
            "{part}"
        );
    }
    assert!(!format!("{:?}", config.warnings).contains("hunter2"));
    assert!(!format!("{:?}", config.upstreams["u"]).contains("hunter2"));
}

#[test]
fn a_secret_file_that_everybody_may_read_is_warned_of() {
    let dir = tempfile::tempdir().unwrap();
    let (path, key) = (dir.path().join("gleaner.toml"), dir.path().join("token"));
    std::fs::write(&path, "[source.s]\nurl = \"https://h.example/\"\nkey = \"/id\"\nauth = { bearer = { file = \"token\" } }\n").unwrap();
    std::fs::write(&key, "t").unwrap();
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).unwrap();
    let warnings = load(&path, &no_env).unwrap().warnings;
    assert_eq!(
        warnings,
        [format!(
            "upstream.s: every user may read {{ file = {key:?} }}: chmod o-r"
        )]
    );
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o640)).unwrap();
    assert_eq!(load(&path, &no_env).unwrap().warnings, Vec::<String>::new());
}

#[test]
fn the_fingerprint_changes_with_what_gives_digests_their_meaning_only() {
    let print_of = |source: &str, scope: &str| {
        let text = format!(
            "[upstream.u]\nbase = \"https://h.example/\"\nscope = \"{scope}\"\nauth = {{ bearer = {{ env = \"T\" }} }}\n\
             [source.s]\nupstream = \"u\"\n{source}\n"
        );
        let config = config(&text);
        fingerprint(&config.sources["s"], &config.upstreams["u"])
    };
    let plain = "path = \"x\"\nkey = \"/id\"";
    let with = |more: &str| print_of(&format!("{plain}\n{more}"), "");
    let base = print_of(plain, "");
    for same in [
        "every = \"1h\"",
        "jitter = \"0s\"",
        "allow_empty = true",
        "reconcile = { max_loss = 3 }",
        "records = \"\"",
    ] {
        assert_eq!(with(same), base, "{same}");
    }
    let mut seen = vec![
        base,
        print_of(plain, "other"),
        print_of("path = \"y\"\nkey = \"/id\"", ""),
    ];
    seen.push(print_of("path = \"x\"\nkey = \"/no\"", ""));
    seen.push(print_of("path = \"x\"\nkey = [\"/id\", \"/no\"]", ""));
    for other in [
        "records = \"/items\"",
        "ignore = \"a\"",
        "ignore = \"/a\"",
        "ignore = [\"a\", \"b\"]",
        "columns = { a = \"/a\" }",
        "columns = { a = \"/b\" }",
        "deletes = \"mark\"",
        "format = \"ndjson\"",
        "schema_version = 1",
        "deleted = \"/a\"",
        "deleted = { pointer = \"/a\", equals = true }",
        "deleted = { pointer = \"/a\", equals = \"true\" }",
        "updated = \"/a\"",
        "updated = { field = \"/a\", format = \"epoch-s\" }",
        "params = { a = 1 }",
        "pages = \"link\"",
        "require = { \"/a\" = \"string\" }",
        "require = { \"/a\" = \"number\" }",
        "on_bad_record = \"skip\"",
    ] {
        let print = with(other);
        assert!(!seen.contains(&print), "{other}");
        seen.push(print);
    }
    assert_eq!(
        with("ignore = [\"b\", \"a\"]"),
        with("ignore = [\"a\", \"b\"]")
    );
    let columns = |text: &str| with(&format!("columns = {{ {text} }}"));
    assert_eq!(
        columns("a = \"/a\", b = \"/b\""),
        columns("b = \"/b\", a = \"/a\"")
    );
}
