use super::*;
use crate::cache::entry::Body;
use crate::clock::Timestamp;
use crate::upstream::conditional::Variant;

#[test]
fn a_304_renews_field_by_field() {
    let kept = Headers::new()
        .with("date", "then")
        .with("age", "500")
        .with("link", "a")
        .with("link", "b")
        .with("etag", "\"1\"")
        .with("content-length", "5")
        .with("content-encoding", "gzip")
        .with("x-stays", "1");
    let not_modified = Headers::new()
        .with("date", "now")
        .with("link", "c")
        .with("etag", "")
        .with("content-length", "0")
        .with("content-encoding", "br")
        .with("connection", "close")
        .with("x-new", "1");
    let expected = Headers::new()
        .with("etag", "\"1\"")
        .with("content-length", "5")
        .with("content-encoding", "gzip")
        .with("x-stays", "1")
        .with("date", "now")
        .with("link", "c")
        .with("x-new", "1");
    assert_eq!(updated(&kept, &not_modified), expected);
}

#[test]
fn the_card_is_spared_where_nothing_but_the_date_changes() {
    let times = Times {
        asked: Timestamp::UNIX_EPOCH,
        answered: Timestamp::UNIX_EPOCH,
    };
    let before = |headers: &Headers| Kept {
        variant: Variant::default(),
        status: 200,
        headers: headers.clone(),
        times,
        body: Body {
            sha256: String::new(),
            length: 0,
        },
    };
    let plain = Headers::new().with("etag", "\"1\"").with("date", "then");
    let later = Headers::new().with("etag", "\"1\"").with("date", "now");
    assert!(!is_worth_writing(&before(&plain), &later, times));
    let other = later.clone().with("x", "1");
    assert!(is_worth_writing(&before(&plain), &other, times));
    let lives = later.clone().with("cache-control", "max-age=5");
    assert!(is_worth_writing(&before(&lives), &lives, times));
    assert!(is_worth_writing(&before(&lives), &later, times));
}
