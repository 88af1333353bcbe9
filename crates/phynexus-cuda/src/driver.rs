//! NVIDIA GPUs as drivers of the engine's GPU layer.

use std::ffi::c_void;

use crate::{
    collective::touched,
    context::{Event, Module, is_ordinary, start},
    cubin,
    gpu::{Block, Cuda},
    graph::Recording,
    language::{CUDA, CUDA_C},
    library,
    parameters::Parameters,
    versions::{Nvrtc, Version},
};
use cudarc::driver::{result, sys::CUdevice_attribute as Attribute};
use phynexus::{
    Error, Result,
    custom::{CustomKernel, Source, SourceLanguage},
    device::{DeviceInfo, DeviceNature, HostRead, Peaks, register_missing},
    dtype::scalar_bytes,
    gpu::{
        BlockAddress, Driver, Gpu, Handles, Medium, NotCompiled, Progress, SourceArgument, SourceLaunch,
        Submission,
    },
    kernel::{
        loops::Kernel,
        lower::Target,
        print::{Variable, print, print_variable},
        step::Step,
    },
};
use phynexus_nccl::{Routine, Touched};
use smallvec::SmallVec;

/// Registers every GPU, or the reason why there is none.
pub(crate) fn register() {
    let found = match usable() {
        Ok(found) => found,
        Err(reason) => return register_missing("cuda", reason),
    };
    for gpu in 0..found.count {
        match Cuda::new(gpu, found.driver, &found.nvrtc) {
            Ok(cuda) => drop(phynexus::device::register(Box::new(Gpu::new(cuda)))),
            Err(reason) => register_missing(format!("cuda:{gpu}"), reason),
        }
    }
}

/// The driver and compiler of this machine.
struct Found {
    driver: Version,
    /// The number of GPUs that the driver reports.
    count: usize,
    nvrtc: Nvrtc,
}

/// The driver and the compiler, if both are usable with a GPU.
///
/// NVRTC is queried now rather than on first use of a GPU: whether it is missing must be known for the list of devices,
/// and the query compiles nothing. Otherwise a GPU without a usable compiler would be the default device, and every
/// step would be planned on the CPU.
fn usable() -> Result<Found, String> {
    library::open_driver()?;
    let (driver, count) = start()?;
    if let Some(reason) = driver.driver_refusal() {
        return Err(reason);
    }
    if count == 0 {
        return Err("NVIDIA's driver is installed, but it reports no GPU".to_owned());
    }
    if !library::has_compiler() {
        return Err(format!(
            "NVIDIA's driver is installed, but NVRTC, which compiles kernels, is not: install the CUDA toolkit, or {}",
            driver.compiler()
        ));
    }
    Ok(Found { driver, count, nvrtc: Nvrtc::ask()? })
}

/// What computes a step.
pub(crate) enum Code {
    Kernel(Module),
    Collective(Routine),
}

impl Code {
    pub(crate) fn kernel(&self) -> Option<&Module> {
        match self {
            Code::Kernel(module) => Some(module),
            Code::Collective(_) => None,
        }
    }
}

/// Copies up to this size are left to the driver, which places the bytes directly into its queue.
const AT_ONCE: usize = 64 << 10;

impl Driver for Cuda {
    type Block = Block;
    type Module = Code;
    type Recording = Recording;
    type Mark = Event;

    fn name(&self) -> &str {
        &self.context.name
    }

