//! Those who are slow, too many, or too large.

use std::net::TcpStream;
use std::time::Duration;

use gleaner::door::Settings;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::support::door::{Caller, Door, Echo, NOW, NOW_AND_CLOSE, here, post, status};

const SECOND: Duration = Duration::from_secs(1);

/// A connection that has had an answer, and so is known to the door.
fn known(door: &Door) -> Caller<TcpStream> {
    let mut caller = door.connect();
    caller.send(NOW);
    assert_eq!(caller.status(), 200);
    caller
}

#[test]
fn whoever_says_nothing_is_left() {
    let door = Door::open(Settings::default());
    let mut silent = door.connect();
    let mut idle = known(&door);
    door.advance(10 * SECOND);
    assert!(silent.is_closed());
    door.advance(20 * SECOND);
    assert!(idle.is_closed());
}

#[test]
fn a_head_has_ten_seconds_even_if_it_goes_on_dripping() {
    let door = Door::open(Settings::default());
    let mut caller = known(&door);
    for byte in b"GET /now HT" {
        caller.send([*byte]);
        door.catch_up();
        door.advance(SECOND);
    }
    let answer = caller.rest();
    assert_eq!(status(&answer), 408, "{answer}");
}

#[test]
fn a_body_has_to_move_and_to_end() {
    let door = Door::open(Settings::default());
    let mut stands = door.connect();
    stands.send(post("/echo", &[0; 100_000]).split_at(5000).0);
    let mut drips = door.connect();
    drips.send(post("/echo", &[0; 100_000]).split_at(5000).0);
    door.catch_up();
    // Five thousand bytes were enough for the first ten seconds.
    door.advance(10 * SECOND);
    for _ in 0..10 {
        drips.send([0; 1024]);
        door.catch_up();
        door.advance(10 * SECOND);
        door.catch_up();
    }
    assert_eq!(status(&stands.rest()), 408);
    // It moved all the time, and still has to end.
    drips.send([0; 1024]);
    door.catch_up();
    door.advance(10 * SECOND);
    assert_eq!(status(&drips.rest()), 408);
}

#[test]
fn who_does_not_leave_after_the_last_answer_is_left() {
    let door = Door::open(Settings::default());
    let mut caller = door.connect();
    caller.send(b"nonsense\r\n");
    assert_eq!(caller.status(), 400);
    assert!(caller.is_closed());
    // Its own side is open still, and so is the door's socket.
    caller.send("more");
    door.catch_up();
    door.advance(5 * SECOND);
    door.catch_up();
    // A reset comes back for what is sent now; until it is here, writing goes well.
    while std::io::Write::write(&mut caller.0, b"x").is_ok() {}
}

#[test]
fn idle_connections_make_room() {
    let settings = Settings {
        connections: 3,
        ..Settings::default()
    };
    let door = Door::open(settings);
    let mut first = known(&door);
    let mut second = known(&door);
    let mut third = known(&door);
    first.send(NOW);
    assert_eq!(first.status(), 200);
    // Now the second has been idle longest; but the clock stands, so it is the oldest that goes.
    let mut fourth = known(&door);
    assert!(first.is_closed());
    for caller in [&mut second, &mut third, &mut fourth] {
        caller.send(NOW);
        assert_eq!(caller.status(), 200);
    }
}

#[test]
fn then_those_that_owe_their_head_longest() {
    let settings = Settings {
        connections: 3,
        ..Settings::default()
    };
    let door = Door::open(settings);
    let slow = || {
        let mut caller = known(&door);
        caller.send("GET /now");
        caller
    };
    let mut all = [slow(), slow(), slow()];
    // Nobody has been slow yet.
    let answer = door.connect().rest();
    assert!(
        answer.starts_with("HTTP/1.1 503 ")
            && answer.contains("\r\nRetry-After: 10\r\n")
            && answer.contains("\r\nConnection: close\r\n"),
        "{answer}"
    );
    door.advance(SECOND);
    assert_eq!(status(&door.ask(NOW_AND_CLOSE)), 200);
    assert!(all[0].is_closed());
    all[2].send(" HTTP/1.1\r\nHost: gw\r\n\r\n");
    assert_eq!(all[2].status(), 200);
}

#[test]
fn one_address_takes_no_room_from_others() {
    let settings = Settings {
        per_peer: 2,
        ..Settings::default()
    };
    let mut other = here();
    other.place = gleaner::door::Place::Tcp("[::1]:0".parse().unwrap());
    let door = Door::at(&[here(), other], settings, Echo::new(100));
    let mut slow = [known(&door), known(&door)];
    for caller in &mut slow {
        caller.send("GET /now");
    }
    let mut refused = door.connect();
    assert_eq!(refused.status(), 503);
    let mut other = Caller(TcpStream::connect(door.addresses[1]).unwrap());
    other.send(NOW);
    assert_eq!(other.status(), 200);
}

/// Memory for four blocks.
fn little_memory() -> Settings {
    Settings {
        bodies: 64 * 1024,
        ..Settings::default()
    }
}

