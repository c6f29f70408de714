//! What a power cut can leave of a directory: images of it, made from the first few of the operations in `trace.rs`.
//!
//! The model, which is harsher than any one file system:
//!
//! - What was written to a file is sure once an `fsync` or `fdatasync` of it that began afterwards has ended.
//!   `sync_file_range` makes nothing sure.
//! - Of what is not sure, each sector of 512 bytes has any prefix of the writes to it, whatever other sectors have; the
//!   length of the file is any that it had; what lies between is zeros. What was cut off by a truncation that survived does
//!   not come back.
//! - A name that was made, moved or removed is sure once its directory was synced; until then each change of a name may
//!   have happened or not, whatever the others did. A sync of the file does not make its name sure.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

use super::dice::Dice;
use super::trace::{Operation, What};

const SECTOR: usize = 512;

/// What survives of that which is not sure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Luck {
    /// All of it.
    All,
    /// None of it.
    None,
    /// What chance says.
    Seed(u64),
}

/// A change of a file.
#[derive(Debug, Clone)]
enum Change {
    Write(usize, Vec<u8>),
    SetLen(usize),
    Grow(usize),
}

#[derive(Debug, Clone, Default)]
struct Content {
    sure: Vec<u8>,
    /// With the line where it ended.
    unsure: Vec<(usize, Change)>,
}

/// A directory and a name in it.
type Name = (usize, PathBuf);

/// A change of a name: what it points to afterwards.
#[derive(Debug, Clone)]
struct Naming {
    ended: usize,
    /// A move is one change of two names.
    names: Vec<(Name, Option<usize>)>,
}

/// The number of the root.
const ROOT: usize = 0;

/// A disk with what is sure on it and what is on its way.
#[derive(Debug, Clone)]
pub struct Disk {
    /// By number; a directory has no content.
    files: Vec<Option<Content>>,
    now: BTreeMap<Name, usize>,
    sure: BTreeMap<Name, usize>,
    unsure: Vec<Naming>,
}

impl Disk {
    /// With nothing but the root on it.
    pub fn new() -> Self {
        Self {
            files: vec![None],
            now: BTreeMap::new(),
            sure: BTreeMap::new(),
            unsure: Vec::new(),
        }
    }

    /// With what is below `root`, in the directory `top` if that is there: all of it sure, but for what SQLite makes anew.
    pub fn of(root: &Path, top: &Path) -> Self {
        let mut disk = Self::new();
        if root.join(top).exists() {
            disk.take(root, top);
            disk.sure.clone_from(&disk.now);
            disk.unsure.clear();
        }
        disk
    }

    fn take(&mut self, root: &Path, path: &Path) {
        let whole = root.join(path);
        if !whole.is_dir() {
            let sure = fs::read(whole).unwrap();
            let content = Content {
                sure,
                unsure: Vec::new(),
            };
            return self.make(0, path, Some(content));
        }
        self.make(0, path, None);
        for entry in fs::read_dir(whole).unwrap() {
            let name = entry.unwrap().file_name();
            if name != "data.db-shm" {
                self.take(root, &path.join(name));
            }
        }
    }

    /// One operation more.
    pub fn apply(&mut self, operation: &Operation) {
        let ended = operation.ended;
        match &operation.what {
            What::Create(path) if self.find(path).is_some() => {}
            What::Create(path) => self.make(ended, path, Some(Content::default())),
            What::Mkdir(path) => self.make(ended, path, None),
            What::Rename(from, to) => {
                let file = self.find(from).unwrap();
                self.name(
                    ended,
                    vec![(self.place(from), None), (self.place(to), Some(file))],
                );
            }
            What::Remove(path) => self.name(ended, vec![(self.place(path), None)]),
            What::Write(path, at, data) => {
                self.change(ended, path, Change::Write(*at, data.clone()))
            }
            What::Append(path, data) => {
                let at = self.length(path);
                self.change(ended, path, Change::Write(at, data.clone()));
            }
            What::SetLen(path, length) => self.change(ended, path, Change::SetLen(*length)),
            What::Grow(path, length) => self.change(ended, path, Change::Grow(*length)),
            What::Sync(path) => self.sync(operation.began, path),
        }
    }

    fn find(&self, path: &Path) -> Option<usize> {
        path.components().try_fold(ROOT, |dir, name| {
            let name = PathBuf::from(name.as_os_str());
            self.now.get(&(dir, name)).copied()
        })
    }

    fn place(&self, path: &Path) -> Name {
        let dir = self.find(path.parent().unwrap()).unwrap();
        (dir, PathBuf::from(path.file_name().unwrap()))
    }

    fn make(&mut self, ended: usize, path: &Path, content: Option<Content>) {
        self.files.push(content);
        self.name(ended, vec![(self.place(path), Some(self.files.len() - 1))]);
    }

    fn name(&mut self, ended: usize, names: Vec<(Name, Option<usize>)>) {
        let naming = Naming { ended, names };
        point(&mut self.now, &naming);
        self.unsure.push(naming);
    }

