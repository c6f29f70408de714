//! `[document.NAME]`, printed.

use url::Url;

use super::{Text, list, path, program, quoted, relative};
use crate::config::document::{Document, Hex, Proof};
use crate::config::value::print_size;

pub(super) fn document(text: &mut Text, name: &str, document: &Document, base: Option<&Url>) {
    text.section(&format!("document.{name}"));
    text.string("upstream", &document.upstream);
    text.string("path", &relative(&document.url, base));
    text.line("file", path(&document.file));
    text.span("every", document.every);
    text.span("jitter", document.jitter);
    text.span("stale_after", document.stale_after);
    match &document.proof {
        Proof::None => {}
        Proof::Sha256(digest) => text.string("sha256", &Hex(digest).to_string()),
        Proof::Sha256Url(url) => text.string("sha256_url", url.as_str()),
    }
    text.string("max_size", &print_size(document.max_size));
    text.line("allow_empty", document.allow_empty.to_string());
    let types = document.content_type.iter().map(|kind| quoted(kind));
    text.line("content_type", list(types));
    if let Some(on_change) = &document.on_change {
        text.line("on_change", program(on_change));
    }
    text.line("ignore_no_store", document.ignore_no_store.to_string());
    text.span("max_skip", document.max_skip);
    text.span("recheck", document.recheck);
}
