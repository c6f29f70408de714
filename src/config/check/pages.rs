//! `pages` in its forms.

use super::is_header_name;
use crate::config::findings::Check;
use crate::config::raw::{PAGE_SIZE, PAGES};
use crate::config::reader::{Item, Table};
use crate::config::{More, PageSize, Pages};

const FORMS: &str = "\"single\", \"link\", { next = \"/links/next\" }, { links = \"/links\" }, { next_header = \"Next-Page\" }, \
     { token = \"/next_cursor\", param = \"cursor\" }, { token_header = \"X-Next\", param = \"cursor\" }, \
     { page = \"page\", first = 1, size = { param = \"per_page\", value = 100 } }, \
     { offset = \"offset\", size = { param = \"limit\", value = 100 } } or \
     { last_key = \"/id\", param = \"starting_after\" }";

/// The key that makes a form what it is, what else it takes, and how it is written.
const FORM_KEYS: [(&str, &[&str], &str); 8] = [
    (
        "next",
        &["more", "end"],
        "{ next = \"/links/next\" }, perhaps with more = \"/has_more\" or end = \"/end_of_stream\"",
    ),
    ("links", &[], "{ links = \"/links\" }"),
    ("next_header", &[], "{ next_header = \"Next-Page\" }"),
    (
        "token",
        &["param", "more", "end"],
        "{ token = \"/next_cursor\", param = \"cursor\" }, perhaps with more = \"/has_more\"",
    ),
    (
        "token_header",
        &["param"],
        "{ token_header = \"X-Next\", param = \"cursor\" }",
    ),
    (
        "page",
        &["first", "size", "more", "end"],
        "{ page = \"page\" }, perhaps with first = 1, size = { param = \"per_page\", value = 100 }, more = \"/has_more\"",
    ),
    (
        "offset",
        &["size", "more", "end"],
        "{ offset = \"offset\", size = { param = \"limit\", value = 100 } }, perhaps with more = \"/has_more\"",
    ),
    (
        "last_key",
        &["param", "more", "end"],
        "{ last_key = \"/id\", param = \"starting_after\" }, perhaps with more = \"/has_more\"",
    ),
];

/// Reads `pages`. `None`: noted why not.
pub(super) fn pages(check: &mut Check, source: &Table<'_>) -> Option<Pages> {
    let Some(item) = source.item("pages") else {
        return Some(Pages::Single);
    };
    match item.get().as_str() {
        Some("single") => return Some(Pages::Single),
        Some("link") => return Some(Pages::Link),
        Some(other) => {
            check.error(&item.span, format!("`pages` is {other:?}"), FORMS);
            return None;
        }
        None => {}
    }
    let table = item.table(check, &PAGES, FORMS)?;
    let (form, example) = form(check, &item, &table)?;
    let param = |check: &mut Check, key: &str| {
        table
            .required(check, key, "\"name\"")
            .and_then(|item| parameter(check, &item))
    };
    let more = more(check, &table);
    match form.label.as_str() {
        "next" => form.pointer(check).map(|next| Pages::Next { next, more }),
        "links" => form.pointer(check).map(Pages::Links),
        "next_header" => header(check, &form).map(Pages::NextHeader),
        "token" => {
            let (token, param) = (form.pointer(check), param(check, "param"));
            Some(Pages::Token {
                token: token?,
                param: param?,
                more,
            })
        }
        "token_header" => {
            let (header, param) = (header(check, &form), param(check, "param"));
            Some(Pages::TokenHeader {
                header: header?,
                param: param?,
            })
        }
        "page" => {
            let first = table.integer(check, "first", 1, 0..=u64::from(u32::MAX));
            let size = table
                .item("size")
                .and_then(|item| page_size(check, &item, example));
            Some(Pages::Page {
                param: parameter(check, &form)?,
                first,
                size,
                more,
            })
        }
        "offset" => {
            let size = table.required(check, "size", "{ param = \"limit\", value = 100 }");
            let size = size.and_then(|item| page_size(check, &item, example));
            Some(Pages::Offset {
                param: parameter(check, &form)?,
                size: size?,
                more,
            })
        }
        _ => {
            let (key, param) = (form.pointer(check), param(check, "param"));
            Some(Pages::LastKey {
                key: key?,
                param: param?,
                more,
            })
        }
    }
}

