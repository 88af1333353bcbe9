//! The subcommands.

use std::{
    ffi::OsString,
    fmt,
    io::{ErrorKind, Write},
    path::Path,
    str::FromStr,
    sync::atomic::{AtomicI32, Ordering},
};

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use neurenix::{
    Error, Result,
    phynexus::{Device, Error as EngineError, device::DeviceNature, text::counted},
};

/// Like `println!`, but returns an error instead of panicking.
macro_rules! say {
    ($($argument:tt)*) => { $crate::commands::write_out(format_args!("{}\n", format_args!($($argument)*))) };
}

mod bench;
mod devices;
mod explain;
mod export;
mod import;
mod launch;
mod member;
mod predict;
mod quantize;
mod run_folder;
mod run_lock;
mod train;
mod verify;

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
    /// Write a trained network as an ONNX file
    Export(export::Arguments),
    /// Show what is in an ONNX file, and whether it can be loaded
    Import(import::Arguments),
    /// Make a network smaller and faster with integers, for the CPU or an NPU
    Quantize(quantize::Arguments),
    /// Check a device against the definition of every operation
    Verify(verify::Arguments),
    /// Measure speed on this machine
    Bench(bench::Arguments),
    /// Start a program in several processes that compute together
    Launch(launch::Arguments),
    /// Execute a program that ends with its launcher
    #[cfg(target_os = "linux")]
    #[command(hide = true)]
    Launched(launch::bound::Arguments),
    /// Show the kernels of a computation
    Explain(explain::Arguments),
    /// Print shell completions
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

/// The help text of `--device`.
pub(crate) const DEVICE: &str = "The device (neurenix devices lists them). Default: RNN_GPU_DEVICE if set, else the first \
                                 accelerator, else cpu";

/// The device named by `--device`, or the default device. Drivers are opened here and not earlier: help and
/// command-line errors need none.
fn device(name: Option<&str>) -> Result<Device> {
    neurenix::register_all();
    Ok(name.map_or_else(Device::default_device, Device::find)?)
}

/// Makes the folder of a file that will be written.
fn make_folder_of(file: &Path) -> Result<()> {
    match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => {
            std::fs::create_dir_all(folder).map_err(|error| neurenix::Error::io("create", folder, error))
        }
        _ => Ok(()),
    }
}

/// Parses a non-negative integer.
fn whole<N: FromStr>(text: &str) -> Result<N, String> {
    text.parse().map_err(|_| "expected a whole number of at least 0".to_owned())
}

/// Parses a positive integer.
fn positive<N: FromStr + PartialOrd + From<u8>>(text: &str) -> Result<N, String> {
    let number = text.parse::<N>().ok().filter(|number| *number >= N::from(1u8));
    number.ok_or_else(|| "expected a whole number of at least 1".to_owned())
}

/// Parses a non-negative number of seconds.
fn seconds(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|number| number.is_finite() && *number >= 0.0);
    number.ok_or_else(|| "expected a finite number of at least 0".to_owned())
}

/// The nature of a device, in the terms of the documentation.
fn nature(nature: DeviceNature) -> &'static str {
    match nature {
        DeviceNature::HostCpu => "host CPU",
        DeviceNature::Hardware => "hardware",
        DeviceNature::Emulator => "emulator",
    }
}

/// The device name, marked if it is an emulator: an emulator's timings are not those of hardware.
fn described(device: Device) -> String {
    match device.info().nature {
        DeviceNature::Emulator => format!("{device} (emulator)"),
        DeviceNature::HostCpu | DeviceNature::Hardware => device.name().to_owned(),
    }
}

/// Exit code: success.
const SUCCESS: u8 = 0;
/// Exit code: an error occurred.
const FAILURE: u8 = 1;
/// Exit code: a verification found a wrong result.
const FAILED_CHECK: u8 = 2;
/// Exit code of a process of a job: its options or data cannot be used, so that starting it again would not help. Clap and
/// Python's argparse have the same code.
const USAGE: u8 = 2;
/// Exit code: the reader of the output closed the pipe. Shells report this code for a process that SIGPIPE ended.
const CLOSED_PIPE: u8 = 141;

