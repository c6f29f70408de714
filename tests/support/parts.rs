//! An upstream with a memory: a list of parts in pages, with entity tags made from the content, so that a list that goes
//! back to what it was answers 304 to who held that.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Arc, Mutex};

use super::device::Row;
use super::dice::Dice;
use super::upstream::{Answer, Request, Upstream};

/// A part upstream: its body, or a tombstone.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Living(String),
    Gone,
}

/// A list as it stands at one time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct List(BTreeMap<u64, Part>);

/// The upstream.
pub struct Parts {
    pub upstream: Upstream,
    list: Arc<Mutex<List>>,
    /// Each body that a key ever had.
    history: HashMap<i64, HashSet<String>>,
    next_key: u64,
    revision: u64,
}

impl Parts {
    /// Serves `count` parts at `/parts`, this many a page.
    pub fn start(count: u64, page: usize) -> Self {
        let upstream = Upstream::start();
        let list = Arc::new(Mutex::new(List::default()));
        let served = Arc::clone(&list);
        upstream.answer(move |request| answer(request, &served.lock().unwrap(), page));
        let mut parts = Self {
            upstream,
            list,
            history: HashMap::new(),
            next_key: 1,
            revision: 0,
        };
        parts.edit(|parts, list| (0..count).for_each(|_| parts.insert(list)));
        parts
    }

    /// How it stands.
    pub fn list(&self) -> List {
        self.list.lock().unwrap().clone()
    }

    /// Goes back to how it stood.
    pub fn go_back(&self, list: List) {
        *self.list.lock().unwrap() = list;
    }

    fn edit(&mut self, change: impl FnOnce(&mut Self, &mut List)) {
        let mut list = self.list();
        change(self, &mut list);
        for (key, part) in &list.0 {
            if let Part::Living(body) = part {
                let key = i64::try_from(*key).unwrap();
                self.history.entry(key).or_default().insert(body.clone());
            }
        }
        *self.list.lock().unwrap() = list;
    }

    fn insert(&mut self, list: &mut List) {
        let key = self.next_key;
        self.next_key += 1;
        self.rewrite(list, key);
    }

    fn rewrite(&mut self, list: &mut List, key: u64) {
        self.revision += 1;
        let pad = "·".repeat(usize::try_from(self.revision % 40).unwrap());
        let body = format!(
            "{{\"id\": {key}, \"name\":\"part {key}\",\"rev\":{},\"pad\":\"{pad}\"}}",
            self.revision
        );
        list.0.insert(key, Part::Living(body));
    }

    /// Rewrites all parts.
    pub fn rewrite_all(&mut self) {
        self.edit(|parts, list| {
            let keys: Vec<u64> = list.0.keys().copied().collect();
            keys.iter().for_each(|key| parts.rewrite(list, *key));
        });
    }

    /// Rewrites so many parts, spread over the list.
    pub fn rewrite_of(&mut self, count: usize) {
        self.edit(|parts, list| {
            let keys: Vec<u64> = list.0.keys().copied().collect();
            let spread = keys.iter().step_by((keys.len() / count).max(1));
            spread.take(count).for_each(|key| parts.rewrite(list, *key));
        });
    }

    /// Rewrites every other part, and the last ones of the list are gone.
    pub fn rewrite_some_and_lose_the_last(&mut self, lost: usize) {
        self.edit(|parts, list| {
            let keys: Vec<u64> = list.0.keys().copied().collect();
            keys.iter()
                .step_by(2)
                .for_each(|key| parts.rewrite(list, *key));
            keys.iter()
                .rev()
                .take(lost)
                .for_each(|key| drop(list.0.remove(key)));
        });
    }

    /// Adds parts at the end of the list.
    pub fn add(&mut self, count: u64) {
        self.edit(|parts, list| (0..count).for_each(|_| parts.insert(list)));
    }

    /// Something happens: changes, tombstones, a few deletions and insertions, now and then all is rewritten.
    pub fn live_on(&mut self, dice: &mut Dice) {
        if dice.once_in(6) {
            self.rewrite_all();
        }
        self.edit(|parts, list| {
            let keys: Vec<u64> = list.0.keys().copied().collect();
            let any =
                |dice: &mut Dice| keys[usize::try_from(dice.below(keys.len() as u64)).unwrap()];
            for _ in 0..dice.below(40) {
                let key = any(dice);
                parts.rewrite(list, key);
            }
            for _ in 0..dice.below(4) {
                let key = any(dice);
                list.0.insert(key, Part::Gone);
            }
            for _ in 0..dice.below(6) {
                let key = any(dice);
                list.0.remove(&key);
            }
            for _ in 0..dice.below(8) {
                parts.insert(list);
            }
        });
    }

