//! NumPy-style indexing: integers, slices, new axes, an ellipsis, integer tensors and masks. Used for reading and for
//! assignment, which returns a new tensor.
//!
//! An index is resolved in two stages. The *basic* stage (integers, slices) is a strided slice that keeps every axis.
//! The *advanced* stage gathers rows of the result. Assignment runs both in reverse.

use smallvec::SmallVec;

use super::{
    movement::python_range,
    select::{check_index, check_range, check_sum, position_dtype, positions},
};
use crate::{
    DType, Error, Result, Scalar, Tensor,
    op::{Combine, IndexRange, ScatterMode},
    shape::{Dims, broadcast, element_count},
};

/// One component of an index: an item between the commas of Python's `x[1, ::2, None, ..., rows]`.
#[derive(Clone)]
pub enum IndexSpec {
    /// One position; removes the axis. Negative positions count from the end.
    At(i64),
    /// Python's `start:stop:step`.
    Slice {
        /// The first position; negative counts from the end. Defaults to the first in the direction of the step.
        start: Option<i64>,
        /// The end, exclusive; negative counts from the end. Defaults to the end in the direction of the step.
        stop: Option<i64>,
        /// The step; must not be 0.
        step: i64,
    },
    /// A new axis of size 1: Python's `None`.
    NewAxis,
    /// All axes that the other components leave: Python's `...`.
    Ellipsis,
    /// Integer positions of any shape, which replaces the axis; or a mask (`bool`), which covers as many axes as it has
    /// dimensions.
    Tensor(Tensor),
}

impl IndexSpec {
    /// The whole axis: Python's `:`.
    pub const ALL: IndexSpec = IndexSpec::Slice { start: None, stop: None, step: 1 };

    fn is_advanced(&self) -> bool {
        matches!(self, IndexSpec::Tensor(_))
    }
}

impl From<i64> for IndexSpec {
    fn from(position: i64) -> IndexSpec {
        IndexSpec::At(position)
    }
}
impl From<&Tensor> for IndexSpec {
    fn from(index: &Tensor) -> IndexSpec {
        IndexSpec::Tensor(index.clone())
    }
}
impl From<std::ops::RangeFull> for IndexSpec {
    fn from(_: std::ops::RangeFull) -> IndexSpec {
        IndexSpec::ALL
    }
}
impl From<std::ops::Range<i64>> for IndexSpec {
    fn from(range: std::ops::Range<i64>) -> IndexSpec {
        IndexSpec::Slice { start: Some(range.start), stop: Some(range.end), step: 1 }
    }
}
impl From<std::ops::RangeFrom<i64>> for IndexSpec {
    fn from(range: std::ops::RangeFrom<i64>) -> IndexSpec {
        IndexSpec::Slice { start: Some(range.start), stop: None, step: 1 }
    }
}
impl From<std::ops::RangeTo<i64>> for IndexSpec {
    fn from(range: std::ops::RangeTo<i64>) -> IndexSpec {
        IndexSpec::Slice { start: None, stop: Some(range.end), step: 1 }
    }
}

/// The effect of an index on one axis of the sliced tensor, or between two axes.
enum Part {
    /// The axis is kept.
    Keep,
    /// The axis has size 1 and is removed.
    Drop,
    /// A new axis of size 1.
    New,
    /// An ellipsis that covers no axis; it still separates the advanced indices on its two sides.
    Gap,
    /// Elements of the axis are selected by these positions.
    Choose(Tensor, IndexRange),
}

/// An index resolved against a shape. Axes under one mask are merged: `merged` is the tensor's shape after that.
/// `start`, `step` and `sizes` slice it; `parts` apply to the axes of the slice.
struct Plan {
    merged: Dims,
    start: Dims,
    step: SmallVec<[isize; 4]>,
    sizes: Dims,
    parts: Vec<Part>,
}

const OP: &str = "index";

