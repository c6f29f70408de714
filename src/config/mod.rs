//! The configuration: the file as written becomes a checked [`Config`], or an error with file, line and what was expected.

mod check;
mod document;
mod door;
mod error;
mod findings;
mod fingerprint;
mod followers;
mod nearest;
mod print;
mod raw;
mod reader;
mod secret;
mod upstream;
pub mod value;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use toml::de::DeTable;

pub use self::document::{Document, Proof, parse_sha256};
pub use self::door::{
    Carried, Door, DoorLimits, DoorTls, Fetch, Hook, HookSecret, HookSecretError, HookSecretReason,
    Listen, Setup,
};
pub use self::error::{Errors, Place, Problem};
pub use self::fingerprint::{document_fingerprint, fingerprint, scope_fingerprint};
pub use self::followers::{Journal, Program};
pub use self::print::{print, print_ignore};
pub use self::secret::{Env, MAX_LEN as MAX_SECRET_LEN, SecretError, SecretReason, SecretValue};
pub use self::upstream::{Auth, ClientCert, Limits, Proxy, Roots, Secret, Upstream};
pub use crate::json::time::TimeFormat;
use crate::pointer::Pointer;

/// The largest config file in bytes.
const MAX_LEN: usize = 1 << 20;

/// Reads and checks a config file. Beside what [`parse`] finds it warns of secret files that everybody may read.
///
/// # Errors
/// [`Errors`]: the file can't be read, or everything that is wrong in it.
pub fn load(path: &Path, env: Env<'_>) -> Result<Config, Errors> {
    let bytes = std::fs::read(path)
        .map_err(|error| Errors::file(path, format!("can't be read: {error}")))?;
    let text = String::from_utf8(bytes).map_err(|error| {
        let before = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = before.split(|byte| *byte == b'\n').count();
        Errors::file(path, format!("line {line} is not UTF-8"))
    })?;
    let mut config = parse(&text, path, env)?;
    let upstreams = config.upstreams.iter().flat_map(|(name, upstream)| {
        let secrets = upstream.secrets();
        secrets.map(move |secret| (format!("upstream.{name}"), secret))
    });
    let hooks = config.hooks.iter().flat_map(|(name, hook)| {
        let secrets = hook.all_secrets();
        secrets.map(move |secret| (format!("hook.{name}"), secret))
    });
    let tls = config.door.iter().flat_map(|door| &door.tls);
    let warnings: Vec<String> = upstreams
        .chain(hooks)
        .chain(tls.map(|tls| ("door".to_owned(), &tls.key)))
        .filter(|(_, secret)| secret.is_world_readable())
        .map(|(whose, secret)| format!("{whose}: every user may read {secret}: chmod o-r"))
        .collect();
    config.warnings.extend(warnings);
    let of_sources = config.sources.iter();
    let of_sources =
        of_sources.map(|(name, source)| (format!("source.{name}"), source.on_change.as_ref()));
    let of_documents = config.documents.iter();
    let of_documents =
        of_documents.map(|(name, doc)| (format!("document.{name}"), doc.on_change.as_ref()));
    let programs: Vec<String> = of_sources
        .chain(of_documents)
        .filter_map(|(whose, program)| Some((whose, program?.trouble()?)))
        .map(|(whose, trouble)| format!("{whose}: `on_change`: {trouble}"))
        .collect();
    config.warnings.extend(programs);
    Ok(config)
}

/// Checks the text of a config file. `path` is named in errors, and its directory is where relative paths start; the
/// file system is not looked at, apart from the host's name and the schemas that the file names.
///
/// # Errors
/// [`Errors`]: everything that is wrong, not only the first thing; of what is no TOML, what the parser found.
pub fn parse(text: &str, path: &Path, env: Env<'_>) -> Result<Config, Errors> {
    if text.len() > MAX_LEN {
        return Err(Errors::file(
            path,
            format!("is longer than {MAX_LEN} bytes: is this the right file?"),
        ));
    }
    let dir = path
        .parent()
        .filter(|dir| !dir.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    let mut check =
        findings::Check::new(std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned()));
    let root = match DeTable::parse(text) {
        Ok(root) => root,
        Err(error) => {
            check.syntax(text, &error);
            return Err(check.into_errors(path, text));
        }
    };
    match check::check(&mut check, &root, env) {
        Some(config) => Ok(config),
        None => Err(check.into_errors(path, text)),
    }
}

/// A checked configuration: every reference resolves, every unit is right, every default is filled in.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// What is the agent's own.
    pub agent: Agent,
    /// API hosts by name. A source with a plain `url` has one of its own, named after the source.
    pub upstreams: BTreeMap<String, Upstream>,
    /// Collections by name.
    pub sources: BTreeMap<String, Source>,
    /// Files by name.
    pub documents: BTreeMap<String, Document>,
    /// Where webhooks come in.
    pub door: Option<Door>,
    /// Webhook endpoints by name; none without a door.
    pub hooks: BTreeMap<String, Hook>,
    /// What deserves a word at start but is no error. No secret is in it.
    pub warnings: Vec<String>,
}

