//! The command `neurenix`.

use std::process::ExitCode;

fn main() -> ExitCode {
    neurenix_cli::commands::main()
}
