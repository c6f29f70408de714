//! What ships with the crate: examples that parse, a reference that names every key.

use super::*;
use crate::config::raw;

const EXAMPLES: [(&str, &str); 2] = [
    (
        "examples/gleaner.toml",
        include_str!("../../../examples/gleaner.toml"),
    ),
    (
        "examples/six-lines.toml",
        include_str!("../../../examples/six-lines.toml"),
    ),
];

#[test]
fn examples_parse_without_a_warning_and_survive_print_and_parse() {
    for (name, text) in EXAMPLES {
        let config = parsed(text).unwrap_or_else(|errors| panic!("{name}: {errors}"));
        assert_eq!(config.warnings, Vec::<String>::new(), "{name}");
        let printed = print(&config);
        assert_eq!(parsed(&printed), Ok(config), "{name}:\n{printed}");
    }
}

#[test]
fn the_effective_config_reads_like_one() {
    let text = "[agent]\nid = \"gw\"\n".to_owned() + EXAMPLES[1].1;
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
        .chain(raw::UPSTREAM.later)
        .chain(raw::PULL.later)
    {
        assert!(
            section("Not supported yet").contains(&format!("`{key}`")),
            "`{key}` is planned and not named"
        );
    }
}
