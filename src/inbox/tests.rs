//! The inbox as its users see it.

mod model;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use super::*;

fn now() -> Timestamp {
    "2026-05-01T12:00:00Z".parse().unwrap()
}

fn received(body: &[u8]) -> Received {
    Received {
        hook: "erp".into(),
        at: now(),
        clock_trusted: true,
        peer: "192.0.2.7:4711".into(),
        method: "POST".into(),
        target: b"/hooks/erp?a=%20".to_vec(),
        headers: vec![
            (b"Content-Type".to_vec(), b"application/json".to_vec()),
            (b"X-Odd".to_vec(), vec![0xFF, 0, b' ']),
        ],
        body: body.to_vec(),
        event_id: Some(format!("evt-{}", String::from_utf8_lossy(body))),
        event_type: None,
    }
}

fn limits() -> Limits {
    Limits {
        quota: 1024 * 1024,
        low_water: 0,
        ..Limits::default()
    }
}

#[track_caller]
fn open(dir: &Path) -> Inbox {
    let (inbox, opening) = Inbox::open(dir, limits()).unwrap();
    assert_eq!(opening.findings, []);
    inbox
}

fn add(inbox: &mut Inbox, body: &[u8]) -> RequestId {
    let id = inbox.append(&received(body)).unwrap();
    inbox.sync().unwrap();
    id
}

fn bodies(inbox: &Inbox) -> Vec<Vec<u8>> {
    inbox
        .pending(None)
        .map(|pending| inbox.read(pending.position).unwrap().received.body)
        .collect()
}

fn position(inbox: &Inbox, id: RequestId) -> Position {
    inbox.find(id).unwrap().position
}

fn failed(reason: &str) -> State {
    State::Failed {
        tries: 2,
        next: 1_800_000_000,
        reason: reason.into(),
    }
}

#[test]
fn what_was_synced_is_there_after_reopening_as_it_came() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("inbox");
    let mut inbox = open(&dir);
    let id = inbox.append(&received(b"one")).unwrap();
    assert_eq!(inbox.pending(None).count(), 0, "it is not acknowledged yet");
    inbox.sync().unwrap();
    let two = add(&mut inbox, b"");
    for _ in 0..2 {
        let waiting: Vec<_> = inbox.pending(None).collect();
        assert_eq!((waiting[0].id, waiting[1].id), (id, two));
        assert_eq!(
            (waiting[0].hook, waiting[0].tries, waiting[0].next),
            ("erp", 0, 0)
        );
        let stored = inbox.read(waiting[0].position).unwrap();
        assert_eq!(stored.id, id);
        assert_eq!(stored.received, received(b"one"));
        assert_eq!(inbox.pending(Some(waiting[0].position)).count(), 1);
        drop(inbox);
        inbox = open(&dir);
    }
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&dir), 0o700);
    assert_eq!(mode(&segment::path(&dir, 1)), 0o600);
}

#[test]
fn only_one_has_it_open() {
    let home = tempfile::tempdir().unwrap();
    let inbox = open(home.path());
    let error = Inbox::open(home.path(), limits()).unwrap_err();
    assert!(matches!(error, InboxError::Locked { .. }), "{error}");
    drop(inbox);
    open(home.path());
}
