//! From the file as written to a checked [`Config`]: defaults, units, ranges, references. Everything that is wrong is
//! collected, not only the first thing.

mod auth;
mod document;
mod door;
mod followers;
mod hook;
mod pages;
mod place;
mod pull;
mod record;
mod scheme;
mod source;
mod upstream;

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use toml::Spanned;
use toml::de::DeTable;
use url::Url;

pub(super) use self::place::NOWHERE;
use super::findings::Check;
use super::raw::{AGENT, DOCUMENT, HOOK, SOURCE, TOP, UPSTREAM};
use super::reader::{Item, Table};
use super::secret::Env;
use super::{Agent, Config, Upstream};

pub(super) use self::scheme::SECRET_FORMS;

const SECOND: Duration = Duration::from_secs(1);
const MILLISECOND: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(86_400);

/// What a `[section.NAME]` key must look like; SQLite tables and columns are named so without quoting surprises.
const NAME: &str = "a letter, then letters, digits, `_` or `-`, at most 63 characters";

/// Checks a parsed file. `None`: `check` has noted why not.
pub(super) fn check(
    check: &mut Check,
    root: &Spanned<DeTable<'_>>,
    env: Env<'_>,
) -> Option<Config> {
    let top = Table::open(check, &TOP, String::new(), 0..0, root.get_ref());
    let agent = agent(check, &top, env);
    let mut upstreams = BTreeMap::new();
    for (name, table) in sections(check, &top, "upstream") {
        if let Some(upstream) = upstream::upstream(check, &table) {
            upstreams.insert(name.to_owned(), upstream);
        }
    }
    let mut sources = BTreeMap::new();
    let mut used = Vec::new();
    for (name, table) in sections(check, &top, "source") {
        source_name(check, &sources, name, &table.span);
        let source = source::source(check, name, &table, &top, &mut upstreams);
        if let Some(source) = source {
            used.push(source.upstream.clone());
            sources.insert(name.to_owned(), source);
        }
    }
    let mut documents = BTreeMap::new();
    let document_sections = sections(check, &top, "document");
    for (name, table) in &document_sections {
        if let Some(document) = document::document(check, name, table, &top, &mut upstreams) {
            used.push(document.upstream.clone());
            documents.insert((*name).to_owned(), document);
        }
    }
    document::together(check, &documents, &document_sections, &sources);
    same_journal(check, &sources, &top);
    let door = door::door(check, &top);
    let mut hooks = BTreeMap::new();
    let hook_sections = sections(check, &top, "hook");
    for (name, table) in &hook_sections {
        let known = hook::Known {
            door: door.as_ref(),
            upstreams: &upstreams,
            sources: &sources,
        };
        if let Some(hook) = hook::hook(check, name, table, &top, &known) {
            hooks.insert((*name).to_owned(), hook);
        }
    }
    hook::together(check, &hooks, &hook_sections, &top);
    reconcile_daily(&mut sources, &hooks, &top);
    if !check.is_clean() {
        return None;
    }
    for name in upstreams.keys().filter(|name| !used.contains(name)) {
        check
            .warnings
            .push(format!("upstream.{name}: no source uses it"));
    }
    if sources.is_empty() && documents.is_empty() {
        check
            .warnings
            .push("there is no [source.NAME]: nothing will be pulled".to_owned());
    }
    warn_of_literals(check, &upstreams);
    let warnings = std::mem::take(&mut check.warnings);
    Some(Config {
        agent: agent?,
        upstreams,
        sources,
        documents,
        door,
        hooks,
        warnings,
    })
}

/// Numbers of changes are a source's own, so each has a journal of its own.
fn same_journal(check: &mut Check, sources: &BTreeMap<String, super::Source>, top: &Table<'_>) {
    let mut files: BTreeMap<&str, &str> = BTreeMap::new();
    for (name, source) in sources {
        let Some(journal) = &source.journal else {
            continue;
        };
        if let Some(other) = files.insert(&journal.file, name) {
            let span = top
                .item("source")
                .and_then(|all| Some(all.get().as_table()?.get_key_value(name.as_str())?.0.span()));
            check.error(
                &span.unwrap_or_default(),
                format!(
                    "the sources {other:?} and {name:?} have the same journal, {:?}",
                    journal.file
                ),
                "a journal for each",
            );
        }
    }
}

