//! `get`'s memory against the public conformance tests of HTTP caches (`data/cache-tests.json`): every required one passes,
//! and what the others find otherwise than they expect is listed here with its reason, exactly.
//!
//! The clock is a fake one, and the upstream's `Date` follows it: a test that pauses moves it on.
#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot be set up has failed"
)]

mod support;

use std::collections::BTreeMap;
use std::io::Read as _;
use std::sync::{Arc, Mutex};
use std::time::{Duration, UNIX_EPOCH};

use gleaner::cache::fetch::{Fetcher, Question, Reply};
use gleaner::cache::memory::Memory;
use gleaner::clock::{Clock, FakeClock, Timestamp};
use gleaner::config::{Auth, Limits, Proxy, Roots, Upstream as Configured};
use gleaner::upstream::connect::Shared;
use gleaner::upstream::plain::Field;
use gleaner::wait::Wait;
use serde_json::Value;
use support::upstream::{Answer, Request, Upstream};
use tempfile::TempDir;
use url::Url;

const NO_HEURISTIC: &str =
    "no heuristic freshness: an answer that does not say how long it lasts is asked for again";
const MALFORMED: &str =
    "a max-age that is no number is 0: what cannot be read allows nothing (RFC 9111 4.2.1)";
const SMALLEST: &str = "of two max-age the smaller one counts (RFC 9111 4.2.1 lets it be stale)";
const FIELD_SYNTAX: &str = "values that a Vary names are compared without knowing what the field means (RFC 9111 4.1 allows it)";
const CREDENTIAL: &str =
    "a cookie that an answer hands out is a credential, and no credential stands in a file";
const WHITE_SPACE: &str =
    "white space around the = is no reason to read another number than everybody means";
const PRAGMA: &str =
    "who asks with Pragma: no-cache wants it from upstream (RFC 9111 5.4 lets a cache heed it)";
const OF_THE_BODY: &str = "an answer in a coding that was not asked for is no success and is not kept; \
    and a kept body is decoded, so a 304 changes no Content-Encoding (RFC 9111 3.2 allows that)";
const PART: &str =
    "a 200 with a Content-Range is a part sold as the whole: no success, and not kept";
const OTHER_VERSION: &str = "a 304 with another ETag than the one asked with is about a version that is not held: asked once more";

/// Tests that find something else than they expect, none of them required, and why that is so.
const DEVIATIONS: &[(&str, &str)] = &[
    ("freshness-max-age-two-fresh-stale-sameline", SMALLEST),
    ("freshness-max-age-two-fresh-stale-sepline", SMALLEST),
    ("freshness-max-age-two-stale-fresh-sameline", SMALLEST),
    ("freshness-max-age-two-stale-fresh-sepline", SMALLEST),
    ("freshness-max-age-space-before-equals", WHITE_SPACE),
    ("freshness-max-age-space-after-equals", WHITE_SPACE),
    ("freshness-max-age-decimal-zero", MALFORMED),
    ("freshness-max-age-decimal-five", MALFORMED),
    ("freshness-max-age-a100", MALFORMED),
    ("freshness-max-age-100a", MALFORMED),
    ("heuristic-200-cached", NO_HEURISTIC),
    ("heuristic-203-cached", NO_HEURISTIC),
    ("heuristic-204-cached", NO_HEURISTIC),
    ("heuristic-404-cached", NO_HEURISTIC),
    ("heuristic-405-cached", NO_HEURISTIC),
    ("heuristic-410-cached", NO_HEURISTIC),
    ("heuristic-414-cached", NO_HEURISTIC),
    ("heuristic-501-cached", NO_HEURISTIC),
    ("heuristic-599-cached", NO_HEURISTIC),
    ("heuristic-delta-5", NO_HEURISTIC),
    ("heuristic-delta-10", NO_HEURISTIC),
    ("heuristic-delta-30", NO_HEURISTIC),
    ("heuristic-delta-60", NO_HEURISTIC),
    ("heuristic-delta-300", NO_HEURISTIC),
    ("heuristic-delta-600", NO_HEURISTIC),
    ("heuristic-delta-1200", NO_HEURISTIC),
    ("heuristic-delta-1800", NO_HEURISTIC),
    ("heuristic-delta-3600", NO_HEURISTIC),
    ("heuristic-delta-43200", NO_HEURISTIC),
    ("heuristic-delta-86400", NO_HEURISTIC),
    ("pragma-response-no-cache-heuristic", NO_HEURISTIC),
    ("pragma-request-no-cache", PRAGMA),
    ("vary-normalise-lang-order", FIELD_SYNTAX),
    ("vary-normalise-lang-case", FIELD_SYNTAX),
    ("vary-normalise-lang-select", FIELD_SYNTAX),
    ("304-etag-update-response-Content-Encoding", OF_THE_BODY),
    ("304-etag-update-response-Content-Range", PART),
    ("304-etag-update-response-ETag", OTHER_VERSION),
    ("304-etag-update-response-Set-Cookie", CREDENTIAL),
    ("304-etag-update-response-Set-Cookie2", CREDENTIAL),
];

