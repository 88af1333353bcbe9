//! Reading tensors: the calls that make pending work run.

use std::{fmt, marker::PhantomData, sync::Arc};

use crate::{
    Element, Error, Result, Tensor,
    device::{Buffer, HostRead},
    host_memory,
    op::Op,
    schedule::{self, plan::Plan},
};

/// Elements that are on their way to the host, from [`Tensor::to_vec_async`]. They are those that the tensor has, whatever
/// becomes of it. Dropping it gives them up.
pub struct Reading<T> {
    copy: Box<dyn HostRead>,
    elements: PhantomData<fn() -> T>,
}

impl<T: Element> Reading<T> {
    /// True if [`wait`](Reading::wait) would not wait: the elements are there, or the device has failed.
    pub fn is_done(&self) -> bool {
        self.copy.is_done()
    }

    /// The elements in row-major order, once they are there.
    ///
    /// # Errors
    /// Those of the device, which it met in the computation or in the copy.
    pub fn wait(self) -> Result<Vec<T>> {
        let mut elements = Vec::new();
        self.copy.finish(&mut |bytes| {
            elements = host_memory::elements(bytes)?;
            Ok(())
        })?;
        Ok(elements)
    }
}

impl<T> fmt::Debug for Reading<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reading(is_done: {})", self.copy.is_done())
    }
}

impl Tensor {
    /// The elements as little-endian bytes in row-major order.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let (buffer, offset, count) = self.data_in_rows()?;
        let mut bytes = host_memory::filled(0, count)?;
        self.device().backend().read(&buffer, offset, &mut bytes)?;
        Ok(bytes)
    }

    /// The memory in which the elements lie in row-major order, where they begin there, and their bytes.
    pub(crate) fn data_in_rows(&self) -> Result<(Buffer, usize, usize)> {
        crate::schedule::capture::refuse_reading()?;
        let storage = self.storage()?;
        let storage = if storage.layout.is_contiguous() {
            storage
        } else {
            let _guard = crate::op::gradient::no_grad();
            Tensor::record(Op::Contiguous, self.dtype(), self.shape().into(), &[self])?.storage()?
        };
        let size = self.dtype().size();
        Ok((storage.buffer, storage.layout.offset * size, self.len() * size))
    }

    /// The elements in row-major order. `T` must be the tensor's own dtype.
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        self.check_read::<T>("to_vec")?;
        host_memory::elements(&self.to_bytes()?)
    }

    /// Begins to read the elements, and goes on: the computation is submitted, and the copy behind it. On a device that
    /// computes while the host goes on, a training loop reads its losses so without waiting for each. `T` must be the
    /// tensor's own dtype.
    ///
    /// ```
    /// # use phynexus::{Tensor, oracle::reference_device};
    /// let x = Tensor::from_slice(&[1.0f32, 2.0], &[2], reference_device())?;
    /// let reading = x.square()?.to_vec_async::<f32>()?;
    /// // ... what else there is to do ...
    /// assert_eq!(reading.wait()?, [1.0, 4.0]);
    /// # Ok::<(), phynexus::Error>(())
    /// ```
    pub fn to_vec_async<T: Element>(&self) -> Result<Reading<T>> {
        self.check_read::<T>("to_vec_async")?;
        let (buffer, offset, bytes) = self.data_in_rows()?;
        let copy = self.device().backend().begin_read(&buffer, offset, bytes)?;
        Ok(Reading { copy, elements: PhantomData })
    }

    fn check_read<T: Element>(&self, op: &'static str) -> Result<()> {
        if T::DTYPE == self.dtype() {
            return Ok(());
        }
        let hint = format!("read it as {}, or convert with .to_dtype({})", self.dtype(), T::DTYPE);
        Err(Error::dtype(op, &[self.dtype(), T::DTYPE], hint))
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
