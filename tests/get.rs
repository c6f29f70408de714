//! `gleaner get`, the real binary against a scripted upstream.
#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot be set up has failed"
)]

mod support;

use std::fs;
use std::path::Path;
use std::process::Command;

use support::gleaner::{Home, Said};
use support::upstream::{Answer, Gate, Upstream, closed};

const FRESH: (&str, &str) = ("Cache-Control", "max-age=600");

/// A device with a cache of its own and without a config file.
struct Device(Home);

impl Device {
    fn new() -> Self {
        Self(Home::new(""))
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.0.command(&["get"]);
        for name in ["GLEANER_CONFIG", "CACHE_DIRECTORY", "GLEANER_CACHE"] {
            command.env_remove(name);
        }
        command.env("XDG_CACHE_HOME", self.0.path("caches"));
        command.args(arguments);
        command
    }

    fn get(&self, arguments: &[&str]) -> Said {
        Said::of(self.command(arguments).output().unwrap())
    }

    /// Where it came from, the body in base64, and how many requests that took.
    fn json(&self, arguments: &[&str]) -> (String, String, u64) {
        let said = self.get(&[arguments, &["--json"]].concat());
        let object = &said.json()[0];
        let text = |name: &str| object[name].as_str().unwrap().to_owned();
        (
            text("from"),
            text("body_base64"),
            object["requests"].as_u64().unwrap(),
        )
    }

    fn cache(&self) -> std::path::PathBuf {
        self.0.path("caches/gleaner")
    }

    /// All bytes of all files of the cache.
    fn kept(&self) -> Vec<u8> {
        let mut all = Vec::new();
        for dir in ["", "bodies", "entries"] {
            for file in fs::read_dir(self.cache().join(dir)).unwrap() {
                let path = file.unwrap().path();
                if path.is_file() {
                    all.extend(path.to_string_lossy().bytes());
                    all.extend(fs::read(path).unwrap());
                }
            }
        }
        all
    }

    fn bodies(&self) -> Vec<std::path::PathBuf> {
        let files = fs::read_dir(self.cache().join("bodies")).unwrap();
        files.map(|file| file.unwrap().path()).collect()
    }
}

fn contains(bytes: &[u8], text: &str) -> bool {
    bytes
        .windows(text.len())
        .any(|window| window == text.as_bytes())
}

#[test]
fn from_the_network_then_confirmed_then_from_the_cache() {
    let (upstream, device) = (Upstream::start(), Device::new());
    upstream.queue(Answer::ok().body("hello").etag("\"1\""));
    upstream.queue(Answer::not_modified().header(FRESH.0, FRESH.1));
    let url = upstream.url("/a");
    let first = device.get(&[&url]);
    assert_eq!(
        (first.code, first.out.as_str(), first.err.as_str()),
        (0, "hello", "")
    );
    assert_eq!(
        device.json(&[&url]),
        ("revalidated".into(), "aGVsbG8=".into(), 1)
    );
    assert_eq!(
        upstream.requests()[1].header("if-none-match"),
        Some("\"1\"")
    );
    assert_eq!(device.json(&[&url]), ("cache".into(), "aGVsbG8=".into(), 0));
    assert_eq!(upstream.requests().len(), 2);

    upstream.queue(Answer::ok().body("newer").etag("\"2\""));
    assert_eq!(device.get(&[&url, "--refresh"]).out, "newer");
    assert_eq!(
        upstream.requests()[2].header("cache-control"),
        Some("max-age=0")
    );
}

#[test]
fn the_object_says_what_it_took() {
    let (upstream, device) = (Upstream::start(), Device::new());
    upstream.queue(Answer::ok().body("x").header("X-A", "1").header("X-A", "2"));
    let said = device.get(&[&upstream.url("/a"), "--json"]);
    let object = &said.json()[0];
    let names: Vec<&str> = [
        "status",
        "headers",
        "body_base64",
        "from",
        "requests",
        "bytes_up",
        "bytes_down",
    ]
    .into();
    assert_eq!(object.as_object().unwrap().len(), names.len());
    assert!(names.iter().all(|name| !object[name].is_null()), "{object}");
    assert_eq!(object["headers"][0], serde_json::json!(["x-a", "1"]));
    assert_eq!(object["headers"][1], serde_json::json!(["x-a", "2"]));
    upstream.settle();
    assert_eq!(object["bytes_up"], upstream.received());
    assert_eq!(object["bytes_down"], upstream.sent());
}

