//! From a pending graph to a plan, and from a plan to data.
//!
//! Evaluation walks what is pending behind the tensors asked for, in an order that only structure decides, and writes
//! it down as a key. A known key has its plan; else one is made. Every pending node that somebody outside still holds
//! is computed too, so nothing is ever computed twice because it was read in the wrong order.

mod answers;
pub(crate) mod backlog;
mod build;
mod cache;
pub mod capture;
mod cost;
pub(crate) mod debug;
mod eager;
pub mod explain;
mod fork;
mod group;
mod layout;
mod memory_check;
mod order;
pub mod placement;
mod places;
pub mod plan;
mod record;
pub(crate) mod rewrite;
mod ruined;
#[cfg(test)]
mod tests;
mod walk;

use std::{
    collections::VecDeque,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use smallvec::SmallVec;

use crate::{
    Error, Result, Tensor,
    device::{Device, Storage},
    graph::node::Node,
    interrupt,
    op::ir::Ir,
    profile::{self, Phase},
    shape::Layout,
};
pub use cache::plan_statistics;
pub(crate) use eager::is_eager;
pub use eager::{EagerMode, eager};
pub use memory_check::set_memory_checks;
use plan::{Leaf, Plan};
pub(crate) use record::random_state;
use walk::{Pending, Privacy, Walk, Walker};

/// Guards the marks and claims of nodes: held while walking, never while planning or computing.
static CLAIMS: Mutex<u32> = Mutex::new(0);
static RELEASED: Condvar = Condvar::new();
/// How often claims were given up. It changes while [`CLAIMS`] is held.
static RELEASES: AtomicU64 = AtomicU64::new(0);

fn claims() -> MutexGuard<'static, u32> {
    CLAIMS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Computes the data of these tensors. The memory of `given`, if nobody else holds it, may be overwritten; the handles
/// are dropped on success, and on an error nothing was overwritten.
pub(crate) fn evaluate(roots: &[&Tensor], given: &mut Vec<Tensor>) -> Result<()> {
    let bytes = evaluate_roots(roots, given)?;
    given.clear();
    if bytes > 0 {
        backlog::note_evaluated(bytes);
    }
    Ok(())
}

/// As [`evaluate`], without regard to what else is pending: the bytes of the results.
fn evaluate_roots(roots: &[&Tensor], given: &[Tensor]) -> Result<usize> {
    let mut devices: SmallVec<[Device; 2]> = SmallVec::new();
    for root in roots.iter().filter(|root| !root.is_evaluated()) {
        if !devices.contains(&root.device()) {
            devices.push(root.device());
        }
    }
    if !devices.is_empty() {
        profile::end_recording();
        fork::check()?;
        capture::refuse_reading()?;
    }
    match devices[..] {
        [] => Ok(0),
        [_] => evaluate_graph(roots, given),
        // One graph a device. Nothing is overwritten: the first may succeed where the second fails.
        _ => devices.iter().try_fold(0usize, |bytes, &device| {
            let roots: Vec<&Tensor> = roots.iter().copied().filter(|r| r.device() == device).collect();
            Ok(bytes.saturating_add(evaluate_graph(&roots, &[])?))
        }),
    }
}

/// Waits until claims are given up that were not when there had been so many; for a moment only if the thread is watched.
fn wait_for_release(releases: u64) {
    let mut guard = claims();
    while RELEASES.load(Ordering::Relaxed) == releases {
        if interrupt::is_watched() {
            drop(RELEASED.wait_timeout(guard, interrupt::PATIENCE).unwrap_or_else(PoisonError::into_inner));
            return;
        }
        guard = RELEASED.wait(guard).unwrap_or_else(PoisonError::into_inner);
    }
}

fn evaluate_graph(roots: &[&Tensor], given: &[Tensor]) -> Result<usize> {
    let _phase = profile::phase(Phase::Evaluating);
    loop {
        // Declared before the lock is taken, so dropped after it is released.
        let mut walker = Walker::default();
        let mut epoch = claims();
        let copies = match walker.walk(roots, given, Privacy::Open, &mut epoch)? {
            Walk::Done => return Ok(0),
            Walk::Busy if interrupt::is_checking() => {
                let message =
                    "this tensor is being computed, perhaps by the computation that is being interrupted";
                return Err(Error::argument("evaluate", message));
            }
            Walk::Busy => {
                let releases = RELEASES.load(Ordering::Relaxed);
                drop(epoch);
                drop(walker);
                interrupt::wait(&mut || wait_for_release(releases));
                interrupt::check()?;
                continue;
            }
            Walk::Claimed(pending) => {
                drop(epoch);
                drop(walker);
                return pending.compute();
            }
            Walk::Copies(copies) => copies,
        };
        drop(epoch);
        drop(walker);
        // Data from other devices is brought over first; what is behind it is a graph of its own.
        for copy in copies {
            transfer(&copy)?;
        }
    }
}

/// Bytes of a copy through the host that are on their way at once, in so many parts.
const PART: usize = 4 << 20;
const PARTS: usize = 4;

/// Runs a copy between devices: from one to the other where they can, else through the host.
fn transfer(copy: &Arc<Node>) -> Result<()> {
    let Some(source) = copy.sources().first().cloned() else { return Ok(()) };
    let source = Tensor::from_node(source);
    let (data, offset, bytes) = source.data_in_rows()?;
    let backend = copy.device.backend();
    let buffer = backend.allocate(bytes)?;
    if bytes > 0 && !backend.copy_from(&buffer, &data, offset, bytes)? {
        let from = source.device().backend();
        let part = |at: usize| from.begin_read(&data, offset + at, PART.min(bytes - at));
        let mut under_way = VecDeque::new();
        let (mut begun, mut done) = (0, 0);
        while done < bytes {
            interrupt::check()?;
            while begun < bytes && under_way.len() < PARTS {
                under_way.push_back(part(begun)?);
                begun += PART.min(bytes - begun);
            }
            let Some(read) = under_way.pop_front() else { break };
            read.finish(&mut |part| {
                backend.write(&buffer, done, part)?;
                done += part.len();
                Ok(())
            })?;
        }
    }
    copy.fulfil(Storage { buffer, layout: Layout::contiguous(&copy.signature.shape) });
    Ok(())
}

impl Pending {
    /// The bytes of the results.
    fn compute(self) -> Result<usize> {
        let claim = Claim(&self);
        let (plan, is_new) = self.plan()?;
        let done = self.run(&plan);
        drop(claim);
        // Who holds a node is counted.
        drop(self);
        if is_new {
            placement::tell(&plan);
        }
        done
    }

    fn run(&self, plan: &Plan) -> Result<usize> {
        let results = plan.run(&self.leaves, &|_| true)?;
        if results.len() != self.outputs.len() {
            let (made, asked) = (results.len(), self.outputs.len());
            return Err(Error::internal("evaluate", format!("a plan made {made} results of {asked}")));
        }
        let mut bytes = 0usize;
        for (&output, storage) in self.outputs.iter().zip(results) {
            bytes = bytes.saturating_add(storage.buffer.size());
            self.nodes[output as usize].fulfil(storage);
        }
        Ok(bytes)
    }

    /// The plan, and whether it was made just now.
    fn plan(&self) -> Result<(Arc<Plan>, bool)> {
        if let Some(plan) = cache::find(&self.key) {
            return Ok((plan, false));
        }
        let layouts = self.leaves.iter().map(|data| data.layout.clone());
        let leaves: Vec<Leaf> =
            layouts.zip(&self.donatable).map(|(layout, &donatable)| Leaf { layout, donatable }).collect();
        let plan = Arc::new(plan::plan(&self.ir(), &leaves, self.device())?);
        cache::insert(self.key.clone(), plan.clone());
        Ok((plan, true))
    }
}

/// A plan that was made while nothing is claimed.
fn planned(ir: &Ir, leaves: &[Leaf], device: Device) -> Result<Plan> {
    let plan = plan::plan(ir, leaves, device)?;
    placement::tell(&plan);
    Ok(plan)
}

/// Pending nodes claimed by this thread; given up when dropped, whatever happened.
struct Claim<'a>(&'a Pending);

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let guard = claims();
        self.0.mark_in_flight(false);
        RELEASES.fetch_add(1, Ordering::Relaxed);
        drop(guard);
        RELEASED.notify_all();
    }
}

