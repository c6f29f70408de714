//! Against a real nginx: what only a real server shows. Without one the tests say so and pass; with
//! `GLEANER_REQUIRE_SERVERS=1` (as CI sets it) they fail instead. `GLEANER_QUAKES=FILE` serves the full feed of 1,707 records
//! in place of the 300 that are here.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot be set up has failed"
)]

mod support;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use support::pki::Pki;

/// nginx on loopback, over a directory of its own.
struct Nginx {
    home: tempfile::TempDir,
    port: u16,
    tls: bool,
}

impl Nginx {
    /// Starts one with `directives` in its server block; `None`, and a word about it, if there is no nginx here.
    fn start(directives: &str) -> Option<Self> {
        Self::launch(directives, false)
    }

    fn launch(directives: &str, tls: bool) -> Option<Self> {
        let found = Command::new("nginx")
            .arg("-v")
            .stderr(Stdio::null())
            .status()
            .is_ok();
        if !found {
            assert!(
                std::env::var_os("GLEANER_REQUIRE_SERVERS").is_none(),
                "nginx is required and not installed"
            );
            eprintln!("left out: nginx is not installed");
            return None;
        }
        let home = tempfile::tempdir().unwrap();
        let root = home.path().join("www");
        std::fs::create_dir(&root).unwrap();
        let port = free_port();
        let mut listen = format!("listen 127.0.0.1:{port};");
        if tls {
            let pki = Pki::new();
            let leaf = pki.leaf(&["localhost"]);
            std::fs::copy(pki.ca_file(), home.path().join("ca.pem")).unwrap();
            std::fs::write(home.path().join("cert.pem"), &leaf.cert).unwrap();
            std::fs::write(home.path().join("key.pem"), &leaf.key).unwrap();
            listen = format!(
                "listen 127.0.0.1:{port} ssl; ssl_certificate cert.pem; ssl_certificate_key key.pem;"
            );
        }
        let user = if rustix::process::geteuid().is_root() {
            "user root;"
        } else {
            ""
        };
        let config = format!(
            "{user} daemon on; pid nginx.pid; error_log error.log; events {{}}
             http {{ log_format conn '$connection $status'; access_log access.log; types {{ application/json json; }} client_body_temp_path t1; proxy_temp_path t2;
               fastcgi_temp_path t3; uwsgi_temp_path t4; scgi_temp_path t5;
               server {{ {listen} root www; keepalive_timeout 300; {directives} }} }}"
        );
        std::fs::write(home.path().join("nginx.conf"), config).unwrap();
        let nginx = Self { home, port, tls };
        assert!(
            nginx.command().status().unwrap().success(),
            "nginx does not start"
        );
        Some(nginx)
    }

    fn command(&self) -> Command {
        let mut command = Command::new("nginx");
        command
            .arg("-p")
            .arg(self.home.path())
            .arg("-c")
            .arg("nginx.conf")
            .stderr(Stdio::null());
        command
    }

    fn put(&self, feed: &Value) {
        // Another length, another second or not: nginx's ETag is made of both.
        let path = self.home.path().join("www/feed.json");
        let later = std::fs::metadata(&path)
            .ok()
            .and_then(|meta| meta.modified().ok())
            .map(|then| then + std::time::Duration::from_secs(2));
        std::fs::write(&path, feed.to_string()).unwrap();
        // What was modified in this very second is not asked for by its time.
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        let now = file.metadata().unwrap().modified().unwrap();
        let past = now - std::time::Duration::from_secs(3600);
        file.set_modified(later.unwrap_or(past)).unwrap();
    }

    fn config(&self, more: &str) -> PathBuf {
        let (scheme, host, ca) = if self.tls {
            (
                "https",
                "localhost",
                format!(
                    "extra_ca = \"{}\"",
                    self.home.path().join("ca.pem").display()
                ),
            )
        } else {
            ("http", "127.0.0.1", String::new())
        };
        let text = format!(
            "[agent]\nstate = \"state\"\n[source.quakes]\nurl = \"{scheme}://{host}:{}/feed.json\"\n{ca}\nrecords = \"/features\"\nkey = \"/id\"\ncolumns = {{ mag = \"/properties/mag\" }}\n{more}\n",
            self.port
        );
        let path = self.home.path().join("gleaner.toml");
        std::fs::write(&path, text).unwrap();
        path
    }

    fn access_log(&self) -> String {
        std::fs::read_to_string(self.home.path().join("access.log")).unwrap_or_default()
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.command().args(["-s", "stop"]).status();
    }
}

fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}

