//! A device: a directory with a config and a state, and the real binary on it.

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rusqlite::{Connection, OpenFlags};
use rustix::process::{Pid, Signal, kill_process};

/// Longer than anything takes that a test waits for; what comes later is a failure.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// A row as local readers find it, with the columns `name` and `rev` that these tests configure.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Row {
    pub key: i64,
    pub body: String,
    pub digest: Vec<u8>,
    pub columns: Vec<Option<String>>,
}

/// How a command ended.
#[derive(Debug)]
pub struct Ended {
    pub status: ExitStatus,
    pub out: String,
    pub err: String,
}

impl Ended {
    pub fn code(&self) -> Option<i32> {
        self.status.code()
    }

    /// The reports of `--json`.
    pub fn reports(&self) -> Vec<serde_json::Value> {
        self.out
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    /// All that was said.
    pub fn said(&self) -> String {
        format!("{:?}\n{}{}", self.status, self.out, self.err)
    }
}

/// A directory with a config and a state.
pub struct Device {
    home: tempfile::TempDir,
    state: PathBuf,
}

impl Device {
    /// With its state in a directory that is not there yet.
    pub fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        let state = home.path().join("state");
        Self { home, state }
    }

    /// With its state elsewhere.
    pub fn with_state(state: &Path) -> Self {
        Self {
            state: state.to_owned(),
            ..Self::new()
        }
    }

    /// The state directory.
    pub fn state(&self) -> &Path {
        &self.state
    }

