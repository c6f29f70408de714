//! An upstream whose listings a test sets, and what followers were told of them.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use serde_json::Value;

use super::upstream::{Answer, Upstream};

/// Listings by path: `/items`, and others.
#[derive(Clone)]
pub struct Shelf {
    pub upstream: Arc<Upstream>,
    bodies: Arc<Mutex<BTreeMap<String, String>>>,
}

impl Shelf {
    pub fn start() -> Self {
        let upstream = Arc::new(Upstream::start());
        let bodies: Arc<Mutex<BTreeMap<String, String>>> = Arc::default();
        let shown = Arc::clone(&bodies);
        upstream.answer(move |request| {
            let bodies = shown.lock().unwrap();
            let body = bodies.get(request.path()).map_or("[]", String::as_str);
            Answer::ok().json(body)
        });
        Self { upstream, bodies }
    }

    /// `/items` has these records `{"id":N,"v":V}`.
    pub fn put(&self, records: &[(u32, u32)]) {
        self.put_at("/items", records);
    }

    pub fn put_at(&self, path: &str, records: &[(u32, u32)]) {
        let all: Vec<String> = records
            .iter()
            .map(|(id, version)| format!("{{\"id\":{id},\"v\":{version}}}"))
            .collect();
        self.say(path, &format!("[{}]", all.join(",")));
    }

    pub fn say(&self, path: &str, body: &str) {
        let mut bodies = self.bodies.lock().unwrap();
        bodies.insert(path.to_owned(), body.to_owned());
    }

    pub fn asked(&self) -> usize {
        self.upstream.requests().len()
    }
}

/// Lines of a file as `seq op key v`; none if it is not there.
pub fn told(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().map(short).collect()
}

/// One line as `seq op key v`.
pub fn short(line: &str) -> String {
    let line: Value = serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"));
    let version = line.pointer("/body/v").map(Value::to_string);
    let words = [
        Some(line["seq"].to_string()),
        line["op"].as_str().map(str::to_owned),
        Some(line["key"].to_string()),
        version,
    ];
    words.into_iter().flatten().collect::<Vec<_>>().join(" ")
}
