//! Promise: the program of a source is told of every change at least once, in order, under a number that stays the same when
//! it is told again; until it has taken them its source waits, and nobody else does.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

mod support;

use std::fs;
use std::path::{Path, PathBuf};

use gleaner::agent::Order;
use support::agent::{Gateway, Plan, assert_failed, logged};
use support::gleaner::Home;
use support::hooks;
use support::shelf::{Shelf, short, told};
use support::upstream::{Answer, Upstream};

/// A directory with scripts, and where they write.
struct Desk(tempfile::TempDir);

impl Desk {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// A script with `$D` for this directory. Read by `sh`, so that it may still be open for writing in another test's child.
    fn script(&self, text: &str) -> String {
        let path = self.path("script");
        let text = format!("D='{}'\n{text}\n", self.0.path().display());
        fs::write(&path, text).unwrap();
        format!("[\"/bin/sh\", {path:?}]")
    }

    /// As `on_change`, fails while the file `fail` is there; what it takes is appended to `taken`, with the batch's number.
    fn taker(&self) -> String {
        let run = self.script(
            "cat > \"$D/batch.$GLEANER_BATCH.$$\"\n\
             if [ -e \"$D/fail\" ]; then echo \"no room on the shelf\" >&2; exit 3; fi\n\
             echo \"batch $GLEANER_BATCH of $GLEANER_SOURCE\" >> \"$D/taken\"\n\
             cat \"$D/batch.$GLEANER_BATCH.$$\" >> \"$D/taken\"",
        );
        format!("on_change = {run}")
    }

    fn fails(&self, fails: bool) {
        if fails {
            fs::write(self.path("fail"), "").unwrap();
        } else {
            fs::remove_file(self.path("fail")).unwrap();
        }
    }

    /// What was taken: a line for each batch, and for each change.
    fn taken(&self) -> Vec<String> {
        let text = self.read("taken");
        let line = |line: &str| match line.strip_prefix("batch ") {
            Some(rest) => format!("batch {rest}"),
            None => short(line),
        };
        text.lines().map(line).collect()
    }

    /// What was offered under a number, each time it was.
    fn offered(&self, number: u64) -> Vec<String> {
        let mut all = Vec::new();
        for entry in fs::read_dir(self.0.path()).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            if name.starts_with(&format!("batch.{number}.")) {
                all.push(fs::read_to_string(entry.path()).unwrap());
            }
        }
        all
    }
}

fn plan(shelf: &Shelf, lines: &str) -> Plan {
    Gateway::of(&shelf.upstream).source(&format!("reconcile = {{ max_loss = 100 }}\n{lines}"))
}

#[test]
fn a_program_gets_the_batch_as_lines_and_little_else() {
    let (shelf, desk) = (Shelf::start(), Desk::new());
    let run = desk.script("cat > \"$D/lines\"; env | sort > \"$D/env\"; pwd > \"$D/dir\"; echo heard; echo and said >&2");
    let mut gateway = plan(
        &shelf,
        &format!("on_change = {{ run = {run}, timeout = \"10s\" }}"),
    )
    .start();
    shelf.put(&[(1, 1), (2, 1)]);
    logged();
    assert_eq!(gateway.word(), "changed");
    assert_eq!(told(&desk.path("lines")), ["1 upsert 1 1", "2 upsert 2 1"]);
    let environment = desk.read("env");
    let names: Vec<&str> = environment
        .lines()
        .filter_map(|line| line.split('=').next())
        .collect();
    assert!(
        environment.contains("GLEANER_SOURCE=items\n"),
        "{environment}"
    );
    assert!(environment.contains("GLEANER_BATCH=1\n"), "{environment}");
    for name in names {
        let known = [
            "GLEANER_BATCH",
            "GLEANER_SOURCE",
            "HOME",
            "LANG",
            "LC_ALL",
            "PATH",
            "TZ",
            "TMPDIR",
            // The shell's own.
            "PWD",
            "OLDPWD",
            "SHLVL",
            "_",
        ];
        assert!(known.contains(&name), "{name}");
    }
    assert_eq!(desk.read("dir"), "/\n");
    let said = logged();
    for words in ["items: sh: heard", "items: sh: and said"] {
        assert!(
            said.iter()
                .any(|line| line.starts_with("INFO") && line.contains(words)),
            "{said:?}"
        );
    }
    shelf.put(&[(2, 2)]);
    assert_eq!(gateway.word(), "changed");
    assert!(desk.read("env").contains("GLEANER_BATCH=4\n"));
    assert_eq!(told(&desk.path("lines")), ["4 delete 1"]);
    // Nothing new: it is not started.
    fs::remove_file(desk.path("lines")).unwrap();
    assert_eq!(gateway.word(), "unchanged");
    assert!(!desk.path("lines").exists());
}

