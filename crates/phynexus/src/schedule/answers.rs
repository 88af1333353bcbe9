//! What a device answers for each node of a graph: a part of a fused kernel, a routine, or not at all.

use smallvec::SmallVec;

use crate::{
    DType,
    device::{Device, Support},
    op::ir::{Id, Ir, IrNode},
};

/// The answers for the nodes of a rewritten graph, in their order.
pub(super) struct Answers(Vec<Support>);

impl Answers {
    pub(super) fn of(ir: &Ir, device: Device) -> Answers {
        Answers::by(ir, |node, operands| device.backend().support(node, operands))
    }

    /// The answers that a function gives.
    pub(super) fn by(ir: &Ir, support: impl Fn(&IrNode, &[DType]) -> Support) -> Answers {
        let answer = |node: &IrNode| {
            let dtypes: SmallVec<[DType; 4]> = node.inputs.iter().map(|&i| ir.node(i).dtype).collect();
            support(node, &dtypes)
        };
        Answers(ir.nodes.iter().map(answer).collect())
    }

    /// Whether the node is a step of its own. One that the device refuses runs on the CPU in the usual way.
    pub(super) fn is_routine(&self, ir: &Ir, node: Id) -> bool {
        match &self.0[node as usize] {
            Support::Fused => false,
            Support::Routine | Support::Body => true,
            Support::Unsupported(_) => Support::usual(&ir.node(node).op) != Support::Fused,
        }
    }

    /// Why the device does not compute the node, if it refuses it.
    pub(super) fn refusal(&self, node: Id) -> Option<String> {
        match &self.0[node as usize] {
            Support::Unsupported(reason) => Some(reason.clone()),
            _ => None,
        }
    }
}
