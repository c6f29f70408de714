//! A program of the user's, run to its end: bytes on its standard input, its output into the log, a time limit.
//!
//! Its pipes are served in the one wait, beside the doors and the control socket, and its end is waited for there as well (by a
//! descriptor of the process). No shell has a part in it.

use std::fmt;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

use crate::clock::Mono;
use crate::config::Program;
use crate::config::value::print_duration;
use crate::wait::{Attendant, Interest, Interests, Readiness, Ready, Wait, is_stop};

/// What a program sees of our environment: no secret is handed on by accident.
const ENVIRONMENT: [&str; 6] = ["PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR"];

/// The name of the seat in the wait; one program runs at a time.
const SEAT: &str = "program";

/// From SIGTERM to SIGKILL.
const GRACE: Duration = Duration::from_secs(2);

/// How long a killed process is waited for: one that hangs in the kernel ends later, or never.
const REAP: Duration = Duration::from_secs(5);

/// Lines of output that are logged.
const LINES: u32 = 100;

/// Bytes of a line that are logged.
const LINE: usize = 500;

/// Bytes of its last words that an error carries.
const WORDS: usize = 160;

/// What is read or written at a time.
const CHUNK: usize = 16 * 1024;

/// What is left in the pipes at the end is read up to here.
const LEFT: usize = 4 * CHUNK;

/// One run of a program.
#[derive(Debug, Clone, Copy)]
pub struct Job<'a> {
    /// What to run, and how long it may take.
    pub program: &'a Program,
    /// Whose it is, for the log.
    pub whose: &'a str,
    /// What it reads. It need not read it to the end.
    pub input: &'a [u8],
    /// What is added to its environment.
    pub environment: &'a [(&'a str, &'a str)],
}

/// Why a program did not do its work.
#[derive(Debug)]
pub enum ChildError {
    /// It could not be started.
    Start(io::Error),
    /// It said so.
    Failed {
        /// How it ended.
        status: ExitStatus,
        /// The last line that it wrote.
        words: String,
    },
    /// It took too long, and was ended.
    TimedOut(Duration),
    /// We shall end, so it was ended.
    Stopped,
    /// Waiting for it failed.
    Wait(io::Error),
}

impl fmt::Display for ChildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start(error) => {
                write!(f, "could not be started: {error}")?;
                match error.raw_os_error().map(Errno::from_raw_os_error) {
                    Some(Errno::NOEXEC) => {
                        f.write_str("; a script needs a first line such as #!/bin/sh")
                    }
                    Some(Errno::ACCESS) => f.write_str("; chmod +x"),
                    _ => Ok(()),
                }
            }
            Self::Failed { status, words } => {
                match (status.code(), status.signal()) {
                    (Some(code), _) => write!(f, "ended with {code}")?,
                    (None, Some(signal)) => write!(f, "was ended by signal {signal}")?,
                    (None, None) => write!(f, "ended with {status}")?,
                }
                if words.is_empty() {
                    Ok(())
                } else {
                    write!(f, " ({words})")
                }
            }
            Self::TimedOut(limit) => write!(
                f,
                "took longer than {} (`timeout`) and was ended",
                print_duration(*limit)
            ),
            Self::Stopped => f.write_str("was ended, since gleaner shall end"),
            Self::Wait(error) => write!(f, "could not be waited for: {error}"),
        }
    }
}

impl std::error::Error for ChildError {}

/// Runs a program to its end. Ending with 0 is success, whether it has read its input or not.
///
/// # Errors
/// [`ChildError`]; the program does not run any more then, nor does what it started in its process group.
pub fn run(job: &Job<'_>, wait: &Wait) -> Result<(), ChildError> {
    let mut child = start(job).map_err(ChildError::Start)?;
    let output = Arc::new(Mutex::new(Output::new(job.whose)));
    let ended = attend(job, &mut child, &output, wait);
    wait.dismiss(SEAT);
    let words = lock(&output).close();
    match ended? {
        status if status.success() => Ok(()),
        status => Err(ChildError::Failed { status, words }),
    }
}

fn start(job: &Job<'_>) -> io::Result<Child> {
    let kept = ENVIRONMENT
        .iter()
        .filter_map(|name| Some((name, std::env::var_os(name)?)));
    Command::new(&job.program.path)
        .args(&job.program.arguments)
        .env_clear()
        .envs(kept)
        .envs(job.environment.iter().copied())
        .current_dir("/")
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
}

/// Serves it until it ends, or makes it end.
fn attend(
    job: &Job<'_>,
    child: &mut Child,
    output: &Arc<Mutex<Output>>,
    wait: &Wait,
) -> Result<ExitStatus, ChildError> {
    let group = Pid::from_child(child);
    let process = match Pipes::new(child, job.input, output).and_then(|pipes| {
        let process = pidfd_open(group, PidfdFlags::empty())?;
        wait.attend_as(SEAT, Box::new(pipes));
        Ok(process)
    }) {
        Ok(process) => process,
        Err(error) => {
            // Killed, it ends now; there is nothing to wait for it with.
            let _ended_already = kill_process_group(group, Signal::KILL);
            let _ = child.wait();
            return Err(ChildError::Wait(error));
        }
    };
    let deadline = wait.now().after(job.program.timeout);
    let why = match wait.fd_ready(process.as_fd(), Interest::Read, Some(deadline)) {
        Ok(Readiness::Ready) => return child.wait().map_err(ChildError::Wait),
        Ok(Readiness::DeadlinePassed) => ChildError::TimedOut(job.program.timeout),
        Err(error) if is_stop(&error) => ChildError::Stopped,
        Err(error) => ChildError::Wait(error),
    };
    end(group, child, &process, wait);
    Err(why)
}

