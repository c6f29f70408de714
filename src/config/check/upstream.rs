//! `[upstream.NAME]`: where it is, how it is reached, how long and how large its answers may be.

use std::ops::Range;
use std::time::Duration;

use url::{Host, Url};

use super::{HOUR, MILLISECOND, auth, path, url_may_hold_secret};
use crate::config::findings::Check;
use crate::config::raw::{CLIENT_CERT, LIMITS};
use crate::config::reader::{Item, Table};
use crate::config::value::print_duration;
use crate::config::{Auth, ClientCert, Limits, Proxy, Roots, Secret, Upstream};

const CLIENT_CERT_FORM: &str = "{ cert = \"path\", key = { file = \"path\" } }";

/// Checks one section.
pub(super) fn upstream(check: &mut Check, table: &Table<'_>) -> Option<Upstream> {
    let base = table
        .required(check, "base", "\"https://host/path/\"")
        .and_then(|item| base(check, &item));
    let auth = auth::auth(check, table);
    let headers = auth::headers(check, table, &auth);
    let upstream = Upstream {
        base: base?,
        auth,
        headers,
        scope: scope(check, table),
        extra_ca: table.item("extra_ca").and_then(|item| path(check, &item)),
        roots: roots(check, table),
        client_cert: table
            .item("client_cert")
            .and_then(|item| client_cert(check, &item)),
        proxy: proxy(check, table),
        insecure_http: table.flag(check, "insecure_http"),
        min_interval: min_interval(check, table),
        limits: table
            .item("limits")
            .map_or_else(Limits::default, |item| limits(check, &item)),
    };
    guard_plain_http(
        check,
        &upstream,
        &table
            .item("base")
            .map_or(table.span.clone(), |item| item.span),
    );
    Some(upstream)
}

/// The upstream of a source that has a plain `url`.
pub(super) fn of_source(
    check: &mut Check,
    table: &Table<'_>,
    url: &Url,
    span: &Range<usize>,
) -> Option<Upstream> {
    let auth = auth::auth(check, table);
    let headers = auth::headers(check, table, &auth);
    let upstream = Upstream {
        base: url.join("/").ok()?,
        auth,
        headers,
        scope: scope(check, table),
        extra_ca: table.item("extra_ca").and_then(|item| path(check, &item)),
        roots: Roots::System,
        client_cert: None,
        proxy: proxy(check, table),
        insecure_http: false,
        min_interval: Duration::ZERO,
        limits: Limits::default(),
    };
    guard_plain_http(check, &upstream, span);
    Some(upstream)
}

/// A URL of `http` or `https` with a host, without user, password and fragment.
pub(super) fn web_url(check: &mut Check, item: &Item<'_>, text: &str) -> Option<Url> {
    let expected = "a URL such as \"https://host/path\"";
    if url_may_hold_secret(text) {
        check.hide(&item.span);
    }
    let url = match Url::parse(text) {
        Ok(url) => url,
        Err(error) => {
            check.error(
                &item.span,
                format!("`{}` is no absolute URL: {error}", item.label),
                expected,
            );
            return None;
        }
    };
    if !matches!(url.scheme(), "http" | "https") || url.host().is_none() {
        check.error(
            &item.span,
            format!("`{}` has the scheme {:?}", item.label, url.scheme()),
            "https or http",
        );
        return None;
    }
    if has_user(&url) {
        check.error(
            &item.span,
            format!("`{}` has a user or password in it", item.label),
            "a URL without them, and `auth = { basic = { user = \"…\", password = { file = \"path\" } } }`",
        );
        return None;
    }
    if url.fragment().is_some() {
        check.error(
            &item.span,
            format!("`{}` has a fragment (#…), which is never sent", item.label),
            expected,
        );
        return None;
    }
    Some(url)
}

pub(super) fn has_user(url: &Url) -> bool {
    !url.username().is_empty() || url.password().is_some()
}

fn base(check: &mut Check, item: &Item<'_>) -> Option<Url> {
    let text = item.filled(check, "a URL such as \"https://host/path/\"")?;
    let mut url = web_url(check, item, text)?;
    if url.query().is_some() {
        check.hide(&item.span);
        let expected = "a URL without one: parameters go into a source's `path` or `params`";
        check.error(&item.span, "`base` has a query (?…)", expected);
        return None;
    }
    // Without the slash a relative path would replace the last segment (RFC 3986 5.2.3).
    if !url.path().ends_with('/') {
        let path = format!("{}/", url.path());
        url.set_path(&path);
    }
    Some(url)
}

fn scope(check: &mut Check, table: &Table<'_>) -> String {
    table
        .string(check, "scope", "a name such as \"plant-7\"")
        .unwrap_or_default()
        .to_owned()
}

/// The longest `min_interval`.
const LONGEST_INTERVAL: Duration = Duration::from_secs(600);