/// The plan by which a tensor's data would be computed, without computing it; `None` if the data is there.
pub fn explain(tensor: &Tensor) -> Result<Option<Arc<Plan>>> {
    let mut walker = Walker::default();
    let mut epoch = claims();
    let walk = walker.walk(&[tensor], &[], Privacy::Open, &mut epoch);
    drop(epoch);
    match walk? {
        Walk::Done => Ok(None),
        Walk::Claimed(pending) => {
            let claim = Claim(&pending);
            let planned = pending.plan();
            drop(claim);
            drop(pending);
            let (plan, is_new) = planned?;
            if is_new {
                placement::tell(&plan);
            }
            Ok(Some(plan))
        }
        Walk::Busy | Walk::Copies(_) => {
            let message = "the tensor depends on work in flight or on another device: evaluate that first";
            Err(Error::argument("explain", message))
        }
    }
}

/// Runs a graph on a device, with the leaves in slot order: how the conformance suite meets a device.
pub fn execute_ir(ir: &Ir, leaves: &[Tensor], device: Device) -> Result<Vec<Tensor>> {
    let data: Vec<Storage> = leaves.iter().map(Tensor::storage).collect::<Result<_>>()?;
    let described: Vec<Leaf> =
        data.iter().map(|d| Leaf { layout: d.layout.clone(), donatable: false }).collect();
    let results = planned(ir, &described, device)?.run(&data, &|_| false)?;
    let outputs = ir.outputs.iter().zip(results);
    Ok(outputs.map(|(&o, storage)| Tensor::from_storage(device, ir.node(o).dtype, storage)).collect())
}
