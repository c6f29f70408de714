//! Chance that can be repeated: SplitMix64 from a seed that the test prints.

use std::hash::{BuildHasher as _, RandomState};

/// A generator; the same seed gives the same story, as far as moments are not real time.
pub struct Dice(u64);

impl From<u64> for Dice {
    fn from(seed: u64) -> Self {
        Self(seed)
    }
}

impl Dice {
    /// From `GLEANER_SEED` if it is set, else from the system's randomness; says which, so that a failure can be repeated.
    pub fn announced(test: &str) -> Self {
        let seed = std::env::var("GLEANER_SEED")
            .ok()
            .and_then(|text| text.parse().ok())
            .unwrap_or_else(|| RandomState::new().hash_one(test));
        println!("{test}: GLEANER_SEED={seed}");
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// In `0..limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit.max(1)
    }

    /// True once in `n` times.
    pub fn once_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}
