//! When a source is asked next. Pure: spans in, span out, with the reason.

use std::fmt;
use std::time::Duration;

use crate::upstream::outcome::Kind;

/// What a source's config says about time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rhythm {
    /// How often.
    pub every: Duration,
    /// Up to this much is added.
    pub jitter: Duration,
    /// How long an answer's freshness may put off a poll at most.
    pub max_skip: Duration,
}

/// How a pass ended, as far as it decides when the next one starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// Complete. The answer counts as fresh for this long.
    Complete {
        /// `max-age` and the like.
        fresh_for: Duration,
    },
    /// Not complete.
    Failed {
        /// What kind of trouble.
        kind: Kind,
        /// What the upstream asked for.
        retry_after: Option<Duration>,
        /// How many passes in a row ended so, this one included.
        in_a_row: u32,
    },
}

/// Why a source is due when it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// Its time.
    Every,
    /// What we have is fresh until then.
    Fresh,
    /// The upstream asked for it.
    RetryAfter,
    /// After a failure, longer each time.
    Backoff,
    /// A webhook says that there is news.
    Woken,
    /// The upstream asked not to be polled more often.
    PollInterval,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Every => "every",
            Self::Fresh => "fresh until then",
            Self::RetryAfter => "asked to wait",
            Self::Backoff => "backing off",
            Self::Woken => "woken by a webhook",
            Self::PollInterval => "the upstream's poll interval",
        })
    }
}

/// How long after its *start* the next pass of a source is due. `elapsed`: how long the pass took; `dice` in 0..1 spreads a
/// fleet out, so that it does not knock at the same second.
#[must_use]
pub fn next_due(rhythm: Rhythm, elapsed: Duration, ended: Ended, dice: f64) -> (Duration, Why) {
    let dice = dice.clamp(0.0, 1.0);
    match ended {
        Ended::Complete { fresh_for } => {
            let every = rhythm.every.saturating_add(rhythm.jitter.mul_f64(dice));
            let fresh = elapsed.saturating_add(fresh_for.min(rhythm.max_skip));
            if fresh > every.max(elapsed) {
                (fresh, Why::Fresh)
            } else {
                (every.max(elapsed), Why::Every)
            }
        }
        Ended::Failed {
            kind,
            retry_after,
            in_a_row,
        } => {
            let backoff = backoff(kind, in_a_row, dice);
            match retry_after {
                // A little later rather than sooner, and not all at once: what was asked for, and up to a tenth more.
                Some(wait) if wait > Duration::ZERO => (
                    elapsed
                        .saturating_add(wait)
                        .saturating_add(wait.mul_f64(0.1 * dice))
                        .saturating_add(Duration::from_secs(1)),
                    Why::RetryAfter,
                ),
                _ => (elapsed.saturating_add(backoff), Why::Backoff),
            }
        }
    }
}

/// The same due time, but no sooner than `least` after the end of the pass, with `why`; and then up to a tenth later, so that
/// not everybody is back in the same second.
#[must_use]
pub fn no_sooner(
    due: (Duration, Why),
    elapsed: Duration,
    (least, why): (Duration, Why),
    dice: f64,
) -> (Duration, Why) {
    let later = least
        .saturating_add(least.mul_f64(0.1 * dice.clamp(0.0, 1.0)))
        .saturating_add(elapsed);
    if elapsed.saturating_add(least) > due.0 {
        (later, why)
    } else {
        due
    }
}

