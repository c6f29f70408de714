//! A reader over the parsed TOML that knows where each value stands.
//!
//! serde's derive stops at the first error and loses the places inside of `untagged` forms, so this walks the spanned
//! tree itself: every reader notes what is wrong and goes on, so that one run shows everything.

use std::ops::{Range, RangeInclusive};
use std::time::Duration;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::findings::Check;
use super::nearest::nearest;
use super::raw::Keys;
use super::value::{ValueError, parse_duration, parse_size, print_duration, print_size};
use crate::pointer::Pointer;

/// A table whose keys are known.
#[derive(Debug)]
pub(super) struct Table<'t> {
    /// How messages call it: `[source.parts]`, `pages`; empty for the file as a whole.
    pub(super) label: String,
    /// Where to point when something is missing.
    pub(super) span: Range<usize>,
    /// Whether it has no key that it does not take.
    pub(super) is_clean: bool,
    entries: &'t DeTable<'t>,
}

impl<'t> Table<'t> {
    /// Opens a table; keys that it does not take are errors.
    pub(super) fn open(
        check: &mut Check,
        keys: &Keys,
        label: String,
        span: Range<usize>,
        entries: &'t DeTable<'t>,
    ) -> Self {
        let mut is_clean = true;
        for (key, value) in entries {
            let name: &str = key.get_ref();
            if keys.known.contains(&name) {
                continue;
            }
            is_clean = false;
            check.hide_all(value);
            if keys.later.contains(&name) {
                let what = if label.is_empty() {
                    format!("[{name}]")
                } else {
                    format!("`{name}` in {label}")
                };
                check.refuse(
                    &key.span(),
                    format!("{what} is not supported by this version"),
                );
            } else if keys.upstream.contains(&name) {
                check.refuse(
                    &key.span(),
                    format!("`{name}` belongs to an upstream: write it in [upstream.NAME], and `upstream` here"),
                );
            } else {
                unknown_key(check, keys, &label, name, &key.span());
            }
        }
        Self {
            label,
            span,
            is_clean,
            entries,
        }
    }

    /// The value of `key`, if it is there.
    pub(super) fn item(&self, key: &str) -> Option<Item<'t>> {
        let (name, value) = self.entries.get_key_value(key)?;
        Some(Item {
            label: key.to_owned(),
            key: name.span(),
            span: value.span(),
            value,
        })
    }

    /// The value of `key`; an error if it is not there.
    pub(super) fn required(&self, check: &mut Check, key: &str, example: &str) -> Option<Item<'t>> {
        let item = self.item(key);
        if item.is_none() {
            check.error(
                &self.span,
                format!("{} has no `{key}`", self.label),
                format!("`{key} = {example}`"),
            );
        }
        item
    }

    pub(super) fn string(&self, check: &mut Check, key: &str, example: &str) -> Option<&'t str> {
        self.item(key)?.string(check, example)
    }

    pub(super) fn pointer(&self, check: &mut Check, key: &str) -> Option<Pointer> {
        self.item(key)?.pointer(check)
    }

    pub(super) fn duration(
        &self,
        check: &mut Check,
        key: &str,
        default: Duration,
        min: Duration,
    ) -> Duration {
        self.item(key)
            .and_then(|item| item.duration(check, min))
            .unwrap_or(default)
    }

    pub(super) fn size(&self, check: &mut Check, key: &str, default: u64, max: u64) -> u64 {
        self.item(key)
            .and_then(|item| item.size(check, max))
            .unwrap_or(default)
    }

    pub(super) fn integer(
        &self,
        check: &mut Check,
        key: &str,
        default: u64,
        range: RangeInclusive<u64>,
    ) -> u64 {
        self.item(key)
            .and_then(|item| item.integer(check, range))
            .unwrap_or(default)
    }

    /// `false` by default.
    pub(super) fn flag(&self, check: &mut Check, key: &str) -> bool {
        self.item(key)
            .and_then(|item| item.flag(check))
            .unwrap_or(false)
    }

    pub(super) fn choice<T: Clone>(
        &self,
        check: &mut Check,
        key: &str,
        default: T,
        choices: &[(&str, T)],
    ) -> T {
        self.item(key)
            .and_then(|item| item.choice(check, choices))
            .unwrap_or(default)
    }
}

