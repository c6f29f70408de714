//! Secrets by reference, `auth` in its forms, and further headers.

use toml::Spanned;
use toml::de::DeValue;

use super::upstream::web_url;
use super::{is_header_name, path, sounds_secret};
use crate::config::findings::Check;
use crate::config::raw::{AUTH, AUTH_HEADER, BASIC, Keys, OAUTH2, SECRET};
use crate::config::reader::{Item, Table};
use crate::config::{Auth, Secret};

const SECRET_FORMS: &str = "{ credential = \"name\" }, { file = \"path\" } or { env = \"NAME\" }";
const AUTH_FORMS: &str = "{ bearer = SECRET }, { basic = { user = \"…\", password = SECRET } }, \
     { header = { name = \"…\", value = SECRET } } or \
     { oauth2 = { token_url = \"…\", client_id = \"…\", client_secret = SECRET, scopes = [\"…\"] } }, \
     where SECRET is { credential = \"name\" }, { file = \"path\" } or { env = \"NAME\" }";

/// Keys below `auth` whose values are no secrets themselves; every other text there is hidden in messages.
const HARMLESS: [&str; 8] = [
    "credential",
    "file",
    "env",
    "user",
    "name",
    "token_url",
    "client_id",
    "scopes",
];

/// Headers that the agent writes itself, so that framing, validators and codings stay right.
const MANAGED: [&str; 20] = [
    "accept-encoding",
    "connection",
    "content-encoding",
    "content-length",
    "expect",
    "host",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "if-unmodified-since",
    "keep-alive",
    "proxy-authorization",
    "proxy-connection",
    "range",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "via",
];

/// Reads a secret's reference.
pub(super) fn secret(check: &mut Check, item: &Item<'_>, label: &str) -> Option<Secret> {
    secret_with(check, item, label, &SECRET).map(|(secret, _)| secret)
}

/// Reads a secret's reference out of a table that takes further `keys`, and gives the table too.
pub(super) fn secret_with<'t>(
    check: &mut Check,
    item: &Item<'t>,
    label: &str,
    keys: &Keys,
) -> Option<(Secret, Table<'t>)> {
    if item.get().as_table().is_none() {
        check.hide_all(item.value);
        let what = format!("`{label}` is written out, and a secret is never in this file");
        check.error(&item.span, what, SECRET_FORMS);
        return None;
    }
    let table = item.table(check, keys, SECRET_FORMS)?;
    let forms: Vec<Item<'_>> = SECRET
        .known
        .iter()
        .filter_map(|key| table.item(key))
        .collect();
    let [form] = &forms[..] else {
        if table.is_clean {
            let what = format!("`{label}` names {} places of a secret", forms.len());
            check.error(&item.span, what, format!("one of {SECRET_FORMS}"));
        }
        return None;
    };
    let secret = match form.label.as_str() {
        "file" => Secret::File(path(check, form)?),
        "credential" => {
            let name = form.filled(check, "the name in LoadCredential=")?;
            if name.contains(['/', '\0']) || name == "." || name == ".." {
                check.error(
                    &form.span,
                    format!("{name:?} is no credential's name"),
                    "a plain file name",
                );
            }
            Secret::Credential(name.to_owned())
        }
        _ => {
            let name = form.filled(check, "the name of an environment variable")?;
            if name.contains(['=', '\0', '$']) {
                check.error(
                    &form.span,
                    format!("{name:?} is no variable's name"),
                    "a name without `$` and `=`",
                );
            }
            Secret::Env(name.to_owned())
        }
    };
    Some((secret, table))
}

