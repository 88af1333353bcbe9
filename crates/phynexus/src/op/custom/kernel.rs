//! The kernel, and a launch as an operation.

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

/// A language of custom kernels' sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SourceLanguage {
    /// For NVIDIA's GPUs.
    CudaC,
    /// For AMD's GPUs through HIP.
    HipC,
    /// For devices of OpenCL.
    OpenClC,
    /// For Vulkan, Metal and DirectX 12.
    Wgsl,
    /// For the same, as a binary module: [`CustomKernelBuilder::binary`].
    SpirV,
    /// Apple's, for Metal.
    Msl,
}

impl SourceLanguage {
    /// Its name in messages.
    pub fn name(self) -> &'static str {
        match self {
            SourceLanguage::CudaC => "CUDA C",
            SourceLanguage::HipC => "HIP C",
            SourceLanguage::OpenClC => "OpenCL C",
            SourceLanguage::Wgsl => "WGSL",
            SourceLanguage::SpirV => "SPIR-V",
            SourceLanguage::Msl => "MSL",
        }
    }

    /// Every language.
    pub const ALL: [SourceLanguage; 6] = [
        SourceLanguage::CudaC,
        SourceLanguage::HipC,
        SourceLanguage::OpenClC,
        SourceLanguage::Wgsl,
        SourceLanguage::SpirV,
        SourceLanguage::Msl,
    ];

    /// Its short name, by which [`SourceLanguage::from_name`] knows it.
    pub fn short_name(self) -> &'static str {
        match self {
            SourceLanguage::CudaC => "cuda",
            SourceLanguage::HipC => "hip",
            SourceLanguage::OpenClC => "opencl",
            SourceLanguage::Wgsl => "wgsl",
            SourceLanguage::SpirV => "spirv",
            SourceLanguage::Msl => "msl",
        }
    }

    /// The language by its short name: `"cuda"`, `"hip"`, `"opencl"`, `"wgsl"`, `"spirv"`, `"msl"`.
    ///
    /// # Errors
    /// [`Error::Argument`] with these names for any other.
    pub fn from_name(name: &str) -> Result<SourceLanguage> {
        SourceLanguage::ALL.into_iter().find(|language| language.short_name() == name).ok_or_else(|| {
            let known = SourceLanguage::ALL.map(|language| format!("{:?}", language.short_name())).join(", ");
            Error::argument(
                "custom kernel",
                format!("{name:?} is not a language of kernels: use one of {known}"),
            )
        })
    }

    /// Whether sources in it are bytes rather than text.
    pub fn is_binary(self) -> bool {
        self == SourceLanguage::SpirV
    }

    /// Whether there are devices that run both.
    pub(super) fn shares_devices_with(self, other: SourceLanguage) -> bool {
        self == other || self.has_scalar_structure() && other.has_scalar_structure()
    }

    /// Whether scalars are the members of a structure of 32-bit words, not passed by value.
    pub(super) fn has_scalar_structure(self) -> bool {
        matches!(self, SourceLanguage::Wgsl | SourceLanguage::SpirV | SourceLanguage::Msl)
    }
}

/// What a kernel is written in, and that text or binary.
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

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.code
    }

    /// Its text; empty for a binary.
    pub fn text(&self) -> &str {
        match self.language.is_binary() {
            true => "",
            // It was text when it was given.
            false => std::str::from_utf8(&self.code).unwrap_or_default(),
        }
    }
}

impl fmt::Display for SourceLanguage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What a parameter is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParameterKind {
    /// A tensor that is read.
    Input,
    /// A tensor that is made.
    Output,
    /// A number.
    Scalar,
}

/// A parameter of a kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameter {
    /// Its name in messages.
    pub name: String,
    /// The type of its elements.
    pub dtype: DType,
    /// What it is.
    pub kind: ParameterKind,
    /// The shape of a tensor; absent for numbers.
    pub(super) shape: Option<Rule>,
    /// True for an output that is zeros before the kernel runs.
    pub zeroed: bool,
    /// True for an output that is a copy of an operand of the launch before the kernel runs.
    pub copied: bool,
}

/// What a launch is given, in order: the inputs, then what outputs are copies of.
pub(super) fn operands(parameters: &[Parameter]) -> impl Iterator<Item = &Parameter> {
    let inputs = parameters.iter().filter(|parameter| parameter.kind == ParameterKind::Input);
    inputs.chain(parameters.iter().filter(|parameter| parameter.copied))
}

/// A function that users give: equal only to itself.
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

/// How many groups of invocations are launched.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Groups {
    /// As many along x that every element of the first output has an invocation.
    PerElement,
    Fixed([usize; 3]),
    /// From the first output's extents.
    Function(Shared<GroupsFunction>),
}

/// Groups from the extents of the first output.
pub(super) type GroupsFunction = dyn Fn(&[usize]) -> [usize; 3] + Send + Sync;

