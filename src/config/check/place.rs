//! Where a source or a document is: its upstream and its URL.

use std::collections::BTreeMap;

use toml::de::DeValue;
use url::Url;

use super::upstream::{has_user, of_source, web_url};
use super::{pages, pull, sounds_secret, url_may_hold_secret};
use crate::config::findings::Check;
use crate::config::nearest::nearest;
use crate::config::raw::SOURCE_UPSTREAM;
use crate::config::reader::{Item, Table, or_list};
use crate::config::{Pages, Pull, Upstream};

/// Where a source is that has no place upstream.
pub(in crate::config) const NOWHERE: &str = "none:/";

/// The upstream's name and the URL, either from `upstream` and `path` or from `url`.
pub(super) fn place(
    check: &mut Check,
    (kind, name): (&str, &str),
    table: &Table<'_>,
    top: &Table<'_>,
    upstreams: &mut BTreeMap<String, Upstream>,
    is_pulled: bool,
) -> Option<(String, Url)> {
    match (
        table.item("url"),
        table.item("upstream"),
        table.item("path"),
    ) {
        (Some(url), None, None) => own_upstream(check, (kind, name), table, top, &url, upstreams),
        (Some(url), upstream, path) => {
            let other = upstream
                .or(path)
                .map_or_else(String::new, |item| item.label);
            let expected = "either `url`, or `upstream` and `path`";
            check.error(
                &url.key,
                format!("{} has both `url` and `{other}`", table.label),
                expected,
            );
            None
        }
        (None, None, None) if !is_pulled => nowhere(check, name, table, upstreams),
        (None, None, None) => {
            let expected =
                "`url = \"https://host/path\"`, or `upstream = \"NAME\"` and `path = \"path\"`";
            check.error(
                &table.span,
                format!("{} does not say where it is", table.label),
                expected,
            );
            None
        }
        (None, upstream, path) => {
            for stray in SOURCE_UPSTREAM.iter().filter_map(|key| table.item(key)) {
                check.hide_all(stray.value);
                let what = format!(
                    "`{}` is written in a {kind} that has an `upstream`",
                    stray.label
                );
                check.error(&stray.key, what, "it in [upstream.NAME]");
            }
            let upstream = upstream.or_else(|| table.required(check, "upstream", "\"NAME\""));
            let path = match path {
                None if is_pulled => Some(table.required(check, "path", "\"path\"")?),
                path => path,
            };
            let upstream = upstream?;
            let name = upstream.string(check, "the name of an [upstream.NAME]")?;
            let found = is_known(check, &upstream, "upstream", name, top)
                .then(|| upstreams.get(name))
                .flatten()?;
            let url = match path {
                Some(path) => below(check, &path, &found.base)?,
                None => found.base.clone(),
            };
            Some((name.to_owned(), url))
        }
    }
}

/// A source that is never pulled need not be anywhere.
fn nowhere(
    check: &mut Check,
    name: &str,
    table: &Table<'_>,
    upstreams: &mut BTreeMap<String, Upstream>,
) -> Option<(String, Url)> {
    let url = Url::parse(NOWHERE).ok()?;
    if let Some(upstream) = of_source(check, table, &url, &table.span) {
        upstreams.insert(name.to_owned(), upstream);
    }
    Some((name.to_owned(), url))
}

/// Makes the upstream of a source that has a `url` of its own.
fn own_upstream(
    check: &mut Check,
    (kind, name): (&str, &str),
    table: &Table<'_>,
    top: &Table<'_>,
    item: &Item<'_>,
    upstreams: &mut BTreeMap<String, Upstream>,
) -> Option<(String, Url)> {
    if has_section(top, "upstream", name) {
        let what =
            format!("the {kind} {name:?} has a `url`, and there is an [upstream.{name}] as well");
        check.error(
            &item.key,
            what,
            "another name, or `upstream` and `path` instead of `url`",
        );
    }
    let text = item.filled(check, "a URL such as \"https://host/path\"");
    let url = text.and_then(|text| web_url(check, item, text))?;
    if let Some(upstream) = of_source(check, table, &url, &item.span) {
        upstreams.insert(name.to_owned(), upstream);
    }
    Some((name.to_owned(), url))
}

fn has_section(top: &Table<'_>, kind: &str, name: &str) -> bool {
    top.item(kind).is_some_and(|all| {
        all.get()
            .as_table()
            .is_some_and(|all| all.contains_key(name))
    })
}

