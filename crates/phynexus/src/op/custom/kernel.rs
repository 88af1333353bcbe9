//! The definition of a kernel, and a launch as an operation.

use std::{
    fmt,
    hash::{Hash, Hasher},
    sync::Arc,
};

use super::{
    builder::{CustomKernelBuilder, Rule},
    gradient::GradientRule,
    host::HostFunction,
};
use crate::{DType, Error, Result, Scalar, hash::FastHasher, op::TensorType, shape::Dims};

/// A source language of custom kernels. Device crates declare the languages that their devices compile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceLanguage {
    /// The name in messages.
    pub name: &'static str,
    /// The name by which programs select it, in lower case.
    pub short_name: &'static str,
    /// Sources are binary rather than text.
    pub is_binary: bool,
    /// Scalars are passed as members of a structure of 32-bit words instead of by value.
    pub has_scalar_structure: bool,
}

impl SourceLanguage {
    /// Whether some devices run both languages.
    pub(super) fn shares_devices_with(self, other: SourceLanguage) -> bool {
        self == other || self.has_scalar_structure && other.has_scalar_structure
    }
}

/// The source of a kernel in a language: text or binary.
#[derive(Clone, Debug, PartialEq)]
pub struct Source {
    /// The language.
    pub language: SourceLanguage,
    code: Vec<u8>,
}

impl Source {
    pub(super) fn new(language: SourceLanguage, code: &[u8]) -> Source {
        Source { language, code: code.to_vec() }
    }

    /// The source as bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.code
    }

    /// The text of the source; empty for a binary.
    pub fn text(&self) -> &str {
        match self.language.is_binary {
            true => "",
            // The source was valid text when it was added.
            false => std::str::from_utf8(&self.code).unwrap_or_default(),
        }
    }
}

impl fmt::Display for SourceLanguage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// The kind of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParameterKind {
    /// A tensor that the kernel reads.
    Input,
    /// A tensor that the kernel writes.
    Output,
    /// A scalar.
    Scalar,
}

/// A parameter of a kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameter {
    /// The name used in messages.
    pub name: String,
    /// The type of its elements.
    pub dtype: DType,
    /// The kind.
    pub kind: ParameterKind,
    /// The shape of a tensor; `None` for scalars.
    pub(super) shape: Option<Rule>,
    /// True for an output that is initially zero.
    pub zeroed: bool,
    /// True for an output that starts as a copy of an operand of the launch.
    pub copied: bool,
}

/// The operands of a launch in order: the inputs, then the tensors that copied outputs start from.
pub(super) fn operands(parameters: &[Parameter]) -> impl Iterator<Item = &Parameter> {
    let inputs = parameters.iter().filter(|parameter| parameter.kind == ParameterKind::Input);
    inputs.chain(parameters.iter().filter(|parameter| parameter.copied))
}

/// A user's function, which is equal only to itself.
pub(super) struct Shared<F: ?Sized>(pub(super) Arc<F>);

impl<F: ?Sized> Clone for Shared<F> {
    fn clone(&self) -> Shared<F> {
        Shared(self.0.clone())
    }
}
impl<F: ?Sized> PartialEq for Shared<F> {
    fn eq(&self, other: &Shared<F>) -> bool {
        std::ptr::addr_eq(Arc::as_ptr(&self.0), Arc::as_ptr(&other.0))
    }
}
impl<F: ?Sized> fmt::Debug for Shared<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a function")
    }
}

/// The number of groups to launch.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum GroupCount {
    /// Enough along x for one invocation per element of the first output.
    PerElement,
    Fixed([usize; 3]),
    /// A function of the first output's extents.
    Function(Shared<GroupCountFunction>),
}

/// Computes the number of groups from the extents of the first output.
pub(super) type GroupCountFunction = dyn Fn(&[usize]) -> [usize; 3] + Send + Sync;

