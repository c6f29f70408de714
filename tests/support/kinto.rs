//! A real Kinto: a JSON storage service with timestamps as entity tags, tombstones and pages behind a header.
//!
//! It is looked for at `GLEANER_KINTO`, else at `target/kinto/bin/kinto`, where `.ci/run` puts it.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::{Value, json};

use super::device::until;
use super::dice::Dice;

/// `user:password` of whom the records belong to.
const CREDENTIALS: &str = "Z3c6aHVudGVyMg==";
/// The password in them.
pub const PASSWORD: &str = "hunter2";
/// Where the records are, below the base.
pub const RECORDS: &str = "buckets/plant/collections/parts/records";
/// Of one batch request.
const BATCH: usize = 100;

/// Between two batches of a writer.
const PACE: Duration = Duration::from_millis(100);

/// Kinto on loopback, all in memory. Killed when dropped.
pub struct Kinto {
    home: tempfile::TempDir,
    child: Child,
    pub port: u16,
}

impl Kinto {
    /// Starts one with these settings beside the usual, and so many records; `None`, and a word about it, if there is no
    /// Kinto here.
    pub fn start(settings: &str, records: u64) -> Option<Self> {
        let program = program();
        if !program.is_file() {
            assert!(
                std::env::var_os("GLEANER_REQUIRE_SERVERS").is_none(),
                "kinto is required and not installed: {}",
                program.display()
            );
            eprintln!("left out: kinto is not installed ({})", program.display());
            return None;
        }
        let home = tempfile::tempdir().unwrap();
        let port = free_port();
        std::fs::write(home.path().join("kinto.ini"), ini(port, settings)).unwrap();
        std::fs::write(home.path().join("first_records.py"), first_records(records)).unwrap();
        let log = std::fs::File::create(home.path().join("log")).unwrap();
        let child = Command::new(program)
            .args(["start", "--ini", "kinto.ini", "--port", &port.to_string()])
            .current_dir(home.path())
            .env("PYTHONPATH", home.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut kinto = Self { home, child, port };
        let mut is_up = || {
            assert!(
                kinto.child.try_wait().unwrap().is_none(),
                "kinto ended: {}",
                std::fs::read_to_string(kinto.home.path().join("log")).unwrap_or_default()
            );
            TcpStream::connect(("127.0.0.1", port)).is_ok()
        };
        until("kinto listens", &mut is_up);
        let mut client = kinto.client();
        for place in ["buckets/plant", "buckets/plant/collections/parts"] {
            let (status, said) = client.ask("PUT", place, None);
            assert!(status == 200 || status == 201, "{status} {said}");
        }
        Some(kinto)
    }

    /// The base of its API.
    pub fn base(&self) -> String {
        format!("http://127.0.0.1:{}/v1/", self.port)
    }

    /// A client with a connection of its own.
    pub fn client(&self) -> Client {
        Client::connect(self.port)
    }

    /// The records as they are now, by id.
    pub fn listing(&self) -> BTreeMap<String, Value> {
        let (mut client, mut records) = (self.client(), BTreeMap::new());
        let mut page = format!("{RECORDS}?_limit=1000&_sort=id");
        loop {
            let (status, body) = client.ask("GET", &page, None);
            assert_eq!(status, 200, "{body}");
            for record in body["data"].as_array().unwrap() {
                let id = record["id"].as_str().unwrap().to_owned();
                records.insert(id, record.clone());
            }
            match client.next_page.take() {
                Some(next) => page = next.split_once("/v1/").unwrap().1.to_owned(),
                None => return records,
            }
        }
    }
}

impl Drop for Kinto {
    fn drop(&mut self) {
        let _ended_already = self.child.kill();
        let _reaped = self.child.wait();
    }
}

fn program() -> PathBuf {
    std::env::var_os("GLEANER_KINTO").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("target/kinto/bin/kinto"),
        PathBuf::from,
    )
}

fn ini(port: u16, settings: &str) -> String {
    format!(
        "[server:main]\nuse = egg:waitress#main\nhost = 127.0.0.1\nport = {port}\nthreads = 4\n\n\
         [app:main]\nuse = egg:kinto\n\
         kinto.storage_backend = kinto.core.storage.memory\n\
         kinto.cache_backend = kinto.core.cache.memory\n\
         kinto.permission_backend = kinto.core.permission.memory\n\
         kinto.userid_hmac_secret = loopback\n\
         multiauth.policies = basicauth\n\
         multiauth.policy.basicauth.use = kinto.core.authentication.BasicAuthAuthenticationPolicy\n\
         kinto.bucket_create_principals = system.Authenticated\n\
         kinto.paginate_by = 1000\nkinto.batch_max_requests = {BATCH}\n\
         kinto.includes = first_records\n{settings}\n\n\
         [loggers]\nkeys = root\n[handlers]\nkeys = console\n[formatters]\nkeys = plain\n\
         [logger_root]\nlevel = ERROR\nhandlers = console\n\
         [handler_console]\nclass = StreamHandler\nargs = (sys.stderr,)\nlevel = NOTSET\nformatter = plain\n\
         [formatter_plain]\nformat = %(message)s\n"
    )
}

/// A plugin that puts the first records into the memory of a Kinto that starts: thousands of requests are spared.
fn first_records(count: u64) -> String {
    format!(
        "def includeme(config):\n    for number in range({count}):\n        \
         config.registry.storage.create(resource_name='record', parent_id='/buckets/plant/collections/parts',\n            \
         obj={{'id': 'p%05d' % number, 'n': 0}})\n"
    )
}

fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}

/// What writes to it and looks at it: one kept connection.
pub struct Client {
    port: u16,
    stream: BufReader<TcpStream>,
    /// `Next-Page` of the last answer.
    next_page: Option<String>,
}

impl Client {
    fn connect(port: u16) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self {
            port,
            stream: BufReader::new(stream),
            next_page: None,
        }
    }

    /// One request below the base: its status and body.
    pub fn ask(&mut self, method: &str, path: &str, body: Option<&Value>) -> (u16, Value) {
        let body = body.map_or_else(String::new, Value::to_string);
        let request = format!(
            "{method} /v1/{path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Basic {CREDENTIALS}\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        self.stream.get_mut().write_all(request.as_bytes()).unwrap();
        let mut line = String::new();
        self.stream.read_line(&mut line).unwrap();
        let status = line.split(' ').nth(1).unwrap().parse().unwrap();
        let (mut length, mut closes) = (0, false);
        self.next_page = None;
        loop {
            let mut line = String::new();
            self.stream.read_line(&mut line).unwrap();
            let Some((name, value)) = line.trim_end().split_once(": ") else {
                break;
            };
            match name.to_ascii_lowercase().as_str() {
                "content-length" => length = value.parse().unwrap(),
                "next-page" => self.next_page = Some(value.to_owned()),
                "connection" => closes = value.eq_ignore_ascii_case("close"),
                _ => {}
            }
        }
        let mut bytes = vec![0; length];
        self.stream.read_exact(&mut bytes).unwrap();
        if closes {
            let next_page = self.next_page.take();
            *self = Self::connect(self.port);
            self.next_page = next_page;
        }
        (
            status,
            serde_json::from_slice(&bytes).unwrap_or(Value::Null),
        )
    }

    /// Many requests at once; deleting what is not there is fine.
    pub fn batch(&mut self, requests: &[Value]) {
        for part in requests.chunks(BATCH) {
            let body = json!({ "requests": part });
            let (status, said) = self.ask("POST", "batch", Some(&body));
            assert_eq!(status, 200, "{said}");
            for answer in said["responses"].as_array().unwrap() {
                let status = answer["status"].as_u64().unwrap();
                assert!(matches!(status, 200 | 201 | 404), "{answer}");
            }
        }
    }
}

/// A request of a batch that creates a record, or gives it other content.
pub fn put(id: u64, value: u64) -> Value {
    json!({ "method": "PUT", "path": format!("/v1/{RECORDS}/p{id:05}"), "body": { "data": { "n": value, "text": "x".repeat(40) } } })
}

/// A request of a batch that deletes a record.
pub fn delete(id: u64) -> Value {
    json!({ "method": "DELETE", "path": format!("/v1/{RECORDS}/p{id:05}") })
}

/// Threads that create, change and delete records all the time, unless they are told to hold still.
pub struct Writers {
    stop: Arc<AtomicBool>,
    /// Held by who wants them to hold still, and by each of them during a batch.
    turns: Vec<Arc<Mutex<()>>>,
    pub written: Arc<AtomicU64>,
    threads: Vec<JoinHandle<()>>,
}

impl Writers {
    /// So many, over ids below `ids`.
    #[allow(
        clippy::disallowed_methods,
        reason = "they live in real time, as Kinto does"
    )]
    pub fn start(kinto: &Kinto, threads: u64, ids: u64, seed: u64) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let written: Arc<AtomicU64> = Arc::default();
        let turns: Vec<Arc<Mutex<()>>> = (0..threads).map(|_| Arc::default()).collect();
        let threads = turns
            .iter()
            .enumerate()
            .map(|(number, turn)| {
                let (stop, turn, written) =
                    (Arc::clone(&stop), Arc::clone(turn), Arc::clone(&written));
                let mut client = kinto.client();
                let mut dice = Dice::from(seed ^ (number as u64 + 1));
                std::thread::spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        let batch: Vec<Value> = (0..8).map(|_| change(&mut dice, ids)).collect();
                        let turn = turn.lock().unwrap();
                        client.batch(&batch);
                        written.fetch_add(8, Ordering::Relaxed);
                        drop(turn);
                        // Kinto is to have time to answer as well.
                        std::thread::sleep(PACE);
                    }
                })
            })
            .collect();
        Self {
            stop,
            turns,
            written,
            threads,
        }
    }

    /// What `quiet` gives while nobody writes.
    pub fn while_still<T>(&self, quiet: impl FnOnce() -> T) -> T {
        let held: Vec<_> = self.turns.iter().map(|turn| turn.lock().unwrap()).collect();
        let result = quiet();
        drop(held);
        result
    }

    /// Until they have written so many changes more.
    pub fn let_write(&self, changes: u64) {
        let from = self.written.load(Ordering::Relaxed);
        until("changes are written", || {
            assert!(
                self.threads.iter().all(|thread| !thread.is_finished()),
                "a writer failed"
            );
            self.written.load(Ordering::Relaxed) >= from + changes
        });
    }

    /// Ends them; how many changes they made.
    pub fn end(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().unwrap();
        }
        self.written.load(Ordering::Relaxed)
    }
}

/// A record is created, changed, deleted, or deleted and made anew.
fn change(dice: &mut Dice, ids: u64) -> Value {
    let id = dice.below(ids);
    if dice.once_in(4) {
        delete(id)
    } else {
        put(id, dice.below(1000))
    }
}
