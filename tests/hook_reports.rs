//! What others' webhook receivers were reported for, against the real binary: each test is a kind of report.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot be set up has failed"
)]

mod support;

use std::collections::BTreeSet;
use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use gleaner::clock::{Clock as _, SystemClock};
use gleaner::desk::{Event, InboxWish, Wish};
use gleaner::inbox::{self, Filter, State};
use rusqlite::{Connection, OpenFlags};
use rustix::process::Signal;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::Value;
use support::agent::Gateway;
use support::device::until;
use support::gleaner::{Home, Running};
use support::hooks::{self, SECRET, Sender, WHSEC, delivery, erp, send};
use support::pki::{Leaf, Pki};
use support::upstream::{Answer, Upstream};

const CARRIED: &str = "records = { source = \"orders\", at = \"/orders\" }\n\
    [source.orders]\nkey = \"/id\"\npull = \"none\"\n";

fn home(config: &str) -> Home {
    let home = Home::new(config);
    std::fs::write(home.path("secret"), SECRET).unwrap();
    std::fs::write(home.path("whsec"), WHSEC).unwrap();
    home
}

fn wait_door(agent: &Running) -> SocketAddr {
    let mut door = None;
    until("the door is open", || {
        door = hooks::door_told(&agent.log());
        door.is_some()
    });
    door.unwrap()
}

/// SIGHUP, until `config` was read again so many times.
fn reload(agent: &Running, times: usize) {
    agent.signal(Signal::HUP);
    until("the config was read again", || {
        agent.log().matches("the config was read again").count() == times
    });
}

fn listed(home: &Home) -> Vec<Value> {
    home.gleaner(&["inbox", "list", "--json"]).json()
}

fn until_done(home: &Home, count: usize) {
    let mut all = Vec::new();
    until("all is processed", || {
        all = listed(home);
        all.len() == count && all.iter().all(|one| one["state"] == "done")
    });
}

fn bodies(home: &Home, table: &str) -> Vec<String> {
    let path = home.path("state/data.db");
    let db = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
    let Ok(mut query) = db.prepare(&format!("SELECT body FROM {table} ORDER BY key")) else {
        return Vec::new();
    };
    let rows = query.query_map([], |row| row.get(0)).unwrap();
    rows.collect::<Result<_, _>>().unwrap()
}

#[test]
fn a_storm_of_one_delivery_is_one_event() {
    let home = home(&erp(hooks::address(), CARRIED));
    let agent = home.run();
    let door = wait_door(&agent);
    let request = delivery("storm", "{\"orders\":[{\"id\":1}]}");
    let replies: Vec<hooks::Reply> = std::thread::scope(|scope| {
        let storms: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(|| {
                    let mut sender = Sender::connect(door);
                    (0..125).map(|_| sender.ask(&request)).collect::<Vec<_>>()
                })
            })
            .collect();
        storms
            .into_iter()
            .flat_map(|storm| storm.join().unwrap())
            .collect()
    });
    assert_eq!(replies.len(), 1000);
    assert!(replies.iter().all(|reply| reply.status == 202));
    let first = replies.iter().filter(|reply| !reply.is_duplicate());
    assert_eq!(first.count(), 1, "one was the first");
    let ids: BTreeSet<String> = replies.iter().map(hooks::Reply::request_id).collect();
    assert_eq!(ids.len(), 1, "{ids:?}");
    until_done(&home, 1);
    let status = agent.status();
    assert_eq!(status["hooks"]["erp"]["saved"], 1);
    assert_eq!(status["hooks"]["erp"]["duplicates"], 999);
    until("it is counted", || {
        agent.status()["sources"]["orders"]["records"] == 1
    });
}

