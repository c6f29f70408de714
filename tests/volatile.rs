//! Promise: when nearly everything changes with each pass and one field is why, it is named with the line to paste; and not
//! otherwise.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

mod support;

use support::agent::{Gateway, logged};
use support::shelf::Shelf;

/// Records whose text is made by number and pass.
fn listing(record: impl Fn(u32) -> String) -> String {
    let all: Vec<String> = (1..=120).map(record).collect();
    format!("[{}]", all.join(","))
}

fn notes(gateway: &Gateway) -> Vec<String> {
    gateway.status().notes
}

#[test]
fn the_field_that_moves_is_named_with_the_line_to_paste_and_the_line_helps() {
    let shelf = Shelf::start();
    let fetched = |pass: u32| {
        listing(|id| {
            // One record changes in earnest.
            let name = if id == 7 { pass } else { 0 };
            format!(
                "{{\"id\":{id},\"name\":\"n{name}\",\"rev\":{pass},\"meta\":[{{\"fetched at\":\"{pass}\"}}]}}"
            )
        })
    };
    let mut gateway = Gateway::of(&shelf.upstream)
        .source("ignore = \"rev\"")
        .start();
    logged();
    for pass in 0..=2 {
        shelf.say("/items", &fetched(pass));
        assert_eq!(gateway.word(), "changed");
        assert!(notes(&gateway).is_empty(), "{pass}: {:?}", notes(&gateway));
    }
    let said = "nearly every record changes with each pass, and in /meta/*/fetched at alone; if that means nothing, write \
                `ignore = [\"rev\", \"/meta/*/fetched at\"]` in [source.items]";
    for pass in 3..=5 {
        shelf.say("/items", &fetched(pass));
        assert_eq!(gateway.word(), "changed");
        assert_eq!(notes(&gateway), [said]);
    }
    // Once in the log.
    let log = logged();
    assert_eq!(
        log.iter().filter(|line| line.contains(said)).count(),
        1,
        "{log:?}"
    );
    gateway.restart_with("ignore = [\"rev\", \"/meta/*/fetched at\"]");
    shelf.say("/items", &fetched(6));
    assert_eq!(gateway.word(), "changed");
    for pass in 7..=9 {
        shelf.say("/items", &fetched(pass));
        let report = gateway.sync();
        assert_eq!((report.tally.changed, report.tally.unchanged), (1, 119));
        assert!(notes(&gateway).is_empty());
    }
}

#[test]
fn no_field_is_blamed_where_everything_really_changes() {
    let shelf = Shelf::start();
    // Each record in another field, each pass in others.
    let mut gateway = Gateway::of(&shelf.upstream).start();
    for pass in 0..6 {
        shelf.say(
            "/items",
            &listing(|id| {
                format!(
                    "{{\"id\":{id},\"f{}\":{pass},\"g{}\":{pass}}}",
                    id % 5,
                    (id + pass) % 7
                )
            }),
        );
        let report = gateway.sync();
        assert!(report.tally.changed == if pass == 0 { 0 } else { 120 });
        assert!(notes(&gateway).is_empty(), "{pass}: {:?}", notes(&gateway));
    }
}

#[test]
fn a_quiet_pass_in_between_starts_the_count_again() {
    let shelf = Shelf::start();
    let mut gateway = Gateway::of(&shelf.upstream).start();
    for version in [0, 1, 2, 2, 3, 4] {
        shelf.say(
            "/items",
            &listing(|id| format!("{{\"id\":{id},\"t\":{version}}}")),
        );
        gateway.sync();
        assert!(notes(&gateway).is_empty(), "{version}");
    }
    shelf.say("/items", &listing(|id| format!("{{\"id\":{id},\"t\":5}}")));
    gateway.sync();
    assert_eq!(notes(&gateway).len(), 1);
}