fn min_interval(check: &mut Check, table: &Table<'_>) -> Duration {
    let span = table.duration(check, "min_interval", Duration::ZERO, Duration::ZERO);
    if let Some(item) = table
        .item("min_interval")
        .filter(|_| span > LONGEST_INTERVAL)
    {
        let expected = format!(
            "at most \"{}\", since others wait meanwhile: how often a source is asked is its `every`",
            print_duration(LONGEST_INTERVAL)
        );
        let what = format!(
            "`min_interval` is {}, which is too long",
            print_duration(span)
        );
        check.error(&item.span, what, expected);
    }
    span
}

fn roots(check: &mut Check, table: &Table<'_>) -> Roots {
    let choices = [
        ("system", Roots::System),
        ("bundled", Roots::Bundled),
        ("extra-only", Roots::ExtraOnly),
    ];
    let roots = table.choice(check, "roots", Roots::System, &choices);
    if let (Roots::ExtraOnly, Some(item), None) =
        (roots, table.item("roots"), table.item("extra_ca"))
    {
        check.error(
            &item.span,
            "`roots` is \"extra-only\" and there is no `extra_ca`",
            "`extra_ca = \"ca.pem\"`",
        );
    }
    roots
}

fn client_cert(check: &mut Check, item: &Item<'_>) -> Option<ClientCert> {
    let table = item.table(check, &CLIENT_CERT, CLIENT_CERT_FORM)?;
    let cert = table
        .required(check, "cert", "\"path\"")
        .and_then(|item| path(check, &item));
    let key = table.required(check, "key", "{ file = \"path\" }");
    let key = key.and_then(|item| auth::secret(check, &item, "client_cert.key"));
    Some(ClientCert {
        cert: cert?,
        key: key?,
    })
}

fn proxy(check: &mut Check, table: &Table<'_>) -> Proxy {
    let expected = "\"http://host:port\", or \"\" for none whatever the environment says";
    let Some(item) = table.item("proxy") else {
        return Proxy::Environment;
    };
    let Some(text) = item.string(check, expected) else {
        return Proxy::Environment;
    };
    if text.is_empty() {
        return Proxy::Direct;
    }
    if url_may_hold_secret(text) {
        check.hide(&item.span);
    }
    if text.contains('@') {
        check.error(
            &item.span,
            "`proxy` has a user or password in it",
            "\"http://host:port\"; what must stay secret goes into HTTPS_PROXY in the environment, without `proxy` here",
        );
    } else if !Url::parse(text)
        .is_ok_and(|url| url.scheme() == "http" && url.path() == "/" && url.query().is_none())
    {
        check.error(&item.span, "`proxy` is no proxy's URL", expected);
    }
    Proxy::Url(text.to_owned())
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(30),
            stall: Duration::from_secs(60),
            total: HOUR,
            body: 1 << 30,
            head: 64 << 10,
            record: 1 << 20,
            pages: 10_000,
        }
    }
}

fn limits(check: &mut Check, item: &Item<'_>) -> Limits {
    let default = Limits::default();
    let Some(table) = item.table(
        check,
        &LIMITS,
        "a table such as { total = \"1h\", body = \"64MiB\" }",
    ) else {
        return default;
    };
    // What is held in memory at once stays addressable on 32 bits.
    let in_memory = |size: u64| usize::try_from(size).unwrap_or(usize::MAX);
    let limits = Limits {
        connect: table.duration(check, "connect", default.connect, MILLISECOND),
        stall: table.duration(check, "stall", default.stall, MILLISECOND),
        total: table.duration(check, "total", default.total, MILLISECOND),
        body: table.size(check, "body", default.body, 1 << 40),
        head: in_memory(table.size(check, "head", default.head as u64, 16 << 20)),
        record: in_memory(table.size(check, "record", default.record as u64, 256 << 20)),
        pages: u32::try_from(table.integer(check, "pages", default.pages.into(), 1..=1_000_000))
            .unwrap_or(u32::MAX),
    };
    if limits.total < limits.stall {
        let span = table
            .item("total")
            .or_else(|| table.item("stall"))
            .map_or(item.span.clone(), |item| item.span);
        check.error(
            &span,
            "`total` is shorter than `stall`",
            "a `total` of at least `stall`",
        );
    }
    limits
}

/// Credentials over plain HTTP can be read by anyone on the way, so that needs a word from the user.
fn guard_plain_http(check: &mut Check, upstream: &Upstream, span: &Range<usize>) {
    if upstream.base.scheme() == "http" && upstream.client_cert.is_some() {
        check.error(
            span,
            "a client certificate can't be shown over http",
            "https",
        );
    }
    let token_url = match &upstream.auth {
        Auth::OAuth2 { token_url, .. } => Some(token_url),
        _ => None,
    };
    let secret_headers = upstream
        .headers
        .iter()
        .any(|(_, value)| !matches!(value, Secret::Literal(_)));
    let credentials = upstream.auth != Auth::None || secret_headers;
    let open = |url: &Url| url.scheme() == "http" && !is_loopback(url);
    if credentials
        && !upstream.insecure_http
        && (open(&upstream.base) || token_url.is_some_and(open))
    {
        check.error(
            span,
            "credentials would cross the network in the clear over http",
            "https, or `insecure_http = true` in [upstream.NAME] if the network is trusted",
        );
    }
}

fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}
