//! Finds the pending graph of some tensors and encodes it as a key.

use std::{
    borrow::Cow,
    sync::{Arc, Weak, atomic::Ordering},
};

use smallvec::SmallVec;

use super::{
    placement,
    slots::{self, Numbers, Slots},
    turns::Turns,
};
use crate::{
    Error, Result, Tensor,
    device::{Device, Storage},
    graph::node::{Node, Signature, Sources, shared},
    op::{
        Op,
        ir::{Id, Ir},
    },
};

/// The outcome of a walk.
pub(super) enum Walk {
    /// All the data is ready.
    Done,
    /// Another thread is computing a node of this graph.
    Busy,
    /// These copies between devices must run first.
    Copies(Vec<Arc<Node>>),
    /// The graph, with its pending nodes marked as in flight.
    Claimed(Box<Pending>),
}

/// Whether code outside the walk may need the graph's inner nodes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Privacy {
    /// A later backward pass may need them, through nodes that keep their operands.
    Open,
    /// Only the holders of the roots.
    Private,
}

/// A pending graph: nodes in topological order, with the positions of their operands.
#[derive(Default)]
pub(super) struct Pending {
    pub(super) nodes: Vec<Arc<Node>>,
    operands: Vec<SmallVec<[Id; 3]>>,
    /// Whether each node has its data.
    is_leaf: Vec<bool>,
    /// The leaves' data, in slot order.
    pub(super) leaves: Vec<Storage>,
    /// For each leaf slot, whether its memory may be taken over.
    pub(super) donatable: Vec<bool>,
    pub(super) outputs: Vec<Id>,
    pub(super) key: Vec<u64>,
    /// The numbers that the key leaves out.
    pub(super) numbers: Numbers,
    turns: Turns,
}

/// Walks pending graphs. It must outlive the lock under which it is used, because it may drop the last handle to a
/// node's memory.
#[derive(Default)]
pub(super) struct Walker {
    pending: Pending,
    /// For each node, the handles of this walk and of the graph's own edges.
    held: Vec<u32>,
    /// Each frame: a node, its operands, and the number of operands already entered.
    stack: Vec<(Arc<Node>, Sources, usize)>,
    copies: Vec<Arc<Node>>,
    /// Nodes computed beside the visited ones, if still held.
    beside: Vec<Weak<Node>>,
    /// Nodes from `beside` that are not part of the walk. Kept here, since the walk may have the last handle.
    passed: Vec<Arc<Node>>,
    mark: u64,
}

impl Walker {
    /// Walks from the roots. Handles in `given` do not count as outside handles, so what only they hold may be
    /// overwritten. The caller holds the claims lock.
    pub(super) fn walk(
        &mut self,
        roots: &[&Tensor],
        given: &[Tensor],
        privacy: Privacy,
        epoch: &mut u32,
    ) -> Result<Walk> {
        *epoch = epoch.wrapping_add(1).max(1);
        self.mark = u64::from(*epoch) << 32;
        for root in roots {
            if root.is_evaluated() || self.visited(root.node()).is_some() {
                continue;
            }
            if !self.enter(root.node())? || !self.descend()? {
                return Ok(Walk::Busy);
            }
        }
        while let Some(node) = self.beside.pop() {
            let Some(node) = node.upgrade() else { continue };
            let is_here = self.pending.nodes.first().is_some_and(|first| first.device == node.device);
            if self.visited(&node).is_some() {
                continue;
            }
            if privacy != Privacy::Open || node.is_ready() || !is_here {
                self.passed.push(node);
                continue;
            }
            if !self.enter(&node)? || !self.descend()? {
                return Ok(Walk::Busy);
            }
        }
        if self.pending.nodes.is_empty() {
            return Ok(Walk::Done);
        }
        if !self.copies.is_empty() {
            return Ok(Walk::Copies(std::mem::take(&mut self.copies)));
        }
        for tensor in given {
            if let Some(position) = self.visited(tensor.node()) {
                self.held[position as usize] += 1;
            }
        }
        let asked: SmallVec<[Id; 4]> = roots.iter().filter_map(|root| self.visited(root.node())).collect();
        let mut pending = Box::new(std::mem::take(&mut self.pending));
        pending.finish(&self.held, &asked, privacy);
        pending.mark_in_flight(true);
        Ok(Walk::Claimed(pending))
    }