/// Notifications bring speed, pulls bring certainty: a source that hooks feed is compared in full once a day, unless the file
/// says otherwise.
fn reconcile_daily(
    sources: &mut BTreeMap<String, super::Source>,
    hooks: &BTreeMap<String, super::Hook>,
    top: &Table<'_>,
) {
    let says = |name: &str| {
        let all = top.item("source")?;
        let source = all.get().as_table()?.get(name)?.get_ref().as_table()?;
        source.get("reconcile")?.get_ref().as_table()?.get("every")
    };
    let fed = hooks.values().flat_map(|hook| {
        let fetched = hook.fetch.iter().map(|fetch| &fetch.source);
        let carried = hook.records.iter().map(|records| &records.source);
        hook.wakes.iter().chain(fetched).chain(carried)
    });
    for name in fed {
        if let Some(source) = sources.get_mut(name) {
            if source.reconcile_every.is_some() && says(name).is_none() {
                source.reconcile_every = Some(DAY);
            }
        }
    }
}

/// The sub-tables of `[upstream]`, `[source]`, `[document]` or `[hook]` in the file's order, names checked.
fn sections<'t>(check: &mut Check, top: &Table<'t>, kind: &str) -> Vec<(&'t str, Table<'t>)> {
    let expected = format!("sections [{kind}.NAME]");
    let Some(all) = top.item(kind) else {
        return Vec::new();
    };
    let keys = match kind {
        "source" => &SOURCE,
        "document" => &DOCUMENT,
        "hook" => &HOOK,
        _ => &UPSTREAM,
    };
    let mut sections = Vec::new();
    for (name, item) in all.entries(check, &expected) {
        if item.get().as_table().is_none() {
            let what = format!("`{}` is written in [{kind}] itself", name.escape_debug());
            check.hide_all(item.value);
            check.error(
                &item.key,
                what,
                format!("a section with a name: [{kind}.NAME]"),
            );
            continue;
        }
        if !is_name(name) {
            check.error(
                &item.key,
                format!("{name:?} can't be the name of a {kind}"),
                NAME,
            );
        }
        let label = format!("[{kind}.{}]", name.escape_debug());
        if let Some(entries) = item.get().as_table() {
            sections.push((
                name,
                Table::open(check, keys, label, item.key.clone(), entries),
            ));
        }
    }
    sections
}

fn is_name(name: &str) -> bool {
    name.len() <= 63
        && name
            .bytes()
            .next()
            .is_some_and(|byte| byte.is_ascii_alphabetic())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-')
}

/// A source is a table of SQLite, whose names are the same in upper and lower case.
fn source_name<T>(
    check: &mut Check,
    sources: &BTreeMap<String, T>,
    name: &str,
    span: &Range<usize>,
) {
    if name
        .get(..7)
        .is_some_and(|start| start.eq_ignore_ascii_case("sqlite_"))
    {
        check.error(
            span,
            format!("{name:?} can't be the name of a source"),
            "a name that SQLite does not reserve",
        );
    }
    if let Some(other) = sources
        .keys()
        .find(|other| other.eq_ignore_ascii_case(name))
    {
        let what =
            format!("the sources {other:?} and {name:?} differ in upper and lower case only");
        check.error(span, what, "names that make different SQLite tables");
    }
}

fn agent(check: &mut Check, top: &Table<'_>, env: Env<'_>) -> Option<Agent> {
    let item = top.item("agent");
    let empty = DeTable::new();
    let table = match &item {
        Some(item) => {
            let Some(entries) = item.get().as_table() else {
                item.wrong_type(check, "a section: [agent]");
                return None;
            };
            Table::open(
                check,
                &AGENT,
                "[agent]".to_owned(),
                item.key.clone(),
                entries,
            )
        }
        None => Table::open(check, &AGENT, "[agent]".to_owned(), 0..0, &empty),
    };
    let id = match table.item("id") {
        Some(item) => agent_id(check, &item),
        None => host_name(),
    };
    let state = table.item("state").and_then(|item| path(check, &item));
    let state = state
        .unwrap_or_else(|| directory(env, "STATE_DIRECTORY").unwrap_or("/var/lib/gleaner".into()));
    let control = table.item("control");
    let socket = control
        .as_ref()
        .and_then(|item| path(check, item))
        .unwrap_or_else(|| {
            directory(env, "RUNTIME_DIRECTORY")
                .unwrap_or_else(|| state.clone())
                .join("control.sock")
        });
    // `sun_path` of Linux holds 108 bytes with its NUL.
    if socket.as_os_str().len() > 107 {
        let span = control
            .or_else(|| table.item("state"))
            .map_or(table.span.clone(), |item| item.span);
        let what = format!(
            "the control socket's path is {} bytes long",
            socket.as_os_str().len()
        );
        check.error(
            &span,
            what,
            "at most 107 bytes: set `control` to a shorter path",
        );
    }
    let checkpoint = table.duration(check, "checkpoint", Duration::from_secs(900), SECOND);
    Some(Agent {
        id,
        state,
        control: socket,
        control_mode: table
            .item("control_mode")
            .and_then(|item| mode(check, &item))
            .unwrap_or(0o660),
        checkpoint,
        time_sync: table.item("time_sync").and_then(|item| path(check, &item)),
        documents_quota: table.size(check, "documents_quota", 4 << 30, 1 << 50),
    })
}

