//! Who says that the machine's clock was set: files that time daemons leave, which anybody may look at.
//!
//! `adjtimex(2)` would tell as well, but `ProtectClock=` in our unit keeps it away.

use std::fs;
use std::path::{Path, PathBuf};

use super::Timestamp;

/// `systemd-timesyncd` touches the first whenever it has set the clock. The others are drift files, which are written only
/// while the clock is disciplined: ntpsec, ntp (Debian, others), chrony (Debian, others; where its directory may be
/// entered), OpenNTPD. They outlive a boot: whether a note is from this one is for [`super::judge`] to see.
const KNOWN: [&str; 7] = [
    "/run/systemd/timesync/synchronized",
    "/var/lib/ntpsec/ntp.drift",
    "/var/lib/ntp/ntp.drift",
    "/var/lib/ntp/drift",
    "/var/lib/chrony/chrony.drift",
    "/var/lib/chrony/drift",
    "/var/lib/openntpd/db/ntpd.drift",
];

/// The files to look at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Witnesses(Vec<PathBuf>);

impl Witnesses {
    /// Those of the time daemons that we know.
    #[must_use]
    pub fn known() -> Self {
        Self(KNOWN.iter().map(PathBuf::from).collect())
    }

    /// This one alone: whoever sets the clock touches it then.
    #[must_use]
    pub fn only(path: &Path) -> Self {
        Self(vec![path.to_owned()])
    }

    /// When one of them was touched last, by the clock as it was then. What cannot be looked at says nothing.
    #[must_use]
    pub fn set_at(&self) -> Option<Timestamp> {
        let touched = |path: &PathBuf| {
            let modified = fs::metadata(path).and_then(|file| file.modified()).ok()?;
            Timestamp::try_from(modified).ok()
        };
        self.0.iter().filter_map(touched).max()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_note_counts_and_a_missing_one_says_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let witnesses = Witnesses(vec![path("a"), path("b"), path("none/c")]);
        assert_eq!(witnesses.set_at(), None);
        for (name, text) in [("a", "2026-11-30T18:00:00Z"), ("b", "2026-11-30T17:00:00Z")] {
            let time: Timestamp = text.parse().unwrap();
            let file = fs::File::create(path(name)).unwrap();
            let seconds = u64::try_from(time.as_second()).unwrap();
            let modified = std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
            file.set_modified(modified).unwrap();
        }
        let latest = "2026-11-30T18:00:00Z".parse().unwrap();
        assert_eq!(witnesses.set_at(), Some(latest));
    }
}
