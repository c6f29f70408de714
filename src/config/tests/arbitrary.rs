//! Any config that can be is printed as a file that parses to the same.

mod documents;
mod hooks;

use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

use super::*;
use crate::json::time::Pattern;

const SECOND_MS: u64 = 1000;
const DAY_MS: u64 = 86_400_000;

fn span(from_ms: u64) -> impl Strategy<Value = Duration> {
    (from_ms..10 * DAY_MS).prop_map(Duration::from_millis)
}

fn place() -> impl Strategy<Value = Pointer> {
    "(/([a-z0-9 é\"\\\\.]|~0|~1){0,4}){0,3}".prop_map(|text| pointer(&text))
}

fn secret() -> impl Strategy<Value = Secret> {
    prop_oneof![
        "[a-z.-]{3,9}".prop_map(Secret::Credential),
        "/[a-z ü\"]{1,9}".prop_map(|path| Secret::File(path.into())),
        "[A-Z_]{1,9}".prop_map(Secret::Env),
    ]
}

fn auth() -> impl Strategy<Value = Auth> {
    prop_oneof![
        Just(Auth::None),
        secret().prop_map(Auth::Bearer),
        ("[^:\\p{Cc}]{0,6}", secret()).prop_map(|(user, password)| Auth::Basic { user, password }),
        secret().prop_map(|value| Auth::Header {
            name: "X-Auth".to_owned(),
            value
        }),
        (
            "[a-z\"]{1,5}",
            secret(),
            prop::collection::vec("[a-z:/]{1,5}", 0..3)
        )
            .prop_map(|(id, client_secret, scopes)| {
                let token_url = url::Url::parse("https://id.example/token").unwrap();
                Auth::OAuth2 {
                    token_url,
                    client_id: id,
                    client_secret,
                    scopes,
                }
            }),
    ]
}

fn headers() -> impl Strategy<Value = Vec<(String, Secret)>> {
    let value = prop_oneof![
        secret(),
        "[!-~]([ -~]{0,9}[!-~])?".prop_map(Secret::Literal)
    ];
    prop::collection::vec(value, 0..3).prop_map(|values| {
        values
            .into_iter()
            .enumerate()
            .map(|(i, value)| (format!("X-{i}"), value))
            .collect()
    })
}

fn limits() -> impl Strategy<Value = Limits> {
    (
        span(1),
        span(1),
        span(0),
        1..1_u64 << 40,
        1..16_usize << 20,
        1..256_usize << 20,
        1..1_000_000_u32,
    )
        .prop_map(|(connect, stall, more, body, head, record, pages)| Limits {
            connect,
            stall,
            total: stall + more,
            body,
            head,
            record,
            pages,
        })
}

prop_compose! {
    fn upstream_of(base: &'static str)(
        auth in auth(),
        headers in headers(),
        scope in ".{0,6}",
        ca in option::of("/[a-z]{1,5}"),
        roots in select(vec![Roots::System, Roots::Bundled, Roots::ExtraOnly]),
        client in option::of(secret()),
        proxy in select(vec![Proxy::Environment, Proxy::Direct, Proxy::Url("http://p.example:3128".to_owned())]),
        insecure_http: bool,
        min_interval in (0..600_000u64).prop_map(Duration::from_millis),
        limits in limits(),
    ) -> Upstream {
        Upstream {
            base: url::Url::parse(base).unwrap(),
            auth,
            headers,
            scope,
            roots: if ca.is_none() && roots == Roots::ExtraOnly { Roots::System } else { roots },
            extra_ca: ca.map(Into::into),
            client_cert: client.map(|key| ClientCert { cert: "/c.pem".into(), key }),
            proxy,
            insecure_http,
            min_interval,
            limits,
        }
    }
}

fn pages() -> impl Strategy<Value = Pages> {
    let name = || "P[a-z_\\[\\]]{0,6}";
    let more =
        || option::of((place(), any::<bool>()).prop_map(|(at, says_end)| More { at, says_end }));
    let size = || {
        (name(), 1..1000_u64).prop_map(|(param, value)| PageSize {
            param: format!("s{param}"),
            value,
        })
    };
    let number = |(param, size, more)| Pages::Offset { param, size, more };
    prop_oneof![
        Just(Pages::Single),
        Just(Pages::Link),
        (place(), more()).prop_map(|(next, more)| Pages::Next { next, more }),
        place().prop_map(Pages::Links),
        "[A-Za-z-]{1,6}".prop_map(Pages::NextHeader),
        (place(), name(), more()).prop_map(|(token, param, more)| Pages::Token {
            token,
            param,
            more
        }),
        ("[A-Za-z-]{1,6}", name()).prop_map(|(header, param)| Pages::TokenHeader { header, param }),
        (name(), 0..9_u64, option::of(size()), more()).prop_map(|(param, first, size, more)| {
            Pages::Page {
                param,
                first,
                size,
                more,
            }
        }),
        (name(), size(), more()).prop_map(number),
        (place(), name(), more()).prop_map(|(key, param, more)| Pages::LastKey {
            key,
            param,
            more
        }),
    ]
}

