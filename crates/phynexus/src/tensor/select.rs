//! Selecting and updating elements by integer tensors or masks. All methods use the row-wise `Gather` and `Scatter`
//! primitives; indices into several axes are combined to one flat row index.

use smallvec::SmallVec;

use crate::{
    DType, Error, Result, Scalar, Tensor, host_memory, interrupt,
    op::{Combine, Gather, IndexRange, Op, Scatter, ScatterMode},
    schedule::capture::is_recording,
    shape::{Dims, element_count, normalize_axis},
};

/// The dtype for positions among `count` elements: 32 bits if they suffice.
pub(super) fn position_dtype(count: usize) -> DType {
    if count < i32::MAX as usize { DType::I32 } else { DType::I64 }
}

/// Requires an integer dtype.
pub(super) fn check_index(op: &'static str, index: &Tensor) -> Result<()> {
    if index.dtype().is_integer() {
        return Ok(());
    }
    Err(Error::dtype(op, &[index.dtype()], "indices must be integers: convert with .to_dtype(int64)"))
}

/// Whether an index into `size` elements is known to be in range. If its extremes are known and out of range, this is
/// an error. Otherwise the index is checked on use. The arguments of a captured function are always checked on use,
/// because they change.
pub(super) fn check_range(
    op: &'static str,
    axis: Option<usize>,
    size: usize,
    index: &Tensor,
) -> Result<IndexRange> {
    let end = i64::try_from(size).unwrap_or(i64::MAX);
    if index.is_known_within(-end, end - 1) {
        return Ok(IndexRange::Known);
    }
    match index.extremes().filter(|_| !is_recording()) {
        Some((least, greatest)) => {
            Err(Error::Index { op, index: if greatest < end { least } else { greatest }, size, axis })
        }
        None => Ok(IndexRange::Unknown),
    }
}

/// Rejects `bool`, which has no sum.
pub(super) fn check_sum(op: &'static str, dtype: DType) -> Result<()> {
    if dtype != DType::Bool {
        return Ok(());
    }
    Err(Error::dtype(op, &[dtype], "bool cannot be summed: convert with .to_dtype(int64)"))
}

/// Converts `index` along an axis of `size` to non-negative positions in `dtype`, and reports which are in range.
/// Negative indices count from the end.
pub(super) fn positions(index: &Tensor, size: usize, dtype: DType) -> Result<(Tensor, Tensor)> {
    let below = index.lt_scalar(size as i64)?;
    if index.dtype().kind() == crate::DTypeKind::Unsigned {
        return Ok((index.to_dtype(dtype)?, below));
    }
    let negative = index.lt_scalar(0)?;
    let valid = index.ge_scalar(-(size as i64))?.and(&below)?;
    let position = index.to_dtype(dtype)?;
    let wrapped = position.add_scalar(size as i64)?;
    Ok((negative.where_(&wrapped, &position)?, valid))
}

impl Tensor {
    /// Selects rows of a matrix: `[N, D]` at index `[M]` gives `[M, D]`.
    pub(super) fn rows(&self, index: &Tensor, range: IndexRange) -> Result<Tensor> {
        let shape = Dims::from_slice(&[index.len(), self.shape()[1]]);
        Tensor::record(Op::Gather(Gather(range)), self.dtype(), shape, &[self, index])
    }

    /// Updates rows of a matrix `[N, D]` at index `[M]` by `[M, D]`.
    pub(super) fn with_rows(
        &self,
        mode: ScatterMode,
        (index, range): (&Tensor, IndexRange),
        updates: &Tensor,
    ) -> Result<Tensor> {
        Tensor::record(
            Op::Scatter(Scatter(mode, range)),
            self.dtype(),
            self.shape().into(),
            &[self, index, updates],
        )
    }

    /// The axis order with `axis` first.
    fn axis_first(&self, axis: usize) -> Dims {
        std::iter::once(axis).chain((0..self.rank()).filter(|&a| a != axis)).collect()
    }

