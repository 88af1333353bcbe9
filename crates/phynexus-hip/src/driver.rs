//! AMD GPUs as drivers of the engine's GPU layer.

use std::sync::{Arc, Once};

use phynexus::{
    DType, Error, Result,
    custom::{CustomKernel, Source, SourceLanguage},
    device::{DeviceInfo, DeviceNature, HostRead, register_aliases, register_missing},
    dtype::scalar_bytes,
    gpu::{
        Addresses, Driver, Gpu, Medium, NotCompiled, Progress, SourceArgument, SourceLaunch, Staging,
        Submission,
    },
    kernel::{
        check::Limits,
        loops::{Kernel, MatrixShape},
        lower::Target,
        print::{HIP, print},
    },
};

use crate::{
    code_object,
    compile::Compiler,
    context::{Attribute, Context, Event, Module, Packed, count},
    graph::Recording,
    library::{Handle, hip},
};

/// Registers every GPU that HIP's runtime reports, or the reason why there is none. Runs once per process.
pub fn register() {
    static DONE: Once = Once::new();
    DONE.call_once(look);
}

fn look() {
    register_aliases("hip", &["amd", "rocm"]);
    let number = match hip().and_then(count) {
        Ok(0) => return register_missing("hip", "AMD's HIP runtime is installed, but it reports no GPU"),
        Ok(number) => number,
        Err(reason) => return register_missing("hip", reason),
    };
    for gpu in 0..number {
        match HipGpu::new(gpu) {
            Ok(driver) => drop(phynexus::device::register(Box::new(Gpu::new(driver)))),
            Err(error) => register_missing(format!("hip:{gpu}"), error.to_string()),
        }
    }
}

/// A GPU.
pub(crate) struct HipGpu {
    pub(crate) context: Arc<Context>,
    compiler: Compiler,
    source_compiler: Compiler,
    target: Target,
    architecture: String,
    staging: Arc<Staging<Context>>,
}

/// A block of the runtime's memory.
pub(crate) struct Block {
    address: Handle,
    context: Arc<Context>,
}

// SAFETY: the address is used only through the runtime.
unsafe impl Send for Block {}
// SAFETY: as above.
unsafe impl Sync for Block {}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: the address came from the same context and is the only reference.
        unsafe { self.context.free(self.address) };
    }
}

impl HipGpu {
    fn new(number: usize) -> Result<HipGpu> {
        let name = format!("hip:{number}");
        let error = |message: String| Error::Device { device: name.clone(), message };
        let hip = hip().map_err(error)?;
        let context = Arc::new(Context::new(hip, number)?);
        let unknown = || error("the runtime does not report the GPU's architecture".to_owned());
        let architecture = context.architecture().ok_or_else(unknown)?;
        let compiler = Compiler::new(hip, &architecture);
        let source_compiler = Compiler::of_sources(hip, &architecture);
        let target = target(&name, &architecture, |attribute| context.attribute(attribute));
        let staging = Staging::new(context.clone(), &name);
        Ok(HipGpu { context, compiler, source_compiler, target, architecture, staging })
    }
}

/// The buffer addresses of a launch.
pub(crate) fn addresses(submission: &Submission<'_, HipGpu>) -> Addresses {
    let address = |(block, start): &(&Block, i64)| (block.address as u64).wrapping_add_signed(*start);
    submission.arguments.iter().map(address).collect()
}

/// The features that kernels of a GPU with this architecture and these attributes may use. Limits that the runtime does
/// not report default to those of every GPU.
pub(crate) fn target(
    name: &str,
    architecture: &str,
    attribute: impl Fn(Attribute) -> Option<usize>,
) -> Target {
    /// A launch counts all its invocations in 32 bits.
    const GROUPS: usize = (1 << 22) - 1;
    let figure = |what, otherwise| attribute(what).unwrap_or(otherwise);
    let limits = Limits {
        device: name.to_owned(),
        // Kernel parameters take at most 4 KB.
        bindings: 500,
        shared_bytes: figure(Attribute::MaxSharedMemoryPerBlock, 64 << 10),
        block: [
            figure(Attribute::MaxBlockX, 1024),
            figure(Attribute::MaxBlockY, 1024),
            figure(Attribute::MaxBlockZ, 1024),
        ],
        block_size: figure(Attribute::MaxThreadsPerBlock, 1024),
        grid: [
            figure(Attribute::MaxGridX, GROUPS).min(GROUPS),
            figure(Attribute::MaxGridY, 0xffff).min(0xffff),
            figure(Attribute::MaxGridZ, 0xffff).min(0xffff),
        ],
        subgroup: attribute(Attribute::WarpSize),
        dtypes: DType::ALL.to_vec(),
        matrices: matrices(architecture),
        async_copies: false,
    };
    Target { limits, vector_bytes: 16, processors: figure(Attribute::MultiprocessorCount, 16), sums: 64 }
}

/// The matrix instructions that kernels use on an architecture: MFMA on CDNA 2 and 3, WMMA on RDNA 3.
fn matrices(architecture: &str) -> Vec<(MatrixShape, DType, DType)> {
    let name = architecture.split(':').next().unwrap_or_default();
    let known = matches!(name, "gfx90a" | "gfx940" | "gfx941" | "gfx942") || name.starts_with("gfx11");
    let shape = MatrixShape { rows: 16, columns: 16, depth: 16 };
    let factors = [DType::F16, DType::BF16].into_iter().filter(|_| known);
    factors.map(|factor| (shape, factor, DType::F32)).collect()
}

