//! `gleaner get`: a conditional GET with a memory, for scripts.

use std::env;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use url::Url;

use super::exit::Exit;
use super::inbox::is_secret;
use super::output;
use crate::cache::fetch::{Fetcher, Question, Reply};
use crate::cache::memory::Memory;
use crate::cache::select::view;
use crate::clock::{Evidence, Trust, Witnesses, build_floor, judge};
use crate::config::value::{parse_duration, parse_size};
use crate::config::{Auth, Config, Limits, Proxy, Roots, Upstream};
use crate::hook::to_base64;
use crate::upstream::client::failure_of_io;
use crate::upstream::connect::Shared;
use crate::upstream::limit::TooLarge;
use crate::upstream::outcome::Failure;
use crate::upstream::plain::Field;
use crate::wait::Wait;

/// A file of header lines is not longer than this.
const LONGEST_HEADERS: u64 = 64 * 1024;

#[derive(Debug, Args)]
pub(super) struct GetArguments {
    /// What to get; `http` or `https`.
    #[arg(value_name = "URL", value_parser = url)]
    url: Url,
    /// A request header, `Name: value`, or `@FILE` with one on each line. Sent to the host of URL alone.
    #[arg(short = 'H', long = "header", value_name = "HEADER")]
    headers: Vec<String>,
    /// Write the body to this file, which is replaced when all of it has come. `-`: standard output.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// One JSON object: status, headers, body_base64, from, requests, bytes_up, bytes_down.
    #[arg(long)]
    json: bool,
    /// Ask even if what is kept is fresh.
    #[arg(long)]
    refresh: bool,
    /// How long a request may take with its body: seconds, or `90s`, `5m`. Default: an hour.
    #[arg(long, value_name = "TIME", value_parser = time)]
    max_time: Option<Duration>,
    /// How large a body may be. Default: 1GiB.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    max_size: Option<u64>,
    /// Where answers are kept. Default: $CACHE_DIRECTORY, else $XDG_CACHE_HOME/gleaner, else ~/.cache/gleaner.
    #[arg(long, env = "GLEANER_CACHE", value_name = "DIR")]
    cache: Option<PathBuf>,
    /// What they may take together; 0: nothing is kept. What was not used for longest goes.
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "256MiB")]
    cache_size: u64,
}

fn url(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|error| format!("{error}; expected https://host/path"))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err("expected http:// or https://".into());
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(
            "everybody sees a password in a URL, in `ps` and in logs: use -H @FILE with the line \
             `Authorization: Basic …`"
                .into(),
        );
    }
    Ok(url)
}

fn time(text: &str) -> Result<Duration, String> {
    if let Ok(seconds) = text.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string());
    }
    parse_duration(text).map_err(|error| error.to_string())
}

fn size(text: &str) -> Result<u64, String> {
    if let Ok(bytes) = text.parse() {
        return Ok(bytes);
    }
    parse_size(text).map_err(|error| error.to_string())
}

/// Why there is no body.
enum Trouble {
    /// The command line is wrong.
    Usage(String),
    /// Upstream, the network, or an answer.
    Failed(Failure),
    /// This device.
    Device(String),
}

impl Trouble {
    fn told(&self) -> Exit {
        match self {
            Self::Usage(text) => output::error(text),
            Self::Failed(failure) => output::error(&failure.to_string()),
            Self::Device(text) => output::error(text),
        }
        match self {
            Self::Usage(_) => Exit::Usage,
            Self::Failed(failure) => Exit::of(failure.kind.word()),
            Self::Device(_) => Exit::Device,
        }
    }
}

