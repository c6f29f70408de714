//! `[hook.NAME]`: who signs, and what an event means.

use std::collections::BTreeMap;
use std::time::Duration;

use toml::de::DeValue;

use super::{DAY, auth, place, scheme, url_may_hold_secret};
use crate::clock::Timestamp;
use crate::config::findings::Check;
use crate::config::raw::{
    HOOK_CHALLENGE, HOOK_FETCH, HOOK_META, HOOK_RECORDS, HOOK_SECRET, HOOK_TOLERANCE,
};
use crate::config::reader::{Item, Table};
use crate::config::value::print_size;
use crate::config::{
    Carried, Door, DoorLimits, Fetch, Hook, HookSecret, Listen, Setup, Source, Upstream,
};
use crate::hook::fetch::UrlTemplate;
use crate::hook::{Rule, Scheme, Tolerance};

/// What a hook may name.
pub(super) struct Known<'k> {
    pub(super) door: Option<&'k Door>,
    pub(super) upstreams: &'k BTreeMap<String, Upstream>,
    pub(super) sources: &'k BTreeMap<String, Source>,
}

/// Checks one section. `None`: noted why not.
pub(super) fn hook(
    check: &mut Check,
    name: &str,
    table: &Table<'_>,
    top: &Table<'_>,
    known: &Known<'_>,
) -> Option<Hook> {
    let path = path(check, name, table);
    let scheme = table
        .required(check, "scheme", "\"standard-webhooks\"")
        .and_then(|item| scheme::scheme(check, &item));
    let rule = scheme.map(|scheme| rule(check, table, scheme));
    let secrets = table
        .required(check, "secret", "{ file = \"path\" }")
        .and_then(|item| secrets(check, &item));
    let events = events(check, table, rule.as_ref());
    let limits = known
        .door
        .map_or_else(DoorLimits::default, |door| door.limits.clone());
    let max_body = max_body(check, table, &limits);
    let challenge = challenge(check, table, rule.as_ref());
    let wakes = wakes(check, table, top);
    let fetch = table
        .item("fetch")
        .and_then(|item| fetch(check, &item, top, known));
    let records = table
        .item("records")
        .and_then(|item| records(check, &item, top));
    if let (Some(fetch), Some(_)) = (table.item("fetch"), table.item("records")) {
        check.error(
            &fetch.key,
            format!("{} has both `fetch` and `records`", table.label),
            "one of them: an event leads to its record, or carries it",
        );
    }
    let keep = table.duration(check, "keep", 30 * DAY, Duration::ZERO);
    let keep_ids = table.duration(check, "keep_ids", keep.max(WEEK), WEEK);
    let hook = Hook {
        name: name.to_owned(),
        ack_status: ack_status(check, table),
        max_body,
        wakes,
        fetch,
        records,
        events,
        challenge,
        keep,
        keep_ids,
        every: table.duration(check, "every", Duration::from_secs(60), Duration::ZERO),
        quota: table.size(check, "quota", 64 << 20, 1 << 40),
        path: path?,
        rule: rule?,
        secrets: secrets?,
    };
    warn(check, &hook, known.door);
    Some(hook)
}

/// Senders try again for days, so ids are known for a week at least.
const WEEK: Duration = Duration::from_secs(7 * 86_400);

