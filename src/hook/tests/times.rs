//! Times: any number, both sides of the tolerance, clocks that nobody trusts, secrets that end.

use super::*;
use crate::hook::verify::Unproven;

#[test]
fn a_secret_ends_when_the_config_says() {
    let scheme = rule("github").scheme;
    let ending = Key::new(&scheme, SECRET.as_bytes(), Some(at(NOW))).unwrap();
    let lasting = key("github", "another");
    let judged =
        |now: Option<i64>, keys: &[Key]| github(b"{}").judged(&rule("github"), keys, now.map(at));
    let both = [lasting.clone(), ending.clone()];
    assert_eq!(judged(Some(NOW - 1), &both).word(), "valid");
    assert_eq!(
        judged(Some(NOW), &both),
        Verdict::BadSignature(Unproven::Ended {
            secret: 1,
            at: at(NOW)
        })
    );
    assert_eq!(judged(None, &both), Verdict::ClockUntrusted);
    // The same secret without an end counts.
    let again = [ending, key("github", SECRET)];
    for now in [None, Some(NOW + 1)] {
        let Verdict::Valid(event) = judged(now, &again) else {
            panic!("it is signed")
        };
        assert_eq!(event.secret, 1);
    }
}

#[test]
fn any_time_is_survived() {
    let body = b"{}";
    for (time, word) in [
        (i64::MIN.to_string(), "stale"),
        (i64::MAX.to_string(), "future"),
        ("-1".to_owned(), "stale"),
        ("0".to_owned(), "stale"),
        ("9223372036854775808".to_owned(), "malformed"),
        ("-9223372036854775809".to_owned(), "malformed"),
        (
            "99999999999999999999999999999999999999999".to_owned(),
            "malformed",
        ),
        (format!("{NOW}.5"), "malformed"),
        (format!("+{NOW}"), "malformed"),
        ("1_764_500_000".to_owned(), "malformed"),
        ("0x6910".to_owned(), "malformed"),
        ("1e9".to_owned(), "malformed"),
        ("NaN".to_owned(), "malformed"),
        ("-".to_owned(), "malformed"),
        (format!("{NOW} {NOW}"), "malformed"),
        (format!("{NOW}000"), "future"),
    ] {
        let sent = stripe(&time, body);
        assert_eq!(sent.word("stripe", SECRET, NOW), word, "{time}");
        let sent = standard(&time, body, &v1(&time, body));
        assert_eq!(sent.word("standard-webhooks", WHSEC, NOW), word, "{time}");
        for now in [Timestamp::MIN, Timestamp::MAX] {
            let verdict = sent.judged(
                &rule("standard-webhooks"),
                &[key("standard-webhooks", WHSEC)],
                Some(now),
            );
            assert_ne!(verdict.word(), "bad-signature", "{time}");
        }
    }
    // Zendesk writes RFC 3339.
    for (time, word) in [
        ("2025-11-30T10:53:20Z", "valid"),
        ("2025-11-30T11:53:20+01:00", "valid"),
        ("-9999-01-01T00:00:00Z", "malformed"),
        ("9998-12-31T23:59:59Z", "future"),
        ("9999-12-31T23:59:59Z", "malformed"),
        ("2025-11-30", "malformed"),
        ("2025-11-30T10:53:20Z\"", "malformed"),
        ("\\u00320", "malformed"),
        ("\\u0032025-11-30T10:53:20Z", "malformed"),
    ] {
        let signed = [time.as_bytes(), body].concat();
        let sent = Sent::new(body)
            .with("X-Zendesk-Webhook-Signature-Timestamp", time)
            .with(
                "X-Zendesk-Webhook-Signature",
                base64(&hmac(SECRET.as_bytes(), &signed)),
            );
        assert_eq!(sent.word("zendesk", SECRET, NOW), word, "{time}");
    }
}

#[test]
fn the_tolerance_has_two_sides() {
    let judged = |offset: i64, past: u64, future: u64| {
        let mut rule = rule("stripe");
        rule.tolerance = Tolerance {
            past: Duration::from_secs(past),
            future: Duration::from_secs(future),
        };
        let sent = stripe(&(NOW + offset).to_string(), b"{}");
        sent.judged(&rule, &[key("stripe", SECRET)], Some(at(NOW)))
            .word()
    };
    for (offset, past, future, word) in [
        (-300, 300, 300, "valid"),
        (-301, 300, 300, "stale"),
        (300, 300, 300, "valid"),
        (301, 300, 300, "future"),
        (-3600, 3600, 0, "valid"),
        (1, 3600, 0, "future"),
        (0, 0, 0, "valid"),
        (-1, 0, 3600, "stale"),
    ] {
        assert_eq!(judged(offset, past, future), word, "{offset}");
    }
    let mut endless = rule("stripe");
    endless.tolerance = Tolerance {
        past: Duration::MAX,
        future: Duration::MAX,
    };
    for time in [i64::MIN, i64::MAX] {
        let sent = stripe(&time.to_string(), b"{}");
        let Verdict::Valid(event) = sent.judged(&endless, &[key("stripe", SECRET)], Some(at(NOW)))
        else {
            panic!("all is taken")
        };
        assert_eq!(event.sent_at, None, "that is no instant of this calendar");
    }
}

#[test]
fn without_a_trusted_clock_only_the_sender_learns_it() {
    let body = b"{}";
    let keys = [key("stripe", SECRET)];
    assert_eq!(
        stripe(&now(), body).judged(&rule("stripe"), &keys, None),
        Verdict::ClockUntrusted
    );
    let mut touched = stripe(&now(), body);
    touched.body.push(b' ');
    assert_eq!(
        touched.judged(&rule("stripe"), &keys, None).word(),
        "bad-signature"
    );
    // What signs no time needs no clock.
    assert_eq!(
        github(body)
            .judged(&rule("github"), &[key("github", SECRET)], None)
            .word(),
        "valid"
    );
}