/// Parses the command line, runs the command and returns the exit code. Errors are printed to standard error and give
/// exit code 1; a failed verification gives 2. If the reader of the output closes the pipe
/// (`neurenix explain mlp | head -1`), the command exits quietly with 141.
///
/// `program` starts a new process of this command: an executable, and any arguments before the command's own.
/// `arguments` begin with the program name.
///
/// The caller handles Ctrl-C and other signals: call [`stop_training`].
pub fn run(program: &[OsString], arguments: impl IntoIterator<Item = OsString>) -> u8 {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let command: Vec<OsString> = program.iter().chain(arguments.iter().skip(1)).cloned().collect();
    let matches = match Arguments::command().try_get_matches_from(arguments) {
        Ok(matches) => matches,
        Err(told) => {
            // Clap reports help and version as errors.
            let _ = told.print();
            return u8::try_from(told.exit_code()).unwrap_or(FAILURE);
        }
    };
    let arguments = Arguments::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let result = match arguments.command {
        Command::Devices(arguments) => devices::run(&arguments),
        Command::Train(arguments) => {
            let given = matches.subcommand_matches("train");
            train::run(&arguments, &command, program, &|name| {
                given.is_some_and(|given| is_given(given, name))
            })
        }
        Command::Predict(arguments) => predict::run(&arguments),
        Command::Export(arguments) => export::run(&arguments),
        Command::Import(arguments) => import::run(&arguments),
        Command::Quantize(arguments) => quantize::run(&arguments),
        Command::Verify(arguments) => verify::run(&arguments, program),
        Command::Bench(arguments) => bench::run(&arguments),
        Command::Launch(arguments) => launch::run(&arguments, program),
        #[cfg(target_os = "linux")]
        Command::Launched(arguments) => launch::bound::run(&arguments),
        Command::Explain(arguments) => explain::run(&arguments),
        Command::Completions { shell } => completions(shell),
    };
    result.unwrap_or_else(|error: Error| {
        if is_closed_pipe(&error) {
            return CLOSED_PIPE;
        }
        // The party that interrupts reports it: the Python package.
        if matches!(error, Error::Engine(EngineError::Interrupted)) {
            return interrupted();
        }
        report(&error);
        FAILURE
    })
}

fn report(error: &Error) {
    // If standard error is closed too, only the exit code reports the failure.
    let _ = writeln!(std::io::stderr(), "error: {error}");
}

/// The number of the signal of Ctrl-C.
pub const INTERRUPT: i32 = 2;
/// The numbers of SIGTERM and SIGHUP.
const TERMINATE: i32 = 15;
const HANG_UP: i32 = 1;

/// The last signal that asked this process to end.
static SIGNAL: AtomicI32 = AtomicI32::new(INTERRUPT);

fn signal() -> i32 {
    SIGNAL.load(Ordering::Acquire)
}

/// Asks running training to finish its step and write a checkpoint, and launched processes to end. `signal` is the
/// signal's number. Returns false if nothing is running, or it was asked before.
pub fn stop_training(signal: i32) -> bool {
    SIGNAL.store(signal, Ordering::Release);
    launch::stop() || train::stop_training()
}

/// Exit code: ended by a signal, Ctrl-C if none was received. Shells report this code for a process that the signal
/// ended.
pub fn interrupted() -> u8 {
    match signal() {
        HANG_UP => 129,
        TERMINATE => 143,
        _ => 130,
    }
}

/// Whether an option was given on the command line, as opposed to its default.
fn is_given(matches: &clap::ArgMatches, name: &str) -> bool {
    matches.value_source(name) == Some(clap::parser::ValueSource::CommandLine)
}

fn completions(shell: clap_complete::Shell) -> Result<u8> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "neurenix", &mut script);
    write_out(format_args!("{}", String::from_utf8_lossy(&script)))?;
    Ok(SUCCESS)
}

/// Writes to standard output and flushes.
fn write_out(text: fmt::Arguments<'_>) -> Result<()> {
    let mut output = std::io::stdout().lock();
    let written = output.write_fmt(text).and_then(|()| output.flush());
    written.map_err(|error| Error::io("write", Path::new("standard output"), error))
}

fn is_closed_pipe(error: &Error) -> bool {
    matches!(error, Error::Io { source, .. } if source.kind() == ErrorKind::BrokenPipe)
}

/// Prints a value as JSON.
fn print_json(value: &impl serde::Serialize) -> Result<()> {
    write_out(format_args!("{}\n", json(value)?))
}

/// A value as JSON that is safe to show in a terminal.
fn json(value: &impl serde::Serialize) -> Result<String> {
    let mut text = serde_json::to_string_pretty(value).map_err(|e| Error::data("JSON", e.to_string()))?;
    // JSON does not escape these control characters, and some terminals act on them. They occur only inside strings.
    for control in '\u{7f}'..='\u{9f}' {
        if text.contains(control) {
            text = text.replace(control, &format!("\\u{:04x}", u32::from(control)));
        }
    }
    Ok(text)
}
