//! Execution of custom kernels.

use neurenix::{
    languages,
    phynexus::{
        DType, Scalar, Tensor,
        custom::{CustomKernel, SourceLanguage},
    },
};

use super::{
    GpuContext, GpuKernel, GpuMemoryHandle,
    signature::{Number, Parameter, parameters},
};
use crate::{NetworkError, Result};

/// An argument of a kernel.
#[derive(Clone, Debug)]
pub enum GpuKernelArg {
    /// Memory.
    Buffer(GpuMemoryHandle),
    /// A `float`.
    Scalar(f32),
    /// An `int`.
    Int(i32),
    /// An `unsigned int`.
    UInt(u32),
}

impl GpuKernelArg {
    /// The argument's type in C.
    fn kind(&self) -> &'static str {
        match self {
            GpuKernelArg::Buffer(_) => "memory",
            GpuKernelArg::Scalar(_) => "float",
            GpuKernelArg::Int(_) => "int",
            GpuKernelArg::UInt(_) => "unsigned int",
        }
    }
}

/// The language of a device's kernels.
fn language(device: &str) -> Option<SourceLanguage> {
    match device.split(':').next()? {
        "cuda" => Some(languages::CUDA_C),
        "hip" => Some(languages::HIP_C),
        "opencl" => Some(languages::OPENCL_C),
        "vulkan" | "dx12" | "metal" => Some(languages::WGSL),
        _ => None,
    }
}

impl GpuContext {
    /// Executes a kernel in CUDA C, HIP C or OpenCL C, or in WGSL on devices of Vulkan, DirectX 12 and Metal. Arguments
    /// are in the order of the source's parameters; in WGSL, tensors in the order of their bindings, then the members
    /// of the uniform structure. Memory with a pointer to `const` (in WGSL, `var<storage, read>`) is read-only. Other
    /// memory is changed in place, and keeps what the kernel does not write. The number of groups along x is that which
    /// gives every number of the first writable memory an invocation.
    ///
    /// # Errors
    /// [`NetworkError::KernelCompilation`] if the source does not compile. Other errors if arguments do not match the
    /// source's parameters, memory was freed, the kernel writes no memory, a group extends along y or z, or the device
    /// (such as the CPU) has no kernel language.
    pub fn execute_kernel(&mut self, kernel: &GpuKernel, args: &[GpuKernelArg]) -> Result<()> {
        let (_, y, z) = kernel.work_group_size;
        if (y, z) != (1, 1) {
            let reason = "the number of groups is computed along x only: use (n, 1, 1), or set the number of groups with execute_kernel_on";
            let size = format!("{:?}", kernel.work_group_size);
            return Err(NetworkError::invalid_parameter("work_group_size", size, reason));
        }
        self.launch(kernel, None, args)
    }

    /// As [`GpuContext::execute_kernel`], with the number of groups along x, y and z. Groups may extend along all of
    /// them. It is an error if there are no groups, or more than the device supports.
    pub fn execute_kernel_on(
        &mut self,
        kernel: &GpuKernel,
        groups: (usize, usize, usize),
        args: &[GpuKernelArg],
    ) -> Result<()> {
        self.launch(kernel, Some([groups.0, groups.1, groups.2]), args)
    }

    fn launch(
        &mut self,
        kernel: &GpuKernel,
        groups: Option<[usize; 3]>,
        args: &[GpuKernelArg],
    ) -> Result<()> {
        let device = self.device_name();
        let Some(language) = language(device) else {
            let message = format!("{device} has no kernel language: create the context of a GPU");
            return Err(NetworkError::gpu(message));
        };
        let declared = parameters(&kernel.source, &kernel.entry_point, language == languages::WGSL)?;
        if declared.len() != args.len() {
            let (expected, actual) = (declared.len().to_string(), args.len().to_string());
            return Err(NetworkError::dimension_mismatch(
                format!("arguments of {}", kernel.name),
                expected,
                actual,
            ));
        }
        let (x, y, z) = kernel.work_group_size;
        let mut builder = CustomKernel::builder(&kernel.name)
            .entry_point(&kernel.entry_point)
            .work_group_size([x, y, z])
            .source(language, &kernel.source);
        if let Some(groups) = groups {
            builder = builder.groups(groups);
        }
        let (mut inputs, mut begun, mut scalars) = (Vec::new(), Vec::new(), Vec::new());
        let mut written = Vec::<GpuMemoryHandle>::new();
        for (parameter, argument) in declared.iter().zip(args) {
            match (parameter, argument) {
                (Parameter::Read(name), GpuKernelArg::Buffer(handle)) => {
                    builder = builder.input(name, DType::F32, "_");
                    inputs.push(self.contents(handle)?);
                }
                (Parameter::Written(name), GpuKernelArg::Buffer(handle)) => {
                    let contents = self.contents(handle)?;
                    if written.contains(handle) {
                        let message = format!(
                            "{}: the memory of {name} is already written through another parameter: use separate memory",
                            kernel.name
                        );
                        return Err(NetworkError::gpu(message));
                    }
                    builder = builder.copied_output(name, DType::F32, "_");
                    begun.push(contents);
                    written.push(handle.clone());
                }
                (Parameter::Scalar(name, number), argument) => {
                    let (dtype, value) = match (number, argument) {
                        (Number::Float, GpuKernelArg::Scalar(x)) => {
                            (DType::F32, Scalar::Float(f64::from(*x)))
                        }
                        (Number::Int, GpuKernelArg::Int(x)) => (DType::I32, Scalar::Int(i64::from(*x))),
                        (Number::UInt, GpuKernelArg::UInt(x)) => (DType::U32, Scalar::UInt(u64::from(*x))),
                        _ => return Err(misfit(kernel, name, number.name(), argument.kind())),
                    };
                    builder = builder.scalar(name, dtype);
                    scalars.push(value);
                }
                (Parameter::Read(name) | Parameter::Written(name), argument) => {
                    return Err(misfit(kernel, name, "memory", argument.kind()));
                }
            }
        }
        if written.is_empty() {
            let message = format!("{} writes no memory: declare what it writes without const", kernel.name);
            return Err(NetworkError::gpu(message));
        }
        let custom = builder.build()?;
        let outputs = custom.launch(&inputs.iter().chain(&begun).collect::<Vec<_>>(), &scalars)?;
        Tensor::evaluate_all(&outputs.iter().collect::<Vec<_>>())?;
        for (handle, output) in written.iter().zip(outputs) {
            self.replace(handle, output);
        }
        Ok(())
    }
}

fn misfit(kernel: &GpuKernel, name: &str, expected: &str, actual: &str) -> NetworkError {
    NetworkError::dimension_mismatch(format!("argument {name} of {}", kernel.name), expected, actual)
}
