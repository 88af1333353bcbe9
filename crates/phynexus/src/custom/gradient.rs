//! The derivative of a custom kernel as tensor code.

use std::sync::Arc;

use crate::{
    Result, Scalar, Tensor,
    op::{
        custom::{CustomGradient, CustomKernelBuilder},
        term::Term,
    },
};

/// The arguments of a derivative.
pub struct GradientCall<'a> {
    /// The operands of the launch: the kernel's inputs, then the tensors that copied outputs start from.
    pub inputs: &'a [Tensor],
    /// The scalar arguments.
    pub scalars: &'a [Scalar],
    /// The outputs of the launch.
    pub outputs: &'a [Tensor],
    /// The gradients of the outputs, with their shapes and dtype.
    pub gradients: &'a [Tensor],
    /// For each operand, whether it needs a gradient. Operands that do not may get `None`.
    pub needs: &'a [bool],
}

impl CustomKernelBuilder {
    /// Sets the derivative as tensor code. The function receives the operands of the launch (the inputs, then the
    /// tensors that copied outputs start from), the outputs and their gradients. It returns a gradient of the same
    /// shape and dtype for each operand, or `None` where there is none.
    pub fn gradient(
        self,
        function: impl Fn(&GradientCall<'_>) -> Result<Vec<Option<Tensor>>> + Send + Sync + 'static,
    ) -> CustomKernelBuilder {
        self.gradient_function(Arc::new(move |call: &CustomGradient| {
            let tensors = |terms: &[Term]| terms.iter().map(Tensor::from_term).collect::<Result<Vec<_>>>();
            let gradients = function(&GradientCall {
                inputs: &tensors(call.inputs)?,
                scalars: call.scalars,
                outputs: &tensors(call.outputs)?,
                gradients: &tensors(call.gradients)?,
                needs: call.needs,
            })?;
            Ok(gradients.into_iter().map(|gradient| gradient.map(|tensor| tensor.term())).collect())
        }))
    }
}
