//! What a process does to a directory, as `strace` sees it: the file operations in order. What may have changed the directory
//! and is not understood is an error, so that nothing is left out unnoticed.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// What `strace` is told, but for the place of its log.
pub const STRACE: [&str; 9] = [
    "strace",
    "-f",
    "-qq",
    "-y",
    "-xx",
    "-s",
    "4194304",
    "-e",
    "trace=%file,%desc,sendto,io_uring_setup",
];

/// Calls that change nothing that an image holds, owner and mode included: the binary under test reads either.
const HARMLESS: &str = " access faccessat faccessat2 fadvise64 chdir chmod fchmod fchmodat chown fchown close_range dup dup2 dup3 \
    epoll_create1 epoll_ctl epoll_wait execve fcntl flock fstat fstatfs getcwd getdents64 inotify_add_watch ioctl lstat mmap \
    newfstatat poll ppoll pread64 preadv readlink readlinkat select stat statfs statx sync_file_range utimensat ";

/// What happened to the directory.
#[derive(Debug, Clone)]
pub(super) enum What {
    Create(PathBuf),
    Mkdir(PathBuf),
    Rename(PathBuf, PathBuf),
    Remove(PathBuf),
    Write(PathBuf, usize, Vec<u8>),
    /// At the end, wherever that is then.
    Append(PathBuf, Vec<u8>),
    SetLen(PathBuf, usize),
    /// At least this long.
    Grow(PathBuf, usize),
    Sync(PathBuf),
}

/// An operation with the lines of the log where it began and ended.
#[derive(Debug, Clone)]
pub struct Operation {
    pub(super) began: usize,
    pub(super) ended: usize,
    pub(super) what: What,
}

impl Operation {
    /// For a message.
    pub fn told(&self) -> String {
        match &self.what {
            What::Write(path, at, data) => format!("write {path:?} {at}+{}", data.len()),
            What::Append(path, data) => format!("append {path:?} {}", data.len()),
            other => format!("{other:?}"),
        }
    }

    /// How many bytes it writes.
    pub fn bytes(&self) -> usize {
        match &self.what {
            What::Write(_, _, data) | What::Append(_, data) => data.len(),
            _ => 0,
        }
    }

    pub fn is_sync(&self) -> bool {
        matches!(self.what, What::Sync(_))
    }

    /// The line of the log from which it may have left something: a write is on its way from its begin, a sync has done its
    /// work at its end.
    pub fn counts_from(&self) -> usize {
        if self.is_sync() {
            self.ended
        } else {
            self.began
        }
    }
}

/// The operations of a log below `root` whose first name is `top`, in order, with lines counted on from `line`.
///
/// # Errors
/// A call that may have changed the directory and that is not understood.
pub fn parse(log: &str, root: &Path, top: &str, line: usize) -> Result<Vec<Operation>, String> {
    let mut reader = Reader {
        root: root.to_owned(),
        top: root.join(top),
        positions: HashMap::new(),
        found: Vec::new(),
    };
    let mut unfinished: HashMap<&str, (usize, &str)> = HashMap::new();
    for (at, text) in (line..).zip(log.lines()) {
        let Some((thread, body)) = text.split_once(' ') else {
            return Err(format!("a line without a call: {text}"));
        };
        let body = body.trim_start();
        if let Some(first) = body.strip_suffix(" <unfinished ...>") {
            unfinished.insert(thread, (at, first));
        } else if let Some(rest) = body.strip_prefix("<... ") {
            let (_, rest) = rest.split_once(" resumed>").unwrap_or_default();
            let (began, first) = unfinished.remove(thread).unwrap_or_default();
            reader.call(began, at, &format!("{first}{rest}"))?;
        } else {
            reader.call(at, at, body)?;
        }
    }
    let mut found = reader.found;
    found.sort_by_key(Operation::counts_from);
    Ok(found)
}

/// What a process sent over its connections and that has `what` in it: the line where the call began, and what follows.
pub fn sent(log: &str, what: &str, line: usize) -> Vec<(usize, String)> {
    let hex: String = what.bytes().map(|byte| format!("\\x{byte:02x}")).collect();
    let mut found = Vec::new();
    for (at, text) in (line..).zip(log.lines()) {
        let (_, body) = text.split_once(' ').unwrap_or_default();
        if !is_sending(body.trim_start()) {
            continue;
        }
        for rest in text.split(&hex).skip(1) {
            let rest = rest.split('"').next().unwrap_or_default();
            found.push((at, String::from_utf8_lossy(&bytes(rest)).into_owned()));
        }
    }
    found
}

