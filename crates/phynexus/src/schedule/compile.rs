//! Compiles the steps of a plan.

use std::{
    hash::{Hash, Hasher},
    sync::Arc,
};

use crate::{
    Result,
    device::{Device, Executable},
    hash::{FastHasher, FastMap},
    kernel::step::Step,
    op::ir::Ir,
};

/// A number that graphs of the same operations share, such as those that differ in sizes only.
pub(super) fn family(ir: &Ir) -> u64 {
    let mut hasher = FastHasher::default();
    for node in &ir.nodes {
        (node.op.name(), node.dtype, node.shape.len(), &node.inputs).hash(&mut hasher);
    }
    ir.outputs.hash(&mut hasher);
    hasher.finish()
}

/// Compiles steps for a device. Equal steps, such as those of a recurrent layer's time steps, share one executable.
pub(super) fn compile(device: Device, steps: &[&Step], family: u64) -> Vec<Result<Arc<dyn Executable>>> {
    let mut known: FastMap<&Step, usize> = FastMap::default();
    let mut different = Vec::new();
    let places: Vec<usize> = steps
        .iter()
        .map(|&step| {
            *known.entry(step).or_insert_with(|| {
                different.push(step);
                different.len() - 1
            })
        })
        .collect();
    let compiled = device.backend().compile_all(&different, family);
    places.into_iter().map(|place| compiled[place].clone()).collect()
}
