//! Creating tensors.

use std::borrow::Cow;

use super::operands::{fitting, whole, with_scalar};
use crate::{
    DType, Element, Error, Result, Scalar, Tensor,
    device::{Device, Storage},
    graph::Extremes,
    host_memory,
    op::{Constant, Iota, Op},
    schedule::{backlog, recovery},
    shape::{Dims, Layout, check_rank, checked_element_count},
    text::counted,
};

impl Tensor {
    /// A tensor with these values in row-major order.
    pub fn from_slice<T: Element>(values: &[T], shape: &[usize], device: Device) -> Result<Tensor> {
        Tensor::from_bytes(&host_memory::bytes_of(values)?, T::DTYPE, shape, device)
    }

    /// A tensor with these little-endian bytes in row-major order. For `bool`, every nonzero byte is true.
    pub fn from_bytes(bytes: &[u8], dtype: DType, shape: &[usize], device: Device) -> Result<Tensor> {
        check_rank("from_bytes", shape)?;
        let expected = checked_element_count(shape).and_then(|n| n.checked_mul(dtype.size()));
        if expected != Some(bytes.len()) {
            let elements = counted(bytes.len() / dtype.size(), "element");
            let hint = format!("{} of {dtype} are {elements}", counted(bytes.len(), "byte"));
            return Err(Error::shape("from_bytes", &[shape], hint));
        }
        // Kernels rely on a bool being 0 or 1; bytes from a file or another library may hold other values.
        let bytes = match dtype == DType::Bool && bytes.iter().any(|&byte| byte > 1) {
            true => Cow::Owned(bytes.iter().map(|&byte| u8::from(byte != 0)).collect()),
            false => Cow::Borrowed(bytes),
        };
        let bytes = bytes.as_ref();
        let tensor = Tensor::uploaded(bytes, dtype, shape, device)?;
        tensor.note(Extremes::of_bytes(bytes, dtype));
        Ok(tensor)
    }

    /// As [`Tensor::from_bytes`] for bytes that fit the shape, but without recording the range of the values.
    pub(crate) fn uploaded(bytes: &[u8], dtype: DType, shape: &[usize], device: Device) -> Result<Tensor> {
        let buffer = recovery::upload(device, bytes)?;
        backlog::note_uploaded(bytes.len())?;
        Ok(Tensor::from_storage(device, dtype, Storage { buffer, layout: Layout::contiguous(shape) }))
    }

    /// A tensor filled with `value`.
    pub fn full(shape: &[usize], value: impl Into<Scalar>, dtype: DType, device: Device) -> Result<Tensor> {
        Tensor::record_on(device, Op::Constant(Constant(value.into().cast(dtype))), dtype, shape.into(), &[])
    }

    /// A tensor filled with 0 (or false).
    pub fn zeros(shape: &[usize], dtype: DType, device: Device) -> Result<Tensor> {
        Tensor::full(shape, 0, dtype, device)
    }

    /// A tensor filled with 1 (or true).
    pub fn ones(shape: &[usize], dtype: DType, device: Device) -> Result<Tensor> {
        Tensor::full(shape, 1, dtype, device)
    }

    /// Zeros of this tensor's shape, dtype and device.
    pub fn zeros_like(&self) -> Result<Tensor> {
        self.constant_like(Scalar::Int(0), self.dtype())
    }

    /// Ones of this tensor's shape, dtype and device.
    pub fn ones_like(&self) -> Result<Tensor> {
        self.constant_like(Scalar::Int(1), self.dtype())
    }

    /// A tensor of this one's shape, dtype and device, filled with `value`.
    pub fn full_like(&self, value: impl Into<Scalar>) -> Result<Tensor> {
        self.constant_like(value.into(), self.dtype())
    }

    /// A 0-dimensional tensor with this value. Unlike [`Tensor::full`] it is data rather than a constant, so graphs
    /// that differ only in this value share a plan. Use it for values that change between steps, such as a learning
    /// rate.
    pub fn scalar<T: Element>(value: T, device: Device) -> Result<Tensor> {
        Tensor::from_slice(&[value], &[], device)
    }

    /// Each element is its index along `axis`, as `dtype`.
    pub(super) fn iota(shape: Dims, axis: usize, dtype: DType, device: Device) -> Result<Tensor> {
        Tensor::record_on(device, Op::Iota(Iota { axis }), dtype, shape, &[])
    }

