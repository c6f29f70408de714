use proptest::prelude::*;

use super::*;

fn seconds(count: u64) -> Option<Duration> {
    Some(Duration::from_secs(count))
}

fn answered(lines: &[&str]) -> Answered {
    let add = |headers: Headers, line: &&str| headers.with("Cache-Control", line);
    Answered::of(&lines.iter().fold(Headers::new(), add))
}

fn wanted(line: &str) -> Wanted {
    Wanted::of(&Headers::new().with("cache-control", line))
}

#[test]
fn answers_as_servers_write_them() {
    let none = Answered::default();
    let no_store = Answered {
        no_store: true,
        ..none
    };
    let lives = |count| Answered {
        max_age: seconds(count),
        ..none
    };
    let table: &[(&[&str], Answered)] = &[
        (&[], none),
        (&["No-Store"], no_store),
        (&["public", "x, NO-STORE"], no_store),
        (&["ext=\"no-store\""], none),
        (&["no-store=\"x\""], no_store),
        (&["max-age=5", "MAX-AGE=\"7\""], lives(5)),
        (&["max-age"], lives(0)),
        (&["max-age=-1, max-age=9"], lives(0)),
        (&["max-age=1.5"], lives(0)),
        (&["s-maxage=9, private"], none),
        (&["max-age=99999999999999999999999"], lives(1 << 31)),
        (
            &["no-cache=\"set-cookie\""],
            Answered {
                no_cache: true,
                ..none
            },
        ),
        (
            &["must-revalidate, stale-if-error=60"],
            Answered {
                must_revalidate: true,
                stale_if_error: seconds(60),
                ..none
            },
        ),
        (
            &["stale-if-error=x"],
            Answered {
                stale_if_error: seconds(0),
                ..none
            },
        ),
    ];
    for (lines, expected) in table {
        assert_eq!(answered(lines), *expected, "{lines:?}");
    }
}

#[test]
fn requests_as_people_write_them() {
    assert!(wanted("No-Cache").no_cache);
    assert_eq!(wanted("max-stale").max_stale, Some(Duration::MAX));
    assert_eq!(wanted("max-stale=5, max-stale").max_stale, seconds(5));
    assert_eq!(wanted("min-fresh=x").min_fresh, Some(Duration::MAX));
    assert!(wanted("only-if-cached").only_if_cached);
    let pragma = Headers::new().with("pragma", "No-Cache");
    assert!(Wanted::of(&pragma).no_cache);
    assert!(!Wanted::of(&pragma.with("cache-control", "max-age=1")).no_cache);
}

proptest! {
    #[test]
    fn what_was_written_is_read(
        age in prop::option::of(0_u64..1 << 31),
        error in prop::option::of(0_u64..1 << 31),
        flags in any::<[bool; 4]>(),
    ) {
        let names = ["no-store", "no-cache", "must-understand", "must-revalidate"];
        let mut written: Vec<String> = names
            .iter()
            .zip(flags)
            .filter(|(_, set)| *set)
            .map(|(name, _)| (*name).to_owned())
            .collect();
        written.extend(age.map(|age| format!("max-age={age}")));
        written.extend(error.map(|error| format!("stale-if-error={error}")));
        let read = answered(&[&written.join(", ")]);
        prop_assert_eq!(read, Answered {
            no_store: flags[0],
            no_cache: flags[1],
            must_understand: flags[2],
            must_revalidate: flags[3],
            max_age: age.and_then(seconds),
            stale_if_error: error.and_then(seconds),
        });
    }

    #[test]
    fn any_bytes_are_read_as_something(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
        let mut headers = Headers::new();
        headers.push("cache-control", &bytes);
        headers.push("pragma", &bytes);
        let (_, _) = (Answered::of(&headers), Wanted::of(&headers));
    }
}
