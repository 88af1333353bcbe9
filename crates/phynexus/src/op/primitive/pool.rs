//! Pooling. Sum pooling and its adjoint are closed under differentiation.

use super::{
    Call, Check, Formula, Geometry, InputGradients, IrNode, Number, Op, Operation, OracleArray, Reads,
    Sample, SampleOperand, geometry, need,
};
use crate::{
    DType, Result,
    op::{
        Combine, Composite,
        composite::MaxPoolGradient,
        reference::{Accumulator, every_coordinate, first_extreme, flat_index},
        term::Term,
    },
    shape::Dims,
};

/// Pooling, and the operations that its gradients need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PoolKind {
    /// The maximum of each window; padding is ignored.
    Max,
    /// The flat position (`int64`) of the maximum within its spatial plane; the first of equal elements.
    ArgMax,
    /// The sum of each window; padding counts as zero.
    Sum,
    /// The adjoint of `Sum`: adds every element to the positions of its window. The result has the shape of the
    /// pooling's input.
    SumBackward,
}

/// Pooling over trailing spatial dimensions of `[N, C, spatial..]`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pool(pub PoolKind, pub Geometry);

impl Operation for Pool {
    fn name(&self) -> &'static str {
        match self.0 {
            PoolKind::Max => "max_pool",
            PoolKind::ArgMax => "argmax_pool",
            PoolKind::Sum => "sum_pool",
            PoolKind::SumBackward => "sum_pool_backward",
        }
    }

    fn check(&self, node: &IrNode, inputs: &[&IrNode]) -> Check {
        let Pool(kind, geometry) = self;
        let (x, y) = if *kind == PoolKind::SumBackward { (node, inputs[0]) } else { (inputs[0], node) };
        let dtype = if *kind == PoolKind::ArgMax { DType::I64 } else { inputs[0].dtype };
        need(node.dtype == dtype, "not the dtype this pooling gives")?;
        let sums = matches!(kind, PoolKind::Sum | PoolKind::SumBackward);
        need(!(sums && node.dtype == DType::Bool), "bool cannot be summed")?;
        geometry.check(&x.shape, &y.shape)?;
        need(x.shape[1] == y.shape[1], "pooling keeps channels")
    }

    fn gradient(&self, call: &Call) -> Result<Option<InputGradients>> {
        let (x, g) = (&call.inputs[0], call.gradient);
        let record = |kind: PoolKind, dtype, shape: &[usize], operand: &Term| {
            let op = Op::Pool(Pool(kind, self.1.clone()));
            Formula::from(Term::record(op, dtype, shape.into(), &[operand]))
        };
        match self.0 {
            PoolKind::ArgMax => Ok(Some(call.inputs.iter().map(|_| None).collect())),
            PoolKind::Sum => call.each(|_| record(PoolKind::SumBackward, x.dtype(), x.shape(), g)),
            PoolKind::SumBackward => call.each(|_| record(PoolKind::Sum, x.dtype(), x.shape(), g)),
            PoolKind::Max => {
                call.each(|_| Formula::from(Composite::term(MaxPoolGradient(self.1.clone()), &[x, g])))
            }
        }
    }

    fn gradient_reads(&self) -> Reads {
        match self.0 {
            PoolKind::Max => Reads::OPERANDS,
            PoolKind::ArgMax | PoolKind::Sum | PoolKind::SumBackward => Reads::NOTHING,
        }
    }

    fn reference(&self, node: &IrNode, inputs: &[&OracleArray]) -> Result<Vec<Number>> {
        let (a, Pool(kind, geometry)) = (inputs[0], self);
        let taps: Vec<Dims> = every_coordinate(&geometry.kernel).collect();
        if *kind == PoolKind::SumBackward {
            let mut sums = vec![Accumulator::new(Combine::Sum, node.dtype); node.len()];
            for at in every_coordinate(&a.shape) {
                let places =
                    taps.iter().filter_map(|tap| geometry.tap_place(&node.shape[2..], &at[2..], tap));
                for place in places {
                    let target = [&at[..2], place.as_slice()].concat();
                    sums[flat_index(&node.shape, &target)].push(a.at(&at));
                }
            }
            return Ok(sums.iter().map(Accumulator::result).collect());
        }
        let window = |at: Dims| {
            let places = taps.iter().filter_map(|tap| geometry.tap_place(&a.shape[2..], &at[2..], tap));
            let elements: Vec<(usize, Number)> = places
                .map(|place| {
                    let source = [&at[..2], place.as_slice()].concat();
                    (flat_index(&a.shape[2..], &place), a.at(&source))
                })
                .collect();
            let combine = if *kind == PoolKind::Sum { Combine::Sum } else { Combine::Max };
            if *kind == PoolKind::ArgMax {
                return arg_max(&elements);
            }
            let mut accumulator = Accumulator::new(combine, a.dtype);
            elements.iter().for_each(|(_, element)| accumulator.push(*element));
            accumulator.result()
        };
        Ok(every_coordinate(&node.shape).map(window).collect())
    }

    fn samples() -> Vec<Sample> {
        let mut samples = Vec::new();
        for (geometry, x, y) in pooling_samples() {
            let sample = |kind, from: &[usize], to: &[usize]| {
                Sample::primitive(Op::Pool(Pool(kind, geometry.clone())), to, [SampleOperand::new(from)])
            };
            samples.push(sample(PoolKind::Max, &x, &y));
            samples.push(sample(PoolKind::ArgMax, &x, &y).giving(DType::I64));
            samples.push(sample(PoolKind::Sum, &x, &y));
            samples.push(sample(PoolKind::SumBackward, &y, &x));
        }
        samples
    }
}

/// For tests: geometries with the shapes of an input and a result.
pub(in crate::op) fn pooling_samples() -> Vec<(Geometry, Vec<usize>, Vec<usize>)> {
    let mut samples = geometry::samples();
    samples.retain(|(geometry, ..)| geometry.groups == 1);
    samples
        .into_iter()
        .map(|(geometry, x, out)| (geometry, x.clone(), [&x[..2], &out[..]].concat()))
        .collect()
}

/// The flat position of the first maximum of a window; none for a window that is all padding.
fn arg_max(window: &[(usize, Number)]) -> Number {
    let values: Vec<Number> = window.iter().map(|(_, element)| *element).collect();
    match first_extreme(Combine::Max, &values) {
        Number::Integer(i) => Number::Integer(window[i as usize].0 as i128),
        _ => Number::Undetermined,
    }
}
