//! Rearranging elements: reshapes, permutations, broadcasting, padding, slices. Views of computed data are free.

use smallvec::SmallVec;

use crate::{
    Error, Result, Scalar, Tensor,
    op::{Constant, Op, Pad, Permute, Slice},
    shape::{Dims, checked_element_count, normalize_axis},
    text::counted,
};

impl Tensor {
    /// Records a reshape to a valid shape, unless the shape is unchanged.
    pub(super) fn reshaped(&self, shape: Dims) -> Result<Tensor> {
        if self.shape() == &shape[..] {
            return Ok(self.clone());
        }
        if let &Op::Constant(Constant(value)) = self.node().op() {
            return Tensor::record_on(self.device(), Op::Constant(Constant(value)), self.dtype(), shape, &[]);
        }
        Tensor::record(Op::Reshape, self.dtype(), shape, &[self])
    }

    /// Changes the shape; elements keep their row-major order.
    ///
    /// # Errors
    /// [`Error::Shape`] if the number of elements differs.
    pub fn reshape(&self, shape: &[usize]) -> Result<Tensor> {
        if self.shape() == shape {
            return Ok(self.clone());
        }
        if checked_element_count(shape) != Some(self.len()) {
            let hint = format!("the new shape must have {}", counted(self.len(), "element"));
            return Err(Error::shape("reshape", &[self.shape(), shape], hint));
        }
        self.reshaped(shape.into())
    }

    /// [`Tensor::reshape`] where one extent may be -1, which is inferred from the number of elements.
    ///
    /// # Errors
    /// [`Error::Argument`] for a second -1 or another negative extent; [`Error::Shape`] if no extent fits.
    pub fn reshape_infer(&self, shape: &[i64]) -> Result<Tensor> {
        if shape.iter().any(|&d| d < -1) || shape.iter().filter(|&&d| d == -1).count() > 1 {
            return Err(Error::argument(
                "reshape",
                format!("{shape:?}: only one extent may be -1, the others must not be negative"),
            ));
        }
        let known: Dims = shape.iter().filter(|&&d| d >= 0).map(|&d| d as usize).collect();
        let product = checked_element_count(&known).unwrap_or(usize::MAX);
        let inferred = match product {
            0 => None,
            n if self.len().is_multiple_of(n) => Some(self.len() / n),
            _ => None,
        };
        let whole: Option<Dims> =
            shape.iter().map(|&d| if d == -1 { inferred } else { Some(d as usize) }).collect();
        match whole {
            Some(shape) => self.reshape(&shape),
            None => {
                let hint = format!("no size for -1 makes {}", counted(self.len(), "element"));
                Err(Error::shape("reshape", &[self.shape(), &known], hint))
            }
        }
    }

    /// Permutes the axes: axis i of the result is axis `order[i]` of this tensor.
    ///
    /// # Errors
    /// [`Error::Argument`] unless `order` contains every axis once.
    pub fn permute(&self, order: &[usize]) -> Result<Tensor> {
        let rank = self.rank();
        if order.len() != rank || (0..rank).any(|axis| !order.contains(&axis)) {
            let message = format!("{order:?} must contain each of the {rank} axes once");
            return Err(Error::argument("permute", message));
        }
        if order.iter().enumerate().all(|(i, &axis)| i == axis) {
            return Ok(self.clone());
        }
        let shape: Dims = order.iter().map(|&axis| self.shape()[axis]).collect();
        if let &Op::Constant(Constant(value)) = self.node().op() {
            return Tensor::record_on(self.device(), Op::Constant(Constant(value)), self.dtype(), shape, &[]);
        }
        let order = order.iter().map(|&axis| axis as u8).collect();
        Tensor::record(Op::Permute(Permute(order)), self.dtype(), shape, &[self])
    }

    /// Swaps two axes.
    pub fn transpose(&self, a: i64, b: i64) -> Result<Tensor> {
        let a = normalize_axis("transpose", a, self.shape())?;
        let b = normalize_axis("transpose", b, self.shape())?;
        let mut order: Dims = (0..self.rank()).collect();
        order.swap(a, b);
        self.permute(&order)
    }

    /// Transposes a matrix. Vectors and scalars are returned unchanged.
    ///
    /// # Errors
    /// [`Error::Shape`] for more than two dimensions; use [`Tensor::transpose`] instead.
    pub fn t(&self) -> Result<Tensor> {
        match self.rank() {
            0 | 1 => Ok(self.clone()),
            2 => self.permute(&[1, 0]),
            _ => Err(Error::shape(
                "t",
                &[self.shape()],
                "t() takes at most two dimensions; use transpose(-2, -1)",
            )),
        }
    }

