//! The effective configuration as TOML: what was written with every default filled in. It parses to an equal [`Config`].

mod document;
mod door;

use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

use url::Url;

use super::check::NOWHERE;
use super::value::{print_duration, print_percent, print_size};
use super::{
    Agent, Auth, Config, CursorFrom, Deletes, Format, Ignore, MaxLoss, More, OnBad, PageSize,
    Pages, Param, Program, Proxy, Pull, Roots, Secret, Source, TimeFormat, TimeParam, Upstream,
};
use crate::pointer::Pointer;

/// Prints the effective configuration as TOML. Secrets are printed as the references that they are.
#[must_use]
pub fn print(config: &Config) -> String {
    let mut text = Text(String::new());
    agent(&mut text, &config.agent);
    let is_somewhere = |part: &Upstream| part.base.as_str() != NOWHERE;
    for (name, part) in config
        .upstreams
        .iter()
        .filter(|(_, part)| is_somewhere(part))
    {
        upstream(&mut text, name, part);
    }
    for (name, part) in &config.sources {
        source(
            &mut text,
            name,
            part,
            config
                .upstreams
                .get(&part.upstream)
                .map(|upstream| &upstream.base),
        );
    }
    for (name, part) in &config.documents {
        let upstream = config.upstreams.get(&part.upstream);
        document::document(
            &mut text,
            name,
            part,
            upstream.map(|upstream| &upstream.base),
        );
    }
    if let Some(part) = &config.door {
        door::door(&mut text, part);
    }
    for (name, part) in &config.hooks {
        door::hook(&mut text, name, part);
    }
    text.0
}

struct Text(String);

impl Text {
    fn section(&mut self, name: &str) {
        let gap = if self.0.is_empty() { "" } else { "\n" };
        let _ = writeln!(self.0, "{gap}[{name}]");
    }

    /// Writes one key; `value` is TOML already.
    fn line(&mut self, key: &str, value: impl AsRef<str>) {
        let _ = writeln!(self.0, "{key} = {}", value.as_ref());
    }

    fn string(&mut self, key: &str, value: &str) {
        self.line(key, quoted(value));
    }

    fn span(&mut self, key: &str, value: Duration) {
        self.line(key, quoted(&print_duration(value)));
    }
}

fn agent(text: &mut Text, agent: &Agent) {
    text.section("agent");
    text.string("id", &agent.id);
    text.line("state", path(&agent.state));
    text.line("control", path(&agent.control));
    text.string("control_mode", &format!("{:04o}", agent.control_mode));
    text.span("checkpoint", agent.checkpoint);
    if let Some(file) = &agent.time_sync {
        text.line("time_sync", path(file));
    }
    text.string("documents_quota", &print_size(agent.documents_quota));
}

fn upstream(text: &mut Text, name: &str, upstream: &Upstream) {
    text.section(&format!("upstream.{name}"));
    text.string("base", upstream.base.as_str());
    if let Some(auth) = auth(&upstream.auth) {
        text.line("auth", auth);
    }
    text.string("scope", &upstream.scope);
    text.line(
        "headers",
        table(
            upstream
                .headers
                .iter()
                .map(|(name, value)| (name.as_str(), secret(value))),
        ),
    );
    if let Some(extra_ca) = &upstream.extra_ca {
        text.line("extra_ca", path(extra_ca));
    }
    text.string(
        "roots",
        match upstream.roots {
            Roots::System => "system",
            Roots::Bundled => "bundled",
            Roots::ExtraOnly => "extra-only",
        },
    );
    if let Some(client) = &upstream.client_cert {
        text.line(
            "client_cert",
            table([("cert", path(&client.cert)), ("key", secret(&client.key))]),
        );
    }
    match &upstream.proxy {
        Proxy::Environment => {}
        Proxy::Direct => text.string("proxy", ""),
        Proxy::Url(url) => text.string("proxy", url),
    }
    text.line("insecure_http", upstream.insecure_http.to_string());
    text.span("min_interval", upstream.min_interval);
    let limits = &upstream.limits;
    text.section(&format!("upstream.{name}.limits"));
    text.span("connect", limits.connect);
    text.span("stall", limits.stall);
    text.span("total", limits.total);
    text.string("body", &print_size(limits.body));
    text.string("head", &print_size(limits.head as u64));
    text.string("record", &print_size(limits.record as u64));
    text.line("pages", limits.pages.to_string());
}

