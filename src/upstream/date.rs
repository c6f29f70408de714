//! What time it is upstream. Pure.
//!
//! What is asked of an upstream in terms of time is asked in its own time, whatever our clock says: a window starts where
//! the last complete pass started *by the upstream's clock*.

use std::time::Duration;

use super::conditional::{age_of, http_date};
use super::headers::Headers;
use crate::clock::{Reading, Timestamp};

/// `Date` counts whole seconds, and may be a moment older than the data that comes with it.
const GRANULARITY: Duration = Duration::from_secs(1);

/// An instant that had come upstream when a request was sent: what became visible up to there, the answer shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UpstreamTime {
    /// The instant; rather too early than too late.
    pub instant: Timestamp,
    /// What it was taken from.
    pub basis: Basis,
}

/// What an [`UpstreamTime`] was taken from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Basis {
    /// The answer's `Date`.
    Date,
    /// Our own clock, which can be believed: the answer has no `Date` that could be read.
    Clock,
    /// The floor: the answer has no `Date`, and our clock cannot be believed.
    Floor,
}

/// The latest instant, upstream's time, up to which an answer surely shows everything.
///
/// `date` and `age` are the answer's fields, `elapsed` the time from sending the request to the end of the answer's head,
/// `ours` our own clock when that had come.
///
/// - With a `Date`: `date − age − elapsed − 1 s`. The data may have been read as early as the request was sent, and `Date`
///   counts whole seconds. `Age` is *subtracted*: an answer out of a cache shows what was there when the origin made it.
///   By RFC 9111 4.2.3 `Date` is that moment already, and then this is needlessly early, which costs a slightly longer
///   window; but there are caches that write a `Date` of their own beside an `Age`, and then it is exact. Adding it would
///   lose records.
/// - Without: our clock, less `elapsed` and a second, if it can be believed; else the floor. Too early is always safe: the
///   next window is longer, and what it brings again is compared away.
#[must_use]
pub fn upstream_now(
    date: Option<Timestamp>,
    age: Duration,
    elapsed: Duration,
    ours: Reading,
) -> UpstreamTime {
    let back = |from: Timestamp, span: Duration| {
        let span = span.saturating_add(GRANULARITY);
        from.saturating_sub(span).unwrap_or(Timestamp::MIN)
    };
    match date {
        Some(date) => UpstreamTime {
            instant: back(date, elapsed.saturating_add(age)),
            basis: Basis::Date,
        },
        None if ours.trust.is_sure() => UpstreamTime {
            instant: back(ours.wall, elapsed),
            basis: Basis::Clock,
        },
        None => UpstreamTime {
            instant: ours.floor,
            basis: Basis::Floor,
        },
    }
}

/// The same for an answer's fields.
#[must_use]
pub fn of_answer(headers: &Headers, elapsed: Duration, ours: Reading) -> UpstreamTime {
    let date = headers.text("date").and_then(http_date);
    upstream_now(date, age_of(headers), elapsed, ours)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{Sure, Trust, Unsure};

    const SURE: Trust = Trust::Sure(Sure::Ntp);
    const UNSURE: Trust = Trust::Unsure(Unsure::Unvouched);

    fn ours(trust: Trust) -> Reading {
        Reading {
            wall: "2026-11-30T18:00:10Z".parse().unwrap(),
            trust,
            floor: "2026-11-01T00:00:00Z".parse().unwrap(),
        }
    }

    #[test]
    fn the_time_upstream_is_never_taken_too_late() {
        let date = Some("Mon, 30 Nov 2026 18:00:00 GMT");
        let odd = Some("yesterday");
        type Row<'a> = (Option<&'a str>, Option<&'a str>, u64, Trust, &'a str, Basis);
        let table: &[Row<'_>] = &[
            (date, None, 0, UNSURE, "2026-11-30T17:59:59Z", Basis::Date),
            (
                date,
                None,
                3500,
                SURE,
                "2026-11-30T17:59:55.5Z",
                Basis::Date,
            ),
            (
                date,
                Some("0"),
                0,
                SURE,
                "2026-11-30T17:59:59Z",
                Basis::Date,
            ),
            (
                date,
                Some("60"),
                0,
                SURE,
                "2026-11-30T17:58:59Z",
                Basis::Date,
            ),
            (
                date,
                Some("60, 5"),
                0,
                SURE,
                "2026-11-30T17:58:59Z",
                Basis::Date,
            ),
            (
                date,
                Some("-5"),
                0,
                SURE,
                "2026-11-30T17:59:59Z",
                Basis::Date,
            ),
            (None, None, 4000, SURE, "2026-11-30T18:00:05Z", Basis::Clock),
            (odd, None, 4000, SURE, "2026-11-30T18:00:05Z", Basis::Clock),
            (
                None,
                None,
                4000,
                UNSURE,
                "2026-11-01T00:00:00Z",
                Basis::Floor,
            ),
            (
                odd,
                Some("9"),
                0,
                UNSURE,
                "2026-11-01T00:00:00Z",
                Basis::Floor,
            ),
            (
                Some("Monday, 30-Nov-26 18:00:00 GMT"),
                None,
                0,
                SURE,
                "2026-11-30T17:59:59Z",
                Basis::Date,
            ),
        ];
        for (date, age, elapsed, trust, instant, basis) in table {
            let mut headers = Headers::new();
            date.iter()
                .for_each(|date| headers.push("date", date.as_bytes()));
            age.iter()
                .for_each(|age| headers.push("age", age.as_bytes()));
            let told = of_answer(&headers, Duration::from_millis(*elapsed), ours(*trust));
            let expected = UpstreamTime {
                instant: instant.parse().unwrap(),
                basis: *basis,
            };
            assert_eq!(told, expected, "{date:?} {age:?} {elapsed}");
        }
    }

    #[test]
    fn absurd_spans_end_at_the_beginning_of_time() {
        let told = upstream_now(
            Some(Timestamp::MIN),
            Duration::MAX,
            Duration::MAX,
            ours(SURE),
        );
        assert_eq!(told.instant, Timestamp::MIN);
    }
}
