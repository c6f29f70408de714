//! How fast records are read: `cargo bench --bench reading`.
//!
//! The body is one array of a million records, made as it is read. Each line does a little more than the one before.

use std::io::{self, Read};
use std::time::Duration;

use gleaner::clock::{Clock, SystemClock};
use gleaner::config::{Format, Ignore};
use gleaner::json::Json;
use gleaner::pointer::Pointer;
use gleaner::pull::digest::Canon;
use gleaner::pull::key::key_of;
use gleaner::pull::select::{Layout, SelectError, Selector};

const RECORDS: u64 = 1_000_000;

/// A pass is timed in so many parts; the best of them tells more than the whole on a machine that does other things too.
const TENTHS: u64 = 10;

/// So many records are written out once and given over and over, so that making them takes no time.
const BLOCK: u64 = 1000;

/// A body that is never in memory as a whole.
struct Body {
    block: Vec<u8>,
    left: u64,
    at: usize,
    given: u64,
}

impl Body {
    fn new() -> Self {
        let mut block = String::new();
        for nth in 0..BLOCK {
            let mass = nth * 37 % 9973;
            block.push_str(&format!(
                r#",{{"part_id":{nth:07},"name":"Flange DN{mass}","mass_g":{mass}.50,"site":"n\u00f6rd","updated_at":"2026-11-30T18:00:00Z"}}"#,
                nth = 1_000_000 + nth,
            ));
        }
        Self {
            block: block.into_bytes(),
            left: RECORDS / BLOCK,
            at: 0,
            given: 0,
        }
    }
}

impl Read for Body {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.given == 0 {
            buffer[0] = b'[';
            self.given = 1;
            // The first record has no comma before it.
            self.at = 1;
            return Ok(1);
        }
        if self.at == self.block.len() {
            self.left = self.left.saturating_sub(1);
            self.at = 0;
        }
        let piece = match self.left {
            0 if self.at == 0 => &b"]"[..],
            0 => return Ok(0),
            // As TLS hands it out.
            _ => &self.block[self.at..],
        };
        let long = piece.len().min(buffer.len()).min(16 * 1024);
        buffer[..long].copy_from_slice(&piece[..long]);
        self.at += long;
        self.given += long as u64;
        Ok(long)
    }
}

fn measure(what: &str, mut each: impl FnMut(&[u8])) -> Result<(), SelectError> {
    let records = Pointer::root();
    let layout = Layout {
        format: Format::Json,
        records: &records,
        wanted: &[],
        max_record: 1 << 20,
    };
    let mut body = Body::new();
    let mut selector = Selector::new(&mut body, layout);
    let (mut whole, mut best) = (Duration::ZERO, Duration::MAX);
    for _ in 0..TENTHS {
        let start = SystemClock.mono();
        for _ in 0..RECORDS / TENTHS {
            match selector.next()? {
                Some(record) => each(record.raw),
                None => break,
            }
        }
        let span = SystemClock.mono().since(start);
        whole += span;
        best = best.min(span);
    }
    assert!(
        selector.next()?.is_none(),
        "there are more records than were made"
    );
    assert_eq!(selector.count(), RECORDS, "not every record was read");
    #[expect(clippy::cast_precision_loss, reason = "for people to read")]
    let (megabytes, count) = (body.given as f64 / 1e6, RECORDS as f64);
    let micros = |span: Duration| span.as_secs_f64() * 1e6 / count;
    let best = best * u32::try_from(TENTHS).unwrap_or(1);
    println!(
        "{what:<32} {megabytes:6.0} MB {:6.0} MB/s {:7.3} µs a record; best tenth {:6.0} MB/s {:7.3} µs",
        megabytes / whole.as_secs_f64(),
        micros(whole),
        megabytes / best.as_secs_f64(),
        micros(best),
    );
    Ok(())
}

fn main() -> Result<(), SelectError> {
    measure("scan", |_| {})?;
    let mut bad = 0u64;
    measure("scan, check", |raw| {
        bad += u64::from(Json::parse(raw).is_err())
    })?;
    let key = Pointer::parse("/part_id")
        .map(|key| [key])
        .unwrap_or_default();
    measure("scan, check, key", |raw| {
        bad += u64::from(!Json::parse(raw).is_ok_and(|json| key_of(json, &key).is_ok()));
    })?;
    let mut odd = 0u64;
    let mut canon = Canon::new(&[]);
    measure("scan, check, canonical", |raw| match Json::parse(raw) {
        Ok(json) => odd += canon.canonical(json).len() as u64 & 1,
        Err(_) => bad += 1,
    })?;
    let mut digests = |what, mut canon: Canon| {
        measure(what, |raw| match Json::parse(raw) {
            Ok(json) => odd += u64::from(canon.digest(json).0[0] & 1),
            Err(_) => bad += 1,
        })
    };
    digests("scan, check, canonical, hash", Canon::new(&[]))?;
    let ignore = Pointer::parse("/updated_at").map(Ignore::At);
    let ignores: Vec<_> = ignore
        .into_iter()
        .chain([Ignore::Anywhere("_links".to_owned())])
        .collect();
    digests("the same with two ignores", Canon::new(&ignores))?;
    assert_eq!(bad, 0, "a record of ours is bad");
    // Keeps the results from being optimised away.
    println!("({odd} odd bytes)");
    Ok(())
}
