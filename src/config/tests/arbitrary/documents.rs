//! Documents, as any file may state them.

use proptest::prelude::*;
use proptest::sample::select;

use super::{SECOND_MS, span};
use crate::config::{Document, Proof};

pub(super) fn document() -> impl Strategy<Value = Document> {
    let proof = prop_oneof![
        Just(Proof::None),
        any::<[u8; 32]>().prop_map(Proof::Sha256),
        "[a-z.]{1,9}\\?x=[a-z]{0,3}".prop_map(|path| {
            let url = url::Url::parse("https://sums.example/").expect("it is one");
            Proof::Sha256Url(url.join(&path).expect("it is one"))
        }),
    ];
    let types = prop::collection::vec(select(vec!["application/json", "image/*", "a/b+c"]), 0..3);
    let times = (
        span(SECOND_MS),
        any::<u16>(),
        span(0),
        span(0),
        span(SECOND_MS),
    );
    let rest = (1..1_u64 << 40, any::<bool>(), any::<bool>());
    (
        "[a-zé \"][a-z./ ]{0,6}[a-z]",
        "[a-z=?&%]{0,8}",
        proof,
        types,
        times,
        rest,
    )
        .prop_filter("names only", |(file, ..)| {
            !file.contains("//") && !file.split('/').any(|name| matches!(name, "." | ".."))
        })
        .prop_map(|(file, path, proof, types, times, rest)| {
            let base = url::Url::parse("https://h.example/api/").expect("it is one");
            let (every, jitter, late, max_skip, recheck) = times;
            let (max_size, allow_empty, ignore_no_store) = rest;
            Document {
                name: "d".to_owned(),
                upstream: "u".to_owned(),
                url: base.join(&path).unwrap_or(base),
                file: file.into(),
                every,
                jitter: std::time::Duration::from_millis(jitter.into()).min(every),
                stale_after: every + late,
                proof,
                max_size,
                allow_empty,
                content_type: types.into_iter().map(str::to_owned).collect(),
                on_change: None,
                ignore_no_store,
                max_skip,
                recheck,
            }
        })
}
