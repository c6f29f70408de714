use super::*;

fn read(value: &str, format: TimeFormat) -> Result<String, Problem> {
    parse(Json::parse(value.as_bytes()).unwrap(), &format)
        .map(|time| time.to_string())
        .map_err(|bad| bad.problem)
}

#[test]
fn rfc3339_in_its_spellings() {
    let table = [
        ("2026-11-30T18:00:00Z", "2026-11-30T18:00:00Z"),
        ("2026-11-30t18:00:00z", "2026-11-30T18:00:00Z"),
        ("2026-11-30 18:00:00Z", "2026-11-30T18:00:00Z"),
        ("2026-11-30T18:00:00+00:00", "2026-11-30T18:00:00Z"),
        ("2026-11-30T18:00:00-00:00", "2026-11-30T18:00:00Z"),
        ("2026-11-30T19:30:00+01:30", "2026-11-30T18:00:00Z"),
        ("2026-11-30T00:30:00+23:59", "2026-11-29T00:31:00Z"),
        ("2026-12-31T23:30:00-08:00", "2027-01-01T07:30:00Z"),
        ("2024-02-29T00:00:00Z", "2024-02-29T00:00:00Z"),
        ("1985-04-12T23:20:50.52Z", "1985-04-12T23:20:50.52Z"),
        (
            "2026-11-30T18:00:00.1234567899Z",
            "2026-11-30T18:00:00.123456789Z",
        ),
        (
            "2026-11-30T18:00:00.000000000000000001Z",
            "2026-11-30T18:00:00Z",
        ),
        ("2016-12-31T23:59:60Z", "2016-12-31T23:59:59.999999999Z"),
        ("2016-12-31T23:59:60.5Z", "2016-12-31T23:59:59.999999999Z"),
        (
            "2017-01-01T00:59:60+01:00",
            "2016-12-31T23:59:59.999999999Z",
        ),
        ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00Z"),
        ("1969-12-31T23:59:59.9Z", "1969-12-31T23:59:59.9Z"),
    ];
    for (text, time) in table {
        assert_eq!(
            read(&format!("\"{text}\""), TimeFormat::Rfc3339).as_deref(),
            Ok(time),
            "{text}"
        );
    }
    assert!(read(r#""2026-11-30T18:00:00\u005a""#, TimeFormat::Rfc3339).is_ok());
}

#[test]
fn what_rfc3339_does_not_say() {
    let table = [
        ("2026-11-30", Problem::NoTime),
        ("2026-11-30T18:00:00", Problem::NoOffset),
        ("2026-11-30T18:00:00.5", Problem::NoOffset),
        ("2026-02-29T00:00:00Z", Problem::NoSuchDay),
        ("2026-13-01T00:00:00Z", Problem::NoSuchDay),
        ("2026-00-01T00:00:00Z", Problem::NoSuchDay),
        ("2026-01-01T24:00:00Z", Problem::NoSuchDay),
        ("2026-01-01T00:60:00Z", Problem::NoSuchDay),
        ("2026-01-01T00:00:61Z", Problem::NoSuchDay),
        ("9999-12-31T23:59:59-23:00", Problem::Range),
        ("", Problem::Shape),
        ("yesterday", Problem::Shape),
        ("1764525600", Problem::Shape),
        ("2026-11-30T18:00Z", Problem::Shape),
        ("2026-11-30T18:00:00.Z", Problem::Shape),
        ("2026-11-30T18:00:00,5Z", Problem::Shape),
        ("2026-11-30T18:00:00+0100", Problem::Shape),
        ("2026-11-30T18:00:00+24:00", Problem::Shape),
        ("2026-11-30T18:00:00+01:60", Problem::Shape),
        ("2026-11-30T18:00:00Z ", Problem::Shape),
        ("2026-11-30T18:00:00Z[UTC]", Problem::Shape),
        ("26-11-30T18:00:00Z", Problem::Shape),
        ("+2026-11-30T18:00:00Z", Problem::Shape),
        ("2026-11-30T18:00:00\u{2212}01:00", Problem::Shape),
        ("2026-1\u{661}-30T18:00:00Z", Problem::Shape),
    ];
    for (text, problem) in table {
        assert_eq!(
            read(&format!("\"{text}\""), TimeFormat::Rfc3339),
            Err(problem),
            "{text}"
        );
    }
    for value in ["1764525600", "null", "true", "{}", r#""\ud800""#] {
        assert_eq!(
            read(value, TimeFormat::Rfc3339),
            Err(Problem::NoString),
            "{value}"
        );
    }
}

#[test]
fn epochs_are_exact() {
    use TimeFormat::{EpochMs, EpochS, EpochUs};
    let table = [
        ("1764525600", EpochS, "2025-11-30T18:00:00Z"),
        (r#""1764525600""#, EpochS, "2025-11-30T18:00:00Z"),
        (
            "1764525600.123456789",
            EpochS,
            "2025-11-30T18:00:00.123456789Z",
        ),
        (r#""1764525600.1""#, EpochS, "2025-11-30T18:00:00.1Z"),
        ("1.7645256e9", EpochS, "2025-11-30T18:00:00Z"),
        ("1764525600000", EpochMs, "2025-11-30T18:00:00Z"),
        ("1764525600000.5", EpochMs, "2025-11-30T18:00:00.0005Z"),
        ("1764525600000001", EpochUs, "2025-11-30T18:00:00.000001Z"),
        ("0", EpochS, "1970-01-01T00:00:00Z"),
        ("-0.5", EpochS, "1969-12-31T23:59:59.5Z"),
        ("-0.0000000001", EpochS, "1969-12-31T23:59:59.999999999Z"),
        ("1e-999999999999999999999", EpochS, "1970-01-01T00:00:00Z"),
    ];
    for (value, format, time) in table {
        assert_eq!(read(value, format.clone()).as_deref(), Ok(time), "{value}");
    }
    for value in [
        "1764525600000000",
        "1e30",
        "1e999999999",
        "-1e18",
        r#""1e40""#,
    ] {
        assert_eq!(read(value, EpochS), Err(Problem::Range), "{value}");
    }
    for value in [
        "null",
        "false",
        "[]",
        r#""""#,
        r#"" 1""#,
        r#""2026-11-30T18:00:00Z""#,
        r#""0x10""#,
        r#""NaN""#,
    ] {
        assert_eq!(read(value, EpochS), Err(Problem::NoNumber), "{value}");
    }
}

#[test]
fn errors_show_what_is_there() {
    let bad = parse(
        Json::parse(br#""2026-11-30T18:00:00""#).unwrap(),
        &TimeFormat::Rfc3339,
    )
    .unwrap_err();
    assert_eq!(
        bad.to_string(),
        "update time \"2026-11-30T18:00:00\": no offset (`Z` or `+01:00`) at its end"
    );
    let long = format!("\"{}\"", "é".repeat(100));
    let bad = parse(Json::parse(long.as_bytes()).unwrap(), &TimeFormat::EpochS).unwrap_err();
    assert_eq!(bad.found.chars().count(), 61);
}

#[test]
fn what_is_written_is_cut_never_rounded_up() {
    use TimeFormat::{EpochMs, EpochS, EpochUs, Rfc3339, Rfc3339Ms, Rfc3339Us};
    let late = "2026-11-30T18:00:59.999999999Z";
    let early = "1969-12-31T23:59:58.000000001Z";
    let table = [
        (Rfc3339, late, "2026-11-30T18:00:59Z"),
        (Rfc3339Ms, late, "2026-11-30T18:00:59.999Z"),
        (Rfc3339Us, late, "2026-11-30T18:00:59.999999Z"),
        (
            Rfc3339Ms,
            "2026-11-30T18:00:00Z",
            "2026-11-30T18:00:00.000Z",
        ),
        (EpochS, late, "1796061659"),
        (EpochMs, late, "1796061659999"),
        (EpochUs, late, "1796061659999999"),
        (Rfc3339, early, "1969-12-31T23:59:58Z"),
        (Rfc3339Us, early, "1969-12-31T23:59:58.000000Z"),
        (EpochS, early, "-2"),
        (EpochMs, early, "-2000"),
        (EpochS, "1970-01-01T00:00:00Z", "0"),
        (Rfc3339, "0000-01-01T00:00:00Z", "0000-01-01T00:00:00Z"),
        (Rfc3339, "-000500-01-01T00:00:00Z", "0000-01-01T00:00:00Z"),
    ];
    for (format, time, text) in table {
        assert_eq!(format.write(time.parse().unwrap()), text, "{format:?}");
    }
}

proptest::proptest! {
    #[test]
    fn a_written_time_reads_as_itself_or_a_little_earlier(
        nanos in -62_167_219_200_000_000_000i128..253_402_200_000_000_000_000,
    ) {
        use TimeFormat::{EpochMs, EpochS, EpochUs, Rfc3339, Rfc3339Ms, Rfc3339Us};
        let time = Timestamp::from_nanosecond(nanos).unwrap();
        let units = [
            (Rfc3339, 1_000_000_000), (Rfc3339Ms, 1_000_000), (Rfc3339Us, 1_000),
            (EpochS, 1_000_000_000), (EpochMs, 1_000_000), (EpochUs, 1_000),
        ];
        for (format, unit) in units {
            let text = format!("\"{}\"", format.write(time));
            let back = parse(Json::parse(text.as_bytes()).unwrap(), &format).unwrap();
            let cut = nanos - back.as_nanosecond();
            proptest::prop_assert!((0..unit).contains(&cut), "{text} cuts {cut} ns");
        }
    }
}

#[test]
fn a_pattern_is_read_and_written_in_its_zone() {
    let berlin = Pattern::new("%d.%m.%Y %H:%M", Some("CET-1CEST,M3.5.0,M10.5.0/3")).unwrap();
    let format = TimeFormat::Pattern(berlin);
    assert_eq!(
        read(r#""30.11.2026 19:00""#, format.clone()).as_deref(),
        Ok("2026-11-30T18:00:00Z")
    );
    let time = "2026-11-30T18:00:59Z".parse().unwrap();
    assert_eq!(format.write(time), "30.11.2026 19:00");
    for (value, problem) in [
        (r#""2026-11-30T18:00:00Z""#, Problem::Pattern),
        ("1764525600", Problem::NoString),
    ] {
        assert_eq!(read(value, format.clone()), Err(problem));
    }
}
