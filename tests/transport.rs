//! HTTP over the wait, without TLS: byte counts, reuse, proxies, addresses, the ways a connection dies.

mod support;

use std::time::Duration;

use gleaner::upstream::cause::{TransportCause, cause_of};
use gleaner::upstream::dns::Names;
use gleaner::upstream::line::{ConnState, Patience};
use support::client::{Client, LONG, Setup};
use support::proxy::ConnectProxy;
use support::upstream::{Answer, Gate, Upstream, closed};

#[test]
fn the_bytes_counted_are_those_on_the_wire() {
    let upstream = Upstream::start();
    let client = Client::new();
    upstream.queue(Answer::ok().json("[1,2,3]"));
    upstream.queue(Answer::ok().json("[4]".repeat(50_000)).chunked());
    upstream.queue(Answer::not_modified().etag("\"1\""));
    upstream.queue(Answer::ok().body("to the end").close_delimited());
    for _ in 0..4 {
        client.get(&upstream.url("/items?page=1")).unwrap();
    }
    upstream.settle();
    let traffic = client.line.traffic();
    assert_eq!(
        (traffic.up(), traffic.down()),
        (upstream.received(), upstream.sent())
    );
    assert!(traffic.down() > 150_000);
    assert_eq!(traffic.connections(), 1);
}

#[test]
fn a_large_upload_is_counted_and_arrives_whole() {
    let upstream = Upstream::start();
    let client = Client::new();
    upstream.answer(|_| Answer::ok());
    let body: Vec<u8> = (0..3_000_000_u32).map(|n| (n % 251) as u8).collect();
    client.line.begin_request();
    client.agent.post(upstream.url("/")).send(&body).unwrap();
    assert!(upstream.requests()[0].body == body);
    assert_eq!(client.line.traffic().up(), upstream.received());
}

#[test]
fn a_kept_connection_is_reused_and_said_so() {
    let upstream = Upstream::start();
    upstream.answer(|_| Answer::ok().json("[]"));
    let client = Client::new();
    client.get(&upstream.url("/")).unwrap();
    let first = client.line.conn_state();
    assert!(!first.reused && first.answered > 0, "{first:?}");
    client.get(&upstream.url("/")).unwrap();
    assert!(client.line.conn_state().reused);
    assert_eq!(
        (upstream.connections(), client.line.traffic().connections()),
        (1, 1)
    );
}

#[test]
fn an_idle_connection_that_was_closed_is_not_reused() {
    let upstream = Upstream::start();
    upstream.answer(|_| Answer::ok().json("[]"));
    let client = Client::new();
    client.get(&upstream.url("/")).unwrap();
    upstream.hang_up();
    client.get(&upstream.url("/")).unwrap();
    assert!(!client.line.conn_state().reused);
    assert_eq!(upstream.connections(), 2);
}

#[test]
fn a_reused_connection_that_dies_unanswered_says_that_it_was_reused() {
    for dies in [
        |answer: Answer| answer.then_reset(),
        |answer: Answer| answer.then_close(),
    ] {
        let upstream = Upstream::start();
        let client = Client::new();
        upstream.queue(Answer::ok().json("[]"));
        upstream.queue(dies(Answer::raw("")));
        client.get(&upstream.url("/")).unwrap();
        let error = client.get(&upstream.url("/")).unwrap_err();
        let cause = cause_of(&error).unwrap();
        assert!(
            matches!(
                cause,
                TransportCause::Reset | TransportCause::ClosedUnanswered
            ),
            "{cause:?}"
        );
        assert_eq!(
            client.line.conn_state(),
            ConnState {
                reused: true,
                answered: 0
            }
        );
    }
}

#[test]
fn a_body_cut_by_a_reset_is_an_error_whatever_its_framing() {
    let framings: [fn(Answer) -> Answer; 3] = [|a| a, Answer::chunked, Answer::close_delimited];
    for framing in framings {
        let upstream = Upstream::start();
        let client = Client::new();
        let (gate, gated) = Gate::new();
        // The reset comes only after the client has seen the head and some of the body.
        upstream.queue(
            framing(Answer::ok().body("x".repeat(9000)))
                .gate_at(4000, gated)
                .only(4000)
                .then_reset(),
        );
        client.line.begin_request();
        let answer = client.agent.get(upstream.url("/")).call().unwrap();
        let mut body = answer.into_body().into_reader();
        std::io::Read::read_exact(&mut body, &mut [0; 100]).unwrap();
        gate.open();
        let error = std::io::copy(&mut body, &mut std::io::sink()).unwrap_err();
        assert_eq!(
            gleaner::upstream::cause::cause_in(&error),
            Some(&TransportCause::Reset)
        );
    }
}

#[test]
fn statuses_and_redirects_are_answers() {
    let upstream = Upstream::start();
    let client = Client::new();
    for status in [204, 304, 404, 429, 500, 503] {
        upstream.queue(Answer::status(status));
        assert_eq!(client.get(&upstream.url("/")).unwrap().0, status);
    }
    upstream.queue(Answer::redirect(302, "/elsewhere").body("moved"));
    assert_eq!(
        client.get(&upstream.url("/")).unwrap(),
        (302, b"moved".to_vec())
    );
    assert_eq!(upstream.requests().len(), 7);
    assert_eq!(
        upstream.requests()[0].header("user-agent"),
        Some("gleaner/test")
    );
}

