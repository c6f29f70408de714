//! The commands as a user types them, with right and wrong input, against the real binary.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot be set up has failed"
)]

mod support;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::process::Stdio;

use rustix::process::Signal;
use serde_json::Value;
use support::gleaner::{Home, Running, Said};
use support::upstream::{Answer, Gate, Request, Upstream, closed};

const PARTS: &str = r#"[{"id":1,"name":"bolt"},{"id":2,"name":"nut"},{"id":3,"name":"washer"}]"#;

/// What `sync --json` promises, in this order.
const PROMISED: [&str; 15] = [
    "source",
    "pull",
    "outcome",
    "reason",
    "pages",
    "requests",
    "not_modified",
    "added",
    "changed",
    "deleted",
    "unchanged",
    "bad",
    "bytes_up",
    "bytes_down",
    "seconds",
];

fn source(name: &str, upstream: &Upstream) -> String {
    let url = upstream.url(&format!("/{name}"));
    format!("[source.{name}]\nurl = \"{url}\"\nkey = \"/id\"\nevery = \"1h\"\n")
}

/// `body` with an entity tag, and 304 to whoever holds it.
fn tagged(request: &Request, body: &str) -> Answer {
    let tag = format!("\"{:x}\"", body.len());
    if request.header("if-none-match") == Some(&tag) {
        Answer::not_modified().etag(&tag)
    } else {
        Answer::ok().json(body).etag(&tag)
    }
}

fn parts() -> (Upstream, Home) {
    let upstream = Upstream::start();
    upstream.answer(|request| tagged(request, PARTS));
    let home = Home::new(&source("parts", &upstream));
    (upstream, home)
}

/// The cells of a table's row that starts with `name`.
fn row<'s>(said: &'s Said, name: &str) -> Vec<&'s str> {
    let line = said
        .out
        .lines()
        .find(|line| line.split_whitespace().next() == Some(name));
    line.unwrap_or_else(|| panic!("no row {name} in {said:?}"))
        .split("  ")
        .map(str::trim)
        .filter(|cell| !cell.is_empty())
        .collect()
}

/// All files below the state directory with their bytes.
fn files(home: &Home) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut dirs = vec![home.path("state")];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                dirs.push(path);
            } else if path.is_file() {
                found.insert(path.display().to_string(), fs::read(&path).unwrap());
            }
        }
    }
    found
}

#[test]
fn help_shows_how_it_is_used() {
    let home = Home::new("");
    let help = home.gleaner(&["--help"]);
    assert_eq!(help.code, 0);
    for line in [
        "Usage: gleaner [OPTIONS] <COMMAND>",
        "  gleaner sync parts --dry-run ",
        "  gleaner reconcile parts --confirm ",
        "  75  an upstream or the network does not work now; try again",
        "/etc/gleaner/gleaner.toml]",
    ] {
        assert!(help.out.contains(line), "{line}\n{}", help.out);
    }
    for command in ["run", "sync", "status", "check", "reconcile", "replay"] {
        assert!(help.out.contains(&format!("\n  {command} ")), "{command}");
        let said = home.gleaner(&[command, "--help"]);
        assert_eq!((said.code, said.err.as_str()), (0, ""));
        assert!(said.out.contains("Examples:\n  "), "{}", said.out);
        assert!(
            said.out.lines().all(|line| line.chars().count() <= 105),
            "{}",
            said.out
        );
    }
    let version = home.gleaner(&["--version"]);
    assert_eq!(
        version.out,
        format!("gleaner {}\n", env!("CARGO_PKG_VERSION"))
    );
}

#[test]
fn a_wrong_command_line_is_64_and_says_what_is_right() {
    let (_upstream, home) = parts();
    let table: [(&[&str], &str); 7] = [
        (&[], "requires a subcommand"),
        (&["snyc"], "similar subcommand exists: 'sync'"),
        (&["sync", "--jsno"], "similar argument exists: '--json'"),
        (&["reconcile"], "<SOURCE>"),
        (&["run", "parts"], "unexpected argument 'parts'"),
        (
            &["sync", "prats"],
            "there is no source \"prats\"; the config has: parts",
        ),
        (
            &["replay", "prats"],
            "there is no source \"prats\"; the config has: parts",
        ),
    ];
    for (arguments, expected) in table {
        let said = home.gleaner(arguments);
        assert_eq!(
            (said.code, said.out.as_str()),
            (64, ""),
            "{arguments:?}: {said:?}"
        );
        assert!(said.err.contains(expected), "{arguments:?}: {}", said.err);
    }
}

