//! The first program of a launched process: it binds the process's life to the launcher's, and becomes the program of
//! the job. A setting of the kernel, which remains when a process executes another program, does it without `unsafe`
//! code between `fork` and `exec`.

use std::{ffi::OsString, os::unix::process::CommandExt, path::Path, process::Command};

use neurenix::{Error, Result};
use rustix::process::{Signal, getppid, set_parent_process_death_signal};

/// The name of the subcommand, which help does not list.
pub(super) const NAME: &str = "launched";

#[derive(clap::Args)]
pub(in crate::commands) struct Arguments {
    /// The launcher's process ID
    launcher: u32,
    /// The program and its arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    program: Vec<OsString>,
}

/// Shells report these codes for programs that cannot be executed, and that are not found.
pub(super) const NOT_EXECUTABLE: u8 = 126;
pub(super) const NOT_FOUND: u8 = 127;

/// Executes the program. Returns only if that fails.
pub(in crate::commands) fn run(arguments: &Arguments) -> Result<u8> {
    let bound = set_parent_process_death_signal(Some(Signal::KILL));
    bound.map_err(|error| Error::io("follow", Path::new("the launcher"), error.into()))?;
    // It may have ended before.
    let parent = getppid().and_then(|parent| u32::try_from(parent.as_raw_nonzero().get()).ok());
    if parent != Some(arguments.launcher) {
        return Err(Error::data("launched", "the launcher has ended"));
    }
    let program = &arguments.program[0];
    let error = Command::new(program).args(&arguments.program[1..]).exec();
    let code = if error.kind() == std::io::ErrorKind::NotFound { NOT_FOUND } else { NOT_EXECUTABLE };
    // All processes of this machine fail alike.
    if std::env::var_os("LOCAL_RANK").is_none_or(|rank| rank == "0") {
        super::super::report(&Error::io("start", Path::new(program), error));
    }
    Ok(code)
}
