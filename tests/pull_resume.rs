//! Promise: a full pass over many records is made in as many pieces as it takes. It goes on where it was cut, across restarts,
//! as the full pass that it is, and what it keeps meanwhile is small.
//!
//! `cargo test --test pull_resume -- --ignored --nocapture` does it with a million records.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot be set up has failed"
)]

mod support;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gleaner::agent::Order;
use gleaner::clock::Clock;
use support::agent::Gateway;
use support::upstream::{Answer, Request, Upstream};
use support::world::http_date;

/// What the store may keep of a full pass of a million records.
const MOST_STATE: u64 = 256 * 1024;

/// Many records, made as they are asked for.
struct Many {
    count: u64,
    page: u64,
    /// Records that are gone, and those that were edited, without a word.
    gone: BTreeSet<u64>,
    edited: BTreeSet<u64>,
    /// Pages until the line is cut.
    left: Option<u64>,
    /// First records of the pages that were asked for in full passes.
    asked: Vec<u64>,
}

impl Many {
    fn answer(&mut self, request: &Request) -> Answer {
        if request.param("since").is_some() {
            return Answer::ok().json("[]");
        }
        let number = |name| request.param(name).map(|text| text.parse::<u64>().unwrap());
        let offset = number("offset");
        let first = number("after").map(|id| id + 1).or(offset).unwrap_or(0);
        self.asked.push(first);
        if let Some(left) = &mut self.left {
            if *left == 0 {
                return Answer::ok().json("[{\"id\":").only(40).then_reset();
            }
            *left -= 1;
        }
        let mut start = first;
        if offset.is_some() {
            // What stands behind records that are gone has moved up.
            for gone in &self.gone {
                start += u64::from(*gone <= start);
            }
        }
        let records: Vec<String> = (start..self.count)
            .filter(|id| !self.gone.contains(id))
            .take(usize::try_from(self.page).unwrap())
            .map(|id| {
                let value = u8::from(self.edited.contains(&id));
                format!("{{\"id\":{id},\"v\":{value},\"updated\":\"2098-01-01T00:00:00Z\"}}")
            })
            .collect();
        Answer::ok().json(format!("[{}]", records.join(",")))
    }
}

/// What came of it.
struct Figures {
    /// What the store kept of the pass at most, in bytes.
    state: u64,
    /// Pages that were asked for although an earlier piece had had them.
    twice: u64,
    /// Pages that the last piece asked for.
    pages: u64,
}

/// A full pass that is cut so often, each time behind a few pages more, with a new process each time.
fn interrupted(pages: &str, count: u64, cuts: u64) -> Figures {
    let upstream = Upstream::start();
    let mut gateway = Gateway::of(&upstream)
        .source(&format!(
            "pull = {{ window = {{ field = \"/updated\", since = \"since\" }} }}\n{pages}"
        ))
        .start();
    let many = Arc::new(Mutex::new(Many {
        count,
        page: count / 200,
        gone: BTreeSet::new(),
        edited: BTreeSet::new(),
        left: None,
        asked: Vec::new(),
    }));
    let (served, clock) = (Arc::clone(&many), Arc::clone(&gateway.clock));
    upstream.answer(move |request| {
        // A thin link.
        clock.advance(Duration::from_secs(45));
        let answer = served.lock().unwrap().answer(request);
        answer.header("Date", &http_date(clock.wall().as_second()))
    });
    assert_eq!(gateway.sync().tally.added, count);
    {
        let mut many = many.lock().unwrap();
        many.gone = (7..count)
            .step_by(usize::try_from(count / 10).unwrap())
            .collect();
        many.edited = (11..count)
            .step_by(usize::try_from(count / 10).unwrap())
            .collect();
        many.asked.clear();
    }
    let full = Order {
        full: true,
        insist: true,
        ..Order::default()
    };
    let mut state = 0;
    let mut asked: BTreeSet<u64> = BTreeSet::new();
    let mut twice = 0;
    for cut in 0..cuts {
        many.lock().unwrap().left = Some(200 / (cuts + 1) + 8);
        // Ordered once: behind that any pull goes on with it.
        let order = if cut == 0 {
            full
        } else {
            Order {
                full: false,
                ..full
            }
        };
        let report = gateway.order(order);
        assert!(!report.outcome.is_complete(), "{report}");
        assert_eq!(report.resumed, cut > 0, "{report}");
        gateway.stop();
        state = state.max(gateway.pass_state());
        gateway.restart();
        gateway.clock.advance(Duration::from_secs(36_000));
        for first in std::mem::take(&mut many.lock().unwrap().asked) {
            twice += u64::from(!asked.insert(first));
        }
    }
    many.lock().unwrap().left = None;
    let report = gateway.sync();
    assert!(report.outcome.is_complete(), "{report}");
    let asked_last = std::mem::take(&mut many.lock().unwrap().asked);
    let course = gateway.status().course.unwrap();
    let drift = course.drift.last().unwrap();
    assert_eq!((drift.added, drift.deleted), (0, 10), "{report}");
    let gone = &many.lock().unwrap().gone;
    let values = gateway.query("SELECT count(*), sum(json_extract(body, '$.v')) FROM items");
    assert_eq!(
        values,
        [[(count - 10).to_string(), "10".into()]],
        "{gone:?}"
    );
    gateway.stop();
    assert_eq!(gateway.pass_state(), 0, "nothing is left of it");
    Figures {
        state,
        twice,
        pages: asked_last.len() as u64,
    }
}

const BY_KEY: &str = "pages = { last_key = \"/id\", param = \"after\" }";
const BY_OFFSET: &str = "pages = { offset = \"offset\", size = { param = \"limit\", value = 5 } }";

#[test]
fn a_full_pass_goes_on_where_it_was_cut_however_often() {
    for (pages, rest) in [(BY_KEY, 50), (BY_OFFSET, 3 * 201 + 50)] {
        let figures = interrupted(pages, 20_000, 4);
        // A checkpoint is 15 minutes: what had come since then comes again.
        assert!(
            figures.twice <= 4 * 21,
            "{pages}: {} pages twice",
            figures.twice
        );
        assert!(
            figures.pages <= rest,
            "{pages}: {} pages at last",
            figures.pages
        );
        assert!(
            figures.state <= MOST_STATE / 50 + 4096,
            "{pages}: {} B",
            figures.state
        );
    }
}

#[test]
#[ignore = "takes minutes: cargo test --test pull_resume -- --ignored --nocapture"]
fn a_full_pass_of_a_million_records_keeps_little() {
    let figures = interrupted(BY_KEY, 1_000_000, 4);
    println!(
        "a full pass of a million records, cut 4 times: {} B of state, {} of 200 pages asked for twice",
        figures.state, figures.twice
    );
    assert!(figures.state <= MOST_STATE, "{} B", figures.state);
}