    /// A vector of the values from `start` (inclusive) to `stop` (exclusive) in increments of `step`. Element i is
    /// `start + i * step`, computed in `dtype` (16-bit floats in `float32`).
    ///
    /// # Errors
    /// [`Error::Argument`] if `step` is 0, a bound or the step is not finite, or the first or last integer does not fit
    /// the dtype; [`Error::DType`] for `bool`, and for fractions with an integer dtype.
    pub fn arange(
        start: impl Into<Scalar>,
        stop: impl Into<Scalar>,
        step: impl Into<Scalar>,
        dtype: DType,
        device: Device,
    ) -> Result<Tensor> {
        let (start, stop, step) = (start.into(), stop.into(), step.into());
        for scalar in [start, stop, step] {
            if dtype == DType::Bool || with_scalar(dtype, scalar) != dtype {
                return Err(Error::dtype(
                    "arange",
                    &[dtype],
                    format!("{scalar} needs a numeric dtype that can represent it"),
                ));
            }
        }
        if step.as_f64() == 0.0 || ![start, stop, step].iter().all(|s| s.as_f64().is_finite()) {
            return Err(Error::argument(
                "arange",
                "the bounds and the step must be finite, and the step nonzero",
            ));
        }
        let count = if dtype.is_float() {
            ((stop.as_f64() - start.as_f64()) / step.as_f64()).ceil().max(0.0) as usize
        } else {
            let (distance, step) = (whole(stop) - whole(start), whole(step));
            let count =
                if distance.signum() == step.signum() { (distance.abs() - 1) / step.abs() + 1 } else { 0 };
            if count > 0 {
                let last = whole(start) + (count - 1) * step;
                let scalar =
                    i64::try_from(last).map(Scalar::Int).or_else(|_| u64::try_from(last).map(Scalar::UInt));
                match scalar {
                    Ok(last) => fitting("arange", last, dtype)?,
                    Err(_) => {
                        return Err(Error::argument("arange", format!("{last} does not fit into {dtype}")));
                    }
                };
            }
            usize::try_from(count).unwrap_or(usize::MAX)
        };
        // A negative step wraps in an unsigned dtype; the wrapped sums are still right.
        let step = if dtype.is_integer() { step.cast(dtype) } else { step };
        let index = Tensor::iota(Dims::from_slice(&[count]), 0, dtype.compute(), device)?;
        let scaled = if step.as_f64() == 1.0 { index } else { index.mul_scalar(step)? };
        let moved = if start.as_f64() == 0.0 {
            scaled
        } else {
            scaled.add_scalar(fitting("arange", start, dtype)?)?
        };
        moved.to_dtype(dtype)
    }

    /// A vector of `count` equally spaced values from `start` to `stop`, both inclusive. Both ends are exact: the first
    /// half is computed from `start`, the second from `stop`.
    ///
    /// # Errors
    /// [`Error::DType`] unless `dtype` is a float.
    pub fn linspace(start: f64, stop: f64, count: usize, dtype: DType, device: Device) -> Result<Tensor> {
        if !dtype.is_float() {
            return Err(Error::dtype("linspace", &[dtype], "expected a float dtype"));
        }
        if count < 2 {
            return Tensor::full(&[count], start, dtype, device);
        }
        let step = (stop - start) / (count - 1) as f64;
        let index = Tensor::iota(Dims::from_slice(&[count]), 0, dtype.compute(), device)?;
        let forwards = index.mul_scalar(step)?.add_scalar(start)?;
        let backwards = index.rsub_scalar((count - 1) as f64)?.mul_scalar(-step)?.add_scalar(stop)?;
        index.lt_scalar((count / 2) as f64)?.where_(&forwards, &backwards)?.to_dtype(dtype)
    }

    /// A vector of `count` powers of `base` whose exponents are equally spaced from `start` to `end`. For an integer
    /// dtype, powers are computed in `float64` and truncated.
    pub fn logspace(
        start: f64,
        end: f64,
        count: usize,
        base: f64,
        dtype: DType,
        device: Device,
    ) -> Result<Tensor> {
        let exponents = if dtype.is_float() { dtype } else { DType::F64 };
        Tensor::linspace(start, end, count, exponents, device)?.rpow_scalar(base)?.to_dtype(dtype)
    }

    /// A matrix with ones on the main diagonal and zeros elsewhere.
    pub fn eye(rows: usize, columns: usize, dtype: DType, device: Device) -> Result<Tensor> {
        let shape = Dims::from_slice(&[rows, columns]);
        let row = Tensor::iota(shape.clone(), 0, DType::I64, device)?;
        row.eq(&Tensor::iota(shape, 1, DType::I64, device)?)?.to_dtype(dtype)
    }
}