#[test]
fn an_error_is_told_and_only_the_object_has_its_body() {
    let (upstream, device) = (Upstream::start(), Device::new());
    let table = [
        (404, 69),
        (410, 69),
        (400, 69),
        (401, 77),
        (403, 77),
        (429, 75),
        (500, 75),
        (206, 69),
    ];
    for (status, code) in table {
        upstream.answer(move |_| Answer::status(status).body("oops"));
        let plain = device.get(&[&upstream.url("/a"), "-o", "file"]);
        assert_eq!(
            (plain.code, plain.out.as_str()),
            (code, ""),
            "{status}: {}",
            plain.err
        );
        assert!(plain.err.contains(&status.to_string()), "{}", plain.err);
        assert!(!device.0.path("file").exists());
        let object = device.get(&[&upstream.url("/a"), "--json"]);
        assert_eq!(object.code, code);
        assert_eq!(object.json()[0]["status"], status);
        assert_eq!(object.json()[0]["body_base64"], "b29wcw==");
    }
    upstream.answer(|_| Answer::status(201).body("made"));
    assert_eq!(device.get(&[&upstream.url("/a")]).out, "made");
    upstream.answer(|_| Answer::ok().header("Content-Type", "text/html").body("<a>"));
    assert_eq!(
        device.get(&[&upstream.url("/a")]).out,
        "<a>",
        "a portal's page is a body here"
    );
}

#[test]
fn offline_what_may_stand_in_does_and_says_so() {
    let (upstream, device) = (Upstream::start(), Device::new());
    let url = upstream.url("/a");
    upstream.queue(
        Answer::ok()
            .body("old")
            .etag("\"1\"")
            .header("Cache-Control", "stale-if-error=600"),
    );
    assert_eq!(device.get(&[&url]).out, "old");
    upstream.queue(Answer::status(503));
    let said = device.get(&[&url]);
    assert_eq!((said.code, said.out.as_str()), (0, "old"));
    assert!(said.err.contains("503"), "{}", said.err);
    upstream.answer(|_| Answer::raw("").then_reset());
    let said = device.get(&[&url]);
    assert_eq!((said.code, said.out.as_str()), (0, "old"), "{}", said.err);
    assert!(!said.err.is_empty());
    let strict = device.get(&[&url, "--refresh"]);
    assert_eq!((strict.code, strict.out.as_str()), (75, ""));
    let (nobody, _held) = closed();
    assert_eq!(device.get(&[&format!("http://{nobody}/")]).code, 75);
}

#[test]
fn two_at_once_share_one_cache() {
    let (upstream, device) = (Upstream::start(), Device::new());
    let ((open_a, a), (open_b, b)) = (Gate::new(), Gate::new());
    for gate in [a, b] {
        upstream.queue(
            Answer::ok()
                .body("same")
                .etag("\"1\"")
                .header(FRESH.0, FRESH.1)
                .gate(gate),
        );
    }
    let url = upstream.url("/a");
    let start = || {
        let mut command = device.command(&[&url]);
        command
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap()
    };
    let both = [start(), start()];
    while upstream.requests().len() < 2 {
        std::thread::yield_now();
    }
    open_a.open();
    open_b.open();
    for child in both {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success());
        assert_eq!(output.stdout, b"same");
    }
    assert_eq!(device.bodies().len(), 1);
    assert_eq!(device.json(&[&url]).0, "cache");
}

#[test]
fn a_body_that_was_damaged_is_fetched_again_whole() {
    let (upstream, device) = (Upstream::start(), Device::new());
    upstream.answer(|_| {
        Answer::ok()
            .body("hello")
            .etag("\"1\"")
            .header(FRESH.0, FRESH.1)
    });
    let url = upstream.url("/a");
    for damage in ["hellO", "hell", ""] {
        assert_eq!(device.get(&[&url]).out, "hello");
        fs::write(&device.bodies()[0], damage).unwrap();
        assert_eq!(device.json(&[&url]).0, "network");
    }
    assert!(
        upstream
            .requests()
            .iter()
            .all(|request| request.header("if-none-match").is_none())
    );
    for entry in fs::read_dir(device.cache().join("entries")).unwrap() {
        fs::write(entry.unwrap().path(), "{\"version\":1,").unwrap();
    }
    assert_eq!(device.json(&[&url]).0, "network");
}