/// The body of an answer that states none.
const BODY: &str = "6c1f0f0e-5a3f-4f5e-9d0a-1b2c3d4e5f60";
/// How long a pause is.
const PAUSE: Duration = Duration::from_secs(3);

/// What the upstream knows of the test that runs.
#[derive(Default)]
struct Server {
    requests: Vec<Value>,
    /// What came, with the number that the client gave it.
    seen: Vec<(usize, Request)>,
    /// What was answered and is to reach the client, by that number.
    told: BTreeMap<usize, Vec<(String, String)>>,
}

struct Bench {
    clock: Arc<FakeClock>,
    server: Arc<Mutex<Server>>,
    upstream: Upstream,
    fetcher: Fetcher,
    _dir: TempDir,
}

impl Bench {
    fn new() -> Self {
        let clock = Arc::new(FakeClock::at("2026-11-30T12:00:00Z".parse().unwrap()));
        let server: Arc<Mutex<Server>> = Arc::default();
        let upstream = Upstream::start();
        let (asked, now) = (Arc::clone(&server), Arc::clone(&clock));
        upstream.answer(move |request| asked.lock().unwrap().answer(request, now.wall()));
        let dir = TempDir::new().unwrap();
        let memory = Memory::open(&dir.path().join("cache"), 1 << 20).unwrap();
        let configured = Configured {
            base: Url::parse(&upstream.url("/")).unwrap(),
            auth: Auth::None,
            scope: String::new(),
            headers: Vec::new(),
            extra_ca: None,
            roots: Roots::System,
            client_cert: None,
            proxy: Proxy::Direct,
            insecure_http: false,
            min_interval: Duration::ZERO,
            limits: Limits::default(),
        };
        let wait = Wait::new(clock.clone()).unwrap();
        let plain = Shared::new(wait).plain(&configured).unwrap();
        Self {
            clock,
            server,
            upstream,
            fetcher: Fetcher::new(plain, Some(memory)),
            _dir: dir,
        }
    }

    /// Runs one test: what it finds otherwise than expected.
    fn run(&mut self, test: &Value) -> Result<(), String> {
        let requests = test["requests"].as_array().unwrap();
        *self.server.lock().unwrap() = Server {
            requests: requests.clone(),
            ..Server::default()
        };
        let mut replies = Vec::new();
        for (index, request) in requests.iter().enumerate() {
            let reply = self.ask(test["id"].as_str().unwrap(), request, index + 1)?;
            check_reply(request, &reply, index + 1)?;
            replies.push(reply);
            if request["pause_after"] == true {
                self.clock.advance(PAUSE);
            }
        }
        self.server.lock().unwrap().check(requests, &replies)
    }

