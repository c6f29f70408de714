//! What a record of a source is, and what is taken out of it.

use std::ops::Range;

use toml::de::DeValue;

use super::{NAME, is_name, path};
use crate::config::findings::Check;
use crate::config::raw::{DELETED, TIME_PATTERN, UPDATED};
use crate::config::reader::{Item, Table, pointer};
use crate::config::{Deleted, Ignore, TimeFormat, Updated};
use crate::contract::Rule;
use crate::contract::schema::{Schema, SchemaError};
use crate::json::time::{BadPattern, Pattern};
use crate::pointer::Pointer;

/// Columns that every table has.
const BUILT_IN_COLUMNS: [&str; 7] = [
    "key",
    "body",
    "updated",
    "fetched",
    "digest",
    "generation",
    "deleted",
];

pub(super) fn key(check: &mut Check, item: &Item<'_>) -> Option<Vec<Pointer>> {
    let members = item.one_or_more();
    if members.is_empty() {
        check.error(
            &item.span,
            "`key` is an empty list",
            "\"/id\", or a list of pointers",
        );
        return None;
    }
    let mut pointers: Vec<Pointer> = Vec::new();
    for member in &members {
        let Some(pointer) = member.pointer(check) else {
            continue;
        };
        if pointers.contains(&pointer) {
            check.error(
                &member.span,
                "`key` has the same pointer twice",
                "each once",
            );
        }
        pointers.push(pointer);
    }
    (pointers.len() == members.len()).then_some(pointers)
}

pub(super) fn ignore(check: &mut Check, item: &Item<'_>) -> Vec<Ignore> {
    let expected =
        "a pointer such as \"/fetched_at\" or \"/items/*/etag\", or the bare name of a field";
    let mut ignored = Vec::new();
    for member in item.one_or_more() {
        let Some(text) = member.filled(check, expected) else {
            continue;
        };
        if text.starts_with('/') {
            ignored.extend(pointer(check, "ignore", text, &member.span).map(Ignore::At));
        } else {
            ignored.push(Ignore::Anywhere(text.to_owned()));
        }
    }
    ignored
}

pub(super) fn deleted(check: &mut Check, item: &Item<'_>) -> Option<Deleted> {
    if item.get().is_str() {
        return Some(Deleted {
            pointer: item.pointer(check)?,
            equals: None,
        });
    }
    let expected = "a pointer such as \"/deleted\", { pointer = \"/status\", equals = \"deleted\" } or { pointer = \"/data\", null = true }";
    let table = item.table(check, &DELETED, expected)?;
    let pointer = table
        .required(check, "pointer", "\"/status\"")
        .and_then(|item| item.pointer(check));
    let mut equals = table.item("equals").and_then(|item| scalar(check, &item));
    if table.flag(check, "null") {
        if let Some(item) = table.item("equals") {
            check.error(
                &item.key,
                "`deleted` has both `equals` and `null`",
                "one of them",
            );
        }
        equals = Some(serde_json::Value::Null);
    }
    Some(Deleted {
        pointer: pointer?,
        equals,
    })
}

fn scalar(check: &mut Check, item: &Item<'_>) -> Option<serde_json::Value> {
    let expected = "a string, a number, or true or false";
    let value = match item.get() {
        DeValue::String(text) => Some(serde_json::Value::from(text.as_ref())),
        DeValue::Boolean(flag) => Some(serde_json::Value::from(*flag)),
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
            .ok()
            .map(Into::into),
        DeValue::Float(number) => number.as_str().parse().ok().and_then(finite),
        _ => {
            item.wrong_type(check, expected);
            return None;
        }
    };
    if value.is_none() {
        check.error(
            &item.span,
            format!("`{}` is a number that JSON does not have", item.label),
            expected,
        );
    }
    value
}

fn finite(number: f64) -> Option<serde_json::Value> {
    serde_json::Number::from_f64(number).map(serde_json::Value::Number)
}

pub(super) fn updated(check: &mut Check, item: &Item<'_>) -> Option<Updated> {
    if item.get().is_str() {
        return Some(Updated {
            field: item.pointer(check)?,
            format: TimeFormat::Rfc3339,
        });
    }
    let expected =
        "a pointer such as \"/updated_at\", or { field = \"/updated_at\", format = \"epoch-s\" }";
    let table = item.table(check, &UPDATED, expected)?;
    updated_at(check, &table)
}

/// `field` and `format` of a table.
pub(super) fn updated_at(check: &mut Check, table: &Table<'_>) -> Option<Updated> {
    let field = table
        .required(check, "field", "\"/updated_at\"")
        .and_then(|item| item.pointer(check));
    let format = match table.item("format") {
        Some(item) => time_format(check, &item),
        None => Some(TimeFormat::Rfc3339),
    };
    Some(Updated {
        field: field?,
        format: format?,
    })
}

