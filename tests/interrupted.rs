//! Promise: a pass that ends in its middle, for whatever reason, leaves nothing that a later pass takes for granted.
//!
//! The same story at every system call that makes data durable: `GLEANER_CUTS=1000 cargo test --test interrupted -- --nocapture`
//! takes each cut instead of some. Needs `strace`; what is left out without it is printed.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

mod support;

use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;

use support::answer::{Answer, Request};
use support::device::{Device, ended, is_there, system};
use support::parts::{Parts, same};
use support::upstream::Upstream;

/// Cuts at each kind of system call without `GLEANER_CUTS`.
const DEFAULT_CUTS: usize = 12;

fn items(keys: impl IntoIterator<Item = u32>, rev: u32) -> String {
    let items: Vec<String> = keys
        .into_iter()
        .map(|key| format!("{{\"id\":{key},\"rev\":{rev}}}"))
        .collect();
    items.join(",")
}

fn page(request: &Request, tag: &str, items: &str, next: Option<&str>) -> Answer {
    if request.header("if-none-match") == Some(tag) {
        return Answer::not_modified().etag(tag);
    }
    let next = next.map_or("null".into(), |next| format!("\"{next}\""));
    Answer::ok()
        .etag(tag)
        .json(format!("{{\"items\":[{items}],\"next\":{next}}}"))
}

fn device(upstream: &Upstream) -> Device {
    let device = Device::new();
    device.configure(&format!(
        "[source.items]\nurl = \"{}\"\nproxy = \"\"\nrecords = \"/items\"\nkey = \"/id\"\npages = {{ next = \"/next\" }}\n",
        upstream.url("/items")
    ));
    device
}

fn bodies(device: &Device) -> Vec<(i64, String)> {
    let rows = device.rows("items", &[]).unwrap();
    rows.into_iter().map(|row| (row.key, row.body)).collect()
}

fn body(key: i64, rev: u32) -> (i64, String) {
    (key, format!("{{\"id\":{key},\"rev\":{rev}}}"))
}

#[test]
fn a_page_that_was_cut_is_not_vouched_for_when_upstream_goes_back() {
    let upstream = Upstream::start();
    let device = device(&upstream);
    upstream.answer(|request| page(request, "\"old\"", &items(1..=600, 1), None));
    device.sync();
    // Two batches of the new version arrive, the rest of the page does not.
    upstream.answer(|request| page(request, "\"new\"", &items(1..=600, 2), None).only(10_400));
    assert_eq!(device.run(&["sync"]).code(), Some(75));
    assert_eq!(
        bodies(&device)[0],
        body(1, 2),
        "the cut was too early for this test"
    );
    upstream.answer(|request| page(request, "\"old\"", &items(1..=600, 1), None));
    device.sync();
    let expected: Vec<_> = (1..=600).map(|key| body(key, 1)).collect();
    assert!(
        bodies(&device) == expected,
        "the old version was not restored"
    );
}

#[test]
fn a_record_that_changed_pages_is_not_vouched_for_by_the_page_it_came_from() {
    let upstream = Upstream::start();
    let device = device(&upstream);
    let before = |request: &Request| match request.path() {
        "/items" => page(request, "\"1\"", &items([1, 2], 1), Some("/more")),
        _ => page(request, "\"2\"", &items([3, 4], 1), None),
    };
    upstream.answer(before);
    device.sync();
    // Record 3 moves to the first page and changes; then the connection fails, and upstream goes back.
    upstream.answer(|request| match request.path() {
        "/items" => page(request, "\"3\"", &items([1, 2, 3], 2), Some("/more")),
        _ => Answer::status(503),
    });
    assert_eq!(device.run(&["sync"]).code(), Some(75));
    upstream.answer(before);
    device.sync();
    assert_eq!(
        bodies(&device),
        [body(1, 1), body(2, 1), body(3, 1), body(4, 1)]
    );
}

#[test]
fn what_moved_to_an_earlier_page_during_an_interruption_is_not_deleted() {
    let upstream = Upstream::start();
    let device = device(&upstream);
    upstream.answer(|request| match request.path() {
        "/items" => page(request, "\"1\"", &items([1, 2], 1), Some("/more")),
        _ => page(request, "\"2\"", &items([3, 4], 1), None),
    });
    device.sync();
    upstream.answer(|request| match request.path() {
        "/items" => page(request, "\"3\"", &items([1, 2], 2), Some("/more")),
        _ => Answer::status(503),
    });
    assert_eq!(device.run(&["sync"]).code(), Some(75));
    // While nobody looked, record 3 moved to the page that was read already.
    upstream.answer(|request| match request.path() {
        "/items" => page(request, "\"4\"", &items([1, 2, 3], 2), Some("/more")),
        _ => page(request, "\"5\"", &items([4], 1), None),
    });
    let reports = device.sync();
    assert_eq!(reports[0]["deleted"], 0, "{reports:?}");
    assert_eq!(
        bodies(&device),
        [body(1, 2), body(2, 2), body(3, 2), body(4, 1)]
    );
}