/// Two hooks at one path, or one without a door.
pub(super) fn together(
    check: &mut Check,
    hooks: &BTreeMap<String, Hook>,
    sections: &[(&str, Table<'_>)],
    top: &Table<'_>,
) {
    for (index, (name, table)) in sections.iter().enumerate() {
        let Some(hook) = hooks.get(*name) else {
            continue;
        };
        let before = sections[..index].iter();
        let other = before
            .filter_map(|(other, _)| hooks.get(*other))
            .find(|other| other.path == hook.path);
        if let Some(other) = other {
            let span = table
                .item("path")
                .map_or(table.span.clone(), |item| item.span);
            let what = format!(
                "the hooks {:?} and {name:?} are both at {}",
                other.name, hook.path
            );
            check.error(&span, what, "another `path`");
        }
    }
    match (sections.first(), top.item("door")) {
        (Some((_, table)), None) => check.error(
            &table.span,
            format!("{} can't be reached: there is no [door]", table.label),
            "a [door] with `listen = \"0.0.0.0:7460\"`",
        ),
        (None, Some(_)) => check
            .warnings
            .push("door: there is no [hook.NAME]: whoever knocks finds nothing".to_owned()),
        _ => {}
    }
}

fn warn(check: &mut Check, hook: &Hook, door: Option<&Door>) {
    let name = &hook.name;
    if hook.wakes.is_empty() && hook.fetch.is_none() && hook.records.is_none() {
        check.warnings.push(format!(
            "hook.{name}: without `wakes`, `fetch` and `records` its events are stored and nothing is done"
        ));
    }
    // Where a socket of systemd's is nobody here knows.
    let is_public =
        |place: &Listen| matches!(place, Listen::Address(address) if !address.ip().is_loopback());
    let is_open = |door: &Door| door.tls.is_none() && door.listen.iter().any(is_public);
    if hook.rule.scheme.token.is_some() && door.is_some_and(is_open) {
        check.warnings.push(format!(
            "hook.{name}: its scheme may send the secret itself, and [door] has no `tls`: whoever is on the way can read it"
        ));
    }
}

fn path(check: &mut Check, name: &str, table: &Table<'_>) -> Option<String> {
    let Some(item) = table.item("path") else {
        return Some(format!("/hooks/{name}"));
    };
    let expected = "a path such as \"/hooks/erp\": slashes, letters, digits, `-`, `.`, `_`, `~`";
    let text = item.filled(check, expected)?;
    let is_plain = |segment: &str| {
        !matches!(segment, "" | "." | "..")
            && segment
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte))
    };
    let segments = text.strip_prefix('/').map(|path| path.split('/'));
    if text.len() > 200 || !segments.is_some_and(|mut segments| segments.all(is_plain)) {
        check.error(&item.span, format!("`path` is {text:?}"), expected);
        return None;
    }
    let first = text[1..].split('/').next().unwrap_or_default();
    if ["requests", "config"].contains(&first) {
        let what = format!("`path` is {text:?}, and /{first} is the door's own");
        check.error(&item.span, what, "another path");
        return None;
    }
    Some(text.to_owned())
}

fn rule(check: &mut Check, table: &Table<'_>, scheme: Scheme) -> Rule {
    let mut rule = Rule::new(scheme);
    if let Some(item) = table.item("tolerance") {
        if rule.scheme.has_time() {
            rule.tolerance = tolerance(check, &item);
        } else {
            let what = format!(
                "`tolerance` is written, and {} signs no time",
                rule.scheme.name
            );
            check.error(&item.span, what, "no `tolerance`");
        }
    }
    if let Some(item) = table.item("id") {
        rule.id = scheme::ids(check, &item);
    }
    if let Some(item) = table.item("event_type") {
        rule.event = scheme::places(check, &item);
    }
    rule
}

fn tolerance(check: &mut Check, item: &Item<'_>) -> Tolerance {
    let default = Tolerance::default();
    if item.get().is_str() {
        let both = item.duration(check, Duration::ZERO);
        return both.map_or(default, |both| Tolerance {
            past: both,
            future: both,
        });
    }
    let form = "a duration such as \"5m\", or { past = \"1h\", future = \"5m\" }";
    let Some(table) = item.table(check, &HOOK_TOLERANCE, form) else {
        return default;
    };
    Tolerance {
        past: table.duration(check, "past", default.past, Duration::ZERO),
        future: table.duration(check, "future", default.future, Duration::ZERO),
    }
}

