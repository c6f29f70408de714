//! The inbox as its users see it.

mod events;
mod model;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use super::*;

fn now() -> Timestamp {
    "2026-05-01T12:00:00Z".parse().unwrap()
}

fn received(body: &[u8]) -> Received {
    Received {
        hook: "erp".into(),
        at: now(),
        clock_trusted: true,
        peer: "192.0.2.7:4711".into(),
        method: "POST".into(),
        target: b"/hooks/erp?a=%20".to_vec(),
        headers: vec![
            (b"Content-Type".to_vec(), b"application/json".to_vec()),
            (b"X-Odd".to_vec(), vec![0xFF, 0, b' ']),
        ],
        body: body.to_vec(),
        event_id: Some(format!("evt-{:02x?}", body.get(..9).unwrap_or(body))),
        event_type: None,
    }
}

fn limits() -> Limits {
    Limits {
        quota: 1024 * 1024,
        low_water: 0,
        ..Limits::default()
    }
}

#[track_caller]
fn open(dir: &Path) -> Inbox {
    let (inbox, opening) = Inbox::open(dir, limits()).unwrap();
    assert_eq!(opening.findings, []);
    inbox
}

fn add(inbox: &mut Inbox, body: &[u8]) -> RequestId {
    let id = inbox.append(&received(body)).unwrap();
    inbox.sync().unwrap();
    id
}

fn bodies(inbox: &Inbox) -> Vec<Vec<u8>> {
    inbox
        .pending(None)
        .map(|pending| inbox.read(pending.position).unwrap().received.body)
        .collect()
}

fn position(inbox: &Inbox, id: RequestId) -> Position {
    inbox.find(id).unwrap().position
}

fn failed(reason: &str) -> State {
    State::Failed {
        tries: 2,
        next: 1_800_000_000,
        reason: reason.into(),
    }
}

#[test]
fn what_was_synced_is_there_after_reopening_as_it_came() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("inbox");
    let mut inbox = open(&dir);
    let id = inbox.append(&received(b"one")).unwrap();
    assert_eq!(inbox.pending(None).count(), 0, "it is not acknowledged yet");
    inbox.sync().unwrap();
    let two = add(&mut inbox, b"");
    for _ in 0..2 {
        let waiting: Vec<_> = inbox.pending(None).collect();
        assert_eq!((waiting[0].id, waiting[1].id), (id, two));
        assert_eq!(
            (waiting[0].hook, waiting[0].tries, waiting[0].next),
            ("erp", 0, 0)
        );
        let stored = inbox.read(waiting[0].position).unwrap();
        assert_eq!(stored.id, id);
        assert_eq!(stored.received, received(b"one"));
        assert_eq!(inbox.pending(Some(waiting[0].position)).count(), 1);
        drop(inbox);
        inbox = open(&dir);
    }
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&dir), 0o700);
    assert_eq!(mode(&segment::path(&dir, 1)), 0o600);
}

#[test]
fn only_one_has_it_open() {
    let home = tempfile::tempdir().unwrap();
    let inbox = open(home.path());
    let error = Inbox::open(home.path(), limits()).unwrap_err();
    assert!(matches!(error, InboxError::Locked { .. }), "{error}");
    drop(inbox);
    open(home.path());
}

fn mark(inbox: &mut Inbox, id: RequestId, state: State) {
    let position = position(inbox, id);
    assert_eq!(inbox.mark(&[(position, state)], now()).unwrap(), 1);
}

/// The files of an inbox, those that say nothing left out.
fn files(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name != "lock")
        .collect();
    names.sort();
    names
}

