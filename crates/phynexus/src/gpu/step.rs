//! A compiled step: its launches and their bindings.

use std::sync::Arc;

use smallvec::SmallVec;

use super::{
    Driver, Submission,
    compile::Kept,
    custom::CustomModules,
    family::Relation,
    heap::{GpuBlock, Heap},
    modules::{Compiled, Modules},
    spill::{Pins, pin_all},
};
use crate::{
    Error, Result,
    device::{Binding, Executable, Prepared},
    kernel::lower::{Argument, Source, Target, Unsupported, lower},
    kernel::step::Step,
};

/// The device state that a step needs.
pub(super) struct Resources<D: Driver> {
    pub(super) heap: Arc<Heap<D>>,
    pub(super) modules: Arc<Modules<D>>,
    pub(super) custom: Arc<CustomModules<D>>,
}

impl<D: Driver> Clone for Resources<D> {
    fn clone(&self) -> Resources<D> {
        Resources { heap: self.heap.clone(), modules: self.modules.clone(), custom: self.custom.clone() }
    }
}

/// A step compiled for bindings with the alignment of its wide accesses. A version for any alignment is compiled when
/// it is first needed.
pub(super) struct GpuStep<D: Driver> {
    resources: Resources<D>,
    /// The plan that it belongs to.
    relation: Option<Relation>,
    step: Step,
    aligned: Loaded<D>,
    unaligned: Kept<Loaded<D>>,
    /// The step as it was loaded again after the device had been removed.
    again: Kept<Box<GpuStep<D>>>,
}

/// Buffers that live while a step runs.
pub(super) type Temporaries<D> = SmallVec<[GpuBlock<D>; 2]>;

/// Launches with their machine code.
pub(super) struct Loaded<D: Driver> {
    launches: Vec<LoadedLaunch<D>>,
    temporaries: Vec<usize>,
    /// True if a launch can find an index out of range.
    may_fail: bool,
}

struct LoadedLaunch<D: Driver> {
    compiled: Arc<Compiled<D>>,
    arguments: Vec<LoadedArgument>,
}

struct LoadedArgument {
    argument: Argument,
    /// Added to the binding's offset, in bytes.
    start: i64,
    /// The required alignment of the address, in bytes.
    alignment: usize,
}

impl<D: Driver> Resources<D> {
    fn load(&self, step: &Step, target: &Target, relation: Option<Relation>) -> Result<Loaded<D>> {
        let driver = &self.heap.driver;
        let refused =
            |Unsupported(reason)| Error::Unsupported { device: driver.name().to_owned(), message: reason };
        let lowered = lower(step, target).map_err(refused)?;
        let mut launches = Vec::with_capacity(lowered.launches.len());
        for launch in lowered.launches {
            let argument = |at: usize| {
                let buffer = &launch.kernel.buffers[at];
                LoadedArgument {
                    argument: launch.arguments[at],
                    start: launch.arguments[at].start * buffer.dtype.size() as i64,
                    alignment: launch.alignment(at).max(1),
                }
            };
            let arguments = (0..launch.arguments.len()).map(argument).collect();
            let compiled = self.modules.get(&self.heap, launch.kernel, relation)?;
            launches.push(LoadedLaunch { compiled, arguments });
        }
        let sources = || launches.iter().flat_map(|launch| &launch.arguments);
        let may_fail = sources().any(|a| a.argument.source == Source::Status);
        Ok(Loaded { launches, temporaries: lowered.temporaries, may_fail })
    }
}

impl<D: Driver> GpuStep<D> {
    pub(super) fn new(
        resources: Resources<D>,
        step: &Step,
        relation: Option<Relation>,
    ) -> Result<GpuStep<D>> {
        let aligned = resources.load(step, resources.heap.driver.target(), relation)?;
        let (unaligned, again) = (Kept::new(), Kept::new());
        Ok(GpuStep { resources, relation, step: step.clone(), aligned, unaligned, again })
    }
}

/// Allocates buffers of these sizes in bytes.
pub(super) fn allocate<D: Driver>(heap: &Arc<Heap<D>>, sizes: &[usize]) -> Result<Temporaries<D>> {
    sizes.iter().map(|&bytes| GpuBlock::new(heap, bytes)).collect()
}

impl<D: Driver> Loaded<D> {
    /// Returns whether every binding has the alignment that the launches need.
    fn fits(&self, bindings: &[Binding]) -> bool {
        self.launches.iter().flat_map(|launch| &launch.arguments).all(|a| match a.argument.source {
            Source::Binding(binding) => (bindings[binding].offset as i64 + a.start) % a.alignment as i64 == 0,
            Source::Temporary(_) | Source::Status => true,
        })
    }

    /// Returns whether numbers of its kernels are lost.
    fn is_lost(&self) -> bool {
        self.launches.iter().any(|launch| launch.compiled.is_lost())
    }

