//! From a pending graph to a plan, and from a plan to data.
//!
//! Evaluation walks what is pending behind the tensors asked for, in an order that only structure decides, and writes
//! it down as a key. A known key has its plan; else one is made. Every pending node that somebody outside still holds
//! is computed too, so nothing is ever computed twice because it was read in the wrong order.

mod build;
mod cache;
mod cost;
pub mod explain;
mod group;
pub mod plan;
pub mod profile;
pub mod step;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, atomic::Ordering};

use smallvec::SmallVec;

use crate::{
    Error, Result, Tensor,
    device::{Device, Storage},
    graph::{
        ir::{Id, Ir},
        node::{Node, Sources},
        op::Op,
    },
    shape::Layout,
};
pub use cache::plan_statistics;
use plan::{Leaf, Plan};

/// Guards the marks and claims of nodes: held while walking, never while planning or computing.
static CLAIMS: Mutex<u32> = Mutex::new(0);
static RELEASED: Condvar = Condvar::new();

fn claims() -> MutexGuard<'static, u32> {
    CLAIMS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Computes the data of these tensors.
pub(crate) fn evaluate(roots: &[&Tensor]) -> Result<()> {
    loop {
        let copies = {
            let mut epoch = claims();
            match walk(roots, &mut epoch)? {
                Walk::Done => return Ok(()),
                Walk::Busy => {
                    drop(RELEASED.wait(epoch).unwrap_or_else(PoisonError::into_inner));
                    continue;
                }
                Walk::Copies(copies) => copies,
                Walk::Claimed(pending) => {
                    drop(epoch);
                    return pending.compute();
                }
            }
        };
        // Data from other devices is brought over first; what is behind it is a graph of its own.
        for copy in copies {
            transfer(&copy)?;
        }
    }
}

/// Runs a copy between devices, through the host.
fn transfer(copy: &Arc<Node>) -> Result<()> {
    let Some(source) = copy.sources().first().cloned() else { return Ok(()) };
    let bytes = Tensor::from_node(source).to_bytes()?;
    let backend = copy.device.backend();
    let buffer = backend.allocate(bytes.len())?;
    backend.write(&buffer, 0, &bytes)?;
    copy.fulfil(Storage { buffer, layout: Layout::contiguous(&copy.signature.shape) });
    Ok(())
}

enum Walk {
    /// All the data is there.
    Done,
    /// Another thread is computing a node of this graph.
    Busy,
    /// These copies between devices must be run first.
    Copies(Vec<Arc<Node>>),
    /// The graph, its pending nodes marked as in flight.
    Claimed(Pending),
}

/// A pending graph: nodes in topological order with the positions of their operands.
#[derive(Default)]
struct Pending {
    nodes: Vec<Arc<Node>>,
    operands: Vec<SmallVec<[Id; 3]>>,
    /// Which nodes have their data.
    is_leaf: Vec<bool>,
    /// That data, in slot order.
    leaves: Vec<Storage>,
    /// Leaf slots whose memory may be taken over.
    donatable: Vec<bool>,
    outputs: Vec<Id>,
    key: Vec<u64>,
}

