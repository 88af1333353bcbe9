//! Elements by position: diagonals, rotations, indexed slices, masks, membership.

use smallvec::SmallVec;

use crate::{
    DType, Device, Error, Result, Scalar, Tensor,
    shape::{Dims, normalize_axis},
};

impl Tensor {
    /// Validates two distinct axes.
    fn axis_pair(op: &'static str, shape: &[usize], first: i64, second: i64) -> Result<(usize, usize)> {
        let (a, b) = (normalize_axis(op, first, shape)?, normalize_axis(op, second, shape)?);
        if a == b {
            let message = format!("dims ({first}, {second}) must name two different dimensions");
            return Err(Error::argument(op, message));
        }
        Ok((a, b))
    }

    /// The diagonals over two axes, moved to the last axis of the result. `dim1` are the rows. `offset` 0 is the main
    /// diagonal, positive values are above it; a diagonal outside the matrix is empty.
    ///
    /// # Errors
    /// [`Error::Axis`] for an axis out of range; [`Error::Argument`] if both axes are the same.
    pub fn diagonal(&self, offset: i64, dim1: i64, dim2: i64) -> Result<Tensor> {
        let (a, b) = Tensor::axis_pair("diagonal", self.shape(), dim1, dim2)?;
        let order: Dims = (0..self.rank()).filter(|axis| ![a, b].contains(axis)).chain([a, b]).collect();
        let (rows, columns) = (self.shape()[a], self.shape()[b]);
        let beyond = usize::try_from(offset.unsigned_abs()).unwrap_or(usize::MAX);
        let (row, column) = if offset >= 0 { (0, beyond) } else { (beyond, 0) };
        let len = rows.saturating_sub(row).min(columns.saturating_sub(column));
        let start = if len == 0 { 0 } else { row.saturating_mul(columns).saturating_add(column) };
        let mut flat: Dims = order[..order.len() - 2].iter().map(|&axis| self.shape()[axis]).collect();
        flat.push(rows.saturating_mul(columns));
        let axis = flat.len() - 1;
        self.permute(&order)?.reshaped(flat)?.sliced_axis(axis, start, columns as isize + 1, len)
    }

    /// Matrices with the last axis of this tensor on a diagonal and zeros elsewhere. `dim1` and `dim2` are the row and
    /// column axes in the result. `offset` 0 is the main diagonal, positive values are above it.
    ///
    /// # Errors
    /// [`Error::Shape`] for a 0-dimensional tensor; [`Error::Axis`] for an axis out of range; [`Error::Argument`] if
    /// both axes are the same, or the matrices would exceed the address space.
    pub fn diag_embed(&self, offset: i64, dim1: i64, dim2: i64) -> Result<Tensor> {
        let Some(&count) = self.shape().last() else {
            return Err(Error::shape("diag_embed", &[self.shape()], "expected at least one dimension"));
        };
        let beyond = usize::try_from(offset.unsigned_abs()).unwrap_or(usize::MAX);
        let Some(size) = count.checked_add(beyond).filter(|&size| i64::try_from(size).is_ok()) else {
            return Err(Error::argument("diag_embed", "the matrices would exceed the address space"));
        };
        let (above, left) = if offset >= 0 { (0, beyond) } else { (beyond, 0) };
        let mut padding: SmallVec<[(usize, usize); 4]> = SmallVec::from_elem((0, 0), self.rank());
        padding[self.rank() - 1] = (left, above);
        let padded = self.pad(&padding, Scalar::Int(0).cast(self.dtype()))?.unsqueeze(-2)?;
        let square = Dims::from_slice(&[size, size]);
        let row = Tensor::iota(square.clone(), 0, DType::I64, self.device())?;
        let column = Tensor::iota(square, 1, DType::I64, self.device())?;
        let on = row.add_scalar(offset)?.eq(&column)?;
        let placed = on.where_(&padded, &Tensor::zeros(&[], self.dtype(), self.device())?)?;
        let (a, b) = Tensor::axis_pair("diag_embed", placed.shape(), dim1, dim2)?;
        let (rank, mut rest) = (placed.rank(), 0..placed.rank() - 2);
        let from = |axis: usize| match axis {
            _ if axis == a => rank - 2,
            _ if axis == b => rank - 1,
            _ => rest.next().unwrap_or(0),
        };
        placed.permute(&(0..rank).map(from).collect::<Dims>())
    }

    /// The positions of the lower triangle of a matrix in row-major order, as `[2, count]`: row 0 has the row numbers,
    /// row 1 the column numbers. `offset` 0 includes the main diagonal and everything below it; positive values include
    /// diagonals above. Computed immediately.
    ///
    /// # Errors
    /// [`Error::DType`] unless `dtype` is an integer.
    pub fn tril_indices(
        rows: usize,
        columns: usize,
        offset: i64,
        dtype: DType,
        device: Device,
    ) -> Result<Tensor> {
        super::select::check_index("tril_indices", &Tensor::zeros(&[], dtype, device)?)?;
        Tensor::ones(&[rows, columns], DType::Bool, device)?.tril(offset)?.nonzero()?.t()?.to_dtype(dtype)
    }