fn feed() -> Value {
    let path = std::env::var_os("GLEANER_QUAKES").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/data/earthquakes.json"),
        PathBuf::from,
    );
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn sync(config: &Path) -> Value {
    let output = Command::new(env!("CARGO_BIN_EXE_gleaner"))
        .arg("-c")
        .arg(config)
        .args(["sync", "--json"])
        .env_remove("HTTPS_PROXY")
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        !text.is_empty(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_str(&text).unwrap()
}

/// Outcome, added, changed, deleted.
fn counts(report: &Value) -> (&str, u64, u64, u64) {
    let number = |name: &str| report[name].as_u64().unwrap();
    (
        report["outcome"].as_str().unwrap(),
        number("added"),
        number("changed"),
        number("deleted"),
    )
}

fn wire(report: &Value) -> u64 {
    report["bytes_up"].as_u64().unwrap() + report["bytes_down"].as_u64().unwrap()
}

fn rows(nginx: &Nginx) -> u64 {
    let db = rusqlite::Connection::open(nginx.home.path().join("state/data.db")).unwrap();
    db.query_row("SELECT count(*) FROM quakes", [], |row| {
        row.get::<_, i64>(0)
    })
    .map(|count| u64::try_from(count).unwrap())
    .unwrap()
}

/// First all, then nothing for under `small` bytes, then exactly what was edited and removed.
fn keeps_a_copy(nginx: &Nginx, small: u64) {
    let mut feed = feed();
    let count = feed["features"].as_array().unwrap().len() as u64;
    nginx.put(&feed);
    let config = nginx.config("");
    assert_eq!(counts(&sync(&config)), ("changed", count, 0, 0));
    assert_eq!(rows(nginx), count);

    let idle = sync(&config);
    assert_eq!(counts(&idle), ("unchanged", 0, 0, 0));
    assert_eq!(idle["not_modified"], 1, "{idle}\n{}", nginx.access_log());
    assert!(wire(&idle) < small, "{} bytes for nothing new", wire(&idle));

    feed["features"][7]["properties"]["mag"] = Value::from(9.75);
    nginx.put(&feed);
    assert_eq!(counts(&sync(&config)), ("changed", 0, 1, 0));
    feed["features"].as_array_mut().unwrap().remove(3);
    nginx.put(&feed);
    assert_eq!(counts(&sync(&config)), ("changed", 0, 0, 1));
    assert_eq!(rows(nginx), count - 1);
    println!(
        "{count} records; idle poll: {} B up, {} B down",
        idle["bytes_up"], idle["bytes_down"]
    );
}

#[test]
fn a_feed_is_fetched_once_and_then_only_what_changed() {
    let Some(nginx) = Nginx::start("") else {
        return;
    };
    keeps_a_copy(&nginx, 1000);
}

#[test]
fn gzip_makes_the_etag_weak_and_it_still_counts() {
    let Some(nginx) = Nginx::start("gzip on; gzip_types application/json;") else {
        return;
    };
    keeps_a_copy(&nginx, 1000);
    let first: u64 = nginx
        .access_log()
        .lines()
        .next()
        .unwrap()
        .split(' ')
        .nth(9)
        .unwrap()
        .parse()
        .unwrap();
    assert!(
        first < 80_000 || std::env::var_os("GLEANER_QUAKES").is_some(),
        "the first body came in gzip: {first}"
    );
}

#[test]
fn last_modified_alone_is_enough() {
    let Some(nginx) = Nginx::start("etag off;") else {
        return;
    };
    keeps_a_copy(&nginx, 1000);
}

#[test]
fn a_private_ca_is_trusted_when_the_config_says_so() {
    let Some(nginx) = Nginx::launch("", true) else {
        return;
    };
    // Each sync is a process of its own, so it pays a whole handshake.
    keeps_a_copy(&nginx, 4000);
}

#[test]
fn a_stranger_s_certificate_is_refused_and_says_what_to_do() {
    let Some(nginx) = Nginx::launch("", true) else {
        return;
    };
    nginx.put(&feed());
    let config = nginx.config("");
    let text = std::fs::read_to_string(&config).unwrap();
    let without: Vec<&str> = text
        .lines()
        .filter(|line| !line.starts_with("extra_ca"))
        .collect();
    std::fs::write(&config, without.join("\n")).unwrap();
    let report = sync(&config);
    assert_eq!(report["outcome"], "failing");
    assert!(
        report["reason"].as_str().unwrap().contains("extra_ca"),
        "{report}"
    );
}

#[test]
fn polls_of_a_running_agent_share_one_connection() {
    let Some(nginx) = Nginx::start("access_log conn.log conn;") else {
        return;
    };
    nginx.put(&feed());
    let config = nginx.config("every = \"1s\"\njitter = \"0s\"");
    let mut child = Command::new(env!("CARGO_BIN_EXE_gleaner"))
        .arg("-c")
        .arg(&config)
        .arg("run")
        .spawn()
        .unwrap();
    let log = nginx.home.path().join("conn.log");
    let seen = || std::fs::read_to_string(&log).unwrap_or_default();
    while seen().lines().count() < 4 {
        assert!(child.try_wait().unwrap().is_none(), "the agent ended");
        std::thread::yield_now();
    }
    rustix::process::kill_process(
        rustix::process::Pid::from_child(&child),
        rustix::process::Signal::TERM,
    )
    .unwrap();
    assert!(child.wait().unwrap().success(), "SIGTERM is a good end");
    let lines: Vec<(String, String)> = seen()
        .lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(c, s)| (c.to_owned(), s.to_owned()))
        .collect();
    assert!(
        lines
            .iter()
            .all(|(connection, _)| *connection == lines[0].0),
        "{lines:?}"
    );
    let statuses: Vec<&str> = lines.iter().map(|(_, status)| status.as_str()).collect();
    assert_eq!(statuses[..4], ["200", "304", "304", "304"]);
}
