//! The command `neurenix`.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(neurenix_cli::commands::run(std::env::args_os()))
}
