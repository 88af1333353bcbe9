//! Steps that are submitted together.

use std::{any::Any, sync::Arc};

use super::{
    Driver,
    heap::Heap,
    routine::{RoutineStep, Way},
    spill::{Pins, pin_all},
    step::{GpuStep, Temporaries, allocate},
};
use crate::{
    Error, Result,
    device::{Binding, Executable, Prepared, Sequence},
};

/// Steps that need temporaries take turns with so many sets of them. With two sets, a step need not wait for the one
/// before it. With a set for each step, those of a training step of GPT-2 took 1.3 GB.
const SETS: usize = 2;

/// Steps that cannot fail, and the driver's state for their launches.
pub(super) struct GpuSequence<D: Driver> {
    heap: Arc<Heap<D>>,
    /// Declared before the steps so that it drops first: it uses their modules.
    recording: D::Recording,
    /// Each step with its number of bindings.
    steps: Vec<(Arc<dyn Executable>, usize)>,
}

/// A step that can be submitted together with others.
enum Linkable<'a, D: Driver> {
    Kernels(&'a GpuStep<D>),
    Routine(&'a RoutineStep<D>),
}

/// Downcasts a step to this driver's types. A collective is submitted by itself: a driver may run it beside what
/// follows.
fn linkable<D: Driver>(step: &Arc<dyn Executable>) -> Option<Linkable<'_, D>> {
    let step: &dyn Any = &**step;
    let kernels = step.downcast_ref::<GpuStep<D>>().filter(|step| !step.may_fail());
    let routine = || step.downcast_ref::<RoutineStep<D>>().filter(|step| !step.is_collective());
    let routine = || routine().map(Linkable::Routine);
    kernels.map(Linkable::Kernels).or_else(routine)
}

impl<D: Driver> GpuSequence<D> {
    /// Links the longest prefix of the steps that can be submitted together.
    pub(super) fn of(
        heap: &Arc<Heap<D>>,
        steps: &[(Arc<dyn Executable>, usize)],
    ) -> Option<(usize, Arc<dyn Sequence>)> {
        let count = steps.iter().take_while(|(step, _)| linkable::<D>(step).is_some()).count();
        let sequence = GpuSequence {
            heap: heap.clone(),
            steps: steps[..count].to_vec(),
            recording: D::Recording::default(),
        };
        (count > 0).then(|| (count, Arc::new(sequence) as Arc<dyn Sequence>))
    }
}

/// What computes a step, and its bindings.
type Part<'a, D> = (Way<'a, D>, &'a [Binding]);

/// The set of temporaries that each step uses.
fn turns<D: Driver>(parts: &[Part<'_, D>]) -> impl Iterator<Item = usize> {
    parts.iter().scan(0, |turn, (way, _)| {
        let set = *turn % SETS;
        *turn += usize::from(!way.temporaries().is_empty());
        Some(set)
    })
}

impl<D: Driver> GpuSequence<D> {
    fn parts<'a>(&'a self, bindings: &'a [Binding]) -> Result<Vec<Part<'a, D>>> {
        let mut parts = Vec::with_capacity(self.steps.len());
        let mut rest = bindings;
        for (step, count) in &self.steps {
            let (bindings, others) = rest.split_at(*count);
            rest = others;
            match linkable::<D>(step) {
                Some(Linkable::Kernels(step)) => parts.push((Way::Kernels(step.loaded(bindings)?), bindings)),
                Some(Linkable::Routine(step)) => parts.push((step.way(bindings)?, bindings)),
                None => {}
            }
        }
        Ok(parts)
    }
}

impl<D: Driver> Sequence for GpuSequence<D> {
    fn prepare(&self, bindings: &[Binding]) -> Result<Prepared> {
        let parts = self.parts(bindings)?;
        let mut sizes: [Vec<usize>; SETS] = Default::default();
        for (set, (way, _)) in turns(&parts).zip(&parts) {
            let (set, needed) = (&mut sizes[set], way.temporaries());
            set.resize(set.len().max(needed.len()), 0);
            set.iter_mut().zip(needed).for_each(|(bytes, &needed)| *bytes = needed.max(*bytes));
        }
        let temporaries: Vec<Temporaries<D>> =
            sizes.iter().map(|sizes| allocate(&self.heap, sizes)).collect::<Result<_>>()?;
        Ok(Some(Box::new(temporaries)))
    }

    fn run(&self, bindings: &[Binding], prepared: Prepared) -> Result<()> {
        let parts = self.parts(bindings)?;
        // Kept until everything is submitted, so that their memory is not reused before.
        let temporaries = prepared
            .and_then(|prepared| prepared.downcast::<Vec<Temporaries<D>>>().ok())
            .ok_or_else(|| Error::internal("gpu", "the sequence was not prepared"))?;
        let pins: Vec<Pins<'_, D>> =
            parts.iter().map(|(_, bindings)| pin_all(&self.heap, bindings)).collect::<Result<_>>()?;
        let mut submissions = Vec::with_capacity(2 * self.steps.len());
        for ((set, (way, bindings)), pins) in turns(&parts).zip(&parts).zip(&pins) {
            let temporaries = temporaries.get(set).map_or(&[][..], |set| set);
            way.submissions(bindings, pins, temporaries, &mut submissions)?;
        }
        let launched = self.heap.driver.launch_all(&submissions, &self.recording);
        launched.map_err(|error| self.heap.with_usage(error))
    }
}