/// One of the formats by name, or a pattern with its zone.
pub(super) fn time_format(check: &mut Check, item: &Item<'_>) -> Option<TimeFormat> {
    if item.get().as_table().is_none() {
        return item.choice(check, &TIME_FORMATS);
    }
    let form = "{ pattern = \"%Y-%m-%d %H:%M:%S\", zone = \"Europe/Berlin\" }";
    let table = item.table(check, &TIME_PATTERN, form)?;
    let item = table.required(check, "pattern", "\"%Y-%m-%d %H:%M:%S\"")?;
    let text = item.filled(check, "\"%Y-%m-%d %H:%M:%S\"")?;
    let zone = table.string(check, "zone", ZONE);
    match Pattern::new(text, zone) {
        Ok(pattern) => Some(TimeFormat::Pattern(pattern)),
        Err(bad @ BadPattern::UnknownZone) => {
            let span = table
                .item("zone")
                .map_or(item.span.clone(), |item| item.span);
            check.error(&span, format!("`zone` {bad}"), ZONE);
            None
        }
        Err(bad) => {
            let expected = match bad {
                BadPattern::NoZone => form,
                _ => "directives such as \"%Y-%m-%d %H:%M:%S\"",
            };
            check.error(&item.span, format!("`pattern` {bad}"), expected);
            None
        }
    }
}

const ZONE: &str = "\"UTC\", an offset such as \"+01:00\", a name such as \"Europe/Berlin\" (of the package tzdata), or rules such as \"CET-1CEST,M3.5.0,M10.5.0/3\"";

/// How the file names each format.
const TIME_FORMATS: [(&str, TimeFormat); 6] = [
    ("rfc3339", TimeFormat::Rfc3339),
    ("rfc3339-ms", TimeFormat::Rfc3339Ms),
    ("rfc3339-us", TimeFormat::Rfc3339Us),
    ("epoch-s", TimeFormat::EpochS),
    ("epoch-ms", TimeFormat::EpochMs),
    ("epoch-us", TimeFormat::EpochUs),
];

pub(super) fn require(check: &mut Check, item: &Item<'_>) -> Vec<(Pointer, Rule)> {
    let expected = "a table such as { \"/name\" = \"string\", \"/mass_g\" = \"number >= 0\" }";
    let mut rules: Vec<(Pointer, Rule)> = Vec::new();
    for (place, item) in item.entries(check, expected) {
        let place = pointer(check, "require", place, &item.key);
        let Some(text) = item.string(check, "a rule such as \"number >= 0\"") else {
            continue;
        };
        match Rule::parse(text) {
            Ok(rule) => rules.extend(place.map(|place| (place, rule))),
            Err(error) => {
                let what = format!("the rule for {:?}: {error}", item.label);
                check.error(
                    &item.span,
                    what,
                    "a rule such as \"string\", \"number >= 0\" or \"string | null\"",
                );
            }
        }
    }
    rules
}

/// A schema, by its file.
pub(super) fn schema(check: &mut Check, item: &Item<'_>) -> Option<Schema> {
    let path = path(check, item)?;
    let expected = |error: &SchemaError| match error {
        SchemaError::NotBuiltIn => {
            "one that was built with it (`cargo build --release --features schema`), or rules in `require`"
        }
        SchemaError::Unreadable(_) | SchemaError::TooLong => "the path of a JSON Schema",
        SchemaError::Wrong(_) => "a JSON Schema that needs no other file",
    };
    match Schema::read(&path) {
        Ok(schema) => Some(schema),
        Err(error) => {
            let what = match error {
                SchemaError::NotBuiltIn => format!("`schema`: {error}"),
                _ => format!("`schema`: {}: {error}", path.display()),
            };
            check.error(&item.span, what, expected(&error));
            None
        }
    }
}

pub(super) fn columns(check: &mut Check, item: &Item<'_>) -> Vec<(String, Pointer)> {
    let mut columns: Vec<(String, Pointer)> = Vec::new();
    for (name, item) in item.entries(check, "a table such as { name = \"/name\" }") {
        column_name(check, name, &item.key, &columns);
        columns.extend(
            item.pointer(check)
                .map(|pointer| (name.to_owned(), pointer)),
        );
    }
    columns
}

fn column_name(check: &mut Check, name: &str, span: &Range<usize>, columns: &[(String, Pointer)]) {
    if !is_name(name) {
        check.error(
            span,
            format!("{name:?} can't be the name of a column"),
            NAME,
        );
    }
    if BUILT_IN_COLUMNS
        .iter()
        .any(|built_in| built_in.eq_ignore_ascii_case(name))
    {
        let what = format!("the column {name:?} is one that every table has");
        check.error(
            span,
            what,
            format!("another name than {}", BUILT_IN_COLUMNS.join(", ")),
        );
    }
    if let Some((other, _)) = columns
        .iter()
        .find(|(other, _)| other.eq_ignore_ascii_case(name))
    {
        let what =
            format!("the columns {other:?} and {name:?} differ in upper and lower case only");
        check.error(span, what, "names that make different SQLite columns");
    }
}
