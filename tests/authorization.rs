//! Who is told what: credentials, custom headers and validators on their origin alone, tokens renewed once, secrets
//! nowhere to be found.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot be set up has failed"
)]

mod support;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use gleaner::pull::report::Outcome;
use support::agent::{Gateway, assert_failed, conditional, logged, records};
use support::upstream::{Answer, Request, Upstream};

/// A file with a secret in it, outside of the state directory.
struct Vault(tempfile::TempDir);

impl Vault {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn keep(&self, name: &str, secret: &str) -> String {
        let path = self.0.path().join(name);
        std::fs::write(&path, format!("{secret}\n")).unwrap();
        format!("{{ file = {path:?} }}")
    }
}

fn field(request: &Request, name: &str) -> Option<String> {
    request.header(name).map(str::to_owned)
}

#[test]
fn every_kind_of_credential_is_sent_and_a_rotated_one_counts_at_once() {
    let vault = Vault::new();
    let secret = vault.keep("secret", "s3cret");
    let table = [
        (
            format!("auth = {{ bearer = {secret} }}"),
            "authorization",
            "Bearer s3cret",
            "Bearer n3w",
        ),
        (
            format!("auth = {{ basic = {{ user = \"gw\", password = {secret} }} }}"),
            "authorization",
            "Basic Z3c6czNjcmV0",
            "Basic Z3c6bjN3",
        ),
        (
            format!("auth = {{ header = {{ name = \"X-Api-Key\", value = {secret} }} }}"),
            "x-api-key",
            "s3cret",
            "n3w",
        ),
        (
            format!("headers = {{ X-Extra = {secret} }}"),
            "x-extra",
            "s3cret",
            "n3w",
        ),
    ];
    for (config, name, first, rotated) in table {
        vault.keep("secret", "s3cret");
        let upstream = Upstream::start();
        upstream.answer(|request| conditional(request, "\"a\"", &records(1..=2, 1)));
        let mut gateway = Gateway::of(&upstream).upstream(&config).start();
        assert_eq!(gateway.word(), "changed", "{config}");
        assert_eq!(field(&upstream.requests()[0], name).as_deref(), Some(first));
        vault.keep("secret", "n3w");
        assert_eq!(gateway.word(), "unchanged");
        assert_eq!(
            field(&upstream.requests()[1], name).as_deref(),
            Some(rotated)
        );
    }
}

#[test]
fn a_secret_that_cannot_be_read_is_this_devices_matter_and_asks_nobody() {
    let upstream = Upstream::start();
    let vault = Vault::new();
    let mut gateway = Gateway::of(&upstream)
        .upstream(&format!(
            "auth = {{ bearer = {} }}",
            vault.keep("empty", "")
        ))
        .start();
    assert_failed(&gateway.sync(), "local", "empty");
    assert_eq!(upstream.requests().len(), 0);
}

#[test]
fn nothing_of_ours_follows_a_redirect_to_another_origin() {
    let vault = Vault::new();
    let config = format!(
        "auth = {{ bearer = {} }}\nheaders = {{ X-Tenant = \"seven\" }}",
        vault.keep("token", "s3cret")
    );
    for status in [301, 302, 303, 307, 308] {
        let (upstream, other) = (Upstream::start(), Upstream::start());
        other.answer(|request| conditional(request, "\"other\"", &records(1..=2, 2)));
        upstream.answer(|request| conditional(request, "\"ours\"", &records(1..=2, 1)));
        let mut gateway = Gateway::of(&upstream).upstream(&config).start();
        gateway.sync();
        let to = other.url("/copy");
        upstream.answer(move |_| Answer::redirect(status, &to).body("moved"));
        let report = gateway.sync();
        assert_eq!(report.outcome, Outcome::Changed, "{report}");
        let seen = &other.requests()[0];
        for name in [
            "authorization",
            "x-tenant",
            "if-none-match",
            "if-modified-since",
            "cookie",
            "referer",
        ] {
            assert_eq!(field(seen, name), None, "{name} after {status}");
        }
        // Behind the redirect the other's validators are asked with, and there alone.
        assert_eq!(gateway.word(), "unchanged");
        let (first, second) = (upstream.requests(), other.requests());
        assert_eq!(
            field(first.last().unwrap(), "if-none-match"),
            None,
            "{status}"
        );
        assert_eq!(
            field(second.last().unwrap(), "if-none-match").as_deref(),
            Some("\"other\"")
        );
        assert_eq!(
            field(first.last().unwrap(), "x-tenant").as_deref(),
            Some("seven")
        );
    }
}

