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
use std::time::Duration;

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
    /// What is seen of it until then.
    pub older: Option<Box<Item>>,
}

impl Item {
    /// What is seen of it at `now`.
    pub fn seen(&self, now: i64) -> Option<&Self> {
        if self.visible <= now {
            return Some(self);
        }
        self.older.as_ref()?.seen(now)
    }
}

/// All of them.
pub type Items = BTreeMap<u32, Item>;

/// How a deletion shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tombstone {
    /// As a record that says `"deleted": true`.
    Listed,
    /// Not at all.
    Silent,
}

/// What may happen before a request: to the records, or instead of the answer.
pub type Before = Box<dyn FnMut(&mut Items, usize, &Request) -> Option<Answer> + Send>;

/// What all requests see.
pub struct State {
    pub items: Items,
    /// Records on a page.
    pub page: usize,
    /// Entity tags are sent and honoured.
    pub tags: bool,
    /// Added to the `Date` that is sent.
    pub off_by: i64,
    /// Called before each request with its number, from 0.
    pub before: Option<Before>,
    pub served: usize,
    /// Called before each request with its number, as long as it is there: whether the line is cut here. Stays out of the way of
    /// [`State::before`].
    pub line: Option<Box<dyn FnMut(usize) -> bool + Send>>,
    /// How long an answer takes: between what it shows and its `Date`.
    pub pace: Duration,
    /// How a record is written.
    pub write: fn(u32, &Item) -> String,
    /// Which record a page that goes by keys starts behind.
    pub behind: Box<dyn Fn(&str) -> u32 + Send>,
}

/// The upstream's side of a test.
#[derive(Clone)]
pub struct World {
    state: Arc<Mutex<State>>,
    clock: Arc<FakeClock>,
}

impl World {
    /// Serves `/items` at `upstream` in the time of `gateway`: by `page` or `offset`, ordered by update time. `/links` has the
    /// next page's number in a `Link` header; `/keys` goes by the records' own keys, behind `after`.
    pub fn of(upstream: &Upstream, gateway: &Gateway) -> Self {
        Self::in_time(upstream, &gateway.clock)
    }

    /// The same in the time of that clock.
    pub fn in_time(upstream: &Upstream, clock: &Arc<FakeClock>) -> Self {
        let world = Self {
            state: Arc::new(Mutex::new(State {
                items: Items::new(),
                page: 1000,
                tags: true,
                off_by: 0,
                before: None,
                served: 0,
                line: None,
                pace: Duration::ZERO,
                write: body,
                behind: Box::new(|key| key.parse().unwrap()),
            })),
            clock: Arc::clone(clock),
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

    /// Puts a record updated so many seconds from now (or before, if negative), and visible so many seconds from now; until
    /// then it is seen as it was.
    pub fn put_at(&self, id: u32, value: &str, updated: i64, visible: i64) {
        let now = self.now();
        put(
            &mut self.state().items,
            id,
            Item {
                value: value.to_owned(),
                updated: now + updated,
                visible: now + visible,
                gone: None,
                older: None,
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
        let state = self.state();
        let mut rows: Vec<(String, String)> = state
            .items
            .iter()
            .filter_map(|(id, item)| Some((*id, item.seen(now)?)))
            .filter(|(_, item)| item.gone.is_none())
            .map(|(id, item)| (id.to_string(), (state.write)(id, item)))
            .collect();
        rows.sort_by_key(|(id, _)| id.parse::<i64>().unwrap());
        rows
    }

    /// Every record that is visible and no other, each as it is now but for its update time.
    pub fn assert_equal(&self, gateway: &Gateway) {
        assert_eq!(values(&gateway.rows()), values(&self.expected()));
    }

    fn answer(&self, request: &Request) -> Answer {
        let now = self.now();
        let mut state = self.state();
        let number = state.served;
        state.served += 1;
        if state.line.as_mut().is_some_and(|line| line(number)) {
            return Answer::ok().json("[]").only(3).then_reset();
        }
        let mut before = state.before.take();
        let early = before
            .as_mut()
            .and_then(|before| before(&mut state.items, number, request));
        if state.before.is_none() {
            state.before = before;
        }
        self.clock.advance(state.pace);
        let date = http_date(self.now() + state.off_by);
        let answer = early.unwrap_or_else(|| state.listing(request, now));
        answer.header("Date", &date)
    }
}

impl State {
    fn listing(&self, request: &Request, now: i64) -> Answer {
        let since = instant(request, "since").unwrap_or(i64::MIN);
        let until = instant(request, "until").unwrap_or(i64::MAX);
        let behind = request.param("after").map(|key| (self.behind)(key));
        let mut listed: Vec<(u32, &Item)> = self
            .items
            .iter()
            .filter_map(|(id, item)| Some((*id, item.seen(now)?)))
            .filter(|(_, item)| item.gone != Some(Tombstone::Silent))
            .filter(|(_, item)| item.updated >= since && item.updated < until)
            .filter(|(id, _)| behind.is_none_or(|behind| *id > behind))
            .collect();
        if request.path() != "/keys" {
            listed.sort_by_key(|(id, item)| (item.updated, *id));
        }
        let page = number_of(request, "page");
        let offset = number_of(request, "offset")
            .or_else(|| page.map(|page| (page - 1) * self.page))
            .unwrap_or(0);
        let offset = offset.min(listed.len());
        let end = (offset + self.page).min(listed.len());
        let records: Vec<String> = listed[offset..end]
            .iter()
            .map(|(id, item)| (self.write)(*id, item))
            .collect();
        let text = format!("[{}]", records.join(","));
        let tag = format!("\"{:x}\"", hash(&text));
        let mut answer = if self.tags && request.header("if-none-match") == Some(&tag) {
            Answer::not_modified()
        } else {
            Answer::ok().json(&text)
        };
        if request.path() == "/links" && end < listed.len() {
            answer = answer.header("Link", &link(request, page.unwrap_or(1) + 1));
        }
        if self.tags { answer.etag(&tag) } else { answer }
    }
}

/// Puts a record; until it can be seen, it is seen as it was.
pub fn put(items: &mut Items, id: u32, item: Item) {
    let older = items.remove(&id).map(Box::new);
    items.insert(id, Item { older, ..item });
}

/// The way to a page of that number.
fn link(request: &Request, page: usize) -> String {
    let query = request
        .target
        .split_once('?')
        .map_or("", |(_, query)| query);
    let others: String = query
        .split('&')
        .filter(|pair| !pair.is_empty() && !pair.starts_with("page="))
        .map(|pair| format!("{pair}&"))
        .collect();
    format!("</links?{others}page={page}>; rel=\"next\"")
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

/// The ways through its pages, as a source is told of them.
pub const STYLES: [(&str, &str); 4] = [
    (
        "offset",
        "pages = { offset = \"offset\", size = { param = \"limit\", value = 5 } }\n",
    ),
    ("page number", "pages = { page = \"page\" }\n"),
    ("link", "path = \"links\"\npages = \"link\"\n"),
    (
        "last key",
        "path = \"keys\"\npages = { last_key = \"/id\", param = \"after\" }\n",
    ),
];

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
