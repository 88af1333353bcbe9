//! A step that a routine of the vendor computes.

use smallvec::SmallVec;

use super::{
    BlockAddress, Driver, Submission,
    compile::Kept,
    family::Relation,
    heap::GpuBlock,
    spill::{Pins, pin_all},
    step::{GpuStep, Loaded, Resources, Temporaries, allocate},
};
use crate::{
    Error, Result,
    device::{Binding, Executable, Prepared},
    kernel::loops::Kernel,
    kernel::step::Step,
    op::Op,
};

/// A step with its routine. Its kernels are compiled when bindings first turn out to be unusable for the routine.
pub(super) struct RoutineStep<D: Driver> {
    resources: Resources<D>,
    relation: Option<Relation>,
    step: Step,
    routine: D::Module,
    /// Stands for the routine in submissions. Its buffers are those of the step, and then the memory for a run.
    kernel: Kernel,
    /// Bytes of memory for a run, if it needs any.
    memory: SmallVec<[usize; 1]>,
    kernels: Kept<GpuStep<D>>,
}

/// What computes a step on some bindings.
pub(super) enum Way<'a, D: Driver> {
    Kernels(&'a Loaded<D>),
    Routine(&'a RoutineStep<D>),
}

impl<D: Driver> RoutineStep<D> {
    /// Returns `None` if the driver has no routine for the step.
    pub(super) fn new(
        resources: Resources<D>,
        step: &Step,
        relation: Option<Relation>,
    ) -> Result<Option<RoutineStep<D>>> {
        let heap = &resources.heap;
        let compile = || heap.driver.compile_routine(step).map_err(super::NotCompiled::Failed);
        let compiled = heap.compiled(compile).map_err(|reason| heap.not_compiled(reason))?;
        let Some(routine) = compiled else { return Ok(None) };
        let memory = Some(heap.driver.routine_memory(&routine)).filter(|&bytes| bytes > 0);
        Ok(Some(RoutineStep {
            relation,
            step: step.clone(),
            routine,
            kernel: Kernel { name: step.name(), ..Kernel::default() },
            memory: memory.into_iter().collect(),
            kernels: Kept::new(),
            resources,
        }))
    }

    /// Whether it needs other processes.
    pub(super) fn is_collective(&self) -> bool {
        is_collective(&self.step)
    }

    fn kernels(&self) -> Result<&GpuStep<D>> {
        self.kernels.get(|| GpuStep::new(self.resources.clone(), &self.step, self.relation))
    }

    /// Returns what computes the step on these bindings.
    pub(super) fn way(&self, bindings: &[Binding]) -> Result<Way<'_, D>> {
        let pins = pin_all(&self.resources.heap, bindings)?;
        match self.resources.heap.driver.takes(&self.routine, &arguments(bindings, &pins)?) {
            true => Ok(Way::Routine(self)),
            false => Ok(Way::Kernels(self.kernels()?.loaded(bindings)?)),
        }
    }

    fn submission<'a>(
        &'a self,
        bindings: &[Binding],
        memories: &'a Pins<'_, D>,
        temporaries: &'a [GpuBlock<D>],
    ) -> Result<Submission<'a, D>> {
        let mut arguments = arguments(bindings, memories)?;
        if !self.memory.is_empty() {
            let memory = temporaries.first();
            let memory = memory.ok_or_else(|| Error::internal("gpu", "a routine without its memory"))?;
            arguments.push((memory.slice(0, 0)?.0, 0));
        }
        Ok(Submission { module: &self.routine, kernel: &self.kernel, arguments, is_routine: true })
    }
}

/// Whether the step is a collective.
pub(super) fn is_collective(step: &Step) -> bool {
    matches!(step.routine(), Some(Op::Collective(_)))
}

fn arguments<'a, D: Driver>(
    bindings: &[Binding],
    memories: &'a Pins<'_, D>,
) -> Result<SmallVec<[BlockAddress<'a, D::Block>; 8]>> {
    let argument = |(at, binding): (usize, &Binding)| {
        let memory = memories.get(at).ok_or_else(|| Error::internal("gpu", "an argument without memory"))?;
        Ok((memory.slice(0, 0)?.0, binding.offset as i64))
    };
    bindings.iter().enumerate().map(argument).collect()
}

impl<D: Driver> Way<'_, D> {
    /// Bytes of each buffer that a run needs for itself.
    pub(super) fn temporaries(&self) -> &[usize] {
        match self {
            Way::Kernels(loaded) => loaded.temporaries(),
            Way::Routine(routine) => &routine.memory,
        }
    }

    /// Appends the launches with their bindings.
    pub(super) fn submissions<'a>(
        &'a self,
        bindings: &[Binding],
        memories: &'a Pins<'_, D>,
        temporaries: &'a [GpuBlock<D>],
        all: &mut Vec<Submission<'a, D>>,
    ) -> Result<()> {
        match self {
            Way::Kernels(loaded) => loaded.submissions(bindings, memories, temporaries, None, all),
            Way::Routine(routine) => {
                all.push(routine.submission(bindings, memories, temporaries)?);
                Ok(())
            }
        }
    }
}

impl<D: Driver> Executable for RoutineStep<D> {
    fn run(&self, bindings: &[Binding]) -> Result<()> {
        self.run_prepared(bindings, self.prepare(bindings)?)
    }

    fn prepare(&self, bindings: &[Binding]) -> Result<Prepared> {
        match self.way(bindings)? {
            Way::Kernels(_) => self.kernels()?.prepare(bindings),
            Way::Routine(_) => Ok(Some(Box::new(allocate(&self.resources.heap, &self.memory)?))),
        }
    }

    fn run_prepared(&self, bindings: &[Binding], prepared: Prepared) -> Result<()> {
        if let Way::Kernels(_) = self.way(bindings)? {
            return self.kernels()?.run_prepared(bindings, prepared);
        }
        let heap = &self.resources.heap;
        let temporaries = prepared.and_then(|prepared| prepared.downcast::<Temporaries<D>>().ok());
        let temporaries = temporaries.map_or_else(Temporaries::<D>::new, |temporaries| *temporaries);
        let pins = pin_all(heap, bindings)?;
        heap.launch(&self.submission(bindings, &pins, &temporaries)?)
    }
}
