//! Cumulative combinations.

use super::{
    Call, Check, Formula, InputGradients, IrNode, Number, Op, Operation, OracleArray, Reads, Sample,
    SampleOperand, need,
    reduce::{Axes, without_diagonal},
    same_dtype, same_shape,
    scatter::scatter_along,
};
use crate::{
    DType, Result, Scalar,
    op::{
        Combine,
        gradient::is_enabled,
        reference::{Accumulator, every_coordinate, flat_index},
    },
    shape::{Dims, element_count},
};

/// The cumulative combination along an axis (inclusive).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Scan {
    /// The combination.
    pub combine: Combine,
    /// The axis.
    pub axis: usize,
    /// If true, from the end towards the start.
    pub reverse: bool,
}

impl Operation for Scan {
    fn name(&self) -> &'static str {
        "scan"
    }

    fn check(&self, node: &IrNode, inputs: &[&IrNode]) -> Check {
        same_dtype(node, inputs)?;
        same_shape(node, inputs)?;
        need(self.combine.binary().accepts(node.dtype), "not a dtype this scan takes")?;
        need(self.axis < node.shape.len(), "no such axis")
    }

    fn gradient(&self, call: &Call) -> Result<Option<InputGradients>> {
        call.in_compute_dtype(|call| call.each(|_| self.operand_gradient(call)))
    }

    fn gradient_reads(&self) -> Reads {
        if self.combine == Combine::Sum { Reads::NOTHING } else { Reads::EVERYTHING }
    }

    fn reference(&self, node: &IrNode, inputs: &[&OracleArray]) -> Result<Vec<Number>> {
        let mut out = inputs[0].elements.clone();
        let mut starts = node.shape.clone();
        let size = std::mem::replace(&mut starts[self.axis], 1);
        for mut at in every_coordinate(&starts) {
            let mut running = Accumulator::new(self.combine, node.dtype);
            for i in 0..size {
                at[self.axis] = if self.reverse { size - 1 - i } else { i };
                let element = &mut out[flat_index(&node.shape, &at)];
                running.push(*element);
                *element = running.result();
            }
        }
        Ok(out)
    }

    fn samples() -> Vec<Sample> {
        let calls: [(&[usize], usize); 5] =
            [(&[300], 0), (&[4, 50], 1), (&[50, 4], 0), (&[3, 4, 5], 1), (&[2, 0], 1)];
        let mut samples = Vec::new();
        for combine in Combine::ALL {
            for (shape, axis) in calls {
                for reverse in [false, true] {
                    let op = Op::Scan(Scan { combine, axis, reverse });
                    samples.push(Sample::primitive(op, shape, [SampleOperand::new(shape)]));
                }
            }
        }
        samples
    }
}

impl Scan {
    fn operand_gradient(&self, call: &Call) -> Formula {
        let &Scan { combine, axis, reverse } = self;
        let (g, x) = (call.gradient(), call.input(0));
        match combine {
            Combine::Sum => g.scan(Combine::Sum, axis, !reverse),
            Combine::Prod if is_enabled() => self.product_gradient(call),
            Combine::Prod => {
                // dL/dx_i = sum over k >= i of g_k y_k / x_i. This is safe before the first zero. At the first zero,
                // the sum is computed with 1 in its place. After it, every product contains a zero.
                let zero = x.eq(&x.like(0.0));
                let zeros = zero.cast(DType::I64).scan(Combine::Sum, axis, reverse);
                let before = zeros.eq(&zeros.like(0i64));
                let first = zero.and(&zeros.eq(&zeros.like(1i64)));
                let nonzero = zero.choose(&x.like(1.0), &x);
                let without_first = first.choose(&x.like(1.0), &x).scan(Combine::Prod, axis, reverse);
                let from_here = |products: Formula| (&g * products).scan(Combine::Sum, axis, !reverse);
                let smooth = from_here(call.output()) / nonzero;
                first.choose(&from_here(without_first), &smooth.only_where(&before))
            }
            Combine::Max | Combine::Min => self.extreme_gradient(call),
        }
    }

    /// The gradient of a cumulative product, from the `n` by `n` table of products without one factor. It and its
    /// derivatives are exact even with zeros.
    fn product_gradient(&self, call: &Call) -> Formula {
        let shape = call.inputs[0].shape();
        let (rank, n) = (shape.len(), shape[self.axis]);
        let mut order: Vec<usize> = (0..rank).filter(|&other| other != self.axis).collect();
        order.push(self.axis);
        let rows = element_count(shape).checked_div(n).unwrap_or(0);
        let table = [rows, n, n];
        let last = |f: Formula| f.permute(&order).reshape(&[rows, 1, n]).expand(&table);
        // Entry [i, k]: the product of elements up to k without element i.
        let products = without_diagonal(&last(call.input(0))).scan(Combine::Prod, 2, self.reverse);
        let (i, k) = (products.iota_like(DType::I64, 1), products.iota_like(DType::I64, 2));
        let counts = if self.reverse { k.le(&i) } else { i.le(&k) };
        let sum = (last(call.gradient()) * products).only_where(&counts).sum(Axes::of([2]));
        let moved: Dims = order.iter().map(|&axis| shape[axis]).collect();
        let mut back = vec![0; rank];
        order.iter().enumerate().for_each(|(place, &axis)| back[axis] = place);
        sum.reshape(&moved).permute(&back)
    }

    /// The gradient of a cumulative extreme goes to the element that provides it, the last of equal ones.
    fn extreme_gradient(&self, call: &Call) -> Formula {
        let (x, shape) = (call.input(0), call.inputs[0].shape());
        let holds = x.eq(&call.output()).or(&x.is_nan());
        let position = x.iota_like(DType::I64, self.axis);
        let (start, latest) = match self.reverse {
            false => (Scalar::Int(0), Combine::Max),
            true => (Scalar::Int(shape[self.axis] as i64 - 1), Combine::Min),
        };
        let holder = holds.choose(&position, &position.like(start)).scan(latest, self.axis, self.reverse);
        scatter_along(&call.gradient(), &holder, self.axis, shape)
    }
}
