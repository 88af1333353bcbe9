//! Collectives on GPUs, whose ranks are threads: `cargo test -p phynexus-cuda --test collectives -- --ignored`.
//!
//! Needs an NVIDIA GPU and NCCL. What needs two GPUs says so where there is one.
#![cfg(feature = "driver")]

use std::{
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use phynexus::{
    DType, Device, Error, Result, Tensor,
    distributed::{Group, Transport, threads},
    op::{CollectiveKind, Combine, Loss},
    schedule::{
        capture::Captured,
        placement::{Placement, observe},
    },
};

const WAIT: Duration = Duration::from_secs(60);
const SUM: CollectiveKind = CollectiveKind::AllReduce(Combine::Sum, Loss::Summed);

/// Those that NCCL combines.
const COMBINED: [DType; 10] = [
    DType::U8,
    DType::U32,
    DType::U64,
    DType::I8,
    DType::I32,
    DType::I64,
    DType::F16,
    DType::BF16,
    DType::F32,
    DType::F64,
];

fn gpu(number: usize) -> Device {
    phynexus_cpu::register();
    phynexus_cuda::register();
    Device::find(&format!("cuda:{number}")).unwrap()
}

/// Whether there are two GPUs. Otherwise, prints that a test is skipped.
fn has_two() -> bool {
    gpu(0);
    let has = Device::find("cuda:1").is_ok();
    if !has {
        println!("skipped: it needs two GPUs");
    }
    has
}

/// Runs a function on every rank of a new group, each on a thread. Returns its results in the order of the ranks.
fn on_ranks<T: Send>(size: usize, timeout: Duration, run: impl Fn(&Arc<Group>) -> T + Sync) -> Vec<T> {
    let rank = |transport: Arc<dyn Transport>| {
        let group = Group::open(transport);
        let result = run(&group);
        group.close();
        result
    };
    thread::scope(|scope| {
        let ranks = threads(size, timeout).into_iter().map(|transport| scope.spawn(|| rank(transport)));
        let ranks: Vec<_> = ranks.collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

/// Small whole numbers that differ from rank to rank.
fn numbers(rank: usize, count: usize) -> Vec<f64> {
    (0..count).map(|at| ((at * 7 + rank * 13) % 3) as f64 + 1.0).collect()
}

fn tensor(values: &[f64], shape: &[usize], dtype: DType, device: Device) -> Tensor {
    let values = Tensor::from_slice(values, shape, Device::find("cpu").unwrap()).unwrap();
    values.to_dtype(dtype).unwrap().to_device(device).unwrap()
}

fn values(tensor: &Tensor) -> Vec<f64> {
    tensor.to_dtype(DType::F64).unwrap().to_vec::<f64>().unwrap()
}

/// Every collective that NCCL has for a dtype, but sends.
fn kinds(dtype: DType, root: u32) -> Vec<CollectiveKind> {
    let mut kinds = vec![
        CollectiveKind::AllGather { again: false },
        CollectiveKind::AllToAll,
        CollectiveKind::Broadcast { root },
    ];
    if COMBINED.contains(&dtype) {
        kinds.push(CollectiveKind::Reduce { root });
        let extremes = [Combine::Max, Combine::Min].into_iter().filter(|_| !dtype.is_float());
        for combine in [Combine::Sum, Combine::Prod].into_iter().chain(extremes) {
            kinds.push(CollectiveKind::AllReduce(combine, Loss::Summed));
            kinds.push(CollectiveKind::ReduceScatter(combine));
        }
    }
    kinds
}

/// Runs a collective on a GPU, and returns its result and that of the host.
fn compared(kind: CollectiveKind, dtype: DType, rows: usize, group: &Group, device: Device) -> [Vec<f64>; 2] {
    let (count, shape) = (rows * group.size() * 3, [rows * group.size(), 3]);
    let own = numbers(group.rank(), count);
    // The GPU's operand is a view whose elements are not in order.
    let turned = tensor(&own, &shape, dtype, device).transpose(0, 1).unwrap().contiguous().unwrap();
    turned.evaluate().unwrap();
    let on_gpu = turned.transpose(0, 1).unwrap().collective(kind, group).unwrap();
    let (found, placed) = observe(|| values(&on_gpu));
    assert!(placed.is_empty(), "{kind:?} {dtype}: {placed:?}");
    let on_host = tensor(&own, &shape, dtype, Device::find("cpu").unwrap()).collective(kind, group).unwrap();
    [found, values(&on_host)]
}

/// Compares every collective with the host's result, on so many GPUs.
fn compare_all(size: usize) {
    on_ranks(size, WAIT, |group| {
        for dtype in DType::ALL {
            for kind in kinds(dtype, size as u32 - 1) {
                for rows in [0, 1, 5, 30_000] {
                    let [found, expected] = compared(kind, dtype, rows, group, gpu(group.rank()));
                    assert!(found == expected, "{kind:?} {dtype} of {size} ranks, {rows} rows");
                }
            }
        }
    });
}

#[test]
#[ignore = "needs an NVIDIA GPU and NCCL"]
fn a_group_of_one_rank_uses_nccl() {
    println!("NCCL {:?}", phynexus_cuda::nccl_version().unwrap());
    compare_all(1);
}

#[test]
#[ignore = "needs an NVIDIA GPU and NCCL"]
fn what_nccl_lacks_is_computed_by_the_host_and_reported() {
    let device = gpu(0);
    let max = CollectiveKind::AllReduce(Combine::Max, Loss::Summed);
    for (kind, dtype, reason) in [
        (SUM, DType::I16, "NCCL does not combine int16"),
        (SUM, DType::U16, "NCCL does not combine uint16"),
        (max, DType::F32, "NCCL ignores NaN"),
    ] {
        on_ranks(1, WAIT, |group| {
            let y = tensor(&[1.0, f64::from(2)], &[2], dtype, device).collective(kind, group).unwrap();
            let (found, placed) = observe(|| values(&y));
            assert_eq!(found, [1.0, 2.0]);
            let [Placement { step, device, reason: given, .. }] = &placed[..] else { panic!("{placed:?}") };
            assert_eq!((step.as_str(), device.as_str()), ("all_reduce", "cpu"));
            assert!(given.starts_with(reason), "{given}");
        });
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn two_ranks_on_a_gpu_go_through_the_host() {
    let device = gpu(0);
    let found = on_ranks(2, WAIT, |group| {
        let own = tensor(&numbers(group.rank(), 6), &[6], DType::F32, device);
        let y = own.mul_scalar(2.0).unwrap().collective(SUM, group).unwrap().add_scalar(1.0).unwrap();
        observe(|| values(&y))
    });
    let sum = numbers(0, 6).into_iter().zip(numbers(1, 6)).map(|(a, b)| 2.0 * (a + b) + 1.0);
    let sum: Vec<f64> = sum.collect();
    let expected = match phynexus_cuda::nccl_version() {
        Ok(_) => "ranks 0 and 1 are on the same GPU".to_owned(),
        Err(reason) => format!("rank 0: {reason}"),
    };
    for (found, placed) in found {
        assert_eq!(found, sum);
        let reasons: Vec<&str> = placed.iter().map(|placement| placement.reason.as_str()).collect();
        assert_eq!(reasons, [expected.as_str()]);
    }
}

/// A step that reduces parts of a large gradient while it computes, and then uses and overwrites everything.
fn step(parts: &[Tensor], group: Option<&Group>) -> Result<Vec<Tensor>> {
    let mut gradients = Vec::new();
    for part in parts {
        let gradient = part.mul(part)?.add_scalar(1.0)?.sqrt()?.mul_scalar(0.5)?.reshape(&[part.len()])?;
        gradients.push(match group {
            Some(group) => gradient.collective(SUM, group)?.mul_scalar(1.0 / group.size() as f64)?,
            None => gradient,
        });
    }
    let mut results = Vec::new();
    for (part, gradient) in parts.iter().zip(&gradients) {
        results.push(part.sub(&gradient.reshape(part.shape())?.mul_scalar(0.01)?)?);
    }
    Ok(results)
}

/// The parameters after some steps.
fn trained(steps: usize, device: Device, group: Option<&Group>) -> Result<Vec<Vec<f32>>> {
    let captured = Captured::new(|given: &[Tensor], _: &[Tensor]| step(given, group));
    let start = |part: usize| -> Result<Tensor> {
        let values: Vec<f32> = (0..1 << 20).map(|at| ((at + part) % 97) as f32 / 97.0 - 0.5).collect();
        Tensor::from_slice(&values, &[1 << 10, 1 << 10], device)
    };
    let mut parts = (0..6).map(start).collect::<Result<Vec<Tensor>>>()?;
    for at in 0..steps {
        parts = match at % 3 {
            // Some steps without capturing, whose memory is taken and freed.
            0 => step(&parts, group)?,
            _ => captured.call(&mut parts, &[])?,
        };
        if at % 5 == 0 {
            parts.iter().try_for_each(Tensor::evaluate)?;
        }
    }
    parts.iter().map(|part| part.to_vec::<f32>()).collect()
}

#[test]
#[ignore = "needs an NVIDIA GPU and NCCL"]
fn kernels_beside_collectives_compute_the_same() {
    let device = gpu(0);
    let expected = trained(40, device, None).unwrap();
    let found = on_ranks(1, WAIT, |group| observe(|| trained(40, device, Some(group)).unwrap()));
    for (found, placed) in found {
        assert!(placed.is_empty(), "{placed:?}");
        assert!(found == expected, "a kernel did not wait for a collective, or a collective for a kernel");
    }
    device.synchronize().unwrap();
}

#[test]
#[ignore = "needs an NVIDIA GPU and NCCL"]
fn a_closed_group_computes_no_more() {
    let device = gpu(0);
    on_ranks(1, WAIT, |group| {
        let x = tensor(&[1.0, 2.0], &[2], DType::F32, device);
        assert_eq!(values(&x.collective(SUM, group).unwrap()), [1.0, 2.0]);
        let late = x.collective(SUM, group).unwrap();
        group.close();
        assert!(matches!(late.evaluate(), Err(Error::Argument { .. })));
        assert_eq!(values(&x), [1.0, 2.0]);
    });
}

#[test]
#[ignore = "needs two NVIDIA GPUs and NCCL"]
fn two_gpus_compute_as_the_host() {
    if has_two() {
        compare_all(2);
    }
}

#[test]
#[ignore = "needs two NVIDIA GPUs and NCCL"]
fn two_gpus_send_and_receive() {
    if !has_two() {
        return;
    }
    let found = on_ranks(2, WAIT, |group| {
        let x = tensor(&numbers(group.rank(), 1000), &[1000], DType::F32, gpu(group.rank()));
        let kind = match group.rank() {
            0 => CollectiveKind::Send { to: 1 },
            _ => CollectiveKind::Receive { from: 0 },
        };
        let y = x.collective(kind, group).unwrap();
        observe(|| values(&y))
    });
    assert_eq!(found[0], (vec![0.0; 1000], Vec::new()));
    assert_eq!(found[1], (numbers(0, 1000), Vec::new()));
}

#[test]
#[ignore = "needs two NVIDIA GPUs and NCCL"]
fn kernels_of_two_gpus_beside_collectives_compute_the_same() {
    if !has_two() {
        return;
    }
    let expected = trained(40, gpu(0), None).unwrap();
    // The mean of equal gradients.
    for found in on_ranks(2, WAIT, |group| trained(40, gpu(group.rank()), Some(group)).unwrap()) {
        assert!(found == expected);
    }
}

#[test]
#[ignore = "needs two NVIDIA GPUs and NCCL"]
fn a_rank_that_does_not_come_is_an_error_in_time() {
    if !has_two() {
        return;
    }
    let limit = Duration::from_secs(3);
    let found = on_ranks(2, limit, |group| {
        let x = tensor(&[1.0, 2.0], &[2], DType::F32, gpu(group.rank()));
        let sum = || x.collective(SUM, group).map(|sum| sum.to_vec::<f32>());
        assert_eq!(sum().unwrap().unwrap(), [2.0, 4.0]);
        if group.rank() == 1 {
            thread::sleep(4 * limit);
            return None;
        }
        let begun = Instant::now();
        let error = sum().unwrap().unwrap_err();
        let took = begun.elapsed();
        // Nothing that the device holds is known, while the group is open.
        assert!(x.to_vec::<f32>().is_err());
        Some((error, took))
    });
    let Some((Error::Collective { message, rank, size, .. }, took)) = &found[0] else { panic!("{found:?}") };
    assert!(message.contains("did not come") && (*rank, *size) == (0, 2), "{message}");
    assert!(*took < 3 * limit, "{took:?}");
    // After the group was closed, the device computes again.
    let x = tensor(&[3.0], &[1], DType::F32, gpu(0));
    assert_eq!(values(&x.mul_scalar(2.0).unwrap()), [6.0]);
}
