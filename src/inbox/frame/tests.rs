use proptest::prelude::*;

use super::*;

const MARKER: Marker = [0x9A, 1, 2, 3, 4, 5, 6, 7];

fn text() -> impl Strategy<Value = String> {
    proptest::string::string_regex("[a-z0-9äß\u{0}]{0,12}").unwrap()
}

fn bytes(most: usize) -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..most),
        // What a segment is made of where nothing is, and what frames start with.
        (0..most).prop_map(|long| vec![0; long]),
        (0..most / 8).prop_map(|times| MARKER.repeat(times)),
    ]
}

fn received() -> impl Strategy<Value = Received> {
    let headers = proptest::collection::vec((bytes(10), bytes(40)), 0..4);
    let texts = (text(), text(), text());
    let events = (proptest::option::of(text()), proptest::option::of(text()));
    let at = -1_000_000_000_000_i64..4_000_000_000_000_000;
    (
        texts,
        events,
        headers,
        bytes(20),
        bytes(300),
        at,
        any::<bool>(),
    )
        .prop_map(
            |((hook, peer, method), (event_id, event_type), headers, target, body, at, trusted)| {
                Received {
                    hook,
                    at: Timestamp::from_microsecond(at).unwrap(),
                    clock_trusted: trusted,
                    peer,
                    method,
                    target,
                    headers,
                    body,
                    event_id,
                    event_type,
                }
            },
        )
}

fn stored() -> impl Strategy<Value = Stored> {
    (any::<[u8; 16]>(), received()).prop_map(|(id, received)| Stored {
        id: RequestId(id),
        received,
    })
}

fn frame(stored: &Stored) -> Vec<u8> {
    let mut out = encode(stored.id, &stored.received);
    seal(MARKER, &mut out, &stored.received.body).unwrap();
    out.extend_from_slice(&stored.received.body);
    out
}

/// A segment with these records, zeros behind, and where each starts.
fn segment(records: &[Stored]) -> (Vec<u8>, Vec<usize>) {
    let (mut all, mut starts) = (Vec::new(), Vec::new());
    for record in records {
        starts.push(all.len());
        all.extend(frame(record));
    }
    starts.push(all.len());
    all.resize(all.len() + 600, 0);
    (all, starts)
}

fn read(bytes: &[u8]) -> (Vec<Stored>, Scan) {
    let mut found = Vec::new();
    let scan = scan(MARKER, bytes, 0, |_, frame| {
        found.extend(frame.stored());
    });
    (found, scan)
}

fn some() -> Stored {
    Stored {
        id: RequestId([7; 16]),
        received: Received {
            hook: "erp".into(),
            at: Timestamp::UNIX_EPOCH,
            clock_trusted: true,
            peer: String::new(),
            method: "POST".into(),
            target: Vec::new(),
            headers: Vec::new(),
            body: b"{}".to_vec(),
            event_id: None,
            event_type: Some(String::new()),
        },
    }
}

