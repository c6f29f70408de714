//! Arguments → command → exit code. One file a command.

mod check;
mod exit;
mod explain;
mod get;
mod hook;
mod inbox;
mod output;
mod remote;
mod run;
mod state;
mod status;
mod sync;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::parser::ValueSource;
use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

pub use exit::Exit;

use crate::clock::SystemClock;
use crate::config::{self, Config};
use crate::inbox::RequestId;
use crate::wait::Wait;

const EXAMPLES: &str = "\
Examples:
  gleaner check                        is the config right? prints it with all defaults
  gleaner sync                         all sources once; a table at the end
  gleaner sync parts --dry-run         what would change
  gleaner run                          stay, and pull on schedule (what the systemd unit does)
  gleaner status                       how the sources stand
  gleaner reconcile parts --confirm    yes, what is missing upstream is gone
  gleaner explain parts 42             what is known of one record, and why it is here or not
  gleaner inbox list --state dead      payloads of hooks that could not be processed
  gleaner get URL                      a conditional GET with a memory, for scripts

Exit codes (sysexits.h):
  0   done
  64  the command line is wrong
  65  an upstream's data is not as the config says, a loss needs confirmation, or a recorded request is not valid
  69  an upstream refuses, is gone, or somebody else answers in its place
  74  this device: disk, state directory, secret file
  75  an upstream or the network does not work now; try again
  77  an upstream denies access
  78  the config is wrong";

const RUN_EXAMPLES: &str = "\
Examples:
  gleaner run                               with /etc/gleaner/gleaner.toml
  GLEANER_LOG=debug gleaner -c my.toml run  each request with status, bytes and time
  kill -HUP PID                             reads the config again; if it has errors the old one goes on";

const SYNC_EXAMPLES: &str = "\
Examples:
  gleaner sync                      all sources; a table at the end
  gleaner sync parts                this one, even if its upstream asked us to wait
  gleaner sync parts --dry-run      what would change
  gleaner sync --json | jq -r 'select(.outcome != \"unchanged\") | .source'

While `gleaner run` holds the state directory, it is asked to do this over its control socket.";

const STATUS_EXAMPLES: &str = "\
Examples:
  gleaner status
  gleaner status --json | jq '.sources[] | select(.stale)'";

const CHECK_EXAMPLES: &str = "\
Examples:
  gleaner -c new.toml check         errors with their lines, or what is in effect
  gleaner check --live              does each source answer as the config says?";

const RECONCILE_EXAMPLES: &str = "\
Examples:
  gleaner reconcile parts           a full pass; more missing than `max_loss` allows is reported, not deleted
  gleaner reconcile parts --confirm yes, what is missing upstream is gone";

const REPLAY_EXAMPLES: &str = "\
Examples:
  gleaner replay parts              fills a column that the config has got, or a follower that lost its copy";

const EXPLAIN_EXAMPLES: &str = "\
Examples:
  gleaner explain parts 42                 the number 42, and the text \"42\" if that is known
  gleaner explain parts '\"42\"'             the text
  gleaner explain parts -- -x              a key that looks like an option
  gleaner explain permits '[\"north\",7]'    a key of several parts
  gleaner explain parts 42 --json | jq -r '.records[] | .key, .state, .why'

States: present, gone (by a tombstone, or missing in a complete listing), bad (skipped, with the reason), removed and
stray (somebody changed data.db), never-seen. Deletions are remembered, the latest 5000 of a source.
While `gleaner run` holds the state directory it is asked, and answers between two pulls.";

const STATE_EXAMPLES: &str = "\
Examples:
  gleaner state show parts            watermark, pages, an interrupted pass, how late records come
  gleaner state show parts --json | jq .pages
  gleaner state reset parts           the next pass reads and delivers everything again; asks first
  gleaner state reset parts --yes     without asking

A reset forgets validators, positions, watermark and cursor, and doubts every digest. Rows in data.db stay, and what is
gone upstream is still found to be.";