#[test]
fn a_wrong_config_is_78_and_says_where() {
    let home = Home::new("[source.parts]\nurl = \"https://example.com\"\nevry = \"1h\"\n");
    for command in ["run", "sync", "status", "check"] {
        let said = home.gleaner(&[command]);
        assert_eq!((said.code, said.out.as_str()), (78, ""), "{said:?}");
        assert!(
            said.err.contains("gleaner.toml:6") && said.err.contains("every"),
            "{}",
            said.err
        );
    }
    home.config("");
    let said = home.gleaner(&["sync"]);
    assert_eq!(said.code, 78);
    assert!(said.err.contains("no [source.NAME] yet"), "{}", said.err);
    assert_eq!(home.gleaner(&["check"]).code, 0);
    assert!(
        home.gleaner(&["status"])
            .out
            .contains("no [source.NAME] yet")
    );
    let said = home.gleaner(&["check", "-c", "elsewhere.toml"]);
    assert_eq!(said.code, 78);
    assert!(
        said.err.contains("elsewhere.toml") && said.err.contains("No such file"),
        "{}",
        said.err
    );
    let said = home.gleaner(&["check", "-c", "."]);
    assert_eq!(said.code, 78, "{said:?}");
    fs::write(home.path("latin1.toml"), b"[agent]\nid = \"\xe4\"\n").unwrap();
    let said = home.gleaner(&["check", "-c", "latin1.toml"]);
    assert_eq!(said.code, 78);
    assert!(said.err.contains("line 2 is not UTF-8"), "{}", said.err);
    if !rustix::process::geteuid().is_root() {
        fs::set_permissions(home.path("gleaner.toml"), fs::Permissions::from_mode(0o000)).unwrap();
        let said = home.gleaner(&["check"]);
        assert_eq!(said.code, 78);
        assert!(said.err.contains("Permission denied"), "{}", said.err);
    }
}

#[test]
fn check_prints_what_is_in_effect_as_a_config() {
    let (_upstream, home) = parts();
    let said = home.gleaner(&["check"]);
    assert_eq!((said.code, said.err.as_str()), (0, ""));
    for line in [
        "[source.parts]",
        "every = \"1h\"",
        "id = \"test\"",
        "checkpoint = \"15m\"",
    ] {
        assert!(said.out.contains(line), "{line}\n{}", said.out);
    }
    fs::write(home.path("again.toml"), &said.out).unwrap();
    let again = home.gleaner(&["check", "-c", "again.toml"]);
    assert_eq!((again.code, &again.out), (0, &said.out), "{}", again.err);
    assert!(!home.path("state").exists(), "a check makes nothing");
}

