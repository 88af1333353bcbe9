//! A loop around an optimiser that keeps values without reading them uses the memory of a loop that computes them at
//! once, plus one version of the weights. A separate program, because it counts the bytes of the whole device.

use neurenix::{
    Result,
    nn::Parameter,
    optim::{Optimizer, Rule},
};
use phynexus::{DType, Device, Tensor};

/// The peak number of bytes in use during this many steps, after ten warm-up steps.
fn peak(device: Device, steps: usize, evaluated: bool) -> Result<usize> {
    let weight = Parameter::new(&Tensor::rand(&[256, 256], DType::F32, device)?)?;
    let mut optimizer = Optimizer::new(Rule::momentum(0.9), vec![weight.clone()], 1e-3)?;
    let x = Tensor::rand(&[2, 256], DType::F32, device)?.evaluated()?;
    let mut average = weight.tensor().detach()?;
    let mut total = Tensor::zeros(&[], DType::F32, device)?;
    for step in 0..10 + steps {
        if step == 10 {
            device.reset_peak_memory();
        }
        let loss = x.matmul(&weight.leaf()?)?.square()?.mean(&[], false)?;
        optimizer.step(loss.leaf_gradients()?, &[])?;
        average = average.mul_scalar(0.99)?.add(&weight.tensor().detach()?.mul_scalar(0.01)?)?;
        total = total.add(&loss.detach()?)?;
        if evaluated {
            Tensor::evaluate_all(&[&average, &total])?;
        }
    }
    Ok(device.memory().peak)
}

#[test]
fn values_that_nobody_reads_do_not_pile_up() -> Result<()> {
    neurenix::register_all();
    let device = Device::find("cpu")?;
    let expected = peak(device, 10, true)?;
    let found = peak(device, 1000, false)?;
    // A step that finds the average pending cannot overwrite the weights that it reads, so there is a second copy.
    let more = 3 * 256 * 256 * DType::F32.size() / 2;
    assert!(found <= expected + more, "{found} bytes, and {expected} where all is computed at once");
    Ok(())
}
