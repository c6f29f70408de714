use proptest::prelude::*;

use super::super::checksum::Checksum;
use super::super::place::Mark;
use super::*;
use crate::config::Proof;
use crate::upstream::conditional::{Validators, Variant};

const DAY: u64 = 86_400;

fn kept() -> Kept {
    Kept {
        config: [1; 8],
        file: "f".into(),
        url: Url::parse("https://a.example/f").unwrap(),
        validators: Validators {
            etag: Some(b"\"a\"".to_vec()),
            last_modified: None,
        },
        variant: Variant::default(),
        digest: Checksum::of(b"x"),
        mark: Mark {
            inode: 1,
            size: 1,
            seconds: 0,
            nanos: 0,
        },
        fetched: 1_000_000,
        changed: 1_000_000,
        checked: 1_000_000,
    }
}

fn document(file: &str, url: &str, content_type: &[&str]) -> Document {
    let hour = Duration::from_secs(3600);
    Document {
        name: "d".into(),
        upstream: "u".into(),
        url: Url::parse(url).unwrap(),
        file: file.into(),
        every: hour,
        jitter: hour,
        stale_after: hour,
        proof: Proof::None,
        max_size: 1 << 20,
        allow_empty: false,
        content_type: content_type.iter().map(|&kind| kind.to_owned()).collect(),
        on_change: None,
        ignore_no_store: false,
        max_skip: hour,
        recheck: hour,
    }
}

fn standing<'a>(kept: Option<&'a Kept>, part: Option<Held>) -> Standing<'a> {
    Standing {
        kept,
        is_untouched: true,
        selects: true,
        part,
        config: [1; 8],
        recheck: Duration::from_secs(30 * DAY),
        now: 1_000_060,
    }
}

fn held(bytes: u64, total: Option<u64>, is_whole: bool) -> Option<Held> {
    Some(Held {
        bytes,
        total,
        is_whole,
    })
}

#[test]
fn what_is_asked() {
    let known = kept();
    let unvalidated = Kept {
        validators: Validators::default(),
        ..kept()
    };
    let with = |part| standing(Some(&known), part);
    let month = 30 * i64::try_from(DAY).unwrap();
    let table = [
        ("nothing", standing(None, None), Question::Whole(Why::First)),
        ("something", with(None), Question::IfChanged),
        (
            "another URL or scope",
            Standing {
                config: [2; 8],
                ..with(None)
            },
            Question::Whole(Why::Elsewhere),
        ),
        (
            "a touched file",
            Standing {
                is_untouched: false,
                ..with(None)
            },
            Question::Whole(Why::Touched),
        ),
        (
            "no validators",
            standing(Some(&unvalidated), None),
            Question::Whole(Why::Unvalidated),
        ),
        (
            "another variant",
            Standing {
                selects: false,
                ..with(None)
            },
            Question::Whole(Why::Unvalidated),
        ),
        (
            "a month of 304s",
            Standing {
                now: 1_000_000 + month,
                ..with(None)
            },
            Question::Whole(Why::Recheck),
        ),
        (
            "nearly",
            Standing {
                now: 999_999 + month,
                ..with(None)
            },
            Question::IfChanged,
        ),
        (
            "a clock that went back",
            Standing {
                now: 0,
                ..with(None)
            },
            Question::IfChanged,
        ),
        ("a part", with(held(5, Some(10), false)), Question::Rest),
        (
            "a part of nobody knows how much",
            with(held(5, None, false)),
            Question::Rest,
        ),
        (
            "a part and nothing else",
            standing(None, held(5, Some(10), false)),
            Question::Rest,
        ),
        (
            "an empty part",
            with(held(0, Some(10), false)),
            Question::IfChanged,
        ),
        (
            "a part as long as the whole",
            with(held(10, Some(10), false)),
            Question::IfPartIsCurrent,
        ),
        (
            "a part that had come to its end",
            with(held(10, None, true)),
            Question::IfPartIsCurrent,
        ),
    ];
    for (name, standing, expected) in table {
        assert_eq!(question(&standing), expected, "{name}");
    }
}

#[test]
fn a_416_begins_anew_unless_the_part_may_be_whole() {
    let anew = Question::Whole(Why::Restart);
    let table = [
        (None, Some(10), false, Question::IfPartIsCurrent),
        (None, None, false, Question::IfPartIsCurrent),
        (None, Some(10), true, anew),
        (None, None, true, anew),
        (None, Some(9), false, anew),
        (None, Some(11), false, anew),
        (Some(20), Some(10), false, anew),
        (Some(20), Some(20), false, anew),
        (Some(20), None, false, anew),
    ];
    for (total, stated, other, expected) in table {
        let part = held(10, total, false).unwrap();
        let found = after_unsatisfied(part, stated, other);
        assert_eq!(found, expected, "{total:?} {stated:?}");
    }
}

