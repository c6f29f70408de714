use proptest::prelude::*;

use super::*;

const MARKER: Marker = [7; 8];

fn mark(offset: u32, state: State) -> Mark {
    Mark {
        offset,
        at: 1_750_000_000,
        state,
    }
}

fn failed(reason: &str) -> State {
    State::Failed {
        tries: 3,
        next: 1_750_000_060,
        reason: reason.into(),
    }
}

fn dead(reason: &str) -> State {
    State::Dead {
        tries: 9,
        reason: reason.into(),
    }
}

fn read(bytes: &[u8]) -> (Vec<Mark>, usize, usize) {
    let mut marks = Vec::new();
    let (end, lost) = scan(MARKER, bytes, |mark| marks.push(mark));
    (marks, end, lost)
}

fn states() -> impl Strategy<Value = State> {
    let reason = || proptest::string::string_regex("[a-zäß ]{0,60}").unwrap();
    prop_oneof![
        Just(State::Pending),
        Just(State::Done),
        Just(State::Dropped),
        Just(State::Void),
        (any::<u16>(), any::<u32>(), reason()).prop_map(|(tries, next, reason)| State::Failed {
            tries,
            next,
            reason
        }),
        (any::<u16>(), reason()).prop_map(|(tries, reason)| State::Dead { tries, reason }),
    ]
}

fn marks() -> impl Strategy<Value = Vec<Mark>> {
    let mark = (any::<u32>(), any::<u32>(), states());
    proptest::collection::vec(mark, 1..6).prop_map(|marks| {
        let mark = |(offset, at, state)| Mark { offset, at, state };
        marks.into_iter().map(mark).collect()
    })
}

fn log(marks: &[Mark]) -> (Vec<u8>, Vec<usize>) {
    let (mut bytes, mut starts) = (Vec::new(), Vec::new());
    for mark in marks {
        starts.push(bytes.len());
        encode_mark(&mut bytes, MARKER, mark);
    }
    (bytes, starts)
}

proptest! {
    #[test]
    fn marks_come_back(marks in marks()) {
        let (bytes, _) = log(&marks);
        prop_assert_eq!(read(&bytes), (marks, bytes.len(), 0));
    }

    #[test]
    fn a_torn_log_keeps_the_marks_before(marks in marks(), at in any::<proptest::sample::Index>()) {
        let (bytes, starts) = log(&marks);
        let cut = at.index(bytes.len());
        let whole = starts.iter().skip(1).filter(|end| **end <= cut).count();
        prop_assert_eq!(read(&bytes[..cut]), (marks[..whole].to_vec(), starts[whole], 0));
    }

    #[test]
    fn a_flipped_bit_loses_at_most_its_mark(
        marks in marks(),
        at in any::<proptest::sample::Index>(),
        bit in 0..8_u8,
    ) {
        let (mut bytes, starts) = log(&marks);
        let byte = at.index(bytes.len());
        bytes[byte] ^= 1_u8 << bit;
        let hit = starts.iter().rposition(|start| *start <= byte).unwrap();
        let mut left = marks.clone();
        left.remove(hit);
        prop_assert_eq!(read(&bytes).0, left);
    }

    #[test]
    fn any_bytes_are_read_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let (_, end, lost) = read(&bytes);
        prop_assert!(lost <= end && end <= bytes.len());
        read_summary(MARKER, &bytes);
    }
}

#[test]
fn long_reasons_are_cut_between_characters() {
    let mut bytes = Vec::new();
    encode_mark(&mut bytes, MARKER, &mark(5, dead(&"ä".repeat(150))));
    assert_eq!(read(&bytes).0, [mark(5, dead(&"ä".repeat(100)))]);
    encode_mark(
        &mut bytes,
        MARKER,
        &mark(5, dead(&format!("x{}", "ä".repeat(150)))),
    );
    assert_eq!(
        read(&bytes).0[1],
        mark(5, dead(&format!("x{}", "ä".repeat(99))))
    );
}

#[test]
fn a_settled_record_takes_fifteen_bytes() {
    let mut bytes = Vec::new();
    encode_mark(&mut bytes, MARKER, &mark(5, State::Done));
    assert_eq!(bytes.len(), 15);
}

#[test]
fn a_mark_in_a_reason_is_none() {
    let mut forged = Vec::new();
    encode_mark(&mut forged, [0; 8], &mark(5, State::Done));
    let mut bytes = b"?".to_vec();
    bytes.extend(forged);
    assert_eq!(read(&bytes), (Vec::new(), 0, 0));
}

#[test]
fn after_a_failure_the_log_is_written_anew() {
    let dir = tempfile::tempdir().unwrap();
    let path = segment::named(dir.path(), 1, "marks");
    let place = (dir.path(), 1);
    let mut log = Log::default();
    log.append(place, MARKER, &[mark(1, State::Done)], None)
        .unwrap();
    log.append(place, MARKER, &[mark(2, failed("why"))], None)
        .unwrap();
    // Torn by whatever failed.
    let mut torn = fs::read(&path).unwrap();
    torn.extend_from_slice(&[1, 2, 3]);
    fs::write(&path, &torn).unwrap();
    log.append(place, MARKER, &[mark(3, State::Done)], None)
        .unwrap_err();
    log.append(place, MARKER, &[mark(4, State::Done)], None)
        .unwrap();
    log.append(place, MARKER, &[mark(5, State::Done)], None)
        .unwrap();
    let bytes = fs::read(&path).unwrap();
    let offsets: Vec<u32> = read(&bytes).0.iter().map(|mark| mark.offset).collect();
    assert_eq!(offsets, [1, 2, 4, 5]);
    assert_eq!(read(&bytes).2, 0);

    let summary = Summary {
        records: 5,
        ids: ([1; 16], [9; 16]),
        newest: Some(77),
    };
    assert_eq!(read_summary(MARKER, &bytes), None);
    log.append(place, MARKER, &[], Some(&summary)).unwrap();
    let bytes = fs::read(&path).unwrap();
    assert_eq!(read_summary(MARKER, &bytes), Some(summary));
    assert_eq!(read_summary([0; 8], &bytes), None);
    assert_eq!(read(&bytes).0.len(), 4);
}
