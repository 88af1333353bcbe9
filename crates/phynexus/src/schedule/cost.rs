//! The cost of recomputing a node inside a kernel instead of loading it.

use smallvec::SmallVec;

use super::answers::Answers;
use crate::{
    DType,
    op::{
        Class, Op,
        ir::{Id, Ir},
    },
};

/// A chain with at most this many loads and operations is recomputed rather than stored.
const CHEAP_LOADS: usize = 3;
const CHEAP_OPERATIONS: u32 = 6;
/// The limit that replaces [`CHEAP_OPERATIONS`] for a chain of one load that two kernels need. Computing it twice is as
/// fast as storing and loading it.
const SHORT_OPERATIONS: u32 = 16;
/// A parameter that is broadcast at least this many times counts as free: it stays in cache.
const REPEATED: usize = 16;
/// So do this many elements that are computed, such as statistics of channels.
const FEW: usize = 4096;

/// The cost of computing a node inline.
#[derive(Clone, Default)]
pub(super) struct Cost {
    /// Distinct large buffers read. Collection stops once there are too many.
    loads: SmallVec<[Id; 4]>,
    /// Functions computed. Slow ones count more than once.
    pub(super) operations: u32,
}

impl Cost {
    /// Returns whether computing it in this many kernels is cheaper than storing and loading it.
    pub(super) fn is_cheap(&self, kernels: usize) -> bool {
        let loads = self.loads.len();
        loads <= CHEAP_LOADS && self.operations <= CHEAP_OPERATIONS
            || loads <= 1 && kernels <= 2 && self.operations <= SHORT_OPERATIONS
    }

    fn loading(id: Id) -> Cost {
        Cost { loads: SmallVec::from_slice(&[id]), operations: 0 }
    }

    fn add(&mut self, other: &Cost) {
        self.operations = self.operations.saturating_add(other.operations);
        for &load in &other.loads {
            if self.loads.len() <= CHEAP_LOADS && !self.loads.contains(&load) {
                self.loads.push(load);
            }
        }
    }
}

/// Returns each node's inline cost, including the nodes that it pulls in.
pub(super) fn costs(ir: &Ir, answers: &Answers) -> Vec<Cost> {
    let mut costs: Vec<Cost> = Vec::with_capacity(ir.nodes.len());
    for (id, node) in ir.nodes.iter().enumerate() {
        let own = match node.op {
            Op::Constant(_) | Op::Iota(_) => Cost::default(),
            Op::Buffer | Op::Reduce(_) | Op::Contiguous => Cost::loading(id as Id),
            _ if answers.is_routine(ir, id as Id) => Cost::loading(id as Id),
            ref op => {
                let from = node.inputs.first().map(|&input| ir.node(input).dtype);
                let operations = match op {
                    // Rounding and widening are nearly free, and beside 16-bit floats they are everywhere.
                    Op::Cast if node.dtype.is_float() && from.is_some_and(DType::is_float) => 0,
                    Op::Unary(op)
                        if matches!(op.row().class, Class::numbers | Class::bits | Class::tests) =>
                    {
                        1
                    }
                    Op::Unary(_) => 4,
                    Op::Binary(op) if op.row().slow => 4,
                    Op::Composite(_) => 8,
                    Op::Binary(_) | Op::Where | Op::Cast | Op::Bitcast | Op::Pad(_) => 1,
                    _ => 0,
                };
                let mut cost = Cost { operations, ..Cost::default() };
                node.inputs.iter().for_each(|&input| cost.add(&costs[input as usize]));
                let parameter = || {
                    let mut input = ir.node(node.inputs[0]);
                    let few = input.len() <= FEW;
                    while input.op.is_view() || input.op == Op::Cast {
                        input = ir.node(input.inputs[0]);
                    }
                    (input.op == Op::Buffer || few) && input.len().saturating_mul(REPEATED) <= node.len()
                };
                if *op == Op::Expand && parameter() {
                    cost.loads.clear();
                }
                cost
            }
        };
        costs.push(own);
    }
    costs
}
