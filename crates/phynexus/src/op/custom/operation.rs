//! A launch as an operation.

use super::{CustomCall, gradient::input_gradients};
use crate::{
    DType, Result,
    dtype::read_scalars,
    op::{
        gradient::rule::{Call, InputGradients, Reads},
        ir::IrNode,
        operation::{Check, Operation},
        reference::{Number, OracleArray, from_scalar},
        sample::Sample,
    },
};

impl Operation for CustomCall {
    fn name(&self) -> &'static str {
        "custom kernel"
    }

    fn operands(&self) -> Option<usize> {
        None
    }

    fn can_fail(&self) -> bool {
        true
    }

    fn check(&self, node: &IrNode, inputs: &[&IrNode]) -> Check {
        let operands: Vec<DType> = inputs.iter().map(|input| input.dtype).collect();
        self.check(node.dtype, node.len(), &operands)
    }

    fn gradient(&self, call: &Call) -> Result<Option<InputGradients>> {
        input_gradients(self, call).map(Some)
    }

    fn gradient_reads(&self) -> Reads {
        Reads::EVERYTHING
    }

    /// The kernel's CPU function on exact inputs.
    fn reference(&self, node: &IrNode, inputs: &[&OracleArray]) -> Result<Vec<Number>> {
        if inputs.iter().flat_map(|input| &input.elements).any(|x| matches!(x, Number::Undetermined)) {
            return Ok(vec![Number::Undetermined; self.packing()?.1]);
        }
        let bytes: Vec<Vec<u8>> = inputs.iter().map(|input| input.to_bytes()).collect();
        let inputs: Vec<(&[usize], &[u8])> =
            inputs.iter().zip(&bytes).map(|(input, bytes)| (&input.shape[..], &bytes[..])).collect();
        let result = self.run_on_bytes(&inputs, "reference")?;
        Ok(read_scalars(&result, node.dtype).into_iter().map(from_scalar).collect())
    }

    /// The kernels of tests are their own.
    fn samples() -> Vec<Sample> {
        Vec::new()
    }
}