    /// Elements at `index` along an axis, which is replaced by the shape of the index. `None` indexes the flattened
    /// tensor. Negative indices count from the end.
    ///
    /// # Errors
    /// [`Error::DType`] unless the index is an integer tensor; [`Error::Index`] for an index out of range: immediately
    /// if the range of the index is known on the host, otherwise when the result is computed.
    pub fn take(&self, index: &Tensor, axis: Option<i64>) -> Result<Tensor> {
        check_index("take", index)?;
        let Some(axis) = axis else {
            let flat = self.reshaped(Dims::from_slice(&[self.len()]))?;
            flat.refuse_empty("take", 0, index)?;
            check_range("take", None, self.len(), index)?;
            return flat.take(index, Some(0));
        };
        let axis = normalize_axis("take", axis, self.shape())?;
        self.refuse_empty("take", axis, index)?;
        let range = check_range("take", Some(axis), self.shape()[axis], index)?;
        let first = self.permute(&self.axis_first(axis))?;
        let rest: Dims = first.shape()[1..].into();
        let matrix = first.reshaped(Dims::from_slice(&[self.shape()[axis], element_count(&rest)]))?;
        let rows = matrix.rows(&index.reshaped(Dims::from_slice(&[index.len()]))?, range)?;
        let shape: Dims = index.shape().iter().chain(&rest).copied().collect();
        let taken = rows.reshaped(shape)?;
        // Moves the axes of the index from the front to the place of the axis.
        let r = index.rank();
        let order: Dims = (r..r + axis).chain(0..r).chain(r + axis..taken.rank()).collect();
        taken.permute(&order)
    }

    /// Rejects a nonempty index into an empty axis.
    fn refuse_empty(&self, op: &'static str, axis: usize, index: &Tensor) -> Result<()> {
        if self.shape()[axis] == 0 && !index.is_empty() {
            let hint = "cannot select elements of an empty axis";
            return Err(Error::shape(op, &[self.shape(), index.shape()], hint));
        }
        Ok(())
    }

    /// [`Tensor::take`] for a vector of indices along an axis, under PyTorch's name.
    ///
    /// # Errors
    /// As [`Tensor::take`]; [`Error::Shape`] unless the index has one dimension.
    pub fn index_select(&self, dim: i64, index: &Tensor) -> Result<Tensor> {
        if index.rank() != 1 {
            return Err(Error::shape(
                "index_select",
                &[index.shape()],
                "the index must have one dimension; see take",
            ));
        }
        self.take(index, Some(dim))
    }

    /// The flat positions in this tensor of the elements that `index` (of the same rank) selects along `axis`: the
    /// other coordinates are those of the index element. An index out of range gives a position out of range.
    fn flat_positions(&self, op: &'static str, axis: usize, index: &Tensor) -> Result<(Tensor, IndexRange)> {
        check_index(op, index)?;
        self.refuse_empty(op, axis, index)?;
        let range = check_range(op, Some(axis), self.shape()[axis], index)?;
        let dtype = position_dtype(self.len());
        let flat = Dims::from_slice(&[index.len()]);
        if self.rank() == 1 {
            return Ok((index.clone(), range));
        }
        let strides = crate::shape::contiguous_strides(self.shape());
        let (position, valid) = positions(index, self.shape()[axis], dtype)?;
        let mut place = position.mul_scalar(strides[axis] as i64)?;
        for (other, &stride) in strides.iter().enumerate() {
            if other != axis && index.shape()[other] > 1 {
                let coordinate = Tensor::iota(index.shape().into(), other, dtype, index.device())?;
                place = place.add(&coordinate.mul_scalar(stride as i64)?)?;
            }
        }
        if range == IndexRange::Unknown {
            place = valid.where_(&place, &place.constant_like(Scalar::Int(self.len() as i64), dtype)?)?;
        }
        Ok((place.reshaped(flat)?, range))
    }

    fn check_along(&self, op: &'static str, axis: usize, index: &Tensor) -> Result<()> {
        let fits = index.rank() == self.rank()
            && (0..self.rank()).all(|a| a == axis || index.shape()[a] <= self.shape()[a]);
        if fits {
            return Ok(());
        }
        let hint = format!(
            "the index must have the same number of dimensions and be no larger except along axis {axis}"
        );
        Err(Error::shape(op, &[self.shape(), index.shape()], hint))
    }

    /// Selects elements along an axis, as PyTorch's `gather`: `result[i][j] = self[index[i][j]][j]` for axis 0. The
    /// index has the same rank and may be smaller along the other axes. Negative indices count from the end.
    ///
    /// # Errors
    /// [`Error::Shape`] and [`Error::DType`] for an index that does not fit; [`Error::Index`] as for [`Tensor::take`].
    pub fn gather(&self, dim: i64, index: &Tensor) -> Result<Tensor> {
        let axis = normalize_axis("gather", dim, self.shape())?;
        self.check_along("gather", axis, index)?;
        let (place, range) = self.flat_positions("gather", axis, index)?;
        self.reshaped(Dims::from_slice(&[self.len(), 1]))?.rows(&place, range)?.reshaped(index.shape().into())
    }

