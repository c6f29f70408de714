use super::*;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_796_040_000 + seconds).unwrap()
}

#[test]
fn when_nobody_is_asked() {
    let yes = |age, stale| Reuse::Yes {
        age: Duration::from_secs(age),
        stale,
    };
    let table = [
        ("max-age=10", "", 9, yes(9, false)),
        ("max-age=10", "", 10, Reuse::Ask(Why::Stale)),
        ("max-age=10", "", -1, Reuse::Ask(Why::ClockWentBack)),
        ("max-age=10, no-cache", "", 0, Reuse::Ask(Why::NoCache)),
        ("max-age=10", "no-cache", 0, Reuse::Ask(Why::Wanted)),
        ("max-age=10", "max-age=0", 0, Reuse::Ask(Why::Wanted)),
        ("max-age=10", "max-age=5", 4, yes(4, false)),
        ("max-age=10", "min-fresh=5", 5, yes(5, false)),
        ("max-age=10", "min-fresh=5", 6, Reuse::Ask(Why::Wanted)),
        ("max-age=10", "max-stale", 99, yes(99, true)),
        ("max-age=10", "max-stale=5", 15, yes(15, true)),
        ("max-age=10", "max-stale=5", 16, Reuse::Ask(Why::Stale)),
        (
            "max-age=10, must-revalidate",
            "max-stale",
            16,
            Reuse::Ask(Why::Stale),
        ),
        (
            "max-age=10, stale-while-revalidate=99",
            "",
            11,
            Reuse::Ask(Why::Stale),
        ),
        ("", "", 0, Reuse::Ask(Why::Stale)),
    ];
    let times = Times {
        asked: at(0),
        answered: at(0),
    };
    for (answer, request, now, expected) in table {
        let headers = Headers::new().with("cache-control", answer);
        let wanted = Wanted::of(&Headers::new().with("cache-control", request));
        let found = reuse(&headers, times, &wanted, at(now));
        assert_eq!(found, expected, "{answer} / {request} / {now}");
    }
}