#[test]
fn a_program_that_fails_is_told_the_same_under_the_same_number_until_it_takes_it() {
    let (shelf, desk) = (Shelf::start(), Desk::new());
    let mut gateway = plan(&shelf, &format!("{}\njournal = {{}}", desk.taker())).start();
    let journal = gateway.state().join("journal/items.ndjson");
    shelf.put(&[(1, 1), (2, 1), (3, 1)]);
    assert_eq!(gateway.word(), "changed");
    desk.fails(true);
    shelf.put(&[(1, 2), (3, 1)]);
    let report = gateway.sync();
    assert_failed(
        &report,
        "local",
        "ended with 3 (no room on the shelf); batch 4 (1 changes) is tried again",
    );
    // What is in the way comes first, whatever upstream says meanwhile: it is not even asked.
    let asked = shelf.asked();
    shelf.put(&[(1, 1), (2, 1), (3, 2)]);
    for _ in 0..2 {
        assert_failed(&gateway.sync(), "local", "batch 4 (1 changes)");
    }
    gateway.restart();
    assert_failed(&gateway.sync(), "local", "batch 4 (1 changes)");
    assert_eq!(shelf.asked(), asked);
    let status = gateway.status();
    assert_eq!(status.outcome, "local");
    assert!(
        status.reason.contains("no room on the shelf"),
        "{}",
        status.reason
    );
    let offered = desk.offered(4);
    assert_eq!(offered.len(), 4);
    assert!(
        offered.iter().all(|text| *text == offered[0]),
        "{offered:?}"
    );
    // The journal had its line once.
    assert_eq!(told(&journal)[3..], ["4 upsert 1 2"]);
    desk.fails(false);
    assert_eq!(gateway.word(), "changed");
    assert_eq!(
        desk.taken(),
        [
            "batch 1 of items",
            "1 upsert 1 1",
            "2 upsert 2 1",
            "3 upsert 3 1",
            "batch 4 of items",
            "4 upsert 1 2",
            // Upstream had gone back meanwhile.
            "batch 5 of items",
            "5 upsert 1 1",
            "6 upsert 3 2",
        ]
    );
    assert_eq!(
        told(&journal)[3..],
        ["4 upsert 1 2", "5 upsert 1 1", "6 upsert 3 2"]
    );
    assert_eq!(gateway.rows()[0].1, "{\"id\":1,\"v\":1}");
    assert_eq!(gateway.word(), "unchanged");
    gateway.restart();
    assert_eq!(gateway.word(), "unchanged");
    assert_eq!(desk.taken().len(), 9);
}

#[test]
fn one_that_fails_holds_its_source_and_no_other() {
    let (shelf, desk) = (Shelf::start(), Desk::new());
    let other =
        "[source.others]\nupstream = \"up\"\npath = \"others\"\nkey = \"/id\"\njournal = {}\n";
    let mut gateway = plan(&shelf, &desk.taker()).more(other).start();
    let journal = gateway.state().join("journal/others.ndjson");
    desk.fails(true);
    shelf.put(&[(1, 1), (2, 1)]);
    for version in 1..4 {
        shelf.put_at("/others", &[(7, version)]);
        assert_eq!(gateway.word(), "local");
        let report = gateway
            .agent()
            .pull("others", Order::default(), &mut |_| ());
        assert_eq!(report.outcome.word(), "changed");
        if version == 2 {
            gateway.restart();
        }
    }
    assert_eq!(
        told(&journal),
        ["1 upsert 7 1", "2 upsert 7 2", "3 upsert 7 3"]
    );
    desk.fails(false);
    shelf.put(&[(2, 1)]);
    assert_eq!(gateway.word(), "changed");
    assert_eq!(
        desk.taken(),
        [
            "batch 1 of items",
            "1 upsert 1 1",
            "2 upsert 2 1",
            "batch 3 of items",
            "3 delete 1"
        ]
    );
    assert_eq!(gateway.keys(), ["2"]);
    gateway.restart();
    assert_eq!(gateway.word(), "unchanged");
    assert_eq!(
        gateway.query("SELECT body FROM others"),
        [["{\"id\":7,\"v\":3}"]]
    );
}