#[test]
fn where_nothing_can_be_kept_the_body_comes_all_the_same() {
    let (upstream, device) = (Upstream::start(), Device::new());
    upstream.answer(|_| Answer::ok().body("hello").etag("\"1\""));
    fs::write(device.0.path("file"), "").unwrap();
    for place in ["file", "file/below", "/proc/none", "/dev/full"] {
        let said = device.get(&[&upstream.url("/a"), "--cache", place]);
        assert_eq!((said.code, said.out.as_str()), (0, "hello"), "{place}");
        assert!(
            said.err.contains("nothing is kept"),
            "{place}: {}",
            said.err
        );
    }
    let said = device.get(&[&upstream.url("/a"), "--cache-size", "0"]);
    assert_eq!((said.code, said.err.as_str()), (0, ""));
    let small = device.get(&[&upstream.url("/a"), "--cache-size", "3"]);
    assert_eq!(
        (small.code, small.out.as_str(), small.err.as_str()),
        (0, "hello", "")
    );
    assert_eq!(device.bodies().len(), 0);
}

#[test]
fn a_disk_that_fills_up_meanwhile_costs_the_copy_alone() {
    let (upstream, device) = (Upstream::start(), Device::new());
    upstream.answer(|_| Answer::ok().body(vec![b'x'; 300_000]).etag("\"1\""));
    let url = upstream.url("/a");
    // A file may have so many blocks of 512 bytes, and then writing fails as it does on a full disk.
    let script = format!(
        "trap '' XFSZ; ulimit -f 100; exec {} get '{url}' | wc -c",
        env!("CARGO_BIN_EXE_gleaner")
    );
    let mut shell = Command::new("sh");
    shell
        .args(["-c", &script])
        .env("XDG_CACHE_HOME", device.0.path("caches"));
    shell
        .env_remove("GLEANER_CONFIG")
        .env_remove("GLEANER_CACHE")
        .env_remove("CACHE_DIRECTORY");
    let said = Said::of(shell.output().unwrap());
    assert_eq!(said.out.trim(), "300000");
    assert!(said.err.contains("the answer is not kept"), "{}", said.err);
    assert_eq!(device.bodies().len(), 0);
}

#[test]
fn a_cut_body_is_an_error_and_is_not_kept() {
    let (upstream, device) = (Upstream::start(), Device::new());
    fs::write(device.0.path("file"), "before").unwrap();
    let cut = || {
        Answer::ok()
            .body(vec![b'x'; 5000])
            .etag("\"1\"")
            .header(FRESH.0, FRESH.1)
            .only(2000)
    };
    let url = upstream.url("/a");
    for arguments in [
        vec![url.as_str()],
        vec![&url, "--json"],
        vec![&url, "-o", "file"],
    ] {
        upstream.queue(cut());
        let said = device.get(&arguments);
        assert_eq!(said.code, 75, "{arguments:?}: {}", said.err);
        assert!(said.err.contains("cut"), "{}", said.err);
        assert!(!arguments.contains(&"--json") || said.out.is_empty());
    }
    assert_eq!(fs::read_to_string(device.0.path("file")).unwrap(), "before");
    assert_eq!(device.bodies().len(), 0);
    upstream.queue(Answer::ok().body("all").etag("\"1\"").close_delimited());
    assert_eq!(device.get(&[&url]).out, "all");
    assert_eq!(
        device.bodies().len(),
        0,
        "nothing proves that this was its end"
    );
    upstream.queue(Answer::ok().body(vec![b'x'; 5000]).etag("\"1\""));
    let large = device.get(&[&url, "--max-size", "4k"]);
    assert_eq!(large.code, 69);
    assert!(large.err.contains("--max-size"), "{}", large.err);
}

#[test]
fn a_file_is_replaced_whole() {
    let (upstream, device) = (Upstream::start(), Device::new());
    upstream.answer(|_| Answer::ok().body("new"));
    fs::write(device.0.path("real"), "before").unwrap();
    std::os::unix::fs::symlink("real", device.0.path("link")).unwrap();
    let said = device.get(&[&upstream.url("/a"), "-o", "link"]);
    assert_eq!((said.code, said.out.as_str()), (0, ""));
    assert_eq!(fs::read_to_string(device.0.path("real")).unwrap(), "new");
    assert!(device.0.path("link").is_symlink());
    let full = device.get(&[&upstream.url("/a"), "-o", "/dev/full"]);
    assert_eq!(full.code, 74, "{}", full.err);
    assert!(Path::new("/dev/full").exists());
    assert_eq!(
        device
            .get(&[&upstream.url("/a"), "-o", "no/such/file"])
            .code,
        74
    );
}