    /// Moves one axis to another position; the others keep their order.
    pub fn move_axis(&self, from: i64, to: i64) -> Result<Tensor> {
        let from = normalize_axis("move_axis", from, self.shape())?;
        let to = normalize_axis("move_axis", to, self.shape())?;
        let mut order: Dims = (0..self.rank()).collect();
        let axis = order.remove(from);
        order.insert(to, axis);
        self.permute(&order)
    }

    /// Broadcasts to `shape`: axes of size 1 are repeated, and axes are added in front.
    ///
    /// # Errors
    /// [`Error::Shape`] if the tensor cannot be broadcast to `shape`.
    pub fn expand(&self, shape: &[usize]) -> Result<Tensor> {
        let fits = shape.len() >= self.rank()
            && self.shape().iter().rev().zip(shape.iter().rev()).all(|(&from, &to)| from == to || from == 1);
        if !fits {
            let hint = "every size must be equal or 1, aligned at the last dimension";
            return Err(Error::shape("expand", &[self.shape(), shape], hint));
        }
        self.stretched(shape)
    }

    /// [`Tensor::expand`] under NumPy's name.
    pub fn broadcast_to(&self, shape: &[usize]) -> Result<Tensor> {
        self.expand(shape)
    }

    /// Pads with `value`: `padding` has one `(before, after)` pair per axis.
    ///
    /// # Errors
    /// [`Error::Argument`] unless there is one pair per axis, and if `value` does not fit the dtype.
    pub fn pad(&self, padding: &[(usize, usize)], value: impl Into<Scalar>) -> Result<Tensor> {
        if padding.len() != self.rank() {
            let message = format!("got {} pairs for {} dimensions", padding.len(), self.rank());
            return Err(Error::argument("pad", message));
        }
        let value = super::operands::fitting("pad", value.into(), self.dtype())?;
        if padding.iter().all(|&p| p == (0, 0)) {
            return Ok(self.clone());
        }
        let grown = |(&size, &(before, after)): (&usize, &(usize, usize))| {
            size.checked_add(before)?.checked_add(after)
        };
        let Some(shape) = self.shape().iter().zip(padding).map(grown).collect::<Option<Dims>>() else {
            return Err(Error::argument("pad", "the padded size would exceed the address space"));
        };
        Tensor::record(Op::Pad(Pad { padding: padding.into(), value }), self.dtype(), shape, &[self])
    }

    /// Records a valid strided slice: `shape[i]` elements from `start[i]` with `step[i]` along each axis.
    pub(super) fn sliced(&self, start: Dims, mut step: SmallVec<[isize; 4]>, shape: Dims) -> Result<Tensor> {
        // A step along an axis of at most one element has no effect; normalise it, because strides are multiplied by
        // it.
        step.iter_mut().zip(&shape).filter(|(_, size)| **size <= 1).for_each(|(step, _)| *step = 1);
        if self.shape() == &shape[..] && start.iter().all(|&s| s == 0) && step.iter().all(|&s| s == 1) {
            return Ok(self.clone());
        }
        if let &Op::Constant(Constant(value)) = self.node().op() {
            return Tensor::record_on(self.device(), Op::Constant(Constant(value)), self.dtype(), shape, &[]);
        }
        Tensor::record(Op::Slice(Slice { start, step }), self.dtype(), shape, &[self])
    }

    /// Slices one axis; the range must be valid.
    pub(super) fn sliced_axis(&self, axis: usize, start: usize, step: isize, len: usize) -> Result<Tensor> {
        let mut starts = Dims::from_elem(0, self.rank());
        let mut steps = SmallVec::from_elem(1isize, self.rank());
        let mut shape: Dims = self.shape().into();
        (starts[axis], steps[axis], shape[axis]) = (start, step, len);
        self.sliced(starts, steps, shape)
    }

    /// `len` elements from `start` along an axis.
    ///
    /// # Errors
    /// [`Error::Argument`] if the range exceeds the axis.
    pub fn narrow(&self, dim: i64, start: usize, len: usize) -> Result<Tensor> {
        let axis = normalize_axis("narrow", dim, self.shape())?;
        let size = self.shape()[axis];
        if start.checked_add(len).is_none_or(|end| end > size) {
            let message = format!("{len} elements from {start} exceed axis {axis} of size {size}");
            return Err(Error::argument("narrow", message));
        }
        self.sliced_axis(axis, start, 1, len)
    }

