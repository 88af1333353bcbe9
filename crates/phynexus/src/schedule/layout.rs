//! Operands of library operations in the order in which the device's routine reads them: copies are steps of the plan, so
//! that their memory is the arena's.

use std::collections::HashMap;

use super::answers::Answers;
use crate::{
    device::Device,
    op::view::view_layout,
    op::{
        Op,
        ir::{Id, Ir, IrNode},
    },
    shape::Layout,
};

/// The graph with `Contiguous` nodes before operands that are views, or leaves, that the device does not read as they lie.
/// `leaves` are the layouts of the leaves, in slot order.
/// Also what the device answers for its nodes.
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
    if !ir.nodes.iter().enumerate().any(needs_copy) {
        return (ir, answers);
    }
    let mut laid_out = Ir::default();
    let mut places: Vec<Id> = Vec::with_capacity(ir.nodes.len());
    let mut copies: HashMap<Id, Id> = HashMap::new();
    for (id, node) in ir.nodes.iter().enumerate() {
        let is_routine = answers.is_routine(&ir, id as Id);
        let mut inputs = Vec::with_capacity(node.inputs.len());
        for (at, &input) in node.inputs.iter().enumerate() {
            let place = places[input as usize];
            inputs.push(if is_routine && is_copied(node, at) {
                *copies.entry(input).or_insert_with(|| {
                    let operand = ir.node(input);
                    laid_out.push(Op::Contiguous, operand.dtype, operand.shape.clone(), [place])
                })
            } else {
                place
            });
        }
        places.push(laid_out.push(node.op.clone(), node.dtype, node.shape.clone(), inputs));
    }
    laid_out.leaves = ir.leaves.iter().map(|&leaf| places[leaf as usize]).collect();
    laid_out.outputs = ir.outputs.iter().map(|&output| places[output as usize]).collect();
    let answers = Answers::of(&laid_out, device);
    (laid_out, answers)
}

/// How each node would lie in the buffer of a leaf or of the node that it is a view of: row-major where strides cannot
/// say it, for then it has a buffer of its own. Absent behind constants.
fn layouts(ir: &Ir, leaves: &[Layout]) -> Vec<Option<Layout>> {
    let slots: HashMap<Id, &Layout> = ir.leaves.iter().copied().zip(leaves).collect();
    let mut layouts: Vec<Option<Layout>> = Vec::with_capacity(ir.nodes.len());
    for (id, node) in ir.nodes.iter().enumerate() {
        layouts.push(match &node.op {
            Op::Constant(_) | Op::Iota { .. } => None,
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