#[test]
fn a_program_that_is_taken_out_of_the_config_holds_nothing_any_more() {
    let (shelf, desk) = (Shelf::start(), Desk::new());
    let mut gateway = plan(&shelf, &desk.taker()).start();
    desk.fails(true);
    shelf.put(&[(1, 1), (2, 1)]);
    assert_eq!(gateway.word(), "local");
    gateway.restart_with("reconcile = { max_loss = 100 }");
    shelf.put(&[(1, 1), (2, 2)]);
    assert_eq!(gateway.word(), "changed");
    assert_eq!(gateway.rows().len(), 2);
    // It comes back: what it missed is not told under an old number.
    desk.fails(false);
    gateway.restart_with(&desk.taker());
    shelf.put(&[(1, 3), (2, 2)]);
    assert_eq!(gateway.word(), "changed");
    assert_eq!(desk.taken(), ["batch 3 of items", "3 upsert 1 3"]);
    // Everything, for who wants it.
    let replay = Order {
        replay: true,
        ..Order::default()
    };
    assert_eq!(gateway.order(replay).outcome.word(), "changed");
    assert_eq!(
        desk.taken()[2..],
        ["batch 4 of items", "4 upsert 1 3", "5 upsert 2 2"]
    );
}

#[test]
fn one_that_does_not_read_to_the_end_but_ends_well_has_taken_it() {
    let (shelf, desk) = (Shelf::start(), Desk::new());
    let run = desk.script("exec 0<&-; echo \"$GLEANER_BATCH\" >> \"$D/batches\"");
    let mut gateway = plan(&shelf, &format!("on_change = {run}")).start();
    let long = "x".repeat(100_000);
    shelf.say("/items", &format!("[{{\"id\":1,\"a\":\"{long}\"}},{{\"id\":2,\"a\":\"{long}\"}},{{\"id\":3,\"a\":\"{long}\"}},{{\"id\":4}}]"));
    assert_eq!(gateway.word(), "changed");
    assert_eq!(desk.read("batches"), "1\n4\n");
    assert_eq!(gateway.word(), "unchanged");
}

#[test]
fn a_flood_of_output_is_read_and_its_start_is_logged() {
    let (shelf, desk) = (Shelf::start(), Desk::new());
    let run = desk.script("cat > /dev/null\nyes 'a long line of no use' | head -c 3000000\nprintf 'torn'; head -c 100000 /dev/zero >&2");
    let mut gateway = plan(&shelf, &format!("on_change = {run}")).start();
    shelf.put(&[(1, 1)]);
    logged();
    assert_eq!(gateway.word(), "changed");
    let said = logged();
    let lines = said
        .iter()
        .filter(|line| line.contains("items: sh: "))
        .count();
    assert_eq!(lines, 101, "a hundred, and what was left out");
    assert!(
        said.iter()
            .any(|line| line.contains("items: sh: … and 29") && line.ends_with("bytes more"))
    );
    assert!(said.iter().all(|line| line.len() < 700));
}

#[test]
fn a_program_that_cannot_be_started_is_said_by_check_and_by_its_source() {
    let (shelf, desk) = (Shelf::start(), Desk::new());
    let missing = desk.path("no-such-program");
    let plain = desk.path("plain");
    fs::write(&plain, "no program").unwrap();
    for (path, at_check, at_run) in [
        (
            &missing,
            "No such file or directory",
            "could not be started: No such file or directory",
        ),
        (
            &plain,
            "may not be executed by this user: chmod +x",
            "could not be started: Permission denied (os error 13); chmod +x",
        ),
    ] {
        let url = shelf.upstream.url("/items");
        let home = Home::new(&format!(
            "[source.items]\nurl = \"{url}\"\nproxy = \"\"\nkey = \"/id\"\non_change = {path:?}\n"
        ));
        let check = home.gleaner(&["check"]);
        let said = format!("{}{}", check.out, check.err);
        assert!(
            said.contains("source.items: `on_change`: ") && said.contains(at_check),
            "{said}"
        );
        shelf.put(&[(1, 1)]);
        let sync = home.gleaner(&["sync", "--json"]);
        let report = &sync.json()[0];
        assert_eq!(report["outcome"], "local", "{report}");
        assert!(
            report["reason"].as_str().unwrap().contains(at_run),
            "{report}"
        );
    }
}

