//! The CPU function: its arguments, and how it is called.

use super::kernel::{CustomCall, Parameter, ParameterKind, operands};
use crate::{
    DType, Element, Error, Result, Scalar,
    dtype::{Elements, ElementsMut},
    shape::element_count,
};

/// The function of [`cpu`](super::CustomKernelBuilder::cpu).
pub(super) type HostFunction = dyn Fn(HostCall<'_>) -> Result<()> + Send + Sync;

/// The arguments of a CPU function.
pub struct HostCall<'a> {
    /// The input tensors, in the order of the input parameters.
    pub inputs: Vec<HostInput<'a>>,
    /// The output tensors, in the order of the outputs. They start as zeros, or as copies for copied outputs.
    pub outputs: Vec<HostOutput<'a>>,
    /// The scalars, in the order of the scalar parameters and in their dtypes.
    pub scalars: &'a [Scalar],
}

/// A row-major input tensor.
pub struct HostInput<'a> {
    /// Its shape.
    pub shape: &'a [usize],
    /// Its elements.
    pub elements: Elements<'a>,
}

/// A row-major output tensor.
pub struct HostOutput<'a> {
    /// Its shape.
    pub shape: &'a [usize],
    /// Its elements.
    pub elements: ElementsMut<'a>,
}

impl HostInput<'_> {
    /// The elements.
    ///
    /// # Errors
    /// [`Error::DType`] unless they are of type `T`.
    pub fn values<T: Element>(&self) -> Result<&[T]> {
        T::elements(&self.elements).ok_or_else(|| other_type::<T>(self.elements.dtype()))
    }
}

impl HostOutput<'_> {
    /// The elements.
    ///
    /// # Errors
    /// [`Error::DType`] unless they are of type `T`.
    pub fn values<T: Element>(&mut self) -> Result<&mut [T]> {
        let dtype = self.elements.dtype();
        T::elements_mut(&mut self.elements).ok_or_else(|| other_type::<T>(dtype))
    }
}

fn other_type<T: Element>(own: DType) -> Error {
    Error::dtype("custom kernel", &[own, T::DTYPE], format!("read the values as {own}"))
}

impl CustomCall {
    /// Calls the CPU function. `inputs` are the shapes and elements of the operands of the launch. `outputs` are the
    /// elements of the outputs, initially zero, with the shapes of [`CustomCall::outputs`].
    ///
    /// # Errors
    /// The error of the function; [`Error::KernelLanguage`] if there is none.
    pub fn run_on_host(
        &self,
        mut inputs: Vec<(&[usize], Elements<'_>)>,
        mut outputs: Vec<ElementsMut<'_>>,
        device: &str,
    ) -> Result<()> {
        let kernel = self.kernel();
        let Some(function) = &kernel.0.host else {
            return Err(kernel.no_source_for(device, "a function for the CPU"));
        };
        let outputs_of = || kernel.of_kind(ParameterKind::Output);
        let dtype = |parameter: &Parameter| parameter.dtype;
        let fits = operands(kernel.parameters()).map(dtype).eq(inputs.iter().map(|(_, e)| e.dtype()))
            && outputs_of().map(dtype).eq(outputs.iter().map(ElementsMut::dtype));
        if !fits {
            return Err(Error::internal("custom", "the buffers do not match the signature"));
        }
        let begun = inputs.split_off(kernel.of_kind(ParameterKind::Input).count());
        let copied = outputs_of().zip(&mut outputs).filter(|(parameter, _)| parameter.copied);
        copied.zip(&begun).for_each(|((_, output), (_, elements))| output.copy_from(elements));
        let shapes = self.outputs().iter().map(|shape| shape.as_slice());
        function.0(HostCall {
            inputs: inputs.into_iter().map(|(shape, elements)| HostInput { shape, elements }).collect(),
            outputs: shapes.zip(outputs).map(|(shape, elements)| HostOutput { shape, elements }).collect(),
            scalars: self.scalars(),
        })
    }

    /// As [`CustomCall::run_on_host`] with little-endian bytes; returns those of the packed result.
    pub(crate) fn run_on_bytes(&self, inputs: &[(&[usize], &[u8])], device: &str) -> Result<Vec<u8>> {
        let dtype = self.kernel().output_dtype();
        let dtypes = operands(self.kernel().parameters()).map(|operand| operand.dtype);
        let inputs = inputs
            .iter()
            .zip(dtypes)
            .map(|(&(shape, bytes), dtype)| (shape, Elements::from_bytes(dtype, bytes)));
        let zeros = |shape: &crate::shape::Dims| {
            Elements::from_bytes(dtype, &vec![0; element_count(shape) * dtype.size()])
        };
        let mut outputs: Vec<Elements> = self.outputs().iter().map(zeros).collect();
        self.run_on_host(inputs.collect(), outputs.iter_mut().map(Elements::to_mut).collect(), device)?;
        let (starts, elements) = self.packing()?;
        let mut packed = Vec::new();
        for (start, output) in starts.iter().zip(&outputs) {
            packed.resize(start * dtype.size(), 0);
            output.write_bytes(&mut packed);
        }
        packed.resize(elements * dtype.size(), 0);
        Ok(packed)
    }
}
