use super::*;

const BERLIN: &str = "CET-1CEST,M3.5.0,M10.5.0/3";
const LORD_HOWE: &str = "<+1030>-10:30<+11>-11,M10.1.0,M4.1.0";
const HAVANA: &str = "CST5CDT,M3.2.0/0,M11.1.0/1";
const MINUTES: &str = "%d.%m.%Y %H:%M";

fn pattern(text: &str, zone: &str) -> Pattern {
    Pattern::new(text, Some(zone)).unwrap_or_else(|bad| panic!("{text} in {zone} {bad}"))
}

#[test]
fn a_local_time_is_an_instant_of_its_zone() {
    let table = [
        (MINUTES, BERLIN, "30.11.2026 19:00", "2026-11-30T18:00:00Z"),
        (MINUTES, BERLIN, "30.06.2026 20:00", "2026-06-30T18:00:00Z"),
        (
            "%Y-%m-%d %H:%M:%S",
            "UTC",
            "2026-11-30 18:00:00",
            "2026-11-30T18:00:00Z",
        ),
        (
            "%Y-%m-%d %H:%M:%S",
            "+05:30",
            "2026-11-30 18:00:00",
            "2026-11-30T12:30:00Z",
        ),
        (
            "%Y-%m-%d %H:%M:%S",
            "-0330",
            "2026-11-30 18:00:00",
            "2026-11-30T21:30:00Z",
        ),
        (
            "%Y%m%dT%H%M%S%.f",
            "Z",
            "20261130T180000.25",
            "2026-11-30T18:00:00.25Z",
        ),
        ("%Y-%m-%d", BERLIN, "2026-11-30", "2026-11-29T23:00:00Z"),
        (
            "%m/%d/%Y %I:%M:%S %p",
            "EST5",
            "11/30/2026 01:00:00 PM",
            "2026-11-30T18:00:00Z",
        ),
        (
            "%a, %d %b %Y %H:%M:%S GMT",
            "UTC",
            "Mon, 30 Nov 2026 18:00:00 GMT",
            "2026-11-30T18:00:00Z",
        ),
        // A leap second is the one before it ends.
        (
            "%Y-%m-%d %H:%M:%S",
            "UTC",
            "2016-12-31 23:59:60",
            "2016-12-31T23:59:59Z",
        ),
        // Left out in spring: the earlier of the two that it may mean.
        (MINUTES, BERLIN, "29.03.2026 02:30", "2026-03-29T00:30:00Z"),
        // Twice in autumn: the first.
        (MINUTES, BERLIN, "25.10.2026 02:30", "2026-10-25T00:30:00Z"),
        (
            MINUTES,
            LORD_HOWE,
            "05.04.2026 01:45",
            "2026-04-04T14:45:00Z",
        ),
    ];
    for (text, zone, written, time) in table {
        let read = pattern(text, zone).earliest(written);
        assert_eq!(read, Some(time.parse().unwrap()), "{written} in {zone}");
    }
    let offset = Pattern::new("%Y-%m-%dT%H:%M:%S%z", None).unwrap();
    let read = offset.earliest("2026-11-30T19:00:00+0100");
    assert_eq!(read, Some("2026-11-30T18:00:00Z".parse().unwrap()));
    for nothing in [
        "",
        "30.11.2026",
        "30.11.2026 19:00:00",
        "31.02.2026 00:00",
        "30.11.2026 25:00",
    ] {
        assert_eq!(
            pattern(MINUTES, BERLIN).earliest(nothing),
            None,
            "{nothing}"
        );
    }
}

