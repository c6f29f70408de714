use super::*;

const DAY: u64 = 24 * 3600;

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// The machine has been up for an hour.
fn up() -> Mono {
    Mono::BOOT.after(Duration::from_secs(3600))
}

/// A host that told this time `ago` seconds ago.
fn host(name: &str, told: &str, ago: u64) -> Sighting {
    Sighting {
        host: name.into(),
        told: at(told),
        at: Mono(up().0.saturating_sub(Duration::from_secs(ago))),
    }
}

fn judged(wall: &str, set: Option<&str>, sightings: &[Sighting]) -> (Trust, Option<Timestamp>) {
    let evidence = Evidence {
        wall: at(wall),
        now: up(),
        floor: at("2026-11-30T00:00:00Z"),
        set: set.map(at),
        sightings,
    };
    (judge(&evidence), raised(&evidence))
}

const NTP: Trust = Trust::Sure(Sure::Ntp);
const TWO: Trust = Trust::Sure(Sure::TwoUpstreams);
const NOBODY: Trust = Trust::Unsure(Unsure::Unvouched);
const BEHIND: Trust = Trust::Unsure(Unsure::BeforeFloor);

fn off(seconds: u64) -> Trust {
    Trust::Unsure(Unsure::Contradicted(Duration::from_secs(seconds)))
}

#[test]
fn who_is_believed() {
    let noon = "2027-03-01T12:00:00Z";
    let a = |told| host("a", told, 0);
    let b = |told| host("b", told, 0);
    type Row<'a> = (&'a str, Option<&'a str>, Vec<Sighting>, Trust, bool);
    let table: &[Row<'_>] = &[
        // Nobody says anything.
        (noon, None, vec![], NOBODY, false),
        ("1970-01-01T00:00:07Z", None, vec![], BEHIND, false),
        ("2041-01-01T00:00:00Z", None, vec![], NOBODY, false),
        // A time daemon's note, fitting and not.
        (noon, Some("2027-03-01T11:30:00Z"), vec![], NTP, false),
        (noon, Some("2027-03-01T12:00:30Z"), vec![], NTP, false),
        (noon, Some("2027-03-01T12:02:00Z"), vec![], NOBODY, false),
        (noon, Some("2027-03-01T10:30:00Z"), vec![], NOBODY, false),
        (
            "2041-01-01T00:00:00Z",
            Some("2027-03-01T11:30:00Z"),
            vec![],
            NOBODY,
            false,
        ),
        (
            "1970-01-01T01:00:00Z",
            Some("1970-01-01T00:30:00Z"),
            vec![],
            BEHIND,
            false,
        ),
        // One upstream says nothing of worth, and does not raise the floor.
        (noon, None, vec![a("2027-03-01T12:00:10Z")], NOBODY, false),
        (
            noon,
            None,
            vec![a("2027-03-01T13:00:00Z")],
            off(3600),
            false,
        ),
        (
            "2041-01-01T00:00:00Z",
            None,
            vec![a(noon)],
            off(436_708_800),
            false,
        ),
        // Two that agree do, one minute apart at most.
        (
            noon,
            None,
            vec![a("2027-03-01T12:00:40Z"), b("2027-03-01T11:59:50Z")],
            TWO,
            true,
        ),
        (
            noon,
            None,
            vec![a("2027-03-01T12:00:40Z"), b("2027-03-01T11:59:30Z")],
            NOBODY,
            false,
        ),
        (
            noon,
            None,
            vec![a("2027-03-01T12:02:00Z"), b("2027-03-01T12:02:00Z")],
            off(120),
            false,
        ),
        (
            noon,
            None,
            vec![a("2027-03-01T12:00:00Z"), b("2027-03-01T14:00:00Z")],
            NOBODY,
            false,
        ),
        // A time daemon and an upstream that agrees raise it together; one that does not agree changes nothing.
        (noon, Some(noon), vec![a("2027-03-01T12:00:40Z")], NTP, true),
        (
            noon,
            Some(noon),
            vec![a("2027-03-02T12:00:00Z")],
            NTP,
            false,
        ),
        (
            noon,
            Some(noon),
            vec![a("2027-03-02T12:00:00Z"), b(noon)],
            NTP,
            true,
        ),
        (
            noon,
            Some(noon),
            vec![a("2027-03-02T12:00:00Z"), b("2027-04-02T12:00:00Z")],
            NTP,
            false,
        ),
        // Two that agree with each other outweigh it.
        (
            noon,
            Some(noon),
            vec![a("2027-03-02T12:00:00Z"), b("2027-03-02T12:00:30Z")],
            off(DAY),
            false,
        ),
        (
            noon,
            Some(noon),
            vec![a("2027-03-01T12:30:00Z"), b("2027-03-01T12:30:00Z")],
            NTP,
            false,
        ),
    ];
    for (wall, set, sightings, trust, raises) in table {
        let (judged, raised) = judged(wall, *set, sightings);
        assert_eq!(judged, *trust, "{wall} {set:?} {sightings:?}");
        assert_eq!(raised.is_some(), *raises, "{wall} {set:?} {sightings:?}");
    }
}