    fn ask(&mut self, id: &str, request: &Value, number: usize) -> Result<Read, String> {
        let query = request["query_arg"].as_str();
        let query = query.map(|query| format!("?{query}")).unwrap_or_default();
        let url = Url::parse(&self.upstream.url(&format!("/{id}{query}"))).unwrap();
        let mut fields = vec![field("req-num", &number.to_string())];
        for pair in request["request_headers"].as_array().into_iter().flatten() {
            fields.push(field(pair[0].as_str().unwrap(), pair[1].as_str().unwrap()));
        }
        let question = Question {
            url: &url,
            fields: &fields,
            view: "",
            refresh: false,
            limit: 1 << 20,
        };
        let mut reply = self
            .fetcher
            .get(&question)
            .map_err(|failure| format!("request {number}: {failure}"))?;
        let mut body = String::new();
        reply.body.read_to_string(&mut body).unwrap();
        Ok(Read { reply, body })
    }
}

/// An answer whose body was read to its end.
struct Read {
    reply: Reply,
    body: String,
}

impl Read {
    /// All lines of a field, joined.
    fn header(&self, name: &str) -> Option<String> {
        let lines: Vec<String> = self
            .reply
            .headers
            .lines(name)
            .map(|line| String::from_utf8(line.to_vec()).unwrap())
            .collect();
        (!lines.is_empty()).then(|| lines.join(", "))
    }
}

fn field(name: &str, value: &str) -> Field {
    Field {
        name: name.to_ascii_lowercase(),
        value: value.trim().as_bytes().to_vec(),
    }
}

fn check_reply(request: &Value, read: &Read, number: usize) -> Result<(), String> {
    let count: usize = read
        .header("server-request-count")
        .unwrap()
        .parse()
        .unwrap();
    match request["expected_type"].as_str() {
        Some("cached") if count >= number => {
            return Err(format!("response {number} does not come from the cache"));
        }
        Some("not_cached") if count != number => {
            return Err(format!("response {number} comes from the cache"));
        }
        _ => {}
    }
    let status = request["response_status"][0].as_u64().unwrap_or(200);
    if u64::from(read.reply.status) != status {
        return Err(format!(
            "response {number} has status {}",
            read.reply.status
        ));
    }
    let expected = request["expected_response_headers"].as_array();
    for pair in expected.into_iter().flatten() {
        let (name, value) = (pair[0].as_str().unwrap(), pair[1].as_str().unwrap());
        let found = read.header(name);
        if found.as_deref() != Some(value) {
            return Err(format!(
                "response {number} has {name}: {found:?}, not {value}"
            ));
        }
    }
    let body = request["response_body"].as_str().unwrap_or(BODY);
    if request["check_body"] != false && status != 204 && read.body != body {
        return Err(format!("response {number} has the body {:?}", read.body));
    }
    Ok(())
}

impl Server {
    fn answer(&mut self, request: &Request, now: Timestamp) -> Answer {
        let number: usize = request.header("req-num").unwrap().parse().unwrap();
        let config = self.requests[number - 1].clone();
        self.seen.push((number, request.clone()));
        let status = self.status(&config, number, request);
        let mut answer =
            Answer::status(status).header("Server-Request-Count", &self.seen.len().to_string());
        let mut told: Vec<(String, String)> = Vec::new();
        for triple in config["response_headers"].as_array().into_iter().flatten() {
            let name = triple[0].as_str().unwrap();
            let value = match triple[1].as_i64() {
                Some(offset) => http_date(now, offset),
                None => triple[1].as_str().unwrap().to_owned(),
            };
            told.push((name.to_owned(), value.clone()));
            if triple[2] == false || name == "Date" {
                told.pop();
            }
            // The scripted upstream writes the length of a body itself.
            if name != "Content-Length" || status == 304 {
                answer = answer.header(name, &value);
            }
        }
        let names = |name: &str| {
            let headers = config["response_headers"].as_array().into_iter().flatten();
            headers.into_iter().any(|triple| triple[0] == name)
        };
        if !names("Date") {
            answer = answer.header("Date", &http_date(now, 0));
        }
        if !names("Content-Type") && status != 304 {
            answer = answer.header("Content-Type", "text/plain");
        }
        self.told.insert(number, told);
        match status {
            204 | 304 => answer,
            _ => answer.body(config["response_body"].as_str().unwrap_or(BODY)),
        }
    }