#[test]
fn a_head_may_be_as_long_as_the_limit_and_no_longer() {
    let upstream = Upstream::start();
    let client = Client::new();
    upstream.queue(Answer::ok().header("X-Long", &"l".repeat(60_000)));
    assert_eq!(client.get(&upstream.url("/")).unwrap().0, 200);
    upstream.queue(Answer::ok().header("X-Long", &"l".repeat(200_000)));
    let error = client.get(&upstream.url("/")).unwrap_err();
    assert!(
        matches!(error, ureq::Error::LargeResponseHeader(..)),
        "{error:?}"
    );
}

#[test]
fn the_next_address_is_tried_when_one_refuses() {
    let upstream = Upstream::start().called("db.example");
    upstream.answer(|_| Answer::ok().json("[]"));
    let (gone, _held) = closed();
    let here = upstream.addr();
    let names = Names::answered_by(move |host, port| {
        assert_eq!((host, port), ("db.example", here.port()));
        Ok(vec![gone, here])
    });
    let client = Setup {
        names,
        ..Setup::default()
    }
    .build();
    client.get(&upstream.url("/")).unwrap();
    client.get(&upstream.url("/")).unwrap();
    assert_eq!(client.line.traffic().connections(), 1);
    assert!(
        upstream.requests()[0]
            .header("host")
            .unwrap()
            .starts_with("db.example:")
    );
}

#[test]
fn a_name_is_looked_up_only_to_connect() {
    let upstream = Upstream::start().called("db.example");
    upstream.answer(|_| Answer::ok().json("[]"));
    let here = upstream.addr();
    let lookups = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = std::sync::Arc::clone(&lookups);
    let names = Names::answered_by(move |_, _| {
        counted.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        Ok(vec![here])
    });
    let client = Setup {
        names,
        ..Setup::default()
    }
    .build();
    for _ in 0..3 {
        client.get(&upstream.url("/")).unwrap();
    }
    assert_eq!(lookups.load(std::sync::atomic::Ordering::SeqCst), 1);
}

#[test]
fn causes_are_told_apart() {
    let client = Client::new();
    let (gone, _held) = closed();
    let error = client.get(&format!("http://{gone}/")).unwrap_err();
    assert_eq!(cause_of(&error), Some(&TransportCause::Refused(gone)));

    let names = Names::answered_by(|_, _| Err(std::io::Error::other("no such host")));
    let client = Setup {
        names,
        ..Setup::default()
    }
    .build();
    let error = client.get("http://db.example/").unwrap_err();
    let expected = TransportCause::Dns {
        host: "db.example".into(),
        reason: "no such host".into(),
    };
    assert_eq!(cause_of(&error), Some(&expected));
}

#[test]
fn an_upstream_that_goes_silent_is_a_stall_and_one_that_never_ends_takes_too_long() {
    let stall = Duration::from_millis(5);
    let upstream = Upstream::start();
    let (gate, gated) = Gate::new();
    upstream.queue(Answer::ok().json("[]").gate(gated));
    let client = Setup {
        patience: Patience {
            connect: LONG,
            stall,
            total: LONG,
        },
        ..Setup::default()
    }
    .build();
    let error = client.get(&upstream.url("/")).unwrap_err();
    assert_eq!(cause_of(&error), Some(&TransportCause::Stalled(stall)));
    gate.open();

    let total = Duration::from_millis(50);
    let endless = Upstream::start();
    endless.queue(Answer::streaming(1 << 50));
    let client = Setup {
        patience: Patience {
            connect: LONG,
            stall: LONG,
            total,
        },
        ..Setup::default()
    }
    .build();
    let error = client.get_and_count(&endless.url("/")).unwrap_err();
    assert_eq!(cause_of(&error), Some(&TransportCause::TotalTime(total)));
}

#[test]
fn a_proxy_is_asked_for_a_tunnel() {
    let upstream = Upstream::start().called("db.example");
    upstream.answer(|_| Answer::ok().json("[7]"));
    let proxy = ConnectProxy::to(upstream.addr());
    let names = Names::answered_by(|host, _| panic!("{host} is the proxy's to look up"));
    let client = Setup {
        names,
        proxy: Some(proxy.addr()),
        ..Setup::default()
    }
    .build();
    assert_eq!(
        client.get(&upstream.url("/")).unwrap(),
        (200, b"[7]".to_vec())
    );
    let first = client.line.conn_state();
    client.get(&upstream.url("/")).unwrap();
    assert!(!first.reused && client.line.conn_state().reused);
    let asked = proxy.asked();
    assert_eq!(asked.len(), 1);
    assert!(asked[0].starts_with(&format!(
        "CONNECT db.example:{} HTTP/1.1\r\n",
        upstream.addr().port()
    )));
    assert!(asked[0].contains("Proxy-Authorization: Basic dTpw\r\n"));
}

#[test]
fn a_proxy_that_refuses_says_so() {
    let proxy = ConnectProxy::refusing("HTTP/1.1 407 Who are you\r\n\r\n");
    let client = Setup {
        proxy: Some(proxy.addr()),
        ..Setup::default()
    }
    .build();
    let error = client.get("http://db.example/").unwrap_err();
    assert!(
        matches!(&error, ureq::Error::ConnectProxyFailed(reason) if reason.contains("407")),
        "{error:?}"
    );
}