fn auth(auth: &Auth) -> Option<String> {
    let form = match auth {
        Auth::None => return None,
        Auth::Bearer(token) => ("bearer", secret(token)),
        Auth::Basic { user, password } => (
            "basic",
            table([("user", quoted(user)), ("password", secret(password))]),
        ),
        Auth::Header { name, value } => (
            "header",
            table([("name", quoted(name)), ("value", secret(value))]),
        ),
        Auth::OAuth2 {
            token_url,
            client_id,
            client_secret,
            scopes,
        } => (
            "oauth2",
            table([
                ("token_url", quoted(token_url.as_str())),
                ("client_id", quoted(client_id)),
                ("client_secret", secret(client_secret)),
                ("scopes", list(scopes.iter().map(|scope| quoted(scope)))),
            ]),
        ),
    };
    Some(table([form]))
}

fn secret(secret: &Secret) -> String {
    match secret {
        Secret::Credential(name) => table([("credential", quoted(name))]),
        Secret::File(file) => table([("file", path(file))]),
        Secret::Env(name) => table([("env", quoted(name))]),
        Secret::Literal(text) => quoted(text),
    }
}

fn source(text: &mut Text, name: &str, source: &Source, base: Option<&Url>) {
    text.section(&format!("source.{name}"));
    if source.url.as_str() != NOWHERE {
        text.string("upstream", &source.upstream);
        text.string("path", &relative(&source.url, base));
    }
    if let Some(search) = &source.search {
        text.string("method", "POST");
        text.string("body", &search.to_string());
    }
    text.span("every", source.every);
    text.span("jitter", source.jitter);
    text.span("stale_after", source.stale_after);
    text.string(
        "format",
        match source.format {
            Format::Json => "json",
            Format::Ndjson => "ndjson",
        },
    );
    record(text, source);
    text.line("pull", pull(source));
    text.line("pages", pages(&source.pages));
    text.string(
        "on_bad_record",
        match source.on_bad_record {
            OnBad::Fail => "fail",
            OnBad::Skip => "skip",
        },
    );
    let loss = match source.max_loss {
        MaxLoss::Share(share) => quoted(&print_percent(share)),
        MaxLoss::Count(count) => count.to_string(),
    };
    let by_itself = matches!(source.pull, Pull::Window(_) | Pull::Cursor(_));
    let every = match source.reconcile_every {
        Some(every) => Some(print_duration(every)),
        None => by_itself.then(|| "never".to_owned()),
    };
    let every = every.map(|every| ("every", quoted(&every)));
    let at = source
        .reconcile_at
        .map(|at| ("at", quoted(&format!("{:02}:{:02}", at.0 / 60, at.0 % 60))));
    text.line(
        "reconcile",
        table(every.into_iter().chain(at).chain([("max_loss", loss)])),
    );
    if let Some(keep) = source.keep_upstream {
        text.span("keep_upstream", keep);
    }
    text.string(
        "deletes",
        match source.deletes {
            Deletes::Remove => "remove",
            Deletes::Mark => "mark",
        },
    );
    text.line("allow_empty", source.allow_empty.to_string());
    text.line("ignore_no_store", source.ignore_no_store.to_string());
    text.line("spool", source.spool.to_string());
    text.span("max_skip", source.max_skip);
    text.span("recheck", source.recheck);
    text.line(
        "columns",
        table(
            source
                .columns
                .iter()
                .map(|(name, place)| (name.as_str(), pointer(place))),
        ),
    );
    if let Some(journal) = &source.journal {
        text.line(
            "journal",
            table([
                ("file", quoted(&journal.file)),
                ("rotate", quoted(&print_size(journal.rotate))),
                ("keep", journal.keep.to_string()),
            ]),
        );
    }
    if let Some(on_change) = &source.on_change {
        text.line("on_change", program(on_change));
    }
}

/// A program, as TOML.
pub(super) fn program(program: &Program) -> String {
    let arguments = program.arguments.iter().map(|argument| quoted(argument));
    let run = [path(&program.path)].into_iter().chain(arguments);
    table([
        ("run", list(run)),
        ("timeout", quoted(&print_duration(program.timeout))),
    ])
}