#[test]
fn a_permanent_redirect_is_said_and_a_temporary_one_is_not() {
    for (status, said) in [
        (301, true),
        (308, true),
        (302, false),
        (303, false),
        (307, false),
    ] {
        let upstream = Upstream::start();
        upstream.answer(move |request| match request.path() {
            "/items" => Answer::redirect(status, "/v2/items"),
            _ => conditional(request, "\"a\"", &records(1..=2, 1)),
        });
        let mut gateway = Gateway::of(&upstream).start();
        for outcome in ["changed", "unchanged"] {
            let report = gateway.sync();
            assert_eq!(report.outcome.word(), outcome);
            assert_eq!(
                report.notes.iter().any(|note| note.contains("/v2/items")),
                said,
                "{status}"
            );
            assert_eq!(report.tally.requests, 2, "the config is not rewritten");
        }
    }
}

#[test]
fn five_hops_are_followed_and_six_are_not() {
    let upstream = Upstream::start();
    let hops = |most: u32| {
        move |request: &Request| {
            let at: u32 = request.param("hop").map_or(0, |hop| hop.parse().unwrap());
            if at == most {
                return Answer::ok().json(records(1..=2, 1));
            }
            Answer::redirect(302, &format!("?hop={}", at + 1))
        }
    };
    let mut gateway = Gateway::of(&upstream).start();
    upstream.answer(hops(5));
    assert_eq!(gateway.word(), "changed");
    upstream.answer(hops(6));
    let report = gateway.sync();
    assert_failed(&report, "failing", "more than 5 redirects");
    assert_eq!(report.tally.requests, 6);
}

#[test]
fn a_redirect_from_tls_to_plain_text_is_not_followed() {
    let pki = support::pki::Pki::new();
    let secure = Upstream::start_tls(pki.server(&pki.leaf(&["127.0.0.1"])));
    let plain = Upstream::start();
    let to = plain.url("/items");
    secure.answer(move |_| Answer::redirect(302, &to));
    let trust = format!("roots = \"extra-only\"\nextra_ca = {:?}", pki.ca_file());
    let mut gateway = Gateway::of(&secure).upstream(&trust).start();
    assert_failed(&gateway.sync(), "failing", "from https to http");
    assert_eq!(plain.requests().len(), 0);
}

#[test]
fn a_redirect_from_plain_text_to_tls_works_or_says_why_not() {
    let pki = support::pki::Pki::new();
    let secure = Upstream::start_tls(pki.server(&pki.leaf(&["127.0.0.1"])));
    secure.answer(|_| Answer::ok().json(records(1..=2, 1)));
    let plain = Upstream::start();
    let to = secure.url("/items");
    plain.answer(move |_| Answer::redirect(301, &to));
    let mut gateway = Gateway::of(&plain).start();
    // The system's roots do not know this CA; that they were asked is what counts.
    assert_failed(&gateway.sync(), "failing", "extra_ca");
    gateway.restart_with_upstream(&format!("extra_ca = {:?}", pki.ca_file()));
    assert_eq!(gateway.word(), "changed");
}

/// A token endpoint that numbers its tokens, and an API that takes the newest.
fn oauth(life: u64) -> (Upstream, Upstream, &'static AtomicU64) {
    let issued: &'static AtomicU64 = Box::leak(Box::new(AtomicU64::new(0)));
    let (tokens, api) = (Upstream::start(), Upstream::start());
    tokens.answer(move |request| {
        assert_eq!(request.method, "POST");
        assert_eq!(request.header("authorization"), Some("Basic Z3c6czNjcmV0"));
        assert_eq!(
            request.body,
            b"grant_type=client_credentials&scope=read+all"
        );
        let number = issued.fetch_add(1, Ordering::SeqCst) + 1;
        Answer::ok().json(format!(
            "{{\"access_token\":\"t0ken-{number}\",\"expires_in\":{life}}}"
        ))
    });
    api.answer(move |request| {
        let newest = format!("Bearer t0ken-{}", issued.load(Ordering::SeqCst));
        if request.header("authorization") == Some(&newest) {
            conditional(request, "\"a\"", &records(1..=2, 1))
        } else {
            Answer::status(401)
        }
    });
    (tokens, api, issued)
}

fn oauth_config(tokens: &Upstream, vault: &Vault) -> String {
    format!(
        "auth = {{ oauth2 = {{ token_url = \"{}\", client_id = \"gw\", client_secret = {}, scopes = [\"read\", \"all\"] }} }}",
        tokens.url("/token"),
        vault.keep("secret", "s3cret")
    )
}

