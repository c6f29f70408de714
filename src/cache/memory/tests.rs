use std::os::unix::fs::PermissionsExt as _;

use super::*;

fn now() -> Timestamp {
    Timestamp::from_second(1_796_040_000).unwrap()
}

fn put(memory: &Memory, bytes: &[u8]) -> Body {
    let mut incoming = memory.begin().unwrap();
    incoming.write(bytes).unwrap();
    memory.keep(incoming).unwrap()
}

fn read(memory: &Memory, body: &Body) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    memory.body(body, now())?.read_to_end(&mut bytes).unwrap();
    Some(bytes)
}

#[test]
fn a_body_that_is_not_what_was_written_is_a_miss_and_goes() {
    let dir = tempfile::tempdir().unwrap();
    let memory = Memory::open(&dir.path().join("c"), 1 << 20).unwrap();
    for damage in [&b"hell"[..], b"hellO", b"hello!", b""] {
        let body = put(&memory, b"hello");
        assert_eq!(read(&memory, &body).unwrap(), b"hello");
        let path = dir.path().join("c/bodies").join(&body.sha256);
        fs::write(&path, damage).unwrap();
        assert_eq!(read(&memory, &body), None, "{damage:?}");
        assert!(!path.exists());
    }
    let outside = Body {
        sha256: "../key".into(),
        length: 32,
    };
    assert_eq!(read(&memory, &outside), None);
}

#[test]
fn a_body_that_was_not_finished_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let memory = Memory::open(dir.path(), 1 << 20).unwrap();
    let mut incoming = memory.begin().unwrap();
    incoming.write(b"half").unwrap();
    drop(incoming);
    assert_eq!(fs::read_dir(dir.path().join("bodies")).unwrap().count(), 0);
}

#[test]
fn the_key_stays_and_names_nothing_in_clear() {
    let dir = tempfile::tempdir().unwrap();
    let first = Memory::open(dir.path(), 1).unwrap();
    let again = Memory::open(dir.path(), 1).unwrap();
    let url = "https://a.example/?token=hunter2";
    assert_eq!(first.id(url, ""), again.id(url, ""));
    assert_ne!(first.id(url, ""), first.id(url, "scope x"));
    let other = tempfile::tempdir().unwrap();
    let other = Memory::open(other.path(), 1).unwrap();
    assert_ne!(first.id(url, ""), other.id(url, ""));
    fs::write(dir.path().join("key"), b"short").unwrap();
    assert_ne!(
        Memory::open(dir.path(), 1).unwrap().id(url, ""),
        first.id(url, "")
    );
}

#[test]
fn a_directory_that_others_may_write_to_is_none() {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let error = Memory::open(dir.path(), 1).unwrap_err();
    assert!(matches!(error, MemoryError::NotOurs { .. }), "{error}");
}

#[test]
fn the_bound_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let memory = Memory::open(dir.path(), 3 * 4096).unwrap();
    for n in 0..9_u8 {
        put(&memory, &[n]);
        memory.sweep(now());
    }
    assert_eq!(fs::read_dir(dir.path().join("bodies")).unwrap().count(), 3);
}
