//! Evaluates a graph, node by node.

use super::OracleArray;
use crate::{
    Error, Result,
    op::{check::check, ir::Ir},
};

/// Evaluates the outputs of a graph for these leaf values.
///
/// # Errors
/// For a graph that violates the rules of [`check`], leaves whose shapes or dtypes differ from the graph's, and an
/// index out of range.
pub fn evaluate(ir: &Ir, leaves: &[OracleArray]) -> Result<Vec<OracleArray>> {
    let nodes = evaluate_nodes(ir, leaves)?;
    Ok(ir.outputs.iter().map(|&id| nodes[id as usize].clone()).collect())
}

/// Evaluates every node of a graph, in order.
///
/// # Errors
/// As [`evaluate`].
pub fn evaluate_nodes(ir: &Ir, leaves: &[OracleArray]) -> Result<Vec<OracleArray>> {
    check(ir)?;
    if leaves.len() != ir.leaves.len() {
        let message = format!("got {} leaves for a graph with {}", leaves.len(), ir.leaves.len());
        return Err(Error::argument("oracle", message));
    }
    let mut nodes: Vec<OracleArray> = Vec::with_capacity(ir.nodes.len());
    let mut bound: Vec<Option<&OracleArray>> = vec![None; ir.nodes.len()];
    for (&id, leaf) in ir.leaves.iter().zip(leaves) {
        bound[id as usize] = Some(leaf);
    }
    for (node, leaf) in ir.nodes.iter().zip(bound) {
        let result = match leaf {
            Some(leaf) if leaf.dtype == node.dtype && leaf.shape == node.shape => leaf.clone(),
            Some(leaf) => {
                return Err(Error::shape(
                    "oracle",
                    &[&leaf.shape, &node.shape],
                    "a leaf differs from its node",
                ));
            }
            None => {
                let inputs: Vec<&OracleArray> = node.inputs.iter().map(|&i| &nodes[i as usize]).collect();
                OracleArray {
                    dtype: node.dtype,
                    shape: node.shape.clone(),
                    elements: node.op.operation().reference(node, &inputs)?,
                }
            }
        };
        nodes.push(result);
    }
    Ok(nodes)
}
