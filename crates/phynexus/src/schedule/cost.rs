//! What a node costs where it is computed inside a kernel rather than loaded.

use super::group::is_library;
use crate::graph::{
    ir::Ir,
    op::{Binary, Op, Unary},
};

/// A chain with at most this many loads and operations is computed again rather than stored.
const CHEAP_LOADS: u32 = 3;
const CHEAP_OPERATIONS: u32 = 6;

/// What a node costs where it is computed inline.
#[derive(Clone, Copy, Default)]
pub(super) struct Cost {
    /// Buffers read.
    pub(super) loads: u32,
    /// Functions computed, the slow ones counted as several.
    pub(super) operations: u32,
}

impl Cost {
    /// True if computing it again costs less than storing and loading it.
    pub(super) fn is_cheap(self) -> bool {
        self.loads <= CHEAP_LOADS && self.operations <= CHEAP_OPERATIONS
    }
}

/// What each node costs inline, counting what it would pull in with it.
pub(super) fn costs(ir: &Ir) -> Vec<Cost> {
    let mut costs: Vec<Cost> = Vec::with_capacity(ir.nodes.len());
    for node in &ir.nodes {
        let own = match node.op {
            Op::Constant(_) | Op::Iota { .. } => Cost::default(),
            Op::Buffer | Op::Reduce { .. } | Op::Contiguous => Cost { loads: 1, operations: 0 },
            ref op if is_library(op) => Cost { loads: 1, operations: 0 },
            ref op => {
                let operations = match op {
                    Op::Unary(
                        Unary::Neg | Unary::Abs | Unary::Not | Unary::IsNan | Unary::IsInf | Unary::Sign,
                    ) => 1,
                    Op::Unary(_)
                    | Op::Binary(Binary::Pow | Binary::Atan2 | Binary::FloorDiv | Binary::Remainder) => 4,
                    Op::Binary(_) | Op::Where | Op::Cast | Op::Bitcast | Op::Pad { .. } => 1,
                    _ => 0,
                };
                node.inputs.iter().fold(Cost { loads: 0, operations }, |sum, &i| Cost {
                    loads: sum.loads.saturating_add(costs[i as usize].loads),
                    operations: sum.operations.saturating_add(costs[i as usize].operations),
                })
            }
        };
        costs.push(own);
    }
    costs
}