/// Reads `auth`; [`Auth::None`] if it is not there, or is wrong.
pub(super) fn auth(check: &mut Check, table: &Table<'_>) -> Auth {
    let Some(item) = table.item("auth") else {
        return Auth::None;
    };
    hide_strange(check, item.value);
    let Some(table) = item.table(check, &AUTH, AUTH_FORMS) else {
        return Auth::None;
    };
    let forms: Vec<Item<'_>> = AUTH
        .known
        .iter()
        .filter_map(|key| table.item(key))
        .collect();
    let [form] = &forms[..] else {
        if table.is_clean {
            let what = format!("`auth` has {} forms", forms.len());
            check.error(&item.span, what, format!("one of {AUTH_FORMS}"));
        }
        return Auth::None;
    };
    let auth = match form.label.as_str() {
        "bearer" => secret(check, form, "auth.bearer").map(Auth::Bearer),
        "basic" => basic(check, form),
        "header" => header(check, form),
        _ => oauth2(check, form),
    };
    auth.unwrap_or(Auth::None)
}

fn hide_strange(check: &mut Check, value: &Spanned<DeValue<'_>>) {
    match value.get_ref() {
        DeValue::Table(table) => {
            for (key, value) in table {
                let name: &str = key.get_ref();
                if !HARMLESS.contains(&name) {
                    hide_strange(check, value);
                }
            }
        }
        _ => check.hide_all(value),
    }
}

fn basic(check: &mut Check, item: &Item<'_>) -> Option<Auth> {
    let table = item.table(check, &BASIC, "{ user = \"…\", password = SECRET }")?;
    let user = table.required(check, "user", "\"name\"");
    let user = user.and_then(|item| {
        let user = item.string(check, "a user name")?;
        // RFC 7617 2: the first colon ends the user-id.
        if user.contains(':') || user.chars().any(char::is_control) {
            check.error(
                &item.span,
                "`user` has a colon or a control character",
                "a user name (RFC 7617)",
            );
        }
        Some(user.to_owned())
    });
    let password = table.required(check, "password", "{ file = \"path\" }");
    let password = password.and_then(|item| secret(check, &item, "auth.basic.password"));
    Some(Auth::Basic {
        user: user?,
        password: password?,
    })
}

fn header(check: &mut Check, item: &Item<'_>) -> Option<Auth> {
    let table = item.table(
        check,
        &AUTH_HEADER,
        "{ name = \"X-Api-Key\", value = SECRET }",
    )?;
    let name = table
        .required(check, "name", "\"X-Api-Key\"")
        .and_then(|item| {
            let name = item.string(check, "a header's name")?;
            header_name(check, &item, name).then(|| name.to_owned())
        });
    let value = table.required(check, "value", "{ file = \"path\" }");
    let value = value.and_then(|item| secret(check, &item, "auth.header.value"));
    Some(Auth::Header {
        name: name?,
        value: value?,
    })
}

fn oauth2(check: &mut Check, item: &Item<'_>) -> Option<Auth> {
    let table = item.table(
        check,
        &OAUTH2,
        "{ token_url = \"…\", client_id = \"…\", client_secret = SECRET, scopes = [\"…\"] }",
    )?;
    let token_url = table
        .required(check, "token_url", "\"https://host/token\"")
        .and_then(|item| {
            let text = item.filled(check, "a URL such as \"https://host/token\"")?;
            web_url(check, &item, text)
        });
    let client_id = table.required(check, "client_id", "\"…\"");
    let client_id =
        client_id.and_then(|item| item.filled(check, "the client id").map(str::to_owned));
    let client_secret = table.required(check, "client_secret", "{ file = \"path\" }");
    let client_secret =
        client_secret.and_then(|item| secret(check, &item, "auth.oauth2.client_secret"));
    let scopes = table
        .item("scopes")
        .map_or_else(Vec::new, |item| scopes(check, &item));
    Some(Auth::OAuth2 {
        token_url: token_url?,
        client_id: client_id?,
        client_secret: client_secret?,
        scopes,
    })
}

