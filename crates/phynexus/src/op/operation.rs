//! What the engine knows of every operation.

use std::fmt;

use super::{
    gradient::rule::{Call, InputGradients, Reads},
    ir::IrNode,
    reference::{Number, OracleArray},
    sample::Sample,
};
use crate::Result;

/// The result of a check of a node: what is wrong with it.
pub(crate) type Check = std::result::Result<(), &'static str>;

/// Everything that the engine knows of an operation, except how devices compute it.
pub(crate) trait Operation: fmt::Debug {
    /// The name in messages and listings.
    fn name(&self) -> &'static str;

    /// The number of operands; `None` if it varies.
    fn operands(&self) -> Option<usize> {
        Some(1)
    }

    /// Whether the node's dtype and shape fit its operands, whose number is right.
    fn check(&self, node: &IrNode, inputs: &[&IrNode]) -> Check;

    /// The operands' gradients; `None` where the body of a composite is to be differentiated. The default is for
    /// operations that no gradient reaches: those without operands, or with a result of an integer or bool dtype.
    fn gradient(&self, call: &Call) -> Result<Option<InputGradients>> {
        Ok(Some(call.inputs.iter().map(|_| None).collect()))
    }

    /// What `gradient` reads.
    fn gradient_reads(&self) -> Reads {
        Reads::NOTHING
    }

    /// Whether computing it is an error for some values of its operands, such as an index out of range.
    fn can_fail(&self) -> bool {
        false
    }

    /// The elements of the node, which define the operation.
    ///
    /// # Errors
    /// An index out of range, or an error of a user's function.
    fn reference(&self, node: &IrNode, inputs: &[&OracleArray]) -> Result<Vec<Number>>;

    /// Calls for tests: every value of the attributes that matters, sizes for which devices choose other kernels, and
    /// small operands, for finite differences.
    fn samples() -> Vec<Sample>
    where
        Self: Sized;
}

/// Refuses a node if the condition does not hold.
pub(super) fn need(condition: bool, message: &'static str) -> Check {
    if condition { Ok(()) } else { Err(message) }
}

/// Every operand must have the result's dtype.
pub(super) fn same_dtype(node: &IrNode, inputs: &[&IrNode]) -> Check {
    need(inputs.iter().all(|input| input.dtype == node.dtype), "operands have another dtype")
}

/// Every operand must have the result's shape.
pub(super) fn same_shape(node: &IrNode, inputs: &[&IrNode]) -> Check {
    need(inputs.iter().all(|input| input.shape == node.shape), "operands have another shape")
}