/// `[agent]`
#[derive(Debug, Clone, PartialEq)]
pub struct Agent {
    /// What `status` calls this device. Default: the host name.
    pub id: String,
    /// The state directory. Default `/var/lib/gleaner` (or `$STATE_DIRECTORY`).
    pub state: PathBuf,
    /// The control socket. Default `$RUNTIME_DIRECTORY/control.sock`, else `control.sock` in the state directory.
    pub control: PathBuf,
    /// The control socket's permissions: who may write to it may control the agent. Default `0660`, owner and group.
    pub control_mode: u32,
    /// How often what did not change is written down all the same (last check, position). Default 15 min.
    pub checkpoint: Duration,
    /// A file that is touched whenever this machine's clock is set. Default: those of the time daemons that we know.
    pub time_sync: Option<PathBuf>,
    /// Bytes that all documents may take, unfinished downloads included. Default 4 GiB.
    pub documents_quota: u64,
}

/// `[source.NAME]`: a collection of JSON records.
#[derive(Debug, Clone, PartialEq)]
pub struct Source {
    /// Its name; also its table's.
    pub name: String,
    /// Key into [`Config::upstreams`].
    pub upstream: String,
    /// The first page, absolute; query included.
    pub url: url::Url,
    /// The body of a search by POST, if that is how the source is asked. Parameters whose names are JSON Pointers go into it.
    pub search: Option<serde_json::Value>,
    /// How often. Default 15 min.
    pub every: Duration,
    /// Up to this much is added to each due time, so that a fleet does not knock at once. Default: a tenth of `every`.
    pub jitter: Duration,
    /// From when on the data counts as stale. Default: 3 × `every`.
    pub stale_after: Duration,
    /// How the body is laid out.
    pub format: Format,
    /// Where the array of records is. Default: the whole body.
    pub records: Pointer,
    /// What identifies a record, one pointer or several.
    pub key: Vec<Pointer>,
    /// Fields that make no difference.
    pub ignore: Vec<Ignore>,
    /// What says that a record is deleted.
    pub deleted: Option<Deleted>,
    /// The record's own update time.
    pub updated: Option<Updated>,
    /// What a record must look like.
    pub require: Vec<(Pointer, crate::contract::Rule)>,
    /// A JSON Schema that a record must fit.
    pub schema: Option<crate::contract::schema::Schema>,
    /// Part of the fingerprint: raise it when the meaning of the data changed and all must be read again.
    pub schema_version: u32,
    /// How passes are made.
    pub pull: Pull,
    /// How a listing continues.
    pub pages: Pages,
    /// What a record that is not as configured does to its pass.
    pub on_bad_record: OnBad,
    /// How deletions by absence are guarded.
    pub max_loss: MaxLoss,
    /// How often a full pass finds what windows or cursors had missed, and what is gone. A complete snapshot always does.
    /// Default 30 d for `window` and `cursor`; `None`: never by itself.
    pub reconcile_every: Option<Duration>,
    /// The time of day at which it is done, by the device's zone. Default: whenever it is due.
    pub reconcile_at: Option<TimeOfDay>,
    /// For how long the upstream keeps tombstones and history: a copy that is older than that is compared in full.
    pub keep_upstream: Option<Duration>,
    /// Plain columns beside the JSON body.
    pub columns: Vec<(String, Pointer)>,
    /// What happens to a deleted record's row.
    pub deletes: Deletes,
    /// A file that gets each change as a line.
    pub journal: Option<Journal>,
    /// A program that is told of changes.
    pub on_change: Option<Program>,
    /// An empty answer is an empty listing rather than an error. Default false.
    pub allow_empty: bool,
    /// A page is downloaded as a document is, and read from disk then: a cut download goes on where it was. Default false.
    pub spool: bool,
    /// Keep validators although the answer says `no-store`. Default false.
    pub ignore_no_store: bool,
    /// How long an answer's freshness may put off a poll. Default 24 h.
    pub max_skip: Duration,
    /// After this long of 304s one answer is fetched in full. Default 30 d.
    pub recheck: Duration,
}

impl Source {
    /// Whether anybody follows its changes beside the readers of `data.db`.
    #[must_use]
    pub fn is_followed(&self) -> bool {
        self.journal.is_some() || self.on_change.is_some()
    }
}

/// How a body is laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// One JSON document.
    Json,
    /// One JSON record a line.
    Ndjson,
}

/// A field that makes no difference to the digest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ignore {
    /// At this place; a token `*` stands for any array index.
    At(Pointer),
    /// A member of this name at any depth.
    Anywhere(String),
}

/// What says that a record is deleted.
#[derive(Debug, Clone, PartialEq)]
pub struct Deleted {
    /// Where to look.
    pub pointer: Pointer,
    /// Which value says so; `None`: anything that is neither absent, `null`, `false`, `0` nor `""`. `null` says that a
    /// `null` is meant, which is not the same as nothing at that place.
    pub equals: Option<serde_json::Value>,
}

