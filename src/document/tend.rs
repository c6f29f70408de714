//! What nobody needs any more: parts of documents that left the config, of other versions, without a note. And files that belong
//! to no document: those stay, and are said.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use super::kept::{doubt_key, note_key, told_key};
use super::part::{of_store, remove_file};
use super::place::{PARTS, Place};
use crate::config::Document;
use crate::store::{Batch, Key, SourceId, Store, Tag};
use crate::upstream::outcome::Failure;

/// Removes what is left of downloads that nothing will go on with: `names` has the documents and the collections that are spooled.
///
/// # Errors
/// The store's.
pub fn tidy(place: &Place, names: &BTreeSet<&str>, store: &mut Store) -> Result<(), Failure> {
    let mut batch = Batch::new();
    let mut noted = BTreeSet::new();
    for (kind, key_of) in [
        ("part/", note_key as fn(&str) -> Key),
        ("doubt/", doubt_key as fn(&str) -> Key),
        ("told/", told_key as fn(&str) -> Key),
    ] {
        let prefix = Key::new(Tag::Counter, SourceId::NONE, kind.as_bytes());
        for entry in store.scan(&prefix) {
            let (rest, _) = entry.map_err(|error| of_store(&error))?;
            let Some(name) = rest
                .strip_prefix(kind.as_bytes())
                .and_then(|name| std::str::from_utf8(name).ok())
            else {
                continue;
            };
            if !names.contains(name) {
                batch.remove(key_of(name));
            } else if kind == "part/" {
                noted.insert(name.to_owned());
            }
        }
    }
    if !batch.is_empty() {
        store.commit(batch).map_err(|error| of_store(&error))?;
    }
    let Ok(entries) = fs::read_dir(place.dir().join(PARTS)) else {
        return Ok(());
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let is_needed = name.to_str().is_some_and(|name| noted.contains(name));
        if !is_needed {
            log::info!(
                "{}: nothing will go on with it, removed",
                entry.path().display()
            );
            remove_file(&entry.path());
        }
    }
    Ok(())
}

/// Files below `documents/` that belong to no document of the config, by their path there.
#[must_use]
pub fn leftovers(place: &Place, documents: &BTreeMap<String, Document>) -> Vec<PathBuf> {
    let files: BTreeSet<&Path> = documents
        .values()
        .map(|document| document.file.as_path())
        .collect();
    let mut found = Vec::new();
    place.each(&mut |path, _| {
        if !path.starts_with(PARTS) && !files.contains(path) {
            found.push(path.to_owned());
        }
    });
    found.sort();
    found
}
