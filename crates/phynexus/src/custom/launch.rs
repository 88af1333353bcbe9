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
    /// Makes the kernel ready on a device: its source is compiled now, or taken from the disk. A launch does so too; this
    /// is for those who want to know early.
    ///
    /// # Errors
    /// [`Error::KernelSource`] with the compiler's messages and the source's lines if it does not compile or has no such
    /// entry point; [`Error::KernelLanguage`] if it has no source for the device (and no function for the CPU, on which
    /// it would run instead). The same of the kernel of its gradient, while gradients are recorded:
    /// [`Error::KernelGradient`] if that has no source for the device.
    pub fn compile(&self, device: Device) -> Result<()> {
        device.backend().prepare_custom(self, [1; 3])?;
        if gradient::is_enabled() { self.prepare_gradient(device) } else { Ok(()) }
    }

    /// Makes the kernel of its gradient ready on a device, if it has one: what is wrong is told before the backward pass.
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

    /// Records a launch on tensors and numbers, in the order of the inputs and scalars among the parameters; after the inputs
    /// come the tensors that outputs begin as a copy of. The outputs, in order, are on the inputs' device.
    ///
    /// Numbers are part of the plan: those that change at every call are better given as a tensor of one element.
    ///
    /// # Errors
    /// [`Error::KernelArgument`] for arguments that the signature does not take, [`Error::KernelDType`] for inputs of other
    /// dtypes; [`Error::DeviceMismatch`] for inputs on several devices; those of [`CustomKernel::compile`].
    pub fn launch(&self, inputs: &[&Tensor], scalars: &[Scalar]) -> Result<Vec<Tensor>> {
        let types: Vec<TensorType> = inputs.iter().map(|input| input.tensor_type()).collect();
        let call = CustomCall::new(self, &types, scalars)?;
        let Some(device) = inputs.first().map(|input| input.device()) else {
            return Err(Error::internal("custom", "a kernel without inputs"));
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

    /// As [`CustomKernel::launch`], for a kernel with one output.
    ///
    /// # Errors
    /// As there; [`Error::KernelArgument`] if there are several outputs.
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
        outputs.pop().ok_or_else(|| Error::internal("custom", "a launch without an output"))
    }
}
