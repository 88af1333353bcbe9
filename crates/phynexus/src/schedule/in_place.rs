//! Stores over memory that the same step reads.

use super::{
    allocations::{Allocations, InPlace},
    plan::{Allocation, Owned, Piece, PlannedStep},
};
use crate::{
    Result,
    device::{Backend, Binding, Buffer, Storage},
    kernel::{fused::Fusion, step::Step},
    op::ir::Ir,
};

/// Tells kernels what they store in place, and notes results of which they may store only a part.
pub(super) fn note(ir: &Ir, pieces: &mut [Piece], allocations: &mut Allocations) {
    for &InPlace { piece, stored, read } in &allocations.in_place {
        let piece = &mut pieces[piece];
        let read = piece.read().find(|&(_, node)| node == read).map(|(position, _)| position as u16);
        let position = piece.position_of_stored(stored);
        let Step::Fused(kernel) = &mut piece.step else { continue };
        let store = kernel.stores.iter().position(|store| Some(usize::from(store.parameter)) == position);
        let Some(store) = store else { continue };
        kernel.stores[store].replaces = read;
        if kernel.partial(&kernel.stores[store]).is_some()
            && let Some(&Allocation::Owned(buffer)) = allocations.of.get(&stored)
        {
            allocations.owned[buffer].partial = Some(ir.node(stored).dtype);
        }
    }
}

/// The CPU stores every element, also where it runs a step for another device.
pub(super) fn without_whole(backend: &dyn Backend, steps: &[PlannedStep], owned: &mut [Owned]) {
    let is_whole = |step: &&PlannedStep| step.placement.is_some() || backend.target().is_none();
    steps.iter().filter(is_whole).flat_map(PlannedStep::stores).for_each(|index| owned[index].partial = None);
}

/// Copies what a plan may leave as it is into a result that does not take over its donor's memory.
pub(super) fn copy_rest(
    backend: &dyn Backend,
    own: &Owned,
    leaves: &[&Storage],
    result: &Buffer,
) -> Result<()> {
    let (Some(dtype), Some(slot)) = (own.partial, own.donor) else { return Ok(()) };
    let leaf = leaves[slot];
    let copy = Fusion::copy(dtype, own.bytes / dtype.size());
    let from = Binding { buffer: leaf.buffer.clone(), offset: leaf.layout.offset * dtype.size() };
    backend.compile(&Step::Fused(copy))?.run(&[from, Binding { buffer: result.clone(), offset: 0 }])
}
