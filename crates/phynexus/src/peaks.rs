//! Measures a device's peak rates if its driver does not report them.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use crate::{
    DType, Result, Tensor,
    device::{Device, Peaks},
    op::gradient::no_grad,
    profile::{PeakOrigin, Profile, ProfileRow},
    text::show_bytes,
};

impl Profile {
    /// Measures the peak rates that drivers do not report, with a copy and a matrix product. Each device is measured
    /// once per process.
    ///
    /// # Errors
    /// Errors of computing on the device.
    pub fn measure_peaks(&mut self) -> Result<()> {
        self.measure_peaks_with(&mut |_| {})
    }

    /// Like [`measure_peaks`](Profile::measure_peaks), but calls `tell` with a description of each measurement before
    /// it starts. A device that computes or compiles slowly takes seconds.
    ///
    /// # Errors
    /// Like [`measure_peaks`](Profile::measure_peaks).
    pub fn measure_peaks_with(&mut self, tell: &mut dyn FnMut(&str)) -> Result<()> {
        let Profile { rows, devices, .. } = self;
        for device in devices {
            if device.peaks.bytes.is_none() || device.peaks.operations.is_none() {
                device.peaks = measured(device.device, tell)?;
                // Other programs may have slowed the measurement, so a rate reached in the profile raises the peak.
                // This does not apply to bytes, which may have come from a cache.
                let own = rows.iter().filter(|row| row.device == device.device.name() && row.has_roof());
                let reached = own.filter_map(ProfileRow::operations_per_second).fold(0.0, f64::max);
                device.peaks.operations = device.peaks.operations.map(|most| most.max(reached));
                device.origin = PeakOrigin::Measured;
            }
        }
        Ok(())
    }
}

/// A run shorter than this is repeated with more data.
const LONG_ENOUGH: Duration = Duration::from_millis(10);
/// The number of runs, of which the shortest counts.
const RUNS: usize = 5;
/// No further run starts once a measurement has taken this long.
const MEASUREMENT: Duration = Duration::from_millis(50);

/// Receives the description of the next measurement.
type Tell<'a> = dyn FnMut(&str) + 'a;

static KNOWN: Mutex<Option<HashMap<u64, Peaks>>> = Mutex::new(None);

/// Returns a device's peaks, measured by a copy and a product. The result is cached.
fn measured(device: Device, tell: &mut Tell<'_>) -> Result<Peaks> {
    let known = || KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(peaks) = known().as_ref().and_then(|known| known.get(&device.identity())) {
        return Ok(*peaks);
    }
    let peaks = Peaks { bytes: Some(copy(device, tell)?), operations: Some(product(device, tell)?) };
    known().get_or_insert_default().insert(device.identity(), peaks);
    Ok(peaks)
}

/// Returns the bytes per second read and written by a kernel that negates a tensor. The tensors grow until they no
/// longer fit in caches.
fn copy(device: Device, tell: &mut Tell<'_>) -> Result<f64> {
    const MOST: usize = 1 << 26;
    let mut elements = 1usize << 16;
    loop {
        let bytes = elements * size_of::<f32>();
        tell(&format!("{device}: a copy of {}", show_bytes(bytes)));
        let x = Tensor::ones(&[elements], DType::F32, device)?.evaluated()?;
        let time = shortest(device, || x.neg())?;
        if time >= LONG_ENOUGH || elements == MOST {
            return Ok((2 * bytes) as f64 / time.as_secs_f64());
        }
        elements = (elements * growth(time, 1, 64)).min(MOST);
    }
}

/// Returns the operations per second of a product of square matrices.
fn product(device: Device, tell: &mut Tell<'_>) -> Result<f64> {
    const MOST: usize = 1 << 12;
    let (mut size, mut best) = (1usize << 6, 0f64);
    loop {
        tell(&format!("{device}: a product of {size} x {size}"));
        let a = Tensor::ones(&[size, size], DType::F32, device)?.evaluated()?;
        let time = shortest(device, || a.matmul(&a))?;
        best = best.max(2.0 * (size as f64).powi(3) / time.as_secs_f64());
        if time >= LONG_ENOUGH || size == MOST {
            return Ok(best);
        }
        size = (size * growth(time, 3, 8)).min(MOST);
    }
}

/// Returns the factor by which the sides of the next tensors grow: a power of two, at least 2 and at most `most`. The
/// next run should take about [`LONG_ENOUGH`] or less, if work grows with the side to the power `power`. Every size
/// needs a separate kernel, which some devices compile slowly.
fn growth(time: Duration, power: u32, most: usize) -> usize {
    let lack = LONG_ENOUGH.as_secs_f64() / time.as_secs_f64();
    let mut factor = 2usize;
    while 2 * factor <= most && ((2 * factor) as f64).powi(power as i32) <= lack {
        factor *= 2;
    }
    factor
}

/// Returns the shortest of several runs, after one that makes the plan.
fn shortest(device: Device, run: impl Fn() -> Result<Tensor>) -> Result<Duration> {
    let _guard = no_grad();
    let timed = || -> Result<Duration> {
        let begun = Instant::now();
        drop(run()?.evaluated()?);
        device.synchronize()?;
        Ok(begun.elapsed().max(Duration::from_nanos(1)))
    };
    timed()?;
    let (mut best, mut all) = (Duration::MAX, Duration::ZERO);
    for _ in 0..RUNS {
        let time = timed()?;
        best = best.min(time);
        all += time;
        if all >= MEASUREMENT {
            break;
        }
    }
    Ok(best)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_grow_by_what_a_run_lacks() {
        let ms = Duration::from_millis;
        assert_eq!([growth(ms(9), 1, 64), growth(ms(3), 1, 64), growth(ms(1), 1, 64)], [2, 2, 8]);
        assert_eq!([growth(ms(1), 3, 8), growth(Duration::from_micros(100), 3, 8)], [2, 4]);
        assert_eq!(growth(Duration::from_nanos(1), 1, 64), 64);
        assert_eq!(growth(Duration::from_nanos(1), 3, 8), 8);
    }

    #[test]
    fn a_slow_device_is_measured_by_little_work() {
        let mut told = Vec::new();
        let device = crate::oracle::reference_device();
        let peaks = measured(device, &mut |what: &str| told.push(what.to_owned())).unwrap();
        assert!(
            peaks.bytes.is_some_and(|rate| rate > 0.0) && peaks.operations.is_some_and(|rate| rate > 0.0)
        );
        assert!(told.iter().all(|what| what.starts_with("reference: a ")), "{told:?}");
        assert!(told[0].contains("a copy of 262"), "{told:?}");
        assert!(told.iter().any(|what| what.contains("a product of 64 x 64")), "{told:?}");
        // The second call returns the cached result.
        let again = measured(device, &mut |what: &str| panic!("{what}")).unwrap();
        assert_eq!(again, peaks);
    }
}
