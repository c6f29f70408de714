//! Who follows the changes of a source, beside the readers of `data.db`.

use std::path::PathBuf;
use std::time::Duration;

/// `journal = …`: changes as lines of a file below `journal/` in the state directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Journal {
    /// The file's name there. Default: the source's, with `.ndjson`.
    pub file: String,
    /// In bytes: before it would become larger, the file is put aside and a new one begun. Default 8 MiB.
    pub rotate: u64,
    /// How many files that were put aside are kept. Default 5.
    pub keep: u32,
}

/// `on_change = …`: a program that is told of changes. No shell has a part in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// The program. In the config it may be relative to the config file; here it is absolute.
    pub path: PathBuf,
    /// What it is started with.
    pub arguments: Vec<String>,
    /// How long it may take. Default 60 s.
    pub timeout: Duration,
}

impl Program {
    /// Why it cannot be started now, as far as its file tells; `None` if nothing is wrong.
    #[must_use]
    pub fn trouble(&self) -> Option<String> {
        let said = |what: &str| Some(format!("{}: {what}", self.path.display()));
        match std::fs::metadata(&self.path) {
            Err(error) => said(&error.to_string()),
            Ok(meta) if !meta.is_file() => said("is no file"),
            Ok(_) => {
                let may_run = rustix::fs::access(&self.path, rustix::fs::Access::EXEC_OK);
                may_run
                    .err()
                    .and_then(|_| said("may not be executed by this user: chmod +x"))
            }
        }
    }
}
