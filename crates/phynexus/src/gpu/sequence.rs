//! Steps that are submitted together.

use std::{any::Any, sync::Arc};

use super::{
    Driver,
    memory::Heap,
    spill::{Pins, pin_all},
    step::{GpuStep, Loaded, Temporaries},
};
use crate::{
    Error, Result,
    device::{Binding, Executable, Prepared, Sequence},
};

/// Steps of which none can fail, and what the driver keeps of their launches.
pub(super) struct GpuSequence<D: Driver> {
    heap: Arc<Heap<D>>,
    /// Dropped before the steps: it uses their modules.
    recording: D::Recording,
    /// Each with the number of its bindings.
    steps: Vec<(Arc<dyn Executable>, usize)>,
}

/// The step behind the engine's trait, if it is one of this driver's that can be submitted with others.
fn linkable<D: Driver>(step: &Arc<dyn Executable>) -> Option<&GpuStep<D>> {
    let step: &dyn Any = &**step;
    step.downcast_ref::<GpuStep<D>>().filter(|step| !step.may_fail())
}

impl<D: Driver> GpuSequence<D> {
    /// As many of the steps, from the first on, as can be submitted together.
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

/// A step's kernels and its bindings.
type Part<'a, D> = (&'a Loaded<D>, &'a [Binding]);

impl<D: Driver> GpuSequence<D> {
    fn parts<'a>(&'a self, bindings: &'a [Binding]) -> Result<Vec<Part<'a, D>>> {
        let mut parts = Vec::with_capacity(self.steps.len());
        let mut rest = bindings;
        for (step, count) in &self.steps {
            let (bindings, others) = rest.split_at(*count);
            rest = others;
            if let Some(step) = linkable::<D>(step) {
                parts.push((step.loaded(bindings)?, bindings));
            }
        }
        Ok(parts)
    }
}

impl<D: Driver> Sequence for GpuSequence<D> {
    fn prepare(&self, bindings: &[Binding]) -> Result<Prepared> {
        let parts = self.parts(bindings)?;
        let temporaries: Vec<Temporaries<D>> =
            parts.iter().map(|(loaded, _)| loaded.temporaries(&self.heap)).collect::<Result<_>>()?;
        Ok(Some(Box::new(temporaries)))
    }

    fn run(&self, bindings: &[Binding], prepared: Prepared) -> Result<()> {
        let parts = self.parts(bindings)?;
        // They stay until everything is submitted: nobody else may be given their memory before.
        let temporaries = prepared
            .and_then(|prepared| prepared.downcast::<Vec<Temporaries<D>>>().ok())
            .ok_or_else(|| Error::internal("gpu", "a sequence that was not prepared"))?;
        let pins: Vec<Pins<'_, D>> =
            parts.iter().map(|(_, bindings)| pin_all(&self.heap, bindings)).collect::<Result<_>>()?;
        let mut submissions = Vec::with_capacity(2 * self.steps.len());
        for (((loaded, bindings), temporaries), pins) in parts.iter().zip(&*temporaries).zip(&pins) {
            loaded.submissions(bindings, pins, temporaries, None, &mut submissions)?;
        }
        let launched = self.heap.driver.launch_all(&submissions, &self.recording);
        launched.map_err(|error| self.heap.with_usage(error))
    }
}
