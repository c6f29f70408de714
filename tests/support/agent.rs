//! A whole agent over a scripted upstream: a test says what its source is, syncs, and looks at what local readers see.
//!
//! ```ignore
//! let upstream = Upstream::start();
//! upstream.answer(|request| conditional(request, "\"1\"", r#"[{"id":1}]"#));
//! let mut gateway = Gateway::of(&upstream).source("ignore = \"seen\"").start();
//! assert_eq!(gateway.sync().outcome, Outcome::Changed);
//! assert_eq!(gateway.rows(), [("1".into(), r#"{"id":1}"#.into())]);
//! ```

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Once};
use std::time::Duration;

use gleaner::agent::{Agent, Order};
use gleaner::clock::{Clock, FakeClock, Mono};
use gleaner::config::{self, Config};
use gleaner::desk::{Desk, SourceStatus};
use gleaner::pull::report::{Outcome, Report};
use gleaner::store::{Key, Store, Tag};
use gleaner::wait::Wait;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags};

use super::upstream::{Answer, Request, Upstream};

/// When the story starts, unless a test says otherwise: far ahead, so that for SQLite's own clock nothing is stale.
pub const START: &str = "2099-01-01T00:00:00Z";

/// What a test says about its agent; the rest is usual.
pub struct Plan {
    base: String,
    agent: String,
    upstream: String,
    source: String,
    more: String,
    clock: Arc<FakeClock>,
}

/// An agent with one source, `items`, at the upstream's `/items`; its key is `/id` unless said otherwise.
pub struct Gateway {
    plan: Plan,
    dir: tempfile::TempDir,
    pub clock: Arc<FakeClock>,
    wait: Option<Wait>,
    agent: Option<Agent>,
}

impl Plan {
    /// Lines of `[agent]`.
    pub fn agent(mut self, lines: &str) -> Self {
        self.agent = lines.into();
        self
    }

    /// Lines of `[upstream.up]`.
    pub fn upstream(mut self, lines: &str) -> Self {
        self.upstream = lines.into();
        self
    }

    /// Lines of `[source.items]`.
    pub fn source(mut self, lines: &str) -> Self {
        self.source = lines.into();
        self
    }

    /// Further sections.
    pub fn more(mut self, sections: &str) -> Self {
        self.more = sections.into();
        self
    }

    /// What the wall clock shows at first.
    pub fn starting_at(mut self, wall: &'static str) -> Self {
        self.clock = Arc::new(FakeClock::at(wall.parse().unwrap()));
        self
    }

    /// In the time of somebody else.
    pub fn in_time(mut self, clock: &Arc<FakeClock>) -> Self {
        self.clock = Arc::clone(clock);
        self
    }

    pub fn start(self) -> Gateway {
        capture_log();
        let mut gateway = Gateway {
            clock: Arc::clone(&self.clock),
            plan: self,
            dir: tempfile::tempdir().unwrap(),
            wait: None,
            agent: None,
        };
        gateway.boot();
        gateway
    }

    fn text(&self, dir: &Path) -> String {
        let has = |word: &str| {
            self.source.lines().any(|line| {
                line.split('=')
                    .next()
                    .is_some_and(|name| name.trim() == word)
            })
        };
        let key = if has("key") { "" } else { "key = \"/id\"" };
        let path = if has("path") { "" } else { "path = \"items\"" };
        let (agent, upstream, source) = (&self.agent, &self.upstream, &self.source);
        let (base, state, more) = (&self.base, dir.join("state"), &self.more);
        format!(
            "[agent]\nid = \"gw\"\nstate = {state:?}\n{agent}\n\
             [upstream.up]\nbase = \"{base}\"\nproxy = \"\"\n{upstream}\n\
             [source.items]\nupstream = \"up\"\n{key}\n{path}\n{source}\n{more}\n"
        )
    }
}

impl Gateway {
    /// A gateway of `upstream`, to be told more.
    pub fn of(upstream: &Upstream) -> Plan {
        Plan {
            base: upstream.url("/"),
            agent: String::new(),
            upstream: String::new(),
            source: String::new(),
            more: String::new(),
            clock: Arc::new(FakeClock::at(START.parse().unwrap())),
        }
    }

    fn config(&self) -> Config {
        let text = self.plan.text(self.dir.path());
        let path = self.dir.path().join("gleaner.toml");
        config::parse(&text, &path, &|_| None).unwrap_or_else(|errors| panic!("{errors}\n{text}"))
    }

    fn boot(&mut self) {
        self.agent = None;
        let wait = Wait::new(Arc::clone(&self.clock) as Arc<dyn Clock>).unwrap();
        let mut agent = Agent::new(self.config(), wait.clone(), Desk::default());
        self.wait = Some(wait);
        agent.open().unwrap();
        self.agent = Some(agent);
    }

