//! TLS over the wait: whom we trust, who we are, when it is, and how a connection ends.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot be set up has failed"
)]

mod support;

use std::fs;
use std::sync::Arc;

use gleaner::clock::{Clock, FakeClock, Timestamp};
use gleaner::config::Roots;
use gleaner::upstream::cause::{TransportCause, cause_in, cause_of, tls_problem};
use gleaner::upstream::line::ConnState;
use gleaner::upstream::tls::{Identity, TlsClock, TlsError, TlsProblem, TlsSetup, client_config};
use rustls::time_provider::TimeProvider;
use support::client::{Client, Setup};
use support::pki::{Leaf, Pki};
use support::proxy::ConnectProxy;
use support::upstream::{Answer, Upstream};

fn fake(wall: &str) -> Arc<FakeClock> {
    Arc::new(FakeClock::at(wall.parse().unwrap()))
}

/// A client that trusts this CA alone.
fn trusting(pki: &Pki) -> Client {
    Setup {
        ca: Some(pki.ca_file()),
        ..Setup::default()
    }
    .build()
}

/// An upstream with a certificate for its address, and a client that trusts it.
fn pair(pki: &Pki) -> (Upstream, Client) {
    let upstream = Upstream::start_tls(pki.server(&pki.leaf(&["127.0.0.1"])));
    upstream.answer(|_| Answer::ok().json("[1]"));
    (upstream, trusting(pki))
}

#[test]
fn a_private_ca_is_trusted_when_told_and_counted_with_its_handshake() {
    let pki = Pki::new();
    let (upstream, client) = pair(&pki);
    assert_eq!(
        client.get(&upstream.url("/")).unwrap(),
        (200, b"[1]".to_vec())
    );
    let first = client.line.conn_state();
    client.get(&upstream.url("/")).unwrap();
    assert!(!first.reused && client.line.conn_state().reused);
    assert_eq!(client.line.traffic().connections(), 1);

    upstream.queue(Answer::ok().body("x").close_delimited());
    client.get(&upstream.url("/")).unwrap();
    upstream.settle();
    let traffic = client.line.traffic();
    assert_eq!(
        (traffic.up(), traffic.down()),
        (upstream.received(), upstream.sent())
    );
    assert!(
        traffic.up() > 500 && traffic.down() > 700,
        "more than HTTP alone: {traffic:?}"
    );
}

#[test]
fn a_second_connection_resumes_the_session_and_costs_less() {
    let pki = Pki::new();
    let (upstream, client) = pair(&pki);
    upstream.answer(|_| Answer::ok().json("[1]").then_close());
    let mut cost = Vec::new();
    for _ in 0..2 {
        let before = client.line.traffic().down();
        client.get(&upstream.url("/")).unwrap();
        cost.push(client.line.traffic().down() - before);
    }
    assert_eq!(upstream.connections(), 2);
    assert!(cost[1] + 300 < cost[0], "{cost:?}");
}

#[test]
fn an_unknown_issuer_is_refused() {
    let (upstream, _) = pair(&Pki::new());
    let error = trusting(&Pki::new()).get(&upstream.url("/")).unwrap_err();
    assert_eq!(tls_problem(&error), Some(&TlsProblem::UnknownIssuer));
    assert!(upstream.requests().is_empty());
}

#[test]
fn a_certificate_for_another_name_is_refused() {
    let pki = Pki::new();
    let upstream = Upstream::start_tls(pki.server(&pki.leaf(&["other.example"])));
    let error = trusting(&pki).get(&upstream.url("/")).unwrap_err();
    assert!(
        matches!(tls_problem(&error), Some(TlsProblem::WrongName { .. })),
        "{error:?}"
    );
    assert!(upstream.requests().is_empty());
}

#[test]
fn certificates_are_checked_against_our_clock() {
    let pki = Pki::new();
    let upstream = Upstream::start_tls(pki.server(&pki.leaf_between(&["127.0.0.1"], 2001, 2002)));
    upstream.answer(|_| Answer::ok());
    let ask = |wall: &str| {
        let client = Setup {
            clock: fake(wall),
            ca: Some(pki.ca_file()),
            ..Setup::default()
        }
        .build();
        client.get(&upstream.url("/"))
    };
    assert_eq!(ask("2001-06-01T00:00:00Z").unwrap().0, 200);

    let expired = ask("2026-01-01T00:00:00Z").unwrap_err();
    let not_after: Timestamp = "2002-01-01T00:00:00Z".parse().unwrap();
    assert_eq!(
        tls_problem(&expired),
        Some(&TlsProblem::Expired {
            not_after: Some(not_after)
        })
    );

    let early = ask("2000-01-01T00:00:00Z").unwrap_err();
    let not_before: Timestamp = "2001-01-01T00:00:00Z".parse().unwrap();
    assert_eq!(
        tls_problem(&early),
        Some(&TlsProblem::NotYetValid {
            not_before: Some(not_before)
        })
    );
}