#[test]
fn a_body_that_is_too_large_is_refused_with_an_answer_that_arrives() {
    let home = home(&erp(
        hooks::address(),
        &format!("max_body = \"10KiB\"\n{CARRIED}"),
    ));
    let agent = home.run();
    let door = wait_door(&agent);
    let large = format!("{{\"pad\":\"{}\"}}", "x".repeat(4 << 20));
    // All of it is sent before the answer is read, as simple senders do.
    assert_eq!(send(door, &delivery("large", &large)).status, 413);
    let mut chunked =
        b"POST /hooks/erp HTTP/1.1\r\nHost: gw\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
    for _ in 0..200 {
        chunked.extend(b"400\r\n");
        chunked.extend([b'x'; 0x400]);
        chunked.extend(b"\r\n");
    }
    chunked.extend(b"0\r\n\r\n");
    assert_eq!(send(door, &chunked).status, 413);
    // Neither length nor chunks: no body, which nobody has signed.
    let none = "POST /hooks/erp HTTP/1.1\r\nHost: gw\r\nX-GitHub-Delivery: n\r\n\r\n";
    assert_eq!(send(door, none.as_bytes()).status, 401);
    for (method, status) in [("GET", 405), ("HEAD", 405), ("PUT", 405), ("DELETE", 405)] {
        let request = format!("{method} /hooks/erp HTTP/1.1\r\nHost: gw\r\n\r\n");
        let reply = send(door, request.as_bytes());
        assert_eq!(reply.status, status, "{method}");
        assert_eq!(reply.header("Allow"), Some("POST"), "{method}");
    }
    assert_eq!(listed(&home).len(), 0);
    assert_eq!(
        send(door, &delivery("small", "{\"orders\":[{\"id\":1}]}")).status,
        202
    );
}

#[test]
fn a_coded_body_is_verified_as_it_came_and_processed_as_it_is_meant() {
    let home = home(&erp(hooks::address(), CARRIED));
    let agent = home.run();
    let door = wait_door(&agent);
    let plain = "{\"orders\":[{\"id\":7,\"name\":\"coded\"}]}";
    let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
    gzip.write_all(plain.as_bytes()).unwrap();
    let coded = gzip.finish().unwrap();
    let with = |id: &str, signed: &[u8]| {
        let mut headers = hooks::github_headers(id, signed);
        headers.push(("Content-Encoding".into(), "gzip".into()));
        hooks::post("/hooks/erp", &headers, &coded)
    };
    assert_eq!(send(door, &with("a", plain.as_bytes())).status, 401);
    let reply = send(door, &with("b", &coded));
    assert_eq!(reply.status, 202);
    until_done(&home, 1);
    assert_eq!(bodies(&home, "orders"), ["{\"id\":7,\"name\":\"coded\"}"]);
    // Kept as it came.
    let shown = home.gleaner(&["inbox", "list", "--json"]).json();
    assert!(shown[0]["bytes"].as_u64().unwrap() >= coded.len() as u64);
}

#[test]
fn a_full_inbox_says_so_and_a_larger_quota_is_room_after_a_reload() {
    let address = hooks::address();
    let config = |quota: &str, every: &str| {
        erp(address, CARRIED).replace(
            "every = \"0s\"",
            &format!("every = \"{every}\"\nquota = \"{quota}\""),
        )
    };
    let home = home(&config("256KiB", "1d"));
    let agent = home.run();
    let door = wait_door(&agent);
    let pad = "x".repeat(30_000);
    let event = |nth: usize| {
        delivery(
            &format!("q{nth}"),
            &format!("{{\"orders\":[{{\"id\":{nth},\"pad\":\"{pad}\"}}]}}"),
        )
    };
    // Every hook's first payloads are taken up at once; those behind wait for a day.
    assert_eq!(send(door, &event(0)).status, 202);
    until_done(&home, 1);
    let mut count = 1;
    let full = loop {
        let reply = send(door, &event(count));
        if reply.status != 202 {
            break reply;
        }
        count += 1;
        assert!(count < 100, "it is never full");
    };
    assert_eq!(full.status, 503);
    assert!(full.header("Retry-After").is_some(), "{full:?}");
    // What is saved is known nevertheless, and what is not saved is not.
    assert!(send(door, &event(count - 1)).is_duplicate());
    assert_eq!(send(door, &event(count)).status, 503);
    home.config(&config("2MiB", "1d"));
    reload(&agent, 1);
    let again = send(door, &event(count));
    assert_eq!((again.status, again.is_duplicate()), (202, false));
    home.config(&config("256KiB", "0s"));
    reload(&agent, 2);
    until("all is processed", || {
        bodies(&home, "orders").len() == count + 1
    });
    // What is processed makes room.
    let later = send(door, &event(count + 1));
    assert_eq!((later.status, later.is_duplicate()), (202, false));
}