#[test]
fn one_that_hangs_is_ended_with_what_it_started_and_nobody_waits_meanwhile() {
    let (shelf, desk) = (Shelf::start(), Desk::new());
    let run = desk.script("echo $$ > \"$D/pid\"; sleep 1000 & echo $! > \"$D/child\"; trap '' TERM; echo ready > \"$D/ready\"; while :; do sleep 1000; done");
    let url = shelf.upstream.url("/items");
    let home = Home::new(&format!(
        "[source.items]\nurl = \"{url}\"\nproxy = \"\"\nkey = \"/id\"\non_change = {{ run = {run}, timeout = \"1s\" }}\n"
    ));
    shelf.put(&[(1, 1)]);
    let agent = home.run();
    until(|| desk.path("ready").exists());
    // It hangs, and the control socket answers.
    assert_eq!(agent.status()["agent"], "test");
    until(|| agent.status()["sources"]["items"]["outcome"] == "local");
    let reason = agent.status()["sources"]["items"]["reason"].to_string();
    assert!(reason.contains("took longer than 1s"), "{reason}");
    for name in ["pid", "child"] {
        let pid = desk.read(name);
        until(|| !is_running(pid.trim()));
    }
    assert_eq!(agent.stop(), 0);
}

#[test]
fn a_stop_ends_the_program_and_the_batch_is_told_after_the_next_start() {
    let (shelf, desk) = (Shelf::start(), Desk::new());
    let run = desk.script("if [ -e \"$D/go\" ]; then cat > \"$D/taken\"; echo $GLEANER_BATCH > \"$D/number\"; else cat > \"$D/first\"; echo $$ > \"$D/pid\"; exec sleep 1000; fi");
    let url = shelf.upstream.url("/items");
    let home = Home::new(&format!(
        "[source.items]\nurl = \"{url}\"\nproxy = \"\"\nkey = \"/id\"\non_change = {run}\n"
    ));
    shelf.put(&[(1, 1), (2, 1)]);
    let agent = home.run();
    until(|| !desk.read("pid").is_empty());
    assert_eq!(agent.stop(), 0);
    let pid = desk.read("pid");
    assert!(!is_running(pid.trim()));
    fs::write(desk.path("go"), "").unwrap();
    assert_eq!(home.gleaner(&["sync"]).code, 0);
    assert_eq!(desk.read("number"), "1\n");
    assert_eq!(desk.read("taken"), desk.read("first"));
}

#[test]
fn a_kill_between_the_sinks_and_the_store_changes_nothing_that_is_told() {
    let (shelf, desk) = (Shelf::start(), Desk::new());
    // The first time it is told, it kills who tells it.
    let run = desk.script(
        "cat > \"$D/in.$GLEANER_BATCH\"\n\
         if [ ! -e \"$D/killed.$GLEANER_BATCH\" ]; then mv \"$D/in.$GLEANER_BATCH\" \"$D/killed.$GLEANER_BATCH\"; kill -9 $PPID; exit 0; fi\n\
         cat \"$D/in.$GLEANER_BATCH\" >> \"$D/taken\"",
    );
    let url = shelf.upstream.url("/items");
    let home = Home::new(&format!(
        "[source.items]\nurl = \"{url}\"\nproxy = \"\"\nkey = \"/id\"\njournal = {{}}\nreconcile = {{ max_loss = 100 }}\non_change = {run}\n"
    ));
    let journal = home.path("state/journal/items.ndjson");
    let story: [&[(u32, u32)]; 4] = [&[(1, 1), (2, 1)], &[(1, 2)], &[(1, 1), (3, 1)], &[(3, 1)]];
    for (nth, records) in story.iter().enumerate() {
        shelf.put(records);
        assert_eq!(home.gleaner(&["sync"]).code, -1);
        // Upstream goes back before the next start.
        if nth == 1 {
            shelf.put(story[0]);
        }
        let ended = (0..5)
            .map(|_| home.gleaner(&["sync"]).code)
            .find(|code| *code != -1);
        assert_eq!(ended, Some(0));
    }
    let taken = told(&desk.path("taken"));
    assert_eq!(
        taken,
        [
            "1 upsert 1 1",
            "2 upsert 2 1",
            "3 upsert 1 2",
            "4 upsert 1 1",
            "5 upsert 3 1",
            "6 delete 2",
            "7 delete 1",
        ]
    );
    assert_eq!(told(&journal), taken);
    for number in [1, 3, 4, 5, 6, 7] {
        let first = told(&desk.path(&format!("killed.{number}")));
        let same = first.iter().all(|line| taken.contains(line));
        assert!(same && !first.is_empty(), "{number}: {first:?}");
    }
}