fn walk(roots: &[&Tensor], epoch: &mut u32) -> Result<Walk> {
    *epoch = epoch.wrapping_add(1).max(1);
    let mark = u64::from(*epoch) << 32;
    let visited = |node: &Node| {
        let seen = node.mark.load(Ordering::Relaxed);
        (seen & !0xffff_ffff == mark).then_some(seen as u32)
    };
    let mut pending = Pending::default();
    let mut copies = Vec::new();
    // Each frame: a node, its operands, and how many of them have been entered.
    let mut stack: Vec<(Arc<Node>, Sources, usize)> = Vec::new();
    let mut held: Vec<u32> = Vec::new();
    let mut enter = |node: &Arc<Node>, stack: &mut Vec<_>, pending: &mut Pending, held: &mut Vec<u32>| {
        let body = node.body();
        if body.in_flight {
            return Ok(false);
        }
        if let Some(data) = &body.data {
            let data = data.clone();
            drop(body);
            pending.add(node.clone(), SmallVec::new(), Some(data), mark);
            held.push(1);
        } else if body.sources.is_empty() && !matches!(node.op(), Op::Constant(_) | Op::Iota { .. }) {
            return Err(Error::internal(
                "evaluate",
                format!("a {} without data or operands", node.op().name()),
            ));
        } else {
            let sources = body.sources.clone();
            drop(body);
            if *node.op() == Op::Copy {
                copies.push(node.clone());
            }
            stack.push((node.clone(), sources, 0));
        }
        Ok(true)
    };
    for root in roots {
        if root.is_evaluated() || visited(root.node()).is_some() {
            continue;
        }
        if !enter(root.node(), &mut stack, &mut pending, &mut held)? {
            return Ok(Walk::Busy);
        }
        while let Some((node, sources, next)) = stack.last_mut() {
            // The operands of a copy live on another device and are not part of this graph.
            if *next < sources.len() && *node.op() != Op::Copy {
                let source = sources[*next].clone();
                *next += 1;
                if visited(&source).is_none() && !enter(&source, &mut stack, &mut pending, &mut held)? {
                    return Ok(Walk::Busy);
                }
                continue;
            }
            let Some((node, sources, _)) = stack.pop() else { break };
            if visited(&node).is_some() {
                continue;
            }
            let operands: SmallVec<[Id; 3]> = sources.iter().filter_map(|s| visited(s)).collect();
            operands.iter().for_each(|&o| held[o as usize] += 1);
            drop(sources);
            pending.add(node, operands, None, mark);
            held.push(1);
        }
    }
    if pending.nodes.is_empty() {
        return Ok(Walk::Done);
    }
    if !copies.is_empty() {
        return Ok(Walk::Copies(copies));
    }
    pending.finish(&held);
    let computed = pending.nodes.iter().zip(&pending.is_leaf).filter(|(_, leaf)| !**leaf);
    computed.for_each(|(node, _)| node.body().in_flight = true);
    Ok(Walk::Claimed(pending))
}

impl Pending {
    fn add(&mut self, node: Arc<Node>, operands: SmallVec<[Id; 3]>, data: Option<Storage>, mark: u64) {
        node.mark.store(mark | self.nodes.len() as u64, Ordering::Relaxed);
        self.nodes.push(node);
        self.operands.push(operands);
        self.is_leaf.push(data.is_some());
        self.leaves.extend(data);
    }

    /// Decides outputs and donations, and writes the key. `held` counts, for each node, the handles of this walk and
    /// of the graph's own edges: any more are somebody's.
    fn finish(&mut self, held: &[u32]) {
        // Operands of nodes that keep them for a gradient stay alive and must not be overwritten.
        let mut kept = vec![false; self.nodes.len()];
        for (node, operands) in self.nodes.iter().zip(&self.operands) {
            if node.keeps_sources() {
                operands.iter().for_each(|&o| kept[o as usize] = true);
            }
        }
        self.key.push(self.nodes[0].device.identity());
        let mut leaves = self.leaves.iter().peekable();
        for (i, node) in self.nodes.iter().enumerate() {
            let outside = kept[i] || Arc::strong_count(node) > held[i] as usize;
            self.key.push(node.signature.id << 1 | u64::from(outside));
            match leaves.next_if(|_| self.is_leaf[i]) {
                Some(data) => {
                    self.donatable.push(!outside);
                    let contiguous = data.layout.is_contiguous();
                    self.key.push(u64::from(contiguous));
                    if !contiguous {
                        self.key.extend(data.layout.strides.iter().map(|&s| s as u64));
                    }
                }
                None => {
                    if outside {
                        self.outputs.push(i as Id);
                    }
                    self.key.extend(self.operands[i].iter().map(|&o| u64::from(o)));
                }
            }
        }
    }

    fn ir(&self) -> Ir {
        let mut ir = Ir::default();
        for ((node, operands), &leaf) in self.nodes.iter().zip(&self.operands).zip(&self.is_leaf) {
            let op = if leaf { Op::Buffer } else { node.op().clone() };
            ir.push(op, node.signature.dtype, node.signature.shape.clone(), operands.iter().copied());
        }
        ir.outputs = self.outputs.clone();
        ir
    }

