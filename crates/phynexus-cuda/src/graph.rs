//! Repeated launches as one CUDA graph.

use std::{
    ops::Range,
    ptr,
    sync::{Arc, Mutex, PoisonError},
};

use cudarc::driver::{
    result::graph,
    sys::{self, CUgraph, CUgraphExec, CUgraphNode},
};
use phynexus::{
    Result,
    gpu::{LaunchGraph, Repeated, Submission},
};
use smallvec::SmallVec;

use crate::{
    context::Addresses,
    gpu::Cuda,
    parameters::{Parameters, addresses},
};

/// So many parts of a sequence are kept.
const PARTS: usize = 16;

/// A part of a sequence, by the numbers of its launches.
type Part = (Range<usize>, Arc<Repeated<Graph>>);

/// The recorded launches that repeat together: a sequence, or parts of it, between which it waits for collectives.
#[derive(Default)]
pub(crate) struct Recording {
    /// Least recently made first.
    parts: Mutex<Vec<Part>>,
}

impl Recording {
    /// Submits a part of a sequence. The context must be current.
    pub(crate) fn launch(
        &self,
        gpu: &Cuda,
        submissions: &[Submission<'_, Cuda>],
        part: Range<usize>,
    ) -> Result<()> {
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        let known = parts.iter().find(|(known, _)| *known == part).map(|(_, repeated)| repeated.clone());
        let (repeated, dropped) = match known {
            Some(known) => (known, None),
            None => {
                let dropped = (parts.len() >= PARTS).then(|| parts.remove(0));
                let made = Arc::<Repeated<Graph>>::default();
                parts.push((part.clone(), made.clone()));
                (made, dropped)
            }
        };
        drop(parts);
        drop(dropped);
        repeated.launch(gpu, &submissions[part])
    }
}

/// A graph of launches.
pub(crate) struct Graph {
    graph: CUgraph,
    executable: CUgraphExec,
    nodes: Vec<CUgraphNode>,
}

// SAFETY: the driver's handles may be used from any thread, and only one thread at a time has a graph.
unsafe impl Send for Graph {}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: these are the only handles; the driver keeps what is still running. After a failure the handles leak,
        // which is harmless.
        unsafe {
            if !self.executable.is_null() {
                let _ = graph::exec_destroy(self.executable);
            }
            let _ = graph::destroy(self.graph);
        }
    }
}

impl LaunchGraph for Graph {
    type Driver = Cuda;

    fn addresses(submission: &Submission<'_, Cuda>) -> Addresses {
        addresses(submission)
    }

    /// The context must be current.
    fn new(_: &Cuda, submissions: &[Submission<'_, Cuda>], waits: &[Vec<usize>]) -> Option<Graph> {
        let mut made = Graph { graph: ptr::null_mut(), executable: ptr::null_mut(), nodes: Vec::new() };
        // SAFETY: the pointer is valid for the call.
        unsafe { sys::cuGraphCreate(&mut made.graph, 0) }.result().ok()?;
        for (submission, before) in submissions.iter().zip(waits) {
            let mut parameters = Parameters::of(submission).ok()?;
            let mut parameters = parameters.pointers();
            let module = submission.module.kernel()?;
            let node = module.node(submission.kernel, &mut parameters);
            let before: SmallVec<[CUgraphNode; 8]> =
                before.iter().map(|&earlier| made.nodes[earlier]).collect();
            let mut handle = ptr::null_mut();
            // SAFETY: all pointers are valid for the call, which copies their targets; the nodes are this graph's.
            unsafe {
                sys::cuGraphAddKernelNode_v2(&mut handle, made.graph, before.as_ptr(), before.len(), &node)
            }
            .result()
            .ok()?;
            if let Some((id, value)) = module.attribute() {
                // SAFETY: the node was just made; the driver copies the value.
                unsafe { sys::cuGraphKernelNodeSetAttribute(handle, id, &value) }.result().ok()?;
            }
            made.nodes.push(handle);
        }
        // SAFETY: the graph is complete and valid.
        made.executable = unsafe { graph::instantiate(made.graph, sys::CUgraphInstantiate_flags(0)) }.ok()?;
        Some(made)
    }

    /// The context must be current.
    fn patch(&mut self, at: usize, submission: &Submission<'_, Cuda>) -> bool {
        let (Some(module), Ok(mut parameters)) = (submission.module.kernel(), Parameters::of(submission))
        else {
            return false;
        };
        let mut parameters = parameters.pointers();
        let node = module.node(submission.kernel, &mut parameters);
        // SAFETY: the node belongs to the instantiated graph; the driver copies the parameters.
        unsafe { sys::cuGraphExecKernelNodeSetParams_v2(self.executable, self.nodes[at], &node) }
            .result()
            .is_ok()
    }

    fn launch(&self, gpu: &Cuda) -> Result<()> {
        // SAFETY: the graph and the stream are valid. The checker proved every access of the kernels in bounds of their
        // parameters' lengths, and the plan binds memory of these lengths with the requested alignment.
        unsafe { graph::launch(self.executable, gpu.context.stream()) }
            .map_err(|e| gpu.context.error("launching a graph of kernels", e))
    }
}
