//! The command `neurenix`.

use std::{
    process::{self, ExitCode},
    time::Duration,
};

use neurenix::phynexus::device::{finish, finish_within};
use neurenix_cli::commands;

fn main() -> ExitCode {
    fail_beyond_file_limits();
    // The first Ctrl-C lets a training run write a checkpoint. Other commands end as the system does it.
    let trains = std::env::args_os().nth(1).is_some_and(|command| command == "train");
    let watch = || {
        ctrlc::set_handler(|| {
            if !commands::stop_training() {
                end()
            }
        })
    };
    if trains && let Err(error) = watch() {
        eprintln!("error: Ctrl-C cannot be watched: {error}");
        return ExitCode::FAILURE;
    }
    let program = std::env::current_exe().map_or_else(|_| "neurenix".into(), Into::into);
    let code = commands::run(&[program], std::env::args_os());
    // What nobody read may still be on its way.
    finish();
    ExitCode::from(code)
}

/// Ends the program at once, or nearly: devices may finish first what was submitted, in this time.
fn end() -> ! {
    const PATIENCE: Duration = Duration::from_secs(2);
    finish_within(PATIENCE);
    process::exit(130)
}

/// Makes a write beyond the limit of the process (`ulimit -f`) fail with an error, as Python does; by default the system ends
/// the process with a signal.
fn fail_beyond_file_limits() {
    #[cfg(any(target_os = "linux", target_os = "macos"))]
    {
        use std::ffi::c_int;
        unsafe extern "C" {
            /// C's: says what a signal does, and returns what it did.
            fn signal(number: c_int, handler: usize) -> usize;
        }
        const SIGXFSZ: c_int = 25;
        const IGNORE: usize = 1;
        // SAFETY: ignoring a signal runs no code of ours when it comes; what was set before is not needed. Where the call
        // fails the signal ends the process, as it would have.
        unsafe { signal(SIGXFSZ, IGNORE) };
    }
}
