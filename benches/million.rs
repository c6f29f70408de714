//! `cargo bench --bench million`: one array of a million records through the real agent.
//!
//! Prints time, peak memory and state for a first load and for an unchanged second pass, in key order and in random order,
//! beside the same reader, canonicaliser and hash without a store. `GLEANER_RECORDS=N` takes another number of records.

#![allow(
    clippy::expect_used,
    reason = "a bench that cannot be set up has failed"
)]

use std::io::{BufRead as _, BufReader, BufWriter, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use gleaner::clock::{Clock as _, SystemClock};
use gleaner::config::{self, Config};
use gleaner::pull::reading::RecordReader;
use gleaner::pull::select::{Layout, Selector};

/// Set: this process is the agent.
const AGENT: &str = "GLEANER_BENCH_AGENT";

fn main() -> std::process::ExitCode {
    if std::env::var_os(AGENT).is_some() {
        return gleaner::cli::main();
    }
    let count = std::env::var("GLEANER_RECORDS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(1_000_000);
    println!("{count} records in one array");
    println!(
        "{:42}{:>9}{:>12}{:>12}{:>12}",
        "", "seconds", "peak RSS", "store", "data.db"
    );
    for (order, path) in [("key order", "/sorted"), ("random order", "/shuffled")] {
        measure(order, path, count);
    }
    std::process::ExitCode::SUCCESS
}

fn measure(order: &str, path: &str, count: u64) {
    let upstream = serve(count);
    let home = tempfile::tempdir().expect("a temporary directory");
    let file = home.path().join("gleaner.toml");
    let text = format!(
        "[agent]\nstate = \"state\"\n[source.parts]\nurl = \"http://{upstream}{path}\"\nrecords = \"/items\"\nkey = \"/id\"\nignore = [\"/fetched_at\"]\nreconcile = {{ max_loss = \"0%\" }}\n"
    );
    std::fs::write(&file, text).expect("the config is written");
    for pass in ["first load", "unchanged", "unchanged"] {
        let (seconds, peak) = sync(&file);
        let store = size(&home.path().join("state/state"));
        let data = size(&home.path().join("state/data.db"));
        println!(
            "{:42}{seconds:>9.2}{:>9} kB{:>9} kB{:>9} kB",
            format!("{order}, {pass}"),
            peak,
            store / 1024,
            data / 1024
        );
    }
    let config = config::load(&file, &|name| std::env::var_os(name)).expect("the config is right");
    let bare = without_a_store(&config, &upstream, path);
    println!(
        "{:42}{bare:>9.2}",
        format!("{order}, read + canonicalise + hash alone")
    );
    let (unchanged, _) = sync(&file);
    println!(
        "{:42}{:>9.2}",
        format!("{order}, ratio unchanged / alone (≤ 2)"),
        unchanged / bare
    );
}

/// Runs one sync; seconds of the pass, and peak memory of the process in kB.
fn sync(config: &Path) -> (f64, u64) {
    let mut child = Command::new(std::env::current_exe().expect("this program has a path"))
        .env(AGENT, "1")
        .env("GLEANER_LOG", "error")
        .arg("--config")
        .arg(config)
        .args(["sync", "--json"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("the agent starts");
    let status = format!("/proc/{}/status", child.id());
    let mut peak = 0;
    while child
        .try_wait()
        .expect("the agent can be waited for")
        .is_none()
    {
        // The high-water mark only rises: the last look before the end is the peak.
        peak = peak.max(high_water(&status).unwrap_or(0));
        pause();
    }
    let mut text = String::new();
    child
        .stdout
        .take()
        .expect("it is piped")
        .read_to_string(&mut text)
        .expect("the report is read");
    let report: serde_json::Value = serde_json::from_str(&text).expect("a report");
    assert!(
        matches!(report["outcome"].as_str(), Some("changed" | "unchanged")),
        "{report}"
    );
    (report["seconds"].as_f64().unwrap_or(0.0), peak)
}

#[expect(
    clippy::disallowed_methods,
    reason = "a bench watches another process from outside"
)]
fn pause() {
    std::thread::sleep(Duration::from_millis(5));
}

fn high_water(status: &str) -> Option<u64> {
    let text = std::fs::read_to_string(status).ok()?;
    text.lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?
        .trim()
        .split(' ')
        .next()?
        .parse()
        .ok()
}

fn size(path: &Path) -> u64 {
    let Ok(meta) = std::fs::metadata(path) else {
        return 0;
    };
    if !meta.is_dir() {
        return meta.len();
    }
    std::fs::read_dir(path)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| size(&entry.path()))
        .sum()
}

fn without_a_store(config: &Config, upstream: &str, path: &str) -> f64 {
    let source = &config.sources["parts"];
    let started = SystemClock.mono();
    let mut stream = TcpStream::connect(upstream).expect("the upstream listens");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").expect("the request is sent");
    let mut body = BufReader::with_capacity(16 * 1024, stream);
    let mut line = String::new();
    while body.read_line(&mut line).expect("a head") > 2 {
        line.clear();
    }
    let layout = Layout {
        format: source.format,
        records: &source.records,
        wanted: &[],
        max_record: 1 << 20,
    };
    let mut selector = Selector::new(body, layout);
    let mut reader = RecordReader::new(source);
    let mut all = [0u8; 16];
    while let Some(record) = selector.next().expect("a record") {
        let reading = reader.read(record.raw).expect("it is as configured");
        let digest = reader.digest(&reading);
        all.iter_mut()
            .zip(digest.0)
            .for_each(|(sum, byte)| *sum ^= byte);
    }
    std::hint::black_box(all);
    SystemClock.mono().since(started).as_secs_f64()
}

/// An upstream that makes up its records as it sends them.
fn serve(count: u64) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // Whoever hangs up early is not our concern.
            let _ = answer(&stream, count);
        }
    });
    address
}

fn answer(stream: &TcpStream, count: u64) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    let mut request = String::new();
    reader.read_line(&mut request)?;
    let mut line = String::new();
    while reader.read_line(&mut line)? > 2 {
        line.clear();
    }
    let shuffled = request.contains("shuffled");
    let mut out = BufWriter::with_capacity(64 * 1024, stream);
    out.write_all(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n{\"items\":[")?;
    // A multiplier without common factors visits every number once, far from its neighbours.
    let place = |n: u64| if shuffled { n * 7_368_787 % count } else { n };
    for n in 0..count {
        let id = place(n);
        let comma = if n == 0 { "" } else { "," };
        write!(
            out,
            "{comma}{{\"id\":\"part-{id:09}\",\"name\":\"Flange {id}\",\"mass_g\":{},\"active\":true,\"fetched_at\":\"2026-11-30\"}}",
            id % 5000
        )?;
    }
    out.write_all(b"]}")?;
    out.flush()
}
