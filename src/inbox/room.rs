//! Whether there is room for another payload, asked without taking one.

use std::path::Path;

use super::error::{Full, InboxError};
use super::{Inbox, segment};

/// Whether the file system that `path` is on, or will be on, has `need` bytes besides those that an inbox always leaves.
///
/// # Errors
/// [`InboxError::is_full`] ones, and what the system says.
pub fn on_disk(path: &Path, low_water: u64, need: u64) -> Result<(), InboxError> {
    let there = path.ancestors().find(|above| above.exists());
    let disk = rustix::fs::statvfs(there.unwrap_or(path))
        .map_err(|error| InboxError::io(path, error.into()))?;
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    if free < low_water.saturating_add(need) {
        return Err(InboxError::Full(Full::LowWater {
            path: path.to_path_buf(),
            free,
            low_water,
        }));
    }
    Ok(())
}

impl Inbox {
    /// Whether a payload of `need` bytes would find room now, as far as can be told without writing.
    ///
    /// # Errors
    /// Those that [`Inbox::append`] would have before it writes anything.
    pub fn has_room(&self, need: u64) -> Result<(), InboxError> {
        self.refuse_overload()?;
        let fits = |end: u32, size: u32| u64::from(size.saturating_sub(end)) >= need;
        let mut open = self.active.iter().chain(&self.spare);
        if open.any(|active| fits(active.end, active.size)) {
            return Ok(());
        }
        let need = u64::from(self.usual_size()).max(need.saturating_add(segment::START.into()));
        let facts = self
            .segments
            .iter()
            .map(|(number, segment)| segment.facts(*number, self.is_in_use(*number)));
        let (mut used, mut settled) = (0_u64, 0_u64);
        for one in facts {
            used = used.saturating_add(one.bytes);
            if one.settled {
                settled = settled.saturating_add(one.bytes);
            }
        }
        let (quota, kept) = (self.limits.quota, used.saturating_sub(settled));
        if kept.saturating_add(need) > quota {
            return Err(InboxError::Full(Full::Quota { used, quota, need }));
        }
        // What has to go for it gives its bytes back.
        let more = need.saturating_sub(used.saturating_add(need).saturating_sub(quota));
        self.refuse_low_water(more)
    }
}