fn equals() -> impl Strategy<Value = serde_json::Value> {
    prop_oneof![
        any::<bool>().prop_map(Into::into),
        any::<i64>().prop_map(Into::into),
        any::<f64>()
            .prop_filter("JSON has no others", |number| number.is_finite())
            .prop_map(Into::into),
        ".{0,6}".prop_map(Into::into),
    ]
}

/// What a record is.
fn record(source: Source) -> impl Strategy<Value = Source> {
    let ignore = prop_oneof![
        place()
            .prop_filter("no text is no field", |place| *place != Pointer::default())
            .prop_map(Ignore::At),
        "[a-z ü][a-z /]{0,5}".prop_map(Ignore::Anywhere),
    ];
    let format = select(vec![
        TimeFormat::Rfc3339,
        TimeFormat::EpochS,
        TimeFormat::EpochMs,
        TimeFormat::EpochUs,
        TimeFormat::Rfc3339Us,
        TimeFormat::Pattern(Pattern::new("%d.%m.%Y \"%H:%M", Some("CET-1")).unwrap()),
    ]);
    let rules = select(vec!["string", "number >= 0", "string | null"]);
    let columns = prop::collection::btree_map("c[a-z0-9_-]{0,5}", place(), 0..4);
    (
        place(),
        prop::collection::btree_set(place(), 1..3),
        prop::collection::vec(ignore, 0..3),
        option::of((
            place(),
            option::of(prop_oneof![equals(), Just(serde_json::Value::Null)]),
        )),
        option::of((place(), format)),
        prop::collection::btree_map(place(), rules, 0..3),
        columns,
        any::<u32>(),
        followers(),
    )
        .prop_map(
            move |(records, key, ignore, deleted, updated, rules, columns, version, followers)| {
                let mut source = source.clone();
                source.records = records;
                source.key = key.into_iter().collect();
                source.ignore = ignore;
                source.deleted = deleted.map(|(pointer, equals)| Deleted { pointer, equals });
                if !matches!(source.pull, Pull::Window(_)) {
                    source.updated = updated.map(|(field, format)| Updated { field, format });
                }
                let rule = |text| {
                    crate::contract::Rule::parse(text).unwrap_or_else(|error| panic!("{error}"))
                };
                source.require = rules
                    .into_iter()
                    .map(|(place, text)| (place, rule(text)))
                    .collect();
                source.columns = columns.into_iter().rev().collect();
                source.schema_version = version;
                (source.journal, source.on_change) = followers;
                if source.format == Format::Ndjson {
                    source.records = Pointer::default();
                }
                source
            },
        )
}

fn followers() -> impl Strategy<Value = (Option<Journal>, Option<Program>)> {
    let journal = (
        "[A-Za-z0-9_-][A-Za-z0-9._-]{0,9}",
        4096..1_u64 << 40,
        1..1000_u32,
    );
    let journal = journal.prop_map(|(file, rotate, keep)| Journal { file, rotate, keep });
    let program = (
        "/[a-z ü\"/]{1,9}",
        prop::collection::vec(".{0,6}", 0..3),
        span(SECOND_MS),
    );
    let program = program.prop_map(|(path, arguments, timeout)| Program {
        path: path.into(),
        arguments: arguments
            .iter()
            .map(|text| text.replace('\0', ""))
            .collect(),
        timeout,
    });
    (option::of(journal), option::of(program))
}

fn time_param(name: &'static str) -> impl Strategy<Value = TimeParam> {
    let format = select(vec![TimeFormat::Rfc3339, TimeFormat::EpochMs]);
    (format, select(vec!["{}", "\"{}\"", "{}/.."])).prop_map(move |(format, template)| TimeParam {
        param: Param {
            name: name.to_owned(),
            template: template.to_owned(),
        },
        format,
    })
}

/// How a source is pulled, with the update time that a window takes.
fn pull() -> impl Strategy<Value = (Pull, Option<Updated>)> {
    let until = option::of((time_param("W-until"), option::of(span(86_400_000))));
    let window = (
        time_param("W-since"),
        until,
        option::of(span(SECOND_MS)),
        place(),
    )
        .prop_map(|(since, until, first, field)| {
            let lateness = Duration::from_secs(3600);
            let window = Window {
                since,
                step: until
                    .as_ref()
                    .and_then(|(_, step)| *step)
                    .map(|step| step.max(lateness)),
                until: until.map(|(until, _)| until),
                lateness,
                first,
            };
            let format = TimeFormat::EpochS;
            (Pull::Window(window), Some(Updated { field, format }))
        });
    let from = prop_oneof![
        Just(CursorFrom::Header("ETag".to_owned())),
        place().prop_map(CursorFrom::Pointer),
        place().prop_map(CursorFrom::Field),
    ];
    let cursor = (from, option::of(".{0,3}")).prop_map(|(from, first)| {
        let param = Param {
            name: "W-cursor".to_owned(),
            template: "x{}".to_owned(),
        };
        (Pull::Cursor(Cursor { from, param, first }), None)
    });
    prop_oneof![
        Just((Pull::Snapshot, None)),
        Just((Pull::None, None)),
        window,
        cursor
    ]
}

