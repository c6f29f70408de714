//! JSON Pointer (RFC 6901).

use std::fmt;

/// A parsed JSON Pointer: reference tokens, unescaped. The empty pointer is the whole value.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Pointer(Vec<String>);

/// Why a text is no JSON Pointer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PointerError {
    /// It is neither empty nor starts with `/`.
    NoSlash,
    /// A `~` that is neither `~0` nor `~1`.
    BadEscape,
}

impl fmt::Display for PointerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoSlash => "a pointer starts with `/`",
            Self::BadEscape => "`~` is followed by neither 0 nor 1",
        })
    }
}

impl std::error::Error for PointerError {}

impl Pointer {
    /// Parses the text of a pointer.
    ///
    /// # Errors
    /// [`PointerError`].
    pub fn parse(text: &str) -> Result<Self, PointerError> {
        let mut tokens = text.split('/');
        if tokens.next() != Some("") {
            return Err(PointerError::NoSlash);
        }
        let tokens = tokens.map(|token| {
            let plain = token.replace("~0", "").replace("~1", "");
            if plain.contains('~') {
                Err(PointerError::BadEscape)
            } else {
                Ok(token.replace("~1", "/").replace("~0", "~"))
            }
        });
        tokens.collect::<Result<_, _>>().map(Self)
    }
}

impl fmt::Display for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0
            .iter()
            .try_for_each(|token| write!(f, "/{}", token.replace('~', "~0").replace('/', "~1")))
    }
}
