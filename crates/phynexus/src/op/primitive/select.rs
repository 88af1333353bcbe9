//! Selection by a condition.

use super::{
    Call, Check, InputGradients, IrNode, Number, Op, Operation, OracleArray, Reads, Sample, SampleOperand,
    need, same_shape,
};
use crate::{
    DType, Result,
    op::{reference::elementwise::select, sample::ELEMENTWISE},
};

/// Inputs: condition (`bool`), value if true, value if false.
#[derive(Debug)]
pub struct Where;

impl Operation for Where {
    fn name(&self) -> &'static str {
        "where"
    }

    fn operands(&self) -> Option<usize> {
        Some(3)
    }

    fn check(&self, node: &IrNode, inputs: &[&IrNode]) -> Check {
        same_shape(node, inputs)?;
        need(inputs[0].dtype == DType::Bool, "the condition is bool")?;
        need(inputs[1..].iter().all(|i| i.dtype == node.dtype), "operands have another dtype")
    }

    fn gradient(&self, call: &Call) -> Result<Option<InputGradients>> {
        call.each(|i| {
            let (condition, g) = (call.input(0), call.gradient());
            let zero = g.like(0.0);
            if i == 1 { condition.choose(&g, &zero) } else { condition.choose(&zero, &g) }
        })
    }

    fn gradient_reads(&self) -> Reads {
        Reads::FIRST
    }

    fn reference(&self, _: &IrNode, inputs: &[&OracleArray]) -> Result<Vec<Number>> {
        let branches = inputs[1].elements.iter().zip(&inputs[2].elements);
        Ok(inputs[0].elements.iter().zip(branches).map(|(&c, (&a, &b))| select(c, a, b)).collect())
    }

    fn samples() -> Vec<Sample> {
        let sample = |shape: &[usize]| {
            let x = SampleOperand::new(shape);
            Sample::primitive(Op::Where, shape, [x.clone().fixed(DType::Bool), x.clone(), x])
        };
        ELEMENTWISE.map(sample).into()
    }
}
