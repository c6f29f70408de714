//! What a payload's processing has come to.

/// A payload's state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// It waits to be processed for the first time, or for the first time since a person asked for it.
    Pending,
    /// Processing failed and is tried again.
    Failed {
        /// How many times.
        tries: u16,
        /// When it is tried next, in seconds since 1970.
        next: u32,
        /// Why, the last time. Up to 200 bytes are kept.
        reason: String,
    },
    /// Processing has failed so often that only a person can have it tried again. Kept until then.
    Dead {
        /// How many times.
        tries: u16,
        /// Why, the last time. Up to 200 bytes are kept.
        reason: String,
    },
    /// It was processed.
    Done,
    /// A person gave it up.
    Dropped,
    /// It was never acknowledged, since its sync failed: whoever sent it was told to send it again.
    Void,
}

impl State {
    /// In one word, as `gleaner inbox list` shows and takes it.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Failed { .. } => "failed",
            Self::Dead { .. } => "dead",
            Self::Done => "done",
            Self::Dropped => "dropped",
            Self::Void => "void",
        }
    }

    /// Nothing will be done with it any more, so it may be evicted.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        matches!(self, Self::Done | Self::Dropped | Self::Void)
    }

    pub(super) fn code(&self) -> u8 {
        match self {
            Self::Pending => 0,
            Self::Failed { .. } => 1,
            Self::Dead { .. } => 2,
            Self::Done => 3,
            Self::Dropped => 4,
            Self::Void => 5,
        }
    }
}
