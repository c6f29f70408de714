//! When an upstream may be asked next. All its sources share that, since its limits count all that we ask.

use std::time::Duration;

use url::Url;

use super::exchange::shown;
use super::manners::{Manners, Pause, Plea};
use super::outcome::{Failure, Kind};
use crate::clock::Mono;
use crate::wait::Wait;

/// A pause that is over so soon is sat out in the middle of a pass. A longer one ends the pass, which goes on behind its last
/// page afterwards: meanwhile other upstreams' sources have their turn.
const SAT_OUT: Duration = Duration::from_secs(30);

/// When an upstream may be asked next.
#[derive(Debug, Default)]
pub struct Turn {
    min_interval: Duration,
    /// When the last request started.
    started: Option<Mono>,
    paused: Option<(Mono, Plea)>,
    poll_interval: Option<Duration>,
    alert: Option<String>,
}

impl Turn {
    /// At most one request starts in `min_interval`.
    #[must_use]
    pub fn new(min_interval: Duration) -> Self {
        Self {
            min_interval,
            ..Self::default()
        }
    }

    /// Takes note of an answer's manners. A pause is never shortened by a later answer: several limits may be at work.
    pub fn heed(&mut self, manners: Manners, now: Mono) {
        if let Some(pause) = manners.pause {
            self.pause(pause, now);
        }
        self.poll_interval = self.poll_interval.max(manners.poll_interval);
        self.alert = manners.alert.or(self.alert.take());
    }

    /// Is not to be asked for this long from `now` on.
    pub fn pause(&mut self, pause: Pause, now: Mono) {
        let until = now.after(pause.span);
        if self.paused.is_none_or(|(known, _)| known < until) {
            self.paused = Some((until, pause.plea));
        }
    }

    /// What is left of a pause, if there is one.
    #[must_use]
    pub fn paused(&self, now: Mono) -> Option<Pause> {
        let (until, plea) = self.paused?;
        let span = until.since(now);
        (!span.is_zero()).then_some(Pause { span, plea })
    }

    /// Why nothing is asked now, if a pause is left that is not sat out.
    #[must_use]
    pub fn refuses(&self, now: Mono) -> Option<Failure> {
        let pause = self.paused(now).filter(|pause| pause.span > SAT_OUT)?;
        Some(throttled(pause))
    }

    /// A person wants an answer all the same.
    pub fn insist(&mut self) {
        self.paused = None;
    }

    /// The longest poll interval that an answer asked for since this was last taken.
    pub fn take_poll_interval(&mut self) -> Option<Duration> {
        self.poll_interval.take()
    }

    /// The last warning for the operator since this was last taken.
    pub fn take_alert(&mut self) -> Option<String> {
        self.alert.take()
    }

    /// How long until the next request may start, as far as our own config decides.
    fn interval_left(&self, now: Mono) -> Duration {
        self.started
            .map(|then| then.after(self.min_interval).since(now))
            .unwrap_or_default()
    }

    /// Waits for the turn of a request, and takes it. Requests to other origins than the upstream's own, where redirects
    /// lead, are nobody's turn.
    ///
    /// # Errors
    /// The upstream asked for a longer pause than is sat out, or the agent is told to stop.
    pub(super) fn wait_for(&mut self, wait: &Wait, home: &Url, url: &Url) -> Result<(), Failure> {
        if url.origin() != home.origin() {
            return Ok(());
        }
        let now = wait.now();
        if let Some(failure) = self.refuses(now) {
            return Err(failure.at(shown(url)));
        }
        let pause = self.paused(now).map(|pause| pause.span).unwrap_or_default();
        let left = self.interval_left(now).max(pause);
        if !left.is_zero() {
            log::debug!("{}: asked in {:.1} s", shown(url), left.as_secs_f64());
            wait.pause_until(now.after(left)).map_err(|_| stopped())?;
        }
        self.paused = None;
        self.started = Some(wait.now());
        Ok(())
    }
}

/// What a pause means for who wants to ask now.
fn throttled(pause: Pause) -> Failure {
    let left = pause
        .span
        .as_secs()
        .saturating_add(u64::from(pause.span.subsec_nanos() > 0));
    Failure {
        kind: Kind::Throttled,
        reason: format!(
            "{}, {left} s are left (name the source to ask all the same)",
            pause.plea
        ),
        retry_after: Some(pause.span),
    }
}

