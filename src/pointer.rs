//! JSON Pointer (RFC 6901).

use std::borrow::Borrow;
use std::fmt;

use crate::json::{Json, Kind, unescape};

/// A parsed JSON Pointer: reference tokens, unescaped. The empty pointer is the whole value.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Pointer(Vec<String>);

impl Pointer {
    /// The pointer to the whole value.
    #[must_use]
    pub fn root() -> Self {
        Self::default()
    }

    /// Parses the string form (RFC 6901, section 3): empty, or `/` before each token, in which `~1` stands for `/` and
    /// `~0` for `~`.
    ///
    /// # Errors
    ///
    /// [`PointerError`] says what was expected.
    pub fn parse(text: &str) -> Result<Self, PointerError> {
        let bad = |problem| PointerError {
            text: text.into(),
            problem,
        };
        if text.is_empty() {
            return Ok(Self::root());
        }
        let Some(tokens) = text.strip_prefix('/') else {
            return Err(bad(match text.as_bytes() {
                [b'#', ..] => Problem::Fragment,
                [b'$', ..] => Problem::JsonPath,
                _ => Problem::NoSlash,
            }));
        };
        tokens
            .split('/')
            .map(|token| unescape_token(token).ok_or_else(|| bad(Problem::Tilde)))
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// The reference tokens, unescaped; none for the whole value.
    #[must_use]
    pub fn tokens(&self) -> &[String] {
        &self.0
    }

    /// Whether this is the whole value.
    #[must_use]
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// The pointer to the value that the first `depth` tokens lead to.
    pub(crate) fn up_to(&self, depth: usize) -> Self {
        Self(self.0.iter().take(depth).cloned().collect())
    }

    /// The value that this points at, as it is written in `json`. Of members with one name the last counts; `-` points
    /// past an array's end and finds nothing (RFC 6901, section 4).
    #[must_use]
    pub fn find<'a>(&self, json: Json<'a>) -> Option<Json<'a>> {
        find(&self.0, json)
    }
}

/// [`Pointer::find`] for the rest of a path.
pub(crate) fn find<'a>(tokens: &[String], json: Json<'a>) -> Option<Json<'a>> {
    tokens
        .iter()
        .try_fold(json, |json, token| match json.kind() {
            Kind::Object => json
                .members()
                .filter(|(name, _)| name_is(name, token))
                .last()
                .map(|(_, value)| value),
            Kind::Array => index(token).and_then(|index| json.items().nth(index)),
            _ => None,
        })
}

/// What several pointers point at, in their order, found in one walk over `json`.
#[must_use]
pub fn extract<'a, P: Borrow<Pointer>>(pointers: &[P], json: Json<'a>) -> Vec<Option<Json<'a>>> {
    let mut walk = Walk {
        pointers,
        found: vec![None; pointers.len()],
        active: (0..pointers.len()).collect(),
    };
    walk.value(json, 0, 0);
    walk.found
}

struct Walk<'p, 'a, P> {
    pointers: &'p [P],
    found: Vec<Option<Json<'a>>>,
    /// A stack: the pointers that lead to or through the value at hand are those from its base on.
    active: Vec<usize>,
}

impl<'a, P: Borrow<Pointer>> Walk<'_, 'a, P> {
    /// Looks into a value that the first `depth` tokens of the active pointers lead to.
    fn value(&mut self, json: Json<'a>, depth: usize, base: usize) {
        let end = self.active.len();
        let mut deeper = false;
        for at in base..end {
            let id = self.active[at];
            if self.pointers[id].borrow().0.len() == depth {
                self.found[id] = Some(json);
            } else {
                // Of an earlier member with the same name.
                self.found[id] = None;
                deeper = true;
            }
        }
        if !deeper {
            return;
        }
        for (name, value) in json.members() {
            self.child(value, depth, base, |token| name_is(name, token));
        }
        for (nth, value) in json.items().enumerate() {
            self.child(value, depth, base, |token| index(token) == Some(nth));
        }
    }

    fn child(&mut self, value: Json<'a>, depth: usize, base: usize, is: impl Fn(&str) -> bool) {
        let end = self.active.len();
        for at in base..end {
            let id = self.active[at];
            let token = self.pointers[id].borrow().0.get(depth);
            if token.is_some_and(|token| is(token)) {
                self.active.push(id);
            }
        }
        if self.active.len() > end {
            self.value(value, depth + 1, end);
            self.active.truncate(end);
        }
    }
}

