//! What is known of a document, and of a download under way, as the store keeps it.

use url::Url;

use super::checksum::Checksum;
use super::place::Mark;
use crate::pull::codec::{Reader, Writer};
use crate::store::{Key, SourceId, Tag};
use crate::upstream::conditional::{Validators, Variant};

/// The first byte of every entry: what cannot be read is fetched again.
const VERSION: u64 = 1;

/// A document that is published, and what it was checked with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// Which URL and scope it is of: another one's validators vouch for nothing.
    pub config: [u8; 8],
    /// Where it was published, below `documents/`.
    pub file: String,
    /// Which URL gave it, behind redirects.
    pub url: Url,
    /// What to ask with.
    pub validators: Validators,
    /// Which variant it is.
    pub variant: Variant,
    /// Over its bytes.
    pub digest: Checksum,
    /// The file as it was when it was published: another one was not written by us.
    pub mark: Mark,
    /// When it was fetched in full, in seconds since 1970.
    pub fetched: i64,
    /// When its bytes changed last.
    pub changed: i64,
    /// When upstream was last seen, as far as that was written down.
    pub checked: i64,
}

impl Kept {
    /// As it is stored. Validators that are too long to be stored are left out.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Writer::default();
        out.number(VERSION)
            .bytes(&self.config)
            .bytes(self.file.as_bytes())
            .bytes(self.url.as_str().as_bytes());
        validators(&mut out, &self.validators);
        variant(&mut out, &self.variant);
        out.bytes(&self.digest.0);
        mark(&mut out, &self.mark);
        out.signed(self.fetched)
            .signed(self.changed)
            .signed(self.checked);
        out.finish()
    }

    /// Reads it back.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut from = Reader::new(bytes);
        (from.number()? == VERSION).then_some(())?;
        let kept = Self {
            config: from.bytes()?.try_into().ok()?,
            file: from.text()?.to_owned(),
            url: Url::parse(from.text()?).ok()?,
            validators: read_validators(&mut from)?,
            variant: read_variant(&mut from)?,
            digest: Checksum(from.bytes()?.try_into().ok()?),
            mark: read_mark(&mut from)?,
            fetched: from.signed()?,
            changed: from.signed()?,
            checked: from.signed()?,
        };
        from.is_empty().then_some(kept)
    }

    /// Whether storing it over `stored` would say anything new. When it was looked at alone is not news.
    #[must_use]
    pub fn says_more_than(&self, stored: &Self) -> bool {
        let mut same = self.clone();
        same.checked = stored.checked;
        same != *stored
    }
}

/// A download under way, or one that waits to be published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// Which URL and scope it is of.
    pub config: [u8; 8],
    /// Which URL gave it, behind redirects.
    pub url: Url,
    /// What vouches for it: sent as `If-Range`.
    pub strong: Vec<u8>,
    /// What to ask with when it is whole.
    pub validators: Validators,
    /// Which variant it is.
    pub variant: Variant,
    /// The length of the whole, if it is known.
    pub total: Option<u64>,
    /// Its answer had a content coding.
    pub coded: bool,
    /// So many bytes are on the disk for sure.
    pub synced: u64,
    /// Over those.
    pub prefix: Checksum,
    /// The running system when it was written: while that runs, what was written is there, synced or not.
    pub boot: String,
    /// It is whole, and waits for its publication: the inode of its file, which a rename keeps.
    pub whole: Option<u64>,
}

impl Note {
    /// As it is stored.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Writer::default();
        out.number(VERSION)
            .bytes(&self.config)
            .bytes(self.url.as_str().as_bytes())
            .bytes(&self.strong);
        validators(&mut out, &self.validators);
        variant(&mut out, &self.variant);
        number(&mut out, self.total);
        out.number(u64::from(self.coded))
            .number(self.synced)
            .bytes(&self.prefix.0)
            .bytes(self.boot.as_bytes());
        number(&mut out, self.whole);
        out.finish()
    }

    /// Reads it back.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut from = Reader::new(bytes);
        (from.number()? == VERSION).then_some(())?;
        let note = Self {
            config: from.bytes()?.try_into().ok()?,
            url: Url::parse(from.text()?).ok()?,
            strong: from.bytes()?.to_vec(),
            validators: read_validators(&mut from)?,
            variant: read_variant(&mut from)?,
            total: read_number(&mut from)?,
            coded: from.number()? != 0,
            synced: from.number()?,
            prefix: Checksum(from.bytes()?.try_into().ok()?),
            boot: from.text()?.to_owned(),
            whole: read_number(&mut from)?,
        };
        from.is_empty().then_some(note)
    }
}

