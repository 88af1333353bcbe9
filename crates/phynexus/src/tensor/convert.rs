//! Conversions: dtype, bits, device.

use crate::{
    DType, Error, Result, Tensor,
    device::Device,
    op::{Constant, Op},
};

impl Tensor {
    /// Converts to another dtype. Floats are truncated towards zero to integers: they saturate at 64 bits, then wrap to
    /// narrower dtypes, and NaN becomes 0. Integers wrap. Conversion to `bool` is `!= 0`.
    pub fn to_dtype(&self, dtype: DType) -> Result<Tensor> {
        if self.dtype() == dtype {
            return Ok(self.clone());
        }
        if let Op::Constant(Constant(value)) = self.node().op() {
            let value = value.cast(dtype);
            return Tensor::record_on(
                self.device(),
                Op::Constant(Constant(value)),
                dtype,
                self.shape().into(),
                &[],
            );
        }
        Tensor::record(Op::Cast, dtype, self.shape().into(), &[self])
    }

    /// Reinterprets the bits as another dtype of the same size.
    ///
    /// # Errors
    /// [`Error::DType`] if the sizes differ or `dtype` is `bool` (whose bytes must be 0 or 1).
    pub fn bitcast(&self, dtype: DType) -> Result<Tensor> {
        if self.dtype() == dtype {
            return Ok(self.clone());
        }
        if self.dtype().size() != dtype.size() || dtype == DType::Bool {
            let hint = "the dtype must have the same size and must not be bool";
            return Err(Error::dtype("bitcast", &[self.dtype(), dtype], hint));
        }
        Tensor::record(Op::Bitcast, dtype, self.shape().into(), &[self])
    }

    /// Copies to another device; on the same device, returns this tensor.
    pub fn to_device(&self, device: Device) -> Result<Tensor> {
        if self.device() == device {
            return Ok(self.clone());
        }
        if let &Op::Constant(Constant(value)) = self.node().op() {
            return Tensor::record_on(
                device,
                Op::Constant(Constant(value)),
                self.dtype(),
                self.shape().into(),
                &[],
            );
        }
        Tensor::record_on(device, Op::Copy, self.dtype(), self.shape().into(), &[self])
    }

    /// Copies the elements to a row-major buffer. Returns this tensor if it is row-major already.
    pub fn contiguous(&self) -> Result<Tensor> {
        let row_major = match self.node().data() {
            Some(storage) => storage.layout.is_contiguous(),
            None => !self.node().op().is_view(),
        };
        if row_major {
            return Ok(self.clone());
        }
        Tensor::record(Op::Contiguous, self.dtype(), self.shape().into(), &[self])
    }
}
