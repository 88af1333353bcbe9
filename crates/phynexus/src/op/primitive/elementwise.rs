//! Functions of one and of two elements, by their tables.

use super::{
    Call, Check, InputGradients, IrNode, Number, Operation, OracleArray, Reads, Sample, need, same_shape,
};
use crate::{
    Result,
    op::{Binary, Unary, reference::elementwise},
};

// Where a derivative does not exist the value is PyTorch's: 0 for steps and for `abs` at 0, half to each operand where
// a maximum or minimum meets equals.

impl Operation for Unary {
    fn name(&self) -> &'static str {
        Unary::name(*self)
    }

    fn check(&self, node: &IrNode, inputs: &[&IrNode]) -> Check {
        same_shape(node, inputs)?;
        need(self.accepts(inputs[0].dtype), "not a dtype this function takes")?;
        need(self.result(inputs[0].dtype) == node.dtype, "not the dtype this function gives")
    }

    fn gradient(&self, call: &Call) -> Result<Option<InputGradients>> {
        let gradient = self.row().gradient;
        call.in_compute_dtype(|call| {
            call.each(|_| gradient(&call.gradient(), &call.input(0), &call.output()))
        })
    }

    fn gradient_reads(&self) -> Reads {
        self.row().reads
    }

    fn reference(&self, _: &IrNode, inputs: &[&OracleArray]) -> Result<Vec<Number>> {
        let dtype = inputs[0].dtype;
        Ok(inputs[0].elements.iter().map(|&x| elementwise::unary(*self, x, dtype)).collect())
    }

    /// Tests iterate over the table.
    fn samples() -> Vec<Sample> {
        Vec::new()
    }
}

impl Operation for Binary {
    fn name(&self) -> &'static str {
        Binary::name(*self)
    }

    fn operands(&self) -> Option<usize> {
        Some(2)
    }

    fn check(&self, node: &IrNode, inputs: &[&IrNode]) -> Check {
        same_shape(node, inputs)?;
        need(inputs[0].dtype == inputs[1].dtype, "operands of two dtypes")?;
        need(self.accepts(inputs[0].dtype), "not a dtype this function takes")?;
        need(self.result(inputs[0].dtype) == node.dtype, "not the dtype this function gives")
    }

    fn gradient(&self, call: &Call) -> Result<Option<InputGradients>> {
        let rules = self.row().gradient;
        let rule = |call: &Call| {
            call.each(|i| rules[i](&call.gradient(), &call.input(0), &call.input(1), &call.output()))
        };
        // A sum's gradients are the result's: they need no wider dtype.
        if matches!(self, Binary::Add | Binary::Sub) { rule(call) } else { call.in_compute_dtype(rule) }
    }

    fn gradient_reads(&self) -> Reads {
        self.row().reads
    }

    fn reference(&self, _: &IrNode, inputs: &[&OracleArray]) -> Result<Vec<Number>> {
        let pairs = inputs[0].elements.iter().zip(&inputs[1].elements);
        Ok(pairs.map(|(&a, &b)| elementwise::binary(*self, a, b, inputs[0].dtype)).collect())
    }

    /// Tests iterate over the table.
    fn samples() -> Vec<Sample> {
        Vec::new()
    }
}
