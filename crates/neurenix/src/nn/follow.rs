//! Buffers that follow from a training step, such as running statistics: the step computes them, too. Computed later,
//! they would keep the step's intermediate results in memory, or compute them again.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    sync::{Arc, Weak},
};

use phynexus::{Device, Tensor, schedule::capture::is_recording};

use super::parameter::{Parameter, Shared};
use crate::Result;

thread_local! {
    /// By their numbers, so that steps that are alike compute them in the same order.
    static FOLLOWING: RefCell<BTreeMap<u64, Weak<Shared>>> = const { RefCell::new(BTreeMap::new()) };
}

impl Parameter {
    /// Has the value that the variable gets next computed by this thread's next optimiser step on its device. Without a
    /// step between two calls, the second first computes what is pending of the values of all such variables, so that
    /// the pending graph does not grow. A recorded function computes the value anyway.
    ///
    /// # Errors
    /// If that computation fails.
    pub fn follow_step(&self) -> Result<()> {
        if is_recording() {
            return Ok(());
        }
        let before = FOLLOWING.with_borrow_mut(|all| {
            // Of networks that never take a step, nothing is kept.
            if all.len().is_power_of_two() {
                all.retain(|_, buffer| buffer.strong_count() > 0);
            }
            all.insert(self.id(), Arc::downgrade(&self.0))
        });
        if before.is_none() {
            return Ok(());
        }
        let values = take(|_| true);
        self.follow_step()?;
        Ok(Tensor::evaluate_all(&values.iter().collect::<Vec<_>>())?)
    }
}

/// The pending values that follow from a step on these devices. They are no longer listed.
pub(crate) fn take_following(devices: &[Device]) -> Vec<Tensor> {
    take(|value| devices.contains(&value.device()))
}

fn take(wanted: impl Fn(&Tensor) -> bool) -> Vec<Tensor> {
    let buffers = FOLLOWING.take();
    let held = buffers.iter().filter_map(|(&id, buffer)| Some((id, Parameter(buffer.upgrade()?).stored())));
    let (taken, others): (Vec<_>, Vec<_>) = held.partition(|(_, value)| wanted(value));
    let others = others.into_iter().filter_map(|(id, _)| Some((id, buffers.get(&id)?.clone())));
    FOLLOWING.with_borrow_mut(|all| all.extend(others));
    taken.into_iter().map(|(_, value)| value).filter(|value| !value.is_evaluated()).collect()
}
