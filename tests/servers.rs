//! Documents of a real nginx and a real apache2: what only real servers show. Without one of them the tests say so and go on;
//! with `GLEANER_REQUIRE_SERVERS=1` (as CI sets it) they fail instead.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot be set up has failed"
)]

mod support;

use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime};

use serde_json::Value;
use support::cutter::Cutter;
use support::files::bytes;
use support::pki::Pki;

/// Which server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Nginx,
    Apache,
}

const BOTH: [Kind; 2] = [Kind::Nginx, Kind::Apache];

/// What a test wants of either.
#[derive(Debug, Clone, Copy, Default)]
struct Wants {
    tls: bool,
    /// Ranges are not served.
    no_ranges: bool,
    /// No entity tags.
    no_tags: bool,
    /// Answers are compressed for whoever takes that.
    compressed: bool,
}

/// A server on loopback over a directory of its own, with a line before it that can be cut, and a gleaner.
struct Server {
    home: tempfile::TempDir,
    kind: Kind,
    port: u16,
    tls: bool,
    child: Child,
    line: Cutter,
}

impl Server {
    /// `None`, and a word about it, if it is not here.
    fn start(kind: Kind, wants: Wants) -> Option<Self> {
        let program = match kind {
            Kind::Nginx => "nginx",
            Kind::Apache => "apache2",
        };
        let found = Command::new(program)
            .arg("-v")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok();
        if !found {
            assert!(
                std::env::var_os("GLEANER_REQUIRE_SERVERS").is_none(),
                "{program} is required and not installed"
            );
            println!("left out: {program} is not installed");
            return None;
        }
        let home = tempfile::tempdir().unwrap();
        // The servers' workers are other users.
        fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::create_dir(home.path().join("www")).unwrap();
        if wants.tls {
            let pki = Pki::new();
            let leaf = pki.leaf(&["localhost"]);
            fs::copy(pki.ca_file(), home.path().join("ca.pem")).unwrap();
            fs::write(home.path().join("cert.pem"), &leaf.cert).unwrap();
            fs::write(home.path().join("key.pem"), &leaf.key).unwrap();
        }
        let port = free_port();
        let mut command = Command::new(program);
        match kind {
            Kind::Nginx => {
                fs::write(home.path().join("nginx.conf"), nginx(port, wants)).unwrap();
                command
                    .arg("-p")
                    .arg(home.path())
                    .args(["-c", "nginx.conf"]);
            }
            Kind::Apache => {
                let text = apache(home.path().to_str().unwrap(), port, wants);
                fs::write(home.path().join("apache.conf"), text).unwrap();
                command
                    .arg("-d")
                    .arg(home.path())
                    .args(["-f", "apache.conf", "-DFOREGROUND"]);
            }
        }
        let mut child = command.stderr(Stdio::null()).spawn().unwrap();
        let addr = SocketAddr::from(([127, 0, 0, 1], port));
        while TcpStream::connect(addr).is_err() {
            if let Some(status) = child.try_wait().unwrap() {
                let log = fs::read_to_string(home.path().join("error.log"));
                panic!("{program} does not start: {status}, {log:?}");
            }
            std::thread::yield_now();
        }
        Some(Self {
            line: Cutter::to(addr),
            home,
            kind,
            port,
            tls: wants.tls,
            child,
        })
    }

    fn each(wants: Wants) -> impl Iterator<Item = Self> {
        BOTH.into_iter()
            .filter_map(move |kind| Self::start(kind, wants))
    }

    fn served(&self) -> PathBuf {
        self.home.path().join("www/fw.bin")
    }

    /// Puts a file, last modified so many seconds before now.
    fn put(&self, body: &[u8], age: u64) {
        fs::write(self.served(), body).unwrap();
        self.date(age);
    }

    #[allow(clippy::disallowed_methods, reason = "the server lives in real time")]
    fn date(&self, age: u64) {
        let file = fs::File::options().write(true).open(self.served()).unwrap();
        let then = SystemTime::now() - Duration::from_secs(age);
        file.set_modified(then).unwrap();
    }

    /// The same file to the second, cut off behind so many bytes.
    fn shorten(&self, length: u64) {
        let file = fs::File::options().write(true).open(self.served()).unwrap();
        let then = file.metadata().unwrap().modified().unwrap();
        file.set_len(length).unwrap();
        file.set_modified(then).unwrap();
    }

    fn url(&self) -> String {
        let (scheme, host) = if self.tls {
            ("https", "localhost")
        } else {
            ("http", "127.0.0.1")
        };
        format!("{scheme}://{host}:{}/fw.bin", self.line.port())
    }

    /// `gleaner sync` of a document at `url`, which is kept as `fw.bin`.
    fn sync_from(&self, url: &str, more: &str) -> Value {
        let ca = if self.tls {
            format!("extra_ca = {:?}\n", self.home.path().join("ca.pem"))
        } else {
            String::new()
        };
        let text = format!(
            "[agent]\nstate = \"state\"\n[document.fw]\nurl = \"{url}\"\nfile = \"fw.bin\"\nproxy = \"\"\n{ca}{more}"
        );
        let config = self.home.path().join("gleaner.toml");
        fs::write(&config, text).unwrap();
        gleaner(&config)
    }

