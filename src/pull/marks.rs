//! Which records a pass has met: one bit for each ordinal. Pure.

use std::collections::BTreeSet;

use crate::record::Ordinal;

/// Bytes of a block, the unit in which marks are stored.
pub const BLOCK: usize = 1024;
const BITS: u32 = 8 * 1024;

/// A bitmap over ordinals. 125 kB for a million records.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Marks {
    bits: Vec<u8>,
    count: u64,
    dirty: BTreeSet<u32>,
}

impl Marks {
    /// Marks an ordinal; says whether it was new.
    pub fn mark(&mut self, ordinal: Ordinal) -> bool {
        let (byte, bit) = (ordinal as usize / 8, 1u8 << (ordinal % 8));
        if byte >= self.bits.len() {
            self.bits.resize(byte + 1, 0);
        }
        let new = self.bits[byte] & bit == 0;
        if new {
            self.bits[byte] |= bit;
            self.count += 1;
            self.dirty.insert(ordinal / BITS);
        }
        new
    }

    /// Whether it was met.
    #[must_use]
    pub fn has(&self, ordinal: Ordinal) -> bool {
        self.bits
            .get(ordinal as usize / 8)
            .is_some_and(|byte| byte & (1 << (ordinal % 8)) != 0)
    }

    /// All that were met, ascending.
    pub fn iter(&self) -> impl Iterator<Item = Ordinal> + '_ {
        let first = (0..).step_by(8);
        first.zip(&self.bits).flat_map(|(first, byte)| {
            (0..8u32)
                .filter(move |bit| byte & (1 << bit) != 0)
                .map(move |bit| first + bit)
        })
    }

    /// How many were met.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Forgets all, keeping the memory.
    pub fn clear(&mut self) {
        self.bits.fill(0);
        self.count = 0;
        self.dirty.clear();
    }

    /// The blocks that changed since this was asked last, with their bytes.
    pub fn take_dirty(&mut self) -> Vec<(u32, Vec<u8>)> {
        std::mem::take(&mut self.dirty)
            .into_iter()
            .map(|block| {
                let start = block as usize * BLOCK;
                let end = self.bits.len().min(start + BLOCK);
                (block, self.bits[start..end].to_vec())
            })
            .collect()
    }

    /// Puts a stored block back.
    pub fn restore(&mut self, block: u32, bytes: &[u8]) {
        for (at, byte) in bytes.iter().take(BLOCK).enumerate() {
            for bit in (0..8u32).filter(|bit| byte & (1 << bit) != 0) {
                if let Ok(at) = u32::try_from(at) {
                    self.mark(block.saturating_mul(BITS).saturating_add(at * 8 + bit));
                }
            }
        }
        self.dirty.remove(&block);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn marks_are_a_set_that_survives_storing(ordinals in proptest::collection::vec(0u32..100_000, 0..300)) {
            let set: BTreeSet<u32> = ordinals.iter().copied().collect();
            let mut marks = Marks::default();
            for ordinal in &ordinals {
                let new = !marks.has(*ordinal);
                prop_assert_eq!(marks.mark(*ordinal), new);
            }
            let mut again = Marks::default();
            for (block, bytes) in marks.take_dirty() {
                again.restore(block, &bytes);
            }
            prop_assert!(marks.take_dirty().is_empty() && again.take_dirty().is_empty());
            prop_assert_eq!(again.count(), set.len() as u64);
            prop_assert_eq!(again.iter().collect::<BTreeSet<u32>>(), set.clone());
            for ordinal in (0..100_000).step_by(7) {
                prop_assert_eq!(again.has(ordinal), set.contains(&ordinal));
            }
        }
    }
}
