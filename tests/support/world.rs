//! A simulated upstream: records that become visible late, are edited with and without touching their update time, vanish
//! with and without a tombstone, in pages that move while they are read. Its time is the test's clock.
//!
//! ```ignore
//! let world = World::of(&upstream, &gateway);
//! world.put(1, "a").updated(-3600).visible_in(7200);
//! assert_eq!(gateway.sync().tally.added, 0);
//! gateway.clock.advance(Duration::from_secs(7200));
//! assert_eq!(gateway.sync().tally.added, 1);
//! world.assert_equal(&gateway);
//! ```

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use gleaner::clock::{Clock, FakeClock, Timestamp};

use super::agent::Gateway;
use super::answer::{Answer, Request};
use super::upstream::Upstream;

/// One record upstream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    pub value: String,
    /// Its update time, in seconds since 1970.
    pub updated: i64,
    /// From when on it can be seen.
    pub visible: i64,
    /// It is gone, and whether listings say so.
    pub gone: Option<Tombstone>,
}

/// How a deletion shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tombstone {
    /// As a record that says `"deleted": true`.
    Listed,
    /// Not at all.
    Silent,
}

/// What all requests see.
pub struct State {
    pub items: BTreeMap<u32, Item>,
    /// Records on a page.
    pub page: usize,
    /// Entity tags are sent and honoured.
    pub tags: bool,
    /// Added to the `Date` that is sent.
    pub off_by: i64,
    /// Called before each request with its number, from 0.
    #[allow(clippy::type_complexity, reason = "a test's own hook")]
    pub before:
        Option<Box<dyn FnMut(&mut BTreeMap<u32, Item>, usize, &Request) -> Option<Answer> + Send>>,
    pub served: usize,
}

/// The upstream's side of a test.
#[derive(Clone)]
pub struct World {
    state: Arc<Mutex<State>>,
    clock: Arc<FakeClock>,
}

