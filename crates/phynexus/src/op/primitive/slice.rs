//! Slices with steps of either sign.

use smallvec::SmallVec;

use super::{
    Call, Check, Formula, InputGradients, IrNode, Number, Op, Operation, OracleArray, Sample, SampleOperand,
    need, same_dtype,
};
use crate::{Result, op::reference::every_coordinate, shape::Dims};

/// `x[start : : step]` along every axis, with the number of elements from the node's shape. A negative step runs
/// backwards.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Slice {
    /// The first index along each axis.
    pub start: Dims,
    /// The step along each axis; not 0.
    pub step: SmallVec<[isize; 4]>,
}

impl Operation for Slice {
    fn name(&self) -> &'static str {
        "slice"
    }

    fn check(&self, node: &IrNode, inputs: &[&IrNode]) -> Check {
        same_dtype(node, inputs)?;
        let Slice { start, step } = self;
        let rank = node.shape.len();
        need(
            start.len() == rank && step.len() == rank && inputs[0].shape.len() == rank,
            "expected one start and step per axis",
        )?;
        let inside = |axis: usize| {
            let last = start[axis] as i128 + step[axis] as i128 * (node.shape[axis] as i128 - 1);
            let size = inputs[0].shape[axis] as i128;
            node.shape[axis] == 0 || ((start[axis] as i128) < size && last >= 0 && last < size)
        };
        need(step.iter().all(|s| *s != 0), "a step of 0")?;
        need(node.is_empty() || (0..rank).all(inside), "the slice leaves the operand")
    }

    fn gradient(&self, call: &Call) -> Result<Option<InputGradients>> {
        call.each(|i| self.adjoint(&call.gradient(), call.inputs[i].shape()))
    }

    fn reference(&self, node: &IrNode, inputs: &[&OracleArray]) -> Result<Vec<Number>> {
        let along =
            |(c, (&start, &step)): (&usize, (&usize, &isize))| start.wrapping_add_signed(*c as isize * step);
        let element = |at: Dims| {
            let source: Dims = at.iter().zip(self.start.iter().zip(&self.step)).map(along).collect();
            inputs[0].at(&source)
        };
        Ok(every_coordinate(&node.shape).map(element).collect())
    }

    fn samples() -> Vec<Sample> {
        let sample = |start: &[usize], step: &[isize], from: &[usize], to: &[usize]| {
            let slice = Slice { start: start.into(), step: step.into() };
            Sample::primitive(Op::Slice(slice), to, [SampleOperand::new(from)])
        };
        vec![
            sample(&[1], &[2], &[9], &[4]),
            sample(&[8], &[-3], &[9], &[3]),
            sample(&[2, 5], &[1, -1], &[6, 6], &[3, 4]),
            sample(&[0, 0], &[1, 1], &[6, 6], &[0, 4]),
        ]
    }
}

impl Slice {
    /// Writes the elements to their positions in a tensor of this shape, among zeros.
    fn adjoint(&self, g: &Formula, shape: &[usize]) -> Formula {
        g.then(|t| {
            if t.is_empty() {
                return g.constant(t.dtype(), shape, 0.0.into()).term();
            }
            let mut g = Formula::of(t);
            let mut padding = Vec::with_capacity(shape.len());
            for (axis, &count) in t.shape().iter().enumerate() {
                let stride = self.step[axis].unsigned_abs();
                let span = (count - 1) * stride + 1;
                let mut first = self.start[axis];
                if self.step[axis] < 0 && count > 1 {
                    g = g.flip(axis);
                    first -= (count - 1) * stride;
                }
                if stride > 1 && count > 1 {
                    g = slice_backward(&g, axis, stride, span);
                }
                padding.push((first, shape[axis] - first - span));
            }
            g.pad(&padding, 0.0).term()
        })
    }
}

/// Inserts zeros between the elements along `axis`, so that they are `stride` apart.
fn slice_backward(g: &Formula, axis: usize, stride: usize, span: usize) -> Formula {
    g.then(|t| {
        let mut split: Dims = t.shape().into();
        split.insert(axis + 1, 1);
        let mut merged: Dims = t.shape().into();
        merged[axis] *= stride;
        let apart = Formula::of(t).reshape(&split).pad_axis(axis + 1, 0, stride - 1, 0.0);
        apart.reshape(&merged).narrow(axis, 0, span).term()
    })
}
