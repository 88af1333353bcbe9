//! The subcommands.

use std::{
    ffi::OsString,
    fmt,
    io::{ErrorKind, Write},
    path::Path,
    str::FromStr,
};

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use neurenix::{
    Error, Result,
    phynexus::{Device, Error as EngineError, device::DeviceNature, text::counted},
};

/// Prints a line as `println!` does, but gives an error where that panics.
macro_rules! say {
    ($($argument:tt)*) => { $crate::commands::write_out(format_args!("{}\n", format_args!($($argument)*))) };
}

mod bench;
mod devices;
mod explain;
mod predict;
mod run_folder;
mod run_lock;
mod train;
mod verify;

pub use train::stop_training;

#[derive(Parser)]
#[command(
    name = "neurenix",
    version,
    about = "A deep-learning framework in Rust: train networks, apply them, and check and measure devices"
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// List the devices found, and why others are missing
    Devices(devices::Arguments),
    /// Train a network and write a report
    Train(train::Arguments),
    /// Apply a trained network to a file
    Predict(predict::Arguments),
    /// Check a device against the definition of every operation
    Verify(verify::Arguments),
    /// Measure speed on this machine
    Bench(bench::Arguments),
    /// Show the kernels of a computation
    Explain(explain::Arguments),
    /// Print shell completions
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

/// What the help of `--device` says.
pub(crate) const DEVICE: &str = "The device (neurenix devices lists them); by default what RNN_GPU_DEVICE names, else the first \
                                 accelerator, else cpu";

/// The device that `--device` names, or the default one. Drivers are opened here and not before, so that help and mistakes
/// on the command line need none.
fn device(name: Option<&str>) -> Result<Device> {
    neurenix::register_all();
    Ok(name.map_or_else(Device::default_device, Device::find)?)
}

/// A whole number on the command line that is not negative.
fn whole<N: FromStr>(text: &str) -> Result<N, String> {
    text.parse().map_err(|_| "expected a whole number of at least 0".to_owned())
}

/// A whole number on the command line from 1 on.
fn positive<N: FromStr + PartialOrd + From<u8>>(text: &str) -> Result<N, String> {
    let number = text.parse::<N>().ok().filter(|number| *number >= N::from(1u8));
    number.ok_or_else(|| "expected a whole number of at least 1".to_owned())
}

/// Seconds on the command line.
fn seconds(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|number| number.is_finite() && *number >= 0.0);
    number.ok_or_else(|| "expected a finite number of at least 0".to_owned())
}

/// What a device is, in the words of the documentation.
fn nature(nature: DeviceNature) -> &'static str {
    match nature {
        DeviceNature::HostCpu => "host CPU",
        DeviceNature::Hardware => "hardware",
        DeviceNature::Emulator => "emulator",
    }
}

/// The device's name, and that it is an emulator if it is one: figures of an emulator are not those of hardware.
fn described(device: Device) -> String {
    match device.info().nature {
        DeviceNature::Emulator => format!("{device} (emulator)"),
        DeviceNature::HostCpu | DeviceNature::Hardware => device.name().to_owned(),
    }
}

/// The exit code of a program that did what it was asked.
const SUCCESS: u8 = 0;
/// The exit code of one that met an error.
const FAILURE: u8 = 1;
/// The exit code of a verification that found something wrong.
const FAILED_CHECK: u8 = 2;
/// The exit code of a program that Ctrl-C ended: what shells report of one that SIGINT ended.
const INTERRUPTED: u8 = 130;
/// The exit code of a program whose reader has gone: what shells report of one that SIGPIPE ended.
const CLOSED_PIPE: u8 = 141;

/// Parses the command line and runs the command. Errors go to standard error and make the exit code 1; a failed
/// verification makes it 2. Where the reader of the output has gone (`neurenix explain mlp | head -1`) the program ends
/// quietly with 141.
///
/// `program` is what starts a process of this command: a file, and what it takes before the command's own arguments.
/// `arguments` begin with the program's name. What comes back is the code to exit with.
///
/// Ctrl-C is the caller's: [`stop_training`] is what a run does at the first one.
pub fn run(program: &[OsString], arguments: impl IntoIterator<Item = OsString>) -> u8 {
    let matches = match Arguments::command().try_get_matches_from(arguments) {
        Ok(matches) => matches,
        Err(told) => {
            // Help and the version are no errors.
            let _ = told.print();
            return u8::try_from(told.exit_code()).unwrap_or(FAILURE);
        }
    };
    let arguments = Arguments::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let result = match arguments.command {
        Command::Devices(arguments) => devices::run(&arguments),
        Command::Train(arguments) => {
            let given = matches.subcommand_matches("train");
            train::run(&arguments, &|name| given.is_some_and(|given| is_given(given, name)))
        }
        Command::Predict(arguments) => predict::run(&arguments),
        Command::Verify(arguments) => verify::run(&arguments, program),
        Command::Bench(arguments) => bench::run(&arguments),
        Command::Explain(arguments) => explain::run(&arguments),
        Command::Completions { shell } => completions(shell),
    };
    result.unwrap_or_else(|error: Error| {
        if is_closed_pipe(&error) {
            return CLOSED_PIPE;
        }
        // Who interrupts tells of it: the package of Python.
        if matches!(error, Error::Engine(EngineError::Interrupted)) {
            return INTERRUPTED;
        }
        // Where standard error is closed too, the exit code has to say it.
        let _ = writeln!(std::io::stderr(), "error: {error}");
        FAILURE
    })
}

/// Whether an option stands on the command line, rather than having its default value.
fn is_given(matches: &clap::ArgMatches, name: &str) -> bool {
    matches.value_source(name) == Some(clap::parser::ValueSource::CommandLine)
}

fn completions(shell: clap_complete::Shell) -> Result<u8> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "neurenix", &mut script);
    write_out(format_args!("{}", String::from_utf8_lossy(&script)))?;
    Ok(SUCCESS)
}

/// Writes to standard output at once.
fn write_out(text: fmt::Arguments<'_>) -> Result<()> {
    let mut output = std::io::stdout().lock();
    let written = output.write_fmt(text).and_then(|()| output.flush());
    written.map_err(|error| Error::io("write", Path::new("standard output"), error))
}

fn is_closed_pipe(error: &Error) -> bool {
    matches!(error, Error::Io { source, .. } if source.kind() == ErrorKind::BrokenPipe)
}

/// A value as JSON on a line of standard output.
fn print_json(value: &impl serde::Serialize) -> Result<()> {
    write_out(format_args!("{}\n", json(value)?))
}

/// A value as JSON that a terminal may show.
fn json(value: &impl serde::Serialize) -> Result<String> {
    let mut text = serde_json::to_string_pretty(value).map_err(|e| Error::data("JSON", e.to_string()))?;
    // JSON leaves these control characters as they are; only texts have them, and a terminal obeys some.
    for control in '\u{7f}'..='\u{9f}' {
        if text.contains(control) {
            text = text.replace(control, &format!("\\u{:04x}", u32::from(control)));
        }
    }
    Ok(text)
}
