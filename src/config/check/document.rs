//! `[document.NAME]`: where a file is upstream and here, and what proves it.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use url::Url;

use super::{DAY, SECOND, followers, place, source, url_may_hold_secret};
use crate::config::document::{Document, Proof, parse_sha256};
use crate::config::findings::Check;
use crate::config::reader::{Item, Table};
use crate::config::{Source, Upstream};

/// Checks one section; a document with a `url` adds its upstream. `None`: noted why not.
pub(super) fn document(
    check: &mut Check,
    name: &str,
    table: &Table<'_>,
    top: &Table<'_>,
    upstreams: &mut BTreeMap<String, Upstream>,
) -> Option<Document> {
    let place = place::place(check, ("document", name), table, top, upstreams, true);
    let url = place
        .as_ref()
        .and_then(|(_, url)| place::with_params(check, ("document", name), table, url.clone()));
    let file = table
        .required(check, "file", "\"name\"")
        .and_then(|item| file(check, &item));
    let times = source::times(check, table);
    let limit = place
        .as_ref()
        .and_then(|(upstream, _)| upstreams.get(upstream))
        .map_or(1 << 30, |upstream| upstream.limits.body);
    let proof = proof(check, table, url.as_ref());
    Some(Document {
        name: name.to_owned(),
        every: times.every,
        jitter: times.jitter,
        stale_after: times.stale_after,
        proof,
        max_size: table.size(check, "max_size", limit, 1 << 40),
        allow_empty: table.flag(check, "allow_empty"),
        content_type: table
            .item("content_type")
            .map_or_else(Vec::new, |item| media_types(check, &item)),
        on_change: table
            .item("on_change")
            .and_then(|item| followers::program(check, &item)),
        ignore_no_store: table.flag(check, "ignore_no_store"),
        max_skip: table.duration(check, "max_skip", DAY, Duration::ZERO),
        recheck: table.duration(check, "recheck", 30 * DAY, SECOND),
        upstream: place?.0,
        url: url?,
        file: file?,
    })
}

const FILE: &str = "a file below documents/, such as \"firmware/manifest.json\"";

/// A name, or names with slashes between.
fn file(check: &mut Check, item: &Item<'_>) -> Option<PathBuf> {
    let text = item.filled(check, FILE)?;
    let path = Path::new(text);
    let plain = path
        .components()
        .all(|part| matches!(part, Component::Normal(_)));
    let trouble = if !plain || path.is_absolute() {
        "`file` leads out of documents/"
    } else if text.ends_with('/') || text.contains("//") || text.contains("/./") {
        "`file` has a name without letters in it"
    } else if text.split('/').any(|name| name.len() > 200) {
        "`file` has a name of more than 200 bytes"
    } else if text.contains(char::is_control) {
        "`file` has a control character"
    } else if text.split('/').next() == Some(".part") {
        "`file` is in .part, where unfinished downloads are"
    } else {
        return Some(path.to_owned());
    };
    check.error(&item.span, trouble, FILE);
    None
}

fn proof(check: &mut Check, table: &Table<'_>, url: Option<&Url>) -> Proof {
    match (table.item("sha256"), table.item("sha256_url")) {
        (None, None) => Proof::None,
        (Some(item), Some(_)) => {
            let what = format!("{} has both `sha256` and `sha256_url`", table.label);
            check.error(&item.key, what, "one of them");
            Proof::None
        }
        (Some(item), None) => sha256(check, &item).map_or(Proof::None, Proof::Sha256),
        (None, Some(item)) => sha256_url(check, &item, url).map_or(Proof::None, Proof::Sha256Url),
    }
}

fn sha256(check: &mut Check, item: &Item<'_>) -> Option<[u8; 32]> {
    let expected = "64 hexadecimal digits, as `sha256sum FILE` prints them";
    let text = item.string(check, expected)?;
    let found = parse_sha256(text);
    if found.is_none() {
        check.error(&item.span, "`sha256` is no SHA-256", expected);
    }
    found
}

/// Resolved from the document's own URL.
fn sha256_url(check: &mut Check, item: &Item<'_>, document: Option<&Url>) -> Option<Url> {
    let expected = "a URL, or a path from the document's, such as \"firmware.bin.sha256\"";
    let text = item.filled(check, expected)?;
    if url_may_hold_secret(text) {
        check.hide(&item.span);
    }
    let document = document?;
    let mut url = match document.join(text) {
        Ok(url) => url,
        Err(error) => {
            let what = format!("`sha256_url` can't be resolved: {error}");
            check.error(&item.span, what, expected);
            return None;
        }
    };
    url.set_fragment(None);
    let trouble = if !matches!(url.scheme(), "http" | "https") || url.host().is_none() {
        "`sha256_url` is no URL that can be asked"
    } else if super::upstream::has_user(&url) {
        "`sha256_url` has a user or password in it"
    } else if document.scheme() == "https" && url.scheme() == "http" {
        "`sha256_url` is http, and what it is to prove comes by https"
    } else {
        return Some(url);
    };
    check.error(&item.span, trouble, expected);
    None
}

fn media_types(check: &mut Check, item: &Item<'_>) -> Vec<String> {
    let expected = "a media type such as \"application/json\" or \"image/*\", or a list of them";
    let mut types = Vec::new();
    for member in item.one_or_more() {
        let Some(text) = member.filled(check, expected) else {
            continue;
        };
        let is_token = |part: &str| {
            let other = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$&^_.+-".contains(&byte);
            !part.is_empty() && part.bytes().all(other)
        };
        let fits = text
            .split_once('/')
            .is_some_and(|(kind, sub)| is_token(kind) && (sub == "*" || is_token(sub)));
        if fits {
            types.push(text.to_ascii_lowercase());
        } else {
            let what = format!("{text:?} is no media type");
            check.error(&member.span, what, expected);
        }
    }
    types
}

/// What no document can say alone: names that a source has, and files that stand in each other's way.
pub(super) fn together(
    check: &mut Check,
    documents: &BTreeMap<String, Document>,
    sections: &[(&str, Table<'_>)],
    sources: &BTreeMap<String, Source>,
) {
    let mut seen: Vec<&Document> = Vec::new();
    for (name, table) in sections {
        if sources.contains_key(*name) {
            let what = format!("there is a source {name:?} as well");
            check.error(&table.span, what, "another name: both are synced by it");
        }
        let (Some(document), Some(item)) = (documents.get(*name), table.item("file")) else {
            continue;
        };
        for other in &seen {
            let (ours, theirs) = (&document.file, &other.file);
            let what = if ours == theirs {
                format!("{:?} and {name:?} are the same file", other.name)
            } else if ours.starts_with(theirs) || theirs.starts_with(ours) {
                format!(
                    "the file of one is a directory of the other, {:?} or {name:?}",
                    other.name
                )
            } else {
                continue;
            };
            check.error(&item.span, what, "a file for each document");
        }
        seen.push(document);
    }
}