    /// Python's `x[start:stop:step]` along one axis. Negative bounds count from the end; bounds beyond the axis are
    /// clipped; missing bounds select everything. A negative step reverses the order.
    ///
    /// # Errors
    /// [`Error::Argument`] if `step` is 0.
    pub fn slice(&self, dim: i64, start: Option<i64>, stop: Option<i64>, step: i64) -> Result<Tensor> {
        let axis = normalize_axis("slice", dim, self.shape())?;
        let (first, len) = python_range("slice", start, stop, step, self.shape()[axis])?;
        self.sliced_axis(axis, first, step as isize, len)
    }

    /// Reverses the order of elements along these axes, or along all if empty.
    pub fn flip(&self, axes: &[i64]) -> Result<Tensor> {
        let axes = super::reduce::axes_of("flip", axes, self.shape())?;
        let mut start = Dims::from_elem(0, self.rank());
        let mut step = SmallVec::from_elem(1isize, self.rank());
        for axis in axes.iter().filter(|&axis| self.shape()[axis] > 1) {
            (start[axis], step[axis]) = (self.shape()[axis] - 1, -1);
        }
        self.sliced(start, step, self.shape().into())
    }

    /// Removes an axis of size 1; an axis of another size is kept.
    pub fn squeeze(&self, dim: i64) -> Result<Tensor> {
        let axis = normalize_axis("squeeze", dim, self.shape())?;
        if self.shape()[axis] != 1 {
            return Ok(self.clone());
        }
        let mut shape: Dims = self.shape().into();
        shape.remove(axis);
        self.reshaped(shape)
    }

    /// Removes all axes of size 1.
    pub fn squeeze_all(&self) -> Result<Tensor> {
        self.reshaped(self.shape().iter().copied().filter(|&d| d != 1).collect())
    }

    /// Inserts an axis of size 1. `dim` is its position in the result, so -1 appends it.
    pub fn unsqueeze(&self, dim: i64) -> Result<Tensor> {
        let mut shape: Dims = self.shape().into();
        shape.push(1);
        let axis = normalize_axis("unsqueeze", dim, &shape)?;
        shape.pop();
        shape.insert(axis, 1);
        self.reshaped(shape)
    }

    /// Merges the axes from `start` to `end` (inclusive) into one. A scalar becomes a vector.
    pub fn flatten(&self, start: i64, end: i64) -> Result<Tensor> {
        if self.rank() == 0 {
            return self.reshape(&[1]);
        }
        let start = normalize_axis("flatten", start, self.shape())?;
        let end = normalize_axis("flatten", end, self.shape())?;
        if start > end {
            return Err(Error::argument("flatten", format!("axis {start} comes after axis {end}")));
        }
        let mut shape: Dims = self.shape()[..start].into();
        shape.push(self.shape()[start..=end].iter().product());
        shape.extend_from_slice(&self.shape()[end + 1..]);
        self.reshaped(shape)
    }

    /// Splits one axis into several of these sizes.
    ///
    /// # Errors
    /// [`Error::Shape`] if the product of `sizes` differs from the size of the axis.
    pub fn unflatten(&self, dim: i64, sizes: &[usize]) -> Result<Tensor> {
        let axis = normalize_axis("unflatten", dim, self.shape())?;
        if checked_element_count(sizes) != Some(self.shape()[axis]) {
            let hint = format!("the product of the sizes must be {}", self.shape()[axis]);
            return Err(Error::shape("unflatten", &[self.shape(), sizes], hint));
        }
        let mut shape: Dims = self.shape()[..axis].into();
        shape.extend_from_slice(sizes);
        shape.extend_from_slice(&self.shape()[axis + 1..]);
        self.reshaped(shape)
    }
}

/// Resolves a Python slice: the first index and the number of elements. The first index of an empty slice is 0.
pub(super) fn python_range(
    op: &'static str,
    start: Option<i64>,
    stop: Option<i64>,
    step: i64,
    size: usize,
) -> Result<(usize, usize)> {
    if step == 0 {
        return Err(Error::argument(op, "the step of a slice must not be 0"));
    }
    let size = i128::from(size as u64);
    let (low, high) = if step > 0 { (0, size) } else { (-1, size - 1) };
    let place = |bound: Option<i64>, absent: i128| match bound.map(i128::from) {
        Some(b) => (if b < 0 { b + size } else { b }).clamp(low, high),
        None => absent,
    };
    let (absent_start, absent_stop) = if step > 0 { (low, high) } else { (high, low) };
    let (first, last) = (place(start, absent_start), place(stop, absent_stop));
    let step = i128::from(step);
    let distance = if step > 0 { last - first } else { first - last };
    let len = if distance <= 0 { 0 } else { (distance - 1) / step.abs() + 1 };
    Ok(if len == 0 { (0, 0) } else { (first as usize, len as usize) })
}