/// Where a record's update time is and how it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Updated {
    /// Where.
    pub field: Pointer,
    /// How.
    pub format: TimeFormat,
}

/// How passes are made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pull {
    /// The whole listing each time, compared by digest.
    Snapshot,
    /// What was updated since the last complete pass, less the lateness.
    Window(Window),
    /// What follows the cursor of the last complete pass.
    Cursor(Cursor),
    /// Not at all: records come by hooks.
    None,
}

impl Pull {
    /// One word for logs and reports.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Snapshot => "snapshot",
            Self::Window(_) => "window",
            Self::Cursor(_) => "cursor",
            Self::None => "none",
        }
    }
}

/// `pull = { window = … }`: the update time's field and format are the source's [`Updated`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Window {
    /// How the start is sent. The bound is taken to be inclusive.
    pub since: TimeParam,
    /// How the end is sent, where a window has one.
    pub until: Option<TimeParam>,
    /// How long after its update time a record may still become visible upstream. Default 6 h.
    pub lateness: Duration,
    /// How far back the first pass looks. Default: to the beginning, with no `since` at all.
    pub first: Option<Duration>,
    /// A longer window than this is asked for in several ones, complete one by one. Takes an `until`.
    pub step: Option<Duration>,
}

/// How an instant is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimeParam {
    /// Where.
    pub param: Param,
    /// How it is written; what lies below its unit is cut off, so that a window only gets longer.
    pub format: TimeFormat,
}

/// A request parameter and what stands around its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Param {
    /// The query parameter's name.
    pub name: String,
    /// The value, with `{}` for what is sent. Default `{}` alone.
    pub template: String,
}

impl Param {
    /// The parameter's value.
    #[must_use]
    pub fn fill(&self, value: &str) -> String {
        self.template.replacen("{}", value, 1)
    }
}

/// `pull = { cursor = … }`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor {
    /// Where the next cursor comes from.
    pub from: CursorFrom,
    /// How it is sent.
    pub param: Param,
    /// What a pass without a cursor sends. Default: nothing.
    pub first: Option<String>,
}

/// Where a cursor comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CursorFrom {
    /// A field of the first page's answer, exactly as it came.
    Header(String),
    /// A place in the last page's body that has it.
    Pointer(Pointer),
    /// The greatest value in the records: as numbers where they are numbers, else byte by byte.
    Field(Pointer),
}

/// Minutes since midnight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct TimeOfDay(pub u16);

/// How a listing continues (the forms of `pages`).
#[derive(Debug, Clone, PartialEq)]
pub enum Pages {
    /// It does not.
    Single,
    /// `Link: <…>; rel="next"` (RFC 8288).
    Link,
    /// The next URL in the body.
    Next {
        /// Where.
        next: Pointer,
        /// Where the API says whether there is more, if it does.
        more: Option<More>,
    },
    /// An array of links in the body; the next URL is in the one with the relation `next`.
    Links(Pointer),
    /// The next URL in a header.
    NextHeader(String),
    /// A token in the body, sent as a parameter.
    Token {
        /// Where the token is.
        token: Pointer,
        /// The parameter's name.
        param: String,
        /// Where the API says whether there is more, if it does.
        more: Option<More>,
    },
    /// A token in a header, sent as a parameter.
    TokenHeader {
        /// The header's name.
        header: String,
        /// The parameter's name.
        param: String,
    },
    /// Page numbers.
    Page {
        /// The parameter's name.
        param: String,
        /// The first page's number.
        first: u64,
        /// How many records a page has, if it is asked for.
        size: Option<PageSize>,
        /// Where the API says whether there is more, if it does.
        more: Option<More>,
    },
    /// Offsets.
    Offset {
        /// The parameter's name.
        param: String,
        /// How many records a page has.
        size: PageSize,
        /// Where the API says whether there is more, if it does.
        more: Option<More>,
    },
    /// The last record's key starts the next page.
    LastKey {
        /// Where it is in the record.
        key: Pointer,
        /// The parameter's name.
        param: String,
        /// Where the API says whether there is more, if it does.
        more: Option<More>,
    },
}

/// Where an API says whether there is more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct More {
    /// Where.
    pub at: Pointer,
    /// What is there says that this is the end (`end = …`), rather than that there is more (`more = …`).
    pub says_end: bool,
}

/// A page size that is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageSize {
    /// The parameter's name.
    pub param: String,
    /// Records a page.
    pub value: u64,
}

/// What a bad record does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnBad {
    /// The pass fails.
    Fail,
    /// It is counted, kept aside and shown; what was known under its key stays.
    Skip,
}

/// How many records may vanish at once without a person's word.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum MaxLoss {
    /// A share of what is known, 0 to 1. Up to 5 records are always allowed. Default 0.1.
    Share(f64),
    /// A number of records.
    Count(u64),
}

/// What happens to a deleted record's row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deletes {
    /// The row goes.
    Remove,
    /// The row stays, marked in the column `deleted`.
    Mark,
}

#[cfg(test)]
mod tests;
