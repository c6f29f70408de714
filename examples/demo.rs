//! `cargo run --release --example demo`: a loopback upstream with real data, the real agent, and what goes over the wire.
//!
//! The agent runs as a process of its own (this program again, with arguments), so that it can be killed for real.

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

use hmac::{KeyInit as _, Mac as _};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

type Failed = Box<dyn std::error::Error>;

const PER_PAGE: usize = 50;
const DIRECTORY: &str = "demo-data";

fn main() -> ExitCode {
    if std::env::args_os().len() > 1 {
        return gleaner::cli::main();
    }
    match demo() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("demo: {error}");
            ExitCode::FAILURE
        }
    }
}

fn demo() -> Result<(), Failed> {
    let upstream = Upstream::start(include_str!("data/earthquakes.json"))?;
    let directory = Path::new(DIRECTORY);
    if directory.exists() {
        std::fs::remove_dir_all(directory)?;
    }
    std::fs::create_dir_all(directory)?;
    let config = directory.join("gleaner.toml");
    std::fs::write(&config, config_text(&upstream.url))?;
    println!(
        "An upstream with {} earthquakes (USGS, real data) on {} pages: {}",
        upstream.count(),
        upstream.pages(),
        upstream.url
    );
    println!("An agent with this config ({}):\n", config.display());
    println!("{}", indented(&std::fs::read_to_string(&config)?));

    let mut bill = Bill::default();
    step("1. The first pull fetches everything.");
    bill.add("first pull", &sync(&config)?, upstream.full_size());

    step(
        "2. Nothing has changed: each page is a 304, one HEAD asks whether a page was added, nothing is written.",
    );
    bill.add("nothing changed", &sync(&config)?, upstream.full_size());

    step("3. The USGS corrects one magnitude: one page is fetched, one record is written.");
    upstream.edit(|records| records[120]["properties"]["mag"] = Value::from(4.2));
    bill.add("one record changed", &sync(&config)?, upstream.full_size());

    step(
        "4. An earthquake is withdrawn: one row goes. (A mass deletion would wait for a person's word.)",
    );
    upstream.edit(|records| drop(records.pop()));
    bill.add("one record deleted", &sync(&config)?, upstream.full_size());

    step(
        "5. Every record changes, and the power goes in the middle of the pull: kill -9 while page 4 is awaited.",
    );
    upstream.edit(|records| {
        for record in records.iter_mut() {
            record["properties"]["status"] = Value::from("reviewed twice");
        }
    });
    let (held, go_on) = upstream.hold(3);
    let mut child = spawn(&config)?;
    held.recv()?;
    child.kill()?;
    child.wait()?;
    drop(go_on);
    println!(
        "   killed. data.db holds {} of {} changed records, each of them whole.",
        changed_rows(directory)?,
        upstream.count()
    );
    println!("   The next sync goes on behind page 3, then looks at the first pages once more:");
    bill.add("after the cut", &sync(&config)?, upstream.full_size());

    step("6. A signed webhook arrives while a pull waits for its upstream.");
    webhook(&upstream, &config, directory)?;

    println!("\nWhat it took, in bytes at the socket, both ways:\n");
    println!("{}", bill.table());
    println!("The data is in {DIRECTORY}/data.db:");
    println!(
        "   sqlite3 {DIRECTORY}/data.db \"SELECT key, mag, place FROM quakes ORDER BY mag DESC LIMIT 5\""
    );
    Ok(())
}

/// `gleaner run` with a hook; its upstream holds a page back, and the webhook is answered all the same.
fn webhook(upstream: &Upstream, config: &Path, directory: &Path) -> Result<(), Failed> {
    let door = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let hook = format!(
        "\n[door]\nlisten = \"{door}\"\n\n[hook.alerts]\nscheme  = \"github\"\nsecret  = {{ file = \"secret\" }}\nevery   = \"0s\"\nrecords = {{ source = \"alerts\", at = \"/alert\" }}\n\n[source.alerts]\nkey  = \"/id\"\npull = \"none\"\n"
    );
    println!(
        "   Added to the config:\n\n{}",
        indented(&indented(hook.trim()))
    );
    let mut text = std::fs::read_to_string(config)?;
    text.push_str(&hook);
    std::fs::write(config, text)?;
    let mut secret = std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(directory.join("secret"))?;
    secret.write_all(SECRET.as_bytes())?;
    let (held, go_on) = upstream.hold(1);
    let mut child = Command::new(std::env::current_exe()?)
        .arg("--config")
        .arg(config)
        .arg("run")
        .env("GLEANER_LOG", "warn")
        .spawn()?;
    held.recv()?;
    let body = r#"{"alert":{"id":"M6.1-Chile","text":"tsunami watch"}}"#;
    let (status, answer) = deliver(door, body)?;
    println!("   The pull waits for page 2. The webhook is answered: {status} {answer}");
    let (status, answer) = deliver(door, body)?;
    println!("   Sent once more, as senders do:                     {status} {answer}");
    drop(go_on);
    let alert = loop {
        if let Some(alert) = first_alert(directory) {
            break alert;
        }
        std::thread::yield_now();
    };
    println!("   Upstream goes on, and the event is processed: alerts holds {alert}");
    child.kill()?;
    child.wait()?;
    Ok(())
}

