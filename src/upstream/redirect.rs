//! Where a redirect leads (RFC 9110 15.4), by our own rules. Pure.

use url::Url;

use super::exchange::shown;
use super::outcome::{Failure, Kind};

/// The most redirects of one request.
const MAX_HOPS: usize = 5;

/// Where a redirect leads. Never from TLS to plain text; never for ever.
pub(super) fn redirected(from: &Url, location: &str, hops: usize) -> Result<Url, Failure> {
    let fail = |reason: String| Err(Failure::new(Kind::Failing, reason).at(shown(from)));
    if hops > MAX_HOPS {
        return fail(format!("more than {MAX_HOPS} redirects"));
    }
    let Ok(mut to) = from.join(location) else {
        return fail("redirected to something that is no URL".into());
    };
    to.set_fragment(None);
    match (from.scheme(), to.scheme()) {
        ("https", "http") => fail(format!(
            "redirected from https to http ({}), which is not followed",
            shown(&to)
        )),
        (_, "http" | "https") if to.host_str().is_some_and(|host| !host.is_empty()) => Ok(to),
        // Not as it came: what cannot be taken apart may hold a secret anywhere.
        (_, scheme) => fail(format!(
            "redirected to a URL of the scheme {scheme:.20}, which cannot be followed"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirects_by_our_rules() {
        let from = Url::parse("https://a.example/x/y?q=1").unwrap();
        let table = [
            ("/z", Some("https://a.example/z")),
            ("z#part", Some("https://a.example/x/z")),
            ("//b.example/z", Some("https://b.example/z")),
            ("http://a.example/z", None),
            ("ftp://a.example/z", None),
            ("javascript:alert(1)", None),
            ("http:", None),
        ];
        for (location, expected) in table {
            let to = redirected(&from, location, 1)
                .ok()
                .map(|url| url.to_string());
            assert_eq!(to.as_deref(), expected, "{location}");
        }
        assert!(redirected(&from, "/z", MAX_HOPS + 1).is_err());
        let plain = Url::parse("http://a.example/").unwrap();
        assert_eq!(
            redirected(&plain, "https://a.example/", 1)
                .unwrap()
                .as_str(),
            "https://a.example/"
        );
    }
}
