//! Lateness arithmetic: which span of update times to ask for, and how far a complete pass moves the watermark. Pure.
//!
//! The watermark is the instant at which the last complete pass started, by the upstream's clock. A record may become
//! visible up to `lateness` after its update time, so the next window starts at watermark − lateness: what was updated
//! before that had become visible when that pass started.

use std::time::Duration;

use crate::clock::Timestamp;

/// A span of update times: inclusive start, exclusive end. Without a start it reaches back to the beginning, without an end
/// to whatever is visible now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Span {
    /// The start.
    pub since: Option<Timestamp>,
    /// The end.
    pub until: Option<Timestamp>,
}

/// Starts of windows are multiples of this: consecutive polls ask for the same URL, so a 304 is possible.
#[must_use]
pub fn grid(lateness: Duration) -> Duration {
    Duration::from_secs((lateness.as_secs() / 6).max(1))
}

/// Where the next window starts: at `watermark` less `lateness`, on the grid, never later.
#[must_use]
pub fn start(watermark: Timestamp, lateness: Duration) -> Timestamp {
    floor(earlier(watermark, lateness), grid(lateness))
}

/// From when on a copy holds everything that reaches `first` back from `now`: floored to a whole hour, so that trying again
/// asks for the same URL.
#[must_use]
pub fn origin(now: Timestamp, first: Duration) -> Timestamp {
    floor(earlier(now, first), Duration::from_secs(3600))
}

/// The first span of a pass that starts at `since`. With a `step` it ends after it, unless that would reach `now`, the time
/// upstream: at the live edge nothing ends, so that the URL repeats.
#[must_use]
pub fn first(since: Option<Timestamp>, step: Option<Duration>, now: Timestamp) -> Span {
    let until = since
        .zip(step)
        .and_then(|(since, step)| since.checked_add(step).ok())
        .filter(|until| *until < now);
    Span { since, until }
}

/// The span behind one that is complete; `None` behind one at the live edge, or one that reached `now`.
#[must_use]
pub fn next(span: Span, step: Option<Duration>, now: Timestamp) -> Option<Span> {
    let until = span.until.filter(|until| *until <= now)?;
    Some(first(Some(until), step, now))
}

/// The watermark after a complete walk over `span` that started at `started`, upstream's time. Never later than that start,
/// whatever the records say, and for a span that ended earlier no later than the end allows: the next window has to start
/// where this one ended.
#[must_use]
pub fn moved(started: Timestamp, span: Span, lateness: Duration) -> Timestamp {
    match span.until {
        None => started,
        Some(until) => started.min(until.saturating_add(lateness).unwrap_or(Timestamp::MAX)),
    }
}

/// Whether a watermark lies so far ahead of the time upstream that windows which started there may have missed what became
/// visible meanwhile: an upstream told us a wrong time once, or its clock went back.
#[must_use]
pub fn is_ahead(watermark: Timestamp, now: Timestamp, lateness: Duration) -> bool {
    earlier(watermark, lateness) > now
}

/// How late a record became visible at least: it was not there when the pass before started, at `watermark`.
#[must_use]
pub fn lateness_of(updated: Timestamp, watermark: Timestamp) -> Duration {
    Duration::try_from(watermark.duration_since(updated)).unwrap_or(Duration::ZERO)
}

fn earlier(time: Timestamp, span: Duration) -> Timestamp {
    time.saturating_sub(span).unwrap_or(Timestamp::MIN)
}