    /// Returns the position that this walk gave the node, if it visited it.
    fn visited(&self, node: &Node) -> Option<Id> {
        let seen = node.mark.load(Ordering::Relaxed);
        (seen & !0xffff_ffff == self.mark).then_some(seen as u32)
    }

    /// Adds a leaf, or pushes a pending node onto the stack. Returns false if another thread is computing it.
    fn enter(&mut self, node: &Arc<Node>) -> Result<bool> {
        if node.in_flight.load(Ordering::Relaxed) {
            return Ok(false);
        }
        let body = node.body();
        if let Some(data) = body.data.as_deref() {
            let data = data.clone();
            drop(body);
            self.add(node.clone(), SmallVec::new(), Some(data));
        } else if *node.op() == Op::Buffer {
            let message = "this tensor was computed from an argument of a function that was traced for a batch, and kept: \
                           return it instead";
            return Err(Error::argument("vmap", message));
        } else if body.sources.is_empty() && !matches!(node.op(), Op::Constant(_) | Op::Iota(_)) {
            let message = format!("{} has neither data nor operands", node.op().name());
            return Err(Error::internal("evaluate", message));
        } else {
            let sources = shared(&body.sources);
            self.beside.extend(body.beside.clone());
            drop(body);
            if *node.op() == Op::Copy {
                self.copies.push(node.clone());
            }
            self.stack.push((node.clone(), sources, 0));
        }
        Ok(true)
    }

    /// Processes the stack. Returns false if another thread is computing a node.
    fn descend(&mut self) -> Result<bool> {
        while let Some((node, sources, next)) = self.stack.last_mut() {
            // The operands of a copy are on another device and not part of this graph.
            if *next < sources.len() && *node.op() != Op::Copy {
                let source = sources[*next].clone();
                *next += 1;
                if self.visited(&source).is_none() && !self.enter(&source)? {
                    return Ok(false);
                }
                continue;
            }
            let Some((node, sources, _)) = self.stack.pop() else { break };
            if self.visited(&node).is_some() {
                continue;
            }
            let mut operands: SmallVec<[Id; 3]> = SmallVec::new();
            for source in &sources {
                if let Some(operand) = self.visited(source) {
                    self.held[operand as usize] += 1;
                    operands.push(operand);
                }
            }
            drop(sources);
            self.add(node, operands, None);
        }
        Ok(true)
    }

    fn add(&mut self, node: Arc<Node>, operands: SmallVec<[Id; 3]>, data: Option<Storage>) {
        let pending = &mut self.pending;
        node.mark.store(self.mark | pending.nodes.len() as u64, Ordering::Relaxed);
        pending.nodes.push(node);
        pending.operands.push(operands);
        pending.is_leaf.push(data.is_some());
        pending.leaves.extend(data);
        self.held.push(1);
    }
}

/// The device and the mode.
fn first_of_key(device: Device) -> u64 {
    device.identity() << 1 | u64::from(placement::is_strict())
}

