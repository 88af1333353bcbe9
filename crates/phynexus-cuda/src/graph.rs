//! Launches that are repeated, as one CUDA graph: the driver then launches all of them at the cost of a few, and kernels
//! that do not need each other's results run side by side.

use std::{
    ops::Range,
    ptr,
    sync::{Mutex, PoisonError},
};

use cudarc::driver::{
    DriverError,
    result::graph,
    sys::{self, CUdeviceptr, CUgraph, CUgraphExec, CUgraphNode},
};
use phynexus::{Result, gpu::Submission};
use smallvec::SmallVec;

use crate::{
    context::{Addresses, parameters},
    driver::{Cuda, addresses},
};

/// Fewer launches than this are made one by one.
const LEAST: usize = 3;
/// Graphs that are kept, each for its addresses: those of steps that take turns.
const GRAPHS: usize = 4;

/// The graphs of one sequence of launches.
#[derive(Default)]
pub(crate) struct Recording {
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    /// True once the launches have been made: those that are made once are not worth a graph.
    repeated: bool,
    /// The one that was used longest ago comes first. A graph in use is not here.
    graphs: Vec<Graph>,
}

/// A graph for some modules and addresses.
struct Graph {
    /// Of each launch its module's address and those of its buffers.
    key: Vec<u64>,
    graph: CUgraph,
    executable: CUgraphExec,
    nodes: Vec<CUgraphNode>,
    /// Of each launch those that it waits for.
    waits: Vec<Vec<usize>>,
}

// SAFETY: handles of the driver may be used from any thread, and one thread at a time has a graph.
unsafe impl Send for Graph {}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: nobody else has the handles; the driver keeps what still runs. A failure leaves them, which harms nobody.
        unsafe {
            if !self.executable.is_null() {
                let _ = graph::exec_destroy(self.executable);
            }
            let _ = graph::destroy(self.graph);
        }
    }
}

