//! What a record must look like before it may replace another.

/// One rule of `require`, such as `"number >= 0"` or `"string | null"`.
#[derive(Debug, Clone, PartialEq)]
pub struct Rule;
