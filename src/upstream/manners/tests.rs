use super::*;

const NOW: &str = "2026-11-30T18:00:00Z";

/// Fields as lines, `name: value`.
fn fields(lines: &str) -> Headers {
    let mut headers = Headers::new();
    for line in lines.lines() {
        let (name, value) = line.split_once(':').unwrap();
        headers.push(name.trim(), value.trim().as_bytes());
    }
    headers
}

fn read(status: u16, lines: &str) -> Manners {
    manners(status, &fields(lines), NOW.parse().unwrap())
}

fn paused(status: u16, lines: &str) -> Option<(u64, Plea)> {
    read(status, lines)
        .pause
        .map(|pause| (pause.span.as_secs(), pause.plea))
}

#[test]
fn retry_after_counts_where_the_rfc_gives_it_a_meaning() {
    for status in [408, 425, 429, 500, 502, 503, 504, 403] {
        assert_eq!(
            paused(status, "Retry-After: 120"),
            Some((120, Plea::RetryAfter)),
            "{status}"
        );
    }
    for status in [200, 201, 204, 304, 301, 302, 307, 400, 401, 404] {
        assert_eq!(paused(status, "Retry-After: 120"), None, "{status}");
    }
}

#[test]
fn retry_after_in_every_form() {
    let day = 24 * 3600;
    let table = [
        ("Retry-After: 7", Some(7)),
        ("Retry-After:   7  ", Some(7)),
        ("Retry-After: 0.25", Some(1)),
        ("Retry-After: 1.5", Some(2)),
        ("Retry-After: 0", None),
        ("Retry-After: -5", None),
        ("Retry-After: soon", None),
        ("Retry-After:", None),
        ("Retry-After: 1e3", None),
        ("Retry-After: 86401", Some(day)),
        ("Retry-After: 99999999999999999999999", Some(day)),
        ("Retry-After: Mon, 30 Nov 2026 18:01:00 GMT", Some(60)),
        ("Retry-After: Monday, 30-Nov-26 18:01:00 GMT", Some(60)),
        ("Retry-After: Mon Nov 30 18:01:00 2026", Some(60)),
        ("Retry-After: Mon, 30 Nov 2026 17:59:00 GMT", None),
        ("Retry-After: Fri, 01 Jan 2100 00:00:00 GMT", Some(day)),
        // By the upstream's own clock, where it tells it.
        (
            "Retry-After: Fri, 01 Jan 2100 00:00:10 GMT\nDate: Fri, 01 Jan 2100 00:00:00 GMT",
            Some(10),
        ),
    ];
    for (lines, seconds) in table {
        let expected = seconds.map(|seconds| (seconds, Plea::RetryAfter));
        assert_eq!(paused(503, lines), expected, "{lines}");
    }
}

#[test]
fn a_spent_limit_pauses_until_its_reset() {
    let table = [
        // draft-ietf-httpapi-ratelimit-headers, from the newest to the oldest form.
        ("RateLimit: \"default\";r=0;t=30", Some(30)),
        ("RateLimit: \"default\";r=50;t=30", None),
        (
            "RateLimit: \"a\";r=0;t=30, \"b\";r=0;t=90, \"c\";r=1;t=500",
            Some(90),
        ),
        ("RateLimit: default;t=30;r=0", Some(30)),
        ("RateLimit: \"a;b\";r=0;t=7", Some(7)),
        (
            "RateLimit: \"a\";r=0\nRateLimit-Policy: \"b\";q=9;w=5, \"a\";q=100;w=60",
            Some(60),
        ),
        ("RateLimit: \"a\";r=0", Some(60)),
        ("RateLimit: \"a\";r=-1;t=5", None),
        ("RateLimit: \"a\";r=0;t=soon", Some(60)),
        ("RateLimit: limit=100, remaining=0, reset=30", Some(30)),
        ("RateLimit: limit=100, remaining=1, reset=30", None),
        (
            "RateLimit-Limit: 100\nRateLimit-Remaining: 0\nRateLimit-Reset: 30",
            Some(30),
        ),
        (
            "RateLimit-Limit: 100, 100;w=60\nRateLimit-Remaining: 0\nRateLimit-Reset: 30",
            Some(30),
        ),
        ("RateLimit-Remaining: 12\nRateLimit-Reset: 30", None),
        // Before any draft: instants and spans, told apart by size.
        (
            "X-RateLimit-Remaining: 0\nX-RateLimit-Reset: 1796061720",
            Some(120),
        ),
        (
            "X-RateLimit-Remaining: 0\nX-RateLimit-Reset: 1796061720000",
            Some(121),
        ),
        (
            "X-RateLimit-Remaining: 0\nX-RateLimit-Reset: 120",
            Some(120),
        ),
        (
            "X-Rate-Limit-Remaining: 0\nX-Rate-Limit-Reset: 1796061720",
            Some(120),
        ),
        (
            "X-RateLimit-Remaining: 0\nX-RateLimit-Reset: 1796061500",
            None,
        ),
        (
            "X-RateLimit-Remaining: 0\nX-RateLimit-Reset: 99999999",
            Some(86_400),
        ),
        ("X-RateLimit-Remaining: 0\nX-RateLimit-Reset: -3", None),
        ("X-RateLimit-Remaining: 0", Some(60)),
        ("X-RateLimit-Remaining: none\nX-RateLimit-Reset: 120", None),
        (
            "X-RateLimit-Remaining: 0;w=21600\nX-RateLimit-Reset: 5.9",
            Some(5),
        ),
        (
            "X-RateLimit-Remaining: 0\nX-RateLimit-Reset: 4102444860\nDate: Fri, 01 Jan 2100 00:00:00 GMT",
            Some(60),
        ),
        ("X-RateLimit-Reset: 120", None),
    ];
    for (lines, seconds) in table {
        let expected = seconds.map(|seconds| (seconds, Plea::Spent));
        assert_eq!(paused(200, lines), expected, "{lines}");
        assert_eq!(paused(304, lines), expected, "{lines}");
    }
}

