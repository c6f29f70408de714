//! Figures, printed: `cargo test --release --lib store::tests::figures -- --ignored --nocapture --test-threads=1`.

use std::fs;
use std::hint::black_box;

use super::*;
use crate::clock::{Clock, Mono, SystemClock};
use sha2::{Digest as _, Sha256};

/// 16 bytes.
fn short(n: u32) -> RecordKey {
    key(&format!("\"part-{n:09}\""))
}

fn resident_kb() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS"))
        .unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

fn fresh(n: u32, seed: u8) -> Known {
    let digest = Sha256::digest([n.to_be_bytes(), [seed; 4]].concat());
    Known {
        digest: Digest(digest[..16].try_into().unwrap()),
        fingerprint: Fingerprint(u64::from_be_bytes(digest[16..24].try_into().unwrap())),
        ordinal: n,
        updated_ms: Some(1_770_000_000_000 + i64::from(n % 1000) * 61_001),
    }
}

fn millis(since: Mono) -> f64 {
    SystemClock.mono().since(since).as_secs_f64() * 1000.0
}

fn shuffled(n: u32) -> Vec<u32> {
    let mut numbers: Vec<_> = (0..n).collect();
    numbers.sort_by_key(|n| Sha256::digest(n.to_be_bytes())[..8].to_vec());
    numbers
}

fn load(n: u32, scattered: bool) {
    let home = tempfile::tempdir().unwrap();
    let mut store = open(home.path());
    let source = store.source("parts").unwrap();
    let order = if scattered {
        shuffled(n)
    } else {
        (0..n).collect()
    };
    let start = SystemClock.mono();
    let mut parts = 0;
    // Ordinals in the order of arrival, as in the field.
    for (page, numbers) in (1..).zip(order.chunks(250)) {
        let mut batch = Batch::new();
        for n in numbers {
            let ordinal = store.next_ordinal(source).unwrap();
            batch.set(
                source,
                &short(*n),
                Known {
                    ordinal,
                    ..fresh(*n, 0)
                },
            );
        }
        batch.generation(page);
        parts += store.commit(batch).unwrap();
    }
    let took = millis(start);
    let mut logs = store.tree.logs.borrow().clone();
    logs.sort_unstable();
    let log: u64 = logs.iter().sum();
    let at = |share: usize| logs[(logs.len() - 1) * share / 1000] / 1024;
    let size = store.size().unwrap();
    let kind = if scattered { "scattered" } else { "in order" };
    println!(
        "{n} {kind}: {took:.0} ms, {parts} parts, log {} B/record, per part p50 {} p99 {} p99.9 {} max {} KiB; {:.0} B/record on disk, {} live, {} kB resident",
        log / u64::from(n),
        at(500),
        at(990),
        at(999),
        at(1000),
        size as f64 / f64::from(n),
        store.check.totals.bytes / u64::from(n),
        resident_kb()
    );
    let start = SystemClock.mono();
    assert_sound(&mut store);
    println!("  own check {:.0} ms", millis(start));
    // One changed record, many times over.
    let before = store.tree.log_bytes();
    for n in shuffled(n).into_iter().take(200) {
        let mut batch = Batch::new();
        batch.set(
            source,
            &short(n),
            Known {
                ordinal: 0,
                ..fresh(n, 1)
            },
        );
        batch.generation(store.generation() + 1);
        store.commit(batch).unwrap();
    }
    println!(
        "  one changed record: {} B of log",
        (store.tree.log_bytes() - before) / 200
    );
    let start = SystemClock.mono();
    store.compact(|| ()).unwrap();
    println!(
        "  rewritten in {:.0} ms: {:.0} B/record",
        millis(start),
        store.size().unwrap() as f64 / f64::from(n)
    );
    drop(store);
    let start = SystemClock.mono();
    let store = open(home.path());
    println!(
        "  opened in {:.0} ms; {:.0} B/record, {} kB resident",
        millis(start),
        store.size().unwrap() as f64 / f64::from(n),
        resident_kb()
    );
}

#[test]
#[ignore = "prints figures"]
fn loads() {
    for n in [10_000, 100_000] {
        load(n, false);
        load(n, true);
    }
}

#[test]
#[ignore = "prints figures; a minute or more"]
fn loads_of_a_million() {
    load(1_000_000, false);
    load(1_000_000, true);
}

