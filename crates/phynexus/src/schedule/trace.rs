//! A pending graph as plain data, for programs that write it to a file.

use std::sync::Arc;

use crate::{
    Error, Result, Tensor,
    graph::node::{Node, Signature, Sources},
    hash::FastMap,
    op::{
        Composite, Op,
        ir::{Id, Ir},
        term::Term,
    },
    shape::Dims,
};

/// A graph, and the tensors of its leaves in slot order.
#[derive(Debug)]
pub struct Traced {
    /// The operations. The first leaves are the inputs.
    pub ir: Ir,
    /// The inputs, then the other tensors that the graph reads, such as weights.
    pub leaves: Vec<Tensor>,
}

/// Returns the operations that lead from these inputs, and from tensors that are computed already, to the outputs.
/// Composites stay if `keeps` says so; of others, there are the operations of their bodies. Nothing is computed.
///
/// # Errors
/// If memory runs out.
pub fn trace(outputs: &[&Tensor], inputs: &[&Tensor], keeps: &dyn Fn(&Composite) -> bool) -> Result<Traced> {
    let mut traced = Traced { ir: Ir::default(), leaves: Vec::new() };
    let mut known: FastMap<*const Node, Id> = FastMap::default();
    let unvisited = || Error::internal("trace", "a node was not visited before its reader");
    // The bodies of composites, which nothing else holds.
    let mut bodies: Vec<Tensor> = Vec::new();
    for input in inputs {
        known.insert(Arc::as_ptr(input.node()), traced.leaf(input.node()));
    }
    for output in outputs {
        // Each frame: a node, the nodes that it needs, and how many of them were visited.
        let mut stack: Vec<(Arc<Node>, Sources, usize)> = Vec::new();
        let mut next = Some(output.node().clone());
        loop {
            if let Some(node) = next.take().filter(|node| !known.contains_key(&Arc::as_ptr(node))) {
                match node.op() {
                    _ if node.is_ready() => {
                        known.insert(Arc::as_ptr(&node), traced.leaf(&node));
                    }
                    Op::Composite(composite) if !keeps(composite) => {
                        let operands: Vec<Term> =
                            node.sources().iter().map(|s| Tensor::from_node(s.clone()).term()).collect();
                        let body = Tensor::from_term(&composite.body(&operands)?)?;
                        let sources = Sources::from_iter([body.node().clone()]);
                        bodies.push(body);
                        stack.push((node, sources, 0));
                    }
                    _ => {
                        let sources = node.sources();
                        stack.push((node, sources, 0));
                    }
                }
            }
            let Some((node, sources, visited)) = stack.last_mut() else { break };
            if let Some(source) = sources.get(*visited) {
                next = Some(source.clone());
                *visited += 1;
                continue;
            }
            let operands = sources.iter().map(|source| known.get(&Arc::as_ptr(source)).copied());
            let operands = operands.collect::<Option<Vec<Id>>>().ok_or_else(unvisited)?;
            let id = match (node.op(), &operands[..]) {
                (Op::Composite(composite), &[body]) if !keeps(composite) => body,
                (op, _) => {
                    let Signature { dtype, shape, .. } = &*node.signature;
                    traced.ir.push(op.clone(), *dtype, Dims::from_slice(shape), operands)
                }
            };
            known.insert(Arc::as_ptr(node), id);
            stack.pop();
        }
        traced.ir.outputs.push(known.get(&Arc::as_ptr(output.node())).copied().ok_or_else(unvisited)?);
    }
    Ok(traced)
}

impl Traced {
    fn leaf(&mut self, node: &Arc<Node>) -> Id {
        let tensor = Tensor::from_node(node.clone());
        let id = self.ir.push(Op::Buffer, tensor.dtype(), Dims::from_slice(tensor.shape()), []);
        self.leaves.push(tensor);
        id
    }
}