fn resolve(shape: &[usize], specs: &[IndexSpec]) -> Result<Plan> {
    let consumed = |spec: &IndexSpec| match spec {
        IndexSpec::At(_) | IndexSpec::Slice { .. } => 1,
        IndexSpec::Tensor(t) if t.dtype() == DType::Bool => t.rank(),
        IndexSpec::Tensor(_) => 1,
        IndexSpec::NewAxis | IndexSpec::Ellipsis => 0,
    };
    let used: usize = specs.iter().map(consumed).sum();
    if used > shape.len() {
        return Err(Error::argument(
            OP,
            format!("too many indices: {used} for a tensor with {} dimensions", shape.len()),
        ));
    }
    let ellipses = specs.iter().filter(|s| matches!(s, IndexSpec::Ellipsis)).count();
    if ellipses > 1 {
        return Err(Error::argument(OP, "an index can have only one ellipsis"));
    }
    let mut plan = Plan {
        merged: Dims::new(),
        start: Dims::new(),
        step: SmallVec::new(),
        sizes: Dims::new(),
        parts: Vec::with_capacity(shape.len() + specs.len()),
    };
    let mut axis = 0;
    let trailing = (ellipses == 0).then_some(&IndexSpec::Ellipsis);
    for spec in specs.iter().chain(trailing) {
        match spec {
            IndexSpec::NewAxis => plan.parts.push(Part::New),
            IndexSpec::Ellipsis => {
                if shape.len() == used {
                    plan.parts.push(Part::Gap);
                }
                for _ in 0..shape.len() - used {
                    plan.axis(shape[axis], 0, 1, shape[axis], Part::Keep);
                    axis += 1;
                }
            }
            &IndexSpec::At(position) => {
                let size = shape[axis];
                let from_start =
                    if position < 0 { position.checked_add(size as i64) } else { Some(position) };
                let Some(place) = from_start.filter(|&p| p >= 0 && (p as u64) < size as u64) else {
                    return Err(Error::Index { op: OP, index: position, size, axis: Some(axis) });
                };
                plan.axis(size, place as usize, 1, 1, Part::Drop);
                axis += 1;
            }
            &IndexSpec::Slice { start, stop, step } => {
                let (first, len) = python_range(OP, start, stop, step, shape[axis])?;
                plan.axis(shape[axis], first, step as isize, len, Part::Keep);
                axis += 1;
            }
            IndexSpec::Tensor(mask) if mask.dtype() == DType::Bool => {
                let covered = &shape[axis..axis + mask.rank()];
                if mask.rank() == 0 || mask.shape() != covered {
                    let hint = "a mask must have at least one dimension and the sizes of the axes it covers";
                    return Err(Error::shape(OP, &[shape, mask.shape()], hint));
                }
                let places = mask.true_positions(OP)?;
                plan.axis(
                    element_count(covered),
                    0,
                    1,
                    element_count(covered),
                    Part::Choose(places, IndexRange::Known),
                );
                axis += mask.rank();
            }
            IndexSpec::Tensor(index) => {
                check_index(OP, index)?;
                if shape[axis] == 0 && !index.is_empty() {
                    let hint = "cannot select elements of an empty axis";
                    return Err(Error::shape(OP, &[shape, index.shape()], hint));
                }
                let range = check_range(OP, Some(axis), shape[axis], index)?;
                plan.axis(shape[axis], 0, 1, shape[axis], Part::Choose(index.clone(), range));
                axis += 1;
            }
        }
    }
    Ok(plan)
}

impl Plan {
    fn axis(&mut self, merged: usize, start: usize, step: isize, size: usize, part: Part) {
        self.merged.push(merged);
        self.start.push(start);
        self.step.push(step);
        self.sizes.push(size);
        self.parts.push(part);
    }

    fn is_advanced(&self) -> bool {
        self.parts.iter().any(|p| matches!(p, Part::Choose(..)))
    }

