//! Reading tensors: the calls that make pending work run.

use std::sync::Arc;

use crate::{
    Element, Error, Result, Tensor,
    graph::op::Op,
    schedule::{self, plan::Plan},
};

impl Tensor {
    /// The elements as little-endian bytes in row-major order.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        crate::schedule::capture::refuse_reading()?;
        let storage = self.storage()?;
        let storage = if storage.layout.is_contiguous() {
            storage
        } else {
            let _guard = crate::graph::gradient::no_grad();
            Tensor::record(Op::Contiguous, self.dtype(), self.shape().into(), &[self])?.storage()?
        };
        let mut bytes = vec![0; self.len() * self.dtype().size()];
        let offset = storage.layout.offset * self.dtype().size();
        self.device().backend().read(&storage.buffer, offset, &mut bytes)?;
        Ok(bytes)
    }

    /// The elements in row-major order. `T` must be the tensor's own dtype.
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        if T::DTYPE != self.dtype() {
            let hint = format!("read it as {}, or convert with .to_dtype({})", self.dtype(), T::DTYPE);
            return Err(Error::dtype("to_vec", &[self.dtype(), T::DTYPE], hint));
        }
        Ok(T::read_bytes(&self.to_bytes()?))
    }

    /// The only element.
    pub fn item<T: Element>(&self) -> Result<T> {
        if self.len() != 1 {
            return Err(Error::shape("item", &[self.shape()], "only a tensor with one element has an item"));
        }
        Ok(self.to_vec::<T>()?[0])
    }

    /// The plan by which the elements would be computed, without computing them; `None` if they are there. Printed, it
    /// has a line for each step; [`Plan::summaries`] has the figures.
    ///
    /// # Errors
    /// [`Error::Argument`] if the tensor depends on work that another thread is doing, or on another device.
    pub fn explain(&self) -> Result<Option<Arc<Plan>>> {
        schedule::explain(self)
    }
}
