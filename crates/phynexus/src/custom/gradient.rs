//! The derivative of a custom kernel: another kernel, or tensor code.

use super::kernel::{CustomCall, CustomKernel, Shared, operands, unpack};
use crate::{
    Error, Result, Scalar, Tensor,
    graph::gradient::rule::{Call, InputGradients},
    text::show_shape,
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

/// The function of [`gradient`](super::CustomKernelBuilder::gradient).
pub(super) type GradientFunction = dyn Fn(&GradientCall<'_>) -> Result<Vec<Option<Tensor>>> + Send + Sync;

#[derive(Debug, PartialEq)]
pub(super) enum GradientRule {
    Kernel(CustomKernel),
    Function(Shared<GradientFunction>),
}

/// The gradients of a launch's inputs.
pub(crate) fn input_gradients(custom: &CustomCall, call: &Call) -> Result<InputGradients> {
    let kernel = custom.kernel();
    let Some(rule) = &kernel.0.gradient else {
        let hint = format!(
            "the kernel {} was made without one: give it one with .gradient(), or detach() its inputs",
            kernel.name()
        );
        return Err(Error::NoGradient { op: "custom kernel", hint });
    };
    let outputs = parts(custom, call.output)?;
    let gradients = parts(custom, call.gradient)?;
    let found = match rule {
        GradientRule::Function(function) => function.0(&GradientCall {
            inputs: call.inputs,
            scalars: custom.scalars(),
            outputs: &outputs,
            gradients: &gradients,
            needs: call.needs,
        })?,
        GradientRule::Kernel(backward) => {
            let operands: Vec<&Tensor> = call.inputs.iter().chain(&outputs).chain(&gradients).collect();
            let mut results = backward.launch(&operands, custom.scalars())?.into_iter();
            call.inputs
                .iter()
                .map(|input| input.dtype().is_float().then(|| results.next()).flatten())
                .collect()
        }
    };
    checked(kernel, call, found)
}

/// The outputs, or their gradients, in a launch's result.
fn parts(custom: &CustomCall, result: &Tensor) -> Result<Vec<Tensor>> {
    match custom.outputs() {
        [_] => Ok(vec![result.clone()]),
        shapes => unpack(result, &custom.packing()?.0, shapes),
    }
}

/// What a derivative gave, if it is a gradient of its shape and dtype for each input that needs one.
fn checked(kernel: &CustomKernel, call: &Call, found: Vec<Option<Tensor>>) -> Result<InputGradients> {
    let (expected, given) = (call.inputs.len(), found.len());
    if expected != given {
        return Err(kernel.misfit("gradients", format!("{expected}, one an input"), given.to_string()));
    }
    let names = operands(kernel.parameters()).map(|operand| &operand.name);
    let one = |((name, input), (gradient, &needed)): ((&String, &Tensor), (Option<Tensor>, &bool))| {
        let Some(gradient) = gradient.filter(|_| needed) else { return Ok(None) };
        if gradient.shape() == input.shape() && gradient.dtype() == input.dtype() {
            return Ok(Some(gradient));
        }
        let show = |t: &Tensor| format!("{} {}", t.dtype(), show_shape(t.shape()));
        Err(kernel.misfit(&format!("gradient of {name}"), show(input), show(&gradient)))
    };
    names.zip(call.inputs).zip(found.into_iter().zip(call.needs)).map(one).collect()
}