    /// The shape after the basic stage.
    fn basic_shape(&self) -> Dims {
        let mut sizes = self.sizes.iter();
        let kept = |part: &Part| match part {
            Part::New => Some(1),
            Part::Gap => None,
            Part::Drop => sizes.next().and(None),
            Part::Keep | Part::Choose(..) => sizes.next().copied(),
        };
        self.parts.iter().filter_map(kept).collect()
    }

    /// The advanced stage, applied to the result of the basic one.
    fn advanced(&self) -> Result<Advanced> {
        let (mut chosen, mut indices, mut shape) = (Dims::new(), Vec::new(), Dims::new());
        let mut range = IndexRange::Known;
        let axes = self.parts.iter().filter(|p| !matches!(p, Part::Drop | Part::Gap));
        for (axis, part) in axes.enumerate() {
            if let Part::Choose(index, of_index) = part {
                shape = broadcast(OP, &shape, index.shape())?;
                chosen.push(axis);
                indices.push(index.clone());
                if *of_index == IndexRange::Unknown {
                    range = IndexRange::Unknown;
                }
            }
        }
        // As in NumPy, the selected axes stay in place if they are adjacent (integers count as selections); otherwise
        // they come first.
        let choices = || self.parts.iter().map(|p| matches!(p, Part::Choose(..) | Part::Drop));
        let first = choices().position(|c| c).unwrap_or(0);
        let last = choices().rposition(|c| c).unwrap_or(0);
        let together = choices().skip(first).take(last + 1 - first).all(|c| c);
        let place = if together { chosen.first().copied().unwrap_or(0) } else { 0 };
        Ok(Advanced { chosen, indices, range, shape, place })
    }
}

/// Rows selected by integer tensors.
struct Advanced {
    /// The axes that are indexed.
    chosen: Dims,
    /// The positions along each of them.
    indices: Vec<Tensor>,
    /// Whether all positions are known to be in range.
    range: IndexRange,
    /// The broadcast shape of the positions.
    shape: Dims,
    /// The number of other axes that come before that shape in the result.
    place: usize,
}

impl Advanced {
    /// The axis order with the selected ones first.
    fn chosen_first(&self, rank: usize) -> Dims {
        self.chosen.iter().copied().chain((0..rank).filter(|a| !self.chosen.contains(a))).collect()
    }

    /// The axis order that moves the axes of the positions from the front to their place.
    fn to_place(&self, rank: usize) -> Dims {
        let r = self.shape.len();
        (r..r + self.place).chain(0..r).chain(r + self.place..rank).collect()
    }

    /// The matrix whose rows are selected, the row numbers, and the shape of a row.
    fn matrix(&self, x: &Tensor) -> Result<(Tensor, Tensor, Dims)> {
        let first = x.permute(&self.chosen_first(x.rank()))?;
        let (outer, row) = first.shape().split_at(self.chosen.len());
        let matrix = first.reshaped(Dims::from_slice(&[element_count(outer), element_count(row)]))?;
        let flat = Dims::from_slice(&[element_count(&self.shape)]);
        if let [index] = self.indices.as_slice() {
            return Ok((matrix, index.reshaped(flat)?, row.into()));
        }
        let count = element_count(outer);
        let dtype = position_dtype(count);
        let (mut place, mut valid): (Option<Tensor>, Option<Tensor>) = (None, None);
        for ((index, &size), &stride) in
            self.indices.iter().zip(outer).zip(&crate::shape::contiguous_strides(outer))
        {
            let (position, inside) = positions(index, size, dtype)?;
            let part = position.mul_scalar(stride as i64)?;
            place = Some(place.map_or(Ok(part.clone()), |sum| sum.add(&part))?);
            valid = Some(valid.map_or(Ok(inside.clone()), |all| all.and(&inside))?);
        }
        let (Some(place), Some(valid)) = (place, valid) else {
            return Err(Error::internal(OP, "an advanced index without index tensors"));
        };
        let place = match self.range {
            IndexRange::Known => place,
            IndexRange::Unknown => {
                valid.where_(&place, &place.constant_like(Scalar::Int(count as i64), dtype)?)?
            }
        };
        Ok((matrix, place.stretched(&self.shape)?.reshaped(flat)?, row.into()))
    }

