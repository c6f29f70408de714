//! A JSON Schema that records are held against, where gleaner was built with the feature `schema`.

use std::fmt;
use std::path::{Path, PathBuf};

/// The largest schema file in bytes.
pub const MAX_LEN: u64 = 1 << 20;

/// A schema, read and understood.
#[derive(Clone)]
pub struct Schema {
    path: PathBuf,
    digest: [u8; 32],
    #[cfg(feature = "schema")]
    validator: std::sync::Arc<jsonschema::Validator>,
}

/// Why a file is no schema that can be used.
#[derive(Debug)]
pub enum SchemaError {
    /// This gleaner was built without.
    NotBuiltIn,
    /// It cannot be read.
    Unreadable(std::io::Error),
    /// It is larger than [`MAX_LEN`].
    TooLong,
    /// It is no JSON, or no JSON Schema, or refers to another document: none is fetched.
    Wrong(String),
}

impl fmt::Display for SchemaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotBuiltIn => f.write_str("this gleaner was built without JSON Schema"),
            Self::Unreadable(error) => write!(f, "can't be read: {error}"),
            Self::TooLong => write!(f, "is longer than {MAX_LEN} bytes: is this the right file?"),
            Self::Wrong(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for SchemaError {}

impl Schema {
    /// Reads a schema of any draft that the file names (2020-12 without `$schema`). References lead within the file only.
    ///
    /// # Errors
    /// [`SchemaError`]
    pub fn read(path: &Path) -> Result<Self, SchemaError> {
        if cfg!(not(feature = "schema")) {
            return Err(SchemaError::NotBuiltIn);
        }
        let length = std::fs::metadata(path)
            .map_err(SchemaError::Unreadable)?
            .len();
        if length > MAX_LEN {
            return Err(SchemaError::TooLong);
        }
        let text = std::fs::read(path).map_err(SchemaError::Unreadable)?;
        Self::of(path, &text)
    }

    #[cfg(feature = "schema")]
    fn of(path: &Path, text: &[u8]) -> Result<Self, SchemaError> {
        let wrong = |what: &str, error: &dyn fmt::Display| {
            SchemaError::Wrong(format!("{what}: {}", shortened(&error.to_string())))
        };
        let schema: serde_json::Value =
            serde_json::from_slice(text).map_err(|error| wrong("is no JSON", &error))?;
        let validator = jsonschema::options()
            .offline()
            // Patterns run in linear time, whatever an upstream sends.
            .with_pattern_options(jsonschema::PatternOptions::regex())
            .build(&schema)
            .map_err(|error| wrong("is no JSON Schema that can be used", &error))?;
        Ok(Self {
            path: path.to_owned(),
            digest: <sha2::Sha256 as sha2::Digest>::digest(text).into(),
            validator: std::sync::Arc::new(validator),
        })
    }

    #[cfg(not(feature = "schema"))]
    fn of(_path: &Path, _text: &[u8]) -> Result<Self, SchemaError> {
        Err(SchemaError::NotBuiltIn)
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// SHA-256 of what the file says, in hexadecimal digits: another text is another contract.
    #[must_use]
    pub fn digest(&self) -> String {
        self.digest
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect()
    }

    /// Holds a record against it.
    ///
    /// # Errors
    /// The first thing that is wrong: where, by which keyword, and what is there; no longer than a line.
    #[cfg(feature = "schema")]
    pub fn check(&self, record: crate::json::Json<'_>) -> Result<(), String> {
        let value: serde_json::Value = serde_json::from_str(record.as_str())
            .map_err(|error| format!("cannot be held against the schema: {error}"))?;
        let Err(error) = self.validator.validate(&value) else {
            return Ok(());
        };
        let place = error.instance_path().as_str();
        let found = crate::pointer::Pointer::parse(place)
            .ok()
            .and_then(|place| place.find(record));
        let found = found.map_or_else(String::new, |found| {
            format!(", got {}", crate::json::time::excerpt(found.as_str()))
        });
        let place = if place.is_empty() {
            "the record"
        } else {
            place
        };
        Err(format!(
            "{}: against \"{}\" of the schema: {}{found}",
            shortened(place),
            error.kind().keyword(),
            shortened(&error.masked_with("it").to_string())
        ))
    }

    /// Without the feature there is no schema that could be asked.
    ///
    /// # Errors
    /// None.
    #[cfg(not(feature = "schema"))]
    pub fn check(&self, _record: crate::json::Json<'_>) -> Result<(), String> {
        Ok(())
    }
}

impl PartialEq for Schema {
    fn eq(&self, other: &Self) -> bool {
        self.path == other.path && self.digest == other.digest
    }
}

impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Schema")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

/// The start of a text that may be long.
#[cfg(feature = "schema")]
fn shortened(text: &str) -> String {
    const MOST: usize = 160;
    if text.chars().count() <= MOST {
        return text.to_owned();
    }
    text.chars().take(MOST).chain(['…']).collect()
}

#[cfg(all(test, feature = "schema"))]
mod tests {
    use super::*;
    use crate::json::Json;

    fn schema(text: &str) -> Result<Schema, SchemaError> {
        Schema::of(Path::new("s.json"), text.as_bytes())
    }

    #[test]
    fn a_record_that_does_not_fit_is_told_where_and_why() {
        let schema = schema(
            r##"{"type":"object","required":["id"],"properties":{
                "mass_g":{"type":"number","minimum":0},"unit":{"enum":["g","kg"]},
                "tags":{"type":"array","items":{"$ref":"#/$defs/tag"}}},
                "$defs":{"tag":{"type":"string","pattern":"^[a-z]+$"}}}"##,
        )
        .unwrap();
        let table = [
            (r#"{"id":1}"#, None),
            (r#"{"id":1,"mass_g":0,"unit":"g","tags":["a","bc"]}"#, None),
            (
                r#"{}"#,
                Some(
                    "the record: against \"required\" of the schema: \"id\" is a required property, got {}",
                ),
            ),
            (
                r#"{"id":1,"mass_g":-3}"#,
                Some(
                    "/mass_g: against \"minimum\" of the schema: it is less than the minimum of 0, got -3",
                ),
            ),
            (
                r#"{"id":1,"mass_g":"3"}"#,
                Some(
                    "/mass_g: against \"type\" of the schema: it is not of type \"number\", got \"3\"",
                ),
            ),
            (
                r#"{"id":1,"tags":["a","B"]}"#,
                Some(
                    "/tags/1: against \"pattern\" of the schema: it does not match \"^[a-z]+$\", got \"B\"",
                ),
            ),
            (
                "[]",
                Some(
                    "the record: against \"type\" of the schema: it is not of type \"object\", got []",
                ),
            ),
        ];
        for (record, expected) in table {
            let said = schema.check(Json::parse(record.as_bytes()).unwrap());
            assert_eq!(said.err().as_deref(), expected, "{record}");
        }
        let long = format!(r#"{{"id":1,"unit":"{}"}}"#, "x".repeat(1_000_000));
        let said = schema
            .check(Json::parse(long.as_bytes()).unwrap())
            .unwrap_err();
        assert!(said.len() < 600, "{said}");
    }

    #[test]
    fn what_is_no_schema_is_said_and_nothing_is_fetched() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("other.json"), "{}").unwrap();
        let file = format!(
            "{{\"$ref\":\"file://{}/other.json\"}}",
            dir.path().display()
        );
        for (text, said) in [
            ("{", "is no JSON: "),
            (r#"{"type":7}"#, "is no JSON Schema that can be used: "),
            (r#"{"pattern":"("}"#, "is no JSON Schema that can be used: "),
            (
                r#"{"$ref":"https://h.example/s.json"}"#,
                "is no JSON Schema that can be used: ",
            ),
            (&file, "is no JSON Schema that can be used: "),
            (
                r##"{"$ref":"#/$defs/no"}"##,
                "is no JSON Schema that can be used: ",
            ),
        ] {
            let error = schema(text).unwrap_err().to_string();
            assert!(
                error.starts_with(said) && error.len() < 700,
                "{text}: {error}"
            );
        }
    }
}
