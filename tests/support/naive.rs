//! How one pulls by hand: ask for what was updated since some instant, follow the pages, write down what comes, remember the
//! instant for the next time. Honest work: a run that fails moves nothing, tombstones delete. Only which instant it is differs.

use std::collections::BTreeMap;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use gleaner::clock::Timestamp;
use serde_json::Value;

use super::quakes::{instant, meaning};

/// Which instant the next run starts at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Since {
    /// Our clock when the last run was over.
    LastEnd,
    /// Our clock when the last run began.
    LastStart,
    /// The greatest update time that was seen.
    Greatest,
}

/// A script.
pub struct Naive {
    since: Since,
    addr: SocketAddr,
    line: Option<TcpStream>,
    from: Option<Timestamp>,
    greatest: Option<Timestamp>,
    /// What it has, by key.
    pub rows: BTreeMap<String, Value>,
    /// Records that it wrote though they said nothing new.
    pub again: u64,
    pub requests: u64,
    pub bytes: u64,
}

impl Naive {
    pub fn new(since: Since, addr: SocketAddr) -> Self {
        Self {
            since,
            addr,
            line: None,
            from: None,
            greatest: None,
            rows: BTreeMap::new(),
            again: 0,
            requests: 0,
            bytes: 0,
        }
    }

    /// One run.
    pub fn run(&mut self, now: impl Fn() -> Timestamp) {
        let start = now();
        if self.pages().is_err() {
            self.line = None;
            return;
        }
        self.from = match self.since {
            Since::LastEnd => Some(now()),
            Since::LastStart => Some(start),
            Since::Greatest => self.greatest,
        };
    }

    fn pages(&mut self) -> io::Result<()> {
        let since = self.from.map_or(String::new(), |from| {
            let seconds = Timestamp::from_second(from.as_second()).unwrap();
            format!("&since={seconds}")
        });
        for page in 1.. {
            let text = self.get(&format!("/items?page={page}{since}"))?;
            let records: Vec<Value> = serde_json::from_str(&text)?;
            if records.is_empty() {
                break;
            }
            records.iter().for_each(|record| self.take(record));
        }
        Ok(())
    }

    fn take(&mut self, record: &Value) {
        self.greatest = self.greatest.max(Some(instant(record)));
        let key = record["id"].as_str().unwrap().to_owned();
        if record["properties"]["status"] == "deleted" {
            self.rows.remove(&key);
            return;
        }
        let value = meaning(&record.to_string());
        if self.rows.insert(key, value.clone()) == Some(value) {
            self.again += 1;
        }
    }

    /// The body of a 200.
    fn get(&mut self, target: &str) -> io::Result<String> {
        let broken = || io::Error::from(io::ErrorKind::InvalidData);
        self.requests += 1;
        let line = match &mut self.line {
            Some(line) => line,
            none => none.insert(TcpStream::connect(self.addr)?),
        };
        let request = format!(
            "GET {target} HTTP/1.1\r\nHost: {}\r\nUser-Agent: script\r\nAccept: application/json\r\n\r\n",
            self.addr
        );
        line.write_all(request.as_bytes())?;
        self.bytes += request.len() as u64;
        let mut answer = Vec::new();
        let mut whole = usize::MAX;
        while answer.len() < whole {
            let mut block = [0; 16 * 1024];
            let more = line.read(&mut block)?;
            self.bytes += more as u64;
            if more == 0 {
                return Err(broken());
            }
            answer.extend(&block[..more]);
            if whole == usize::MAX {
                if let Some(head) = answer.windows(4).position(|end| end == b"\r\n\r\n") {
                    let text = String::from_utf8_lossy(&answer[..head]).to_lowercase();
                    let length = text.split("content-length: ").nth(1);
                    let length = length.and_then(|rest| rest.lines().next()?.parse::<usize>().ok());
                    whole = head + 4 + length.ok_or_else(broken)?;
                }
            }
        }
        let text = String::from_utf8(answer).map_err(|_| broken())?;
        let (head, body) = text.split_once("\r\n\r\n").ok_or_else(broken)?;
        if !head.starts_with("HTTP/1.1 200") || head.contains("text/html") {
            return Err(broken());
        }
        if head.contains("Connection: close") {
            self.line = None;
        }
        Ok(body.to_owned())
    }
}