proptest! {
    #[test]
    fn what_was_written_is_read(records in proptest::collection::vec(stored(), 0..5)) {
        let (all, starts) = segment(&records);
        let (found, scan) = read(&all);
        prop_assert_eq!(found, records);
        prop_assert_eq!(scan.end, *starts.last().unwrap());
        prop_assert_eq!((scan.lost.len(), scan.torn), (0, None));
    }

    #[test]
    fn any_bytes_are_read_without_a_panic(pieces in proptest::collection::vec(bytes(60), 0..8)) {
        let all = pieces.concat();
        let (_, scan) = read(&all);
        prop_assert!(scan.end <= all.len());
        prop_assert!(decode_head(&all).is_none() || all.len() >= 25);
    }

    #[test]
    fn a_cut_anywhere_keeps_all_records_before_it(
        records in proptest::collection::vec(stored(), 1..5),
        at in any::<proptest::sample::Index>(),
        zeros in any::<bool>(),
    ) {
        let (mut all, starts) = segment(&records);
        let cut = at.index(all.len());
        if zeros {
            all[cut..].fill(0);
        } else {
            all.truncate(cut);
        }
        let (found, scan) = read(&all);
        let mut whole = starts.iter().skip(1).filter(|end| **end <= cut).count();
        // A cut in what is zero anyway cuts nothing, as long as the zeros are there.
        while zeros && whole < records.len() && all[starts[whole]..starts[whole + 1]] == frame(&records[whole]) {
            whole += 1;
        }
        prop_assert_eq!(&found, &records[..whole]);
        prop_assert_eq!(scan.end, starts[whole]);
        prop_assert!(scan.lost.is_empty());
        prop_assert_eq!(scan.torn.is_some(), all[scan.end..].iter().any(|byte| *byte != 0));
    }

    #[test]
    fn a_flipped_bit_loses_at_most_its_record(
        records in proptest::collection::vec(stored(), 1..5),
        at in any::<proptest::sample::Index>(),
        bit in 0..8_u8,
    ) {
        let (mut all, starts) = segment(&records);
        let byte = at.index(*starts.last().unwrap());
        all[byte] ^= 1_u8 << bit;
        let hit = starts.iter().rposition(|start| *start <= byte).unwrap();
        let mut left = records.clone();
        left.remove(hit);
        let (found, scan) = read(&all);
        prop_assert_eq!(found, left);
        if hit + 1 < records.len() {
            prop_assert_eq!(scan.lost, vec![Range { start: starts[hit], end: starts[hit + 1] }]);
        } else {
            prop_assert_eq!(scan.lost.len(), 0);
            prop_assert_eq!(scan.torn.map(|torn| torn.start), Some(starts[hit]));
        }
    }
}

/// Whoever sends a body cannot know the marker; one with another is not looked at, even where reading looks for the next.
#[test]
fn a_frame_within_a_damaged_body_is_none() {
    let mut planted = some();
    planted.received.body = {
        let inner = some();
        let mut out = encode(inner.id, &inner.received);
        seal([1; 8], &mut out, &inner.received.body).unwrap();
        out.extend_from_slice(&inner.received.body);
        out
    };
    let mut behind = some();
    behind.id = RequestId([8; 16]);
    let (mut all, starts) = segment(&[planted, behind.clone()]);
    all[20] ^= 1;
    let (found, scan) = read(&all);
    assert_eq!(found, [behind]);
    assert_eq!(
        scan.lost,
        [Range {
            start: 0,
            end: starts[1]
        }]
    );
}

#[test]
fn a_damaged_place_is_covered_and_not_said_again() {
    let records = [some(), some(), some()];
    let (mut all, starts) = segment(&records);
    all[starts[1] + 30] ^= 4;
    let (_, scan) = read(&all);
    let lost = scan.lost[0].clone();
    assert_eq!(lost, starts[1]..starts[2]);
    let cover = filler(MARKER, &all[lost.clone()]).unwrap();
    all[lost.start..lost.start + cover.len()].copy_from_slice(&cover);
    let (found, scan) = read(&all);
    assert_eq!((found.len(), scan.lost.len(), scan.torn), (2, 0, None));
    assert_eq!(filler(MARKER, &[1; FIXED - 1]), None);
}

#[test]
fn a_newer_frame_is_told_from_a_damaged_one() {
    let (mut all, _) = segment(&[some()]);
    let long = length(MARKER, &all).unwrap();
    all[8] = VERSION + 1;
    assert_eq!(whole(MARKER, &all), None, "the sum covers the version");
    let sum = Crc::new().over(&all[..17]).over(&all[FIXED..long]).sum();
    all[SUM].copy_from_slice(&sum.to_be_bytes());
    let frame = whole(MARKER, &all).unwrap();
    assert_eq!((frame.newer(), frame.head()), (Some(2), None));
}

/// What a record takes besides its own texts and body.
#[test]
fn overhead() {
    let stored = some();
    let own = "erp".len() + "POST".len() + "{}".len();
    assert_eq!(frame(&stored).len() - own, 21 + 25 + 6);
}
