//! `neurenix bench --collectives`: the speed of collectives among processes.

use std::time::{Duration, Instant};

use neurenix::{
    Error, Result,
    phynexus::{
        DType, Device, Tensor,
        distributed::Group,
        op::{CollectiveKind, Combine, Loss},
    },
};
use serde::Serialize;

use super::Arguments;
use crate::commands::{SUCCESS, described, member::Member, print_json};

/// How many times a rank's bytes cross its link in an ideal algorithm, given the number of ranks. NCCL's tests call bytes
/// times this, over time, the bus bandwidth.
type Crossings = fn(f64) -> f64;

const KINDS: [(CollectiveKind, Crossings); 5] = [
    (CollectiveKind::AllReduce(Combine::Sum, Loss::Summed), |n| 2.0 * (n - 1.0) / n),
    (CollectiveKind::ReduceScatter(Combine::Sum), |n| (n - 1.0) / n),
    (CollectiveKind::AllGather { again: false }, |n| (n - 1.0) / n),
    (CollectiveKind::Broadcast { root: 0 }, |_| 1.0),
    (CollectiveKind::AllToAll, |n| (n - 1.0) / n),
];

/// The median of one kind and size.
#[derive(Serialize)]
struct Measured {
    collective: &'static str,
    /// Of the whole tensor: of all ranks' parts, where it is divided.
    bytes: usize,
    ranks: usize,
    microseconds: f64,
    /// In GB/s.
    bus_bandwidth: f64,
}

pub(super) fn run(arguments: &Arguments) -> Result<u8> {
    let Some(member) = Member::join(arguments.threads)? else {
        let message = "there is one process: use neurenix launch --processes 2 neurenix bench --collectives";
        return Err(Error::data("--collectives", message));
    };
    let device = member.device(crate::commands::device(arguments.device.as_deref())?)?;
    let group = &member.group;
    let shows = member.leads() && !arguments.json;
    if shows {
        say!("{} ranks by {}, float32 on {}", group.size(), group.transport().name(), described(device))?;
        say!("{:<16}{:>12}{:>12}{:>16}", "collective", "bytes", "µs", "bus GB/s")?;
    }
    for (kind, crossings) in KINDS {
        for exponent in [12, 16, 20, 24, 26] {
            let measured = measure(kind, crossings, 1 << exponent, group, device, arguments.seconds)?;
            if shows {
                say!(
                    "{:<16}{:>12}{:>12.1}{:>16.2}",
                    measured.collective,
                    measured.bytes,
                    measured.microseconds,
                    measured.bus_bandwidth
                )?;
            } else if member.leads() {
                print_json(&measured)?;
            }
        }
    }
    Ok(SUCCESS)
}

fn measure(
    kind: CollectiveKind,
    crossings: Crossings,
    bytes: usize,
    group: &Group,
    device: Device,
    seconds: f64,
) -> Result<Measured> {
    let ranks = group.size();
    let whole = bytes / 4 / ranks * ranks;
    let gathers = matches!(kind, CollectiveKind::AllGather { .. });
    let own = if gathers { whole / ranks } else { whole };
    let operand = Tensor::zeros(&[own], DType::F32, device)?.evaluated()?;
    let once = || -> Result<Duration> {
        let result = operand.collective(kind, group)?;
        let begun = Instant::now();
        result.evaluate()?;
        device.synchronize()?;
        Ok(begun.elapsed())
    };
    once()?;
    let first = once()?;
    // Every rank takes as many samples as rank 0 decides.
    let mut count = ((seconds / first.as_secs_f64()) as u64).clamp(3, 200).to_le_bytes();
    group.transport().broadcast(&mut count, 0)?;
    let mut times = Vec::new();
    for _ in 0..u64::from_le_bytes(count) {
        group.transport().barrier()?;
        times.push(once()?);
    }
    times.sort_unstable();
    let median = times[times.len() / 2].as_secs_f64();
    Ok(Measured {
        collective: kind.name(),
        bytes: whole * 4,
        ranks,
        microseconds: median * 1e6,
        bus_bandwidth: (whole * 4) as f64 * crossings(ranks as f64) / median / 1e9,
    })
}
