//! What a record must look like before it may replace another.

pub mod schema;

use std::cmp::Ordering;
use std::fmt;

use crate::json::number::Decimal;
use crate::json::time::{excerpt, is_rfc3339};
use crate::json::{Json, Kind};

/// One rule of `require`, such as `"number >= 0"` or `"string | null"`: one or more forms, of which a value must have
/// one.
#[derive(Debug, Clone, PartialEq)]
pub struct Rule(Vec<Form>);

/// One form that a value may have.
#[derive(Debug, Clone, PartialEq)]
enum Form {
    Any,
    Absent,
    Kind(Kind),
    Rfc3339,
    Number { whole: bool, limits: Vec<Limit> },
}

/// A bound on a number, kept as the text that it was written as.
#[derive(Debug, Clone, PartialEq)]
struct Limit {
    compare: Compare,
    number: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Compare {
    AtLeast,
    MoreThan,
    AtMost,
    LessThan,
}

impl Rule {
    /// Parses a rule: forms separated by `|`. A form is `string`, `number`, `integer` (`1.0` is one), `boolean`,
    /// `object`, `array`, `null`, `rfc3339` (a string), `any` (whatever is there) or `absent`. After `number` and
    /// `integer` there may be bounds: `>= 0`, `> 0`, `<= 100`, `< 100`, or two of them (`>= 0 <= 100`).
    ///
    /// # Errors
    ///
    /// [`RuleError`] says what was expected.
    pub fn parse(text: &str) -> Result<Self, RuleError> {
        text.split('|')
            .map(|form| parse_form(form.trim()))
            .collect::<Result<_, _>>()
            .map(Self)
            .map_err(|problem| RuleError {
                text: text.into(),
                problem,
            })
    }

    /// Checks a value; `None` is a value that is not there, which breaks every rule without `absent`.
    ///
    /// # Errors
    ///
    /// [`Breach`] says what was expected and what is there.
    pub fn check(&self, value: Option<Json<'_>>) -> Result<(), Breach> {
        if self.0.iter().any(|form| form.admits(value)) {
            return Ok(());
        }
        Err(Breach {
            rule: self.to_string(),
            found: value.map(|value| excerpt(value.as_str())),
        })
    }
}

fn parse_form(text: &str) -> Result<Form, Problem> {
    let end = text
        .find(|char: char| !char.is_ascii_alphanumeric())
        .unwrap_or(text.len());
    let (word, bounds) = text.split_at(end);
    let form = match word {
        "any" => Form::Any,
        "absent" => Form::Absent,
        "rfc3339" => Form::Rfc3339,
        "string" => Form::Kind(Kind::String),
        "boolean" => Form::Kind(Kind::Boolean),
        "object" => Form::Kind(Kind::Object),
        "array" => Form::Kind(Kind::Array),
        "null" => Form::Kind(Kind::Null),
        "number" | "integer" => {
            return Ok(Form::Number {
                whole: word == "integer",
                limits: parse_limits(bounds)?,
            });
        }
        "" => return Err(Problem::Empty),
        _ => return Err(Problem::Unknown(word.into())),
    };
    match bounds.trim() {
        "" => Ok(form),
        bounds if bounds.starts_with(['<', '>', '=']) => Err(Problem::NotComparable(word.into())),
        rest => Err(Problem::Rest(rest.into())),
    }
}

fn parse_limits(text: &str) -> Result<Vec<Limit>, Problem> {
    let mut limits = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let (compare, after) =
            Compare::parse(rest).ok_or_else(|| Problem::Rest(rest.trim_end().into()))?;
        let after = after.trim_start();
        let end = after
            .find([' ', '\t', '<', '>', '='])
            .unwrap_or(after.len());
        let (number, after) = after.split_at(end);
        if Decimal::parse(number).is_none() {
            return Err(Problem::NoNumber(number.into()));
        }
        limits.push(Limit {
            compare,
            number: number.to_owned(),
        });
        rest = after.trim_start();
    }
    Ok(limits)
}

impl Compare {
    const SIGNS: [(&'static str, Self); 4] = [
        (">=", Self::AtLeast),
        ("<=", Self::AtMost),
        (">", Self::MoreThan),
        ("<", Self::LessThan),
    ];

    fn parse(text: &str) -> Option<(Self, &str)> {
        Self::SIGNS
            .iter()
            .find_map(|(sign, compare)| text.strip_prefix(sign).map(|rest| (*compare, rest)))
    }

    fn sign(self) -> &'static str {
        match self {
            Self::AtLeast => ">=",
            Self::AtMost => "<=",
            Self::MoreThan => ">",
            Self::LessThan => "<",
        }
    }