#[test]
fn what_an_upstream_told_ages_and_is_forgotten() {
    let noon = "2027-03-01T12:00:00Z";
    let told = |ago: u64| {
        let then = at(noon)
            .saturating_sub(Duration::from_secs(ago))
            .unwrap()
            .to_string();
        judged(noon, None, &[host("a", &then, ago), host("b", &then, ago)]).0
    };
    assert_eq!(
        told(3599),
        TWO,
        "an hour later it is an hour later there too"
    );
    assert_eq!(told(DAY), TWO);
    assert_eq!(told(DAY + 1), NOBODY);
}

#[test]
fn the_floor_is_raised_to_what_has_passed_and_never_sinks() {
    let (_, raised) = judged(
        "2027-03-01T12:00:00Z",
        None,
        &[
            host("a", "2027-03-01T12:00:20Z", 0),
            host("b", "2027-03-01T12:00:20Z", 0),
        ],
    );
    assert_eq!(raised, Some(at("2027-03-01T11:59:00Z")));
    let just_above = [
        host("a", "2026-11-30T00:00:30Z", 0),
        host("b", "2026-11-30T00:00:30Z", 0),
    ];
    let (trust, raised) = judged("2026-11-30T00:00:30Z", None, &just_above);
    assert_eq!((trust, raised), (TWO, None));
}

#[test]
fn the_first_floor_is_the_release_or_the_package() {
    let released = at(RELEASED);
    let table = [
        (None, released),
        (Some("0"), released),
        (Some("1796100000"), at("2026-12-01T04:40:00Z")),
        (Some(" 1796100000\n"), at("2026-12-01T04:40:00Z")),
        (Some("1796100000000"), released),
        (Some("-5"), released),
        (Some("today"), released),
        (Some(""), released),
    ];
    for (packaged, floor) in table {
        assert_eq!(first_floor(packaged), floor, "{packaged:?}");
    }
}

#[test]
fn no_release_in_the_changelog_is_younger_than_the_floor() {
    let dated = |text: &str| -> Vec<Timestamp> {
        text.lines()
            .filter_map(|line| line.strip_prefix("## ")?.split(" - ").nth(1))
            .filter_map(|day| format!("{}T00:00:00Z", day.trim()).parse().ok())
            .collect()
    };
    assert_eq!(dated("# x\n## [0.1.0] - 2026-12-24\n").len(), 1);
    for release in dated(include_str!("../../../CHANGELOG.md")) {
        assert!(release <= at(RELEASED), "raise RELEASED to {release}");
    }
}

proptest::proptest! {
    /// Whatever anybody tells: a floor is only raised, and never above what our clock and a host both show.
    #[test]
    fn nobody_lifts_the_floor_above_our_own_clock(
        wall in 0i64..4_000_000_000, set in proptest::option::of(0i64..4_000_000_000),
        told in proptest::collection::vec((0i64..4_000_000_000, 0u64..200_000), 0..4),
    ) {
        let second = |seconds| Timestamp::from_second(seconds).unwrap();
        let sightings: Vec<_> = told.iter().enumerate().map(|(host, (told, ago))| Sighting {
            host: host.to_string(),
            told: second(*told),
            at: Mono(up().0.saturating_sub(Duration::from_secs(*ago))),
        }).collect();
        let evidence = Evidence {
            wall: second(wall), now: up(), floor: second(1_000_000_000), set: set.map(second), sightings: &sightings,
        };
        if let Some(raised) = raised(&evidence) {
            proptest::prop_assert!(raised > evidence.floor && raised < evidence.wall);
            proptest::prop_assert!(!sightings.is_empty());
            proptest::prop_assert!(set.is_some() || sightings.len() > 1);
        }
    }
}
