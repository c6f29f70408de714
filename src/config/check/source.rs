//! `[source.NAME]`: where a collection is, how it is read, what a record is and what becomes of it.

use std::collections::BTreeMap;
use std::time::Duration;

use toml::de::DeValue;

use super::{DAY, SECOND, followers, pages, place, pull, record};
use crate::config::findings::Check;
use crate::config::raw::RECONCILE;
use crate::config::reader::{Item, Table};
use crate::config::value::{MAX_DURATION, parse_percent, print_duration};
use crate::config::{
    Cursor, CursorFrom, Deletes, Format, MaxLoss, OnBad, Pull, Source, TimeOfDay, Upstream,
};
use crate::pointer::Pointer;

/// Checks one section; a source with a `url` adds its upstream. `None`: noted why not.
pub(super) fn source(
    check: &mut Check,
    name: &str,
    table: &Table<'_>,
    top: &Table<'_>,
    upstreams: &mut BTreeMap<String, Upstream>,
) -> Option<Source> {
    let pull = pull::pull(check, table);
    let is_pulled = !matches!(pull, Some((Pull::None, _)));
    let place = place::place(check, ("source", name), table, top, upstreams, is_pulled);
    let pages = pages::pages(check, table);
    let url = place.as_ref().and_then(|(_, url)| {
        let pull = pull.as_ref().map(|(pull, _)| pull);
        let url = place::with_params(check, ("source", name), table, url.clone())?;
        place::guard_params(check, table, &url, pages.as_ref(), pull);
        Some(url)
    });
    let key = table
        .required(check, "key", "\"/id\"")
        .and_then(|item| record::key(check, &item));
    let times = times(check, table);
    let reconcile = reconcile(check, name, table, pull.as_ref().map(|(pull, _)| pull));
    let formats = [("json", Format::Json), ("ndjson", Format::Ndjson)];
    let source = Source {
        name: name.to_owned(),
        search: search(check, table),
        every: times.every,
        jitter: times.jitter,
        stale_after: times.stale_after,
        format: table.choice(check, "format", Format::Json, &formats),
        records: table.pointer(check, "records").unwrap_or_default(),
        ignore: table
            .item("ignore")
            .map_or_else(Vec::new, |item| record::ignore(check, &item)),
        deleted: table
            .item("deleted")
            .and_then(|item| record::deleted(check, &item)),
        require: table
            .item("require")
            .map_or_else(Vec::new, |item| record::require(check, &item)),
        schema: table
            .item("schema")
            .and_then(|item| record::schema(check, &item)),
        schema_version: u32::try_from(table.integer(
            check,
            "schema_version",
            0,
            0..=u32::MAX.into(),
        ))
        .unwrap_or(0),
        on_bad_record: table.choice(
            check,
            "on_bad_record",
            OnBad::Fail,
            &[("fail", OnBad::Fail), ("skip", OnBad::Skip)],
        ),
        max_loss: reconcile.max_loss,
        reconcile_every: reconcile.every,
        reconcile_at: reconcile.at,
        keep_upstream: table
            .item("keep_upstream")
            .and_then(|item| item.duration(check, SECOND)),
        columns: table
            .item("columns")
            .map_or_else(Vec::new, |item| record::columns(check, &item)),
        deletes: table.choice(
            check,
            "deletes",
            Deletes::Remove,
            &[("remove", Deletes::Remove), ("mark", Deletes::Mark)],
        ),
        journal: table
            .item("journal")
            .and_then(|item| followers::journal(check, name, &item)),
        on_change: table
            .item("on_change")
            .and_then(|item| followers::program(check, &item)),
        allow_empty: table.flag(check, "allow_empty"),
        ignore_no_store: table.flag(check, "ignore_no_store"),
        spool: table.flag(check, "spool"),
        max_skip: table.duration(check, "max_skip", DAY, Duration::ZERO),
        recheck: table.duration(check, "recheck", 30 * DAY, SECOND),
        key: key?,
        updated: pull.as_ref().and_then(|(_, updated)| updated.clone()),
        pull: pull?.0,
        pages: pages?,
        upstream: place?.0,
        url: url?,
    };
    guard_ndjson(check, table, &source);
    guard_spool(check, table, &source);
    Some(source)
}

/// `method` and `body`: a search by POST.
fn search(check: &mut Check, table: &Table<'_>) -> Option<serde_json::Value> {
    let methods = [("GET", false), ("POST", true)];
    let post = table.choice(check, "method", false, &methods);
    let Some(item) = table.item("body") else {
        return post.then(|| serde_json::Value::Object(serde_json::Map::new()));
    };
    if !post {
        check.error(
            &item.key,
            "`body` goes with a POST",
            "`method = \"POST\"` beside it",
        );
        return None;
    }
    let expected = "a JSON object, such as '{\"status\": \"open\"}'";
    let text = item.filled(check, expected)?;
    match serde_json::from_str(text) {
        Ok(body @ serde_json::Value::Object(_)) => Some(body),
        Ok(_) => {
            check.error(&item.span, "`body` is no JSON object", expected);
            None
        }
        Err(error) => {
            check.error(&item.span, format!("`body` is no JSON: {error}"), expected);
            None
        }
    }
}

