use proptest::prelude::*;

use super::*;

fn file(name: &str, bytes: u64, used: u64) -> Known {
    Known {
        path: name.into(),
        bytes,
        used: SystemTime::UNIX_EPOCH + Duration::from_secs(used),
    }
}

#[test]
fn the_least_recently_used_go_first() {
    let known = vec![file("a", 10, 3), file("b", 10, 1), file("c", 10, 2)];
    assert_eq!(surplus(known.clone(), 30), Vec::<PathBuf>::new());
    assert_eq!(surplus(known.clone(), 29), [PathBuf::from("b")]);
    assert_eq!(surplus(known, 10), [PathBuf::from("b"), PathBuf::from("c")]);
}

proptest! {
    #[test]
    fn what_stays_fits(sizes in prop::collection::vec((0_u64..1000, 0_u64..9), 0..30), bound in 0_u64..9000) {
        let known: Vec<Known> = sizes
            .iter()
            .enumerate()
            .map(|(n, (bytes, used))| file(&n.to_string(), *bytes, *used))
            .collect();
        let going = surplus(known.clone(), bound);
        let stays = known.iter().filter(|file| !going.contains(&file.path));
        prop_assert!(stays.map(|file| file.bytes).sum::<u64>() <= bound);
    }
}
