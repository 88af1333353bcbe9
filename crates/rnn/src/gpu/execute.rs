//! Executing kernels that users wrote.

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
    /// What it is, in C's words.
    fn kind(&self) -> &'static str {
        match self {
            GpuKernelArg::Buffer(_) => "memory",
            GpuKernelArg::Scalar(_) => "float",
            GpuKernelArg::Int(_) => "int",
            GpuKernelArg::UInt(_) => "unsigned int",
        }
    }
}

/// The language that kernels of a device are written in.
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
    /// Executes a kernel: CUDA C, HIP C, OpenCL C, or WGSL on what is reached through Vulkan, DirectX 12 and Metal.
    /// Arguments are in the order of the source's parameters; in WGSL, tensors by their bindings, then the members of the
    /// uniform structure. Memory behind a pointer to `const` (in WGSL, `var<storage, read>`) is read; other memory may be
    /// changed in place, and keeps what the kernel does not write. There are so many groups along x that every number of the
    /// first piece that may be changed has an invocation.
    ///
    /// # Errors
    /// [`NetworkError::KernelCompilation`] if the source is refused; arguments that are not what the source declares; memory
    /// that was given back; a kernel that may change none; groups that extend along y or z; a device without kernels of its
    /// own, as the CPU.
    pub fn execute_kernel(&mut self, kernel: &GpuKernel, args: &[GpuKernelArg]) -> Result<()> {
        let (_, y, z) = kernel.work_group_size;
        if (y, z) != (1, 1) {
            let reason = "groups are counted along x alone: make it (n, 1, 1), or say how many groups there are with execute_kernel_on";
            let size = format!("{:?}", kernel.work_group_size);
            return Err(NetworkError::invalid_parameter("work_group_size", size, reason));
        }
        self.launch(kernel, None, args)
    }

    /// As [`GpuContext::execute_kernel`], in so many groups along x, y and z.
    ///
    /// # Errors
    /// As there, but for groups along y and z; more groups than the device launches, or none.
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
            let message =
                format!("{device} runs no kernels in vendors' languages: create the context of a GPU");
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
                        let message =
                            format!("{}: {name} is written twice: give it memory of its own", kernel.name);
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
            let message = format!("{} changes no memory: declare what it writes without const", kernel.name);
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
