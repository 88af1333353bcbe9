//! Building a kernel, and validating it.

use std::sync::Arc;

use super::{
    gradient::{GradientFunction, GradientRule},
    host::HostCall,
    kernel::{
        CustomKernel, Definition, GroupCount, Parameter, ParameterKind, Shared, Source, SourceLanguage,
        hash_of, operands,
    },
    pattern::{Pattern, is_identifier},
};
use crate::{DType, Error, Result};

/// Computes the extents of an output from those of the inputs.
pub(super) type ShapeFunction = dyn Fn(&[&[usize]]) -> Result<Vec<usize>> + Send + Sync;

/// The shape of a parameter.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Rule {
    Pattern(Pattern),
    Function(Shared<ShapeFunction>),
}

/// The shape of an output: a pattern of numbers and of names from the inputs' patterns, or a function.
#[derive(Clone, Debug)]
pub struct OutputShape(Result<Rule, String>);

impl OutputShape {
    /// A shape computed from the shapes of the inputs.
    pub fn function(
        function: impl Fn(&[&[usize]]) -> Result<Vec<usize>> + Send + Sync + 'static,
    ) -> OutputShape {
        OutputShape(Ok(Rule::Function(Shared(Arc::new(function)))))
    }
}

impl From<&str> for OutputShape {
    fn from(pattern: &str) -> OutputShape {
        OutputShape(Pattern::parse(pattern).map(Rule::Pattern))
    }
}

/// Builds a kernel; see [`CustomKernel::builder`].
///
/// Declare parameters in the order in which the source takes them. Shapes are patterns of one word per axis: a number,
/// a name (the same extent wherever it occurs), `_` (any extent), or, at most once, a name with `..` (any number of
/// axes). Examples: `"m k"`, `"batch.. 3"`, `"shape.."`.
#[must_use = "build() makes the kernel"]
pub struct CustomKernelBuilder {
    definition: Definition,
    mistakes: Vec<String>,
}

/// The dtypes of scalars that can be passed by value.
const SCALARS: [DType; 6] = [DType::I32, DType::U32, DType::F32, DType::I64, DType::U64, DType::F64];

impl CustomKernelBuilder {
    pub(super) fn new(name: &str) -> CustomKernelBuilder {
        let definition = Definition {
            name: name.to_owned(),
            entry_point: name.to_owned(),
            parameters: Vec::new(),
            sources: Vec::new(),
            work_group_size: [256, 1, 1],
            groups: GroupCount::PerElement,
            host: None,
            gradient: None,
            is_linear_algebra: false,
            hash: 0,
        };
        CustomKernelBuilder { definition, mistakes: Vec::new() }
    }

    /// Marks a routine of `linalg`, which placement reports name differently.
    pub(crate) fn linear_algebra(mut self) -> CustomKernelBuilder {
        self.definition.is_linear_algebra = true;
        self
    }

    /// A tensor that the kernel reads. It is passed row-major; other layouts are copied first.
    pub fn input(self, name: &str, dtype: DType, shape: &str) -> CustomKernelBuilder {
        self.parameter(name, dtype, ParameterKind::Input, shape.into())
    }

    /// A tensor that the kernel writes, row-major. Its initial contents are undefined on a GPU, so the kernel must
    /// write every element.
    pub fn output(self, name: &str, dtype: DType, shape: impl Into<OutputShape>) -> CustomKernelBuilder {
        self.parameter(name, dtype, ParameterKind::Output, shape.into())
    }

    /// A tensor that the kernel writes, row-major, and that is initially zero. For kernels that accumulate.
    pub fn zeroed_output(
        self,
        name: &str,
        dtype: DType,
        shape: impl Into<OutputShape>,
    ) -> CustomKernelBuilder {
        self.parameter(name, dtype, ParameterKind::Output, shape.into()).latest(|output| output.zeroed = true)
    }

    /// A tensor that the kernel modifies, row-major. It starts as a copy of a tensor of this shape that each launch
    /// receives after the inputs. For kernels that work in place or write only a part.
    pub fn copied_output(self, name: &str, dtype: DType, shape: &str) -> CustomKernelBuilder {
        self.parameter(name, dtype, ParameterKind::Output, shape.into()).latest(|output| output.copied = true)
    }

    /// A scalar: `int32`, `uint32` or `float32`; in languages that pass scalars by value also the 64-bit types. In
    /// other languages ([`SourceLanguage::has_scalar_structure`]) the scalars are the members of a structure, in order,
    /// at the binding after those of the tensors.
    pub fn scalar(mut self, name: &str, dtype: DType) -> CustomKernelBuilder {
        let name = name.to_owned();
        let kind = ParameterKind::Scalar;
        let parameter = Parameter { name, dtype, kind, shape: None, zeroed: false, copied: false };
        self.definition.parameters.push(parameter);
        self
    }

    fn parameter(
        mut self,
        name: &str,
        dtype: DType,
        kind: ParameterKind,
        shape: OutputShape,
    ) -> CustomKernelBuilder {
        let shape = match shape.0 {
            Ok(shape) => Some(shape),
            Err(mistake) => {
                self.mistakes.push(format!("{name}: {mistake}"));
                None
            }
        };
        let name = name.to_owned();
        let parameter = Parameter { name, dtype, kind, shape, zeroed: false, copied: false };
        self.definition.parameters.push(parameter);
        self
    }