impl From<Failure> for Trouble {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

pub(super) fn get(config: Option<&Config>, wait: &Wait, arguments: &GetArguments) -> Exit {
    match try_get(config, wait, arguments) {
        Ok(exit) => exit,
        Err(trouble) => trouble.told(),
    }
}

fn try_get(
    config: Option<&Config>,
    wait: &Wait,
    arguments: &GetArguments,
) -> Result<Exit, Trouble> {
    let given = fields(&arguments.headers)?;
    let fields: Vec<Field> = given.iter().map(|(field, _)| field.clone()).collect();
    let configured = config.and_then(|config| upstream_of(config, &arguments.url));
    let mut upstream = configured
        .cloned()
        .unwrap_or_else(|| stranger(&arguments.url));
    if let Some(time) = arguments.max_time {
        let limits = &mut upstream.limits;
        limits.total = time;
        limits.connect = limits.connect.min(time);
    }
    let memory = memory(arguments);
    let credentials: Vec<Field> = given
        .into_iter()
        .filter_map(|(field, secret)| secret.then_some(field))
        .collect();
    let scope = configured.map(|upstream| upstream.scope.as_str());
    let view = memory
        .as_ref()
        .map(|memory| view(scope, &credentials, memory.seal()));
    let shared = Shared::new(wait.clone());
    shared.tls_clock.believe(clock_trust(config, wait));
    let plain = shared.plain(&upstream)?;
    let mut fetcher = Fetcher::new(plain, memory);
    let limit = arguments.max_size.unwrap_or(upstream.limits.body);
    let reply = fetcher.get(&Question {
        url: &arguments.url,
        fields: &fields,
        view: view.as_deref().unwrap_or_default(),
        refresh: arguments.refresh,
        limit,
    })?;
    if let Some((age, why)) = &reply.stale {
        log::warn!(
            "what is kept, {} old: {why}",
            output::seconds(age.as_secs())
        );
    }
    if arguments.json {
        json(reply, &fetcher, arguments)
    } else {
        body(reply, arguments)
    }
}

/// What our clock is worth for certificates: a time daemon's word, since no upstream was asked before.
fn clock_trust(config: Option<&Config>, wait: &Wait) -> Trust {
    let witnesses = match config.and_then(|config| config.agent.time_sync.as_ref()) {
        Some(file) => Witnesses::only(file),
        None => Witnesses::known(),
    };
    judge(&Evidence {
        wall: wait.clock().wall(),
        now: wait.now(),
        floor: build_floor(),
        set: witnesses.set_at(),
        sightings: &[],
    })
}

/// Prints the body of a success; tells what is none.
fn body(mut reply: Reply, arguments: &GetArguments) -> Result<Exit, Trouble> {
    if let Some(failure) = reply.trouble.take() {
        // Read to its end it is kept if it may be: a 404 can be fresh, too.
        drop(io::copy(&mut reply.body, &mut io::sink()));
        return Err(failure.into());
    }
    let mut target = Target::open(arguments.output.as_deref())?;
    let mut buffer = vec![0; 64 * 1024];
    loop {
        match reply.body.read(&mut buffer) {
            Ok(0) => break,
            Ok(bytes) => target.write(buffer.get(..bytes).unwrap_or_default())?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(cut(&error, &reply).into()),
        }
    }
    target.finish()?;
    Ok(Exit::Ok)
}

/// What `--json` prints.
#[derive(Serialize)]
struct Object<'a> {
    status: u16,
    headers: Vec<(&'a str, String)>,
    body_base64: String,
    from: &'static str,
    requests: u64,
    bytes_up: u64,
    bytes_down: u64,
}

/// Prints the object, whatever the status.
fn json(mut reply: Reply, fetcher: &Fetcher, arguments: &GetArguments) -> Result<Exit, Trouble> {
    let mut bytes = Vec::new();
    if let Err(error) = reply.body.read_to_end(&mut bytes) {
        return Err(cut(&error, &reply).into());
    }
    let (requests, up, down) = fetcher.spent();
    let object = Object {
        status: reply.status,
        headers: reply
            .headers
            .iter()
            .map(|(name, value)| (name, text(value)))
            .collect(),
        body_base64: to_base64(&bytes),
        from: reply.from.word(),
        requests,
        bytes_up: up,
        bytes_down: down,
    };
    let line = serde_json::to_string(&object)
        .map_err(|error| Trouble::Device(format!("the object cannot be written: {error}")))?;
    let mut target = Target::open(arguments.output.as_deref())?;
    target.write(line.as_bytes())?;
    target.write(b"\n")?;
    target.finish()?;
    match reply.trouble {
        Some(failure) => Err(failure.into()),
        None => Ok(Exit::Ok),
    }
}

/// A field value as text; what is not UTF-8 is read as Latin-1, so that nothing is lost.
fn text(value: &[u8]) -> String {
    match std::str::from_utf8(value) {
        Ok(text) => text.to_owned(),
        Err(_) => value.iter().copied().map(char::from).collect(),
    }
}

/// What the end of a body that is none means.
fn cut(error: &io::Error, reply: &Reply) -> Failure {
    let mut failure = failure_of_io(error);
    let large = error.get_ref().and_then(|inner| inner.downcast_ref());
    if let Some(TooLarge { limit }) = large {
        failure.reason = format!("the body has more than {limit} bytes (--max-size)");
    }
    failure.at(crate::upstream::client::shown(&reply.url))
}

/// The asker's fields, and whether each is a credential: by its name, or because it stands in a file.
fn fields(given: &[String]) -> Result<Vec<(Field, bool)>, Trouble> {
    let mut fields = Vec::new();
    for text in given {
        let Some(path) = text.strip_prefix('@') else {
            let field = field(text).map_err(|why| Trouble::Usage(format!("-H: {why}")))?;
            let secret = is_secret(&field.name);
            fields.push((field, secret));
            continue;
        };
        let read = || -> io::Result<String> {
            let mut lines = String::new();
            let file = File::open(path)?;
            file.take(LONGEST_HEADERS).read_to_string(&mut lines)?;
            Ok(lines)
        };
        let lines = read().map_err(|error| Trouble::Device(format!("{path}: {error}")))?;
        let lines = lines.lines().enumerate();
        for (number, line) in lines.filter(|(_, line)| !line.trim().is_empty()) {
            let field = field(line)
                .map_err(|why| Trouble::Usage(format!("{path}: line {}: {why}", number + 1)))?;
            fields.push((field, true));
        }
    }
    Ok(fields)
}

/// One header line. What is wrong is told without the line: it may be a secret.
fn field(line: &str) -> Result<Field, &'static str> {
    let (name, value) = line
        .split_once(':')
        .ok_or("expected `Name: value` or `@FILE`")?;
    let is_name = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    if name.is_empty() || !name.chars().all(is_name) {
        return Err("what stands before the colon is no header's name");
    }
    let value = value.trim_matches([' ', '\t']);
    if value.chars().any(|c| c.is_control() && c != '\t') {
        return Err("a control character stands in the value");
    }
    let name = name.to_ascii_lowercase();
    if matches!(
        name.as_str(),
        "host"
            | "content-length"
            | "transfer-encoding"
            | "connection"
            | "te"
            | "upgrade"
            | "expect"
    ) {
        return Err("this header is not for you to set: it says how the request itself is sent");
    }
    Ok(Field {
        name,
        value: value.as_bytes().to_vec(),
    })
}

