//! The rate of all-reduces between the GPUs of this machine: `all_reduce [MiB] [GPUs]`. Each rank is a thread.
//!
//! The bus bandwidth is that of nccl-tests: bytes of the tensor, times 2 (n - 1) / n for n ranks, over the time. The
//! lower bound of the time is what every rank must send and receive, at the rate of copies from one GPU to another.

use std::{
    error::Error,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use phynexus::{
    DType, Device, Result, Tensor,
    distributed::{Group, Transport, threads},
    op::{CollectiveKind, Combine, Loss},
    schedule::placement::observe,
};

const RUNS: u32 = 20;

fn main() -> Result<(), Box<dyn Error>> {
    phynexus_cpu::register();
    phynexus_cuda::register();
    let mut arguments = std::env::args().skip(1);
    let mebibytes: usize = arguments.next().map_or(Ok(1024), |text| text.parse())?;
    let found = (0..).map_while(|number| Device::find(&format!("cuda:{number}")).ok());
    let limit = arguments.next().map_or(Ok(usize::MAX), |text| text.parse())?;
    let gpus: Vec<Device> = found.take(limit).collect();
    println!("NCCL {:?}, {} GPUs, {mebibytes} MiB of float32", phynexus_cuda::nccl_version()?, gpus.len());
    let (bytes, size) = (mebibytes << 20, gpus.len());
    let rank = |transport: Arc<dyn Transport>, gpu: Device| measured(transport, gpu, bytes);
    let times: Vec<Result<Duration>> = thread::scope(|scope| {
        let ranks = threads(size, Duration::from_secs(60)).into_iter().zip(&gpus);
        let ranks: Vec<_> =
            ranks.map(|(transport, &gpu)| scope.spawn(move || rank(transport, gpu))).collect();
        let missing = || Err(phynexus::Error::internal("all_reduce", "a thread panicked"));
        ranks.into_iter().map(|rank| rank.join().unwrap_or_else(|_| missing())).collect()
    });
    let times = times.into_iter().collect::<Result<Vec<Duration>>>()?;
    let time = times.into_iter().max().unwrap_or_default().as_secs_f64();
    let share = 2.0 * (size as f64 - 1.0) / size as f64 * bytes as f64;
    println!("{:.3} ms, algorithm {:.1} GB/s", time * 1e3, bytes as f64 / time / 1e9);
    if let [first, second, ..] = gpus[..] {
        let copies = copied(first, second, bytes)?;
        println!("bus {:.1} GB/s", share / time / 1e9);
        println!("lower bound {:.3} ms, at {:.1} GB/s of copies", share / copies * 1e3, copies / 1e9);
    }
    Ok(())
}

/// The time of an all-reduce on one rank.
fn measured(transport: Arc<dyn Transport>, gpu: Device, bytes: usize) -> Result<Duration> {
    let group = Group::open(transport);
    let sum = CollectiveKind::AllReduce(Combine::Sum, Loss::Summed);
    let x = Tensor::ones(&[bytes / 4], DType::F32, gpu)?.evaluated()?;
    let run = || x.collective(sum, &group)?.evaluate();
    let (warm, placed) = observe(|| (0..3).try_for_each(|_| run()));
    warm?;
    if let Some(placement) = placed.first() {
        println!("rank {} reduces on the host: {}", group.rank(), placement.reason);
    }
    gpu.synchronize()?;
    group.transport().barrier()?;
    let begun = Instant::now();
    (0..RUNS).try_for_each(|_| run())?;
    gpu.synchronize()?;
    let time = begun.elapsed() / RUNS;
    group.close();
    Ok(time)
}

/// The rate of copies from one GPU to another, in bytes per second.
fn copied(from: Device, to: Device, bytes: usize) -> Result<f64> {
    let x = Tensor::ones(&[bytes / 4], DType::F32, from)?.evaluated()?;
    let run = || x.to_device(to)?.evaluate();
    run()?;
    to.synchronize()?;
    let begun = Instant::now();
    (0..RUNS).try_for_each(|_| run())?;
    to.synchronize()?;
    Ok(bytes as f64 / (begun.elapsed() / RUNS).as_secs_f64())
}
