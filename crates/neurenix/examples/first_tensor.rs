//! Tensors, gradients and a first optimiser: fits a line to points and checks the result.

use neurenix::{
    Result,
    nn::Parameter,
    optim::{Optimizer, Rule},
    phynexus::{DType, Device, Tensor, tensor::Generator},
};

fn main() -> Result<()> {
    neurenix::register_all();
    let device = Device::default_device()?;

    // Operations check shapes immediately and compute when a result is read: here, by `to_vec` and printing.
    let a = Tensor::from_slice(&[1f32, 2.0, 3.0, 4.0, 5.0, 6.0], &[2, 3], device)?;
    let b = Tensor::full(&[3], 10.0, DType::F32, device)?;
    let c = a.mul(&b)?.add_scalar(1.0)?;
    println!("a * 10 + 1 =\n{c}");
    assert_eq!(c.to_vec::<f32>()?, [11.0, 21.0, 31.0, 41.0, 51.0, 61.0]);
    let gram = a.matmul(&a.t()?)?;
    assert_eq!(gram.to_vec::<f32>()?, [14.0, 32.0, 32.0, 77.0]);

    // A shape mismatch is an error that says what is expected, never a panic.
    let error = a.matmul(&a).map(drop).expect_err("(2, 3) by (2, 3) is no matrix product");
    println!("{error}\n");

    // The gradient of the sum of x^3 is 3 x^2.
    let x = Tensor::from_slice(&[1f64, -2.0, 0.5], &[3], device)?.with_grad()?;
    x.pow_scalar(3)?.sum(&[], false)?.backward()?;
    let gradient = x.grad().map(|g| g.to_vec::<f64>()).transpose()?;
    assert_eq!(gradient, Some(vec![3.0, 12.0, 0.75]));

    // Points near the line 2 x - 1; gradient descent finds its slope and intercept.
    let generator = Generator::new(0);
    let x = generator.rand(&[200], DType::F32, device)?.evaluated()?;
    let noise = generator.randn(&[200], DType::F32, device)?.mul_scalar(0.01)?;
    let y = x.mul_scalar(2.0)?.sub_scalar(1.0)?.add(&noise)?.evaluated()?;
    let zero = Tensor::full(&[], 0.0, DType::F32, device)?;
    let (slope, intercept) = (Parameter::new(&zero)?, Parameter::new(&zero)?);
    let rule = Rule::momentum(0.9);
    let mut optimizer = Optimizer::new(rule, vec![slope.clone(), intercept.clone()], 0.1)?;
    for step in 0..200 {
        let predicted = x.mul(&slope.leaf()?)?.add(&intercept.leaf()?)?;
        let loss = predicted.sub(&y)?.square()?.mean(&[], false)?;
        let gradients = loss.leaf_gradients()?;
        optimizer.step(gradients, &[&loss])?;
        if step % 50 == 0 {
            println!("step {step:>3}  loss {:.5}", loss.item::<f32>()?);
        }
    }
    let (slope, intercept) = (slope.tensor().item::<f32>()?, intercept.tensor().item::<f32>()?);
    println!("y = {slope:.3} x + {intercept:.3}");
    assert!((slope - 2.0).abs() < 0.02 && (intercept + 1.0).abs() < 0.02);
    Ok(())
}
