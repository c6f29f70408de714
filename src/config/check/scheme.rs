//! `scheme` of a hook, by name or spelled out, and the places of values in its requests.

use super::is_header_name;
use crate::config::findings::Check;
use crate::config::nearest::nearest;
use crate::config::raw::{HMAC, HMAC_TIME, HOOK_PLACE, SCHEME};
use crate::config::reader::{Item, Table, or_list};
use crate::hook::scheme::{
    Encoding, Holds, Part, Seal, SecretForm, Stamp, StampAt, StampFormat, parts,
};
use crate::hook::{Place, Scheme};

/// Senders that sign their URL as well.
const SIGN_THE_URL: [&str; 2] = ["square", "twilio"];

/// How the file names each way of writing a secret.
pub(in crate::config) const SECRET_FORMS: [(&str, SecretForm); 4] = [
    ("text", SecretForm::Text),
    ("base64", SecretForm::Base64),
    ("hex", SecretForm::Hex),
    ("whsec", SecretForm::Standard),
];

const FORM: &str =
    "{ hmac-sha256 = { header = \"X-Signature\", encoding = \"hex\", signed = \"{body}\" } }";

/// Reads `scheme`.
pub(super) fn scheme(check: &mut Check, item: &Item<'_>) -> Option<Scheme> {
    let names: Vec<&str> = Scheme::names().collect();
    let Some(name) = item.get().as_str() else {
        let expected = format!("{}, or {FORM}", or_list(&names));
        let table = item.table(check, &SCHEME, &expected)?;
        let hmac = table.required(check, Scheme::SPELLED_OUT, "{ … }")?;
        return seal(check, &hmac).map(Scheme::spelled_out);
    };
    let scheme = Scheme::named(name);
    if scheme.is_none() {
        if SIGN_THE_URL.contains(&name) {
            check.refuse(
                &item.span,
                format!("{name} signs the URL as well, which is not supported by this version"),
            );
            return None;
        }
        let hint = nearest(name, &names)
            .map_or(String::new(), |near| format!(" (did you mean {near:?}?)"));
        check.error(
            &item.span,
            format!("`scheme` is {name:?}{hint}"),
            format!("{}, or {FORM}", or_list(&names)),
        );
    }
    scheme
}

fn seal(check: &mut Check, item: &Item<'_>) -> Option<Seal> {
    let table = item.table(check, &HMAC, FORM)?;
    let header = table
        .required(check, "header", "\"X-Signature\"")
        .and_then(|item| header_name(check, &item));
    let holds = holds(check, &table);
    let id = match table.item("id") {
        Some(item) => Some(header_name(check, &item)?),
        None => None,
    };
    let is_pairs = matches!(holds, Holds::Pairs(_));
    let time = match table.item("time") {
        Some(item) => Some(time(check, &item, is_pairs)?),
        None => None,
    };
    let encoding = table
        .required(check, "encoding", "\"hex\"")
        .and_then(|item| item.choice(check, &Encoding::NAMES));
    let signed = table
        .required(check, "signed", "\"{body}\"")
        .and_then(|item| signed(check, &item, id.is_some(), time.is_some()));
    Some(Seal {
        header: header?,
        holds,
        encoding: encoding?,
        signed: signed?,
        id,
        time,
        secret: table.choice(check, "secret_as", SecretForm::Text, &SECRET_FORMS),
    })
}

fn holds(check: &mut Check, table: &Table<'_>) -> Holds {
    let text = |check: &mut Check, item: &Item<'_>| {
        let text = item.filled(check, "the text as it is sent")?;
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            let what = format!("`{}` is {text:?}", item.label);
            check.error(&item.span, what, "visible ASCII without spaces");
        }
        Some(text.to_owned())
    };
    match (table.item("prefix"), table.item("pair")) {
        (None, None) => Holds::One(String::new()),
        (Some(prefix), None) => Holds::One(text(check, &prefix).unwrap_or_default()),
        (None, Some(pair)) => {
            let name = text(check, &pair).unwrap_or_default();
            if name.contains(['=', ',']) {
                check.error(
                    &pair.span,
                    format!("`pair` is {name:?}"),
                    "the name before the `=`",
                );
            }
            Holds::Pairs(name)
        }
        (Some(_), Some(pair)) => {
            check.error(
                &pair.key,
                "`hmac-sha256` has both `prefix` and `pair`",
                "`prefix` for one signature, `pair` for `name=…` with commas between",
            );
            Holds::One(String::new())
        }
    }
}

