//! Which known word a misspelt one was meant to be.

/// The candidate that `word` was most likely meant to be, if one is near.
pub(super) fn nearest<'c>(word: &str, candidates: &[&'c str]) -> Option<&'c str> {
    let limit = (word.len() / 3).max(1);
    let near = candidates
        .iter()
        .map(|candidate| (distance(word, candidate), *candidate));
    near.filter(|(distance, _)| *distance <= limit)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// Edits (insert, delete, replace, swap neighbours) between two words; case is no difference.
fn distance(a: &str, b: &str) -> usize {
    let a: Vec<u8> = a
        .bytes()
        .take(64)
        .map(|byte| byte.to_ascii_lowercase())
        .collect();
    let b: Vec<u8> = b
        .bytes()
        .take(64)
        .map(|byte| byte.to_ascii_lowercase())
        .collect();
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            rows[i][j] = if i == 0 || j == 0 {
                i + j
            } else {
                let replaced = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
                let swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
                let swap = if swapped {
                    rows[i - 2][j - 2] + 1
                } else {
                    usize::MAX
                };
                replaced
                    .min(swap)
                    .min(rows[i - 1][j] + 1)
                    .min(rows[i][j - 1] + 1)
            };
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_near_key_is_suggested_and_a_far_one_is_not() {
        for (word, near) in [
            ("evry", Some("every")),
            ("evrey", Some("every")),
            ("Every", Some("every")),
            ("record", Some("records")),
            ("colums", Some("columns")),
            ("interval", None),
            ("x", None),
        ] {
            assert_eq!(
                nearest(word, crate::config::raw::SOURCE.known),
                near,
                "{word}"
            );
        }
    }
}