/// Where a source is and when it is asked.
fn bare_source() -> impl Strategy<Value = Source> {
    let path = "([a-z:/?&=%@é. ]{0,8}|/[a-z]{0,3}\\?x=//y)".prop_map(|path| {
        let base = url::Url::parse("https://h.example/api/").unwrap();
        let url = base
            .join(&path)
            .ok()
            .filter(|url| url.origin() == base.origin() && url.username().is_empty());
        url.unwrap_or(base)
    });
    let loss = prop_oneof![
        (0..=1_000_000_u32).prop_map(|parts| {
            let text = format!("{}.{:04}%", parts / 10_000, parts % 10_000);
            MaxLoss::Share(value::parse_percent(&text).unwrap())
        }),
        (0..i64::MAX as u64).prop_map(MaxLoss::Count),
    ];
    let times = (
        span(SECOND_MS),
        any::<u16>(),
        span(0),
        span(0),
        span(SECOND_MS),
        option::of(span(SECOND_MS)),
        option::of(span(SECOND_MS)),
        option::of((0..1440_u16).prop_map(TimeOfDay)),
    );
    let flags = (
        any::<bool>(),
        any::<bool>(),
        any::<bool>(),
        any::<bool>(),
        any::<bool>(),
    );
    (path, loss, times, flags, pages(), pull()).prop_map(
        |(mut url, max_loss, times, flags, pages, (pull, updated))| {
            url.set_fragment(None);
            let (
                every,
                jitter,
                late,
                max_skip,
                recheck,
                reconcile_every,
                keep_upstream,
                reconcile_at,
            ) = times;
            let (ndjson, skip, mark, allow_empty, ignore_no_store) = flags;
            let plain = matches!(
                pages,
                Pages::Single | Pages::Link | Pages::NextHeader(_) | Pages::TokenHeader { .. }
            );
            let plain_single =
                matches!(pages, Pages::Single) && matches!(pull, Pull::Snapshot | Pull::None);
            Source {
                name: "s".to_owned(),
                upstream: "u".to_owned(),
                url,
                search: mark.then(|| serde_json::json!({"q": "x\ny", "n": [1, {}]})),
                every,
                jitter: Duration::from_millis(jitter.into()).min(every),
                stale_after: every + late,
                format: if ndjson && plain {
                    Format::Ndjson
                } else {
                    Format::Json
                },
                records: Pointer::default(),
                key: Vec::new(),
                ignore: Vec::new(),
                deleted: None,
                updated,
                require: Vec::new(),
                schema: None,
                schema_version: 0,
                pull,
                pages,
                on_bad_record: if skip { OnBad::Skip } else { OnBad::Fail },
                max_loss,
                reconcile_every,
                reconcile_at,
                keep_upstream,
                columns: Vec::new(),
                deletes: if mark { Deletes::Mark } else { Deletes::Remove },
                journal: None,
                on_change: None,
                allow_empty,
                spool: allow_empty && plain_single && !mark,
                ignore_no_store,
                max_skip,
                recheck,
            }
        },
    )
}

prop_compose! {
    fn any_config()(
        id in "[A-Za-z0-9._-]{1,64}",
        state in "/[a-z ü\"\\\\]{0,20}",
        checkpoint in span(SECOND_MS),
        time_sync in option::of("/[a-z]{1,5}"),
        upstream in upstream_of("https://h.example/api/"),
        other in upstream_of("https://[::1]:8443/"),
        source in bare_source().prop_flat_map(record),
        documents_quota in 1..1_u64 << 50,
        document in option::of(documents::document()),
        webhooks in option::of((hooks::door(), option::of(hooks::hook()))),
    ) -> Config {
        let upstreams = BTreeMap::from([("u".to_owned(), upstream), ("Other_1".to_owned(), other)]);
        let agent = Agent { id, control: Path::new(&state).join("c"), control_mode: 0o600, state: state.into(), checkpoint, time_sync: time_sync.map(Into::into), documents_quota };
        let (door, hook) = webhooks.unzip();
        let hooks = hook.flatten().into_iter().map(|hook| ("h".to_owned(), hook)).collect();
        Config { agent, upstreams, sources: BTreeMap::from([("s".to_owned(), source)]), documents: document.into_iter().map(|document| ("d".to_owned(), document)).collect(), door, hooks, warnings: Vec::new() }
    }
}

proptest! {
    #[test]
    fn what_is_printed_parses_to_an_equal_config(config in any_config()) {
        let printed = print(&config);
        let mut back = parsed(&printed).map_err(|errors| TestCaseError::fail(format!("{errors}\n{printed}")))?;
        back.warnings.clear();
        prop_assert_eq!(back, config, "{}", printed);
    }
}