#[test]
fn an_oauth_token_is_fetched_once_kept_for_its_life_and_renewed_on_a_401() {
    let vault = Vault::new();
    let (tokens, api, issued) = oauth(3600);
    let mut gateway = Gateway::of(&api)
        .upstream(&oauth_config(&tokens, &vault))
        .start();
    assert_eq!(gateway.word(), "changed");
    gateway.word();
    assert_eq!(tokens.requests().len(), 1, "reused");
    gateway.clock.advance(Duration::from_secs(3580));
    assert_eq!(gateway.word(), "unchanged");
    assert_eq!(tokens.requests().len(), 2, "renewed before its end");
    // The server has forgotten it.
    issued.fetch_add(1, Ordering::SeqCst);
    let report = gateway.sync();
    assert_eq!(report.outcome, Outcome::Unchanged, "{report}");
    assert_eq!((tokens.requests().len(), report.tally.requests), (3, 3));

    api.answer(|_| Answer::status(401));
    let report = gateway.sync();
    assert_failed(&report, "denied", "401");
    assert_eq!(tokens.requests().len(), 4, "renewed once, not for ever");
    assert_eq!(gateway.keys(), ["1", "2"]);
}

#[test]
fn a_token_endpoint_that_does_not_help_is_told_apart() {
    let vault = Vault::new();
    for (answer, word, reason) in [
        (Answer::status(401), "denied", "client id or secret"),
        (
            Answer::status(400).json("{\"error\":\"invalid_client\"}"),
            "denied",
            "client id or secret",
        ),
        (Answer::status(503), "failing", "token endpoint"),
        (Answer::status(404), "refused", "token endpoint"),
        (
            Answer::ok().json("{\"token\":\"x\"}"),
            "denied",
            "access_token",
        ),
        (Answer::ok().json("<html>"), "denied", "access_token"),
        (Answer::redirect(302, "/login"), "refused", "token endpoint"),
        (
            Answer::raw("garbage\r\n\r\n").then_close(),
            "not-ours",
            "token endpoint",
        ),
    ] {
        let (tokens, api) = (Upstream::start(), Upstream::start());
        tokens.queue(answer);
        let mut gateway = Gateway::of(&api)
            .upstream(&oauth_config(&tokens, &vault))
            .start();
        assert_failed(&gateway.sync(), word, reason);
        assert_eq!(
            api.requests().len(),
            0,
            "nothing is asked without the token"
        );
    }
}

#[test]
fn no_secret_is_logged_shown_or_stored() {
    let vault = Vault::new();
    let (tokens, api, _) = oauth(3600);
    let config = format!(
        "{}\nheaders = {{ X-Key = {} }}",
        oauth_config(&tokens, &vault),
        vault.keep("key", "k3y-value")
    );
    logged();
    let mut gateway = Gateway::of(&api)
        .upstream(&config)
        .source("params = { apikey = \"qu3ry\" }")
        .start();
    let mut told = format!("{:?}", gateway.sync());
    for answer in [
        Answer::status(401),
        Answer::status(500).body("t0ken-1 s3cret"),
        Answer::ok().json("[{\"id\":"),
        Answer::raw("HTTP/1.1 200 OK\r\nbad header\r\n\r\n").then_close(),
        Answer::redirect(302, "http://user:s3cret@[::1/?key=k3y-value"),
        Answer::redirect(302, "ftp://user:s3cret@example.com/?key=k3y-value"),
        Answer::redirect(302, "/elsewhere?apikey=qu3ry"),
    ] {
        api.queue(answer);
        told += &format!("{:?}", gateway.sync());
    }
    told += &format!("{:?}", gateway.status());
    let log = logged();
    assert!(!log.is_empty());
    for secret in ["s3cret", "t0ken-1", "k3y-value", "czNjcmV0", "qu3ry"] {
        assert!(!told.contains(secret), "{secret} in {told}");
        let line = log.iter().find(|line| line.contains(secret));
        assert_eq!(line, None, "{secret}");
        if secret != "qu3ry" {
            assert!(!gateway.state_holds(secret), "{secret} on disk");
        }
    }
}

#[test]
fn a_client_certificate_is_shown_at_home_and_nowhere_else() {
    let pki = support::pki::Pki::new();
    let home = Upstream::start_tls(pki.server_for_clients(&pki.leaf(&["127.0.0.1"])));
    let other = Upstream::start_tls(pki.server_for_clients(&pki.leaf(&["127.0.0.1"])));
    let identity = pki.leaf(&["gateway"]);
    let (cert, key) = (
        pki.file("gateway.pem", &identity.cert),
        pki.file("gateway.key", &identity.key),
    );
    let mut gateway = Gateway::of(&home)
        .upstream(&format!(
            "extra_ca = \"{}\"\nroots = \"extra-only\"\nclient_cert = {{ cert = \"{}\", key = {{ file = \"{}\" }} }}",
            pki.ca_file().display(),
            cert.display(),
            key.display()
        ))
        .start();
    home.queue(Answer::ok().json(records(1..=2, 1)));
    assert_eq!(gateway.word(), "changed", "at home it opens the door");

    other.answer(|_| Answer::ok().json(records(1..=9, 2)));
    home.queue(Answer::redirect(302, &other.url("/parts")));
    assert_failed(&gateway.sync(), "failing", "certificate");
    assert!(other.requests().is_empty(), "it was shown elsewhere");
    assert_eq!(gateway.keys().len(), 2);
}