    /// Ends the process, as far as a test can.
    pub fn stop(&mut self) {
        self.agent = None;
    }

    /// Ends the process, as far as a test can, and starts another over the same state.
    pub fn restart(&mut self) {
        self.boot();
    }

    /// The same with other lines for the source.
    pub fn restart_with(&mut self, source: &str) {
        self.plan.source = source.into();
        self.boot();
    }

    /// The same with other lines for the upstream.
    pub fn restart_with_upstream(&mut self, lines: &str) {
        self.plan.upstream = lines.into();
        self.boot();
    }

    /// The same with other lines for the agent.
    pub fn restart_with_agent(&mut self, lines: &str) {
        self.plan.agent = lines.into();
        self.boot();
    }

    /// The same with other further sections.
    pub fn restart_with_more(&mut self, sections: &str) {
        self.plan.more = sections.into();
        self.boot();
    }

    /// What `gleaner sync items` does.
    pub fn sync(&mut self) -> Report {
        self.order(Order {
            insist: true,
            ..Order::default()
        })
    }

    /// The same in words: `changed`, `unchanged`, `not-ours`, …
    pub fn word(&mut self) -> &'static str {
        self.sync().outcome.word()
    }

    pub fn order(&mut self, order: Order) -> Report {
        let report = self.agent().pull("items", order, &mut |_| ());
        assert_eq!(report.source, "items");
        report
    }

    pub fn agent(&mut self) -> &mut Agent {
        self.agent.as_mut().unwrap()
    }

    /// What `run` does until nothing is due: all steps, then the clock moved to the next due time. Returns that span.
    pub fn run_until_idle(&mut self) -> Duration {
        loop {
            let until = self.agent().step();
            let ahead = until.since(self.clock.mono());
            if ahead > Duration::ZERO {
                self.clock.advance(ahead);
                return ahead;
            }
        }
    }

    /// Opens the door, if the config has one: where it is.
    pub fn listen(&mut self) -> std::net::SocketAddr {
        self.agent().listen(&|_| None);
        self.agent().addresses()[0]
    }

    /// Serves whoever comes until a thread has come to its end.
    pub fn serve<T>(&self, until: std::thread::JoinHandle<T>) -> T {
        while !until.is_finished() {
            let wait = self.wait.as_ref().unwrap();
            wait.sleep_until(wait.now()).unwrap();
        }
        until.join().unwrap()
    }

    /// What stops the process, from another thread, as SIGTERM does.
    pub fn stopper(&self) -> impl Fn() + Send + Sync + 'static {
        let wait = self.wait.clone().unwrap();
        move || wait.stop()
    }

    /// How the source stands, as `status` shows it.
    pub fn status(&self) -> SourceStatus {
        let agent = self.agent.as_ref().unwrap();
        agent.publish();
        agent.desk().status(self.clock.mono()).sources["items"].clone()
    }

    /// How everything stands, as `status` shows it.
    pub fn status_of_all(&self) -> gleaner::desk::Status {
        let agent = self.agent.as_ref().unwrap();
        agent.publish();
        agent.desk().status(self.clock.mono())
    }

    pub fn now(&self) -> Mono {
        self.clock.mono()
    }

    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The state directory.
    pub fn state(&self) -> PathBuf {
        self.dir.path().join("state")
    }

    fn db(&self) -> Connection {
        let path = self.state().join("data.db");
        Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap()
    }

    /// What a local reader gets.
    pub fn query(&self, sql: &str) -> Vec<Vec<String>> {
        let db = self.db();
        let mut query = db.prepare(sql).unwrap();
        let columns = query.column_count();
        let rows = query
            .query_map([], |row| {
                (0..columns).map(|at| Ok(shown(row.get_ref(at)?))).collect()
            })
            .unwrap();
        rows.collect::<Result<_, _>>().unwrap()
    }

    /// Keys and bodies, by key. None before the first delivery.
    pub fn rows(&self) -> Vec<(String, String)> {
        if !self.has_table() {
            return Vec::new();
        }
        self.query("SELECT key, body FROM items ORDER BY key")
            .into_iter()
            .map(|row| (row[0].clone(), row[1].clone()))
            .collect()
    }

    /// Keys, bodies and generations of what was written by a later batch than this.
    pub fn rows_after(&self, generation: u64) -> Vec<(String, String, u64)> {
        if !self.has_table() {
            return Vec::new();
        }
        let sql =
            format!("SELECT key, body, generation FROM items WHERE generation > {generation}");
        let rows = self.query(&sql).into_iter();
        rows.map(|row| (row[0].clone(), row[1].clone(), row[2].parse().unwrap()))
            .collect()
    }

    /// Whether anything was delivered yet.
    fn has_table(&self) -> bool {
        let sql = "SELECT 1 FROM sqlite_master WHERE name = 'items'";
        !self.query(sql).is_empty()
    }

    /// Keys alone.
    pub fn keys(&self) -> Vec<String> {
        self.rows().into_iter().map(|(key, _)| key).collect()
    }

    /// Whether what the store keeps of the source's pages names this. The agent must have been stopped.
    pub fn live_memos_name(&self, text: &str) -> bool {
        let now = self.clock.wall();
        let (mut store, _) = Store::open(&self.state().join("state"), now).unwrap();
        let id = store.source("items").unwrap();
        let needle = text.as_bytes();
        store.scan(&Key::new(Tag::Memo, id, b"")).any(|entry| {
            entry
                .unwrap()
                .1
                .windows(needle.len())
                .any(|window| window == needle)
        })
    }

    /// What the store keeps of a pass under way, in bytes: its position and its marks. The agent must have been stopped.
    pub fn pass_state(&self) -> u64 {
        let (mut store, _) = Store::open(&self.state().join("state"), self.clock.wall()).unwrap();
        let id = store.source("items").unwrap();
        let size = |tag| -> u64 {
            let prefix = Key::new(tag, id, b"");
            let entries = store.scan(&prefix).map(|entry| entry.unwrap());
            entries
                .map(|(key, value)| (key.len() + value.len()) as u64)
                .sum()
        };
        size(Tag::Position) + size(Tag::Bitmap)
    }

    /// Every file of the state directory with its length and a hash of its content: equal if nothing was written.
    pub fn written(&self) -> Vec<(PathBuf, usize, u64)> {
        let mut files = Vec::new();
        look(&self.state(), &mut files);
        files.sort();
        files
    }

    /// Whether any file of the state directory holds these bytes.
    pub fn state_holds(&self, secret: &str) -> bool {
        holds(&self.state(), secret.as_bytes())
    }
}