    fn result_shape(&self, row: &[usize]) -> Dims {
        self.shape.iter().chain(row).copied().collect()
    }

    fn get(&self, x: &Tensor) -> Result<Tensor> {
        let (matrix, index, row) = self.matrix(x)?;
        let taken = matrix.rows(&index, self.range)?.reshaped(self.result_shape(&row))?;
        taken.permute(&self.to_place(taken.rank()))
    }

    fn put(&self, x: &Tensor, value: &Tensor, mode: ScatterMode) -> Result<Tensor> {
        let (matrix, index, row) = self.matrix(x)?;
        let front = self.result_shape(&row);
        let order = self.to_place(front.len());
        let placed: Dims = order.iter().map(|&axis| front[axis]).collect();
        let value = assignable(value, &placed)?.permute(&inverse(&order))?;
        let updates = value.reshaped(Dims::from_slice(&[index.len(), element_count(&row)]))?;
        let order = self.chosen_first(x.rank());
        let shape: Dims = order.iter().map(|&axis| x.shape()[axis]).collect();
        matrix.with_rows(mode, (&index, self.range), &updates)?.reshaped(shape)?.permute(&inverse(&order))
    }
}

/// The inverse of a permutation.
fn inverse(order: &[usize]) -> Dims {
    let mut back = Dims::from_elem(0, order.len());
    order.iter().enumerate().for_each(|(i, &axis)| back[axis] = i);
    back
}

/// The value broadcast to the shape that is assigned to. It may have surplus leading axes of size 1.
fn assignable(value: &Tensor, shape: &[usize]) -> Result<Tensor> {
    let surplus = value.rank().saturating_sub(shape.len());
    let (front, rest) = value.shape().split_at(surplus);
    let fits = front.iter().all(|&d| d == 1)
        && rest.iter().rev().zip(shape.iter().rev()).all(|(&from, &to)| from == to || from == 1);
    if !fits {
        let hint = "the value must broadcast to the shape of the indexed elements";
        return Err(Error::shape("index_put", &[value.shape(), shape], hint));
    }
    value.reshaped(rest.into())?.stretched(shape)
}

impl Tensor {
    /// Indexing with NumPy's rules: `x.index(&[IndexSpec::At(0), (1..3).into()])?` is Python's `x[0, 1:3]`.
    ///
    /// Trailing axes without an index are kept whole. Integer tensors are broadcast against each other. The broadcast
    /// shape replaces the indexed axes if these are adjacent, and comes first otherwise. A mask is computed
    /// immediately.
    ///
    /// # Errors
    /// [`Error::Argument`] for too many indices; [`Error::Index`] for a position out of range; [`Error::Shape`] and
    /// [`Error::DType`] for index tensors that do not fit. If the range of an index tensor is known on the host,
    /// positions out of range are reported immediately, otherwise when the result is computed.
    pub fn index(&self, specs: &[IndexSpec]) -> Result<Tensor> {
        let plan = resolve(self.shape(), specs)?;
        let basic = self.basic(&plan)?;
        if plan.is_advanced() { plan.advanced()?.get(&basic) } else { Ok(basic) }
    }

    fn basic(&self, plan: &Plan) -> Result<Tensor> {
        let merged = self.reshaped(plan.merged.clone())?;
        merged.sliced(plan.start.clone(), plan.step.clone(), plan.sizes.clone())?.reshaped(plan.basic_shape())
    }

    /// A copy of this tensor in which `value` replaces the elements that [`Tensor::index`] would return: the functional
    /// form of Python's `x[index] = value`. The value is broadcast and converted to this dtype. If an element is
    /// assigned several times, the last value wins.
    ///
    /// # Errors
    /// As [`Tensor::index`]; [`Error::Shape`] if the value cannot be broadcast to the indexed shape.
    pub fn index_put(&self, specs: &[IndexSpec], value: &Tensor) -> Result<Tensor> {
        self.index_update(specs, value, ScatterMode::Set)
    }

