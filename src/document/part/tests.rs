use std::sync::Arc;

use url::Url;

use super::*;
use crate::clock::{Clock, FakeClock, Timestamp};
use crate::upstream::conditional::{Validators, Variant};

struct Scene {
    dir: tempfile::TempDir,
    place: Place,
    store: Store,
    wait: Wait,
}

impl Scene {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let now: Timestamp = "2026-12-01T00:00:00Z".parse().unwrap();
        let (store, _) = Store::open(&dir.path().join("state"), now).unwrap();
        let wait = Wait::new(Arc::new(FakeClock::at(now)) as Arc<dyn Clock>).unwrap();
        let place = Place::of(dir.path());
        place.prepare(Path::new("f")).unwrap();
        Self {
            dir,
            place,
            store,
            wait,
        }
    }

    /// A download of which this much was synced, and this much came afterwards.
    fn download(&mut self, synced: &[u8], then: &[u8]) {
        let note = Note {
            config: [1; 8],
            url: Url::parse("https://a.example/f").unwrap(),
            strong: b"\"a\"".to_vec(),
            validators: Validators::default(),
            variant: Variant::default(),
            total: Some(100),
            coded: false,
            synced: 0,
            prefix: Checksum::of(b""),
            boot: String::new(),
            whole: None,
        };
        let mut part = Part::begin(&self.place, "d", Some(note)).unwrap();
        part.append(synced).unwrap();
        part.sync(&mut self.store).unwrap();
        part.append(then).unwrap();
    }

    /// As if the system had been started again since.
    fn reboot(&mut self) {
        let stored = self.store.get(&note_key("d")).unwrap().unwrap();
        let mut note = Note::decode(&stored).unwrap();
        note.boot = "another".into();
        let mut batch = Batch::new();
        batch.put(note_key("d"), &note.encode());
        self.store.commit(batch).unwrap();
    }

    fn recall(&mut self) -> Option<(u64, Checksum)> {
        let config = [1; 8];
        let part = Part::recall(&self.place, "d", config, &mut self.store, &self.wait).unwrap();
        part.map(|part| (part.bytes(), part.digest()))
    }

    fn is_gone(&self) -> bool {
        let noted = self.store.get(&note_key("d")).unwrap().is_some();
        !noted && !self.place.part("d").exists()
    }
}

#[test]
fn a_process_that_was_killed_loses_nothing_that_it_had_written() {
    let mut scene = Scene::new();
    scene.download(b"synced", b" and not");
    assert_eq!(scene.recall(), Some((14, Checksum::of(b"synced and not"))));
    assert_eq!(
        fs::metadata(scene.place.part("d")).unwrap().mode() & 0o777,
        0o640
    );
}

#[test]
fn after_a_power_cut_only_what_was_synced_counts() {
    let mut scene = Scene::new();
    scene.download(b"synced", b" and not");
    scene.reboot();
    assert_eq!(scene.recall(), Some((6, Checksum::of(b"synced"))));
    assert_eq!(fs::read(scene.place.part("d")).unwrap(), b"synced");
    // Once cut off it stays so.
    assert_eq!(scene.recall(), Some((6, Checksum::of(b"synced"))));
}

#[test]
fn a_torn_part_is_never_gone_on_with() {
    type Harm = fn(&Path);
    let harms: [(&str, Harm); 5] = [
        ("shorter than what was synced", |path| {
            fs::write(path, b"sync").unwrap();
        }),
        ("zeros where bytes were", |path| {
            fs::write(path, b"syn\0\0\0 and not").unwrap();
        }),
        ("another file", |path| {
            fs::write(path, b"xxxxxx and not").unwrap()
        }),
        ("gone", |path| fs::remove_file(path).unwrap()),
        ("longer than the whole", |path| {
            fs::write(path, [b"synced".as_slice(), &[b'x'; 100]].concat()).unwrap();
        }),
    ];
    for (name, harm) in harms {
        let mut scene = Scene::new();
        scene.download(b"synced", b" and not");
        harm(&scene.place.part("d"));
        assert_eq!(scene.recall(), None, "{name}");
        assert!(scene.is_gone(), "{name}");
    }
}

#[test]
fn a_part_of_another_url_or_without_a_note_is_dropped() {
    let mut scene = Scene::new();
    scene.download(b"synced", b"");
    let other = Part::recall(&scene.place, "d", [2; 8], &mut scene.store, &scene.wait);
    assert!(other.unwrap().is_none());
    assert!(scene.is_gone());

    let mut batch = Batch::new();
    batch.put(note_key("d"), b"what is this");
    scene.store.commit(batch).unwrap();
    assert_eq!(scene.recall(), None);
    assert!(scene.is_gone());
    drop(scene.dir);
}