/// The configured upstream on a URL's origin; of several the one whose base is nearest.
fn upstream_of<'a>(config: &'a Config, url: &Url) -> Option<&'a Upstream> {
    let nearness = |upstream: &&Upstream| {
        let base = upstream.base.path();
        if url.path().starts_with(base) {
            base.len()
        } else {
            0
        }
    };
    config
        .upstreams
        .values()
        .filter(|upstream| upstream.base.origin() == url.origin())
        .max_by_key(nearness)
}

/// An upstream that nobody has configured.
fn stranger(url: &Url) -> Upstream {
    let mut base = url.clone();
    base.set_path("/");
    base.set_query(None);
    base.set_fragment(None);
    Upstream {
        base,
        auth: Auth::None,
        scope: String::new(),
        headers: Vec::new(),
        extra_ca: None,
        roots: Roots::System,
        client_cert: None,
        proxy: Proxy::Environment,
        insecure_http: false,
        min_interval: Duration::ZERO,
        limits: Limits::default(),
    }
}

/// The memory. One that cannot be used is a word on stderr: the body is what counts.
fn memory(arguments: &GetArguments) -> Option<Memory> {
    if arguments.cache_size == 0 {
        return None;
    }
    let Some(dir) = arguments
        .cache
        .clone()
        .or_else(|| directory(&|name| env::var_os(name)))
    else {
        log::warn!("nothing is kept: neither --cache nor $XDG_CACHE_HOME nor $HOME say where");
        return None;
    };
    match Memory::open(&dir, arguments.cache_size) {
        Ok(memory) => Some(memory),
        Err(error) => {
            log::warn!("nothing is kept: {error}");
            None
        }
    }
}