#[test]
fn what_became_of_a_payload_is_there_after_reopening() {
    let home = tempfile::tempdir().unwrap();
    let mut inbox = open(home.path());
    let ids: Vec<_> = (b'a'..b'f').map(|body| add(&mut inbox, &[body])).collect();
    let dead = State::Dead {
        tries: 9,
        reason: "no such part".into(),
    };
    mark(&mut inbox, ids[0], State::Done);
    mark(&mut inbox, ids[1], failed("503"));
    mark(&mut inbox, ids[2], failed("503"));
    mark(&mut inbox, ids[2], dead.clone());
    mark(&mut inbox, ids[3], State::Dropped);
    for _ in 0..2 {
        assert_eq!(bodies(&inbox), [b"b", b"e"]);
        assert_eq!((inbox.dead(), inbox.outstanding()), (vec![ids[2]], 3));
        let tried = inbox.pending(None).next().unwrap();
        assert_eq!((tried.tries, tried.next), (2, 1_800_000_000));
        let states: Vec<_> = ids
            .iter()
            .map(|id| inbox.find(*id).unwrap().state)
            .collect();
        let pending = State::Pending;
        assert_eq!(
            states,
            [
                State::Done,
                failed("503"),
                dead.clone(),
                State::Dropped,
                pending
            ]
        );
        // Settled is settled.
        let first = position(&inbox, ids[0]);
        assert_eq!(inbox.mark(&[(first, failed("late"))], now()).unwrap(), 0);
        drop(inbox);
        inbox = open(home.path());
    }
}

#[test]
fn retry_and_drop_say_what_they_cannot_do_and_then_do_nothing() {
    let home = tempfile::tempdir().unwrap();
    let mut inbox = open(home.path());
    let ids: Vec<_> = (b'a'..b'e').map(|body| add(&mut inbox, &[body])).collect();
    mark(&mut inbox, ids[0], State::Done);
    mark(&mut inbox, ids[1], failed("503"));
    let unknown = RequestId([1; 16]);
    for (wanted, says) in [
        (vec![ids[1], ids[0]], "is done"),
        (vec![ids[1], ids[2]], "is pending"),
        (
            vec![ids[1], unknown],
            "there is no payload 01010101-0101-0101-0101-010101010101",
        ),
    ] {
        let error = inbox.retry(&wanted, now()).unwrap_err();
        assert!(
            error.to_string().contains(says) && error.is_usage(),
            "{error}"
        );
    }
    assert_eq!(inbox.find(ids[1]).unwrap().state, failed("503"));
    assert_eq!(inbox.retry(&[ids[1], ids[1]], now()).unwrap(), 1);
    assert_eq!(inbox.pending(None).next().unwrap().tries, 0);
    assert_eq!(inbox.give_up(&ids[1..3], now()).unwrap(), 2);
    let error = inbox.give_up(&ids[2..], now()).unwrap_err();
    assert!(error.to_string().contains("is dropped"), "{error}");
    assert_eq!(bodies(&inbox), [b"d"]);
}

#[test]
fn full_segments_give_way_to_new_ones_and_large_payloads_get_their_own() {
    let home = tempfile::tempdir().unwrap();
    let mut inbox = open(home.path());
    let sent = [vec![1; 200_000], vec![2; 300_000], vec![3; 10]];
    for body in &sent {
        inbox.append(&received(body)).unwrap();
    }
    inbox.sync().unwrap();
    assert_eq!(bodies(&inbox), sent);
    drop(inbox);
    let mut inbox = open(home.path());
    assert_eq!(bodies(&inbox), sent);
    let size = |number| {
        fs::metadata(segment::path(home.path(), number))
            .unwrap()
            .len()
    };
    assert_eq!([size(1), size(3)], [256 * 1024; 2]);
    assert!(size(2) > 300_000 && size(2) < 302_000);
    let error = inbox
        .append(&received(&vec![0; 65 * 1024 * 1024]))
        .unwrap_err();
    assert!(matches!(error, InboxError::TooLarge { .. }), "{error}");
}