/// What a record is.
fn record(text: &mut Text, source: &Source) {
    text.line("records", pointer(&source.records));
    match &source.key[..] {
        [key] => text.line("key", pointer(key)),
        keys => text.line("key", list(keys.iter().map(pointer))),
    }
    text.line("ignore", print_ignore(&source.ignore));
    if let Some(deleted) = &source.deleted {
        let equals = deleted.equals.as_ref().map(|value| match value {
            serde_json::Value::Null => ("null", "true".to_owned()),
            value => ("equals", scalar(value)),
        });
        text.line(
            "deleted",
            table(
                [("pointer", pointer(&deleted.pointer))]
                    .into_iter()
                    .chain(equals),
            ),
        );
    }
    if let (Some(updated), false) = (&source.updated, matches!(source.pull, Pull::Window(_))) {
        let format = time_format(&updated.format);
        text.line(
            "updated",
            table([("field", pointer(&updated.field)), ("format", format)]),
        );
    }
    let rules = source
        .require
        .iter()
        .map(|(place, rule)| (place.to_string(), quoted(&rule.to_string())));
    let rules: Vec<(String, String)> = rules.collect();
    text.line(
        "require",
        table(
            rules
                .iter()
                .map(|(place, rule)| (place.as_str(), rule.clone())),
        ),
    );
    if let Some(schema) = &source.schema {
        text.line("schema", path(schema.path()));
    }
    text.line("schema_version", source.schema_version.to_string());
}

/// The list of `ignore`, as TOML.
#[must_use]
pub fn print_ignore(ignored: &[Ignore]) -> String {
    list(ignored.iter().map(|ignore| match ignore {
        Ignore::At(place) => pointer(place),
        Ignore::Anywhere(name) => quoted(name),
    }))
}

/// The shortest `path` that leads to `url` for sure: what follows the base, or else the whole URL.
fn relative(url: &Url, base: Option<&Url>) -> String {
    let whole = url.as_str();
    let Some(base) = base else {
        return whole.to_owned();
    };
    let path = whole.strip_prefix(base.as_str()).unwrap_or(whole);
    let leads_back = !path.starts_with('/') && base.join(path).as_ref() == Ok(url);
    if leads_back {
        path.to_owned()
    } else {
        whole.to_owned()
    }
}

/// A time format, as TOML.
fn time_format(format: &TimeFormat) -> String {
    match format {
        TimeFormat::Pattern(_) => time_format_name(format),
        _ => quoted(&time_format_name(format)),
    }
}

/// How the file names a format: a name, or a pattern's table.
pub(super) fn time_format_name(format: &TimeFormat) -> String {
    let name = match format {
        TimeFormat::Rfc3339 => "rfc3339",
        TimeFormat::Rfc3339Ms => "rfc3339-ms",
        TimeFormat::Rfc3339Us => "rfc3339-us",
        TimeFormat::EpochS => "epoch-s",
        TimeFormat::EpochMs => "epoch-ms",
        TimeFormat::EpochUs => "epoch-us",
        TimeFormat::Pattern(pattern) => {
            let zone = pattern.zone().map(|zone| ("zone", quoted(zone)));
            return table(
                [("pattern", quoted(pattern.text()))]
                    .into_iter()
                    .chain(zone),
            );
        }
    };
    name.to_owned()
}

/// The form of `pull`, as TOML.
pub(super) fn pull(source: &Source) -> String {
    let span = |key: &'static str, span: Option<Duration>| {
        span.map(|span| (key, quoted(&print_duration(span))))
    };
    match &source.pull {
        Pull::Snapshot => quoted("snapshot"),
        Pull::None => quoted("none"),
        Pull::Window(window) => {
            let updated = source.updated.iter().flat_map(|updated| {
                [
                    ("field", pointer(&updated.field)),
                    ("format", time_format(&updated.format)),
                ]
            });
            let until = window
                .until
                .as_ref()
                .map(|until| ("until", time_param(until)));
            let window = updated
                .chain([("since", time_param(&window.since))])
                .chain(until)
                .chain(span("lateness", Some(window.lateness)))
                .chain(span("first", window.first))
                .chain(span("step", window.step));
            table([("window", table(window))])
        }
        Pull::Cursor(cursor) => {
            let from = match &cursor.from {
                CursorFrom::Header(name) => ("header", quoted(name)),
                CursorFrom::Pointer(place) => ("pointer", pointer(place)),
                CursorFrom::Field(place) => ("field", pointer(place)),
            };
            let first = cursor.first.as_ref().map(|first| ("first", quoted(first)));
            let entries = [from].into_iter().chain(param(&cursor.param)).chain(first);
            table([("cursor", table(entries))])
        }
    }
}

