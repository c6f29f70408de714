//! The real binary, as a user has it: a directory with a config file, commands, and the agent that stays.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use tempfile::TempDir;

/// A directory with `gleaner.toml`, and `state` below it.
pub struct Home {
    dir: TempDir,
}

/// What a command said and how it ended.
#[derive(Debug)]
pub struct Said {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Home {
    /// With these sources; `[agent]` is written in front.
    pub fn new(sources: &str) -> Self {
        let home = Self {
            dir: TempDir::new().unwrap(),
        };
        home.config(sources);
        home
    }

    /// Another config.
    pub fn config(&self, sources: &str) {
        let text = format!("[agent]\nid = \"test\"\nstate = \"state\"\n{sources}");
        fs::write(self.path("gleaner.toml"), text).unwrap();
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn socket(&self) -> PathBuf {
        self.path("state/control.sock")
    }

    /// A command that is not started yet, without anything of this process's environment that would matter to it.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gleaner"));
        for name in [
            "GLEANER_LOG",
            "JOURNAL_STREAM",
            "STATE_DIRECTORY",
            "RUNTIME_DIRECTORY",
            "HTTP_PROXY",
            "http_proxy",
            "ALL_PROXY",
            "all_proxy",
        ] {
            command.env_remove(name);
        }
        command
            .env("GLEANER_CONFIG", self.path("gleaner.toml"))
            .args(arguments)
            .current_dir(self.dir.path())
            .stdin(Stdio::null());
        command
    }

    /// A command from start to end.
    pub fn gleaner(&self, arguments: &[&str]) -> Said {
        Said::of(self.command(arguments).output().unwrap())
    }

    /// `gleaner run`, from when its control socket is there.
    pub fn run(&self) -> Running {
        Running::start(self.command(&["run"]), &self.socket())
    }
}

impl Said {
    pub fn of(output: Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// The lines of stdout as JSON.
    pub fn json(&self) -> Vec<serde_json::Value> {
        self.out
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }
}

/// A `gleaner run`. Killed when dropped.
pub struct Running {
    child: Child,
    log: Arc<Mutex<String>>,
    socket: PathBuf,
}

impl Running {
    pub fn start(mut command: Command, socket: &Path) -> Self {
        let mut child = command
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap());
        let log = Arc::new(Mutex::new(String::new()));
        loop {
            let mut line = String::new();
            let bytes = lines.read_line(&mut line).unwrap();
            log.lock().unwrap().push_str(&line);
            assert!(bytes > 0, "it ended: {}", log.lock().unwrap());
            if line.contains(" started with ") {
                break;
            }
        }
        let more = Arc::clone(&log);
        thread::spawn(move || {
            for line in lines.lines().map_while(Result::ok) {
                *more.lock().unwrap() += &format!("{line}\n");
            }
        });
        Self {
            child,
            log,
            socket: socket.to_owned(),
        }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it has logged so far.
    pub fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// SIGTERM, and how it ended.
    pub fn stop(mut self) -> i32 {
        self.signal(rustix::process::Signal::TERM);
        self.child.wait().unwrap().code().unwrap_or(-1)
    }

    /// SIGKILL: nothing is tidied up.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// A connection to its control socket.
    pub fn connect(&self) -> UnixStream {
        UnixStream::connect(&self.socket).unwrap()
    }

    /// Sends bytes and reads the answer to its end.
    pub fn ask(&self, request: &[u8]) -> String {
        let mut stream = self.connect();
        // It may have answered and gone before all is written.
        let _refused_early = stream.write_all(request);
        let mut answer = Vec::new();
        let _or_reset = stream.read_to_end(&mut answer);
        String::from_utf8(answer).unwrap()
    }

    /// `GET /status`.
    pub fn status(&self) -> serde_json::Value {
        let answer = self.ask(b"GET /status HTTP/1.1\r\nHost: x\r\n\r\n");
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        serde_json::from_str(body).unwrap()
    }

    /// Open file descriptors.
    pub fn fds(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.pid()))
            .unwrap()
            .count()
    }

    /// The most memory that it has used, in kB.
    pub fn peak_kb(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmHWM:"))
            .unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ended_already = self.child.kill();
        let _reaped_already = self.child.wait();
    }
}
