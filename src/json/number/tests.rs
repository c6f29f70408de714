use proptest::prelude::*;

use super::*;

fn canonical(text: &str) -> String {
    let mut out = Vec::new();
    Decimal::parse(text)
        .unwrap_or_else(|| panic!("{text}"))
        .write_canonical(&mut out);
    String::from_utf8(out).unwrap()
}

#[test]
fn spellings_of_one_number_are_one_text() {
    let table: &[(&str, &[&str])] = &[
        (
            "0",
            &[
                "0",
                "-0",
                "0.0",
                "-0.000",
                "0e5",
                "0E-5",
                "0e99999999999999999999999",
                "-0.0e+7",
            ],
        ),
        (
            "1e0",
            &[
                "1", "1.0", "1e0", "1E+0", "10e-1", "0.1e1", "0.001e3", "1.000", "1e-0", "100e-2",
                "1e00",
            ],
        ),
        ("-1e0", &["-1", "-1.0", "-10e-1", "-0.1e+1"]),
        (
            "1e3",
            &[
                "1000",
                "1e3",
                "1E3",
                "10e2",
                "1000.0",
                "0.1e4",
                "1.0e+03",
                "1000000e-3",
            ],
        ),
        ("15e-1", &["1.5", "15e-1", "0.15e1", "1.50", "0.0015e3"]),
        ("1e-1", &["0.1", "1e-1", "0.10", "0.01e1"]),
        ("105e-2", &["1.05", "105e-2", "1.050"]),
        ("100005e-2", &["1000.05", "1000.050", "0.100005e4"]),
        (
            "9007199254740993e0",
            &[
                "9007199254740993",
                "9007199254740993.0",
                "9007199254740.993e3",
            ],
        ),
        (
            "1e999999999",
            &["1e999999999", "10e999999998", "0.1e1000000000"],
        ),
        (
            "1e99999999999999999999",
            &[
                "1e99999999999999999999",
                "10e99999999999999999998",
                "0.001e100000000000000000002",
            ],
        ),
        (
            "1e-99999999999999999999",
            &["1e-99999999999999999999", "10e-100000000000000000000"],
        ),
        (
            "1e9223372036854775807",
            &[
                "1e9223372036854775807",
                "0.1e9223372036854775808",
                "10e9223372036854775806",
            ],
        ),
        (
            "1e9223372036854775808",
            &[
                "1e9223372036854775808",
                "10e9223372036854775807",
                "0.1e9223372036854775809",
            ],
        ),
        (
            "1e-9223372036854775808",
            &[
                "1e-9223372036854775808",
                "10e-9223372036854775809",
                "0.1e-9223372036854775807",
            ],
        ),
    ];
    for (text, spellings) in table {
        for spelling in *spellings {
            assert_eq!(canonical(spelling), *text, "{spelling}");
        }
    }
}

#[test]
fn neighbours_stay_apart() {
    let table = [
        ("9007199254740993", "9007199254740992"),
        ("0.1", "0.10000000000000001"),
        ("1", "-1"),
        ("10", "1"),
        ("0.01", "0.1"),
        ("1e400", "1e401"),
        ("1e-400", "0"),
        ("1.7976931348623157e308", "1.7976931348623158e308"),
        ("18446744073709551615", "18446744073709551616"),
        ("1e99999999999999999999", "1e99999999999999999998"),
        ("1e99999999999999999999", "1e-99999999999999999999"),
    ];
    for (one, two) in table {
        assert_ne!(canonical(one), canonical(two));
        assert_ne!(Decimal::parse(one), Decimal::parse(two));
    }
}

#[test]
fn takes_only_what_json_calls_a_number() {
    for text in [
        "", "-", "+1", "01", "-01", "1.", ".5", "1e", "1e+", "1.e3", "0x10", "1_000", "NaN",
        "Infinity", " 1", "1 ", "--1", "1e1.5", "1,5", "١",
    ] {
        assert!(Decimal::parse(text).is_none(), "{text:?}");
    }
}

