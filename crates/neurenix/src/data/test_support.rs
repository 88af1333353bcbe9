//! Helpers for the tests of file readers.

use half::{bf16, f16};

use super::HostArray;
use super::random::RandomStream;
use crate::Result;

/// A small array of every dtype, shape [2, 3], whose values reveal wrong byte orders and signs.
pub(crate) fn arrays_of_every_dtype() -> Result<Vec<HostArray>> {
    let shape = [2, 3];
    let half = [0.0, -1.5, 65504.0, f32::INFINITY, 1e-5, 0.333];
    Ok(vec![
        HostArray::from_values(&shape, &[true, false, true, true, false, false])?,
        HostArray::from_values(&shape, &[0u8, 1, 2, 127, 128, 255])?,
        HostArray::from_values(&shape, &[0u16, 1, 258, 0x7fff, 0x8000, u16::MAX])?,
        HostArray::from_values(&shape, &[0u32, 1, 0x0102_0304, 9, 8, u32::MAX])?,
        HostArray::from_values(&shape, &[0u64, 1, 0x0102_0304_0506_0708, 9, 8, u64::MAX])?,
        HostArray::from_values(&shape, &[0i8, 1, -1, 2, i8::MIN, i8::MAX])?,
        HostArray::from_values(&shape, &[0i16, 1, -1, 258, i16::MIN, i16::MAX])?,
        HostArray::from_values(&shape, &[0i32, 1, -1, 0x0102_0304, i32::MIN, i32::MAX])?,
        HostArray::from_values(&shape, &[0i64, 1, -1, 0x0102_0304_0506_0708, i64::MIN, i64::MAX])?,
        HostArray::from_values(&shape, &half.map(f16::from_f32))?,
        HostArray::from_values(&shape, &half.map(bf16::from_f32))?,
        HostArray::from_values(&shape, &half)?,
        HostArray::from_values(&shape, &[0.0f64, -1.5, 1e300, f64::NEG_INFINITY, 1e-300, 1.0 / 3.0])?,
    ])
}

/// Passes every truncation of a valid file and `rounds` random corruptions (flipped, inserted, removed and repeated
/// bytes) to a reader. The reader must return a value or an error and not panic. Truncated files must be errors.
pub(crate) fn survives_mutations(valid: &[u8], rounds: u64, read: impl Fn(&[u8]) -> Result<()>) {
    assert!(read(valid).is_ok(), "the file to corrupt must be valid");
    let step = (valid.len() / 600).max(1);
    for length in (0..valid.len()).step_by(step) {
        assert!(read(&valid[..length]).is_err(), "accepted the first {length} of {} bytes", valid.len());
    }
    survives_corruption(valid, rounds, read);
}

/// Only the random corruptions of [`survives_mutations`], for formats whose truncations may be valid.
pub(crate) fn survives_corruption(valid: &[u8], rounds: u64, read: impl Fn(&[u8]) -> Result<()>) {
    for round in 0..rounds {
        let mut random = RandomStream::new(0xf422, round);
        let mut bytes = valid.to_vec();
        for _ in 0..=random.below(4) {
            // Half of the changes affect the first 200 bytes, which contain the headers.
            let span = if random.below(2) == 0 { bytes.len().min(200) } else { bytes.len() };
            let at = random.below(span as u64) as usize;
            match random.below(6) {
                0 => bytes[at] = random.next_u64() as u8,
                1 => bytes[at] ^= 1 << random.below(8),
                2 => bytes.insert(at, random.next_u64() as u8),
                3 if bytes.len() > 1 => drop(bytes.remove(at)),
                4 => bytes[at] = [0, 0xff, 0x7f, b'9'][random.below(4) as usize],
                _ => {
                    let end = (at + 1 + random.below(8) as usize).min(bytes.len());
                    let repeated = bytes[at..end].to_vec();
                    bytes.splice(at..at, repeated);
                }
            }
        }
        // Any result is fine, as long as the reader returns.
        let _ = read(&bytes);
    }
}