/// A value and where it stands.
#[derive(Debug)]
pub(super) struct Item<'t> {
    /// Its key.
    pub(super) label: String,
    /// Where the key is.
    pub(super) key: Range<usize>,
    /// Where the value is.
    pub(super) span: Range<usize>,
    /// The value.
    pub(super) value: &'t Spanned<DeValue<'t>>,
}

impl<'t> Item<'t> {
    pub(super) fn get(&self) -> &'t DeValue<'t> {
        self.value.get_ref()
    }

    /// Notes that the value is of another type than the key takes.
    pub(super) fn wrong_type(&self, check: &mut Check, expected: &str) {
        let is = match self.get() {
            DeValue::String(_) => "a string",
            DeValue::Integer(_) => "a whole number",
            DeValue::Float(_) => "a number with decimals",
            DeValue::Boolean(_) => "true or false",
            DeValue::Datetime(_) => "a date or time",
            DeValue::Array(_) => "a list",
            DeValue::Table(_) => "a table",
        };
        check.error(&self.span, format!("`{}` is {is}", self.label), expected);
    }

    /// A string; `expected` says what it would hold.
    pub(super) fn string(&self, check: &mut Check, expected: &str) -> Option<&'t str> {
        let text = self.get().as_str();
        if text.is_none() {
            self.wrong_type(check, expected);
        }
        text
    }

    /// A string that is not empty.
    pub(super) fn filled(&self, check: &mut Check, expected: &str) -> Option<&'t str> {
        let text = self.string(check, expected)?;
        if text.is_empty() {
            check.error(&self.span, format!("`{}` is empty", self.label), expected);
            return None;
        }
        Some(text)
    }

    pub(super) fn flag(&self, check: &mut Check) -> Option<bool> {
        let flag = self.get().as_bool();
        if flag.is_none() {
            self.wrong_type(check, "true or false, without quotes");
        }
        flag
    }

    pub(super) fn duration(&self, check: &mut Check, min: Duration) -> Option<Duration> {
        let expected = "a duration such as \"15m\", \"1h30m\" or \"500ms\" (units d, h, m, s, ms)";
        let text = self.string(check, expected)?;
        let span = self.parsed(check, text, parse_duration(text), expected)?;
        if span < min {
            let what = format!("`{}` is {text}, which is too short", self.label);
            check.error(
                &self.span,
                what,
                format!("at least \"{}\"", print_duration(min)),
            );
            return None;
        }
        Some(span)
    }

    pub(super) fn size(&self, check: &mut Check, max: u64) -> Option<u64> {
        let expected =
            "a size such as \"1MiB\", \"64kB\" or \"512B\" (units B, kB, MB, GB, KiB, MiB, GiB)";
        let text = self.string(check, expected)?;
        let bytes = self.parsed(check, text, parse_size(text), expected)?;
        if bytes == 0 || bytes > max {
            let what = format!("`{}` is {text}, which is out of range", self.label);
            check.error(
                &self.span,
                what,
                format!("\"1B\" to \"{}\"", print_size(max)),
            );
            return None;
        }
        Some(bytes)
    }

    fn parsed<T>(
        &self,
        check: &mut Check,
        text: &str,
        result: Result<T, ValueError>,
        expected: &str,
    ) -> Option<T> {
        result
            .map_err(|error| {
                check.error(
                    &self.span,
                    format!("`{}`: {text:?} {error}", self.label),
                    expected,
                )
            })
            .ok()
    }

    pub(super) fn integer(&self, check: &mut Check, range: RangeInclusive<u64>) -> Option<u64> {
        let expected = match range.end() {
            &u64::MAX => format!("a whole number, {} or more", range.start()),
            end => format!("a whole number from {} to {end}", range.start()),
        };
        let DeValue::Integer(number) = self.get() else {
            self.wrong_type(check, &expected);
            return None;
        };
        let value = u64::from_str_radix(number.as_str(), number.radix())
            .ok()
            .filter(|value| range.contains(value));
        if value.is_none() {
            check.error(
                &self.span,
                format!("`{}` is out of range", self.label),
                expected,
            );
        }
        value
    }

    pub(super) fn choice<T: Clone>(&self, check: &mut Check, choices: &[(&str, T)]) -> Option<T> {
        let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
        let expected = or_list(&names);
        let text = self.string(check, &expected)?;
        let found = choices
            .iter()
            .find(|(name, _)| *name == text)
            .map(|(_, value)| value.clone());
        if found.is_none() {
            let hint = nearest(text, &names)
                .map_or(String::new(), |name| format!(" (did you mean \"{name}\"?)"));
            check.error(
                &self.span,
                format!("`{}` is {text:?}{hint}", self.label),
                expected,
            );
        }
        found
    }

    pub(super) fn pointer(&self, check: &mut Check) -> Option<Pointer> {
        let text = self.string(check, "a JSON Pointer such as \"/items\"")?;
        pointer(check, &self.label, text, &self.span)
    }

    /// A table that takes `keys`.
    pub(super) fn table(
        &self,
        check: &mut Check,
        keys: &Keys,
        expected: &str,
    ) -> Option<Table<'t>> {
        let Some(entries) = self.get().as_table() else {
            self.wrong_type(check, expected);
            return None;
        };
        Some(Table::open(
            check,
            keys,
            format!("`{}`", self.label),
            self.key.clone(),
            entries,
        ))
    }

    /// The entries of a table with keys of the user's own, in the file's order.
    pub(super) fn entries(&self, check: &mut Check, expected: &str) -> Vec<(&'t str, Item<'t>)> {
        let Some(entries) = self.get().as_table() else {
            self.wrong_type(check, expected);
            return Vec::new();
        };
        let mut items: Vec<(&'t str, Item<'t>)> = entries
            .iter()
            .map(|(key, value)| {
                let name: &'t str = key.get_ref();
                (
                    name,
                    Item {
                        label: name.to_owned(),
                        key: key.span(),
                        span: value.span(),
                        value,
                    },
                )
            })
            .collect();
        items.sort_by_key(|(_, item)| item.key.start);
        items
    }

    /// The members of a list, or the value itself as the only one.
    pub(super) fn one_or_more(&self) -> Vec<Item<'t>> {
        let member = |value: &'t Spanned<DeValue<'t>>| Item {
            label: self.label.clone(),
            key: self.key.clone(),
            span: value.span(),
            value,
        };
        match self.get() {
            DeValue::Array(list) => list.iter().map(member).collect(),
            _ => vec![member(self.value)],
        }
    }
}