    /// Modifies the last declared parameter.
    fn latest(mut self, change: impl FnOnce(&mut Parameter)) -> CustomKernelBuilder {
        if let Some(parameter) = self.definition.parameters.last_mut() {
            change(parameter);
        }
        self
    }

    /// The source in a language; at most one per language.
    pub fn source(mut self, language: SourceLanguage, source: &str) -> CustomKernelBuilder {
        if language.is_binary {
            self.mistakes.push(format!("{language} is binary: pass it with binary()"));
        }
        self.definition.sources.push(Source::new(language, source.as_bytes()));
        self
    }

    /// The binary in a binary language ([`SourceLanguage::is_binary`]); at most one per language.
    pub fn binary(mut self, language: SourceLanguage, binary: &[u8]) -> CustomKernelBuilder {
        if !language.is_binary {
            self.mistakes.push(format!("{language} is text: pass it with source()"));
        }
        self.definition.sources.push(Source::new(language, binary));
        self
    }

    /// The name of the function in the sources; defaults to the kernel's name.
    pub fn entry_point(mut self, name: &str) -> CustomKernelBuilder {
        name.clone_into(&mut self.definition.entry_point);
        self
    }

    /// The function that computes the kernel on the CPU. Its outputs are initially zero, or copies for copied outputs.
    /// The device `reference` runs it, too.
    pub fn cpu(
        mut self,
        function: impl Fn(HostCall<'_>) -> Result<()> + Send + Sync + 'static,
    ) -> CustomKernelBuilder {
        self.definition.host = Some(Shared(Arc::new(function)));
        self
    }

    /// The number of invocations of a group along each axis; defaults to 256 along x. In WGSL it must match the
    /// source's `@workgroup_size`.
    pub fn work_group_size(mut self, size: [usize; 3]) -> CustomKernelBuilder {
        self.definition.work_group_size = size;
        self
    }

    /// The number of groups along each axis. By default, there are enough along x for one invocation per element of the
    /// first output.
    pub fn groups(mut self, groups: [usize; 3]) -> CustomKernelBuilder {
        self.definition.groups = GroupCount::Fixed(groups);
        self
    }

    /// The number of groups along each axis as a function of the first output's extents.
    pub fn groups_with(
        mut self,
        function: impl Fn(&[usize]) -> [usize; 3] + Send + Sync + 'static,
    ) -> CustomKernelBuilder {
        self.definition.groups = GroupCount::Function(Shared(Arc::new(function)));
        self
    }

    /// The derivative as a function on terms.
    pub(crate) fn gradient_function(mut self, function: Arc<GradientFunction>) -> CustomKernelBuilder {
        self.definition.gradient = Some(GradientRule::Function(Shared(function)));
        self
    }

    /// The derivative as another kernel. Its inputs are the operands of this kernel (the inputs, then the tensors that
    /// copied outputs start from), this kernel's outputs, and their gradients. Its scalars are those of this kernel.
    /// Its outputs are the gradients of the operands of floating-point dtype. It must support the devices on which this
    /// kernel is differentiated, by a source in their language or by a CPU function.
    pub fn gradient_kernel(mut self, kernel: CustomKernel) -> CustomKernelBuilder {
        self.definition.gradient = Some(GradientRule::Kernel(kernel));
        self
    }

    /// Builds the kernel.
    ///
    /// # Errors
    /// [`Error::Argument`] for an invalid declaration. Sources are compiled by [`CustomKernel::compile`] or the first
    /// launch, for the device in use.
    pub fn build(mut self) -> Result<CustomKernel> {
        self.check_parameters();
        self.check_sources();
        self.check_gradient();
        let CustomKernelBuilder { mut definition, mistakes } = self;
        if let Some(mistake) = mistakes.first() {
            return Err(Error::argument("custom kernel", format!("{}: {mistake}", definition.name)));
        }
        let sources = definition.sources.iter().map(Source::bytes);
        let names = [definition.name.as_bytes(), definition.entry_point.as_bytes()];
        definition.hash = hash_of(names.into_iter().chain(sources));
        Ok(CustomKernel(Arc::new(definition)))
    }

    fn check_parameters(&mut self) {
        let Definition { name, entry_point, parameters, work_group_size, .. } = &self.definition;
        let mut mistakes: Vec<String> = Vec::new();
        if name.is_empty() {
            mistakes.push("a kernel needs a name".to_owned());
        }
        if !is_identifier(entry_point) {
            mistakes.push(format!("the entry point {entry_point:?} is not a valid function name"));
        }
        for (at, parameter) in parameters.iter().enumerate() {
            if parameters[..at].iter().any(|earlier| earlier.name == parameter.name) {
                mistakes.push(format!("two parameters are named {:?}", parameter.name));
            }
            if parameter.kind == ParameterKind::Scalar && !SCALARS.contains(&parameter.dtype) {
                let (own, all) = (parameter.dtype, SCALARS.map(DType::name).join(", "));
                mistakes.push(format!("{}: a scalar cannot be {own}: use one of {all}", parameter.name));
            }
        }
        let of = |kind| parameters.iter().filter(move |parameter| parameter.kind == kind);
        if operands(parameters).next().is_none() || of(ParameterKind::Output).next().is_none() {
            let message = "a kernel needs at least an input and an output, or a copied output";
            mistakes.push(message.to_owned());
        }
        let dtypes: Vec<DType> = of(ParameterKind::Output).map(|output| output.dtype).collect();
        if dtypes.iter().any(|dtype| *dtype != dtypes[0]) {
            mistakes.push(
                "all outputs must have the same dtype: use a separate kernel for another dtype".to_owned(),
            );
        }
        let mut bound: Vec<String> = Vec::new();
        for input in operands(parameters) {
            if let Some(Rule::Pattern(pattern)) = &input.shape {
                bound.extend(pattern.bound_names());
            }
        }
        for output in of(ParameterKind::Output).filter(|output| !output.copied) {
            if let Some(Rule::Pattern(pattern)) = &output.shape {
                let unknown = match pattern.names() {
                    Ok(names) => names.into_iter().find(|name| !bound.contains(name)),
                    Err(word) => Some(word),
                };
                let says = |word| format!("{}: no input's shape defines {word}", output.name);
                mistakes.extend(unknown.map(says));
            }
        }
        if work_group_size.iter().try_fold(1usize, |n, &e| n.checked_mul(e)).is_none_or(|n| n == 0) {
            mistakes.push(format!("invalid work group size {work_group_size:?}"));
        }
        self.mistakes.extend(mistakes);
    }

    fn check_sources(&mut self) {
        let Definition { sources, parameters, host, .. } = &self.definition;
        if sources.is_empty() && host.is_none() {
            self.mistakes.push("it has neither a source nor a function for the CPU".to_owned());
        }
        for (at, source) in sources.iter().enumerate() {
            let language = source.language;
            if sources[..at].iter().any(|earlier| earlier.language == language) {
                self.mistakes.push(format!("there are two sources in {language}"));
            }
            if !language.is_binary && source.bytes().contains(&0) {
                self.mistakes.push(format!("the source in {language} contains a zero byte"));
            }
            let wide = |p: &&Parameter| p.kind == ParameterKind::Scalar && p.dtype.size() != 4;
            if let Some(wide) = parameters.iter().find(wide).filter(|_| language.has_scalar_structure) {
                let (name, dtype) = (&wide.name, wide.dtype);
                self.mistakes.push(format!("{name}: kernels in {language} do not support {dtype} scalars"));
            }
        }
    }

    /// Checks the signature of a gradient kernel against this one.
    fn check_gradient(&mut self) {
        let Definition { parameters, gradient, .. } = &self.definition;
        let Some(GradientRule::Kernel(kernel)) = gradient else { return };
        let of = |parameters: &[Parameter], kind| -> Vec<DType> {
            parameters.iter().filter(|p| p.kind == kind).map(|p| p.dtype).collect()
        };
        let launched_on = |parameters: &[Parameter]| -> Vec<DType> {
            operands(parameters).map(|operand| operand.dtype).collect()
        };
        let outputs = of(parameters, ParameterKind::Output);
        let mut results = launched_on(parameters);
        let inputs = [results.clone(), outputs.clone(), outputs].concat();
        results.retain(|dtype| dtype.is_float());
        let given = kernel.parameters();
        let signature = [
            ("inputs", inputs, launched_on(given)),
            ("scalars", of(parameters, ParameterKind::Scalar), of(given, ParameterKind::Scalar)),
            ("outputs", results, of(given, ParameterKind::Output)),
        ];
        for (what, expected, found) in signature {
            if found != expected {
                let show = |dtypes: &[DType]| dtypes.iter().map(|d| d.name()).collect::<Vec<_>>().join(", ");
                self.mistakes.push(format!(
                    "the gradient {} must have the {what} [{}], it has [{}]",
                    kernel.name(),
                    show(&expected),
                    show(&found)
                ));
            }
        }
        self.check_places();
    }

    /// Checks that some device runs both the kernel and the kernel of its gradient.
    fn check_places(&mut self) {
        let Definition { sources, host, gradient: Some(GradientRule::Kernel(gradient)), .. } =
            &self.definition
        else {
            return;
        };
        // A CPU function is available to every device.
        let anywhere = host.is_some() || gradient.has_cpu_function();
        let meet = |own: &Source| {
            gradient.0.sources.iter().any(|other| own.language.shares_devices_with(other.language))
        };
        if anywhere || sources.iter().any(meet) {
            return;
        }
        let own = sources.iter().map(|source| source.language.name).collect::<Vec<_>>().join(", ");
        let (name, has) = (gradient.name(), gradient.available());
        self.mistakes.push(format!(
            "no device runs both it and its gradient {name}: it has {own}, {name} has {has}: give {name} a source in {own} or \
             a function for the CPU"
        ));
    }
}
