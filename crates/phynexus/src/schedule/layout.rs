//! Copies operands of library operations into layouts that the device's routines can read. The copies are steps of the
//! plan, so their memory comes from the arena.

use super::answers::Answers;
use crate::{
    device::{Device, Support},
    hash::FastMap,
    op::view::view_layout,
    op::{
        Op,
        ir::{Id, Ir, IrNode},
    },
    shape::Layout,
};

/// The alignment of a view in bytes that wide loads need.
const ALIGNMENT: usize = 16;

/// Inserts `Contiguous` nodes before operands of routines that are views or leaves in a layout that the device cannot
/// read, and removes those whose operand is a row-major view of a leaf. Returns the new graph and the device's support
/// for its nodes. `leaves` are the layouts of the leaves, in slot order.
pub(super) fn lay_out(ir: Ir, leaves: &[Layout], device: Device) -> (Ir, Answers) {
    let backend = device.backend();
    let answers = Answers::of(&ir, device);
    let layouts = layouts(&ir, leaves);
    let is_copied = |node: &IrNode, at: usize| {
        let layout = layouts[node.inputs[at] as usize].as_ref();
        let reads = |layout| !matches!(node.op, Op::Custom(_)) && backend.reads_layout(node, at, layout);
        layout.is_some_and(|layout| !layout.is_contiguous() && !reads(layout))
    };
    let needs_copy = |(id, node): (usize, &IrNode)| {
        answers.is_routine(&ir, id as Id) && (0..node.inputs.len()).any(|at| is_copied(node, at))
    };
    let of_leaves = of_leaves(&ir, &layouts);
    let is_needless = |(id, node): (usize, &IrNode)| {
        matches!(node.op, Op::Contiguous)
            && of_leaves[node.inputs[0] as usize]
            && layouts[node.inputs[0] as usize].as_ref().is_some_and(|layout| {
                layout.is_contiguous() && (layout.offset * node.dtype.size()).is_multiple_of(ALIGNMENT)
            })
            && !ir.outputs.contains(&(id as Id))
    };
    if !ir.nodes.iter().enumerate().any(|node| needs_copy(node) || is_needless(node)) {
        return (ir, answers);
    }
    let mut laid_out = Ir::default();
    let mut places: Vec<Id> = Vec::with_capacity(ir.nodes.len());
    let mut copies: FastMap<Id, Id> = FastMap::default();
    let mut after: Vec<Support> = Vec::with_capacity(ir.nodes.len());
    for (id, node) in ir.nodes.iter().enumerate() {
        if is_needless((id, node)) {
            places.push(places[node.inputs[0] as usize]);
            continue;
        }
        let is_routine = answers.is_routine(&ir, id as Id);
        let mut inputs = Vec::with_capacity(node.inputs.len());
        for (at, &input) in node.inputs.iter().enumerate() {
            let place = places[input as usize];
            inputs.push(if is_routine && is_copied(node, at) {
                *copies.entry(input).or_insert_with(|| {
                    let operand = ir.node(input);
                    after.push(Support::Fused);
                    laid_out.push(Op::Contiguous, operand.dtype, operand.shape.clone(), [place])
                })
            } else {
                place
            });
        }
        after.push(answers.0[id].clone());
        places.push(laid_out.push(node.op.clone(), node.dtype, node.shape.clone(), inputs));
    }
    laid_out.leaves = ir.leaves.iter().map(|&leaf| places[leaf as usize]).collect();
    laid_out.outputs = ir.outputs.iter().map(|&output| places[output as usize]).collect();
    (laid_out, Answers(after))
}

/// Whether each node is a leaf, or a view of one.
fn of_leaves(ir: &Ir, layouts: &[Option<Layout>]) -> Vec<bool> {
    let mut found: Vec<bool> = Vec::with_capacity(ir.nodes.len());
    for (id, node) in ir.nodes.iter().enumerate() {
        found.push(match &node.op {
            // Others have a buffer of their own.
            op if op.is_view() => {
                let layout = layouts[node.inputs[0] as usize].as_ref();
                let is_view = layout.is_some_and(|layout| view_layout(op, &node.shape, layout).is_some());
                found[node.inputs[0] as usize] && is_view
            }
            _ => ir.leaves.contains(&(id as Id)),
        });
    }
    found
}

/// Returns each node's layout in the buffer of the leaf or node that it is a view of. A view that strides cannot
/// express has a buffer of its own, so it is row-major. Views of constants have no layout.
fn layouts(ir: &Ir, leaves: &[Layout]) -> Vec<Option<Layout>> {
    let slots: FastMap<Id, &Layout> = ir.leaves.iter().copied().zip(leaves).collect();
    let mut layouts: Vec<Option<Layout>> = Vec::with_capacity(ir.nodes.len());
    for (id, node) in ir.nodes.iter().enumerate() {
        layouts.push(match &node.op {
            Op::Constant(_) | Op::Iota(_) => None,
            op if op.is_view() => layouts[node.inputs[0] as usize].as_ref().map(|layout| {
                view_layout(op, &node.shape, layout).unwrap_or_else(|| Layout::contiguous(&node.shape))
            }),
            _ => match slots.get(&(id as Id)) {
                Some(&layout) => Some(layout.clone()),
                None => Some(Layout::contiguous(&node.shape)),
            },
        });
    }
    layouts
}
