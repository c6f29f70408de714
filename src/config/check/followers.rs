//! Who follows the changes of a source: a journal, a program.

use std::time::Duration;

use toml::de::DeValue;

use super::{SECOND, path};
use crate::config::findings::Check;
use crate::config::raw::{JOURNAL, PROGRAM};
use crate::config::reader::{Item, Table};
use crate::config::{Journal, Program};

/// What a journal's file may be called.
const FILE: &str =
    "a name such as \"parts.ndjson\": letters, digits, `.`, `_` or `-`, no directory";

/// The smallest and the largest size at which a journal is put aside.
const ROTATE: (u64, u64) = (4096, 1 << 40);

/// `journal`: a file name, or a table.
pub(super) fn journal(check: &mut Check, source: &str, item: &Item<'_>) -> Option<Journal> {
    let mut journal = Journal {
        file: format!("{source}.ndjson"),
        rotate: 8 << 20,
        keep: 5,
    };
    if item.get().is_str() {
        journal.file = file(check, item)?;
        return Some(journal);
    }
    let expected =
        "a file name, or a table such as { file = \"parts.ndjson\", rotate = \"8MiB\", keep = 5 }";
    let table = item.table(check, &JOURNAL, expected)?;
    if let Some(item) = table.item("file") {
        journal.file = file(check, &item)?;
    }
    journal.rotate = rotate(check, &table).unwrap_or(journal.rotate);
    let keep = table.integer(check, "keep", journal.keep.into(), 1..=1000);
    journal.keep = u32::try_from(keep).unwrap_or(journal.keep);
    Some(journal)
}

fn rotate(check: &mut Check, table: &Table<'_>) -> Option<u64> {
    let item = table.item("rotate")?;
    let bytes = item.size(check, ROTATE.1)?;
    if bytes < ROTATE.0 {
        let what = "`rotate` is too small: each change would make a file";
        check.error(&item.span, what, "at least \"4KiB\"");
        return None;
    }
    Some(bytes)
}

fn file(check: &mut Check, item: &Item<'_>) -> Option<String> {
    let text = item.filled(check, FILE)?;
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if text.starts_with('.') || text.len() > 100 || !text.bytes().all(is_plain) {
        check.error(
            &item.span,
            format!(
                "`{}` is {text:?}, which is no name for a journal",
                item.label
            ),
            FILE,
        );
        return None;
    }
    Some(text.to_owned())
}

/// `on_change`: a program, alone, with its arguments, or in a table with its time limit.
pub(in crate::config) fn program(check: &mut Check, item: &Item<'_>) -> Option<Program> {
    let expected = "a program such as \"/usr/local/bin/on-parts\", a list with its arguments, or { run = [\"…\"], timeout = \"60s\" }";
    let minute = Duration::from_secs(60);
    if item.get().as_table().is_none() {
        return run(check, item, expected, minute);
    }
    let table = item.table(check, &PROGRAM, expected)?;
    let timeout = table.duration(check, "timeout", minute, SECOND);
    let item = table.required(check, "run", "[\"/usr/local/bin/on-parts\"]")?;
    run(check, &item, expected, timeout)
}

fn run(check: &mut Check, item: &Item<'_>, expected: &str, timeout: Duration) -> Option<Program> {
    if !matches!(item.get(), DeValue::String(_) | DeValue::Array(_)) {
        item.wrong_type(check, expected);
        return None;
    }
    let words = item.one_or_more();
    let Some((first, rest)) = words.split_first() else {
        check.error(
            &item.span,
            format!("`{}` is an empty list", item.label),
            expected,
        );
        return None;
    };
    let named = first.filled(check, expected)?;
    if !named.contains('/') {
        let what = format!(
            "`{}` names no path: {named:?} is not searched for",
            item.label
        );
        check.error(
            &first.span,
            what,
            "the program's whole path, or one from this file's directory on (\"./on-parts\")",
        );
        return None;
    }
    let path = path(check, first)?;
    let mut arguments = Vec::new();
    for word in rest {
        let text = word.string(check, "an argument in quotes")?;
        if text.contains('\0') {
            let what = format!("`{}` has a NUL character", item.label);
            check.error(&word.span, what, "an argument without it");
            return None;
        }
        arguments.push(text.to_owned());
    }
    Some(Program {
        path,
        arguments,
        timeout,
    })
}