fn secrets(check: &mut Check, item: &Item<'_>) -> Option<Vec<HookSecret>> {
    let members = item.one_or_more();
    if members.is_empty() {
        check.error(
            &item.span,
            "`secret` is an empty list",
            "{ file = \"path\" }, or a list of such",
        );
        return None;
    }
    let secrets: Vec<HookSecret> = members
        .iter()
        .filter_map(|member| secret(check, member))
        .collect();
    (secrets.len() == members.len()).then_some(secrets)
}

fn secret(check: &mut Check, item: &Item<'_>) -> Option<HookSecret> {
    let (secret, table) = auth::secret_with(check, item, "secret", &HOOK_SECRET)?;
    let not_after = match table.item("not_after") {
        Some(item) => Some(instant(check, &item)?),
        None => None,
    };
    Some(HookSecret { secret, not_after })
}

/// An instant: TOML's own form, or the same in quotes.
fn instant(check: &mut Check, item: &Item<'_>) -> Option<Timestamp> {
    let expected = "an instant with its offset, such as 2027-01-31T00:00:00Z";
    let text = match item.get() {
        DeValue::Datetime(time) => time.to_string(),
        DeValue::String(text) => text.to_string(),
        _ => {
            item.wrong_type(check, expected);
            return None;
        }
    };
    let parsed = text.parse::<Timestamp>();
    if parsed.is_err() {
        check.error(
            &item.span,
            format!("`{}` is {text:?}, which is no instant", item.label),
            expected,
        );
    }
    parsed.ok()
}

fn ack_status(check: &mut Check, table: &Table<'_>) -> u16 {
    const USUAL: u16 = 202;
    let Some(item) = table.item("ack_status") else {
        return USUAL;
    };
    let Some(status) = item.integer(check, 0..=999) else {
        return USUAL;
    };
    if ![200, 201, 202, 204].contains(&status) {
        check.error(
            &item.span,
            format!("`ack_status` is {status}"),
            "200, 201, 202 or 204",
        );
    }
    u16::try_from(status).unwrap_or(USUAL)
}

fn max_body(check: &mut Check, table: &Table<'_>, limits: &DoorLimits) -> usize {
    let usual = (1 << 20).min(limits.body);
    let Some(item) = table.item("max_body") else {
        return usual;
    };
    let Some(size) = item.size(check, 64 << 20) else {
        return usual;
    };
    let size = usize::try_from(size).unwrap_or(usize::MAX);
    if size > limits.body {
        check.error(
            &item.span,
            "`max_body` is more than the door takes",
            format!(
                "at most \"{}\", or `limits = {{ body = … }}` in [door]",
                print_size(limits.body as u64)
            ),
        );
    }
    size
}

fn events(check: &mut Check, table: &Table<'_>, rule: Option<&Rule>) -> Vec<String> {
    let Some(item) = table.item("events") else {
        return Vec::new();
    };
    let expected = "types such as \"push\" or \"invoice.*\"";
    let mut events = Vec::new();
    for member in item.one_or_more() {
        let Some(text) = member.filled(check, expected) else {
            continue;
        };
        if text.trim_end_matches('*').contains('*') || text.ends_with("**") {
            let what = format!("`events`: {text:?} has a `*` before its end");
            check.error(&member.span, what, expected);
        }
        events.push(text.to_owned());
    }
    if let Some(rule) = rule.filter(|rule| rule.event.is_empty()) {
        let what = format!(
            "`events` is written, and {} does not say where an event's type is",
            rule.scheme.name
        );
        check.error(
            &item.key,
            what,
            "`event_type = \"/type\"` or `event_type = { header = \"X-Event\" }`",
        );
    }
    events
}

