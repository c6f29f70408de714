//! What saving a payload costs beside the disk's own sync: `cargo bench --bench inbox`.
//!
//! Both sides write the same number of bytes to the same file system and sync each time: one through the inbox, the other
//! with `pwrite` and `fdatasync` into a file that was written out with zeros, as a segment is. They take turns, so that what
//! else the disk does hits both. The directory is `target/` or `$GLEANER_BENCH_DIR`.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gleaner::clock::{Clock, SystemClock};
use gleaner::inbox::{Inbox, Limits, Reader, Received, State};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

const ROUNDS: usize = 2000;

/// A payload as a webhook brings it: a dozen fields and a body of JSON.
fn payload(body: usize) -> Received {
    let field = |name: &str, value: &str| (name.as_bytes().to_vec(), value.as_bytes().to_vec());
    Received {
        hook: "erp".into(),
        at: SystemClock.wall(),
        clock_trusted: true,
        peer: "192.0.2.17:40112".into(),
        method: "POST".into(),
        target: b"/hooks/erp".to_vec(),
        headers: vec![
            field("Host", "gateway.example.com:7460"),
            field("User-Agent", "erp-webhooks/4.11"),
            field("Content-Type", "application/json"),
            field("Content-Length", &body.to_string()),
            field("webhook-id", "msg_2KWPBgLlAfxdpx2AI54pPJ85f4W"),
            field("webhook-timestamp", "1674087231"),
            field(
                "webhook-signature",
                "v1,K5oZfzN95Z9UVu1EsfQmfVNQhnkZ2pj9o9NDN/H/pI4=",
            ),
        ],
        body: vec![b'x'; body],
        event_id: Some("msg_2KWPBgLlAfxdpx2AI54pPJ85f4W".into()),
        event_type: Some("part.updated".into()),
    }
}

/// A file like a segment.
fn bare(path: &Path) -> Outcome<File> {
    fs::write(path, vec![0; 4 * 1024 * 1024])?;
    let file = File::options().read(true).write(true).open(path)?;
    file.sync_all()?;
    Ok(file)
}

fn timed(what: impl FnOnce() -> Outcome<()>) -> Outcome<Duration> {
    let before = SystemClock.mono();
    what()?;
    Ok(SystemClock.mono().since(before))
}

fn percentile(times: &mut [Duration], percent: usize) -> Duration {
    times.sort();
    times[times.len() * percent / 100]
}

fn compare(dir: &Path, body: usize) -> Outcome<()> {
    let limits = Limits {
        quota: 1024 * 1024 * 1024,
        low_water: 0,
        ..Limits::default()
    };
    let (mut inbox, _) = Inbox::open(&dir.join("inbox"), limits)?;
    let received = payload(body);
    inbox.append(&received)?;
    inbox.sync()?;
    // The bytes that the inbox writes, as one finds out by looking.
    let mut places = Vec::new();
    inbox.append(&received)?;
    inbox.sync()?;
    Reader::new(inbox.dir()).list(&Default::default(), |listed| {
        places.push(listed.position.offset);
    })?;
    let long = usize::try_from(places[1] - places[0])?;
    let (path, bytes) = (dir.join("bare"), vec![b'y'; long]);
    let mut file = bare(&path)?;
    let (mut ours, mut theirs, mut at) = (Vec::new(), Vec::new(), 1024);
    for _ in 0..ROUNDS {
        theirs.push(timed(|| {
            if at + bytes.len() as u64 > 4 * 1024 * 1024 {
                file = bare(&path)?;
                at = 1024;
            }
            file.write_all_at(&bytes, at)?;
            file.sync_data()?;
            at += bytes.len() as u64;
            Ok(())
        })?);
        ours.push(timed(|| {
            inbox.append(&received)?;
            Ok(inbox.sync()?)
        })?);
    }
    print!("body of {body:6} B, {} B beside it:", long - body);
    for percent in [50, 99] {
        let (ours, theirs) = (
            percentile(&mut ours, percent),
            percentile(&mut theirs, percent),
        );
        print!(
            "  p{percent} {ours:.0?} / {theirs:.0?} = {:.2}",
            ours.as_secs_f64() / theirs.as_secs_f64()
        );
    }
    println!();
    Ok(())
}

/// So many payloads wait: how long opening takes, and how much memory.
fn backlog(dir: &Path) -> Outcome<()> {
    let limits = Limits {
        quota: 1024 * 1024 * 1024,
        low_water: 0,
        ..Limits::default()
    };
    let (mut inbox, _) = Inbox::open(dir, limits)?;
    let mut received = payload(500);
    received.event_id = None;
    for n in 0..100_000 {
        inbox.append(&received)?;
        if n % 1000 == 999 {
            inbox.sync()?;
        }
    }
    drop(inbox);
    let before = resident()?;
    let mut reopened = None;
    let time = timed(|| {
        reopened = Some(Inbox::open(dir, limits)?.0);
        Ok(())
    })?;
    let mut inbox = reopened.ok_or("opened")?;
    let held = resident()?.saturating_sub(before);
    println!("opening with 100,000 waiting: {time:.0?}, {held} kB");
    let marks: Vec<_> = inbox
        .pending(None)
        .map(|pending| (pending.position, State::Done))
        .collect();
    let now = SystemClock.wall();
    let time = timed(|| {
        for some in marks.chunks(500) {
            inbox.mark(some, now)?;
        }
        Ok(())
    })?;
    println!("marking them done, 500 at a time: {time:.0?}");
    drop(inbox);
    let time = timed(|| {
        Inbox::open(dir, limits)?;
        Ok(())
    })?;
    println!("opening with 100,000 processed: {time:.0?}");
    Ok(())
}

fn resident() -> Outcome<u64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    Ok(line
        .ok_or("no VmRSS")?
        .trim()
        .trim_end_matches(" kB")
        .parse()?)
}

fn main() -> Outcome<()> {
    let base = std::env::var_os("GLEANER_BENCH_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_TARGET_TMPDIR")), PathBuf::from);
    for body in [300, 2_000, 60_000] {
        let dir = tempfile::tempdir_in(&base)?;
        compare(dir.path(), body)?;
    }
    let dir = tempfile::tempdir_in(&base)?;
    backlog(dir.path())
}
