use proptest::prelude::*;

use super::*;

fn kept(values: u64, status: u16, value: &[u8]) -> Kept {
    let mut headers = Headers::new();
    headers.push("x", value);
    let instant = Timestamp::from_millisecond(1_796_040_000_123).unwrap();
    Kept {
        variant: Variant {
            names: vec!["foo".into()],
            values,
        },
        status,
        headers,
        times: Times {
            asked: instant,
            answered: instant,
        },
        body: Body {
            sha256: "ab".repeat(32),
            length: 5,
        },
    }
}

#[test]
fn one_answer_for_each_variant_and_the_oldest_go() {
    let mut entry = Entry::default();
    for values in 0..10 {
        entry.put(kept(values, 200, b""));
    }
    entry.put(kept(5, 404, b""));
    assert_eq!(entry.kept.len(), MOST);
    assert_eq!(entry.kept.first().unwrap().variant.values, 2);
    assert_eq!(entry.kept.last().unwrap().status, 404);
    entry.remove(&kept(5, 200, b"").variant);
    assert_eq!(entry.kept.len(), MOST - 1);
}

#[test]
fn a_torn_file_holds_nothing() {
    let mut entry = Entry::default();
    entry.put(kept(1, 200, b"v"));
    let whole = entry.print().unwrap();
    for length in 0..whole.len() {
        assert_eq!(Entry::parse(&whole[..length]), None, "{length}");
    }
    assert_eq!(Entry::parse(&vec![0; whole.len()]), None);
    let newer = String::from_utf8(whole)
        .unwrap()
        .replace("\"version\":1", "\"version\":2");
    assert_eq!(Entry::parse(newer.as_bytes()), None);
}

proptest! {
    #[test]
    fn what_was_printed_is_parsed(
        values in any::<u64>(),
        status in any::<u16>(),
        value in prop::collection::vec(any::<u8>(), 0..60),
    ) {
        let mut entry = Entry::default();
        entry.put(kept(values, status, &value));
        prop_assert_eq!(Entry::parse(&entry.print().unwrap()), Some(entry));
    }

    #[test]
    fn any_bytes_are_parsed_as_something(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = Entry::parse(&bytes);
    }
}