impl Recording {
    /// Makes the launches. The context must be current.
    pub(crate) fn launch(&self, gpu: &Cuda, submissions: &[Submission<'_, Cuda>]) -> Result<()> {
        let mut all: Vec<Addresses> = submissions.iter().map(addresses).collect();
        let lock = || self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let key = key(submissions, &all);
        let known = {
            let mut kept = lock();
            let repeated = std::mem::replace(&mut kept.repeated, true);
            let same = kept.graphs.iter().position(|graph| graph.key == key);
            match same {
                _ if !repeated || submissions.len() < LEAST => Err(false),
                Some(at) => Ok(kept.graphs.remove(at)),
                None if kept.graphs.len() < GRAPHS => Err(true),
                None => Ok(kept.graphs.remove(0)),
            }
        };
        let fitted = |mut graph: Graph, all: &mut [Addresses]| {
            let fits = graph.key == key || graph.patch(submissions, all, &key).is_ok();
            fits.then_some(graph)
        };
        let graph = match known {
            // Its modules or what waits for what may be others.
            Ok(graph) => {
                fitted(graph, &mut all).or_else(|| Graph::new(submissions, &mut all, key.clone()).ok())
            }
            Err(true) => Graph::new(submissions, &mut all, key.clone()).ok(),
            Err(false) => None,
        };
        let Some(graph) = graph else {
            // SAFETY: the checker proved every access of the kernels in bounds of their parameters' lengths, and the plan
            // binds memory of these lengths, aligned as was asked for.
            return submissions.iter().zip(&mut all).try_for_each(|(submission, addresses)| unsafe {
                gpu.context.launch(submission.module, addresses)
            });
        };
        // SAFETY: graph and stream are valid, and the kernels' accesses as above.
        let launched = unsafe { graph::launch(graph.executable, gpu.context.stream()) };
        launched.map_err(|e| gpu.context.error("launching a graph of kernels", e))?;
        lock().graphs.push(graph);
        Ok(())
    }
}

fn key(submissions: &[Submission<'_, Cuda>], all: &[Addresses]) -> Vec<u64> {
    let mut key = Vec::with_capacity(8 * submissions.len());
    for (submission, addresses) in submissions.iter().zip(all) {
        key.push(ptr::from_ref(submission.module).addr() as u64);
        key.extend_from_slice(addresses);
    }
    key
}

impl Graph {
    fn new(
        submissions: &[Submission<'_, Cuda>],
        all: &mut [Addresses],
        key: Vec<u64>,
    ) -> Result<Graph, DriverError> {
        let waits = dependencies(submissions, all);
        let mut made =
            Graph { key, graph: ptr::null_mut(), executable: ptr::null_mut(), nodes: Vec::new(), waits };
        // SAFETY: the pointer is valid for the call.
        unsafe { sys::cuGraphCreate(&mut made.graph, 0) }.result()?;
        for (at, (submission, addresses)) in submissions.iter().zip(all).enumerate() {
            let mut parameters = parameters(addresses);
            let node = submission.module.node(&mut parameters);
            let before: SmallVec<[CUgraphNode; 8]> =
                made.waits[at].iter().map(|&earlier| made.nodes[earlier]).collect();
            let mut handle = ptr::null_mut();
            // SAFETY: all pointers are valid for the call, which copies what they point to; the nodes are this graph's.
            unsafe {
                sys::cuGraphAddKernelNode_v2(&mut handle, made.graph, before.as_ptr(), before.len(), &node)
            }
            .result()?;
            made.nodes.push(handle);
        }
        // SAFETY: the graph is complete and valid.
        made.executable = unsafe { graph::instantiate(made.graph, sys::CUgraphInstantiate_flags(0)) }?;
        Ok(made)
    }

    /// Gives the graph other addresses, if with them the same launches wait for each other.
    fn patch(
        &mut self,
        submissions: &[Submission<'_, Cuda>],
        all: &mut [Addresses],
        key: &[u64],
    ) -> Result<(), DriverError> {
        let other = DriverError(sys::CUresult::CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
        if self.nodes.len() != submissions.len() || self.waits != dependencies(submissions, all) {
            return Err(other);
        }
        let mut place = 0;
        for (at, (submission, addresses)) in submissions.iter().zip(all).enumerate() {
            let part = place..place + 1 + addresses.len();
            place = part.end;
            let (old, new) = (self.key.get(part.clone()), key.get(part));
            if old == new {
                continue;
            }
            if old.and_then(<[u64]>::first) != new.and_then(<[u64]>::first) {
                return Err(other);
            }
            let mut parameters = parameters(addresses);
            let node = submission.module.node(&mut parameters);
            // SAFETY: the node is of the graph that was instantiated; the driver copies the parameters.
            unsafe { sys::cuGraphExecKernelNodeSetParams_v2(self.executable, self.nodes[at], &node) }
                .result()?;
        }
        self.key = key.to_vec();
        Ok(())
    }
}

/// What a launch touches: a range of addresses, and whether it writes there.
struct Touched {
    range: Range<CUdeviceptr>,
    written: bool,
}

/// For each launch those before it whose results it needs, or whose memory it writes; of these only the ones that are
/// not waited for already.
fn dependencies(submissions: &[Submission<'_, Cuda>], all: &[Addresses]) -> Vec<Vec<usize>> {
    let touched: Vec<Vec<Touched>> = submissions
        .iter()
        .zip(all)
        .map(|(submission, addresses)| {
            let buffers = submission.kernel.buffers.iter().zip(addresses);
            let each = buffers.map(|(buffer, &start)| {
                let bytes = (buffer.length * buffer.dtype.size()) as u64;
                Touched { range: start..start.saturating_add(bytes), written: buffer.written }
            });
            each.collect()
        })
        .collect();
    let collide = |a: &[Touched], b: &[Touched]| {
        a.iter().any(|a| {
            b.iter().any(|b| {
                (a.written || b.written) && a.range.start < b.range.end && b.range.start < a.range.end
            })
        })
    };
    // By launch, all that come before it in the graph.
    let mut before: Vec<Vec<bool>> = Vec::with_capacity(touched.len());
    let mut waits = Vec::with_capacity(touched.len());
    for (at, this) in touched.iter().enumerate() {
        let (mut reached, mut direct) = (vec![false; at], Vec::new());
        for earlier in (0..at).rev() {
            if !reached[earlier] && collide(&touched[earlier], this) {
                direct.push(earlier);
                reached[earlier] = true;
                for (place, &reachable) in before[earlier].iter().enumerate() {
                    reached[place] |= reachable;
                }
            }
        }
        before.push(reached);
        waits.push(direct);
    }
    waits
}
