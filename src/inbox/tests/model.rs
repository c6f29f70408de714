//! The inbox against a list, through closings and power cuts.
//!
//! A cut leaves of what was not synced any prefix of the writes, 512-byte sector by sector; what was synced, and files and
//! names that were, it leaves alone.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

type Image = BTreeMap<String, Vec<u8>>;

#[derive(Debug, Clone)]
enum Step {
    /// This long, and of zeros or not: a segment is made of them.
    Append(usize, bool),
    Sync,
    /// Of what waits, this one.
    Mark(prop::sample::Index, State),
    Reopen,
    Cut(u64),
    /// In the middle of writing the marks of two.
    CutWhileMarking([prop::sample::Index; 2], u64),
    SyncFails,
    Prepare,
}

fn step() -> impl Strategy<Value = Step> {
    let state = prop_oneof![
        3 => Just(State::Done),
        1 => Just(State::Dropped),
        1 => Just(failed("why")),
        1 => Just(State::Dead { tries: 1, reason: "no".into() }),
    ];
    let index = any::<prop::sample::Index>;
    prop_oneof![
        12 => (0..3000_usize, any::<bool>()).prop_map(|(long, zeros)| Step::Append(long, zeros)),
        1 => (60_000..80_000_usize).prop_map(|long| Step::Append(long, false)),
        6 => Just(Step::Sync),
        4 => (index(), state).prop_map(|(nth, state)| Step::Mark(nth, state)),
        1 => Just(Step::Reopen),
        3 => any::<u64>().prop_map(Step::Cut),
        2 => ([index(), index()], any::<u64>()).prop_map(|(two, dice)| Step::CutWhileMarking(two, dice)),
        1 => Just(Step::SyncFails),
        2 => Just(Step::Prepare),
    ]
}

fn image(dir: &Path) -> Image {
    files(dir)
        .into_iter()
        .map(|name| (name.clone(), fs::read(dir.join(name)).unwrap()))
        .collect()
}

/// A fixed sequence of numbers.
struct Dice(u64);

impl Dice {
    fn below(&mut self, most: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % most
    }
}

/// Lays out what a cut leaves: of each sector one of its versions, and of a file that grew any length.
fn lay_out(dir: &Path, versions: &[Image], dice: &mut Dice) {
    let last = versions.last().unwrap();
    for name in files(dir) {
        fs::remove_file(dir.join(name)).unwrap();
    }
    for (name, newest) in last {
        let of: Vec<&Vec<u8>> = versions
            .iter()
            .filter_map(|image| image.get(name))
            .collect();
        let mut bytes = newest.clone();
        for (nth, sector) in bytes.chunks_mut(512).enumerate() {
            let version = of[dice.below(of.len())];
            for (offset, byte) in sector.iter_mut().enumerate() {
                *byte = version.get(nth * 512 + offset).copied().unwrap_or(0);
            }
        }
        let shortest = of.iter().map(|version| version.len()).min().unwrap();
        bytes.truncate(shortest + dice.below(newest.len() - shortest + 1));
        fs::write(dir.join(name), bytes).unwrap();
    }
}

#[derive(Debug, Clone)]
struct Expected {
    id: RequestId,
    body: Vec<u8>,
    /// It was acknowledged; if not, it may be there after a cut.
    synced: bool,
    /// What may have become of it.
    states: Vec<State>,
}

/// So that segments run full.
fn small() -> Limits {
    Limits {
        quota: 256 * 1024,
        ..limits()
    }
}

struct World {
    home: tempfile::TempDir,
    inbox: Option<Inbox>,
    model: Vec<Expected>,
    /// The files at the last sync and after each write since.
    versions: Vec<Image>,
}