#[derive(Debug, PartialEq)]
pub(super) struct Definition {
    pub(super) name: String,
    pub(super) entry_point: String,
    pub(super) parameters: Vec<Parameter>,
    pub(super) sources: Vec<Source>,
    pub(super) work_group_size: [usize; 3],
    pub(super) groups: GroupCount,
    pub(super) host: Option<Shared<HostFunction>>,
    pub(super) gradient: Option<GradientRule>,
    /// True for a routine of `linalg`, which is not user code.
    pub(super) is_linear_algebra: bool,
    /// A hash of names and sources.
    pub(super) hash: u64,
}

/// A user-written kernel. It is a handle: clones refer to the same kernel. Kernels with the same contents are equal,
/// and share plans and machine code.
#[derive(Clone)]
pub struct CustomKernel(pub(super) Arc<Definition>);

impl PartialEq for CustomKernel {
    fn eq(&self, other: &CustomKernel) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0.hash == other.0.hash && self.0 == other.0
    }
}
impl Eq for CustomKernel {}
impl Hash for CustomKernel {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.0.hash);
    }
}
impl fmt::Debug for CustomKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CustomKernel({})", self.0.name)
    }
}

impl CustomKernel {
    /// Starts building a kernel. `name` is also the entry point, unless another one is set.
    pub fn builder(name: &str) -> CustomKernelBuilder {
        CustomKernelBuilder::new(name)
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.0.name
    }
    /// The name of the function in the source.
    pub fn entry_point(&self) -> &str {
        &self.0.entry_point
    }
    /// The parameters in order.
    pub fn parameters(&self) -> &[Parameter] {
        &self.0.parameters
    }
    /// The source in a language, if there is one.
    pub fn source(&self, language: SourceLanguage) -> Option<&Source> {
        self.0.sources.iter().find(|source| source.language == language)
    }
    /// The number of invocations of a group along each axis.
    pub fn work_group_size(&self) -> [usize; 3] {
        self.0.work_group_size
    }
    /// True if there is a CPU function.
    pub fn has_cpu_function(&self) -> bool {
        self.0.host.is_some()
    }
    /// True if gradients flow through it.
    pub fn is_differentiable(&self) -> bool {
        self.0.gradient.is_some()
    }

    /// The kernel of the gradient, if the gradient is a kernel.
    pub(crate) fn gradient_kernel(&self) -> Option<&CustomKernel> {
        match &self.0.gradient {
            Some(GradientRule::Kernel(kernel)) => Some(kernel),
            _ => None,
        }
    }

    /// True for a routine of `linalg`.
    pub(crate) fn is_linear_algebra(&self) -> bool {
        self.0.is_linear_algebra
    }

    /// True if this is the only handle.
    pub(crate) fn is_last_handle(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }

    pub(crate) fn of_kind(&self, kind: ParameterKind) -> impl Iterator<Item = &Parameter> {
        self.0.parameters.iter().filter(move |parameter| parameter.kind == kind)
    }

    /// The dtype of all outputs.
    pub fn output_dtype(&self) -> DType {
        self.of_kind(ParameterKind::Output).next().map_or(DType::F32, |output| output.dtype)
    }

    pub(crate) fn misfit(&self, argument: &str, expected: String, given: String) -> Error {
        Error::KernelArgument { kernel: self.0.name.clone(), argument: argument.to_owned(), expected, given }
    }

    /// The error of a device that needs `expected`, if the kernel has no source for it.
    pub fn no_source_for(&self, device: &str, expected: &str) -> Error {
        if self.is_linear_algebra() {
            let message =
                format!("linear algebra ({}) has no routine here: the CPU computes it", self.0.name);
            return Error::Unsupported { device: device.to_owned(), message };
        }
        Error::KernelLanguage {
            kernel: self.0.name.clone(),
            device: device.to_owned(),
            expected: expected.to_owned(),
            available: self.available(),
        }
    }