#[test]
fn without_memory_a_body_waits_until_there_is_some() {
    let door = Door::open(little_memory());
    let (large, half) = (post("/echo", &[1; 60_000]), 40_000);
    let mut first = door.connect();
    first.send(&large[..half]);
    door.catch_up();
    let mut second = door.connect();
    second.send(&large);
    door.catch_up();
    let taken = |door: &Door| {
        door.seen()
            .iter()
            .filter(|one| one.starts_with("take /echo"))
            .count()
    };
    assert_eq!(taken(&door), 0);
    first.send(&large[half..]);
    assert!(first.answer().1 == [1; 60_000]);
    assert!(second.answer().1 == [1; 60_000]);
}

#[test]
fn a_body_that_stands_still_gives_its_memory_to_those_that_wait() {
    let door = Door::open(little_memory());
    let large = post("/echo", &[1; 60_000]);
    let mut stands = door.connect();
    stands.send(&large[..40_000]);
    door.catch_up();
    let mut waits = door.connect();
    waits.send(&large);
    door.catch_up();
    door.advance(SECOND);
    assert!(waits.answer().1 == [1; 60_000]);
    assert_eq!(stands.status(), 408);
}

#[test]
fn when_all_wait_for_memory_the_newest_gives_way() {
    let door = Door::open(little_memory());
    // Both could end when they began; then each takes half of what there is.
    let body = post("/echo", &[1; 40_000]);
    let mut callers = [door.connect(), door.connect()];
    for part in [0..1_000, 1_000..31_000] {
        for caller in &mut callers {
            caller.send(&body[part.clone()]);
            door.catch_up();
        }
    }
    let [mut first, mut second] = callers;
    first.send(&body[31_000..]);
    second.send(&body[31_000..]);
    assert_eq!(second.status(), 503);
    assert!(first.answer().1 == [1; 40_000]);
}

#[test]
fn bodies_that_are_given_up_leave_nothing_behind() {
    let door = Door::open(little_memory());
    let large = post("/echo", &[1; 60_000]);
    for cut in 0..50 {
        let mut caller = door.connect();
        caller.send(&large[..1000 + cut * 1000]);
        drop(caller);
        door.catch_up();
    }
    let mut caller = door.connect();
    caller.send(&large);
    assert!(caller.answer().1 == [1; 60_000]);
}

#[test]
fn whatever_they_do_the_door_sleeps_meanwhile() {
    let door = Door::open(little_memory());
    let large = post("/echo", &[1; 60_000]);
    let mut all: Vec<_> = (0..6).map(|_| known(&door)).collect();
    all[1].send("GET /now");
    all[2].send(&large[..50_000]);
    door.catch_up();
    // No memory is left for this one, and then it goes away.
    all[3].send(&large);
    all[3].shut();
    // It was answered for the last time, and stays.
    all[4].send("nonsense\r\n");
    all[5].send(&post("/echo", &[1; 1_000_000])[..100]);
    door.catch_up();
    let before = door.turns();
    (0..50).for_each(|_| door.catch_up());
    // To accept, to read and to answer, to hear the end, and one to spare each.
    let turns = door.turns() - before;
    assert!(turns <= 50 * 6, "{turns}");
}

/// As many connections as `GLEANER_SLOW` says (1,000), or as the limit of open files allows: each of them has two ends
/// here.
fn many() -> usize {
    let many = std::env::var("GLEANER_SLOW").map_or(1000, |many| many.parse().unwrap());
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    setrlimit(Resource::Nofile, raised).unwrap();
    let files = limit
        .maximum
        .map_or(usize::MAX, |files| usize::try_from(files).unwrap());
    many.min(files.saturating_sub(300) / 2)
}

#[test]
fn a_thousand_slow_ones_and_others_are_answered() {
    let many = many();
    let settings = Settings {
        connections: many + 10,
        per_peer: many + 10,
        ..Settings::default()
    };
    let door = Door::open(settings);
    let request = post("/echo", &[b'x'; 100]);
    let mut slow = Vec::new();
    for number in 0..many {
        let mut caller = door.connect();
        match number % 4 {
            // Never says anything.
            0 => {}
            // Its head comes byte by byte.
            1 => caller.send(&request[..1]),
            // Its head has come, its body does not.
            2 => caller.send(&request[..request.len() - 100]),
            // Its body comes byte by byte.
            _ => caller.send(&request[..request.len() - 90]),
        }
        slow.push(caller);
        if number % 10 == 0 {
            door.catch_up();
        }
    }
    for at in 1..20 {
        for (number, caller) in slow.iter_mut().enumerate() {
            match number % 4 {
                1 => caller.send(&request[at..=at]),
                3 if at < 80 => caller.send(b"x"),
                _ => {}
            }
        }
        let mut caller = door.connect();
        caller.send(post("/echo", b"quick"));
        assert_eq!(caller.answer().1, b"quick");
    }
    // And they themselves are served, if they come to an end.
    let last = slow
        .iter_mut()
        .enumerate()
        .filter(|(number, _)| number % 4 == 2);
    for (_, caller) in last {
        caller.send([b'x'; 100]);
        assert_eq!(caller.status(), 200);
    }
}
