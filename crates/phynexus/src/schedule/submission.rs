//! Submits the steps of a plan to its device.

use std::{cell::Cell, ops::Range, sync::Arc};

use super::{
    debug, placement,
    plan::{Plan, PlannedStep},
};
use crate::{
    Result,
    device::{Binding, Device, Executable, Prepared, Sequence},
    distributed::Group,
    interrupt::{self, Shield},
    op::Op,
    profile,
};

/// Steps that are submitted together.
pub(super) struct Submission {
    steps: Range<usize>,
    /// Runs all of the steps. Without it there is exactly one step.
    sequence: Option<Arc<dyn Sequence>>,
}

/// Groups the steps into as few submissions as the device supports.
pub(super) fn group(steps: &[PlannedStep], device: Device) -> Vec<Submission> {
    let compiled: Vec<(Arc<dyn Executable>, usize)> =
        steps.iter().map(|step| (step.executable.clone(), step.parameters.len())).collect();
    let mut submissions = Vec::new();
    let mut first = 0;
    while first < steps.len() {
        let linked = device.backend().link(&compiled[first..]).filter(|(count, _)| *count > 1);
        let (count, sequence) = linked.map_or((1, None), |(count, sequence)| (count, Some(sequence)));
        submissions.push(Submission { steps: first..first + count, sequence });
        first += count;
    }
    submissions
}

/// A unit of execution.
enum Ready<'a> {
    Sequence(&'a dyn Sequence),
    Step(&'a PlannedStep),
}

/// Abandons the groups whose collectives are among these steps of a plan that ended early. The steps would run again if
/// their results are asked for again, but the other ranks are past these collectives.
fn abandon_groups(steps: &[PlannedStep]) {
    for step in steps {
        if let Some(Op::Collective(collective)) = step.step.routine()
            && collective.member.size > 1
            && let Ok(group) = Group::find(collective.member.group)
        {
            group.abandon();
        }
    }
}

impl Plan {
    /// Runs the steps with the bindings of all of them. The steps allocate any further memory before the first one
    /// stores anything. They can be interrupted until step `in_place`, which overwrites memory that was taken over.
    /// `begun` is set at that point.
    pub(super) fn submit(&self, bindings: &[Binding], in_place: usize, begun: &Cell<bool>) -> Result<()> {
        let started = Cell::new(0);
        let done = interrupt::catch(|| self.submit_steps(bindings, in_place, begun, &started));
        done.inspect_err(|_| abandon_groups(&self.steps[..started.get()]))
    }

    /// As [`Plan::submit`]. `started` becomes the number of the steps that have begun.
    fn submit_steps(
        &self,
        bindings: &[Binding],
        in_place: usize,
        begun: &Cell<bool>,
        started: &Cell<usize>,
    ) -> Result<()> {
        let observed = profile::is_enabled() || debug::is_enabled();
        let mut ready: Vec<(usize, Ready<'_>, &[Binding], Prepared)> =
            Vec::with_capacity(self.submissions.len());
        let mut rest = bindings;
        for submission in &self.submissions {
            let steps = &self.steps[submission.steps.clone()];
            let mut take = |steps: &[PlannedStep]| {
                let count = steps.iter().map(|step| step.parameters.len()).sum();
                let (own, others) = rest.split_at(count);
                rest = others;
                own
            };
            if let Some(sequence) = submission.sequence.as_deref().filter(|_| !observed) {
                let bindings = take(steps);
                let prepared = sequence.prepare(bindings)?;
                ready.push((submission.steps.end, Ready::Sequence(sequence), bindings, prepared));
                continue;
            }
            for (at, step) in submission.steps.clone().zip(steps) {
                let bindings = take(std::slice::from_ref(step));
                let prepared = step.executable.prepare(bindings)?;
                ready.push((at + 1, Ready::Step(step), bindings, prepared));
            }
        }
        let mut shield = None;
        for (end, ready, bindings, prepared) in ready {
            interrupt::check()?;
            if end > in_place && shield.is_none() {
                shield = Some(Shield::new());
                begun.set(true);
            }
            started.set(end);
            match ready {
                Ready::Sequence(sequence) => sequence.run(bindings, prepared)?,
                Ready::Step(step) => {
                    step.placement.iter().for_each(placement::note);
                    let run = || step.executable.run_prepared(bindings, prepared);
                    match observed {
                        false => run()?,
                        true => debug::watch(self.device, step, bindings, || {
                            profile::step(self.device, &step.summary(self.device), run)
                        })?,
                    }
                }
            }
        }
        Ok(())
    }
}
