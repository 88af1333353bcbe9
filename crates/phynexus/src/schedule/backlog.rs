//! Bounds on pending work.
//!
//! Each thread lists the nodes that it records. Held values are computed automatically when a bound is exceeded: either
//! the memory that only pending nodes keep alive, or the number of nodes recorded since the last evaluation. A program
//! that never reads its results therefore cannot accumulate unbounded work.
//!
//! The list is scanned where memory is allocated. That happens between the parts of a computation, not within them, so
//! the graphs of a loop's steps stay equal from step to step.

mod survey;

use std::{
    cell::RefCell,
    sync::{Arc, Weak, atomic::Ordering},
};

use smallvec::SmallVec;

use self::survey::Survey;
use super::{capture::is_recording, evaluate_roots};
use crate::{Device, Error, Result, Tensor, graph::node::Node, interrupt::Shield, op::Op};

/// Nodes that may be recorded before an evaluation is forced.
const NODES: usize = 1 << 15;
/// Pending nodes that may survive two evaluations.
const LEFT_OVER: usize = 1 << 12;
/// Bytes that pending nodes may keep alive on any device.
const BYTES: usize = 1 << 18;
/// Pending nodes may keep alive one part in `SHARE` of the device memory in use.
const SHARE: usize = 32;
/// Bytes that must be allocated per pending node before the list is scanned again.
const PAYS: usize = 256;
/// Uploads smaller than this are counted but never trigger an evaluation: seeds, counters and settings of a step.
const SMALL: usize = 1 << 12;

thread_local! {
    static BACKLOG: RefCell<Backlog> = const { RefCell::new(Backlog::new()) };
}

struct Backlog {
    /// Nodes that this thread recorded. Many are already computed or dropped.
    nodes: Vec<Weak<Node>>,
    /// Nodes recorded since the last evaluation.
    recorded: usize,
    /// The number of the newest node, and its value at the last evaluation.
    newest: u64,
    evaluated: u64,
    /// Bytes that pending nodes keep alive, as of the last scan, plus the bytes allocated since.
    grown: usize,
    /// The value of `grown` above which the list is scanned.
    limit: usize,
    /// The length of the list at which it is scanned.
    longest: usize,
    /// True while work runs because a bound was exceeded.
    is_relieving: bool,
}

impl Backlog {
    const fn new() -> Backlog {
        Backlog {
            nodes: Vec::new(),
            recorded: 0,
            newest: 0,
            evaluated: 0,
            grown: 0,
            limit: BYTES,
            longest: LEFT_OVER,
            is_relieving: false,
        }
    }
}

/// Updates this thread's backlog. Does nothing while the thread is being torn down.
fn with<R: Default>(change: impl FnOnce(&mut Backlog) -> R) -> R {
    BACKLOG.try_with(|backlog| change(&mut backlog.borrow_mut())).unwrap_or_default()
}

/// Lists a recorded node, and evaluates held values if too many nodes are pending.
pub(crate) fn note_recorded(node: &Arc<Node>) -> Result<()> {
    if is_recording() {
        return Ok(());
    }
    let is_full = with(|backlog| {
        backlog.nodes.push(Arc::downgrade(node));
        backlog.recorded += 1;
        backlog.newest = node.number;
        backlog.recorded >= NODES && !backlog.is_relieving
    });
    if is_full { relieve(Bound::Recorded) } else { Ok(()) }
}

/// Counts memory uploaded from the host.
pub(crate) fn note_uploaded(bytes: usize) -> Result<()> {
    let is_due = with(|backlog| {
        backlog.grown = backlog.grown.saturating_add(bytes);
        bytes >= SMALL && backlog.grown > backlog.limit && !backlog.is_relieving
    });
    if is_due && !is_recording() { relieve(Bound::Bytes) } else { Ok(()) }
}