/// Permissions as chmod takes them.
fn mode(check: &mut Check, item: &Item<'_>) -> Option<u32> {
    let expected = "permissions such as \"0660\" (owner and group) or \"0600\" (owner alone)";
    let text = item.string(check, expected)?;
    let mode = u32::from_str_radix(text, 8).ok();
    let fits = mode.filter(|mode| (3..=4).contains(&text.len()) && *mode <= 0o777);
    if fits.is_none() {
        check.error(&item.span, format!("`control_mode` is {text:?}"), expected);
    }
    fits
}

const ID: &str = "letters, digits, `.`, `_` or `-`, at most 64 characters";

fn is_id(id: &str) -> bool {
    (1..=64).contains(&id.len())
        && id
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
}

fn agent_id(check: &mut Check, item: &Item<'_>) -> String {
    let Some(id) = item.string(check, ID) else {
        return String::new();
    };
    if !is_id(id) {
        check.error(
            &item.span,
            format!("`id` is {id:?}, which no header could carry as it is"),
            ID,
        );
    }
    id.to_owned()
}

fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    Some(name.trim())
        .filter(|name| is_id(name))
        .unwrap_or("gleaner")
        .to_owned()
}

/// What systemd passes in such a variable: one path, or several with colons between.
fn directory(env: Env<'_>, name: &str) -> Option<PathBuf> {
    let paths = env(name)?;
    std::env::split_paths(&paths)
        .next()
        .filter(|path| path.is_absolute())
}

/// A path, made absolute from the config file's directory.
fn path(check: &mut Check, item: &Item<'_>) -> Option<PathBuf> {
    let text = item.filled(check, "a path")?;
    if text.contains('\0') {
        check.error(
            &item.span,
            format!("`{}` has a NUL character", item.label),
            "a path",
        );
        return None;
    }
    Some(check.dir.join(Path::new(text)))
}

/// A token of RFC 9110 5.6.2.
fn is_header_name(name: &str) -> bool {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !name.is_empty() && name.bytes().all(is_token)
}

/// Names of query parameters and headers that most often carry a secret.
const SECRET_NAMES: [&str; 16] = [
    "access_token",
    "api-key",
    "api_key",
    "apikey",
    "appid",
    "auth",
    "authorization",
    "cookie",
    "key",
    "passwd",
    "password",
    "secret",
    "sig",
    "signature",
    "token",
    "x-api-key",
];

fn sounds_secret(name: &str) -> bool {
    SECRET_NAMES
        .iter()
        .any(|secret| secret.eq_ignore_ascii_case(name))
}

/// Whether a URL, right or wrong, should not be shown: an `@` may end a password, which without it looks like a port,
/// and a parameter may be a token.
fn url_may_hold_secret(text: &str) -> bool {
    let mut parameters = text
        .split(['?', '&'])
        .skip(1)
        .filter_map(|pair| pair.split('=').next());
    text.contains('@')
        || Url::parse(text) == Err(url::ParseError::InvalidPort)
        || parameters.any(sounds_secret)
}

fn warn_of_literals(check: &mut Check, upstreams: &BTreeMap<String, Upstream>) {
    for (name, upstream) in upstreams {
        for (header, _) in upstream
            .headers
            .iter()
            .filter(|(header, value)| value.is_literal() && sounds_secret(header))
        {
            check.warnings.push(format!(
                "upstream.{name}: the header {header} is written out in this file; if it is a secret, \
                 write {header} = {{ file = \"path\" }}"
            ));
        }
    }
}
