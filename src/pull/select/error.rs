//! What can be wrong with a body.

use std::fmt;
use std::io;

use crate::json::{BadJson, Kind};
use crate::pointer::Pointer;

/// Why no more records can be read out of a body.
#[derive(Debug)]
pub enum SelectError {
    /// The body could not be read; as the reader said it.
    Io(io::Error),
    /// The body is empty, or nothing but white space.
    Empty,
    /// The body starts with `<`: HTML or XML, not JSON.
    Markup,
    /// The body ends in the middle.
    Truncated {
        /// How many bytes there were.
        length: u64,
    },
    /// The envelope is not JSON.
    Syntax {
        /// Where, counted in bytes of the body.
        offset: u64,
        /// What should be there.
        expected: &'static str,
        /// What is.
        found: u8,
    },
    /// A value in the envelope is not JSON.
    BadValue {
        /// Where the value starts, counted in bytes of the body.
        offset: u64,
        /// What is wrong with it.
        bad: BadJson,
    },
    /// The records are not where the config says.
    NoRecords {
        /// Where they should be.
        pointer: Pointer,
        /// The last value on the way there.
        reached: Pointer,
        /// What that value is.
        found: Kind,
        /// If it is an object, the first few of its members.
        members: Vec<String>,
    },
    /// What is where the records should be is no array.
    NotAnArray {
        /// Where.
        pointer: Pointer,
        /// What it is.
        found: Kind,
    },
    /// The body has the records twice.
    Duplicate {
        /// Where.
        pointer: Pointer,
    },
    /// A record is too long.
    RecordTooLong {
        /// Its number, from 1 on.
        number: u64,
        /// Bytes that it may have.
        limit: usize,
    },
    /// A value in the envelope is too long.
    ValueTooLong {
        /// Where it starts, counted in bytes of the body.
        offset: u64,
        /// Bytes that it may have.
        limit: usize,
    },
    /// It was asked for more after an error.
    Spent,
}

impl fmt::Display for SelectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::Empty => f.write_str("the body is empty"),
            Self::Markup => f.write_str("the body is not JSON: it starts with `<`, as HTML does"),
            Self::Truncated { length } => write!(f, "the body is cut off after {length} bytes"),
            Self::Syntax {
                offset,
                expected,
                found,
            } => {
                write!(
                    f,
                    "the body is not JSON: expected {expected} at byte {offset}, found "
                )?;
                match found {
                    b' '..=b'~' => write!(f, "`{}`", char::from(*found)),
                    _ => write!(f, "byte {found:#04x}"),
                }
            }
            Self::BadValue { offset, bad } => {
                let at = offset.saturating_add(u64::try_from(bad.offset).unwrap_or(u64::MAX));
                write!(f, "the body is not JSON: {} (at byte {at})", bad.reason)
            }
            Self::NoRecords {
                pointer,
                reached,
                found,
                members,
            } => no_records(f, pointer, reached, *found, members),
            Self::NotAnArray { pointer, found } => {
                write!(
                    f,
                    "expected an array of records at {}, found {found}",
                    place(pointer)
                )?;
                if *found == Kind::Object {
                    f.write_str(" (records as members of an object are not supported)")?;
                }
                Ok(())
            }
            Self::Duplicate { pointer } => write!(f, "the body has {} twice", place(pointer)),
            Self::RecordTooLong { number, limit } => {
                write!(f, "record {number} is longer than {limit} bytes")
            }
            Self::ValueTooLong { offset, limit } => {
                write!(f, "the value at byte {offset} is longer than {limit} bytes")
            }
            Self::Spent => f.write_str("the body could not be read to its end"),
        }
    }
}

fn no_records(
    f: &mut fmt::Formatter<'_>,
    pointer: &Pointer,
    reached: &Pointer,
    found: Kind,
    members: &[String],
) -> fmt::Result {
    write!(
        f,
        "no records at {}: {} is {found}",
        place(pointer),
        place(reached)
    )?;
    match found {
        Kind::Object if members.is_empty() => f.write_str(" without members"),
        Kind::Object => write!(f, " with the members {members:?}"),
        _ => Ok(()),
    }
}

/// A pointer as the words of a message.
fn place(pointer: &Pointer) -> String {
    if pointer.is_root() {
        "the top".to_owned()
    } else {
        pointer.to_string()
    }
}

impl std::error::Error for SelectError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(error) => Some(error),
            Self::BadValue { bad, .. } => Some(bad),
            _ => None,
        }
    }
}

impl From<io::Error> for SelectError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}