    fn sync(&self) -> Value {
        self.sync_from(&self.url(), "")
    }

    fn content(&self) -> Vec<u8> {
        fs::read(self.home.path().join("state/documents/fw.bin")).unwrap()
    }

    fn part(&self) -> u64 {
        fs::metadata(self.home.path().join("state/documents/.part/fw")).map_or(0, |meta| meta.len())
    }

    /// The statuses that it has answered with so far.
    fn statuses(&self) -> Vec<String> {
        let log = fs::read_to_string(self.home.path().join("access.log")).unwrap_or_default();
        log.lines()
            .filter_map(|line| line.split('"').nth(2)?.split_whitespace().next())
            .map(str::to_owned)
            .collect()
    }

    fn last_status(&self, count: usize) -> String {
        // It writes its log after the answer.
        loop {
            let all = self.statuses();
            if all.len() >= count {
                return all.last().cloned().unwrap_or_default();
            }
            std::thread::yield_now();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        let _gone = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let _reaped = self.child.wait();
    }
}

fn nginx(port: u16, wants: Wants) -> String {
    let tls = if wants.tls {
        "ssl; ssl_certificate cert.pem; ssl_certificate_key key.pem"
    } else {
        ""
    };
    let mut more = String::new();
    if wants.no_ranges {
        more.push_str("max_ranges 0; ");
    }
    if wants.no_tags {
        more.push_str("etag off; ");
    }
    if wants.compressed {
        more.push_str("gzip on; gzip_types *; ");
    }
    let user = if rustix::process::geteuid().is_root() {
        "user root;"
    } else {
        ""
    };
    format!(
        "{user} daemon off; pid nginx.pid; error_log error.log; events {{}}
         http {{ access_log access.log; default_type application/octet-stream; client_body_temp_path t1; proxy_temp_path t2;
           fastcgi_temp_path t3; uwsgi_temp_path t4; scgi_temp_path t5;
           server {{ listen 127.0.0.1:{port} {tls}; root www; {more} }} }}"
    )
}

fn apache(home: &str, port: u16, wants: Wants) -> String {
    let mut modules = vec!["mpm_event", "authz_core", "filter", "deflate"];
    let mut more = String::new();
    if wants.tls {
        modules.push("ssl");
        more.push_str("SSLEngine on\nSSLCertificateFile cert.pem\nSSLCertificateKeyFile key.pem\n");
    }
    if wants.no_ranges {
        more.push_str("MaxRanges none\n");
    }
    if wants.no_tags {
        more.push_str("FileETag None\n");
    }
    if wants.compressed {
        more.push_str("SetOutputFilter DEFLATE\n");
    }
    let modules: String = modules
        .iter()
        .map(|name| format!("LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so\n"))
        .collect();
    let user = if rustix::process::geteuid().is_root() {
        "User www-data\nGroup www-data\n"
    } else {
        ""
    };
    format!(
        "ServerRoot {home}\nDefaultRuntimeDir {home}\nPidFile apache.pid\nErrorLog error.log\n{modules}{user}\
         ServerName localhost\nListen 127.0.0.1:{port}\nAcceptFilter http none\nAcceptFilter https none\n\
         CustomLog access.log \"%h \\\"%r\\\" %>s %B\"\nDocumentRoot {home}/www\n{more}"
    )
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}

fn gleaner(config: &std::path::Path) -> Value {
    let output = Command::new(env!("CARGO_BIN_EXE_gleaner"))
        .arg("-c")
        .arg(config)
        .args(["sync", "--json"])
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

fn outcome(report: &Value) -> &str {
    report["outcome"].as_str().unwrap()
}

const SIZE: usize = 600_000;

/// A gateway that has half of a version.
fn half(server: &Server) -> Vec<u8> {
    server.put(b"the old version", 7200);
    assert_eq!(outcome(&server.sync()), "changed", "{:?}", server.kind);
    let new = bytes(SIZE, 2);
    server.put(&new, 3600);
    server.line.after(300_000);
    let cut = server.sync();
    assert_eq!(outcome(&cut), "failing", "{cut}");
    server.line.mend();
    assert!(
        server.part() > 200_000,
        "{:?}: {}",
        server.kind,
        server.part()
    );
    assert_eq!(server.content(), b"the old version");
    new
}

fn goes_on(wants: Wants) {
    for server in Server::each(wants) {
        let new = half(&server);
        let (held, before) = (server.part(), server.line.down());
        let report = server.sync();
        assert_eq!(outcome(&report), "changed", "{report}");
        assert_eq!(server.content(), new);
        let down = server.line.down() - before;
        // A handshake takes its part too.
        assert!(
            down < SIZE as u64 - held + 6000,
            "{:?}: {down} bytes for the rest",
            server.kind
        );
        assert_eq!(server.last_status(3), "206");
        assert_eq!(outcome(&server.sync()), "unchanged");
        assert_eq!(server.last_status(4), "304");
        println!(
            "{:?} {wants:?}: {held} of {SIZE} bytes held, {down} came for the rest",
            server.kind
        );
    }
}

#[test]
fn a_cut_download_goes_on() {
    goes_on(Wants::default());
}

#[test]
fn a_cut_download_goes_on_over_tls() {
    goes_on(Wants {
        tls: true,
        ..Wants::default()
    });
}

#[test]
fn a_cut_download_goes_on_by_its_date_where_there_are_no_tags() {
    goes_on(Wants {
        no_tags: true,
        ..Wants::default()
    });
}

#[test]
fn where_others_get_it_compressed_a_document_comes_as_it_is() {
    goes_on(Wants {
        compressed: true,
        ..Wants::default()
    });
}

#[test]
fn a_file_that_changed_meanwhile_replaces_and_never_appends() {
    for server in Server::each(Wants::default()) {
        half(&server);
        let other = bytes(SIZE, 3);
        server.put(&other, 1800);
        let report = server.sync();
        assert_eq!(outcome(&report), "changed", "{report}");
        assert_eq!(server.content(), other);
        assert_eq!(server.last_status(3), "200");
        assert_eq!(server.part(), 0);
    }
}

#[test]
fn a_server_without_ranges_sends_it_again() {
    let wants = Wants {
        no_ranges: true,
        ..Wants::default()
    };
    for server in Server::each(wants) {
        let new = half(&server);
        let report = server.sync();
        assert_eq!(outcome(&report), "changed", "{report}");
        assert_eq!(server.content(), new);
        assert_eq!(server.last_status(3), "200");
    }
}

#[test]
fn a_416_begins_anew_where_the_whole_is_shorter_than_what_is_held() {
    let wants = Wants {
        no_tags: true,
        ..Wants::default()
    };
    for server in Server::each(wants) {
        let new = half(&server);
        let held = server.part();
        server.shorten(held - 1000);
        let report = server.sync();
        assert_eq!(outcome(&report), "changed", "{report}");
        let length = usize::try_from(held).unwrap() - 1000;
        assert_eq!(server.content(), new[..length]);
        assert_eq!(server.last_status(4), "200");
        assert_eq!(server.statuses()[2], "416", "{:?}", server.kind);
        assert_eq!(server.part(), 0);
    }
}

#[test]
fn a_redirect_to_another_host_is_gone_on_behind() {
    for server in Server::each(Wants::default()) {
        let front = support::upstream::Upstream::start();
        let target = server.url();
        front.answer(move |_| support::upstream::Answer::redirect(302, &target).etag("\"front\""));
        let url = front.url("/latest");
        let new = bytes(SIZE, 2);
        server.put(&new, 3600);
        server.line.after(300_000);
        assert_eq!(outcome(&server.sync_from(&url, "")), "failing");
        server.line.mend();
        assert!(server.part() > 200_000);
        assert_eq!(outcome(&server.sync_from(&url, "")), "changed");
        assert_eq!(server.content(), new);
        assert_eq!(server.last_status(2), "206");
        assert_eq!(outcome(&server.sync_from(&url, "")), "unchanged");
        assert_eq!(server.last_status(3), "304");
        assert!(front.requests().iter().all(|request| {
            request.header("range").is_none() && request.header("if-none-match").is_none()
        }));
    }
}

/// mod_deflate appends `-gzip` to a tag, and then does not know its own tag again: never a 304, and nothing changes all the same.
#[test]
fn a_collection_behind_apaches_deflate_is_unchanged() {
    let wants = Wants {
        compressed: true,
        ..Wants::default()
    };
    let Some(server) = Server::start(Kind::Apache, wants) else {
        return;
    };
    let records: Vec<String> = (0..500).map(|id| format!("{{\"id\":{id}}}")).collect();
    server.put(format!("[{}]", records.join(",")).as_bytes(), 3600);
    let text = format!(
        "[agent]\nstate = \"state\"\n[source.items]\nurl = \"{}\"\nkey = \"/id\"\nproxy = \"\"\n",
        server.url()
    );
    let config = server.home.path().join("gleaner.toml");
    fs::write(&config, text).unwrap();
    let first = gleaner(&config);
    assert_eq!(
        (outcome(&first), first["added"].as_u64()),
        ("changed", Some(500))
    );
    assert!(first["bytes_down"].as_u64().unwrap() < 4000, "{first}");
    for _ in 0..2 {
        let idle = gleaner(&config);
        assert_eq!(outcome(&idle), "unchanged");
        assert!(idle["bytes_down"].as_u64().unwrap() < 4000, "{idle}");
        println!(
            "apache with deflate: {} of 1 answers were 304",
            idle["not_modified"]
        );
    }
    let tag = curl_tag(server.port);
    assert!(tag.ends_with("-gzip\""), "{tag}");
}

/// The tag that whoever takes gzip gets.
fn curl_tag(port: u16) -> String {
    use std::io::{Read as _, Write as _};

    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let request =
        "GET /fw.bin HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\nConnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let text = String::from_utf8_lossy(&answer).into_owned();
    let line = text
        .lines()
        .find(|line| line.starts_with("ETag: "))
        .unwrap();
    line["ETag: ".len()..].to_owned()
}
