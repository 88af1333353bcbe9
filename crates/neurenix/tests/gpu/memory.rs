//! Memory that steps need while they run.

use phynexus::{Device, Result, Tensor};

use crate::driver::device;

/// The greatest number of bytes in use besides operands and results while one plan computes so many products with long
/// sums, which are computed in parts.
fn working_memory(x: &Tensor, device: Device, products: usize) -> Result<usize> {
    let columns = x.t()?;
    let all = (0..products).map(|factor| x.mul_scalar(factor as i64)?.matmul(&columns));
    let all = all.collect::<Result<Vec<_>>>()?;
    let before = device.memory().allocated;
    device.reset_peak_memory();
    Tensor::evaluate_all(&all.iter().collect::<Vec<_>>())?;
    let peak = device.memory().peak - before;
    let length = x.shape()[1];
    for (factor, product) in all.iter().enumerate() {
        assert!(product.to_vec::<f32>()?.iter().all(|&sum| sum == (factor * length) as f32));
    }
    Ok(peak - all.iter().map(|product| product.len() * size_of::<f32>()).sum::<usize>())
}

#[test]
fn steps_share_the_memory_for_their_parts() -> Result<()> {
    let (device, _) = device("memory:0", true);
    let x = Tensor::from_slice(&vec![1f32; 4 << 11], &[4, 1 << 11], device)?;
    let (two, five) = (working_memory(&x, device, 2)?, working_memory(&x, device, 5)?);
    assert!(two > 0 && five <= two, "{two} and {five} bytes");
    Ok(())
}