    /// [`Tensor::gather`] that broadcasts the index and this tensor against each other along the other axes: NumPy's
    /// `take_along_axis`.
    pub fn take_along_dim(&self, index: &Tensor, dim: i64) -> Result<Tensor> {
        let axis = normalize_axis("take_along_dim", dim, self.shape())?;
        if index.rank() != self.rank() {
            let hint = "the index must have the same number of dimensions as the tensor";
            return Err(Error::shape("take_along_dim", &[self.shape(), index.shape()], hint));
        }
        let without = |shape: &[usize]| -> Dims {
            shape.iter().enumerate().map(|(a, &d)| if a == axis { 1 } else { d }).collect()
        };
        let common =
            crate::shape::broadcast("take_along_dim", &without(self.shape()), &without(index.shape()))?;
        let with = |size: usize| -> Dims {
            common.iter().enumerate().map(|(a, &d)| if a == axis { size } else { d }).collect()
        };
        let index = index.stretched(&with(index.shape()[axis]))?;
        self.stretched(&with(self.shape()[axis]))?.gather(dim, &index)
    }

    /// The leading part that fits `shape`, if the ranks are equal: PyTorch ignores the rest of a larger source.
    fn leading(&self, shape: &[usize]) -> Result<Tensor> {
        if self.rank() != shape.len() {
            return Ok(self.clone());
        }
        let sizes: Dims = self.shape().iter().zip(shape).map(|(&own, &size)| own.min(size)).collect();
        self.sliced(Dims::from_elem(0, self.rank()), SmallVec::from_elem(1, self.rank()), sizes)
    }

    fn scattered(
        &self,
        op: &'static str,
        mode: ScatterMode,
        dim: i64,
        index: &Tensor,
        source: &Tensor,
    ) -> Result<Tensor> {
        if mode != ScatterMode::Set {
            check_sum(op, self.dtype())?;
        }
        let axis = normalize_axis(op, dim, self.shape())?;
        self.check_along(op, axis, index)?;
        let (place, range) = self.flat_positions(op, axis, index)?;
        let source = source.leading(index.shape())?.to_dtype(self.dtype())?.expand(index.shape())?;
        let updates = source.reshaped(Dims::from_slice(&[index.len(), 1]))?;
        let matrix = self.reshaped(Dims::from_slice(&[self.len(), 1]))?;
        matrix.with_rows(mode, (&place, range), &updates)?.reshaped(self.shape().into())
    }

    /// Replaces elements: `result[index[i][j]][j] = source[i][j]` for axis 0. The source is broadcast to the shape of
    /// the index and converted to this dtype. If it is larger and has the same rank, its leading part is used. If an
    /// element is updated several times, the last update wins.
    ///
    /// # Errors
    /// As [`Tensor::gather`].
    pub fn scatter(&self, dim: i64, index: &Tensor, source: &Tensor) -> Result<Tensor> {
        self.scattered("scatter", ScatterMode::Set, dim, index, source)
    }

    /// [`Tensor::scatter`] that adds updates to the elements, in index order.
    ///
    /// # Errors
    /// As [`Tensor::scatter`]; [`Error::DType`] for `bool`.
    pub fn scatter_add(&self, dim: i64, index: &Tensor, source: &Tensor) -> Result<Tensor> {
        self.scattered("scatter_add", ScatterMode::Combine(Combine::Sum), dim, index, source)
    }

    /// [`Tensor::scatter`] that combines updates with the elements and with each other. Without `include_self`, the
    /// previous values of updated elements are ignored. Equal elements share the gradient of a maximum or minimum.
    ///
    /// # Errors
    /// As [`Tensor::scatter`]; [`Error::DType`] for `bool`.
    pub fn scatter_reduce(
        &self,
        dim: i64,
        index: &Tensor,
        source: &Tensor,
        combine: Combine,
        include_self: bool,
    ) -> Result<Tensor> {
        const OP: &str = "scatter_reduce";
        let mode = ScatterMode::Combine(combine);
        if include_self {
            return self.scattered(OP, mode, dim, index, source);
        }
        // Updated elements start from the identity of the combination.
        let nothing = index.constant_like(combine.identity(self.dtype()), self.dtype())?;
        self.scattered(OP, ScatterMode::Set, dim, index, &nothing)?.scattered(OP, mode, dim, index, source)
    }

