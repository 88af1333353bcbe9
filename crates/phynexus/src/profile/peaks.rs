//! What a device can do at most, measured where its driver does not tell.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use crate::{
    DType, Result, Tensor,
    device::{Device, Peaks},
    graph::no_grad,
};

/// A measurement that takes less is repeated with more data.
const LONG_ENOUGH: Duration = Duration::from_millis(5);
/// The shortest of so many runs counts.
const RUNS: usize = 5;

static KNOWN: Mutex<Option<HashMap<u64, Peaks>>> = Mutex::new(None);

/// The peaks of a device by a copy and a product; known ones after the first time.
pub(super) fn measured(device: Device) -> Result<Peaks> {
    let known = || KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(peaks) = known().as_ref().and_then(|known| known.get(&device.identity())) {
        return Ok(*peaks);
    }
    let peaks = Peaks { bytes: Some(copy(device)?), operations: Some(product(device)?) };
    known().get_or_insert_default().insert(device.identity(), peaks);
    Ok(peaks)
}

/// Bytes a second read and written by a kernel that changes a sign. The tensors grow until caches do not hold them.
fn copy(device: Device) -> Result<f64> {
    let mut best = 0f64;
    for elements in (12..=26).step_by(2).map(|power| 1usize << power) {
        let x = Tensor::ones(&[elements], DType::F32, device)?.evaluated()?;
        let time = shortest(device, || x.neg())?;
        best = (2 * elements * size_of::<f32>()) as f64 / time.as_secs_f64();
        if time >= LONG_ENOUGH {
            break;
        }
    }
    Ok(best)
}

/// Operations a second of a product of square matrices.
fn product(device: Device) -> Result<f64> {
    let mut best = 0f64;
    for size in (4..=12).map(|power| 1usize << power) {
        let a = Tensor::ones(&[size, size], DType::F32, device)?.evaluated()?;
        let time = shortest(device, || a.matmul(&a))?;
        best = best.max(2.0 * (size as f64).powi(3) / time.as_secs_f64());
        if time >= LONG_ENOUGH {
            break;
        }
    }
    Ok(best)
}

/// The shortest of several runs, after one that makes the plan.
fn shortest(device: Device, run: impl Fn() -> Result<Tensor>) -> Result<Duration> {
    let _guard = no_grad();
    let mut best = Duration::MAX;
    for _ in 0..=RUNS {
        let begun = Instant::now();
        drop(run()?.evaluated()?);
        device.synchronize()?;
        best = best.min(begun.elapsed());
    }
    Ok(best.max(Duration::from_nanos(1)))
}
