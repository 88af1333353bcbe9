//! Copies between the host, a device and other devices: compared bit for bit, and timed.

use std::{fmt, time::Instant};

use phynexus::{Device, Tensor};

use crate::Result;

/// The sizes of the copied tensors in bytes.
const SIZES: [usize; 4] = [4, 60_000, 4 << 20, 256 << 20];
/// The minimum time for repeating a copy.
const SECONDS: f64 = 0.2;

/// The result of copying along one route.
#[derive(Clone, Debug)]
pub struct Copied {
    /// The source.
    pub from: String,
    /// The destination.
    pub to: String,
    /// The size of the tensor in bytes.
    pub bytes: usize,
    /// The time of the fastest copy in seconds.
    pub seconds: f64,
    /// True if all bytes are equal.
    pub exact: bool,
}

impl fmt::Display for Copied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Copied { from, to, bytes, seconds, exact } = self;
        let rate = *bytes as f64 / seconds.max(1e-9) / 1e9;
        let words = if *exact { "exact" } else { "WRONG" };
        write!(f, "{from} to {to}: {bytes} bytes in {:.1} us, {rate:.2} GB/s, {words}", seconds * 1e6)
    }
}

/// Copies tensors of several sizes from the host to the device and back, and between the device and every other device.
pub fn copies(device: Device) -> Result<Vec<Copied>> {
    let mut all = Vec::new();
    for bytes in SIZES {
        let data: Vec<u8> = (0..bytes).map(|i| (i.wrapping_mul(2654435761) >> 7) as u8).collect();
        let tensor = Tensor::from_slice(&data, &[bytes], device)?;
        let way = |from: &str, to: &str, (seconds, exact): (f64, bool)| Copied {
            from: from.to_owned(),
            to: to.to_owned(),
            bytes,
            seconds,
            exact,
        };
        let name = device.name();
        let backend = device.backend();
        let buffer = backend.allocate(bytes)?;
        let mut read = vec![0; bytes];
        let [mut written, mut taken] = [(f64::INFINITY, true); 2];
        let all_begun = Instant::now();
        while all_begun.elapsed().as_secs_f64() < SECONDS {
            device.synchronize()?;
            let begun = Instant::now();
            backend.write(&buffer, 0, &data)?;
            device.synchronize()?;
            written.0 = written.0.min(begun.elapsed().as_secs_f64());
            read.fill(0);
            let begun = Instant::now();
            backend.read(&buffer, 0, &mut read)?;
            taken = (taken.0.min(begun.elapsed().as_secs_f64()), taken.1 && read == data);
        }
        written.1 = taken.1;
        all.push(way("host", name, written));
        all.push(way(name, "host", taken));
        for other in phynexus::device::devices().into_iter().filter(|&other| other != device) {
            let there =
                |to: Device, tensor: &Tensor| -> Result<Tensor> { Ok(tensor.to_device(to)?.evaluated()?) };
            let copy = there(other, &tensor)?;
            all.push(way(name, other.name(), timed(other, &data, || there(other, &tensor))?));
            all.push(way(other.name(), name, timed(device, &data, || there(device, &copy))?));
        }
    }
    Ok(all)
}

/// The time in seconds of the fastest of several copies to a device, and whether all bytes are equal.
fn timed(device: Device, data: &[u8], copy: impl Fn() -> Result<Tensor>) -> Result<(f64, bool)> {
    let (mut seconds, mut exact, all) = (f64::INFINITY, true, Instant::now());
    while all.elapsed().as_secs_f64() < SECONDS {
        device.synchronize()?;
        let begun = Instant::now();
        let tensor = copy()?;
        device.synchronize()?;
        seconds = seconds.min(begun.elapsed().as_secs_f64());
        exact &= tensor.to_bytes()? == data;
    }
    Ok((seconds, exact))
}