#[test]
fn media_types() {
    let url = "https://a.example/f";
    let table: &[(&str, &[&str], Option<&str>, bool)] = &[
        ("f.bin", &[], None, true),
        ("f.bin", &[], Some("application/octet-stream"), true),
        ("f.bin", &[], Some("text/plain; charset=utf-8"), true),
        ("f.bin", &[], Some("text/html"), false),
        ("f.bin", &[], Some("Text/HTML;charset=x"), false),
        ("f.bin", &[], Some("application/xhtml+xml"), false),
        ("f.html", &[], Some("text/html"), true),
        ("F.HTM", &[], Some("text/html"), true),
        (
            "f.bin",
            &["text/html"],
            Some("text/html; charset=utf-8"),
            true,
        ),
        (
            "f.bin",
            &["application/json"],
            Some("application/json"),
            true,
        ),
        ("f.bin", &["application/json"], Some("text/plain"), false),
        ("f.bin", &["application/json"], None, false),
        (
            "f.bin",
            &["application/json", "image/*"],
            Some("image/png"),
            true,
        ),
        ("f.bin", &["image/*"], Some("imagery/png"), false),
        ("f.bin", &["image/*"], Some(""), false),
    ];
    for (file, expected, sent, passes) in table {
        let mut headers = Headers::new();
        if let Some(sent) = sent {
            headers = headers.with("Content-Type", sent);
        }
        let found = unwelcome(&headers, &document(file, url, expected));
        assert_eq!(
            found.is_none(),
            *passes,
            "{file} {expected:?} {sent:?}: {found:?}"
        );
    }
}

#[test]
fn html_is_known_by_its_beginning() {
    let url = "https://a.example/f";
    let binary = document("f.bin", url, &[]);
    for start in [
        "<!doctype html>",
        "<!DOCTYPE HTML PUBLIC",
        "\u{feff}\r\n <html lang=x>",
    ] {
        assert!(begins_as_html(start.as_bytes(), &binary), "{start}");
        let html = document("f.html", url, &[]);
        assert!(!begins_as_html(start.as_bytes(), &html), "{start}");
        let said = document("f.bin", url, &["application/x-template"]);
        assert!(!begins_as_html(start.as_bytes(), &said), "{start}");
    }
    for start in [
        "",
        "<",
        "<htm",
        "{\"a\":\"<html>\"}",
        "<?xml version=\"1.0\"?>",
    ] {
        assert!(!begins_as_html(start.as_bytes(), &binary), "{start}");
    }
}

#[test]
fn codings() {
    let table = [
        ("f.bin", "f.bin", "", Ok(false)),
        ("f.bin", "f.bin", "identity", Ok(false)),
        ("f.bin", "f.bin", "gzip", Err(())),
        ("f.json", "f.json", "br", Err(())),
        ("f.tar.gz", "f.tar.gz", "gzip", Ok(true)),
        ("image", "image.TGZ", "x-gzip", Ok(true)),
        ("f.json.gz", "f.json", "gzip", Ok(true)),
        ("f.zst", "f.zst", "zstd", Ok(true)),
    ];
    for (file, name, coding, expected) in table {
        let headers = Headers::new().with("Content-Encoding", coding);
        let document = document(file, &format!("https://a.example/{name}?x=y.gz"), &[]);
        let found = is_coded(&headers, &document).map_err(drop);
        assert_eq!(found, expected, "{file} {name} {coding}");
    }
}

#[test]
fn the_last_name_of_a_url() {
    for (url, name) in [
        ("https://a.example/x/fw-1.2.bin?token=1", "fw-1.2.bin"),
        ("https://a.example/fw%20a+b.bin", "fw a+b.bin"),
        ("https://a.example/", ""),
        ("https://a.example/dir/", ""),
    ] {
        assert_eq!(last_segment(&Url::parse(url).unwrap()), name, "{url}");
    }
}

proptest! {
    /// Whatever is held: a range is asked for behind bytes alone, and a condition is put on what can answer it alone.
    #[test]
    fn no_question_presumes_what_is_not_held(
        is_kept: bool, is_untouched: bool, selects: bool, config: bool, validated: bool, now in 0i64..10_000_000,
        part in proptest::option::of((0u64..20, proptest::option::of(0u64..20), any::<bool>())),
    ) {
        let mut known = kept();
        if !validated {
            known.validators = Validators::default();
        }
        let part = part.map(|(bytes, total, is_whole)| Held { bytes, total, is_whole });
        let standing = Standing {
            kept: is_kept.then_some(&known), is_untouched, selects, part,
            config: if config { [1; 8] } else { [2; 8] }, recheck: Duration::from_secs(DAY), now,
        };
        match question(&standing) {
            Question::Rest => {
                let part = part.unwrap();
                prop_assert!(part.bytes > 0 && !part.is_whole && part.total != Some(part.bytes));
            }
            Question::IfPartIsCurrent => {
                let part = part.unwrap();
                prop_assert!(part.bytes > 0 && (part.is_whole || part.total == Some(part.bytes)));
            }
            Question::IfChanged => {
                prop_assert!(is_kept && is_untouched && selects && config && validated);
                prop_assert!(part.is_none_or(|part| part.bytes == 0));
            }
            Question::Whole(_) => prop_assert!(part.is_none_or(|part| part.bytes == 0)),
        }
    }
}
