//! Sorting and searching.

use super::operands::promote2;
use crate::{
    DType, Error, Result, Tensor, host_memory, interrupt,
    op::{ArgSort, Op, SearchSorted},
    shape::{Dims, normalize_axis},
};

/// The result of [`Tensor::unique`].
#[derive(Clone)]
pub struct Unique {
    /// The distinct values in ascending order, as a vector.
    pub values: Tensor,
    /// The position of each element in `values`, `int64`, in the tensor's shape.
    pub inverse: Tensor,
    /// The number of occurrences of each value, `int64`.
    pub counts: Tensor,
}

impl Tensor {
    /// The positions (`int64`) that sort the tensor along an axis. The sort is stable. NaN counts as the greatest: it
    /// comes last, or first if `descending`.
    pub fn argsort(&self, dim: i64, descending: bool) -> Result<Tensor> {
        if self.rank() == 0 && matches!(dim, -1 | 0) {
            return Tensor::zeros(&[], DType::I64, self.device());
        }
        let axis = normalize_axis("argsort", dim, self.shape())? as i64;
        let last = self.move_axis(axis, -1)?;
        let order =
            Tensor::record(Op::ArgSort(ArgSort { descending }), DType::I64, last.shape().into(), &[&last])?;
        order.move_axis(-1, axis)
    }

    /// Sorts along an axis, and returns the positions (`int64`) that sort it. The sort is stable. NaN counts as the
    /// greatest: it comes last, or first if `descending`.
    pub fn sort(&self, dim: i64, descending: bool) -> Result<(Tensor, Tensor)> {
        let order = self.argsort(dim, descending)?;
        let sorted = if self.rank() == 0 { self.clone() } else { self.gather(dim, &order)? };
        Ok((sorted, order))
    }

    /// The `k` greatest elements along an axis (the least unless `largest`), sorted, and their positions (`int64`). NaN
    /// counts as the greatest.
    ///
    /// # Errors
    /// [`Error::Argument`] if the axis has fewer than `k` elements.
    pub fn topk(&self, k: usize, dim: i64, largest: bool) -> Result<(Tensor, Tensor)> {
        let axis = normalize_axis("topk", dim, self.shape())?;
        if k > self.shape()[axis] {
            let message = format!("k = {k} exceeds the size of axis {axis}, {}", self.shape()[axis]);
            return Err(Error::argument("topk", message));
        }
        let order = self.argsort(dim, largest)?.sliced_axis(axis, 0, 1, k)?;
        Ok((self.gather(dim, &order)?, order))
    }

    /// The positions (`int64`) in this sorted vector where `values` (any shape) would be inserted to keep it sorted:
    /// before equal elements, or after them if `right`.
    ///
    /// # Errors
    /// [`Error::Shape`] unless this tensor has one dimension.
    pub fn searchsorted(&self, values: &Tensor, right: bool) -> Result<Tensor> {
        if self.rank() != 1 {
            return Err(Error::shape(
                "searchsorted",
                &[self.shape()],
                "the sorted sequence must have one dimension",
            ));
        }
        let (sorted, wanted) = promote2(self, values)?;
        let flat = wanted.reshaped(Dims::from_slice(&[wanted.len()]))?;
        let op = Op::SearchSorted(SearchSorted { right });
        Tensor::record(op, DType::I64, flat.shape().into(), &[&sorted, &flat])?
            .reshaped(values.shape().into())
    }

    /// The distinct elements in ascending order, the position of each element among them, and the number of
    /// occurrences. Each NaN is distinct. Computed immediately.
    pub fn unique(&self) -> Result<Unique> {
        let _guard = crate::no_grad();
        let flat = self.reshaped(Dims::from_slice(&[self.len()]))?;
        let (sorted, order) = flat.sort(0, false)?;
        let count = self.len();
        let device = self.device();
        // True where a run of equal elements begins.
        let begins = match count {
            0 => Tensor::zeros(&[0], DType::Bool, device)?,
            _ => {
                let differs = sorted.narrow(0, 1, count - 1)?.ne(&sorted.narrow(0, 0, count - 1)?)?;
                Tensor::cat(&[&Tensor::ones(&[1], DType::Bool, device)?, &differs], 0)?
            }
        };
        let flags = begins.to_bytes()?;
        let order = order.to_vec::<i64>()?;
        let mut inverse = host_memory::filled(0i64, count)?;
        let mut group = -1;
        for (places, flags) in order.chunks(host_memory::BLOCK).zip(flags.chunks(host_memory::BLOCK)) {
            interrupt::check()?;
            for (&place, &begins) in places.iter().zip(flags) {
                group += i64::from(begins);
                inverse[place as usize] = group;
            }
        }
        let inverse = Tensor::from_slice(&inverse, self.shape(), device)?;
        let starts = begins.true_positions("unique")?;
        let ends = Tensor::from_slice(&[count as i64][..count.min(1)], &[count.min(1)], device)?;
        let ends = Tensor::cat(&[&starts.narrow(0, count.min(1), starts.len() - count.min(1))?, &ends], 0)?;
        Ok(Unique { values: sorted.take(&starts, Some(0))?, inverse, counts: ends.sub(&starts)? })
    }
}
