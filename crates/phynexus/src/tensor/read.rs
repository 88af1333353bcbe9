//! Reading tensors, which runs pending work.

use std::{fmt, marker::PhantomData, sync::Arc};

use crate::{
    Element, Error, Result, Tensor,
    device::{Buffer, HostRead},
    host_memory,
    op::Op,
    schedule::{self, plan::Plan},
};

/// A pending read of a tensor's elements, from [`Tensor::to_vec_async`]. Later changes of the tensor do not affect it.
/// Dropping it abandons the read.
pub struct Reading<T> {
    copy: Box<dyn HostRead>,
    elements: PhantomData<fn() -> T>,
}

impl<T: Element> Reading<T> {
    /// True if [`wait`](Reading::wait) would return immediately: the elements have arrived or the device has failed.
    pub fn is_done(&self) -> bool {
        self.copy.is_done()
    }

    /// Waits for the elements and returns them in row-major order.
    ///
    /// # Errors
    /// Errors of the device in the computation or the copy.
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

    /// The buffer that holds the elements in row-major order, the offset of the first one, and their size; both in
    /// bytes.
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

    /// The elements in row-major order. `T` must match the tensor's dtype.
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        self.check_read::<T>("to_vec")?;
        host_memory::elements(&self.to_bytes()?)
    }

    /// Starts reading the elements and returns immediately: the computation and the copy are submitted to the device.
    /// On an asynchronous device, a training loop can read losses this way without waiting for each step. `T` must
    /// match the tensor's dtype.
    ///
    /// ```
    /// # use phynexus::{Tensor, oracle::reference_device};
    /// let x = Tensor::from_slice(&[1.0f32, 2.0], &[2], reference_device())?;
    /// let reading = x.square()?.to_vec_async::<f32>()?;
    /// // ... other work ...
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

    /// The value of a tensor with a single element.
    pub fn item<T: Element>(&self) -> Result<T> {
        if self.len() != 1 {
            return Err(Error::shape("item", &[self.shape()], "expected exactly one element"));
        }
        Ok(self.to_vec::<T>()?[0])
    }

    /// The plan that would compute the elements, without running it; `None` if they are already computed. Its display
    /// form has a line per step; [`Plan::summaries`] has the figures.
    ///
    /// # Errors
    /// [`Error::Argument`] if the tensor depends on work in progress on another thread, or on another device.
    pub fn explain(&self) -> Result<Option<Arc<Plan>>> {
        schedule::explain(self)
    }
}
