//! Which proxy a line goes through, if any. Only HTTP proxies, by `CONNECT` (RFC 9110 9.3.6).

use std::net::IpAddr;

use ureq::{Proxy, ProxyProtocol};
use url::{Host, Url};

use crate::config;

/// A proxy that cannot be used. Names where it was given, not the URL: that may hold a password.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProxyError {
    /// Not a proxy URL.
    Invalid {
        /// Where it was given: `proxy` or an environment variable.
        from: &'static str,
    },
    /// A proxy of a kind that is not supported.
    Unsupported {
        /// Where it was given: `proxy` or an environment variable.
        from: &'static str,
        /// Its kind, for example `SOCKS5`.
        kind: String,
    },
}

impl std::fmt::Display for ProxyError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Invalid { from } => {
                write!(f, "{from}: expected http://[user:password@]host:port")
            }
            Self::Unsupported { from, kind } => {
                write!(
                    f,
                    "{from}: {kind} proxies are not supported, expected http://[user:password@]host:port"
                )
            }
        }
    }
}

impl std::error::Error for ProxyError {}

/// The proxy for an upstream at `base`.
///
/// - A proxy from the config is used for every host; one from the environment unless `NO_PROXY` names the host.
/// - The environment's is `HTTPS_PROXY`, `https_proxy`, `ALL_PROXY`, `all_proxy` for an `https` base; for `http` only
///   `http_proxy` in lower case (a CGI server sets `HTTP_PROXY` from a request's `Proxy:` header), then `ALL_PROXY`,
///   `all_proxy`. Empty is unset.
/// - `NO_PROXY` (or `no_proxy`) lists hosts, with commas; a name means its subdomains too, `*` everything.
/// - Loopback hosts are never proxied.
///
/// # Errors
///
/// The proxy that would be used is no URL, or no HTTP proxy.
pub fn proxy_for(
    choice: &config::Proxy,
    base: &Url,
    env: impl Fn(&str) -> Option<String>,
) -> Result<Option<Proxy>, ProxyError> {
    if is_loopback(base) {
        return Ok(None);
    }
    match choice {
        config::Proxy::Direct => Ok(None),
        config::Proxy::Url(url) => parse("proxy", url).map(Some),
        config::Proxy::Environment => from_environment(base, env),
    }
}

fn from_environment(
    base: &Url,
    env: impl Fn(&str) -> Option<String>,
) -> Result<Option<Proxy>, ProxyError> {
    let names: &[&'static str] = match base.scheme() {
        "https" => &["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"],
        _ => &["http_proxy", "ALL_PROXY", "all_proxy"],
    };
    let set = |name: &str| {
        env(name)
            .map(|value| value.trim().to_owned())
            .filter(|value| !value.is_empty())
    };
    let Some((from, url)) = names.iter().find_map(|name| Some((*name, set(name)?))) else {
        return Ok(None);
    };
    let proxy = parse(from, &url)?;
    let Some(exceptions) = set("NO_PROXY").or_else(|| set("no_proxy")) else {
        return Ok(Some(proxy));
    };
    let mut builder = Proxy::builder(proxy.protocol())
        .host(proxy.host())
        .port(proxy.port());
    if let Some(user) = proxy.username() {
        builder = builder.username(user);
    }
    if let Some(password) = proxy.password() {
        builder = builder.password(password);
    }
    for exception in exceptions
        .split(',')
        .map(str::trim)
        .filter(|exception| !exception.is_empty())
    {
        // ureq reads `example.com` as the host alone and `.example.com` as its subdomains alone.
        let name = exception.trim_start_matches("*.").trim_start_matches('.');
        builder = builder.no_proxy(name).no_proxy(&format!(".{name}"));
    }
    builder
        .build()
        .map(Some)
        .map_err(|_| ProxyError::Invalid { from })
}

fn parse(from: &'static str, url: &str) -> Result<Proxy, ProxyError> {
    let proxy = Proxy::new(url).map_err(|_| ProxyError::Invalid { from })?;
    match proxy.protocol() {
        ProxyProtocol::Http => Ok(proxy),
        other => Err(ProxyError::Unsupported {
            from,
            kind: other.to_string(),
        }),
    }
}

