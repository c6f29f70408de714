//! A download under way: a file that grows, hashed while it does.
//!
//! What is known of it (which URL and version, how long it is for sure, the digest of that much) is in the store and moves after
//! the file was synced, never before. So after a power cut the bytes up to there are those that came, and what lies behind is
//! cut off; while the same system runs, a process that was killed loses nothing that it had written. Before it goes on, the part
//! is read and hashed, and compared with the digest that was noted.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use super::checksum::Checksum;
use super::decide::Held;
use super::kept::{Note, note_key};
use super::place::{Place, local};
use crate::store::{Batch, Store, StoreError};
use crate::upstream::outcome::{Failure, Kind};
use crate::wait::Wait;

/// What is read and written at a time.
pub const BUFFER: usize = 64 * 1024;

/// So many bytes at most are lost by a power cut: then the file is synced and its note written. One sync takes an SD card about
/// as long as writing a megabyte.
pub const SYNC_EVERY: u64 = 4 << 20;

/// A part, open.
#[derive(Debug)]
pub struct Part {
    name: String,
    path: PathBuf,
    file: File,
    hasher: Sha256,
    bytes: u64,
    /// What is noted of it; `None`: it is of no use to a later request.
    note: Option<Note>,
}

impl Part {
    /// Begins one. With a `note` it can be gone on with after a cut.
    ///
    /// # Errors
    /// As a failure of this device.
    pub fn begin(place: &Place, name: &str, note: Option<Note>) -> Result<Self, Failure> {
        let path = place.part(name);
        let file = OpenOptions::new()
            .write(true)
            .read(true)
            .create(true)
            .truncate(true)
            .mode(0o640)
            .open(&path)
            .map_err(|error| local(&path, &error))?;
        Ok(Self {
            name: name.to_owned(),
            path,
            file,
            hasher: Sha256::new(),
            bytes: 0,
            note,
        })
    }

    /// Opens the one that is there and reads it. `None`, with the reason in the log: there is none that can be trusted, and what
    /// there was is gone.
    ///
    /// # Errors
    /// The store, or that the agent shall stop.
    pub fn recall(
        place: &Place,
        name: &str,
        config: [u8; 8],
        store: &mut Store,
        wait: &Wait,
    ) -> Result<Option<Self>, Failure> {
        let Some(stored) = store
            .get(&note_key(name))
            .map_err(|error| of_store(&error))?
        else {
            return Ok(None);
        };
        let path = place.part(name);
        let read = match Note::decode(&stored) {
            None => Err("its note cannot be read".to_owned()),
            Some(note) if note.config != config => Err("it is of another URL or scope".to_owned()),
            Some(note) => Self::open(&path, name, note, wait)?,
        };
        match read {
            Ok(part) => Ok(Some(part)),
            Err(why) => {
                log::info!("{name}: what was fetched of it is not used: {why}");
                discard(place, name, store)?;
                Ok(None)
            }
        }
    }

    /// Reads a part up to where it can be trusted, and cuts off the rest.
    fn open(
        path: &Path,
        name: &str,
        note: Note,
        wait: &Wait,
    ) -> Result<Result<Self, String>, Failure> {
        let opened = OpenOptions::new().read(true).write(true).open(path);
        let (mut file, there) = match opened.and_then(|file| Ok((file.metadata()?.size(), file))) {
            Ok((there, file)) => (file, there),
            Err(error) => return Ok(Err(error.to_string())),
        };
        // What was written while the same system ran is there, synced or not.
        let same_boot = !note.boot.is_empty() && note.boot == boot();
        let trusted = if same_boot {
            there
        } else {
            there.min(note.synced)
        };
        if trusted < note.synced || note.total.is_some_and(|total| trusted > total) {
            return Ok(Err(format!(
                "it has {there} bytes, and {} are noted",
                note.synced
            )));
        }
        let (mut hasher, mut bytes) = (Sha256::new(), 0);
        let mut buffer = vec![0; BUFFER];
        let mut is_noted = note.synced == 0;
        while bytes < trusted {
            let next = if bytes < note.synced {
                note.synced
            } else {
                trusted
            };
            let most = usize::try_from(next - bytes).unwrap_or(BUFFER).min(BUFFER);
            let read = match file.read(&mut buffer[..most]) {
                Ok(0) => return Ok(Err("it is shorter than it was".into())),
                Ok(read) => read,
                Err(error) => return Ok(Err(error.to_string())),
            };
            hasher.update(&buffer[..read]);
            bytes += read as u64;
            if bytes == note.synced {
                is_noted = Checksum::so_far(&hasher) == note.prefix;
            }
            breathe(wait)?;
        }
        if !is_noted {
            return Ok(Err("it is not what was written".into()));
        }
        let cut = file
            .set_len(trusted)
            .and_then(|()| file.seek(SeekFrom::Start(trusted)));
        if let Err(error) = cut {
            return Ok(Err(error.to_string()));
        }
        Ok(Ok(Self {
            name: name.to_owned(),
            path: path.to_owned(),
            file,
            hasher,
            bytes,
            note: Some(note),
        }))
    }