#[test]
#[ignore = "prints figures"]
fn lookups() {
    let n = 1_000_000;
    let home = tempfile::tempdir().unwrap();
    let mut store = open(home.path());
    let source = store.source("parts").unwrap();
    for page in 0..n / 10_000 {
        let mut batch = Batch::new();
        for n in page * 10_000..(page + 1) * 10_000 {
            let ordinal = store.next_ordinal(source).unwrap();
            batch.set(
                source,
                &short(n),
                Known {
                    ordinal,
                    ..fresh(n, 0)
                },
            );
        }
        store.commit(batch).unwrap();
    }
    println!("loaded; {} kB resident", resident_kb());
    for (name, order) in [("in order", (0..n).collect()), ("scattered", shuffled(n))] {
        let keys: Vec<_> = order.iter().map(|n| short(*n)).collect();
        let start = SystemClock.mono();
        for key in &keys {
            assert!(black_box(store.find(source, key)).unwrap().is_some());
        }
        println!(
            "{n} finds {name}: {:.0} ns each",
            millis(start) * 1e6 / f64::from(n)
        );
    }
    println!("{} kB resident, with the keys of this test", resident_kb());
    let start = SystemClock.mono();
    assert_eq!(store.records(source, None).count(), 1_000_000);
    println!("iterated in {:.0} ms", millis(start));
    let text = "{\"part_id\":\"part-000000001\",\"name\":\"a part\",\"mass_g\":12.5,\"updated_at\":\"2026-05-01T12:00:00Z\"}".repeat(3);
    let start = SystemClock.mono();
    for _ in 0..100_000 {
        black_box(fingerprint(store.salt(), black_box(text.as_bytes())));
    }
    println!(
        "fingerprint of {} B: {:.0} ns",
        text.len(),
        millis(start) * 1e6 / 1e5
    );
    let start = SystemClock.mono();
    for _ in 0..100_000 {
        black_box(Sha256::digest(black_box(text.as_bytes())));
    }
    println!("SHA-256 of it: {:.0} ns", millis(start) * 1e6 / 1e5);
}

/// What a process of its own needs with so many records known: after opening, the own check, and a page compared.
#[test]
#[ignore = "prints figures"]
fn resident() {
    if let Some(home) = std::env::var_os("FIGURES_HOME") {
        let before = resident_kb();
        let mut store = open(Path::new(&home));
        let source = store.source("parts").unwrap();
        let opened = resident_kb();
        assert_sound(&mut store);
        let checked = resident_kb();
        let rows = u32::try_from(store.count(source)).unwrap();
        for n in 0..rows {
            store.find(source, &short(n)).unwrap();
        }
        let compared = resident_kb();
        for page in 0..20 {
            let mut batch = Batch::new();
            let from = rows / 20 * page;
            (from..from + 250).for_each(|n| {
                batch.set(
                    source,
                    &short(n),
                    Known {
                        ordinal: n,
                        ..fresh(n, 9)
                    },
                )
            });
            store.commit(batch).unwrap();
        }
        println!(
            "{rows} records: {before} kB before, {opened} opened, {checked} checked, {compared} compared, {} changed",
            resident_kb()
        );
        return;
    }
    for n in [100_000, 1_000_000] {
        let home = tempfile::tempdir().unwrap();
        let mut store = open(home.path());
        let source = store.source("parts").unwrap();
        for page in 0..n / 10_000 {
            let mut batch = Batch::new();
            for n in page * 10_000..(page + 1) * 10_000 {
                let ordinal = store.next_ordinal(source).unwrap();
                batch.set(
                    source,
                    &short(n),
                    Known {
                        ordinal,
                        ..fresh(n, 0)
                    },
                );
            }
            store.commit(batch).unwrap();
        }
        println!(
            "{n}: {:.0} B/record",
            store.size().unwrap() as f64 / f64::from(n)
        );
        drop(store);
        let child = std::process::Command::new(std::env::current_exe().unwrap())
            .args([
                "--ignored",
                "--exact",
                "store::tests::figures::resident",
                "--nocapture",
            ])
            .env("FIGURES_HOME", home.path())
            .output()
            .unwrap();
        print!(
            "{}",
            String::from_utf8_lossy(&child.stdout)
                .lines()
                .find(|line| line.contains("records:"))
                .unwrap_or("failed")
        );
        println!();
    }
}