    fn admits(self, order: Ordering) -> bool {
        match self {
            Self::AtLeast => order.is_ge(),
            Self::AtMost => order.is_le(),
            Self::MoreThan => order.is_gt(),
            Self::LessThan => order.is_lt(),
        }
    }
}

impl Form {
    fn admits(&self, value: Option<Json<'_>>) -> bool {
        let Some(value) = value else {
            return *self == Self::Absent;
        };
        match self {
            Self::Any => true,
            Self::Absent => false,
            Self::Kind(kind) => value.kind() == *kind,
            Self::Rfc3339 => value.string().is_some_and(|text| is_rfc3339(&text)),
            Self::Number { whole, limits } => {
                Decimal::parse(value.as_str()).is_some_and(|number| {
                    (!whole || number.is_integer())
                        && limits.iter().all(|limit| limit.admits(&number))
                })
            }
        }
    }
}

impl Limit {
    fn admits(&self, number: &Decimal<'_>) -> bool {
        Decimal::parse(&self.number).is_some_and(|limit| self.compare.admits(number.cmp(&limit)))
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (nth, form) in self.0.iter().enumerate() {
            if nth > 0 {
                f.write_str(" | ")?;
            }
            form.fmt(f)?;
        }
        Ok(())
    }
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Any => "any",
            Self::Absent => "absent",
            Self::Rfc3339 => "rfc3339",
            Self::Kind(Kind::String) => "string",
            Self::Kind(Kind::Boolean) => "boolean",
            Self::Kind(Kind::Object) => "object",
            Self::Kind(Kind::Array) => "array",
            Self::Kind(Kind::Null) => "null",
            Self::Kind(Kind::Number) | Self::Number { whole: false, .. } => "number",
            Self::Number { whole: true, .. } => "integer",
        })?;
        if let Self::Number { limits, .. } = self {
            for limit in limits {
                write!(f, " {} {}", limit.compare.sign(), limit.number)?;
            }
        }
        Ok(())
    }
}

/// A value that breaks its rule. Its `Display` reads like `expected "number >= 0", got -3`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Breach {
    rule: String,
    found: Option<Box<str>>,
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let found = self.found.as_deref().unwrap_or("nothing");
        write!(f, "expected \"{}\", got {found}", self.rule)
    }
}

impl std::error::Error for Breach {}

/// Why a text is no rule. Its `Display` says what was expected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleError {
    text: Box<str>,
    problem: Problem,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Problem {
    Empty,
    Unknown(Box<str>),
    NotComparable(Box<str>),
    NoNumber(Box<str>),
    Rest(Box<str>),
}

const FORMS: &str = "string, number, integer, boolean, object, array, null, rfc3339, any or absent";

impl fmt::Display for RuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rule {:?}: ", self.text)?;
        match &self.problem {
            Problem::Empty => write!(f, "expected {FORMS}"),
            Problem::Unknown(word) => write!(f, "{word:?} is none of {FORMS}"),
            Problem::NotComparable(word) => {
                write!(f, "only number and integer take a bound, not {word}")
            }
            Problem::NoNumber(text) => write!(
                f,
                "expected a number such as 0 or 1.5 as the bound, found {text:?}"
            ),
            Problem::Rest(rest) => {
                write!(f, "expected `|`, `>=`, `>`, `<=` or `<`, found {rest:?}")
            }
        }
    }
}

