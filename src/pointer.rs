//! JSON Pointer (RFC 6901).

/// A parsed JSON Pointer: reference tokens, unescaped. The empty pointer is the whole value.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Pointer(Vec<String>);