#[test]
fn the_quota_evicts_what_is_processed_and_nothing_else() {
    let home = tempfile::tempdir().unwrap();
    let mut inbox = open(home.path());
    let body = vec![1; 200_000];
    let ids: Vec<_> = (0..4).map(|_| add(&mut inbox, &body)).collect();
    let error = inbox.append(&received(&body)).unwrap_err();
    assert!(error.is_full(), "{error}");
    assert!(
        error
            .to_string()
            .starts_with("the inbox is full: 1 MiB of 1 MiB are taken by payloads that are not processed yet, and 256 KiB more are needed")
    );
    // A small one still fits where room is reserved.
    let small = add(&mut inbox, b"small");
    mark(&mut inbox, ids[2], State::Done);
    let last = add(&mut inbox, &body);
    assert_eq!(
        inbox.pending(None).map(|it| it.id).collect::<Vec<_>>(),
        [ids[0], ids[1], ids[3], small, last]
    );
    assert!(matches!(
        inbox.find(ids[2]),
        Err(InboxError::Unknown { .. })
    ));
    drop(inbox);
    assert_eq!(open(home.path()).pending(None).count(), 5);
    assert_eq!(
        files(home.path()),
        [
            "0000000001.seg",
            "0000000002.seg",
            "0000000004.seg",
            "0000000005.seg"
        ]
    );
}

#[test]
fn processed_payloads_are_kept_as_long_as_is_said_by_a_clock_that_is_right() {
    let home = tempfile::tempdir().unwrap();
    let mut inbox = open(home.path());
    let body = vec![1; 200_000];
    let ids: Vec<_> = (0..3).map(|_| add(&mut inbox, &body)).collect();
    let days = |days: u64| Some(now() + std::time::Duration::from_secs(days * 24 * 3600 + 5));
    assert_eq!(inbox.expire(days(60)).unwrap(), 0, "nothing is processed");
    mark(&mut inbox, ids[1], State::Done);
    mark(&mut inbox, ids[2], State::Done);
    assert_eq!(inbox.expire(days(29)).unwrap(), 0);
    assert_eq!(inbox.expire(None).unwrap(), 0);
    assert_eq!(
        files(home.path()),
        [
            "0000000001.seg",
            "0000000002.done",
            "0000000002.seg",
            "0000000003.marks",
            "0000000003.seg"
        ]
    );
    assert_eq!(
        inbox.expire(days(30)).unwrap(),
        1,
        "the last one is still being filled"
    );
    drop(inbox);
    let mut inbox = open(home.path());
    assert_eq!(
        inbox.pending(None).map(|it| it.id).collect::<Vec<_>>(),
        [ids[0]]
    );
    let mut early = received(&body);
    early.at = Timestamp::from_second(1000).unwrap();
    early.clock_trusted = false;
    for _ in 0..2 {
        let id = inbox.append(&early).unwrap();
        inbox.sync().unwrap();
        mark(&mut inbox, id, State::Done);
    }
    // Segment 3 goes; what came in 1970 counts from now on.
    assert_eq!(inbox.expire(days(31)).unwrap(), 1);
    assert_eq!(inbox.expire(days(60)).unwrap(), 0);
    assert_eq!(inbox.expire(days(62)).unwrap(), 1);
}

#[test]
fn low_water_and_backlog_are_said_before_anything_is_written() {
    let home = tempfile::tempdir().unwrap();
    let tight = Limits {
        low_water: u64::MAX / 2,
        ..limits()
    };
    let (mut inbox, _) = Inbox::open(home.path(), tight).unwrap();
    let error = inbox.append(&received(b"x")).unwrap_err();
    assert!(
        error.is_full() && error.to_string().contains("are to be left; make room"),
        "{error}"
    );
    drop(inbox);
    let few = Limits {
        outstanding: 2,
        ..limits()
    };
    let (mut inbox, _) = Inbox::open(home.path(), few).unwrap();
    let first = add(&mut inbox, b"a");
    inbox.append(&received(b"b")).unwrap();
    let error = inbox.append(&received(b"c")).unwrap_err();
    assert!(
        error.is_full() && error.to_string().starts_with("2 payloads wait"),
        "{error}"
    );
    inbox.sync().unwrap();
    mark(&mut inbox, first, State::Done);
    add(&mut inbox, b"c");
}

/// A device that cannot be synced.
fn unsyncable() -> File {
    File::open("/dev/null").unwrap()
}

