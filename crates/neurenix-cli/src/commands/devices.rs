//! `neurenix devices`.

use std::process::ExitCode;

use neurenix::{
    Result,
    phynexus::{
        device::{self, DeviceNature, MemoryStatistics},
        schedule::explain::show_bytes,
    },
};
use serde::Serialize;

use super::print_json;

#[derive(clap::Args)]
pub(super) struct Arguments {
    /// Also what each device's memory pool holds, and what the device can do at most by its own figures
    #[arg(short, long)]
    verbose: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What a pool holds, in bytes.
#[derive(Serialize)]
struct PoolFigures {
    allocated: usize,
    peak: usize,
    reserved: usize,
    cached: usize,
    available: Option<u64>,
    total: Option<u64>,
    limit: Option<usize>,
    fragmentation: f64,
    allocations: u64,
    spilled_tensors: usize,
    spilled_bytes: usize,
    spills: u64,
}

impl From<MemoryStatistics> for PoolFigures {
    fn from(memory: MemoryStatistics) -> PoolFigures {
        PoolFigures {
            allocated: memory.allocated,
            peak: memory.peak,
            reserved: memory.reserved,
            cached: memory.cached,
            available: memory.available,
            total: memory.total,
            limit: memory.limit,
            fragmentation: memory.fragmentation(),
            allocations: memory.allocations,
            spilled_tensors: memory.spilled_tensors,
            spilled_bytes: memory.spilled_bytes,
            spills: memory.spills,
        }
    }
}

#[derive(Serialize)]
struct Found {
    name: String,
    model: String,
    nature: &'static str,
    compute_units: Option<usize>,
    total_memory: Option<u64>,
    features: Vec<String>,
    memory: PoolFigures,
    /// Bytes a second between the device and its memory.
    peak_bytes: Option<f64>,
    /// Operations a second on `float32`.
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
            memory: d.memory().into(),
            peak_bytes: d.backend().peaks().bytes,
            peak_operations: d.backend().peaks().operations,
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
        if arguments.verbose {
            say!("{:<12} {}", "", figures(device).join(", "))?;
        }
    }
    if !listing.missing.is_empty() {
        say!("\nNot found:")?;
    }
    for missing in &listing.missing {
        say!("{:<12} {}", missing.kind, missing.reason)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Memory and peaks in words.
fn figures(device: &Found) -> Vec<String> {
    let memory = &device.memory;
    let mut figures = vec![
        format!("tensors hold {}, at most {}", show_bytes(memory.allocated), show_bytes(memory.peak)),
        format!("the pool {} ({} cached)", show_bytes(memory.reserved), show_bytes(memory.cached)),
        format!("fragmentation {:.1} %", memory.fragmentation * 100.0),
        format!("{} allocations", memory.allocations),
    ];
    figures.extend(memory.available.map(|bytes| format!("{} available", show_bytes(bytes as usize))));
    figures.extend(memory.limit.map(|bytes| format!("limit {}", show_bytes(bytes))));
    figures.extend(device.peak_bytes.map(|rate| format!("at most {:.0} GB/s", rate / 1e9)));
    figures
        .extend(device.peak_operations.map(|rate| format!("at most {:.0} GFLOP/s of float32", rate / 1e9)));
    figures
}
