//! Shrinks failing cases.

use super::{Case, CaseLeaf};
use crate::oracle::{OracleArray, evaluate_nodes};

/// The smallest case found that still fails: one output, as early in the graph as possible, with as few operations as
/// possible. Operations that are not needed for the failure become leaves with their values.
pub fn shrink(case: &Case, fails: &mut dyn FnMut(&Case) -> bool) -> Case {
    let mut smallest = case.pruned();
    for id in 0..case.ir.nodes.len() as u32 {
        let mut candidate = case.clone();
        candidate.ir.outputs = vec![id];
        let candidate = candidate.pruned();
        if !candidate.ir.leaves.contains(&candidate.ir.outputs[0]) && fails(&candidate) {
            smallest = candidate;
            break;
        }
    }
    // If the failure needs several outputs, remove those that it does not need.
    let mut output = smallest.ir.outputs.len();
    while output > 0 && smallest.ir.outputs.len() > 1 {
        output -= 1;
        let mut candidate = smallest.clone();
        candidate.ir.outputs.remove(output);
        let candidate = candidate.pruned();
        if fails(&candidate) {
            smallest = candidate;
        }
    }
    // Later operations first: cutting one also removes the operations that only it needed.
    let mut id = smallest.ir.nodes.len();
    while id > 0 {
        id -= 1;
        if let Some(candidate) = cut(&smallest, id)
            && fails(&candidate)
        {
            id = id.min(candidate.ir.nodes.len());
            smallest = candidate;
        }
    }
    smallest
}

/// The case with one operation replaced by a leaf; `None` for leaves and outputs.
fn cut(case: &Case, id: usize) -> Option<Case> {
    if id >= case.ir.nodes.len()
        || case.ir.outputs.contains(&(id as u32))
        || case.ir.leaves.contains(&(id as u32))
    {
        return None;
    }
    let nodes = evaluate_nodes(&case.ir, &case.values()).ok()?;
    let known = &nodes[id];
    let values = OracleArray::from_bytes(&known.to_bytes(), known.dtype, &known.shape).ok()?;
    let mut result = Case::new(case.name.clone());
    let mut slots = case.leaves.iter();
    for (i, node) in case.ir.nodes.iter().enumerate() {
        if i == id {
            result.leaf(CaseLeaf::contiguous(values.clone()));
        } else if case.ir.leaves.contains(&(i as u32)) {
            result.leaf(slots.next()?.clone());
        } else {
            result.ir.push(node.op.clone(), node.dtype, node.shape.clone(), node.inputs.iter().copied());
        }
    }
    result.ir.outputs = case.ir.outputs.clone();
    Some(result.pruned())
}