#[test]
fn what_is_written_is_never_taken_for_a_later_time() {
    let table = [
        (
            MINUTES,
            BERLIN,
            "2026-11-30T18:00:59.9Z",
            "30.11.2026 19:00",
        ),
        ("%Y-%m-%d", BERLIN, "2026-11-30T23:30:00Z", "2026-12-01"),
        (
            "%Y-%m-%d %H:%M:%S%.3f",
            "UTC",
            "2026-11-30T18:00:00.9999Z",
            "2026-11-30 18:00:00.999",
        ),
        // The repeated hour: for the first time it might be taken for the second, so its eve is written.
        (MINUTES, BERLIN, "2026-10-24T23:59:30Z", "25.10.2026 01:59"),
        (MINUTES, BERLIN, "2026-10-25T00:00:00Z", "25.10.2026 01:59"),
        (MINUTES, BERLIN, "2026-10-25T00:30:00Z", "25.10.2026 01:59"),
        (MINUTES, BERLIN, "2026-10-25T01:00:00Z", "25.10.2026 02:00"),
        (MINUTES, BERLIN, "2026-10-25T01:30:00Z", "25.10.2026 02:30"),
        (MINUTES, BERLIN, "2026-10-25T02:00:00Z", "25.10.2026 03:00"),
        // Where an offset is written, there is nothing to doubt.
        (
            "%Y-%m-%d %H:%M %z",
            BERLIN,
            "2026-10-25T00:30:00Z",
            "2026-10-25 02:30 +0200",
        ),
        // In Havana midnight is there twice.
        ("%Y-%m-%d", HAVANA, "2026-11-01T04:30:00Z", "2026-10-31"),
        ("%Y-%m-%d", HAVANA, "2026-11-01T05:30:00Z", "2026-11-01"),
    ];
    for (text, zone, time, written) in table {
        let pattern = pattern(text, zone);
        let found = pattern.write(time.parse().unwrap());
        assert_eq!(found.as_deref(), Some(written), "{time} in {zone}");
    }
}

#[test]
fn what_is_no_pattern() {
    let unusable = |bad: &BadPattern| matches!(bad, BadPattern::Unusable(_));
    type Row<'a> = (&'a str, Option<&'a str>, fn(&BadPattern) -> bool);
    let table: &[Row<'_>] = &[
        ("%Y-%m-%d %H:%M", None, |bad| *bad == BadPattern::NoZone),
        ("%Y-%m-%d", Some("Mars/Olympus"), |bad| {
            *bad == BadPattern::UnknownZone
        }),
        ("%Y-%m-%d", Some(""), |bad| *bad == BadPattern::UnknownZone),
        ("%Y-%m-%d", Some("+25:00"), |bad| {
            *bad == BadPattern::UnknownZone
        }),
        ("%H:%M", Some("UTC"), |bad| *bad == BadPattern::Vague),
        ("%d.%m. %H:%M", Some("UTC"), |bad| *bad == BadPattern::Vague),
        ("%d.%m.%y", Some("UTC"), |bad| *bad == BadPattern::Vague),
        ("", Some("UTC"), |bad| *bad == BadPattern::Vague),
        ("today", Some("UTC"), |bad| *bad == BadPattern::Vague),
    ];
    for (text, zone, expected) in table {
        let bad = Pattern::new(text, *zone).unwrap_err();
        assert!(expected(&bad), "{text}: {bad:?}");
    }
    for text in ["%Y-%m-%d %!", "%Y-%m-%d %", "%Y-%m-%d %Z", "%c"] {
        let bad = Pattern::new(text, Some("UTC")).unwrap_err();
        assert!(unusable(&bad), "{text}: {bad:?}");
    }
    let twelve = Pattern::new("%Y-%m-%d %I:%M", Some("UTC")).unwrap_err();
    assert!(
        unusable(&twelve) || twelve == BadPattern::Vague,
        "{twelve:?}"
    );
}

proptest::proptest! {
    /// Whatever the zone does, and however a reader settles a doubt: never later, and no more than two hours and a unit
    /// earlier.
    #[test]
    fn a_written_local_time_is_never_a_later_instant(
        seconds in 0i64..4_000_000_000, zone in 0usize..3, unit in 0usize..2,
    ) {
        let time = Timestamp::from_second(seconds).unwrap();
        let (text, unit) = [(MINUTES, 60), ("%Y-%m-%dT%H:%M:%S", 1)][unit];
        let pattern = pattern(text, [BERLIN, LORD_HOWE, HAVANA][zone]);
        let written = pattern.write(time).unwrap();
        let (earliest, latest) = (pattern.earliest(&written).unwrap(), pattern.latest(&written).unwrap());
        proptest::prop_assert!(latest <= time, "{written}");
        proptest::prop_assert!(time.duration_since(earliest).as_secs() < 2 * 3600 + unit, "{written}");
    }
}