#[test]
fn a_clock_with_a_floor_never_tells_an_earlier_time() {
    let wall = fake("1970-01-01T00:01:00Z");
    let clock = TlsClock::new(wall.clone() as Arc<dyn Clock>);
    let told = || clock.current_time().unwrap().as_secs();
    assert_eq!(told(), 60);
    clock.raise_floor(Timestamp::from_second(1000).unwrap());
    clock.raise_floor(Timestamp::from_second(500).unwrap());
    assert_eq!(told(), 1000);
    wall.set_wall(Timestamp::from_second(2000).unwrap());
    assert_eq!(told(), 2000);
    wall.set_wall(Timestamp::from_second(-5).unwrap());
    assert_eq!(told(), 1000);
}

#[test]
fn a_client_certificate_opens_the_door_that_is_closed_without() {
    let pki = Pki::new();
    let upstream = Upstream::start_tls(pki.server_for_clients(&pki.leaf(&["127.0.0.1"])));
    upstream.answer(|_| Answer::ok().json("[1]"));

    let us = pki.leaf(&["gw-0042"]);
    let cert = pki.file("us.pem", &us.cert);
    let client = Setup {
        ca: Some(pki.ca_file()),
        identity: Some((cert, us)),
        ..Setup::default()
    }
    .build();
    assert_eq!(client.get(&upstream.url("/")).unwrap().0, 200);

    let nobody = trusting(&pki).get(&upstream.url("/")).unwrap_err();
    assert!(
        matches!(tls_problem(&nobody), Some(TlsProblem::ClientRefused(_))),
        "{nobody:?}"
    );

    let stranger = Pki::new();
    let them = stranger.leaf(&["gw-0042"]);
    let cert = stranger.file("them.pem", &them.cert);
    let client = Setup {
        ca: Some(pki.ca_file()),
        identity: Some((cert, them)),
        ..Setup::default()
    }
    .build();
    let refused = client.get(&upstream.url("/")).unwrap_err();
    assert!(
        matches!(tls_problem(&refused), Some(TlsProblem::ClientRefused(_))),
        "{refused:?}"
    );
    assert_eq!(upstream.requests().len(), 1);
}

#[test]
fn an_end_without_close_notify_is_no_end() {
    let framings: [fn(Answer) -> Answer; 3] =
        [|answer| answer, Answer::chunked, Answer::close_delimited];
    for framing in framings {
        let pki = Pki::new();
        let (upstream, client) = pair(&pki);
        upstream.queue(
            framing(Answer::ok().body("x".repeat(9000)))
                .only(4000)
                .then_cut(),
        );
        client.line.begin_request();
        let answer = client.agent.get(upstream.url("/")).call().unwrap();
        let error =
            std::io::copy(&mut answer.into_body().into_reader(), &mut std::io::sink()).unwrap_err();
        assert_eq!(cause_in(&error), Some(&TransportCause::Truncated));
    }
}

#[test]
fn a_proper_end_is_one_and_a_whole_body_needs_none() {
    let pki = Pki::new();
    let (upstream, client) = pair(&pki);
    upstream.queue(Answer::ok().body("to the end").close_delimited());
    assert_eq!(client.get(&upstream.url("/")).unwrap().1, b"to the end");
    upstream.queue(Answer::ok().body("counted").then_cut());
    assert_eq!(client.get(&upstream.url("/")).unwrap().1, b"counted");
}