#[test]
fn backoff_counts_on_a_success_too_and_the_longest_plea_wins() {
    assert_eq!(paused(200, "Backoff: 30"), Some((30, Plea::Backoff)));
    assert_eq!(paused(304, "Backoff: 0.5"), Some((1, Plea::Backoff)));
    assert_eq!(
        paused(200, "Backoff: 9999999"),
        Some((86_400, Plea::Backoff))
    );
    for none in [
        "Backoff: 0",
        "Backoff: -1",
        "Backoff: later",
        "Backoff: .5",
        "Backoff:",
    ] {
        assert_eq!(paused(200, none), None, "{none}");
    }
    let both = "Backoff: 30\nRetry-After: 60\nRateLimit: \"d\";r=0;t=5";
    assert_eq!(paused(503, both), Some((60, Plea::RetryAfter)));
    assert_eq!(paused(200, both), Some((30, Plea::Backoff)));
}

#[test]
fn a_poll_interval_is_the_sources_own() {
    let read = |lines| read(304, lines);
    let told = read("X-Poll-Interval: 60");
    assert_eq!(told.poll_interval, Some(Duration::from_secs(60)));
    assert_eq!(told.pause, None);
    assert_eq!(read("X-Poll-Interval: 0").poll_interval, None);
    assert_eq!(read("X-Poll-Interval: often").poll_interval, None);
}

#[test]
fn an_alert_is_one_line() {
    let table = [
        (
            r#"Alert: {"code": "soft-eol", "message": "gone in May", "url": "http://a.example/"}"#,
            Some("the upstream warns: soft-eol: gone in May (http://a.example/)"),
        ),
        (
            r#"Alert: {"type": "hard-eol", "message": "a\nb"}"#,
            Some("the upstream warns: hard-eol: a b"),
        ),
        (
            "Alert: moving soon",
            Some("the upstream warns: moving soon"),
        ),
        (r#"Alert: {"x":1}"#, Some(r#"the upstream warns: {"x":1}"#)),
        ("Alert:", None),
    ];
    for (lines, expected) in table {
        assert_eq!(read(200, lines).alert.as_deref(), expected, "{lines}");
    }
    let long = read(200, &format!("Alert: {}", "é".repeat(1000)));
    assert_eq!(long.alert.unwrap().chars().count(), 320);
}

#[test]
fn a_refusal_says_when_in_one_way_or_another() {
    let wait =
        |lines| wait_after_refusal(&fields(lines), NOW.parse().unwrap()).map(|wait| wait.as_secs());
    assert_eq!(wait("Retry-After: 5\nX-RateLimit-Reset: 120"), Some(5));
    assert_eq!(wait("X-RateLimit-Reset: 120"), Some(120));
    assert_eq!(wait("RateLimit: \"d\";r=0;t=9"), Some(9));
    assert_eq!(wait("RateLimit: \"d\";r=3;t=9"), None);
    assert_eq!(
        wait("X-RateLimit-Remaining: 4999\nX-RateLimit-Reset: 1796065200"),
        None
    );
    assert_eq!(wait("X-RateLimit-Limit: 120"), None);
    let about_quantity = |lines| is_rate_limited(&fields(lines));
    assert!(about_quantity("X-RateLimit-Remaining: 0"));
    assert!(about_quantity("Retry-After: 5"));
    assert!(about_quantity("RateLimit: \"d\";r=0"));
    assert!(!about_quantity("X-RateLimit-Remaining: 10"));
}

proptest::proptest! {
    #[test]
    fn no_answer_asks_for_more_than_a_day_and_none_is_choked_on(
        status in 100u16..600, name in 0usize..12, value in "\\PC{0,40}|[0-9]{1,25}|\"?[a-z]{0,3}\"?(;[rtw]=-?[0-9]{0,22}){0,3}",
    ) {
        let names = ["retry-after", "backoff", "ratelimit", "ratelimit-policy", "ratelimit-remaining", "ratelimit-reset",
            "x-ratelimit-remaining", "x-ratelimit-reset", "x-rate-limit-reset", "x-poll-interval", "alert", "date"];
        let mut headers = Headers::new().with("X-RateLimit-Remaining", "0");
        headers.push(names[name], value.as_bytes());
        let told = manners(status, &headers, NOW.parse().unwrap());
        proptest::prop_assert!(told.pause.is_none_or(|pause| pause.span <= MAX_RETRY_AFTER && !pause.span.is_zero()));
        proptest::prop_assert!(told.poll_interval.is_none_or(|span| span <= MAX_RETRY_AFTER));
    }
}
