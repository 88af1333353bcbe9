//! `neurenix bench`: the time of well-known workloads on this machine.

mod workloads;

use std::{process::ExitCode, time::Instant};

use neurenix::{Result, phynexus::Device};

#[derive(clap::Args)]
pub(super) struct Arguments {
    /// The device
    #[arg(long, default_value = "cpu")]
    device: String,
    /// Threads of the CPU device; all cores if not given
    #[arg(long)]
    threads: Option<usize>,
    /// Only workloads whose name contains this
    #[arg(long, default_value = "")]
    filter: String,
    /// Seconds to measure each workload
    #[arg(long, default_value_t = 1.5)]
    seconds: f64,
    /// Print a JSON line for each
    #[arg(long)]
    json: bool,
}

pub(super) fn run(arguments: &Arguments) -> Result<ExitCode> {
    if let Some(threads) = arguments.threads {
        neurenix::set_threads(threads)?;
    }
    let device = Device::find(&arguments.device)?;
    for workload in workloads::all() {
        if !workload.name.contains(&arguments.filter) {
            continue;
        }
        let mut step = (workload.prepare)(device)?;
        for _ in 0..3 {
            step()?;
        }
        let (mut times, begun) = (Vec::new(), Instant::now());
        while begun.elapsed().as_secs_f64() < arguments.seconds || times.len() < 5 {
            let start = Instant::now();
            step()?;
            times.push(start.elapsed().as_secs_f64() * 1e3);
        }
        times.sort_by(f64::total_cmp);
        let median = times[times.len() / 2];
        if arguments.json {
            println!("{{\"name\": {:?}, \"ms\": {median}}}", workload.name);
        } else {
            println!(
                "{:<28} {median:>10.3} ms   (median of {}, best {:.3})",
                workload.name,
                times.len(),
                times[0]
            );
        }
    }
    Ok(ExitCode::SUCCESS)
}
