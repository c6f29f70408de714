//! A feed of records with update times, for tests that dress it as one API or another.
//!
//! ```ignore
//! let feed = Feed::of(&gateway);
//! feed.put(1, "a");
//! feed.serve(&upstream, |feed, query| Answer::ok().json(feed.list(&feed.since(query.get("since")))));
//! gateway.sync();
//! feed.assert_equal(&gateway);
//! ```

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use gleaner::clock::{Clock as _, FakeClock, Timestamp};

use super::agent::Gateway;
use super::answer::{Answer, Request};
use super::upstream::Upstream;
use super::world::http_date;

/// One record upstream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub id: u32,
    pub value: String,
    /// In seconds since 1970.
    pub updated: i64,
    pub gone: bool,
}

impl Entry {
    /// Its update time as RFC 3339 writes it.
    pub fn time(&self) -> Timestamp {
        Timestamp::from_second(self.updated).unwrap()
    }
}

/// The parameters of a request, decoded.
pub struct Query(BTreeMap<String, String>);

impl Query {
    pub fn of(request: &Request) -> Self {
        let url = url::Url::parse(&format!("http://upstream{}", request.target)).unwrap();
        Self(url.query_pairs().into_owned().collect())
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    pub fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    pub fn number(&self, name: &str) -> Option<usize> {
        self.get(name).map(|text| text.parse().unwrap())
    }

    /// An instant as RFC 3339 writes it.
    pub fn instant(&self, name: &str) -> Option<i64> {
        let text = self.get(name)?;
        let time: Timestamp = text.parse().unwrap_or_else(|_| panic!("{text}"));
        Some(time.as_second())
    }
}

type Meanwhile = Box<dyn FnMut(&Feed, usize) + Send>;

/// The upstream's side of a test; its time is the test's clock.
#[derive(Clone)]
pub struct Feed {
    entries: Arc<Mutex<BTreeMap<u32, Entry>>>,
    clock: Arc<FakeClock>,
    /// Called before each request with its number, from 0.
    meanwhile: Arc<Mutex<Option<Meanwhile>>>,
    /// The next page that asks is of the other order.
    flip: Arc<Mutex<bool>>,
}

impl Feed {
    pub fn of(gateway: &Gateway) -> Self {
        Self {
            entries: Arc::default(),
            clock: Arc::clone(&gateway.clock),
            meanwhile: Arc::default(),
            flip: Arc::default(),
        }
    }

    fn entries(&self) -> MutexGuard<'_, BTreeMap<u32, Entry>> {
        self.entries.lock().unwrap()
    }

    pub fn now(&self) -> i64 {
        self.clock.wall().as_second()
    }

    /// A record that is updated so many seconds from now; before, if negative.
    pub fn put_at(&self, id: u32, value: &str, seconds: i64) {
        let entry = Entry {
            id,
            value: value.to_owned(),
            updated: self.now() + seconds,
            gone: false,
        };
        self.entries().insert(id, entry);
    }

    pub fn put(&self, id: u32, value: &str) {
        self.put_at(id, value, 0);
    }

    /// So many records, a minute apart, the last one a day ago.
    pub fn fill(&self, count: u32) {
        for id in 1..=count {
            self.put_at(id, "first", -86_400 - 60 * i64::from(count - id));
        }
    }

    /// Deletes a record; its tombstone is updated now.
    pub fn delete(&self, id: u32) {
        let now = self.now();
        let mut entries = self.entries();
        let entry = entries.get_mut(&id).unwrap();
        (entry.gone, entry.updated) = (true, now);
    }

    /// Upstream no longer has what was updated more than so many seconds (negative) from now.
    pub fn forget_before(&self, seconds: i64) {
        let now = self.now();
        self.entries()
            .retain(|_, entry| entry.updated >= now + seconds);
    }

    /// What was updated since then, tombstones included, the oldest update first.
    pub fn since(&self, since: Option<i64>) -> Vec<Entry> {
        let mut list: Vec<Entry> = self
            .entries()
            .values()
            .filter(|entry| since.is_none_or(|since| entry.updated >= since))
            .cloned()
            .collect();
        list.sort_by_key(|entry| (entry.updated, entry.id));
        list
    }

    /// The next that asks by [`Feed::flips`] is told so.
    pub fn flip_once(&self) {
        *self.flip.lock().unwrap() = true;
    }

    pub fn flips(&self) -> bool {
        std::mem::take(&mut *self.flip.lock().unwrap())
    }

    /// Happens before the requests, which are counted from 0.
    pub fn meanwhile(&self, happens: impl FnMut(&Feed, usize) + Send + 'static) {
        *self.meanwhile.lock().unwrap() = Some(Box::new(happens));
    }

    /// Answers every request so, with a `Date`.
    pub fn serve(
        &self,
        upstream: &Upstream,
        answer: impl Fn(&Feed, &Request, &Query) -> Answer + Send + Sync + 'static,
    ) {
        let feed = self.clone();
        let served = Mutex::new(0);
        upstream.answer(move |request| {
            let number = {
                let mut served = served.lock().unwrap();
                *served += 1;
                *served - 1
            };
            let happens = feed.meanwhile.lock().unwrap().take();
            if let Some(mut happens) = happens {
                happens(&feed, number);
                *feed.meanwhile.lock().unwrap() = Some(happens);
            }
            let date = http_date(feed.now());
            answer(&feed, request, &Query::of(request)).header("Date", &date)
        });
    }

    /// Every living record as it is now, and no other. Each body has its value at `/v`.
    pub fn assert_equal(&self, gateway: &Gateway) {
        let expected: BTreeMap<String, String> = self
            .entries()
            .values()
            .filter(|entry| !entry.gone)
            .map(|entry| (entry.id.to_string(), entry.value.clone()))
            .collect();
        let copy: BTreeMap<String, String> = gateway
            .rows()
            .into_iter()
            .map(|(key, body)| {
                let body: serde_json::Value = serde_json::from_str(&body).unwrap();
                (key, body["v"].as_str().unwrap().to_owned())
            })
            .collect();
        assert_eq!(copy, expected);
    }
}

/// Records as JSON, each written by `one`.
pub fn json(entries: &[Entry], one: impl Fn(&Entry) -> String) -> String {
    let all: Vec<String> = entries.iter().map(one).collect();
    format!("[{}]", all.join(","))
}

/// The part of a list that a page has.
pub fn slice(entries: &[Entry], from: usize, size: usize) -> &[Entry] {
    let from = from.min(entries.len());
    &entries[from..(from + size).min(entries.len())]
}