/// A write to a descriptor that is no file is one to a connection or a log.
fn is_sending(call: &str) -> bool {
    let to = call
        .strip_prefix("sendto(")
        .or_else(|| call.strip_prefix("write("));
    let to = to.and_then(|rest| descriptor(rest.split(',').next()?));
    to.is_some_and(|(_, to)| to.to_string_lossy().starts_with("socket:"))
}

struct Reader {
    root: PathBuf,
    top: PathBuf,
    /// Where the next plain write of a descriptor goes; `None`: to the end of the file.
    positions: HashMap<String, Option<usize>>,
    found: Vec<Operation>,
}

impl Reader {
    fn call(&mut self, began: usize, ended: usize, text: &str) -> Result<(), String> {
        let Some(call) = Call::read(text) else {
            return Ok(());
        };
        let happened = match call.name {
            "openat" | "open" => return self.open(began, ended, &call),
            "close" | "read" | "lseek" => {
                self.moved(&call);
                None
            }
            "write" | "writev" | "pwrite64" | "pwritev" | "pwritev2" => self.write(&call)?,
            "ftruncate" | "fallocate" => self.resize(&call)?,
            "fsync" | "fdatasync" => {
                let path = call.file().map(|(_, path)| path).unwrap_or_default();
                let below = path.strip_prefix(&self.root).ok();
                below.map(|path| What::Sync(path.to_owned()))
            }
            "mkdir" | "mkdirat" => self.named(&call).map(What::Mkdir),
            "unlink" | "unlinkat" | "rmdir" => self.named(&call).map(What::Remove),
            "rename" | "renameat" | "renameat2" => self.rename(&call)?,
            _ => {
                self.changes_nothing(&call)?;
                None
            }
        };
        let operation = happened.map(|what| Operation { began, ended, what });
        self.found.extend(operation);
        Ok(())
    }

    /// Keeps track of where the next plain write goes.
    fn moved(&mut self, call: &Call<'_>) {
        let Some((fd, path)) = call.file() else {
            return;
        };
        if call.name == "close" {
            self.positions.remove(&fd);
        } else if self.ours(&path).is_some() {
            let position = self.positions.entry(fd).or_insert(Some(0));
            if let Some(position) = position {
                let from = if call.name == "read" { *position } else { 0 };
                *position = from + call.returned;
            }
        }
    }

    fn write(&mut self, call: &Call<'_>) -> Result<Option<What>, String> {
        let file = call.file();
        let Some((fd, path)) = file.and_then(|(fd, path)| Some((fd, self.ours(&path)?))) else {
            return Ok(None);
        };
        let mut data: Vec<u8> = call
            .arguments
            .iter()
            .flat_map(|text| quoted(text))
            .collect();
        if data.len() < call.returned {
            return Err(format!("strace cut a write to {path:?} short"));
        }
        data.truncate(call.returned);
        let at = match call.name {
            "pwrite64" | "pwritev" => call.number(call.arguments.len() - 1)?,
            "pwritev2" => call.number(call.arguments.len() - 2)?,
            _ => {
                let position = self.positions.get_mut(&fd);
                let position = position
                    .ok_or_else(|| format!("where a write to {path:?} goes is not known"))?;
                let Some(position) = position else {
                    return Ok(Some(What::Append(path, data)));
                };
                *position += call.returned;
                *position - call.returned
            }
        };
        Ok(Some(What::Write(path, at, data)))
    }

    fn resize(&self, call: &Call<'_>) -> Result<Option<What>, String> {
        let Some(path) = call.file().and_then(|(_, path)| self.ours(&path)) else {
            return Ok(None);
        };
        match (call.name, call.arguments[1]) {
            ("ftruncate", _) => Ok(Some(What::SetLen(path, call.number(1)?))),
            (_, "0") => Ok(Some(What::Grow(path, call.number(2)? + call.number(3)?))),
            _ => Err(call.not_understood()),
        }
    }

    fn named(&self, call: &Call<'_>) -> Option<PathBuf> {
        call.paths().first().and_then(|path| self.ours(path))
    }

    fn rename(&self, call: &Call<'_>) -> Result<Option<What>, String> {
        let paths = call.paths();
        let ours: Vec<_> = paths.iter().map(|path| self.ours(path)).collect();
        match &ours[..] {
            [Some(from), Some(to)]
                if from.parent() == to.parent() && !call.text.contains("RENAME_EX") =>
            {
                Ok(Some(What::Rename(from.clone(), to.clone())))
            }
            [None, None] => Ok(None),
            _ => Err(call.not_understood()),
        }
    }

