//! Promise: the journal has every change, as a line, in order; a follower may read a line twice and never misses one, and no
//! number ever means two changes.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

mod support;

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;

use support::agent::{Gateway, logged};
use support::gleaner::Home;
use support::shelf::{Shelf, told};

fn journal(gateway: &Gateway) -> PathBuf {
    gateway.state().join("journal/items.ndjson")
}

#[test]
fn the_real_binary_keeps_a_journal_beside_the_table() {
    let shelf = Shelf::start();
    shelf.put(&[(1, 1), (2, 1)]);
    let url = shelf.upstream.url("/items");
    let home = Home::new(&format!(
        "[source.items]\nurl = \"{url}\"\nproxy = \"\"\nkey = \"/id\"\njournal = \"items.ndjson\"\nreconcile = {{ max_loss = 10 }}\n"
    ));
    let said = home.gleaner(&["sync"]);
    assert_eq!(said.code, 0, "{said:?}");
    shelf.put(&[(1, 2), (3, 1)]);
    assert_eq!(home.gleaner(&["sync"]).code, 0);
    let path = home.path("state/journal/items.ndjson");
    assert_eq!(
        told(&path),
        [
            "1 upsert 1 1",
            "2 upsert 2 1",
            "3 upsert 1 2",
            "4 upsert 3 1",
            "5 delete 2"
        ]
    );
    let first = fs::read_to_string(&path).unwrap();
    let first = first.lines().next().unwrap();
    assert!(
        first.contains(",\"source\":\"items\",")
            && first.ends_with(",\"body\":{\"id\":1,\"v\":1}}"),
        "{first}"
    );
    // Nothing new: nothing is written.
    let before = fs::metadata(&path).unwrap().modified().unwrap();
    assert_eq!(home.gleaner(&["sync"]).code, 0);
    assert_eq!(fs::metadata(&path).unwrap().modified().unwrap(), before);
    // Everything again, for a follower that lost its copy.
    assert_eq!(home.gleaner(&["replay", "items"]).code, 0);
    assert_eq!(told(&path)[5..], ["6 upsert 1 2", "7 upsert 3 1"]);
}

#[test]
fn a_tail_that_nobody_committed_is_cut_off_and_its_number_is_given_to_nothing_else() {
    let shelf = Shelf::start();
    shelf.put(&[(1, 1)]);
    let mut gateway = Gateway::of(&shelf.upstream)
        .source("journal = \"items.ndjson\"")
        .start();
    assert_eq!(gateway.word(), "changed");
    let path = journal(&gateway);
    gateway.stop();
    let mut file = fs::OpenOptions::new().append(true).open(&path).unwrap();
    file.write_all(b"{\"seq\":2,\"op\":\"upsert\",\"key\":9,\"body\":{}}\n{\"seq\":3,\"op\":\"ups")
        .unwrap();
    drop(file);
    gateway.restart();
    shelf.put(&[(1, 2)]);
    assert_eq!(gateway.word(), "changed");
    // A whole line was read by somebody, perhaps: it stays, and the next has another number. The torn one goes.
    assert_eq!(told(&path), ["1 upsert 1 1", "2 upsert 9", "3 upsert 1 2"]);
}

#[test]
fn a_journal_that_is_taken_away_goes_on_with_the_next_number() {
    let shelf = Shelf::start();
    shelf.put(&[(1, 1), (2, 1)]);
    let mut gateway = Gateway::of(&shelf.upstream).source("journal = {}").start();
    assert_eq!(gateway.word(), "changed");
    let path = journal(&gateway);
    logged();
    fs::remove_file(&path).unwrap();
    shelf.put(&[(1, 2), (2, 1)]);
    assert_eq!(gateway.word(), "changed");
    assert_eq!(told(&path), ["3 upsert 1 2"]);
    let said = logged();
    assert!(
        said.iter()
            .any(|line| line.starts_with("WARN") && line.contains("it is gone, or empty")),
        "{said:?}"
    );
    // Shortened in the middle of a line: the same.
    let text = fs::read(&path).unwrap();
    fs::write(&path, &text[..text.len() - 5]).unwrap();
    shelf.put(&[(1, 3), (2, 1)]);
    assert_eq!(gateway.word(), "changed");
    assert_eq!(told(&path), ["4 upsert 1 3"]);
    let said = logged();
    assert!(
        said.iter()
            .any(|line| line.contains("is not as it was left")),
        "{said:?}"
    );
    // And neither is said again.
    shelf.put(&[(1, 4), (2, 1)]);
    assert_eq!(gateway.word(), "changed");
    assert_eq!(told(&path), ["4 upsert 1 3", "5 upsert 1 4"]);
    assert!(!logged().iter().any(|line| line.contains("as it was left")));
}

