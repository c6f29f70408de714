//! `pull` in its forms, and the times of `reconcile`.

use std::time::Duration;

use super::record::{time_format, updated_at};
use super::{DAY, SECOND, is_header_name};
use crate::config::findings::Check;
use crate::config::raw::{CURSOR, PULL, TIME_PARAM, WINDOW};
use crate::config::reader::{Item, Table};
use crate::config::value::print_duration;
use crate::config::{
    Cursor, CursorFrom, Param, Pull, TimeFormat, TimeOfDay, TimeParam, Updated, Window,
};

const FORMS: &str = "\"snapshot\", { window = { field = \"/updated_at\", since = \"updated_since\" } }, \
     { cursor = { pointer = \"/next\", param = \"since\" } } or \"none\"";
const WINDOW_FORM: &str =
    "a table such as { field = \"/updated_at\", since = \"updated_since\", lateness = \"6h\" }";
const CURSOR_FORM: &str = "a table such as { header = \"ETag\", param = \"_since\" }, { pointer = \"/end_time\", param = \"start_time\" } \
     or { field = \"/seq\", param = \"after\" }";
const SINCE_FORM: &str = "the name of a query parameter, or { param = \"since\", template = \"{}\", format = \"epoch-ms\" }";

/// How long records may take to become visible unless the config knows better.
const LATENESS: u32 = 6 * 3600;

/// Reads `pull`, and the update time where a window names one. `None`: noted why not.
pub(super) fn pull(check: &mut Check, source: &Table<'_>) -> Option<(Pull, Option<Updated>)> {
    let updated = source.item("updated");
    let plain = |check: &mut Check| {
        updated
            .as_ref()
            .and_then(|item| super::record::updated(check, item))
    };
    let Some(item) = source.item("pull") else {
        return Some((Pull::Snapshot, plain(check)));
    };
    if item.get().as_table().is_none() {
        let forms = [("snapshot", false), ("none", true)];
        let none = match item.get().as_str() {
            Some("window" | "cursor") | None => {
                check.error(&item.span, format!("`pull` is {}", shown(&item)), FORMS);
                return None;
            }
            Some(_) => item.choice(check, &forms)?,
        };
        let pull = if none { Pull::None } else { Pull::Snapshot };
        return Some((pull, plain(check)));
    }
    let table = item.table(check, &PULL, FORMS)?;
    match (table.item("window"), table.item("cursor")) {
        (Some(window), None) => {
            if let Some(updated) = updated {
                check.error(
                    &updated.key,
                    "`updated` is what a window's `field` and `format` say",
                    "them in `window` alone",
                );
            }
            let (window, updated) = self::window(check, &window)?;
            Some((Pull::Window(window), Some(updated)))
        }
        (None, Some(cursor)) => {
            let cursor = self::cursor(check, &cursor);
            let updated = plain(check);
            Some((Pull::Cursor(cursor?), updated))
        }
        (Some(_), Some(_)) => {
            check.error(&item.span, "`pull` mixes `window` and `cursor`", FORMS);
            None
        }
        (None, None) => {
            if table.is_clean {
                check.error(&item.span, "`pull` has none of its forms", FORMS);
            }
            None
        }
    }
}

fn shown(item: &Item<'_>) -> String {
    item.get().as_str().map_or_else(
        || "no string and no table".to_owned(),
        |text| format!("{text:?}"),
    )
}

fn window(check: &mut Check, item: &Item<'_>) -> Option<(Window, Updated)> {
    let table = item.table(check, &WINDOW, WINDOW_FORM)?;
    let updated = updated_at(check, &table);
    let format = updated
        .as_ref()
        .map_or(TimeFormat::Rfc3339, |updated| updated.format.clone());
    let since = table
        .required(check, "since", "\"updated_since\"")
        .and_then(|item| time_param(check, &item, format));
    let like_since = since
        .as_ref()
        .map_or(TimeFormat::Rfc3339, |since| since.format.clone());
    let until = table
        .item("until")
        .and_then(|item| time_param(check, &item, like_since));
    if let (Some(since), Some(until), Some(item)) = (&since, &until, table.item("until")) {
        if since.param.name == until.param.name {
            check.error(
                &item.span,
                "`since` and `until` are the same parameter",
                "two parameters; where one takes both ends (`datetime=a/b`), leave `until` out: `since = { param = \"datetime\", template = \"{}/..\" }`",
            );
        }
    }
    let lateness = table.duration(check, "lateness", SECOND * LATENESS, SECOND);
    let first = table
        .item("first")
        .and_then(|item| item.duration(check, SECOND));
    let step = table
        .item("step")
        .and_then(|item| item.duration(check, SECOND));
    if let (true, Some(item)) = (step.is_some() && until.is_none(), table.item("step")) {
        check.error(
            &item.key,
            "`step` cuts a long window into several, and these need an end",
            "an `until` beside it",
        );
    }
    // Starts of windows are on a grid of a sixth of the lateness: a shorter step would not get ahead.
    if let (Some(_), Some(item)) = (step.filter(|step| *step < lateness / 6), table.item("step")) {
        let least = Duration::from_secs((lateness / 6).as_secs() + 1);
        check.error(
            &item.span,
            "`step` is shorter than a sixth of `lateness`",
            format!("\"{}\" or more", print_duration(least)),
        );
    }
    let window = Window {
        since: since?,
        until,
        lateness,
        first,
        step,
    };
    Some((window, updated?))
}

