//! A year of earthquakes: each appears some time after its update time, most are looked at again, some without a word, some
//! go; whole days are restored from a backup; the upstream is down, throttles or lies. All of it from one seed, in the test's
//! time.

use std::collections::BTreeMap;
use std::sync::Arc;

use gleaner::clock::{Clock, FakeClock};

use super::answer::{Answer, Request};
use super::dice::Dice;
use super::quakes::{Quake, revised};
use super::world::{Item, Items, Tombstone};

pub const HOUR: i64 = 3600;
pub const DAY: i64 = 24 * HOUR;
/// How long after its update time a record may be seen, as the config says.
pub const LATENESS: i64 = 6 * HOUR;
/// When nothing happens any more, and when the year is over.
pub const LAST: i64 = 350 * DAY;
pub const YEAR: i64 = 365 * DAY;

/// What windows can see of the last thing that happened to a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Seen {
    /// All of it.
    InTime,
    /// It came later than `lateness`.
    Late,
    /// Its update time was not touched.
    Silent,
    /// It went, and no listing says so.
    Gone,
    /// A backup was restored.
    Restored,
}

#[derive(Debug, Clone)]
enum Event {
    /// It is there, as the feed has it.
    Appear(u32),
    /// Somebody looked at it again: under a new update time, or not. Some take it back so many seconds later.
    Revise {
        id: u32,
        silent: bool,
        back: Option<i64>,
    },
    /// It is as it was before.
    Revert {
        id: u32,
        value: String,
    },
    Bury(u32),
    Vanish(u32),
    /// Update times of one in ten are touched, and nothing else.
    Touch,
    Backup,
    Restore,
}

#[derive(Debug, Clone, Copy)]
enum Trouble {
    Down,
    Throttled,
    Page,
    Cut,
}

/// The year.
pub struct Season {
    clock: Arc<FakeClock>,
    dice: Dice,
    quakes: Vec<Quake>,
    start: i64,
    coming: BTreeMap<(i64, u64), Event>,
    outages: Vec<(i64, i64, Trouble)>,
    backup: Items,
    /// What windows could see last.
    pub last: BTreeMap<u32, Seen>,
    /// What was changed, how it was, and when.
    recent: Vec<(i64, u32, Option<Item>)>,
    revisions: u64,
    /// Things that happened between two pages of a listing.
    pub shifts: u64,
    pub happened: u64,
}

impl Season {
    pub fn new(seed: u64, quakes: Vec<Quake>, clock: &Arc<FakeClock>) -> Self {
        let mut season = Self {
            clock: Arc::clone(clock),
            dice: Dice::from(seed),
            quakes,
            start: clock.wall().as_second(),
            coming: BTreeMap::new(),
            outages: Vec::new(),
            backup: Items::new(),
            last: BTreeMap::new(),
            recent: Vec::new(),
            revisions: 0,
            shifts: 0,
            happened: 0,
        };
        season.plan();
        season
    }

    /// The feed's own order and gaps, stretched over the year.
    fn plan(&mut self) {
        let times: Vec<i64> = self.quakes.iter().map(|quake| quake.updated).collect();
        let (first, last) = (times.iter().min().unwrap(), times.iter().max().unwrap());
        for (id, time) in (0..).zip(&times) {
            let at = (time - first) * (LAST - 30 * DAY) / (last - first);
            self.at(at, Event::Appear(id));
            let mut at = at;
            for _ in 0..1 + self.dice.below(3) {
                at += HOUR + self.draw(30 * DAY);
                let event = self.later_event(id);
                self.at(at, event);
            }
        }
        for month in 0..11 {
            if month % 3 == 1 {
                let at = month * 30 * DAY + self.draw(20 * DAY);
                self.at(at, Event::Touch);
            }
            let at = month * 30 * DAY + self.draw(25 * DAY);
            let length = HOUR + self.draw(30 * HOUR);
            let trouble = self.trouble();
            self.outages
                .push((self.start + at, self.start + at + length, trouble));
        }
        for at in [150, 270] {
            self.at(at * DAY, Event::Backup);
            let lost = DAY + self.draw(DAY);
            self.at(at * DAY + lost, Event::Restore);
        }
    }

    fn later_event(&mut self, id: u32) -> Event {
        match self.dice.below(20) {
            0 => Event::Bury(id),
            1 => Event::Vanish(id),
            2 | 3 => Event::Revise {
                id,
                silent: true,
                back: None,
            },
            4..=7 => {
                let back = HOUR + self.draw(12 * HOUR);
                Event::Revise {
                    id,
                    silent: false,
                    back: Some(back),
                }
            }
            _ => Event::Revise {
                id,
                silent: false,
                back: None,
            },
        }
    }

    fn draw(&mut self, limit: i64) -> i64 {
        i64::try_from(self.dice.below(limit.unsigned_abs())).unwrap()
    }

    /// How late something is seen: mostly minutes, some hours, of a few days.
    fn lateness(&mut self) -> i64 {
        match self.dice.below(40) {
            0 => 8 * HOUR + self.draw(6 * DAY),
            1..=10 => 40 * 60 + self.draw(5 * HOUR),
            _ => 60 + self.draw(40 * 60),
        }
    }

    fn trouble(&mut self) -> Trouble {
        match self.dice.below(4) {
            0 => Trouble::Down,
            1 => Trouble::Throttled,
            2 => Trouble::Page,
            _ => Trouble::Cut,
        }
    }

    /// Plans an event, so many seconds after the start.
    fn at(&mut self, after: i64, event: Event) {
        if after < LAST {
            let number = self.dice.next();
            self.coming.insert((self.start + after, number), event);
        }
    }

    fn soon(&mut self, now: i64, after: i64, event: Event) {
        self.at(now - self.start + after, event);
    }

