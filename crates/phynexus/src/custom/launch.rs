//! Compiling a kernel and launching it on tensors.

use crate::{
    Device, Error, Result, Scalar, Tensor,
    op::{
        TensorType,
        custom::{CustomCall, CustomKernel, ParameterKind},
        gradient,
        term::Term,
    },
};

impl CustomKernel {
    /// Prepares the kernel for a device: compiles its source, or loads the result from the disk cache. A launch does
    /// this implicitly; call it to detect errors early.
    ///
    /// # Errors
    /// [`Error::KernelSource`] with the compiler's messages and the source lines if the source does not compile or
    /// lacks the entry point; [`Error::KernelLanguage`] if there is no source for the device and no CPU function to run
    /// instead. The same applies to the kernel of the gradient while gradients are recorded: [`Error::KernelGradient`]
    /// if it has no source for the device.
    pub fn compile(&self, device: Device) -> Result<()> {
        device.backend().prepare_custom(self, [1; 3])?;
        if gradient::is_enabled() { self.prepare_gradient(device) } else { Ok(()) }
    }

    /// Prepares the kernel of the gradient for a device, if there is one, so that its errors are reported before the
    /// backward pass.
    fn prepare_gradient(&self, device: Device) -> Result<()> {
        let Some(gradient) = self.gradient_kernel() else { return Ok(()) };
        device.backend().prepare_custom(gradient, [1; 3]).map_err(|error| match error {
            Error::KernelLanguage { kernel: gradient, device, expected, available } => {
                Error::KernelGradient {
                    kernel: self.name().to_owned(),
                    gradient,
                    device,
                    expected,
                    available,
                }
            }
            other => other,
        })
    }

    /// Records a launch. `inputs` are the tensors for the input parameters, followed by those that copied outputs start
    /// from; `scalars` are the numbers for the scalar parameters. Returns the outputs in order, on the device of the
    /// inputs.
    ///
    /// Scalars are part of the plan. Pass numbers that change with every call as a tensor with one element instead.
    ///
    /// # Errors
    /// [`Error::KernelArgument`] for arguments that do not match the signature; [`Error::KernelDType`] for inputs of
    /// other dtypes; [`Error::DeviceMismatch`] for inputs on different devices; the errors of
    /// [`CustomKernel::compile`].
    pub fn launch(&self, inputs: &[&Tensor], scalars: &[Scalar]) -> Result<Vec<Tensor>> {
        let types: Vec<TensorType> = inputs.iter().map(|input| input.tensor_type()).collect();
        let call = CustomCall::new(self, &types, scalars)?;
        let Some(device) = inputs.first().map(|input| input.device()) else {
            return Err(Error::internal("custom", "the kernel has no inputs"));
        };
        if let Some(other) = inputs.iter().find(|other| other.device() != device) {
            return Err(Error::DeviceMismatch {
                op: "custom kernel",
                left: device.name().to_owned(),
                right: other.device().name().to_owned(),
            });
        }
        if gradient::is_enabled() && inputs.iter().any(|input| input.requires_grad()) {
            self.prepare_gradient(device)?;
        }
        let operands: Vec<Term> = inputs.iter().map(|input| input.term()).collect();
        let outputs = call.record(&operands.iter().collect::<Vec<_>>())?;
        outputs.iter().map(Tensor::from_term).collect()
    }

    /// As [`CustomKernel::launch`], for a kernel with a single output.
    ///
    /// # Errors
    /// As [`CustomKernel::launch`]; [`Error::KernelArgument`] if there are several outputs.
    pub fn call(&self, inputs: &[&Tensor], scalars: &[Scalar]) -> Result<Tensor> {
        let count = self.of_kind(ParameterKind::Output).count();
        let mut outputs = match count {
            1 => self.launch(inputs, scalars)?,
            _ => {
                return Err(self.misfit(
                    "outputs",
                    "one, for call()".into(),
                    format!("{count}: use launch()"),
                ));
            }
        };
        outputs.pop().ok_or_else(|| Error::internal("custom", "the launch has no output"))
    }
}