fn time_param(check: &mut Check, item: &Item<'_>, format: TimeFormat) -> Option<TimeParam> {
    if item.get().is_str() {
        let name = item.filled(check, SINCE_FORM)?.to_owned();
        return Some(TimeParam {
            param: Param {
                name,
                template: "{}".to_owned(),
            },
            format,
        });
    }
    let table = item.table(check, &TIME_PARAM, SINCE_FORM)?;
    let name = table
        .required(check, "param", "\"since\"")
        .and_then(|item| {
            item.filled(check, "the name of a query parameter")
                .map(str::to_owned)
        });
    let template = template(check, &table);
    let format = match table.item("format") {
        Some(item) => time_format(check, &item)?,
        None => format,
    };
    Some(TimeParam {
        param: Param {
            name: name?,
            template: template?,
        },
        format,
    })
}

/// `template`: what stands around the value, with `{}` where it goes.
fn template(check: &mut Check, table: &Table<'_>) -> Option<String> {
    let Some(item) = table.item("template") else {
        return Some("{}".to_owned());
    };
    let expected = "a text with {} where the value goes, once, such as \"\\\"{}\\\"\" or \"{}/..\"";
    let text = item.filled(check, expected)?;
    if text.matches("{}").count() != 1 {
        check.error(&item.span, format!("`template` is {text:?}"), expected);
        return None;
    }
    Some(text.to_owned())
}

fn cursor(check: &mut Check, item: &Item<'_>) -> Option<Cursor> {
    let table = item.table(check, &CURSOR, CURSOR_FORM)?;
    let forms = ["header", "pointer", "field"];
    let given: Vec<Item<'_>> = forms.iter().filter_map(|form| table.item(form)).collect();
    let from = match &given[..] {
        [one] if one.label == "header" => {
            let expected = "the name of a response header";
            let name = one.filled(check, expected)?;
            if !is_header_name(name) {
                check.error(&one.span, format!("{name:?} is no header's name"), expected);
                return None;
            }
            Some(CursorFrom::Header(name.to_owned()))
        }
        [one] if one.label == "pointer" => one.pointer(check).map(CursorFrom::Pointer),
        [one] => one.pointer(check).map(CursorFrom::Field),
        [] => {
            check.error(
                &item.span,
                "`cursor` does not say where it comes from",
                CURSOR_FORM,
            );
            None
        }
        [one, other, ..] => {
            let what = format!("`cursor` mixes `{}` and `{}`", one.label, other.label);
            check.error(&item.span, what, CURSOR_FORM);
            None
        }
    };
    let name = table
        .required(check, "param", "\"since\"")
        .and_then(|item| {
            item.filled(check, "the name of a query parameter")
                .map(str::to_owned)
        });
    let template = template(check, &table);
    let first = table.item("first").and_then(|item| {
        item.string(check, "what a pass without a cursor sends, such as \"0\"")
            .map(str::to_owned)
    });
    Some(Cursor {
        from: from?,
        param: Param {
            name: name?,
            template: template?,
        },
        first,
    })
}

/// The query parameters that the agent writes for this way of pulling.
pub(super) fn written_parameters(pull: &Pull) -> Vec<&str> {
    match pull {
        Pull::Snapshot | Pull::None => Vec::new(),
        Pull::Window(window) => [Some(&window.since), window.until.as_ref()]
            .into_iter()
            .flatten()
            .map(|time| time.param.name.as_str())
            .collect(),
        Pull::Cursor(cursor) => vec![&cursor.param.name],
    }
}

/// How often a source reconciles by itself, if the config does not say.
pub(super) fn reconcile_every(pull: &Pull) -> Option<Duration> {
    match pull {
        Pull::Window(_) | Pull::Cursor(_) => Some(30 * DAY),
        Pull::Snapshot | Pull::None => None,
    }
}

/// `at`: a time of day.
pub(super) fn time_of_day(check: &mut Check, item: &Item<'_>) -> Option<TimeOfDay> {
    let expected = "a time of day such as \"03:30\"";
    let text = item.string(check, expected)?;
    let time = text.split_once(':').and_then(|(hours, minutes)| {
        let two = |text: &str, below: u16| {
            let digits = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
            let number: u16 = text.parse().ok()?;
            (digits && number < below).then_some(number)
        };
        Some(TimeOfDay(two(hours, 24)? * 60 + two(minutes, 60)?))
    });
    if time.is_none() {
        check.error(&item.span, format!("`at` is {text:?}"), expected);
    }
    time
}
