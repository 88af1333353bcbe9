//! Joining and splitting along an axis.

use crate::{
    DType, Error, Result, Tensor, host_memory, interrupt,
    op::{Cat, Op},
    shape::{Dims, normalize_axis},
};

/// Host memory per piece, besides its elements.
const PIECE_BYTES: usize = 1024;

impl Tensor {
    /// Concatenates tensors along axis `dim`. All other sizes must be equal; dtypes are promoted.
    ///
    /// # Errors
    /// [`Error::Argument`] for an empty list; [`Error::Shape`] if sizes differ other than along the axis.
    pub fn cat(tensors: &[&Tensor], dim: i64) -> Result<Tensor> {
        let Some(first) = tensors.first() else {
            return Err(Error::argument("cat", "expected at least one tensor"));
        };
        let axis = normalize_axis("cat", dim, first.shape())?;
        let mut shape: Dims = first.shape().into();
        shape[axis] = 0;
        for tensor in tensors {
            let same = tensor.rank() == shape.len()
                && (0..shape.len()).all(|i| i == axis || tensor.shape()[i] == shape[i]);
            if !same {
                let hint = format!("sizes must be equal except along axis {axis}");
                return Err(Error::shape("cat", &[first.shape(), tensor.shape()], hint));
            }
            shape[axis] = shape[axis].checked_add(tensor.shape()[axis]).ok_or_else(|| {
                let hint = "the result would exceed the address space";
                Error::shape("cat", &[first.shape(), tensor.shape()], hint)
            })?;
        }
        let dtype = common_dtype(tensors, first.dtype());
        let converted = tensors.iter().map(|t| t.to_dtype(dtype)).collect::<Result<Vec<_>>>()?;
        if let [only] = converted.as_slice() {
            return Ok(only.clone());
        }
        Tensor::record(Op::Cat(Cat { axis }), dtype, shape, &converted.iter().collect::<Vec<_>>())
    }

    /// Joins tensors of the same shape along a new axis `dim` of the result.
    pub fn stack(tensors: &[&Tensor], dim: i64) -> Result<Tensor> {
        if let Some(other) = tensors.iter().find(|t| t.shape() != tensors[0].shape()) {
            let hint = "tensors must have the same shape; cat joins along an existing axis";
            return Err(Error::shape("stack", &[tensors[0].shape(), other.shape()], hint));
        }
        let raised = tensors.iter().map(|t| t.unsqueeze(dim)).collect::<Result<Vec<_>>>()?;
        Tensor::cat(&raised.iter().collect::<Vec<_>>(), dim)
    }

    /// Splits into pieces of `size` along an axis; the last may be smaller.
    pub fn split(&self, size: usize, dim: i64) -> Result<Vec<Tensor>> {
        let axis = normalize_axis("split", dim, self.shape())?;
        if size == 0 {
            return Err(Error::argument("split", "the split size must not be 0"));
        }
        let extent = self.shape()[axis];
        let count = extent.div_ceil(size).max(1);
        // Failed small allocations abort the process, so check up front that the memory for all pieces is available.
        drop(host_memory::room::<[u8; PIECE_BYTES]>(count)?);
        let mut pieces = host_memory::room(count)?;
        for i in 0..count {
            interrupt::check()?;
            pieces.push(self.sliced_axis(axis, i * size, 1, size.min(extent - i * size))?);
        }
        Ok(pieces)
    }

    /// Splits into pieces of these sizes along an axis. The sizes must add up to its extent.
    pub fn split_sizes(&self, sizes: &[usize], dim: i64) -> Result<Vec<Tensor>> {
        let axis = normalize_axis("split", dim, self.shape())?;
        let total = sizes.iter().try_fold(0usize, |sum, &size| sum.checked_add(size));
        if total != Some(self.shape()[axis]) {
            let given =
                if sizes.len() > 64 { format!("{} sizes", sizes.len()) } else { format!("sizes {sizes:?}") };
            let message = format!("{given} must add up to {}, the extent of axis {axis}", self.shape()[axis]);
            return Err(Error::argument("split", message));
        }
        let starts = sizes.iter().scan(0, |next, &size| {
            *next += size;
            Some(*next - size)
        });
        starts.zip(sizes).map(|(start, &size)| self.sliced_axis(axis, start, 1, size)).collect()
    }

    /// Splits into at most `count` pieces of equal size along an axis; the last may be smaller. An empty axis gives
    /// `count` empty pieces.
    pub fn chunk(&self, count: usize, dim: i64) -> Result<Vec<Tensor>> {
        let axis = normalize_axis("chunk", dim, self.shape())?;
        if count == 0 {
            return Err(Error::argument("chunk", "the number of chunks must not be 0"));
        }
        if self.shape()[axis] == 0 {
            drop(host_memory::room::<[u8; PIECE_BYTES]>(count)?);
            let mut pieces = host_memory::room(count)?;
            for _ in 0..count {
                interrupt::check()?;
                pieces.push(self.clone());
            }
            return Ok(pieces);
        }
        self.split(self.shape()[axis].div_ceil(count), dim)
    }
}

/// The promoted dtype of several tensors.
fn common_dtype(tensors: &[&Tensor], first: DType) -> DType {
    tensors.iter().fold(first, |dtype, t| dtype.promote(t.dtype()))
}
