//! Event ids on their way to the store, and the segment that comes next.

use super::*;
use crate::store::{Batch, Store};

fn key(body: &[u8]) -> EventKey {
    let received = received(body);
    EventKey::new(&received.hook, received.event_id.as_deref().unwrap())
}

fn marked(inbox: &mut Inbox, store: &mut Store) {
    let mut batch = Batch::new();
    if let Some(position) = inbox.fill(&mut batch) {
        store.commit(batch).unwrap();
        inbox.marked(position);
    }
}

#[test]
fn a_second_delivery_is_known_from_the_turn_it_comes_in_on() {
    let home = tempfile::tempdir().unwrap();
    let mut inbox = open(&home.path().join("inbox"));
    let (mut store, _) = Store::open(&home.path().join("state"), now()).unwrap();
    let known = |inbox: &Inbox, store: &Store| inbox.known(store, key(b"a")).unwrap();
    assert_eq!(known(&inbox, &store), None);
    let id = inbox.append(&received(b"a")).unwrap();
    assert_eq!(known(&inbox, &store), Some(Known::InTurn(id)));
    marked(&mut inbox, &mut store);
    assert_eq!(store.seen_count().unwrap(), 0, "it is not saved yet");
    inbox.sync().unwrap();
    assert_eq!(
        (known(&inbox, &store), inbox.unmarked()),
        (Some(Known::Saved(id)), 1)
    );
    marked(&mut inbox, &mut store);
    assert_eq!(
        (known(&inbox, &store), inbox.unmarked()),
        (Some(Known::Saved(id)), 0)
    );
    assert_eq!(store.seen(key(b"a")).unwrap(), Some(id.0));

    // A sync that fails takes it back.
    inbox.append(&received(b"b")).unwrap();
    inbox.active.as_mut().unwrap().file = unsyncable();
    inbox.sync().unwrap_err();
    assert_eq!(inbox.known(&store, key(b"b")).unwrap(), None);
    let again = add(&mut inbox, b"b");
    assert_eq!(
        inbox.known(&store, key(b"b")).unwrap(),
        Some(Known::Saved(again))
    );
}

/// A cut between the answer and the batch that tells the store: the inbox knows.
#[test]
fn what_the_store_was_not_told_is_read_from_the_inbox_at_start() {
    let home = tempfile::tempdir().unwrap();
    let (dir, state) = (home.path().join("inbox"), home.path().join("state"));
    let mut inbox = open(&dir);
    let (mut store, _) = Store::open(&state, now()).unwrap();
    let told = add(&mut inbox, b"a");
    marked(&mut inbox, &mut store);
    let untold: Vec<_> = (0..450_u32)
        .map(|n| {
            inbox
                .append(&received(&n.to_be_bytes().repeat(200)))
                .unwrap()
        })
        .collect();
    inbox.sync().unwrap();
    drop((inbox, store));

    let inbox = open(&dir);
    let (mut store, _) = Store::open(&state, now()).unwrap();
    let mut breaths = 0;
    assert_eq!(inbox.catch_up(&mut store, || breaths += 1).unwrap(), 450);
    assert!(breaths >= 3, "{breaths}");
    assert_eq!(inbox.catch_up(&mut store, || ()).unwrap(), 0);
    for (n, id) in (0..450_u32).zip(&untold) {
        let seen = inbox
            .known(&store, key(&n.to_be_bytes().repeat(200)))
            .unwrap();
        assert_eq!(seen, Some(Known::Saved(*id)));
    }
    drop(store);

    // A store that was rebuilt is told everything.
    let (mut store, _) = Store::open(&home.path().join("new"), now()).unwrap();
    assert_eq!(inbox.catch_up(&mut store, || ()).unwrap(), 451);
    assert_eq!(
        inbox.known(&store, key(b"a")).unwrap(),
        Some(Known::Saved(told))
    );
    // An inbox that was emptied starts over.
    let mut inbox = open(&home.path().join("empty"));
    add(&mut inbox, b"fresh");
    let mut batch = Batch::new();
    batch.seen_up_to(99, 0);
    store.commit(batch).unwrap();
    assert_eq!(inbox.catch_up(&mut store, || ()).unwrap(), 1);
}

#[test]
fn the_next_segment_can_be_made_before_it_is_needed() {
    let home = tempfile::tempdir().unwrap();
    let mut inbox = open(home.path());
    assert!(!inbox.prepare().unwrap(), "nothing has come yet");
    add(&mut inbox, &[1; 190_000]);
    assert!(!inbox.prepare().unwrap());
    add(&mut inbox, &[2; 10_000]);
    assert!(inbox.prepare().unwrap());
    assert!(!inbox.prepare().unwrap(), "one is enough");
    assert_eq!(files(home.path()), ["0000000001.seg", "0000000002.seg"]);
    add(&mut inbox, &[3; 100_000]);
    add(&mut inbox, &[4; 100_000]);
    assert_eq!(files(home.path()), ["0000000001.seg", "0000000002.seg"]);
    // One that does not fit has the spare one go: records come in the order of segments.
    assert!(inbox.prepare().unwrap());
    add(&mut inbox, &[5; 300_000]);
    let lengths = |inbox: &Inbox| -> Vec<usize> { bodies(inbox).iter().map(Vec::len).collect() };
    assert_eq!(
        lengths(&inbox),
        [190_000, 10_000, 100_000, 100_000, 300_000]
    );
    assert_eq!(
        files(home.path()),
        ["0000000001.seg", "0000000002.seg", "0000000004.seg"]
    );
    drop(inbox);
    assert_eq!(lengths(&open(home.path())).len(), 5);
}

/// Payloads without event ids are not read again at each start.
#[test]
fn the_store_is_told_where_the_last_segment_begins() {
    let home = tempfile::tempdir().unwrap();
    let mut inbox = open(&home.path().join("inbox"));
    let (mut store, _) = Store::open(&home.path().join("state"), now()).unwrap();
    for _ in 0..2 {
        let mut anonymous = received(&[1; 200_000]);
        anonymous.event_id = None;
        inbox.append(&anonymous).unwrap();
    }
    inbox.sync().unwrap();
    assert_eq!(inbox.catch_up(&mut store, || ()).unwrap(), 0);
    assert_eq!(store.seen_position().unwrap(), Some((2, 0)));
    let id = add(&mut inbox, b"a");
    assert_eq!(inbox.catch_up(&mut store, || ()).unwrap(), 1);
    assert_eq!(store.seen(key(b"a")).unwrap(), Some(id.0));
}