/// When something is asked for.
pub(super) struct Times {
    pub(super) every: Duration,
    pub(super) jitter: Duration,
    pub(super) stale_after: Duration,
}

pub(super) fn times(check: &mut Check, table: &Table<'_>) -> Times {
    let every = table.duration(check, "every", Duration::from_secs(900), SECOND);
    // Whole milliseconds, so that it can be printed and read again.
    let tenth = Duration::from_millis(u64::try_from(every.as_millis() / 10).unwrap_or(u64::MAX));
    let jitter = table.duration(check, "jitter", tenth, Duration::ZERO);
    let stale_after = table.duration(
        check,
        "stale_after",
        every.saturating_mul(3).min(MAX_DURATION),
        SECOND,
    );
    let mut compare = |key: &str, wrong: bool, what: &str, expected: String| {
        if let (true, Some(item)) = (wrong, table.item(key)) {
            check.error(&item.span, what, expected);
        }
    };
    let printed = print_duration(every);
    compare(
        "jitter",
        jitter > every,
        "`jitter` is longer than `every`",
        format!("at most \"{printed}\""),
    );
    let expected = format!("at least \"{printed}\", or data is stale before it is due");
    compare(
        "stale_after",
        stale_after < every,
        "`stale_after` is shorter than `every`",
        expected,
    );
    Times {
        every,
        jitter,
        stale_after,
    }
}

struct Reconcile {
    every: Option<Duration>,
    at: Option<TimeOfDay>,
    max_loss: MaxLoss,
}

fn reconcile(check: &mut Check, name: &str, source: &Table<'_>, pull: Option<&Pull>) -> Reconcile {
    let mut reconcile = Reconcile {
        every: pull.and_then(pull::reconcile_every),
        at: None,
        max_loss: MaxLoss::Share(0.1),
    };
    let expected = "a table such as { every = \"30d\", max_loss = \"10%\" }";
    let Some(table) = source
        .item("reconcile")
        .and_then(|item| item.table(check, &RECONCILE, expected))
    else {
        return reconcile;
    };
    if let Some(item) = table.item("every") {
        if item.get().as_str() == Some("never") {
            reconcile.every = None;
        } else {
            reconcile.every = item.duration(check, SECOND).or(reconcile.every);
        }
    }
    reconcile.at = table
        .item("at")
        .and_then(|item| pull::time_of_day(check, &item));
    let needless = table
        .item("every")
        .or(table.item("at"))
        .map(|item| item.label);
    if let (Some(key), Some(Pull::Snapshot | Pull::None)) = (needless, pull) {
        let why = match pull {
            Some(Pull::None) => "there is no listing to compare with",
            _ => "every complete snapshot reconciles",
        };
        check.warnings.push(format!(
            "source.{name}: `reconcile.{key}` changes nothing: {why}"
        ));
    }
    let loss = table
        .item("max_loss")
        .and_then(|item| max_loss(check, &item));
    reconcile.max_loss = loss.unwrap_or(reconcile.max_loss);
    reconcile
}

fn max_loss(check: &mut Check, item: &Item<'_>) -> Option<MaxLoss> {
    let expected = "a share such as \"10%\", or a number of records such as 100";
    match item.get() {
        DeValue::Integer(_) => item.integer(check, 0..=u64::MAX).map(MaxLoss::Count),
        DeValue::String(text) => {
            let share = parse_percent(text);
            let noted = share.map_err(|error| {
                check.error(
                    &item.span,
                    format!("`max_loss`: {text:?} {error}"),
                    expected,
                )
            });
            noted.ok().map(MaxLoss::Share)
        }
        _ => {
            item.wrong_type(check, expected);
            None
        }
    }
}

/// What a resumed answer need not repeat cannot be waited for, and a search cannot be resumed.
fn guard_spool(check: &mut Check, table: &Table<'_>, source: &Source) {
    let Some(item) = table.item("spool").filter(|_| source.spool) else {
        return;
    };
    let by_header = matches!(
        &source.pull,
        Pull::Cursor(Cursor {
            from: CursorFrom::Header(_),
            ..
        })
    );
    let what = if source.search.is_some() {
        "`spool` goes on behind a cut, which a POST cannot"
    } else if source.pages.header().is_some() {
        "`spool` goes on behind a cut, and the way to the next page stands in a header that a rest need not have"
    } else if by_header {
        "`spool` goes on behind a cut, and the cursor stands in a header that a rest need not have"
    } else {
        return;
    };
    check.error(&item.span, what, "no `spool`");
}

/// NDJSON has no document around its records.
fn guard_ndjson(check: &mut Check, table: &Table<'_>, source: &Source) {
    if source.format != Format::Ndjson {
        return;
    }
    if let (false, Some(item)) = (source.records == Pointer::default(), table.item("records")) {
        let what = "`records` points into a document, and \"ndjson\" has one record a line";
        check.error(&item.span, what, "no `records`, or `format = \"json\"`");
    }
    if let (Some(key), Some(item)) = (pages::looks_into_body(&source.pages), table.item("pages")) {
        let what = format!(
            "`{key}` in `pages` points into a document, and \"ndjson\" has one record a line"
        );
        check.error(
            &item.span,
            what,
            "pages by header, number or last key, or `format = \"json\"`",
        );
    }
}
