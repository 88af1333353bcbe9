//! Parameter initialisation. The rules are those of `torch.nn.init`. The numbers differ from PyTorch's but are the same
//! on every device.

use phynexus::{DType, Device, Tensor, tensor::Generator};

use crate::{Error, Result};

/// Uniform distribution between `low` and `high`.
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

/// Normal distribution with this mean and standard deviation.
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

/// Fan-in and fan-out of a weight of shape `(out, in, kernel..)`, saturating at `usize::MAX`.
pub fn fans(shape: &[usize]) -> (usize, usize) {
    let field = shape.iter().skip(2).fold(1, |product: usize, &d| product.saturating_mul(d));
    let at = |i: usize| shape.get(i).map_or(field, |d| d.saturating_mul(field));
    (at(1), at(0))
}

/// Whether initialisation preserves the variance of activations or of gradients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fan {
    /// Fan-in: preserves the variance of activations.
    #[default]
    In,
    /// Fan-out: preserves the variance of gradients.
    Out,
}

impl Fan {
    fn of(self, shape: &[usize]) -> f64 {
        let (inputs, outputs) = fans(shape);
        (if self == Fan::In { inputs } else { outputs }).max(1) as f64
    }
}

/// The standard deviation of Glorot and Bengio (2010): √(2 / (fan_in + fan_out)).
fn xavier_deviation(shape: &[usize]) -> f64 {
    let (inputs, outputs) = fans(shape);
    (2.0 / (inputs as f64 + outputs as f64).max(1.0)).sqrt()
}

/// Glorot and Bengio (2010): uniform with variance `gain² * 2 / (fan_in + fan_out)`.
pub fn xavier_uniform(
    shape: &[usize],
    gain: f64,
    dtype: DType,
    device: Device,
    generator: &Generator,
) -> Result<Tensor> {
    let bound = gain * 3f64.sqrt() * xavier_deviation(shape);
    uniform(shape, -bound, bound, dtype, device, generator)
}

/// Glorot and Bengio (2010): normal with variance `gain² * 2 / (fan_in + fan_out)`.
pub fn xavier_normal(
    shape: &[usize],
    gain: f64,
    dtype: DType,
    device: Device,
    generator: &Generator,
) -> Result<Tensor> {
    normal(shape, 0.0, gain * xavier_deviation(shape), dtype, device, generator)
}

/// He et al. (2015): normal with standard deviation √(2 / fan), for layers before a ReLU.
pub fn kaiming_normal(
    shape: &[usize],
    fan: Fan,
    dtype: DType,
    device: Device,
    generator: &Generator,
) -> Result<Tensor> {
    normal(shape, 0.0, (2.0 / fan.of(shape)).sqrt(), dtype, device, generator)
}

/// He et al. (2015): uniform with variance 2 / fan, for layers before a ReLU.
pub fn kaiming_uniform(
    shape: &[usize],
    fan: Fan,
    dtype: DType,
    device: Device,
    generator: &Generator,
) -> Result<Tensor> {
    let bound = (6.0 / fan.of(shape)).sqrt();
    uniform(shape, -bound, bound, dtype, device, generator)
}

/// Normal distribution truncated to `low..high` by rejection sampling.
///
/// # Errors
/// If the mean is outside the bounds, the bounds are less than a tenth of a standard deviation apart, or an argument is
/// not finite. The conditions bound the number of rejected samples.
pub fn trunc_normal(
    shape: &[usize],
    (mean, std): (f64, f64),
    (low, high): (f64, f64),
    dtype: DType,
    device: Device,
    generator: &Generator,
) -> Result<Tensor> {
    let finite = [mean, std, low, high].iter().all(|x| x.is_finite());
    if !finite || std <= 0.0 || !(low..=high).contains(&mean) || high - low < 0.1 * std {
        let message = format!(
            "bounds {low} and {high} must enclose the mean {mean} and be at least a tenth of the standard deviation {std} apart"
        );
        return Err(Error::data("trunc_normal", message));
    }
    let count = element_count(shape)?;
    let mut values = Vec::new();
    while values.len() < count {
        let drawn = normal(&[count - values.len()], mean, std, DType::F64, device, generator)?;
        values.extend(drawn.to_vec::<f64>()?.into_iter().filter(|x| (low..=high).contains(x)));
    }
    Ok(Tensor::from_slice(&values, shape, device)?.to_dtype(dtype)?)
}

/// Saxe et al. (2014): a random matrix with orthonormal rows (or columns, if there are fewer columns), times `gain`.
/// Dimensions after the first are flattened.
///
/// # Errors
/// If the shape has fewer than two dimensions.
pub fn orthogonal(
    shape: &[usize],
    gain: f64,
    dtype: DType,
    device: Device,
    generator: &Generator,
) -> Result<Tensor> {
    let &[rows, _, ..] = shape else {
        let hint = "an orthogonal matrix needs at least two dimensions";
        return Err(phynexus::Error::shape("orthogonal", &[shape], hint).into());
    };
    let count = element_count(shape)?;
    let columns = count.checked_div(rows).unwrap_or(0);
    let (vectors, length) = (rows.min(columns), rows.max(columns));
    let drawn = generator.randn(&[vectors, length], DType::F64, device)?;
    let mut values = drawn.to_vec::<f64>()?;
    // Gram-Schmidt, twice per vector: the second pass removes the rounding errors of the first.
    for current in 0..vectors {
        let (before, rest) = values.split_at_mut(current * length);
        let vector = &mut rest[..length];
        for _ in 0..2 {
            for other in before.chunks_exact(length) {
                let along: f64 = other.iter().zip(&*vector).map(|(a, b)| a * b).sum();
                vector.iter_mut().zip(other).for_each(|(x, y)| *x -= along * y);
            }
            let norm = vector.iter().map(|x| x * x).sum::<f64>().sqrt();
            vector.iter_mut().for_each(|x| *x /= norm);
        }
    }
    let matrix = Tensor::from_slice(&values, &[vectors, length], device)?;
    let matrix = if rows > columns { matrix.t()? } else { matrix };
    Ok(matrix.mul_scalar(gain)?.reshape(shape)?.to_dtype(dtype)?)
}

/// The number of elements of a shape.
fn element_count(shape: &[usize]) -> Result<usize> {
    let count = shape.iter().try_fold(1usize, |count, &d| count.checked_mul(d));
    count.ok_or_else(|| phynexus::Error::shape("init", &[shape], "the shape has too many elements").into())
}
