//! `neurenix devices`.

use std::process::ExitCode;

use neurenix::{
    Result,
    phynexus::{
        device::{self, DeviceNature},
        schedule::explain::show_bytes,
    },
};
use serde::Serialize;

use super::print_json;

#[derive(clap::Args)]
pub(super) struct Arguments {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Found {
    name: String,
    model: String,
    nature: &'static str,
    compute_units: Option<usize>,
    total_memory: Option<u64>,
    features: Vec<String>,
}

#[derive(Serialize)]
struct NotFound {
    kind: String,
    reason: String,
}

#[derive(Serialize)]
struct Listing {
    devices: Vec<Found>,
    missing: Vec<NotFound>,
}

pub(super) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let found = device::devices().into_iter().map(|d| {
        let info = d.info();
        let nature = match info.nature {
            DeviceNature::HostCpu => "host CPU",
            DeviceNature::Hardware => "hardware",
            DeviceNature::Emulator => "emulator",
        };
        Found {
            name: info.name,
            model: info.model,
            nature,
            compute_units: info.compute_units,
            total_memory: info.total_memory,
            features: info.features,
        }
    });
    let missing = device::missing().into_iter().map(|m| NotFound { kind: m.kind, reason: m.reason });
    let listing = Listing { devices: found.collect(), missing: missing.collect() };
    if arguments.json {
        print_json(&listing)?;
        return Ok(ExitCode::SUCCESS);
    }
    for device in &listing.devices {
        say!("{:<12} {} ({})", device.name, device.model, device.nature)?;
        let mut details = Vec::new();
        details.extend(device.compute_units.map(|n| format!("{n} cores")));
        details.extend(device.total_memory.map(|bytes| show_bytes(bytes as usize)));
        details.extend(device.features.iter().cloned());
        say!("{:<12} {}", "", details.join(", "))?;
    }
    if !listing.missing.is_empty() {
        say!("\nNot found:")?;
    }
    for missing in &listing.missing {
        say!("{:<12} {}", missing.kind, missing.reason)?;
    }
    Ok(ExitCode::SUCCESS)
}
