//! How a device supports each node of a graph: as part of a fused kernel, as a separate routine, or not at all.

use smallvec::SmallVec;

use crate::{
    device::{Device, Support},
    op::{
        TensorType,
        ir::{Id, Ir, IrNode},
    },
};

/// The device's support for each node of a rewritten graph, in node order.
pub(super) struct Answers(pub(super) Vec<Support>);

impl Answers {
    pub(super) fn of(ir: &Ir, device: Device) -> Answers {
        Answers::by(ir, |node, operands| device.backend().support(node, operands))
    }

    /// Uses the given function in place of a device.
    pub(super) fn by(ir: &Ir, support: impl Fn(&IrNode, &[TensorType]) -> Support) -> Answers {
        let answer = |node: &IrNode| {
            let types: SmallVec<[TensorType; 4]> =
                node.inputs.iter().map(|&i| ir.node(i).tensor_type()).collect();
            support(node, &types)
        };
        Answers(ir.nodes.iter().map(answer).collect())
    }

    /// Returns whether the node is a separate step. A node that the device refuses runs on the CPU as its operation
    /// usually does.
    pub(super) fn is_routine(&self, ir: &Ir, node: Id) -> bool {
        match &self.0[node as usize] {
            Support::Fused => false,
            Support::Routine | Support::Body => true,
            Support::Unsupported(_) => Support::usual(&ir.node(node).op) != Support::Fused,
        }
    }

    /// Returns why the device refuses the node, or `None` if it does not.
    pub(super) fn refusal(&self, node: Id) -> Option<String> {
        match &self.0[node as usize] {
            Support::Unsupported(reason) => Some(reason.clone()),
            _ => None,
        }
    }
}
