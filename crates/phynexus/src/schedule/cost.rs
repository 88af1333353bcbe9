//! What a node costs where it is computed inside a kernel rather than loaded.

use smallvec::SmallVec;

use super::answers::Answers;
use crate::op::{
    Binary, Class, Op,
    ir::{Id, Ir},
};

/// A chain with at most this many loads and operations is computed again rather than stored.
const CHEAP_LOADS: usize = 3;
const CHEAP_OPERATIONS: u32 = 6;
/// As [`CHEAP_OPERATIONS`], for a chain of one load that two kernels need: computing it twice takes no longer than to
/// store and load it.
const SHORT_OPERATIONS: u32 = 16;
/// An operand repeated so many times counts for nothing: it stays in cache.
const REPEATED: usize = 16;

/// What a node costs where it is computed inline.
#[derive(Clone, Default)]
pub(super) struct Cost {
    /// Large buffers read, each once; no more than tell that they are too many.
    loads: SmallVec<[Id; 4]>,
    /// Functions computed, the slow ones counted as several.
    pub(super) operations: u32,
}

impl Cost {
    /// True if computing it in several kernels costs less than storing and loading it.
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

/// What each node costs inline, counting what it would pull in with it.
pub(super) fn costs(ir: &Ir, answers: &Answers) -> Vec<Cost> {
    let mut costs: Vec<Cost> = Vec::with_capacity(ir.nodes.len());
    for (id, node) in ir.nodes.iter().enumerate() {
        let own = match node.op {
            Op::Constant(_) | Op::Iota { .. } => Cost::default(),
            Op::Buffer | Op::Reduce { .. } | Op::Contiguous => Cost::loading(id as Id),
            _ if answers.is_routine(ir, id as Id) => Cost::loading(id as Id),
            ref op => {
                let operations = match op {
                    Op::Unary(op)
                        if matches!(op.row().class, Class::numbers | Class::bits | Class::tests) =>
                    {
                        1
                    }
                    Op::Unary(_)
                    | Op::Binary(Binary::Pow | Binary::Atan2 | Binary::FloorDiv | Binary::Remainder) => 4,
                    Op::Binary(_) | Op::Where | Op::Cast | Op::Bitcast | Op::Pad { .. } => 1,
                    _ => 0,
                };
                let mut cost = Cost { operations, ..Cost::default() };
                node.inputs.iter().for_each(|&input| cost.add(&costs[input as usize]));
                let parameter = || {
                    let mut input = ir.node(node.inputs[0]);
                    while input.op.is_view() {
                        input = ir.node(input.inputs[0]);
                    }
                    input.op == Op::Buffer && input.len().saturating_mul(REPEATED) <= node.len()
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
