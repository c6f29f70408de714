use proptest::prelude::*;
use serde_json::Value;

use super::*;

fn json(text: &str) -> Json<'_> {
    Json::parse(text.as_bytes()).unwrap_or_else(|bad| panic!("{text}: {bad}"))
}

fn canonical(ignores: &[Ignore], text: &str) -> Vec<u8> {
    Canon::new(ignores).canonical(json(text)).to_vec()
}

fn at(pointer: &str) -> Ignore {
    Ignore::At(Pointer::parse(pointer).unwrap())
}

fn anywhere(name: &str) -> Ignore {
    Ignore::Anywhere(name.to_owned())
}

#[test]
fn the_form_is_as_the_module_says() {
    let text = r#"{"b":[1.50,-0,"x\n"],"a":{"":null},"c":true,"d":false}"#;
    let form = b"{\"a\xff{\"\xffn}\"b\xff[#15e-1 #0 \"x\n\xff]\"c\xfft\"d\xfff}";
    assert_eq!(canonical(&[], text), form);
}

#[test]
fn a_digest_is_the_start_of_sha_256_over_the_form() {
    // printf 't' | sha256sum
    assert_eq!(
        Canon::new(&[]).digest(json(" true ")).to_string(),
        "e3b98a4da31a127d4bde6e43033f66ba"
    );
}