fn look(dir: &Path, files: &mut Vec<(PathBuf, usize, u64)>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        let (path, kind) = (entry.path(), entry.file_type().unwrap());
        if kind.is_dir() {
            look(&path, files);
        } else if kind.is_file() {
            let content = std::fs::read(&path).unwrap();
            let mut hasher = std::hash::DefaultHasher::new();
            std::hash::Hasher::write(&mut hasher, &content);
            files.push((path, content.len(), std::hash::Hasher::finish(&hasher)));
        }
    }
}

fn holds(dir: &Path, needle: &[u8]) -> bool {
    std::fs::read_dir(dir).unwrap().any(|entry| {
        let path = entry.unwrap().path();
        if path.is_dir() {
            return holds(&path, needle);
        }
        let content = std::fs::read(&path).unwrap_or_default();
        content.windows(needle.len()).any(|window| window == needle)
    })
}

fn shown(value: ValueRef<'_>) -> String {
    match value {
        ValueRef::Null => "NULL".into(),
        ValueRef::Integer(number) => number.to_string(),
        ValueRef::Real(number) => format!("{number:?}"),
        ValueRef::Text(text) => String::from_utf8_lossy(text).into_owned(),
        ValueRef::Blob(bytes) => format!("blob of {}", bytes.len()),
    }
}

/// Whether a pass ended as an error of that kind, with that in its reason.
pub fn assert_failed(report: &Report, word: &str, reason: &str) {
    assert!(
        matches!(&report.outcome, Outcome::Failed(_))
            && report.outcome.word() == word
            && report.reason().contains(reason),
        "expected {word} with {reason:?}, got {report}"
    );
}

/// What a server does that knows conditional requests: 304 if the tag is current, else the body with it.
pub fn conditional(request: &Request, tag: &str, body: &str) -> Answer {
    if request.header("if-none-match") == Some(tag) {
        Answer::not_modified().etag(tag)
    } else {
        Answer::ok().etag(tag).json(body)
    }
}

/// Records `{"id":N,"v":V}` as a JSON array.
pub fn records(ids: impl IntoIterator<Item = u32>, version: u32) -> String {
    let all: Vec<String> = ids
        .into_iter()
        .map(|id| format!("{{\"id\":{id},\"v\":{version}}}"))
        .collect();
    format!("[{}]", all.join(","))
}

thread_local! {
    static LINES: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Keeps what is logged on each thread: an agent logs on its test's.
struct Capture;

impl log::Log for Capture {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        metadata.level() <= log::Level::Debug
    }

    fn log(&self, record: &log::Record<'_>) {
        if self.enabled(record.metadata()) {
            let line = format!("{} {}: {}", record.level(), record.target(), record.args());
            LINES.with(|lines| lines.borrow_mut().push(line));
        }
    }

    fn flush(&self) {}
}

fn capture_log() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        log::set_logger(&Capture).unwrap();
        log::set_max_level(log::LevelFilter::Debug);
    });
}

/// What was logged on this thread since the last call, one line each: level, target, message.
pub fn logged() -> Vec<String> {
    LINES.with(|lines| std::mem::take(&mut *lines.borrow_mut()))
}