#[test]
fn redirects_are_kept_each_on_its_own_and_fields_stay_with_their_host() {
    let (upstream, other, device) = (Upstream::start(), Upstream::start(), Device::new());
    let target = other.url("/b");
    upstream.answer(move |_| Answer::redirect(301, &target).header(FRESH.0, FRESH.1));
    other.answer(|_| Answer::ok().body("there").etag("\"1\""));
    let url = upstream.url("/a");
    let told = ["-H", "Authorization: Bearer hunter2", "-H", "X-Mine: 1"];
    assert_eq!(
        device.get(&[&[url.as_str()], &told[..]].concat()).out,
        "there"
    );
    let (from, to) = (upstream.requests(), other.requests());
    assert_eq!(from[0].header("authorization"), Some("Bearer hunter2"));
    assert_eq!(
        (to[0].header("authorization"), to[0].header("x-mine")),
        (None, None)
    );
    assert_eq!(
        device.get(&[&[url.as_str()], &told[..]].concat()).out,
        "there"
    );
    assert_eq!((upstream.requests().len(), other.requests().len()), (1, 2));
    assert!(other.requests()[1].header("if-none-match").is_some());
    let loops = upstream.url("/loop");
    let back = loops.clone();
    upstream.answer(move |_| Answer::redirect(302, &back));
    let said = device.get(&[&loops]);
    assert_eq!(said.code, 75);
    assert!(said.err.contains("redirects"), "{}", said.err);
}

#[test]
fn no_secret_and_nothing_that_must_not_be_kept_is_in_a_file() {
    let (upstream, device) = (Upstream::start(), Device::new());
    upstream.answer(|request| {
        let who = request
            .header("authorization")
            .or(request.header("x-plain"))
            .unwrap_or("nobody");
        let body = format!("for {}", who.len());
        Answer::ok()
            .body(body)
            .etag("\"1\"")
            .header(FRESH.0, FRESH.1)
            .header("Vary", "Authorization, X-Plain")
            .header("Set-Cookie", "session=swordfish")
    });
    fs::write(
        device.0.path("secret"),
        "Authorization: Bearer hunter2\n\nX-Plain: open-sesame\n",
    )
    .unwrap();
    let url = upstream.url("/a?token=opensecret");
    let one = device.json(&[&url, "-H", "@secret"]);
    assert_eq!(
        device.json(&[&url, "-H", "@secret"]),
        ("cache".into(), one.1.clone(), 0)
    );
    let other = device.json(&[&url, "-H", "Authorization: Bearer another-one"]);
    assert_eq!(other.0, "network");
    assert_ne!(one.1, other.1);
    assert_eq!(device.json(&[&url]).0, "network");
    let kept = device.kept();
    for secret in [
        "hunter2",
        "another-one",
        "swordfish",
        "opensecret",
        "open-sesame",
    ] {
        assert!(!contains(&kept, secret), "{secret}");
    }
    let before = kept.len();
    upstream.answer(|_| {
        Answer::ok()
            .body("treasure")
            .etag("\"1\"")
            .header("cache-control", "max-age=9, No-STORE")
    });
    assert_eq!(device.get(&[&upstream.url("/b")]).out, "treasure");
    upstream.answer(|_| Answer::ok().body("treasure").etag("\"1\""));
    assert_eq!(
        device
            .get(&[&upstream.url("/b"), "-H", "Cache-Control: no-store"])
            .out,
        "treasure"
    );
    assert_eq!(device.kept().len(), before);
}

#[test]
fn what_was_kept_goes_when_upstream_says_no_store() {
    let (upstream, device) = (Upstream::start(), Device::new());
    let url = upstream.url("/a");
    upstream.queue(
        Answer::ok()
            .body("first")
            .etag("\"1\"")
            .header("Cache-Control", "stale-if-error=600"),
    );
    upstream.queue(
        Answer::ok()
            .body("second")
            .header("Cache-Control", "no-store"),
    );
    assert_eq!(device.get(&[&url]).out, "first");
    assert_eq!(device.get(&[&url]).out, "second");
    upstream.queue(Answer::status(503));
    assert_eq!(
        device.get(&[&url]).code,
        75,
        "what is outdated stands in for nothing"
    );
}

