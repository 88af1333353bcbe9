//! Repeating and rolling.

use crate::{
    Error, Result, Tensor,
    shape::{Dims, normalize_axis},
};

impl Tensor {
    /// Repeats the tensor `counts[i]` times along each axis, as NumPy's `tile`. Counts are aligned at the last axis;
    /// surplus counts add axes in front.
    pub fn tile(&self, counts: &[usize]) -> Result<Tensor> {
        let rank = self.rank().max(counts.len());
        let at = |list: &[usize], axis: usize| (axis + list.len()).checked_sub(rank).map_or(1, |i| list[i]);
        let (mut paired, mut wide, mut shape) = (Dims::new(), Dims::new(), Dims::new());
        for axis in 0..rank {
            let (count, size) = (at(counts, axis), at(self.shape(), axis));
            let Some(grown) = count.checked_mul(size) else {
                return Err(Error::shape(
                    "tile",
                    &[self.shape(), counts],
                    "the result would exceed the address space",
                ));
            };
            if count != 1 {
                paired.push(1);
                wide.push(count);
            }
            paired.push(size);
            wide.push(size);
            shape.push(grown);
        }
        self.reshaped(paired)?.stretched(&wide)?.reshaped(shape)
    }

    /// [`Tensor::tile`] as PyTorch's `repeat`, which needs a count for every axis.
    ///
    /// # Errors
    /// [`Error::Argument`] if there are fewer counts than axes.
    pub fn repeat(&self, counts: &[usize]) -> Result<Tensor> {
        if counts.len() < self.rank() {
            let message =
                format!("{} counts for {} dimensions; tile aligns at the last", counts.len(), self.rank());
            return Err(Error::argument("repeat", message));
        }
        self.tile(counts)
    }

    /// Repeats each element `count` times along an axis.
    pub fn repeat_interleave(&self, count: usize, dim: i64) -> Result<Tensor> {
        let axis = normalize_axis("repeat_interleave", dim, self.shape())?;
        let mut wide: Dims = self.shape().into();
        wide.insert(axis + 1, count);
        let mut shape: Dims = self.shape().into();
        shape[axis] = shape[axis].checked_mul(count).ok_or_else(|| {
            Error::shape("repeat_interleave", &[self.shape()], "the result would exceed the address space")
        })?;
        self.unsqueeze(axis as i64 + 1)?.stretched(&wide)?.reshaped(shape)
    }

    /// Rolls the elements by `shifts[i]` places along axis `dims[i]`; elements beyond the end re-enter at the start.
    /// Without `dims`, the flattened tensor is rolled by the only shift.
    ///
    /// # Errors
    /// [`Error::Argument`] unless there is one shift per axis.
    pub fn roll(&self, shifts: &[i64], dims: &[i64]) -> Result<Tensor> {
        if let ([shift], []) = (shifts, dims) {
            let flat = self.reshaped(Dims::from_slice(&[self.len()]))?;
            return flat.roll(&[*shift], &[0])?.reshaped(self.shape().into());
        }
        if shifts.len() != dims.len() {
            let message = format!("{} shifts for {} axes", shifts.len(), dims.len());
            return Err(Error::argument("roll", message));
        }
        let mut rolled = self.clone();
        for (&shift, &dim) in shifts.iter().zip(dims) {
            let axis = normalize_axis("roll", dim, self.shape())?;
            let size = self.shape()[axis];
            let shift = if size == 0 { 0 } else { shift.rem_euclid(size as i64) as usize };
            if shift > 0 {
                let tail = rolled.sliced_axis(axis, size - shift, 1, shift)?;
                let head = rolled.sliced_axis(axis, 0, 1, size - shift)?;
                rolled = Tensor::cat(&[&tail, &head], axis as i64)?;
            }
        }
        Ok(rolled)
    }
}
