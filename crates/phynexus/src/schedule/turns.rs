//! The order of a graph's collectives, which must be the same on every rank, and which of them are repeated.
//!
//! Ranks may compute other things beside the same collectives, so the order does not depend on the graph's form: it is the
//! order in which the program recorded them. A repeated collective has no data: each plan that reads it runs it again, and
//! counts it as recorded just before its first reader. Plans run a repeated collective before the first reader of the
//! one before it, so that it can run beside that one's readers.

use std::{cell::Cell, sync::Arc};

use smallvec::SmallVec;

use crate::{
    graph::node::Node,
    hash::FastMap,
    op::{Collective, Op, ir::Id},
};

thread_local! {
    static RECORDED: Cell<u64> = const { Cell::new(0) };
}

/// The number of collectives that this thread has recorded.
pub(crate) fn recorded() -> u64 {
    RECORDED.get()
}

/// Counts an operation that is recorded, if it is a collective.
pub(super) fn note_recorded(op: &Op) {
    if matches!(op, Op::Collective(_)) {
        RECORDED.set(RECORDED.get() + 1);
    }
}

/// What a walk needs to know of the collectives that it met.
#[derive(Default)]
pub(super) struct Turns {
    /// The place of each collective in the order.
    pub(super) places: FastMap<Id, u32>,
    /// The repeated collective of which each node is a copy, if it is one; empty without any.
    sources: Vec<Option<Id>>,
}

impl Turns {
    /// Orders the collectives among these pending nodes. `operands` are the positions of each node's operands.
    pub(super) fn of(nodes: &[Arc<Node>], operands: &[SmallVec<[Id; 3]>], is_leaf: &[bool]) -> Turns {
        let collective = |position: usize| match nodes[position].op() {
            Op::Collective(collective) if !is_leaf[position] => Some(collective),
            _ => None,
        };
        let found: SmallVec<[(Id, &Collective); 8]> =
            (0..nodes.len()).filter_map(|at| Some((at as Id, collective(at)?))).collect();
        if found.is_empty() {
            return Turns::default();
        }
        let mut sources: Vec<Option<Id>> = Vec::new();
        // When a repeated collective is first read.
        let mut first_read: FastMap<Id, u64> = FastMap::default();
        if found.iter().any(|(_, collective)| collective.is_repeated()) {
            for (at, node) in nodes.iter().enumerate() {
                let read = operands[at].iter().find_map(|&operand| sources[operand as usize]);
                let source = match read {
                    _ if collective(at).is_some_and(Collective::is_repeated) => Some(at as Id),
                    Some(_) if copies(node, &operands[at], &sources, nodes) => read,
                    Some(source) => {
                        let first = first_read.entry(source).or_insert(node.number);
                        *first = node.number.min(*first);
                        None
                    }
                    None => None,
                };
                sources.push(source.filter(|_| !is_leaf[at]));
            }
        }
        let mut ordered: Vec<(u64, bool, Id)> = (found.iter())
            .map(|&(at, _)| (*first_read.get(&at).unwrap_or(&nodes[at as usize].number), false, at))
            .collect();
        ordered.sort_unstable();
        let mut before: Option<u64> = None;
        for (number, follows, at) in &mut ordered {
            if sources.get(*at as usize).is_some_and(Option::is_some) {
                let own = before.replace(*number);
                if let Some(own) = own {
                    (*number, *follows) = (own, true);
                }
            }
        }
        ordered.sort_unstable();
        let places = ordered.into_iter().enumerate().map(|(place, (.., at))| (at, place as u32)).collect();
        Turns { places, sources }
    }

    /// Marks the leaves that later runs of repeated collectives read.
    pub(super) fn keep_operands(&self, operands: &[SmallVec<[Id; 3]>], is_leaf: &[bool], kept: &mut [bool]) {
        let mut is_read = vec![false; self.sources.len()];
        for at in (0..self.sources.len()).rev() {
            if self.is_repeated(at) || is_read[at] {
                operands[at].iter().for_each(|&operand| is_read[operand as usize] = true);
            }
            kept[at] |= is_read[at] && is_leaf[at];
        }
    }

    /// Whether the node is a repeated collective, or a copy of one's result: it is computed wherever it is read.
    pub(super) fn is_repeated(&self, position: usize) -> bool {
        self.sources.get(position).is_some_and(Option::is_some)
    }
}

/// Whether a node is a view of what it reads, or the same elements up to single numbers: in another dtype, for example.
fn copies(node: &Node, operands: &[Id], sources: &[Option<Id>], nodes: &[Arc<Node>]) -> bool {
    let is_one = |operand: Id| nodes[operand as usize].signature.shape.iter().all(|&extent| extent == 1);
    let reads = |operand: &Id| sources[*operand as usize].is_some() || is_one(*operand);
    (node.op().is_view() || node.op().is_elementwise()) && operands.iter().all(reads)
}