#[test]
fn a_signed_time_waits_for_a_clock_and_a_sender_without_one_does_not() {
    let config = format!(
        "time_sync = \"synced\"\n{}\
         [hook.standard]\nscheme = \"standard-webhooks\"\nsecret = {{ file = \"whsec\" }}\n",
        erp(hooks::address(), CARRIED)
    );
    let home = home(&config);
    let agent = home.run();
    let door = wait_door(&agent);
    if agent.status()["clock"]["state"] == "sure" {
        println!("hook_reports: this machine's clock is vouched for: its distrust is left out");
        return;
    }
    let second = SystemClock.wall().as_second();
    let signed = |id: &str, second: i64| {
        let body = b"{\"type\":\"a\"}";
        hooks::post(
            "/hooks/standard",
            &hooks::standard_headers(id, second, body),
            body,
        )
    };
    let reply = send(door, &signed("m1", second));
    assert_eq!(reply.status, 503, "{reply:?}");
    assert!(reply.header("Retry-After").is_some());
    let untimed = send(door, &delivery("a", "{\"orders\":[]}"));
    assert_eq!(untimed.status, 202);
    assert_eq!(listed(&home)[0]["clock_trusted"], false);
    std::fs::write(home.path("synced"), "").unwrap();
    until("the clock is believed", || {
        send(door, &signed("m1", second)).status == 202
    });
    let old = send(door, &signed("m2", second - 3600));
    assert_eq!(old.status, 401, "{old:?}");
}

#[test]
fn setups_are_answered_at_the_door() {
    let config = format!(
        "time_sync = \"synced\"\n[door]\nlisten = \"{}\"\n\
         [hook.slack]\nscheme = \"slack\"\nsecret = {{ file = \"secret\" }}\n\
         [hook.meta]\nscheme = \"meta\"\nsecret = {{ file = \"secret\" }}\nchallenge = {{ meta = {{ verify_token = {{ file = \"token\" }} }} }}\n\
         [hook.graph]\nscheme = \"github\"\nsecret = {{ file = \"secret\" }}\nchallenge = \"graph\"\n",
        hooks::address()
    );
    let home = home(&config);
    for (file, text) in [("token", "t0ken"), ("synced", "")] {
        std::fs::write(home.path(file), text).unwrap();
    }
    let agent = home.run();
    let door = wait_door(&agent);
    let second = SystemClock.wall().as_second();
    let body = "{\"token\":\"x\",\"challenge\":\"3eZbrw1aB\",\"type\":\"url_verification\"}";
    let signed = hooks::github_signature(format!("v0:{second}:{body}").as_bytes());
    let slack = |signature: &str| {
        let headers = [
            ("X-Slack-Request-Timestamp".to_owned(), second.to_string()),
            ("X-Slack-Signature".to_owned(), signature.to_owned()),
        ];
        hooks::post("/hooks/slack", &headers, body.as_bytes())
    };
    let meta = |token: &str| {
        format!(
            "GET /hooks/meta?hub.mode=subscribe&hub.verify_token={token}&hub.challenge=1158201444 HTTP/1.1\r\nHost: gw\r\n\r\n"
        )
        .into_bytes()
    };
    let graph = "POST /hooks/graph?validationToken=Validation%3A+ok HTTP/1.1\r\nHost: gw\r\nContent-Length: 0\r\n\r\n";
    let table = [
        (
            slack(&signed.replace("sha256=", "v0=")),
            200,
            Some("3eZbrw1aB"),
        ),
        (slack("v0=00"), 401, None),
        (meta("t0ken"), 200, Some("1158201444")),
        // As Meta's own examples have it.
        (meta("wrong"), 403, None),
        (graph.as_bytes().to_vec(), 200, Some("Validation: ok")),
    ];
    for (request, status, text) in table {
        let reply = send(door, &request);
        let said = String::from_utf8_lossy(&request);
        assert_eq!(reply.status, status, "{said}: {reply:?}");
        if let Some(text) = text {
            assert_eq!(reply.body, text, "{said}");
            assert_eq!(reply.header("Content-Type"), Some("text/plain"), "{said}");
        }
    }
    assert_eq!(listed(&home).len(), 0, "no setup is an event");
}

