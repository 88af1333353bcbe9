//! `neurenix verify`.

use std::process::ExitCode;

use neurenix::{Result, phynexus::Device, verify};

use super::print_json;

#[derive(clap::Args)]
pub(super) struct Arguments {
    /// The device
    #[arg(long, default_value = "cpu")]
    device: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
}