    /// [`Tensor::index_put`] that adds to the elements. Repeated positions accumulate.
    ///
    /// # Errors
    /// As [`Tensor::index_put`]; [`Error::DType`] for `bool`.
    pub fn index_put_add(&self, specs: &[IndexSpec], value: &Tensor) -> Result<Tensor> {
        check_sum("index_put_add", self.dtype())?;
        self.index_update(specs, value, ScatterMode::Combine(Combine::Sum))
    }

    fn index_update(&self, specs: &[IndexSpec], value: &Tensor, mode: ScatterMode) -> Result<Tensor> {
        let value = value.to_dtype(self.dtype())?;
        if let [IndexSpec::Tensor(mask)] = specs
            && mode == ScatterMode::Set
            && mask.dtype() == DType::Bool
            && mask.shape() == self.shape()
            && value.len() == 1
        {
            // A single value needs no positions.
            return mask.where_(&value.reshaped(Dims::new())?, self);
        }
        let plan = resolve(self.shape(), specs)?;
        let replaced = if specs.iter().any(IndexSpec::is_advanced) {
            plan.advanced()?.put(&self.basic(&plan)?, &value, mode)?
        } else {
            let value = assignable(&value, &plan.basic_shape())?;
            if mode == ScatterMode::Set { value } else { self.basic(&plan)?.add(&value)? }
        };
        let whole = self.reshaped(plan.merged.clone())?;
        whole.with_slice(&plan, &replaced.reshaped(plan.sizes.clone())?)?.reshaped(self.shape().into())
    }

    /// Replaces a strided slice: the values are padded to this tensor's shape and selected by a mask.
    fn with_slice(&self, plan: &Plan, values: &Tensor) -> Result<Tensor> {
        if values.is_empty() {
            return Ok(self.clone());
        }
        let backwards: SmallVec<[i64; 4]> =
            (0..self.rank()).filter(|&a| plan.step[a] < 0).map(|a| a as i64).collect();
        let mut values = if backwards.is_empty() { values.clone() } else { values.flip(&backwards)? };
        if values.shape() == self.shape() {
            return Ok(values);
        }
        let mut here = values.constant_like(Scalar::Bool(true), DType::Bool)?;
        let mut padding: SmallVec<[(usize, usize); 4]> = SmallVec::new();
        for axis in 0..self.rank() {
            let (len, step) = (values.shape()[axis], plan.step[axis].unsigned_abs());
            let reach = if len < 2 { 0 } else { (len - 1) * step };
            let first = if plan.step[axis] < 0 { plan.start[axis] - reach } else { plan.start[axis] };
            if len > 1 && step > 1 {
                values = dilated(&values, axis, step)?;
                here = dilated(&here, axis, step)?;
            }
            padding.push((first, self.shape()[axis] - first - reach - 1));
        }
        let zero = Scalar::Int(0);
        let (values, here) = (values.pad(&padding, zero.cast(self.dtype()))?, here.pad(&padding, false)?);
        here.where_(&values, self)
    }
}

/// Inserts `step - 1` zeros between neighbours along an axis.
fn dilated(x: &Tensor, axis: usize, step: usize) -> Result<Tensor> {
    let len = x.shape()[axis];
    let apart = x.unsqueeze(axis as i64 + 1)?;
    let mut padding: SmallVec<[(usize, usize); 4]> = SmallVec::from_elem((0, 0), apart.rank());
    padding[axis + 1] = (0, step - 1);
    let spread =
        apart.pad(&padding, Scalar::Int(0).cast(x.dtype()))?.flatten(axis as i64, axis as i64 + 1)?;
    spread.sliced_axis(axis, 0, 1, (len - 1) * step + 1)
}
