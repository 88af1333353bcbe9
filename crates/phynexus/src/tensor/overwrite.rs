//! Overwriting a single element in place.

use std::sync::Arc;

use crate::{Result, Tensor, graph::Extremes, schedule::capture::is_recording};

impl Tensor {
    /// Overwrites the element at `index` (one position per axis) in place, provided that only this handle can observe
    /// it: the data is computed and accessible to the host, there is no other handle to it, and the tensor does not
    /// require gradients. Otherwise, or if an index is out of range, returns false and changes nothing. `bytes` is one
    /// element.
    ///
    /// # Errors
    /// Errors of the device.
    pub fn overwrite_element(&mut self, index: &[usize], bytes: &[u8]) -> Result<bool> {
        let in_range =
            index.len() == self.rank() && index.iter().zip(self.shape()).all(|(&at, &size)| at < size);
        let size = self.dtype().size();
        if !in_range || bytes.len() != size || self.requires_grad() || is_recording() {
            return Ok(false);
        }
        if Arc::strong_count(self.node()) > 1 {
            return Ok(false);
        }
        if !self.is_leaf() {
            // After the write, the node's operation no longer describes the elements, so replace the node by a leaf.
            let Some(data) = self.node().data() else { return Ok(false) };
            *self = Tensor::from_storage(self.device(), self.dtype(), data);
        }
        let mut body = self.node().body();
        let Some(data) = body.data.as_deref() else { return Ok(false) };
        let is_shared = Arc::strong_count(&data.buffer.0) > 1;
        let repeats =
            data.layout.strides.iter().zip(self.shape()).any(|(&stride, &size)| stride == 0 && size > 1);
        if is_shared || repeats || data.buffer.0.host_pointer().is_none() {
            return Ok(false);
        }
        let steps = data.layout.strides.iter().zip(index).map(|(&stride, &at)| stride * at as isize);
        let Some(element) = data.layout.offset.checked_add_signed(steps.sum()) else { return Ok(false) };
        self.device().backend().write(&data.buffer, element * size, bytes)?;
        let known = body.extremes.take().zip(Extremes::of_bytes(bytes, self.dtype()));
        body.extremes = known.map(|(known, written)| Box::new(known.with(&written).into_bounds()));
        Ok(true)
    }
}