fn time_param(time: &TimeParam) -> String {
    let format = [("format", time_format(&time.format))];
    table(param(&time.param).into_iter().chain(format))
}

fn param(param: &Param) -> [(&'static str, String); 2] {
    [
        ("param", quoted(&param.name)),
        ("template", quoted(&param.template)),
    ]
}

/// The form of `pages`, as TOML.
pub(super) fn pages(pages: &Pages) -> String {
    let more = |more: &Option<More>| {
        more.as_ref().map(|more| {
            let key = if more.says_end { "end" } else { "more" };
            (key, pointer(&more.at))
        })
    };
    let size = |size: &PageSize| {
        (
            "size",
            table([
                ("param", quoted(&size.param)),
                ("value", size.value.to_string()),
            ]),
        )
    };
    match pages {
        Pages::Single => quoted("single"),
        Pages::Link => quoted("link"),
        Pages::Next { next, more: place } => {
            table([("next", pointer(next))].into_iter().chain(more(place)))
        }
        Pages::Links(links) => table([("links", pointer(links))]),
        Pages::NextHeader(header) => table([("next_header", quoted(header))]),
        Pages::Token {
            token,
            param,
            more: place,
        } => table(
            [("token", pointer(token)), ("param", quoted(param))]
                .into_iter()
                .chain(more(place)),
        ),
        Pages::TokenHeader { header, param } => {
            table([("token_header", quoted(header)), ("param", quoted(param))])
        }
        Pages::Page {
            param,
            first,
            size: asked,
            more: place,
        } => {
            let start = [("page", quoted(param)), ("first", first.to_string())];
            table(
                start
                    .into_iter()
                    .chain(asked.as_ref().map(size))
                    .chain(more(place)),
            )
        }
        Pages::Offset {
            param,
            size: asked,
            more: place,
        } => table(
            [("offset", quoted(param)), size(asked)]
                .into_iter()
                .chain(more(place)),
        ),
        Pages::LastKey {
            key,
            param,
            more: place,
        } => table(
            [("last_key", pointer(key)), ("param", quoted(param))]
                .into_iter()
                .chain(more(place)),
        ),
    }
}

fn scalar(value: &serde_json::Value) -> String {
    match value {
        serde_json::Value::String(text) => quoted(text),
        // A number with an exponent or a point reads the same in TOML as in JSON.
        other => other.to_string(),
    }
}

fn pointer(place: &Pointer) -> String {
    quoted(&place.to_string())
}

fn path(path: &Path) -> String {
    quoted(&path.to_string_lossy())
}

fn list(items: impl Iterator<Item = String>) -> String {
    format!("[{}]", items.collect::<Vec<_>>().join(", "))
}

fn table<'k>(entries: impl IntoIterator<Item = (&'k str, String)>) -> String {
    let entries: Vec<String> = entries
        .into_iter()
        .map(|(key, value)| format!("{} = {value}", bare(key)))
        .collect();
    if entries.is_empty() {
        "{}".to_owned()
    } else {
        format!("{{ {} }}", entries.join(", "))
    }
}

/// A key, quoted if it has to be.
fn bare(key: &str) -> String {
    let is_bare = !key.is_empty()
        && key
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte));
    if is_bare { key.to_owned() } else { quoted(key) }
}

/// A basic string of TOML.
fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for letter in text.chars() {
        match letter {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            letter if letter.is_control() => {
                let _ = write!(quoted, "\\u{:04X}", u32::from(letter));
            }
            letter => quoted.push(letter),
        }
    }
    quoted.push('"');
    quoted
}
