//! The command `neurenix`.

use std::process::ExitCode;

fn main() -> ExitCode {
    let code = neurenix_cli::commands::run(std::env::args_os());
    // What nobody read may still be on its way.
    neurenix::phynexus::device::finish();
    ExitCode::from(code)
}