#[test]
fn spelling_makes_no_difference() {
    let groups: &[&[&str]] = &[
        &["1", "1.0", "1e0", "10e-1", "0.1E+1"],
        &["0", "-0", "-0.0", "0e99"],
        &[r#""A""#, r#""\u0041""#],
        &[r#""/""#, r#""\/""#],
        &[r#""é😀""#, r#""\u00E9\ud83d\uDE00""#],
        &[
            r#"{"a":1,"b":2}"#,
            r#"{"b":2,"a":1}"#,
            " { \"b\" : 2.0 ,\n\t\"\\u0061\" : 1 } ",
        ],
        &[
            r#"[{"x":{"b":1,"a":[]}}]"#,
            "[ { \"x\" : { \"a\" : [ ] , \"b\" : 1 } } ]",
        ],
        &[r#"{"aa":1,"b":2,"":3}"#, r#"{"":3,"aa":1,"b":2}"#],
        &["1e999999999", "10e999999998"],
    ];
    for group in groups {
        for text in *group {
            assert_eq!(canonical(&[], text), canonical(&[], group[0]), "{text}");
        }
    }
}

#[test]
fn plain_integers_have_the_form_of_every_other_number() {
    for digits in [
        "1",
        "-1",
        "7",
        "12",
        "-120",
        "101",
        "9007199254740993",
        "123456789012345678901234567890",
    ] {
        for zeros in [0, 1, 2, 8, 9, 10, 11, 40] {
            let plain = format!("{digits}{}", "0".repeat(zeros));
            for other in [
                format!("{digits}e{zeros}"),
                format!("{plain}.0"),
                format!("{plain}0E-1"),
            ] {
                assert_eq!(
                    canonical(&[], &plain),
                    canonical(&[], &other),
                    "{plain} {other}"
                );
            }
        }
    }
}

#[test]
fn different_values_differ() {
    let values = [
        "null",
        "true",
        "false",
        "0",
        "1",
        "-1",
        "10",
        "0.1",
        "0.10000000000000001",
        "9007199254740992",
        "9007199254740993",
        "1e400",
        "1e401",
        "\"\"",
        "\"0\"",
        "\"1\"",
        "\"null\"",
        "\"a\"",
        "\"A\"",
        "\"\\u0000\"",
        "\"\\ud800\"",
        "\"\\ud801\"",
        "\"\\udc00\\ud800\"",
        "\"\u{fffd}\"",
        "\"e\u{301}\"",
        "\"\u{e9}\"",
        "[]",
        "{}",
        "[null]",
        "[[]]",
        "[{}]",
        "[[],[]]",
        "[1,0]",
        "[10]",
        "[\"1\",\"0\"]",
        "[\"10\"]",
        "[0,1]",
        "{\"\":null}",
        "{\"a\":null}",
        "{\"a\":{}}",
        "{\"a\":[]}",
        "{\"a\":1,\"b\":2}",
        "{\"a\":2,\"b\":1}",
        "{\"a\":{\"b\":2}}",
        "{\"a\":{\"b\":{}}}",
        "{\"a\":{},\"b\":{}}",
        "[{\"a\":1},{\"b\":2}]",
        "{\"a\":1,\"a\":2}",
        "{\"a\":2,\"a\":1}",
        "{\"a\":2}",
        "{\"}\":1}",
        "{\"a\":\"}\"}",
    ];
    for (i, one) in values.iter().enumerate() {
        for two in &values[i + 1..] {
            assert_ne!(canonical(&[], one), canonical(&[], two), "{one} {two}");
        }
    }
}

#[test]
fn ignored_places_are_left_out() {
    let table = [
        (at("/x"), r#"{"x":1,"y":{"x":2}}"#, r#"{"y":{"x":2}}"#),
        (at("/x"), r#"{"y":1}"#, r#"{"y":1}"#),
        (at("/x"), r#"{"x":[{"deep":[1,"}"]}],"y":0}"#, r#"{"y":0}"#),
        (at("/x"), r#"{"\u0078":1,"x":2}"#, "{}"),
        (at("/y/x"), r#"{"x":1,"y":{"x":2}}"#, r#"{"x":1,"y":{}}"#),
        (
            at("/a/*/x"),
            r#"{"a":[{"x":1,"y":2},{"x":3}]}"#,
            r#"{"a":[{"y":2},{}]}"#,
        ),
        (
            at("/a/1/x"),
            r#"{"a":[{"x":1},{"x":3}]}"#,
            r#"{"a":[{"x":1},{}]}"#,
        ),
        (
            at("/a/*/*"),
            r#"{"a":[[1,2],{"*":3,"0":4}]}"#,
            r#"{"a":[[],{"0":4}]}"#,
        ),
        (
            at("/a/*"),
            r#"{"a":[1,2],"b":{"*":1}}"#,
            r#"{"a":[],"b":{"*":1}}"#,
        ),
        (at("/a/0"), r#"{"a":[1,2]}"#, r#"{"a":[2]}"#),
        (at("/a/*"), r#"{"a":{"*":1,"b":2}}"#, r#"{"a":{"b":2}}"#),
        (at("/*"), "[1,2]", "[]"),
        (at("/a~1b"), r#"{"a/b":1}"#, "{}"),
        (at(""), r#"{"a":1}"#, r#"{"a":1}"#),
        (
            anywhere("x"),
            r#"{"x":1,"y":[{"x":{"x":2}},{"z":{"x":3,"w":4}}]}"#,
            r#"{"y":[{},{"z":{"w":4}}]}"#,
        ),
        (anywhere("x"), r#"["x",{"y":"x"}]"#, r#"["x",{"y":"x"}]"#),
        (anywhere("é"), r#"{"\u00e9":1}"#, "{}"),
        (anywhere("*"), r#"{"a":1,"*":2}"#, r#"{"a":1}"#),
    ];
    for (ignore, text, same) in table {
        assert_eq!(
            canonical(std::slice::from_ref(&ignore), text),
            canonical(&[], same),
            "{ignore:?} {text}"
        );
    }
}

#[test]
fn ignores_work_together() {
    let ignores = [
        at("/a/*/x"),
        at("/a/0/y"),
        at("/a/1"),
        anywhere("z"),
        at("/updated_at"),
    ];
    let text =
        r#"{"updated_at":5,"a":[{"x":1,"y":2,"z":3,"k":4},{"gone":0},{"x":1,"y":2}],"y":{"z":1}}"#;
    assert_eq!(
        canonical(&ignores, text),
        canonical(&[], r#"{"a":[{"k":4},{"y":2}],"y":{}}"#)
    );
}

#[test]
fn one_canon_serves_many_records() {
    let mut canon = Canon::new(&[at("/a/b"), anywhere("c")]);
    let texts = [
        r#"{"a":{"b":1,"z":[3,2]},"c":0}"#,
        "[]",
        r#"{"b":1,"a":{"z":1,"y":{"d":1,"c":2}}}"#,
        "5",
    ];
    let first = texts.map(|text| canon.digest(json(text)));
    let second = texts.map(|text| canon.digest(json(text)));
    let alone = texts.map(|text| Canon::new(&[at("/a/b"), anywhere("c")]).digest(json(text)));
    assert_eq!(first, second);
    assert_eq!(first, alone);
}

#[test]
fn the_deepest_record_fits_the_stack() {
    let text = format!("{}1{}", "{\"a\":".repeat(128), "}".repeat(128));
    assert_eq!(canonical(&[anywhere("b")], &text).len(), 128 * 5 + 5);
}

/// A value, with what makes the same value look different: an order for the members and a spelling for the rest.
#[derive(Debug, Clone)]
enum Model {
    Word(&'static str),
    Number { digits: i64, scale: u8 },
    Text(String),
    Array(Vec<Model>),
    Object(Vec<(String, Model)>),
}

fn model() -> impl Strategy<Value = Model> {
    let leaf = prop_oneof![
        prop::sample::select(vec!["null", "true", "false"]).prop_map(Model::Word),
        (any::<i64>(), 0u8..25).prop_map(|(digits, scale)| Model::Number { digits, scale }),
        (-20i64..20, 0u8..3).prop_map(|(digits, scale)| Model::Number { digits, scale }),
        "[a-c\"\\\\/\\n\u{e9}\u{1f600}]{0,6}".prop_map(Model::Text),
    ];
    leaf.prop_recursive(4, 40, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Model::Array),
            prop::collection::btree_map("[a-c\"\u{e9}]{0,3}", inner, 0..6)
                .prop_map(|members| Model::Object(members.into_iter().collect())),
        ]
    })
}

/// Writes a model in one of many ways, as `dice` fall.
fn spell(model: &Model, dice: &mut impl FnMut(u32) -> u32, out: &mut String) {
    for _ in 0..dice(3) {
        out.push([' ', '\n', '\t', '\r'][dice(4) as usize]);
    }
    match model {
        Model::Word(word) => out.push_str(word),
        Model::Number { digits, scale } => {
            let zeros = dice(4);
            let exponent = i64::from(*scale) + i64::from(zeros);
            let zeros = if *digits == 0 { 0 } else { zeros as usize };
            let digits = format!("{digits}{}", "0".repeat(zeros));
            match dice(3) {
                0 => out.push_str(&format!("{digits}e-{exponent}")),
                1 => out.push_str(&format!("{digits}.000E-0{exponent}")),
                _ => {
                    let (sign, digits) = digits
                        .strip_prefix('-')
                        .map_or(("", digits.as_str()), |rest| ("-", rest));
                    let (whole, fraction) = digits.split_at(1);
                    let fraction = format!("{fraction}0");
                    let moved = i64::try_from(fraction.len()).unwrap() - 1 - exponent;
                    out.push_str(&format!("{sign}{whole}.{fraction}e{moved:+}"));
                }
            }
        }
        Model::Text(text) => spell_text(text, dice, out),
        Model::Array(items) => {
            out.push('[');
            for (nth, item) in items.iter().enumerate() {
                out.push_str(if nth > 0 { "," } else { "" });
                spell(item, dice, out);
            }
            out.push(']');
        }
        Model::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            for at in (1..members.len()).rev() {
                members.swap(at, dice(u32::try_from(at).unwrap() + 1) as usize);
            }
            out.push('{');
            for (nth, (name, value)) in members.into_iter().enumerate() {
                out.push_str(if nth > 0 { ", " } else { "" });
                spell_text(name, dice, out);
                out.push_str([":", " :", ": "][dice(3) as usize]);
                spell(value, dice, out);
            }
            out.push('}');
        }
    }
    out.push_str(["", " ", "\n"][dice(3) as usize]);
}

fn spell_text(text: &str, dice: &mut impl FnMut(u32) -> u32, out: &mut String) {
    out.push('"');
    for char in text.chars() {
        if dice(3) == 0 {
            for unit in char.encode_utf16(&mut [0; 2]) {
                out.push_str(&format!("\\u{unit:04X}"));
            }
        } else {
            match char {
                '"' | '\\' => out.extend(['\\', char]),
                '\n' => out.push_str("\\n"),
                '/' if dice(2) == 0 => out.push_str("\\/"),
                _ => out.push(char),
            }
        }
    }
    out.push('"');
}

/// A small generator of its own, so that a failure shrinks by its seed.
fn dice(mut seed: u64) -> impl FnMut(u32) -> u32 {
    move |sides| {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        u32::try_from(seed >> 33).unwrap() % sides
    }
}

fn written(model: &Model, seed: u64) -> String {
    let mut out = String::new();
    spell(model, &mut dice(seed), &mut out);
    out
}

/// A model with one thing changed, or `None` if there is nothing to change at the place that `dice` picks.
fn changed(model: &Model, dice: &mut impl FnMut(u32) -> u32) -> Model {
    match model {
        Model::Word(word) => Model::Word(if *word == "null" { "true" } else { "null" }),
        Model::Number { digits, scale } => Model::Number {
            digits: digits ^ 1,
            scale: *scale,
        },
        Model::Text(text) => Model::Text(format!("{text}x")),
        Model::Array(items) if items.is_empty() || dice(4) == 0 => {
            Model::Array(items.iter().cloned().chain([Model::Word("null")]).collect())
        }
        Model::Array(items) => {
            let mut items = items.clone();
            let at = dice(u32::try_from(items.len()).unwrap()) as usize;
            items[at] = changed(&items[at], dice);
            Model::Array(items)
        }
        Model::Object(members) if members.is_empty() || dice(4) == 0 => Model::Object(
            members
                .iter()
                .cloned()
                .chain([("new".to_owned(), Model::Word("null"))])
                .collect(),
        ),
        Model::Object(members) => {
            let mut members = members.clone();
            let at = dice(u32::try_from(members.len()).unwrap()) as usize;
            if dice(2) == 0 {
                members[at].0.push('z');
            } else {
                members[at].1 = changed(&members[at].1, dice);
            }
            Model::Object(members)
        }
    }
}

proptest! {
    #[test]
    fn equal_values_have_equal_forms(model in model(), one: u64, two: u64) {
        let (one, two) = (written(&model, one), written(&model, two));
        prop_assert_eq!(canonical(&[], &one), canonical(&[], &two), "{} {}", one, two);
    }

    #[test]
    fn a_change_anywhere_changes_the_form(model in model(), seed: u64, place: u64) {
        let other = changed(&model, &mut dice(place));
        let (one, two) = (written(&model, seed), written(&other, seed));
        prop_assert_ne!(canonical(&[], &one), canonical(&[], &two), "{} {}", one, two);
    }

    /// What is ignored makes no difference, and nothing else is lost with it.
    #[test]
    fn an_ignored_member_is_as_one_that_is_not_there(model in model(), seed: u64) {
        let text = written(&model, seed);
        let mut without: Value = serde_json::from_str::<Value>(&text).unwrap();
        // Numbers go through floats there, so they are left out of this comparison.
        fn strip(value: &mut Value) {
            match value {
                Value::Object(members) => {
                    members.remove("a");
                    members.values_mut().for_each(strip);
                }
                Value::Array(items) => items.iter_mut().for_each(strip),
                Value::Number(_) => *value = Value::Null,
                _ => {}
            }
        }
        strip(&mut without);
        let mut plain = serde_json::from_str::<Value>(&text).unwrap();
        fn blank(value: &mut Value) {
            match value {
                Value::Object(members) => members.values_mut().for_each(blank),
                Value::Array(items) => items.iter_mut().for_each(blank),
                Value::Number(_) => *value = Value::Null,
                _ => {}
            }
        }
        blank(&mut plain);
        prop_assert_eq!(canonical(&[anywhere("a")], &plain.to_string()), canonical(&[], &without.to_string()));
    }
}
