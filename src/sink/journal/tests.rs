//! The journal against a list: cuts at any byte of a batch on its way, torn or with garbage behind, marks that are lost.

use std::fs;

use proptest::prelude::*;

use super::*;

/// What happens to a batch before it is committed.
#[derive(Debug, Clone)]
enum Fate {
    /// It is.
    Taken,
    /// It is written, and not committed: it comes again.
    NotCommitted,
    /// A cut leaves so many thousandths of it, and perhaps zeros behind.
    Torn(usize, usize),
    /// A cut loses the file that was begun with it.
    NoName,
    /// It is taken, but the store is lost.
    MarkLost,
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        4 => Just(Fate::Taken),
        2 => Just(Fate::NotCommitted),
        3 => (0..1000_usize, 0..50_usize).prop_map(|(part, zeros)| Fate::Torn(part, zeros)),
        1 => Just(Fate::NoName),
        1 => Just(Fate::MarkLost),
    ]
}

fn batch(seq: u64, changes: u64) -> Vec<u8> {
    (seq..seq + changes)
        .flat_map(|seq| {
            format!(
                "{{\"seq\":{seq},\"x\":\"{}\"}}\n",
                "y".repeat(usize::try_from(seq % 40).unwrap())
            )
            .into_bytes()
        })
        .collect()
}

/// All that is there, put aside or not, in the order of the numbers in the names.
fn stream(state: &Path) -> Vec<u8> {
    let mut names: Vec<PathBuf> = fs::read_dir(state.join(DIRECTORY))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    names.sort();
    // The one without a number is the latest.
    names.rotate_left(1);
    names
        .iter()
        .flat_map(|path| fs::read(path).unwrap())
        .collect()
}

proptest! {
    #[test]
    fn nothing_is_missing_doubled_or_renumbered(batches in prop::collection::vec((1..6_u64, fate()), 1..25)) {
        let state = tempfile::tempdir().unwrap();
        let spec = config::Journal { file: "j".into(), rotate: 300, keep: 1000 };
        let (mut mark, mut next, mut expected) = (Mark::default(), 1, Vec::new());
        for (changes, fate) in batches {
            let lines = batch(next, changes);
            let append = |mark| {
                let mut journal = Journal::new(state.path(), &spec, mark);
                journal.append(next, &lines, changes).unwrap();
                journal.mark()
            };
            let path = state.path().join(DIRECTORY).join("j");
            match fate {
                Fate::Taken => {}
                Fate::NotCommitted => {
                    append(mark);
                }
                Fate::Torn(part, zeros) => {
                    let reached = append(mark);
                    let text = fs::read(&path).unwrap();
                    let base = usize::try_from(reached.len).unwrap() - lines.len();
                    let mut left = text[..base + lines.len() * part / 1000].to_vec();
                    left.extend(std::iter::repeat_n(0, zeros));
                    fs::write(&path, left).unwrap();
                }
                Fate::NoName => {
                    let reached = append(mark);
                    if reached.len == lines.len() as u64 {
                        fs::remove_file(&path).unwrap();
                    }
                }
                Fate::MarkLost => mark = Mark::default(),
            }
            mark = append(mark);
            expected.extend_from_slice(&lines);
            next += changes;
            prop_assert_eq!(mark.next, next);
            prop_assert_eq!(String::from_utf8(stream(state.path())).unwrap(), String::from_utf8(expected.clone()).unwrap());
            prop_assert_eq!(Journal::new(state.path(), &spec, mark).last().unwrap(), None);
            prop_assert_eq!(Journal::new(state.path(), &spec, Mark::default()).last().unwrap(), Some(next - 1));
        }
    }

    #[test]
    fn a_mark_reads_as_it_was_written(next: u64, file: u64, len: u64) {
        let mark = Mark { next, file, len };
        prop_assert_eq!(Mark::decode(&mark.encode()), Some(mark));
        prop_assert_eq!(Mark::decode(&mark.encode()[1..]), None);
    }
}

#[test]
fn a_full_disk_is_said_with_what_to_do() {
    let error = SinkError::io(
        Path::new("/j"),
        &io::Error::from(io::ErrorKind::StorageFull),
    );
    assert_eq!(error.kind, crate::sink::SinkTrouble::Full);
    assert!(
        error.message.ends_with("; make room, nothing was lost"),
        "{error}"
    );
}
