//! The room as a whole: bad files and their messages, every form, print and parse, what ships with the crate.

mod arbitrary;
mod bad;
mod good;
mod hooks;
mod shipped;

use std::ffi::OsString;
use std::path::Path;

use super::*;

fn no_env(_: &str) -> Option<OsString> {
    None
}

/// Parses as if the file were `/etc/gleaner/gleaner.toml`.
fn parsed(text: &str) -> Result<Config, Errors> {
    parse(text, Path::new("/etc/gleaner/gleaner.toml"), &no_env)
}

/// The same for a file that is right.
fn config(text: &str) -> Config {
    parsed(text).unwrap_or_else(|errors| panic!("{errors}"))
}

/// The config of one source with these further lines.
fn source(lines: &str) -> Source {
    let text = format!("[source.s]\nurl = \"https://h.example/x\"\nkey = \"/id\"\n{lines}\n");
    config(&text)
        .sources
        .remove("s")
        .expect("it was just written")
}

/// The config of one upstream with these further lines.
fn upstream(lines: &str) -> Upstream {
    let text = format!("[upstream.u]\nbase = \"https://h.example/api\"\n{lines}\n");
    config(&text)
        .upstreams
        .remove("u")
        .expect("it was just written")
}

fn pointer(text: &str) -> Pointer {
    Pointer::parse(text).unwrap_or_else(|error| panic!("{error}"))
}
