//! The field that moves: when nearly every record changes with each pass, it is mostly one field of no meaning, a time of
//! fetching or a counter, that makes everything be delivered again and again. Pure.

use std::collections::{BTreeMap, BTreeSet};

use super::digest::Canon;
use super::report::Tally;
use crate::config::Ignore;
use crate::json::{Json, Kind};
use crate::pointer::{index, name_is};

/// Records that are compared in one pass.
pub const SAMPLE: usize = 100;

/// Passes in a row that changed nearly everything before it is asked why: this one included.
pub const PASSES: u32 = 3;

/// Fewer records tell nothing.
const ENOUGH: u64 = 5;

/// More fields than this do not move by themselves: the data changes.
const FIELDS: usize = 5;

/// Differences of one pair of records; of more it is said that all differs.
const MOST: usize = 64;

/// Whether a complete pass over everything changed nearly everything: nine in ten of what it had, and at least five.
#[must_use]
pub fn changed_nearly_all(tally: &Tally) -> bool {
    let seen = tally.added + tally.changed + tally.unchanged;
    tally.changed >= ENOUGH && tally.changed * 10 >= seen * 9
}

/// Where two forms of a record differ, as JSON Pointers with `*` for array indexes; what is ignored makes no difference. An
/// array of another length differs as a whole, and so does a value of another kind.
#[must_use]
pub fn differing(old: Json<'_>, new: Json<'_>, ignored: &[Ignore]) -> BTreeSet<String> {
    let mut walk = Walk {
        ignored,
        canon: [Canon::default(), Canon::default()],
        tokens: Vec::new(),
        found: BTreeSet::new(),
    };
    walk.compare(old, new);
    walk.found
}

/// The fields that move, if they and they alone explain nearly all of the differences of a sample of records.
#[must_use]
pub fn moving(sample: &[BTreeSet<String>]) -> Option<Vec<String>> {
    if (sample.len() as u64) < ENOUGH {
        return None;
    }
    let is_most = |count: usize| count * 10 >= sample.len() * 9;
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for place in sample.iter().flatten() {
        *counts.entry(place).or_default() += 1;
    }
    let fields: BTreeSet<&str> = counts
        .into_iter()
        .filter(|(_, count)| is_most(*count))
        .map(|(place, _)| place)
        .collect();
    let explained = |places: &&BTreeSet<String>| {
        !places.is_empty() && places.iter().all(|place| fields.contains(place.as_str()))
    };
    let named = !fields.is_empty() && fields.len() <= FIELDS && !fields.contains("");
    (named && is_most(sample.iter().filter(explained).count()))
        .then(|| fields.into_iter().map(str::to_owned).collect())
}

struct Walk<'i> {
    ignored: &'i [Ignore],
    canon: [Canon; 2],
    /// The way to the values at hand; whether each step is an array's index.
    tokens: Vec<(String, bool)>,
    found: BTreeSet<String>,
}

impl Walk<'_> {
    fn compare(&mut self, old: Json<'_>, new: Json<'_>) {
        if self.found.len() >= MOST || self.is_ignored() {
            return;
        }
        match (old.kind(), new.kind()) {
            (Kind::Object, Kind::Object) => self.members(old, new),
            (Kind::Array, Kind::Array) if old.items().count() == new.items().count() => {
                for (nth, (old, new)) in old.items().zip(new.items()).enumerate() {
                    self.step(nth.to_string(), true, Some(old), Some(new));
                }
            }
            _ => {
                let [canon, other] = &mut self.canon;
                if canon.canonical(old) != other.canonical(new) {
                    self.differs();
                }
            }
        }
    }

    fn members(&mut self, old: Json<'_>, new: Json<'_>) {
        for (name, value) in old.members() {
            let token = content(name);
            let other = new.members().find(|(name, _)| name_is(name, &token));
            self.step(token, false, Some(value), other.map(|(_, value)| value));
        }
        for (name, value) in new.members() {
            let token = content(name);
            if !old.members().any(|(name, _)| name_is(name, &token)) {
                self.step(token, false, None, Some(value));
            }
        }
    }

    fn step(
        &mut self,
        token: String,
        is_index: bool,
        old: Option<Json<'_>>,
        new: Option<Json<'_>>,
    ) {
        self.tokens.push((token, is_index));
        match (old, new) {
            (Some(old), Some(new)) => self.compare(old, new),
            _ if self.is_ignored() => {}
            _ => self.differs(),
        }
        self.tokens.pop();
    }

    fn differs(&mut self) {
        let token = |(token, is_index): &(String, bool)| {
            if *is_index {
                "/*".to_owned()
            } else {
                format!("/{}", token.replace('~', "~0").replace('/', "~1"))
            }
        };
        self.found.insert(self.tokens.iter().map(token).collect());
    }

    /// Whether what is at hand makes no difference.
    fn is_ignored(&self) -> bool {
        let named = self.tokens.last().filter(|(_, is_index)| !is_index);
        self.ignored.iter().any(|ignore| match ignore {
            Ignore::Anywhere(name) => named.is_some_and(|(token, _)| token == name),
            Ignore::At(place) => {
                let tokens = place.tokens();
                let fits = |(ours, theirs): (&(String, bool), &String)| {
                    let any = ours.1 && theirs == "*";
                    any || ours.0 == *theirs && (!ours.1 || index(theirs).is_some())
                };
                !tokens.is_empty()
                    && tokens.len() == self.tokens.len()
                    && self.tokens.iter().zip(tokens).all(fits)
            }
        })
    }
}

