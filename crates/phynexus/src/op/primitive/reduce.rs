//! Reductions.

use super::{
    Call, Check, Formula, InputGradients, IrNode, Number, Op, Operation, OracleArray, Reads, Sample,
    SampleOperand, need, same_dtype,
};
use crate::{
    DType, Result,
    op::{
        Combine,
        gradient::is_enabled,
        reference::{Accumulator, every_coordinate, flat_index},
    },
    shape::{Dims, element_count},
};

/// A set of axes, as bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Axes(pub u64);

impl Axes {
    /// Creates the set of these axes.
    pub fn of(axes: impl IntoIterator<Item = usize>) -> Axes {
        Axes(axes.into_iter().fold(0, |set, axis| set | 1 << axis))
    }
    /// True if `axis` is in the set.
    pub fn contains(self, axis: usize) -> bool {
        axis < 64 && self.0 >> axis & 1 == 1
    }
    /// The axes in ascending order.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        (0..64).filter(move |&axis| self.contains(axis))
    }
}

/// Reduces axes to size 1. Sums and products of 16-bit floats are accumulated in `f32`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reduce {
    /// The combination.
    pub combine: Combine,
    /// The reduced axes.
    pub axes: Axes,
}

impl Operation for Reduce {
    fn name(&self) -> &'static str {
        self.combine.name()
    }

    fn check(&self, node: &IrNode, inputs: &[&IrNode]) -> Check {
        same_dtype(node, inputs)?;
        need(self.combine.binary().accepts(node.dtype), "not a dtype this reduction takes")?;
        need(reduced(&inputs[0].shape, self.axes) == node.shape, "not the reduced shape")
    }

    fn gradient(&self, call: &Call) -> Result<Option<InputGradients>> {
        match self.combine {
            Combine::Sum => call.each(|_| call.gradient().expand(call.inputs[0].shape())),
            Combine::Max | Combine::Min => {
                call.in_compute_dtype(|call| call.each(|_| self.extreme_gradient(call)))
            }
            Combine::Prod => call.in_compute_dtype(|call| call.each(|_| self.product_gradient(call))),
        }
    }

    fn gradient_reads(&self) -> Reads {
        if self.combine == Combine::Sum { Reads::NOTHING } else { Reads::EVERYTHING }
    }

    fn reference(&self, node: &IrNode, inputs: &[&OracleArray]) -> Result<Vec<Number>> {
        let x = inputs[0];
        let mut accumulators = vec![Accumulator::new(self.combine, node.dtype); node.len()];
        for (mut at, element) in every_coordinate(&x.shape).zip(&x.elements) {
            at.iter_mut().zip(&node.shape).for_each(|(c, &size)| *c = if size == 1 { 0 } else { *c });
            accumulators[flat_index(&node.shape, &at)].push(*element);
        }
        Ok(accumulators.iter().map(Accumulator::result).collect())
    }

    fn samples() -> Vec<Sample> {
        let calls: [(&[usize], u64); 14] = [
            (&[7], 1),
            (&[1], 1),
            (&[0], 1),
            (&[3, 0], 1),
            (&[3, 0], 2),
            (&[5, 300], 2),
            (&[300, 5], 1),
            // Two 8- or 16-bit columns for each invocation, and one team.
            (&[33, 2], 1),
            (&[2, 3, 2], 0b101),
            (&[2, 3, 2], 0b111),
            (&[4, 5, 6], 0b101),
            (&[4, 5, 6], 0b010),
            (&[4, 5, 6], 0),
            (&[2, 5000], 3),
        ];
        let sample = |combine, (shape, axes): (&[usize], u64)| {
            let axes = Axes(axes);
            let op = Op::Reduce(Reduce { combine, axes });
            Sample::primitive(op, &reduced(shape, axes), [SampleOperand::new(shape)])
        };
        Combine::ALL.into_iter().flat_map(|combine| calls.map(|call| sample(combine, call))).collect()
    }
}

/// The shape with these axes reduced to size 1.
fn reduced(shape: &[usize], axes: Axes) -> Dims {
    shape.iter().enumerate().map(|(axis, &size)| if axes.contains(axis) { 1 } else { size }).collect()
}

impl Reduce {
    /// Equal elements share the gradient of a maximum or minimum. If all axes are reduced, NaNs count as equal;
    /// otherwise a NaN has no equals, and the gradients become NaN.
    fn extreme_gradient(&self, call: &Call) -> Formula {
        let (x, axes, shape) = (call.input(0), self.axes, call.inputs[0].shape());
        let equal = x.eq(&call.output().expand(shape));
        let whole = (0..shape.len()).all(|axis| axes.contains(axis));
        let holders = if whole { equal.or(&x.is_nan()) } else { equal };
        let holders = holders.cast(call.gradient.dtype());
        let share = call.gradient() / holders.sum(axes);
        holders * share
    }

    /// The gradient of a product. Without zeros, the product of the others is y / x. With one zero, only the zero's own
    /// is nonzero; with more, none is.
    fn product_gradient(&self, call: &Call) -> Formula {
        let (x, axes, shape) = (call.input(0), self.axes, call.inputs[0].shape());
        let g = call.gradient().expand(shape);
        if is_enabled() {
            return g * others_along(&x, axes, shape);
        }
        let zero = x.eq(&x.like(0.0));
        let zeros = zero.cast(DType::I64).sum(axes);
        let nonzero = zero.choose(&x.like(1.0), &x);
        let product = nonzero.reduce(Combine::Prod, axes);
        let none = zeros.eq(&zeros.like(0i64)).expand(shape);
        let alone = zeros.eq(&zeros.like(1i64)).expand(shape).and(&zero);
        let others = (product / nonzero).only_where(&none.or(&alone));
        g * others
    }
}

/// For every element, the product of the other elements along `axes`. It and its derivatives are exact even with zeros.
/// It needs n elements for each of the n factors, so it is used only if the gradient is differentiated again.
fn others_along(x: &Formula, axes: Axes, shape: &[usize]) -> Formula {
    let rank = shape.len();
    let (kept, reduced): (Vec<usize>, Vec<usize>) = (0..rank).partition(|&axis| !axes.contains(axis));
    let order: Vec<usize> = kept.iter().chain(&reduced).copied().collect();
    let rows = element_count(&kept.iter().map(|&axis| shape[axis]).collect::<Dims>());
    let n = element_count(&reduced.iter().map(|&axis| shape[axis]).collect::<Dims>());
    let flat = x.permute(&order).reshape(&[rows, 1, n]);
    let others = without_diagonal(&flat.expand(&[rows, n, n])).reduce(Combine::Prod, Axes::of([2]));
    let moved: Dims = order.iter().map(|&axis| shape[axis]).collect();
    let mut back = vec![0; rank];
    order.iter().enumerate().for_each(|(place, &axis)| back[axis] = place);
    others.reshape(&moved).permute(&back)
}

/// `[.., n, n]` matrices with ones on the diagonal.
pub(super) fn without_diagonal(matrices: &Formula) -> Formula {
    matrices.then(|t| {
        let (row, column) = (t.rank() - 2, t.rank() - 1);
        let m = Formula::of(t);
        m.iota_like(DType::I64, row).eq(&m.iota_like(DType::I64, column)).choose(&m.like(1.0), &m).term()
    })
}