const INBOX_EXAMPLES: &str = "\
Examples:
  gleaner inbox list                            what came to the hooks, and what became of it
  gleaner inbox list --hook erp --state dead    what could not be processed
  gleaner inbox show ID                         how it came; secrets in it are hidden
  gleaner inbox show ID --raw | jq              its body, byte for byte
  gleaner inbox retry --all-dead                once the cause is mended
  gleaner inbox drop ID                         it will not be processed

States: pending, failed (is tried again), dead (waits for `retry` or `drop`), done, dropped, void (its sender was
told that it could not be saved).";
const HOOK_CHECK_EXAMPLES: &str = "\
Examples:
  gleaner hook check erp --request req.txt        head, empty line, body: raw, or as `curl -v` shows it
  gleaner hook check erp --request - < req.txt
  gleaner hook check erp --request req.txt --at 2026-11-30T18:00:00Z
  gleaner hook check erp --request req.txt --json | jq -r .verdict

The verdict is valid, duplicate (the inbox has the event), bad-signature, stale, future, malformed, unsupported-coding or
too-large; of a setup challenge challenge or bad-challenge. The exit code is 0 for valid and challenge alone.";

const GET_EXAMPLES: &str = "\
Examples:
  gleaner get https://api.example.com/parts | jq length
  gleaner get URL -o parts.json             the file is replaced when all of it has come, or not at all
  gleaner get URL -H @/etc/token.header     one `Name: value` a line; what stands here, everybody sees in `ps`
  gleaner get URL --json | jq '.from, .bytes_down'
  gleaner get URL -H 'Cache-Control: stale-if-error=86400'    offline, what is a day old will do
  gleaner -c gleaner.toml get URL           with the credentials, headers, CA and proxy of the upstream at this URL

The second time the body comes from the cache: while it is fresh without a request, else after a 304. Works without the
agent, and without a config file unless one is named by -c or $GLEANER_CONFIG. Redirects are followed, five at most, and
-H stays with the host of URL.

An answer of 400 or above, and one that cannot be trusted, is told on stderr with the exit code of its kind (404: 69, 401: 77,
429 and 503: 75), and its body is not printed; --json prints the object all the same.";

/// Keeps a local copy of upstream data over a thin link: incremental, conditional, crash-safe.
#[derive(Debug, Parser)]
#[command(name = "gleaner", version, about, after_help = EXAMPLES, disable_help_subcommand = true)]
struct Arguments {
    /// The config file.
    #[arg(
        short,
        long,
        global = true,
        env = "GLEANER_CONFIG",
        default_value = "/etc/gleaner/gleaner.toml",
        value_name = "FILE"
    )]
    config: PathBuf,

    /// Say more: each request with its status, bytes and time. As GLEANER_LOG=debug.
    #[arg(short, long, global = true)]
    verbose: bool,

    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Stay and pull on schedule, until SIGTERM. SIGHUP reads the config again.
    #[command(after_help = RUN_EXAMPLES)]
    Run,
    /// Pull all or the named sources once, now; conditionally where possible.
    #[command(after_help = SYNC_EXAMPLES)]
    Sync(SyncArguments),
    /// Show how the sources stand. Asks the running agent, or reads the state directory.
    #[command(after_help = STATUS_EXAMPLES)]
    Status(StatusArguments),
    /// Check the config file and print what is in effect, with all defaults. Secrets stay references.
    #[command(after_help = CHECK_EXAMPLES)]
    Check(CheckArguments),
    /// A full pass that may delete what is missing upstream.
    #[command(after_help = RECONCILE_EXAMPLES)]
    Reconcile(ReconcileArguments),
    /// Deliver every known record of a source again, without asking upstream.
    #[command(after_help = REPLAY_EXAMPLES)]
    Replay(ReplayArguments),
    /// Tell what is known of one record: since when, from where, or why it is not here.
    #[command(after_help = EXPLAIN_EXAMPLES)]
    Explain(ExplainArguments),
    /// Look at what is kept of a source between passes, or have it forgotten.
    #[command(subcommand, after_help = STATE_EXAMPLES)]
    State(StateCommand),
    /// Look at what came to the hooks, have it tried again, or give it up.
    #[command(subcommand, after_help = INBOX_EXAMPLES)]
    Inbox(InboxCommand),
    /// Webhooks.
    #[command(subcommand)]
    Hook(HookCommand),
    /// A conditional GET with a memory, for scripts: prints the body.
    #[command(after_help = GET_EXAMPLES)]
    Get(get::GetArguments),
}

