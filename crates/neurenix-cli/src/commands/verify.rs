//! `neurenix verify`.

use std::{io::IsTerminal, process::ExitCode};

use indicatif::{ProgressBar, ProgressStyle};
use neurenix::{
    Result,
    phynexus::Device,
    verify::{self, Options},
};

use super::print_json;

#[derive(clap::Args)]
pub(super) struct Arguments {
    /// The device
    #[arg(long, default_value = "cpu")]
    device: String,
    /// Only operations whose name contains this
    #[arg(long)]
    filter: Option<String>,
    /// How many random graphs to try besides
    #[arg(long)]
    random_graphs: Option<usize>,
    /// The seed of the random graphs
    #[arg(long)]
    seed: Option<u64>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let device = Device::find(&arguments.device)?;
    let mut options = Options { filter: arguments.filter.clone(), ..Options::default() };
    if let Some(count) = arguments.random_graphs {
        options.random_graphs = count;
    }
    if let Some(seed) = arguments.seed {
        options.seed = seed;
    }
    let hidden = arguments.json || !std::io::stderr().is_terminal();
    let bar = if hidden { ProgressBar::hidden() } else { ProgressBar::new(0) };
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len}  {msg}") {
        bar.set_style(style);
    }
    let report = verify::run(device, &options, &mut |progress| {
        bar.set_length(progress.total as u64);
        bar.set_position(progress.done as u64);
        bar.set_message(progress.operation.to_owned());
    });
    bar.finish_and_clear();
    if arguments.json {
        print_json(&report)?;
    } else {
        print!("{report}");
    }
    Ok(if report.passed() { ExitCode::SUCCESS } else { ExitCode::from(2) })
}