#[derive(Debug, PartialEq)]
pub(super) struct Definition {
    pub(super) name: String,
    pub(super) entry_point: String,
    pub(super) parameters: Vec<Parameter>,
    pub(super) sources: Vec<Source>,
    pub(super) work_group_size: [usize; 3],
    pub(super) groups: Groups,
    pub(super) host: Option<Shared<HostFunction>>,
    pub(super) gradient: Option<GradientRule>,
    /// True for a routine of `linalg`, which no user wrote.
    pub(super) is_linear_algebra: bool,
    /// A hash of names and sources.
    pub(super) hash: u64,
}

/// A kernel written by a user. A handle: clones are the same kernel. Two kernels of the same contents are equal, and
/// share plans and machine code.
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
    /// Begins a kernel of this name, which is its entry point too unless another is named.
    pub fn builder(name: &str) -> CustomKernelBuilder {
        CustomKernelBuilder::new(name)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.0.name
    }
    /// The name of the function in the source.
    pub fn entry_point(&self) -> &str {
        &self.0.entry_point
    }
    /// Its parameters, in order.
    pub fn parameters(&self) -> &[Parameter] {
        &self.0.parameters
    }
    /// The source in this language, if it has one.
    pub fn source(&self, language: SourceLanguage) -> Option<&Source> {
        self.0.sources.iter().find(|source| source.language == language)
    }
    /// The invocations of a group, an axis each.
    pub fn work_group_size(&self) -> [usize; 3] {
        self.0.work_group_size
    }
    /// True if it has a function for the CPU.
    pub fn has_cpu_function(&self) -> bool {
        self.0.host.is_some()
    }
    /// True if a gradient flows through it.
    pub fn is_differentiable(&self) -> bool {
        self.0.gradient.is_some()
    }

    /// The kernel of its gradient, if the gradient is a kernel.
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

    /// True if nobody else has this kernel.
    pub(crate) fn is_last_handle(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }

    pub(crate) fn of_kind(&self, kind: ParameterKind) -> impl Iterator<Item = &Parameter> {
        self.0.parameters.iter().filter(move |parameter| parameter.kind == kind)
    }

    /// The one dtype of all outputs.
    pub fn output_dtype(&self) -> DType {
        self.of_kind(ParameterKind::Output).next().map_or(DType::F32, |output| output.dtype)
    }

    pub(crate) fn misfit(&self, argument: &str, expected: String, given: String) -> Error {
        Error::KernelArgument { kernel: self.0.name.clone(), argument: argument.to_owned(), expected, given }
    }

    /// What a device that takes `expected` says of a kernel that has nothing for it.
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

    /// What it can run as, in words.
    pub(super) fn available(&self) -> String {
        let mut all: Vec<&str> = self.0.sources.iter().map(|source| source.language.name()).collect();
        all.extend(self.has_cpu_function().then_some("a function for the CPU"));
        all.join(", ")
    }
}

/// A launch of a kernel as an operation of the graph: its scalars, and what follows from the inputs' shapes.
///
/// Several outputs lie one after another in one flat result, each at a multiple of [`CustomCall::ALIGNMENT`] bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CustomCall {
    pub(super) kernel: CustomKernel,
    pub(super) scalars: Box<[Scalar]>,
    pub(super) outputs: Box<[Dims]>,
    pub(super) groups: [usize; 3],
}

impl CustomCall {
    /// Outputs that lie in one buffer begin at multiples of so many bytes: what every driver can bind.
    pub const ALIGNMENT: usize = 256;

    /// A launch on inputs of these types and shapes.
    ///
    /// # Errors
    /// [`Error::KernelArgument`] and [`Error::KernelDType`] for arguments that the signature does not take.
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
    /// The numbers, one a scalar parameter, in its dtype.
    pub fn scalars(&self) -> &[Scalar] {
        &self.scalars
    }
    /// Groups of invocations along each axis.
    pub fn groups(&self) -> [usize; 3] {
        self.groups
    }
    /// The shapes of the outputs.
    pub fn outputs(&self) -> &[Dims] {
        &self.outputs
    }

    /// Where each output begins in the result, in elements, and how many elements the result has.
    ///
    /// # Errors
    /// If that exceeds the address space.
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

    /// What the graph's rules require: as many inputs of these dtypes as the signature has.
    pub(crate) fn check(&self, dtype: DType, elements: usize, inputs: &[DType]) -> Result<(), &'static str> {
        let expected = operands(self.kernel.parameters()).map(|operand| operand.dtype);
        if !expected.eq(inputs.iter().copied()) {
            return Err("not the inputs of the kernel's signature");
        }
        let fits = self.packing().is_ok_and(|(_, all)| all == elements);
        if dtype == self.kernel.output_dtype() && fits { Ok(()) } else { Err("not the kernel's outputs") }
    }
}

/// A hash of texts and binaries.
pub(super) fn hash_of<'a>(texts: impl IntoIterator<Item = &'a [u8]>) -> u64 {
    let mut hasher = FastHasher::default();
    texts.into_iter().for_each(|text| text.hash(&mut hasher));
    hasher.finish()
}