#[derive(Debug, Args)]
struct ExplainArguments {
    /// Whose record.
    #[arg(value_name = "SOURCE")]
    source: String,
    /// Its key, as JSON or as plain text.
    #[arg(value_name = "KEY", allow_negative_numbers = true)]
    key: String,
    /// One JSON object.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum StateCommand {
    /// What is kept between passes.
    #[command(after_help = STATE_EXAMPLES)]
    Show(StateShowArguments),
    /// Forget what vouches: the next pass reads and delivers everything again. Rows stay.
    #[command(after_help = STATE_EXAMPLES)]
    Reset(StateResetArguments),
}

#[derive(Debug, Args)]
struct StateShowArguments {
    /// Of which source.
    #[arg(value_name = "SOURCE")]
    source: String,
    /// One JSON object.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct StateResetArguments {
    /// Of which source.
    #[arg(value_name = "SOURCE")]
    source: String,
    /// Do not ask.
    #[arg(long)]
    yes: bool,
}

#[derive(Debug, Subcommand)]
enum InboxCommand {
    /// Payloads, oldest first.
    List(InboxListArguments),
    /// One payload: how it came, its body, what became of it.
    Show(InboxShowArguments),
    /// Have failed or dead payloads processed again at once.
    Retry(InboxRetryArguments),
    /// Give payloads up: they will not be processed, and are kept as long as processed ones.
    Drop(InboxDropArguments),
}

#[derive(Debug, Args)]
struct InboxListArguments {
    /// Only those of this hook.
    #[arg(long, value_name = "HOOK")]
    hook: Option<String>,
    /// Only those in this state.
    #[arg(long, value_name = "STATE", value_parser = inbox::STATES)]
    state: Option<String>,
    /// One JSON object per payload and line.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct InboxShowArguments {
    /// Which payload.
    #[arg(value_name = "ID")]
    id: RequestId,
    /// Only the body, as it came.
    #[arg(long)]
    raw: bool,
    /// One JSON object, with the body as text, or else in base64 as `body_base64`.
    #[arg(long, conflicts_with = "raw")]
    json: bool,
}

#[derive(Debug, Args)]
struct InboxRetryArguments {
    /// Which payloads.
    #[arg(value_name = "ID", required_unless_present = "all_dead")]
    ids: Vec<RequestId>,
    /// All that are dead.
    #[arg(long, conflicts_with = "ids")]
    all_dead: bool,
    /// One JSON object: how many.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct InboxDropArguments {
    /// Which payloads.
    #[arg(value_name = "ID", required = true)]
    ids: Vec<RequestId>,
    /// One JSON object: how many.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum HookCommand {
    /// Judge a recorded request offline: is it the sender's, and if not, what may be wrong?
    #[command(after_help = HOOK_CHECK_EXAMPLES)]
    Check(HookCheckArguments),
}

#[derive(Debug, Args)]
struct HookCheckArguments {
    /// Which hook.
    #[arg(value_name = "HOOK")]
    name: String,
    /// The record: request line, headers, an empty line, the body; `-` for standard input.
    #[arg(long, value_name = "FILE")]
    request: PathBuf,
    /// Judge as of then. Default: now.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    at: Option<String>,
    /// One JSON object.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct SyncArguments {
    /// Which sources. Default: all. A named one is asked even if its upstream asked us to wait.
    #[arg(value_name = "SOURCE")]
    sources: Vec<String>,
    /// One JSON object per source and line.
    #[arg(long)]
    json: bool,
    /// Fetch and compare, and change nothing.
    #[arg(long)]
    dry_run: bool,
}

