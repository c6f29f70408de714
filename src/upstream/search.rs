//! A search by POST: parameters whose names are JSON Pointers go into its body. Pure.
//!
//! The request is told by its URL all the same: what goes into the body stands in the URL's query until it is sent.

use serde_json::Value;
use url::Url;

use crate::pointer::Pointer;

/// What is sent: where to, and which body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Search {
    /// Without the parameters that went into the body.
    pub url: Url,
    /// JSON.
    pub body: String,
}

/// Puts the parameters of `url` that are JSON Pointers into `template`. Where a number stands there, a number goes; text
/// everywhere else. A place that is not there yet is made.
#[must_use]
pub fn fill(url: &Url, template: &Value) -> Search {
    let mut body = template.clone();
    let mut plain = url.clone();
    let stays = |pair: &&str| {
        let name = url::form_urlencoded::parse(pair.as_bytes()).next();
        !name.is_some_and(|(name, _)| name.starts_with('/'))
    };
    let rest: Vec<&str> = url
        .query()
        .unwrap_or_default()
        .split('&')
        .filter(|pair| !pair.is_empty())
        .filter(stays)
        .collect();
    plain.set_query((!rest.is_empty()).then(|| rest.join("&")).as_deref());
    for (name, value) in url.query_pairs().filter(|(name, _)| name.starts_with('/')) {
        if let Ok(pointer) = Pointer::parse(&name) {
            put(&mut body, &pointer, &value);
        }
    }
    Search {
        url: plain,
        body: body.to_string(),
    }
}

fn put(body: &mut Value, pointer: &Pointer, text: &str) {
    let mut place = body;
    for token in pointer.tokens() {
        let is_index = matches!(place, Value::Array(_));
        if is_index {
            let Some(member) = token.parse().ok().and_then(|at: usize| place.get_mut(at)) else {
                return;
            };
            place = member;
            continue;
        }
        if !place.is_object() {
            *place = Value::Object(serde_json::Map::new());
        }
        let Value::Object(members) = place else {
            return;
        };
        place = members.entry(token).or_insert(Value::Null);
    }
    let number = place.is_number().then(|| serde_json::from_str(text).ok());
    *place = match number.flatten() {
        Some(Value::Number(number)) => Value::Number(number),
        _ => Value::String(text.to_owned()),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointers_go_into_the_body_and_the_rest_stays_in_the_query() {
        let table = [
            ("?a=1", "{}", "?a=1", "{}"),
            (
                "?%2Fpage=2&a=1",
                "{\"page\":1,\"q\":\"x\"}",
                "?a=1",
                "{\"page\":2,\"q\":\"x\"}",
            ),
            ("?%2Fpage=2", "{}", "", "{\"page\":\"2\"}"),
            (
                "?%2Ffilter%2Fsince=2026-01-01T00%3A00%3A00Z",
                "{\"filter\":{\"kind\":\"part\"}}",
                "",
                "{\"filter\":{\"kind\":\"part\",\"since\":\"2026-01-01T00:00:00Z\"}}",
            ),
            (
                "?%2Fin%2F0%2Ft=5",
                "{\"in\":[{\"t\":0}]}",
                "",
                "{\"in\":[{\"t\":5}]}",
            ),
            ("?%2Fin%2F7=5", "{\"in\":[1]}", "", "{\"in\":[1]}"),
            ("?%2Fn=abc", "{\"n\":1}", "", "{\"n\":\"abc\"}"),
            ("?%2Fa~1b=x", "{\"a/b\":\"\"}", "", "{\"a/b\":\"x\"}"),
        ];
        for (query, template, left, body) in table {
            let url = Url::parse(&format!("https://a.example/search{query}")).unwrap();
            let search = fill(&url, &serde_json::from_str(template).unwrap());
            assert_eq!(
                search.url.as_str(),
                format!("https://a.example/search{left}"),
                "{query}"
            );
            let wanted: Value = serde_json::from_str(body).unwrap();
            assert_eq!(
                serde_json::from_str::<Value>(&search.body).unwrap(),
                wanted,
                "{query}"
            );
        }
    }
}