fn floor(time: Timestamp, grid: Duration) -> Timestamp {
    let grid = i64::try_from(grid.as_secs()).unwrap_or(i64::MAX).max(1);
    let seconds = time.as_second() - i64::from(time.subsec_nanosecond() < 0);
    let floored = seconds.div_euclid(grid).saturating_mul(grid);
    Timestamp::from_second(floored).unwrap_or(Timestamp::MIN)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn where_a_window_starts() {
        let table = [
            ("2026-11-30T18:00:00Z", 6, "2026-11-30T12:00:00Z"),
            ("2026-11-30T18:59:59.999Z", 6, "2026-11-30T12:00:00Z"),
            ("2026-11-30T19:00:00Z", 6, "2026-11-30T13:00:00Z"),
            ("2026-11-30T19:10:00Z", 24, "2026-11-29T16:00:00Z"),
            ("1970-01-01T03:30:00Z", 6, "1969-12-31T21:00:00Z"),
            ("1969-12-31T23:59:59.5Z", 6, "1969-12-31T17:00:00Z"),
        ];
        for (watermark, hours, expected) in table {
            assert_eq!(
                start(at(watermark), HOUR * hours),
                at(expected),
                "{watermark}"
            );
        }
        assert_eq!(start(Timestamp::MIN, HOUR), Timestamp::MIN);
    }

    #[test]
    fn a_long_catch_up_goes_in_steps_to_the_live_edge() {
        let (now, day) = (at("2026-11-30T18:00:00Z"), 24 * HOUR);
        let mut span = first(Some(at("2026-11-27T00:00:00Z")), Some(day), now);
        let mut spans = vec![span];
        while let Some(following) = next(span, Some(day), now) {
            span = following;
            spans.push(span);
        }
        let ends: Vec<_> = spans.iter().map(|span| span.until).collect();
        let days = [
            "2026-11-28T00:00:00Z",
            "2026-11-29T00:00:00Z",
            "2026-11-30T00:00:00Z",
        ];
        let expected: Vec<_> = days.iter().map(|day| Some(at(day))).chain([None]).collect();
        assert_eq!(ends, expected);
        assert_eq!(first(None, Some(day), now), Span::default());
        // A clock of ours that is far ahead made the first span end in the future: there is nothing behind it.
        let beyond = Span {
            since: None,
            until: Some(at("2041-01-01T00:00:00Z")),
        };
        assert_eq!(next(beyond, Some(day), now), None);
    }

    #[test]
    fn how_far_the_watermark_moves() {
        let started = at("2026-11-30T18:00:00Z");
        let span = |until: &str| Span {
            since: None,
            until: Some(at(until)),
        };
        assert_eq!(moved(started, Span::default(), 6 * HOUR), started);
        assert_eq!(
            moved(started, span("2026-11-01T00:00:00Z"), 6 * HOUR),
            at("2026-11-01T06:00:00Z")
        );
        assert_eq!(
            moved(started, span("2026-11-30T17:00:00Z"), 6 * HOUR),
            started
        );
        assert_eq!(
            moved(started, span("2041-01-01T00:00:00Z"), 6 * HOUR),
            started
        );
    }

    proptest! {
        #[test]
        fn a_window_is_a_little_too_long_and_never_too_short(seconds in -10_000_000_000i64..10_000_000_000, nanos in 0i32..1_000_000_000, lateness in 1u64..10_000_000) {
            let watermark = Timestamp::new(seconds, nanos).unwrap();
            let lateness = Duration::from_secs(lateness);
            let start = start(watermark, lateness);
            let exact = watermark - lateness;
            prop_assert!(start <= exact);
            prop_assert!(exact - start < jiff::SignedDuration::try_from(grid(lateness)).unwrap());
        }

        /// Every record that was visible when a window's walk started lies in it or had been visible in the pass before.
        #[test]
        fn steps_leave_no_gap(since in 0i64..1_000_000, step in 3600u64..1_000_000, now in 0i64..10_000_000, hours in 1u32..6) {
            let (since, now) = (Timestamp::from_second(since).unwrap(), Timestamp::from_second(now).unwrap());
            let (step, lateness) = (Some(Duration::from_secs(step)), HOUR * hours);
            let mut span = first(Some(since), step, now);
            prop_assert_eq!(span.since, Some(since));
            loop {
                // The next pass, should this one end here, starts no later than this span ended.
                let end = span.until.unwrap_or(now);
                prop_assert!(start(moved(now, span, lateness), lateness) <= end);
                let Some(following) = next(span, step, now) else { break };
                prop_assert_eq!(following.since, span.until);
                span = following;
            }
            prop_assert_eq!(span.until, None);
        }
    }
}
