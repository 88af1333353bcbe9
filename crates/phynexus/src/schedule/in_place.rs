//! Stores over memory that the same step reads.

use super::{
    allocations::{Allocations, InPlace},
    plan::{Allocation, Owned, Piece},
};
use crate::{
    Result, Scalar,
    device::{Backend, Binding, Buffer, Storage},
    kernel::{
        Index, Ranges,
        fused::{FusedOp, Fusion, Instruction, Parameter, Store},
        step::Step,
    },
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

/// Copies what a plan may leave as it is into a result that does not take over its donor's memory.
pub(super) fn copy_rest(
    backend: &dyn Backend,
    own: &Owned,
    leaves: &[&Storage],
    result: &Buffer,
) -> Result<()> {
    let (Some(dtype), Some(slot)) = (own.partial, own.donor) else { return Ok(()) };
    let leaf = leaves[slot];
    let count = own.bytes / dtype.size();
    let index = Index::range(0, &Ranges([count].into_iter().collect()));
    let load =
        FusedOp::Load { parameter: 0, index: index.clone(), mask: None, fill: Scalar::Int(0).cast(dtype) };
    let copy = Fusion {
        rows: [count].into_iter().collect(),
        columns: [].into_iter().collect(),
        instructions: vec![Instruction { operation: load, dtype, per_column: false }],
        stores: vec![Store { parameter: 1, value: 0, index, replaces: None }],
        parameters: [false, true].map(|written| Parameter { dtype, written }).to_vec(),
    };
    let from = Binding { buffer: leaf.buffer.clone(), offset: leaf.layout.offset * dtype.size() };
    backend.compile(&Step::Fused(copy))?.run(&[from, Binding { buffer: result.clone(), offset: 0 }])
}