    /// Bytes so far.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// What decides how to go on with it.
    #[must_use]
    pub fn held(&self) -> Held {
        let note = self.note.as_ref();
        Held {
            bytes: self.bytes,
            total: note.and_then(|note| note.total),
            is_whole: note.is_some_and(|note| note.whole.is_some()),
        }
    }

    /// Over those.
    #[must_use]
    pub fn digest(&self) -> Checksum {
        Checksum::so_far(&self.hasher)
    }

    /// What is noted of it.
    #[must_use]
    pub fn note(&self) -> Option<&Note> {
        self.note.as_ref()
    }

    /// The length of the whole is known now.
    pub fn set_total(&mut self, total: u64) {
        if let Some(note) = &mut self.note {
            note.total = Some(total);
        }
    }

    /// Appends.
    ///
    /// # Errors
    /// As a failure of this device. What was not written whole is cut off.
    pub fn append(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        if let Err(error) = self.file.write_all(bytes) {
            // A part that is longer than what was hashed would be gone on with.
            let cut = self.file.set_len(self.bytes);
            if cut.is_err() {
                self.note = None;
            }
            return Err(local(&self.path, &error));
        }
        self.hasher.update(bytes);
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    /// Whether enough came since the last sync.
    #[must_use]
    pub fn wants_sync(&self) -> bool {
        let synced = self.note.as_ref().map_or(self.bytes, |note| note.synced);
        self.bytes - synced >= SYNC_EVERY
    }

    /// Syncs what is there, and then notes it: first the data, then what says that it is had.
    ///
    /// # Errors
    /// As a failure of this device.
    pub fn sync(&mut self, store: &mut Store) -> Result<(), Failure> {
        self.file
            .sync_data()
            .map_err(|error| local(&self.path, &error))?;
        let (bytes, prefix) = (self.bytes, self.digest());
        if let Some(note) = &mut self.note {
            note.synced = bytes;
            note.prefix = prefix;
            note.boot = boot();
            let mut batch = Batch::new();
            batch.put(note_key(&self.name), &note.encode());
            store.commit(batch).map_err(|error| of_store(&error))?;
        }
        Ok(())
    }

    /// It is whole: synced, with its note if it has one, so that it need not be fetched again whatever happens before it is
    /// published.
    ///
    /// # Errors
    /// As a failure of this device.
    pub fn finish(&mut self, store: &mut Store) -> Result<(), Failure> {
        let inode = self
            .file
            .sync_all()
            .and_then(|()| self.file.metadata())
            .map_err(|error| local(&self.path, &error))?
            .ino();
        if let Some(note) = &mut self.note {
            note.whole = Some(inode);
            note.total = Some(self.bytes);
            return self.sync(store);
        }
        Ok(())
    }

    /// Its bytes from one place on, read again.
    ///
    /// # Errors
    /// As a failure of this device, or that the agent shall stop.
    pub fn read_from(
        &mut self,
        from: u64,
        wait: &Wait,
        each: &mut dyn FnMut(&[u8]),
    ) -> Result<(), Failure> {
        let failed = |path: &Path, error: io::Error| local(path, &error);
        let mut file = File::open(&self.path).map_err(|error| failed(&self.path, error))?;
        file.seek(SeekFrom::Start(from))
            .map_err(|error| failed(&self.path, error))?;
        let mut buffer = vec![0; BUFFER];
        loop {
            match file.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(read) => each(&buffer[..read]),
                Err(error) => return Err(failed(&self.path, error)),
            }
            breathe(wait)?;
        }
    }
}

/// Removes a part and what is noted of it, note first.
///
/// # Errors
/// The store's.
pub fn discard(place: &Place, name: &str, store: &mut Store) -> Result<(), Failure> {
    let key = note_key(name);
    if store.get(&key).map_err(|error| of_store(&error))?.is_some() {
        let mut batch = Batch::new();
        batch.remove(key);
        store.commit(batch).map_err(|error| of_store(&error))?;
    }
    remove_file(&place.part(name));
    Ok(())
}

/// Removes a file that nobody needs. One that stays is found at the next start.
pub(super) fn remove_file(path: &Path) {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            log::warn!("{}: {error}", path.display());
        }
        _ => {}
    }
}

/// Which start of the system this is; empty where it does not tell.
fn boot() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .map(|id| id.trim().to_owned())
        .unwrap_or_default()
}

/// Serves whoever waits. In the middle of long work.
pub(super) fn breathe(wait: &Wait) -> Result<(), Failure> {
    wait.breathe().map_err(|error| {
        let kind = if crate::wait::is_stop(&error) {
            Kind::Stopped
        } else {
            Kind::Local
        };
        Failure::new(kind, error.to_string())
    })
}

/// A failure of the store: it is this device's.
pub(super) fn of_store(error: &StoreError) -> Failure {
    Failure::new(Kind::Local, error.to_string())
}

#[cfg(test)]
mod tests;