    /// A place outside of the state directory.
    pub fn beside(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// The control socket, outside of the state directory.
    pub fn control(&self) -> PathBuf {
        self.beside("control.sock")
    }

    /// Writes the config: `[agent]` comes from here, the rest is the test's.
    pub fn configure(&self, rest: &str) {
        let (state, control) = (self.state(), self.control());
        let text =
            format!("[agent]\nid = \"gw\"\nstate = {state:?}\ncontrol = {control:?}\n{rest}");
        std::fs::write(self.beside("gleaner.toml"), text).unwrap();
    }

    /// The binary with arguments, perhaps behind another program with its own.
    pub fn command(&self, behind: &[&str], arguments: &[&str]) -> Command {
        let binary = env!("CARGO_BIN_EXE_gleaner");
        let mut command = match behind.split_first() {
            None => Command::new(binary),
            Some((program, more)) => {
                let mut command = Command::new(program);
                command.args(more).arg(binary);
                command
            }
        };
        command
            .arg("--config")
            .arg(self.beside("gleaner.toml"))
            .args(arguments)
            // What a command heals at its start is told at this level.
            .env("GLEANER_LOG", "info")
            .env_remove("JOURNAL_STREAM")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Runs a command to its end.
    pub fn run(&self, arguments: &[&str]) -> Ended {
        ended(&mut self.command(&[], arguments))
    }

    /// `sync --json`, which must succeed: its reports.
    pub fn sync(&self) -> Vec<serde_json::Value> {
        let ended = self.run(&["sync", "--json"]);
        assert_eq!(ended.code(), Some(0), "{}", ended.said());
        ended.reports()
    }

    /// A command that stays.
    pub fn start(&self, behind: &[&str], arguments: &[&str]) -> Running {
        Running::new(self.command(behind, arguments).spawn().unwrap())
    }

    /// `data.db` as a local reader opens it.
    pub fn reader(&self) -> rusqlite::Result<Connection> {
        let path = self.state.join("data.db");
        let db = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        db.busy_timeout(DEADLINE)?;
        Ok(db)
    }

    /// The living rows of a table, by key; none as long as there is no table.
    pub fn rows(&self, table: &str, columns: &[&str]) -> rusqlite::Result<Vec<Row>> {
        if !self.state.join("data.db").exists() {
            return Ok(Vec::new());
        }
        let db = self.reader()?;
        let mut known = db.prepare("SELECT name FROM pragma_table_info(?1)")?;
        let known: Vec<String> = known
            .query_map([table], |row| row.get(0))?
            .collect::<Result<_, _>>()?;
        if known.is_empty() {
            return Ok(Vec::new());
        }
        // A config that was never read to its end may not have come to its columns.
        let columns: Vec<String> = columns
            .iter()
            .map(|name| {
                if known.iter().any(|known| known == name) {
                    format!("CAST(\"{name}\" AS TEXT)")
                } else {
                    "NULL".into()
                }
            })
            .collect();
        let living = if known.iter().any(|name| name == "deleted") {
            "WHERE deleted = 0"
        } else {
            ""
        };
        let list: String = columns.iter().map(|name| format!(", {name}")).collect();
        let mut query = db.prepare(&format!(
            "SELECT key, body, digest{list} FROM \"{table}\" {living} ORDER BY key"
        ))?;
        let rows = query.query_map([], |row| {
            Ok(Row {
                key: row.get(0)?,
                body: row.get(1)?,
                digest: row.get(2)?,
                columns: (0..columns.len())
                    .map(|at| row.get(3 + at))
                    .collect::<Result<_, _>>()?,
            })
        })?;
        rows.collect()
    }

    /// What SQLite itself says of the file; "ok" if it is whole or not there.
    pub fn integrity(&self) -> String {
        if !self.state.join("data.db").exists() {
            return "ok".into();
        }
        let check = || {
            self.reader()?
                .query_row("PRAGMA integrity_check", [], |row| row.get::<_, String>(0))
        };
        check().unwrap_or_else(|error| error.to_string())
    }

    /// What is kept aside as damaged, in the state directory and below `state/`.
    pub fn kept_aside(&self) -> Vec<String> {
        let mut names: Vec<String> = [self.state.clone(), self.state.join("state")]
            .iter()
            .filter_map(|dir| std::fs::read_dir(dir).ok())
            .flatten()
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .filter(|name| name.contains("damaged-"))
            .collect();
        names.sort();
        names
    }
}

/// Runs a command to its end.
pub fn ended(command: &mut Command) -> Ended {
    let output = command.output().unwrap();
    Ended {
        status: output.status,
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// Whether a program is there.
pub fn is_there(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
}

/// A command that stays. Killed when dropped.
pub struct Running {
    child: Child,
    out: Option<JoinHandle<String>>,
    log: Arc<Mutex<String>>,
    err: Option<JoinHandle<()>>,
}

impl Running {
    fn new(mut child: Child) -> Self {
        let (mut out, err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        let log = Arc::new(Mutex::new(String::new()));
        let into = Arc::clone(&log);
        Self {
            child,
            out: Some(std::thread::spawn(move || {
                let mut text = String::new();
                out.read_to_string(&mut text).unwrap();
                text
            })),
            log,
            err: Some(std::thread::spawn(move || {
                for line in BufReader::new(err).lines() {
                    let mut log = into.lock().unwrap();
                    log.push_str(&line.unwrap());
                    log.push('\n');
                }
            })),
        }
    }

    /// The process, or the program that it is behind.
    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    /// What it said so far on its standard error.
    pub fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    /// Whether it has ended.
    pub fn is_over(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Waits for its end.
    pub fn wait(mut self) -> Ended {
        let status = self.child.wait().unwrap();
        let out = self.out.take().unwrap().join().unwrap();
        self.err.take().unwrap().join().unwrap();
        Ended {
            status,
            out,
            err: self.log(),
        }
    }

    /// Waits until something is so; it must be so before the deadline.
    pub fn until(&self, what: &str, is_so: impl FnMut() -> bool) {
        until_or(what, is_so, || self.log());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _over_already = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// Waits until something is so; it must be so before the deadline.
pub fn until(what: &str, is_so: impl FnMut() -> bool) {
    until_or(what, is_so, String::new);
}

#[allow(
    clippy::disallowed_methods,
    reason = "the process that is waited for lives in real time"
)]
fn until_or(what: &str, mut is_so: impl FnMut() -> bool, context: impl Fn() -> String) {
    let start = Instant::now();
    while !is_so() {
        assert!(
            start.elapsed() < DEADLINE,
            "not before the deadline: {what}\n{}",
            context()
        );
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Runs a program of the system that must succeed.
pub fn system<S: AsRef<OsStr>>(program: &str, arguments: &[S]) {
    let ended = ended(Command::new(program).args(arguments));
    assert!(ended.status.success(), "{program}: {}", ended.said());
}