fn time(check: &mut Check, item: &Item<'_>, is_pairs: bool) -> Option<Stamp> {
    if item.get().is_str() {
        return Some(Stamp {
            at: StampAt::Header(header_name(check, item)?),
            format: StampFormat::EpochS,
        });
    }
    let form = "a header's name, or { header = \"X-Timestamp\", format = \"epoch-s\" }, or { pair = \"t\" }";
    let table = item.table(check, &HMAC_TIME, form)?;
    let at = match (table.item("header"), table.item("pair")) {
        (Some(header), None) => StampAt::Header(header_name(check, &header)?),
        (None, Some(pair)) if is_pairs => {
            StampAt::Pair(pair.filled(check, "the name before the `=`")?.to_owned())
        }
        (None, Some(pair)) => {
            let what = "`time.pair` is written, and the signature's header has no pairs";
            check.error(
                &pair.span,
                what,
                "`pair = \"v1\"` beside `header`, or `time.header`",
            );
            return None;
        }
        _ => {
            check.error(&item.span, "`time` does not say where", form);
            return None;
        }
    };
    let format = table.choice(check, "format", StampFormat::EpochS, &StampFormat::NAMES);
    Some(Stamp { at, format })
}

/// What is signed: the body, and whatever id and time there are; what is not signed proves nothing.
fn signed(check: &mut Check, item: &Item<'_>, has_id: bool, has_time: bool) -> Option<Vec<Part>> {
    let expected =
        "text with {body}, and {id} and {time} where they are signed: \"{id}.{time}.{body}\"";
    let text = item.filled(check, expected)?;
    let Some(parts) = parts(text) else {
        let what = "`signed` has something else in braces than id, time and body";
        check.error(&item.span, what, expected);
        return None;
    };
    let count = |part: &Part| parts.iter().filter(|own| *own == part).count();
    if count(&Part::Body) != 1 {
        let what = match count(&Part::Body) {
            0 => "`signed` has no {body}",
            _ => "`signed` has {body} more than once",
        };
        check.error(
            &item.span,
            what,
            "it once: what is not signed anybody can change",
        );
        return None;
    }
    for (part, key, is_there) in [(Part::Id, "id", has_id), (Part::Time, "time", has_time)] {
        match (count(&part), is_there) {
            (0, false) | (1, true) => {}
            (0, true) => {
                let what = format!("`{key}` is written, and `signed` has no {{{key}}}");
                let expected =
                    format!("{{{key}}} in `signed`: what is not signed anybody can change");
                check.error(&item.span, what, expected);
                return None;
            }
            (_, false) => {
                let what = format!("`signed` has {{{key}}}, and there is no `{key}`");
                check.error(&item.span, what, format!("`{key} = \"X-Header\"`"));
                return None;
            }
            (_, true) => {
                check.error(
                    &item.span,
                    format!("`signed` has {{{key}}} twice"),
                    "it once",
                );
                return None;
            }
        }
    }
    Some(parts)
}

fn header_name(check: &mut Check, item: &Item<'_>) -> Option<String> {
    let name = item.filled(check, "a header's name")?;
    if !is_header_name(name) {
        check.error(
            &item.span,
            format!("{name:?} is no header's name"),
            "a header's name",
        );
        return None;
    }
    Some(name.to_owned())
}

const PLACE: &str = "a pointer such as \"/id\", { header = \"X-Id\" }, or a list of such";

/// Reads `id`: places, or `"body"` for the digest of the body.
pub(super) fn ids(check: &mut Check, item: &Item<'_>) -> Vec<Place> {
    if item.get().as_str() == Some("body") {
        return Vec::new();
    }
    places(check, item)
}

/// Reads places, at least one.
pub(super) fn places(check: &mut Check, item: &Item<'_>) -> Vec<Place> {
    let members = item.one_or_more();
    if members.is_empty() {
        check.error(
            &item.span,
            format!("`{}` is an empty list", item.label),
            PLACE,
        );
    }
    members
        .iter()
        .filter_map(|member| {
            if let Some(text) = member.get().as_str() {
                if !text.starts_with('/') {
                    let what = format!("`{}` is {text:?}, which is no JSON Pointer", member.label);
                    let header = format!("{{ header = {text:?} }}");
                    check.error(
                        &member.span,
                        what,
                        format!("\"/id\" in the body, or {header}"),
                    );
                    return None;
                }
                return member.pointer(check).map(Place::Body);
            }
            let table = member.table(check, &HOOK_PLACE, PLACE)?;
            let header = table.required(check, "header", "\"X-Id\"")?;
            header_name(check, &header).map(Place::Header)
        })
        .collect()
}