/// Whether there is such a section, right or wrong.
pub(super) fn is_known(
    check: &mut Check,
    item: &Item<'_>,
    kind: &str,
    name: &str,
    top: &Table<'_>,
) -> bool {
    if has_section(top, kind, name) {
        return true;
    }
    let all = top.item(kind);
    let names: Vec<&str> = match all.as_ref().and_then(|all| all.get().as_table()) {
        Some(table) => table.keys().map(|key| &**key.get_ref()).collect(),
        None => Vec::new(),
    };
    let hint =
        nearest(name, &names).map_or(String::new(), |near| format!(" (did you mean {near:?}?)"));
    let expected = match names.is_empty() {
        true if kind == "upstream" => "an [upstream.NAME] in this file".to_owned(),
        true => format!("a [{kind}.NAME] in this file"),
        false => or_list(&names),
    };
    check.error(
        &item.span,
        format!("there is no [{kind}.{}]{hint}", name.escape_debug()),
        expected,
    );
    false
}

/// Resolves `path` below `base` (RFC 3986 5.2); it never leaves the origin.
fn below(check: &mut Check, item: &Item<'_>, base: &Url) -> Option<Url> {
    let expected = format!("a path below {base}");
    let text = item.string(check, &expected)?;
    if url_may_hold_secret(text) {
        check.hide(&item.span);
    }
    let url = match base.join(text) {
        Ok(url) => url,
        Err(error) => {
            check.error(
                &item.span,
                format!("`path` can't be resolved: {error}"),
                expected,
            );
            return None;
        }
    };
    let absolute = text.contains("://");
    if url.origin() != base.origin() || has_user(&url) {
        check.error(&item.span, "`path` leads away from its upstream", expected);
        return None;
    }
    if !absolute && text.starts_with(['/', '\\']) && base.path() != "/" {
        let what = format!("`path` starts with a slash, and its upstream is {base}");
        check.error(
            &item.span,
            what,
            format!(
                "\"{}\" below that, or the whole URL",
                text.trim_start_matches(['/', '\\'])
            ),
        );
        return None;
    }
    if url.fragment().is_some() {
        check.error(
            &item.span,
            "`path` has a fragment (#…), which is never sent",
            expected,
        );
        return None;
    }
    Some(url)
}

/// Adds `params` to the query, and looks at the names of all parameters.
pub(super) fn with_params(
    check: &mut Check,
    (kind, name): (&str, &str),
    table: &Table<'_>,
    mut url: Url,
) -> Option<Url> {
    let expected = "a table such as { lang = \"en\", limit = 100 }";
    let item = table.item("params");
    let entries = item
        .as_ref()
        .map_or_else(Vec::new, |item| item.entries(check, expected));
    for (param, item) in entries {
        if sounds_secret(param) {
            check.hide_all(item.value);
        }
        let value = match item.get() {
            DeValue::String(text) => text.to_string(),
            // Not as it is written: that may be hexadecimal or have underscores.
            DeValue::Integer(number) => {
                match i64::from_str_radix(number.as_str(), number.radix()) {
                    Ok(number) => number.to_string(),
                    Err(_) => {
                        check.error(
                            &item.span,
                            format!("`{param}` is out of range"),
                            "a number of 64 bits",
                        );
                        continue;
                    }
                }
            }
            DeValue::Boolean(flag) => flag.to_string(),
            _ => {
                item.wrong_type(check, "a string, a whole number, or true or false");
                continue;
            }
        };
        url.query_pairs_mut().append_pair(param, &value);
    }
    for (param, _) in url.query_pairs() {
        if sounds_secret(&param) {
            check.warnings.push(format!(
                "{kind}.{name}: the query parameter {param:?} looks like a secret, and URLs are logged by proxies and \
                 servers; use `auth = {{ header = … }}` if the API takes one"
            ));
        }
    }
    Some(url)
}

/// Whether the parameters of a source's URL leave room for those that `pages` and `pull` write.
pub(super) fn guard_params(
    check: &mut Check,
    table: &Table<'_>,
    url: &Url,
    pages: Option<&Pages>,
    pull: Option<&Pull>,
) {
    let by_pages = pages.map_or_else(Vec::new, pages::written_parameters);
    let by_pull = pull.map_or_else(Vec::new, pull::written_parameters);
    if let Some(param) = by_pull.iter().find(|param| by_pages.contains(param)) {
        let span = table
            .item("pages")
            .map_or(table.span.clone(), |item| item.span);
        let what = format!("the parameter {param:?} is written by `pull` and by `pages`");
        check.error(&span, what, "two parameters");
    }
    let names: Vec<String> = url
        .query_pairs()
        .map(|(param, _)| param.into_owned())
        .collect();
    for param in names {
        for (key, written) in [("pages", &by_pages), ("pull", &by_pull)] {
            if written.contains(&param.as_str()) {
                let span = table.item(key).map_or(table.span.clone(), |item| item.span);
                let what =
                    format!("the parameter {param:?} is in the URL and written by `{key}` as well");
                check.error(&span, what, format!("it in `{key}` alone"));
            }
        }
    }
}
