//! What a record must look like before it may replace another.

use std::fmt;

/// One rule of `require`, such as `"number >= 0"` or `"string | null"`.
#[derive(Debug, Clone, PartialEq)]
pub struct Rule(String);

/// Why a text is no rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleError(String);

impl fmt::Display for RuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown type {:?}", self.0)
    }
}

impl std::error::Error for RuleError {}

impl Rule {
    /// Parses the text of a rule.
    ///
    /// # Errors
    /// [`RuleError`].
    pub fn parse(text: &str) -> Result<Self, RuleError> {
        let first = text.split(' ').next().unwrap_or_default();
        let known = [
            "string", "number", "integer", "boolean", "null", "object", "array",
        ]
        .contains(&first);
        if known {
            Ok(Self(text.to_owned()))
        } else {
            Err(RuleError(first.to_owned()))
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