#[test]
fn order_is_that_of_the_numbers() {
    let ascending = [
        "-1e99999999999999999999",
        "-1e400",
        "-10",
        "-9.5",
        "-1e-3",
        "-1e-99999999999999999999",
        "0",
        "1e-99999999999999999999",
        "1e-400",
        "0.1",
        "0.10000000000000001",
        "0.9",
        "1",
        "1.5",
        "2",
        "10",
        "10.000000000000000000001",
        "9007199254740992",
        "9007199254740993",
        "1e400",
        "11e399",
        "1e9223372036854775807",
        "1e99999999999999999999",
        "2e99999999999999999999",
    ];
    let numbers: Vec<_> = ascending
        .iter()
        .map(|text| Decimal::parse(text).unwrap())
        .collect();
    for (i, one) in numbers.iter().enumerate() {
        for (j, two) in numbers.iter().enumerate() {
            assert_eq!(one.cmp(two), i.cmp(&j), "{} {}", ascending[i], ascending[j]);
        }
    }
}

#[test]
fn integers_are_written_plainly_up_to_a_length() {
    let table = [
        ("7", Some("7")),
        ("1.0", Some("1")),
        ("-1e3", Some("-1000")),
        ("-0", Some("0")),
        ("1.5", None),
        ("1e-1", None),
        ("1.5e1", Some("15")),
        ("12345678901234567890", Some("12345678901234567890")),
        ("1e19", Some("10000000000000000000")),
        ("1e20", None),
        ("-1e19", None),
        ("1e999999999", None),
        ("1e99999999999999999999", None),
    ];
    for (text, plain) in table {
        assert_eq!(
            Decimal::parse(text).unwrap().integer_text(20).as_deref(),
            plain,
            "{text}"
        );
    }
}

#[test]
fn scaling_rounds_down() {
    let table = [
        ("1.5", 3, Some(1500)),
        ("1.9999", 3, Some(1999)),
        ("-1.9999", 3, Some(-2000)),
        ("-1.999", 3, Some(-1999)),
        ("1e-400", 9, Some(0)),
        ("-1e-400", 9, Some(-1)),
        ("1e-99999999999999999999", 9, Some(0)),
        ("0", 9, Some(0)),
        ("1e30", 0, Some(10i128.pow(30))),
        ("1e40", 0, None),
        ("1e99999999999999999999", 0, None),
        ("0.05", 1, Some(0)),
        ("-0.05", 1, Some(-1)),
    ];
    for (text, power, value) in table {
        assert_eq!(Decimal::parse(text).unwrap().scaled(power), value, "{text}");
    }
}

proptest! {
    #[test]
    fn respelling_changes_nothing(digits in "[1-9][0-9]{0,24}", point in 0usize..30, exponent in -50i64..50, zeros in 0usize..4, negative: bool) {
        let sign = if negative { "-" } else { "" };
        let plain = format!("{sign}{digits}e{exponent}");
        // The same with the point moved `point` places to the left, and zeros at the end.
        let padded = format!("{}{digits}", "0".repeat((point + 1).saturating_sub(digits.len())));
        let (whole, fraction) = padded.split_at(padded.len() - point);
        let fraction = format!("{fraction}{}", "0".repeat(zeros));
        let dot = if fraction.is_empty() { "" } else { "." };
        let moved = format!("{sign}{whole}{dot}{fraction}E{:+}", exponent + i64::try_from(point).unwrap());
        prop_assert_eq!(canonical(&plain), canonical(&moved));
        prop_assert_eq!(Decimal::parse(&plain), Decimal::parse(&moved));
    }

    #[test]
    fn compares_as_integers_do(one: i64, two: i64, shift in 0usize..20) {
        let text = |number: i64| format!("{number}{}e-{shift}", "0".repeat(shift));
        let (a, b) = (text(one), two.to_string());
        prop_assert_eq!(Decimal::parse(&a).unwrap().cmp(&Decimal::parse(&b).unwrap()), one.cmp(&two));
        prop_assert_eq!(canonical(&a) == canonical(&b), one == two);
    }
}