/// The one form that the table has; keys of another form are errors.
fn form<'t>(
    check: &mut Check,
    item: &Item<'_>,
    table: &Table<'t>,
) -> Option<(Item<'t>, &'static str)> {
    let mut found = FORM_KEYS
        .iter()
        .filter_map(|form| Some((form, table.item(form.0)?)));
    let Some(((name, others, example), form)) = found.next() else {
        if table.is_clean {
            check.error(&item.span, "`pages` has none of its forms", FORMS);
        }
        return None;
    };
    if let Some(((other, ..), _)) = found.next() {
        check.error(
            &item.span,
            format!("`pages` mixes `{name}` and `{other}`"),
            FORMS,
        );
        return None;
    }
    for key in PAGES
        .known
        .iter()
        .filter(|key| *key != name && !others.contains(key))
    {
        if let Some(stray) = table.item(key) {
            check.error(
                &stray.key,
                format!("`{key}` does not go with `{name}` in `pages`"),
                *example,
            );
        }
    }
    Some((form, example))
}

/// `more` or `end`: the API's own word on whether there is more.
fn more(check: &mut Check, table: &Table<'_>) -> Option<More> {
    let more = table.pointer(check, "more").map(|at| More {
        at,
        says_end: false,
    });
    let end = table
        .pointer(check, "end")
        .map(|at| More { at, says_end: true });
    if let (Some(_), Some(_), Some(item)) = (&more, &end, table.item("end")) {
        check.error(
            &item.key,
            "`pages` has both `more` and `end`",
            "the one that the API tells the truth in",
        );
    }
    more.or(end)
}

fn page_size(check: &mut Check, item: &Item<'_>, example: &str) -> Option<PageSize> {
    let table = item.table(check, &PAGE_SIZE, example)?;
    let param = table
        .required(check, "param", "\"limit\"")
        .and_then(|item| parameter(check, &item));
    let value = table
        .required(check, "value", "100")
        .and_then(|item| item.integer(check, 1..=1_000_000));
    Some(PageSize {
        param: param?,
        value: value?,
    })
}

fn parameter(check: &mut Check, item: &Item<'_>) -> Option<String> {
    item.filled(check, "the name of a query parameter")
        .map(str::to_owned)
}

fn header(check: &mut Check, item: &Item<'_>) -> Option<String> {
    let expected = "the name of a response header";
    let name = item.filled(check, expected)?;
    if !is_header_name(name) {
        check.error(
            &item.span,
            format!("{name:?} is no header's name"),
            expected,
        );
        return None;
    }
    Some(name.to_owned())
}

/// The query parameters that the agent writes for these pages.
pub(super) fn written_parameters(pages: &Pages) -> Vec<&str> {
    match pages {
        Pages::Page { param, size, .. } => {
            let size = size.as_ref().map(|size| size.param.as_str());
            size.into_iter().chain([param.as_str()]).collect()
        }
        Pages::Offset { param, size, .. } => vec![param, &size.param],
        // A first token may be part of the URL (`cursor=*`); later ones replace it.
        _ => Vec::new(),
    }
}

/// Which of the keys of `pages` looks into a JSON body, if one does.
pub(super) fn looks_into_body(pages: &Pages) -> Option<&'static str> {
    match pages {
        Pages::Next { .. } => Some("next"),
        Pages::Links(_) => Some("links"),
        Pages::Token { .. } => Some("token"),
        Pages::Page {
            more: Some(more), ..
        }
        | Pages::Offset {
            more: Some(more), ..
        }
        | Pages::LastKey {
            more: Some(more), ..
        } => Some(if more.says_end { "end" } else { "more" }),
        _ => None,
    }
}
