//! Complex numbers, as pairs of floats.
//!
//! A [`Complex`] is a real tensor whose last axis has size 2: the real and the imaginary part, as PyTorch's
//! `view_as_real` shows it. The engine knows nothing of this. All functions are composed of its differentiable
//! operations, so they run, and have gradients, on every device.
//!
//! The gradient of a real function L of `z = x + iy` is `dL/dx + i dL/dy`, which is PyTorch's convention and the
//! direction of steepest ascent. As a pair it is the gradient of the pair, so nothing converts it.
//!
//! ```
//! use neurenix::complex::Complex;
//! use phynexus::{Device, Tensor};
//!
//! neurenix::register_cpu();
//! let device = Device::default_device()?;
//! let pair = Tensor::from_slice(&[3.0f64, 4.0], &[2], device)?.with_grad()?;
//! let z = Complex::from_pair(&pair)?;
//! let length = z.abs()?;
//! length.backward()?;
//! assert_eq!(length.item::<f64>()?, 5.0);
//! let gradient = pair.grad().unwrap().to_vec::<f64>()?;
//! assert!((gradient[0] - 0.6).abs() < 1e-15 && (gradient[1] - 0.8).abs() < 1e-15);
//! # Ok::<(), phynexus::Error>(())
//! ```

mod arithmetic;
mod elementary;
mod factor;
mod inverse;
mod matrix;
mod real;
mod reduce;

use phynexus::{DType, Error, Result, Tensor, tensor::default_dtype};

pub use matrix::LogDeterminant;

/// A tensor of complex numbers.
#[derive(Clone)]
pub struct Complex {
    pair: Tensor,
}

impl Complex {
    /// The complex numbers whose parts are along the last axis, which has size 2. The dtype is `float32` or `float64`.
    pub fn from_pair(pair: &Tensor) -> Result<Complex> {
        if !matches!(pair.dtype(), DType::F32 | DType::F64) {
            let hint = "complex numbers are pairs of float32 or float64: convert with .to_dtype(float32)";
            return Err(Error::dtype("complex", &[pair.dtype()], hint));
        }
        if pair.shape().last() != Some(&2) {
            let hint = "the last axis holds the real and the imaginary part: its size must be 2";
            return Err(Error::shape("complex", &[pair.shape()], hint));
        }
        Ok(Complex { pair: pair.clone() })
    }

    /// Complex numbers from their real and imaginary parts, which are broadcast and promoted.
    pub fn from_parts(real: &Tensor, imaginary: &Tensor) -> Result<Complex> {
        let dtype = component(real.dtype().promote(imaginary.dtype()));
        let shape = phynexus::shape::broadcast("complex", real.shape(), imaginary.shape())?;
        let part = |part: &Tensor| part.to_dtype(dtype)?.broadcast_to(&shape);
        Ok(Complex { pair: Tensor::stack(&[&part(real)?, &part(imaginary)?], -1)? })
    }

    /// Real numbers as complex numbers. Integers and 8- or 16-bit floats become `float32`.
    pub fn from_real(real: &Tensor) -> Result<Complex> {
        let real = real.to_dtype(component(real.dtype()))?;
        Complex::from_parts(&real, &real.zeros_like()?)
    }

    /// `magnitude * (cos(angle) + i sin(angle))`.
    pub fn polar(magnitude: &Tensor, angle: &Tensor) -> Result<Complex> {
        Complex::from_parts(&magnitude.mul(&angle.cos()?)?, &magnitude.mul(&angle.sin()?)?)
    }

    /// The parts along an added last axis of size 2.
    pub fn pair(&self) -> &Tensor {
        &self.pair
    }

    /// The shape, without the axis of the parts.
    pub fn shape(&self) -> &[usize] {
        let shape = self.pair.shape();
        &shape[..shape.len() - 1]
    }

    /// The number of axes.
    pub fn rank(&self) -> usize {
        self.shape().len()
    }

    /// The dtype of a part.
    pub fn component(&self) -> DType {
        self.pair.dtype()
    }

    /// The real parts.
    pub fn real(&self) -> Result<Tensor> {
        self.part(0)
    }

    /// The imaginary parts.
    pub fn imaginary(&self) -> Result<Tensor> {
        self.part(1)
    }

    fn part(&self, index: usize) -> Result<Tensor> {
        self.pair.narrow(-1, index, 1)?.squeeze(-1)
    }

    /// Both parts.
    pub fn parts(&self) -> Result<(Tensor, Tensor)> {
        Ok((self.real()?, self.imaginary()?))
    }

    /// Both parts in `float32` or `float64`.
    pub fn to_component(&self, dtype: DType) -> Result<Complex> {
        Complex::from_pair(&self.pair.to_dtype(dtype)?)
    }

    /// The same numbers with another shape.
    pub fn reshape(&self, shape: &[usize]) -> Result<Complex> {
        self.on_pair(|pair| pair.reshape(&[shape, &[2]].concat()))
    }

    /// The numbers broadcast to a shape.
    pub fn broadcast_to(&self, shape: &[usize]) -> Result<Complex> {
        self.on_pair(|pair| pair.broadcast_to(&[shape, &[2]].concat()))
    }

    /// Two axes swapped.
    pub fn transpose(&self, first: i64, second: i64) -> Result<Complex> {
        let (first, second) = (self.axis("transpose", first)?, self.axis("transpose", second)?);
        self.on_pair(|pair| pair.transpose(first, second))
    }

    /// `length` positions along an axis, beginning at `start`.
    pub fn narrow(&self, axis: i64, start: usize, length: usize) -> Result<Complex> {
        let axis = self.axis("narrow", axis)?;
        self.on_pair(|pair| pair.narrow(axis, start, length))
    }

    /// Concatenates along an axis.
    pub fn cat(parts: &[&Complex], axis: i64) -> Result<Complex> {
        let Some(first) = parts.first() else {
            return Err(Error::Argument { op: "cat", message: "expected at least one tensor".to_owned() });
        };
        let axis = first.axis("cat", axis)?;
        let pairs: Vec<&Tensor> = parts.iter().map(|part| &part.pair).collect();
        Ok(Complex { pair: Tensor::cat(&pairs, axis)? })
    }

    /// Applies an operation that keeps the last axis of the pair.
    pub(crate) fn on_pair(&self, function: impl FnOnce(&Tensor) -> Result<Tensor>) -> Result<Complex> {
        Ok(Complex { pair: function(&self.pair)? })
    }

    /// An axis counted from the front, so that it means the same axis of the pair.
    pub(crate) fn axis(&self, op: &'static str, axis: i64) -> Result<i64> {
        let rank = self.rank() as i64;
        let front = if axis < 0 { axis + rank } else { axis };
        if (0..rank).contains(&front) {
            return Ok(front);
        }
        Err(Error::Axis { op, axis, shape: self.shape().to_vec() })
    }

    /// Axes counted from the front; all of them if there are none.
    pub(crate) fn axes(&self, op: &'static str, axes: &[i64]) -> Result<Vec<i64>> {
        match axes.is_empty() {
            true => Ok((0..self.rank() as i64).collect()),
            false => axes.iter().map(|&axis| self.axis(op, axis)).collect(),
        }
    }
}

/// The dtype of the parts of complex numbers that real numbers of `dtype` become: that of the default dtype for
/// integers.
pub fn component(dtype: DType) -> DType {
    let dtype = if dtype.is_float() { dtype } else { default_dtype() };
    if dtype == DType::F64 { DType::F64 } else { DType::F32 }
}
