//! Counts handles to find the memory that pending nodes keep alive and the nodes that are still held.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::{Tensor, graph::node::Node, hash::FastMap};

/// A node with data that pending nodes read.
struct Kept {
    node: Arc<Node>,
    /// Handles held by pending nodes.
    handles: usize,
    /// True if only pending nodes hold it.
    is_exclusive: bool,
    /// The position of its gradient among the pending nodes.
    gradient: Option<usize>,
    /// True if a held node depends on it.
    is_live: bool,
    /// Bytes freed when it is dropped.
    bytes: usize,
}

/// The pending nodes of a thread, oldest first, with their sources.
pub(super) struct Survey<'a> {
    nodes: &'a [Arc<Node>],
    sources: Vec<SmallVec<[Source; 3]>>,
    kept: Vec<Kept>,
    /// For each node, whether it is held from outside the pending nodes by something other than garbage.
    held: Vec<bool>,
}

#[derive(Clone, Copy)]
enum Source {
    /// Position among the pending nodes.
    Pending(usize),
    /// Position among the nodes with data.
    Kept(usize),
}

impl Survey<'_> {
    /// `nodes` are in recording order. The caller holds exactly one handle to each.
    pub(super) fn of(nodes: &[Arc<Node>]) -> Survey<'_> {
        let position: FastMap<u64, usize> =
            nodes.iter().enumerate().map(|(at, node)| (node.number, at)).collect();
        let mut kept: Vec<Kept> = Vec::new();
        let mut known: FastMap<u64, usize> = FastMap::default();
        let mut handles = vec![0usize; nodes.len()];
        let mut sources = Vec::with_capacity(nodes.len());
        for node in nodes {
            let body = node.body();
            let mut own = SmallVec::new();
            for source in &body.sources {
                if let Some(&at) = position.get(&source.number) {
                    handles[at] += 1;
                    own.push(Source::Pending(at));
                } else if source.is_ready() {
                    let at = *known.entry(source.number).or_insert_with(|| {
                        kept.push(Kept::of(source.clone()));
                        kept.len() - 1
                    });
                    kept[at].handles += 1;
                    own.push(Source::Kept(at));
                }
            }
            drop(body);
            sources.push(own);
        }
        for kept in &mut kept {
            kept.is_exclusive = Arc::strong_count(&kept.node) == kept.handles + 1;
            let body = kept.node.body();
            let gradient = body.grad.as_ref().filter(|_| kept.is_exclusive);
            kept.gradient = gradient.and_then(|gradient| position.get(&gradient.node().number).copied());
        }
        let mut survey = Survey { nodes, sources, kept, held: Vec::new() };
        survey.find_held(&handles);
        survey.count_bytes();
        survey
    }

    /// A gradient that only its leaf holds is live if the leaf is live. The gradient may itself be what keeps the leaf
    /// alive.
    fn find_held(&mut self, handles: &[usize]) {
        let mut by_leaves = vec![0usize; self.nodes.len()];
        self.kept.iter().filter_map(|kept| kept.gradient).for_each(|at| by_leaves[at] += 1);
        let held = |at: usize, nobody: usize| Arc::strong_count(&self.nodes[at]) > 1 + handles[at] + nobody;
        let mut stack: Vec<usize> = (0..self.nodes.len()).filter(|&at| held(at, by_leaves[at])).collect();
        let mut live = vec![false; self.nodes.len()];
        let found: Vec<bool> = (0..self.nodes.len()).map(|at| held(at, 0)).collect();
        while let Some(at) = stack.pop() {
            if std::mem::replace(&mut live[at], true) {
                continue;
            }
            for source in &self.sources[at] {
                match *source {
                    Source::Pending(at) => stack.push(at),
                    Source::Kept(at) => {
                        self.kept[at].is_live = true;
                        stack.extend(self.kept[at].gradient);
                    }
                }
            }
        }
        self.held = found.into_iter().zip(live).map(|(held, live)| held && live).collect();
    }

    /// Memory is freed with the last of the nodes that share it.
    fn count_bytes(&mut self) {
        let mut shares: FastMap<usize, usize> = FastMap::default();
        let mut counted = Vec::new();
        for (at, kept) in self.kept.iter().enumerate().filter(|(_, kept)| kept.is_exclusive && kept.is_live) {
            if let Some(data) = kept.node.body().data.as_deref() {
                let owners = Arc::strong_count(&data.buffer.0);
                let found = shares.entry(Arc::as_ptr(&data.buffer.0).cast::<()>().addr()).or_default();
                *found += 1;
                if *found == owners {
                    counted.push((at, data.buffer.size()));
                }
            }
        }
        counted.into_iter().for_each(|(at, bytes)| self.kept[at].bytes = bytes);
    }

    /// Drops the gradients of leaves that only these gradients keep alive.
    pub(super) fn drop_garbage(&self) {
        for kept in self.kept.iter().filter(|kept| kept.gradient.is_some() && !kept.is_live) {
            let gradient = kept.node.body().grad.take();
            drop(gradient);
        }
    }

    /// Bytes that only pending nodes keep alive.
    pub(super) fn bytes(&self) -> usize {
        self.kept.iter().map(|kept| kept.bytes).sum()
    }

    /// Returns the held tensors among the `oldest` nodes, or all held tensors if there are none among those.
    pub(super) fn held(&self, oldest: usize) -> Vec<Tensor> {
        let oldest = oldest.min(self.nodes.len());
        let count =
            if self.held[..oldest].contains(&true) || oldest == 0 { oldest } else { self.nodes.len() };
        (0..count).filter(|&at| self.held[at]).map(|at| self.tensor(at)).collect()
    }

    /// Returns the held tensors that keep memory alive.
    pub(super) fn holding_memory(&self) -> Vec<Tensor> {
        let mut holds: Vec<bool> = Vec::with_capacity(self.nodes.len());
        for sources in &self.sources {
            let one = |source: &Source| match *source {
                Source::Pending(at) => holds.get(at).copied().unwrap_or(false),
                Source::Kept(at) => self.kept[at].bytes > 0,
            };
            holds.push(sources.iter().any(one));
        }
        (0..self.nodes.len()).filter(|&at| self.held[at] && holds[at]).map(|at| self.tensor(at)).collect()
    }

    fn tensor(&self, at: usize) -> Tensor {
        Tensor::from_node(self.nodes[at].clone())
    }
}

impl Kept {
    fn of(node: Arc<Node>) -> Kept {
        Kept { node, handles: 0, is_exclusive: false, gradient: None, is_live: false, bytes: 0 }
    }
}
