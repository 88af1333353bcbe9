//! AMD GPUs as drivers of the engine's GPU layer.

use phynexus::{
    Error, Result,
    custom::{CustomKernel, Source, SourceLanguage},
    device::{DeviceInfo, DeviceNature, HostRead, register_missing},
    dtype::scalar_bytes,
    gpu::{BlockAddress, Driver, Gpu, NotCompiled, Progress, SourceArgument, SourceLaunch, Submission},
    kernel::{
        loops::Kernel,
        lower::Target,
        print::{Variable, print, print_variable},
        step::Step,
    },
};
use phynexus_nccl::{Routine, Touched};

use crate::{
    code_object,
    collective::touched,
    context::{Attribute, Event, Module, count},
    gpu::{Block, HipGpu, addresses},
    graph::Recording,
    language::{HIP, HIP_C},
    library::hip,
    parameters::Packed,
};

/// Registers every GPU, or the reason why there is none.
pub(crate) fn register() {
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

impl Driver for HipGpu {
    type Block = Block;
    type Module = Code;
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
        Block::new(&self.context, bytes)
    }

    fn write(&self, block: &Block, offset: usize, bytes: &[u8]) -> Result<()> {
        self.context.before_write(block.range(offset, bytes.len()))?;
        let target = block.address().wrapping_byte_add(offset);
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
        // The runtime may wait for a copy to ordinary memory itself.
        self.context.collectives.watch_all(&*self.context)?;
        // SAFETY: the part lies within the block, and the copy is waited for.
        unsafe { self.context.copy_to_host(block.address().wrapping_byte_add(offset), bytes) }?;
        self.context.synchronize()
    }

    fn begin_read(&self, block: &Block, offset: usize, bytes: usize) -> Result<Option<Box<dyn HostRead>>> {
        self.context.before_read(block.range(offset, bytes))?;
        let source = block.address().wrapping_byte_add(offset);
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
        let source = source.address().wrapping_byte_add(offset);
        // SAFETY: both parts lie within their blocks.
        unsafe { self.context.copy_from(target.address(), &device.context, source, bytes) }
    }

    fn pinned_memory(&self) -> usize {
        self.staging.bytes()
    }

    fn trim(&self) {
        self.staging.trim();
    }

    fn print(&self, kernel: &Kernel) -> Result<String, NotCompiled> {
        Ok(print(kernel, &HIP)?)
    }

    fn print_variable(&self, kernel: &Kernel) -> Option<Variable> {
        print_variable(kernel, &HIP).ok()
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

    fn launch(&self, submission: &Submission<'_, HipGpu>) -> Result<()> {
        let module = match submission.module {
            Code::Kernel(module) => module,
            Code::Collective(routine) => return self.launch_collective(routine, submission),
        };
        self.context.bind()?;
        self.context.collectives.before(&*self.context, &touched(submission))?;
        // SAFETY: the checker proved every access of the kernel in bounds of its parameters' lengths, and the plan
        // binds memory of these lengths with the requested alignment.
        unsafe { self.context.launch(module, submission.kernel, &mut addresses(submission)) }
    }

    fn launch_all(&self, submissions: &[Submission<'_, HipGpu>], recording: &Recording) -> Result<()> {
        self.context.bind()?;
        let context = &*self.context;
        let open = context.collectives.open();
        let collides = |submission| open.iter().rposition(|flight| flight.collides(&touched(submission)));
        let waits = submissions.iter().take_while(|_| !open.is_empty()).filter_map(collides).max();
        // For the collectives up to that one, since they end in order.
        open.iter()
            .take(waits.map_or(0, |last| last + 1))
            .try_for_each(|f| context.collectives.join(context, f))?;
        recording.launch(self, submissions)
    }

    fn mark(&self) -> Result<Option<Event>> {
        self.context.collectives.join_all(&*self.context)?;
        self.context.record(true).map(Some)
    }

    fn elapsed(&self, from: &Event, to: &Event) -> Result<f64> {
        self.context.elapsed(from, to)
    }

    fn source_languages(&self) -> &'static [SourceLanguage] {
        &[HIP_C]
    }

    fn compile_source(&self, kernel: &CustomKernel, source: &Source) -> Result<Code, NotCompiled> {
        let code = self.source_compiler.compile(source.text())?;
        code_object::check(&code, kernel)?;
        self.context.load_named(&code, kernel.entry_point(), kernel.work_group_size()).map(Code::Kernel)
    }

    fn launch_source(&self, module: &Code, launch: &SourceLaunch<'_, Block>) -> Result<()> {
        let module = module.kernel().ok_or_else(|| Error::internal("phynexus_hip", "a custom collective"))?;
        self.context.bind()?;
        let mut parameters = Packed::new();
        for argument in launch.arguments {
            let fits = match argument {
                SourceArgument::Buffer { block, start, bytes, written } => {
                    let touched = [Touched { range: block.range(*start, *bytes), written: *written }];
                    self.context.collectives.before(&*self.context, &touched)?;
                    parameters.push(&(block.address() as u64 + *start as u64).to_ne_bytes())
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
        let context = &*self.context;
        context.collectives.join_all(context)?;
        let event = context.record(false)?;
        // If a collective fails, the wait that follows returns the error.
        let look = context.collectives.look(context);
        Ok(Some(Box::new(move || event.has_happened() || look().is_err())))
    }

    fn synchronize(&self) -> Result<()> {
        self.context.synchronize()
    }
}
