//! What makes stored digests and memos meaningless when it changes.

use sha2::{Digest as _, Sha256};

use super::{Cursor, Deletes, Document, Format, Ignore, OnBad, Pull, Source, Updated, Upstream};

/// The first 8 bytes of SHA-256 over everything in the config that gives meaning to what the store keeps of a source:
/// where it is and whose view (`url`, `scope`), what a record is (`format`, `records`, `key`, `ignore`, `deleted`,
/// `updated`, `schema_version`) and which are taken (`require`, `schema` by its text, `on_bad_record`: a page whose bad record was skipped must
/// be read again when the contract is mended), how a listing continues (`pages`), and what is delivered (`columns`, `deletes`). Times,
/// lateness, limits, credentials and the order of `ignore` and `columns` make no difference.
#[must_use]
pub fn fingerprint(source: &Source, upstream: &Upstream) -> [u8; 8] {
    let mut ignored: Vec<String> = source.ignore.iter().map(ignore).collect();
    ignored.sort_unstable();
    let mut columns: Vec<String> = source
        .columns
        .iter()
        .map(|(name, place)| format!("{name}={place}"))
        .collect();
    columns.sort_unstable();

    let mut hash = Fields(Sha256::new_with_prefix(b"gleaner source 1"));
    hash.field("url", [source.url.as_str()]);
    hash.field("scope", [upstream.scope.as_str()]);
    if let Some(search) = &source.search {
        hash.field("search", [search.to_string()]);
    }
    hash.field("format", [format(source.format)]);
    hash.field("records", [source.records.to_string()]);
    hash.field("key", source.key.iter().map(ToString::to_string));
    hash.field("ignore", ignored);
    let equals = |value: &serde_json::Value| value.to_string();
    let deleted = source.deleted.iter().flat_map(|deleted| {
        [deleted.pointer.to_string()]
            .into_iter()
            .chain(deleted.equals.as_ref().map(equals))
    });
    hash.field("deleted", deleted);
    hash.field("updated", source.updated.iter().flat_map(updated));
    let rules = source.require.iter();
    hash.field(
        "require",
        rules.map(|(place, rule)| format!("{place}={rule}")),
    );
    if let Some(schema) = &source.schema {
        hash.field("schema", [schema.digest()]);
    }
    hash.field("on_bad_record", [on_bad(source.on_bad_record)]);
    hash.field("schema_version", [source.schema_version.to_string()]);
    hash.field("pages", [super::print::pages(&source.pages)]);
    hash.field("columns", columns);
    hash.field("deletes", [deletes(source.deletes)]);
    // What a watermark or a cursor means. Lateness, steps and how far back the first pass looked change no digest.
    match &source.pull {
        Pull::Snapshot => {}
        Pull::Window(window) => hash.field("pull", ["window", &window.since.param.name]),
        Pull::Cursor(Cursor { from, param, .. }) => hash.field(
            "pull",
            [
                format!("cursor {from:?}"),
                param.name.clone(),
                param.template.clone(),
            ],
        ),
        Pull::None => hash.field("pull", ["none"]),
    }

    let mut first = [0; 8];
    first.copy_from_slice(&hash.0.finalize()[..8]);
    first
}

/// The first 8 bytes of SHA-256 over the scope and over what a record is told by: rows that were pulled under another one
/// are another dataset's, and go with the first complete listing of this one.
#[must_use]
pub fn scope_fingerprint(source: &Source, upstream: &Upstream) -> [u8; 8] {
    let mut hash = Fields(Sha256::new_with_prefix(b"gleaner scope 1"));
    hash.field("scope", [upstream.scope.as_str()]);
    hash.field("key", source.key.iter().map(ToString::to_string));
    let mut first = [0; 8];
    first.copy_from_slice(&hash.0.finalize()[..8]);
    first
}

/// The first 8 bytes of SHA-256 over where a document is and whose view of it is kept (`url`, `scope`): what is held of another
/// one vouches for nothing. Which file it is kept as, and what it is checked against, make no difference.
#[must_use]
pub fn document_fingerprint(document: &Document, upstream: &Upstream) -> [u8; 8] {
    let mut hash = Fields(Sha256::new_with_prefix(b"gleaner document 1"));
    hash.field("url", [document.url.as_str()]);
    hash.field("scope", [upstream.scope.as_str()]);
    let mut first = [0; 8];
    first.copy_from_slice(&hash.0.finalize()[..8]);
    first
}

/// Hashes names and values with their lengths, so that no two configs read the same.
struct Fields(Sha256);

impl Fields {
    fn field<T: AsRef<str>>(&mut self, name: &str, values: impl IntoIterator<Item = T>) {
        let values: Vec<T> = values.into_iter().collect();
        self.part(name);
        self.0.update((values.len() as u64).to_le_bytes());
        values.iter().for_each(|value| self.part(value.as_ref()));
    }

    fn part(&mut self, text: &str) {
        self.0.update((text.len() as u64).to_le_bytes());
        self.0.update(text.as_bytes());
    }
}

/// Pointers start with a slash, names never do.
fn ignore(ignore: &Ignore) -> String {
    match ignore {
        Ignore::At(place) => place.to_string(),
        Ignore::Anywhere(name) => name.clone(),
    }
}

fn updated(updated: &Updated) -> [String; 2] {
    [
        updated.field.to_string(),
        super::print::time_format_name(&updated.format),
    ]
}

fn format(format: Format) -> &'static str {
    match format {
        Format::Json => "json",
        Format::Ndjson => "ndjson",
    }
}

fn on_bad(on_bad: OnBad) -> &'static str {
    match on_bad {
        OnBad::Fail => "fail",
        OnBad::Skip => "skip",
    }
}

fn deletes(deletes: Deletes) -> &'static str {
    match deletes {
        Deletes::Remove => "remove",
        Deletes::Mark => "mark",
    }
}