    /// The positions of the upper triangle of a matrix, as [`Tensor::tril_indices`]. `offset` 0 includes the main
    /// diagonal.
    ///
    /// # Errors
    /// As [`Tensor::tril_indices`].
    pub fn triu_indices(
        rows: usize,
        columns: usize,
        offset: i64,
        dtype: DType,
        device: Device,
    ) -> Result<Tensor> {
        super::select::check_index("triu_indices", &Tensor::zeros(&[], dtype, device)?)?;
        Tensor::ones(&[rows, columns], DType::Bool, device)?.triu(offset)?.nonzero()?.t()?.to_dtype(dtype)
    }

    /// Rotates by 90 degrees `k` times in the plane of two axes, from the first towards the second.
    ///
    /// # Errors
    /// [`Error::Axis`] for an axis out of range; [`Error::Argument`] if both axes are the same.
    pub fn rot90(&self, k: i64, dims: [i64; 2]) -> Result<Tensor> {
        let [first, second] = dims;
        Tensor::axis_pair("rot90", self.shape(), first, second)?;
        match k.rem_euclid(4) {
            0 => Ok(self.clone()),
            2 => self.flip(&[first, second]),
            1 => self.transpose(first, second)?.flip(&[first]),
            _ => self.transpose(first, second)?.flip(&[second]),
        }
    }

    /// Broadcasts a vector of positions along one axis to the other axes.
    fn broadcast_index(&self, op: &'static str, dim: i64, index: &Tensor) -> Result<Tensor> {
        let axis = normalize_axis(op, dim, self.shape())?;
        if index.rank() > 1 {
            return Err(Error::shape(op, &[index.shape()], "the index must be a vector"));
        }
        let (mut sizes, mut shape) = (Dims::from_elem(1, self.rank()), Dims::from_slice(self.shape()));
        (sizes[axis], shape[axis]) = (index.len(), index.len());
        index.reshaped(sizes)?.stretched(&shape)
    }

    /// Copies the slices of `source` to the positions `index` (a vector) along an axis. If a position is repeated, the
    /// last slice wins.
    ///
    /// # Errors
    /// As [`Tensor::scatter`].
    pub fn index_copy(&self, dim: i64, index: &Tensor, source: &Tensor) -> Result<Tensor> {
        self.scatter(dim, &self.broadcast_index("index_copy", dim, index)?, source)
    }

    /// Sets the slices at the positions `index` (a vector) along an axis to `value`.
    ///
    /// # Errors
    /// As [`Tensor::scatter`]; [`Error::Argument`] if the value does not fit the dtype.
    pub fn index_fill(&self, dim: i64, index: &Tensor, value: impl Into<Scalar>) -> Result<Tensor> {
        let value = super::operands::fitting("index_fill", value.into(), self.dtype())?;
        let index = self.broadcast_index("index_fill", dim, index)?;
        self.scatter(dim, &index, &index.constant_like(value, self.dtype())?)
    }

    /// Copies the elements of `source`, in row-major order, to the positions where the mask is true. The mask is `bool`
    /// and broadcast to this shape. The number of true elements is computed immediately.
    ///
    /// # Errors
    /// [`Error::Argument`] if `source` has fewer elements than the mask has true ones; [`Error::DType`] unless the mask
    /// is `bool`; [`Error::Shape`] if it cannot be broadcast.
    pub fn masked_scatter(&self, mask: &Tensor, source: &Tensor) -> Result<Tensor> {
        if mask.dtype() != DType::Bool {
            return Err(Error::dtype("masked_scatter", &[mask.dtype()], "the mask must be bool"));
        }
        let mask = mask.broadcast_to(self.shape())?;
        let count = mask.sum(&[], false)?.item::<i64>()?;
        if usize::try_from(count).is_ok_and(|count| count > source.len()) {
            let message = format!("the mask selects {count} elements, the source has {}", source.len());
            return Err(Error::argument("masked_scatter", message));
        }
        if count == 0 {
            return Ok(self.clone());
        }
        let place = mask.reshaped(Dims::from_slice(&[mask.len()]))?.to_dtype(DType::I64)?.cumsum(0)?;
        let place = place.sub_scalar(1)?.maximum_scalar(0)?;
        let given = source.take(&place, None)?.reshaped(self.shape().into())?;
        mask.where_(&given.to_dtype(self.dtype())?, self)
    }

    /// True (`bool`) where an element occurs in `set`, which may have any shape. NaN equals nothing.
    pub fn isin(&self, set: &Tensor) -> Result<Tensor> {
        let sorted = set.reshaped(Dims::from_slice(&[set.len()]))?.sort(0, false)?.0;
        if sorted.is_empty() {
            return self.constant_like(Scalar::Bool(false), DType::Bool);
        }
        let last = Scalar::Int(i64::try_from(sorted.len() - 1).unwrap_or(i64::MAX));
        let place = sorted.searchsorted(self, false)?.clamp(None, Some(last))?;
        self.eq(&sorted.take(&place, None)?)
    }
}