#[test]
fn a_renewed_certificate_is_shown_after_a_reload_and_a_broken_one_is_not_taken() {
    let pki = Pki::new();
    let put = |home: &Home, leaf: &Leaf| {
        std::fs::write(home.path("cert.pem"), &leaf.cert).unwrap();
        std::fs::write(home.path("key.pem"), &leaf.key).unwrap();
    };
    let tls = "tls = { cert = \"cert.pem\", key = { file = \"key.pem\" } }\n[hook.erp]";
    let config = erp(hooks::address(), CARRIED).replace("[hook.erp]", tls);
    let home = home(&config);
    let (first, second) = (pki.leaf(&["gw"]), pki.leaf(&["gw"]));
    put(&home, &first);
    let agent = home.run();
    let door = wait_door(&agent);
    let shown = |id: &str| {
        let mut sender = Sender::over(tls_to(door, &pki));
        let reply = sender.ask(&delivery(id, "{\"orders\":[]}"));
        assert_eq!(reply.status, 202);
        let chain = sender.stream().conn.peer_certificates().unwrap();
        chain[0].clone().into_owned()
    };
    let der = |leaf: &Leaf| CertificateDer::from_pem_slice(leaf.cert.as_bytes()).unwrap();
    assert_eq!(shown("a"), der(&first));
    // A connection of before goes on.
    let mut kept = Sender::over(tls_to(door, &pki));
    assert_eq!(kept.ask(&delivery("b", "{\"orders\":[]}")).status, 202);
    put(&home, &second);
    reload(&agent, 1);
    until("the new one is shown", || shown("c") == der(&second));
    assert_eq!(kept.ask(&delivery("d", "{\"orders\":[]}")).status, 202);
    std::fs::write(home.path("cert.pem"), "no certificate").unwrap();
    reload(&agent, 2);
    until("an alarm", || {
        agent.status()["alarms"]
            .to_string()
            .contains("the door's certificate was not taken")
    });
    assert_eq!(shown("e"), der(&second));
}

fn tls_to(door: SocketAddr, pki: &Pki) -> StreamOwned<ClientConnection, TcpStream> {
    let ca = std::fs::read(pki.ca_file()).unwrap();
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_slice(&ca).unwrap())
        .unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from("gw").unwrap();
    let client = ClientConnection::new(Arc::new(config), name).unwrap();
    StreamOwned::new(client, TcpStream::connect(door).unwrap())
}

#[test]
fn a_hook_without_its_secret_is_shut_alone_until_it_has_one() {
    let config = format!(
        "{}[hook.other]\nscheme = \"github\"\nsecret = {{ file = \"later\" }}\n",
        erp(hooks::address(), CARRIED)
    );
    let home = home(&config);
    let agent = home.run();
    let door = wait_door(&agent);
    let other = |id: &str| {
        let headers = hooks::github_headers(id, b"{}");
        send(door, &hooks::post("/hooks/other", &headers, b"{}"))
    };
    let reply = other("a");
    assert_eq!(reply.status, 503);
    assert!(reply.header("Retry-After").is_some(), "{reply:?}");
    assert_eq!(send(door, &delivery("a", "{\"orders\":[]}")).status, 202);
    let shut = "it is answered with 503 until that is mended";
    let alarms = agent.status()["alarms"].to_string();
    assert!(alarms.contains(shut), "{alarms}");
    std::fs::write(home.path("later"), SECRET).unwrap();
    reload(&agent, 1);
    until("it is open", || other("a").status == 202);
    let alarms = agent.status()["alarms"].to_string();
    assert!(!alarms.contains(shut), "{alarms}");
}