    fn change(&mut self, ended: usize, path: &Path, change: Change) {
        let file = self.find(path).unwrap();
        let content = self.files[file].as_mut().unwrap();
        content.unsure.push((ended, change));
    }

    /// Of a file as whoever writes to it sees it.
    fn length(&self, path: &Path) -> usize {
        let file = self.find(path).unwrap();
        let content = self.files[file].as_ref().unwrap();
        let changes = content.unsure.iter();
        changes.fold(content.sure.len(), |length, (_, change)| match change {
            Change::Write(at, data) => length.max(at + data.len()),
            Change::SetLen(length) => *length,
            Change::Grow(least) => length.max(*least),
        })
    }

    fn sync(&mut self, began: usize, path: &Path) {
        // What lies above the watched directory is not known, and nothing of it is needed.
        let Some(file) = self.find(path) else {
            return;
        };
        if let Some(content) = &mut self.files[file] {
            let (done, open) = std::mem::take(&mut content.unsure)
                .into_iter()
                .partition(|(ended, _)| *ended < began);
            content.unsure = open;
            let done: Vec<(usize, Change)> = done;
            done.iter()
                .for_each(|(_, change)| make(&mut content.sure, change));
            return;
        }
        let inside = |naming: &Naming| naming.ended < began && naming.names[0].0.0 == file;
        let (done, open) = std::mem::take(&mut self.unsure)
            .into_iter()
            .partition(inside);
        self.unsure = open;
        let done: Vec<Naming> = done;
        done.iter().for_each(|naming| point(&mut self.sure, naming));
    }

    /// Writes what a cut now leaves to a directory.
    pub fn image(&self, to: &Path, luck: Luck) {
        let mut dice = Dice::from(match luck {
            Luck::Seed(seed) => seed,
            Luck::All | Luck::None => 0,
        });
        let likely = [1, 5, 9][usize::try_from(dice.below(3)).unwrap()];
        let mut names = self.sure.clone();
        for naming in &self.unsure {
            if luck == Luck::All || luck != Luck::None && dice.below(10) < likely {
                point(&mut names, naming);
            }
        }
        // What is in a directory that was lost is lost.
        let mut open = vec![(ROOT, to.to_owned())];
        while let Some((dir, path)) = open.pop() {
            for ((_, name), file) in names.range((dir, PathBuf::new())..(dir + 1, PathBuf::new())) {
                let path = path.join(name);
                if let Some(content) = &self.files[*file] {
                    fs::write(path, survived(content, luck, likely, &mut dice)).unwrap();
                } else {
                    fs::create_dir(&path).unwrap();
                    open.push((*file, path));
                }
            }
        }
    }
}

fn point(names: &mut BTreeMap<Name, usize>, naming: &Naming) {
    for (path, file) in &naming.names {
        match file {
            Some(file) => names.insert(path.clone(), *file),
            None => names.remove(path),
        };
    }
}

fn make(data: &mut Vec<u8>, change: &Change) {
    match change {
        Change::Write(at, new) => {
            data.resize(data.len().max(at + new.len()), 0);
            data[*at..at + new.len()].copy_from_slice(new);
        }
        Change::SetLen(length) => data.resize(*length, 0),
        Change::Grow(length) => data.resize(data.len().max(*length), 0),
    }
}

fn survived(content: &Content, luck: Luck, likely: u64, dice: &mut Dice) -> Vec<u8> {
    let mut data = content.sure.clone();
    let changes: Vec<&Change> = content.unsure.iter().map(|(_, change)| change).collect();
    if luck == Luck::None || changes.is_empty() {
        return data;
    }
    if luck == Luck::All {
        changes.iter().for_each(|change| make(&mut data, change));
        return data;
    }
    let mut pick = |from: usize, to: usize| {
        let any = from + usize::try_from(dice.below((to - from + 1) as u64)).unwrap();
        if dice.below(10) < likely {
            to
        } else if dice.once_in(2) {
            from
        } else {
            any
        }
    };
    // The length is that after so many changes; the sectors are of the time between two truncations.
    let metadata = pick(0, changes.len());
    let mut lengths = vec![data.len()];
    let (mut from, mut to) = (0, changes.len());
    let mut all = data.clone();
    for (at, change) in changes.iter().enumerate() {
        make(&mut all, change);
        if all.len() < lengths[at] {
            if at < metadata {
                from = at + 1;
            } else {
                to = to.min(at);
            }
        }
        lengths.push(all.len());
    }
    changes[..from]
        .iter()
        .for_each(|change| make(&mut data, change));
    let mut sectors: HashMap<usize, usize> = HashMap::new();
    for (at, change) in changes.iter().enumerate().take(to).skip(from) {
        let Change::Write(start, new) = change else {
            continue;
        };
        let mut done = 0;
        while done < new.len() {
            let place = start + done;
            let part = (SECTOR - place % SECTOR).min(new.len() - done);
            let until = *sectors
                .entry(place / SECTOR)
                .or_insert_with(|| pick(from, to));
            if at < until {
                make(
                    &mut data,
                    &Change::Write(place, new[done..done + part].to_vec()),
                );
            }
            done += part;
        }
    }
    data.resize(lengths[metadata], 0);
    data
}