#[test]
fn every_exit_code_is_real() {
    let upstream = Upstream::start();
    let down = upstream.url("/x").replace(&upstream.addr().to_string(), &{
        let (addr, socket) = closed();
        std::mem::forget(socket);
        addr.to_string()
    });
    upstream.answer(|request| match request.path() {
        "/fine" => Answer::ok().json(PARTS),
        "/data" => Answer::ok().json(r#"[{"name":"no key"}]"#),
        "/refused" => Answer::status(400),
        "/gone" => Answer::status(410),
        "/page" => Answer::ok()
            .header("Content-Type", "text/html")
            .body("<html>Please log in"),
        "/failing" => Answer::status(500),
        "/busy" => Answer::status(429).header("Retry-After", "60"),
        "/denied" => Answer::status(401),
        other => panic!("{other}"),
    });
    let names = [
        "fine", "data", "refused", "gone", "page", "failing", "busy", "denied",
    ];
    let mut config: String = names.iter().map(|name| source(name, &upstream)).collect();
    config += &format!("[source.down]\nurl = \"{down}\"\nkey = \"/id\"\n");
    config += &format!(
        "[upstream.locked]\nbase = \"{}\"\nauth = {{ bearer = {{ file = \"no-such-file\" }} }}\n[source.locked]\nupstream = \"locked\"\npath = \"fine\"\nkey = \"/id\"\n",
        upstream.url("/")
    );
    let home = Home::new(&config);
    let table = [
        ("fine", 0, "changed"),
        ("data", 65, "bad-data"),
        ("refused", 69, "refused"),
        ("gone", 69, "gone"),
        ("page", 69, "not-ours"),
        ("failing", 75, "failing"),
        ("busy", 75, "throttled"),
        ("down", 75, "failing"),
        ("denied", 77, "denied"),
        ("locked", 74, "local"),
    ];
    for (name, code, outcome) in table {
        let said = home.gleaner(&["sync", "--json", name]);
        let report = &said.json()[0];
        assert_eq!(
            (said.code, &report["outcome"]),
            (code, &outcome.into()),
            "{name}: {report}"
        );
        assert_eq!(report["reason"] == "", code == 0, "{name}: {report}");
        assert_eq!(said.err, "", "{name}: the report says it already");
    }
    // Of several the worst, and each is said.
    let said = home.gleaner(&["sync", "fine", "failing", "denied"]);
    assert_eq!(said.code, 77);
    assert!(
        said.out.contains("\nfailing: http://") && said.out.contains("\ndenied: http://"),
        "{}",
        said.out
    );
    // An upstream that asked us to wait is not asked with all the others.
    let before = upstream.requests().len();
    let said = home.gleaner(&["sync", "--json"]);
    assert_eq!(said.json().len(), table.len());
    let asked = upstream.requests();
    assert!(
        asked[before..]
            .iter()
            .all(|request| request.path() != "/busy")
    );
    // This device: the state directory cannot be one.
    fs::remove_dir_all(home.path("state")).unwrap();
    fs::write(home.path("state"), "a file").unwrap();
    for command in ["sync", "status", "check"] {
        let arguments: &[&str] = if command == "check" {
            &["check", "--live"]
        } else {
            &[command]
        };
        let said = home.gleaner(arguments);
        assert_eq!((said.code, said.out.as_str()), (74, ""), "{said:?}");
        assert!(said.err.contains("state: "), "{}", said.err);
    }
}

#[test]
fn sync_prints_one_object_a_line_with_what_it_promises() {
    let (_upstream, home) = parts();
    let said = home.gleaner(&["sync", "--json"]);
    assert_eq!((said.code, said.err.as_str()), (0, ""));
    let mut from = 0;
    for key in PROMISED {
        let at = said
            .out
            .find(&format!("\"{key}\":"))
            .unwrap_or_else(|| panic!("{key} in {}", said.out));
        assert!(at >= from, "{key} comes in its place: {}", said.out);
        from = at;
    }
    let first = &said.json()[0];
    assert_eq!(
        (&first["pull"], &first["added"], &first["requests"]),
        (&"snapshot".into(), &3.into(), &1.into())
    );
    let second = &home.gleaner(&["sync", "--json"]).json()[0];
    assert_eq!(
        (
            &second["outcome"],
            &second["not_modified"],
            &second["unchanged"]
        ),
        (&"unchanged".into(), &1.into(), &3.into())
    );
}

#[test]
fn sync_prints_a_table_that_lines_up_and_no_control_characters() {
    let upstream = Upstream::start();
    upstream.answer(|request| tagged(request, PARTS));
    let home = Home::new(&(source("parts", &upstream) + &source("spares", &upstream)));
    let said = home.gleaner(&["sync"]);
    assert_eq!((said.code, said.err.as_str()), (0, ""));
    let heads = [
        "source",
        "outcome",
        "added",
        "changed",
        "deleted",
        "unchanged",
        "requests",
        "up",
        "down",
        "saved",
        "time",
    ];
    assert_eq!(row(&said, "source"), heads);
    assert_eq!(
        row(&said, "parts")[..7],
        ["parts", "changed", "3", "0", "0", "0", "1"]
    );
    assert_eq!(row(&said, "(all)")[..2], ["(all)", "6"]);
    assert!(
        said.out.chars().all(|c| c == '\n' || !c.is_control()),
        "{:?}",
        said.out
    );
    let said = home.gleaner(&["sync", "parts"]);
    assert_eq!(
        row(&said, "parts")[..6],
        ["parts", "unchanged", "0", "0", "0", "3"]
    );
    assert!(!said.out.contains("spares"));
}

#[test]
fn a_dry_run_changes_nothing() {
    let (upstream, home) = parts();
    let said = home.gleaner(&["sync", "--dry-run"]);
    assert_eq!(row(&said, "parts")[..3], ["parts", "changed", "3"]);
    assert!(said.out.ends_with("nothing was changed (--dry-run)\n"));
    assert_eq!(
        row(&home.gleaner(&["status"]), "parts")[..4],
        ["parts", "never", "0", "none"]
    );
    home.gleaner(&["sync"]);
    upstream.answer(|request| tagged(request, r#"[{"id":1,"name":"screw"},{"id":4}]"#));
    // What opening alone writes has been written by now.
    home.gleaner(&["status"]);
    let rows = |files: BTreeMap<String, Vec<u8>>| -> BTreeMap<String, Vec<u8>> {
        files
            .into_iter()
            .filter(|(name, _)| name.contains("data.db"))
            .collect()
    };
    let before = rows(files(&home));
    let status = home.gleaner(&["status", "--json"]).json();
    let said = home.gleaner(&["sync", "--dry-run", "--json"]);
    let report = &said.json()[0];
    assert_eq!(
        (&report["added"], &report["changed"]),
        (&1.into(), &1.into()),
        "{report}"
    );
    assert_eq!(rows(files(&home)), before);
    let after = home.gleaner(&["status", "--json"]).json();
    for field in ["outcome", "records", "last_check", "last_change", "reason"] {
        let of = |status: &[Value]| status[0]["sources"]["parts"][field].clone();
        assert_eq!(of(&after), of(&status), "{field}");
    }
    // The pass that follows finds the same.
    let report = &home.gleaner(&["sync", "--json"]).json()[0];
    assert_eq!(
        (&report["added"], &report["changed"]),
        (&1.into(), &1.into()),
        "{report}"
    );
}

#[test]
fn status_says_how_things_stand() {
    let upstream = Upstream::start();
    upstream.answer(|request| match request.path() {
        "/fine" => tagged(request, PARTS),
        _ => Answer::status(500),
    });
    let stale = source("fine", &upstream) + "stale_after = \"1h\"\n";
    let home = Home::new(&(stale + &source("failing", &upstream)));
    let said = home.gleaner(&["status"]);
    assert_eq!(said.code, 0);
    assert!(said.out.starts_with("test · gleaner "), "{}", said.out);
    assert!(said.out.contains("· not running\n"));
    assert_eq!(
        row(&said, "fine"),
        ["fine", "never", "0", "none", "never", "never"]
    );
    assert!(!home.path("state").exists(), "looking makes nothing");
    home.gleaner(&["sync"]);
    let said = home.gleaner(&["status"]);
    assert_eq!(row(&said, "fine")[..4], ["fine", "changed", "3", "fresh"]);
    assert!(row(&said, "fine")[4].ends_with(" s ago"), "{}", said.out);
    assert_eq!(
        row(&said, "failing")[..5],
        ["failing", "failing", "0", "none", "never"]
    );
    assert!(
        said.out.contains("\nfailing: http://127.0.0.1"),
        "{}",
        said.out
    );
    let agent = home.run();
    until(&agent, "failing", |source| source["failures"] == 1);
    home.gleaner(&["sync", "failing"]);
    let said = home.gleaner(&["status"]);
    assert!(
        said.out
            .contains(&format!("· running, pid {}\n", agent.pid())),
        "{}",
        said.out
    );
    assert!(said.out.contains(" (2 times in a row)\n"), "{}", said.out);
    assert!(row(&said, "fine")[6].starts_with("in "), "{}", said.out);
    let json = home.gleaner(&["status", "--json"]).json();
    assert_eq!(json[0]["pid"], agent.pid());
    assert!(json[0]["sources"]["fine"]["due_in"].as_u64() > Some(0));
    assert_eq!(json[0]["sources"]["fine"]["stale"], false);
}

/// Asks the agent how a source stands until it stands like this.
fn until(agent: &Running, name: &str, stands: impl Fn(&Value) -> bool) {
    while !stands(&agent.status()["sources"][name]) {}
}

#[test]
fn a_large_loss_waits_for_a_person_and_status_has_the_command() {
    let upstream = Upstream::start();
    let many: Vec<String> = (0..40).map(|id| format!("{{\"id\":{id}}}")).collect();
    let all = format!("[{}]", many.join(","));
    upstream.queue(Answer::ok().json(all));
    upstream.answer(|_| Answer::ok().json(r#"[{"id":1}]"#));
    let home = Home::new(&source("parts", &upstream));
    assert_eq!(home.gleaner(&["sync"]).code, 0);
    let said = home.gleaner(&["sync"]);
    assert_eq!(said.code, 65, "{said:?}");
    let command = "gleaner reconcile parts --confirm";
    assert!(
        said.out.contains("39 of 40 records are missing") && said.out.contains(command),
        "{}",
        said.out
    );
    let said = home.gleaner(&["status"]);
    assert_eq!(
        row(&said, "parts")[..3],
        ["parts", "needs-confirmation", "40"]
    );
    assert!(said.out.contains(command), "{}", said.out);
    assert_eq!(home.gleaner(&["reconcile", "parts"]).code, 65);
    let said = home.gleaner(&["reconcile", "parts", "--confirm"]);
    assert_eq!(said.code, 0, "{said:?}");
    assert_eq!(
        row(&said, "parts")[..5],
        ["parts", "changed", "0", "0", "39"]
    );
    assert_eq!(
        row(&home.gleaner(&["status"]), "parts")[..3],
        ["parts", "changed", "1"]
    );
}

#[test]
fn the_running_agent_is_asked_and_the_answers_look_the_same() {
    let (upstream, home) = parts();
    let alone: Vec<Vec<String>> = commands(&home);
    upstream.answer(|request| tagged(request, PARTS));
    let agent = home.run();
    until(&agent, "parts", |source| source["outcome"] == "unchanged");
    assert_eq!(commands(&home), alone);
    // One that the agent does not know yet.
    home.config(&(source("parts", &upstream) + &source("spares", &upstream)));
    let said = home.gleaner(&["sync", "spares"]);
    assert_eq!(said.code, 64);
    assert!(
        said.err.contains("no source \"spares\"") && said.err.contains("SIGHUP"),
        "{}",
        said.err
    );
    agent.signal(Signal::HUP);
    while !agent.log().contains("the config was read again") {}
    assert_eq!(home.gleaner(&["sync", "spares"]).code, 0);
    assert_eq!(agent.stop(), 0);
}

/// What commands print that the agent may carry out: keys of objects, heads and first cells of tables.
fn commands(home: &Home) -> Vec<Vec<String>> {
    home.gleaner(&["sync"]);
    let commands: [&[&str]; 6] = [
        &["sync", "--json"],
        &["sync"],
        &["check", "--live"],
        &["reconcile", "parts", "--confirm", "--json"],
        &["replay", "parts"],
        &["sync", "--dry-run"],
    ];
    commands
        .iter()
        .map(|arguments| {
            let said = home.gleaner(arguments);
            assert_eq!(
                (said.code, said.err.as_str()),
                (0, ""),
                "{arguments:?}: {said:?}"
            );
            said.out
                .lines()
                .map(|line| match serde_json::from_str::<Value>(line) {
                    Ok(object) => object
                        .as_object()
                        .unwrap()
                        .keys()
                        .cloned()
                        .collect::<Vec<_>>()
                        .join(" "),
                    Err(_) => line
                        .split_whitespace()
                        .take(6)
                        .collect::<Vec<_>>()
                        .join(" "),
                })
                .collect()
        })
        .collect()
}

#[test]
fn check_live_says_of_each_source_whether_it_answers_as_configured() {
    let upstream = Upstream::start();
    upstream.answer(|request| match request.path() {
        "/fine" => Answer::ok().json(PARTS),
        _ => Answer::ok().json(r#"{"items":[]}"#),
    });
    let home = Home::new(&(source("fine", &upstream) + &source("wrong", &upstream)));
    for agent in [false, true] {
        let running = agent.then(|| home.run());
        if let Some(agent) = &running {
            until(agent, "wrong", |source| source["failures"] == 1);
        }
        let said = home.gleaner(&["check", "--live"]);
        assert_eq!(said.code, 65, "{said:?}");
        assert_eq!(row(&said, "fine")[..3], ["fine", "as configured", "3"]);
        assert_eq!(row(&said, "wrong")[..2], ["wrong", "bad-data"]);
        assert!(
            said.out.contains("\nwrong: http://")
                && said.out.contains("expected an array of records"),
            "{}",
            said.out
        );
    }
}

#[test]
fn a_second_agent_and_a_command_beside_a_sync_are_told_to_wait() {
    let upstream = Upstream::start();
    let (gate, closed) = Gate::new();
    upstream.queue(Answer::ok().json(PARTS).gate(closed));
    let home = Home::new(&source("parts", &upstream));
    let sync = home
        .command(&["sync"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    while upstream.requests().is_empty() {
        std::thread::yield_now();
    }
    for command in ["status", "sync", "run"] {
        let said = home.gleaner(&[command]);
        assert_eq!((said.code, said.out.as_str()), (75, ""), "{said:?}");
        let pid = format!("(pid {})", sync.id());
        assert!(
            said.err
                .contains("another gleaner uses this state directory")
                && said.err.contains(&pid),
            "{}",
            said.err
        );
        assert_eq!(
            said.err.contains("try again"),
            command != "run",
            "{}",
            said.err
        );
    }
    gate.open();
    let said = Said::of(sync.wait_with_output().unwrap());
    assert_eq!((said.code, said.err.as_str()), (0, ""), "{said:?}");
    let agent = home.run();
    let second = home.gleaner(&["run"]);
    assert_eq!(second.code, 75);
    assert!(
        second.err.contains(&format!("(pid {})", agent.pid())),
        "{}",
        second.err
    );
    assert!(
        agent.status()["pid"] == agent.pid(),
        "the first one goes on"
    );
}

#[test]
fn interrupting_a_command_ends_it_and_leaves_the_agent_alone() {
    let upstream = Upstream::start();
    let (gate, closed) = Gate::new();
    upstream.queue(Answer::ok().json(PARTS).gate(closed));
    upstream.answer(|_| Answer::ok().json(PARTS));
    let home = Home::new(&source("parts", &upstream));
    let agent = home.run();
    until(&agent, "parts", |source| !source["running"].is_null());
    let before = agent.fds();
    let sync = home
        .command(&["sync"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    while agent.fds() == before {
        std::thread::yield_now();
    }
    // It has signal handlers before it connects.
    rustix::process::kill_process(rustix::process::Pid::from_child(&sync), Signal::INT).unwrap();
    let said = Said::of(sync.wait_with_output().unwrap());
    assert_eq!(said.code, 75);
    assert!(
        said.err.contains("the running agent carries on"),
        "{}",
        said.err
    );
    gate.open();
    until(&agent, "parts", |source| source["totals"]["passes"] == 2);
    assert_eq!(agent.stop(), 0);
}

#[test]
fn whoever_follows_a_wish_is_told_when_the_agent_ends() {
    for stopped in [true, false] {
        let upstream = Upstream::start();
        let (_gate, closed) = Gate::new();
        upstream.queue(Answer::ok().json(PARTS));
        upstream.queue(Answer::ok().json(PARTS).gate(closed));
        let home = Home::new(&source("parts", &upstream));
        let agent = home.run();
        until(&agent, "parts", |source| source["outcome"] == "changed");
        let sync = home
            .command(&["sync", "--json"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        while upstream.requests().len() < 2 {
            std::thread::yield_now();
        }
        if stopped {
            assert_eq!(agent.stop(), 0);
        } else {
            agent.kill();
        }
        let said = Said::of(sync.wait_with_output().unwrap());
        assert_eq!(said.code, 75, "{said:?}");
        if stopped {
            assert_eq!(said.json()[0]["outcome"], "stopped");
        } else {
            let why = "went away before it was done; try again";
            assert!(said.err.contains(why) && said.out.is_empty(), "{said:?}");
        }
    }
}

/// As another user than root there is nothing to be seen of it.
#[test]
fn root_leaves_no_files_in_another_user_s_state_directory() {
    let (_upstream, home) = parts();
    if !rustix::process::geteuid().is_root() {
        println!("left out: takes root");
        return;
    }
    fs::create_dir(home.path("state")).unwrap();
    std::os::unix::fs::chown(home.path("state"), Some(12345), None).unwrap();
    for command in ["status", "sync", "run"] {
        let mut command = home.command(&[command]);
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        let said = Said::of(command.spawn().unwrap().wait_with_output().unwrap());
        assert_eq!(said.code, 74, "{said:?}");
        assert!(
            said.err.contains("sudo -u '#12345' gleaner"),
            "{}",
            said.err
        );
    }
    assert_eq!(fs::read_dir(home.path("state")).unwrap().count(), 0);
}

#[test]
fn a_reader_that_goes_away_is_no_panic() {
    let (_upstream, home) = parts();
    let commands: [&[&str]; 5] = [
        &["--help"],
        &["check"],
        &["sync"],
        &["sync", "--json"],
        &["status"],
    ];
    for arguments in commands {
        let (reader, writer) = UnixStream::pair().unwrap();
        drop(reader);
        let child = home
            .command(arguments)
            .stdout(OwnedFd::from(writer))
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let said = Said::of(child.wait_with_output().unwrap());
        assert_eq!((said.code, said.err.as_str()), (0, ""), "{arguments:?}");
    }
}

#[test]
fn the_log_says_each_request_and_no_secret() {
    let upstream = Upstream::start();
    upstream.answer(|request| tagged(request, PARTS).header("Set-Cookie", "session=cookie-value"));
    let home = Home::new(&format!(
        "[upstream.erp]\nbase = \"{}\"\nauth = {{ bearer = {{ env = \"ERP_TOKEN\" }} }}\n[source.parts]\nupstream = \"erp\"\npath = \"parts\"\nparams = {{ q = \"query-value\" }}\nkey = \"/id\"\n",
        upstream.url("/")
    ));
    let sync = |level: &str| {
        let mut command = home.command(&["sync"]);
        command
            .env("ERP_TOKEN", "token-value")
            .env("GLEANER_LOG", level);
        Said::of(command.output().unwrap())
    };
    let first = sync("debug");
    assert_eq!(
        upstream.requests()[0].header("authorization"),
        Some("Bearer token-value")
    );
    let second = sync("debug");
    let line = |said: &Said| {
        let found = said.err.lines().find(|line| line.contains("GET "));
        found.unwrap_or_else(|| panic!("{said:?}")).to_owned()
    };
    let (full, unchanged) = (line(&first), line(&second));
    let shown = upstream.url("/parts?q=…");
    assert!(
        full.starts_with(&format!("DEBUG GET {shown}: 200, not in the cache, ")),
        "{full}"
    );
    assert!(
        unchanged.contains(": 304, cache revalidated, "),
        "{unchanged}"
    );
    for part in [" B up, ", " B down, ", " s"] {
        assert!(full.contains(part), "{full}");
    }
    assert!(!full.contains(", 0 B down"), "{full}");
    for said in [&first, &second] {
        for secret in [
            "token-value",
            "query-value",
            "cookie-value",
            "washer",
            "Bearer",
        ] {
            assert!(
                !said.err.contains(secret) && !said.out.contains(secret),
                "{secret}: {said:?}"
            );
        }
    }
    assert_eq!(sync("info").err, "");
    assert_eq!(sync("off").err, "");
    let said = sync("loud");
    assert!(
        said.err
            .contains("GLEANER_LOG=loud is none of off, error, warn, info, debug"),
        "{}",
        said.err
    );
    let trace = sync("trace");
    assert!(
        !trace.err.contains("token-value") && !trace.err.contains("session="),
        "{}",
        trace.err
    );
}

#[test]
fn under_the_journal_lines_have_priorities_and_elsewhere_words() {
    let (_upstream, home) = parts();
    let path = home.path("journal");
    let sync = |name: &dyn Fn(u64, u64) -> String| {
        let file = File::create(&path).unwrap();
        let meta = file.metadata().unwrap();
        let mut command = home.command(&["sync", "-v"]);
        command.env("JOURNAL_STREAM", name(meta.dev(), meta.ino()));
        assert!(command.stderr(file).status().unwrap().success());
        let mut text = String::new();
        File::open(&path)
            .unwrap()
            .read_to_string(&mut text)
            .unwrap();
        assert!(text.contains("GET http://"), "{text}");
        text
    };
    let journal = sync(&|dev, ino| format!("{dev}:{ino}"));
    assert!(
        journal.lines().all(|line| line.starts_with("<7>")),
        "{journal}"
    );
    let inherited = sync(&|dev, ino| format!("{dev}:{}", ino + 1));
    assert!(
        inherited.lines().all(|line| line.starts_with("DEBUG ")),
        "{inherited}"
    );
}

#[test]
fn the_agent_says_a_failure_once_and_takes_its_alarms_back() {
    let (upstream, home) = parts();
    upstream.answer(|_| Answer::status(500));
    let agent = home.run();
    until(&agent, "parts", |source| source["failures"] == 1);
    for _ in 0..3 {
        home.gleaner(&["sync", "parts"]);
    }
    assert_eq!(agent.log().matches(" 500").count(), 1, "{}", agent.log());
    let good = fs::read_to_string(home.path("gleaner.toml")).unwrap();
    fs::write(home.path("gleaner.toml"), "[agent\n").unwrap();
    agent.signal(Signal::HUP);
    while agent.status()["alarms"]
        .as_array()
        .is_none_or(Vec::is_empty)
    {}
    fs::write(home.path("gleaner.toml"), good).unwrap();
    let said = home.gleaner(&["status"]);
    assert!(
        said.out
            .contains("\n! the config file has errors: the old one goes on"),
        "{}",
        said.out
    );
    agent.signal(Signal::HUP);
    while agent.status()["alarms"]
        .as_array()
        .is_none_or(|alarms| !alarms.is_empty())
    {}
}

/// A hook with GitHub's published example, and a record of it.
fn hooked() -> (Home, &'static str) {
    const RECORD: &str = "POST /hooks/gh HTTP/1.1\r\nHost: gw\r\nX-GitHub-Event: push\r\nX-GitHub-Delivery: d-1\r\n\
         X-Hub-Signature-256: sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17\r\n\r\nHello, World!";
    let home = Home::new(
        "[source.s]\nurl = \"http://127.0.0.1:1/x\"\nkey = \"/id\"\n[door]\nlisten = \"127.0.0.1:7460\"\n\
         [hook.gh]\nscheme = \"github\"\nsecret = { file = \"secret\" }\nwakes = \"s\"\nevents = \"push\"\n\
         [hook.pay]\nscheme = \"stripe\"\nsecret = { file = \"secret\" }\nwakes = \"s\"\n",
    );
    fs::write(home.path("secret"), "It's a Secret to Everybody\n").unwrap();
    fs::set_permissions(home.path("secret"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::write(home.path("req.txt"), RECORD).unwrap();
    (home, RECORD)
}

fn hook_check(home: &Home, name: &str, record: &[u8], more: &[&str]) -> Said {
    fs::write(home.path("req.txt"), record).unwrap();
    let path = home.path("req.txt");
    let mut arguments = vec!["hook", "check", name, "--request", path.to_str().unwrap()];
    arguments.extend(more);
    let said = home.gleaner(&arguments);
    assert!(
        !format!("{}{}", said.out, said.err).contains("Everybody"),
        "shows the secret"
    );
    said
}

#[test]
fn a_recorded_webhook_is_judged_offline() {
    let (home, record) = hooked();
    let said = hook_check(&home, "gh", record.as_bytes(), &[]);
    assert_eq!(said.code, 0, "{}", said.err);
    assert_eq!(said.out.lines().next(), Some("valid: signed by the sender"));
    assert!(
        said.out.contains("  signed     13 bytes: the body (13)\n"),
        "{}",
        said.out
    );
    assert!(
        said.out.contains("  event      d-1, type push\n"),
        "{}",
        said.out
    );
    assert!(!home.path("state").exists(), "looking changes nothing");

    // What an editor does to a record is found out.
    let said = hook_check(&home, "gh", format!("{record}\n").as_bytes(), &["--json"]);
    assert_eq!(said.code, 65);
    let json = &said.json()[0];
    assert_eq!(json["verdict"], "bad-signature");
    assert_eq!(
        json["hints"][0],
        "the signature is right for the body without the line break at its end: an editor or `echo` adds one"
    );
    assert_eq!(json["signed"]["bytes"], 14);
    // As curl shows it, with the sender's length.
    let marked: String = record
        .split("\r\n\r\n")
        .next()
        .unwrap()
        .lines()
        .map(|line| format!("> {line}\n"))
        .collect();
    let marked = format!(
        "* Connected\n{marked}> Content-Length: 13\n>\n* upload completely sent off\nHello, World!\n"
    );
    let said = hook_check(&home, "gh", marked.as_bytes(), &["--json"]);
    assert_eq!(
        (said.code, &said.json()[0]["verdict"]),
        (0, &Value::from("valid")),
        "{}",
        said.out
    );
}

#[test]
fn a_recorded_webhook_is_judged_as_of_any_time() {
    let (home, _) = hooked();
    // HMAC-SHA256 of `1700000000.{}` with that secret.
    let signature = "1df0d47c3774d7ccf5c4d51759477d319136747489fd8d3da926674d75de192f";
    let record =
        format!("POST /hooks/pay HTTP/1.1\nStripe-Signature: t=1700000000,v1={signature}\n\n{{}}");
    let word = |at: &str| {
        let said = hook_check(&home, "pay", record.as_bytes(), &["--json", "--at", at]);
        (
            said.code,
            said.json()[0]["verdict"].as_str().unwrap().to_owned(),
        )
    };
    for (at, code, verdict) in [
        ("1700000000", 0, "valid"),
        ("2023-11-14T22:18:20Z", 0, "valid"),
        ("2023-11-14T22:18:21Z", 65, "stale"),
        ("1699999699", 65, "future"),
        ("-1", 65, "future"),
    ] {
        assert_eq!(word(at), (code, verdict.to_owned()), "{at}");
    }
    let said = hook_check(&home, "pay", record.as_bytes(), &["--at", "1800000000"]);
    assert!(
        said.out
            .contains("`--at 2023-11-14T22:13:20Z` judges as of then"),
        "{}",
        said.out
    );
}

#[test]
fn a_record_that_cannot_be_judged_says_why() {
    let (home, record) = hooked();
    for (name, text, more, code, why) in [
        (
            "gx",
            record,
            &[][..],
            64,
            "there is no hook \"gx\"; the config has: gh, pay",
        ),
        ("gh", record, &["--at", "noon"], 64, "--at is no instant"),
        (
            "gh",
            "",
            &[],
            65,
            "is no recorded request: there is nothing in it",
        ),
        ("gh", "{\"a\":1}", &[], 65, "line 1 is no header"),
    ] {
        let said = hook_check(&home, name, text.as_bytes(), more);
        assert_eq!(said.code, code, "{}", said.err);
        assert!(said.err.contains(why), "{}", said.err);
    }
    fs::write(home.path("secret"), "\n").unwrap();
    let said = hook_check(&home, "gh", record.as_bytes(), &[]);
    assert_eq!(said.code, 74);
    assert!(said.err.contains("hook.gh: secret"), "{}", said.err);
}