#[test]
fn a_reload_moves_the_door_and_adds_and_removes_hooks() {
    let (here, there) = (hooks::address(), hooks::address());
    let home = home(&erp(here, CARRIED));
    let agent = home.run();
    assert_eq!(wait_door(&agent), here);
    let first = send(here, &delivery("a", "{\"orders\":[{\"id\":1}]}"));
    assert_eq!(first.status, 202);
    let added = "[hook.more]\nscheme = \"github\"\nsecret = { file = \"secret\" }\n";
    home.config(&format!("{}{added}", erp(there, CARRIED)));
    reload(&agent, 1);
    let more = |id: &str| {
        let headers = hooks::github_headers(id, b"{}");
        send(there, &hooks::post("/hooks/more", &headers, b"{}")).status
    };
    until("it listens there", || TcpStream::connect(there).is_ok());
    until("the new hook is open", || more("a") == 202);
    assert!(TcpStream::connect(here).is_err(), "it still listens here");
    // What was known stays known, wherever the door is.
    let again = send(there, &delivery("a", "{\"orders\":[{\"id\":1}]}"));
    assert!(again.is_duplicate() && again.request_id() == first.request_id());
    home.config(&erp(there, CARRIED));
    reload(&agent, 2);
    until("the hook is gone", || more("b") == 404);
    // Without any hook there is no door, and pulling goes on.
    home.config("[source.orders]\nurl = \"http://127.0.0.1:1/\"\nkey = \"/id\"\n");
    reload(&agent, 3);
    until("the door is gone", || TcpStream::connect(there).is_err());
    assert!(agent.status()["sources"]["orders"].is_object());
}

#[test]
fn what_nobody_asked_for_is_acknowledged_and_kept_and_nothing_is_done() {
    let config = erp(
        hooks::address(),
        &format!("events = [\"order.*\"]\n{CARRIED}"),
    );
    let home = home(&config);
    let agent = home.run();
    let door = wait_door(&agent);
    // GitHub's event type is `push` here.
    let reply = send(door, &delivery("a", "{\"orders\":[{\"id\":1}]}"));
    assert_eq!(reply.status, 202);
    until_done(&home, 1);
    let wanted = String::from_utf8(delivery("b", "{\"orders\":[{\"id\":2}]}")).unwrap();
    let wanted = wanted.replace("X-GitHub-Event: push", "X-GitHub-Event: order.paid");
    assert_eq!(send(door, wanted.as_bytes()).status, 202);
    until_done(&home, 2);
    assert_eq!(bodies(&home, "orders"), ["{\"id\":2}"]);
}

#[test]
fn a_record_from_a_hook_ends_what_vouched_for_the_one_before() {
    let upstream = Upstream::start();
    // It never hears of version 2, so a 304 of it would say that version 2 is what it has.
    upstream.answer(|request| {
        if request.header("if-none-match").is_some() {
            Answer::not_modified().etag("\"1\"")
        } else {
            Answer::ok().json("[{\"id\":1,\"v\":1}]").etag("\"1\"")
        }
    });
    let config = format!(
        "{}[source.parts]\nurl = \"{}\"\nkey = \"/id\"\nevery = \"1d\"\n",
        erp(
            hooks::address(),
            "records = { source = \"parts\", at = \"/parts\" }"
        ),
        upstream.url("/parts")
    );
    let home = home(&config);
    let agent = home.run();
    let door = wait_door(&agent);
    until("it has pulled", || bodies(&home, "parts").len() == 1);
    let sync = || home.gleaner(&["sync", "parts", "--json"]).json();
    assert_eq!(sync()[0]["outcome"], "unchanged");
    let conditional = |at: usize| upstream.requests()[at].header("if-none-match").is_some();
    assert!(conditional(1), "the second is vouched for");
    let event = delivery("a", "{\"parts\":[{\"id\":1,\"v\":2}]}");
    assert_eq!(send(door, &event).status, 202);
    until_done(&home, 1);
    assert_eq!(bodies(&home, "parts"), ["{\"id\":1,\"v\":2}"]);
    assert_eq!(sync()[0]["outcome"], "changed");
    assert!(!conditional(2), "nothing vouches for version 2");
    assert_eq!(bodies(&home, "parts"), ["{\"id\":1,\"v\":1}"]);
    assert_eq!(sync()[0]["outcome"], "unchanged");
    assert!(conditional(3));
}