impl std::error::Error for RuleError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(rule: &str, value: &str) -> Result<(), String> {
        let value = (!value.is_empty()).then(|| Json::parse(value.as_bytes()).unwrap());
        Rule::parse(rule)
            .unwrap()
            .check(value)
            .map_err(|breach| breach.to_string())
    }

    #[test]
    fn each_kind_admits_itself_alone() {
        let values = [
            "null",
            "true",
            "false",
            "0",
            "-1.5",
            "1.0",
            "\"\"",
            "\"2026-11-30T18:00:00Z\"",
            "[]",
            "{}",
            "",
        ];
        let table: [(&str, &[&str]); 14] = [
            ("null", &["null"]),
            ("boolean", &["true", "false"]),
            ("number", &["0", "-1.5", "1.0"]),
            ("integer", &["0", "1.0"]),
            ("string", &["\"\"", "\"2026-11-30T18:00:00Z\""]),
            ("rfc3339", &["\"2026-11-30T18:00:00Z\""]),
            ("array", &["[]"]),
            ("object", &["{}"]),
            ("absent", &[""]),
            ("any", &values[..10]),
            ("any | absent", &values),
            ("null|absent", &["null", ""]),
            (" boolean  |  integer >= 0 ", &["true", "false", "0", "1.0"]),
            ("number < 0 | number > 0", &["-1.5", "1.0"]),
        ];
        for (rule, admitted) in table {
            for value in values {
                assert_eq!(
                    check(rule, value).is_ok(),
                    admitted.contains(&value),
                    "{rule}: {value}"
                );
            }
        }
    }

    #[test]
    fn bounds_are_exact() {
        let table = [
            ("number >= 0", "0", true),
            ("number >= 0", "-0", true),
            ("number > 0", "0.0", false),
            ("number > 0", "1e-400", true),
            ("number >= 0", "-1e-400", false),
            ("number <= 0.1", "0.10000000000000001", false),
            ("number <= 0.1", "0.1", true),
            ("number < 9007199254740993", "9007199254740992", true),
            ("number < 9007199254740993", "9007199254740993", false),
            ("number >= 0 <= 100", "100", true),
            ("number >= 0 <= 100", "100.5", false),
            ("number>=0<=100", "1e2", true),
            ("integer > -5 < 5", "-4", true),
            ("integer > -5 < 5", "-5", false),
            ("number <= 1e400", "1e401", false),
        ];
        for (rule, value, good) in table {
            assert_eq!(check(rule, value).is_ok(), good, "{rule}: {value}");
        }
    }

    #[test]
    fn a_breach_says_what_was_expected_and_what_is_there() {
        let table = [
            ("number >= 0", "-3", r#"expected "number >= 0", got -3"#),
            (
                "string|null",
                "",
                r#"expected "string | null", got nothing"#,
            ),
            ("integer>0", "\"7\"", r#"expected "integer > 0", got "7""#),
        ];
        for (rule, value, message) in table {
            assert_eq!(check(rule, value), Err(message.to_owned()));
        }
        let long = format!("\"{}\"", "x".repeat(1000));
        assert!(check("null", &long).unwrap_err().len() < 120);
    }

    #[test]
    fn errors_say_what_was_expected() {
        let table = [
            (
                "",
                "expected string, number, integer, boolean, object, array, null, rfc3339, any or absent",
            ),
            (
                "string |",
                "expected string, number, integer, boolean, object, array, null, rfc3339, any or absent",
            ),
            (
                "text",
                "\"text\" is none of string, number, integer, boolean, object, array, null, rfc3339, any or absent",
            ),
            (
                "Number",
                "\"Number\" is none of string, number, integer, boolean, object, array, null, rfc3339, any or absent",
            ),
            (
                "string <= 40",
                "only number and integer take a bound, not string",
            ),
            (
                "number >=",
                "expected a number such as 0 or 1.5 as the bound, found \"\"",
            ),
            (
                "number >= x",
                "expected a number such as 0 or 1.5 as the bound, found \"x\"",
            ),
            (
                "number >= .5",
                "expected a number such as 0 or 1.5 as the bound, found \".5\"",
            ),
            (
                "number == 5",
                "expected `|`, `>=`, `>`, `<=` or `<`, found \"== 5\"",
            ),
            (
                "number => 5",
                "expected `|`, `>=`, `>`, `<=` or `<`, found \"=> 5\"",
            ),
            (
                "number 5",
                "expected `|`, `>=`, `>`, `<=` or `<`, found \"5\"",
            ),
            (
                "string or null",
                "expected `|`, `>=`, `>`, `<=` or `<`, found \"or null\"",
            ),
        ];
        for (rule, message) in table {
            let error = Rule::parse(rule).unwrap_err().to_string();
            assert_eq!(error, format!("rule {rule:?}: {message}"));
        }
    }

    #[test]
    fn display_and_parse_are_inverse() {
        for rule in [
            "number >= 0 <= 1e3",
            "string | null | absent",
            "integer > -5 | boolean | rfc3339",
            "any",
        ] {
            assert_eq!(Rule::parse(rule).unwrap().to_string(), rule);
        }
    }
}