/// Where a document's entry is.
#[must_use]
pub fn kept_key(name: &str) -> Key {
    key("document/", name)
}

/// Where it stands which version a document's program took last: its SHA-256.
#[must_use]
pub fn told_key(name: &str) -> Key {
    key("told/", name)
}

/// Where the note of a document's part is.
#[must_use]
pub fn note_key(name: &str) -> Key {
    key("part/", name)
}

/// Where the digest is that a document had when it was refused.
#[must_use]
pub fn doubt_key(name: &str) -> Key {
    key("doubt/", name)
}

fn key(kind: &str, name: &str) -> Key {
    let rest = format!("{kind}{name}");
    Key::new(Tag::Counter, SourceId::NONE, rest.as_bytes())
}

fn number(out: &mut Writer, value: Option<u64>) {
    match value {
        None => out.number(0),
        Some(value) => out.number(1).number(value),
    };
}

fn read_number(from: &mut Reader<'_>) -> Option<Option<u64>> {
    match from.number()? {
        0 => Some(None),
        1 => Some(Some(from.number()?)),
        _ => None,
    }
}

fn validators(out: &mut Writer, validators: &Validators) {
    out.optional(validators.etag.as_deref())
        .optional(validators.last_modified.as_deref());
}

fn read_validators(from: &mut Reader<'_>) -> Option<Validators> {
    Some(Validators {
        etag: from.optional()?.map(<[u8]>::to_vec),
        last_modified: from.optional()?.map(<[u8]>::to_vec),
    })
}

fn variant(out: &mut Writer, variant: &Variant) {
    out.bytes(variant.names.join(",").as_bytes())
        .number(variant.values);
}

fn read_variant(from: &mut Reader<'_>) -> Option<Variant> {
    let names = from.text()?.split(',').filter(|name| !name.is_empty());
    Some(Variant {
        names: names.map(str::to_owned).collect(),
        values: from.number()?,
    })
}

fn mark(out: &mut Writer, mark: &Mark) {
    out.number(mark.inode)
        .number(mark.size)
        .signed(mark.seconds)
        .signed(mark.nanos);
}

fn read_mark(from: &mut Reader<'_>) -> Option<Mark> {
    Some(Mark {
        inode: from.number()?,
        size: from.number()?,
        seconds: from.signed()?,
        nanos: from.signed()?,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_kept_is_read_back(
            etag: Option<Vec<u8>>, modified: Option<Vec<u8>>, names in proptest::collection::vec("[a-z-]{1,9}", 0..3),
            numbers: [u64; 4], times: [i64; 5], total: Option<u64>, whole: Option<u64>, coded: bool, digest: [u8; 32],
        ) {
            let url = Url::parse("https://a.example/f?x=%20").unwrap();
            let validators = Validators { etag, last_modified: modified };
            let variant = Variant { names, values: numbers[0] };
            let kept = Kept {
                config: [7; 8], file: "a/b".into(), url: url.clone(), validators: validators.clone(), variant: variant.clone(),
                digest: Checksum(digest),
                mark: Mark { inode: numbers[1], size: numbers[2], seconds: times[0], nanos: times[1] },
                fetched: times[2], changed: times[3], checked: times[4],
            };
            prop_assert_eq!(Kept::decode(&kept.encode()), Some(kept));
            let note = Note {
                config: [7; 8], url, strong: b"\"a\"".to_vec(), validators, variant, total, coded, synced: numbers[3],
                prefix: Checksum(digest), boot: "b".into(), whole,
            };
            prop_assert_eq!(Note::decode(&note.encode()), Some(note));
        }

        #[test]
        fn garbage_is_nothing(bytes: Vec<u8>) {
            let _ = (Kept::decode(&bytes), Note::decode(&bytes));
        }
    }
}
