//! What an operator should know about how a source is pulled: lateness that is too small, drift, a way of pulling that fits
//! better. Pure.

use std::time::Duration;

use super::progress::{BUCKETS, Progress};
use crate::config::value::print_duration;
use crate::config::{Pull, Source};

/// A full pass that takes longer is worth avoiding …
const SLOW: Duration = Duration::from_secs(3600);
/// … and one that takes less is not.
const FAST: Duration = Duration::from_secs(300);
/// Records of which one tells nothing yet about the others.
const ENOUGH: u64 = 20;

/// What to say, one sentence each. `full_took`: how long the last full pass took.
#[must_use]
pub fn advice(
    source: &Source,
    progress: Option<&Progress>,
    full_took: Option<Duration>,
) -> Vec<String> {
    let mut advice = Vec::new();
    let took = progress
        .and_then(|progress| progress.full_took)
        .or(full_took);
    match (&source.pull, took) {
        (Pull::Snapshot, Some(took)) if took > SLOW => advice.push(format!(
            "a full pass takes {}: if the API can be asked for what changed, `pull = {{ window = … }}` is faster",
            rounded(took)
        )),
        (Pull::Window(_), Some(took)) if took < FAST => advice.push(format!(
            "a full pass takes only {}: `pull = \"snapshot\"` would do, and misses nothing between two reconciles",
            rounded(took)
        )),
        _ => {}
    }
    let Some(progress) = progress else {
        return advice;
    };
    if let Pull::Window(window) = &source.pull {
        let (records, least) = latest(progress);
        if records >= ENOUGH && least >= window.lateness / 2 {
            advice.push(format!(
                "records became visible {} or more after their update time, and `lateness` is {}: {} would be safe",
                print_duration(least),
                print_duration(window.lateness),
                print_duration(least.saturating_mul(4))
            ));
        }
    }
    if let Some(drift) = progress.drift.last().filter(|drift| drift.sum() > 0) {
        advice.push(format!(
            "the reconcile of {} found {} records that had been missed ({} new, {} changed, {} gone){}",
            drift.at,
            drift.sum(),
            drift.added,
            drift.changed,
            drift.deleted,
            hint(source, drift.added + drift.changed)
        ));
    }
    advice
}

fn hint(source: &Source, missed: u64) -> &'static str {
    match &source.pull {
        Pull::Window(_) if missed > 0 => {
            ": they came later than `lateness`, or their update time was not touched"
        }
        _ => "",
    }
}

/// How many records the histogram has, and how late the latest of them was at least.
fn latest(progress: &Progress) -> (u64, Duration) {
    let records = progress.lateness.iter().sum();
    let bucket = progress.lateness.iter().rposition(|count| *count > 0);
    let least = match bucket {
        None | Some(0) => 0,
        Some(bucket) => 1 << (bucket.min(BUCKETS) - 1),
    };
    (records, Duration::from_secs(least))
}

fn rounded(span: Duration) -> String {
    print_duration(Duration::from_secs(span.as_secs().max(1)))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::clock::Timestamp;
    use crate::pull::plan::Full;
    use crate::pull::progress::Drift;

    fn source(pull: &str) -> Source {
        let text =
            format!("[source.s]\nurl = \"https://h.example/x\"\nkey = \"/id\"\npull = {pull}\n");
        let config = crate::config::parse(&text, Path::new("g.toml"), &|_| None).unwrap();
        config.sources["s"].clone()
    }

    const WINDOW: &str = "{ window = { field = \"/u\", since = \"since\", lateness = \"6h\" } }";

    #[test]
    fn duration_decides_between_snapshot_and_window() {
        let said =
            |pull: &str, seconds| advice(&source(pull), None, Some(Duration::from_secs(seconds)));
        assert_eq!(said("\"snapshot\"", 3600), [""; 0]);
        assert!(said("\"snapshot\"", 3661)[0].contains("takes 1h1m1s"));
        assert_eq!(said(WINDOW, 300), [""; 0]);
        assert!(said(WINDOW, 0)[0].contains("only 1s: `pull = \"snapshot\"`"));
    }

    #[test]
    fn lateness_that_is_too_small_is_said_before_it_is() {
        let mut progress = Progress::default();
        for _ in 0..19 {
            progress.note_lateness(Duration::from_secs(20_000));
        }
        assert_eq!(
            advice(&source(WINDOW), Some(&progress), None),
            [""; 0],
            "too few"
        );
        progress.note_lateness(Duration::ZERO);
        let said = advice(&source(WINDOW), Some(&progress), None);
        assert_eq!(
            said,
            [
                "records became visible 4h33m4s or more after their update time, and `lateness` is 6h: 18h12m16s would be safe"
            ]
        );
        let day = WINDOW.replace("6h", "1d");
        assert_eq!(advice(&source(&day), Some(&progress), None), [""; 0]);
    }

    #[test]
    fn drift_is_said() {
        let drift = Drift {
            at: Timestamp::from_second(0).unwrap(),
            why: Full::Due,
            added: 1,
            changed: 2,
            deleted: 3,
        };
        let progress = Progress {
            drift: vec![drift],
            ..Progress::default()
        };
        let said = advice(&source(WINDOW), Some(&progress), None);
        assert!(
            said[0].contains("found 6 records") && said[0].contains("later than `lateness`"),
            "{said:?}"
        );
    }
}