/// Whether a member's name, as it is written between its quotes, has the content `token`.
pub(crate) fn name_is(name: &str, token: &str) -> bool {
    if !name.contains('\\') {
        return name == token;
    }
    let mut content = Vec::with_capacity(name.len());
    unescape(name, &mut content);
    content == token.as_bytes()
}

/// A token as an array index: digits without a leading zero (RFC 6901, section 4).
pub(crate) fn index(token: &str) -> Option<usize> {
    let canonical = token == "0" || !token.starts_with(['0', '+']);
    canonical.then(|| token.parse().ok()).flatten()
}

fn unescape_token(token: &str) -> Option<String> {
    let mut parts = token.split('~');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        text.push(match part.as_bytes().first() {
            Some(b'0') => '~',
            Some(b'1') => '/',
            _ => return None,
        });
        text.push_str(&part[1..]);
    }
    Some(text)
}

impl fmt::Display for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0
            .iter()
            .try_for_each(|token| write!(f, "/{}", token.replace('~', "~0").replace('/', "~1")))
    }
}

impl std::str::FromStr for Pointer {
    type Err = PointerError;

    fn from_str(text: &str) -> Result<Self, PointerError> {
        Self::parse(text)
    }
}

/// Why a text is no JSON Pointer. Its `Display` says what was expected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PointerError {
    text: Box<str>,
    problem: Problem,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Problem {
    NoSlash,
    Fragment,
    JsonPath,
    Tilde,
}

impl fmt::Display for PointerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { text, problem } = self;
        write!(f, "{text:?} is no JSON Pointer: ")?;
        match problem {
            Problem::NoSlash => write!(
                f,
                "it must start with `/` (such as {:?}), or be empty",
                format!("/{text}")
            ),
            Problem::Fragment => f.write_str("write it without `#`"),
            Problem::JsonPath => f.write_str("this looks like JSONPath; write `/a/b` for `$.a.b`"),
            Problem::Tilde => f.write_str("`~` must be followed by `0` (for `~`) or `1` (for `/`)"),
        }
    }
}

