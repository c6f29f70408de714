//! Promise: a record that does not fit the schema replaces nothing, and is told with its key, its place and the keyword.

#![cfg(feature = "schema")]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

mod support;

use support::agent::{Gateway, assert_failed};
use support::shelf::Shelf;

#[test]
fn what_does_not_fit_replaces_nothing_and_a_mended_schema_takes_it() {
    let shelf = Shelf::start();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("parts.schema.json");
    let at_most = |most: u32| {
        let schema =
            format!("{{\"properties\":{{\"v\":{{\"maximum\":{most}}}}},\"required\":[\"id\"]}}");
        std::fs::write(&path, schema).unwrap();
    };
    at_most(5);
    let lines = format!("schema = {path:?}\ndeleted = \"/gone\"\nreconcile = {{ max_loss = 10 }}");
    let mut gateway = Gateway::of(&shelf.upstream).source(&lines).start();
    shelf.put(&[(1, 1), (2, 2)]);
    assert_eq!(gateway.word(), "changed");
    shelf.put(&[(1, 9), (2, 3)]);
    assert_failed(
        &gateway.sync(),
        "bad-data",
        "record 1 at \"\": (key 1) /v: against \"maximum\" of the schema: it is greater than the maximum of 5, got 9",
    );
    assert_eq!(gateway.rows()[0].1, "{\"id\":1,\"v\":1}");
    gateway.restart_with(&format!("{lines}\non_bad_record = \"skip\""));
    let report = gateway.sync();
    assert_eq!((report.outcome.word(), report.tally.bad), ("changed", 1));
    let rows: Vec<String> = gateway.rows().into_iter().map(|(_, body)| body).collect();
    assert_eq!(rows, ["{\"id\":1,\"v\":1}", "{\"id\":2,\"v\":3}"]);
    let bad = gateway.query("SELECT key, reason FROM _bad");
    assert!(
        bad.len() == 1 && bad[0][0] == "1" && bad[0][1].starts_with("/v: "),
        "{bad:?}"
    );
    // Another text of the same file is another contract: everything is read again.
    at_most(9);
    gateway.restart_with(&format!("{lines}\non_bad_record = \"skip\""));
    let report = gateway.sync();
    assert_eq!((report.outcome.word(), report.tally.bad), ("changed", 0));
    assert_eq!(gateway.rows()[0].1, "{\"id\":1,\"v\":9}");
    // A tombstone need not fit.
    shelf.say(
        "/items",
        "[{\"id\":1,\"gone\":true,\"v\":99},{\"id\":2,\"v\":3}]",
    );
    assert_eq!(gateway.word(), "changed");
    assert_eq!(gateway.keys(), ["2"]);
}
