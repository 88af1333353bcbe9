//! The `neurenix` command.

use std::{
    process::{self, ExitCode},
    time::Duration,
};

use neurenix::phynexus::device::{finish, finish_within};
use neurenix_cli::commands;

fn main() -> ExitCode {
    fail_beyond_file_limits();
    // The first signal lets a training run write a checkpoint, and is passed on to launched processes. Other commands
    // keep the system's default handling.
    let trains = std::env::args_os().nth(1).is_some_and(|command| command == "train" || command == "launch");
    if trains && let Err(error) = watch() {
        eprintln!("error: cannot handle signals: {error}");
        return ExitCode::FAILURE;
    }
    let program = std::env::current_exe().map_or_else(|_| "neurenix".into(), Into::into);
    let code = commands::run(&[program], std::env::args_os());
    // Work whose results were never read may still be pending.
    finish();
    ExitCode::from(code)
}

/// Handles the signals that ask a program to end.
#[cfg(unix)]
fn watch() -> std::io::Result<()> {
    use signal_hook::{consts, iterator::Signals};
    let mut signals = Signals::new([consts::SIGINT, consts::SIGTERM, consts::SIGHUP])?;
    std::thread::Builder::new().spawn(move || signals.forever().for_each(receive))?;
    Ok(())
}

#[cfg(not(unix))]
fn watch() -> Result<(), ctrlc::Error> {
    ctrlc::set_handler(|| receive(commands::INTERRUPT))
}

fn receive(signal: i32) {
    if !commands::stop_training(signal) {
        end()
    }
}

/// Exits the process. Devices get a short time to finish submitted work.
fn end() -> ! {
    const PATIENCE: Duration = Duration::from_secs(2);
    finish_within(PATIENCE);
    process::exit(i32::from(commands::interrupted()))
}

/// Makes a write beyond the process's file size limit (`ulimit -f`) fail with an error, as in Python. By default the
/// system kills the process with a signal.
fn fail_beyond_file_limits() {
    #[cfg(any(target_os = "linux", target_os = "macos"))]
    {
        use std::ffi::c_int;
        unsafe extern "C" {
            /// The C function: sets the handler of a signal and returns the previous one.
            fn signal(number: c_int, handler: usize) -> usize;
        }
        const SIGXFSZ: c_int = 25;
        const IGNORE: usize = 1;
        // SAFETY: ignoring a signal installs no handler, and the previous handler is not needed. If the call fails, the
        // signal ends the process, which is the default.
        unsafe { signal(SIGXFSZ, IGNORE) };
    }
}
