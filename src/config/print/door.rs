//! `[door]` and `[hook.NAME]` as TOML.

use super::{Text, list, path, pointer, quoted, secret, table};
use crate::config::check::SECRET_FORMS;
use crate::config::value::{print_duration, print_size};
use crate::config::{Door, Hook, HookSecret, Setup};
use crate::hook::scheme::{Encoding, Holds, Seal, Stamp, StampAt, StampFormat, template};
use crate::hook::{Place, Scheme};

pub(super) fn door(text: &mut Text, door: &Door) {
    text.section("door");
    let listen = door.listen.iter().map(|place| quoted(&place.to_string()));
    text.line("listen", list(listen));
    if let Some(tls) = &door.tls {
        text.line(
            "tls",
            table([("cert", path(&tls.cert)), ("key", secret(&tls.key))]),
        );
    }
    let limits = &door.limits;
    text.section("door.limits");
    text.line("connections", limits.connections.to_string());
    text.line("per_peer", limits.per_peer.to_string());
    text.string("head", &print_size(limits.head as u64));
    text.string("body", &print_size(limits.body as u64));
    text.string("memory", &print_size(limits.memory as u64));
    text.span("head_time", limits.head_time);
    text.span("body_time", limits.body_time);
    text.span("idle", limits.idle);
}

pub(super) fn hook(text: &mut Text, name: &str, hook: &Hook) {
    text.section(&format!("hook.{name}"));
    text.string("path", &hook.path);
    text.line("scheme", scheme(&hook.rule.scheme));
    match &hook.secrets[..] {
        [only] => text.line("secret", hook_secret(only)),
        several => text.line("secret", list(several.iter().map(hook_secret))),
    }
    if hook.rule.scheme.has_time() {
        let span = |span| quoted(&print_duration(span));
        let tolerance = hook.rule.tolerance;
        text.line(
            "tolerance",
            table([
                ("past", span(tolerance.past)),
                ("future", span(tolerance.future)),
            ]),
        );
    }
    match &hook.rule.id[..] {
        [] => text.string("id", "body"),
        ids => text.line("id", places(ids)),
    }
    if !hook.rule.event.is_empty() {
        text.line("event_type", places(&hook.rule.event));
    }
    text.line("ack_status", hook.ack_status.to_string());
    text.string("max_body", &print_size(hook.max_body as u64));
    text.line("wakes", list(hook.wakes.iter().map(|name| quoted(name))));
    if let Some(fetch) = &hook.fetch {
        let url = quoted(&fetch.url.to_string());
        text.line(
            "fetch",
            table(
                [("source", quoted(&fetch.source)), ("url", url)]
                    .into_iter()
                    .chain([("at", quoted(&fetch.at.to_string()))])
                    .chain((!fetch.key.is_empty()).then(|| {
                        (
                            "key",
                            list(fetch.key.iter().map(|key| quoted(&key.to_string()))),
                        )
                    })),
            ),
        );
    }
    if let Some(records) = &hook.records {
        let at = pointer(&records.at);
        text.line(
            "records",
            table([("source", quoted(&records.source)), ("at", at)]),
        );
    }
    if !hook.events.is_empty() {
        text.line(
            "events",
            list(hook.events.iter().map(|event| quoted(event))),
        );
    }
    text.line("challenge", challenge(hook.challenge.as_ref()));
    text.span("keep", hook.keep);
    text.span("keep_ids", hook.keep_ids);
    text.span("every", hook.every);
    text.string("quota", &print_size(hook.quota));
}

fn hook_secret(entry: &HookSecret) -> String {
    let reference = secret(&entry.secret);
    match (entry.not_after, reference.strip_suffix(" }")) {
        (Some(end), Some(open)) => format!("{open}, not_after = {} }}", quoted(&end.to_string())),
        _ => reference,
    }
}

fn challenge(challenge: Option<&Setup>) -> String {
    match challenge {
        None => quoted("none"),
        Some(Setup::Slack) => quoted("slack"),
        Some(Setup::Graph) => quoted("graph"),
        Some(Setup::Meta { verify_token }) => {
            table([("meta", table([("verify_token", secret(verify_token))]))])
        }
    }
}

fn places(places: &[Place]) -> String {
    let place = |place: &Place| match place {
        Place::Header(name) => table([("header", quoted(name))]),
        Place::Body(place) => pointer(place),
    };
    match places {
        [only] => place(only),
        several => list(several.iter().map(place)),
    }
}

fn scheme(scheme: &Scheme) -> String {
    match &scheme.seal {
        Some(parts) if scheme.name == Scheme::SPELLED_OUT => {
            table([(Scheme::SPELLED_OUT, seal(parts))])
        }
        _ => quoted(scheme.name),
    }
}

fn seal(seal: &Seal) -> String {
    let held = match &seal.holds {
        Holds::One(prefix) if prefix.is_empty() => None,
        Holds::One(prefix) => Some(("prefix", quoted(prefix))),
        Holds::Pairs(name) => Some(("pair", quoted(name))),
        // No table of the file makes it.
        Holds::Versions => None,
    };
    let encoding = Encoding::NAMES
        .iter()
        .find(|(_, known)| *known == seal.encoding);
    let form = SECRET_FORMS.iter().find(|(_, known)| *known == seal.secret);
    let signed = [
        encoding.map(|(name, _)| ("encoding", quoted(name))),
        Some(("signed", quoted(&template(&seal.signed)))),
        seal.id.as_ref().map(|name| ("id", quoted(name))),
        seal.time.as_ref().map(|stamp| ("time", time(stamp))),
        form.map(|(name, _)| ("secret_as", quoted(name))),
    ];
    table(
        [Some(("header", quoted(&seal.header))), held]
            .into_iter()
            .chain(signed)
            .flatten(),
    )
}

fn time(stamp: &Stamp) -> String {
    let at = match &stamp.at {
        StampAt::Header(name) => ("header", quoted(name)),
        StampAt::Pair(name) => ("pair", quoted(name)),
    };
    let format = StampFormat::NAMES
        .iter()
        .find(|(_, known)| *known == stamp.format)
        .map(|(name, _)| ("format", quoted(name)));
    table([at].into_iter().chain(format))
}
