//! Stores over memory that the same step reads.

use std::sync::{Arc, OnceLock};

use super::{
    allocations::{Allocations, InPlace},
    plan::{Allocation, Owned, Piece, PlannedStep},
};
use crate::{
    DType, Result,
    device::{Backend, Binding, Buffer, Executable, Storage},
    kernel::{fused::Fusion, step::Step},
    op::ir::Ir,
};

/// What a plan does with a result of which it may store only some elements: the donor holds the others.
#[derive(Clone)]
pub(super) struct Partial {
    /// The dtype of the elements.
    dtype: DType,
    /// Copies the donor, if its memory is not free. Compiled when it is first needed.
    copy: OnceLock<Arc<dyn Executable>>,
}

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
            let dtype = ir.node(stored).dtype;
            allocations.owned[buffer].partial = Some(Partial { dtype, copy: OnceLock::new() });
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
    let (Some(Partial { dtype, copy }), Some(slot)) = (&own.partial, own.donor) else { return Ok(()) };
    let leaf = leaves[slot];
    let copy = match copy.get() {
        Some(copy) => copy,
        None => {
            let step = Step::Fused(Fusion::copy(*dtype, own.bytes / dtype.size()));
            let compiled = backend.compile(&step)?;
            copy.get_or_init(|| compiled)
        }
    };
    let from = Binding { buffer: leaf.buffer.clone(), offset: leaf.layout.offset * dtype.size() };
    let to = Binding { buffer: result.clone(), offset: 0 };
    copy.run(&[from, to])
}