/// Where answers are kept if nobody says: where systemd says, else where the user's caches are.
fn directory(env: &dyn Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let set = |name: &str| env(name).filter(|value| !value.is_empty());
    if let Some(several) = set("CACHE_DIRECTORY") {
        // One for each `CacheDirectory=`, with colons.
        let several = several.into_encoded_bytes();
        let first = several.split(|byte| *byte == b':').next()?;
        return Some(PathBuf::from(String::from_utf8(first.to_vec()).ok()?));
    }
    let absolute = |path: PathBuf| path.is_absolute().then_some(path);
    let caches = set("XDG_CACHE_HOME").map(PathBuf::from).and_then(absolute);
    let home = || set("HOME").map(|home| Path::new(&home).join(".cache"));
    Some(caches.or_else(home)?.join("gleaner"))
}

/// Where the output goes.
enum Target {
    /// Standard output.
    Stdout(io::StdoutLock<'static>),
    /// A file as it is: a device or a pipe.
    AsItIs(File, PathBuf),
    /// A file beside the one that it will replace.
    Beside {
        file: File,
        path: PathBuf,
        target: PathBuf,
    },
}

impl Target {
    fn open(path: Option<&Path>) -> Result<Self, Trouble> {
        let Some(path) = path.filter(|path| *path != Path::new("-")) else {
            return Ok(Self::Stdout(io::stdout().lock()));
        };
        let fail = |error| device(path, &error);
        // A link stays a link: what it leads to is replaced.
        let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let known = fs::metadata(&target).ok();
        if known.as_ref().is_some_and(|known| !known.is_file()) {
            let file = File::options().write(true).open(&target).map_err(fail)?;
            return Ok(Self::AsItIs(file, target));
        }
        let mut name = OsString::from(".");
        name.push(target.file_name().unwrap_or_default());
        name.push(format!(".gleaner-{}", std::process::id()));
        let beside = target.with_file_name(name);
        // One that is there was left by a process of this number that ended; through a link nothing is written.
        drop(fs::remove_file(&beside));
        let file = File::create_new(&beside).map_err(|error| device(&beside, &error))?;
        let target = Self::Beside {
            file,
            path: beside,
            target,
        };
        if let (Some(known), Self::Beside { file, path, .. }) = (known, &target) {
            let mode = known.permissions();
            file.set_permissions(mode)
                .map_err(|error| device(path, &error))?;
        }
        Ok(target)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Trouble> {
        match self {
            Self::Stdout(out) => out
                .write_all(bytes)
                .map_err(|error| Trouble::Device(format!("standard output: {error}"))),
            Self::AsItIs(file, path) | Self::Beside { file, path, .. } => {
                file.write_all(bytes).map_err(|error| device(path, &error))
            }
        }
    }

    fn finish(mut self) -> Result<(), Trouble> {
        match &mut self {
            Self::Stdout(out) => out
                .flush()
                .map_err(|error| Trouble::Device(format!("standard output: {error}"))),
            Self::AsItIs(..) => Ok(()),
            Self::Beside { file, path, target } => file
                .sync_all()
                .and_then(|()| fs::rename(&*path, &*target))
                .map_err(|error| device(target, &error)),
        }
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        if let Self::Beside { path, .. } = self {
            // Renamed, it is not there any more.
            drop(fs::remove_file(path));
        }
    }
}

fn device(path: &Path, error: &io::Error) -> Trouble {
    Trouble::Device(format!("{}: {error}", path.display()))
}