/// Reads a JSON Pointer that stands at `span`.
pub(super) fn pointer(
    check: &mut Check,
    label: &str,
    text: &str,
    span: &Range<usize>,
) -> Option<Pointer> {
    if !text.is_empty() && !text.starts_with('/') {
        let what = format!("`{label}` is {text:?}, which is no JSON Pointer");
        check.error(
            span,
            what,
            format!("\"/{}\" (RFC 6901)", text.escape_debug()),
        );
        return None;
    }
    let parsed = Pointer::parse(text);
    parsed
        .map_err(|error| {
            check.error(
                span,
                format!("`{label}`: {error}"),
                "a JSON Pointer (RFC 6901)",
            )
        })
        .ok()
}

/// `"a", "b" or "c"`
pub(super) fn or_list(names: &[&str]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("{name:?}")).collect();
    match &quoted[..] {
        [] => String::new(),
        [only] => only.clone(),
        [start @ .., last] => format!("{} or {last}", start.join(", ")),
    }
}

fn unknown_key(check: &mut Check, keys: &Keys, label: &str, name: &str, span: &Range<usize>) {
    let hint =
        nearest(name, keys.known).map_or(String::new(), |key| format!(" (did you mean `{key}`?)"));
    let known = keys
        .known
        .iter()
        .map(|key| format!("`{key}`"))
        .collect::<Vec<_>>()
        .join(", ");
    let place = if label.is_empty() {
        String::new()
    } else {
        format!(" in {label}")
    };
    check.error(
        span,
        format!("unknown key `{}`{place}{hint}", name.escape_debug()),
        format!("one of {known}"),
    );
}
