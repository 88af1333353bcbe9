//! The subcommands.

mod bench;
mod devices;
mod explain;
mod predict;
mod run_folder;
mod train;
mod verify;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use neurenix::Result;

#[derive(Parser)]
#[command(
    name = "neurenix",
    version,
    about = "Train and deploy neural networks on whatever accelerator you have"
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Every device found, and why others are not there
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
    /// Print completions for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

/// Parses the command line and runs the command. Errors go to standard error and make the exit code 1; a failed
/// verification makes it 2.
pub fn main() -> ExitCode {
    // Rust ignores SIGPIPE: output into a closed pipe must end the program quietly.
    neurenix::register_all();
    let result = match Arguments::parse().command {
        Command::Devices(arguments) => devices::run(&arguments),
        Command::Train(arguments) => train::run(&arguments),
        Command::Predict(arguments) => predict::run(&arguments),
        Command::Verify(arguments) => verify::run(&arguments),
        Command::Bench(arguments) => bench::run(&arguments),
        Command::Explain(arguments) => explain::run(&arguments),
        Command::Completions { shell } => {
            clap_complete::generate(shell, &mut Arguments::command(), "neurenix", &mut std::io::stdout());
            Ok(ExitCode::SUCCESS)
        }
    };
    result.unwrap_or_else(|error: neurenix::Error| {
        eprintln!("error: {error}");
        ExitCode::FAILURE
    })
}

/// A value as JSON on a line of standard output.
fn print_json(value: &impl serde::Serialize) -> Result<()> {
    let text =
        serde_json::to_string_pretty(value).map_err(|e| neurenix::Error::data("JSON", e.to_string()))?;
    println!("{text}");
    Ok(())
}