    /// Adds the slices of `source` at the positions `index` (a vector) along an axis: the adjoint of
    /// [`Tensor::index_select`].
    ///
    /// # Errors
    /// [`Error::Shape`] unless `source` has this tensor's shape with the length of the index along the axis;
    /// [`Error::DType`] for `bool`.
    pub fn index_add(&self, dim: i64, index: &Tensor, source: &Tensor) -> Result<Tensor> {
        check_index("index_add", index)?;
        check_sum("index_add", self.dtype())?;
        let axis = normalize_axis("index_add", dim, self.shape())?;
        let mut expected: Dims = self.shape().into();
        expected[axis] = index.len();
        if index.rank() != 1 || source.shape() != &expected[..] {
            let hint =
                "the source must have the tensor's shape, with the length of the index vector along the axis";
            return Err(Error::shape("index_add", &[self.shape(), index.shape(), source.shape()], hint));
        }
        self.refuse_empty("index_add", axis, index)?;
        let range = check_range("index_add", Some(axis), self.shape()[axis], index)?;
        let order = self.axis_first(axis);
        let first = self.permute(&order)?;
        let (n, d) = (self.shape()[axis], element_count(&first.shape()[1..]));
        let updates =
            source.to_dtype(self.dtype())?.permute(&order)?.reshaped(Dims::from_slice(&[index.len(), d]))?;
        let matrix = first.reshaped(Dims::from_slice(&[n, d]))?;
        let sum = matrix.with_rows(ScatterMode::Combine(Combine::Sum), (index, range), &updates)?;
        sum.reshaped(first.shape().into())?.move_axis(0, axis as i64)
    }

    /// Replaces elements by `value` where the mask (`bool`, broadcast to this shape) is true.
    ///
    /// # Errors
    /// [`Error::DType`] unless the mask is `bool`; [`Error::Shape`] if it cannot be broadcast to this shape;
    /// [`Error::Argument`] if the value does not fit the dtype.
    pub fn masked_fill(&self, mask: &Tensor, value: impl Into<Scalar>) -> Result<Tensor> {
        let value = super::operands::fitting("masked_fill", value.into(), self.dtype())?;
        mask.expand(self.shape())?.where_(&self.constant_like(value, self.dtype())?, self)
    }

    /// The elements where the mask (`bool`) is true, as a vector. Both are broadcast. The mask is computed immediately.
    pub fn masked_select(&self, mask: &Tensor) -> Result<Tensor> {
        let (x, mask) = super::operands::broadcast2("masked_select", self, mask)?;
        let place = mask.true_positions("masked_select")?;
        x.take(&place, None)
    }

    /// The flat positions (`int64`) of the true elements of a mask. Computed immediately.
    pub(super) fn true_positions(&self, op: &'static str) -> Result<Tensor> {
        if self.dtype() != DType::Bool {
            return Err(Error::dtype(op, &[self.dtype()], "a mask must be bool: compare with .ne_scalar(0)"));
        }
        let mask = self.to_bytes()?;
        let mut places: Vec<i64> = host_memory::room(count_true(&mask)?)?;
        for_true(&mask, |place| places.push(place as i64))?;
        Tensor::from_slice(&places, &[places.len()], self.device())
    }

    /// The coordinates of the nonzero elements in row-major order, as `int64 [count, rank]`. Computed immediately.
    pub fn nonzero(&self) -> Result<Tensor> {
        let flags = self.to_dtype(DType::Bool)?.to_bytes()?;
        let count = count_true(&flags)?;
        let mut coordinates: Vec<i64> = host_memory::room(count.saturating_mul(self.rank()))?;
        for_true(&flags, |mut flat| {
            let begin = coordinates.len();
            for &size in self.shape().iter().rev() {
                coordinates.push((flat % size) as i64);
                flat /= size;
            }
            coordinates[begin..].reverse();
        })?;
        Tensor::from_slice(&coordinates, &[count, self.rank()], self.device())
    }
}

/// The number of true elements of a mask.
fn count_true(mask: &[u8]) -> Result<usize> {
    let mut count = 0;
    for_true(mask, |_| count += 1)?;
    Ok(count)
}

/// Calls `visit` with the position of each true element of a mask.
fn for_true(mask: &[u8], mut visit: impl FnMut(usize)) -> Result<()> {
    for (block, part) in mask.chunks(host_memory::BLOCK).enumerate() {
        interrupt::check()?;
        let first = block * host_memory::BLOCK;
        part.iter().enumerate().filter(|(_, byte)| **byte != 0).for_each(|(i, _)| visit(first + i));
    }
    Ok(())
}