#[test]
fn records_of_hooks_are_told_as_well_and_not_answered_for_before() {
    let desk = Desk::new();
    let address = hooks::address();
    let source = format!(
        "[source.orders]\nkey = \"/id\"\npull = \"none\"\n{}\njournal = {{}}\n",
        desk.taker()
    );
    let config = hooks::erp(address, "records = { source = \"orders\" }\n") + &source;
    let home = Home::new(&config);
    fs::write(home.path("secret"), hooks::SECRET).unwrap();
    desk.fails(true);
    let agent = home.run();
    until(|| hooks::door_told(&agent.log()).is_some());
    let event = hooks::delivery("1", "{\"id\":5,\"v\":1}");
    assert_eq!(hooks::send(address, &event).status, 202);
    until(|| !desk.offered(1).is_empty());
    until(|| agent.log().contains("no room on the shelf"));
    desk.fails(false);
    // Another event finds the first one's batch in the way, and brings it along.
    let event = hooks::delivery("2", "{\"id\":6,\"v\":1}");
    assert_eq!(hooks::send(address, &event).status, 202);
    until(|| desk.taken().len() == 4);
    assert_eq!(
        desk.taken(),
        [
            "batch 1 of orders",
            "1 upsert 5 1",
            "batch 2 of orders",
            "2 upsert 6 1"
        ]
    );
    let journal = home.path("state/journal/orders.ndjson");
    assert_eq!(told(&journal), ["1 upsert 5 1", "2 upsert 6 1"]);
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

fn is_running(pid: &str) -> bool {
    let status = fs::read_to_string(Path::new("/proc").join(pid).join("stat"));
    // A zombie is one that somebody else has not looked after yet.
    status.is_ok_and(|stat| !stat.contains(") Z "))
}

#[test]
fn a_document_s_program_is_told_of_each_version_until_it_has_taken_it() {
    let (upstream, desk) = (Upstream::start(), Desk::new());
    let run = desk.script(
        "if [ -e \"$D/fail\" ]; then echo \"no room\" >&2; exit 3; fi\n\
         cat >> \"$D/lines\"; echo \"$GLEANER_DOCUMENT $GLEANER_OLD $GLEANER_NEW $(cat \"$GLEANER_FILE\")\" >> \"$D/env\"",
    );
    let home = Home::new(&format!(
        "[document.manual]\nurl = \"{}\"\nfile = \"manual.txt\"\nproxy = \"\"\non_change = {run}\n",
        upstream.url("/manual")
    ));
    let digest = |text: &str| -> String {
        use sha2::Digest as _;
        let bytes = sha2::Sha256::digest(text);
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    };
    let publish = |text: &'static str| {
        upstream.answer(move |request| {
            let tag = format!("\"{text}\"");
            if request.header("if-none-match") == Some(&tag) {
                return Answer::not_modified().etag(&tag);
            }
            Answer::ok()
                .header("Content-Type", "text/plain")
                .etag(&tag)
                .body(text)
        });
    };
    let sync = || home.gleaner(&["sync", "manual", "--json"]);
    let (one, two, three) = (digest("one"), digest("two"), digest("three"));
    publish("one");
    assert_eq!(sync().code, 0);
    assert_eq!(sync().code, 0, "a 304 tells nothing");
    assert_eq!(desk.read("env"), format!("manual  {one} one\n"));
    desk.fails(true);
    publish("two");
    let said = sync();
    assert_ne!(said.code, 0);
    let told = &said.json()[0];
    assert_eq!(told["outcome"], "local", "{told}");
    let reason = told["reason"].as_str().unwrap();
    assert!(
        reason.contains("no room") && reason.contains("told again"),
        "{reason}"
    );
    let file = home.path("state/documents/manual.txt");
    assert_eq!(
        fs::read_to_string(&file).unwrap(),
        "two",
        "it is published all the same"
    );
    let status = home.gleaner(&["status"]);
    assert!(status.out.contains("has not taken"), "{status:?}");
    publish("three");
    assert_ne!(sync().code, 0);
    desk.fails(false);
    assert_eq!(sync().code, 0);
    assert_eq!(sync().code, 0);
    assert_eq!(
        desk.read("env"),
        format!("manual  {one} one\nmanual {one} {three} three\n"),
        "{two} was overtaken before it could be taken"
    );
    let lines = desk.read("lines");
    let lines: Vec<serde_json::Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines[0]["old"], serde_json::Value::Null);
    assert_eq!(
        (&lines[1]["old"], &lines[1]["new"]),
        (&one.into(), &three.into())
    );
    assert_eq!(lines[1]["path"], file.display().to_string());
    assert_eq!(lines[1]["size"], 5);
}