#[test]
fn a_reused_connection_that_dies_unanswered_says_so_under_tls_too() {
    let pki = Pki::new();
    for dies in [Answer::then_close, Answer::then_cut, Answer::then_reset] {
        let (upstream, client) = pair(&pki);
        client.get(&upstream.url("/")).unwrap();
        upstream.queue(dies(Answer::raw("")));
        let error = client.get(&upstream.url("/")).unwrap_err();
        let cause = cause_of(&error).unwrap();
        let expected = [
            TransportCause::ClosedUnanswered,
            TransportCause::Truncated,
            TransportCause::Reset,
        ];
        assert!(expected.contains(cause), "{cause:?}");
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
fn a_name_is_sent_and_checked_through_a_proxy() {
    let pki = Pki::new();
    let upstream = Upstream::start_tls(pki.server(&pki.leaf(&["db.example"]))).called("db.example");
    upstream.answer(|_| Answer::ok().json("[1]"));
    let proxy = ConnectProxy::to(upstream.addr());
    let client = Setup {
        ca: Some(pki.ca_file()),
        proxy: Some(proxy.addr()),
        ..Setup::default()
    }
    .build();
    assert_eq!(client.get(&upstream.url("/")).unwrap().0, 200);
    client.get(&upstream.url("/")).unwrap();
    assert_eq!(proxy.asked().len(), 1);
    assert!(client.line.conn_state().reused);
}

#[test]
fn a_line_without_tls_never_speaks_plainly_to_an_https_url() {
    let (upstream, _) = pair(&Pki::new());
    let error = Client::new().get(&upstream.url("/")).unwrap_err();
    assert!(matches!(error, ureq::Error::TlsRequired), "{error:?}");
}

#[test]
fn ten_megabytes_arrive_whole() {
    let pki = Pki::new();
    let (upstream, client) = pair(&pki);
    upstream.queue(Answer::streaming(10_000_000));
    assert_eq!(
        client.get_and_count(&upstream.url("/")).unwrap(),
        10_000_000
    );
    assert!(client.line.traffic().down() > 10_000_000);
}

fn config_error(
    roots: Roots,
    extra_ca: Option<&std::path::Path>,
    identity: Option<Identity<'_>>,
) -> String {
    let clock = Arc::new(TlsClock::new(fake("2026-01-01T00:00:00Z")));
    let setup = TlsSetup {
        roots,
        extra_ca,
        identity,
    };
    client_config(&setup, clock).unwrap_err().to_string()
}

#[test]
fn a_wrong_setup_names_the_file_and_what_was_expected() {
    let pki = Pki::new();
    let ca = pki.ca_file();
    let Leaf { cert, key } = pki.leaf(&["gw"]);
    let (cert, other) = (pki.file("gw.pem", &cert), pki.leaf(&["gw"]));
    let identity = |key| {
        Some(Identity {
            cert: &cert,
            key_name: "gw-key",
            key,
        })
    };

    assert_eq!(
        config_error(Roots::ExtraOnly, None, None),
        "roots = \"extra-only\" needs extra_ca"
    );
    let missing = config_error(
        Roots::Bundled,
        Some(&pki.ca_file().with_file_name("no.pem")),
        None,
    );
    assert!(missing.contains("no.pem: No such file"), "{missing}");
    let empty = pki.file("empty.pem", "not PEM\n");
    let error = config_error(Roots::Bundled, Some(&empty), None);
    assert!(
        error.ends_with("empty.pem: expected certificates in PEM, found none"),
        "{error}"
    );
    let broken = pki.file(
        "broken.pem",
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    );
    let error = config_error(Roots::Bundled, Some(&broken), None);
    assert!(
        error.contains("broken.pem: a certificate in it cannot be used"),
        "{error}"
    );

    let error = config_error(Roots::ExtraOnly, Some(&ca), identity(b"no key"));
    assert!(
        error.starts_with("gw-key: expected an unencrypted private key in PEM"),
        "{error}"
    );
    let error = config_error(Roots::ExtraOnly, Some(&ca), identity(other.key.as_bytes()));
    assert!(
        error.starts_with("gw-key: this private key does not belong to the certificate in "),
        "{error}"
    );
    assert!(!format!("{:?}", identity(key.as_bytes())).contains("BEGIN"));
}

#[test]
fn the_bundled_roots_and_the_systems_are_usable() {
    let clock = Arc::new(TlsClock::new(fake("2026-01-01T00:00:00Z")));
    for roots in [Roots::Bundled, Roots::System] {
        let setup = TlsSetup {
            roots,
            extra_ca: None,
            identity: None,
        };
        let config = client_config(&setup, Arc::clone(&clock)).unwrap();
        assert_eq!(config.alpn_protocols, [b"http/1.1"]);
    }
}

#[test]
fn an_unreadable_file_keeps_its_error() {
    let clock = Arc::new(TlsClock::new(fake("2026-01-01T00:00:00Z")));
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("ca.pem")).unwrap();
    let ca = dir.path().join("ca.pem");
    let setup = TlsSetup {
        roots: Roots::Bundled,
        extra_ca: Some(&ca),
        identity: None,
    };
    let error = client_config(&setup, clock).unwrap_err();
    assert!(matches!(error, TlsError::Unreadable { file, .. } if file == ca));
}