#[test]
fn columns_are_filled_whatever_the_config_was_in_between() {
    let parts = Parts::start(20, 100);
    let (with, without) = (
        "columns = { name = \"/name\" }",
        "columns = { rev = \"/rev\" }",
    );
    let device = Device::new();
    let configure = |lines: &str| device.configure(&parts.source("kept", lines));
    let filled = || {
        let rows = device.rows("kept", &["name"]).unwrap();
        rows.len() == 20 && rows.iter().all(|row| row.columns[0].is_some())
    };
    configure(with);
    device.sync();
    assert!(filled());
    // A look under another config takes the column away; nothing was read.
    configure(without);
    assert_eq!(device.run(&["sync", "--dry-run"]).code(), Some(0));
    configure(with);
    device.sync();
    assert!(filled(), "after the config was taken back");
    // The same, and the store that could remember is lost too.
    configure(without);
    assert_eq!(device.run(&["sync", "--dry-run"]).code(), Some(0));
    std::fs::remove_dir_all(device.state().join("state")).unwrap();
    configure(with);
    device.sync();
    assert!(filled(), "after the store was lost");
    // Another place for the same column, and a sink that comes back from before that.
    let copy = device.beside("copy");
    copy_all(device.state(), &copy);
    configure("columns = { name = \"/pad\" }");
    device.sync();
    for file in ["data.db", "data.db-wal", "data.db-shm"] {
        std::fs::copy(copy.join(file), device.state().join(file)).unwrap();
    }
    device.sync();
    let rows = device.rows("kept", &["name"]).unwrap();
    let pad = |row: &support::device::Row| {
        let json: serde_json::Value = serde_json::from_str(&row.body).unwrap();
        json["pad"].as_str().map(str::to_owned)
    };
    assert!(
        rows.iter().all(|row| row.columns[0] == pad(row)),
        "after data.db was restored"
    );
}

#[test]
fn a_store_that_was_lost_learns_from_the_table_and_writes_no_row_again() {
    let parts = Parts::start(20, 100);
    let device = Device::new();
    device.configure(&parts.source("kept", "columns = { name = \"/name\" }"));
    device.sync();
    device.sync();
    std::fs::remove_dir_all(device.state().join("state")).unwrap();
    let reports = device.sync();
    // Those of the last batch count as unknown.
    assert_eq!(reports[0]["added"], 0, "{reports:?}");
    assert_eq!(reports[0]["not_modified"], 0, "{reports:?}");
    assert!(same(&device.rows("kept", &[]).unwrap(), &parts.expected()).is_ok());
}

fn copy_all(from: &Path, to: &Path) {
    if to.exists() {
        std::fs::remove_dir_all(to).unwrap();
    }
    system("cp", &[Path::new("-a"), from, to]);
}

/// A page's last records are gone, others change; the pass is cut at a chosen system call; then all is as before.
#[test]
fn a_cut_at_any_durable_write_and_an_upstream_that_goes_back() {
    if !is_there("strace") {
        println!("interrupted: strace is not there: no cuts at chosen system calls");
        return;
    }
    let most = std::env::var("GLEANER_CUTS").map_or(DEFAULT_CUTS, |text| text.parse().unwrap());
    let parts = Parts::start(10, 4);
    let device = Device::new();
    device.configure(&(parts.source("kept", "") + &parts.source("marked", "deletes = \"mark\"")));
    device.sync();
    device.sync();
    let base = device.beside("base");
    copy_all(device.state(), &base);
    let (before, mut cuts) = (parts.list(), 0);
    let mut parts = parts;
    parts.rewrite_some_and_lose_the_last(2);
    let after = parts.list();
    for calls in ["fdatasync", "pwrite64", "unlink,ftruncate,rename,openat"] {
        parts.go_back(after.clone());
        let ends = cut_points(&device, &base, calls);
        let step = ends.div_ceil(most).max(1);
        println!("interrupted: {calls}: {ends} points");
        for nth in (1..=ends).step_by(step) {
            copy_all(&base, device.state());
            parts.go_back(after.clone());
            cuts += u32::from(cut(&device, calls, nth));
            assert_eq!(device.integrity(), "ok");
            parts.go_back(before.clone());
            let ended = device.run(&["sync", "--json"]);
            let story = format!("cut at the {nth}th {calls}: {}", ended.said());
            assert_eq!(ended.code(), Some(0), "{story}");
            for table in ["kept", "marked"] {
                let rows = device.rows(table, &[]).unwrap();
                if let Err(wrong) = same(&rows, &parts.expected()) {
                    panic!("{table}: {wrong}\n{story}");
                }
            }
        }
    }
    println!("interrupted: {cuts} cuts");
    assert!(cuts > 0, "no cut hit the process");
}

/// Syncs and kills at the entry of the nth of these calls of a thread; whether it came that far.
fn cut(device: &Device, calls: &str, nth: usize) -> bool {
    let (trace, inject) = (
        format!("trace={calls}"),
        format!("inject={calls}:signal=SIGKILL:when={nth}"),
    );
    let strace = [
        "strace",
        "-f",
        "-qq",
        "-o",
        "/dev/null",
        "-e",
        &trace,
        "-e",
        &inject,
    ];
    let ended = ended(&mut device.command(&strace, &["sync", "--json"]));
    assert!(
        ended.status.signal() == Some(9) || ended.code() == Some(0),
        "{}",
        ended.said()
    );
    ended.status.signal() == Some(9)
}

/// The most of these calls that a thread of an undisturbed sync makes.
fn cut_points(device: &Device, base: &Path, calls: &str) -> usize {
    copy_all(base, device.state());
    let (trace, log) = (format!("trace={calls}"), device.beside("calls"));
    let log = log.to_str().unwrap();
    let strace = ["strace", "-f", "-qq", "-o", log, "-e", &trace];
    assert_eq!(
        ended(&mut device.command(&strace, &["sync"])).code(),
        Some(0)
    );
    let text = std::fs::read_to_string(log).unwrap();
    let mut threads = std::collections::HashMap::new();
    for line in text.lines().filter(|line| !line.contains("resumed>")) {
        *threads.entry(line.split(' ').next()).or_insert(0) += 1;
    }
    threads.into_values().max().unwrap_or(0)
}