fn challenge(check: &mut Check, table: &Table<'_>, rule: Option<&Rule>) -> Option<Setup> {
    let Some(item) = table.item("challenge") else {
        // Slack asks whenever the URL is set, and signs what it asks.
        return rule
            .filter(|rule| rule.scheme.name == "slack")
            .map(|_| Setup::Slack);
    };
    let form =
        "\"slack\", \"graph\", \"none\" or { meta = { verify_token = { file = \"path\" } } }";
    if item.get().is_str() {
        return match item.string(check, form)? {
            "slack" => Some(Setup::Slack),
            "graph" => Some(Setup::Graph),
            "none" => None,
            other => {
                check.error(&item.span, format!("`challenge` is {other:?}"), form);
                None
            }
        };
    }
    let table = item.table(check, &HOOK_CHALLENGE, form)?;
    let meta = table.required(check, "meta", "{ verify_token = { file = \"path\" } }")?;
    let meta = meta.table(check, &HOOK_META, "{ verify_token = { file = \"path\" } }")?;
    let token = meta.required(check, "verify_token", "{ file = \"path\" }")?;
    let verify_token = auth::secret(check, &token, "challenge.meta.verify_token")?;
    Some(Setup::Meta { verify_token })
}

fn wakes(check: &mut Check, table: &Table<'_>, top: &Table<'_>) -> Vec<String> {
    let members = table
        .item("wakes")
        .map_or_else(Vec::new, |item| item.one_or_more());
    let mut wakes: Vec<String> = Vec::new();
    for member in members {
        let Some(name) = source(check, &member, top) else {
            continue;
        };
        if wakes.contains(&name) {
            check.error(
                &member.span,
                format!("`wakes` names {name:?} twice"),
                "each source once",
            );
        }
        wakes.push(name);
    }
    wakes
}

/// The name of a source that is there.
fn source(check: &mut Check, item: &Item<'_>, top: &Table<'_>) -> Option<String> {
    let name = item.filled(check, "the name of a [source.NAME]")?;
    place::is_known(check, item, "source", name, top).then(|| name.to_owned())
}

fn fetch(check: &mut Check, item: &Item<'_>, top: &Table<'_>, known: &Known<'_>) -> Option<Fetch> {
    let form = "{ source = \"NAME\", url = \"path/{/id}\" }";
    let table = item.table(check, &HOOK_FETCH, form)?;
    let name = table.required(check, "source", "\"NAME\"");
    let name = name.and_then(|item| source(check, &item, top));
    let url = table.required(check, "url", "\"path/{/id}\"")?;
    let text = url.filled(check, form)?;
    if url_may_hold_secret(text) {
        check.hide(&url.span);
    }
    let name = name?;
    let base = known
        .sources
        .get(&name)
        .and_then(|source| known.upstreams.get(&source.upstream))
        .map(|upstream| &upstream.base)?;
    let template = UrlTemplate::parse(text)
        .and_then(|template| template.stays(base).map(|()| template))
        .map_err(|error| {
            let expected = format!(
                "a path below {base} with pointers into the event, such as \"parts/{{/id}}\""
            );
            check.error(&url.span, format!("`fetch.url` {error}"), expected);
        })
        .ok()?;
    let key = match table.item("key") {
        Some(item) => super::record::key(check, &item)?,
        None => Vec::new(),
    };
    let at = table.pointer(check, "at").unwrap_or_default();
    if let (Some(source), Some(item)) = (known.sources.get(&name), table.item("key")) {
        if source.key.len() != key.len() {
            let what = format!(
                "`key` has {} parts, and the key of [source.{name}] has {}",
                key.len(),
                source.key.len()
            );
            check.error(&item.span, what, "the same parts, in the event");
        }
    }
    Some(Fetch {
        source: name,
        url: template,
        at,
        key,
    })
}

fn records(check: &mut Check, item: &Item<'_>, top: &Table<'_>) -> Option<Carried> {
    let form = "{ source = \"NAME\", at = \"/data\" }";
    let table = item.table(check, &HOOK_RECORDS, form)?;
    let name = table.required(check, "source", "\"NAME\"");
    let name = name.and_then(|item| source(check, &item, top));
    let at = match table.item("at") {
        Some(item) => item.pointer(check)?,
        None => Default::default(),
    };
    Some(Carried { source: name?, at })
}
