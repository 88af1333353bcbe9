//! Turns a pending graph into a plan, and runs plans.
//!
//! Evaluation walks the pending graph of the requested tensors, in an order that depends only on its structure, and
//! encodes it as a key. If the key is cached, its plan is reused; otherwise a new plan is made. Every pending node in
//! the graph that is still held elsewhere is computed too, so the order of reads never causes recomputation.

mod advice;
mod allocations;
mod answers;
pub(crate) mod backlog;
pub mod batching;
mod build;
mod cache;
pub mod capture;
mod channels_last;
mod compile;
mod cost;
pub(crate) mod debug;
mod eager;
pub mod explain;
mod fork;
mod group;
mod in_place;
mod layout;
mod memory_check;
mod order;
pub mod placement;
pub mod plan;
mod record;
pub mod recovery;
pub(crate) mod rewrite;
mod ruined;
mod slots;
mod submission;
#[cfg(test)]
mod tests;
pub mod trace;
pub(crate) mod turns;
mod walk;

use std::{
    cell::Cell,
    collections::VecDeque,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use smallvec::SmallVec;

use crate::{
    Error, Result, Tensor,
    device::{Buffer, Device, Storage},
    graph::node::Node,
    host_memory, interrupt,
    op::ir::Ir,
    profile::{self, Phase},
    shape::Layout,
};
pub use cache::plan_statistics;
pub(crate) use eager::is_eager;
pub use eager::{EagerMode, eager};
pub use memory_check::set_memory_checks;
use plan::{Leaf, Plan};
pub(crate) use record::{prepare_custom, random_state};
use slots::Slots;
use walk::{Pending, Privacy, Walk, Walker};

/// Guards the marks and claims of nodes. Held while walking, never while planning or computing.
static CLAIMS: Mutex<u32> = Mutex::new(0);
static RELEASED: Condvar = Condvar::new();
/// Counts released claims. It changes only while [`CLAIMS`] is held.
static RELEASES: AtomicU64 = AtomicU64::new(0);

fn claims() -> MutexGuard<'static, u32> {
    CLAIMS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Computes the data of these tensors. Memory that only `given` holds may be overwritten. On success the handles are
/// dropped; on an error nothing was overwritten.
pub(crate) fn evaluate(roots: &[&Tensor], given: &mut Vec<Tensor>) -> Result<()> {
    let bytes = evaluate_roots(roots, given)?;
    given.clear();
    if bytes > 0 {
        backlog::note_evaluated(bytes);
    }
    Ok(())
}

/// Like [`evaluate`], but leaves the backlog alone. Returns the bytes of the results.
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
        // One graph per device. Nothing is overwritten, because an earlier graph may succeed and a later one fail.
        _ => devices.iter().try_fold(0usize, |bytes, &device| {
            let roots: Vec<&Tensor> = roots.iter().copied().filter(|r| r.device() == device).collect();
            Ok(bytes.saturating_add(evaluate_graph(&roots, &[])?))
        }),
    }
}

/// Waits until the release counter differs from `releases`. On a watched thread, waits only briefly.
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
        // Declared before the lock is taken, so they are dropped after it is released.
        let mut walker = Walker::default();
        let mut epoch = claims();
        let copies = match walker.walk(roots, given, Privacy::Open, &mut epoch)? {
            Walk::Done => return Ok(0),
            Walk::Busy if interrupt::is_checking() => {
                let message = "this tensor is being computed, possibly by the computation being interrupted";
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
        // Transfers data from other devices first. The source of each copy is evaluated as a separate graph.
        for copy in copies {
            transfer(&copy)?;
        }
    }
}

/// A copy through the host moves parts of `PART` bytes and keeps up to `PARTS` of them in flight.
const PART: usize = 4 << 20;
const PARTS: usize = 4;

/// Copies between devices: directly if they support it, otherwise through the host.
fn transfer(copy: &Arc<Node>) -> Result<()> {
    let Some(source) = copy.sources().first().cloned() else { return Ok(()) };
    let source = Tensor::from_node(source);
    let (data, offset, bytes) = source.data_in_rows()?;
    let buffer = match transferred(copy.device, source.device(), (&data, offset, bytes)) {
        Err(error) if recovery::applies(copy.device, &error) => {
            let mut contents = host_memory::filled(0, bytes)?;
            let read = source.device().backend().read(&data, offset, &mut contents);
            read.and_then(|()| recovery::upload(copy.device, &contents)).map_err(|_| error)?
        }
        other => other?,
    };
    copy.fulfil(Storage { buffer, layout: Layout::contiguous(&copy.signature.shape) });
    Ok(())
}