#[test]
fn files_that_are_put_aside_are_called_by_their_first_number_and_the_latest_are_kept() {
    let shelf = Shelf::start();
    let mut gateway = Gateway::of(&shelf.upstream)
        .source("journal = { rotate = \"4KiB\", keep = 2 }")
        .start();
    let path = journal(&gateway);
    for version in 1..=40 {
        let records: Vec<(u32, u32)> = (1..=10).map(|id| (id, version)).collect();
        shelf.put(&records);
        assert_eq!(gateway.word(), "changed");
    }
    let mut names: Vec<String> = fs::read_dir(path.parent().unwrap())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names.len(), 3, "{names:?}");
    assert_eq!(names[0], "items.ndjson");
    // In the order of their names they are one stream without a gap.
    names.rotate_left(1);
    let all: Vec<String> = names
        .iter()
        .flat_map(|name| told(&path.with_file_name(name)))
        .collect();
    let numbers: Vec<u64> = all
        .iter()
        .map(|line| line.split(' ').next().unwrap().parse().unwrap())
        .collect();
    assert_eq!(*numbers.last().unwrap(), 400);
    assert!(
        numbers.windows(2).all(|pair| pair[1] == pair[0] + 1),
        "{numbers:?}"
    );
    assert_eq!(names[0], format!("items.ndjson.{:012}", numbers[0]));
    for name in &names {
        let size = fs::metadata(path.with_file_name(name)).unwrap().len();
        assert!(size <= 4096, "{name}: {size}");
    }
}

/// Waits for something to be so.
#[allow(
    clippy::disallowed_methods,
    reason = "the processes of these tests live in real time"
)]
fn until(is_so: impl Fn() -> bool) {
    let began = std::time::Instant::now();
    while !is_so() {
        assert!(began.elapsed().as_secs() < 20, "it never came");
        std::thread::yield_now();
    }
}

#[test]
fn the_follower_in_the_readme_gets_each_change_once_across_rotations_and_its_own_restart() {
    let dir = tempfile::tempdir().unwrap();
    let shelf = Shelf::start();
    let mut gateway = Gateway::of(&shelf.upstream)
        .source("journal = { file = \"parts.ndjson\", rotate = \"4KiB\", keep = 1000 }")
        .start();
    let readme = include_str!("../README.md");
    let start = readme.find("cd /var/lib/gleaner/journal").unwrap();
    let script = &readme[start..start + readme[start..].find("```").unwrap()];
    let script = script
        .replace("/var/lib/gleaner", gateway.state().to_str().unwrap())
        .replace("/var/tmp", dir.path().to_str().unwrap())
        .replace(
            "jq -r '\"\\(.op) \\(.key)\"'",
            &format!("cat >> {}/out", dir.path().display()),
        );
    assert!(script.contains("/out"), "{script}");
    let seen = || told(&dir.path().join("out")).len();
    let mut version = 0;
    for round in 1..=2 {
        // Some before it comes, some while it is there.
        let mut change = |times| {
            for _ in 0..times {
                version += 1;
                let records: Vec<(u32, u32)> = (1..=10).map(|id| (id, version)).collect();
                shelf.put(&records);
                assert_eq!(gateway.word(), "changed");
            }
        };
        change(12);
        let mut follower = std::process::Command::new("sh");
        let mut follower = std::os::unix::process::CommandExt::process_group(&mut follower, 0)
            .args(["-c", &script])
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        until(|| seen() >= round * 180 - 60);
        change(6);
        until(|| seen() >= round * 180);
        let group = rustix::process::Pid::from_child(&follower);
        rustix::process::kill_process_group(group, rustix::process::Signal::KILL).unwrap();
        follower.wait().unwrap();
    }
    let numbers: Vec<String> = told(&dir.path().join("out"))
        .iter()
        .map(|line| line.split(' ').next().unwrap().to_owned())
        .collect();
    let mut all: Vec<String> = (1..=360).map(|seq: u32| seq.to_string()).collect();
    // Killed between its work and its note it would do the last one again.
    let mut numbers = numbers;
    numbers.dedup();
    all.dedup();
    assert_eq!(numbers, all);
}