#[test]
fn a_payload_that_cannot_be_read_back_is_a_dead_letter_and_those_behind_go_on() {
    let address = hooks::address();
    let slow = erp(address, CARRIED).replace("every = \"0s\"", "every = \"1d\"");
    let home = home(&slow);
    let agent = home.run();
    let door = wait_door(&agent);
    let event = |nth: usize| {
        let body = format!("{{\"orders\":[{{\"id\":{nth},\"pad\":\"damage me {nth}\"}}]}}");
        delivery(&format!("d{nth}"), &body)
    };
    assert_eq!(send(door, &event(0)).status, 202);
    until_done(&home, 1);
    for nth in 1..4 {
        assert_eq!(send(door, &event(nth)).status, 202);
    }
    // A card that forgets, while the agent runs.
    let segment = home.path("state/inbox/0000000001.seg");
    let mut bytes = std::fs::read(&segment).unwrap();
    let word = b"damage me 2";
    let at = bytes.windows(word.len()).position(|some| some == word);
    bytes[at.unwrap()] ^= 0x40;
    std::fs::write(&segment, bytes).unwrap();
    home.config(&erp(address, CARRIED));
    reload(&agent, 1);
    until("the others are processed", || {
        bodies(&home, "orders").len() == 3
    });
    until("it is said, once", || {
        agent.log().matches(" is tried again: ").count() == 1
    });
    let log = agent.log();
    assert!(log.lines().count() < 100, "{log}");
}

/// What became of every payload, by event id.
fn states(gateway: &Gateway) -> Vec<(String, State)> {
    let mut states = Vec::new();
    inbox::Reader::new(&gateway.state().join(inbox::NAME))
        .list(&Filter::default(), |listed| {
            let event = listed.stored.received.event_id.unwrap();
            states.push((event, listed.state));
        })
        .unwrap();
    states
}

#[test]
fn five_tries_make_a_dead_letter_which_a_person_can_have_tried_again() {
    let upstream = Upstream::start();
    upstream.answer(|_| Answer::ok().json("[]"));
    let secret = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(secret.path(), SECRET).unwrap();
    let hook = erp(
        hooks::address(),
        "records = { source = \"items\", at = \"/items\" }",
    );
    let named = format!("{:?}", secret.path());
    let mut gateway = Gateway::of(&upstream)
        .source("allow_empty = true\nevery = \"1h\"")
        .more(&hook.replace("\"secret\"", &named))
        .start();
    let door = gateway.listen();
    gateway.run_until_idle();
    let sending = std::thread::spawn(move || {
        let bad = send(door, &delivery("bad", "{\"other\":1}"));
        let good = send(door, &delivery("good", "{\"items\":[{\"id\":1}]}"));
        (bad.status, good.status)
    });
    assert_eq!(gateway.serve(sending), (202, 202));
    let from = gateway.now();
    let mut tries = 0;
    let reason = loop {
        gateway.run_until_idle();
        let all = states(&gateway);
        assert_eq!(all[1], ("good".into(), State::Done), "nobody waits for it");
        match &all[0].1 {
            State::Failed { tries: now, .. } => {
                assert!(*now <= tries + 1, "a try that nobody saw");
                tries = *now;
            }
            State::Dead { tries: all, reason } => {
                assert_eq!((*all, tries), (5, 4));
                break reason.clone();
            }
            other => panic!("{other:?}"),
        }
    };
    assert!(reason.contains("/items"), "{reason}");
    // 30 s, 1, 2 and 4 minutes lie between five tries.
    assert!(gateway.now().since(from) >= Duration::from_secs(450));
    let wish = Wish {
        inbox: Some(InboxWish::RetryDead),
        ..Wish::default()
    };
    let mut changed = None;
    gateway.agent().carry_out(&wish, &mut |event| {
        if let Event::Inbox { changed: count } = event {
            changed = Some(count);
        }
    });
    assert_eq!(changed, Some(1));
    gateway.run_until_idle();
    let all = states(&gateway);
    assert!(
        matches!(all[0].1, State::Failed { tries: 1, .. }),
        "{all:?}"
    );
    assert_eq!(gateway.keys(), ["1"]);
}