/// Returns new memory of a device with a copy of bytes of another one.
fn transferred(
    device: Device,
    source: Device,
    (data, offset, bytes): (&Buffer, usize, usize),
) -> Result<Buffer> {
    let backend = device.backend();
    let buffer = backend.allocate(bytes)?;
    if bytes > 0 && !backend.copy_from(&buffer, data, offset, bytes)? {
        let from = source.backend();
        let part = |at: usize| from.begin_read(data, offset + at, PART.min(bytes - at));
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
    Ok(buffer)
}

impl Pending {
    /// Returns the bytes of the results.
    fn compute(self) -> Result<usize> {
        let claim = Claim(&self);
        let planned = self.plan(self.device());
        let begun = Cell::new(false);
        let done = match &planned {
            Ok((plan, _)) => self.run(plan, &begun).map(|results| (results, None)),
            Err(error) => Err(error.clone()),
        };
        // What a plan has begun to overwrite cannot be read again.
        let done = done.or_else(|error| match begun.get() {
            false => self.recover(error).map(|(results, placement)| (results, Some(placement))),
            true => Err(error),
        });
        let done = done.and_then(|(results, placement)| Ok((self.fulfil(results)?, placement)));
        drop(claim);
        // Other evaluations count the handles of these nodes.
        drop(self);
        if let Ok((plan, true)) = planned {
            placement::tell(&plan);
        }
        let (bytes, recovered) = done?;
        placement::tell_all(recovered.iter());
        Ok(bytes)
    }

    fn run(&self, plan: &Plan, begun: &Cell<bool>) -> Result<Vec<Storage>> {
        let slots = plan.slots.upload(&self.numbers, self.device())?;
        let leaves: Vec<&Storage> = slots.iter().chain(&self.leaves).collect();
        plan.run(&leaves, &|_| true, begun)
    }

    /// Stores the results in their nodes. Returns their bytes.
    fn fulfil(&self, results: Vec<Storage>) -> Result<usize> {
        if results.len() != self.outputs.len() {
            let (made, asked) = (results.len(), self.outputs.len());
            return Err(Error::internal(
                "evaluate",
                format!("expected {asked} results, the plan made {made}"),
            ));
        }
        let mut bytes = 0usize;
        for (&output, storage) in self.outputs.iter().zip(results) {
            bytes = bytes.saturating_add(storage.buffer.size());
            self.nodes[output as usize].fulfil(storage);
        }
        Ok(bytes)
    }

    /// Returns the plan for a device, and whether it is new.
    fn plan(&self, device: Device) -> Result<(Arc<Plan>, bool)> {
        let key = self.key_for(device);
        let slots = match cache::find(device, &key, &self.numbers) {
            Some((plan, true)) => return Ok((plan, false)),
            Some((plan, false)) => plan.slots.widened(&self.numbers),
            None => Slots::none(&self.numbers),
        };
        let own = self.leaves.iter().map(|data| data.layout.clone()).zip(self.donatable.iter().copied());
        let leaves = slots.layouts().map(|layout| (layout, false)).chain(own);
        let leaves: Vec<Leaf> = leaves.map(|(layout, donatable)| Leaf { layout, donatable }).collect();
        let plan = Arc::new(plan::plan(self.ir(&slots), &leaves, slots, device)?);
        cache::insert(device, key.into_owned(), plan.clone());
        Ok((plan, true))
    }
}

/// Makes a plan while nothing is claimed.
fn planned(ir: &Ir, leaves: &[Leaf], device: Device) -> Result<Plan> {
    let plan = plan::plan(ir.clone(), leaves, Slots::default(), device)?;
    placement::tell(&plan);
    Ok(plan)
}

/// Pending nodes claimed by this thread. The claim is released on drop, even on an error.
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

/// Returns the plan that would compute a tensor's data, without running it; `None` if the data is ready.
///
/// # Errors
/// [`Error::Argument`] if the tensor depends on work in flight or on data from another device.
pub fn explain(tensor: &Tensor) -> Result<Option<Arc<Plan>>> {
    let mut walker = Walker::default();
    let mut epoch = claims();
    let walk = walker.walk(&[tensor], &[], Privacy::Open, &mut epoch);
    drop(epoch);
    match walk? {
        Walk::Done => Ok(None),
        Walk::Claimed(pending) => {
            let claim = Claim(&pending);
            let planned = pending.plan(pending.device());
            drop(claim);
            drop(pending);
            let (plan, is_new) = planned?;
            if is_new {
                placement::tell(&plan);
            }
            Ok(Some(plan))
        }
        Walk::Busy | Walk::Copies(_) => {
            let message =
                "the tensor depends on work in flight or on another device: evaluate its inputs first";
            Err(Error::argument("explain", message))
        }
    }
}

/// Runs a graph on a device, with the leaves in slot order. The conformance suite uses this to test a device.
pub fn execute_ir(ir: &Ir, leaves: &[Tensor], device: Device) -> Result<Vec<Tensor>> {
    let data: Vec<Storage> = leaves.iter().map(Tensor::storage).collect::<Result<_>>()?;
    let described: Vec<Leaf> =
        data.iter().map(|d| Leaf { layout: d.layout.clone(), donatable: false }).collect();
    let results = planned(ir, &described, device)?.run(
        &data.iter().collect::<Vec<_>>(),
        &|_| false,
        &Cell::new(false),
    )?;
    let outputs = ir.outputs.iter().zip(results);
    Ok(outputs.map(|(&o, storage)| Tensor::from_storage(device, ir.node(o).dtype, storage)).collect())
}
