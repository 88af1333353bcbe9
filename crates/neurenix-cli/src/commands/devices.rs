//! `neurenix devices`.

use neurenix::{
    Result,
    npu::{self, Search},
    phynexus::{device, profile::show_rate, text::show_bytes},
};
use serde::Serialize;

use super::{nature, print_json};

#[derive(clap::Args)]
pub(super) struct Arguments {
    /// Also show each device's available memory and peak rates, if the driver reports them
    #[arg(short, long)]
    verbose: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// A device's memory in bytes, as reported by its driver or the system. Pool usage is per process, and this process has
/// none.
#[derive(Serialize)]
struct MemoryFigures {
    available: Option<u64>,
    total: Option<u64>,
}

#[derive(Serialize)]
struct Found {
    name: String,
    model: String,
    nature: &'static str,
    compute_units: Option<usize>,
    total_memory: Option<u64>,
    features: Vec<String>,
    memory: MemoryFigures,
    /// Peak memory bandwidth, in bytes per second.
    peak_bytes: Option<f64>,
    /// Peak `float32` arithmetic rate, in operations per second.
    peak_operations: Option<f64>,
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

pub(super) fn run(arguments: &Arguments) -> Result<u8> {
    neurenix::register_all();
    let found = device::devices().into_iter().map(|d| {
        let info = d.info();
        let memory = d.memory();
        Found {
            name: info.name,
            model: info.model,
            nature: nature(info.nature),
            compute_units: info.compute_units,
            total_memory: info.total_memory,
            features: info.features,
            memory: MemoryFigures { available: memory.available, total: memory.total },
            peak_bytes: d.backend().peaks().bytes,
            peak_operations: d.backend().peaks().operations,
        }
    });
    let search = Search::default();
    let units = npu::devices(&search).into_iter().map(|unit| {
        let properties = unit.properties();
        let mut features = vec![format!("{} {}", properties.runtime, properties.version)];
        features.extend(properties.architecture.clone());
        Found {
            name: unit.name().to_owned(),
            model: format!("{} {}", properties.vendor, properties.model),
            nature: nature(properties.nature),
            compute_units: None,
            total_memory: properties.memory,
            features,
            memory: MemoryFigures { available: None, total: properties.memory },
            peak_bytes: None,
            peak_operations: None,
        }
    });
    let missing = device::missing().into_iter().map(|m| NotFound { kind: m.kind, reason: m.reason });
    let runtimes = npu::missing(&search).into_iter();
    let runtimes = runtimes
        .map(|(kind, reason)| NotFound { kind: "npu".to_owned(), reason: format!("{kind}: {reason}") });
    let listing =
        Listing { devices: found.chain(units).collect(), missing: missing.chain(runtimes).collect() };
    if arguments.json {
        print_json(&listing)?;
        return Ok(super::SUCCESS);
    }
    for device in &listing.devices {
        say!("{:<12} {} ({})", device.name, device.model, device.nature)?;
        let mut details = Vec::new();
        details.extend(device.compute_units.map(|n| format!("{n} cores")));
        details.extend(device.total_memory.map(|bytes| show_bytes(bytes as usize)));
        details.extend(device.features.iter().cloned());
        say!("{:<12} {}", "", details.join(", "))?;
        if arguments.verbose {
            say!("{:<12} {}", "", figures(device))?;
        }
    }
    if !listing.missing.is_empty() {
        say!("\nNot found:")?;
    }
    for missing in &listing.missing {
        say!("{:<12} {}", missing.kind, missing.reason)?;
    }
    Ok(super::SUCCESS)
}

/// Available memory and peak rates as text.
fn figures(device: &Found) -> String {
    let bytes = |rate: f64| format!("at most {}", show_rate(rate, "B/s"));
    let operations = |rate: f64| format!("at most {} of float32", show_rate(rate, "FLOP/s"));
    let figures = [
        device.memory.available.map(|bytes| format!("{} available", show_bytes(bytes as usize))),
        device.peak_bytes.map(bytes),
        device.peak_operations.map(operations),
    ];
    let told: Vec<String> = figures.into_iter().flatten().collect();
    match told.is_empty() {
        true => "its driver reports neither free memory nor peak rates".to_owned(),
        false => told.join(", "),
    }
}
