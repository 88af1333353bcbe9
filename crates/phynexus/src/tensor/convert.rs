//! Conversions: dtype, bits, device.

use crate::{DType, Error, Result, Tensor, device::Device, op::Op};

impl Tensor {
    /// The same values as another dtype. Floats become integers by truncation, saturate at 64 bits and wrap (NaN becomes
    /// 0), integers wrap, and anything becomes `bool` by `!= 0`.
    pub fn to_dtype(&self, dtype: DType) -> Result<Tensor> {
        if self.dtype() == dtype {
            return Ok(self.clone());
        }
        if let Op::Constant(value) = self.node().op() {
            let value = value.cast(dtype);
            return Tensor::record_on(self.device(), Op::Constant(value), dtype, self.shape().into(), &[]);
        }
        Tensor::record(Op::Cast, dtype, self.shape().into(), &[self])
    }

    /// The same bits read as another dtype of the same size.
    ///
    /// # Errors
    /// [`Error::DType`] if the sizes differ or `dtype` is `bool` (whose bytes must be 0 or 1).
    pub fn bitcast(&self, dtype: DType) -> Result<Tensor> {
        if self.dtype() == dtype {
            return Ok(self.clone());
        }
        if self.dtype().size() != dtype.size() || dtype == DType::Bool {
            let hint = "the bits can be read as another dtype of the same size other than bool";
            return Err(Error::dtype("bitcast", &[self.dtype(), dtype], hint));
        }
        Tensor::record(Op::Bitcast, dtype, self.shape().into(), &[self])
    }

    /// The same values on another device.
    pub fn to_device(&self, device: Device) -> Result<Tensor> {
        if self.device() == device {
            return Ok(self.clone());
        }
        if let &Op::Constant(value) = self.node().op() {
            return Tensor::record_on(device, Op::Constant(value), self.dtype(), self.shape().into(), &[]);
        }
        Tensor::record_on(device, Op::Copy, self.dtype(), self.shape().into(), &[self])
    }

    /// The same values laid out row-major in a buffer: a copy of views, and nothing for what is row-major already.
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
