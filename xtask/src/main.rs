//! Development commands: `cargo xtask test` and `cargo xtask bench`.

#![forbid(unsafe_code)]

mod bench;
mod devices;
#[path = "../../crates/neurenix-cli/tests/cli/browser/find.rs"]
mod find;
mod install;
mod network;
mod npu;
mod python;
mod sanitizer;
mod test;
mod windows;

use std::{
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(about = "Development commands of Neurenix", version)]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Format, lints, documentation, tests, examples, Python, software devices; with --full also checks that take hours
    Test(test::Arguments),
    /// Compare speed with PyTorch in one run and print a table of ratios
    Bench(bench::Arguments),
    /// The part of the stage `network` that runs in namespaces
    #[command(hide = true)]
    NetworkNamespaces { program: PathBuf },
}

fn main() -> ExitCode {
    let result = match Arguments::parse().task {
        Task::Test(arguments) => test::run(&arguments),
        Task::Bench(arguments) => bench::run(&arguments),
        Task::NetworkNamespaces { program } => network::isolated_check(&program),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("xtask: {message}");
            ExitCode::FAILURE
        }
    }
}

/// The repository root, independent of the current folder.
fn root() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.parent().unwrap_or(own).to_owned()
}

/// The cargo that runs this program, started in the repository root.
fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    command
}

/// Runs a command. Any result but success is an error that shows the command.
fn succeed(command: &mut Command) -> Result<(), String> {
    let shown = format!("{command:?}");
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{shown} ended with {status}")),
        Err(error) => Err(format!("{shown} did not start: {error}")),
    }
}

/// What a command prints.
fn output(command: &mut Command) -> Result<String, String> {
    let shown = format!("{command:?}");
    let output = command.output().map_err(|e| format!("{shown} did not start: {e}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(format!("{shown} ended with {}", output.status)),
    }
}
