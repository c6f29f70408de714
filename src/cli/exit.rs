//! Exit codes after sysexits.h.

use crate::state::StateError;

/// How the process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Done.
    Ok = 0,
    /// EX_USAGE.
    Usage = 64,
    /// EX_DATAERR: an upstream's data is not as the config says, or needs a person's word; a recorded request is not valid.
    Data = 65,
    /// EX_UNAVAILABLE: an upstream refuses, is gone, or somebody else answers.
    Unavailable = 69,
    /// EX_IOERR: this device.
    Device = 74,
    /// EX_TEMPFAIL: try again.
    TryAgain = 75,
    /// EX_NOPERM: access denied.
    Denied = 77,
    /// EX_CONFIG.
    Config = 78,
}

impl Exit {
    /// What a pass's outcome means for the process. Takes words, since they may come over the control socket.
    #[must_use]
    pub fn of(outcome: &str) -> Self {
        match outcome {
            "changed" | "unchanged" => Self::Ok,
            "needs-confirmation" | "bad-data" => Self::Data,
            "denied" => Self::Denied,
            "refused" | "gone" | "not-ours" => Self::Unavailable,
            "local" => Self::Device,
            _ => Self::TryAgain,
        }
    }

    /// Of two, the one that a person has to look at first.
    #[must_use]
    pub fn worse(self, other: Self) -> Self {
        let rank = |exit: Self| match exit {
            Self::Ok => 0,
            Self::TryAgain => 1,
            Self::Unavailable => 2,
            Self::Data => 3,
            Self::Denied => 4,
            Self::Device => 5,
            Self::Usage | Self::Config => 6,
        };
        if rank(other) > rank(self) {
            other
        } else {
            self
        }
    }
}

impl From<&StateError> for Exit {
    fn from(error: &StateError) -> Self {
        match error {
            StateError::Taken { .. } => Self::TryAgain,
            _ => Self::Device,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pull::report::Outcome;
    use crate::upstream::outcome::{Failure, Kind};

    #[test]
    fn every_outcome_has_its_code() {
        let table = [
            (Outcome::Changed, Exit::Ok),
            (Outcome::Unchanged, Exit::Ok),
            (
                Outcome::NeedsConfirmation {
                    missing: 1,
                    known: 1,
                },
                Exit::Data,
            ),
            (
                Outcome::Failed(Failure::new(Kind::Throttled, "")),
                Exit::TryAgain,
            ),
            (
                Outcome::Failed(Failure::new(Kind::Denied, "")),
                Exit::Denied,
            ),
            (
                Outcome::Failed(Failure::new(Kind::Gone, "")),
                Exit::Unavailable,
            ),
            (
                Outcome::Failed(Failure::new(Kind::Refused, "")),
                Exit::Unavailable,
            ),
            (
                Outcome::Failed(Failure::new(Kind::Failing, "")),
                Exit::TryAgain,
            ),
            (
                Outcome::Failed(Failure::new(Kind::NotOurs, "")),
                Exit::Unavailable,
            ),
            (Outcome::Failed(Failure::new(Kind::BadData, "")), Exit::Data),
            (
                Outcome::Failed(Failure::new(Kind::Clock, "")),
                Exit::TryAgain,
            ),
            (Outcome::Failed(Failure::new(Kind::Local, "")), Exit::Device),
            (
                Outcome::Failed(Failure::new(Kind::Stopped, "")),
                Exit::TryAgain,
            ),
        ];
        for (outcome, exit) in table {
            assert_eq!(Exit::of(outcome.word()), exit, "{outcome:?}");
        }
    }
}