/// Counts the results of an evaluation. The requested data is ready, so later failures are not reported here.
pub(super) fn note_evaluated(bytes: usize) {
    let bound = with(|backlog| {
        backlog.recorded = 0;
        backlog.grown = backlog.grown.saturating_add(bytes);
        let before = std::mem::replace(&mut backlog.evaluated, backlog.newest);
        let is_due = backlog.grown > backlog.limit || backlog.nodes.len() >= backlog.longest;
        (is_due && !backlog.is_relieving).then_some(Bound::LeftOver(before))
    });
    if let Some(bound) = bound.filter(|_| !is_recording()) {
        let _shield = Shield::new();
        // The shield excludes interruption. Other errors reappear when the failed tensor is read.
        let _ = relieve(bound);
    }
}

/// The bound that was exceeded. The memory bound is checked in every case.
#[derive(Clone, Copy)]
enum Bound {
    Bytes,
    /// Too many nodes were recorded.
    Recorded,
    /// Nodes up to this number count as left over.
    LeftOver(u64),
}

/// Computes what exceeds the bound. Nodes that fail stay pending and raise their error when they are read.
fn relieve(bound: Bound) -> Result<()> {
    let nodes = with(|backlog| {
        backlog.is_relieving = true;
        std::mem::take(&mut backlog.nodes)
    });
    let result = look_through(nodes, bound);
    with(|backlog| {
        backlog.is_relieving = false;
        backlog.recorded = 0;
    });
    result
}

fn look_through(nodes: Vec<Weak<Node>>, bound: Bound) -> Result<()> {
    // A node that a walk visited and left pending is internal to a computed graph. A gradient may still need it.
    let is_left = |node: &Arc<Node>| !node.is_ready() && node.mark.load(Ordering::Relaxed) == 0;
    let left: Vec<Arc<Node>> = nodes.into_iter().filter_map(|node| node.upgrade()).filter(is_left).collect();
    let survey = Survey::of(&left);
    survey.drop_garbage();
    let kept = survey.bytes();
    let limit = if kept > BYTES { memory_in_use(&left) / SHARE } else { 0 }.max(BYTES);
    let old = match bound {
        Bound::Bytes => 0,
        Bound::Recorded => left.len() / 2 + 1,
        Bound::LeftOver(newest) => {
            let old = left.partition_point(|node| node.number <= newest);
            if old >= LEFT_OVER { old } else { 0 }
        }
    };
    // All ranks must begin collectives at the same place in the program, which memory does not decide.
    let waits = !matches!(bound, Bound::Recorded) && left.iter().any(|node| is_collective(node));
    let wanted = match () {
        () if waits => Default::default(),
        () if kept > limit => survey.holding_memory(),
        () => survey.held(old),
    };
    drop(survey);
    with(|backlog| {
        let recorded_since = std::mem::take(&mut backlog.nodes);
        backlog.nodes = left.iter().map(Arc::downgrade).chain(recorded_since).collect();
        backlog.longest = backlog.nodes.len() + LEFT_OVER;
        backlog.grown = 0;
        // Scanning many nodes is worthwhile only after much has been allocated.
        backlog.limit = (limit - kept.min(limit)).max(limit / 4).max(left.len() * PAYS);
    });
    // The walk counts handles to decide which nodes are held, so release these first.
    drop(left);
    let all: SmallVec<[&Tensor; 8]> = wanted.iter().collect();
    let Err(error) = evaluate_roots(&all, &[]) else { return Ok(()) };
    let interruption = |error: Error| if matches!(error, Error::Interrupted) { Err(error) } else { Ok(()) };
    interruption(error)?;
    all.iter().try_for_each(|&tensor| evaluate_roots(&[tensor], &[]).map(drop).or_else(interruption))
}

fn is_collective(node: &Node) -> bool {
    matches!(node.op(), Op::Collective(_))
}

/// Bytes in use on the device with the highest use, among the devices of these nodes.
fn memory_in_use(nodes: &[Arc<Node>]) -> usize {
    let mut devices: SmallVec<[Device; 2]> = SmallVec::new();
    for node in nodes {
        if !devices.contains(&node.device) {
            devices.push(node.device);
        }
    }
    devices.iter().map(|device| device.memory().allocated).max().unwrap_or(0)
}