    fn info(&self) -> DeviceInfo {
        let context = &self.context;
        let (major, minor) = context.capability();
        let mut features = vec![format!("compute capability {major}.{minor}")];
        features.extend(Version::of_driver().ok().map(|version| format!("driver for CUDA {version}")));
        DeviceInfo {
            name: context.name.clone(),
            model: context.model().unwrap_or_else(|| "NVIDIA GPU".to_owned()),
            nature: DeviceNature::Hardware,
            compute_units: context.attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT),
            total_memory: context.total_memory(),
            features,
        }
    }

    fn target(&self) -> &Target {
        &self.target
    }

    fn available_memory(&self) -> Option<u64> {
        self.context.bind().ok()?;
        result::mem_get_info().ok().map(|(free, _)| free as u64)
    }

    fn allocate(&self, bytes: usize) -> Option<Block> {
        Block::new(&self.context, bytes)
    }

    fn write(&self, block: &Block, offset: usize, bytes: &[u8]) -> Result<()> {
        self.context.bind()?;
        self.context.before_write(block.range(offset, bytes.len()))?;
        let target = block.address() + offset as u64;
        let copy = |part: &[u8], at: usize| {
            // SAFETY: the part lies within the block. Pinned memory stays valid until the copy is done. From pageable
            // memory, the driver has copied when the call returns; any other copy is waited for below.
            unsafe { result::memcpy_htod_async(target + at as u64, part, self.context.stream()) }
                .map_err(|e| self.context.error("copying to the GPU", e))
        };
        // Memory that another library has page-locked would be read after the call, so for small writes the driver is
        // asked, which looks the address up. Using pinned memory for all writes would cost a lock, staging space and a
        // separate transfer for bytes that the driver otherwise puts into its queue.
        if bytes.len() <= AT_ONCE && is_ordinary(bytes) {
            return copy(bytes, 0);
        }
        let done = self.staging.write(bytes, copy)?;
        if done < bytes.len() {
            // No memory could be pinned.
            copy(&bytes[done..], done)?;
            self.context.synchronize()?;
        }
        Ok(())
    }

    fn read(&self, block: &Block, offset: usize, bytes: &mut [u8]) -> Result<()> {
        if bytes.len() > AT_ONCE
            && let Some(read) = self.begin_read(block, offset, bytes.len())?
        {
            return read.finish(&mut |pinned| {
                bytes.copy_from_slice(pinned);
                Ok(())
            });
        }
        self.context.bind()?;
        // The driver may wait for a copy to ordinary memory itself.
        self.context.collectives.watch_all(&*self.context)?;
        // SAFETY: the part lies within the block, and the bytes stay valid until the stream has been waited for.
        unsafe { result::memcpy_dtoh_async(bytes, block.address() + offset as u64, self.context.stream()) }
            .map_err(|e| self.context.error("copying from the GPU", e))?;
        self.context.synchronize()
    }

    fn begin_read(&self, block: &Block, offset: usize, bytes: usize) -> Result<Option<Box<dyn HostRead>>> {
        self.context.bind()?;
        self.context.before_read(block.range(offset, bytes))?;
        let source = block.address() + offset as u64;
        self.staging.read(bytes, |pinned| {
            // SAFETY: the part lies within the block, and the pinned memory stays valid until the copy is done.
            unsafe { result::memcpy_dtoh_async(pinned, source, self.context.stream()) }
                .map_err(|e| self.context.error("copying from the GPU", e))
        })
    }

    fn copies_from(&self, _: &Cuda) -> bool {
        true
    }

    fn copy_from(
        &self,
        target: &Block,
        device: &Cuda,
        source: &Block,
        offset: usize,
        bytes: usize,
    ) -> Result<()> {
        let source = source.address() + offset as u64;
        // SAFETY: both parts lie within their blocks.
        unsafe { self.context.copy_from(target.address(), &device.context, source, bytes) }
    }

    fn pinned_memory(&self) -> usize {
        self.staging.bytes()
    }

    fn trim(&self) {
        self.staging.trim();
        self.context.trim();
    }

    fn print(&self, kernel: &Kernel) -> Result<String, NotCompiled> {
        Ok(print(kernel, &CUDA)?)
    }

    fn print_variable(&self, kernel: &Kernel) -> Option<Variable> {
        print_variable(kernel, &CUDA).ok()
    }

    fn compile(&self, kernel: &Kernel, source: &str) -> Result<Code, NotCompiled> {
        let compiling = |reason: NotCompiled| reason.doing(&format!("compiling kernel {}", kernel.name));
        let code = self.compiler.compile(source).map_err(compiling)?;
        self.context.load(&code, kernel).map(Code::Kernel)
    }

    fn compile_routine(&self, step: &Step) -> Result<Option<Code>> {
        Ok(Routine::of(self, step)?.map(Code::Collective))
    }

    fn takes(&self, routine: &Code, _: &[BlockAddress<'_, Block>]) -> bool {
        matches!(routine, Code::Collective(_))
    }

    fn launch(&self, submission: &Submission<'_, Cuda>) -> Result<()> {
        let module = match submission.module {
            Code::Kernel(module) => module,
            Code::Collective(routine) => return self.launch_collective(routine, submission),
        };
        self.context.bind()?;
        self.context.collectives.before(&*self.context, &touched(submission))?;
        let parameters = Parameters::of(submission);
        let mut parameters = parameters.map_err(|e| self.context.error("describing a tensor", e))?;
        // SAFETY: the checker proved every access of the kernel in bounds of its parameters' lengths, and the plan
        // binds memory of these lengths with the requested alignment.
        unsafe { self.context.launch(module, submission.kernel, &mut parameters.pointers()) }
    }

    fn launch_all(&self, submissions: &[Submission<'_, Cuda>], recording: &Recording) -> Result<()> {
        self.context.bind()?;
        // Divided where a kernel has to wait for a collective: those before it need not.
        let context = &*self.context;
        let mut open = context.collectives.open();
        let mut first = 0;
        for (at, submission) in submissions.iter().enumerate() {
            if open.is_empty() {
                break;
            }
            let touched = touched(submission);
            let (before, others): (Vec<_>, Vec<_>) =
                open.into_iter().partition(|flight| flight.collides(&touched));
            open = others;
            if !before.is_empty() {
                recording.launch(self, submissions, first..at)?;
                first = at;
                before.iter().try_for_each(|flight| context.collectives.join(context, flight))?;
            }
        }
        recording.launch(self, submissions, first..submissions.len())
    }

    fn handles(&self) -> Option<&dyn Handles<Block>> {
        Some(self)
    }

    fn source_languages(&self) -> &'static [SourceLanguage] {
        &[CUDA_C]
    }

    fn compile_source(&self, kernel: &CustomKernel, source: &Source) -> Result<Code, NotCompiled> {
        let code = self.compiler.compile_source(source.text())?;
        cubin::check(&code, kernel)?;
        self.context.load_named(&code, kernel.entry_point(), kernel.work_group_size()).map(Code::Kernel)
    }

    fn launch_source(&self, module: &Code, launch: &SourceLaunch<'_, Block>) -> Result<()> {
        let module =
            module.kernel().ok_or_else(|| Error::internal("phynexus_cuda", "a custom collective"))?;
        self.context.bind()?;
        // Every parameter takes at most eight bytes.
        let mut values: SmallVec<[[u8; 8]; 12]> = SmallVec::new();
        for argument in launch.arguments {
            let mut value = [0; 8];
            match argument {
                SourceArgument::Buffer { block, start, bytes, written } => {
                    let range = block.range(*start, *bytes);
                    let touched = [Touched { range, written: *written }];
                    self.context.collectives.before(&*self.context, &touched)?;
                    value = (block.address() + *start as u64).to_ne_bytes();
                }
                SourceArgument::Scalar { dtype, value: scalar } => {
                    let bytes = scalar_bytes(*scalar, *dtype);
                    value[..bytes.len()].copy_from_slice(&bytes);
                }
            }
            values.push(value);
        }
        let mut parameters: SmallVec<[*mut c_void; 12]> =
            values.iter_mut().map(|value| value.as_mut_ptr().cast()).collect();
        // SAFETY: when the source was compiled, the number and sizes of its parameters were compared with the
        // signature, which the arguments match.
        unsafe { self.context.launch_groups(module, launch.groups, &mut parameters) }
    }

    fn progress(&self) -> Result<Option<Progress<'_>>> {
        let context = &*self.context;
        context.collectives.join_all(context)?;
        let event = context.record(false)?;
        // If a collective fails, the wait that follows returns the error.
        let look = context.collectives.look(context);
        Ok(Some(Box::new(move || Medium::has_happened(context, &event) || look().is_err())))
    }

    fn synchronize(&self) -> Result<()> {
        self.context.synchronize()
    }

    fn mark(&self) -> Result<Option<Event>> {
        self.context.collectives.join_all(&*self.context)?;
        self.context.record(true).map(Some)
    }

    fn elapsed(&self, from: &Event, to: &Event) -> Result<f64> {
        Ok(f64::from(self.context.elapsed(from, to)?) * 1e6)
    }

    fn peaks(&self) -> Peaks {
        let context = &self.context;
        let figure = |attribute| context.attribute(attribute).filter(|&n| n > 0).map(|n| n as f64);
        // Clocks are in kHz; memory transfers twice per cycle.
        let clock = figure(Attribute::CU_DEVICE_ATTRIBUTE_CLOCK_RATE).map(|khz| khz * 1e3);
        let memory_clock = figure(Attribute::CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE).map(|khz| khz * 1e3);
        let width = figure(Attribute::CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH).map(|bits| bits / 8.0);
        let processors = figure(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
        Peaks {
            bytes: memory_clock.zip(width).map(|(clock, bytes)| 2.0 * clock * bytes),
            operations: clock
                .zip(processors)
                .zip(float_units(context.capability()))
                .map(|((clock, processors), units)| 2.0 * clock * processors * units),
        }
    }
}

/// The number of `float32` multiply-adds per cycle and multiprocessor, from the "Arithmetic Instructions" table of the
/// CUDA C++ Programming Guide; `None` for architectures that it does not list.
fn float_units(capability: (usize, usize)) -> Option<f64> {
    match capability {
        (5 | 9 | 10 | 12, _) | (6, 1 | 2) | (8, 6..=9) => Some(128.0),
        (6, 0) | (7, _) | (8, 0) => Some(64.0),
        _ => None,
    }
}