    fn changes_nothing(&self, call: &Call<'_>) -> Result<(), String> {
        if call.name == "io_uring_setup" {
            return Err("what is done by io_uring is not seen".into());
        }
        let writable = call.name == "mmap"
            && call.text.contains("MAP_SHARED")
            && call.text.contains("PROT_WRITE");
        if !writable && HARMLESS.contains(&format!(" {} ", call.name)) {
            return Ok(());
        }
        let files = call.arguments.iter().filter_map(|text| descriptor(text));
        let mut paths = files.map(|(_, path)| path).chain(call.paths());
        if paths.any(|path| self.watches(&path)) {
            return Err(call.not_understood());
        }
        Ok(())
    }

    fn open(&mut self, began: usize, ended: usize, call: &Call<'_>) -> Result<(), String> {
        let opened = descriptor(call.result).and_then(|(fd, path)| Some((fd, self.ours(&path)?)));
        let Some((fd, path)) = opened else {
            return Ok(());
        };
        let has = |flag: &str| {
            let mut words = call.arguments.iter().flat_map(|text| text.split('|'));
            words.any(|word| word == flag)
        };
        let mut happened = |what| self.found.push(Operation { began, ended, what });
        if has("O_CREAT") {
            happened(What::Create(path.clone()));
        }
        if has("O_TRUNC") {
            happened(What::SetLen(path, 0));
        }
        self.positions.insert(fd, (!has("O_APPEND")).then_some(0));
        Ok(())
    }

    /// SQLite makes its `-shm` anew from the `-wal`.
    fn watches(&self, path: &Path) -> bool {
        path.starts_with(&self.top) && !path.to_string_lossy().ends_with("-shm")
    }

    /// Relative to the root, if it is watched.
    fn ours(&self, path: &Path) -> Option<PathBuf> {
        let relative = path.strip_prefix(&self.root).ok()?;
        self.watches(path).then(|| relative.to_owned())
    }
}

/// A call that succeeded.
struct Call<'a> {
    text: &'a str,
    name: &'a str,
    arguments: Vec<&'a str>,
    result: &'a str,
    /// As a number, if it is one of bytes.
    returned: usize,
}

impl<'a> Call<'a> {
    /// None for signals, exits, and what failed.
    fn read(text: &'a str) -> Option<Self> {
        let (call, result) = text.rsplit_once(" = ")?;
        let (name, arguments) = call.trim_end().strip_suffix(')')?.split_once('(')?;
        if result.starts_with(['-', '?']) {
            return None;
        }
        let digits = result.split(['<', ' ']).next()?;
        Some(Self {
            text,
            name,
            arguments: arguments.split(", ").collect(),
            result,
            returned: digits.parse().unwrap_or(0),
        })
    }

    fn number(&self, at: usize) -> Result<usize, String> {
        let found = self.arguments.get(at).and_then(|text| text.parse().ok());
        found.ok_or_else(|| self.not_understood())
    }

    /// What its first argument refers to.
    fn file(&self) -> Option<(String, PathBuf)> {
        descriptor(self.arguments[0])
    }

    /// The paths in quotes, below the directory before them if they are relative.
    fn paths(&self) -> Vec<PathBuf> {
        let mut below = PathBuf::new();
        let mut paths = Vec::new();
        for text in &self.arguments {
            if let Some((_, path)) = descriptor(text) {
                below = path;
            } else if text.starts_with('"') {
                paths.push(below.join(as_path(&quoted(text))));
            }
        }
        paths
    }

    fn not_understood(&self) -> String {
        format!("not understood: {}", &self.text[..self.text.len().min(400)])
    }
}

/// The descriptor and the path of `3<path>`; none for one that is deleted.
fn descriptor(text: &str) -> Option<(String, PathBuf)> {
    let (fd, rest) = text.split_once('<')?;
    let (path, rest) = rest.split_once('>')?;
    (!rest.starts_with("(deleted)")).then(|| (fd.to_owned(), as_path(&bytes(path))))
}

/// All that is in quotes.
fn quoted(text: &str) -> Vec<u8> {
    text.split('"').skip(1).step_by(2).flat_map(bytes).collect()
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits = hex.split("\\x").skip(1);
    digits
        .map(|two| u8::from_str_radix(two, 16).unwrap())
        .collect()
}

fn as_path(bytes: &[u8]) -> PathBuf {
    PathBuf::from(String::from_utf8_lossy(bytes).into_owned())
}