    /// Some that are gone come back, with the body that they had once or a new one.
    pub fn reinsert(&mut self, dice: &mut Dice) {
        let gone: Vec<u64> = (1..self.next_key)
            .filter(|key| !matches!(self.list().0.get(key), Some(Part::Living(_))))
            .collect();
        if gone.is_empty() {
            return;
        }
        let key = gone[usize::try_from(dice.below(gone.len() as u64)).unwrap()];
        let old = self
            .history
            .get(&i64::try_from(key).unwrap())
            .and_then(|bodies| bodies.iter().next().cloned())
            .filter(|_| dice.once_in(2));
        self.edit(|parts, list| match old {
            Some(body) => drop(list.0.insert(key, Part::Living(body))),
            None => parts.rewrite(list, key),
        });
    }

    /// What a table must hold: keys and bodies.
    pub fn expected(&self) -> Vec<(i64, String)> {
        self.list()
            .0
            .iter()
            .filter_map(|(key, part)| match part {
                Part::Living(body) => Some((i64::try_from(*key).unwrap(), body.clone())),
                Part::Gone => None,
            })
            .collect()
    }

    /// A row that is no version that its part ever had, if there is one.
    pub fn half_row<'a>(&self, rows: &'a [Row]) -> Option<&'a Row> {
        rows.iter().find(|row| {
            !self
                .history
                .get(&row.key)
                .is_some_and(|bodies| bodies.contains(&row.body))
        })
    }

    /// The config of a source at this list, with further lines.
    pub fn source(&self, name: &str, lines: &str) -> String {
        let url = self.upstream.url("/parts");
        format!(
            "[source.{name}]\nurl = \"{url}\"\nproxy = \"\"\nrecords = \"/items\"\nkey = \"/id\"\ndeleted = \"/gone\"\n\
             pages = {{ next = \"/next\" }}\n{lines}\n"
        )
    }
}

fn answer(request: &Request, list: &List, size: usize) -> Answer {
    let page: usize = request
        .param("page")
        .map_or(0, |text| text.parse().unwrap());
    let items: Vec<String> = list
        .0
        .iter()
        .skip(page * size)
        .take(size)
        .map(|(key, part)| match part {
            Part::Living(body) => body.clone(),
            Part::Gone => format!("{{\"id\":{key},\"gone\":true}}"),
        })
        .collect();
    let next = if (page + 1) * size < list.0.len() {
        format!("\"/parts?page={}\"", page + 1)
    } else {
        "null".into()
    };
    let body = format!("{{\"items\":[{}],\"next\":{next}}}", items.join(",\n"));
    let mut hash = DefaultHasher::new();
    body.hash(&mut hash);
    let tag = format!("\"{:016x}\"", hash.finish());
    if request.header("if-none-match") == Some(&tag) {
        Answer::not_modified().etag(&tag)
    } else {
        Answer::ok().etag(&tag).json(body)
    }
}

/// Whether rows are exactly these.
pub fn same(rows: &[Row], expected: &[(i64, String)]) -> Result<(), String> {
    let have: BTreeMap<i64, &str> = rows
        .iter()
        .map(|row| (row.key, row.body.as_str()))
        .collect();
    let want: BTreeMap<i64, &str> = expected
        .iter()
        .map(|(key, body)| (*key, body.as_str()))
        .collect();
    if have.len() != rows.len() {
        return Err("a key stands twice".into());
    }
    let keys: HashSet<i64> = have.keys().chain(want.keys()).copied().collect();
    let wrong: Vec<String> = keys
        .iter()
        .filter(|key| have.get(key) != want.get(key))
        .map(|key| format!("{key}: {:?} instead of {:?}", have.get(key), want.get(key)))
        .collect();
    if wrong.is_empty() {
        Ok(())
    } else {
        Err(format!(
            "{} of {}: {}",
            wrong.len(),
            want.len(),
            wrong[..wrong.len().min(5)].join("\n")
        ))
    }
}