const SECRET: &str = "the demo's secret";

/// Posts a delivery as GitHub signs it; status line and body of the answer.
fn deliver(door: SocketAddr, body: &str) -> Result<(String, String), Failed> {
    let mut mac = hmac::Hmac::<Sha256>::new_from_slice(SECRET.as_bytes())?;
    mac.update(body.as_bytes());
    let signature = mac
        .finalize()
        .into_bytes()
        .iter()
        .fold(String::new(), |text, byte| format!("{text}{byte:02x}"));
    let mut stream = TcpStream::connect(door)?;
    write!(
        stream,
        "POST /hooks/alerts HTTP/1.1\r\nHost: gateway\r\nConnection: close\r\nX-GitHub-Delivery: 4711\r\nX-GitHub-Event: alert\r\nX-Hub-Signature-256: sha256={signature}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head
        .lines()
        .next()
        .unwrap_or("")
        .trim_start_matches("HTTP/1.1 ");
    Ok((status.to_owned(), body.trim().to_owned()))
}

fn first_alert(directory: &Path) -> Option<String> {
    let db = rusqlite::Connection::open(directory.join("data.db")).ok()?;
    db.query_row("SELECT body FROM alerts", [], |row| row.get(0))
        .ok()
}

fn config_text(url: &str) -> String {
    format!(
        "[agent]\nid    = \"demo\"\nstate = \".\"\n\n[source.quakes]\nurl     = \"{url}\"\nrecords = \"/features\"\nkey     = \"/id\"\npages   = \"link\"\nupdated = {{ field = \"/properties/updated\", format = \"epoch-ms\" }}\ncolumns = {{ mag = \"/properties/mag\", place = \"/properties/place\", status = \"/properties/status\" }}\n"
    )
}

fn indented(text: &str) -> String {
    text.lines().fold(String::new(), |mut out, line| {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "   {line}");
        out
    })
}

fn step(title: &str) {
    println!("\n{title}");
}

fn agent(config: &Path) -> Result<Command, Failed> {
    let mut command = Command::new(std::env::current_exe()?);
    command
        .arg("--config")
        .arg(config)
        .args(["sync", "--json"])
        .env("GLEANER_LOG", "warn")
        .stdout(Stdio::piped());
    Ok(command)
}

fn spawn(config: &Path) -> Result<Child, Failed> {
    Ok(agent(config)?.spawn()?)
}

/// Runs one `gleaner sync --json` and tells what it did.
fn sync(config: &Path) -> Result<Value, Failed> {
    let output = agent(config)?.output()?;
    let text = String::from_utf8(output.stdout)?;
    let report: Value = serde_json::from_str(text.trim())?;
    println!(
        "   {}: {} added, {} changed, {} deleted, {} unchanged; {} requests, {} of them 304; {} B up, {} B down",
        report["outcome"].as_str().unwrap_or(""),
        report["added"],
        report["changed"],
        report["deleted"],
        report["unchanged"],
        report["requests"],
        report["not_modified"],
        report["bytes_up"],
        report["bytes_down"]
    );
    if let Some(reason) = report["reason"]
        .as_str()
        .filter(|reason| !reason.is_empty())
    {
        return Err(reason.to_owned().into());
    }
    Ok(report)
}

fn changed_rows(directory: &Path) -> Result<i64, Failed> {
    let db = rusqlite::Connection::open(directory.join("data.db"))?;
    Ok(db.query_row(
        "SELECT count(*) FROM quakes WHERE status = 'reviewed twice'",
        [],
        |row| row.get(0),
    )?)
}

/// What each step took, against fetching everything each time.
#[derive(Default)]
struct Bill {
    lines: Vec<(&'static str, u64, u64)>,
}

impl Bill {
    fn add(&mut self, step: &'static str, report: &Value, full: u64) {
        let bytes = |name: &str| report[name].as_u64().unwrap_or(0);
        self.lines
            .push((step, bytes("bytes_up") + bytes("bytes_down"), full));
    }