    /// Where a validated answer is expected: 304 if that is what was asked for, else 999.
    fn status(&self, config: &Value, number: usize, request: &Request) -> u16 {
        let stated = config["response_status"][0].as_u64().unwrap_or(200);
        let expected = config["expected_type"].as_str().unwrap_or_default();
        if !expected.ends_with("validated") {
            return u16::try_from(stated).unwrap();
        }
        let before = &self.requests[number - 2]["response_headers"];
        let was = |name: &str| {
            let headers = before.as_array().into_iter().flatten();
            let mut of_name = headers.filter(|triple| triple[0] == name);
            of_name.next().and_then(|triple| triple[1].as_str())
        };
        let matches = |field: &str, of: &str| {
            let sent = request.header(field);
            sent.is_some() && sent == was(of)
        };
        if matches("if-none-match", "ETag") || matches("if-modified-since", "Last-Modified") {
            304
        } else {
            999
        }
    }

    /// Whether what the upstream saw is what the test expects, and what it told reached the client.
    fn check(&self, requests: &[Value], replies: &[Read]) -> Result<(), String> {
        for (index, request) in requests.iter().enumerate() {
            let number = index + 1;
            let needed = match request["expected_type"].as_str() {
                Some("cached") => continue,
                Some("etag_validated") => Some("if-none-match"),
                Some("lm_validated") => Some("if-modified-since"),
                _ => None,
            };
            let seen = self.seen.iter().find(|(seen, _)| *seen == number);
            let (_, came) = seen.ok_or(format!("request {number} was not sent"))?;
            if let Some(name) = needed.filter(|name| came.header(name).is_none()) {
                return Err(format!("request {number} has no {name}"));
            }
            for (name, _) in &self.told[&number] {
                let lines = self.told[&number].iter().filter(|(other, _)| other == name);
                let told: Vec<&str> = lines.map(|(_, value)| value.as_str()).collect();
                let found = replies[index].header(name);
                if found.as_deref() != Some(told.join(", ").as_str()) {
                    return Err(format!(
                        "response {number} has {name}: {found:?}, not {told:?}"
                    ));
                }
            }
        }
        Ok(())
    }
}

fn http_date(now: Timestamp, offset: i64) -> String {
    let seconds = u64::try_from(now.as_second() + offset).unwrap();
    httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(seconds))
}

#[test]
fn every_required_conformance_test_passes_and_every_deviation_has_its_reason() {
    let data: Value = serde_json::from_str(include_str!("data/cache-tests.json")).unwrap();
    let mut bench = Bench::new();
    let mut listed: BTreeMap<&str, &str> = DEVIATIONS.iter().copied().collect();
    assert_eq!(listed.len(), DEVIATIONS.len(), "one reason each");
    let mut wrong = Vec::new();
    let mut counts: BTreeMap<(String, bool), usize> = BTreeMap::new();
    for suite in data["suites"].as_array().unwrap() {
        for test in suite["tests"].as_array().unwrap() {
            let id = test["id"].as_str().unwrap();
            let kind = test["kind"].as_str().unwrap_or("required");
            let found = bench.run(test);
            let reason = listed.remove(id);
            *counts.entry((kind.to_owned(), found.is_ok())).or_default() += 1;
            match (found, reason) {
                (Ok(()), None) => {}
                (Err(_), Some(reason)) if kind != "required" => assert!(!reason.is_empty()),
                (found, reason) => {
                    wrong.push(format!("{kind} {id}: {found:?}, listed: {reason:?}"))
                }
            }
        }
    }
    println!("{counts:?}");
    assert!(wrong.is_empty(), "{}\n{}", wrong.len(), wrong.join("\n"));
    assert!(listed.is_empty(), "no such tests: {listed:?}");
    let ran: usize = counts.values().sum();
    assert_eq!(ran, 116);
}