/// Ends a process and its group: politely, then surely. The group goes before its leader is reaped, while its number is sure
/// to be its own.
fn end(group: Pid, child: &mut Child, process: &OwnedFd, wait: &Wait) {
    let _gone_already = kill_process_group(group, Signal::TERM);
    let _late = wait.linger(process.as_fd(), GRACE);
    let _gone_already = kill_process_group(group, Signal::KILL);
    match wait.linger(process.as_fd(), REAP) {
        Ok(Readiness::Ready) => drop(child.wait()),
        _ => log::error!("process {} does not end although it was killed", child.id()),
    }
}

/// The program's ends of its pipes, served in the wait.
struct Pipes {
    input: Vec<u8>,
    written: usize,
    stdin: Option<OwnedFd>,
    /// Standard output and error, with what has no line end yet.
    streams: [(Option<OwnedFd>, Vec<u8>); 2],
    output: Arc<Mutex<Output>>,
}

impl Pipes {
    fn new(child: &mut Child, input: &[u8], output: &Arc<Mutex<Output>>) -> io::Result<Self> {
        let pipes = Self {
            input: input.to_vec(),
            written: 0,
            stdin: child.stdin.take().map(OwnedFd::from),
            streams: [
                (child.stdout.take().map(OwnedFd::from), Vec::new()),
                (child.stderr.take().map(OwnedFd::from), Vec::new()),
            ],
            output: Arc::clone(output),
        };
        let readers = pipes.streams.iter().filter_map(|(fd, _)| fd.as_ref());
        for fd in pipes.stdin.iter().chain(readers) {
            rustix::io::ioctl_fionbio(fd, true)?;
        }
        Ok(pipes)
    }

    fn write(&mut self) {
        let Some(stdin) = &self.stdin else { return };
        let rest = &self.input[self.written..];
        match rustix::io::write(stdin, &rest[..rest.len().min(CHUNK)]) {
            Ok(bytes) => self.written += bytes,
            Err(Errno::AGAIN | Errno::INTR) => return,
            // It does not want to read more.
            Err(_) => self.written = self.input.len(),
        }
        if self.written == self.input.len() {
            self.stdin = None;
        }
    }

    /// Reads once; whether there may be more.
    fn read(&mut self, which: usize) -> bool {
        let Some((fd, line)) = self.streams.get_mut(which) else {
            return false;
        };
        let Some(open) = fd else { return false };
        let mut bytes = [0; CHUNK];
        match rustix::io::read(open, &mut bytes) {
            Ok(0) => *fd = None,
            Ok(read) => {
                lock(&self.output).take(line, &bytes[..read]);
                return true;
            }
            Err(Errno::AGAIN) => {}
            Err(Errno::INTR) => return true,
            Err(_) => *fd = None,
        }
        false
    }
}

impl Attendant for Pipes {
    fn interests<'a>(&'a self, into: &mut Interests<'a>) {
        if let Some(stdin) = &self.stdin {
            into.add(stdin.as_fd(), 2, Interest::Write);
        }
        for (which, (fd, _)) in self.streams.iter().enumerate() {
            if let Some(fd) = fd {
                into.add(fd.as_fd(), which, Interest::Read);
            }
        }
    }

    fn attend(&mut self, ready: &[Ready], _now: Mono, _wait: &Wait) -> Option<Mono> {
        for ready in ready {
            if ready.token == 2 {
                self.write();
            } else {
                self.read(ready.token);
            }
        }
        None
    }
}

impl Drop for Pipes {
    /// What it wrote last is still in the pipes. Whoever holds their other ends is not waited for.
    fn drop(&mut self) {
        for which in 0..self.streams.len() {
            for _ in 0..LEFT / CHUNK {
                if !self.read(which) {
                    break;
                }
            }
            let line = std::mem::take(&mut self.streams[which].1);
            if !line.is_empty() {
                lock(&self.output).line(&line);
            }
        }
    }
}

/// What it said so far.
struct Output {
    whose: String,
    lines: u32,
    dropped: u64,
    words: String,
}

impl Output {
    fn new(whose: &str) -> Self {
        Self {
            whose: whose.to_owned(),
            lines: 0,
            dropped: 0,
            words: String::new(),
        }
    }

    /// Takes bytes of one stream; `line` is what it has no end of yet.
    fn take(&mut self, line: &mut Vec<u8>, bytes: &[u8]) {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            let room = LINE.saturating_sub(line.len());
            let text = part.strip_suffix(b"\n").unwrap_or(part);
            line.extend_from_slice(&text[..text.len().min(room)]);
            self.dropped += text.len().saturating_sub(room) as u64;
            if part.ends_with(b"\n") {
                self.line(line);
                line.clear();
            }
        }
    }

    fn line(&mut self, line: &[u8]) {
        let printable = |char: char| if char.is_control() { ' ' } else { char };
        let text: String = String::from_utf8_lossy(line)
            .chars()
            .map(printable)
            .collect();
        let text = text.trim_end();
        if text.is_empty() {
            return;
        }
        self.words = text.chars().take(WORDS).collect();
        if self.lines < LINES {
            self.lines += 1;
            log::info!("{}: {text}", self.whose);
        } else {
            self.dropped += line.len() as u64;
        }
    }

    /// Its last words. Says what was left out.
    fn close(&mut self) -> String {
        if self.dropped > 0 {
            log::info!("{}: … and {} bytes more", self.whose, self.dropped);
        }
        std::mem::take(&mut self.words)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
