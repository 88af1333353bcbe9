//! The derivative of a custom kernel as tensor code.

use std::sync::Arc;

use crate::{
    Result, Scalar, Tensor,
    op::{
        custom::{CustomGradient, CustomKernelBuilder},
        term::Term,
    },
};

/// What a derivative knows of a launch.
pub struct GradientCall<'a> {
    /// The tensors that it was launched on: the kernel's inputs, then what outputs are copies of.
    pub inputs: &'a [Tensor],
    /// The numbers.
    pub scalars: &'a [Scalar],
    /// What it made.
    pub outputs: &'a [Tensor],
    /// The gradients of the outputs, of their shapes and dtype.
    pub gradients: &'a [Tensor],
    /// Which inputs need a gradient; others may have `None`.
    pub needs: &'a [bool],
}

impl CustomKernelBuilder {
    /// The derivative as tensor code: a function from what the kernel is launched on (its inputs, then what outputs are copies
    /// of), the outputs and their gradients to a gradient for each that it is launched on, of its shape and dtype (`None` where
    /// there is none).
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