#[test]
fn a_304_about_another_version_and_a_refused_condition_are_asked_once_more() {
    let (upstream, device) = (Upstream::start(), Device::new());
    let url = upstream.url("/a");
    upstream.queue(Answer::ok().body("one").etag("\"1\""));
    assert_eq!(device.get(&[&url]).out, "one");
    for odd in [
        Answer::not_modified().etag("\"7\""),
        Answer::status(412),
        Answer::status(400),
    ] {
        upstream.queue(odd);
        upstream.queue(Answer::ok().body("two").etag("\"2\""));
        let said = device.get(&[&url]);
        assert_eq!((said.code, said.out.as_str()), (0, "two"), "{}", said.err);
    }
    upstream.answer(|_| Answer::not_modified());
    let own = device.get(&[&url, "-H", "If-None-Match: \"9\"", "--json"]);
    assert_eq!((own.code, own.json()[0]["status"].as_u64()), (0, Some(304)));
}

#[test]
fn gzip_is_undone_unless_it_was_asked_for_by_hand() {
    use std::io::Write as _;
    let (upstream, device) = (Upstream::start(), Device::new());
    let mut coder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    coder.write_all(b"hello").unwrap();
    let coded = coder.finish().unwrap();
    let length = coded.len();
    upstream.answer(move |_| {
        Answer::ok()
            .header("Content-Encoding", "gzip")
            .header(FRESH.0, FRESH.1)
            .header("Vary", "Accept-Encoding")
            .body(coded.clone())
    });
    let url = upstream.url("/a");
    assert_eq!(upstream.requests().len(), 0);
    assert_eq!(
        device.json(&[&url]),
        ("network".into(), "aGVsbG8=".into(), 1)
    );
    assert_eq!(device.json(&[&url]), ("cache".into(), "aGVsbG8=".into(), 0));
    let raw = device
        .command(&[&url, "-H", "Accept-Encoding: gzip, br"])
        .output()
        .unwrap();
    assert_eq!(raw.stdout.len(), length);
    upstream.answer(|_| Answer::ok().header("Content-Encoding", "br").body("?"));
    let said = device.get(&[&upstream.url("/b")]);
    assert_eq!((said.code, said.out.as_str()), (69, ""));
}

#[test]
fn with_a_config_the_upstreams_credentials_go_along_and_its_scope_parts_the_answers() {
    let (upstream, device) = (Upstream::start(), Device::new());
    upstream.answer(|_| {
        Answer::ok()
            .body("mine")
            .etag("\"1\"")
            .header(FRESH.0, FRESH.1)
    });
    fs::write(device.0.path("token"), "hunter2\n").unwrap();
    let base = upstream.url("/");
    let config = |scope: &str| {
        device.0.config(&format!(
            "[upstream.erp]\nbase = \"{base}\"\nauth = {{ bearer = {{ file = \"token\" }} }}\nscope = \"{scope}\"\n[source.a]\nupstream = \"erp\"\npath = \"a\"\nkey = \"/id\"\n"
        ));
    };
    let url = upstream.url("/a");
    let with = [url.as_str(), "-c", "gleaner.toml"];
    config("one");
    assert_eq!(device.json(&with).0, "network");
    assert_eq!(
        upstream.requests()[0].header("authorization"),
        Some("Bearer hunter2")
    );
    fs::write(device.0.path("token"), "renewed\n").unwrap();
    assert_eq!(
        device.json(&with).0,
        "cache",
        "a rotated token is the same view"
    );
    config("two");
    assert_eq!(device.json(&with).0, "network");
    assert_eq!(device.json(&[&url]).0, "network");
    assert_eq!(upstream.requests()[2].header("authorization"), None);
    assert!(!contains(&device.kept(), "hunter2"));
    let missing = device.get(&[&url, "-c", "no-such.toml"]);
    assert_eq!(missing.code, 78);
}

#[test]
fn a_wrong_command_line_says_what_is_right_and_shows_no_secret() {
    let device = Device::new();
    let table = [
        (&["ftp://a.example/"][..], "http"),
        (&["http://user:hunter2@a.example/"], "-H @FILE"),
        (&["nonsense"], "https://"),
        (&["http://a.example/", "-H", "hunter2"], "Name: value"),
        (&["http://a.example/", "-H", "Host: x"], "not for you"),
        (&["http://a.example/", "--max-time", "soon"], "--max-time"),
        (&["http://a.example/", "--max-size", "much"], "--max-size"),
    ];
    for (arguments, told) in table {
        let said = device.get(arguments);
        assert_eq!(said.code, 64, "{arguments:?}");
        assert!(said.err.contains(told), "{}", said.err);
    }
    fs::write(device.0.path("lines"), "A: 1\nhunter2\n").unwrap();
    let said = device.get(&["http://a.example/", "-H", "@lines"]);
    assert_eq!(said.code, 64);
    assert!(
        said.err.contains("line 2") && !said.err.contains("hunter2"),
        "{}",
        said.err
    );
}