fn scopes(check: &mut Check, item: &Item<'_>) -> Vec<String> {
    let expected = "a list of scope names such as [\"read\"]";
    if item.get().as_array().is_none() {
        item.wrong_type(check, expected);
        return Vec::new();
    }
    let mut scopes = Vec::new();
    for scope in item.one_or_more() {
        let Some(text) = scope.filled(check, expected) else {
            continue;
        };
        // RFC 6749 3.3: scope-token.
        if !text
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && byte != b'"' && byte != b'\\')
        {
            check.error(
                &scope.span,
                format!("{text:?} is no scope"),
                "a scope without spaces and quotes (RFC 6749 3.3)",
            );
        }
        scopes.push(text.to_owned());
    }
    scopes
}

/// Reads `headers`.
pub(super) fn headers(check: &mut Check, table: &Table<'_>, auth: &Auth) -> Vec<(String, Secret)> {
    let expected = "a table such as { Accept = \"application/json\", X-Key = { file = \"path\" } }";
    let Some(item) = table.item("headers") else {
        return Vec::new();
    };
    let mut headers: Vec<(String, Secret)> = Vec::new();
    for (name, item) in item.entries(check, expected) {
        let literal = item.get().as_str();
        if literal.is_some() && sounds_secret(name) {
            check.hide(&item.span);
        }
        if !header_name(check, &item, name) {
            continue;
        }
        if headers
            .iter()
            .any(|(other, _)| other.eq_ignore_ascii_case(name))
        {
            check.error(
                &item.key,
                format!("the header {name} is there twice"),
                "each header once",
            );
        }
        header_beside_auth(check, &item, name, auth);
        let value = match literal {
            Some(text) => header_literal(check, &item, name, text),
            None => secret(check, &item, &format!("headers.{name}")),
        };
        headers.extend(value.map(|value| (name.to_owned(), value)));
    }
    headers
}

fn header_beside_auth(check: &mut Check, item: &Item<'_>, name: &str, auth: &Auth) {
    let taken = match auth {
        Auth::None => false,
        Auth::Header { name: taken, .. } => taken.eq_ignore_ascii_case(name),
        Auth::Bearer(_) | Auth::Basic { .. } | Auth::OAuth2 { .. } => {
            name.eq_ignore_ascii_case("authorization")
        }
    };
    if taken {
        check.error(
            &item.key,
            format!("the header {name} is already written by `auth`"),
            "one of the two",
        );
    }
}

fn header_literal(check: &mut Check, item: &Item<'_>, name: &str, text: &str) -> Option<Secret> {
    if name.eq_ignore_ascii_case("authorization") || name.eq_ignore_ascii_case("cookie") {
        let what = format!("the header {name} is written out, and a secret is never in this file");
        check.error(
            &item.span,
            what,
            format!("`auth`, or a reference: {SECRET_FORMS}"),
        );
        return None;
    }
    // RFC 9110 5.5: visible characters with single spaces or tabs inside; what is beyond ASCII is obsolete.
    let legal = text
        .bytes()
        .all(|byte| byte.is_ascii_graphic() || byte == b' ' || byte == b'\t');
    if !legal || text.trim() != text || text.is_empty() {
        let expected = "visible ASCII characters, no space around them";
        check.error(
            &item.span,
            format!("the header {name} has a value that can't be sent"),
            expected,
        );
        return None;
    }
    Some(Secret::Literal(text.to_owned()))
}

/// Whether `name` is a header's that the user may set.
fn header_name(check: &mut Check, item: &Item<'_>, name: &str) -> bool {
    let span = if item.get().as_str() == Some(name) {
        &item.span
    } else {
        &item.key
    };
    if !is_header_name(name) {
        check.error(
            span,
            format!("{name:?} is no header's name"),
            "letters, digits and `-` (RFC 9110 5.1)",
        );
        return false;
    }
    if MANAGED
        .iter()
        .any(|managed| managed.eq_ignore_ascii_case(name))
    {
        check.refuse(
            span,
            format!("the header {name} is written by the agent itself and can't be set"),
        );
        return false;
    }
    true
}
