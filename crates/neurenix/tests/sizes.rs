//! Graphs that differ in sizes only share kernels. That their results are right, the suite checks (`verify/sizes.rs`).

use std::sync::{Mutex, PoisonError};

use neurenix::nn::{GRU, RecurrentOptions};
use phynexus::{
    DType, Device, Result, Tensor,
    device::devices,
    gpu::compiled_kernels,
    schedule::explain,
    tensor::{AttentionOptions, Generator},
};

/// The statistics are those of the process.
static ALONE: Mutex<()> = Mutex::new(());

fn gpus() -> Vec<Device> {
    neurenix::register_all();
    devices().into_iter().filter(|device| device.name() != "cpu").collect()
}

/// The kernels compiled while `work` ran.
fn compiled(work: impl FnOnce() -> Result<()>) -> Result<u64> {
    let before = compiled_kernels();
    work()?;
    Ok(compiled_kernels() - before)
}

#[test]
fn a_hundred_sizes_take_few_kernels() -> Result<()> {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    for device in gpus() {
        let lengths = |lengths: std::ops::Range<usize>| {
            compiled(|| {
                for n in lengths {
                    let x = Tensor::full(&[3, n, 8], 0.25, DType::F32, device)?.evaluated()?;
                    let y = x.exp()?.narrow(1, 0, n - 1)?.add_scalar(n as f64)?.evaluated()?;
                    assert_eq!(y.shape(), [3, n - 1, 8]);
                    assert_eq!(y.to_vec::<f32>()?[0], 0.25f32.exp() + n as f32);
                }
                Ok(())
            })
        };
        let (few, many) = (lengths(20..24)?, lengths(24..124)?);
        // Where no group of invocations is partly used, kernels have no conditions, so they are others.
        assert!(many <= 3 * few, "{device}: {few} kernels for four lengths, then {many}");
        let x = Tensor::full(&[3, 200, 8], 0.25, DType::F32, device)?.evaluated()?;
        let plan = explain(&x.exp()?.narrow(1, 0, 199)?.add_scalar(7.5)?)?.unwrap();
        assert!(plan.to_string().contains("for other sizes too: "), "{plan}");
        // A cache of keys that grows with each token.
        let g = Generator::new(3);
        let made = |shape: &[usize]| g.randn(shape, DType::F32, device)?.evaluated();
        let (mut keys, mut values) = (made(&[1, 2, 32, 8])?, made(&[1, 2, 32, 8])?);
        let mut tokens = |count: usize| {
            compiled(|| {
                for _ in 0..count {
                    let query = made(&[1, 2, 1, 8])?;
                    keys = Tensor::cat(&[&keys, &query.exp()?], 2)?;
                    values = Tensor::cat(&[&values, &query.sin()?], 2)?;
                    let options = AttentionOptions::default();
                    let mixed = query.scaled_dot_product_attention(&keys, &values, None, options)?;
                    Tensor::evaluate_all(&[&keys, &values, &mixed])?;
                }
                Ok(())
            })
        };
        let (few, many) = (tokens(2)?, tokens(200)?);
        assert!(many <= 6 * few, "{device}: {few} kernels for two tokens, then {many}");
    }
    Ok(())
}

#[test]
fn the_time_steps_of_a_layer_share_kernels() -> Result<()> {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    for device in gpus() {
        let layer = GRU::new(3, 8, RecurrentOptions::default(), device, &Generator::new(1)).unwrap();
        let steps = |count: usize| {
            compiled(|| {
                let x = Generator::new(2).randn(&[count, 2, 3], DType::F32, device)?;
                layer.run(&x, None, None).unwrap().output.evaluate()
            })
        };
        let (few, many) = (steps(16)?, steps(64)?);
        // The first of each kind have their offsets built in. Each step has two kernels.
        assert!(few + many < 64, "{device}: {few} kernels for 16 steps, {many} for 64");
    }
    Ok(())
}
