//! How parameters begin. The rules are those of `torch.nn.init`; the numbers are ours and the same on every device.

use phynexus::{DType, Device, Tensor, tensor::Generator};

use crate::Result;

/// Uniform between `low` and `high`.
pub fn uniform(
    shape: &[usize],
    low: f64,
    high: f64,
    dtype: DType,
    device: Device,
    generator: &Generator,
) -> Result<Tensor> {
    let unit = generator.rand(shape, dtype, device)?;
    Ok(unit.mul_scalar(high - low)?.add_scalar(low)?)
}

/// Normal with this mean and standard deviation.
pub fn normal(
    shape: &[usize],
    mean: f64,
    std: f64,
    dtype: DType,
    device: Device,
    generator: &Generator,
) -> Result<Tensor> {
    Ok(generator.randn(shape, dtype, device)?.mul_scalar(std)?.add_scalar(mean)?)
}

/// Inputs and outputs of one unit of a weight `(out, in, kernel..)`.
pub fn fans(shape: &[usize]) -> (usize, usize) {
    let field: usize = shape.iter().skip(2).product();
    let at = |i: usize| shape.get(i).copied().unwrap_or(1);
    (at(1) * field, at(0) * field)
}

/// Glorot and Bengio (2010): uniform with variance 2 / (inputs + outputs), times `gain`.
pub fn xavier_uniform(
    shape: &[usize],
    gain: f64,
    dtype: DType,
    device: Device,
    generator: &Generator,
) -> Result<Tensor> {
    let (inputs, outputs) = fans(shape);
    let bound = gain * (6.0 / (inputs + outputs).max(1) as f64).sqrt();
    uniform(shape, -bound, bound, dtype, device, generator)
}

/// He et al. (2015): normal with standard deviation √(2 / inputs), for layers before a ReLU.
pub fn kaiming_normal(
    shape: &[usize],
    dtype: DType,
    device: Device,
    generator: &Generator,
) -> Result<Tensor> {
    let std = (2.0 / fans(shape).0.max(1) as f64).sqrt();
    normal(shape, 0.0, std, dtype, device, generator)
}

/// He et al. (2015): uniform with variance 2 / inputs, for layers before a ReLU.
pub fn kaiming_uniform(
    shape: &[usize],
    dtype: DType,
    device: Device,
    generator: &Generator,
) -> Result<Tensor> {
    let bound = (6.0 / fans(shape).0.max(1) as f64).sqrt();
    uniform(shape, -bound, bound, dtype, device, generator)
}