fn is_loopback(base: &Url) -> bool {
    match base.host() {
        Some(Host::Ipv4(ip)) => ip.is_loopback(),
        Some(Host::Ipv6(ip)) => IpAddr::from(ip).to_canonical().is_loopback(),
        Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Proxy as Choice;

    fn ask(choice: &Choice, base: &str, env: &[(&str, &str)]) -> Result<Option<Proxy>, ProxyError> {
        let lookup = |name: &str| {
            env.iter()
                .find(|(key, _)| *key == name)
                .map(|(_, value)| (*value).to_owned())
        };
        proxy_for(choice, &base.parse().unwrap(), lookup)
    }

    fn host(choice: &Choice, base: &str, env: &[(&str, &str)]) -> Option<String> {
        ask(choice, base, env)
            .unwrap()
            .map(|proxy| format!("{}:{}", proxy.host(), proxy.port()))
    }

    #[test]
    fn the_environment_is_read_by_scheme() {
        let check = |base: &str, env: &[(&str, &str)], expected: Option<&str>| {
            assert_eq!(
                host(&Choice::Environment, base, env).as_deref(),
                expected,
                "{base} {env:?}"
            );
        };
        let (https, http) = ("https://x.example/", "http://x.example/");
        let all = [
            ("HTTPS_PROXY", "http://s:1"),
            ("http_proxy", "http://p:2"),
            ("ALL_PROXY", "a:3"),
        ];
        check(https, &all, Some("s:1"));
        check(http, &all, Some("p:2"));
        check(http, &[("HTTP_PROXY", "http://evil:1")], None);
        check(
            http,
            &[("HTTPS_PROXY", "http://s:1"), ("all_proxy", "http://a:3")],
            Some("a:3"),
        );
        check(
            https,
            &[("HTTPS_PROXY", ""), ("https_proxy", "http://l:4")],
            Some("l:4"),
        );
        check(https, &[("http_proxy", "http://p:2")], None);
        check(https, &[], None);
    }

    #[test]
    fn the_config_overrides_the_environment() {
        let env = [("HTTPS_PROXY", "http://s:1"), ("NO_PROXY", "*")];
        assert_eq!(host(&Choice::Direct, "https://x.example/", &env), None);
        let own = Choice::Url("http://u:p%40@own:5".into());
        let proxy = ask(&own, "https://x.example/", &env).unwrap().unwrap();
        assert_eq!(
            (
                proxy.host(),
                proxy.port(),
                proxy.username(),
                proxy.password()
            ),
            ("own", 5, Some("u"), Some("p@"))
        );
        assert!(!proxy.is_no_proxy(&"https://x.example/".parse().unwrap()));
    }

    #[test]
    fn loopback_is_never_proxied() {
        let own = Choice::Url("http://own:5".into());
        for base in [
            "http://127.1.2.3/",
            "http://[::1]:8/",
            "https://localhost/",
            "http://[::ffff:127.0.0.1]/",
        ] {
            assert_eq!(host(&own, base, &[]), None, "{base}");
        }
    }

    #[test]
    fn exceptions_mean_subdomains_too() {
        let env = [
            ("HTTPS_PROXY", "http://u:p%25w@s:1"),
            (
                "NO_PROXY",
                "example.com, .example.org,*.example.net, 192.0.2.7",
            ),
        ];
        let proxy = ask(&Choice::Environment, "https://x.test/", &env)
            .unwrap()
            .unwrap();
        assert_eq!(
            (proxy.username(), proxy.password()),
            (Some("u"), Some("p%w"))
        );
        let direct = [
            "example.com",
            "a.example.com",
            "example.org",
            "a.example.org",
            "b.example.net",
            "192.0.2.7",
        ];
        for host in direct {
            assert!(
                proxy.is_no_proxy(&format!("https://{host}/").parse().unwrap()),
                "{host}"
            );
        }
        for host in ["badexample.com", "example.com.evil.test", "192.0.2.70"] {
            assert!(
                !proxy.is_no_proxy(&format!("https://{host}/").parse().unwrap()),
                "{host}"
            );
        }
    }

    #[test]
    fn a_wrong_proxy_is_named_without_its_secret() {
        let socks = [("ALL_PROXY", "socks5://u:geheim@s:1080")];
        let error = ask(&Choice::Environment, "https://x.example/", &socks).unwrap_err();
        assert_eq!(
            error,
            ProxyError::Unsupported {
                from: "ALL_PROXY",
                kind: "SOCKS5".into()
            }
        );
        assert!(!error.to_string().contains("geheim"));
        let bad = Choice::Url("http://u:geheim@".into());
        assert_eq!(
            ask(&bad, "https://x.example/", &[]).unwrap_err(),
            ProxyError::Invalid { from: "proxy" }
        );
    }
}
