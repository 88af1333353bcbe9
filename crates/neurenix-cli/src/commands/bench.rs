//! `neurenix bench`: time and memory of well-known workloads on this machine.

mod collectives;
mod host;
mod large;
#[cfg(test)]
mod record;
mod replayed;
mod step_times;
pub(in crate::commands) mod workloads;

use std::{fmt, time::Instant};

use neurenix::{
    Error, Result,
    phynexus::{
        Device,
        device::DeviceNature,
        profile::{Detail, Profiler, show_rate},
    },
};
use serde::Serialize;

use workloads::{Work, Workload};

#[derive(clap::Args)]
pub(super) struct Arguments {
    #[arg(long, help = super::DEVICE)]
    device: Option<String>,
    /// Number of CPU threads; default: all cores
    #[arg(long, value_parser = super::positive::<usize>, allow_negative_numbers = true)]
    threads: Option<usize>,
    /// Only workloads whose name contains this
    #[arg(long, default_value = "")]
    filter: String,
    /// Measure collectives among the processes of a launcher: neurenix launch -n 2 neurenix bench --collectives
    #[arg(long, conflicts_with_all = ["filter", "profile"])]
    collectives: bool,
    /// Seconds to measure each workload
    #[arg(long, default_value_t = 1.5, value_parser = super::seconds, allow_negative_numbers = true)]
    seconds: f64,
    /// Print a JSON line for each workload
    #[arg(long)]
    json: bool,
    /// Also print, for each kind of step, the least time that one repetition spent in it
    #[arg(long, conflicts_with = "json")]
    profile: bool,
}

/// Approximate sample length on a device with a queue, in milliseconds.
const SAMPLE_MS: f64 = 10.0;

/// The measurements of one workload.
#[derive(Serialize)]
struct Measured {
    name: String,
    /// The median, in milliseconds.
    ms: f64,
    /// Peak bytes held by tensors during one run: the workload's own tensors and those that the run creates.
    peak_bytes: usize,
    /// For a host workload: the median divided by the number of operations it records.
    #[serde(skip_serializing_if = "Option::is_none")]
    ns_an_operation: Option<f64>,
    /// For a host workload that runs kernels: the median divided by the number of kernels.
    #[serde(skip_serializing_if = "Option::is_none")]
    ns_a_kernel: Option<f64>,
    #[serde(skip)]
    runs: usize,
    #[serde(skip)]
    best: f64,
}

pub(super) fn run(arguments: &Arguments) -> Result<u8> {
    if arguments.collectives {
        return collectives::run(arguments);
    }
    if let Some(threads) = arguments.threads {
        neurenix::set_threads(threads)?;
    }
    let device = super::device(arguments.device.as_deref())?;
    let mut known: Vec<Workload> =
        workloads::all().into_iter().chain(replayed::all()).chain(host::all()).collect();
    if device.info().nature == DeviceNature::Hardware {
        known.extend(large::all());
    }
    let chosen: Vec<&Workload> = known.iter().filter(|w| w.name.contains(&arguments.filter)).collect();
    if chosen.is_empty() {
        let names: Vec<&str> = known.iter().map(|w| w.name.as_str()).collect();
        let message =
            format!("no workload name contains {:?}; available: {}", arguments.filter, names.join(", "));
        return Err(Error::data("--filter", message));
    }
    for workload in chosen {
        let measured = measure(workload, device, arguments.seconds)?;
        if arguments.json {
            let line = serde_json::to_string(&measured).map_err(|e| Error::data("JSON", e.to_string()))?;
            say!("{line}")?;
        } else {
            say!("{measured}{}", rate(workload, measured.ms))?;
        }
        if arguments.profile {
            step_times::print(&mut (workload.prepare)(device)?, arguments.seconds)?;
        }
    }
    Ok(super::SUCCESS)
}

/// The rate that a workload achieved, if it states its work.
fn rate(workload: &Workload, ms: f64) -> String {
    match workload.work {
        None => String::new(),
        Some(Work::Bytes(bytes)) => format!("   {}", show_rate(bytes / ms * 1e3, "B/s")),
        Some(Work::Operations(operations)) => format!("   {}", show_rate(operations / ms * 1e3, "FLOP/s")),
    }
}

fn measure(workload: &Workload, device: Device, seconds: f64) -> Result<Measured> {
    let before = device.memory().allocated;
    let mut step = (workload.prepare)(device)?;
    for _ in 0..3 {
        step()?;
    }
    device.synchronize()?;
    device.reset_peak_memory();
    step()?;
    let peak_bytes = device.memory().peak.saturating_sub(before);
    let profiler = Profiler::start(Detail::Counts)?;
    step()?;
    let kernels: u64 = profiler.finish()?.kernels().map(|row| row.count).sum();
    let mut timed = |repetitions: usize| -> Result<f64> {
        let start = Instant::now();
        for _ in 0..repetitions {
            step()?;
        }
        // On a device with a queue, the work has only been submitted so far.
        device.synchronize()?;
        Ok(start.elapsed().as_secs_f64() * 1e3 / repetitions as f64)
    };
    // On a device with a queue, repetitions follow each other without waiting, as in training.
    let repetitions = match device.info().nature {
        DeviceNature::HostCpu => 1,
        _ => (SAMPLE_MS / timed(1)?).clamp(1.0, 100.0) as usize,
    };
    let (mut times, begun) = (Vec::new(), Instant::now());
    while begun.elapsed().as_secs_f64() < seconds || times.len() < 5 {
        times.push(timed(repetitions)?);
    }
    times.sort_by(f64::total_cmp);
    let ms = times[times.len() / 2];
    let operations = workload.operations;
    Ok(Measured {
        name: workload.name.clone(),
        ms,
        peak_bytes,
        ns_an_operation: operations.map(|n| ms * 1e6 / n as f64),
        ns_a_kernel: operations.filter(|_| kernels > 0).map(|_| ms * 1e6 / kernels as f64),
        runs: times.len(),
        best: times[0],
    })
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<36} {:>10.3} ms", self.name, self.ms)?;
        write!(f, " {:>8.1} MiB   ", self.peak_bytes as f64 / f64::from(1 << 20))?;
        match (self.ns_an_operation, self.ns_a_kernel) {
            (Some(operation), Some(kernel)) => {
                write!(f, "{operation:.0} ns per operation, {kernel:.0} ns per kernel   ")?;
            }
            (Some(operation), None) => write!(f, "{operation:.0} ns per operation   ")?,
            _ => {}
        }
        write!(f, "(median of {}, best {:.3})", self.runs, self.best)
    }
}
