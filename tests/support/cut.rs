//! A power cut between sink and store, as a test can make one: `data.db` keeps what the store does not know of.

use std::path::Path;
use std::sync::{Arc, Mutex};

use super::agent::Gateway;
use super::world::World;

/// The next time that `gateway` pulls, power goes away: with the request of that number (from 0), or behind the last one. What
/// the page before brought is in `data.db`, and the store does not know of it yet. Then it starts again.
///
/// The store is put back to what it was when that page was asked for: an agent that waits for an answer has nothing unsynced.
pub fn cut(gateway: &mut Gateway, world: &World, request: usize, pull: impl FnOnce(&mut Gateway)) {
    let store = gateway.state().join("state");
    let copy = Arc::new(Mutex::new(None::<tempfile::TempDir>));
    let kept = Arc::clone(&copy);
    let from = store.clone();
    let mut left = request;
    world.state().line = Some(Box::new(move |_| {
        if left == 0 {
            return true;
        }
        left -= 1;
        let dir = tempfile::tempdir().unwrap();
        copy_all(&from, dir.path());
        *kept.lock().unwrap() = Some(dir);
        false
    }));
    pull(gateway);
    world.state().line = None;
    gateway.stop();
    if let Some(copy) = copy.lock().unwrap().take() {
        std::fs::remove_dir_all(&store).unwrap();
        copy_all(copy.path(), &store);
    }
    gateway.restart();
}

fn copy_all(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_all(&entry.path(), &to);
        } else {
            std::fs::copy(entry.path(), to).unwrap();
        }
    }
}
