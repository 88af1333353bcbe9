//! Bounds on pending work.
//!
//! Each thread lists the nodes that it records. Values that somebody holds are computed by themselves when the memory that
//! only pending nodes keep alive, or the number of nodes recorded since the last evaluation, exceeds a bound: forgotten reads
//! cannot pile up work. The list is looked through where memory is allocated, which is between the parts of a computation
//! rather than within them, so that the graphs of a loop's steps stay equal from step to step.

mod survey;

use std::{
    cell::RefCell,
    sync::{Arc, Weak, atomic::Ordering},
};

use smallvec::SmallVec;

use self::survey::Survey;
use super::{capture::is_recording, evaluate_roots};
use crate::{Device, Error, Result, Tensor, graph::node::Node, interrupt::Shield};

/// Nodes that may be recorded without an evaluation.
const NODES: usize = 1 << 15;
/// Pending nodes that two evaluations may have left over.
const LEFT_OVER: usize = 1 << 12;
/// Bytes that pending nodes may always keep alive.
const BYTES: usize = 1 << 18;
/// The share of a device's memory in use that pending nodes may keep alive.
const SHARE: usize = 32;
/// Bytes allocated for each pending node before the nodes are looked through again.
const PAYS: usize = 256;
/// Uploads smaller than this are counted but never lead to an evaluation: seeds, counters and settings of a step.
const SMALL: usize = 1 << 12;

thread_local! {
    static BACKLOG: RefCell<Backlog> = const { RefCell::new(Backlog::new()) };
}

struct Backlog {
    /// What this thread has recorded; much of it is computed or gone.
    nodes: Vec<Weak<Node>>,
    /// Nodes recorded since the last evaluation.
    recorded: usize,
    /// The number of the newest node, and what it was at the last evaluation.
    newest: u64,
    evaluated: u64,
    /// Bytes that pending nodes were found to keep alive, and those allocated since.
    grown: usize,
    /// The bytes at which the list is looked through.
    limit: usize,
    /// The length at which it is.
    longest: usize,
    /// True while work runs because of a bound.
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

/// Changes this thread's backlog; nothing while the thread ends.
fn with<R: Default>(change: impl FnOnce(&mut Backlog) -> R) -> R {
    BACKLOG.try_with(|backlog| change(&mut backlog.borrow_mut())).unwrap_or_default()
}

/// Lists a node that was recorded, and computes what is held if too many are pending.
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

/// Counts memory that the host filled.
pub(crate) fn note_uploaded(bytes: usize) -> Result<()> {
    let is_due = with(|backlog| {
        backlog.grown = backlog.grown.saturating_add(bytes);
        bytes >= SMALL && backlog.grown > backlog.limit && !backlog.is_relieving
    });
    if is_due && !is_recording() { relieve(Bound::Bytes) } else { Ok(()) }
}

/// Counts the results of an evaluation. What was asked for is there: nothing that follows is an error.
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
        // Under the shield there is no interruption, and whoever reads what failed has its error.
        let _ = relieve(bound);
    }
}

/// Which bound was met. That of memory holds always.
#[derive(Clone, Copy)]
enum Bound {
    Bytes,
    /// So many nodes were recorded.
    Recorded,
    /// Nodes up to this number may be left over.
    LeftOver(u64),
}

/// Computes what exceeds the bound. What cannot be computed stays pending: whoever reads it has the error.
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
    // What a walk has met and left pending lies inside something computed: a gradient may need it.
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
    let wanted = if kept > limit { survey.holding_memory() } else { survey.held(old) };
    drop(survey);
    with(|backlog| {
        let recorded_since = std::mem::take(&mut backlog.nodes);
        backlog.nodes = left.iter().map(Arc::downgrade).chain(recorded_since).collect();
        backlog.longest = backlog.nodes.len() + LEFT_OVER;
        backlog.grown = 0;
        // Looking through many nodes pays only after much has been allocated.
        backlog.limit = (limit - kept.min(limit)).max(limit / 4).max(left.len() * PAYS);
    });
    // Who holds a node is counted.
    drop(left);
    let all: SmallVec<[&Tensor; 8]> = wanted.iter().collect();
    let Err(error) = evaluate_roots(&all, &[]) else { return Ok(()) };
    let interruption = |error: Error| if matches!(error, Error::Interrupted) { Err(error) } else { Ok(()) };
    interruption(error)?;
    all.iter().try_for_each(|&tensor| evaluate_roots(&[tensor], &[]).map(drop).or_else(interruption))
}

/// Bytes in use on the device that has most of them, of those on which these nodes are computed.
fn memory_in_use(nodes: &[Arc<Node>]) -> usize {
    let mut devices: SmallVec<[Device; 2]> = SmallVec::new();
    for node in nodes {
        if !devices.contains(&node.device) {
            devices.push(node.device);
        }
    }
    devices.iter().map(|device| device.memory().allocated).max().unwrap_or(0)
}
