use proptest::prelude::*;

use super::*;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_796_040_000 + seconds).unwrap()
}

fn date(seconds: i64) -> String {
    at(seconds)
        .strftime("%a, %d %b %Y %H:%M:%S GMT")
        .to_string()
}

const AT_ONCE: (i64, i64) = (0, 0);

#[test]
fn ages_as_the_rfc_reckons_them() {
    // Date, Age, asked and answered, now, the age.
    type Row<'a> = (Option<i64>, Option<&'a str>, (i64, i64), i64, Option<u64>);
    let table: &[Row<'_>] = &[
        (None, None, AT_ONCE, 0, Some(0)),
        (Some(0), None, AT_ONCE, 9, Some(9)),
        (Some(-5), None, AT_ONCE, 9, Some(14)),
        (Some(500), None, AT_ONCE, 9, Some(9)),
        (Some(-5), Some("60"), AT_ONCE, 0, Some(60)),
        (Some(0), Some("60"), (0, 4), 4, Some(64)),
        (Some(0), Some("x"), AT_ONCE, 1, Some(1)),
        (Some(0), None, (4, 0), 1, Some(1)),
        (Some(0), None, AT_ONCE, -1, None),
        (
            Some(0),
            Some("99999999999999999999"),
            AT_ONCE,
            1,
            Some((1 << 31) + 1),
        ),
    ];
    for (told, held, (asked, answered), now, expected) in table {
        let mut headers = Headers::new();
        if let Some(told) = told {
            headers.push("date", date(*told).as_bytes());
        }
        if let Some(held) = held {
            headers.push("age", held.as_bytes());
        }
        let times = Times {
            asked: at(*asked),
            answered: at(*answered),
        };
        let found = age(&headers, times, at(*now));
        assert_eq!(
            found,
            expected.map(Duration::from_secs),
            "{headers:?} {now}"
        );
    }
}

#[test]
fn lifetimes_are_what_the_answer_says_and_nothing_else() {
    let times = Times {
        asked: at(0),
        answered: at(0),
    };
    let table = [
        (vec![], 0),
        (vec![("last-modified", date(-90_000))], 0),
        (
            vec![("cache-control", "max-age=5".into()), ("expires", date(99))],
            5,
        ),
        (vec![("expires", date(99))], 99),
        (vec![("expires", date(99)), ("date", date(90))], 9),
        (vec![("expires", date(99)), ("date", "x".into())], 99),
        (vec![("expires", "0".into()), ("date", date(0))], 0),
        (vec![("expires", date(-9))], 0),
    ];
    for (fields, expected) in table {
        let add = |headers: Headers, (name, value): &(&str, String)| headers.with(name, value);
        let headers = fields.iter().fold(Headers::new(), add);
        assert_eq!(lifetime(&headers, times).as_secs(), expected, "{fields:?}");
    }
}

proptest! {
    #[test]
    fn no_header_and_no_clock_makes_an_age_overflow(
        bytes in prop::collection::vec(any::<u8>(), 0..40),
        digits in "[0-9]{0,40}",
        instants in any::<[i32; 3]>(),
    ) {
        let instant = |at: i32| Timestamp::from_second(i64::from(at) * 100).unwrap();
        let times = Times { asked: instant(instants[0]), answered: instant(instants[1]) };
        for value in [bytes.as_slice(), digits.as_bytes()] {
            let mut headers = Headers::new();
            for name in ["age", "date", "expires", "cache-control"] {
                headers.push(name, value);
            }
            for now in [instant(instants[2]), Timestamp::MIN, Timestamp::MAX] {
                let before = now < times.answered;
                prop_assert_eq!(age(&headers, times, now).is_none(), before);
                let _ = freshness(&headers, times, now);
            }
        }
    }
}
