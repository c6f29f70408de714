//! What a complete listing without a record means. Pure: the guard that stands before every deletion by absence.

use crate::config::MaxLoss;

/// Up to this many records may always be missing: in a small collection a share says nothing.
pub const ALWAYS: u64 = 5;

/// What to do about records that a complete listing did not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// None are missing.
    None,
    /// They are gone: delete them.
    Gone,
    /// Too many, or all: a person has to say so.
    NeedsConfirmation,
}

/// Decides. `listed`: records that the listing had; `known`: records that we had before; `missing` of these it did not
/// have. `confirmed`: a person has said so.
#[must_use]
pub fn judge(listed: u64, known: u64, missing: u64, max_loss: MaxLoss, confirmed: bool) -> Loss {
    if missing == 0 {
        return Loss::None;
    }
    if confirmed {
        return Loss::Gone;
    }
    // An empty listing is what a broken upstream sends, whatever the limits say.
    if listed == 0 {
        return Loss::NeedsConfirmation;
    }
    let allowed = match max_loss {
        MaxLoss::Count(count) => missing <= count,
        MaxLoss::Share(share) => {
            #[expect(
                clippy::cast_precision_loss,
                reason = "counts of records are far below 2^52"
            )]
            let lost = missing as f64 / known.max(1) as f64;
            missing <= ALWAYS || lost <= share
        }
    };
    if allowed {
        Loss::Gone
    } else {
        Loss::NeedsConfirmation
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_deleted_on_a_guess() {
        let tenth = MaxLoss::Share(0.1);
        let table = [
            // listed, known, missing, limit, confirmed → what
            (10, 10, 0, tenth, false, Loss::None),
            (0, 0, 0, tenth, false, Loss::None),
            (95, 100, 5, tenth, false, Loss::Gone),
            (90, 100, 10, tenth, false, Loss::Gone),
            (89, 100, 11, tenth, false, Loss::NeedsConfirmation),
            (89, 100, 11, tenth, true, Loss::Gone),
            (5, 10, 5, tenth, false, Loss::Gone),
            (4, 10, 6, tenth, false, Loss::NeedsConfirmation),
            (0, 1, 1, tenth, false, Loss::NeedsConfirmation),
            (0, 3, 3, MaxLoss::Share(1.0), false, Loss::NeedsConfirmation),
            (0, 3, 3, tenth, true, Loss::Gone),
            (97, 100, 3, MaxLoss::Share(0.0), false, Loss::Gone),
            (
                94,
                100,
                6,
                MaxLoss::Share(0.0),
                false,
                Loss::NeedsConfirmation,
            ),
            (
                99,
                100,
                1,
                MaxLoss::Count(0),
                false,
                Loss::NeedsConfirmation,
            ),
            (50, 100, 50, MaxLoss::Count(50), false, Loss::Gone),
        ];
        for (listed, known, missing, limit, confirmed, expected) in table {
            assert_eq!(
                judge(listed, known, missing, limit, confirmed),
                expected,
                "{listed}/{known}/{missing}"
            );
        }
    }
}
