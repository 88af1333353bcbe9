//! The cost of recomputing a node inside a kernel instead of loading it.

use smallvec::SmallVec;

use super::answers::Answers;
use crate::{
    DType,
    op::{
        Binary, Class, Op,
        ir::{Id, Ir, IrNode},
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
/// So do this many elements that are computed, such as statistics of channels: what takes long for them is stored.
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
    /// Returns whether computing a node of this cost in several kernels is cheaper than storing and loading it.
    pub(super) fn is_cheap(&self, ir: &Ir, node: &IrNode, kernels: usize) -> bool {
        let loads = self.loads.len();
        let is_short = loads <= CHEAP_LOADS && self.operations <= CHEAP_OPERATIONS
            || loads <= 1 && kernels <= 2 && self.operations <= SHORT_OPERATIONS;
        // One kernel computes it in either case; the others load what it follows from, or it is stored and loaded.
        let bytes = self.loads.iter().fold(0usize, |sum, &load| sum.saturating_add(ir.node(load).bytes()));
        let others = bytes.saturating_mul(kernels - 1);
        is_short && others <= node.bytes().saturating_mul(kernels + 1)
    }

    /// Returns whether it loads nothing that does not stay in cache, and computes nothing.
    pub(super) fn is_free(&self) -> bool {
        self.loads.is_empty() && self.operations == 0
    }

    /// Returns whether it is that of loading this node.
    pub(super) fn is_load_of(&self, id: Id) -> bool {
        self.loads.as_slice() == [id] && self.operations == 0
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

/// Returns which nodes get a buffer because a routine reads them.
fn read_by_routines(ir: &Ir, answers: &Answers) -> Vec<bool> {
    let mut read = vec![false; ir.nodes.len()];
    for id in (0..ir.nodes.len()).rev() {
        let node = &ir.nodes[id];
        if read[id] && node.op.is_view() || answers.is_routine(ir, id as Id) {
            node.inputs.iter().for_each(|&input| read[input as usize] = true);
        }
    }
    read
}

/// Returns each node's inline cost, including the nodes that it pulls in.
pub(super) fn costs(ir: &Ir, answers: &Answers) -> Vec<Cost> {
    let read = read_by_routines(ir, answers);
    let mut costs: Vec<Cost> = Vec::with_capacity(ir.nodes.len());
    for (id, node) in ir.nodes.iter().enumerate() {
        let own = match node.op {
            Op::Constant(_) | Op::Iota(_) => Cost::default(),
            Op::Buffer | Op::Reduce(_) | Op::Contiguous => Cost::loading(id as Id),
            _ if read[id] || answers.is_routine(ir, id as Id) => Cost::loading(id as Id),
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
                    Op::Binary(Binary::Div) => 3,
                    Op::Composite(_) => 8,
                    Op::Binary(_) | Op::Where | Op::Cast | Op::Bitcast | Op::Pad(_) => 1,
                    _ => 0,
                };
                let parameter = || {
                    let mut input = ir.node(node.inputs[0]);
                    let few = input.len() <= FEW;
                    while input.op.is_view() || input.op == Op::Cast {
                        input = ir.node(input.inputs[0]);
                    }
                    (input.op == Op::Buffer || few) && input.len().saturating_mul(REPEATED) <= node.len()
                };
                let mut cost = Cost { operations, ..Cost::default() };
                if *op != Op::Expand || !parameter() {
                    node.inputs.iter().for_each(|&input| cost.add(&costs[input as usize]));
                }
                cost
            }
        };
        costs.push(own);
    }
    costs
}
