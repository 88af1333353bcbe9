//! The derivative of a custom kernel: another kernel, or a function.

use super::kernel::{CustomCall, CustomKernel, Shared, operands};
use crate::{
    Error, Result, Scalar,
    op::{
        Op,
        formula::Formula,
        gradient::rule::{Call, InputGradients},
        term::{TensorType, Term},
    },
    shape::element_count,
    text::show_shape,
};

/// Computes the gradients of a launch's operands from the outputs and their gradients.
pub(crate) type GradientFunction = dyn Fn(&CustomGradient) -> Result<Vec<Option<Term>>> + Send + Sync;

/// The arguments of a gradient function.
pub(crate) struct CustomGradient<'a> {
    pub(crate) inputs: &'a [Term],
    pub(crate) scalars: &'a [Scalar],
    pub(crate) outputs: &'a [Term],
    pub(crate) gradients: &'a [Term],
    pub(crate) needs: &'a [bool],
}

#[derive(Debug, PartialEq)]
pub(super) enum GradientRule {
    Kernel(CustomKernel),
    Function(Shared<GradientFunction>),
}

impl CustomCall {
    /// Records the launch on operands of the expected types, and returns the outputs.
    pub(crate) fn record(self, operands: &[&Term]) -> Result<Vec<Term>> {
        let dtype = self.kernel().output_dtype();
        if let [shape] = self.outputs() {
            let shape = shape.clone();
            return Ok(vec![Term::record(Op::Custom(self), dtype, shape, operands)?]);
        }
        let (_, elements) = self.packing()?;
        let packed = Op::Custom(self.clone());
        self.parts(&Term::record(packed, dtype, [elements].as_slice().into(), operands)?)
    }

    /// Splits the result of a launch into outputs, or into their gradients.
    fn parts(&self, result: &Term) -> Result<Vec<Term>> {
        let shapes = self.outputs();
        if shapes.len() == 1 {
            return Ok(vec![result.clone()]);
        }
        let (starts, _) = self.packing()?;
        let part = |(&start, shape): (&usize, &crate::shape::Dims)| {
            Formula::of(result).narrow(0, start, element_count(shape)).reshape(shape).term()
        };
        starts.iter().zip(shapes).map(part).collect()
    }
}

/// The gradients of a launch's inputs.
pub(super) fn input_gradients(custom: &CustomCall, call: &Call) -> Result<InputGradients> {
    let kernel = custom.kernel();
    let Some(rule) = &kernel.0.gradient else {
        let hint = format!(
            "the kernel {} has no derivative: give it one with .gradient(), or detach() its inputs",
            kernel.name()
        );
        return Err(Error::NoGradient { op: "custom kernel", hint });
    };
    let outputs = custom.parts(call.output)?;
    let gradients = custom.parts(call.gradient)?;
    let found = match rule {
        GradientRule::Function(function) => function.0(&CustomGradient {
            inputs: call.inputs,
            scalars: custom.scalars(),
            outputs: &outputs,
            gradients: &gradients,
            needs: call.needs,
        })?,
        GradientRule::Kernel(backward) => {
            let operands: Vec<&Term> = call.inputs.iter().chain(&outputs).chain(&gradients).collect();
            let types: Vec<TensorType> = operands.iter().map(|operand| operand.tensor_type()).collect();
            let launch = CustomCall::new(backward, &types, custom.scalars())?;
            let mut results = launch.record(&operands)?.into_iter();
            call.inputs
                .iter()
                .map(|input| input.dtype().is_float().then(|| results.next()).flatten())
                .collect()
        }
    };
    checked(kernel, call, found)
}

/// Checks that a derivative returned a gradient of the right shape and dtype for each input that needs one.
fn checked(kernel: &CustomKernel, call: &Call, found: Vec<Option<Term>>) -> Result<InputGradients> {
    let (expected, given) = (call.inputs.len(), found.len());
    if expected != given {
        return Err(kernel.misfit("gradients", format!("{expected}, one per input"), given.to_string()));
    }
    let names = operands(kernel.parameters()).map(|operand| &operand.name);
    let one = |((name, input), (gradient, &needed)): ((&String, &Term), (Option<Term>, &bool))| {
        let Some(gradient) = gradient.filter(|_| needed) else { return Ok(None) };
        if gradient.shape() == input.shape() && gradient.dtype() == input.dtype() {
            return Ok(Some(gradient));
        }
        let show = |t: &Term| format!("{} {}", t.dtype(), show_shape(t.shape()));
        Err(kernel.misfit(&format!("gradient of {name}"), show(input), show(&gradient)))
    };
    names.zip(call.inputs).zip(found.into_iter().zip(call.needs)).map(one).collect()
}