#[test]
fn after_a_sync_that_failed_nothing_of_it_is_had_and_a_new_segment_is_used() {
    let home = tempfile::tempdir().unwrap();
    let mut inbox = open(home.path());
    let first = add(&mut inbox, b"first");
    let lost = inbox.append(&received(b"lost")).unwrap();
    inbox.active.as_mut().unwrap().file = unsyncable();
    let error = inbox.sync().unwrap_err();
    assert!(matches!(error, InboxError::Unsynced { .. }), "{error}");
    inbox.sync().unwrap();
    let again = add(&mut inbox, b"lost");
    for _ in 0..2 {
        let waiting: Vec<_> = inbox.pending(None).map(|it| it.id).collect();
        assert_eq!(waiting, [first, again]);
        drop(inbox);
        inbox = open(home.path());
    }
    assert_eq!(inbox.find(lost).unwrap().state, State::Void);
    assert_eq!(inbox.find(again).unwrap().position.segment, 2);
    let ids: Vec<_> = inbox
        .events(None)
        .unwrap()
        .iter()
        .map(|event| event.id)
        .collect();
    assert_eq!(ids, [first], "what is void was not seen");
}

#[test]
fn a_write_that_failed_leaves_what_was_before_it() {
    let home = tempfile::tempdir().unwrap();
    let mut inbox = open(home.path());
    let first = inbox.append(&received(b"first")).unwrap();
    let whole = inbox.active.as_ref().unwrap().file.try_clone().unwrap();
    // Opened for reading only.
    inbox.active.as_mut().unwrap().file = unsyncable();
    assert!(matches!(
        inbox.append(&received(b"x")),
        Err(InboxError::Io { .. })
    ));
    inbox.filled[0].file = whole;
    let second = inbox.append(&received(b"second")).unwrap();
    inbox.sync().unwrap();
    let waiting: Vec<_> = inbox.pending(None).map(|it| it.id).collect();
    assert_eq!(waiting, [first, second]);
}

#[test]
fn damage_costs_its_record_alone_and_is_said_once() {
    let home = tempfile::tempdir().unwrap();
    let mut inbox = open(home.path());
    let ids: Vec<_> = (b'a'..b'e').map(|body| add(&mut inbox, &[body])).collect();
    let places: Vec<_> = ids.iter().map(|id| position(&inbox, *id).offset).collect();
    let path = segment::path(home.path(), 1);
    let mut bytes = fs::read(&path).unwrap();
    let at = usize::try_from(places[1]).unwrap();
    bytes[at + 40] ^= 1;
    fs::write(&path, &bytes).unwrap();
    let position = Position {
        segment: 1,
        offset: places[1],
    };
    assert!(matches!(
        inbox.read(position),
        Err(InboxError::Damaged { .. })
    ));
    drop(inbox);
    let (inbox, opening) = Inbox::open(home.path(), limits()).unwrap();
    let lost = usize::try_from(places[2] - places[1]).unwrap();
    assert_eq!(
        opening.findings,
        [Finding::Lost {
            path: path.clone(),
            offset: at,
            bytes: lost
        }]
    );
    assert!(
        opening.findings[0]
            .to_string()
            .contains("all others are whole")
    );
    assert_eq!(bodies(&inbox), [b"a", b"c", b"d"]);
    drop(inbox);
    let mut inbox = open(home.path());
    add(&mut inbox, b"e");
    assert_eq!(bodies(&inbox), [b"a", b"c", b"d", b"e"]);
    drop(inbox);

    // And one without either header: nothing in it can be vouched for.
    let mut bytes = fs::read(&path).unwrap();
    bytes[5] ^= 1;
    bytes[517] ^= 1;
    fs::write(&path, &bytes).unwrap();
    let (mut inbox, opening) = Inbox::open(home.path(), limits()).unwrap();
    let aside = segment::named(home.path(), 1, "damaged");
    assert_eq!(opening.findings, [Finding::Aside { path: aside }]);
    add(&mut inbox, b"f");
    assert_eq!(files(home.path()), ["0000000001.damaged", "0000000002.seg"]);
}