impl Driver for HipGpu {
    type Block = Block;
    type Module = Module;
    type Recording = Recording;
    type Mark = Event;

    fn name(&self) -> &str {
        &self.context.name
    }

    fn info(&self) -> DeviceInfo {
        let context = &self.context;
        let mut features = vec![self.architecture.clone()];
        features.extend(self.target.limits.subgroup.map(|width| format!("wavefronts of {width}")));
        DeviceInfo {
            name: context.name.clone(),
            model: context.model().unwrap_or_else(|| "AMD GPU".to_owned()),
            nature: DeviceNature::Hardware,
            compute_units: context.attribute(Attribute::MultiprocessorCount),
            total_memory: context.total_memory(),
            features,
        }
    }

    fn target(&self) -> &Target {
        &self.target
    }

    fn available_memory(&self) -> Option<u64> {
        self.context.free_memory()
    }

    fn allocate(&self, bytes: usize) -> Option<Block> {
        let address = self.context.allocate(bytes)?;
        Some(Block { address, context: self.context.clone() })
    }

    fn write(&self, block: &Block, offset: usize, bytes: &[u8]) -> Result<()> {
        let target = block.address.wrapping_byte_add(offset);
        // SAFETY: the part lies within the block, and stays valid until the copy is done: it is pinned, or waited for
        // below.
        let copy =
            |part: &[u8], at: usize| unsafe { self.context.copy_to(target.wrapping_byte_add(at), part) };
        let done = self.staging.write(bytes, copy)?;
        if done == bytes.len() {
            return Ok(());
        }
        copy(&bytes[done..], done)?;
        self.context.synchronize()
    }

    fn read(&self, block: &Block, offset: usize, bytes: &mut [u8]) -> Result<()> {
        if let Some(read) = self.begin_read(block, offset, bytes.len())? {
            return read.finish(&mut |pinned| {
                bytes.copy_from_slice(pinned);
                Ok(())
            });
        }
        // SAFETY: the part lies within the block, and the copy is waited for.
        unsafe { self.context.copy_to_host(block.address.wrapping_byte_add(offset), bytes) }?;
        self.context.synchronize()
    }

    fn begin_read(&self, block: &Block, offset: usize, bytes: usize) -> Result<Option<Box<dyn HostRead>>> {
        let source = block.address.wrapping_byte_add(offset);
        // SAFETY: the part lies within the block, and the pinned memory stays valid until the copy is done.
        self.staging.read(bytes, |pinned| unsafe { self.context.copy_to_host(source, pinned) })
    }

    fn copies_from(&self, _: &HipGpu) -> bool {
        true
    }

    fn copy_from(
        &self,
        target: &Block,
        device: &HipGpu,
        source: &Block,
        offset: usize,
        bytes: usize,
    ) -> Result<()> {
        let source = source.address.wrapping_byte_add(offset);
        // SAFETY: both parts lie within their blocks.
        unsafe { self.context.copy_from(target.address, &device.context, source, bytes) }
    }

    fn pinned_memory(&self) -> usize {
        self.staging.bytes()
    }

    fn trim(&self) {
        self.staging.trim();
    }

    fn compile(&self, kernel: &Kernel) -> Result<Module, NotCompiled> {
        let compiling = |reason: NotCompiled| reason.doing(&format!("compiling kernel {}", kernel.name));
        let code = self.compiler.compile(&print(kernel, &HIP)?).map_err(compiling)?;
        self.context.load(&code, kernel)
    }

    fn launch(&self, submission: &Submission<'_, HipGpu>) -> Result<()> {
        self.context.bind()?;
        // SAFETY: the checker proved every access of the kernel in bounds of its parameters' lengths, and the plan
        // binds memory of these lengths with the requested alignment.
        unsafe { self.context.launch(submission.module, &mut addresses(submission)) }
    }

    fn launch_all(&self, submissions: &[Submission<'_, HipGpu>], recording: &Recording) -> Result<()> {
        self.context.bind()?;
        recording.launch(self, submissions)
    }

    fn mark(&self) -> Result<Option<Event>> {
        self.context.record(true).map(Some)
    }

    fn elapsed(&self, from: &Event, to: &Event) -> Result<f64> {
        self.context.elapsed(from, to)
    }

    fn source_languages(&self) -> &'static [SourceLanguage] {
        &[SourceLanguage::HipC]
    }

    fn compile_source(&self, kernel: &CustomKernel, source: &Source) -> Result<Module, NotCompiled> {
        let code = self.source_compiler.compile(source.text())?;
        code_object::check(&code, kernel)?;
        self.context.load_named(&code, kernel.entry_point(), kernel.work_group_size())
    }

    fn launch_source(&self, module: &Module, launch: &SourceLaunch<'_, Block>) -> Result<()> {
        self.context.bind()?;
        let mut parameters = Packed::new();
        for argument in launch.arguments {
            let fits = match argument {
                SourceArgument::Buffer { block, start, .. } => {
                    parameters.push(&(block.address as u64 + *start as u64).to_ne_bytes())
                }
                SourceArgument::Scalar { dtype, value } => parameters.push(&scalar_bytes(*value, *dtype)),
            };
            if !fits {
                return Err(Error::argument("custom kernel", "its parameters take more than 4 KiB"));
            }
        }
        self.context.launch_packed(module, launch.groups, &mut parameters)
    }

    fn progress(&self) -> Result<Option<Progress<'_>>> {
        let event = self.context.event()?;
        Ok(Some(Box::new(move || self.context.has_happened(&event))))
    }

    fn synchronize(&self) -> Result<()> {
        self.context.synchronize()
    }
}