impl World {
    /// Serves `/items` at `upstream` in the time of `gateway`.
    pub fn of(upstream: &Upstream, gateway: &Gateway) -> Self {
        let world = Self {
            state: Arc::new(Mutex::new(State {
                items: BTreeMap::new(),
                page: 1000,
                tags: true,
                off_by: 0,
                before: None,
                served: 0,
            })),
            clock: Arc::clone(&gateway.clock),
        };
        let served = world.clone();
        upstream.answer(move |request| served.answer(request));
        world
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// The time upstream, in seconds since 1970.
    pub fn now(&self) -> i64 {
        self.clock.wall().as_second()
    }

    /// Puts a record that is updated and visible now.
    pub fn put(&self, id: u32, value: &str) {
        self.put_at(id, value, 0, 0);
    }

    /// Puts a record updated so many seconds from now (or before, if negative), and visible so many seconds from now.
    pub fn put_at(&self, id: u32, value: &str, updated: i64, visible: i64) {
        let now = self.now();
        self.state().items.insert(
            id,
            Item {
                value: value.to_owned(),
                updated: now + updated,
                visible: now + visible,
                gone: None,
            },
        );
    }

    /// Changes a record without touching its update time.
    pub fn edit(&self, id: u32, value: &str) {
        if let Some(item) = self.state().items.get_mut(&id) {
            item.value = value.to_owned();
        }
    }

    pub fn delete(&self, id: u32, tombstone: Tombstone) {
        let now = self.now();
        if let Some(item) = self.state().items.get_mut(&id) {
            item.gone = Some(tombstone);
            item.updated = now;
            item.visible = now;
        }
    }

    /// What a local copy should hold now.
    pub fn expected(&self) -> Vec<(String, String)> {
        let now = self.now();
        let mut rows: Vec<(String, String)> = self
            .state()
            .items
            .iter()
            .filter(|(_, item)| item.visible <= now && item.gone.is_none())
            .map(|(id, item)| (id.to_string(), body(*id, item)))
            .collect();
        rows.sort_by_key(|(id, _)| id.parse::<i64>().unwrap());
        rows
    }

    /// Every record that is visible and no other, each as it is now but for its update time.
    pub fn assert_equal(&self, gateway: &Gateway) {
        assert_eq!(values(&gateway.rows()), values(&self.expected()));
    }

    /// As [`World::of`] answers, with the next page's number in a `Link` header.
    pub fn linked(&self, request: &Request) -> Answer {
        let page = number_of(request, "page").unwrap_or(1);
        let mut numbered = request.clone();
        if request.param("page").is_none() {
            let glue = if request.target.contains('?') {
                "&"
            } else {
                "?"
            };
            numbered.target = format!("{}{glue}page=1", request.target);
        }
        let answer = self.answer(&numbered);
        let state = self.state();
        if page * state.page >= state.items.len() {
            return answer;
        }
        let query = request
            .target
            .split_once('?')
            .map_or("", |(_, query)| query);
        let others: String = query
            .split('&')
            .filter(|pair| !pair.is_empty() && !pair.starts_with("page="))
            .map(|pair| format!("{pair}&"))
            .collect();
        answer.header(
            "Link",
            &format!("</items?{others}page={}>; rel=\"next\"", page + 1),
        )
    }

    fn answer(&self, request: &Request) -> Answer {
        let now = self.now();
        let mut state = self.state();
        let number = state.served;
        state.served += 1;
        let mut before = state.before.take();
        let early = before
            .as_mut()
            .and_then(|before| before(&mut state.items, number, request));
        if state.before.is_none() {
            state.before = before;
        }
        let date = http_date(now + state.off_by);
        if let Some(answer) = early {
            return answer.header("Date", &date);
        }
        let since = instant(request, "since").unwrap_or(i64::MIN);
        let until = instant(request, "until").unwrap_or(i64::MAX);
        let mut listed: Vec<(u32, &Item)> = state
            .items
            .iter()
            .filter(|(_, item)| item.visible <= now && item.gone != Some(Tombstone::Silent))
            .filter(|(_, item)| item.updated >= since && item.updated < until)
            .map(|(id, item)| (*id, item))
            .collect();
        listed.sort_by_key(|(id, item)| (item.updated, *id));
        let offset = number_of(request, "offset")
            .or_else(|| number_of(request, "page").map(|page| (page - 1) * state.page));
        let offset = offset.unwrap_or(0).min(listed.len());
        let end = (offset + state.page).min(listed.len());
        let page: Vec<String> = listed[offset..end]
            .iter()
            .map(|(id, item)| body(*id, item))
            .collect();
        let text = format!("[{}]", page.join(","));
        let tag = format!("\"{:x}\"", hash(&text));
        let answer = if state.tags && request.header("if-none-match") == Some(&tag) {
            Answer::not_modified()
        } else {
            Answer::ok().json(&text)
        };
        let answer = answer.header("Date", &date);
        if state.tags {
            answer.etag(&tag)
        } else {
            answer
        }
    }
}

fn body(id: u32, item: &Item) -> String {
    let updated = Timestamp::from_second(item.updated).unwrap();
    let deleted = if item.gone.is_some() {
        ",\"deleted\":true"
    } else {
        ""
    };
    format!(
        "{{\"id\":{id},\"v\":\"{}\",\"updated\":\"{updated}\"{deleted}}}",
        item.value
    )
}

/// Keys and values, without update times: touching those alone is no change.
fn values(rows: &[(String, String)]) -> Vec<(String, String)> {
    rows.iter()
        .map(|(key, body)| {
            let value: serde_json::Value = serde_json::from_str(body).unwrap();
            (key.clone(), value["v"].as_str().unwrap().to_owned())
        })
        .collect()
}

fn instant(request: &Request, name: &str) -> Option<i64> {
    let text = request.param(name)?.replace("%3A", ":").replace("%2B", "+");
    Some(
        text.parse::<Timestamp>()
            .unwrap_or_else(|_| panic!("{text}"))
            .as_second(),
    )
}

fn number_of(request: &Request, name: &str) -> Option<usize> {
    Some(request.param(name)?.parse().unwrap())
}

/// RFC 9110 5.6.7.
pub fn http_date(seconds: i64) -> String {
    let time = Timestamp::from_second(seconds).unwrap();
    let civil = jiff::tz::Offset::UTC.to_datetime(time);
    let days = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
    let months = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let day = days[usize::try_from(civil.weekday().to_monday_zero_offset()).unwrap()];
    let month = months[usize::try_from(civil.month() - 1).unwrap()];
    format!(
        "{day}, {:02} {month} {:04} {:02}:{:02}:{:02} GMT",
        civil.day(),
        civil.year(),
        civil.hour(),
        civil.minute(),
        civil.second()
    )
}

fn hash(text: &str) -> u64 {
    let mut hasher = std::hash::DefaultHasher::new();
    std::hash::Hasher::write(&mut hasher, text.as_bytes());
    std::hash::Hasher::finish(&hasher)
}