impl Pending {
    /// Determines outputs and donations, and writes the key. `held` counts, for each node, the handles of the walk, the
    /// graph and `given`. Any more are outside handles. `asked` are the walk's roots.
    ///
    /// The key starts with the device and the mode. For each node follow a word (its signature's number, whether it is
    /// a leaf, whether it is kept or held outside), a count, and that many numbers. These are the positions of its
    /// operands, or the strides of a leaf that is not row-major. A collective's turn follows. Equal keys therefore mean
    /// equal graphs, except for numbers that may vary.
    fn finish(&mut self, held: &[u32], asked: &[Id], privacy: Privacy) {
        self.turns = Turns::of(&self.nodes, &self.operands, &self.is_leaf);
        // If a node keeps its operands for a gradient, its leaf operands stay alive and must not be overwritten. Of the
        // computed values, those that the gradient reads are kept; the rest can be recomputed from them.
        let mut kept = vec![false; self.nodes.len()];
        for (i, (node, operands)) in self.nodes.iter().zip(&self.operands).enumerate() {
            if self.is_leaf[i] || privacy == Privacy::Private || !node.keeps_sources() {
                continue;
            }
            let reads = node.op().operation().gradient_reads();
            kept[i] |= reads.result;
            for (position, &operand) in operands.iter().enumerate() {
                let needs = |other: usize| self.nodes[operands[other] as usize].requires_grad;
                kept[operand as usize] |= self.is_leaf[operand as usize] || reads.operand(position, needs);
            }
        }
        self.turns.keep_operands(&self.operands, &self.is_leaf, &mut kept);
        // Pending constants are inlined into their readers.
        for (i, node) in self.nodes.iter().enumerate().filter(|(i, _)| !self.is_leaf[*i]) {
            kept[i] &= !matches!(node.op(), Op::Constant(_) | Op::Iota(_));
        }
        self.key.push(first_of_key(self.device()));
        let mut leaves = self.leaves.iter().peekable();
        for (i, node) in self.nodes.iter().enumerate() {
            let outside = match self.turns.is_repeated(i) {
                true => asked.contains(&(i as Id)),
                false => kept[i] || Arc::strong_count(node) > held[i] as usize,
            };
            let operands = &self.operands[i];
            let word = node.signature.id << 2 | u64::from(outside);
            match leaves.next_if(|_| self.is_leaf[i]) {
                Some(data) => {
                    self.donatable.push(!outside);
                    // A leaf's count is the number of its strides, or 0 if it is row-major.
                    let strides =
                        if data.layout.is_contiguous() { &[][..] } else { &data.layout.strides[..] };
                    self.key.extend([word | 2, strides.len() as u64]);
                    self.key.extend(strides.iter().map(|&s| s as u64));
                }
                None => {
                    let number = node.signature.number();
                    self.numbers.extend(number.map(|number| (node.signature.dtype, number)));
                    if outside {
                        self.outputs.push(i as Id);
                    }
                    self.key.extend([word, operands.len() as u64]);
                    self.key.extend(operands.iter().map(|&o| u64::from(o)));
                    self.key.extend(self.turns.places.get(&(i as Id)).map(|&place| u64::from(place)));
                }
            }
        }
    }

    /// Returns the key as if the graph were on this device.
    pub(super) fn key_for(&self, device: Device) -> Cow<'_, [u64]> {
        let mut key = Cow::Borrowed(&self.key[..]);
        if device != self.device() {
            key.to_mut()[0] = first_of_key(device);
        }
        key
    }

    /// Returns the graph as plain data. The leaves of the slots come before the graph's own.
    pub(super) fn ir(&self, slots: &Slots) -> Ir {
        let mut ir = Ir::default();
        let mut places = slots.declare(&mut ir).into_iter();
        let mut renamed: Vec<Id> = Vec::with_capacity(self.nodes.len());
        let nodes = self.nodes.iter().zip(&self.operands).zip(&self.is_leaf);
        for (position, ((node, operands), &leaf)) in nodes.enumerate() {
            let Signature { dtype, shape, .. } = &*node.signature;
            let varies = !leaf && node.signature.number().is_some();
            let slot = if varies { places.next().flatten() } else { None };
            renamed.push(match slot {
                Some(slot) => slots::filled(&mut ir, slot, *dtype, shape),
                None => {
                    let mut op = if leaf { Op::Buffer } else { node.op().clone() };
                    if let Op::Collective(collective) = &mut op {
                        collective.turn = self.turns.places.get(&(position as Id)).copied().unwrap_or(0);
                    }
                    let operands = operands.iter().map(|&operand| renamed[operand as usize]);
                    ir.push(op, *dtype, shape.clone(), operands)
                }
            });
        }
        ir.outputs = self.outputs.iter().map(|&output| renamed[output as usize]).collect();
        ir
    }

    /// Returns whether the node at this position is `node`.
    pub(super) fn is(&self, position: Id, node: &Arc<Node>) -> bool {
        Arc::ptr_eq(&self.nodes[position as usize], node)
    }

    /// Returns the node's index among the outputs.
    pub(super) fn output(&self, node: &Arc<Node>) -> Option<usize> {
        self.outputs.iter().position(|&output| self.is(output, node))
    }

    /// The device of the graph.
    pub(super) fn device(&self) -> Device {
        self.nodes[0].device
    }

    /// Sets or clears the in-flight mark of the pending nodes. The caller holds the claims lock.
    pub(super) fn mark_in_flight(&self, in_flight: bool) {
        let computed = self.nodes.iter().zip(&self.is_leaf).filter(|(_, leaf)| !**leaf);
        computed.for_each(|(node, _)| node.in_flight.store(in_flight, Ordering::Relaxed));
    }
}