    /// Before a request: what has happened by now, and what is answered instead.
    pub fn before(&mut self, items: &mut Items, request: &Request) -> Option<Answer> {
        let now = self.clock.wall().as_second();
        self.live(items, now);
        if is_far_into_a_listing(request) && self.dice.once_in(15) {
            self.hurry(items, now);
        }
        let down = self
            .outages
            .iter()
            .find(|(from, to, _)| (*from..*to).contains(&now));
        let down = down.map(|(_, _, trouble)| *trouble);
        let quiet = now >= self.start + LAST;
        let trouble = down.or_else(|| (!quiet && self.dice.once_in(80)).then(|| self.trouble()))?;
        Some(match trouble {
            Trouble::Down => Answer::status(503),
            Trouble::Throttled => Answer::status(429).header("Retry-After", "5400"),
            Trouble::Page => Answer::ok()
                .header("Content-Type", "text/html")
                .body("<html>please log in</html>"),
            Trouble::Cut => Answer::ok()
                .json("[{\"type\":\"Feature\",")
                .only(90)
                .then_reset(),
        })
    }

    /// All that has happened by `now`.
    fn live(&mut self, items: &mut Items, now: i64) {
        while let Some(((at, _), _)) = self.coming.first_key_value() {
            if *at > now {
                return;
            }
            if let Some((_, event)) = self.coming.pop_first() {
                self.happen(items, now, event);
            }
        }
    }

    /// What would come within a day comes now.
    fn hurry(&mut self, items: &mut Items, now: i64) {
        let is_near = self
            .coming
            .first_key_value()
            .is_some_and(|((at, _), _)| *at < now + DAY);
        if !is_near {
            return;
        }
        if let Some((_, event)) = self.coming.pop_first() {
            self.shifts += 1;
            self.happen(items, now, event);
        }
    }

    fn happen(&mut self, items: &mut Items, now: i64, event: Event) {
        self.happened += 1;
        match event {
            Event::Appear(id) => {
                let value = self.quakes[id as usize].value.clone();
                self.write(items, now, id, value, None);
            }
            Event::Revise { id, silent, back } => self.revise(items, now, id, silent, back),
            Event::Revert { id, value } => {
                if items.get(&id).is_some_and(|item| item.gone.is_none()) {
                    self.write(items, now, id, value, None);
                }
            }
            Event::Bury(id) => {
                if let Some(value) = items.get(&id).map(|item| item.value.clone()) {
                    self.write(items, now, id, value, Some(Tombstone::Listed));
                }
            }
            Event::Vanish(id) => {
                if let Some(item) = items.remove(&id) {
                    self.recent.push((now, id, Some(item)));
                    self.last.insert(id, Seen::Gone);
                }
            }
            Event::Touch => {
                let some = self.dice.below(10);
                for (id, item) in items.iter_mut() {
                    if u64::from(*id) % 10 == some {
                        item.updated = now;
                        self.last.insert(*id, Seen::InTime);
                    }
                }
            }
            Event::Backup => self.backup = items.clone(),
            Event::Restore => {
                let was = std::mem::replace(items, self.backup.clone());
                let all = was.keys().chain(items.keys());
                for id in all.filter(|id| was.get(id) != items.get(id)) {
                    self.last.insert(*id, Seen::Restored);
                }
            }
        }
    }

    /// Under an update time that lies a while before it can be seen.
    fn write(
        &mut self,
        items: &mut Items,
        now: i64,
        id: u32,
        value: String,
        gone: Option<Tombstone>,
    ) {
        let late = self.lateness();
        let item = Item {
            value,
            updated: now - late,
            visible: now,
            gone,
            older: None,
        };
        let seen = if late > LATENESS {
            Seen::Late
        } else {
            Seen::InTime
        };
        self.last.insert(id, seen);
        self.recent.push((now, id, items.insert(id, item)));
    }

    fn revise(&mut self, items: &mut Items, now: i64, id: u32, silent: bool, back: Option<i64>) {
        self.revisions += 1;
        let Some(item) = items.get_mut(&id).filter(|item| item.gone.is_none()) else {
            return;
        };
        let before = item.value.clone();
        let value = revised(&before, self.revisions);
        if silent {
            self.recent.push((now, id, Some(item.clone())));
            item.value = value;
            self.last.insert(id, Seen::Silent);
        } else {
            self.write(items, now, id, value, None);
        }
        if let Some(back) = back {
            self.soon(now, back, Event::Revert { id, value: before });
        }
    }

    /// While a device without power is away, upstream takes back what it had changed since `since`: under a new update time,
    /// or as if nothing had been.
    pub fn take_back(&mut self, items: &mut Items, since: i64) {
        let now = self.clock.wall().as_second();
        let recent = std::mem::take(&mut self.recent);
        for (_, id, before) in recent.into_iter().filter(|(at, ..)| *at >= since) {
            let silently = self.dice.once_in(4);
            match before {
                Some(item) if silently => {
                    items.insert(id, item);
                    self.last.insert(id, Seen::Restored);
                }
                Some(item) => self.write(items, now, id, item.value, item.gone),
                None => self.happen(items, now, Event::Bury(id)),
            }
        }
    }

    /// What was changed up to now is not taken back any more.
    pub fn settle(&mut self) {
        self.recent.clear();
    }

    pub fn outages(&self) -> usize {
        self.outages.len()
    }
}

/// Only listings of several pages come so far.
fn is_far_into_a_listing(request: &Request) -> bool {
    let number = |name| {
        request
            .param(name)
            .and_then(|value| value.parse::<u64>().ok())
    };
    number("page").is_some_and(|page| page > 2)
        || number("offset").is_some_and(|offset| offset > 20)
        || request.param("after").is_some()
}