#[derive(Debug, Args)]
struct StatusArguments {
    /// One JSON object.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct CheckArguments {
    /// Also ask each source for its first page: does it answer as the config says? Changes nothing.
    #[arg(long)]
    live: bool,
}

#[derive(Debug, Args)]
struct ReconcileArguments {
    /// Which source.
    #[arg(value_name = "SOURCE")]
    source: String,
    /// What is missing upstream is gone: delete it, however much it is.
    #[arg(long)]
    confirm: bool,
    /// One JSON object.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct ReplayArguments {
    /// Which source.
    #[arg(value_name = "SOURCE")]
    source: String,
    /// One JSON object.
    #[arg(long)]
    json: bool,
}

/// Runs the command that the arguments name.
#[must_use]
pub fn main() -> ExitCode {
    let parsed = Arguments::command().try_get_matches().and_then(|matches| {
        let is_named = matches.value_source("config") != Some(ValueSource::DefaultValue);
        Arguments::from_arg_matches(&matches).map(|arguments| (arguments, is_named))
    });
    let (arguments, is_named) = match parsed {
        Ok(parsed) => parsed,
        Err(error) => {
            let usage = error.use_stderr();
            // Nobody is left to tell if this fails.
            drop(error.print());
            return ExitCode::from(if usage { Exit::Usage } else { Exit::Ok } as u8);
        }
    };
    output::start_log(usual_level(&arguments));
    // Whoever only wants a URL needs no config.
    let needed = is_named || !matches!(arguments.command, Command::Get(_));
    let config = needed.then(|| config::load(&arguments.config, &|name| std::env::var_os(name)));
    let exit = match config.transpose() {
        Ok(config) => command(arguments, config),
        Err(errors) => {
            output::error(&errors.to_string());
            Exit::Config
        }
    };
    ExitCode::from(exit as u8)
}

/// What stays tells what it does; the others print it.
fn usual_level(arguments: &Arguments) -> log::LevelFilter {
    match (&arguments.command, arguments.verbose) {
        (_, true) => log::LevelFilter::Debug,
        (Command::Run, false) => log::LevelFilter::Info,
        (_, false) => log::LevelFilter::Warn,
    }
}

fn command(arguments: Arguments, config: Option<Config>) -> Exit {
    for warning in config.iter().flat_map(|config| &config.warnings) {
        log::warn!("{warning}");
    }
    let wait = match Wait::new(Arc::new(SystemClock))
        .and_then(|wait| wait.install_signals().map(|()| wait))
    {
        Ok(wait) => wait,
        Err(error) => {
            output::error(&format!("no pipe for signals: {error}"));
            return Exit::Device;
        }
    };
    if let Command::Get(get) = &arguments.command {
        return get::get(config.as_ref(), &wait, get);
    }
    let Some(config) = config else {
        return Exit::Config;
    };
    match arguments.command {
        Command::Run => run::run(config, &arguments.config, &wait),
        Command::Sync(sync) => sync::sync(config, &wait, &sync),
        Command::Status(status) => status::status(config, &wait, status.json),
        Command::Check(check) => check::check(config, &wait, check.live),
        Command::Reconcile(reconcile) => sync::reconcile(config, &wait, &reconcile),
        Command::Replay(replay) => sync::replay(config, &wait, &replay),
        Command::Explain(arguments) => explain::explain(config, &wait, &arguments),
        Command::State(command) => state::state(config, &wait, &command),
        Command::Inbox(command) => inbox::inbox(config, &wait, command),
        Command::Get(get) => get::get(Some(&config), &wait, &get),
        Command::Hook(HookCommand::Check(check)) => hook::check(&config, &wait, &check),
    }
}
