//! What ships with the crate: examples that parse, a reference that names every key.

use std::collections::BTreeSet;

use super::*;
use crate::config::raw;

const SIX_LINES: &str = include_str!("../../../examples/six-lines.toml");

/// Every config below `examples/`, by its path there.
fn examples() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let mut found = Vec::new();
    for dir in [root.clone(), root.join("pull"), root.join("pages")] {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path
                .extension()
                .is_some_and(|extension| extension == "toml")
            {
                let name = path.strip_prefix(&root).unwrap().display().to_string();
                found.push((name, std::fs::read_to_string(&path).unwrap()));
            }
        }
    }
    found
}

#[test]
fn examples_parse_without_a_warning_survive_print_and_parse_and_are_in_the_index() {
    let index = include_str!("../../../examples/README.md");
    for (name, text) in examples() {
        let config = parsed(&text).unwrap_or_else(|errors| panic!("{name}: {errors}"));
        assert_eq!(config.warnings, Vec::<String>::new(), "{name}");
        let printed = print(&config);
        assert_eq!(parsed(&printed), Ok(config), "{name}:\n{printed}");
        assert!(
            index.contains(&format!("({name})")),
            "{name} is not in the index"
        );
    }
}

#[test]
fn every_pull_and_every_style_of_pages_has_an_example() {
    let (mut pulls, mut styles) = (BTreeSet::new(), BTreeSet::new());
    for (name, text) in examples() {
        for source in parsed(&text)
            .unwrap_or_else(|errors| panic!("{name}: {errors}"))
            .sources
            .values()
        {
            pulls.insert(match &source.pull {
                Pull::Snapshot => "snapshot",
                Pull::None => "none",
                Pull::Window(window) if window.step.is_some() => "window in steps",
                Pull::Window(_) => "window",
                Pull::Cursor(cursor) => match cursor.from {
                    CursorFrom::Header(_) => "cursor in a header",
                    CursorFrom::Pointer(_) => "cursor in the body",
                    CursorFrom::Field(_) => "cursor in the records",
                },
            });
            styles.insert(match &source.pages {
                Pages::Single => "single",
                Pages::Link => "link",
                Pages::Next { .. } => "next",
                Pages::Links(_) => "links",
                Pages::NextHeader(_) => "next_header",
                Pages::Token { .. } => "token",
                Pages::TokenHeader { .. } => "token_header",
                Pages::Page { .. } => "page",
                Pages::Offset { .. } => "offset",
                Pages::LastKey { .. } => "last_key",
            });
        }
    }
    assert_eq!(pulls.len(), 7, "{pulls:?}");
    assert_eq!(styles.len(), 10, "{styles:?}");
}

#[test]
fn the_effective_config_reads_like_one() {
    let text = "[agent]\nid = \"gw\"\n".to_owned() + SIX_LINES;
    assert_eq!(print(&config(&text)), include_str!("effective.toml"));
}

/// The sections of docs/config.md and the keys that each must have in the first column of its table.
#[test]
fn the_reference_names_every_key_in_its_section() {
    let docs = include_str!("../../../docs/config.md");
    let section = |title: &str| {
        let start = docs
            .find(&format!("\n## {title}\n"))
            .unwrap_or_else(|| panic!("no section {title}"));
        let body = &docs[start + 4..];
        &body[..body.find("\n## ").unwrap_or(body.len())]
    };
    for (title, keys) in [
        ("`[agent]`", &raw::AGENT),
        ("`[upstream.NAME]`", &raw::UPSTREAM),
        ("`[upstream.NAME.limits]`", &raw::LIMITS),
        ("`[source.NAME]`", &raw::SOURCE),
        ("`[document.NAME]`", &raw::DOCUMENT),
        ("`journal` and `on_change`", &raw::JOURNAL),
        ("`journal` and `on_change`", &raw::PROGRAM),
        ("`auth`", &raw::AUTH),
        ("`auth`", &raw::BASIC),
        ("`auth`", &raw::AUTH_HEADER),
        ("`auth`", &raw::OAUTH2),
        ("Secrets", &raw::SECRET),
        ("`client_cert`", &raw::CLIENT_CERT),
        ("`deleted` and `updated`", &raw::DELETED),
        ("`deleted` and `updated`", &raw::UPDATED),
        ("`reconcile`", &raw::RECONCILE),
        ("`pull`", &raw::PULL),
        ("`pull`", &raw::WINDOW),
        ("`pull`", &raw::TIME_PARAM),
        ("`pull`", &raw::CURSOR),
        ("`pages`", &raw::PAGES),
        ("`pages`", &raw::PAGE_SIZE),
        ("`[door]`", &raw::DOOR),
        ("`[door]`", &raw::DOOR_TLS),
        ("`[door]`", &raw::DOOR_LIMITS),
        ("`[hook.NAME]`", &raw::HOOK),
        ("`[hook.NAME]`", &raw::HOOK_TOLERANCE),
        ("`[hook.NAME]`", &raw::HOOK_PLACE),
        ("`[hook.NAME]`", &raw::HOOK_FETCH),
        ("`[hook.NAME]`", &raw::HOOK_RECORDS),
        ("`[hook.NAME]`", &raw::HOOK_CHALLENGE),
        ("`[hook.NAME]`", &raw::HOOK_META),
        ("`scheme`", &raw::SCHEME),
        ("`scheme`", &raw::HMAC),
        ("`scheme`", &raw::HMAC_TIME),
    ] {
        for key in keys.known {
            let named = section(title).lines().any(|line| {
                let cell = line
                    .strip_prefix("| ")
                    .and_then(|line| line.split(" | ").next())
                    .unwrap_or_default();
                cell.split('`')
                    .any(|word| word == *key || word.ends_with(&format!(".{key}")))
            });
            assert!(named, "{title} has no row for `{key}`");
        }
    }
    for key in ["credential", "file", "env"] {
        assert!(
            raw::HOOK_SECRET.known.contains(&key),
            "a hook's secret is a secret"
        );
    }
    assert!(section("`[hook.NAME]`").contains("| `secret.not_after` |"));
    for name in crate::hook::Scheme::names() {
        assert!(
            section("`scheme`").contains(&format!("`{name}`")),
            "the scheme {name} is not named"
        );
    }
    for key in raw::TOP
        .later
        .iter()
        .chain(raw::SOURCE.later)
        .chain(raw::DOCUMENT.later)
        .chain(raw::UPSTREAM.later)
        .chain(raw::PULL.later)
    {
        assert!(
            section("Not supported yet").contains(&format!("`{key}`")),
            "`{key}` is planned and not named"
        );
    }
}
