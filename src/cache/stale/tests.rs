use super::*;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_796_040_000 + seconds).unwrap()
}

#[test]
fn when_what_is_kept_stands_in() {
    let kept = |age| StandIn::Kept {
        age: Duration::from_secs(age),
    };
    let no = StandIn::Trouble;
    let gone = Trouble::NoAnswer;
    let table = [
        ("max-age=10, stale-if-error=60", "", gone, 70, kept(70)),
        (
            "max-age=10, stale-if-error=60",
            "",
            gone,
            71,
            no(Why::TooOld),
        ),
        (
            "max-age=10, stale-if-error=60",
            "",
            Trouble::Status(503),
            70,
            kept(70),
        ),
        (
            "max-age=10, stale-if-error=60",
            "",
            Trouble::Status(404),
            70,
            no(Why::NoError),
        ),
        (
            "max-age=10, stale-if-error=60",
            "",
            Trouble::Status(429),
            70,
            no(Why::NoError),
        ),
        ("max-age=10", "", gone, 11, no(Why::NotAllowed)),
        (
            "max-age=10, stale-while-revalidate=99",
            "",
            gone,
            11,
            no(Why::NotAllowed),
        ),
        ("max-age=10", "stale-if-error=60", gone, 70, kept(70)),
        ("stale-if-error=5", "stale-if-error=60", gone, 60, kept(60)),
        (
            "stale-if-error=60, must-revalidate",
            "",
            gone,
            1,
            no(Why::MustAsk),
        ),
        (
            "stale-if-error=60, no-cache",
            "stale-if-error=60",
            gone,
            1,
            no(Why::MustAsk),
        ),
        ("stale-if-error=60", "no-cache", gone, 1, no(Why::MustAsk)),
        ("stale-if-error=60", "", gone, -1, no(Why::ClockWentBack)),
    ];
    let times = Times {
        asked: at(0),
        answered: at(0),
    };
    for (answer, request, trouble, now, expected) in table {
        let headers = Headers::new().with("cache-control", answer);
        let wanted = Wanted::of(&Headers::new().with("cache-control", request));
        let found = stand_in(&headers, times, &wanted, trouble, at(now));
        assert_eq!(
            found, expected,
            "{answer} / {request} / {trouble:?} / {now}"
        );
    }
}