    /// Bytes of each buffer for data passed between the launches.
    pub(super) fn temporaries(&self) -> &[usize] {
        &self.temporaries
    }

    /// Appends the launches with their bindings.
    pub(super) fn submissions<'a>(
        &'a self,
        bindings: &[Binding],
        memories: &'a Pins<'_, D>,
        temporaries: &'a [GpuBlock<D>],
        status: Option<&'a GpuBlock<D>>,
        all: &mut Vec<Submission<'a, D>>,
    ) -> Result<()> {
        for launch in &self.launches {
            let mut arguments = SmallVec::new();
            for a in &launch.arguments {
                let (memory, offset) = match a.argument.source {
                    Source::Binding(binding) => {
                        (memories.get(binding).map(|pin| &**pin), bindings[binding].offset)
                    }
                    Source::Temporary(temporary) => (temporaries.get(temporary), 0),
                    Source::Status => (status, 0),
                };
                let memory = memory.ok_or_else(|| Error::internal("gpu", "an argument without memory"))?;
                arguments.push((memory.slice(0, 0)?.0, offset as i64 + a.start));
            }
            let Compiled { kernel, module, sizes } = &*launch.compiled;
            if let Some(sizes) = sizes {
                arguments.push((sizes.slice(0, 0)?.0, 0));
            }
            all.push(Submission { module, kernel, arguments, is_routine: false });
        }
        Ok(())
    }
}

impl<D: Driver> GpuStep<D> {
    /// Returns whether a launch can find an index out of range.
    pub(super) fn may_fail(&self) -> bool {
        self.aligned.may_fail
    }

    /// Returns the launches for bindings of this alignment.
    pub(super) fn loaded(&self, bindings: &[Binding]) -> Result<&Loaded<D>> {
        let loaded = match self.aligned.fits(bindings) {
            true => &self.aligned,
            false => {
                let target = self.resources.heap.driver.target().unaligned();
                self.unaligned.get(|| self.resources.load(&self.step, &target, self.relation))?
            }
        };
        if loaded.is_lost() {
            let load = || GpuStep::new(self.resources.clone(), &self.step, self.relation).map(Box::new);
            return self.again.get(load)?.loaded(bindings);
        }
        Ok(loaded)
    }
}

/// Memory of one run.
struct Workspace<D: Driver> {
    temporaries: Temporaries<D>,
    /// Launches report an out-of-range index here.
    status: Option<GpuBlock<D>>,
}

impl<D: Driver> Executable for GpuStep<D> {
    fn arguments(&self) -> usize {
        let bytes = |launch: &LoadedLaunch<D>| launch.compiled.sizes.as_ref().map_or(0, GpuBlock::bytes);
        self.aligned.launches.iter().map(bytes).sum::<usize>() / size_of::<i32>()
    }

    fn run(&self, bindings: &[Binding]) -> Result<()> {
        self.run_prepared(bindings, self.prepare(bindings)?)
    }

    fn prepare(&self, bindings: &[Binding]) -> Result<Prepared> {
        let heap = &self.resources.heap;
        let loaded = self.loaded(bindings)?;
        let temporaries = allocate(heap, loaded.temporaries())?;
        let status = match loaded.may_fail {
            true => Some(GpuBlock::new(heap, size_of::<u32>())?),
            false => None,
        };
        match temporaries.is_empty() && status.is_none() {
            true => Ok(None),
            false => Ok(Some(Box::new(Workspace { temporaries, status }))),
        }
    }

    fn run_prepared(&self, bindings: &[Binding], prepared: Prepared) -> Result<()> {
        let heap = &self.resources.heap;
        let loaded = self.loaded(bindings)?;
        let none = Workspace { temporaries: Temporaries::new(), status: None };
        let taken = prepared.and_then(|memory| memory.downcast::<Workspace<D>>().ok());
        let Workspace { temporaries, status } = taken.map_or(none, |memory| *memory);
        if let Some(status) = &status {
            heap.write(status.slice(0, 4)?.0, 0, &0u32.to_ne_bytes())?;
        }
        let memories = pin_all(heap, bindings)?;
        let mut submissions = Vec::with_capacity(loaded.launches.len());
        loaded.submissions(bindings, &memories, &temporaries, status.as_ref(), &mut submissions)?;
        submissions.iter().try_for_each(|submission| heap.launch(submission))?;
        // The status must be known before a later step overwrites anything, so wait for it here.
        if let Some(status) = &status {
            let mut value = [0; 4];
            heap.read(status.slice(0, 4)?.0, 0, &mut value)?;
            if u32::from_ne_bytes(value) != 0 {
                let device = heap.driver.name().to_owned();
                return Err(Error::SomeIndex { op: self.step.name(), device });
            }
        }
        Ok(())
    }
}