/// A member's name, escapes resolved as far as there is text.
fn content(name: &str) -> String {
    let quoted = format!("\"{name}\"");
    let text = Json::checked(&quoted)
        .string()
        .map(|text| text.into_owned());
    text.unwrap_or_else(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pointer::Pointer;
    use proptest::prelude::*;

    fn json(text: &str) -> Json<'_> {
        Json::parse(text.as_bytes()).unwrap()
    }

    fn ignores(texts: &[&str]) -> Vec<Ignore> {
        let ignore = |text: &&str| match text.strip_prefix('/') {
            Some(_) => Ignore::At(Pointer::parse(text).unwrap()),
            None => Ignore::Anywhere((*text).to_owned()),
        };
        texts.iter().map(ignore).collect()
    }

    #[test]
    fn where_two_records_differ() {
        let table: &[(&str, &str, &[&str], &[&str])] = &[
            (r#"{"a":1}"#, r#"{"a":1.0}"#, &[], &[]),
            (r#"{"a":1,"b":2}"#, r#"{"b":2,"a":1}"#, &[], &[]),
            (r#"{"a":"\u0041"}"#, r#"{"a":"A"}"#, &[], &[]),
            (r#"{"a":1}"#, r#"{"a":2}"#, &[], &["/a"]),
            (r#"{"a":1}"#, r#"{}"#, &[], &["/a"]),
            (r#"{}"#, r#"{"a":null}"#, &[], &["/a"]),
            (
                r#"{"a":{"b":1,"c":1}}"#,
                r#"{"a":{"b":2,"c":1}}"#,
                &[],
                &["/a/b"],
            ),
            (
                r#"{"a":[{"t":1},{"t":2}]}"#,
                r#"{"a":[{"t":3},{"t":4}]}"#,
                &[],
                &["/a/*/t"],
            ),
            (r#"{"a":[1,2]}"#, r#"{"a":[1,2,3]}"#, &[], &["/a"]),
            (r#"{"a":[1]}"#, r#"{"a":{"0":1}}"#, &[], &["/a"]),
            (
                r#"{"a/b":1,"c~":1}"#,
                r#"{"a/b":2,"c~":2}"#,
                &[],
                &["/a~1b", "/c~0"],
            ),
            (r#"{"\u0061":1}"#, r#"{"a":2}"#, &[], &["/a"]),
            ("1", "2", &[], &[""]),
            // What is ignored already.
            (r#"{"a":1,"b":1}"#, r#"{"a":2,"b":2}"#, &["/a"], &["/b"]),
            (
                r#"{"a":{"t":1},"t":1}"#,
                r#"{"a":{"t":2},"t":2}"#,
                &["t"],
                &[],
            ),
            (r#"{"a":{"t":1}}"#, r#"{"a":{}}"#, &["t"], &[]),
            (r#"{"a":[{"t":1}]}"#, r#"{"a":[{"t":2}]}"#, &["/a/*/t"], &[]),
            (r#"{"a":[{"t":1}]}"#, r#"{"a":[{"t":2}]}"#, &["/a/0/t"], &[]),
            (
                r#"{"a":[{"t":1}]}"#,
                r#"{"a":[{"t":2}]}"#,
                &["/a/1/t"],
                &["/a/*/t"],
            ),
            (r#"{"a":{"*":1}}"#, r#"{"a":{"*":2}}"#, &["/a/*"], &[]),
            (r#"{"a":{"x":1}}"#, r#"{"a":{"x":2}}"#, &["/a/*"], &["/a/x"]),
        ];
        for (old, new, ignored, expected) in table {
            let found = differing(json(old), json(new), &ignores(ignored));
            let found: Vec<&str> = found.iter().map(String::as_str).collect();
            assert_eq!(found, *expected, "{old} {new} {ignored:?}");
        }
    }

    fn sample(pairs: &[(usize, &[&str])]) -> Vec<BTreeSet<String>> {
        let set = |places: &[&str]| places.iter().map(|place| (*place).to_owned()).collect();
        pairs
            .iter()
            .flat_map(|(count, places)| std::iter::repeat_n(set(places), *count))
            .collect()
    }

    #[test]
    fn which_fields_move() {
        let many: Vec<String> = (0..6).map(|n| format!("/f{n}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        type Pairs<'a> = &'a [(usize, &'a [&'a str])];
        let table: &[(Pairs<'_>, Option<&[&str]>)] = &[
            (&[(20, &["/t"])], Some(&["/t"])),
            (&[(20, &["/t", "/u"])], Some(&["/t", "/u"])),
            // Some change in earnest as well.
            (&[(18, &["/t"]), (2, &["/t", "/name"])], Some(&["/t"])),
            (&[(17, &["/t"]), (3, &["/t", "/name"])], None),
            // Each in another field: nothing to ignore.
            (&[(7, &["/a"]), (7, &["/b"]), (6, &["/c"])], None),
            (&[(10, &["/t", "/a"]), (10, &["/t", "/b"])], None),
            (&[(20, &many)], None),
            // Too few; the record as a whole; no difference at all.
            (&[(4, &["/t"])], None),
            (&[(20, &[""])], None),
            (&[(20, &[])], None),
            (&[(10, &[]), (10, &["/t"])], None),
            (&[], None),
        ];
        for (pairs, expected) in table {
            let fields = moving(&sample(pairs));
            let expected =
                expected.map(|fields| fields.iter().map(|&field| field.to_owned()).collect());
            assert_eq!(fields, expected, "{pairs:?}");
        }
    }

    #[test]
    fn what_nearly_everything_is() {
        for (added, changed, unchanged, expected) in [
            (0, 5, 0, true),
            (0, 4, 0, false),
            (0, 90, 10, true),
            (0, 89, 11, false),
            (11, 89, 0, false),
            (1000, 0, 0, false),
            (0, 0, 1000, false),
        ] {
            let tally = Tally {
                added,
                changed,
                unchanged,
                ..Tally::default()
            };
            assert_eq!(changed_nearly_all(&tally), expected, "{tally:?}");
        }
    }

    fn value() -> impl Strategy<Value = serde_json::Value> {
        let leaf = prop_oneof![
            Just(serde_json::Value::Null),
            (0..3).prop_map(Into::into),
            "[a~/\"]{0,2}".prop_map(Into::into),
        ];
        leaf.prop_recursive(3, 16, 3, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(serde_json::Value::Array),
                prop::collection::btree_map("[ab/*~]{1,2}", inner, 0..3)
                    .prop_map(|map| serde_json::Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        /// It finds a difference exactly where the digest does, and ignoring all that it names leaves none.
        #[test]
        fn it_sees_what_the_digest_sees(old in value(), new in value()) {
            let (old, new) = (old.to_string(), new.to_string());
            let (old, new) = (json(&old), json(&new));
            let found = differing(old, new, &[]);
            let mut canon = Canon::default();
            prop_assert_eq!(found.is_empty(), canon.digest(old) == canon.digest(new));
            if !found.contains("") {
                let ignored: Vec<Ignore> = found
                    .iter()
                    .map(|place| Ignore::At(Pointer::parse(place).unwrap()))
                    .collect();
                let mut canon = Canon::new(&ignored);
                prop_assert_eq!(canon.digest(old), canon.digest(new), "{:?}", found);
                prop_assert!(differing(old, new, &ignored).is_empty());
            }
        }
    }
}