/// Exponential with full jitter. What only a person can change is asked for seldom from the start.
fn backoff(kind: Kind, in_a_row: u32, dice: f64) -> Duration {
    let (first, most) = match kind {
        Kind::Denied | Kind::Refused | Kind::Gone => {
            (Duration::from_secs(300), Duration::from_secs(24 * 3600))
        }
        Kind::Throttled => (Duration::from_secs(60), Duration::from_secs(6 * 3600)),
        Kind::NotOurs | Kind::BadData | Kind::Local => {
            (Duration::from_secs(30), Duration::from_secs(3600))
        }
        Kind::Failing | Kind::Clock | Kind::Stopped => {
            (Duration::from_secs(10), Duration::from_secs(3600))
        }
    };
    let doublings = in_a_row.saturating_sub(1).min(20);
    let ceiling = first.saturating_mul(1 << doublings).min(most);
    // Full jitter between a floor and the ceiling: never at once, never in step.
    let floor = first / 10;
    floor.saturating_add(ceiling.saturating_sub(floor).mul_f64(dice))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const RHYTHM: Rhythm = Rhythm {
        every: Duration::from_secs(900),
        jitter: Duration::from_secs(90),
        max_skip: Duration::from_secs(86_400),
    };

    fn failed(kind: Kind, retry_after: Option<u64>, in_a_row: u32) -> Ended {
        Ended::Failed {
            kind,
            retry_after: retry_after.map(Duration::from_secs),
            in_a_row,
        }
    }

    #[test]
    fn when_a_source_is_due() {
        let fresh = |seconds| Ended::Complete {
            fresh_for: Duration::from_secs(seconds),
        };
        let table: &[(Ended, u64, f64, u64, Why)] = &[
            (fresh(0), 1, 0.0, 900, Why::Every),
            (fresh(0), 1, 1.0, 990, Why::Every),
            (fresh(0), 2000, 0.0, 2000, Why::Every),
            (fresh(600), 1, 0.0, 900, Why::Every),
            (fresh(3600), 1, 0.0, 3601, Why::Fresh),
            (fresh(10_000_000), 1, 0.0, 86_401, Why::Fresh),
            (
                failed(Kind::Throttled, Some(120), 1),
                1,
                0.0,
                122,
                Why::RetryAfter,
            ),
            (
                failed(Kind::Throttled, Some(120), 9),
                1,
                1.0,
                134,
                Why::RetryAfter,
            ),
            (
                failed(Kind::Throttled, Some(0), 1),
                0,
                1.0,
                60,
                Why::Backoff,
            ),
            (failed(Kind::Failing, None, 1), 0, 1.0, 10, Why::Backoff),
            (failed(Kind::Failing, None, 4), 0, 1.0, 80, Why::Backoff),
            (failed(Kind::Failing, None, 400), 0, 1.0, 3600, Why::Backoff),
            (failed(Kind::Denied, None, 1), 0, 1.0, 300, Why::Backoff),
            (failed(Kind::Denied, None, 40), 0, 1.0, 86_400, Why::Backoff),
        ];
        for (ended, elapsed, dice, seconds, why) in table {
            let due = next_due(RHYTHM, Duration::from_secs(*elapsed), *ended, *dice);
            assert_eq!(due, (Duration::from_secs(*seconds), *why), "{ended:?}");
        }
    }

    #[test]
    fn an_upstream_can_only_put_off() {
        let seconds = Duration::from_secs;
        let due = (seconds(900), Why::Every);
        let table = [
            (60, 0.5, due),
            (890, 1.0, due),
            (891, 0.0, (seconds(901), Why::PollInterval)),
            (1000, 0.5, (seconds(1060), Why::PollInterval)),
            (0, 1.0, due),
        ];
        for (least, dice, expected) in table {
            let least = (seconds(least), Why::PollInterval);
            assert_eq!(no_sooner(due, seconds(10), least, dice), expected);
        }
    }

    proptest! {
        #[test]
        fn a_failure_is_never_asked_again_at_once_and_never_forgotten(
            in_a_row in 0u32.., dice in 0.0f64..1.0, retry in proptest::option::of(0u64..100_000), kind in 0usize..10,
        ) {
            let kinds = [Kind::Throttled, Kind::Denied, Kind::Gone, Kind::Refused, Kind::Failing, Kind::NotOurs,
                Kind::BadData, Kind::Clock, Kind::Local, Kind::Stopped];
            let (due, _) = next_due(RHYTHM, Duration::ZERO, failed(kinds[kind], retry, in_a_row), dice);
            prop_assert!(due >= Duration::from_secs(1));
            prop_assert!(due <= Duration::from_secs(110_001));
            if let Some(retry) = retry {
                prop_assert!(due >= Duration::from_secs(retry));
            }
        }
    }
}