    fn table(&self) -> String {
        let mut out = format!(
            "   {:22}{:>12}{:>16}{:>9}\n",
            "", "gleaner", "full fetching", ""
        );
        let sums = self
            .lines
            .iter()
            .fold((0, 0), |sum, line| (sum.0 + line.1, sum.1 + line.2));
        for (name, ours, full) in self.lines.iter().chain([&("together", sums.0, sums.1)]) {
            let percent = ours * 100 / full.max(&1);
            let _ = writeln!(out, "   {name:22}{ours:>10} B{full:>14} B{percent:>7} %");
        }
        out
    }
}

/// The upstream: pages with strong validators and `Link: rel=next`, one thread a connection.
struct Upstream {
    url: String,
    shared: Arc<Mutex<Shared>>,
}

struct Shared {
    records: Vec<Value>,
    /// The page that is held, who is told when it is asked for, and what it waits for.
    hold: Option<(usize, Sender<()>, Receiver<()>)>,
}

impl Upstream {
    fn start(feed: &str) -> Result<Self, Failed> {
        let mut feed: Value = serde_json::from_str(feed)?;
        let records = feed["features"]
            .as_array_mut()
            .map(std::mem::take)
            .unwrap_or_default();
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let url = format!("http://{}/quakes", listener.local_addr()?);
        let shared = Arc::new(Mutex::new(Shared {
            records,
            hold: None,
        }));
        let served = shared.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let served = served.clone();
                std::thread::spawn(move || serve(&stream, &served));
            }
        });
        Ok(Self { url, shared })
    }

    fn edit(&self, edit: impl FnOnce(&mut Vec<Value>)) {
        edit(&mut lock(&self.shared).records);
    }

    fn count(&self) -> usize {
        lock(&self.shared).records.len()
    }

    fn pages(&self) -> usize {
        self.count().div_ceil(PER_PAGE)
    }

    /// Holds the answer to page `page` (from 0): the receiver hears when it is asked for, dropping the sender lets it go.
    fn hold(&self, page: usize) -> (Receiver<()>, Sender<()>) {
        let (asked, hears) = channel();
        let (lets_go, waits) = channel();
        lock(&self.shared).hold = Some((page, asked, waits));
        (hears, lets_go)
    }

    /// Bytes of fetching every page in full.
    fn full_size(&self) -> u64 {
        let shared = lock(&self.shared);
        let pages = shared.records.len().div_ceil(PER_PAGE);
        let request = format!(
            "GET {} HTTP/1.1\r\nHost: 127.0.0.1:12345\r\nAccept: */*\r\n\r\n",
            self.url
        )
        .len();
        (0..pages)
            .map(|page| (answer(&shared.records, page, None).len() + request) as u64)
            .sum()
    }
}

fn lock(shared: &Mutex<Shared>) -> std::sync::MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

fn serve(stream: &TcpStream, shared: &Mutex<Shared>) {
    let mut reader = BufReader::new(stream);
    loop {
        let (mut page, mut known, mut first, mut head) = (0, None, true, false);
        loop {
            let mut line = String::new();
            if !matches!(reader.read_line(&mut line), Ok(read) if read > 0) {
                return;
            }
            let line = line.trim_end();
            if std::mem::take(&mut first) {
                head = line.starts_with("HEAD ");
                page = line
                    .split("page=")
                    .nth(1)
                    .and_then(|rest| rest.split(' ').next()?.parse().ok())
                    .unwrap_or(0);
            } else if line.is_empty() {
                break;
            } else if let Some(tag) = line.to_ascii_lowercase().strip_prefix("if-none-match: ") {
                known = Some(tag.to_owned());
            }
        }
        let held = { lock(shared).hold.take_if(|(held, ..)| *held == page) };
        if let Some((_, asked, waits)) = held {
            // Whoever held it may be gone already: then it just goes on.
            let _ = asked.send(());
            let _ = waits.recv();
        }
        let mut answer = answer(&lock(shared).records, page, known.as_deref());
        if head {
            // The same fields, without the body (RFC 9110 9.3.2).
            let end = answer.windows(4).position(|four| four == b"\r\n\r\n");
            answer.truncate(end.map_or(answer.len(), |end| end + 4));
        }
        if (&mut &*stream).write_all(&answer).is_err() {
            return;
        }
    }
}

fn answer(records: &[Value], page: usize, known: Option<&str>) -> Vec<u8> {
    let part: Vec<&Value> = records
        .iter()
        .skip(page * PER_PAGE)
        .take(PER_PAGE)
        .collect();
    let body = serde_json::json!({ "type": "FeatureCollection", "features": part }).to_string();
    let next = if (page + 1) * PER_PAGE < records.len() {
        format!("Link: </quakes?page={}>; rel=\"next\"\r\n", page + 1)
    } else {
        String::new()
    };
    let tag = Sha256::digest(format!("{body}{next}"))
        .iter()
        .take(8)
        .fold(String::new(), |tag, byte| format!("{tag}{byte:02x}"));
    let tag = format!("\"{tag}\"");
    if known == Some(&tag) {
        return format!("HTTP/1.1 304 Not Modified\r\nETag: {tag}\r\n{next}\r\n").into_bytes();
    }
    format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\nETag: {tag}\r\n{next}\r\n{body}",
        body.len()
    )
    .into_bytes()
}