    /// Lists what the kernel can run as, for messages.
    pub(super) fn available(&self) -> String {
        let mut all: Vec<&str> = self.0.sources.iter().map(|source| source.language.name).collect();
        all.extend(self.has_cpu_function().then_some("a function for the CPU"));
        all.join(", ")
    }
}

/// A launch of a kernel as an operation of the graph: its scalars, and the properties that follow from the inputs'
/// shapes.
///
/// Several outputs are packed into a flat result, each at a multiple of [`CustomCall::ALIGNMENT`] bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CustomCall {
    pub(super) kernel: CustomKernel,
    pub(super) scalars: Box<[Scalar]>,
    pub(super) outputs: Box<[Dims]>,
    pub(super) groups: [usize; 3],
}

impl CustomCall {
    /// The alignment in bytes of outputs that share a buffer, which every driver can bind.
    pub const ALIGNMENT: usize = 256;

    /// A launch on inputs of these types and shapes.
    ///
    /// # Errors
    /// [`Error::KernelArgument`] and [`Error::KernelDType`] for arguments that do not match the signature.
    pub fn new(kernel: &CustomKernel, inputs: &[TensorType], scalars: &[Scalar]) -> Result<CustomCall> {
        let outputs = kernel.output_shapes(inputs)?;
        let groups = kernel.groups(&outputs)?;
        let scalars = kernel.check_scalars(scalars)?;
        Ok(CustomCall { kernel: kernel.clone(), scalars: scalars.into(), outputs: outputs.into(), groups })
    }

    /// The kernel.
    pub fn kernel(&self) -> &CustomKernel {
        &self.kernel
    }
    /// The scalars, one per scalar parameter, in its dtype.
    pub fn scalars(&self) -> &[Scalar] {
        &self.scalars
    }
    /// The number of groups along each axis.
    pub fn groups(&self) -> [usize; 3] {
        self.groups
    }
    /// The shapes of the outputs.
    pub fn outputs(&self) -> &[Dims] {
        &self.outputs
    }

    /// The start of each output in the result, in elements, and the number of elements of the result.
    ///
    /// # Errors
    /// If the result exceeds the address space.
    pub fn packing(&self) -> Result<(Vec<usize>, usize)> {
        let align = Self::ALIGNMENT / self.kernel.output_dtype().size();
        let mut end = 0usize;
        let mut starts = Vec::with_capacity(self.outputs.len());
        for shape in &self.outputs {
            let start = end.checked_next_multiple_of(align);
            let next = start.zip(crate::shape::checked_element_count(shape));
            let Some((start, next)) = next.and_then(|(start, n)| Some((start, start.checked_add(n)?))) else {
                let shapes: Vec<&[usize]> = self.outputs.iter().map(|shape| shape.as_slice()).collect();
                return Err(Error::shape("custom", &shapes, "the outputs would exceed the address space"));
            };
            starts.push(start);
            end = next;
        }
        Ok((starts, end))
    }

    /// The rules of the graph: the number and dtypes of the inputs must match the signature.
    pub(crate) fn check(&self, dtype: DType, elements: usize, inputs: &[DType]) -> Result<(), &'static str> {
        let expected = operands(self.kernel.parameters()).map(|operand| operand.dtype);
        if !expected.eq(inputs.iter().copied()) {
            return Err("the inputs do not match the kernel's signature");
        }
        let fits = self.packing().is_ok_and(|(_, all)| all == elements);
        if dtype == self.kernel.output_dtype() && fits {
            Ok(())
        } else {
            Err("the result does not match the kernel's outputs")
        }
    }
}

/// A hash of texts and binaries.
pub(super) fn hash_of<'a>(texts: impl IntoIterator<Item = &'a [u8]>) -> u64 {
    let mut hasher = FastHasher::default();
    texts.into_iter().for_each(|text| text.hash(&mut hasher));
    hasher.finish()
}