/// `Retry-After` on a redirect: how long to wait before it is followed (RFC 9110 10.2.3).
///
/// # Errors
/// That is longer than is sat out, or the agent is told to stop.
pub(super) fn pause_before_redirect(
    wait: &Wait,
    span: Duration,
    from: &Url,
) -> Result<(), Failure> {
    if span > SAT_OUT {
        let plea = Plea::RetryAfter;
        return Err(throttled(Pause { span, plea }).at(shown(from)));
    }
    let until = wait.now().after(span);
    wait.pause_until(until).map_err(|_| stopped())
}

fn stopped() -> Failure {
    Failure::new(Kind::Stopped, "stopped")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::clock::{Clock, FakeClock};

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn pause(span: u64, plea: Plea) -> Manners {
        Manners {
            pause: Some(Pause {
                span: seconds(span),
                plea,
            }),
            ..Manners::default()
        }
    }

    /// A wait over a fake clock, and how much later it is after a turn at `url`.
    struct Scene(Arc<FakeClock>, Wait);

    impl Scene {
        fn new() -> Self {
            let clock = Arc::new(FakeClock::at("2026-11-30T18:00:00Z".parse().unwrap()));
            let wait = Wait::new(clock.clone() as Arc<dyn Clock>).unwrap();
            Self(clock, wait)
        }

        fn ask(&self, turn: &mut Turn, url: &str) -> Result<u64, Failure> {
            let home = Url::parse("https://a.example/api/").unwrap();
            let before = self.1.now();
            turn.wait_for(&self.1, &home, &Url::parse(url).unwrap())?;
            Ok(self.1.now().since(before).as_secs())
        }
    }

    const OURS: &str = "https://a.example/api/items";

    #[test]
    fn requests_start_no_sooner_than_the_interval_says() {
        let scene = Scene::new();
        let mut turn = Turn::new(seconds(10));
        assert_eq!(scene.ask(&mut turn, OURS).unwrap(), 0, "the first is free");
        scene.0.advance(seconds(4));
        assert_eq!(scene.ask(&mut turn, OURS).unwrap(), 6);
        assert_eq!(scene.ask(&mut turn, OURS).unwrap(), 10);
        scene.0.advance(seconds(60));
        assert_eq!(scene.ask(&mut turn, OURS).unwrap(), 0);
        assert_eq!(scene.ask(&mut turn, "https://b.example/").unwrap(), 0);
    }

    #[test]
    fn a_short_pause_is_sat_out_and_a_long_one_is_not() {
        let scene = Scene::new();
        let mut turn = Turn::new(seconds(1));
        turn.heed(pause(30, Plea::Spent), scene.1.now());
        turn.heed(pause(5, Plea::Backoff), scene.1.now());
        assert_eq!(
            scene.ask(&mut turn, OURS).unwrap(),
            30,
            "the longer one stands"
        );
        turn.heed(pause(31, Plea::Spent), scene.1.now());
        let failure = scene.ask(&mut turn, OURS).unwrap_err();
        assert_eq!(failure.kind, Kind::Throttled);
        assert_eq!(failure.retry_after, Some(seconds(31)));
        assert_eq!(
            failure.reason,
            "https://a.example/api/items: the upstream allows no further request until its limit is reset, 31 s are left (name the source to ask all the same)"
        );
        scene.0.set_wall("2041-01-01T00:00:00Z".parse().unwrap());
        assert!(
            scene.ask(&mut turn, OURS).is_err(),
            "by the monotonic clock"
        );
        turn.insist();
        assert_eq!(scene.ask(&mut turn, OURS).unwrap(), 1);
    }

    #[test]
    fn what_was_told_is_taken_once() {
        let mut turn = Turn::new(Duration::ZERO);
        let told = |interval, alert: Option<&str>| Manners {
            poll_interval: Some(seconds(interval)),
            alert: alert.map(str::to_owned),
            ..Manners::default()
        };
        turn.heed(told(60, Some("soon")), Mono::BOOT);
        turn.heed(told(30, None), Mono::BOOT);
        assert_eq!(turn.take_poll_interval(), Some(seconds(60)));
        assert_eq!(turn.take_alert().as_deref(), Some("soon"));
        assert_eq!((turn.take_poll_interval(), turn.take_alert()), (None, None));
    }
}
