//! The command `gleaner`: see `gleaner --help`.

fn main() {}
