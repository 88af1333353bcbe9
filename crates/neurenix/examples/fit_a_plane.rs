//! Fits a plane through points by gradient descent: tensors, gradients and an optimiser, without a network.

use neurenix::phynexus::{DType, Device, Tensor, tensor::Reduction};
use neurenix::{nn::Parameter, optim::Optimizer, optim::Rule};

fn main() -> neurenix::Result<()> {
    neurenix::register_all();
    let device = Device::default_device()?;
    let points = Tensor::randn(&[256, 3], DType::F32, device)?;
    let heights = points.matmul(&Tensor::from_slice(&[1.0f32, -2.0, 0.5], &[3], device)?)?;
    let slopes = Parameter::new(&Tensor::zeros(&[3], DType::F32, device)?)?;
    let mut optimizer = Optimizer::new(Rule::sgd(), vec![slopes.clone()], 0.1)?;
    for _ in 0..100 {
        let loss = points.matmul(&slopes.leaf()?)?.mse_loss(&heights, Reduction::Mean)?;
        optimizer.step(loss.leaf_gradients()?, &[&loss])?;
    }
    let found = slopes.tensor().to_vec::<f32>()?;
    println!("{found:?}");
    assert!(found.iter().zip([1.0, -2.0, 0.5]).all(|(a, b)| (a - b).abs() < 1e-3));
    Ok(())
}
