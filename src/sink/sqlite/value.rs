//! How keys, columns, names and instants are written in SQL.

use rusqlite::types::{ToSqlOutput, Value, ValueRef};

use crate::clock::Timestamp;
use crate::config::Source;
use crate::json::Json;
use crate::record::RecordKey;

/// RFC 3339 in UTC with milliseconds where there are any.
#[must_use]
pub fn rfc3339(instant: Timestamp) -> String {
    let whole = instant.subsec_nanosecond() == 0;
    if whole {
        format!("{instant:.0}")
    } else {
        format!("{instant:.3}")
    }
}

/// An identifier as SQL reads it literally.
pub(super) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A text as SQL reads it literally.
pub(super) fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

pub(super) fn sql_generation(generation: u64) -> i64 {
    i64::try_from(generation).unwrap_or(i64::MAX)
}

/// A key as its column holds it: text as text, a whole number as integer (as a blob of digits where SQLite's 64 bits
/// are too few, so that it stays apart from the text of the same digits), a composite key as its JSON array.
///
/// By the key's own form, not by the config's: rows that were written under another `key` have to be found to go.
pub(super) fn sql_key(key: &RecordKey) -> rusqlite::Result<ToSqlOutput<'_>> {
    let text = key.as_str();
    if text.starts_with('[') {
        return Ok(ToSqlOutput::Borrowed(ValueRef::Text(text.as_bytes())));
    }
    if text.starts_with('"') {
        let inner: String = serde_json::from_str(text)
            .map_err(|e| rusqlite::Error::ToSqlConversionFailure(Box::new(e)))?;
        return Ok(ToSqlOutput::Owned(Value::Text(inner)));
    }
    Ok(match text.parse::<i64>() {
        Ok(number) => ToSqlOutput::Owned(Value::Integer(number)),
        Err(_) => ToSqlOutput::Owned(Value::Blob(text.as_bytes().to_vec())),
    })
}

pub(super) fn column_values(source: &Source, body: &str) -> Vec<Value> {
    let json = Json::parse(body.as_bytes()).ok();
    source
        .columns
        .iter()
        .map(|(_, at)| sql_value(json.and_then(|json| at.find(json))))
        .collect()
}

/// A JSON value as a plain column: text, number and null as SQLite has them, `true` as 1, anything else as JSON text.
pub(super) fn sql_value(json: Option<Json<'_>>) -> Value {
    let Some(json) = json else { return Value::Null };
    let raw = json.as_str();
    match raw.as_bytes().first() {
        Some(b'"') => {
            serde_json::from_str(raw).map_or_else(|_| Value::Text(raw.to_owned()), Value::Text)
        }
        Some(b't') => Value::Integer(1),
        Some(b'f') => Value::Integer(0),
        Some(b'n') | None => Value::Null,
        Some(b'-' | b'0'..=b'9') => raw
            .parse::<i64>()
            .map(Value::Integer)
            .or_else(|_| raw.parse::<f64>().map(Value::Real))
            .unwrap_or_else(|_| Value::Text(raw.to_owned())),
        Some(_) => Value::Text(raw.to_owned()),
    }
}
