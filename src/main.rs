//! The command `gleaner`: see `gleaner --help`.

use std::process::ExitCode;

fn main() -> ExitCode {
    gleaner::cli::main()
}
