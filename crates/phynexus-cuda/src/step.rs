//! A compiled step: its launches, and the memory they need in between.

use std::sync::{Arc, OnceLock};

use cudarc::driver::sys::CUdeviceptr;
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
    ) -> SmallVec<[CUdeviceptr; 16]> {
        let place = |at: usize| {
            let argument = launch.arguments[at];
            let start = match argument.source {
                Source::Binding(binding) => bindings[binding],
                Source::Temporary(temporary) => temporaries[temporary].address(),
            };
            let size = launch.kernel.buffers[at].dtype.size() as i64;
            start.wrapping_add_signed(argument.start * size)
        };
        (0..launch.arguments.len()).map(place).collect()
    }

    /// True if every binding is aligned as the launches need it.
    fn fits(&self, bindings: &[CUdeviceptr]) -> bool {
        self.lowered.launches.iter().all(|launch| {
            launch.arguments.iter().enumerate().all(|(at, argument)| match argument.source {
                Source::Temporary(_) => true,
                Source::Binding(binding) => {
                    let size = launch.kernel.buffers[at].dtype.size() as i64;
                    let address = bindings[binding].wrapping_add_signed(argument.start * size);
                    address % launch.alignment(at).max(1) as u64 == 0
                }
            })
        })
    }
}

impl Executable for CudaStep {
    fn run(&self, bindings: &[Binding]) -> Result<()> {
        let Resources { context, pool, target, .. } = &self.resources;
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
        for (launch, module) in loaded.lowered.launches.iter().zip(&loaded.modules) {
            let mut arguments = loaded.addresses(launch, &addresses, &temporaries);
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
        Ok(())
    }
}