#[test]
fn damaged_last_words_of_a_log_only_cost_reading_the_segment() {
    let home = tempfile::tempdir().unwrap();
    let mut inbox = open(home.path());
    let body = vec![1; 200_000];
    let ids: Vec<_> = (0..2).map(|_| add(&mut inbox, &body)).collect();
    mark(&mut inbox, ids[0], State::Done);
    drop(inbox);
    let path = segment::named(home.path(), 1, "done");
    let mut bytes = fs::read(&path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&path, &bytes).unwrap();
    let inbox = open(home.path());
    assert_eq!(inbox.pending(None).count(), 1);
    assert_eq!(inbox.find(ids[0]).unwrap().state, State::Done);
    assert!(path.exists(), "it has its last words again");
}

#[test]
fn leftovers_of_a_cut_creation_or_removal_go() {
    let home = tempfile::tempdir().unwrap();
    for name in [
        "new.seg",
        "new.marks",
        "0000000004.done",
        "0000000005.marks",
    ] {
        fs::write(home.path().join(name), "x").unwrap();
    }
    let mut inbox = open(home.path());
    assert_eq!(files(home.path()), Vec::<String>::new());
    add(&mut inbox, b"a");
    assert_eq!(
        files(home.path()),
        ["0000000006.seg"],
        "no number comes twice"
    );
}

#[test]
fn looking_takes_no_lock_and_finds_everything() {
    let home = tempfile::tempdir().unwrap();
    let none = Reader::new(&home.path().join("missing"));
    none.list(&Filter::default(), |_| panic!("nothing is there"))
        .unwrap();
    let mut inbox = open(home.path());
    let ids: Vec<_> = (b'a'..b'd').map(|body| add(&mut inbox, &[body])).collect();
    mark(&mut inbox, ids[1], failed("why"));
    let mut other = received(b"z");
    other.hook = "github".into();
    let last = inbox.append(&other).unwrap();
    let reader = Reader::new(home.path());
    let listed = |hook: Option<&str>, state: Option<&str>| {
        let filter = Filter {
            hook: hook.map(Into::into),
            state: state.map(Into::into),
        };
        let mut found = Vec::new();
        reader
            .list(&filter, |listed| found.push(listed.stored.id))
            .unwrap();
        found
    };
    assert_eq!(listed(None, None), [&ids[..], &[last]].concat());
    assert_eq!(listed(Some("github"), None), [last]);
    assert_eq!(listed(Some("erp"), Some("failed")), [ids[1]]);
    let shown = reader.show(ids[1]).unwrap();
    assert_eq!((shown.stored.received, shown.bytes), (received(b"b"), 1));
    assert_eq!(shown.since, Some(seconds(now())));
    assert!(matches!(
        reader.show(RequestId([0; 16])),
        Err(InboxError::Unknown { .. })
    ));
}

/// What waits takes 32 bytes of memory each, what is processed none.
#[test]
fn a_long_backlog_is_small() {
    assert_eq!(size_of::<Entry>(), 32);
    let home = tempfile::tempdir().unwrap();
    let wide = Limits {
        quota: 64 * 1024 * 1024,
        ..limits()
    };
    let (mut inbox, _) = Inbox::open(home.path(), wide).unwrap();
    for n in 0..20_000 {
        let mut received = received(b"{}");
        received.event_id = None;
        inbox.append(&received).unwrap();
        if n % 500 == 0 {
            inbox.sync().unwrap();
        }
    }
    inbox.sync().unwrap();
    let held: usize = inbox
        .segments
        .values()
        .map(|segment| segment.entries.capacity())
        .sum();
    assert!(held <= 2 * 20_000, "{held}");
    let mut after = None;
    let mut seen = 0;
    loop {
        let batch: Vec<_> = inbox
            .pending(after)
            .take(500)
            .map(|it| (it.position, State::Done))
            .collect();
        let Some((last, _)) = batch.last() else { break };
        after = Some(*last);
        seen += inbox.mark(&batch, now()).unwrap();
    }
    assert_eq!((seen, inbox.outstanding()), (20_000, 0));
    let held: usize = inbox
        .segments
        .values()
        .map(|segment| segment.entries.capacity())
        .sum();
    assert!(held < 100, "{held}");
}
