//! A step that a routine of the vendor computes.

use smallvec::SmallVec;

use super::{
    BlockAddress, Driver,
    compile::Kept,
    family::Relation,
    spill::pin_all,
    step::{GpuStep, Resources},
};
use crate::{
    Error, Result,
    device::{Binding, Executable},
    kernel::step::Step,
};

/// A step with its routine. Its kernels are compiled when bindings first turn out to be unusable for the routine.
pub(super) struct RoutineStep<D: Driver> {
    resources: Resources<D>,
    relation: Option<Relation>,
    step: Step,
    routine: D::Module,
    kernels: Kept<GpuStep<D>>,
}

impl<D: Driver> RoutineStep<D> {
    /// Returns `None` if the driver has no routine for the step.
    pub(super) fn new(
        resources: Resources<D>,
        step: &Step,
        relation: Option<Relation>,
    ) -> Result<Option<RoutineStep<D>>> {
        let Some(routine) = resources.heap.driver.compile_routine(step)? else { return Ok(None) };
        Ok(Some(RoutineStep { resources, relation, step: step.clone(), routine, kernels: Kept::new() }))
    }
}

impl<D: Driver> Executable for RoutineStep<D> {
    fn run(&self, bindings: &[Binding]) -> Result<()> {
        let heap = &self.resources.heap;
        let pins = pin_all(heap, bindings)?;
        let mut arguments: SmallVec<[BlockAddress<'_, D::Block>; 8]> = SmallVec::new();
        for (at, binding) in bindings.iter().enumerate() {
            let memory = pins.get(at).ok_or_else(|| Error::internal("gpu", "an argument without memory"))?;
            arguments.push((memory.slice(0, 0)?.0, binding.offset as i64));
        }
        let name = self.step.name();
        let mut taken = false;
        let launch = || {
            taken = heap.driver.launch_routine(&self.routine, &arguments)?;
            Ok(())
        };
        heap.watched(&name, || ([1; 3], [1; 3], 0), launch)?;
        if taken {
            return Ok(());
        }
        let step = &self.step;
        let kernels = self.kernels.get(|| GpuStep::new(self.resources.clone(), step, self.relation))?;
        kernels.run(bindings)
    }
}
