//! Making tensors.

use crate::{
    Element, Error, Result, Scalar, Tensor, DType,
    device::{Device, Storage},
    graph::op::Op,
    shape::{Layout, checked_element_count},
};

impl Tensor {
    /// A tensor of these values in row-major order.
    pub fn from_slice<T: Element>(values: &[T], shape: &[usize], device: Device) -> Result<Tensor> {
        let mut bytes = Vec::new();
        T::write_bytes(values, &mut bytes);
        Tensor::from_bytes(&bytes, T::DTYPE, shape, device)
    }

    /// A tensor of these little-endian bytes in row-major order.
    pub fn from_bytes(bytes: &[u8], dtype: DType, shape: &[usize], device: Device) -> Result<Tensor> {
        let expected = checked_element_count(shape).and_then(|n| n.checked_mul(dtype.size()));
        if expected != Some(bytes.len()) {
            let hint = format!("{} bytes of {dtype} make {} elements", bytes.len(), bytes.len() / dtype.size());
            return Err(Error::shape("from_bytes", &[shape], hint));
        }
        let buffer = device.backend().allocate(bytes.len())?;
        device.backend().write(&buffer, 0, bytes)?;
        Ok(Tensor::from_storage(device, dtype, Storage { buffer, layout: Layout::contiguous(shape) }))
    }

    /// Every element is `value`.
    pub fn full(shape: &[usize], value: impl Into<Scalar>, dtype: DType, device: Device) -> Result<Tensor> {
        Tensor::record_on(device, Op::Constant(value.into().cast(dtype)), dtype, shape.into(), &[])
    }
}