    fn compute(self) -> Result<()> {
        let claim = Claim(&self);
        let results = self.plan(self.nodes[0].device)?.run(&self.leaves)?;
        for (&output, storage) in self.outputs.iter().zip(results) {
            self.nodes[output as usize].fulfil(storage);
        }
        drop(claim);
        Ok(())
    }

    fn plan(&self, device: Device) -> Result<Arc<Plan>> {
        if let Some(plan) = cache::find(&self.key) {
            return Ok(plan);
        }
        let layouts = self.leaves.iter().map(|data| data.layout.clone());
        let leaves: Vec<Leaf> =
            layouts.zip(&self.donatable).map(|(layout, &donatable)| Leaf { layout, donatable }).collect();
        let plan = Arc::new(plan::plan(&self.ir(), &leaves, device)?);
        cache::insert(self.key.clone(), plan.clone());
        Ok(plan)
    }
}

/// Pending nodes claimed by this thread; given up when dropped, whatever happened.
struct Claim<'a>(&'a Pending);

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let guard = claims();
        let computed = self.0.nodes.iter().zip(&self.0.is_leaf).filter(|(_, leaf)| !**leaf);
        computed.for_each(|(node, _)| node.body().in_flight = false);
        drop(guard);
        RELEASED.notify_all();
    }
}

/// The plan by which a tensor's data would be computed, without computing it; `None` if the data is there.
pub fn explain(tensor: &Tensor) -> Result<Option<Arc<Plan>>> {
    let pending = {
        let mut epoch = claims();
        match walk(&[tensor], &mut epoch)? {
            Walk::Done => return Ok(None),
            Walk::Claimed(pending) => pending,
            Walk::Busy | Walk::Copies(_) => {
                let message =
                    "the tensor depends on work in flight or on another device: evaluate that first";
                return Err(Error::argument("explain", message));
            }
        }
    };
    let claim = Claim(&pending);
    let plan = pending.plan(pending.nodes[0].device);
    drop(claim);
    plan.map(Some)
}

/// Runs a graph on a device, with the leaves in slot order: how the conformance suite meets a device.
pub fn execute_ir(ir: &Ir, leaves: &[Tensor], device: Device) -> Result<Vec<Tensor>> {
    let data: Vec<Storage> = leaves.iter().map(Tensor::storage).collect::<Result<_>>()?;
    let described: Vec<Leaf> =
        data.iter().map(|d| Leaf { layout: d.layout.clone(), donatable: false }).collect();
    let results = plan::plan(ir, &described, device)?.run(&data)?;
    let outputs = ir.outputs.iter().zip(results);
    Ok(outputs.map(|(&o, storage)| Tensor::from_storage(device, ir.node(o).dtype, storage)).collect())
}

/// The graph between placeholders and a result recorded from them.
pub(crate) fn import_body(placeholders: &[Tensor], result: &Tensor) -> Result<Ir> {
    let mut ir = Ir::default();
    let mut ids: std::collections::HashMap<u64, Id> = std::collections::HashMap::new();
    for placeholder in placeholders {
        let id = ir.push(Op::Buffer, placeholder.dtype(), placeholder.shape().into(), []);
        ids.insert(placeholder.node().number, id);
    }
    // Numbers rise with creation, so sorting by them is a topological order.
    let mut nodes: Vec<Arc<Node>> = Vec::new();
    let mut stack = vec![result.node().clone()];
    let mut seen = std::collections::HashSet::new();
    while let Some(node) = stack.pop() {
        if ids.contains_key(&node.number) || !seen.insert(node.number) {
            continue;
        }
        if *node.op() == Op::Buffer {
            return Err(Error::internal("import_body", "a composite's body may not hold data of its own"));
        }
        stack.extend(node.sources());
        nodes.push(node);
    }
    nodes.sort_unstable_by_key(|n| n.number);
    for node in nodes {
        let inputs: SmallVec<[Id; 3]> = node.sources().iter().map(|s| ids[&s.number]).collect();
        let id = ir.push(node.op().clone(), node.signature.dtype, node.signature.shape.clone(), inputs);
        ids.insert(node.number, id);
    }
    ir.outputs.push(ids[&result.node().number]);
    Ok(ir)
}
