//! Compiling a kernel and launching it on tensors.

use crate::{
    Device, Error, Result, Scalar, Tensor,
    op::{
        TensorType,
        custom::{CustomCall, CustomKernel, ParameterKind},
        gradient,
        term::Term,
    },
    schedule::prepare_custom,
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
        prepare_custom(self, device, [1; 3], gradient::is_enabled())
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