impl std::error::Error for PointerError {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn json(text: &str) -> Json<'_> {
        Json::parse(text.as_bytes()).unwrap()
    }

    fn found<'a>(pointer: &str, text: &'a str) -> Option<&'a str> {
        Pointer::parse(pointer)
            .unwrap()
            .find(json(text))
            .map(Json::as_str)
    }

    /// RFC 6901, section 5.
    const RFC: &str = r#"{"foo": ["bar", "baz"], "": 0, "a/b": 1, "c%d": 2, "e^f": 3, "g|h": 4, "i\\j": 5, "k\"l": 6, " ": 7, "m~n": 8}"#;

    #[test]
    fn the_examples_of_the_rfc_hold() {
        let table = [
            ("", RFC),
            ("/foo", r#"["bar", "baz"]"#),
            ("/foo/0", r#""bar""#),
            ("/", "0"),
            ("/a~1b", "1"),
            ("/c%d", "2"),
            ("/e^f", "3"),
            ("/g|h", "4"),
            ("/i\\j", "5"),
            ("/k\"l", "6"),
            ("/ ", "7"),
            ("/m~0n", "8"),
        ];
        for (pointer, value) in table {
            assert_eq!(found(pointer, RFC), Some(value), "{pointer}");
        }
    }

    #[test]
    fn finds_nothing_where_nothing_is() {
        let text = r#"{"a": [1, {"b": null}], "s": "x", "0": 5}"#;
        for pointer in [
            "/b",
            "/a/2",
            "/a/-",
            "/a/01",
            "/a/+1",
            "/a/1/b/c",
            "/s/0",
            "/a/ 1",
            "/a/99999999999999999999",
            "/a/1 ",
            "/A",
            "/a/",
            "//",
        ] {
            assert_eq!(found(pointer, text), None, "{pointer}");
        }
        assert_eq!(found("/a/1/b", text), Some("null"));
        assert_eq!(found("/0", text), Some("5"));
    }

    #[test]
    fn the_last_member_of_a_name_counts() {
        assert_eq!(found("/a", r#"{"a":1,"a":2}"#), Some("2"));
        assert_eq!(found("/a/b", r#"{"a":{"b":1},"a":{}}"#), None);
        assert_eq!(
            found("/a/b", r#"{"a":{"b":1},"\u0061":{"\u0062":3}}"#),
            Some("3")
        );
    }

    #[test]
    fn names_are_compared_by_content() {
        assert_eq!(found("/é", r#"{"\u00e9": 1}"#), Some("1"));
        assert_eq!(found("/😀", r#"{"\ud83d\ude00": 1}"#), Some("1"));
        assert_eq!(found("/~1", r#"{"\/": 1}"#), Some("1"));
        assert_eq!(found("/\u{fffd}", r#"{"\ud83d": 1}"#), None);
    }

    #[test]
    fn errors_say_what_was_expected() {
        let table = [
            (
                "items",
                r#""items" is no JSON Pointer: it must start with `/` (such as "/items"), or be empty"#,
            ),
            (
                "#/items",
                r##""#/items" is no JSON Pointer: write it without `#`"##,
            ),
            (
                "$.items",
                r#""$.items" is no JSON Pointer: this looks like JSONPath; write `/a/b` for `$.a.b`"#,
            ),
            (
                "/a~",
                r#""/a~" is no JSON Pointer: `~` must be followed by `0` (for `~`) or `1` (for `/`)"#,
            ),
            (
                "/a~2",
                r#""/a~2" is no JSON Pointer: `~` must be followed by `0` (for `~`) or `1` (for `/`)"#,
            ),
        ];
        for (text, message) in table {
            assert_eq!(Pointer::parse(text).unwrap_err().to_string(), message);
        }
    }

    fn value() -> impl Strategy<Value = serde_json::Value> {
        let name = prop::sample::select(vec!["a", "b", "0", "1", "-", "~", "/", "", "é\"\\"]);
        let leaf = prop_oneof![
            Just(serde_json::json!(null)),
            any::<i32>().prop_map(Into::into),
            Just("x".into())
        ];
        leaf.prop_recursive(4, 40, 5, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Into::into),
                prop::collection::vec((name.clone(), inner), 0..4).prop_map(|members| {
                    serde_json::Value::Object(
                        members
                            .into_iter()
                            .map(|(name, value)| (name.to_owned(), value))
                            .collect(),
                    )
                }),
            ]
        })
    }

    fn path() -> impl Strategy<Value = Pointer> {
        let token =
            prop::sample::select(vec!["a", "b", "0", "1", "-", "~", "/", "", "é\"\\", "01"]);
        prop::collection::vec(token.prop_map(str::to_owned), 0..4).prop_map(Pointer)
    }

    proptest! {
        #[test]
        fn agrees_with_serde_json(value in value(), paths in prop::collection::vec(path(), 0..6), pretty: bool) {
            let text = if pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) }.unwrap();
            let all = extract(&paths, json(&text));
            for (path, extracted) in paths.iter().zip(all) {
                let found = path.find(json(&text));
                prop_assert_eq!(found, extracted);
                let model = value.pointer(&path.to_string());
                let found = found.map(|found| serde_json::from_str::<serde_json::Value>(found.as_str()).unwrap());
                prop_assert_eq!(found.as_ref(), model);
            }
        }

        #[test]
        fn display_and_parse_are_inverse(path in path(), token in "\\PC{0,8}") {
            let mut path = path;
            path.0.push(token);
            prop_assert_eq!(&Pointer::parse(&path.to_string()).unwrap(), &path);
        }
    }
}