impl World {
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        let mut world = Self {
            home,
            inbox: None,
            model: Vec::new(),
            versions: Vec::new(),
        };
        world.open();
        world
    }

    fn inbox(&mut self) -> &mut Inbox {
        self.inbox.as_mut().unwrap()
    }

    fn open(&mut self) {
        let (inbox, opening) = Inbox::open(self.home.path(), small()).unwrap();
        let harmless =
            |finding: &Finding| matches!(finding, Finding::Torn { .. } | Finding::Lost { .. });
        assert!(
            opening.findings.iter().all(harmless),
            "{:?}",
            opening.findings
        );
        self.inbox = Some(inbox);
        self.adopt();
        self.synced();
        assert_eq!(self.again(), [], "what is mended is said once");
    }

    fn again(&mut self) -> Vec<Finding> {
        self.inbox = None;
        let (inbox, opening) = Inbox::open(self.home.path(), small()).unwrap();
        self.inbox = Some(inbox);
        opening.findings
    }

    /// Everything is durable now.
    fn synced(&mut self) {
        self.versions = vec![image(self.home.path())];
    }

    fn wrote(&mut self) {
        let mut now = image(self.home.path());
        // A file with a new name was synced when it got it, before the frame that it was made for.
        for (name, bytes) in &mut now {
            if name.ends_with(".seg") && !self.versions[0].contains_key(name) {
                let mut empty = vec![0; bytes.len()];
                empty[..1024].copy_from_slice(&bytes[..1024]);
                self.versions[0].insert(name.clone(), empty);
            }
        }
        self.versions.push(now);
    }

    /// The model takes over what is there of what may be, and fails on anything else.
    fn adopt(&mut self) {
        let inbox = self.inbox.as_ref().unwrap();
        let mut there = BTreeMap::new();
        let reader = Reader::new(self.home.path());
        reader
            .list(&Filter::default(), |listed| {
                drop(there.insert(listed.stored.id, listed.state))
            })
            .unwrap();
        self.model.retain_mut(|expected| {
            let Some(state) = there.remove(&expected.id) else {
                let settled = expected.states.iter().any(State::is_settled);
                assert!(!expected.synced || settled, "{} is lost", expected.id);
                return false;
            };
            assert!(
                expected.states.contains(&state),
                "{state:?} is none of {:?}",
                expected.states
            );
            expected.synced = true;
            expected.states = vec![state];
            true
        });
        assert!(there.is_empty(), "nobody sent {there:?}");
        self.check(inbox);
    }

    fn check(&self, inbox: &Inbox) {
        let waits = |expected: &&Expected| {
            let state = &expected.states[0];
            expected.synced && !state.is_settled() && !matches!(state, State::Dead { .. })
        };
        let expected: Vec<_> = self
            .model
            .iter()
            .filter(waits)
            .map(|it| (it.id, it.body.clone()))
            .collect();
        let found: Vec<_> = inbox
            .pending(None)
            .map(|it| (it.id, inbox.read(it.position).unwrap().received.body))
            .collect();
        assert!(
            found == expected,
            "{} wait instead of {}",
            found.len(),
            expected.len()
        );
    }

    fn cut(&mut self, dice: u64) {
        self.inbox = None;
        lay_out(self.home.path(), &self.versions, &mut Dice(dice));
        self.open();
    }

    fn pick(&mut self, nth: prop::sample::Index) -> Option<Position> {
        let waiting: Vec<_> = self.inbox().pending(None).map(|it| it.position).collect();
        (!waiting.is_empty()).then(|| waiting[nth.index(waiting.len())])
    }

    fn expected(&mut self, position: Position) -> &mut Expected {
        let id = self.inbox().read(position).unwrap().id;
        self.model.iter_mut().find(|it| it.id == id).unwrap()
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Append(long, zeros) => {
                let fill = if zeros {
                    0
                } else {
                    u8::try_from(long % 251).unwrap()
                };
                let body = vec![fill; long];
                match self.inbox().append(&received(&body)) {
                    Ok(id) => self.model.push(Expected {
                        id,
                        body,
                        synced: false,
                        states: vec![State::Pending],
                    }),
                    Err(error) => assert!(error.is_full(), "{error}"),
                }
                self.wrote();
            }
            Step::Sync => {
                self.inbox().sync().unwrap();
                self.model.iter_mut().for_each(|it| it.synced = true);
                self.synced();
            }
            Step::SyncFails => self.fail(),
            Step::Prepare => {
                match self.inbox().prepare() {
                    Ok(_) => {}
                    Err(error) => assert!(error.is_full(), "{error}"),
                }
                self.wrote();
            }
            Step::Mark(nth, state) => {
                let Some(position) = self.pick(nth) else {
                    return;
                };
                self.expected(position).states = vec![state.clone()];
                self.inbox().mark(&[(position, state)], now()).unwrap();
                self.marked();
            }
            Step::Reopen => {
                // The process ends, the system goes on: what was written is there.
                self.inbox = None;
                self.open();
            }
            Step::Cut(dice) => self.cut(dice),
            Step::CutWhileMarking(two, dice) => self.cut_while_marking(two, dice),
        }
        let inbox = self.inbox.take().unwrap();
        self.check(&inbox);
        self.inbox = Some(inbox);
    }

    /// Logs are durable; what was appended and not synced still is not.
    fn marked(&mut self) {
        let now = image(self.home.path());
        for version in &mut self.versions {
            version.retain(|name, _| name.ends_with(".seg"));
            for (name, bytes) in now.iter().filter(|(name, _)| !name.ends_with(".seg")) {
                version.insert(name.clone(), bytes.clone());
            }
        }
        self.wrote();
    }

    fn cut_while_marking(&mut self, two: [prop::sample::Index; 2], dice: u64) {
        let mut marks: Vec<_> = two.into_iter().filter_map(|nth| self.pick(nth)).collect();
        marks.dedup();
        for position in &marks {
            self.expected(*position).states.push(State::Done);
        }
        let before = image(self.home.path());
        let done: Vec<_> = marks
            .iter()
            .map(|position| (*position, State::Done))
            .collect();
        self.inbox().mark(&done, now()).unwrap();
        let after = image(self.home.path());
        let mut dice = Dice(dice);
        if before.keys().eq(after.keys()) {
            self.versions.push(after);
        } else {
            // A rename is all or nothing.
            let names = if dice.below(2) == 0 { before } else { after };
            for version in &mut self.versions {
                version.retain(|name, _| name.ends_with(".seg"));
                version.extend(
                    names
                        .clone()
                        .into_iter()
                        .filter(|(name, _)| !name.ends_with(".seg")),
                );
            }
        }
        self.cut(dice.0);
    }

    /// The device reports an error: what was not synced is void, and whoever sent it was told so.
    fn fail(&mut self) {
        let inbox = self.inbox();
        if inbox.unsynced.is_empty() {
            return;
        }
        let last = inbox
            .filled
            .iter_mut()
            .chain(&mut inbox.active)
            .last()
            .unwrap();
        last.file = unsyncable();
        inbox.sync().unwrap_err();
        // The marks say so, if they are there; the records may be or not.
        for lost in self.model.iter_mut().filter(|it| !it.synced) {
            lost.states = vec![State::Void];
        }
        self.marked();
        for lost in &mut self.model {
            lost.synced |= lost.states[0] == State::Void;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    #[test]
    fn what_was_acknowledged_is_there_through_any_cut(steps in prop::collection::vec(step(), 1..40)) {
        let mut world = World::new();
        for step in steps {
            world.take(step);
        }
    }
}
