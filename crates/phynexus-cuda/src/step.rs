//! A compiled step: its launches, and the memory they need in between.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use cudarc::driver::{result, sys::CUdeviceptr};
use phynexus::{
    Error, Result,
    device::{Binding, Executable, Pool},
    kernel::{
        lower::{Launch, Lowered, Source, Target, Unsupported, lower},
        print::{CUDA, print},
    },
    schedule::step::Step,
};
use smallvec::SmallVec;

use crate::{
    compile::Compiler,
    context::{Context, Module},
    memory::{Block, CudaMemory, address},
};

/// What a step needs of its device.
#[derive(Clone)]
pub(crate) struct Resources {
    pub(crate) context: Arc<Context>,
    pub(crate) compiler: Arc<Compiler>,
    pub(crate) pool: Arc<Pool<Block>>,
    pub(crate) target: Target,
    pub(crate) status: Arc<Status>,
}

/// A number on the device: 0, until a kernel finds an index out of range.
pub(crate) struct Status {
    memory: CudaMemory,
    /// Held from the launch of a kernel that may set the number until the number is read, so that an error goes to the
    /// step that made it. Kernels of other threads may be launched meanwhile.
    reading: Mutex<()>,
}

impl Status {
    pub(crate) fn new(context: &Arc<Context>, pool: &Arc<Pool<Block>>) -> Result<Status> {
        let status =
            Status { memory: CudaMemory::new(context, pool, size_of::<u32>())?, reading: Mutex::new(()) };
        status.clear(context)?;
        Ok(status)
    }

    fn clear(&self, context: &Context) -> Result<()> {
        // SAFETY: the memory has four bytes, and zeros outlive the call, which copies them.
        unsafe { result::memcpy_htod_async(self.memory.address(), &[0u32], context.stream()) }
            .map_err(|e| context.error("clearing the status", e))
    }

    /// Waits for what was launched and tells whether it met an index out of range.
    fn check(&self, context: &Context) -> Result<bool> {
        let mut value = [0u32];
        // SAFETY: the memory has four bytes, and the value stays until the stream has been waited for.
        unsafe { result::memcpy_dtoh_async(&mut value, self.memory.address(), context.stream()) }
            .map_err(|e| context.error("reading the status", e))?;
        context.synchronize()?;
        if value[0] != 0 {
            self.clear(context)?;
        }
        Ok(value[0] != 0)
    }
}

/// A step, compiled for bindings that are aligned as its wide accesses need, and, once one is not, for any.
pub(crate) struct CudaStep {
    resources: Resources,
    step: Step,
    aligned: Loaded,
    unaligned: OnceLock<Result<Loaded>>,
}

/// Launches with their machine code.
struct Loaded {
    lowered: Lowered,
    modules: Vec<Module>,
}

impl Resources {
    fn load(&self, step: &Step, target: &Target) -> Result<Loaded> {
        let refused = |Unsupported(reason): Unsupported| Error::Device {
            device: self.context.name.clone(),
            message: reason,
        };
        let lowered = lower(step, target).map_err(refused)?;
        let mut modules = Vec::with_capacity(lowered.launches.len());
        for Launch { kernel, .. } in &lowered.launches {
            let source = print(kernel, &CUDA)?;
            let code = self.compiler.compile(&source).map_err(|message| Error::Device {
                device: self.context.name.clone(),
                message: format!("compiling kernel {}: {message}", kernel.name),
            })?;
            modules.push(self.context.load(&code, &kernel.name, kernel.shared_bytes())?);
        }
        Ok(Loaded { lowered, modules })
    }
}

impl CudaStep {
    pub(crate) fn new(resources: Resources, step: &Step) -> Result<CudaStep> {
        let aligned = resources.load(step, &resources.target)?;
        Ok(CudaStep { resources, step: step.clone(), aligned, unaligned: OnceLock::new() })
    }
}

impl Loaded {
    /// The addresses of a launch's arguments.
    fn addresses(
        &self,
        launch: &Launch,
        bindings: &[CUdeviceptr],
        temporaries: &[CudaMemory],
        status: &Status,
    ) -> SmallVec<[CUdeviceptr; 16]> {
        let place = |at: usize| {
            let argument = launch.arguments[at];
            let start = match argument.source {
                Source::Binding(binding) => bindings[binding],
                Source::Temporary(temporary) => temporaries[temporary].address(),
                Source::Status => status.memory.address(),
            };
            let size = launch.kernel.buffers[at].dtype.size() as i64;
            start.wrapping_add_signed(argument.start * size)
        };
        (0..launch.arguments.len()).map(place).collect()
    }

    /// True if a launch may find an index out of range.
    fn may_fail(&self) -> bool {
        self.lowered.launches.iter().flat_map(|launch| &launch.arguments).any(|a| a.source == Source::Status)
    }

    /// True if every binding is aligned as the launches need it.
    fn fits(&self, bindings: &[CUdeviceptr]) -> bool {
        self.lowered.launches.iter().all(|launch| {
            launch.arguments.iter().enumerate().all(|(at, argument)| match argument.source {
                Source::Temporary(_) | Source::Status => true,
                Source::Binding(binding) => {
                    let size = launch.kernel.buffers[at].dtype.size() as i64;
                    let address = bindings[binding].wrapping_add_signed(argument.start * size);
                    address.is_multiple_of(launch.alignment(at).max(1) as u64)
                }
            })
        })
    }
}

impl Executable for CudaStep {
    fn run(&self, bindings: &[Binding]) -> Result<()> {
        let Resources { context, pool, target, status, .. } = &self.resources;
        let addresses: SmallVec<[CUdeviceptr; 16]> =
            bindings.iter().map(|b| address(context, &b.buffer, b.offset, 0)).collect::<Result<_>>()?;
        let loaded = match self.aligned.fits(&addresses) {
            true => &self.aligned,
            false => {
                let made =
                    self.unaligned.get_or_init(|| self.resources.load(&self.step, &target.unaligned()));
                made.as_ref().map_err(Clone::clone)?
            }
        };
        let temporaries: Vec<CudaMemory> = loaded
            .lowered
            .temporaries
            .iter()
            .map(|&bytes| CudaMemory::new(context, pool, bytes))
            .collect::<Result<_>>()?;
        context.bind()?;
        // What fails must fail before a later step overwrites anything, so it is waited for here.
        let reading =
            loaded.may_fail().then(|| status.reading.lock().unwrap_or_else(PoisonError::into_inner));
        for (launch, module) in loaded.lowered.launches.iter().zip(&loaded.modules) {
            let mut arguments = loaded.addresses(launch, &addresses, &temporaries, status);
            let kernel = &launch.kernel;
            // SAFETY: the checker proved every access of the kernel in bounds of its parameters' lengths, and the plan
            // binds buffers of these lengths, aligned as was asked for.
            unsafe {
                context.launch(
                    module,
                    kernel.grid(),
                    kernel.block(),
                    kernel.shared_bytes(),
                    &mut arguments,
                )?;
            }
        }
        if reading.is_some() && status.check(context)? {
            let message = format!("{}: an index is out of range", self.step.name());
            return Err(Error::Device { device: context.name.clone(), message });
        }
        Ok(())
    }
}
