//! The rules of a well-formed graph.

use super::{
    Op,
    ir::{Id, Ir, IrNode},
    operation::{Check, need},
};
use crate::{Error, Result, text::show_shape};

/// Checks that inputs precede their users, and that the shape and dtype of every node match its op.
pub fn check(ir: &Ir) -> Result<()> {
    for (id, node) in ir.nodes.iter().enumerate() {
        let broken = |what: &str| {
            let message = format!(
                "node {id}, {} giving {} {}: {what}",
                node.op.name(),
                node.dtype,
                show_shape(&node.shape)
            );
            Error::internal("graph", message)
        };
        if node.inputs.iter().any(|&input| input as usize >= id) {
            return Err(broken("its inputs do not precede it"));
        }
        let inputs: Vec<&IrNode> = node.inputs.iter().map(|&input| ir.node(input)).collect();
        check_node(node, &inputs).map_err(broken)?;
    }
    let exists = |id: &Id| (*id as usize) < ir.nodes.len();
    if !ir.outputs.iter().chain(&ir.leaves).all(exists) {
        return Err(Error::internal("graph", "an output or a leaf is not a node"));
    }
    let leaf = |&id: &Id| ir.node(id).op == Op::Buffer;
    if !ir.leaves.iter().all(leaf)
        || ir.nodes.iter().filter(|n| n.op == Op::Buffer).count() != ir.leaves.len()
    {
        return Err(Error::internal("graph", "the leaves are not the buffers"));
    }
    Ok(())
}

/// Checks the shape and dtype of one node.
pub(super) fn check_node(node: &IrNode, inputs: &[&IrNode]) -> Check {
    let operation = node.op.operation();
    need(operation.operands().is_none_or(|count| count == inputs.len()), "wrong number of inputs")?;
    let mut dtypes = inputs.iter().map(|input| input.dtype).chain([node.dtype]);
    let computes = dtypes.any(|dtype| dtype.float8().is_some()) && !node.op.takes_float8();
    need(!computes, "computes with 8-bit floats")?;
    operation.check(node, inputs)
}
