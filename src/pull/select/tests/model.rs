//! The selector beside a model: serde_json over the whole body.

use proptest::prelude::*;
use serde_json::Value;

use super::super::SelectError;
use super::read_pieces;
use crate::config::Format;
use crate::json::{Json, Kind};

fn value() -> impl Strategy<Value = Value> {
    let name = prop::sample::select(vec!["a", "items", "0", "next", "é\"\\", ""]);
    let text = "[a-c\\]\\[{}\",:\\\\ é\n]{0,8}";
    let leaf = prop_oneof![
        prop::sample::select(vec![Value::Null, true.into(), false.into()]),
        any::<i32>().prop_map(Into::into),
        text.prop_map(Into::into),
    ];
    leaf.prop_recursive(4, 60, 6, move |inner| {
        prop_oneof![
            2 => prop::collection::vec(inner.clone(), 0..6).prop_map(Into::into),
            3 => prop::collection::vec((name.clone(), inner), 0..5).prop_map(|members| {
                Value::Object(members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
            }),
        ]
    })
}

fn path() -> impl Strategy<Value = String> {
    prop::collection::vec(
        prop::sample::select(vec![
            "/a", "/items", "/0", "/1", "/next", "/é\"\\", "/", "/-",
        ]),
        0..3,
    )
    .prop_map(|tokens| tokens.concat())
}

fn lengths() -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(prop_oneof![1usize..4, 1usize..200, Just(65536)], 1..5)
}

/// The places of the first few arrays in a value, so that most cases have records.
fn arrays(value: &Value, at: &str, places: &mut Vec<String>) {
    match value {
        Value::Array(items) => {
            places.push(at.to_owned());
            for (nth, item) in items.iter().enumerate() {
                arrays(item, &format!("{at}/{nth}"), places);
            }
        }
        Value::Object(members) => {
            for (name, member) in members {
                arrays(member, &format!("{at}/{name}"), places);
            }
        }
        _ => {}
    }
}

/// Whether one place is the other or lies inside it.
fn inside(outer: &str, inner: &str) -> bool {
    inner
        .strip_prefix(outer)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn model_of(value: &Value, records: &str, wanted: &str) -> Option<Value> {
    let hidden = inside(records, wanted) || inside(wanted, records);
    value.pointer(wanted).filter(|_| !hidden).cloned()
}

proptest! {
    #[test]
    fn agrees_with_serde_json(
        value in value(), other in path(), pick: prop::sample::Index, wanted in prop::collection::vec(path(), 0..5),
        lengths in lengths(), pretty: bool,
    ) {
        let mut places = Vec::new();
        arrays(&value, "", &mut places);
        places.push(other);
        let records = pick.get(&places).as_str();
        let body = if pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) }.unwrap();
        let wanted: Vec<&str> = wanted.iter().map(String::as_str).collect();
        let outcome = read_pieces(body.as_bytes(), &lengths, Format::Json, records, &wanted);
        match value.pointer(records) {
            Some(Value::Array(items)) => {
                prop_assert_eq!(outcome.message(), "no error");
                let read: Vec<Value> = outcome.records.iter().map(|raw| serde_json::from_str(raw).unwrap()).collect();
                prop_assert_eq!(&read, items);
                for (pointer, found) in wanted.iter().zip(outcome.found) {
                    let found: Option<Value> = found.map(|raw| serde_json::from_str(&raw).unwrap());
                    prop_assert_eq!(found, model_of(&value, records, pointer), "{}", pointer);
                }
            }
            Some(other) => {
                let kind = Kind::of(other.to_string().as_bytes()[0]);
                let told = matches!(outcome.end, Err(SelectError::NotAnArray { found, .. }) if found == kind);
                prop_assert!(told, "{}", outcome.message());
            }
            None => {
                let told = matches!(outcome.end, Err(SelectError::NoRecords { .. }));
                prop_assert!(told, "{}", outcome.message());
            }
        }
    }

    #[test]
    fn a_cut_anywhere_is_an_error(value in value(), pick: prop::sample::Index, cut: prop::sample::Index, lengths in lengths()) {
        let value = serde_json::json!({"pre": 1, "v": value, "items": [1, {"x": [2]}], "post": [true, "x"]});
        let mut places = Vec::new();
        arrays(&value, "", &mut places);
        let body = value.to_string();
        let cut = &body.as_bytes()[..cut.index(body.len())];
        let outcome = read_pieces(cut, &lengths, Format::Json, pick.get(&places).as_str(), &["/post"]);
        let told = matches!(outcome.end, Err(SelectError::Truncated { .. } | SelectError::Empty));
        prop_assert!(told, "{}", outcome.message());
    }

    /// Whatever bytes come: an end only if serde_json takes the body too, and no panic.
    #[test]
    fn garbage_is_an_error(body in r#"([\[\]{},: ]|"a"|"b"|1|true|-|\n|x|\\){0,14}"#, lengths in lengths()) {
        let outcome = read_pieces(body.as_bytes(), &lengths, Format::Json, "/a", &["/b"]);
        if outcome.end.is_ok() {
            // The records themselves are not judged here.
            let judged = outcome.records.iter().all(|raw| Json::parse(raw.as_bytes()).is_ok());
            prop_assert!(!judged || serde_json::from_str::<Value>(&body).is_ok(), "{}", body);
        } else if let Ok(model) = serde_json::from_str::<Value>(&body) {
            let twice = matches!(outcome.end, Err(SelectError::Duplicate { .. }));
            prop_assert!(twice || !model.pointer("/a").is_some_and(Value::is_array), "{} {}", body, outcome.message());
        }
    }

    #[test]
    fn lines_agree_with_a_split(body in "([\\[a1\\]]|\n|\r\n| ){0,30}", lengths in lengths()) {
        let outcome = read_pieces(body.as_bytes(), &lengths, Format::Ndjson, "", &[]);
        let model: Vec<_> = body.split('\n').map(str::trim).filter(|line| !line.is_empty()).collect();
        prop_assert_eq!(&outcome.records, &model);
        prop_assert_eq!(outcome.end.is_ok(), !model.is_empty());
    }
}
